-- Dry runs: who would get an event, in which form, and that nothing comes of it. That the bytes are those that are sent
-- is proven elsewhere (dry_run.rs).
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Nothing is committed below: no leader acts on it.
begin;
select endpoint_id as plain from webhook.create_endpoint('regress.dry', 'https://127.0.0.1/plain', verify => 'none', headers => '{"X-Tenant": "7"}') \gset
select endpoint_id as cloud from webhook.create_endpoint('regress.dry', 'https://127.0.0.1:8443/cloud?k=1', '{order.*}', verify => 'none', format => 'cloudevents-binary', signature => 'rfc9421-hmac-sha256') \gset
select endpoint_id as dear from webhook.create_endpoint('regress.dry', 'https://127.0.0.1/dear', verify => 'none', filter => '$.amount > 100') \gset
select endpoint_id as subject from webhook.create_endpoint('regress.dry', 'https://127.0.0.1/subject', verify => 'none', subject_types => '{order}') \gset
select endpoint_id as test from webhook.create_endpoint('regress.dry', 'https://127.0.0.1/test', verify => 'none', test => true) \gset
select endpoint_id as off from webhook.create_endpoint('regress.dry', 'https://127.0.0.1/off', verify => 'none') \gset
select webhook.disable_endpoint(:off, 'enough');
select endpoint_id as gone from webhook.create_endpoint('regress.dry', 'https://127.0.0.1/gone', verify => 'none') \gset
select webhook.delete_endpoint(:gone, 'enough');
select endpoint_id as waits from webhook.create_endpoint('regress.dry', 'https://127.0.0.1/waits') \gset
select endpoint_id as other from webhook.create_endpoint('regress.other', 'https://127.0.0.1/other', verify => 'none') \gset
create temp view answer as
select (select substring(e.url from '127.0.0.1[^/]*/([a-z]+)') from webhook.endpoints e where e.endpoint_id = d.endpoint_id) as endpoint, d.*
  from webhook.dry_run('order.paid', 'regress.dry', '{"amount": 100.10, "z": 1, "a": "ä"}', subject_type => 'order', subject_id => '9', correlation_id => 'c-1', occurred_at => '2026-01-01 00:00+00') as d;
select endpoint, matched, reason, url from answer order by 1;
select endpoint, key, regexp_replace(regexp_replace(regexp_replace(regexp_replace(value, 'evt_[0-9A-Z]{26}', '<event>', 'g'), 'dlv_[0-9A-Z]{26}_\d+', '<delivery>'), '\d{9,}', '<n>', 'g'), '(v1,|sig1=:|sha-256=:)[A-Za-z0-9+/=]{43,}', '\1<signature>', 'g')
  from answer cross join lateral json_each_text(headers) with ordinality as h (key, value, place) where endpoint in ('plain', 'cloud') order by 1, place;
select endpoint, regexp_replace(body, 'evt_[0-9A-Z]{26}', '<event>') from answer where body is not null order by 1;
select case d.endpoint_id when :cloud then 'cloud' when :dear then 'dear' else 'subject' end, d.matched, d.reason from webhook.dry_run('customer.made', 'regress.dry', '{"amount": "x"}') as d where d.endpoint_id in (:cloud, :dear, :subject) order by 1;
select d.matched, d.reason, count(*), bool_or(d.endpoint_id = :test) from webhook.dry_run('customer.made', 'regress.dry', '{}', test => true) as d group by 1, 2 order by 1;
select webhook.pause('partner', 'regress.dry', 'for a while') > 0;
select matched, reason from webhook.dry_run('customer.made', 'regress.dry', '{}') as d where endpoint_id = :plain;
select count(*) from webhook.dry_run('customer.made', 'regress.nobody', '{}');

-- The words of emit.
select pg_temp.failure($$select webhook.dry_run(null, 'regress.dry', '{}')$$);
select pg_temp.failure($$select webhook.dry_run('webhook.test', 'regress.dry', '{}')$$);
select pg_temp.failure($$select webhook.dry_run('a b', 'regress.dry', '{}')$$);
select pg_temp.failure($$select webhook.dry_run('a.b', '_operator', '{}')$$);
select pg_temp.failure($$select webhook.dry_run('a.b', 'regress.dry', null)$$);
select pg_temp.failure($$select webhook.dry_run('a.b', 'regress.dry', '{}', subject_type => 'order')$$);

-- Nothing came of it: no event, no key used up, no entry.
select count(*) from webhook.events where partner_id = 'regress.dry';
select count(*) from webhook.dry_run('a.b', 'regress.dry', '{}', idempotency_key => 'once');
select webhook.emit('a.b', 'regress.dry', '{}', idempotency_key => 'once') = webhook.emit('a.b', 'regress.dry', '{}', idempotency_key => 'once');
select count(*) from webhook.events where partner_id = 'regress.dry';
rollback;
-- It can be asked where nothing can be written.
begin read only;
select count(*) from webhook.dry_run('a.b', 'regress.dry', '{}');
rollback;
