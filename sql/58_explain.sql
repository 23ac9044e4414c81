-- Why an event went to an endpoint, or did not.

-- One pair with all that decides about it. Like the public views it belongs to webhook_views: readers get their own rows.
create view webhook._seen_match as
select e.event_id,
       p.endpoint_id,
       jsonb_build_object(
         'event_partner', e.partner_id,
         'endpoint_partner', p.partner_id,
         'type', e.type,
         'subject_type', e.subject_type,
         'subject_id', e.subject_id,
         'event_test', e.test,
         'endpoint_test', p.test,
         'event_origin', e.origin,
         'endpoint_origin', p.origin,
         'event_types', p.event_types,
         'subject_types', p.subject_types,
         'filter', p.filter,
         'filter_in_force', k.in_force,
         'expunged', e.body is null,
         'in_time', e.xid = p.created_xid or not pg_visible_in_snapshot(e.xid, p.created_snapshot),
         'created_at', p.created_at,
         'state', coalesce(s.state, p.state),
         'state_reason', case when s.state is null then p.state_reason else s.reason end,
         'state_changed_at', case when s.state is null then p.state_changed_at else s.changed_at end,
         'delivery_state', d.state,
         'delivery_reason', d.reason,
         'attempt_count', d.attempt_count,
         'hold', w.hold,
         'matched', t.matched,
         'why', t.why) as facts
  from webhook._event e
 cross join webhook._endpoint p
  left join webhook._endpoint_state s on s.endpoint_id = p.endpoint_id and s.generation = p.generation
  left join webhook._delivery d on d.event_id = e.event_id and d.endpoint_id = p.endpoint_id
  left join webhook._due w on w.event_id = e.event_id and w.endpoint_id = p.endpoint_id
  -- A filter of this very transaction is not asked: it could be taken back without a trace, and the next one chosen by
  -- what it said of a payload that the reader may not read. One that was committed stands in the audit log.
 cross join lateral (select p.changed_xid is distinct from pg_current_xact_id_if_assigned() as in_force) as k
  left join lateral webhook._try_filters(e.body, array[p.filter]) as t on p.filter is not null and e.body is not null and k.in_force;
comment on view webhook._seen_match is 'An event and an endpoint as the reader may see them, with what decides whether one goes to the other. To be asked for one pair.';
comment on column webhook._seen_match.event_id is 'The event.';
comment on column webhook._seen_match.endpoint_id is 'The endpoint.';
comment on column webhook._seen_match.facts is 'All that explain looks at: of both of them, of the delivery, and what the filter says. No payload.';

create function webhook.explain(
  event_id text,     -- the event
  endpoint_id bigint -- the endpoint
) returns table (
  step text,      -- what was looked at
  passed boolean, -- whether it lets the event through; null = it cannot be said
  detail text     -- in words
)
language plpgsql stable parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
set jit = off
as $$
declare
  pair record;
  about_webhooks boolean;
  about_it boolean;
  published timestamptz;
  emitted timestamptz;
  all_passed boolean := true;
begin
  perform webhook._check_argument('event_id', event_id is null);
  perform webhook._check_argument('endpoint_id', endpoint_id is null);
  select f.*
    into pair
    from webhook._seen_match m
   cross join lateral jsonb_to_record(m.facts) as f (
         event_partner text, endpoint_partner text, type text, subject_type text, subject_id text, event_test boolean,
         endpoint_test boolean, event_origin bigint, endpoint_origin bigint, event_types text[], subject_types text[], filter text, filter_in_force boolean,
         expunged boolean, in_time boolean, created_at timestamptz, state text, state_reason text, state_changed_at timestamptz,
         delivery_state text, delivery_reason text, attempt_count integer, hold integer, matched boolean, why text)
   where m.event_id = explain.event_id
     and m.endpoint_id = explain.endpoint_id;
  if not found then
    -- A foreign row is answered like one that does not exist.
    perform from webhook.events e where e.event_id = explain.event_id;
    raise exception using
      errcode = 'undefined_object',
      message = case
        when found then format('endpoint %s does not exist', endpoint_id)
        else format('event "%s" does not exist', left(event_id, 128))
      end;
  end if;
  about_webhooks := pair.type like 'webhook.%';
  about_it := pair.subject_id is not distinct from explain.endpoint_id::text;
  emitted := webhook._event_time(event_id);

  for step, passed, detail in
    values
      ('partner',
       pair.event_partner = pair.endpoint_partner,
       case
         when pair.event_partner = pair.endpoint_partner then format('both belong to "%s"', pair.event_partner)
         else format('the event belongs to "%s", the endpoint to "%s"', pair.event_partner, pair.endpoint_partner)
       end),
      ('origin',
       pair.event_origin = webhook._origin() and pair.endpoint_origin = webhook._origin(),
       case
         when pair.endpoint_origin <> webhook._origin() then 'the endpoint came with a copy of another database and is inert'
         when pair.event_origin <> webhook._origin() then 'the event came with a copy of another database: it is sent by an adoption alone'
         else 'both are of this database'
       end),
      ('mode',
       pair.event_test = pair.endpoint_test or pair.type = 'webhook.test',
       case
         when pair.type = 'webhook.test' then 'a test goes to the endpoint that it names'
         else format('%s event, %s endpoint', case when pair.event_test then 'test' else 'live' end, case when pair.endpoint_test then 'test' else 'live' end)
       end),
      ('lifecycle',
       case
         when pair.type = 'webhook.test' then about_it
         else not (pair.type like 'webhook.endpoint.%' and about_it)
       end,
       case
         when pair.type = 'webhook.test' and about_it then 'it is a test of this endpoint'
         when pair.type = 'webhook.test' then 'it is a test of another endpoint'
         when pair.type like 'webhook.endpoint.%' and about_it then 'what happens to an endpoint is told to others only'
         else 'the event is not about this endpoint'
       end),
      ('time',
       pair.in_time,
       case
         when pair.in_time then 'the endpoint was there, or was made while the event was'
         else format('the event was visible when the endpoint was made, at %s: it is older', webhook._rfc3339(pair.created_at))
       end),
      ('state',
       pair.state in ('active', 'paused', 'unverified'),
       format('the endpoint is %s since %s%s%s', pair.state, webhook._rfc3339(pair.state_changed_at), ': ' || pair.state_reason,
              case
                when pair.state in ('paused', 'unverified') then '; deliveries wait'
                when pair.state = 'active' and pair.state_changed_at > emitted then '; what it was when the event was read is in the audit log'
              end)),
      ('type',
       pair.type = 'webhook.test' or webhook._type_matches(pair.event_types, pair.type),
       case
         when pair.type = 'webhook.test' then 'a test needs no subscription'
         else format('"%s", and the endpoint subscribes to %s', pair.type, array_to_string(pair.event_types, ', '))
       end),
      ('subject',
       about_webhooks or pair.subject_types is null or coalesce(pair.subject_type = any (pair.subject_types), false),
       case
         when about_webhooks then 'not asked for events about webhooks'
         when pair.subject_types is null then 'the endpoint takes every subject'
         else format('%s, and the endpoint takes %s', coalesce('"' || pair.subject_type || '"', 'the event has no subject'), array_to_string(pair.subject_types, ', '))
       end),
      ('filter',
       case when about_webhooks or pair.filter is null then true else pair.matched end,
       case
         when about_webhooks then 'not asked for events about webhooks'
         when pair.filter is null then 'the endpoint has none'
         when pair.expunged then 'the payload was expunged'
         when not pair.filter_in_force then format('%s: the endpoint was changed by this transaction, which has not committed; ask again afterwards', pair.filter)
         else format('%s: %s', pair.filter, case when pair.matched then 'matches' when not pair.matched then 'does not match' else pair.why end)
       end)
  loop
    all_passed := all_passed and coalesce(passed, false);
    return next;
  end loop;

  step := 'delivery';
  passed := pair.delivery_state is not null;
  if passed then
    detail := concat_ws(', ',
      format('%s is %s', webhook._delivery_id(event_id, endpoint_id), pair.delivery_state),
      format('%s attempts', pair.attempt_count),
      pair.delivery_reason,
      'held by ' || nullif(concat_ws(' and ',
        case when pair.hold & 1 <> 0 then 'a paused event type' end,
        case when pair.hold & 2 <> 0 then 'the event before it' end,
        case when pair.hold & 4 <> 0 then 'quarantine' end,
        case when pair.hold & 8 <> 0 then 'the filter' end,
        case when pair.hold & 16 <> 0 then 'a failed conversion' end,
        case when pair.hold & 32 <> 0 then 'its origin' end), ''),
      case when not all_passed then 'made under what was in force then, or because somebody asked for it' end);
  else
    select p.published_at
      into published
      from webhook._publication(pair.event_partner, event_id) as p;
    detail := case
      when published is null then 'there is none: the leader has not read the event'
      when pair.expunged then 'there is none: the payload was expunged'
      when all_passed then format('there is none, although today all of the above lets it through: the event was read at %s; it is on its way just now, or the endpoint was another then (see the audit log)', webhook._rfc3339(published))
      else format('there is none; the event was read at %s', webhook._rfc3339(published))
    end;
  end if;
  return next;
end
$$;
comment on function webhook.explain(text, bigint) is
  'Says step by step why an event went to an endpoint or did not, by what is in force now. A replay to the endpoint passes over time, type, subject and filter.';
