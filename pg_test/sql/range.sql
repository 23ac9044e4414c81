-- Asking for a replay of a range: what is refused, what a dry run counts, what the request says. A small history written by
-- hand and rolled back: no leader sees it.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never
set timezone = 'UTC';
set datestyle = 'ISO';
set intervalstyle = 'postgres';

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

begin;
insert into webhook._endpoint (endpoint_id, partner_id, url, event_types, test, state, origin)
values (101, 'regress', 'https://hooks.example.com/a', '{*}', false, 'active', webhook._origin()),
       (102, 'regress', 'https://hooks.example.com/b', '{order.*}', false, 'paused', webhook._origin()),
       (103, 'regress', 'https://hooks.example.com/c', '{*}', false, 'disabled', webhook._origin()),
       (104, 'regress', 'https://hooks.example.com/d', '{*}', true, 'active', webhook._origin()),
       (105, 'regress', 'https://hooks.example.com/e', '{*}', false, 'active', webhook._origin() + 1),
       (106, 'regress-2', 'https://hooks.example.com/f', '{*}', false, 'active', webhook._origin());
insert into webhook._endpoint_revision (endpoint_id, revision) select endpoint_id, 1 from webhook._endpoint where endpoint_id between 101 and 106;
create temp table sample on commit drop as
select n, webhook._event_bound(at) as event_id, at, case when n % 3 = 0 then 'order.paid' else 'invoice.paid' end as type,
       case when n > 9 then 'regress-2' else 'regress' end as partner_id, n = 2 as test
  from generate_series(1, 12) as n cross join lateral (select date_trunc('second', now()) - interval '60 hours' + n * interval '4 hours' as at) as t;
insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
select webhook._pos_bound(at), at, test, partner_id, event_id, type from sample;
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision)
select 101, event_id, case when n <= 3 then 'delivered' when n = 4 then 'dead' when n = 5 then 'cancelled' when n = 6 then 'skipped' else 'retrying' end, 1, 0, 1
  from sample where n <= 7 and n <> 2;

-- A dry run says what each endpoint would get.
create function pg_temp.dry(partner text, what text, types text[] default null, test boolean default false) returns setof text language sql as $$
  select format('%s: endpoint %s, %s events, %s deliveries, %s, request %s', partner_id, endpoint_id, events, deliveries, complete, request_id)
    from webhook.replay_range(partner, now() - interval '59 days', now() + interval '1 day', 'a reason', types, which => what, test => test, dry_run => true)
$$;
select pg_temp.dry('regress', 'all');
select pg_temp.dry('regress', 'failed');
select pg_temp.dry('regress', 'missing');
select pg_temp.dry('regress', 'all', types => '{order.*}');
select pg_temp.dry('regress', 'all', test => true);
select pg_temp.dry(null, 'missing');
select partner_id, endpoint_id, deliveries
  from webhook.replay_range(null, (select at from sample where n = 3), (select at from sample where n = 6), 'a reason', endpoint_id => 102, dry_run => true);
select count(*) from webhook.replays;
select count(*) from webhook._request;

-- Refusals.
select regexp_replace(pg_temp.failure(statement), 'from \S+ on', 'from <time> on')
  from (values
    ($$select webhook.replay_range('regress', null, now(), 'r')$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', null, 'r')$$),
    ($$select webhook.replay_range('regress', now(), now(), 'r')$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), null)$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), ' ')$$),
    ($$select webhook.replay_range('regress', now() - interval '61 days', now(), 'r')$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', types => '{}')$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', types => '{"not a type"}')$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', which => 'some')$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', which => null)$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', rate => 0)$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', rate => 10001)$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', rate => null)$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', test => null)$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', dry_run => null)$$),
    ($$select webhook.replay_range('regress-3', now() - interval '1 day', now(), 'r')$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', endpoint_id => 106)$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', endpoint_id => 103)$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', endpoint_id => 104)$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', endpoint_id => 101, test => true)$$),
    ($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r', endpoint_id => 105)$$),
    ($$select webhook.cancel_replay(null, 'r')$$),
    ($$select webhook.cancel_replay(1, 'r')$$),
    ($$select webhook.cancel_replay(1, null)$$)) as v (statement);

-- What is left for the leader, and in the audit log.
select request_id as request, partner_id, endpoint_id, events, deliveries, complete
  from webhook.replay_range('regress', now() - interval '30 days', now() + interval '1 day', ' they lost a disk ', '{order.*}', which => 'failed', rate => 7) \gset
select :'partner_id', :'events';
select partner_id, endpoint_id, until <= clock_timestamp(), event_types, test, which, rate, reason, requested_by = session_user, state, estimate, looked_at, made, again, reached_at, per_second
  from webhook.replays where request_id = :request;
select verb, state, target, reason from webhook.requests where request_id = :request;
select verb, object_kind, object_id, partner_id, after - 'since' - 'until', reason from webhook.audit_log where request_id = :request;
select webhook.cancel_replay(:request, 'a mistake') as cancellation \gset
select verb, state, target = :'request', reason from webhook.requests where request_id = :cancellation;
select verb, object_kind, object_id = :'request', partner_id, reason from webhook.audit_log where request_id = :cancellation;
-- Done, cancelled, of another database.
insert into webhook._replay_progress (request_id, state, partner_id, pos) values (:request, 'done', 'regress', 0);
select replace(pg_temp.failure(format('select webhook.cancel_replay(%s, %L)', :'request', 'r')), :'request', '<request>');
update webhook._replay set origin = origin + 1 where request_id = :request;
select replace(pg_temp.failure(format('select webhook.cancel_replay(%s, %L)', :'request', 'r')), :'request', '<request>');
select state from webhook.replays where request_id = :request;
set transaction read only;
select pg_temp.failure($$select webhook.replay_range('regress', now() - interval '1 day', now(), 'r')$$);
select pg_temp.failure($$select webhook.cancel_replay(1, 'r')$$);
select count(*) from pg_temp.dry('regress', 'all');
rollback;
