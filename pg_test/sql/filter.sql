-- Filters: what is accepted and in which spelling it is kept, every refusal, samples, previews and explanations. What is
-- sent and what is not is proven elsewhere (filters.rs).
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Nothing is committed below: no leader acts on it.
begin;
-- PostgreSQL's spelling is what is kept, shown and asked.
select endpoint_id as hook from webhook.create_endpoint(
  'regress.filter', 'https://127.0.0.1/in', verify => 'none', filter => '  $.amount>100 &&  $.currency == "EUR" ',
  subject_types => '{order,invoice,order}') \gset
select filter, subject_types, filter_version from webhook.endpoints where endpoint_id = :hook;
select webhook.update_endpoint(:hook, filter => '$.amount > 100 && $.currency == "EUR"');
select webhook.update_endpoint(:hook, filter => '$.amount > 200');
select webhook.update_endpoint(:hook, subject_types => '{}', description => 'all subjects');
select webhook.update_endpoint(:hook, filter => '');
select webhook.update_endpoint(:hook, description => 'none');
select filter, subject_types, filter_version from webhook.endpoints where endpoint_id = :hook;
select version, filter, subject_types from webhook._filter where endpoint_id = :hook order by version;
select before ->> 'filter', after ->> 'filter', after ->> 'subject_types' from webhook.audit_log
 where object_id = :'hook' and (before ? 'filter' or after ? 'filter' or before ? 'subject_types') order by at;
-- An endpoint that never had one has no row.
select endpoint_id as plain from webhook.create_endpoint('regress.filter', 'https://127.0.0.1/in', verify => 'none') \gset
select filter, subject_types, filter_version from webhook.endpoints where endpoint_id = :plain;
select count(*) from webhook._filter where endpoint_id = :plain;

-- What may be a filter.
select f.filter, webhook._check_filter(f.filter)
  from (values
    ('$.a.b == "x" && !($.c == true) || exists($.d ? (@.e > -1.5))'),
    ('strict $.a[0] == null'),
    ('$.items[*].price >= 0.10'),
    ('($.a > 1) is unknown'),
    ('$.a[last - 1].b <> 2'),
    ('$.a.type() == "number"'),
    ('$.name starts with "A"'),
    ('$.old.status != $.new.status'),
    ('$.* == 1e3 /* any member */')) as f (filter);
-- And what may not.
select f.filter, pg_temp.failure(format('select webhook._check_filter(%L)', f.filter))
  from (values
    ('$.a'),
    ('true'),
    ('$.a ? (@ > 1)'),
    ('$.a like_regex "(a+)+$"'),
    ('exists($.a ? (exists(@.b ? (@ like_regex "x" flag "i"))))'),
    ('$.** == 1'),
    ('$.a.**{3} == 1'),
    ('$.a + 1 > 2'),
    ('-$.a > 2'),
    ('$.a.datetime() < "2026-01-01".datetime()'),
    ('$.a.keyvalue().key == "x"'),
    ('$.a == $limit'),
    ('$.a[0, 0] == 1'),
    ('$.a[$.b] == 1'),
    ('exists($[*] ? (@.a == $.b))'),
    ('exists($[*] ? (exists($[*] ? (exists($[*])))))'),
    ('$.a =='),
    ('$.a like_regex "("'),
    ('nonsense')) as f (filter);
select pg_temp.failure(format('select webhook._check_filter(%L)', '$.a == "' || repeat('x', 1000) || '"'));
select pg_temp.failure(format('select webhook._check_filter(%L)', '$.a == 1e9999'));
select pg_temp.failure(format('select webhook._check_filter(%L)', repeat('(', 300) || '$.a == 1' || repeat(')', 300)));
select pg_temp.failure(format('select webhook._check_filter(%L)', repeat('!(', 300) || '$.a == 1' || repeat(')', 300)));
select pg_temp.failure($$select webhook.create_endpoint('regress.filter', 'https://127.0.0.1/in', verify => 'none', subject_types => array['a', null])$$);
select pg_temp.failure($$select webhook.create_endpoint('regress.filter', 'https://127.0.0.1/in', verify => 'none', subject_types => '{""}')$$);
select pg_temp.failure(format('select webhook.update_endpoint(%s, subject_types => array(select n::text from generate_series(1, 101) as n))', :hook));
select pg_temp.failure(format('select webhook.update_endpoint(%s, filter => ''$.a'')', :hook));

-- Samples.
select * from webhook.test_filter('$.amount > 100', '{"amount": 100.000000000000000000001}');
select * from webhook.test_filter('$.amount > 100', '{"amount": 100}');
select * from webhook.test_filter('$.amount > 100', '{}');
select * from webhook.test_filter('$.amount > 100', '{"amount": null}');
select * from webhook.test_filter('$.amount > 100', '{"amount": "500"}');
select * from webhook.test_filter('strict $.amount > 100', '{}');
select * from webhook.test_filter('', '{}');
select * from webhook.test_filter('$.a == 1', '{"a": 1}', '{order.*}', 'order.paid');
select * from webhook.test_filter('$.a == 1', '{"a": 1}', '{order.*}', 'customer.created');
select * from webhook.test_filter('$.a == 1', '{"a": 1}', subject_types => '{order}', subject_type => 'order');
select * from webhook.test_filter('$.a == 1', '{"a": 1}', subject_types => '{order}', subject_type => 'invoice');
select * from webhook.test_filter('$.a == 1', '{"a": 1}', subject_types => '{order}');
select * from webhook.test_filter('$.a == $.b', (select jsonb_build_object('a', jsonb_agg(n), 'b', jsonb_agg(-n)) from generate_series(1, 2000) as n));
select pg_temp.failure($$select webhook.test_filter('$.a == 1', null)$$);
select pg_temp.failure($$select webhook.test_filter('$.a', '{}')$$);
select pg_temp.failure($$select webhook.test_filter('$.a == 1', '{}', '{order.*}')$$);

-- Payloads that jsonb cannot hold, and broken ones: never an error, and nothing of them in the answer.
select t.place, t.matched, t.why
  from (values ('{"a": "\u0000"}'), ('{"a": "\ud800"}'), ('{"a": 1e400000}'), ('{"a": secret'), (repeat('[', 100000))) as b (body)
 cross join lateral webhook._try_filters(b.body, '{$.a == 1,$.b == 1}') as t;

-- Previews of what the leader has read.
create temp sequence pos;
create function pg_temp.read(type text, data jsonb, subject_type text, test boolean) returns void language sql as $$
  insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
  select webhook._pos_bound(clock_timestamp()) + nextval('pos'), clock_timestamp(), $4, 'regress.filter', e.event_id, $1
    from webhook.emit($1, 'regress.filter', $2, subject_type => $3, subject_id => case when $3 is not null then '1' end, test => $4) as e (event_id)
$$;
select pg_temp.read('order.paid', '{"n": 1}', 'order', false);
select pg_temp.read('order.paid', '{"n": 2}', null, false);
select pg_temp.read('order.paid', '{"n": "two"}', 'order', false);
select pg_temp.read('customer.made', '{"n": 2}', 'customer', false);
select pg_temp.read('order.paid', '{"n": 2}', 'order', true);
select events, matched, not_matched, undecided, reason, complete from webhook.preview_filter('regress.filter', filter => '$.n > 1');
select events, matched, not_matched, undecided, complete from webhook.preview_filter('regress.filter');
select events, matched, not_matched, undecided, complete from webhook.preview_filter('regress.filter', filter => '$.n > 1', event_types => '{order.*}');
select events, matched, not_matched, undecided, complete from webhook.preview_filter('regress.filter', filter => '$.n > 1', subject_types => '{customer}');
select events, matched, not_matched, undecided, complete from webhook.preview_filter('regress.filter', filter => '$.n > 1', test => true);
select events, matched, not_matched, undecided, complete from webhook.preview_filter('regress.filter', max_events => 2);
select events, matched, not_matched, undecided, complete from webhook.preview_filter('regress.filter', since => clock_timestamp() + interval '1 minute');
select webhook.update_endpoint(:hook, filter => '$.n == 1', subject_types => '{order}', event_types => '{order.*}');
select events, matched, not_matched, undecided, complete from webhook.preview_filter(endpoint_id => :hook);
select events, matched, not_matched, undecided, complete from webhook.preview_filter(endpoint_id => :hook, filter => '', subject_types => '{}');
select pg_temp.failure('select webhook.preview_filter()');
select pg_temp.failure(format('select webhook.preview_filter(%L, %s)', 'regress.filter', :hook));
select pg_temp.failure('select webhook.preview_filter(endpoint_id => 1)');
select pg_temp.failure($$select webhook.preview_filter('regress.filter', max_events => 0)$$);
select pg_temp.failure($$select webhook.preview_filter('_other')$$);
rollback;

-- Explanations: every way in which a pair is none.
begin;
select endpoint_id as hook from webhook.create_endpoint('regress.filter', 'https://127.0.0.1/in', '{order.*}', verify => 'none',
  filter => '$.n > 1', subject_types => '{order}') \gset
select endpoint_id as other from webhook.create_endpoint('regress.other', 'https://127.0.0.1/in', verify => 'none') \gset
select endpoint_id as test from webhook.create_endpoint('regress.filter', 'https://127.0.0.1/in', verify => 'none', test => true) \gset
select webhook.emit('order.paid', 'regress.filter', '{"n": 2}', subject_type => 'order', subject_id => '1') as good \gset
select webhook.emit('order.paid', 'regress.filter', '{"n": 1}', subject_type => 'invoice', subject_id => '1') as poor \gset
select webhook.emit('customer.made', 'regress.filter', '{"n": "x"}') as bad \gset
select webhook.emit('order.paid', 'regress.other', '{"n": 2}', subject_type => 'order', subject_id => '1') as foreign \gset
create function pg_temp.told(event_id text, endpoint_id bigint) returns table (step text, passed boolean, detail text) language sql as $$
  select step, passed, regexp_replace(detail, '\d{4}-\d\d-\d\dT[0-9:.]+Z', '<time>', 'g') from webhook.explain(event_id, endpoint_id)
$$;
-- A filter of this very transaction could be taken back without a trace: it is not asked about a payload, by explain or in
-- the view below it. Once it has committed it stands in the audit log.
select step, passed, detail from pg_temp.told(:'good', :hook) where step = 'filter';
select facts ->> 'matched', facts ->> 'why' from webhook._seen_match where event_id = :'good' and endpoint_id = :hook;
update webhook._endpoint set changed_xid = '3' where partner_id like 'regress.%';
select * from pg_temp.told(:'good', :hook);
select * from pg_temp.told(:'poor', :hook) where passed is distinct from true;
select * from pg_temp.told(:'bad', :hook) where passed is distinct from true;
select * from pg_temp.told(:'foreign', :hook) where passed is distinct from true;
select * from pg_temp.told(:'good', :test) where passed is distinct from true;
-- One that was disabled, with a delivery that was made before and is held.
select webhook.disable_endpoint(:hook, 'enough');
update webhook._endpoint set changed_xid = '3' where partner_id like 'regress.%';
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision) values (:hook, :'good', 'pending', 0, 0, 1);
insert into webhook._due (endpoint_id, event_id, next_attempt_at, attempt_count, series_start, class, hold) values (:hook, :'good', now(), 0, 0, 1, 8);
select step, passed, replace(replace(detail, :'hook', '<hook>'), substr(:'good', 5), '<event>') from pg_temp.told(:'good', :hook) where step in ('state', 'delivery');
-- Events about webhooks pass filters; a test is for the one that it names.
select webhook._emit_reserved('webhook.endpoint.disabled', 'regress.filter', '{}', subject_type => 'webhook.endpoint', subject_id => :'hook') as about \gset
select step, passed, detail from pg_temp.told(:'about', :hook) where step in ('lifecycle', 'subject', 'filter');
select webhook._emit_reserved('webhook.test', 'regress.filter', '{}', subject_type => 'webhook.endpoint', subject_id => :'test') as test_event \gset
select step, passed, detail from pg_temp.told(:'test_event', :hook) where step in ('mode', 'lifecycle', 'type');
-- An endpoint that came later.
select pg_temp.failure(format('select webhook.explain(%L, 1)', :'good'));
select pg_temp.failure(format('select webhook.explain(''evt_none'', %s)', :hook));
select pg_temp.failure(format('select webhook.explain(%L, 1)', repeat('x', 1000)));
select pg_temp.failure('select webhook.explain(null, 1)');
-- A partner's role sees its own.
create role regress_webhook_filter;
select webhook.grant_access('regress_webhook_filter', 'partner', 'regress.filter');
set local role regress_webhook_filter;
select count(*), bool_and(passed) filter (where step = 'filter') from webhook.explain(:'good', :hook);
select pg_temp.failure(format('select webhook.explain(%L, %s)', :'good', :other)) ~ 'endpoint \d+ does not exist|<id>';
select pg_temp.failure(format('select webhook.explain(%L, %s)', :'foreign', :hook)) ~ '42704 event "evt_.*" does not exist';
select pg_temp.failure(format('select webhook.explain(%L, %s)', :'foreign', :other)) ~ '42704 event "evt_.*" does not exist';
select matched from webhook.test_filter('$.n > 1', '{"n": 2}');
select pg_temp.failure($$select webhook.preview_filter('regress.filter')$$);
select pg_temp.failure($$select webhook.dry_run('order.paid', 'regress.filter', '{}')$$);
reset role;
rollback;
