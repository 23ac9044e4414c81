-- Rights: what each kind holds, read from the catalogue; what a role can do with them; how they are given and taken.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never
set timezone = 'UTC';

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Every public function and view with the kinds that have it.
select o.what, o.name, coalesce(string_agg(distinct k.kind, ' ' order by k.kind), 'nobody but the owner')
  from (select 'view' as what, c.relname::text as name from pg_class c where c.relnamespace = 'webhook'::regnamespace and c.relkind = 'v'
         union
        select 'function', p.proname::text from pg_proc p where p.pronamespace = 'webhook'::regnamespace) as o
  left join webhook._access_list() as l on l.name = o.name
  left join lateral string_to_table(l.kinds, ' ') as k (kind) on true
 where o.name not like '\_%'
 group by 1, 2
 order by 1, 2;
-- A name stands once in the list, with kinds that exist.
select l.name from webhook._access_list() as l group by l.name having count(*) > 1;
select distinct k from webhook._access_list() as l cross join lateral string_to_table(l.kinds, ' ') as k
 where k not in ('emit', 'read', 'operate', 'partner', 'audit', 'payload', 'receive', 'handle', 'feed');
-- What others than a superuser can run with the owner's rights, and why is written in the source beside each.
select p.proname, p.proconfig
  from pg_proc p
 where p.pronamespace = 'webhook'::regnamespace and p.prosecdef and not coalesce('search_path=pg_catalog, webhook, pg_temp' = any (p.proconfig), false);

-- Views belong to a role that can do nothing; it reads no secret, no seal, no payload beyond its length.
select rolcanlogin, rolsuper, rolbypassrls, rolinherit from pg_roles where rolname = 'webhook_views';
select c.relname from pg_class c where c.relnamespace = 'webhook'::regnamespace and c.relkind = 'v' and c.relowner <> 'webhook_views'::regrole;
-- None of them reads a view that policies do not bind: _seen_endpoint is for them, _effective_endpoint for the verbs. But for
-- the two that tell which databases' events are here, and nothing of anybody's.
select distinct v.relname, other.relname
  from pg_class v
  join pg_rewrite r on r.ev_class = v.oid
  join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_class'::regclass and d.refobjid <> v.oid
  join pg_class other on other.oid = d.refobjid and other.relkind = 'v' and other.relnamespace = 'webhook'::regnamespace
 where v.relowner = 'webhook_views'::regrole and other.relowner <> v.relowner;
select c.relname, a.attname
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
 where c.relnamespace = 'webhook'::regnamespace and c.relkind in ('r', 'p')
   and has_column_privilege('webhook_views', c.oid, a.attnum, 'select')
   and a.attname ~ 'secret|^seal$|^key$|^body$|cipher';
select c.relname from pg_class c
 where c.relnamespace = 'webhook'::regnamespace and c.relkind in ('r', 'p', 'v', 'S') and c.relowner <> 'webhook_views'::regrole
   and has_table_privilege('webhook_views', c.oid, 'insert, update, delete, truncate, references, trigger');
-- Tables that its views read and that no policy guards: none has a tenant's rows that a condition could reach.
select c.relname
  from pg_class c
 where c.relnamespace = 'webhook'::regnamespace and c.relkind in ('r', 'p') and not c.relrowsecurity
   and has_any_column_privilege('webhook_views', c.oid, 'select')
 order by 1;

-- Each kind gives exactly what its list says.
begin;
create function pg_temp.held(role text) returns setof text language sql as $$
  select c.relname::text from pg_class c
   where c.relnamespace = 'webhook'::regnamespace and c.relkind in ('r', 'p', 'v', 'S')
     and has_table_privilege(role, c.oid, 'select, insert, update, delete, truncate, references, trigger')
   union
  select p.proname::text from pg_proc p where p.pronamespace = 'webhook'::regnamespace and has_function_privilege(role, p.oid, 'execute')
$$;
create function pg_temp.listed(kind text) returns setof text language sql as $$
  select l.name from webhook._access_list() as l
   where kind = any (string_to_array(l.kinds, ' '))
     and (exists (select from pg_proc p where p.pronamespace = 'webhook'::regnamespace and p.proname = l.name)
          or exists (select from pg_class c where c.relnamespace = 'webhook'::regnamespace and c.relname = l.name))
$$;
do $$
declare
  kind text;
begin
  foreach kind in array '{emit,read,operate,partner,audit,payload,feed}'::text[] loop
    execute format('create role %I', 'regress_' || kind);
    perform webhook.grant_access(('regress_' || kind)::name, kind, case when kind in ('partner', 'feed') then 'acme' end);
  end loop;
end
$$;
select k.kind, count(o.has) as has, count(*) filter (where o.has is null) as missing, count(*) filter (where o.lists is null) as beyond
  from unnest('{emit,read,operate,partner,audit,payload,feed}'::text[]) as k (kind)
 cross join lateral
       (select h.name as has, l.name as lists
          from pg_temp.held('regress_' || k.kind) as h (name)
          full join pg_temp.listed(k.kind) as l (name) on h.name = l.name) as o
 group by k.kind
 order by k.kind;
select role, kind, partner_id, event_types, valid_until - granted_at between interval '59 minutes' and interval '61 minutes', granted_by = session_user
  from webhook.access_rights order by kind;
-- Each can be used: no view and no list lacks a right somewhere inside.
set local role regress_read;
select 'events', count(published_at) from webhook.events;
select 'deliveries', count(held_by) from webhook.deliveries;
select 'attempts', count(detail) from webhook.attempts;
select 'dead_letters', count(last_detail) from webhook.dead_letters;
select 'endpoints', count(url) from webhook.endpoints;
select 'endpoint_health', count(disable_at) from webhook.endpoint_health;
select 'stat_endpoint', count(due) from webhook.stat_endpoint;
select 'alerts', count(*) from webhook.alerts;
select 'requests', count(*) from webhook.requests;
select 'policies', count(*) from webhook.policies;
select 'pauses', count(paused_by) from webhook.pauses;
select 'event_types', count(*) from webhook.event_types;
select 'status', count(*), bool_and(worker is not null) from webhook.status();
select count(*) from webhook.list_events('acme');
select count(*) from webhook.list_deliveries('acme');
select pg_temp.failure($$select webhook.read_excerpt('dlv_1', 1)$$);
set local role regress_audit;
select count(*) > 0 from webhook.audit_log;
select count(*) from webhook.access_rights;
set local role regress_partner;
select count(*) from webhook.list_events('acme');
select count(*) from webhook.list_deliveries('acme', state => 'dead');
reset role;
rollback;

-- Refusals.
create role regress_webhook_a;
create role regress_webhook_b;
create role regress_webhook_super superuser;
select pg_temp.failure(statement)
  from (values
    ($$select webhook.grant_access(null, 'read')$$),
    ($$select webhook.grant_access('regress_webhook_a', null)$$),
    ($$select webhook.grant_access('regress_webhook_a', 'write')$$),
    ($$select webhook.grant_access('regress_webhook_nobody', 'read')$$),
    ($$select webhook.grant_access('public', 'read')$$),
    ($$select webhook.grant_access('regress_webhook_a', 'partner')$$),
    ($$select webhook.grant_access('regress_webhook_a', 'read', 'acme')$$),
    ($$select webhook.grant_access('regress_webhook_a', 'partner', 'ac me')$$),
    ($$select webhook.grant_access('regress_webhook_a', 'partner', 'acme', '{order.*}')$$),
    ($$select webhook.grant_access('regress_webhook_a', 'emit', event_types => '{}')$$),
    ($$select webhook.grant_access('regress_webhook_a', 'emit', event_types => '{"not a type"}')$$),
    ($$select webhook.grant_access('regress_webhook_a', 'emit', valid_until => now() + interval '1 day')$$),
    ($$select webhook.grant_access('regress_webhook_a', 'payload', valid_until => now() + interval '8 days')$$),
    ($$select webhook.grant_access('regress_webhook_a', 'payload', valid_until => now() - interval '1 second')$$),
    ($$select webhook.grant_access('regress_webhook_a', 'payload', valid_until => 'infinity')$$),
    ($$select webhook.grant_access('regress_webhook_super', 'partner', 'acme')$$),
    ($$select webhook.revoke_access('regress_webhook_a', 'read')$$),
    ($$select webhook.revoke_access('regress_webhook_a', 'partner', 'acme')$$),
    ($$select webhook.revoke_access('regress_webhook_a', 'partner')$$),
    ($$select webhook.revoke_access('regress_webhook_nobody', 'read')$$)) as v (statement);
set default_transaction_read_only = on;
select pg_temp.failure($$select webhook.grant_access('regress_webhook_a', 'read')$$);
select pg_temp.failure($$select webhook.revoke_access('regress_webhook_a', 'read')$$);
select pg_temp.failure($$select webhook.read_payload('evt_1', 'a reason')$$);
set default_transaction_read_only = off;

-- A role that sees everything is no partner's, and the reverse.
begin;
select webhook.grant_access('regress_webhook_a', 'read');
grant regress_webhook_a to regress_webhook_b;
select pg_temp.failure($$select webhook.grant_access('regress_webhook_b', 'partner', 'acme')$$);
revoke regress_webhook_a from regress_webhook_b;
select webhook.grant_access('regress_webhook_b', 'partner', 'acme');
select pg_temp.failure($$select webhook.grant_access('regress_webhook_b', 'operate')$$);
rollback;

-- Rights add up; what is taken leaves what others need; the last one takes the schema along.
begin;
select webhook.grant_access('regress_webhook_a', 'operate');
select webhook.grant_access('regress_webhook_a', 'read');
select webhook.grant_access('regress_webhook_a', 'emit', 'acme', '{order.*,order.*}');
select webhook.grant_access('regress_webhook_a', 'emit', 'acme', '{invoice.paid}');
select webhook.grant_access('regress_webhook_a', 'emit', 'beta');
select kind, partner_id, event_types from webhook.access_rights order by kind, partner_id;
select webhook.revoke_access('regress_webhook_a', 'operate');
select has_function_privilege('regress_webhook_a', 'webhook.list_events(text, text, timestamptz, timestamptz, text, integer)', 'execute'),
       has_function_privilege('regress_webhook_a', 'webhook.pause(text, text, text)', 'execute'),
       has_function_privilege('regress_webhook_a', 'webhook._worker()', 'execute');
select webhook.revoke_access('regress_webhook_a', 'read');
select webhook.revoke_access('regress_webhook_a', 'emit', 'beta');
select has_function_privilege('regress_webhook_a', 'webhook.emit_json(text, text, json, text, text, bigint, text, text, timestamptz, text, text, text, text, text, boolean)', 'execute');
select webhook.revoke_access('regress_webhook_a', 'emit', 'acme');
select count(*) from webhook.access_rights;
select count(*) from pg_proc p cross join lateral aclexplode(p.proacl) as a where a.grantee = 'regress_webhook_a'::regrole;
select has_schema_privilege('regress_webhook_a', 'webhook', 'usage');
select actor = session_user, verb, object_kind, object_id, partner_id, before, after from webhook.audit_log where object_id = 'regress_webhook_a' order by audit_id;
rollback;

-- Emit, narrowed: the words of the refusal name nobody.
begin;
select webhook.grant_access('regress_webhook_a', 'emit', 'acme', '{order.*}');
select webhook.grant_access('regress_webhook_a', 'emit', null, '{audit.made}');
set local role regress_webhook_a;
select webhook.emit('order.paid', 'acme', '{}') is not null, webhook.emit_json('audit.made', 'anybody', '{}') is not null;
select pg_temp.failure($$select webhook.emit('order.paid', 'other', '{}')$$);
select pg_temp.failure($$select webhook.emit_json('invoice.paid', 'acme', '{}')$$);
select pg_temp.failure($$select webhook.emit('order.paid', 'other', '{}', idempotency_key => 'k')$$);
reset role;
-- A member has the rights of its group; without INHERIT only when it acts as the group.
grant regress_webhook_a to regress_webhook_b;
set local role regress_webhook_b;
select webhook.emit('order.paid', 'acme', '{}') is not null;
select pg_temp.failure($$select webhook.emit('order.paid', 'other', '{}')$$);
reset role;
-- One right for everything lifts the limits of the others.
select webhook.grant_access('regress_webhook_b', 'emit');
set local role regress_webhook_b;
select webhook.emit('order.paid', 'other', '{}') is not null;
reset role;
-- A privilege that came otherwise is not limited, and neither is the owner.
create role regress_webhook_c;
grant usage on schema webhook to regress_webhook_c;
grant execute on function webhook.emit to regress_webhook_c;
set local role regress_webhook_c;
select webhook.emit('order.paid', 'other', '{}') is not null;
reset role;
select webhook.emit('order.paid', 'other', '{}') is not null;
rollback;

-- Reading a payload: a right of its own, that ends, and leaves a trace.
begin;
select webhook.emit_json('order.paid', 'acme', '{"total":  1.10}') as event \gset
select webhook.emit('order.paid', 'rival', '{}') as foreign_event \gset
select webhook.grant_access('regress_webhook_a', 'read');
set local role regress_webhook_a;
select pg_temp.failure(format($$select webhook.read_payload(%L, 'a reason')$$, :'event'));
reset role;
-- EXECUTE alone is not enough.
grant execute on function webhook.read_payload to regress_webhook_a;
set local role regress_webhook_a;
select pg_temp.failure(format($$select webhook.read_payload(%L, 'a reason')$$, :'event'));
reset role;
select webhook.grant_access('regress_webhook_a', 'payload', 'acme', '{order.*}');
insert into webhook._event_version (event_id, version, partner_id, failure, seal, body_sha256, body)
values (:'event', '2', 'acme', null, '', '', '{"in": 2}'), (:'event', '3', 'acme', 'it failed', '', '', null);
set local role regress_webhook_a;
select webhook.read_payload(:'event', '  ticket 7 ');
-- As an endpoint gets it that is pinned to another schema version.
select webhook.read_payload(:'event', 'ticket 8', '2');
select replace(pg_temp.failure(format($$select webhook.read_payload(%L, 'a reason', %L)$$, :'event', v)), :'event', 'evt_1') from unnest('{3,4}'::text[]) as v;
-- Foreign and absent: the same words.
select replace(pg_temp.failure(format($$select webhook.read_payload(%L, 'a reason')$$, :'foreign_event')), :'foreign_event', 'evt_1')
     = pg_temp.failure($$select webhook.read_payload('evt_1', 'a reason')$$);
select pg_temp.failure($$select webhook.read_payload('evt_1', 'a reason')$$);
select pg_temp.failure($$select webhook.read_payload(null, 'a reason')$$);
select pg_temp.failure($$select webhook.read_payload('evt_1', null)$$);
select pg_temp.failure($$select webhook.read_payload('evt_1', ' ')$$);
reset role;
select verb, object_kind, object_id = :'event', partner_id, before, after, reason from webhook.audit_log where verb = 'read_payload';
update webhook._event set body = null where event_id = :'event';
set local role regress_webhook_a;
select replace(pg_temp.failure(format($$select webhook.read_payload(%L, 'a reason')$$, :'event')), :'event', 'evt_1');
reset role;
-- Over.
update webhook._access set valid_until = clock_timestamp() where kind = 'payload';
set local role regress_webhook_a;
select pg_temp.failure(format($$select webhook.read_payload(%L, 'a reason')$$, :'event'));
reset role;
rollback;

-- What readers are not shown: the path of a URL, and where a blocked name leads.
begin;
select endpoint_id as hook from webhook.create_endpoint('acme', 'https://127.0.0.1/token-1?key=token-2', verify => 'none') \gset
select webhook.emit('order.paid', 'acme', '{}') as event \gset
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision) values (:hook, :'event', 'dead', 1, 0, 1);
insert into webhook._attempt (event_id, endpoint_id, attempt_no, started_at, incarnation, outcome, error_category, detail)
values (:'event', :hook, 1, now(), 1, 'dead', 'blocked', 'host resolves to 10.1.2.3, which is in 10.0.0.0/8');
insert into webhook._verification (verification_id, endpoint_id, proof_generation, method, host, result, error_category, detail)
values (1, :hook, 1, 'challenge', '127.0.0.1', 'failed', 'blocked', 'host resolves to 10.1.2.3, which is in 10.0.0.0/8');
select webhook.grant_access('regress_webhook_a', 'read');
select webhook.grant_access('regress_webhook_b', 'partner', 'acme');
set local role regress_webhook_a;
select url, detail, last_detail from webhook.endpoints join webhook.attempts using (endpoint_id) join webhook.dead_letters using (endpoint_id) where endpoint_id = :hook;
select detail from webhook.verifications where endpoint_id = :hook and error_category = 'blocked';
set local role regress_webhook_b;
select url, detail, last_detail from webhook.endpoints join webhook.attempts using (endpoint_id) join webhook.dead_letters using (endpoint_id) where endpoint_id = :hook;
select detail from webhook.verifications where endpoint_id = :hook and error_category = 'blocked';
-- Nor by anything else that a partner reads.
do $$
declare
  relation regclass;
  told text;
begin
  for relation in
    select c.oid::regclass
      from pg_class c
     where c.relnamespace = 'webhook'::regnamespace
       and c.relkind in ('r', 'p', 'v')
       and has_table_privilege(c.oid, 'select')
  loop
    execute format('select min(t::text) from %s as t where t::text like ''%%10.1.2.3%%''', relation) into told;
    if told is not null then
      raise warning '% tells %', relation, told;
    end if;
  end loop;
end
$$;
reset role;
-- A partner that leaves takes its rights along.
select webhook.grant_access('regress_webhook_a', 'emit', 'acme');
select webhook.offboard('acme', 'the contract ended');
select role, kind, partner_id from webhook.access_rights;
select has_schema_privilege('regress_webhook_b', 'webhook', 'usage'),
       has_function_privilege('regress_webhook_a', 'webhook.emit(text, text, jsonb, text, text, bigint, text, text, timestamptz, text, text, text, text, text, boolean)', 'execute');
rollback;

-- The look-ups that are promised have an index for every kind of reader. A sequential scan, which small tables would
-- get, is ruled out; what is left tells which index serves. Leaves of days are left out.
begin;
select webhook.grant_access('regress_webhook_a', 'read');
select webhook.grant_access('regress_webhook_b', 'partner', 'acme');
create function pg_temp.indexes(query text) returns text language plpgsql as $$
declare
  line text;
  names text[];
begin
  for line in execute 'explain (costs off) ' || query loop
    names := names || regexp_replace(substring(line from 'Index.*Scan.* using (\S+) on'), '_(default|\d{8})_', '_');
    if line ~ 'Seq Scan|Sort$' then
      names := names || line;
    end if;
  end loop;
  return (select string_agg(distinct n, ' ' order by n) from unnest(names) as n);
end
$$;
create temp table look_up (query text) on commit drop;
insert into look_up
values
  ('select event_id from webhook.events where event_id = ''evt_1'''),
  ('select event_id from webhook.events where subject_type = ''order'' and subject_id = ''7'''),
  ('select event_id from webhook.events where correlation_id = ''c'''),
  ('select event_id from webhook.events order by event_id desc limit 10'),
  ('select delivery_id, state from webhook.deliveries where event_id = ''evt_1'''),
  ('select delivery_id, state from webhook.deliveries where endpoint_id = 7 order by event_id desc limit 10'),
  ('select delivery_id, state from webhook.deliveries where state = ''retrying'' and state <> ''delivered'' order by event_id desc limit 10'),
  ('select attempt_no from webhook.attempts where event_id = ''evt_1'' and endpoint_id = 7'),
  ('select delivery_id from webhook.dead_letters where endpoint_id = 7 order by event_id desc limit 10'),
  ('select * from webhook.alerts where endpoint_id = 7 order by alert_id desc limit 10'),
  ('select * from webhook.alerts where partner_id = ''acme'' order by alert_id desc limit 10'),
  ('select url from webhook.endpoints where partner_id = ''acme'''),
  ('select state from webhook.endpoint_health where endpoint_id = 7'),
  ('select due, waiting, held, dead from webhook.stat_endpoint where endpoint_id = 7'),
  ('select * from webhook.requests where request_id = 7'),
  ('select e.event_id, d.state from webhook.events e join webhook.deliveries d using (event_id) where e.correlation_id = ''c'''),
  ('select f.event_id from webhook._seen_feed f where f.partner_id = ''acme'' and f.pos >= 1 and f.pos < 9 order by f.pos desc limit 10');
grant select on look_up to regress_webhook_a, regress_webhook_b;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
set local enable_sort = off;
set local enable_hashjoin = off;
set local enable_mergejoin = off;
-- PostgreSQL 16 and 17 serve an aggregate over an order from an index of that order, since sorts are ruled out.
do $$
begin
  perform set_config(name, 'off', true) from pg_settings
   where name = 'enable_presorted_aggregate' and current_setting('server_version_num')::int < 180000;
end
$$;
create temp table plan (role text, query text, indexes text) on commit drop;
grant insert on plan to regress_webhook_a, regress_webhook_b;
insert into plan select 'owner', query, pg_temp.indexes(query) from look_up;
set local role regress_webhook_a;
insert into plan select 'read', query, pg_temp.indexes(query) from look_up;
set local role regress_webhook_b;
insert into plan select 'partner', query, pg_temp.indexes(query) from look_up;
reset role;
select query, string_agg(role, ' ' order by role), indexes from plan group by query, indexes order by query;
rollback;

drop role regress_webhook_a, regress_webhook_b, regress_webhook_super;
