-- What the views and lists show of a small, fixed history. Written by hand and rolled back: no leader sees it.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never
set timezone = 'UTC';
set datestyle = 'ISO';

-- Runs a statement and says how it failed: SQLSTATE and message, then detail and hint.
create function pg_temp.failure(statement text) returns text
language plpgsql as $$
declare
  message text;
  detail text;
  hint text;
begin
  execute statement;
  return 'no error';
exception when others then
  get stacked diagnostics message = message_text, detail = pg_exception_detail, hint = pg_exception_hint;
  return concat_ws(E'\n', sqlstate || ' ' || message, nullif(detail, ''), nullif(hint, ''));
end
$$;

-- Delivery ids and back.
select webhook._delivery_id('evt_01M695MHQQD9798CDF31C02D86', 42), webhook._delivery_id(null, 42), webhook._delivery_id('evt_01M695MHQQD9798CDF31C02D86', null);
select t, p.event_id, p.endpoint_id
  from (values ('dlv_01M695MHQQD9798CDF31C02D86_42'), ('dlv_01M695MHQQD9798CDF31C02D86_9223372036854775807'),
               ('dlv_01M695MHQQD9798CDF31C02D86_9223372036854775808'), ('dlv_01M695MHQQD9798CDF31C02D86_042'), ('dlv_01M695MHQQD9798CDF31C02D86_0'),
               ('dlv_01m695mhqqd9798cdf31c02d86_42'), ('dlv_81M695MHQQD9798CDF31C02D86_42'), ('evt_01M695MHQQD9798CDF31C02D86'),
               ('dlv_01M695MHQQD9798CDF31C02D86_42 '), (E'dlv_01M695MHQQD9798CDF31C02D86_42\n'), (''), (null)) as v (t)
  left join lateral webhook._parse_delivery_id(t) as p on true;

-- Times and ids.
select webhook._event_time('evt_01KDWMK5006E2YFC6A0M3DCW35'), webhook._event_time('evt_01KDWMK5006E2YFC6A0M3DCW3U'), webhook._event_time('');
select webhook._event_bound('2026-01-01 12:00:00+00'), webhook._event_time(webhook._event_bound('2026-01-01 12:00:00.123999+00')), webhook._pos_bound('2025-01-01 00:00:00.001+00');

begin;
insert into webhook._endpoint (endpoint_id, partner_id, url, event_types, test, state, origin)
values (101, 'regress', 'https://hooks.example.com/a', '{*}', false, 'active', webhook._origin()),
       (102, 'regress', 'https://hooks.example.com/b', '{order.*}', false, 'disabled', webhook._origin() + 1),
       (103, 'regress-2', 'https://hooks.example.com/c', '{*}', false, 'active', webhook._origin());
insert into webhook._endpoint_revision (endpoint_id, revision) values (101, 1), (102, 1), (103, 1);
insert into webhook._secret (key_id, endpoint_id, valid_until, secret)
values (11, 101, null, '\x00'), (12, 101, 'infinity', '\x00'), (13, 101, '2026-01-01', '\x00');
-- Twelve events, one every four hours, read a second later; the last one not yet.
create temp table sample on commit drop as
select n, webhook._event_bound(at) as event_id, at, case when n % 3 = 0 then 'order.paid' else 'order.made' end as type,
       case when n = 12 then 'regress-2' else 'regress' end as partner_id
  from generate_series(1, 12) as n cross join lateral (select '2026-01-01 00:00:00+00'::timestamptz + n * interval '4 hours' as at) as t;
insert into webhook._event (xid, occurred_at, origin, seal_key, test, event_id, partner_id, type, subject_type, subject_id, correlation_id, seal, body_sha256, body)
select pg_current_xact_id(), at - interval '1 minute', webhook._origin() + (n = 2)::integer, 0, false, event_id, partner_id, type, 'order', 'o-' || n % 2, 'c-' || n, '', '', case when n <> 3 then '{"é": 1}' end
  from sample;
insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
select webhook._pos_bound(at + interval '1 second') + n, at + interval '1 second', false, partner_id, event_id, type
  from sample where n < 11;
-- An event that the leader read ten hours late, after all others.
insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
select webhook._pos_bound(at + interval '10 hours'), at + interval '10 hours', false, partner_id, event_id, type
  from sample where n = 11;
insert into webhook._fenced (event_id, reason) select event_id, 'the row does not match its seal' from sample where n = 1;

-- events
select event_id, partner_id, type, subject_type, subject_id, correlation_id, test, occurred_at, emitted_at, published_at, data_bytes, fenced
  from webhook.events where partner_id like 'regress%' order by event_id;

-- list_events: order of publication, newest first.
select event_id from webhook.list_events('regress', max_rows => 3);
select event_id from webhook.list_events('regress', before => (select event_id from sample where n = 9), max_rows => 3);
select event_id from webhook.list_events('regress', 'order.paid');
select partner_id, event_id from webhook.list_events(type => 'order.paid', until => '2026-02-01');
select event_id from webhook.list_events('regress', since => '2026-01-01 12:00:01+00', until => '2026-01-01 20:00:01+00');
select count(*) from webhook.list_events('regress', since => '-infinity', until => 'infinity');
select count(*) from webhook.list_events('regress', since => 'infinity');
select count(*) from webhook.list_events('regress', until => '-infinity');
select count(*) from webhook.list_events('nobody');
-- Page after page gives each event once.
create function pg_temp.all_pages(page_size integer) returns text[] language plpgsql as $$
declare
  seen text[] := '{}';
  page text[];
begin
  loop
    page := array(select event_id from webhook.list_events('regress', before => seen[cardinality(seen)], max_rows => page_size));
    exit when page = '{}';
    seen := seen || page;
  end loop;
  return seen;
end
$$;
select n, pg_temp.all_pages(n) = array(select event_id from webhook.list_events('regress')) from generate_series(1, 12) as n where n in (1, 2, 5, 12);

-- Deliveries: a first-try success, a retried one, a replayed one, a dead one, one that waits, one that never began.
insert into webhook._delivery
  (event_id, endpoint_id, state, reason, attempt_count, series_start, revision, last_attempt_at, next_attempt_at, delivered_at, last_status, last_latency_ms, last_error_category, last_key_ids, last_body_sha256, last_response_bytes)
select s.event_id, d.*
  from (values
    (1, 101::bigint, 'delivered', null, 1, 0, 1, '2026-01-01 04:00:02+00'::timestamptz, null::timestamptz, '2026-01-01 04:00:02.1+00'::timestamptz, 200::smallint, 100, null, '{11}'::bigint[], '\xaa'::bytea, 2::bigint),
    (4, 101, 'delivered', null, 2, 0, 1, '2026-01-01 16:05:00+00', null, '2026-01-01 16:05:00.1+00', 204, 90, null, '{11}', '\xaa', 0),
    (5, 101, 'retrying', null, 2, 1, 1, '2026-01-02 00:00:00+00', '2026-01-02 00:05:00+00', '2026-01-01 20:00:02+00', 503, 80, 'server_error', '{12,11}', '\xaa', 9),
    (5, 102, 'dead', 'schedule exhausted', 1, 0, 1, '2026-01-01 20:00:03+00', null, null, 404, 70, 'client_error', '{11}', '\xaa', 5),
    (6, 102, 'pending', null, 0, 0, 1, null, '2026-01-02 00:00:01+00', null, null, null, null, null, null, null),
    (7, 102, 'cancelled', 'the endpoint was disabled: moved away', 0, 0, 1, null, null, null, null, null, null, null, null, null),
    (12, 103, 'dead', 'the receiver answered 410 Gone', 1, 0, 1, '2026-01-03 00:00:03+00', null, null, 410, 70, 'gone', '{11}', '\xaa', 5))
    as d (n, endpoint_id, state, reason, attempt_count, series_start, revision, last_attempt_at, next_attempt_at, delivered_at, last_status, last_latency_ms, last_error_category, last_key_ids, last_body_sha256, last_response_bytes)
  join sample s using (n)
 cross join lateral (select d.endpoint_id, d.state, d.reason, d.attempt_count, d.series_start, d.revision, d.last_attempt_at, d.next_attempt_at, d.delivered_at, d.last_status, d.last_latency_ms, d.last_error_category, d.last_key_ids, d.last_body_sha256, d.last_response_bytes) as x
 where false;
rollback;
