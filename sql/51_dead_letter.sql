-- Deciding about deliveries by hand: another try, leaving it, closing it, sending it mended.
-- All are requests: the leader carries them out and checks again, because time passes in between. What can be
-- refused is refused here, at once, and for all deliveries of a call together.
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.

create function webhook._refuse_delivery(
  delivery_id text,  -- the delivery
  state text,        -- its state; null = it does not exist
  verb text          -- retry, skip, close or correct
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if state is null then
    raise exception using
      errcode = 'undefined_object',
      message = format('delivery "%s" does not exist', delivery_id);
  end if;
  raise exception using
    errcode = 'object_not_in_prerequisite_state',
    message = format('delivery "%s" is %s', delivery_id, state),
    detail = case verb
      when 'retry' then 'A delivery that has arrived is not retried.'
      when 'skip' then 'Only a pending, retrying or dead delivery can be skipped.'
      when 'close' then 'Only a dead, cancelled or skipped delivery can be closed.'
      else 'Only a dead delivery can be corrected.'
    end,
    hint = case verb
      when 'retry' then 'Use webhook.replay to send it once more.'
      when 'skip' then 'See webhook.deliveries for the states.'
      when 'close' then 'Use webhook.skip for a delivery that still waits.'
      else 'Emit a new event instead.'
    end;
end
$$;
comment on function webhook._refuse_delivery(text, text, text) is 'Refuses a delivery that does not exist or is in the wrong state for a verb.';

create function webhook._check_delivery_id(
  delivery_id text -- dlv_...
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if (select p.event_id from webhook._parse_delivery_id(delivery_id) as p) is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('delivery id "%s" is not valid', left(delivery_id, 128)),
      detail = 'A delivery id is "dlv_", 26 characters of the event''s id, "_" and the endpoint''s id.';
  end if;
end
$$;
comment on function webhook._check_delivery_id(text) is 'Refuses a text that is no delivery id.';

create function webhook._decide(
  verb text,           -- retry, skip or close
  argument text,       -- name of the argument, for messages
  delivery_ids text[], -- the deliveries; one that is named twice counts once
  reason text          -- why
) returns bigint -- request_id
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
-- The plan's estimated cost grows with the partitions, most of which are never opened: no reason to compile it.
set jit = off
as $$
declare
  fitting constant text[] := case verb
    when 'retry' then '{pending,retrying,dead,cancelled,skipped,closed}'
    when 'skip' then '{pending,retrying,dead}'
    else '{dead,cancelled,skipped}'
  end;
  refused record;
  pairs record;
begin
  perform webhook._check_writable(format('%s a delivery', verb));
  perform webhook._check_argument(argument, delivery_ids is null or array_position(delivery_ids, null) is not null);
  reason := webhook._check_reason(reason);
  if delivery_ids = '{}' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'delivery_ids must not be empty';
  end if;
  if cardinality(delivery_ids) > 10000 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'too many deliveries',
      detail = format('There are %s; the limit is 10000 for each request.', cardinality(delivery_ids));
  end if;
  perform webhook._check_delivery_id(u.delivery_id)
     from unnest(delivery_ids) as u (delivery_id);
  -- One look-up per pair, which LIMIT enforces: the planner does not know that each opens one partition, and
  -- would rather read all deliveries once.
  select u.delivery_id, d.state
    into refused
    from unnest(delivery_ids) with ordinality as u (delivery_id, place)
   cross join lateral webhook._parse_delivery_id(u.delivery_id) as p
    left join lateral
         (select d.state
            from webhook._delivery d
           where d.event_id = p.event_id
             and d.endpoint_id = p.endpoint_id
           limit 1) as d on true
   where d.state is null
      or d.state <> all (fitting)
   order by u.place
   limit 1;
  if found then
    perform webhook._refuse_delivery(refused.delivery_id, refused.state, verb);
  end if;
  select array_agg(p.event_id order by p.event_id, p.endpoint_id) as events,
         array_agg(p.endpoint_id order by p.event_id, p.endpoint_id) as endpoints,
         count(*) as n
    into pairs
    from (select distinct p.event_id, p.endpoint_id
            from unnest(delivery_ids) as u (delivery_id)
           cross join lateral webhook._parse_delivery_id(u.delivery_id) as p) as p;
  return webhook._ask(
    verb, 'delivery',
    case when pairs.n = 1 then delivery_ids[1] end,
    -- The partner, when it is one.
    (select case when count(distinct e.partner_id) = 1 then min(e.partner_id) end from webhook._endpoint e where e.endpoint_id = any (pairs.endpoints)),
    case when pairs.n = 1 then pairs.events[1] end,
    case when pairs.n = 1 then pairs.endpoints[1] end,
    reason => reason,
    event_ids => pairs.events,
    endpoint_ids => pairs.endpoints,
    after => jsonb_build_object('deliveries', pairs.n));
end
$$;
comment on function webhook._decide(text, text, text[], text) is 'Checks deliveries and asks the leader to retry, skip or close them.';

create function webhook.retry(
  delivery_id text, -- the delivery
  reason text       -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('retry', 'delivery_id', array[delivery_id], reason)
$$;
comment on function webhook.retry(text, text) is
  'Asks for a delivery to be tried again now, in a new series of the schedule, and frees it of what holds it. Returns the request.';

create function webhook.retry(
  delivery_ids text[], -- the deliveries, at most 10,000
  reason text          -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('retry', 'delivery_ids', delivery_ids, reason)
$$;
comment on function webhook.retry(text[], text) is 'Asks for many deliveries to be tried again now, as one request.';

create function webhook.skip(
  delivery_id text, -- the delivery
  reason text       -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('skip', 'delivery_id', array[delivery_id], reason)
$$;
comment on function webhook.skip(text, text) is
  'Asks for a delivery not to be sent any more; what waits behind it goes on. Returns the request.';

create function webhook.skip(
  delivery_ids text[], -- the deliveries, at most 10,000
  reason text          -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('skip', 'delivery_ids', delivery_ids, reason)
$$;
comment on function webhook.skip(text[], text) is 'Asks for many deliveries not to be sent any more, as one request.';

create function webhook.close(
  delivery_id text, -- the delivery
  reason text       -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('close', 'delivery_id', array[delivery_id], reason)
$$;
comment on function webhook.close(text, text) is
  'Asks for a delivery that was given up to be marked as dealt with, so that it is no dead letter any more. Returns the request.';

create function webhook.close(
  delivery_ids text[], -- the deliveries, at most 10,000
  reason text          -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('close', 'delivery_ids', delivery_ids, reason)
$$;
comment on function webhook.close(text[], text) is 'Asks for many deliveries to be marked as dealt with, as one request.';

create function webhook.correct(
  delivery_id text, -- the dead delivery
  data jsonb,       -- payload that should have been sent
  reason text       -- why
) returns text -- event_id of the new event
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  pair record;
  dead_state text;
  event webhook._event;
  fence text;
  new_id text;
begin
  perform webhook._check_writable('correct a delivery');
  perform webhook._check_argument('delivery_id', delivery_id is null);
  perform webhook._check_argument('data', data is null);
  reason := webhook._check_reason(reason);
  perform webhook._check_delivery_id(delivery_id);
  select p.event_id, p.endpoint_id
    into pair
    from webhook._parse_delivery_id(delivery_id) as p;
  -- Two that correct the same delivery would emit two events.
  perform pg_advisory_xact_lock(hashtextextended('webhook.correct ' || delivery_id, 0));
  select d.state
    into dead_state
    from webhook._delivery d
   where d.event_id = pair.event_id
     and d.endpoint_id = pair.endpoint_id;
  select e.*
    into event
    from webhook._event e
   where e.event_id = pair.event_id;
  if dead_state is distinct from 'dead' then
    perform webhook._refuse_delivery(delivery_id, dead_state, 'correct');
  end if;
  if event.event_id is null then
    raise exception using
      errcode = 'undefined_object',
      message = format('event "%s" does not exist', pair.event_id),
      detail = 'It is older than the retention of events.';
  end if;
  if event.type like 'webhook.%' then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" cannot be corrected', event.event_id),
      detail = 'It is the extension''s own; event types that begin with "webhook." are reserved.';
  end if;
  -- The new event takes over the envelope: not one that was changed behind the extension's back.
  select case
           when not webhook._admits(event.origin) then 'It was emitted in another database, of which this one is a copy.'
           else (select f.reason from webhook._fenced f where f.event_id = event.event_id)
         end
    into fence;
  if fence is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" is fenced', event.event_id),
      detail = fence;
  end if;
  if exists (
       select
         from webhook._request r
        where r.state = 'pending'
          and r.verb = 'close'
          and r.reason like 'corrected by evt\_%'
          and r.event_id = pair.event_id
          and r.endpoint_id = pair.endpoint_id)
  then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('delivery "%s" was corrected before', delivery_id),
      detail = 'The leader has not closed it yet.',
      hint = 'See webhook.requests and webhook.audit_log.';
  end if;
  new_id := webhook.emit(
    type => event.type,
    partner_id => event.partner_id,
    data => data,
    subject_type => event.subject_type,
    subject_id => event.subject_id,
    subject_version => event.subject_version,
    source => event.source,
    scope => event.scope,
    occurred_at => event.occurred_at,
    schema_version => event.schema_version,
    correlation_id => event.correlation_id,
    causation => event.event_id,
    test => event.test);
  perform webhook._ask(
    'close', 'delivery', delivery_id, event.partner_id, pair.event_id, pair.endpoint_id,
    reason => format('corrected by %s: %s', new_id, reason),
    event_ids => array[pair.event_id],
    endpoint_ids => array[pair.endpoint_id],
    after => jsonb_build_object('event_id', new_id),
    called => 'correct',
    told => reason);
  return new_id;
end
$$;
comment on function webhook.correct(text, jsonb, text) is
  'Emits the event of a dead delivery anew with another payload, and asks to close the delivery. The new event names the old one as its causation, and goes to every endpoint that matches.';
