-- What came with a copy: what is fenced, and how far adoptions have come.

create view webhook.stat_fenced as
select o.origin,
       'origin' as reason,
       (select count(*) from webhook._event e where e.origin = o.origin) as events,
       (select count(*) from webhook._endpoint p where p.origin = o.origin) as endpoints,
       (select webhook._event_time(min(e.event_id)) from webhook._event e where e.origin = o.origin) as oldest_at,
       (select webhook._event_time(max(e.event_id)) from webhook._event e where e.origin = o.origin) as newest_at
  from webhook._foreign_origin o
union all
select e.origin,
       'seal',
       count(*),
       0,
       webhook._event_time(min(e.event_id)),
       webhook._event_time(max(e.event_id))
  from webhook._fenced f
  join webhook._event e on e.event_id = f.event_id
 group by e.origin;
comment on view webhook.stat_fenced is
  'What is never sent from here, by origin and reason. Reads all events when there is an origin that nobody adopted; else only those that are fenced.';
comment on column webhook.stat_fenced.origin is 'Database that the events and endpoints are of: what adopt takes.';
comment on column webhook.stat_fenced.reason is
  'origin = they came with a copy of another database, or were made under another webhook.node_name, and were not adopted; seal = their row was changed after the emit.';
comment on column webhook.stat_fenced.events is 'Events.';
comment on column webhook.stat_fenced.endpoints is 'Endpoints that are inert for that reason.';
comment on column webhook.stat_fenced.oldest_at is 'When the oldest of the events was emitted; null = there is none.';
comment on column webhook.stat_fenced.newest_at is 'When the newest of the events was emitted.';

create view webhook.adoptions as
select a.request_id,
       a.origin,
       a.mode,
       case
         when a.adopter <> (select webhook._origin()) then 'elsewhere'
         else coalesce(p.state, 'waiting')
       end as state,
       a.reason,
       a.requested_by,
       a.requested_at,
       a.endpoints,
       coalesce(p.events, 0) as events,
       coalesce(p.published, 0) as published,
       coalesce(p.made, 0) as made,
       coalesce(p.resumed, 0) as resumed,
       coalesce(p.skipped, 0) as skipped,
       coalesce(p.tampered, 0) as tampered,
       webhook._event_time(p.reached) as reached_at,
       p.started_at,
       p.finished_at
  from webhook._adoption a
  left join webhook._adoption_progress p on p.request_id = a.request_id;
comment on view webhook.adoptions is 'Origins that were adopted, and how far the leader has come with each.';
comment on column webhook.adoptions.request_id is 'Id of the request; sorts by time.';
comment on column webhook.adoptions.origin is 'Origin that was adopted.';
comment on column webhook.adoptions.mode is 'send or skip.';
comment on column webhook.adoptions.state is
  'waiting, running or done; elsewhere = another database did it, of which this one is a copy, and here it means nothing.';
comment on column webhook.adoptions.reason is 'Why, in the user''s words.';
comment on column webhook.adoptions.requested_by is 'Session user who asked.';
comment on column webhook.adoptions.requested_at is 'When.';
comment on column webhook.adoptions.endpoints is 'Endpoints that changed hands.';
comment on column webhook.adoptions.events is 'Events that the leader has looked at.';
comment on column webhook.adoptions.published is 'Events that the origin had not read, and that have a place in the feed now.';
comment on column webhook.adoptions.made is 'Deliveries that were made.';
comment on column webhook.adoptions.resumed is 'Pending and retrying deliveries that wait for their next attempt again.';
comment on column webhook.adoptions.skipped is 'Pending and retrying deliveries that were skipped.';
comment on column webhook.adoptions.tampered is 'Events whose row was changed after the emit; they stay fenced.';
comment on column webhook.adoptions.reached_at is 'Time of the last event looked at; events are looked at oldest first.';
comment on column webhook.adoptions.started_at is 'When the leader began.';
comment on column webhook.adoptions.finished_at is 'When it was done; null = not yet.';
