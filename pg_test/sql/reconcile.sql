-- Looking for gaps: what is refused, what is found in the tables and in the business, and what is told of it. The damage
-- is done and found in one transaction; nothing is committed, and no leader acts on it.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- What makes no sense.
select pg_temp.failure($$select webhook.reconcile('2020-01-02', '2020-01-01')$$);
select pg_temp.failure($$select webhook.reconcile('-infinity', null)$$);
select pg_temp.failure($$select webhook.reconcile(now() - interval '40 days')$$);
select pg_temp.failure($$select webhook.reconcile(settle => '2 days')$$);
select pg_temp.failure($$select webhook.reconcile(settle => null)$$);
select pg_temp.failure($$select webhook.reconcile(repair => null)$$);
select pg_temp.failure($$select webhook.create_reconciliation('a b', 'order.paid', 'order', 'now')$$);
select pg_temp.failure($$select webhook.create_reconciliation('orders', 'order.paid', 'order', null)$$);
select pg_temp.failure($$select webhook.create_reconciliation('orders', 'order.paid', 'order', 'now()')$$);
select pg_temp.failure($$select webhook.create_reconciliation('orders', 'order paid', 'order', 'now()')$$);
select pg_temp.failure($$select webhook.delete_reconciliation('orders')$$);
select pg_temp.failure($$select webhook.delete_reconciliation(null)$$);
begin read only;
select pg_temp.failure($$select webhook.reconcile()$$);
select pg_temp.failure($$select webhook.create_reconciliation('orders', 'order.paid', 'order', 'now()')$$);
select pg_temp.failure($$select webhook.delete_reconciliation('orders')$$);
rollback;
-- Whoever reconciles lends nobody his rights.
create function regress_invoker(timestamptz, timestamptz) returns table (subject_id text, changed_at timestamptz) language sql as $$ select '1', now() $$;
select pg_temp.failure($$select webhook.create_reconciliation('orders', 'order.paid', 'order', 'regress_invoker(timestamptz, timestamptz)')$$);
drop function regress_invoker(timestamptz, timestamptz);

-- What a pattern means to an endpoint means the same here.
select p.pattern, array_agg(t.type order by t.type) filter (where webhook._type_matches(array[p.pattern], t.type))
  from unnest('{*,order.*,order.paid,webhook.*}'::text[]) as p (pattern), unnest('{order,order.,order.paid,order.paid.late,orders.paid,webhook.test}'::text[]) as t (type)
 group by 1 order by 1;

begin;
-- Nothing is found where nothing is wrong. Other scripts of this database leave what nobody delivers.
select webhook.emit('order.paid', 'regress.reconcile', '1', subject_type => 'order', subject_id => '7', subject_version => 3) as event \gset
select endpoint_id as hook from webhook.create_endpoint('regress.reconcile', 'https://127.0.0.1/', verify => 'none') \gset
create temp view found as select r.kind, r.detail from webhook.reconciliation r where r.partner_id = 'regress.reconcile' or r.check_name is not null or r.event_id = :'event';
select count(*) >= 0 from webhook.reconcile(settle => '0', repair => false);
select * from found;
-- Damage.
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision) values (:hook, :'event', 'retrying', 2, 0, 1);
insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
select webhook._pos_bound(clock_timestamp()) + n, clock_timestamp(), false, 'regress.reconcile', :'event', 'order.paid' from generate_series(1, 2) as n;
update webhook._event set body = null where event_id = :'event';
select pg_sleep(0.01);
select count(*) >= 0 from webhook.reconcile(settle => '0', repair => false);
select * from found order by kind;
-- A delivery that nobody waits for, and the reverse.
insert into webhook._due (endpoint_id, event_id, next_attempt_at, attempt_count, series_start, class) values (:hook, :'event', 'infinity', 2, 0, 1);
update webhook._delivery set state = 'delivered' where event_id = :'event';
select count(*) >= 0 from webhook.reconcile(settle => '0', repair => false);
select r.kind, r.detail, r.repaired_at is not null, r.how from webhook.reconciliation r where r.event_id = :'event' order by kind;
-- Repaired by hand: told, not found any more.
delete from webhook._due where event_id = :'event';
delete from webhook._delivery where event_id = :'event';
delete from webhook._feed where event_id = :'event' and pos = (select max(pos) from webhook._feed where event_id = :'event');
update webhook._event set body = '1' where event_id = :'event';
select count(*) >= 0 from webhook.reconcile(settle => '0', repair => false);
select count(*) from webhook.reconciliation r where r.event_id = :'event' and r.repaired_at is null;

-- Changes of the business.
create table regress_orders (id text, version bigint, changed_at timestamptz);
create function regress_changes(since timestamptz, until timestamptz)
returns table (partner_id text, subject_id text, subject_version bigint, changed_at timestamptz)
language sql security definer set search_path = public, pg_temp
as $$ select 'regress.reconcile', o.id, o.version, o.changed_at from regress_orders o where o.changed_at >= since and o.changed_at < until $$;
select webhook.create_reconciliation('orders', 'order.paid', 'order', 'regress_changes(timestamptz, timestamptz)', description => 'paid orders');
select pg_temp.failure($$select webhook.create_reconciliation('orders', 'order.paid', 'order', 'regress_changes(timestamptz, timestamptz)')$$);
select name, event_type, subject_type, query, tolerance, description, created_by = session_user from webhook.reconciliations;
insert into regress_orders values ('7', 3, clock_timestamp()), ('7', 4, clock_timestamp()), ('8', null, clock_timestamp());
select pg_sleep(0.01);
select kind, found, new, repairing from webhook.reconcile(settle => '0', repair => false) where kind like 'change.%';
select split_part(object, ' 2', 1), partner_id, check_name, detail, repaired_at is null from webhook.reconciliation where check_name = 'orders' order by 1;
-- The missing events come late, and say when it happened.
select webhook.emit('order.paid', 'regress.reconcile', '1', subject_type => 'order', subject_id => '7', subject_version => 4) is not null;
select kind, found, new, repairing from webhook.reconcile(settle => '0', repair => false) where kind like 'change.%';
select split_part(object, ' 2', 1), repaired_at is not null, how from webhook.reconciliation where check_name = 'orders' order by 1;
-- A query that cannot be asked is a finding and an alert, and keeps no other one, nor the tables, from being looked at.
create function regress_broken(timestamptz, timestamptz)
returns table (subject_id text, changed_at timestamptz) language sql security definer set search_path = public, pg_temp as $$ select '1', now() where 1 / 0 = 1 $$;
create function regress_texts(timestamptz, timestamptz)
returns table (subject_id text, changed_at text) language sql security definer set search_path = public, pg_temp as $$ select '1', 'a secret' $$;
create function regress_many(timestamptz, timestamptz)
returns table (subject_id text, changed_at timestamptz) language sql security definer set search_path = public, pg_temp as $$ select n::text, now() from generate_series(1, 10001) as n $$;
create function regress_dropped(timestamptz, timestamptz)
returns table (subject_id text, changed_at timestamptz) language sql security definer set search_path = public, pg_temp as $$ select '1', now() $$;
select webhook.create_reconciliation(name, 'order.paid', 'order', query)
  from (values ('a.broken', 'regress_broken'::regproc::regprocedure), ('b.texts', 'regress_texts'::regproc::regprocedure), ('c.many', 'regress_many'::regproc::regprocedure),
               ('d.dropped', 'regress_dropped'::regproc::regprocedure)) as v (name, query);
drop function regress_dropped(timestamptz, timestamptz);
insert into regress_orders values ('9', null, clock_timestamp());
select pg_sleep(0.01);
select kind, found, new, repairing from webhook.reconcile(settle => '0', repair => false) where kind ~ '^(change|query)';
select object, check_name, detail, repaired_at is null from webhook.reconciliation where kind = 'query.failed' order by 1;
select severity, detail from webhook.alerts where kind = 'reconciliation.failed' order by 2;
-- The one that could be asked was.
select split_part(object, ' 2', 1) from webhook.reconciliation where check_name = 'orders' and repaired_at is null;
-- Once more is no news.
select kind, found, new, repairing from webhook.reconcile(settle => '0', repair => false) where kind like 'query.%';
select count(*) from webhook.alerts where kind = 'reconciliation.failed';
-- What it returned is nonsense; whose rights it has is another matter now. What it found before is not taken for repaired.
insert into regress_orders values (null, null, clock_timestamp());
select pg_sleep(0.01);
select count(*) >= 0 from webhook.reconcile(settle => '0', repair => false);
select detail from webhook.reconciliation where kind = 'query.failed' and object = 'orders';
delete from regress_orders where id is null;
alter function regress_changes(timestamptz, timestamptz) security invoker;
select count(*) >= 0 from webhook.reconcile(settle => '0', repair => false);
select detail from webhook.reconciliation where kind = 'query.failed' and object = 'orders';
select count(*) from webhook.reconciliation where kind = 'change.without_event' and check_name = 'orders' and repaired_at is null;
-- Mended.
alter function regress_changes(timestamptz, timestamptz) security definer;
select count(*) >= 0 from webhook.reconcile(settle => '0', repair => false);
select repaired_at is not null, how from webhook.reconciliation where kind = 'query.failed' and object = 'orders';
select webhook.delete_reconciliation('orders');
select count(*) filter (where repaired_at is null) from webhook.reconciliation where check_name = 'orders';
rollback;
