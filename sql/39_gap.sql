-- What the tables say of one another: gaps between events, feed, deliveries, attempts and what is due, and the counts of
-- days. Only what is settled is judged: older than a settle time, and behind the place that the leader has read up to.
-- Every check is one query over a range of event ids, which are ordered by time and lead the indexes that it uses.
-- Nothing here writes but the counts of days; what becomes of a gap is in 58_reconciliation.sql.

create function webhook._read_positions()
returns table (
  stream bigint,       -- 0 = everybody's
  partners text[],     -- of 0: whose events it passes over; of another one: whose events it reads
  before pg_snapshot,  -- events visible in it were read
  amid pg_snapshot,    -- and of those visible in it
  to_xid xid8,         --   what comes up to here in the order of (xid, event_id)
  to_id text
)
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select distinct on (l.stream)
         l.stream, coalesce(l.partners, '{}'), case when l.kind in ('window', 'aside') then l.prev else l.cur end,
         case when l.kind = 'window' then l.cur end, l.to_xid, l.to_id
    from webhook._ledger as l
   where l.prev is not null
     and l.cur is not null
     and not exists (select from webhook._ledger as j where j.stream = l.stream and j.kind = 'joined')
   order by l.stream, l.n desc
$$;
comment on function webhook._read_positions() is 'How far each stream of the leader has read.';

-- Published, wanted, and no delivery. An endpoint is judged by what the leader knew it to be when it read the event: a
-- change may have been committed long after it was made, and after an event with a higher xid was read. One that was never
-- changed gets what its own transaction could not see, once the leader has read that it is there. Which types it wants is
-- decided once for each of them, and whether an event is settled only for those in question.
create function webhook._missing_pairs(
  low text,          -- of this event id or a later one
  high text,         -- and before this one
  settled_pos bigint -- and published before this place of the feed
) returns table (
  kind text,
  object text,
  happened_at timestamptz,
  partner_id text,
  event_id text,
  endpoint_id bigint,
  detail text
)
language sql stable
set search_path = pg_catalog, webhook, pg_temp
-- The planner takes the endpoints for one row, and would walk the events of the range once for each of them.
set enable_nestloop = off
set jit = off
as $$
  with type as materialized (
    select distinct e.partner_id, e.type
      from webhook._event as e
     where e.event_id >= low
       and e.event_id < high
       and e.origin = (select webhook._origin())
       and e.type <> 'webhook.test'),
  wanted as materialized (
    select p.endpoint_id, p.partner_id, p.test, t.type,
           case when p.changed_xid = p.created_xid then p.created_snapshot else n.seen end as known_since,
           webhook._event_bound(greatest(p.state_changed_at, s.state_changed_at)) as from_id
      from webhook._endpoint as p
      join webhook._effective_endpoint as s on s.endpoint_id = p.endpoint_id and s.state = 'active'
      join type as t on t.partner_id = p.partner_id and webhook._type_matches(p.event_types, t.type)
      left join webhook._endpoint_seen as n on n.endpoint_id = p.endpoint_id and n.changed_xid = p.changed_xid
     where p.origin = (select webhook._origin())
       and (n.seen is not null
            or (p.changed_xid = p.created_xid
                and exists (select from webhook._read_positions() as r
                             where r.stream = 0 and pg_visible_in_snapshot(p.created_xid, coalesce(r.amid, r.before)))))
       -- What a filter or the subject has decided is not decided here once more.
       and coalesce(to_jsonb(p) ->> 'filter', to_jsonb(p) ->> 'subject_types') is null),
  missing as materialized (
    select e.event_id, e.partner_id, w.endpoint_id
      from webhook._event as e
      join wanted as w on w.partner_id = e.partner_id and w.type = e.type and w.test = e.test
     where e.event_id >= low
       and e.event_id < high
       and e.origin = (select webhook._origin())
       and w.from_id < e.event_id
       and not pg_visible_in_snapshot(e.xid, w.known_since)
       and not (e.type like 'webhook.endpoint.%' and e.subject_id = w.endpoint_id::text)
       and (e.body is not null or e.type ~ '(^|\.)(deleted|erased)$')
       and not exists (select from webhook._fenced as f where f.event_id = e.event_id)
       and not exists (select
                         from webhook._delivery as d
                        where d.event_id = e.event_id
                          and d.endpoint_id = w.endpoint_id
                          and d.event_id >= low
                          and d.event_id < high)
       -- One that is due is another fault.
       and not exists (select
                         from webhook._due as u
                        where u.event_id = e.event_id
                          and u.endpoint_id = w.endpoint_id
                          and u.event_id >= low
                          and u.event_id < high))
  select 'pair.missing', webhook._delivery_id(m.event_id, m.endpoint_id), webhook._event_time(m.event_id), m.partner_id, m.event_id,
         m.endpoint_id, 'The endpoint gets such events and has no delivery of this one.'
    from missing as m
   where (select n.pos from webhook._publication(m.partner_id, m.event_id) as n) < settled_pos
$$;
comment on function webhook._missing_pairs(text, text, bigint) is 'Pairs of an event and an endpoint that ought to have a delivery and have none.';

create function webhook._find_gaps(
  since timestamptz,     -- emitted at this time or later
  until timestamptz,     -- emitted before this time
  settled timestamptz    -- and published before this one
) returns table (
  kind text,
  object text,
  happened_at timestamptz,
  partner_id text,
  event_id text,
  endpoint_id bigint,
  detail text
)
language plpgsql stable
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
declare
  low constant text := webhook._event_bound(since);
  high constant text := webhook._event_bound(until);
  low_pos constant bigint := webhook._pos_bound(since);
  settled_pos constant bigint := webhook._pos_bound(settled);
  own constant bigint := webhook._origin();
  attempts_from constant text := webhook._event_bound(date_trunc('day', clock_timestamp()
    - least(webhook._age('attempt'), webhook._age('delivery'),
            webhook._age('event')), 'UTC') + interval '1 day');
  events_from constant text := webhook._event_bound(date_trunc('day', clock_timestamp()
    - webhook._age('event'), 'UTC') + interval '1 day');
begin
  -- Read, and not in the feed. The feed is searched up to an hour behind the range, and event by event for the rest.
  return query
    with place as materialized (select p.* from webhook._read_positions() as p),
    unpublished as materialized (
      select e.event_id, e.partner_id
        from webhook._event as e
       where e.event_id >= low
         and e.event_id < high
         and e.origin = own
         and not exists (select from place as p
                          where (p.stream = 0) <> (e.partner_id = any (p.partners))
                            and not (pg_visible_in_snapshot(e.xid, p.before)
                                     or (p.amid is not null and pg_visible_in_snapshot(e.xid, p.amid)
                                         and (e.xid < p.to_xid or (e.xid = p.to_xid and e.event_id <= p.to_id)))))
         and not exists (select from webhook._feed as f
                          where f.partner_id = e.partner_id
                            and f.event_id = e.event_id
                            and f.pos >= low_pos
                            and f.pos < webhook._pos_bound(until + interval '1 hour'))
         and not exists (select from webhook._fenced as f where f.event_id = e.event_id))
    select 'event.unpublished', u.event_id, webhook._event_time(u.event_id), u.partner_id, u.event_id, null::bigint,
           'It was read and is not in the feed.'
      from unpublished as u
     where not exists (select from webhook._publication(u.partner_id, u.event_id) as p where p.pos is not null);

  -- A payload that is gone without a tombstone, and one that is there in spite of its tombstone.
  return query
    select case when e.body is null then 'event.body_gone' else 'event.not_expunged' end, e.event_id, webhook._event_time(e.event_id),
           e.partner_id, e.event_id, null::bigint,
           case when e.body is null then 'Its payload is gone and it has no tombstone.' else 'It has a tombstone and a payload.' end
      from webhook._event as e
      left join webhook._tombstone as t
             on t.event_id = e.event_id and t.body_sha256 = e.body_sha256 and t.event_id >= low and t.event_id < high
     where e.event_id >= low
       and e.event_id < high
       and (e.body is null) <> (t.event_id is not null);

  return query
    select m.* from webhook._missing_pairs(low, high, settled_pos) as m;

  -- A delivery and the due table.
  return query
    select 'delivery.not_due', webhook._delivery_id(d.event_id, d.endpoint_id), webhook._event_time(d.event_id), p.partner_id, d.event_id,
           d.endpoint_id, format('It is %s and nobody would ever send it.', d.state)
      from webhook._delivery as d
      left join webhook._endpoint as p on p.endpoint_id = d.endpoint_id
     where d.event_id >= low
       and d.event_id < high
       and d.state in ('pending', 'retrying')
       and not exists (select
                         from webhook._due as w
                        where w.event_id = d.event_id and w.endpoint_id = d.endpoint_id and w.event_id >= low and w.event_id < high)
       -- A copy has no due table until it is adopted.
       and exists (select
                     from webhook._event as e
                    where e.event_id = d.event_id and e.origin = own and e.event_id >= low and e.event_id < high)
     union all
    select case when d.event_id is null then 'due.without_delivery' else 'due.settled' end,
           webhook._delivery_id(w.event_id, w.endpoint_id), webhook._event_time(w.event_id), p.partner_id, w.event_id, w.endpoint_id,
           case when d.event_id is null then 'It is due and has no delivery.' else format('It is due and the delivery is %s.', d.state) end
      from webhook._due as w
      left join webhook._delivery as d
             on d.event_id = w.event_id and d.endpoint_id = w.endpoint_id and d.event_id >= low and d.event_id < high
      left join webhook._endpoint as p on p.endpoint_id = w.endpoint_id
     where w.event_id >= low
       and w.event_id < high
       and (d.event_id is null or d.state not in ('pending', 'retrying'));

  -- A delivery, its event and its attempts.
  return query
    select g.kind, webhook._delivery_id(g.event_id, g.endpoint_id), webhook._event_time(g.event_id), p.partner_id, g.event_id,
           g.endpoint_id, g.detail
      from (select 'delivery.without_event' as kind, d.event_id, d.endpoint_id, 'Its event is gone.' as detail
              from webhook._delivery as d
             where d.event_id >= low
               and d.event_id < high
               and not exists (select from webhook._event as e where e.event_id = d.event_id and e.event_id >= low and e.event_id < high)
             union all
            select 'delivery.contradictory', d.event_id, d.endpoint_id,
                   'It is delivered, and nobody knows when or by which attempt.'
              from webhook._delivery as d
             where d.event_id >= low
               and d.event_id < high
               and d.state = 'delivered'
               and (d.delivered_at is null or d.attempt_count = 0)
             union all
            select 'attempt.missing', d.event_id, d.endpoint_id,
                   format('The delivery has had %s attempts, the log has %s.', d.attempt_count, a.attempts)
              from webhook._delivery as d
             cross join lateral (select count(*) as attempts
                                   from webhook._attempt as t
                                  where t.event_id = d.event_id
                                    and t.endpoint_id = d.endpoint_id) as a
             where d.event_id >= greatest(low, attempts_from)
               and d.event_id < high
               and (d.attempt_count > 1 or (d.attempt_count = 1 and d.state <> 'delivered'))
               and a.attempts < d.attempt_count
             union all
            select distinct 'attempt.without_delivery', a.event_id, a.endpoint_id, 'It has attempts and no delivery.'
              from webhook._attempt as a
             where a.event_id >= low
               and a.event_id < high
               and not exists (select
                                 from webhook._delivery as d
                                where d.event_id = a.event_id and d.endpoint_id = a.endpoint_id and d.event_id >= low and d.event_id < high)
             union all
            select distinct 'excerpt.without_delivery', x.event_id, x.endpoint_id, 'It has response excerpts and no delivery.'
              from webhook._excerpt as x
             where x.event_id >= low
               and x.event_id < high
               and not exists (select
                                 from webhook._delivery as d
                                where d.event_id = x.event_id and d.endpoint_id = x.endpoint_id and d.event_id >= low and d.event_id < high)) as g
      left join webhook._endpoint as p on p.endpoint_id = g.endpoint_id;

  -- The feed.
  return query
    -- Most events are published at once; the others are looked for one by one.
    with lost as materialized (
      select f.event_id, f.published_at, f.partner_id
        from webhook._feed as f
       where f.pos >= low_pos
         and f.pos < webhook._pos_bound(until)
         and f.event_id >= events_from
         and not exists (select
                           from webhook._event as e
                          where e.event_id = f.event_id
                            and e.event_id >= webhook._event_bound(since - interval '1 hour')
                            and e.event_id < webhook._event_bound(until + interval '1 minute')))
    select 'feed.without_event', f.event_id, f.published_at, f.partner_id, f.event_id, null::bigint, 'It is in the feed and its event is gone.'
      from lost as f
     where not exists (select from webhook._event as e where e.event_id = f.event_id)
     union all
    select 'feed.twice', f.event_id, min(f.published_at), f.partner_id, f.event_id, null::bigint, format('It is in the feed %s times.', count(*))
      from webhook._feed as f
     where f.pos >= low_pos
       and f.pos < webhook._pos_bound(until)
     group by f.partner_id, f.event_id
    having count(*) > 1;
end
$$;
comment on function webhook._find_gaps(timestamptz, timestamptz, timestamptz) is 'Everything that does not go together in a range of time.';

create function webhook._find_default_rows(
  since timestamptz, -- of this time or later
  until timestamptz  -- before this time
) returns table (
  object text,
  happened_at timestamptz,
  detail text
)
language plpgsql stable
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
declare
  target record;
  first_day date;
  rows bigint;
  low text;
  high text;
begin
  for target in
    select l.parent, case l.parent when '_feed' then 'pos' else 'event_id' end as key
      from webhook._retention_list() as l
  loop
    continue when to_regclass(format('webhook.%I', target.parent)) is null;
    -- The first day has no partition: there was nobody yet who could have made one.
    select min(to_date(right(c.relname, 8), 'YYYYMMDD'))
      into first_day
      from pg_inherits as i
      join pg_class as c on c.oid = i.inhrelid
     where i.inhparent = format('webhook.%I', target.parent)::regclass
       and c.relname ~ '_[0-9]{8}$';
    continue when first_day is null;
    low := webhook._day_bound(target.parent, greatest((since at time zone 'UTC')::date, first_day));
    high := webhook._day_bound(target.parent, (until at time zone 'UTC')::date + 1);
    execute format('select count(*) from webhook.%I as t where t.%I >= %L and t.%I < %L', target.parent || '_default', target.key, low,
                   target.key, high)
       into rows;
    if rows > 0 then
      object := target.parent;
      happened_at := until - interval '1 microsecond';
      detail := format('%s rows are in the DEFAULT partition although partitions were made before.', rows);
      return next;
    end if;
  end loop;
end
$$;
comment on function webhook._find_default_rows(timestamptz, timestamptz) is 'Rows of days that should have a partition and have none.';

create function webhook._count_days(
  since timestamptz, -- days that end after this time
  until timestamptz  -- and before this one
) returns table (
  day date,
  happened_at timestamptz,
  detail text
)
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
declare
  now_there webhook._day_count;
  was webhook._day_count;
  low text;
  high text;
begin
  for day in
    select d::date
      from generate_series(date_trunc('day', since, 'UTC') at time zone 'UTC', (until at time zone 'UTC') - interval '1 day', '1 day') as d
  loop
    low := webhook._day_bound('_event', day);
    high := webhook._day_bound('_event', day + 1);
    now_there := row(
      day, clock_timestamp(),
      (select count(*) from webhook._event as e where e.event_id >= low and e.event_id < high),
      (select count(*) from webhook._feed as f
        where f.pos >= webhook._day_bound('_feed', day)::bigint and f.pos < webhook._day_bound('_feed', day + 1)::bigint),
      (select count(*) from webhook._delivery as d where d.event_id >= low and d.event_id < high),
      (select count(*) from webhook._attempt as a where a.event_id >= low and a.event_id < high));
    -- Attempts go first, by their own retention.
    if day < ((clock_timestamp() - least(webhook._age('attempt'),
                                         webhook._age('delivery'))) at time zone 'UTC')::date + 1 then
      now_there.attempts := null;
    end if;
    select c.* into was from webhook._day_count as c where c.day = _count_days.day;
    if found and (now_there.events < was.events or now_there.published < was.published or now_there.deliveries < was.deliveries
                  or now_there.attempts < was.attempts) then
      happened_at := (day + 1)::timestamp at time zone 'UTC' - interval '1 microsecond';
      detail := format('There were %s events, %s in the feed, %s deliveries and %s attempts; there are %s, %s, %s and %s.',
                       was.events, was.published, was.deliveries, was.attempts, now_there.events, now_there.published,
                       now_there.deliveries, coalesce(now_there.attempts, was.attempts));
      return next;
    end if;
    insert into webhook._day_count as c (day, events, published, deliveries, attempts)
    values (now_there.day, now_there.events, now_there.published, now_there.deliveries, coalesce(now_there.attempts, 0))
    on conflict on constraint _day_count_pkey do update
       set counted_at = excluded.counted_at,
           events = greatest(c.events, excluded.events),
           published = greatest(c.published, excluded.published),
           deliveries = greatest(c.deliveries, excluded.deliveries),
           attempts = greatest(c.attempts, excluded.attempts);
  end loop;
end
$$;
comment on function webhook._count_days(timestamptz, timestamptz) is 'Counts the days that ended in a range, and tells those that have fewer rows than before.';
