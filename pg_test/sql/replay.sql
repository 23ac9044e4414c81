-- Asking for a replay: what is refused at once, and what the request says.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Nothing is committed below: no leader carries it out.
begin;
select webhook.emit('a.b', 'acme', '{}') as event \gset
select webhook.emit('a.b', 'acme', '{}', test => true) as test_event \gset
select endpoint_id as hook from webhook.create_endpoint('acme', 'https://127.0.0.1/a', verify => 'none') \gset
select endpoint_id as second from webhook.create_endpoint('acme', 'https://127.0.0.1/b', verify => 'none') \gset
select endpoint_id as test_hook from webhook.create_endpoint('acme', 'https://127.0.0.1/t', test => true, verify => 'none') \gset
select endpoint_id as foreign_hook from webhook.create_endpoint('rival', 'https://127.0.0.1/f', verify => 'none') \gset
select set_config('regress.pattern', concat_ws('|', :hook, :second, :test_hook, :foreign_hook), true) is not null;
-- Ids differ from run to run.
create function pg_temp.masked(answer text) returns text language sql as
$$ select regexp_replace(regexp_replace(answer, 'evt_[0-9A-Z]{26}', '<event>', 'g'), current_setting('regress.pattern'), '<endpoint>', 'g') $$;

-- No delivery yet: the request stands, and concerns none.
select request_id > 0, delivery_id from webhook.replay(:'event');

-- An endpoint given: its pair, whether it exists or not.
select request_id > 0, delivery_id = webhook._delivery_id(:'event', :hook) from webhook.replay(:'event', :hook);

-- Every existing pair, one request.
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision)
values (:hook, :'event', 'delivered', 1, 0, 1), (:second, :'event', 'dead', 10, 0, 1);
select count(*), count(distinct request_id), bool_and(delivery_id in (webhook._delivery_id(:'event', :hook), webhook._delivery_id(:'event', :second))), count(distinct delivery_id)
  from webhook.replay(:'event');

-- Test events go to test endpoints.
select request_id > 0 from webhook.replay(:'test_event', :test_hook);

select verb, event_id in (:'event', :'test_event'), endpoint_id in (:hook, :test_hook), state, result, deliveries, requested_by = session_user, finished_at
  from webhook.requests where requested_at >= now() order by requested_at;
select count(*) from webhook._request where origin = webhook._origin() and requested_at >= now();

-- A savepoint takes the request back.
savepoint before_replay;
select count(*) from webhook.replay(:'event');
rollback to before_replay;
select count(*) from webhook.requests where requested_at >= now();

-- NULL, and what does not exist. Another partner's endpoint is as absent as one that never was.
select pg_temp.failure($$select webhook.replay(null)$$);
select pg_temp.failure($$select webhook.replay('evt_1')$$);
select pg_temp.failure($$select webhook.replay('evt_00000000000000000000000000')$$);
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L, 7)$$, :'event')));
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L, %s)$$, :'event', :foreign_hook)));

-- Test and live are separate.
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L, %s)$$, :'event', :test_hook)));
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L, %s)$$, :'test_event', :hook)));

-- Endpoints out of service, whoever took them out.
select webhook.disable_endpoint(:second, 'moved away');
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L, %s)$$, :'event', :second)));
select webhook.enable_endpoint(:second);
insert into webhook._endpoint_state (endpoint_id, generation, state, reason, changed_at)
select endpoint_id, generation, 'disabled', 'the receiver answered 410 Gone', now() from webhook._endpoint where endpoint_id = :second;
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L, %s)$$, :'event', :second)));
select webhook.delete_endpoint(:second, 'contract ended');
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L, %s)$$, :'event', :second)));
update webhook._endpoint set origin = origin + 1 where endpoint_id = :hook;
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L, %s)$$, :'event', :hook)));
update webhook._endpoint set origin = origin - 1 where endpoint_id = :hook;

-- Events that must not leave.
savepoint healthy;
insert into webhook._fenced (event_id, reason) values (:'event', 'the row does not match its seal');
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L)$$, :'event')));
rollback to healthy;
update webhook._event set origin = origin + 1 where event_id = :'event';
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L)$$, :'event')));
rollback to healthy;
update webhook._event set body = null where event_id = :'event';
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L)$$, :'event')));
rollback to healthy;
select pg_temp.masked(pg_temp.failure(format($$select webhook.replay(%L)$$, :'event')));
rollback;

-- Sessions that cannot write.
begin read only;
select pg_temp.failure($$select webhook.replay('evt_00000000000000000000000000')$$);
rollback;
