-- Offboarding a partner: every endpoint, its keys, and what is refused.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Nothing is committed below: no leader acts on it.
begin;
select count(webhook.create_endpoint('leaver', 'https://127.0.0.1/' || n, verify => 'none')) from generate_series(1, 3) as n;
select endpoint_id as stays from webhook.create_endpoint('stayer', 'https://127.0.0.1/', verify => 'none') \gset
select webhook.delete_endpoint(min(endpoint_id), 'earlier') from webhook.endpoints where partner_id = 'leaver';
select webhook.offboard('leaver', ' contract ended ');
select state, state_reason, key_ids, count(*) from webhook.endpoints where partner_id = 'leaver' group by 1, 2, 3 order by 2;
select count(*) from webhook._secret s join webhook._endpoint e using (endpoint_id) where e.partner_id = 'leaver';
select array_agg(generation order by generation), bool_and(changed_xid = pg_current_xact_id()) from webhook._endpoint where partner_id = 'leaver';
select state, cardinality(key_ids) from webhook.endpoints where endpoint_id = :stays;
select verb, object_kind, object_id, partner_id, before, after, reason from webhook.audit_log where verb = 'offboard';
-- Nothing is left, which is no error.
select webhook.offboard('leaver', 'to be sure');
select pg_temp.failure($$select webhook.offboard('nobody', 'x')$$);
select pg_temp.failure($$select webhook.offboard(null, 'x')$$);
select pg_temp.failure($$select webhook.offboard('leaver', null)$$);
select pg_temp.failure($$select webhook.offboard('leaver', '  ')$$);
rollback;

-- What the partner sends is not taken any more; of a source that speaks for several, the others stay.
begin;
select webhook.create_inbox_source('own', 'v1', 'leaver'), webhook.create_inbox_source('other', 'v1', 'stayer'),
       webhook.create_inbox_source('shared', 'stripe', partner_from => 'body:/account', partners => '{stayer,leaver}'),
       webhook.create_inbox_source('alone', 'stripe', partner_from => 'body:/account', partners => '{leaver}'),
       webhook.create_inbox_source('anybody', 'stripe', partner_from => 'body:/account');
select count(webhook.add_inbox_key(name)) from webhook.inbox_sources where profile = 'v1';
select webhook.offboard('leaver', 'contract ended');
select name, enabled, partners, keys from webhook.inbox_sources where name in ('own', 'other', 'shared', 'alone', 'anybody') order by 1;
select source, in_force, encrypted is null from webhook.inbox_keys where source in ('own', 'other') order by 1;
select http_status, reason from webhook.receive('own', '{}', '{}');
select after from webhook.audit_log where verb = 'offboard';
rollback;

-- Sessions that cannot write.
begin read only;
select pg_temp.failure($$select webhook.offboard('leaver', 'x')$$);
rollback;
