-- How far replays of a range have come.

create view webhook.replays as
select r.request_id,
       r.partner_id,
       r.endpoint_id,
       r.since,
       r.until,
       r.event_types,
       r.test,
       r.which,
       r.rate,
       r.reason,
       r.requested_by,
       r.requested_at,
       case
         when r.origin <> (select webhook._origin()) then 'elsewhere'
         else coalesce(p.state, 'waiting')
       end as state,
       r.estimate,
       coalesce(p.looked_at, 0) as looked_at,
       coalesce(p.made, 0) as made,
       coalesce(p.again, 0) as again,
       coalesce(p.under_way, 0) as under_way,
       coalesce(p.unwanted, 0) as unwanted,
       coalesce(p.closed, 0) as closed,
       coalesce(p.expunged, 0) as expunged,
       coalesce(p.fenced, 0) as fenced,
       coalesce(p.expired, 0) as expired,
       timestamptz '2025-01-01 00:00:00+00' + (nullif(p.pos, 0) >> 22) * interval '1 millisecond' as reached_at,
       round((p.made + p.again) / greatest(extract(epoch from coalesce(p.finished_at, clock_timestamp()) - p.started_at), 1), 1) as per_second,
       p.started_at,
       p.finished_at
  from webhook._replay r
  left join webhook._replay_progress p on p.request_id = r.request_id;
comment on view webhook.replays is 'Replays of a time range, and how far the leader has come with each. Fast by request_id, which sorts by time.';
comment on column webhook.replays.request_id is 'Id of the request; sorts by time. What cancel_replay takes.';
comment on column webhook.replays.partner_id is 'Tenant whose events are meant; null = every one.';
comment on column webhook.replays.endpoint_id is 'Endpoint that is meant; null = every one.';
comment on column webhook.replays.since is 'Beginning of the range, by publication.';
comment on column webhook.replays.until is 'End of the range; not in it.';
comment on column webhook.replays.event_types is 'Event types and wildcards; null = all.';
comment on column webhook.replays.test is 'Test events, or live ones.';
comment on column webhook.replays.which is 'all, failed or missing.';
comment on column webhook.replays.rate is 'Deliveries per second at most.';
comment on column webhook.replays.reason is 'Why, in the user''s words.';
comment on column webhook.replays.requested_by is 'Session user who asked.';
comment on column webhook.replays.requested_at is 'When.';
comment on column webhook.replays.state is
  'waiting, running, done or cancelled; elsewhere = another database asked for it, of which this one is a copy, and nothing is done here.';
comment on column webhook.replays.estimate is 'Events of the range when it was asked for; null = more than 20000.';
comment on column webhook.replays.looked_at is 'Events that the leader has looked at.';
comment on column webhook.replays.made is 'Deliveries made that were missing.';
comment on column webhook.replays.again is 'Deliveries that are sent again.';
comment on column webhook.replays.under_way is 'Deliveries left out because they wait or are on the wire.';
comment on column webhook.replays.unwanted is 'Deliveries left out because the endpoint does not subscribe to the type any more, or its filter refuses the event.';
comment on column webhook.replays.closed is 'Deliveries left out because the endpoint is closed.';
comment on column webhook.replays.expunged is 'Events left out because their payload, or the event itself, is gone.';
comment on column webhook.replays.fenced is 'Events left out because they are fenced, or of a database that was not adopted.';
comment on column webhook.replays.expired is 'Deliveries not made because those of the event are not kept any more: nobody can tell what is missing.';
comment on column webhook.replays.reached_at is 'Publication of the last event looked at; of one partner they are looked at oldest first.';
comment on column webhook.replays.per_second is 'Deliveries per second, on average.';
comment on column webhook.replays.started_at is 'When the leader began.';
comment on column webhook.replays.finished_at is 'When it was done or cancelled; null = not yet.';
