-- The feed of a partner: pages, cursors and what is wrong with them, ranges, rights. A small history written by hand and
-- rolled back: no leader sees it.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never
set timezone = 'UTC';
set datestyle = 'ISO';
set intervalstyle = 'postgres';

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

begin;
-- Twelve events of two partners, every second one a test, in the last hours; the third is expunged.
create temp table sample on commit drop as
select n, webhook._event_bound(at) as event_id, at, case when n % 3 = 0 then 'order.paid' else 'customer.card.made' end as type,
       case when n > 9 then 'regress-2' else 'regress' end as partner_id, n % 2 = 0 as test
  from generate_series(1, 12) as n cross join lateral (select date_trunc('second', now()) - interval '60 hours' + n * interval '4 hours' as at) as t;
grant select on sample to public;
insert into webhook._event (xid, occurred_at, origin, seal_key, test, event_id, partner_id, type, subject_type, subject_id, subject_version, correlation_id, seal, body_sha256, body)
select pg_current_xact_id(), at, webhook._origin(), 0, test, event_id, partner_id, type, 'order', 'o-' || n, n, 'c-' || n, '', '', case when n <> 3 then '{"n":  ' || n || '}' end
  from sample;
insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
select webhook._pos_bound(at + interval '1 second'), at + interval '1 second', test, partner_id, event_id, type from sample;

-- Pages: live ones in order, then a row that passes over what is no live event, then nothing.
select string_agg(s.n::text, ' ' order by s.n) from webhook.events_after('regress') f join sample s using (event_id);
select f.event_id = s1.event_id, f.type, subject_type, subject_id, subject_version, occurred_at = s1.at, published_at = s1.at + interval '1 second', correlation_id, data
  from webhook.events_after('regress', max_events => 1) f cross join (select * from sample where n = 1) as s1;
select cursor as first from webhook.events_after('regress', max_events => 1) \gset
select cursor as third from webhook.events_after('regress', :'first', max_events => 1) \gset
select string_agg(coalesce(s.n::text, 'end'), ' ') from webhook.events_after('regress', :'third') f left join sample s using (event_id);
-- At the end of the live ones; the last of all is a live one.
select cursor as last from webhook.events_after('regress', :'third') where event_id is not null order by published_at desc limit 1 \gset
select count(*), count(event_id) from webhook.events_after('regress', :'last');
select cursor as renewed from webhook.events_after('regress', :'last') \gset
-- It was read now: nothing to say again, and it stands where it stood.
select count(*) from webhook.events_after('regress', :'renewed');
select substr(:'renewed', 7, 32) = substr(:'last', 7, 32), :'renewed' > :'last', length(:'last');
select string_agg(s.n::text, ' ' order by s.n) from webhook.events_after('regress', test => true) f join sample s using (event_id);
-- Test events behind the last live one move the cursor.
select count(*), count(event_id), max(cursor) > :'third' from webhook.events_after('regress', :'third', types => '{none.such}');
select string_agg(s.n::text, ' ' order by s.n) from webhook.events_after('regress', types => '{order.*}') f join sample s using (event_id);
select string_agg(s.n::text, ' ' order by s.n) from webhook.events_after('regress', types => '{customer.card.made,order.paid}') f join sample s using (event_id);
select string_agg(s.n::text, ' ' order by s.n) from webhook.events_after('regress', types => '{customer.*}') f join sample s using (event_id);
-- A partner without events: where it begins.
select count(*), count(event_id) from webhook.events_after('regress-3');
select cursor as empty from webhook.events_after('regress-3') \gset
select count(*) from webhook.events_after('regress-3', :'empty');

-- Payloads, byte for byte.
select s.n, f.data from webhook.events_after('regress', payload => true) f join sample s using (event_id) order by s.n;

-- Ranges by the time of publication: what meets has nothing twice and misses nothing.
select string_agg(s.n::text, ' ' order by f.published_at) from webhook.export_events('regress') f join sample s using (event_id);
select string_agg(s.n::text, ' ' order by f.published_at)
  from webhook.export_events('regress', (select at + interval '1 second' from sample where n = 3), (select at + interval '1 second' from sample where n = 7)) f join sample s using (event_id);
select string_agg(s.n::text, ' ' order by f.published_at)
  from webhook.export_events('regress', until => (select at + interval '1 second' from sample where n = 3), types => '{customer.*}') f join sample s using (event_id);
select string_agg(s.n::text, ' ' order by f.published_at) from webhook.export_events('regress', '-infinity', 'infinity', test => true) f join sample s using (event_id);
select count(*) from webhook.export_events('regress', 'infinity');
-- The cursor of a row is the one that a page gives.
select bool_and(x.cursor = p.cursor) from webhook.export_events('regress') x join webhook.events_after('regress') p using (event_id);
-- Planned into its query: nothing is collected first.
create function pg_temp.plan_of(query text) returns setof text language plpgsql as $$
declare line text;
begin
  for line in execute 'explain (costs off) ' || query loop return next line; end loop;
end $$;
select count(*) from pg_temp.plan_of($$select * from webhook.export_events('regress')$$) as p where p ~ '(Function Scan|->  Sort|^Sort|Materialize|Hash)';

-- What is no cursor of this feed.
select replace(pg_temp.failure(format('select * from webhook.events_after(%L, %L)', partner, cursor)), cursor, '<cursor>')
  from (values ('regress', ''), ('regress', 'x'), ('regress', left(:'first', 63)), ('regress', 'feed2_' || substr(:'first', 7)),
               ('regress', overlay(:'first' placing translate(substr(:'first', 40, 1), '0123456789abcdef', '123456789abcdef0') from 40)), ('regress', upper(:'first')), ('regress', :'first' || ' '),
               ('regress-2', :'first')) as v (partner, cursor);
create function pg_temp.cursor_of(origin bigint, pos bigint, tag text, read_at timestamptz) returns text language sql as $$
  select 'feed1_' || f.facts || webhook._cursor_check('regress', f.facts)
    from (select lpad(to_hex(origin), 16, '0') || lpad(to_hex(pos), 16, '0') || lpad(to_hex(extract(epoch from read_at)::bigint), 10, '0') || tag as facts) as f
$$;
create function pg_temp.failure_of(cursor text) returns text language sql as $$
  select regexp_replace(pg_temp.failure(format('select * from webhook.events_after(%L, %L)', 'regress', cursor)), 'feed1_[0-9a-f]{58}', '<cursor>')
$$;
-- Of another database; of this one, where another event stands, or none; both too old; long without an event, and read lately.
select pg_temp.failure_of(pg_temp.cursor_of(1, 0, '00000000', now()));
select pg_temp.failure_of(pg_temp.cursor_of(webhook._origin(), webhook._pos_bound(at + interval '1 second'), '00000000', now())) from sample where n = 3;
select pg_temp.failure_of(pg_temp.cursor_of(webhook._origin(), webhook._pos_bound(now()), '00000000', now()));
select pg_temp.failure_of(pg_temp.cursor_of(webhook._origin(), webhook._pos_bound(now() - interval '80 days'), '00000000', now()));
select pg_temp.failure_of(pg_temp.cursor_of(webhook._origin(), webhook._pos_bound(now() - interval '100 days'), '00000000', now() - interval '95 days'));
select pg_temp.failure_of(pg_temp.cursor_of(webhook._origin(), 0, '00000000', now() - interval '90 days'));
select pg_temp.failure_of(pg_temp.cursor_of(webhook._origin(), webhook._pos_bound(now() - interval '100 days'), '00000000', now() - interval '80 days'));
-- The one that the error names is good.
select string_agg(coalesce(s.n::text, 'end'), ' ' order by s.n)
  from webhook.events_after('regress', substring(pg_temp.failure($$select * from webhook.events_after('regress', pg_temp.cursor_of(webhook._origin(), 0, '00000000', '2025-06-01'))$$) from 'feed1_[0-9a-f]{58}')) f
  left join sample s using (event_id);

-- Other refusals.
select pg_temp.failure(statement)
  from (values
    ($$select * from webhook.events_after(null)$$),
    ($$select * from webhook.events_after('regress', max_events => 0)$$),
    ($$select * from webhook.events_after('regress', max_events => 1001)$$),
    ($$select * from webhook.events_after('regress', max_events => null)$$),
    ($$select * from webhook.events_after('regress', types => '{}')$$),
    ($$select * from webhook.events_after('regress', types => '{"not a type"}')$$),
    ($$select * from webhook.events_after('regress', test => null)$$),
    ($$select * from webhook.events_after('regress', payload => null)$$),
    ($$select * from webhook.export_events(null)$$),
    ($$select * from webhook.export_events('regress', now(), now() - interval '1 hour')$$),
    ($$select * from webhook.export_events('regress', types => '{}')$$),
    ($$select * from webhook.export_events('regress', test => null)$$),
    ($$select * from webhook.feed_status(null)$$),
    ($$select * from webhook.feed_status('regress', test => null)$$),
    ($$select * from webhook.partner_status(null)$$)) as v (statement);

-- How it stands.
select unread, oldest_unread_at = (select at + interval '1 second' from sample where n = 1), last_published_at = (select at + interval '1 second' from sample where n = 9)
  from webhook.feed_status('regress');
select unread, oldest_unread_at from webhook.feed_status('regress', :'last');
select unread from webhook.feed_status('regress', :'third', test => true);
select count(*) from webhook.feed_status('regress') s cross join lateral webhook.events_after('regress', s.last_cursor) where event_id is not null;
select count(*) from webhook.feed_status('regress') s cross join lateral webhook.events_after('regress', s.first_cursor) where event_id is not null;
select unread, oldest_unread_at, last_published_at from webhook.feed_status('regress-3');
select endpoints, waiting, dead, last_published_at = (select at + interval '1 second' from sample where n = 9) from webhook.partner_status('regress');
select name, value, since is not null from webhook.limits() where name in ('event_retention', 'max_payload', 'events_per_page') order by name;

-- Rights: a partner's role reads its own feed, payloads with a right of their own.
create role regress_webhook_feed;
create role regress_webhook_only;
create role regress_webhook_reader;
select pg_temp.failure($$select webhook.grant_access('regress_webhook_feed', 'feed')$$);
select pg_temp.failure($$select webhook.grant_access('regress_webhook_feed', 'feed', 'regress', '{order.*}')$$);
select webhook.grant_access('regress_webhook_feed', 'partner', 'regress');
select webhook.grant_access('regress_webhook_only', 'feed', 'regress');
select webhook.grant_access('regress_webhook_reader', 'read');
set local role regress_webhook_feed;
select count(event_id), count(data) from webhook.events_after('regress');
select count(event_id) from webhook.events_after('regress-2');
select count(event_id) from webhook.export_events('regress-2');
select unread from webhook.feed_status('regress-2');
select pg_temp.failure($$select * from webhook.events_after('regress', payload => true)$$);
select pg_temp.failure($$select * from webhook.export_events('regress', payload => true)$$);
select state is not null, dead from webhook.partner_status('regress');
select count(*) > 10 from webhook.limits();
set local role regress_webhook_only;
select count(event_id), count(data) from webhook.events_after('regress', payload => true);
select count(event_id), count(data) from webhook.export_events('regress', payload => true);
select unread from webhook.feed_status('regress');
select pg_temp.failure($$select * from webhook.events_after('regress-2', payload => true)$$);
select count(event_id) from webhook.events_after('regress-2');
select pg_temp.failure($$select webhook._feed_data('regress-2', event_id) from sample where n = 12$$);
select webhook._feed_data('regress', event_id) from sample where n = 12;
select pg_temp.failure($$select * from webhook.events$$);
select pg_temp.failure($$select * from webhook.partner_status('regress')$$);
set local role regress_webhook_reader;
select count(event_id) from webhook.events_after('regress-2');
select pg_temp.failure($$select * from webhook.events_after('regress-2', payload => true)$$);
reset role;
rollback;
