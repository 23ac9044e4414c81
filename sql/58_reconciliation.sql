-- Whether everything that must be there is there: what the tables say of one another (39_gap.sql), and what the business
-- says (58_reconciliation_query.sql). Gaps are recorded; what can be repaired the leader is asked to repair, and looks at
-- it anew. What is wrong with one check keeps no other one from being made.

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
     -- Of a query itself, not of what it says: see _note_query.
     and f.kind <> 'query.failed'
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
begin
  range := webhook._reconcile(since, until, settle, repair);
  for registered in
    select r.name, r.query from webhook._reconciliation as r order by r.name
  loop
    perform webhook._reconcile_query(range.run, registered.name, registered.query, range.low, range.high);
  end loop;
  return query
    select f.kind, f.found, f.new, f.repairing from webhook._found(range.run) as f;
end
$$;
comment on function webhook.reconcile(timestamptz, timestamptz, boolean, interval) is
  'Looks for gaps: between events, feed, deliveries, attempts and what is due, in the counts of days, and in what registered queries report. Records them in the view reconciliation, and asks the leader to repair what can be repaired.';
