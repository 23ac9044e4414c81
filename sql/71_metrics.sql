-- Metrics for Prometheus. Counters and distributions are counted by the leader in shared memory as it writes results
-- (src/pg/counters.rs): reading them touches no table. Gauges are counted when they are read, and no count looks at more
-- than 10000 rows, so that a scrape costs the same whatever waits.
-- No label names a tenant, an endpoint or an event: that is what stat_endpoint, endpoint_health and dead_letters are for.

create function webhook._metric_list()
returns table (
  place integer, -- order in which they are shown
  family text,   -- name of the metric
  type text,     -- counter, gauge or histogram
  help text      -- what it tells
)
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  values
    (1, 'webhook_events_fanned_out_total', 'counter', 'Events that the leader has read and published in the feed.'),
    (2, 'webhook_pairs_made_total', 'counter', 'Pairs of event and endpoint made of them.'),
    (3, 'webhook_deliveries_total', 'counter', 'Deliveries that ended, by outcome: delivered, dead, or cancelled with their endpoint.'),
    (4, 'webhook_attempts_total', 'counter', 'HTTP attempts, by outcome: delivered (2xx) or the error category.'),
    (5, 'webhook_alerts_total', 'counter', 'Alerts that the leader has raised, by kind.'),
    (6, 'webhook_result_flushes_total', 'counter', 'Transactions in which the leader wrote results.'),
    (7, 'webhook_events_fenced_total', 'counter', 'Events that the leader refused to send because their row was changed after the emit.'),
    (8, 'webhook_leader_restarts_total', 'counter', 'Starts of the leader after the first one.'),
    (9, 'webhook_delivery_lag_seconds', 'histogram', 'Time from the emit of an event to the end of the attempt that delivered it; replays are not counted.'),
    (10, 'webhook_attempt_duration_seconds', 'histogram', 'Time of an attempt, from connecting to the end of the answer.'),
    (11, 'webhook_build_info', 'gauge', 'Always 1; the labels tell the database and the versions.'),
    (12, 'webhook_leader_up', 'gauge', 'Whether the leader of this database runs and sends.'),
    (13, 'webhook_in_recovery', 'gauge', 'Whether this server is a standby, on which nothing is sent.'),
    (14, 'webhook_leader_start_time_seconds', 'gauge', 'When the leader started, Unix time; 0 = it never has.'),
    (15, 'webhook_leader_last_loop_time_seconds', 'gauge', 'When the loop of the leader last came round, Unix time.'),
    (16, 'webhook_threads', 'gauge', 'HTTP threads.'),
    (17, 'webhook_requests_in_flight', 'gauge', 'HTTP requests on the wire.'),
    (18, 'webhook_pairs_queued', 'gauge', 'Pairs in the memory of the leader that are not sent yet.'),
    (19, 'webhook_batches_open', 'gauge', 'Batches whose pairs do not all have a row yet.'),
    (20, 'webhook_events_unread', 'gauge', 'Events committed and not read by the leader yet; counted up to 10000.'),
    (21, 'webhook_oldest_unread_age_seconds', 'gauge', 'Age of the oldest of them; 0 = there is none.'),
    (22, 'webhook_open_deliveries', 'gauge', 'Deliveries by state: pending, retrying, dead; each counted up to 10000.'),
    (23, 'webhook_pairs_parked', 'gauge', 'Pairs that wait in the tables: due, waiting for their time, or held; of those that may be sent the first 10000 are looked at.'),
    (24, 'webhook_oldest_due_age_seconds', 'gauge', 'How long the oldest pair that may be sent has been due; 0 = there is none.'),
    (25, 'webhook_requests_pending', 'gauge', 'Requests of users that the leader has not carried out.'),
    (26, 'webhook_events_fenced', 'gauge', 'Events that are not sent because their row was changed after the emit.'),
    (27, 'webhook_origins_foreign', 'gauge', 'Other databases whose events came here by a copy and were not adopted.'),
    (28, 'webhook_endpoints_registered', 'gauge', 'Endpoints by health: healthy, failing, down, held, closed, unknown.'),
    (29, 'webhook_pauses_active', 'gauge', 'Pauses in force by scope: all, partner, event_type, endpoint.'),
    (30, 'webhook_keys_in_clear', 'gauge', 'Whether keys are stored unencrypted.'),
    (31, 'webhook_jobs_running', 'gauge', 'Long jobs of the leader that are not finished: replay, adopt.'),
    (32, 'webhook_findings_open', 'gauge', 'Gaps that reconcile found and that are still there.'),
    (33, 'webhook_inbox_events_today', 'gauge', 'What receive and the handlers made of events since the UTC day began, by result.'),
    (34, 'webhook_inbox_open', 'gauge', 'Received events by state: unfinished, dead; each counted up to 10000.')
$$;
comment on function webhook._metric_list() is 'The metrics: the one place that says their names, types and meanings.';

create function webhook._counters()
returns table (
  family text,           -- name of the metric
  metric text,           -- name of the sample; of a histogram with _bucket, _sum or _count
  labels jsonb,          -- its labels
  value double precision -- its value
)
language c volatile parallel restricted rows 100
as 'MODULE_PATHNAME', 'counters_wrapper';
comment on function webhook._counters() is 'What the leader of this database has counted since the server started, from shared memory.';

create function webhook._gauges()
returns table (
  metric text,           -- name of the metric
  labels jsonb,          -- its labels
  value double precision -- its value
)
language sql volatile parallel restricted rows 60
-- SECURITY DEFINER: its readers have no right to the tables, and what they get of them is a few numbers.
security definer
set search_path = pg_catalog, webhook, pg_temp
set jit = off
as $$
  with recursive worker as materialized (
    select * from webhook._worker()),
  unread as materialized (
    select * from webhook._unread(10000)),
  -- Each queue that has rows, with its first one: a step along the index for each, whatever waits behind.
  queue (endpoint_id, class, first_at) as (
    (select d.endpoint_id, d.class, d.next_attempt_at
       from webhook._due d
      where d.hold = 0
      order by d.endpoint_id, d.class, d.next_attempt_at
      limit 1)
    union all
    select n.endpoint_id, n.class, n.next_attempt_at
      from queue as q
     cross join lateral (
       select d.endpoint_id, d.class, d.next_attempt_at
         from webhook._due d
        where d.hold = 0
          and (d.endpoint_id, d.class) > (q.endpoint_id, q.class)
        order by d.endpoint_id, d.class, d.next_attempt_at
        limit 1) as n),
  queues as materialized (
    select q.endpoint_id, q.class, q.first_at from queue as q limit 10000),
  parked as materialized (
    select (select count(*)
              from (select
                      from queues as q
                     cross join lateral (
                       select from webhook._due d
                        where d.endpoint_id = q.endpoint_id and d.class = q.class and d.hold = 0
                          and d.next_attempt_at <= statement_timestamp()) as d
                     limit 10000) as s) as due,
           (select count(*)
              from (select
                      from queues as q
                     cross join lateral (
                       select from webhook._due d
                        where d.endpoint_id = q.endpoint_id and d.class = q.class and d.hold = 0
                          and d.next_attempt_at > statement_timestamp()) as d
                     limit 10000) as s) as waiting,
           (select min(q.first_at) from queues as q where q.first_at <= statement_timestamp()) as oldest)
  select g.metric, coalesce(g.labels, '{}'), g.value
    from worker as w
   cross join unread as u
   cross join parked as p
   cross join lateral (values
     ('webhook_build_info', jsonb_build_object('database', w.database, 'library', w.library_version, 'extension', w.extension_version), 1::double precision),
     ('webhook_leader_up', null, (w.state = 'running')::integer),
     ('webhook_in_recovery', null, pg_is_in_recovery()::integer),
     ('webhook_leader_start_time_seconds', null, coalesce(extract(epoch from w.started_at), 0)),
     ('webhook_leader_last_loop_time_seconds', null, coalesce(extract(epoch from w.last_loop_at), 0)),
     ('webhook_threads', null, w.threads),
     ('webhook_requests_in_flight', null, w.in_flight),
     ('webhook_pairs_queued', null, w.queued),
     ('webhook_batches_open', null, w.open_batches),
     ('webhook_events_unread', null, u.events),
     ('webhook_oldest_unread_age_seconds', null,
      coalesce(greatest(extract(epoch from clock_timestamp() - webhook._event_time(u.first_id)), 0), 0)),
     ('webhook_pairs_parked', '{"state": "due"}', p.due),
     ('webhook_pairs_parked', '{"state": "waiting"}', p.waiting),
     ('webhook_pairs_parked', '{"state": "held"}',
      (select count(*) from (select from webhook._due d where d.hold <> 0 limit 10000) as s)),
     ('webhook_oldest_due_age_seconds', null, coalesce(greatest(extract(epoch from clock_timestamp() - p.oldest), 0), 0)),
     ('webhook_open_deliveries', '{"state": "pending"}',
      (select count(*) from (select from webhook._delivery d where d.state = 'pending' limit 10000) as s)),
     ('webhook_open_deliveries', '{"state": "retrying"}',
      (select count(*) from (select from webhook._delivery d where d.state = 'retrying' limit 10000) as s)),
     ('webhook_open_deliveries', '{"state": "dead"}',
      (select count(*) from (select from webhook._delivery d where d.state = 'dead' limit 10000) as s)),
     ('webhook_requests_pending', null,
      (select count(*) from (select from webhook._request r where r.state = 'pending' limit 10000) as s)),
     ('webhook_events_fenced', null, (select count(*) from (select from webhook._fenced limit 10000) as s)),
     ('webhook_origins_foreign', null, (select count(*) from webhook._foreign_origin)),
     ('webhook_keys_in_clear', null, webhook._keys_in_clear()::integer),
     ('webhook_jobs_running', '{"kind": "replay"}',
      (select count(*)
         from webhook._replay r
         left join webhook._replay_progress g on g.request_id = r.request_id
        where r.origin = webhook._origin()
          and coalesce(g.state, 'running') = 'running')),
     ('webhook_jobs_running', '{"kind": "adopt"}',
      (select count(*)
         from webhook._adoption a
         left join webhook._adoption_progress g on g.request_id = a.request_id
        where a.adopter = webhook._origin()
          and g.state is distinct from 'done')),
     ('webhook_findings_open', null,
      (select count(*) from (select from webhook._finding f where f.repaired_at is null limit 10000) as s)),
     ('webhook_inbox_open', '{"state": "unfinished"}',
      (select count(*) from (select from webhook._inbox_run r where r.state in ('pending', 'claimed', 'retrying') limit 10000) as s)),
     ('webhook_inbox_open', '{"state": "dead"}',
      (select count(*) from (select from webhook._inbox_run r where r.state = 'dead' limit 10000) as s)))
     as g (metric, labels, value)
  union all
  select 'webhook_endpoints_registered', jsonb_build_object('health', k.health), count(e.health)
    from unnest('{healthy,failing,down,held,closed,unknown}'::text[]) as k (health)
    left join webhook.endpoint_health as e on e.health = k.health and e.state <> 'deleted'
   group by k.health
  union all
  select 'webhook_pauses_active', jsonb_build_object('scope', k.scope), count(p.scope)
    from unnest('{all,partner,event_type,endpoint}'::text[]) as k (scope)
    left join (select x.scope from webhook._pause x where x.paused
                union all
               select 'endpoint' from webhook._effective_endpoint e where e.state = 'paused') as p on p.scope = k.scope
   group by k.scope
  union all
  select 'webhook_inbox_events_today', jsonb_build_object('result', k.result), coalesce(sum(c.total), 0)
    from unnest('{accepted,duplicate,rejected,processed,failed,stale}'::text[]) as k (result)
    left join (select n.result, n.total
                 from webhook._inbox_source s
                 join webhook._inbox_count n on n.source_id = s.source_id
                where n.day = (clock_timestamp() at time zone 'UTC')::date) as c on c.result = k.result
   group by k.result
$$;
comment on function webhook._gauges() is
  'Numbers of this moment. Each count stops at 10000 rows; beside that the cost grows with the endpoints, not with what waits or was kept.';

create view webhook.stat_metrics as
select c.family,
       c.metric,
       case when c.family like '%\_seconds' then 'histogram' else 'counter' end as type,
       c.labels,
       c.value
  from webhook._counters() as c
union all
select g.metric,
       g.metric,
       'gauge',
       g.labels,
       g.value
  from webhook._gauges() as g;
comment on view webhook.stat_metrics is
  'The samples that metrics() writes, a row each, for exporters that run queries. With type = ''counter'' or type = ''histogram'' it reads shared memory only.';
comment on column webhook.stat_metrics.family is 'Name of the metric.';
comment on column webhook.stat_metrics.metric is 'Name of the sample; of a histogram with _bucket, _sum or _count.';
comment on column webhook.stat_metrics.type is 'counter or histogram: counted by the leader in shared memory since the server started; gauge: found out when it is read.';
comment on column webhook.stat_metrics.labels is 'Its labels.';
comment on column webhook.stat_metrics.value is 'Its value.';

create function webhook.metrics()
returns text -- Prometheus text exposition format 0.0.4
language sql volatile parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
  with sample as materialized (
    select row_number() over () as n, m.family, m.metric, m.labels, m.value
      from webhook.stat_metrics as m)
  select string_agg(
           format(E'# HELP %s %s\n# TYPE %s %s\n%s',
                  l.family, replace(replace(l.help, '\', '\\'), E'\n', '\n'), l.family, l.type, f.lines),
           '' order by l.place)
    from webhook._metric_list() as l
    join (select s.family,
                 string_agg(s.metric
                            || coalesce('{' || (select string_agg(
                                                         p.key || '="'
                                                         || replace(replace(replace(p.value, '\', '\\'), '"', '\"'), E'\n', '\n')
                                                         || '"', ',' order by p.key)
                                                  from jsonb_each_text(s.labels) as p
                                                 where p.value is not null) || '}', '')
                            || ' '
                            || case s.value when 'Infinity' then '+Inf' when '-Infinity' then '-Inf' else s.value::text end,
                            E'\n' order by s.n) || E'\n' as lines
            from sample as s
           group by s.family) as f on f.family = l.family
$$;
comment on function webhook.metrics() is
  'Metrics of this database in the text format of Prometheus. Names no tenant, endpoint or event. Costs a bounded number of rows.';
