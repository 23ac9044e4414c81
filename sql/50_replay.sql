-- Asking for another attempt. Verbs that touch deliveries are requests: they commit or roll back with the
-- caller, and the leader, the only writer of deliveries, carries them out.
-- What can be refused is refused here, at once; the leader checks again, because time passes in between.

create function webhook.replay(
  event_id text,                   -- the event
  endpoint_id bigint default null  -- the endpoint; null = every existing delivery of the event
) returns table (
  request_id bigint,               -- the request, see the view requests
  delivery_id text                 -- a delivery that it concerns; null when the event has none yet
)
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  event record;
  endpoint webhook._effective_endpoint;
begin
  perform webhook._check_writable('replay an event');
  perform webhook._check_argument('event_id', event_id is null);
  select e.partner_id, e.test, e.origin, e.body is null as expunged, f.reason as fenced
    into event
    from webhook._event e
    left join webhook._fenced f on f.event_id = e.event_id
   where e.event_id = replay.event_id;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event "%s" does not exist', left(event_id, 128));
  end if;
  if event.expunged then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" is expunged', event_id),
      detail = 'Its payload was removed; what was sent cannot be sent again.';
  end if;
  -- It may still be there, because something of its day waits; the leader would end whatever is made of it.
  if event_id < webhook._event_bound(date_trunc('day', clock_timestamp() - webhook._age('event'), 'UTC')) then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" has expired', event_id),
      detail = format('Events are kept for %s.', webhook._age('event'));
  end if;
  if not webhook._admits(event.origin) then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" is fenced', event_id),
      detail = 'It was emitted in another database, of which this one is a copy.',
      hint = 'The function adopt takes over the events of another database.';
  end if;
  if event.fenced is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" is fenced', event_id),
      detail = event.fenced;
  end if;

  if endpoint_id is not null then
    select e.*
      into endpoint
      from webhook._effective_endpoint e
     where e.endpoint_id = replay.endpoint_id
       and e.partner_id = event.partner_id;
    -- The same words for another partner's endpoint: whether it exists is nobody else's business.
    if not found then
      raise exception using
        errcode = 'undefined_object',
        message = format('endpoint %s does not exist', endpoint_id);
    end if;
    if endpoint.origin <> webhook._origin() then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = format('endpoint %s is inert', endpoint_id),
        detail = 'It was made in another database, of which this one is a copy.';
    end if;
    if endpoint.state <> 'active' then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = format('endpoint %s is %s', endpoint_id, endpoint.state),
        detail = coalesce(endpoint.state_reason, 'It gets no deliveries in this state.');
    end if;
    if endpoint.test <> event.test then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = case when event.test
          then format('cannot send a test event to endpoint %s', endpoint_id)
          else format('cannot send a live event to endpoint %s', endpoint_id)
        end,
        detail = case when event.test
          then 'It is not a test endpoint.'
          else 'It is a test endpoint.'
        end;
    end if;
  end if;

  request_id := webhook._ask(
    'replay', 'event', event_id, event.partner_id, event_id, endpoint_id,
    after => jsonb_build_object('endpoint_id', coalesce(endpoint_id::text, 'all')));

  if endpoint_id is not null then
    delivery_id := webhook._delivery_id(event_id, endpoint_id);
    return next;
    return;
  end if;
  for delivery_id in
    select webhook._delivery_id(d.event_id, d.endpoint_id)
      from webhook._delivery d
     where d.event_id = replay.event_id
     order by d.endpoint_id
  loop
    return next;
  end loop;
  if not found then
    delivery_id := null;
    return next;
  end if;
end
$$;
comment on function webhook.replay(text, bigint) is
  'Asks for a new attempt with the same event id and the same bytes, to every endpoint that has a delivery of the event or to the one named. Returns the request and the deliveries it concerns.';
