-- Registering event types and their priority; every refusal.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Nothing is committed below: no leader acts on it.
begin;
select webhook.create_event_type('order.urgent', 0);
select webhook.create_event_type('order.late');
select name, priority from webhook.event_types where name like 'order.%' order by name;
select webhook.update_event_type('order.late', 0);
select webhook.update_event_type('order.urgent', priority => 1);
select name, priority from webhook.event_types where name like 'order.%' order by name;
select bool_and(changed_xid = pg_current_xact_id()) from webhook._event_type where name like 'order.%';
select verb, object_id, before, after from webhook.audit_log where object_kind = 'event_type' and object_id like 'order.%' order by at;

select pg_temp.failure($$select webhook.create_event_type('order.late')$$);
select pg_temp.failure($$select webhook.create_event_type(null)$$);
select pg_temp.failure($$select webhook.create_event_type('a.b', null)$$);
select pg_temp.failure($$select webhook.create_event_type('order.*')$$);
select pg_temp.failure($$select webhook.create_event_type('')$$);
select pg_temp.failure($$select webhook.create_event_type('webhook.test')$$);
select pg_temp.failure($$select webhook.create_event_type('a.b', 2)$$);
select pg_temp.failure($$select webhook.create_event_type('a.b', -1)$$);
select pg_temp.failure($$select webhook.create_event_type('a.b', 100000)$$);
select pg_temp.failure($$select webhook.update_event_type(null, 1)$$);
select pg_temp.failure($$select webhook.update_event_type('order.late', null)$$);
select pg_temp.failure($$select webhook.update_event_type('order.late', 2)$$);
select pg_temp.failure($$select webhook.update_event_type('no.such', 1)$$);
rollback;

-- Sessions that cannot write.
begin read only;
select pg_temp.failure($$select webhook.create_event_type('a.b')$$);
select pg_temp.failure($$select webhook.update_event_type('a.b', 1)$$);
rollback;
