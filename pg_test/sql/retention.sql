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
select pg_temp.make_day('_event', 'event_id'), pg_temp.make_day('_event_version', 'event_id, version'), pg_temp.make_day('_delivery', 'event_id, endpoint_id'),
       pg_temp.make_day('_attempt', 'event_id, endpoint_id, attempt_no');
select * from webhook._old_partitions('2019-12-31', '2019-12-31', '2019-12-31');
select * from webhook._old_partitions('2020-01-01', '2020-01-01', '2019-12-31');
select * from webhook._old_partitions('2020-01-01', '2020-01-01', '2020-01-01');

select endpoint_id as hook from webhook.create_endpoint('regress.retention', 'https://127.0.0.1/', verify => 'none') \gset
select webhook._event_bound('2019-12-31 12:00+00') as old \gset
select webhook.emit('order.paid', 'regress.retention', '1') as model \gset
create temp table old as select * from webhook._event where event_id = :'model';
update old set event_id = :'old';
insert into webhook._event select * from old;
insert into webhook._event_version (event_id, version, partner_id, seal, body_sha256, body) values (:'old', '2', 'regress.retention', '', '', '2');
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision) values (:hook, :'old', 'dead', 1, 0, 1);
insert into webhook._attempt (endpoint_id, event_id, attempt_no, started_at, incarnation, outcome) values (:hook, :'old', 1, '2019-12-31 12:00+00', 1, 'dead');
-- This transaction has not ended: the event is not read.
select array[pg_current_snapshot()::text] as unread, array[format('%s:%s:', pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1, pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1)] as read \gset
-- A dead letter keeps everything.
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_attempt,_delivery,_event_version,_event}'::text[]) as p;
-- So does a delivery that is still to be made.
update webhook._delivery set state = 'pending' where event_id = :'old';
insert into webhook._due (endpoint_id, event_id, next_attempt_at, attempt_count, series_start, class) values (:hook, :'old', 'infinity', 1, 0, 1);
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_attempt,_delivery,_event_version,_event}'::text[]) as p;
delete from webhook._due where event_id = :'old';
update webhook._delivery set state = 'closed' where event_id = :'old';
-- An event stays as long as its deliveries, and until it was read; so do its other versions, which may be what is sent.
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_event_version,_event}'::text[]) as p;
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_attempt,_delivery}'::text[]) as p;
select p, webhook._clear_partition(p, '2019-12-31', :'unread', true) from unnest('{_event_version,_event}'::text[]) as p;
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_event_version,_event}'::text[]) as p;
-- Empty ones are dropped, when the parent may be locked.
select p, webhook._clear_partition(p, '2019-12-31', :'read', false) from unnest('{_attempt,_delivery,_event_version,_event}'::text[]) as p;
set local client_min_messages = error;
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_attempt,_delivery,_event_version,_event}'::text[]) as p;
select p, webhook._clear_partition(p, '2019-12-31', :'read', true) from unnest('{_attempt,_delivery,_event_version,_event}'::text[]) as p;
select count(*) from webhook._event where event_id = :'old';
select pg_temp.failure('select webhook._expire_rows(''_endpoint'', now(), 1)');
rollback;

-- The same without partitions.
begin;
select endpoint_id as hook from webhook.create_endpoint('regress.retention', 'https://127.0.0.1/', verify => 'none') \gset
select webhook._event_bound('2019-12-31 12:00+00') as old, webhook._day_bound('_event', '2020-01-01') as before \gset
select webhook.emit('order.paid', 'regress.retention', '1') as model \gset
create temp table old as select * from webhook._event where event_id = :'model';
update old set event_id = :'old';
insert into webhook._event select * from old;
insert into webhook._event_version (event_id, version, partner_id, seal, body_sha256, body) values (:'old', '2', 'regress.retention', '', '', '2');
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision, last_attempt_at) values (:hook, :'old', 'delivered', 1, 0, 1, now());
select array[pg_current_snapshot()::text] as unread, array[format('%s:%s:', pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1, pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1)] as read \gset
create function pg_temp.cleared(reads text[], oldest text) returns text language sql as $$
  select string_agg(p || ' ' || (select c.removed from webhook._clear_default(p, webhook._day_bound('_event', '2020-01-01'), null, reads, oldest, 1000) as c), ', ' order by place)
    from unnest('{_delivery,_event_version,_event}'::text[]) with ordinality as t (p, place)
$$;
-- Sent again lately: the delivery is kept, and with it all that it is about.
select pg_temp.cleared(:'read', '');
update webhook._delivery set last_attempt_at = '2019-12-31 12:00+00' where event_id = :'old';
select pg_temp.cleared(:'unread', '');
select pg_temp.cleared(:'read', '');
rollback;

-- The feed goes from its old end, whatever its days lie in: a cursor whose row is there relies on what followed it.
begin;
create function pg_temp.make_feed_day(day date) returns void language plpgsql as $$
declare
  leaf text := '_feed_' || to_char(day, 'YYYYMMDD');
begin
  execute format('create table webhook.%I (like webhook._feed including defaults including constraints)', leaf);
  execute format('alter table webhook.%I add primary key (partner_id, pos)', leaf);
  execute format('alter table webhook._feed attach partition webhook.%I for values from (%s) to (%s)', leaf,
                 webhook._day_bound('_feed', day), webhook._day_bound('_feed', day + 1));
end
$$;
select pg_temp.make_feed_day('2025-01-03'), pg_temp.make_feed_day('2025-01-04'), pg_temp.make_feed_day('2025-01-06');
insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
select webhook._pos_bound(d) + 1, d, false, 'regress.retention', webhook._event_bound(d), 'order.paid'
  from generate_series(timestamptz '2025-01-02 12:00+00', '2025-01-06 12:00+00', '1 day') as d;
create temp view days as
  select string_agg(to_char(published_at at time zone 'UTC', 'DD'), ' ' order by pos) as days from webhook._feed where partner_id = 'regress.retention';
create function pg_temp.default_cleared(day date) returns bigint language sql as $$
  select c.removed from webhook._clear_default('_feed', webhook._day_bound('_feed', day), null, '{}', '', 1000) as c
$$;
set local client_min_messages = error;
-- The second day has no partition, and goes first.
select webhook._clear_partition('_feed', '2025-01-03', '{}', true);
select pg_temp.default_cleared('2025-01-07');
select days from days;
-- A later day waits for an earlier one.
select webhook._clear_partition('_feed', '2025-01-04', '{}', true);
select webhook._clear_partition('_feed', '2025-01-03', '{}', true), webhook._clear_partition('_feed', '2025-01-04', '{}', true);
select webhook._clear_partition('_feed', '2025-01-06', '{}', true);
select pg_temp.default_cleared('2025-01-07');
select days from days;
select webhook._clear_partition('_feed', '2025-01-06', '{}', true);
select days from days;
rollback;

-- Counters of the receiving side: put together when their day is over, gone at the end of the retention. Few rows at a time.
begin;
insert into webhook._inbox_count (source_id, day, result, reason, slot, total, last_at)
select 77, (now() at time zone 'UTC')::date - d, 'accepted', '', s, 1, now() - d * interval '1 day' from generate_series(0, 5) as d, generate_series(1, 3) as s;
insert into webhook._inbox_subject (handler, source_id, partner_id, subject_type, subject_id, version, changed_at)
select 'books', 77, 'acme', 'order', n, 1, now() - n * interval '1 day' from generate_series(1, 9) as n;
create temp view counters as
  select (now() at time zone 'UTC')::date - day as age, count(*) as rows, sum(total) as total, min(slot) as slot from webhook._inbox_count where source_id = 77 group by 1 order by 1;
select webhook._trim_inbox(now() - interval '100 days', 5) > 0;
select webhook._trim_inbox(now() - interval '100 days', 5), webhook._trim_inbox(now() - interval '100 days', 5), webhook._trim_inbox(now() - interval '100 days', 5);
select * from counters;
select count(*) from webhook._inbox_subject where source_id = 77;
-- By the clock of whoever asks.
select webhook._trim_inbox(now() - interval '4 days', 3), webhook._trim_inbox(now() - interval '4 days', 3);
select * from counters;
select string_agg(subject_id, ' ' order by subject_id) from webhook._inbox_subject where source_id = 77;
rollback;

-- Payloads go by the clock of whoever asks, which is the leader's: a wall clock that jumped makes nothing old.
begin;
select webhook.create_event_type('regress.aged', payload_retention => '1 day');
select webhook.emit('regress.aged', 'regress.retention', '1') as aged \gset
insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
values (webhook._pos_bound(clock_timestamp()), clock_timestamp(), false, 'regress.retention', :'aged', 'regress.aged');
select webhook._expire_payloads(clock_timestamp() + interval '23 hours', 10);
select body is null from webhook._event where event_id = :'aged';
select webhook._expire_payloads(clock_timestamp() + interval '25 hours', 10);
select body is null from webhook._event where event_id = :'aged';
rollback;
