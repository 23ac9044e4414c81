-- Emitting: what is stored, what is refused, and that the event shares the fate of its transaction.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- One event, read back.
begin;
select webhook.emit('customer.created', 'acme', '{"b": 1, "a": 1.10, "a": 1e3}') as id \gset
select :'id' ~ '^evt_[0-7][0-9A-HJKMNP-TV-Z]{25}$';
select partner_id, type, body, test, xid = pg_current_xact_id(), origin = webhook._origin(), length(seal), body_sha256 = sha256(convert_to(body, 'UTF8'))
  from webhook._event where event_id = :'id';
select abs(extract(epoch from clock_timestamp() - occurred_at)) < 60, abs(extract(epoch from clock_timestamp() - webhook._event_time(event_id))) < 60
  from webhook._event where event_id = :'id';
select k.origin = webhook._origin()
  from webhook._event e join webhook._seal_key k on k.key_id = e.seal_key
 where e.event_id = :'id';
rollback;
select count(*) from webhook._event where event_id = :'id';

-- Every field.
begin;
select webhook.emit(
  type => 'customer.frozen', partner_id => 'acme:eu-1', data => '{}', subject_type => 'customer', subject_id => 'c-7',
  subject_version => 3, source => 'billing', scope => 'accounts', occurred_at => '2026-01-02 03:04:05.678901+02',
  schema_version => '2', correlation_id => 'req-1', causation => 'evt_01M695MHQQD9798CDF31C02D86',
  traceparent => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', test => true) as id \gset
select subject_type, subject_id, subject_version, source, scope, occurred_at at time zone 'UTC', schema_version, correlation_id, causation, traceparent, test
  from webhook._event where event_id = :'id';
rollback;

-- emit_json keeps the caller's bytes, emit keeps jsonb's normal form.
begin;
select webhook.emit_json('a.b', 'acme', '{ "b":1,  "a":1.10, "a": 1e400, "u":"\u00e9é", "n":12345678901234567890.123456789 }') as verbatim \gset
select webhook.emit('a.b', 'acme', '{ "b":1,  "a":1.10, "a": 1e3, "u":"\u00e9é", "n":12345678901234567890.123456789 }') as normal \gset
select body from webhook._event where event_id = :'verbatim';
select body from webhook._event where event_id = :'normal';
rollback;

-- The session's settings change neither times nor bytes.
begin;
set local timezone = 'Asia/Kathmandu';
set local datestyle = 'SQL, DMY';
set local extra_float_digits = -10;
select webhook.emit('a.b', 'acme', '{"t": 1.10}', occurred_at => '2026-03-04 05:06:07.000008+00') as one \gset
set local timezone = 'America/Caracas';
set local datestyle = 'ISO, YMD';
select webhook.emit('a.b', 'acme', '{"t": 1.10}', occurred_at => '2026-03-04 05:06:07.000008+00') as two \gset
select count(distinct (occurred_at, body)), min(occurred_at) at time zone 'UTC' from webhook._event where event_id in (:'one', :'two');
select abs(extract(epoch from webhook._event_time(:'one') - webhook._event_time(:'two'))) < 60;
rollback;

-- Ids rise in the order of the calls, also within one statement.
begin;
create temp table emitted on commit drop as
select n, webhook.emit('bulk.row', 'acme', jsonb_build_object('n', n)) as event_id from generate_series(1, 1000) as n;
select count(*), count(distinct event_id), bool_and(event_id > previous)
  from (select event_id, lag(event_id) over (order by n) as previous from emitted) as e;
select count(*), count(distinct xid) from webhook._event where type = 'bulk.row';
rollback;

-- Savepoints: the event goes with its subtransaction, and carries the xid of the whole transaction.
begin;
select count(*) from (select webhook.emit('save.point', 'acme', '1')) as e;
savepoint inner_one;
select count(*) from (select webhook.emit('save.point', 'acme', '2')) as e;
rollback to inner_one;
select count(*) from (select webhook.emit('save.point', 'acme', '3')) as e;
release inner_one;
select body, xid = pg_current_xact_id() from webhook._event where type = 'save.point' order by event_id;
rollback;

-- DO blocks, exception blocks, functions and triggers.
begin;
do $$
begin
  perform webhook.emit('do.block', 'acme', '1');
  begin
    perform webhook.emit('do.block', 'acme', '2');
    raise exception 'undo the second one';
  exception when raise_exception then
    null;
  end;
end
$$;
create temp table customer (id integer primary key, name text) on commit drop;
create function pg_temp.announce() returns trigger language plpgsql as $$
begin
  perform webhook.emit('customer.' || lower(tg_op), 'acme', to_jsonb(new), 'customer', new.id::text);
  return new;
end
$$;
create trigger announce after insert or update on customer for each row execute function pg_temp.announce();
insert into customer values (1, 'Ada'), (2, 'Grace');
update customer set name = 'Grace Hopper' where id = 2;
select type, subject_id, body from webhook._event where xid = pg_current_xact_id() order by event_id;
rollback;

-- Prepared transactions.
begin;
select webhook.emit('two.phase', 'acme', '1') as id \gset
prepare transaction 'regress_webhook';
select count(*) from webhook._event where event_id = :'id';
commit prepared 'regress_webhook';
select count(*) from webhook._event where event_id = :'id';

-- Idempotency: one event for a key of a partner; a rollback gives the key back.
begin;
select webhook.emit('a.b', 'acme', '1', idempotency_key => 'order-1') as first \gset
-- The warning about the other payload names an event: validation.rs reads it.
set local client_min_messages = error;
select webhook.emit('a.b', 'acme', '2', idempotency_key => 'order-1') = :'first';
select webhook.emit('a.b', 'acme', '2', idempotency_key => 'order-2') = :'first';
select webhook.emit('a.b', 'other', '1', idempotency_key => 'order-1') = :'first';
select count(*), count(distinct body) from webhook._event where partner_id = 'acme' and xid = pg_current_xact_id();
savepoint before_key;
select webhook.emit('a.b', 'acme', '3', idempotency_key => 'order-3') as lost \gset
rollback to before_key;
select webhook.emit('a.b', 'acme', '4', idempotency_key => 'order-3') = :'lost';
select body from webhook._event where xid = pg_current_xact_id() and partner_id = 'acme' order by event_id desc limit 1;
rollback;

-- NULL where it makes no sense.
select pg_temp.failure($$select webhook.emit(null, 'acme', '{}')$$);
select pg_temp.failure($$select webhook.emit('a.b', null, '{}')$$);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', null)$$);
select pg_temp.failure($$select webhook.emit_json('a.b', 'acme', null)$$);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}', test => null)$$);

-- Names.
select pg_temp.failure($$select webhook.emit('', 'acme', '{}')$$);
select pg_temp.failure($$select webhook.emit('a..b', 'acme', '{}')$$);
select pg_temp.failure($$select webhook.emit('customer.*', 'acme', '{}')$$);
select pg_temp.failure($$select webhook.emit('käse.reif', 'acme', '{}')$$);
select pg_temp.failure(format($$select webhook.emit(%L, 'acme', '{}')$$, repeat('x', 129)));
select pg_temp.failure($$select webhook.emit('webhook.endpoint_disabled', 'acme', '{}')$$);
select pg_temp.failure($$select webhook.emit('a.b', '', '{}')$$);
select pg_temp.failure($$select webhook.emit('a.b', 'ac me', '{}')$$);
select pg_temp.failure(format($$select webhook.emit('a.b', %L, '{}')$$, repeat('x', 129)));
select pg_temp.failure($$select webhook.emit('a.b', '_operator', '{}')$$);

-- Descriptive fields.
select pg_temp.failure(format($$select webhook.emit('a.b', 'acme', '{}', %I => %L)$$, field, value))
  from (values ('subject_type', ''), ('subject_id', ''), ('source', repeat('x', 513)), ('scope', ''), ('schema_version', ''), ('correlation_id', repeat('é', 257))) as bad (field, value);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}', subject_type => 'customer')$$);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}', subject_id => 'c-1')$$);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}', subject_version => 1)$$);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}', causation => 'evt_1')$$);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}', traceparent => '00-00000000000000000000000000000000-00f067aa0ba902b7-01')$$);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}', occurred_at => 'infinity')$$);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}', occurred_at => '-infinity')$$);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}', occurred_at => '10000-01-01 00:00:00+00')$$);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}', occurred_at => '0001-01-01 00:00:00+00 BC')$$);
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}', idempotency_key => '')$$);
select pg_temp.failure(format($$select webhook.emit('a.b', 'acme', '{}', idempotency_key => %L)$$, repeat('x', 513)));

-- Size: the limit counts the bytes that are sent.
select pg_temp.failure($$select webhook.emit('a.b', 'acme', to_jsonb(repeat('x', 256 * 1024 - 1)))$$);
select pg_temp.failure($$select webhook.emit_json('a.b', 'acme', to_json(repeat('é', 128 * 1024)))$$);
begin;
select webhook.emit('a.b', 'acme', to_jsonb(repeat('x', 256 * 1024 - 2))) as id \gset
select octet_length(body) from webhook._event where event_id = :'id';
rollback;

-- Sessions that cannot write.
begin read only;
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}')$$);
rollback;

-- A function that calls emit and is declared PARALLEL SAFE by mistake.
begin;
create function public.mislabelled() returns text language plpgsql parallel safe as $$ begin return webhook.emit('a.b', 'acme', '{}'); end $$;
select set_config(case when current_setting('server_version_num')::integer < 160000 then 'force_parallel_mode' else 'debug_parallel_query' end, 'on', true);
select public.mislabelled();
rollback;

-- Privileges: EXECUTE is all that an emitter needs, and gives no right to the tables.
create role regress_webhook_emitter;
set role regress_webhook_emitter;
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}')$$);
reset role;
grant usage on schema webhook to regress_webhook_emitter;
set role regress_webhook_emitter;
select pg_temp.failure($$select webhook.emit('a.b', 'acme', '{}')$$);
reset role;
grant execute on function webhook.emit to regress_webhook_emitter;
begin;
set local role regress_webhook_emitter;
select webhook.emit('by.role', 'acme', '{}') as id \gset
select current_user;
select pg_temp.failure($$select count(*) from webhook._event$$);
select pg_temp.failure($$insert into webhook._event default values$$);
reset role;
select count(*) from webhook._event where event_id = :'id';
rollback;

-- The caller's search_path and operators do not reach the insert.
begin;
create schema regress_evil;
create function regress_evil.pg_current_xact_id() returns xid8 language plpgsql as $$ begin raise exception 'called'; end $$;
create function regress_evil.same(bigint, bigint) returns boolean language plpgsql as $$ begin raise exception 'called'; end $$;
create operator regress_evil.= (leftarg = bigint, rightarg = bigint, function = regress_evil.same);
grant usage on schema regress_evil to regress_webhook_emitter;
set local search_path = regress_evil, pg_catalog;
set local role regress_webhook_emitter;
select count(*) from (select webhook.emit('a.b', 'acme', '{}', idempotency_key => 'evil')) as e;
rollback;

-- A row goes into the partition of its day, by whichever way it is written.
begin;
select webhook.emit('a.b', 'acme', '{}', subject_type => 'order', subject_id => '1', correlation_id => 'c') as before \gset
create table webhook.regress_today (like webhook._event_default including all);
select format('alter table webhook._event attach partition webhook.regress_today for values from (%L) to (%L)',
              :'before' || '0', 'evt_' || repeat('Z', 26)) as attach \gset
-- Whatever days there are already are in the way of so wide a range.
do $$
declare
  day regclass;
begin
  for day in select inhrelid from pg_inherits where inhparent = 'webhook._event'::regclass and inhrelid <> 'webhook._event_default'::regclass loop
    execute format('alter table webhook._event detach partition %s', day);
  end loop;
end
$$;
:attach;
select webhook.emit('a.b', 'acme', '{}', subject_type => 'order', subject_id => '1', correlation_id => 'c') as quick \gset
select tableoid::regclass from webhook._event where event_id in (:'before', :'quick') order by event_id;
set local enable_seqscan = off;
select count(*) from webhook.regress_today where event_id = :'quick';
select count(*) from webhook.regress_today where xid = pg_current_xact_id();
select count(*) from webhook.regress_today where subject_type = 'order' and subject_id = '1';
select count(*) from webhook.regress_today where correlation_id = 'c';
-- What an operator has added is obeyed, and the rest of the row is the same.
alter table webhook.regress_today add constraint regress_checked check (partner_id <> 'refused');
do $$ begin perform webhook.emit('a.b', 'refused', '{}'); exception when check_violation then raise notice 'refused'; end $$;
select webhook.emit('a.b', 'acme', '{}', subject_type => 'order', subject_id => '1', correlation_id => 'c') as checked \gset
alter table webhook.regress_today drop constraint regress_checked;
create function regress_told() returns trigger language plpgsql as $$ begin raise warning 'told of %', new.type; return null; end $$;
create trigger regress_told after insert on webhook._event for each row execute function regress_told();
select webhook.emit('a.b', 'acme', '{}', subject_type => 'order', subject_id => '1', correlation_id => 'c') as told \gset
drop trigger regress_told on webhook._event;
alter table webhook._event add column regress_more integer;
alter table webhook._event drop column regress_more;
select webhook.emit('a.b', 'acme', '{}', subject_type => 'order', subject_id => '1', correlation_id => 'c') as altered \gset
select count(*), count(distinct to_jsonb(e) - array['event_id', 'occurred_at', 'seal']), count(distinct seal)
  from webhook.regress_today e where event_id in (:'quick', :'checked', :'told', :'altered');
rollback;

-- The events of one statement see each other, and so does what is called between them.
begin;
select count(distinct webhook.emit('a.b', 'acme', jsonb_build_object('n', n % 2), idempotency_key => 'key ' || n % 2)) from generate_series(1, 10) as n;
create function regress_seen() returns bigint language sql volatile as $$ select count(*) from webhook._event where xid = pg_current_xact_id() $$;
select webhook.emit('a.b', 'acme', '{}') is not null, regress_seen();
rollback;

-- A savepoint takes its events back; a long payload is stored as any other.
begin;
savepoint s;
select webhook.emit('a.b', 'acme', '{}') as gone \gset
rollback to s;
select webhook.emit('a.b', 'acme', to_jsonb(repeat('long ', 20000))) as kept \gset
select count(*), max(length(body)) from webhook._event where event_id in (:'gone', :'kept');
rollback;

revoke all on schema webhook from regress_webhook_emitter;
revoke all on function webhook.emit from regress_webhook_emitter;
drop role regress_webhook_emitter;
