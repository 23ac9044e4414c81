-- What the verbs about endpoints share: the state in force, checks, locking, storing, lifecycle events.
-- Every change goes through _take_endpoint (lock, state in force) and _save_endpoint (generation, audit, wake);
-- nothing here writes _endpoint_state, and nothing here touches a delivery: the leader cancels and resumes.

create view webhook._effective_endpoint as
select e.endpoint_id,
       e.partner_id,
       e.test,
       e.origin,
       coalesce(s.state, e.state) as state,
       case when s.state is null then e.state_reason else s.reason end as state_reason,
       case when s.state is null then e.state_changed_at else s.changed_at end as state_changed_at
  from webhook._endpoint e
  left join webhook._endpoint_state s
         on s.endpoint_id = e.endpoint_id
        and s.generation = e.generation;
comment on view webhook._effective_endpoint is
  'Endpoints with the state that is in force: the leader''s finding while it is of the current generation, else the user''s word.';
comment on column webhook._effective_endpoint.endpoint_id is 'The endpoint.';
comment on column webhook._effective_endpoint.partner_id is 'Tenant that owns it.';
comment on column webhook._effective_endpoint.test is 'Test endpoint.';
comment on column webhook._effective_endpoint.origin is 'Which database made it.';
comment on column webhook._effective_endpoint.state is 'State in force.';
comment on column webhook._effective_endpoint.state_reason is 'Why.';
comment on column webhook._effective_endpoint.state_changed_at is 'Since when.';

create function webhook._check_partner(
  partner_id text -- tenant
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  -- The operator is a partner like others here: its endpoints get the lifecycle events of all partners.
  if partner_id = '_operator' then
    return partner_id;
  end if;
  -- The words of emit, which refuses the same partner ids.
  if partner_id like '\_%' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'partner ids that begin with "_" are reserved';
  end if;
  if not webhook._valid_partner(partner_id) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'partner id is not valid',
      detail = 'A partner id has 1 to 128 characters of A-Z, a-z, 0-9, "_", ".", ":" and "-".';
  end if;
  return partner_id;
end
$$;
comment on function webhook._check_partner(text) is 'Refuses a partner id that no endpoint can have.';

create function webhook._check_event_types(
  event_types text[] -- event types and wildcards
) returns text[] -- the same without duplicates, in order of first mention
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  patterns text[];
  refused text;
begin
  perform webhook._check_argument('event_types', event_types is null or array_position(event_types, null) is not null);
  select array_agg(p.pattern order by p.first_mention)
    into patterns
    from (select u.pattern, min(u.place) as first_mention
            from unnest(event_types) with ordinality as u (pattern, place)
           group by u.pattern) as p;
  if patterns is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'event_types must not be empty',
      hint = 'Use ''{*}'' for every event type.';
  end if;
  if cardinality(patterns) > 100 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'too many event types',
      detail = format('There are %s; the limit is 100 for each endpoint.', cardinality(patterns)),
      hint = 'Use wildcards such as "customer.*".';
  end if;
  select u.pattern
    into refused
    from unnest(patterns) as u (pattern)
   where not webhook._valid_pattern(u.pattern)
   limit 1;
  if found then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('event type "%s" is not valid', left(refused, 128)),
      detail = 'An event type has 1 to 128 characters of A-Z, a-z, 0-9, "_" and "-", in parts separated by dots.',
      hint = 'Wildcards are "*" and a prefix that ends in ".*".';
  end if;
  return patterns;
end
$$;
comment on function webhook._check_event_types(text[]) is 'Refuses event types that no event can have; removes duplicates.';

create function webhook._check_max_in_flight(
  max_in_flight integer -- concurrent requests to one endpoint, null = not said here
) returns integer
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if max_in_flight not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'max_in_flight is outside the valid range',
      detail = format('It is %s; the range is 1 to 1000.', max_in_flight),
      hint = 'Leave it out for webhook.max_in_flight_per_endpoint, or what the policy says instead.';
  end if;
  return max_in_flight;
end
$$;
comment on function webhook._check_max_in_flight(integer) is 'Refuses a concurrency that is outside the range.';

create function webhook._check_type(
  type text -- event type
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if not webhook._valid_type(type) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('event type "%s" is not valid', left(type, 128)),
      detail = 'An event type has 1 to 128 characters of A-Z, a-z, 0-9, "_" and "-", in parts separated by dots.',
      hint = 'Wildcards are not possible here.';
  end if;
  return type;
end
$$;
comment on function webhook._check_type(text) is 'Refuses a text that is not one event type.';

create function webhook._check_policy_exists(
  policy text -- name of a policy, null = "default"
) returns text -- the same; null for "default"
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  -- FOR KEY SHARE: delete_policy waits for those who are about to name it, update_policy does not.
  perform from webhook._policy p
    where p.name = policy
      for key share;
  if policy is not null and not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('policy "%s" does not exist', left(policy, 128));
  end if;
  return nullif(policy, 'default');
end
$$;
comment on function webhook._check_policy_exists(text) is 'Refuses a policy that does not exist, and keeps it from being deleted until the transaction ends.';

create function webhook._take_endpoint(
  endpoint_id bigint -- the endpoint
) returns webhook._endpoint -- its row, locked, with the state that is in force
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
begin
  perform webhook._check_argument('endpoint_id', endpoint_id is null);
  select e.*
    into endpoint
    from webhook._endpoint e
   where e.endpoint_id = _take_endpoint.endpoint_id
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('endpoint %s does not exist', endpoint_id);
  end if;
  if endpoint.state = 'deleted' then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is deleted', endpoint_id),
      hint = 'Create a new endpoint.';
  end if;
  -- A new generation makes the leader's finding void: without this, a new URL would put an endpoint back into
  -- service that had answered 410.
  select e.state, e.state_reason, e.state_changed_at
    into endpoint.state, endpoint.state_reason, endpoint.state_changed_at
    from webhook._effective_endpoint e
   where e.endpoint_id = _take_endpoint.endpoint_id;
  return endpoint;
end
$$;
comment on function webhook._take_endpoint(bigint) is 'Locks an endpoint that is to be changed and returns it as it stands.';

create function webhook._save_endpoint(
  endpoint webhook._endpoint,       -- row of _take_endpoint with the changes made
  verb text,                        -- function that was called
  reason text default null,         -- why, in the user's words
  request_id bigint default null,   -- the request that goes with the change
  void boolean default false        -- the verb is about the state: it sets it, and the leader's findings are void
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._endpoint;
begin
  -- The row is locked, so this is the one that _take_endpoint read.
  select e.*
    into former
    from webhook._endpoint e
   where e.endpoint_id = endpoint.endpoint_id;
  select e.state, e.state_reason, e.state_changed_at
    into former.state, former.state_reason, former.state_changed_at
    from webhook._effective_endpoint e
   where e.endpoint_id = endpoint.endpoint_id;
  -- The leader waits for no lock and may have found something since: a new description must not put an endpoint
  -- back into service that has just been disabled.
  if not void then
    endpoint.state := former.state;
    endpoint.state_reason := former.state_reason;
    endpoint.state_changed_at := former.state_changed_at;
  end if;
  update webhook._endpoint e
     set url = endpoint.url,
         event_types = endpoint.event_types,
         state = endpoint.state,
         state_reason = endpoint.state_reason,
         state_changed_at = endpoint.state_changed_at,
         description = endpoint.description,
         max_in_flight = endpoint.max_in_flight,
         policy = endpoint.policy,
         ordered = endpoint.ordered,
         subject_types = endpoint.subject_types,
         filter = endpoint.filter,
         filter_version = endpoint.filter_version,
         verify = endpoint.verify,
         pending_url = endpoint.pending_url,
         proof_generation = endpoint.proof_generation,
         proof_asked_at = endpoint.proof_asked_at,
         verified_at = endpoint.verified_at,
         verified_by = endpoint.verified_by,
         expires_at = endpoint.expires_at,
         renewed_at = endpoint.renewed_at,
         revision = endpoint.revision,
         signature = endpoint.signature,
         headers = endpoint.headers,
         headers_changed_at = endpoint.headers_changed_at,
         -- How the endpoint has answered is worth keeping: only what makes it another receiver voids it.
         generation = case
           when void or endpoint.url <> former.url then e.generation + 1
           else e.generation
         end,
         changed_xid = pg_current_xact_id()
   where e.endpoint_id = endpoint.endpoint_id;
  perform webhook._log(
    verb, 'endpoint', endpoint.endpoint_id::text, endpoint.partner_id,
    webhook._without_path(webhook._changed(webhook._endpoint_facts(former), webhook._endpoint_facts(endpoint))),
    webhook._without_path(webhook._changed(webhook._endpoint_facts(endpoint), webhook._endpoint_facts(former))),
    reason, request_id);
  perform webhook._wake();
end
$$;
comment on function webhook._save_endpoint(webhook._endpoint, text, text, bigint, boolean) is
  'Stores a changed endpoint, under a new generation when the leader''s findings are void, logs the change and wakes the leader.';

create function webhook._lifecycle(
  endpoint webhook._endpoint,    -- the endpoint
  what text,                     -- what follows "webhook.endpoint."
  reason text,                   -- why; null = not said
  more jsonb default '{}'        -- further members of data
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  told text;
begin
  -- Its own partner and the operator; the operator's own endpoints have one partner only.
  for told in
    select endpoint.partner_id
     union
    select '_operator'
  loop
    perform webhook._emit_reserved(
      type => 'webhook.endpoint.' || what,
      partner_id => told,
      data => jsonb_strip_nulls(jsonb_build_object(
        'endpoint_id', endpoint.endpoint_id::text, 'partner_id', endpoint.partner_id, 'reason', reason) || more),
      subject_type => 'webhook.endpoint',
      subject_id => endpoint.endpoint_id::text,
      test => endpoint.test);
  end loop;
end
$$;
comment on function webhook._lifecycle(webhook._endpoint, text, text, jsonb) is
  'Emits what happened to an endpoint to its partner''s other endpoints and to the operator''s.';

create function webhook._alert_about(
  endpoint webhook._endpoint, -- the endpoint
  kind text,                  -- kind of alert
  severity text,              -- info, warning or critical
  detail text                 -- what happened
) returns void
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  insert into webhook._alert (alert_id, kind, severity, partner_id, endpoint_id, detail)
  values (webhook._new_id(), kind, severity, endpoint.partner_id, endpoint.endpoint_id, detail)
$$;
comment on function webhook._alert_about(webhook._endpoint, text, text, text) is 'Writes an alert about an endpoint.';
