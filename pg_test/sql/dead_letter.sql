-- Deciding about deliveries: retry, skip, close, correct; what the request says, every refusal.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Nothing is committed below: no leader carries it out.
begin;
select endpoint_id as hook from webhook.create_endpoint('acme', 'https://127.0.0.1/a', verify => 'none') \gset
select endpoint_id as foreign_hook from webhook.create_endpoint('rival', 'https://127.0.0.1/f', verify => 'none') \gset
create function pg_temp.masked(answer text) returns text language sql as
$$ select regexp_replace(regexp_replace(answer, '(evt|dlv)_[0-9A-Z]{26}(_\d+)?', '<\1>', 'g'), '\d{10,}', '<id>', 'g') $$;

-- A delivery in each state, by the name of its state, and one of another partner.
create temp table d on commit drop as
select state, webhook.emit('order.paid', 'acme', '{"total": -1}', subject_type => 'order', subject_id => state, subject_version => 3, source => 'shop',
                           scope => 'eu', occurred_at => '2026-01-01 12:00:00+00', schema_version => '2', correlation_id => 'c-1', traceparent => '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01') as event_id
  from unnest('{pending,retrying,delivered,dead,cancelled,skipped,closed}'::text[]) as state;
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision)
select :hook, event_id, state, 1, 0, 1 from d;
insert into d select 'foreign', webhook.emit('order.paid', 'rival', '{}', test => true);
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision)
select :foreign_hook, event_id, 'dead', 1, 0, 1 from d where state = 'foreign';
create function pg_temp.dlv(state text) returns text language sql as
$$ select webhook._delivery_id(v.event_id, v.endpoint_id) from d join webhook._delivery v using (event_id) where d.state = dlv.state $$;

-- One: from which states.
select verb, state, pg_temp.masked(pg_temp.failure(format('select webhook.%s(%L, %L)', verb, pg_temp.dlv(state), 'why ' || verb)))
  from d cross join unnest('{retry,skip,close}'::text[]) with ordinality as v (verb, n) where state <> 'foreign' order by n, state;
select r.verb, d.state as was, r.endpoint_id = :hook, r.state, r.reason, r.deliveries, r.result, r.requested_by = session_user, q.event_ids = array[r.event_id], q.endpoint_ids = array[r.endpoint_id]
  from webhook.requests r join d using (event_id) join webhook._request q using (request_id) order by r.requested_at;
select verb, object_kind, pg_temp.masked(object_id), partner_id, before, after, reason, count(*), count(distinct request_id)
  from webhook.audit_log where object_kind = 'delivery' group by 1, 2, 3, 4, 5, 6, 7 order by 1;

-- Many: one request, and one that is named twice counts once.
select webhook.skip(array[pg_temp.dlv('pending'), pg_temp.dlv('dead'), pg_temp.dlv('pending')], 'all of them') as request \gset
select verb, event_id, endpoint_id, reason from webhook.requests where request_id = :request;
select cardinality(event_ids), endpoint_ids = array[:hook, :hook]::bigint[] from webhook._request where request_id = :request;
select webhook.close(array[pg_temp.dlv('dead'), pg_temp.dlv('foreign')], 'both partners') as request \gset
select webhook.retry(delivery_ids => array[pg_temp.dlv('dead')], reason => 'a list of one') as request \gset
select verb, event_id = (select event_id from d where state = 'dead'), endpoint_id = :hook from webhook.requests where request_id = :request;
select verb, pg_temp.masked(object_id), partner_id, after, reason from webhook.audit_log where object_kind = 'delivery' and reason !~ 'why' order by at;
-- All or nothing.
select pg_temp.masked(pg_temp.failure(format('select webhook.retry(%L::text[], %L)', array[pg_temp.dlv('dead'), pg_temp.dlv('delivered'), 'dlv_00000000000000000000000000_1'], 'x')));
select pg_temp.masked(pg_temp.failure(format('select webhook.retry(%L::text[], %L)', array[pg_temp.dlv('dead'), 'dlv_00000000000000000000000000_1', pg_temp.dlv('delivered')], 'x')));

-- A savepoint takes a request back.
savepoint before_retry;
select webhook.retry(pg_temp.dlv('dead'), 'or not') > 0;
rollback to before_retry;
select count(*) from webhook.requests where reason = 'or not';

-- What is not there, or no id at all. Another partner's pair that does not exist is as absent as any other.
select pg_temp.failure(format($$select webhook.%s('dlv_00000000000000000000000000_1', 'x')$$, verb)) from unnest('{retry,skip,close}'::text[]) as verb;
select pg_temp.masked(pg_temp.failure(format('select webhook.retry(%L, %L)', webhook._delivery_id(event_id, :foreign_hook), 'x'))) from d where state = 'dead';
select pg_temp.failure(format($$select webhook.%s('dlv_1', 'x')$$, verb)) from unnest('{retry,skip,close}'::text[]) as verb;
select pg_temp.failure($$select webhook.skip('', 'x')$$);
select pg_temp.failure($$select webhook.skip('dlv_01M695MHQQD9798CDF31C02D86_9223372036854775808', 'x')$$);
select pg_temp.failure($$select webhook.close('{dlv_1}'::text[], 'x')$$);
select pg_temp.failure(format('select webhook.%s(null::text, %L)', verb, 'x')) from unnest('{retry,skip,close}'::text[]) as verb;
select pg_temp.failure(format('select webhook.%s(null::text[], %L)', verb, 'x')) from unnest('{retry,skip,close}'::text[]) as verb;
select pg_temp.failure($$select webhook.retry('{dlv_01M695MHQQD9798CDF31C02D86_1,null}'::text[], 'x')$$);
select pg_temp.failure($$select webhook.retry('{}'::text[], 'x')$$);
select pg_temp.failure($$select webhook.retry(array_fill('dlv_1'::text, '{10001}'), 'x')$$);
select pg_temp.failure(format('select webhook.%s(%L, null)', verb, pg_temp.dlv('dead'))) from unnest('{retry,skip,close}'::text[]) as verb;
select pg_temp.failure(format('select webhook.retry(%L, %L)', pg_temp.dlv('dead'), ' '));

-- As many as are allowed.
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision)
select :hook, webhook._event_bound('2026-01-01 00:00:00+00'::timestamptz + n * interval '1 s'), 'dead', 1, 0, 1 from generate_series(1, 10000) as n;
select webhook.skip(array(select delivery_id from webhook.dead_letters where endpoint_id = :hook order by event_id limit 10000), 'ten thousand') as request \gset
select cardinality(event_ids), cardinality(endpoint_ids) from webhook._request where request_id = :request;
select after from webhook.audit_log where request_id = :request;
delete from webhook._delivery where event_id < (select min(event_id) from d);

-- correct: the same envelope with other data, and the dead letter is closed.
select webhook.correct(pg_temp.dlv('dead'), '{"total": 1.10}', 'a minus too much') as corrected \gset
select e.type, e.partner_id, e.subject_type, e.subject_id, e.subject_version, e.source, e.scope, e.occurred_at = '2026-01-01 12:00:00+00', e.schema_version, e.correlation_id,
       e.causation = d.event_id, e.traceparent, e.test, e.body
  from webhook._event e cross join d where e.event_id = :'corrected' and d.state = 'dead';
select verb, event_id = (select event_id from d where state = 'dead'), endpoint_id = :hook, state, pg_temp.masked(reason) from webhook.requests where reason ~ :'corrected';
select verb, object_kind, object_id = pg_temp.dlv('dead'), partner_id, before, pg_temp.masked(after::text), reason, request_id = (select request_id from webhook.requests where reason ~ :'corrected')
  from webhook.audit_log where verb = 'correct';
-- Once only.
select pg_temp.masked(pg_temp.failure(format('select webhook.correct(%L, %L, %L)', pg_temp.dlv('dead'), '{}', 'again')));
update webhook._request set state = 'done' where verb = 'close';
select webhook.correct(pg_temp.dlv('foreign'), '[]', 'a list') as corrected \gset
select partner_id, test, body from webhook._event where event_id = :'corrected';
select state, pg_temp.masked(pg_temp.failure(format('select webhook.correct(%L, %L, %L)', pg_temp.dlv(state), '{}', 'x'))) from d where state not in ('dead', 'foreign') order by state;
select pg_temp.failure($$select webhook.correct('dlv_00000000000000000000000000_1', '{}', 'x')$$);
select pg_temp.failure($$select webhook.correct('dlv_1', '{}', 'x')$$);
select pg_temp.failure($$select webhook.correct(null, '{}', 'x')$$);
select pg_temp.failure($$select webhook.correct('dlv_1', null, 'x')$$);
select pg_temp.failure($$select webhook.correct('dlv_1', '{}', null)$$);
select pg_temp.failure($$select webhook.correct('dlv_1', '{}', '')$$);
select pg_temp.masked(pg_temp.failure(format('select webhook.correct(%L, to_jsonb(repeat(%L, 300000)), %L)', pg_temp.dlv('dead'), 'x', 'x')));
-- Not the extension's own events, nor those that must not leave.
select event_id as test_event, delivery_id as test_delivery from webhook.send_test(:hook) \gset
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision) values (:hook, :'test_event', 'dead', 1, 0, 1);
select pg_temp.masked(pg_temp.failure(format('select webhook.correct(%L, %L, %L)', :'test_delivery', '{}', 'x')));
savepoint healthy;
insert into webhook._fenced (event_id, reason) select event_id, 'the row does not match its seal' from d where state = 'dead';
select pg_temp.masked(pg_temp.failure(format('select webhook.correct(%L, %L, %L)', pg_temp.dlv('dead'), '{}', 'x')));
rollback to healthy;
update webhook._event set origin = origin + 1 where event_id = (select event_id from d where state = 'dead');
select pg_temp.masked(pg_temp.failure(format('select webhook.correct(%L, %L, %L)', pg_temp.dlv('dead'), '{}', 'x')));
rollback to healthy;
delete from webhook._event where event_id = (select event_id from d where state = 'dead');
select pg_temp.masked(pg_temp.failure(format('select webhook.correct(%L, %L, %L)', pg_temp.dlv('dead'), '{}', 'x')));
rollback to healthy;
-- An expunged payload is replaced all the same.
update webhook._event set body = null where event_id = (select event_id from d where state = 'dead');
select webhook.correct(pg_temp.dlv('dead'), '{}', 'x') is not null;
rollback;

-- Sessions that cannot write.
begin read only;
select pg_temp.failure(format($$select webhook.%s('dlv_1', 'x')$$, verb)) from unnest('{retry,skip,close}'::text[]) as verb;
select pg_temp.failure($$select webhook.correct('dlv_1', '{}', 'x')$$);
rollback;
