-- Holding deliveries back, and letting them go: everything, a partner, an event type, an endpoint.
-- A pause is configuration that the leader reads as of its window; the request that goes with it says from when
-- on nothing new starts. Nothing is lost meanwhile: what is paused queues up.

create function webhook._check_scope(
  scope text,  -- all, partner, event_type or endpoint
  target text  -- the partner, event type or endpoint
) returns text -- the target; empty for all
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('scope', scope is null);
  if scope not in ('all', 'partner', 'event_type', 'endpoint') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('scope "%s" does not exist', left(scope, 128)),
      hint = 'The scopes are all, partner, event_type and endpoint.';
  end if;
  if scope = 'all' then
    if target is not null then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = 'scope "all" has no target',
        hint = 'Leave it null, or use the scope partner, event_type or endpoint.';
    end if;
    return '';
  end if;
  perform webhook._check_argument('target', target is null);
  case scope
    when 'partner' then
      perform webhook._check_partner(target);
    when 'event_type' then
      perform webhook._check_type(target);
    else
      if target !~ '^[1-9][0-9]{0,18}$' or target::numeric > 9223372036854775807 then
        raise exception using
          errcode = 'invalid_parameter_value',
          message = format('endpoint id "%s" is not valid', left(target, 128));
      end if;
  end case;
  return target;
end
$$;
comment on function webhook._check_scope(text, text) is 'Refuses what cannot be paused.';

create function webhook._scope_name(
  scope text,  -- all, partner or event_type
  target text  -- the partner or the event type
) returns text -- how messages call it
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select case scope
           when 'all' then 'scope "all"'
           when 'partner' then format('partner "%s"', target)
           else format('event type "%s"', target)
         end
$$;
comment on function webhook._scope_name(text, text) is 'What is paused, in words.';

create function webhook._ask_pause(
  verb text,           -- pause or resume
  scope text,          -- all, partner, event_type or endpoint
  target text,         -- the partner, event type or endpoint; empty for all
  partner_id text,     -- tenant concerned
  reason text          -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._ask(
           verb, scope, nullif(target, ''), partner_id,
           endpoint_id => case when scope = 'endpoint' then target::bigint end,
           scope => scope,
           target => nullif(target, ''),
           reason => reason,
           before => jsonb_build_object('paused', verb = 'resume'),
           after => jsonb_build_object('paused', verb = 'pause'))
$$;
comment on function webhook._ask_pause(text, text, text, text, text) is 'Asks the leader to say from when on a pause, or its end, holds.';

create function webhook.pause(
  scope text,   -- all, partner, event_type or endpoint
  target text,  -- partner id, exact event type, or endpoint id as text; null for all
  reason text   -- why; shown in webhook.pauses
) returns bigint -- request_id
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  request_id bigint;
begin
  perform webhook._check_writable('pause deliveries');
  target := webhook._check_scope(scope, target);
  reason := webhook._check_reason(reason);
  if scope = 'endpoint' then
    endpoint := webhook._take_endpoint(target::bigint);
    if endpoint.state <> 'active' then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = format('endpoint %s is %s', target, endpoint.state),
        detail = 'Only an active endpoint can be paused.';
    end if;
    endpoint.state := 'paused';
    endpoint.state_reason := reason;
    endpoint.state_changed_at := clock_timestamp();
    request_id := webhook._ask_pause('pause', scope, target, endpoint.partner_id, reason);
    perform webhook._save_endpoint(endpoint, 'pause', reason, request_id, void => true);
    return request_id;
  end if;
  -- Waits for another session that pauses or resumes the same, and then sees what it left.
  insert into webhook._pause as p (scope, target, paused, reason)
  values (pause.scope, pause.target, true, pause.reason)
  on conflict on constraint _pause_pkey do update
     set paused = true,
         reason = excluded.reason,
         paused_by = excluded.paused_by,
         paused_at = excluded.paused_at,
         changed_xid = excluded.changed_xid
   where not p.paused;
  if not found then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('%s is already paused', webhook._scope_name(scope, target)),
      hint = 'See webhook.pauses for since when and why.';
  end if;
  if scope = 'partner' and not exists (select from webhook._endpoint e where e.partner_id = target) then
    -- It may be meant; in an emergency it is a misspelling.
    raise warning using
      message = format('partner "%s" has no endpoint', target),
      detail = 'The pause will hold for endpoints that it gets later.';
  end if;
  return webhook._ask_pause('pause', scope, target, case when scope = 'partner' then target end, reason);
end
$$;
comment on function webhook.pause(text, text, text) is
  'Holds deliveries back until resume: of everything, a partner, an event type or an endpoint. They queue up. The request says from when on nothing new starts.';

create function webhook.resume(
  scope text,               -- all, partner, event_type or endpoint
  target text default null, -- partner id, exact event type, or endpoint id as text; null for all
  reason text default null  -- why
) returns bigint -- request_id
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  request_id bigint;
begin
  perform webhook._check_writable('resume deliveries');
  target := webhook._check_scope(scope, target);
  if reason is not null then
    reason := webhook._check_reason(reason);
  end if;
  if scope = 'endpoint' then
    endpoint := webhook._take_endpoint(target::bigint);
    if endpoint.state <> 'paused' then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = format('endpoint %s is not paused', target),
        detail = format('It is %s.', endpoint.state);
    end if;
    endpoint.state := 'active';
    endpoint.state_reason := reason;
    endpoint.state_changed_at := clock_timestamp();
    request_id := webhook._ask_pause('resume', scope, target, endpoint.partner_id, reason);
    perform webhook._save_endpoint(endpoint, 'resume', reason, request_id, void => true);
    return request_id;
  end if;
  -- The row stays and keeps the last pause's reason: the leader finds changes by changed_xid.
  update webhook._pause p
     set paused = false,
         changed_xid = pg_current_xact_id()
   where p.scope = resume.scope
     and p.target = resume.target
     and p.paused;
  if not found then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('%s is not paused', webhook._scope_name(scope, target)),
      hint = 'See webhook.pauses for what is.';
  end if;
  return webhook._ask_pause('resume', scope, target, case when scope = 'partner' then target end, reason);
end
$$;
comment on function webhook.resume(text, text, text) is
  'Ends a pause of the same scope and target; what was held goes out. Other pauses stay in force.';
