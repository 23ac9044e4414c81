-- Every verb leaves exactly one audit row, in the transaction of the call. A verb is a public function that may write;
-- those that change nothing anybody administers are exempt, and named here.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

create view pg_temp.verb as
select distinct p.proname::text as name
  from pg_proc p
 where p.pronamespace = 'webhook'::regnamespace
   and p.prokind = 'f'
   and p.provolatile = 'v'
   and p.proname not like '\_%'
   and p.proname not in (
     'emit', 'emit_json', 'observe', -- events are their own evidence
     'verify', 'explain_signature', -- volatile, because they read the clock
     'receive', 'claim_inbox', 'finish_inbox', -- the inbox is their evidence
     'dry_run',           -- writes nothing
     'status', 'report', 'metrics', 'dashboard'); -- volatile, because they read shared memory
select name from pg_temp.verb order by 1;

-- Nothing is committed below: no leader acts on it.
begin;
create temp table call (statement text, entries bigint) on commit drop;
-- Runs a statement and counts the entries that it left.
create function pg_temp.act(statement text) returns bigint language plpgsql as $$
declare
  before constant bigint := (select count(*) from webhook.audit_log);
  entries bigint;
begin
  execute statement;
  entries := (select count(*) from webhook.audit_log) - before;
  insert into call (statement, entries) values (act.statement, entries);
  return entries;
end
$$;
select endpoint_id as hook from webhook.create_endpoint('regress.audit', 'https://127.0.0.1/token-1?key=token-2', verify => 'none') \gset
select webhook.emit('order.paid', 'regress.audit', '{"card": "confidential"}') as event \gset
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision) values (:hook, :'event', 'dead', 1, 0, 1);
select webhook._delivery_id(:'event', :hook) as dead \gset
-- An origin that could be adopted.
insert into webhook._seal_key (key_id, origin, key) values (1, 4711, '\x00');
-- A received event that could not be processed.
insert into webhook._inbox_source (source_id, name, profile, partner_id, tolerance, validation, same_body, max_body, max_pending)
values (1, 'regress.made', 'v1', 'regress.audit', '5 min', 'off', true, 1, 1);
insert into webhook._inbox_handler (name, origin, version, event_types, retry_schedule, subject_versions)
values ('regress.made', webhook._origin(), '1', '{*}', '', true);
insert into webhook._inbox (inbox_id, source_id, event_id, partner_id, bytes, body) values (1, 1, 'evt_in', 'regress.audit', 12, 'confidential');
insert into webhook._inbox_run (inbox_id, source_id, handler, version, state, next_attempt_at) values (1, 1, 'regress.made', '1', 'dead', now());
delete from webhook._audit;
create role regress_webhook_granted;
create function public.regress_audit_changes(timestamptz, timestamptz) returns table (subject_id text, changed_at timestamptz)
  language sql security definer set search_path = pg_catalog as $$ select '1', now() where false $$;
-- A function that can be a conversion.
create schema regress_audit;
create function regress_audit.same(jsonb) returns jsonb language sql immutable as 'select $1';
grant usage, create on schema regress_audit to regress_webhook_granted;
alter function regress_audit.same(jsonb) owner to regress_webhook_granted;
set local application_name = 'the regress test';
select sum(pg_temp.act(statement)), count(*)
  from (values
    ($$select webhook.create_policy('regress', rate => 1)$$),
    ($$select webhook.update_policy('regress', rate => 2)$$),
    ($$select webhook.create_event_type('regress.made')$$),
    ($$select webhook.update_event_type('regress.made', 0)$$),
    ($$select webhook.deprecate_event_type('regress.made', 'unused')$$),
    ($$select webhook.add_schema('regress.made', '1', 'true', '{"card": "confidential"}')$$),
    ($$select webhook.update_schema('regress.made', '1', mode => 'off')$$),
    ($$select webhook.add_schema('regress.made', '2', 'true', '{}')$$),
    ($$select webhook.create_conversion('regress.made', '1', '2', 'regress_audit.same(jsonb)', 'to two')$$),
    ($$select webhook.delete_conversion('regress.made', '1', '2', 'over')$$),
    ($$select webhook.create_source('regress')$$),
    ($$select webhook.update_source('regress', enabled => false)$$),
    ($$select webhook.create_threshold('regress', 'one', 1, 'regress.made')$$),
    ($$select webhook.delete_threshold('regress', 'one')$$),
    ($$select webhook.create_endpoint('regress.audit', 'https://127.0.0.1/token-3', verify => 'none')$$),
    (format($$select webhook.update_endpoint(%s, url => 'https://127.0.0.2/token-4', policy => 'regress')$$, :hook)),
    ($$select webhook.preview_filter('regress.audit', filter => '$.n > 1', since => '2026-01-01 00:00+00')$$),
    (format($$select webhook.update_endpoint(%s)$$, :hook)),
    (format($$select webhook.pause('endpoint', '%s', 'wait')$$, :hook)),
    (format($$select webhook.resume('endpoint', '%s')$$, :hook)),
    ($$select webhook.pause('all', null, 'wait')$$),
    ($$select webhook.resume('all')$$),
    ($$select webhook.pause('partner', 'regress.audit', 'wait')$$),
    ($$select webhook.resume('partner', 'regress.audit')$$),
    ($$select webhook.pause('event_type', 'order.paid', 'wait')$$),
    ($$select webhook.resume('event_type', 'order.paid')$$),
    (format($$select webhook.send_test(%s)$$, :hook)),
    (format($$select webhook.replay('%s')$$, :'event')),
    (format($$select webhook.replay('%s', %s)$$, :'event', :hook)),
    ($$select webhook.replay_range('regress.audit', now() - interval '1 day', now(), 'again')$$),
    ($$select webhook.cancel_replay((select max(request_id) from webhook.replays), 'enough')$$),
    (format($$select webhook.retry('%s', 'try')$$, :'dead')),
    (format($$select webhook.retry('{%s}'::text[], 'try')$$, :'dead')),
    (format($$select webhook.skip('%s', 'old')$$, :'dead')),
    (format($$select webhook.skip('{%s}'::text[], 'old')$$, :'dead')),
    (format($$select webhook.close('%s', 'done')$$, :'dead')),
    (format($$select webhook.close('{%s}'::text[], 'done')$$, :'dead')),
    (format($$select webhook.correct('%s', '{"card": "confidential"}', 'mended')$$, :'dead')),
    ($$select webhook.retry_inbox('evt_in', 'regress.made', 'try')$$),
    ($$select webhook.close_inbox('evt_in', 'regress.made', 'done')$$),
    ($$select webhook.replay_inbox('regress.made', 'again')$$),
    ($$select webhook.pause_inbox('regress.made', 'wait')$$),
    ($$select webhook.resume_inbox('regress.made')$$),
    ($$select webhook.create_inbox_source('regress', 'github', 'regress.audit')$$),
    ($$select webhook.update_inbox_source('regress', enabled => false)$$),
    ($$select webhook.add_inbox_key('regress', 'token-5')$$),
    ($$select webhook.add_inbox_key('regress')$$),
    ($$select webhook.revoke_inbox_key((select max(key_id) from webhook.inbox_keys), 'leaked')$$),
    ($$select webhook.create_inbox_handler('regress')$$),
    ($$select webhook.update_inbox_handler('regress', version => '2')$$),
    ($$select webhook.delete_inbox_handler('regress', 'unused')$$),
    (format($$select webhook.disable_endpoint(%s, 'off')$$, :hook)),
    (format($$select webhook.enable_endpoint(%s)$$, :hook)),
    (format($$select webhook.rotate_secret(%s)$$, :hook)),
    (format($$select webhook.confirm_rotation(%s)$$, :hook)),
    (format($$select webhook.revoke_secret(%s, 'leaked')$$, :hook)),
    ($$select webhook.reencrypt_secrets()$$),
    ($$select webhook.rotate_seal_key()$$),
    (format($$select webhook.verify_endpoint(%s, 'none', 'vouched for')$$, :hook)),
    (format($$select webhook.verify_endpoint(%s, 'slack')$$, :hook)),
    (format($$select webhook.verify_endpoint(%s)$$, :hook)),
    (format($$select webhook.renew_endpoint(%s, '2999-01-01 00:00:00+00')$$, :hook)),
    (format($$select webhook.delete_endpoint(%s, 'over')$$, :hook)),
    ($$select webhook.delete_policy('regress')$$),
    ($$select webhook.grant_access('regress_webhook_granted', 'emit', 'regress.audit', '{order.*}')$$),
    ($$select webhook.revoke_access('regress_webhook_granted', 'emit', 'regress.audit')$$),
    (format($$select webhook.read_payload('%s', 'look')$$, :'event')),
    ($$select webhook.adopt(4711, 'skip', 'moved')$$),
    (format($$select webhook.expunge('asked for', event_id => '%s')$$, :'event')),
    ($$select webhook.confirm_erasure(max(erasure_id)) from webhook.erasures$$),
    ($$select webhook.create_reconciliation('regress', 'order.paid', 'order', 'public.regress_audit_changes(timestamptz, timestamptz)')$$),
    ($$select webhook.reconcile(repair => false)$$),
    ($$select webhook.delete_reconciliation('regress')$$),
    ($$select webhook.offboard('regress.audit', 'over')$$)) as v (statement);

-- Verbs that this script did not try, or that left no entry.
select v.name from pg_temp.verb v where not exists (select from webhook.audit_log a where a.verb = v.name);
-- Calls that left none, or more than one.
select statement, entries from call where entries <> 1;
-- Entries of what is no verb.
select verb from webhook.audit_log where verb not in (select name from pg_temp.verb);
-- Entries that do not say who and what.
select verb from webhook.audit_log where actor <> session_user or application is distinct from 'the regress test' or client is not null or at is null;
select verb, object_kind from webhook.audit_log where object_id is null and object_kind <> 'all';
-- A verb that leaves a request names it, and one that gives a reason says it.
select a.verb from webhook.audit_log a join webhook.requests r using (request_id) where a.verb <> r.verb order by 1;
select count(*) from webhook.requests r where r.requested_at >= now() and not exists (select from webhook.audit_log a where a.request_id = r.request_id);
select distinct verb from webhook.audit_log where reason is null order by 1;
-- Neither payload nor token.
select verb from webhook.audit_log a where a::text ~ 'token|confidential|whsec_';
select before ->> 'url', after ->> 'url' from webhook.audit_log where verb = 'update_endpoint' order by at;
select concat_ws(' ', object_kind, verb), replace(before::text, :'hook', '<id>'), regexp_replace(after::text, '"(evt_)?\d[0-9A-Z]{9,}"', '<id>') from webhook.audit_log where verb !~ '_secrets?$|_rotation$|_seal_key$|^reconcile$|^replay_range$' order by at;

-- Who fails or takes it back leaves nothing.
savepoint before_pause;
select webhook.pause('all', null, 'or not') > 0;
rollback to before_pause;
select count(*) from webhook.audit_log where reason = 'or not';

-- Who may call a verb cannot write the log.
create role regress_webhook_operator;
grant usage on schema webhook to regress_webhook_operator;
grant execute on function webhook.pause to regress_webhook_operator;
set local role regress_webhook_operator;
select webhook.pause('all', null, 'as another role') > 0;
select pg_temp.failure($$delete from webhook._audit$$);
select pg_temp.failure($$select * from webhook.audit_log$$);
select pg_temp.failure($$select webhook._log('pause', 'all', null)$$);
select pg_temp.failure($$select webhook._emit_reserved('webhook.test', 'acme', '{}')$$);
reset role;
select actor = session_user from webhook.audit_log where reason = 'as another role';
rollback;

-- Entries of one session sort in the order of the acts, however fast they follow each other.
select bool_and(rises) from (select id > lag(id) over () as rises
                               from (select webhook._new_id() as id from generate_series(1, 10000)) as ids) as pairs;
