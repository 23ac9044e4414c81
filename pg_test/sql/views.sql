-- What the views and lists show of a small, fixed history. Written by hand and rolled back: no leader sees it.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never
set timezone = 'UTC';
set datestyle = 'ISO';

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Delivery ids and back.
select webhook._delivery_id('evt_01M695MHQQD9798CDF31C02D86', 42), webhook._delivery_id(null, 42), webhook._delivery_id('evt_01M695MHQQD9798CDF31C02D86', null);
select t, p.event_id, p.endpoint_id
  from (values ('dlv_01M695MHQQD9798CDF31C02D86_42'), ('dlv_01M695MHQQD9798CDF31C02D86_9223372036854775807'),
               ('dlv_01M695MHQQD9798CDF31C02D86_9223372036854775808'), ('dlv_01M695MHQQD9798CDF31C02D86_042'), ('dlv_01M695MHQQD9798CDF31C02D86_0'),
               ('dlv_01m695mhqqd9798cdf31c02d86_42'), ('dlv_81M695MHQQD9798CDF31C02D86_42'), ('evt_01M695MHQQD9798CDF31C02D86'),
               ('dlv_01M695MHQQD9798CDF31C02D86_42 '), (E'dlv_01M695MHQQD9798CDF31C02D86_42\n'), (''), (null)) as v (t)
  left join lateral webhook._parse_delivery_id(t) as p on true;

-- Times and ids.
select webhook._event_time('evt_01KDWPVNG06E2YFC6A0M3DCW35'), webhook._event_time('evt_01KDWPVNG06E2YFC6A0M3DCW3U'), webhook._event_time('');
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

-- deliveries: a first-try success, a retried one, one that is being replayed, a dead one, one that waits, one cancelled.
insert into webhook._delivery
  (event_id, endpoint_id, state, reason, attempt_count, series_start, revision, last_attempt_at, next_attempt_at, delivered_at,
   last_status, last_latency_ms, last_error_category, last_key_ids, last_body_sha256, last_response_bytes)
select s.event_id, d.endpoint_id, d.state, d.reason, d.attempts, d.series, 1, d.last::timestamptz, d.next::timestamptz, d.delivered::timestamptz,
       d.status, d.latency, d.category, d.keys::bigint[], d.digest::bytea, d.bytes
  from sample s
  join (values
    (1, 101, 'delivered', null, 1, 0, '2026-01-01 04:00:02+00', null, '2026-01-01 04:00:02.1+00', 200, 100, null, '{11}', '\xaa', 2),
    (4, 101, 'delivered', null, 2, 0, '2026-01-01 16:05:00+00', null, '2026-01-01 16:05:00.1+00', 204, 90, null, '{11}', '\xaa', 0),
    (5, 101, 'retrying', null, 2, 1, '2026-01-02 00:00:00+00', '2026-01-02 00:05:00+00', '2026-01-01 20:00:02+00', 503, 80, 'server_error', '{12,11}', '\xaa', 9),
    (5, 102, 'dead', 'not accepted', 1, 0, '2026-01-01 20:00:03+00', null, null, 404, 70, 'client_error', '{11}', '\xaa', 5),
    (6, 102, 'pending', null, 0, 0, null, '2026-01-02 00:00:01+00', null, null, null, null, null, null, null),
    (7, 102, 'cancelled', 'moved away', 0, 0, null, null, null, null, null, null, null, null, null),
    (12, 103, 'dead', 'gone', 1, 0, '2026-01-03 00:00:03+00', null, null, 410, 70, 'gone', '{11}', '\xaa', 5))
    as d (n, endpoint_id, state, reason, attempts, series, last, next, delivered, status, latency, category, keys, digest, bytes)
    on d.n = s.n;
insert into webhook._attempt
  (event_id, endpoint_id, attempt_no, started_at, incarnation, outcome, status, latency_ms, error_category, phase, detail, next_attempt_at, response_bytes, key_ids, body_sha256)
select s.event_id, a.endpoint_id, a.no, a.at::timestamptz, 1, a.outcome, a.status, a.latency, a.category, a.phase, a.detail, a.next::timestamptz, a.bytes, a.keys::bigint[], '\xaa'
  from sample s
  join (values
    (4, 101, 1, '2026-01-01 16:00:02+00', 'retry', null, 5000, 'timeout', 'connect', 'no connection within 5 s', '2026-01-01 16:05:00+00', null, '{11}'),
    (4, 101, 2, '2026-01-01 16:05:00+00', 'delivered', 204, 90, null, null, null, null, 0, '{11}'),
    (5, 101, 1, '2026-01-01 20:00:02+00', 'delivered', 200, 60, null, null, null, null, 2, '{11}'),
    (5, 101, 2, '2026-01-02 00:00:00+00', 'retry', 503, 80, 'server_error', null, null, '2026-01-02 00:05:00+00', 9, '{12,11}'),
    (5, 102, 1, '2026-01-01 20:00:03+00', 'dead', 404, 70, 'client_error', null, null, null, 5, '{11}'),
    (12, 103, 1, '2026-01-03 00:00:03+00', 'dead', 410, 70, 'gone', null, null, null, 5, '{11}'))
    as a (n, endpoint_id, no, at, outcome, status, latency, category, phase, detail, next, bytes, keys)
    on a.n = s.n;
select * from webhook.deliveries where partner_id like 'regress%' order by event_id, endpoint_id;

-- attempts: every attempt once, numbered without gaps, as many as the deliveries say.
select * from webhook.attempts where event_id in (select event_id from sample) order by event_id, endpoint_id, attempt_no;
select d.delivery_id
  from webhook.deliveries d
 where d.partner_id like 'regress%'
   and d.attempt_count <> (select count(*) from webhook.attempts a where a.event_id = d.event_id and a.endpoint_id = d.endpoint_id);

-- list_deliveries: newest event first.
select delivery_id, state from webhook.list_deliveries('regress');
select delivery_id, state from webhook.list_deliveries('regress', max_rows => 2);
select delivery_id, state from webhook.list_deliveries('regress', before => (select webhook._delivery_id(event_id, 102) from sample where n = 5));
select delivery_id from webhook.list_deliveries(endpoint_id => 102);
select delivery_id from webhook.list_deliveries(endpoint_id => 101, state => 'delivered');
select delivery_id from webhook.list_deliveries('regress', 103);
select delivery_id, partner_id from webhook.list_deliveries(state => 'dead', until => '2026-02-01');
select delivery_id, partner_id from webhook.list_deliveries('regress', state => 'dead');
select delivery_id from webhook.list_deliveries(state => 'skipped', until => '2026-02-01');
select delivery_id, state from webhook.list_deliveries('regress', since => '2026-01-01 20:00:00+00', until => '2026-01-02 00:00:00+00');
select delivery_id, state from webhook.list_deliveries(delivery_id => (select webhook._delivery_id(event_id, 101) from sample where n = 4));
select count(*) from webhook.list_deliveries('regress-2', delivery_id => (select webhook._delivery_id(event_id, 101) from sample where n = 4));
select count(*) from webhook.list_deliveries(delivery_id => 'dlv_1');

-- endpoints, keys without material.
select endpoint_id, partner_id, event_types, state, key_ids, format, inert from webhook.endpoints where partner_id like 'regress%' order by endpoint_id;

-- Response excerpts: bounded by the sender, redacted here.
insert into webhook._excerpt (event_id, endpoint_id, attempt_no, body)
select event_id, 101, 2, e'no\x1b[31m\r\n{"error":"denied","api_key":"k-123","Password": "p\\"q","count":3}\nAuthorization: Bearer abc.def-1\ntoken=t0k; whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' from sample where n = 5;
select event_id as five, webhook._delivery_id(event_id, 101) as replayed from sample where n = 5 \gset
select webhook.read_excerpt(:'replayed', 2);
select webhook.read_excerpt(:'replayed', 1) is null;
select pg_temp.failure(format($$select webhook.read_excerpt(%L, 3)$$, :'replayed'));
select pg_temp.failure(format($$select webhook.read_excerpt(%L, 0)$$, :'replayed'));
select pg_temp.failure($$select webhook.read_excerpt('dlv_1', 1)$$);
select pg_temp.failure($$select webhook.read_excerpt(null, 1)$$);
select pg_temp.failure($$select webhook.read_excerpt('dlv_1', null)$$);

-- event_types
insert into webhook._event_type (name, priority) values ('regress.urgent', 0);
select name, priority, created_at is not null from webhook.event_types where name like 'regress.%';

-- Refusals of the lists.
select pg_temp.failure($$select webhook.list_events()$$);
select pg_temp.failure($$select webhook.list_events('regress', max_rows => 0)$$);
select pg_temp.failure($$select webhook.list_events('regress', max_rows => null)$$);
select pg_temp.failure($$select webhook.list_events('regress', max_rows => 1001)$$);
select pg_temp.failure($$select webhook.list_events('regress', since => '2026-01-02', until => '2026-01-01')$$);
select pg_temp.failure($$select webhook.list_events('regress', before => 'evt_1')$$);
select pg_temp.failure($$select webhook.list_deliveries()$$);
select pg_temp.failure($$select webhook.list_deliveries(state => 'delivered')$$);
select pg_temp.failure($$select webhook.list_deliveries(state => 'lost')$$);
select pg_temp.failure($$select webhook.list_deliveries('regress', before => 'dlv_1')$$);
select pg_temp.failure($$select webhook.list_deliveries('regress', max_rows => 0)$$);
rollback;

-- The queue. The leader's place is written by hand: it has read what prev shows, and of the window what is not
-- after (30, "b"); 12 and 21 were running when it looked, 21 still is for it.
begin;
delete from webhook._ledger;
insert into webhook._ledger (n, incarnation, batch, kind, prev, cur, to_xid, to_id)
values (8, 1, 1, 'window', '12:20:12,15', '21:40:21', '30', 'b'), (9, 2, 2, 'start', null, null, null, null);
delete from webhook._event;
insert into webhook._event (xid, occurred_at, origin, seal_key, test, event_id, partner_id, type, seal, body_sha256, body)
select x.xid::xid8, now(), webhook._origin() + x.foreign_rows, 0, false, x.event_id, 'regress', 'a.b', '', '', '{}'
  from (values ('5', 'read before', 0), ('12', 'read late', 0), ('21', 'unread, committed after cur', 0), ('25', 'read', 0), ('30', 'a read', 0),
               ('30', 'c unread', 0), ('31', 'unread', 0), ('45', 'unread, after cur', 0), ('46', 'foreign', 1), ('9000000000000000000', 'foreign, of the future', 1),
               ('9000000000000000000', 'of the future', 0)) as x (xid, event_id, foreign_rows);
select * from webhook._unread();
-- A transaction that ran in prev, and whose events lie behind the leader's place inside the window.
update webhook._ledger set to_xid = '12', to_id = 'm' where n = 8;
select * from webhook._unread();

delete from webhook._delivery;
delete from webhook._due;
insert into webhook._delivery (event_id, endpoint_id, state, attempt_count, series_start, revision)
select 'e' || n, 1, (array['pending', 'retrying', 'retrying', 'dead', 'delivered', 'closed'])[n], 1, 0, 1 from generate_series(1, 6) as n;
insert into webhook._due (event_id, endpoint_id, next_attempt_at, attempt_count, series_start, class, hold)
values ('e1', 1, now() - interval '1 minute', 0, 0, 1, 0), ('e2', 1, now() + interval '1 day', 1, 0, 1, 0), ('e3', 1, now(), 1, 0, 1, 4);
insert into webhook._fenced (event_id, reason) values ('x', 'the row does not match its seal');
insert into webhook._seal_key (key_id, origin, key) values (1, webhook._origin() + 1, '');
select unread_events, pending, retrying, dead, due, waiting, held, next_due_at = now() - interval '1 minute', fenced, other_origins from webhook.stat_queue;
select unread_events, pending, retrying, dead, fenced, advice ~ 'dead' and advice ~ 'seal' and advice ~ 'another one' from webhook.status();
rollback;

-- Monitoring sees how it is going and the alerts, and nothing else.
create role regress_webhook_monitor in role pg_monitor;
set role regress_webhook_monitor;
select count(*) from webhook.stat_queue;
select count(*) >= 0 from webhook.stat_endpoint;
select count(*) >= 0 from webhook.endpoint_health;
select count(*) >= 0 from webhook.alerts;
select count(*), bool_and(database = current_database()), bool_and(state is not null) from webhook.stat_worker;
select pg_temp.failure('select * from webhook.' || name)
  from unnest('{events,deliveries,attempts,dead_letters,endpoints,event_types,policies,pauses,requests,audit_log,_event,_secret}'::text[]) as name;
select pg_temp.failure($$select webhook.emit('a.b', 'regress', '{}')$$);
reset role;
drop role regress_webhook_monitor;
