-- Whether everything that must be there is there: what the tables say of one another, and what the business says.
-- Only what is settled is judged: older than a settle time, and behind the place that the leader has read up to. Every
-- check is one query over a range of event ids, which are ordered by time and lead the indexes that it uses.
-- Gaps are recorded; what can be repaired the leader is asked to repair, and looks at it anew.

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

  -- Published, wanted, and no delivery. An endpoint is judged by what it was since before the event. Which types it wants is
  -- decided once for each of them, and whether an event is settled only for those in question.
  return query
    with type as materialized (
      select distinct e.partner_id, e.type
        from webhook._event as e
       where e.event_id >= low
         and e.event_id < high
         and e.origin = own
         and e.type <> 'webhook.test'),
    wanted as materialized (
      select p.endpoint_id, p.partner_id, p.test, p.changed_xid, p.created_snapshot, t.type,
             webhook._event_bound(greatest(p.state_changed_at, s.state_changed_at)) as from_id
        from webhook._endpoint as p
        join webhook._effective_endpoint as s on s.endpoint_id = p.endpoint_id and s.state = 'active'
        join type as t on t.partner_id = p.partner_id and webhook._type_matches(p.event_types, t.type)
       where p.origin = own
         -- What a filter or the subject has decided is not decided here once more.
         and coalesce(to_jsonb(p) ->> 'filter', to_jsonb(p) ->> 'subject_types') is null),
    missing as materialized (
      select e.event_id, e.partner_id, w.endpoint_id
        from webhook._event as e
        join wanted as w on w.partner_id = e.partner_id and w.type = e.type and w.test = e.test
       where e.event_id >= low
         and e.event_id < high
         and e.origin = own
         and w.changed_xid < e.xid
         and w.from_id < e.event_id
         and not pg_visible_in_snapshot(e.xid, w.created_snapshot)
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
     where (select n.pos from webhook._publication(m.partner_id, m.event_id) as n) < settled_pos;

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

create function webhook._ask_repair(
  run bigint -- run of reconcile whose findings are to be repaired
) returns void
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  piece record;
  asked bigint;
begin
  for piece in
    select f.event_id, null::text[] as event_ids, null::bigint[] as endpoint_ids, array[f.finding_id] as findings, f.partner_id
      from webhook._finding as f
     where f.run = _ask_repair.run
       and f.repaired_at is null
       and f.kind = 'event.unpublished'
     union all
    -- As many pairs in one request as the leader takes up at a time.
    select null, array_agg(t.event_id), array_agg(t.endpoint_id), array_agg(t.finding_id), null
      from (select f.event_id, f.endpoint_id, f.finding_id, (row_number() over (order by f.finding_id) - 1) / 1000 as n
              from webhook._finding as f
             where f.run = _ask_repair.run
               and f.repaired_at is null
               and f.kind in ('pair.missing', 'delivery.not_due', 'due.without_delivery', 'due.settled')) as t
     group by t.n
  loop
    -- An earlier request about the very same may still wait.
    continue when exists (
      select
        from webhook._finding as f
        join webhook._request as q on q.request_id = f.request_id and q.state = 'pending'
       where f.finding_id = any (piece.findings));
    asked := webhook._ask(
      'repair', case when piece.event_id is null then 'delivery' else 'event' end, piece.event_id, piece.partner_id, piece.event_id,
      reason => 'found by reconcile',
      event_ids => piece.event_ids,
      endpoint_ids => piece.endpoint_ids,
      after => jsonb_build_object('findings', cardinality(piece.findings)),
      called => 'reconcile');
    update webhook._finding as f
       set request_id = asked
     where f.finding_id = any (piece.findings);
  end loop;
end
$$;
comment on function webhook._ask_repair(bigint) is 'Asks the leader to repair what a run found and can be repaired; tampered rows and lost evidence cannot.';

create function webhook._close_findings(
  run bigint,        -- run of reconcile that did not find them any more
  check_name text,   -- registered query; null = the tables
  since timestamptz, -- judged from this time
  until timestamptz  -- up to this one
) returns void
language sql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
  update webhook._finding as f
     set repaired_at = clock_timestamp(),
         how = coalesce((select format('request %s: %s', q.request_id, q.result)
                           from webhook._request as q
                          where q.request_id = f.request_id
                            and q.state = 'done'), 'it is not there any more')
   where f.repaired_at is null
     and f.run <> _close_findings.run
     and f.check_name is not distinct from _close_findings.check_name
     and f.happened_at >= since
     and f.happened_at < until
$$;
comment on function webhook._close_findings(bigint, text, timestamptz, timestamptz) is 'Gaps of a range that a run did not find any more are repaired.';

create function webhook._reconcile(
  since timestamptz,  -- judged from this time
  until timestamptz,  -- up to this one
  settle interval,    -- what is younger is not judged
  repair boolean,     -- whether the leader is asked to repair
  out run bigint,
  out low timestamptz,
  out high timestamptz
) returns record
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: the tables belong to the owner alone; what runs here is the extension's own code.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_variable
declare
  kept constant timestamptz := date_trunc('day', clock_timestamp()
    - least(webhook._age('delivery'), webhook._age('event')), 'UTC')
    + interval '1 day';
begin
  perform webhook._check_writable('reconcile');
  perform webhook._check_argument('settle', settle is null);
  perform webhook._check_argument('repair', repair is null);
  if settle < interval '0' or settle > interval '1 day' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'settle is outside the valid range',
      detail = 'It is at most a day.';
  end if;
  high := least(until, clock_timestamp() - settle);
  low := coalesce(since, high - interval '25 hours');
  if since >= until or not isfinite(low) or not isfinite(high) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = '"since" must be earlier than "until"',
      detail = 'Both are finite; null means the last 25 hours.';
  end if;
  if high - low > interval '32 days' then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'the range is too long',
      detail = 'It may be 32 days.',
      hint = 'Reconcile one month after the other.';
  end if;
  -- Deliveries of older days have gone by their retention.
  low := greatest(low, kept);
  run := webhook._new_id();
  if low < high then
    insert into webhook._finding as f
      (finding_id, kind, object, happened_at, partner_id, event_id, endpoint_id, detail, run)
    select webhook._new_id(), g.kind, g.object, g.happened_at, g.partner_id, g.event_id, g.endpoint_id, g.detail, run
      from (select distinct on (t.kind, t.object) t.*
              from (select a.* from webhook._find_gaps(low, high, clock_timestamp() - settle) as a
                     union all
                    select 'default.rows', d.object, d.happened_at, null, null, null, d.detail
                      from webhook._find_default_rows(low, high) as d
                     union all
                    select 'day.count_drift', c.day::text, c.happened_at, null, null, null, c.detail
                      from webhook._count_days(low, high) as c) as t
             order by t.kind, t.object) as g
    on conflict (kind, object) where repaired_at is null do update
       set seen_at = clock_timestamp(),
           detail = excluded.detail,
           run = excluded.run;
    perform webhook._close_findings(run, null, low, high);
    if repair then
      perform webhook._ask_repair(run);
    end if;
  end if;
  perform webhook._log(
    'reconcile', 'all', null,
    after => jsonb_build_object('since', webhook._rfc3339(low), 'until', webhook._rfc3339(high),
                                'found', (select count(*) from webhook._finding as f where f.run = _reconcile.run)));
end
$$;
comment on function webhook._reconcile(timestamptz, timestamptz, interval, boolean) is 'What reconcile does with the tables.';

create function webhook._registered_checks(
  out name text,
  out query text
) returns setof record
language plpgsql stable parallel safe
-- SECURITY DEFINER: for reconcile, whose caller need not read the table.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
begin
  for name, query in
    select r.name, r.query from webhook._reconciliation as r order by r.name
  loop
    perform webhook._check_query(query);
    return next;
  end loop;
end
$$;
comment on function webhook._registered_checks() is 'The registered queries, after another look at whose rights they run with.';

create function webhook._check_query(
  query text -- schema-qualified name of a function
) returns void
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  definer boolean;
begin
  select p.prosecdef
    into definer
    from pg_proc as p
   where p.oid = to_regprocedure(query || '(timestamptz, timestamptz)')
     and p.prokind = 'f';
  if not found then
    raise exception using
      errcode = 'undefined_function',
      message = format('function %s(timestamptz, timestamptz) does not exist', left(query, 200)),
      hint = 'A query is a function of the two ends of a range that returns rows with subject_id and changed_at.';
  end if;
  -- Whoever reconciles must not lend his rights to whoever wrote the query.
  if not definer then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('function %s runs with the rights of whoever calls it', query),
      hint = 'Make it SECURITY DEFINER, with a search_path of its own: then it can do what its owner can and no more.';
  end if;
end
$$;
comment on function webhook._check_query(text) is 'Refuses a query that would run with the rights of whoever reconciles.';

create function webhook._judge_changes(
  run bigint,        -- run of reconcile
  name text,         -- registered query
  changes jsonb,     -- its rows
  since timestamptz, -- the range that it was asked for
  until timestamptz
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: as _reconcile; the rows are compared, never executed.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_variable
declare
  asked webhook._reconciliation;
  bad jsonb;
begin
  select r.* into asked from webhook._reconciliation as r where r.name = _judge_changes.name;
  if not found then
    return;
  end if;
  select c.row
    into bad
    from jsonb_array_elements(changes) as c (row)
   where c.row ->> 'subject_id' is null
      or c.row ->> 'changed_at' is null
   limit 1;
  if found then
    raise exception using
      errcode = 'null_value_not_allowed',
      message = format('query "%s" returned a change without subject_id or changed_at', name);
  end if;
  insert into webhook._finding as f
    (finding_id, kind, object, happened_at, partner_id, check_name, detail, run)
  select webhook._new_id(), 'change.without_event',
         format('%s %s:%s %s', name, asked.subject_type, g.subject_id, coalesce('version ' || g.version, webhook._rfc3339(g.changed_at))),
         least(greatest(g.changed_at, since), until - interval '1 microsecond'), g.partner_id, name,
         format('No event %s reports it.', asked.event_type), run
    from (select distinct on (c.subject_id, coalesce(c.version::text, c.changed_at::text)) c.*
            from (select e.row ->> 'subject_id' as subject_id,
                         (e.row ->> 'changed_at')::timestamptz as changed_at,
                         e.row ->> 'partner_id' as partner_id,
                         (e.row ->> 'subject_version')::bigint as version
                    from jsonb_array_elements(changes) as e (row)) as c
           order by c.subject_id, coalesce(c.version::text, c.changed_at::text)) as g
   where not exists (
           select
             from webhook._event as e
            where e.subject_type = asked.subject_type
              and e.subject_id = g.subject_id
              and e.type = asked.event_type
              and (g.partner_id is null or e.partner_id = g.partner_id)
              and case
                    when g.version is not null then e.subject_version = g.version
                    else webhook._event_time(e.event_id) between g.changed_at - asked.tolerance and g.changed_at + asked.tolerance
                      or e.occurred_at between g.changed_at - asked.tolerance and g.changed_at + asked.tolerance
                  end)
  on conflict (kind, object) where repaired_at is null do update
     set seen_at = clock_timestamp(),
         run = excluded.run;
  perform webhook._close_findings(run, name, since, until);
end
$$;
comment on function webhook._judge_changes(bigint, text, jsonb, timestamptz, timestamptz) is 'Compares changes of the business with the events that should report them.';

create function webhook._found(
  run bigint,            -- run of reconcile
  out kind text,
  out found bigint,
  out new bigint,
  out repairing bigint
) returns setof record
language sql stable parallel safe
-- SECURITY DEFINER: for reconcile, whose caller need not read the table; it tells numbers.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select f.kind, count(*), count(*) filter (where f.seen_at = f.detected_at or f.finding_id > _found.run), count(q.request_id)
    from webhook._finding as f
    left join webhook._request as q on q.request_id = f.request_id and q.state = 'pending'
   where f.run = _found.run
   group by f.kind
   order by f.kind
$$;
comment on function webhook._found(bigint) is 'What a run of reconcile found, by kind.';

create function webhook._ask_query(
  query text,         -- schema-qualified name of a function
  since timestamptz,  -- the range that it is asked for
  until timestamptz
) returns text -- its rows, as a JSON array
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  changes text;
begin
  execute format('select coalesce(pg_catalog.jsonb_agg(pg_catalog.to_jsonb(c)), ''[]'')::text from (select r.* from %s($1, $2) as r limit 10001) as c', query)
     into changes
    using since, until;
  return changes;
end
$$;
comment on function webhook._ask_query(text, timestamptz, timestamptz) is 'What a registered query returns. Called by _changes alone, as the owner of the query.';

create function webhook._changes(
  helper oid,         -- _ask_query
  query text,         -- schema-qualified name of a function
  since timestamptz,  -- the range that it is asked for
  until timestamptz
) returns text -- its rows, as a JSON array
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'changes_of_wrapper';
comment on function webhook._changes(oid, text, timestamptz, timestamptz) is
  'Asks a registered query with the rights of its owner and no others: in a savepoint, as a security-restricted operation that writes nothing.';

create function webhook.reconcile(
  since timestamptz default null,        -- judge what happened at this time or later; null = the last 25 hours
  until timestamptz default null,        -- and before this time; null = up to now
  repair boolean default true,           -- whether the leader is asked to repair what can be repaired
  settle interval default '5 minutes'    -- what is younger is not judged
) returns table (
  kind text,        -- what is wrong
  found bigint,     -- how many there are
  new bigint,       -- how many of them were not known before
  repairing bigint  -- for how many a request to the leader is under way
)
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: the tables belong to the owner alone. Registered queries run with the rights of theirs, see _changes.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  range record;
  registered record;
  changes jsonb;
begin
  range := webhook._reconcile(since, until, settle, repair);
  for registered in
    select c.name, c.query from webhook._registered_checks() as c
  loop
    changes := webhook._changes('webhook._ask_query(text, timestamptz, timestamptz)'::regprocedure, registered.query, range.low, range.high);
    if jsonb_array_length(changes) > 10000 then
      raise exception using
        errcode = 'program_limit_exceeded',
        message = format('query "%s" returned too many changes', registered.name),
        detail = 'At most 10000 are compared at a time.',
        hint = 'Reconcile a shorter range.';
    end if;
    perform webhook._judge_changes(range.run, registered.name, changes, range.low, range.high);
  end loop;
  return query
    select f.kind, f.found, f.new, f.repairing from webhook._found(range.run) as f;
end
$$;
comment on function webhook.reconcile(timestamptz, timestamptz, boolean, interval) is
  'Looks for gaps: between events, feed, deliveries, attempts and what is due, in the counts of days, and in what registered queries report. Records them in the view reconciliation, and asks the leader to repair what can be repaired.';

create function webhook.create_reconciliation(
  name text,                              -- name of the check
  event_type text,                        -- event type that reports the changes
  subject_type text,                      -- kind of the subject that changes
  query regprocedure,                     -- function (since timestamptz, until timestamptz): rows with subject_id, changed_at and, where there is one, partner_id and subject_version
  tolerance interval default '5 minutes', -- how far the time of the event may be from that of the change
  description text default null           -- free text
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: as expunge.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  called text;
begin
  perform webhook._check_writable('register a query');
  perform webhook._check_argument('name', name is null);
  perform webhook._check_argument('event_type', event_type is null);
  perform webhook._check_argument('subject_type', subject_type is null);
  perform webhook._check_argument('query', query is null);
  perform webhook._check_argument('tolerance', tolerance is null);
  if name !~ '^[A-Za-z0-9_.-]{1,128}$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'name is not valid',
      detail = 'A name has 1 to 128 characters of A-Z, a-z, 0-9, "_", "." and "-".';
  end if;
  perform webhook._check_type(event_type);
  if tolerance < interval '0' or tolerance > interval '7 days' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'tolerance is outside the valid range',
      detail = 'It is at most 7 days.';
  end if;
  select format('%I.%I', n.nspname, p.proname)
    into called
    from pg_proc as p
    join pg_namespace as n on n.oid = p.pronamespace
   where p.oid = query
     and p.pronargs = 2
     and p.proargtypes[0] = 'timestamptz'::regtype
     and p.proargtypes[1] = 'timestamptz'::regtype;
  perform webhook._check_query(coalesce(called, query::regproc::text));
  -- It runs with the rights of its owner, who must have agreed.
  if not exists (select from pg_proc as p where p.oid = query and pg_has_role(session_user, p.proowner, 'member')) then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('permission denied for function %s', called),
      detail = 'A query is registered by its owner, or a member of that role: it runs with the owner''s rights.';
  end if;
  insert into webhook._reconciliation as r (name, event_type, subject_type, query, tolerance, description)
  values (create_reconciliation.name, create_reconciliation.event_type, create_reconciliation.subject_type, called,
          create_reconciliation.tolerance, create_reconciliation.description)
  on conflict on constraint _reconciliation_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('query "%s" already exists', name),
      hint = 'See webhook.reconciliations.';
  end if;
  perform webhook._log('create_reconciliation', 'reconciliation', name,
                       after => jsonb_build_object('event_type', event_type, 'subject_type', subject_type, 'query', called));
end
$$;
comment on function webhook.create_reconciliation(text, text, text, regprocedure, interval, text) is
  'Registers a query that finds changes of the business: reconcile compares them with the events of a type. It must be SECURITY DEFINER.';

create function webhook.delete_reconciliation(
  name text -- name of the check
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: as expunge.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_writable('delete a query');
  perform webhook._check_argument('name', name is null);
  delete from webhook._reconciliation as r where r.name = delete_reconciliation.name;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('query "%s" does not exist', left(name, 128)),
      hint = 'See webhook.reconciliations.';
  end if;
  -- Nobody will look at them again.
  update webhook._finding as f
     set repaired_at = clock_timestamp(),
         how = 'the query was deleted'
   where f.check_name = delete_reconciliation.name
     and f.repaired_at is null;
  perform webhook._log('delete_reconciliation', 'reconciliation', name);
end
$$;
comment on function webhook.delete_reconciliation(text) is 'Forgets a registered query; its findings stay.';
