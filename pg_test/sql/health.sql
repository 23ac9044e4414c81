-- What the views say of endpoints, dead letters and alerts. Written by hand and rolled back: no leader sees it.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

set timezone = 'UTC';
set datestyle = 'ISO';
begin;
insert into webhook._policy (name, disable_after) values ('regress', '2 days');
insert into webhook._endpoint (endpoint_id, partner_id, url, event_types, test, state, state_reason, origin, generation, policy, created_by)
select n, case when n = 209 then 'regress-2' else 'regress' end, 'https://hooks.example.com/' || n, '{*}', false,
       (array['active', 'active', 'active', 'active', 'paused', 'active', 'active', 'unverified', 'active'])[n - 200], null, webhook._origin(), 3,
       case when n = 203 then 'regress' end, 'postgres'
  from generate_series(201, 209) as n;
insert into webhook._endpoint_state (endpoint_id, generation, state, reason, changed_at, adaptive_window, failing_since, failures, warned_at,
                                     last_success_at, last_failure_at, last_status, last_error_category, delivered, failed, latency_ms, probe_at, seen_at)
values
  -- healthy; failing, by a policy of its own and by the default one; down; paused; disabled by the leader; of an older generation
  (201, 3, null, null, now(), 8, null, 0, null, '2026-01-01 01:00+00', '2026-01-01 00:30+00', 200, 'timeout', 3, 1, 40, null, '2026-01-01 01:00:01+00'),
  (202, 3, null, null, now(), 2, '2026-01-01 00:00+00', 4, null, '2025-12-31 23:00+00', '2026-01-01 01:00+00', 500, 'server_error', 10, 4, 55, null, '2026-01-01 01:00:01+00'),
  (203, 3, null, null, now(), 1, '2026-01-01 00:00+00', 4, '2026-01-02 00:00+00', null, '2026-01-01 01:00+00', 500, 'server_error', 0, 4, null, null, '2026-01-01 01:00:01+00'),
  (204, 3, null, null, now(), 0, '2026-01-01 00:00+00', 4, null, '2025-12-31 23:00+00', '2026-01-01 01:00+00', null, 'connect_refused', 1, 2, 5, '2026-01-01 01:01+00', '2026-01-01 01:00:01+00'),
  (205, 3, null, null, now(), 8, null, 0, null, '2026-01-01 01:00+00', null, 200, null, 1, 0, 5, null, '2026-01-01 01:00:01+00'),
  (206, 3, 'disabled', 'no success in 5 days', now(), 0, '2026-01-01 00:00+00', 40, '2026-01-02 00:00+00', null, '2026-01-05 00:00+00', 500, 'server_error', 0, 40, 5, null, '2026-01-05 00:00:01+00'),
  (207, 2, 'disabled', 'the receiver answered 410 Gone', now(), 0, '2026-01-01 00:00+00', 40, null, '2026-01-01 01:00+00', '2026-01-05 00:00+00', 410, 'gone', 7, 3, 5, null, '2026-01-05 00:00:01+00');
update webhook._policy set disable_after = '4 days' where name = 'default';
insert into webhook._pause (scope, target, paused, reason) values ('partner', 'regress', true, 'x'), ('partner', 'regress-2', false, 'x'), ('all', '', true, 'x');
select endpoint_id, state, health, adaptive_window, probe_at, failing_since, failures, warned_at, disable_at, last_success_at, last_failure_at, last_status, last_error_category, paused_by_scope, seen_at
  from webhook.endpoint_health where endpoint_id between 201 and 209 order by endpoint_id;
update webhook._pause set paused = false where scope = 'all';
select partner_id, paused_by_scope, count(*) from webhook.endpoint_health where endpoint_id between 201 and 209 group by 1, 2 order by 1;

-- stat_endpoint: what waits, by endpoint.
insert into webhook._due (event_id, endpoint_id, next_attempt_at, attempt_count, series_start, class, hold)
values ('e1', 202, now() - interval '1 minute', 0, 0, 1, 0), ('e2', 202, now() - interval '2 minutes', 1, 0, 0, 0), ('e3', 202, now() + interval '1 day', 1, 0, 1, 0),
       ('e4', 202, now() - interval '1 hour', 1, 0, 1, 4), ('e5', 204, now() - interval '1 hour', 1, 0, 1, 3);
insert into webhook._event (xid, occurred_at, origin, seal_key, test, event_id, partner_id, type, subject_type, subject_id, seal, body_sha256, body)
select pg_current_xact_id(), '2026-01-01', webhook._origin(), 0, false, webhook._event_bound('2026-01-01 00:00+00'::timestamptz + n * interval '1 hour'), 'regress', 'order.paid', 'order', 'o-' || n, '', '', '{"total": 1}'
  from generate_series(1, 5) as n;
insert into webhook._delivery (event_id, endpoint_id, state, reason, attempt_count, series_start, revision, last_attempt_at, last_status, last_error_category)
select webhook._event_bound('2026-01-01 00:00+00'::timestamptz + n * interval '1 hour'), d.endpoint_id, d.state, d.reason, d.attempts, 0, 1, d.at::timestamptz, d.status, d.category
  from (values
    (1, 202, 'dead', 'not accepted', 1, '2026-01-01 01:00:01+00', 404, 'client_error'),
    (2, 202, 'dead', 'the schedule is used up', 3, '2026-01-01 03:00:00+00', null, 'timeout'),
    (3, 202, 'delivered', null, 1, '2026-01-01 03:00:01+00', 200, null),
    (4, 202, 'closed', 'settled', 1, '2026-01-01 03:00:01+00', 404, 'client_error'),
    (5, 203, 'dead', 'older than the maximum age', 0, null, null, 'expired')) as d (n, endpoint_id, state, reason, attempts, at, status, category);
insert into webhook._attempt (event_id, endpoint_id, attempt_no, started_at, incarnation, outcome, status, error_category, detail, worker_version)
select webhook._event_bound('2026-01-01 00:00+00'::timestamptz + n * interval '1 hour'), 202, no, '2026-01-01', 1, outcome, null, category, detail, version
  from (values (1, 1, 'dead', 'client_error', 'HTTP 404', '0.1.0'), (2, 1, 'retry', 'timeout', 'an early one', '0.0.9'), (2, 2, 'retry', 'timeout', 'another', '0.1.0'),
               (2, 3, 'dead', 'timeout', 'no answer within 20 s', '0.1.0')) as a (n, no, outcome, category, detail, version);
select endpoint_id, partner_id, delivered, failed, success_rate, latency_ms, due, waiting, held, oldest_due_at = now() - interval '2 minutes', dead, last_success_at, last_failure_at
  from webhook.stat_endpoint where endpoint_id between 201 and 209 order by endpoint_id;

-- dead_letters
select * from webhook.dead_letters where partner_id like 'regress%' order by event_id desc;

-- held_by: why what waits is not sent.
insert into webhook._delivery (event_id, endpoint_id, state, attempt_count, series_start, revision)
select 'e' || n, 208, case when n = 33 then 'dead' when n % 2 = 0 then 'pending' else 'retrying' end, 0, 0, 1 from generate_series(0, 33) as n where n in (0, 1, 2, 4, 7, 8, 16, 31, 32, 33);
insert into webhook._due (event_id, endpoint_id, next_attempt_at, attempt_count, series_start, class, hold)
select event_id, 208, now(), 0, 0, 1, case event_id when 'e33' then 1 else substr(event_id, 2)::integer end from webhook._delivery where endpoint_id = 208 and event_id <> 'e32';
select event_id, state, held_by from webhook.deliveries where endpoint_id = 208 order by event_id;

-- An endpoint that was paused so long ago that the audit log has no entry any more.
select scope, target, reason, paused_by from webhook.pauses where target = '205';

-- alerts
insert into webhook._alert (alert_id, at, kind, severity, partner_id, endpoint_id, event_id, detail)
values (1, '2026-01-01', 'endpoint.warning', 'warning', 'regress', 202, null, '4 failures since 00:00'), (2, '2026-01-02', 'event.fenced', 'critical', 'regress', null, 'e1', 'the row does not match its seal');
select * from webhook.alerts where partner_id = 'regress' order by alert_id;
select split_part(pg_temp.failure($$insert into webhook._alert (alert_id, kind, severity) values (3, 'x', 'grave')$$), E'\n', 1);
rollback;

-- The look-ups that are promised have an index. A sequential scan, which small tables would get, is ruled out; what is
-- left tells which index serves. Leaves of days are left out: how many there are depends on the leader.
begin;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
set local enable_sort = off;
create function pg_temp.indexes(query text) returns text language plpgsql as $$
declare
  line text;
  names text[];
begin
  for line in execute 'explain (costs off) ' || query loop
    names := names || regexp_replace(substring(line from 'Index.*Scan.* using (\S+) on'), '_(default|\d{8})_', '_');
    if line ~ 'Seq Scan|Sort$' then
      names := names || line;
    end if;
  end loop;
  return (select string_agg(distinct n, ' ' order by n) from unnest(names) as n);
end
$$;
select pg_temp.indexes(query)
  from (values
    ('select delivery_id from webhook.dead_letters where endpoint_id = 7 order by event_id desc limit 10'),
    ('select delivery_id from webhook.dead_letters order by event_id desc limit 10'),
    ('select * from webhook.alerts where endpoint_id = 7 order by alert_id desc limit 10'),
    ('select * from webhook.alerts where partner_id = ''a'' order by alert_id desc limit 10'),
    ('select * from webhook.alerts order by alert_id desc limit 10'),
    ('select * from webhook.audit_log where object_kind = ''endpoint'' and object_id = ''7'' order by audit_id desc limit 10'),
    ('select * from webhook.audit_log where partner_id = ''a'' order by audit_id desc limit 10'),
    ('select * from webhook.audit_log order by audit_id desc limit 10'),
    ('select due, waiting, held, dead from webhook.stat_endpoint where endpoint_id = 7')) as v (query);
rollback;
