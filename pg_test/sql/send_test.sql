-- Test events for one endpoint: what is emitted, every refusal.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Nothing is committed below: no leader sends it.
begin;
select endpoint_id as hook from webhook.create_endpoint('acme', 'https://127.0.0.1/a', '{order.*}', verify => 'none') \gset
select endpoint_id as second from webhook.create_endpoint('acme', 'https://127.0.0.1/b', verify => 'none') \gset
create function pg_temp.masked(answer text) returns text language sql as
$$ select regexp_replace(answer, '\d{10,}', '<endpoint>', 'g') $$;

select event_id, delivery_id from webhook.send_test(:hook) \gset
select :'delivery_id' = webhook._delivery_id(:'event_id', :hook);
select type, partner_id, test, subject_type, subject_id = :'hook', pg_temp.masked(body) from webhook._event where event_id = :'event_id';
select count(*) from unnest('{normal,duplicate,stale,bad_signature,malformed}'::text[]) as kind cross join lateral webhook.send_test(:hook, kind => kind) as t;
select verb, object_kind, object_id = :'hook', partner_id, after ->> 'kind', count(*) from webhook.audit_log where verb = 'send_test' group by 1, 2, 3, 4, 5 order by 5;

-- It goes to a paused endpoint, and to one that has still to prove itself, once they are in service.
select webhook.pause('endpoint', :'hook', 'wait') > 0;
select count(*) from webhook.send_test(:hook);
update webhook._endpoint set state = 'unverified' where endpoint_id = :hook;
select count(*) from webhook.send_test(:hook);

-- Endpoints out of service.
update webhook._endpoint set state = 'expired' where endpoint_id = :hook;
select pg_temp.masked(pg_temp.failure(format('select webhook.send_test(%s)', :hook)));
update webhook._endpoint set state = 'active' where endpoint_id = :hook;
insert into webhook._endpoint_state (endpoint_id, generation, state, reason, changed_at)
select endpoint_id, generation, 'disabled', 'the receiver answered 410 Gone', now() from webhook._endpoint where endpoint_id = :hook;
select pg_temp.masked(pg_temp.failure(format('select webhook.send_test(%s)', :hook)));
select webhook.delete_endpoint(:hook, 'over');
select pg_temp.masked(pg_temp.failure(format('select webhook.send_test(%s)', :hook)));
update webhook._endpoint set origin = origin + 1 where endpoint_id = :second;
select pg_temp.masked(pg_temp.failure(format('select webhook.send_test(%s)', :second)));

select pg_temp.failure('select webhook.send_test(null)');
select pg_temp.failure('select webhook.send_test(1, null)');
select pg_temp.failure('select webhook.send_test(1)');
select pg_temp.failure($$select webhook.send_test(1, 'rude')$$);
-- Nobody else emits such a type.
select pg_temp.failure($$select webhook.emit('webhook.test', 'acme', '{}')$$);
rollback;

-- Sessions that cannot write.
begin read only;
select pg_temp.failure('select webhook.send_test(1)');
rollback;
