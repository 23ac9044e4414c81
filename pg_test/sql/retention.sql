-- What goes when it is old: which days are, and what keeps one. The leader is not asked: nothing here is committed.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

select name, setting, unit, min_val, max_val, context from pg_settings where name like 'webhook.%retention' order by name collate "C";

begin;
-- The day before 2020 began, as the leader would have made it.
create function pg_temp.make_day(parent text, key text) returns void language plpgsql as $$
begin
  execute format('create table webhook.%I (like webhook.%I including defaults including constraints)', parent || '_20191231', parent);
  execute format('alter table webhook.%I add primary key (%s)', parent || '_20191231', key);
  execute format('alter table webhook.%I attach partition webhook.%I for values from (%L) to (%L)', parent, parent || '_20191231',
                 webhook._day_bound(parent, '2019-12-31'), webhook._day_bound(parent, '2020-01-01'));
end
$$;
select pg_temp.make_day('_event', 'event_id'), pg_temp.make_day('_delivery', 'event_id, endpoint_id'), pg_temp.make_day('_attempt', 'event_id, endpoint_id, attempt_no');
select * from webhook._old_partitions('2019-12-31', '2019-12-31', '2019-12-31');
select * from webhook._old_partitions('2020-01-01', '2020-01-01', '2019-12-31');
select * from webhook._old_partitions('2020-01-01', '2020-01-01', '2020-01-01');

select endpoint_id as hook from webhook.create_endpoint('regress.retention', 'https://127.0.0.1/', verify => 'none') \gset
select webhook._event_bound('2019-12-31 12:00+00') as old \gset
select webhook.emit('order.paid', 'regress.retention', '1') as model \gset
create temp table old as select * from webhook._event where event_id = :'model';
update old set event_id = :'old';
insert into webhook._event select * from old;
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision) values (:hook, :'old', 'dead', 1, 0, 1);
insert into webhook._attempt (endpoint_id, event_id, attempt_no, started_at, incarnation, outcome) values (:hook, :'old', 1, '2019-12-31 12:00+00', 1, 'dead');
-- This transaction has not ended: the event is not read.
select array[pg_current_snapshot()::text] as unread, array[format('%s:%s:', pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1, pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1)] as read \gset
-- A dead letter keeps everything.
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_attempt,_delivery,_event}'::text[]) as p;
-- So does a delivery that is still to be made.
update webhook._delivery set state = 'pending' where event_id = :'old';
insert into webhook._due (endpoint_id, event_id, next_attempt_at, attempt_count, series_start, class) values (:hook, :'old', 'infinity', 1, 0, 1);
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_attempt,_delivery,_event}'::text[]) as p;
delete from webhook._due where event_id = :'old';
update webhook._delivery set state = 'closed' where event_id = :'old';
-- An event stays as long as its deliveries, and until it was read.
select webhook._clear_partition('_event', '2019-12-31', :'read', true);
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_attempt,_delivery}'::text[]) as p;
select webhook._clear_partition('_event', '2019-12-31', :'unread', true);
select webhook._clear_partition('_event', '2019-12-31', :'read', true);
-- Empty ones are dropped, when the parent may be locked.
select p, webhook._clear_partition(p, '2019-12-31', :'read', false) from unnest('{_attempt,_delivery,_event}'::text[]) as p;
set local client_min_messages = error;
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_attempt,_delivery,_event}'::text[]) as p;
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_attempt,_delivery,_event}'::text[]) as p;
select count(*) from webhook._event where event_id = :'old';
select pg_temp.failure('select webhook._expire_rows(''_endpoint'', now(), 1)');
rollback;
