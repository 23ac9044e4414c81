-- Giving and taking rights. The privileges of each kind stand in one list; a right is those privileges and a row of
-- _access, which limits what they reach: partners, event types, time.
-- None of these verbs belongs to a kind: whoever may execute them may give himself everything.

create function webhook._access_list()
returns table (
  kinds text, -- kinds that need it, separated by blanks
  name text   -- function, with all its forms, or view
)
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  values
    ('emit', 'emit'),
    ('emit', 'emit_json'),
    ('emit', 'observe'),
    ('emit', '_observe_as_caller'),
    ('emit read operate', 'crossed'),
    -- What a partner may see of itself: its events, what became of them, its endpoints, its alerts.
    ('read operate partner', 'events'),
    ('read operate partner', 'deliveries'),
    ('read operate partner', 'attempts'),
    ('read operate partner', 'dead_letters'),
    ('read operate partner', 'endpoints'),
    ('read operate partner', 'endpoint_health'),
    ('read operate partner', 'stat_endpoint'),
    ('read operate partner', 'alerts'),
    ('read operate partner', 'requests'),
    ('read operate partner', 'verifications'),
    ('read operate partner', 'signing_keys'),
    ('read operate partner', 'tombstones'),
    ('read operate partner', 'explain'),
    ('read operate partner', 'test_filter'),
    ('read operate partner', 'list_events'),
    ('read operate partner', 'list_deliveries'),
    ('read operate partner', 'read_excerpt'),
    ('read operate partner feed', 'events_after'),
    ('read operate partner feed', 'export_events'),
    ('read operate partner feed', 'feed_status'),
    ('read operate partner', 'partner_status'),
    ('read operate partner feed', 'limits'),
    -- What is nobody's own: the house's configuration and how it is doing.
    ('read operate', 'event_types'),
    ('read operate', 'event_schemas'),
    ('read operate', 'event_fields'),
    ('read operate', 'sources'),
    ('read operate', 'subscriptions'),
    ('read operate', 'thresholds'),
    ('read operate', 'observations'),
    ('read operate', 'openapi'),
    ('read operate', 'conversions'),
    ('read operate partner', 'event_versions'),
    ('read operate', '_conversion_fault'),
    ('read operate', 'policies'),
    ('read operate', 'pauses'),
    ('read operate', 'stat_queue'),
    ('read operate', 'stat_worker'),
    ('read operate', 'stat_fenced'),
    ('read operate', 'adoptions'),
    ('read operate', 'erasures'),
    ('read operate', 'reconciliation'),
    ('read operate', 'reconciliations'),
    ('read operate', 'replays'),
    ('read operate', 'seal_keys'),
    ('read operate', 'status'),
    ('read operate', 'metrics'),
    ('read operate', 'stat_metrics'),
    ('read operate', '_metric_list'),
    ('read operate', '_counters'),
    ('read operate', '_gauges'),
    ('read operate', 'dashboard'),
    ('read operate', '_dashboard_page'),
    ('read operate', '_history'),
    ('read operate', '_utc'),
    ('read operate', 'stat_progress_replay'),
    ('read operate', 'stat_progress_adopt'),
    ('read operate', 'stat_progress_retention'),
    ('read operate', 'stat_progress_expunge'),
    ('read operate', '_retention_progress'),
    ('read operate', 'report'),
    ('operate', 'create_endpoint'),
    ('operate', 'update_endpoint'),
    ('operate', 'preview_filter'),
    ('operate', 'dry_run'),
    ('operate', 'enable_endpoint'),
    ('operate', 'disable_endpoint'),
    ('operate', 'delete_endpoint'),
    ('operate', 'verify_endpoint'),
    ('operate', 'renew_endpoint'),
    ('operate', 'rotate_secret'),
    ('operate', 'confirm_rotation'),
    ('operate', 'revoke_secret'),
    ('operate', 'offboard'),
    ('operate', 'create_policy'),
    ('operate', 'update_policy'),
    ('operate', 'delete_policy'),
    ('operate', 'create_event_type'),
    ('operate', 'update_event_type'),
    ('operate', 'deprecate_event_type'),
    ('operate', 'add_schema'),
    ('operate', 'update_schema'),
    ('operate', 'create_conversion'),
    ('operate', 'delete_conversion'),
    ('operate', 'create_source'),
    ('operate', 'update_source'),
    ('operate', 'create_threshold'),
    ('operate', 'delete_threshold'),
    ('operate', 'replay'),
    ('operate', 'replay_range'),
    ('operate', 'cancel_replay'),
    ('operate', 'retry'),
    ('operate', 'skip'),
    ('operate', 'close'),
    ('operate', 'correct'),
    ('operate', 'pause'),
    ('operate', 'resume'),
    ('operate', 'send_test'),
    ('operate', 'adopt'),
    -- The receiving side. Whoever answers senders reads nothing; handlers get what they process.
    ('receive', 'receive'),
    ('receive handle operate', 'verify'),
    ('receive handle operate', 'explain_signature'),
    ('handle', 'claim_inbox'),
    ('handle', 'finish_inbox'),
    ('read operate', 'inbox'),
    ('read operate', 'inbox_sources'),
    ('read operate', '_is_signed'),
    ('read operate', 'inbox_keys'),
    ('read operate', 'inbox_handlers'),
    ('read operate', 'stat_inbox'),
    ('read operate', 'inbox_rejections'),
    ('operate', 'create_inbox_source'),
    ('operate', 'update_inbox_source'),
    ('operate', 'add_inbox_key'),
    ('operate', 'revoke_inbox_key'),
    ('operate', 'create_inbox_handler'),
    ('operate', 'update_inbox_handler'),
    ('operate', 'delete_inbox_handler'),
    ('operate', 'pause_inbox'),
    ('operate', 'resume_inbox'),
    ('operate', 'retry_inbox'),
    ('operate', 'close_inbox'),
    ('operate', 'replay_inbox'),
    ('operate', 'expunge'),
    ('operate', 'confirm_erasure'),
    ('operate', 'reconcile'),
    ('operate', 'create_reconciliation'),
    ('operate', 'delete_reconciliation'),
    -- What was done, and who may do it: for somebody else than those who do it.
    ('audit', 'audit_log'),
    ('audit', 'access_rights'),
    ('payload', 'read_payload'),
    -- A function that stands in a view runs with the rights of whoever reads it, and so do the lists.
    ('read operate partner feed', '_sees_all'),
    ('read operate partner', '_manages'),
    ('read operate partner feed', '_own_partners'),
    ('read operate partner', '_own_endpoints'),
    ('read operate partner feed', '_origin'),
    ('read operate partner', '_event_time'),
    ('read operate partner', '_event_bound'),
    ('read operate partner feed', '_pos_bound'),
    ('read operate partner', '_delivery_id'),
    ('read operate partner', '_parse_delivery_id'),
    ('read operate partner', '_publication'),
    ('read operate partner', '_redact'),
    ('read operate partner feed', '_check_argument'),
    ('read operate partner', '_check_page'),
    ('read operate partner', '_first_day'),
    ('read operate partner', '_seen_endpoint'),
    ('read operate partner', '_seen_match'),
    ('read operate partner', '_try_filters'),
    ('read operate partner', '_filter_fits'),
    ('read operate partner', '_type_matches'),
    ('read operate partner', '_rfc3339'),
    ('read operate partner feed', '_seen_feed'),
    ('read operate partner', '_seen_delivery'),
    ('read operate partner', '_seen_excerpt'),
    ('read operate partner feed', '_seen_event'),
    ('read operate partner feed', '_check_event_types'),
    ('read operate partner feed', '_valid_pattern'),
    ('read operate partner feed', '_rfc3339'),
    ('read operate partner feed', '_make_durable'),
    ('read operate partner feed', '_is_type_among'),
    ('read operate partner feed', '_feed_data'),
    ('read operate partner feed', '_kept_for'),
    ('read operate partner feed', '_feed_floor'),
    ('read operate partner feed', '_known_origin'),
    ('read operate partner feed', '_range_bound'),
    ('read operate partner feed', '_cursor_check'),
    ('read operate partner feed', '_event_tag'),
    ('read operate partner feed', '_cursor'),
    ('read operate partner feed', '_read_cursor'),
    ('read operate partner feed', '_check_feed'),
    ('read operate partner feed', '_check_export'),
    ('read operate partner feed', '_feed_lag'),
    ('read operate partner', '_seen_due'),
    ('read operate', '_schema_fields'),
    ('read operate', '_keys_in_clear'),
    ('read operate', '_unread'),
    ('read operate', '_inbox_backlog'),
    ('read operate', '_worker'),
    ('read operate', '_foreign_code'),
    ('audit', '_cluster')
$$;
comment on function webhook._access_list() is 'Which kind of right needs which function and view: the one place that says so.';

create function webhook._access_privileges(
  kinds text[] -- kinds of rights
) returns setof text -- "select on ..." and "execute on function ...", for GRANT and REVOKE
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select format('select on %s', c.oid::regclass)
    from webhook._access_list() as l
    join pg_class as c on c.relname = l.name and c.relkind = 'v' and c.relnamespace = 'webhook'::regnamespace
   where string_to_array(l.kinds, ' ') && _access_privileges.kinds
   union
  select format('execute on function %s', p.oid::regprocedure)
    from webhook._access_list() as l
    join pg_proc as p on p.proname = l.name and p.pronamespace = 'webhook'::regnamespace
   where string_to_array(l.kinds, ' ') && _access_privileges.kinds
$$;
comment on function webhook._access_privileges(text[]) is 'Privileges that kinds of rights need.';

create function webhook._check_access(
  role name,      -- role that gets or loses a right
  kind text,      -- kind of right
  partner_id text -- partner that it is limited to
) returns oid -- of the role
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  role_id oid;
begin
  perform webhook._check_argument('role', role is null);
  perform webhook._check_argument('kind', kind is null);
  if kind not in ('emit', 'read', 'operate', 'partner', 'audit', 'payload', 'receive', 'handle', 'feed') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('kind of right "%s" does not exist', left(kind, 128)),
      hint = 'The kinds are emit, read, operate, partner, audit, payload, receive, handle and feed.';
  end if;
  if kind in ('partner', 'feed') then
    perform webhook._check_argument('partner_id', partner_id is null);
  elsif kind not in ('emit', 'payload') and partner_id is not null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('kind "%s" cannot be limited to a partner', kind),
      hint = 'Use the kind "partner" for a role that sees one partner.';
  end if;
  select r.oid
    into role_id
    from pg_roles as r
   where r.rolname = role;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('role "%s" does not exist', role);
  end if;
  return role_id;
end
$$;
comment on function webhook._check_access(name, text, text) is 'Refuses a right that cannot be given to a role.';

create function webhook._lock_access()
returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  -- Sessions that grant at once would both change the same rows of the catalogue, and one would fail.
  lock table webhook._access in share row exclusive mode;
  -- Rights that a dump brought from another cluster are those of the roles of the same names, unless they were
  -- granted here as well.
  delete from webhook._access a
   using webhook._access own, pg_roles r
   where a.cluster <> webhook._cluster()
     and own.cluster = webhook._cluster()
     and r.rolname = a.role_name
     and own.role_id = r.oid
     and own.kind = a.kind
     and own.partner_id is not distinct from a.partner_id;
  update webhook._access a
     set cluster = webhook._cluster(),
         role_id = r.oid
    from pg_roles r
   where a.cluster <> webhook._cluster()
     and r.rolname = a.role_name;
  -- A dump knows roles by their names only.
  update webhook._access a
     set role_name = r.rolname
    from pg_roles r
   where a.cluster = webhook._cluster()
     and r.oid = a.role_id
     and r.rolname <> a.role_name;
end
$$;
comment on function webhook._lock_access() is 'Lets one session at a time change rights, and makes restored rights those of this cluster.';

create function webhook.grant_access(
  role name,                            -- role that gets the right; its members have it, too
  kind text,                            -- emit, read, operate, partner, audit, payload, receive, handle or feed
  partner_id text default null,         -- of emit, partner, payload and feed: this partner only
  event_types text[] default null,      -- of emit and payload: these event types and wildcards only
  valid_until timestamptz default null  -- of payload: end of the right; null = in an hour
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: grants privileges of the owner.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  grantee oid;
  former record;
  privilege text;
begin
  perform webhook._check_writable('grant a right');
  grantee := webhook._check_access(role, kind, partner_id);
  if partner_id is not null then
    perform webhook._check_partner(partner_id);
  end if;
  if event_types is not null then
    if kind not in ('emit', 'payload') then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('kind "%s" cannot be limited to event types', kind);
    end if;
    event_types := webhook._check_event_types(event_types);
  end if;
  if kind = 'payload' then
    valid_until := coalesce(valid_until, clock_timestamp() + interval '1 hour');
    if not (valid_until > clock_timestamp() and valid_until <= clock_timestamp() + interval '7 days') then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = 'valid_until is outside the valid range',
        detail = 'A right to read payloads ends within 7 days.',
        hint = 'Leave it out for one hour.';
    end if;
  elsif valid_until is not null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('kind "%s" has no end', kind),
      hint = 'Only a right to read payloads is limited in time; take others back with webhook.revoke_access.';
  end if;
  perform webhook._lock_access();
  -- A role that sees everything is no partner's: the wider right wins, and somebody would believe otherwise.
  if kind in ('partner', 'feed')
     and (exists (select from pg_roles as r where r.oid = grantee and r.rolsuper)
          or pg_has_role(grantee, 'pg_monitor', 'usage')
          or exists (select from webhook._access a
                      where a.kind in ('read', 'operate')
                        and a.cluster = webhook._cluster()
                        and exists (select from pg_roles as r where r.oid = a.role_id)
                        and pg_has_role(grantee, a.role_id, 'usage')))
  then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('role "%s" sees every partner', role),
      hint = 'Use a role of its own for each partner.';
  end if;
  if kind in ('read', 'operate')
     and exists (select from webhook._access a
                  where a.kind in ('partner', 'feed')
                    and a.cluster = webhook._cluster()
                    and a.role_id = grantee)
  then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('role "%s" is a partner''s', role),
      hint = 'Use another role, or take the kinds "partner" and "feed" back first.';
  end if;
  -- What one of the two shows, the other would show of its partner as well.
  if kind in ('partner', 'feed')
     and exists (select from webhook._access a
                  where a.kind in ('partner', 'feed')
                    and a.kind <> grant_access.kind
                    and a.partner_id <> grant_access.partner_id
                    and a.cluster = webhook._cluster()
                    and a.role_id = grantee)
  then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('role "%s" is another partner''s', role),
      hint = 'Use a role of its own for each partner.';
  end if;

  delete from webhook._access a
   where a.role_id = grantee
     and a.cluster = webhook._cluster()
     and a.kind = grant_access.kind
     and a.partner_id is not distinct from grant_access.partner_id
  returning a.event_types, a.valid_until
       into former;
  insert into webhook._access as a (cluster, role_id, role_name, kind, partner_id, event_types, valid_until)
  values (webhook._cluster(), grantee, role, grant_access.kind, grant_access.partner_id, grant_access.event_types,
          grant_access.valid_until);
  execute format('grant usage on schema webhook to %I', role);
  for privilege in
    select p from webhook._access_privileges(array[kind]) as p
  loop
    execute format('grant %s to %I', privilege, role);
  end loop;
  perform webhook._log(
    'grant_access', 'role', role::text, partner_id,
    before => jsonb_strip_nulls(jsonb_build_object('event_types', former.event_types, 'valid_until', webhook._rfc3339(former.valid_until))),
    after => jsonb_strip_nulls(jsonb_build_object(
      'kind', kind, 'event_types', event_types, 'valid_until', webhook._rfc3339(valid_until))));
end
$$;
comment on function webhook.grant_access(name, text, text, text[], timestamptz) is
  'Gives a role what a kind of right needs: emit, read, operate, partner, audit, payload, receive, handle, feed. Rights of one role add up; granting the same kind for the same partner again replaces its limits.';

create function webhook._take_access(
  role_id oid,    -- role that loses a right
  kind text,      -- kind of right
  partner_id text -- partner that it is limited to; null = that for all of them
) returns boolean -- whether there was such a right
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  role constant name := (select r.rolname from pg_roles as r where r.oid = _take_access.role_id);
  remaining text[];
  privilege text;
begin
  delete from webhook._access a
   where a.role_id = _take_access.role_id
     and a.cluster = webhook._cluster()
     and a.kind = _take_access.kind
     and a.partner_id is not distinct from _take_access.partner_id;
  if not found then
    return false;
  end if;
  select coalesce(array_agg(distinct a.kind::text), '{}')
    into remaining
    from webhook._access a
   where a.role_id = _take_access.role_id
     and a.cluster = webhook._cluster();
  -- A role that was dropped left its privileges behind.
  if role is null then
    return true;
  end if;
  for privilege in
    select p from webhook._access_privileges(array[_take_access.kind]) as p
    except
    select p from webhook._access_privileges(remaining) as p
  loop
    execute format('revoke %s from %I', privilege, role);
  end loop;
  if remaining = '{}' then
    execute format('revoke usage on schema webhook from %I', role);
  end if;
  return true;
end
$$;
comment on function webhook._take_access(oid, text, text) is 'Takes a right and the privileges that no other right of the role needs.';

create function webhook.revoke_access(
  role name,                    -- role that loses the right
  kind text,                    -- emit, read, operate, partner, audit, payload, receive, handle or feed
  partner_id text default null  -- the partner that it was limited to; null = the right for all of them
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: revokes privileges of the owner.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  grantee oid;
begin
  perform webhook._check_writable('revoke a right');
  grantee := webhook._check_access(role, kind, partner_id);
  perform webhook._lock_access();
  if not webhook._take_access(grantee, kind, partner_id) then
    raise exception using
      errcode = 'undefined_object',
      message = format('role "%s" has no right of kind "%s"', role, kind),
      detail = case when partner_id is null
        then 'A right that is limited to a partner is revoked by naming the partner.'
        else format('None that is limited to partner "%s".', partner_id)
      end,
      hint = 'See webhook.access_rights.';
  end if;
  perform webhook._log('revoke_access', 'role', role::text, partner_id, before => jsonb_build_object('kind', kind));
end
$$;
comment on function webhook.revoke_access(name, text, text) is
  'Takes a right from a role, with the privileges that none of its other rights needs. Sessions under way lose it at their next statement.';

create function webhook._end_access(
  partner_id text -- a partner that leaves
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  lost record;
begin
  perform webhook._lock_access();
  for lost in
    select a.role_id, a.role_name, a.kind
      from webhook._access a
     where a.partner_id = _end_access.partner_id
       and a.cluster = webhook._cluster()
     order by a.role_id, a.kind
  loop
    perform webhook._take_access(lost.role_id, lost.kind, _end_access.partner_id);
  end loop;
end
$$;
comment on function webhook._end_access(text) is 'Takes every right that is limited to a partner: offboard does.';

-- SECURITY INVOKER: it judges current_user; the look-up alone runs as the owner.
create function webhook.read_payload(
  event_id text,            -- the event
  reason text,              -- why it is read; kept in the audit log
  version text default null -- schema version, see event_versions; null = as it was emitted
) returns text -- "data" of the event, byte for byte as it is sent
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'read_payload_wrapper';
comment on function webhook.read_payload(text, text, text) is
  'Payload of one event, for a role with a right of kind payload that is in force. Every call is in the audit log and, even when it is rolled back, in the server log.';
