-- The installed schema: every object is explained, nobody has a right that was not decided, no function can be
-- led astray by a search_path. Each query over a rule lists what breaks it and finds nothing.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

-- Objects of the extension without a comment. Leaves have the columns of their parents.
select d.classid::regclass, pg_describe_object(d.classid, d.objid, 0)
  from pg_depend d
 where d.refclassid = 'pg_extension'::regclass
   and d.refobjid = (select oid from pg_extension where extname = 'webhook_outbox')
   and d.deptype = 'e'
   and d.classid <> 'pg_type'::regclass
   and obj_description(d.objid, d.classid::regclass::text) is null
 order by 2;
select c.oid::regclass, a.attname
  from pg_depend d
  join pg_class c on c.oid = d.objid and c.relkind in ('r', 'p', 'v') and not c.relispartition
  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
 where d.classid = 'pg_class'::regclass
   and d.refclassid = 'pg_extension'::regclass
   and d.deptype = 'e'
   and c.relnamespace = 'webhook'::regnamespace
   and col_description(c.oid, a.attnum) is null
 order by c.relname, a.attnum;
select i.indexrelid::regclass
  from pg_index i
  join pg_class t on t.oid = i.indrelid
  join pg_depend d on d.objid = t.oid and d.classid = 'pg_class'::regclass and d.deptype = 'e'
 where t.relnamespace = 'webhook'::regnamespace
   and not exists (select from pg_constraint k where k.conindid = i.indexrelid)
   and obj_description(i.indexrelid, 'pg_class') is null;
select obj_description('webhook'::regnamespace, 'pg_namespace') is not null,
       obj_description((select oid from pg_extension where extname = 'webhook_outbox'), 'pg_extension') is not null;

-- Anything that PUBLIC may do.
select c.oid::regclass, a.privilege_type
  from pg_class c
 cross join lateral aclexplode(coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's'::"char" else 'r' end, c.relowner))) as a
 where c.relnamespace = 'webhook'::regnamespace and a.grantee = 0;
select c.oid::regclass, t.attname
  from pg_class c join pg_attribute t on t.attrelid = c.oid
 cross join lateral aclexplode(t.attacl) as a
 where c.relnamespace = 'webhook'::regnamespace
   -- The owner of the views, which reads what they show; see access.sql.
   and not (a.grantee = 'webhook_views'::regrole and a.privilege_type = 'SELECT' and not a.is_grantable);
select p.oid::regprocedure
  from pg_proc p
 cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
 where p.pronamespace = 'webhook'::regnamespace and a.grantee = 0;
select a.privilege_type
  from pg_namespace n
 cross join lateral aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) as a
 where n.nspname = 'webhook' and a.grantee = 0;

-- What others than the owner may do.
select a.grantee::regrole, 'relation', c.relname, a.privilege_type
  from pg_class c cross join lateral aclexplode(c.relacl) as a
 where c.relnamespace = 'webhook'::regnamespace and a.grantee <> c.relowner
 union all
select a.grantee::regrole, 'function', p.proname, a.privilege_type
  from pg_proc p cross join lateral aclexplode(p.proacl) as a
 where p.pronamespace = 'webhook'::regnamespace and a.grantee <> p.proowner
 union all
select a.grantee::regrole, 'schema', n.nspname, a.privilege_type
  from pg_namespace n cross join lateral aclexplode(n.nspacl) as a
 where n.nspname = 'webhook' and a.grantee <> n.nspowner
 order by 1, 2, 3;

-- SQL and PL/pgSQL functions without a pinned search_path; a body parsed at creation needs none.
select p.oid::regprocedure
  from pg_proc p join pg_language l on l.oid = p.prolang
 where p.pronamespace = 'webhook'::regnamespace
   and l.lanname in ('sql', 'plpgsql')
   and p.prosqlbody is null
   and not coalesce(p.proconfig @> array['search_path=pg_catalog, webhook, pg_temp'], false);

-- Functions that run with the owner's rights.
select p.proname
  from pg_proc p
 where p.pronamespace = 'webhook'::regnamespace and p.prosecdef
 order by 1;

-- Public functions, with their volatility and parallel safety.
select p.proname, p.provolatile, p.proparallel, l.lanname
  from pg_proc p join pg_language l on l.oid = p.prolang
 where p.pronamespace = 'webhook'::regnamespace and p.proname not like '\_%'
 order by 1;

-- Public views with their columns: the shape that users rely on.
select c.relname, string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum)
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
 where c.relnamespace = 'webhook'::regnamespace and c.relkind = 'v' and c.relname not like '\_%'
 group by c.relname
 order by 1;

-- Tables whose rows a dump keeps, and tables whose rows it does not; parents have none of their own.
select c.relname, c.oid = any (e.extconfig) as dumped
  from pg_extension e
  join pg_depend d on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid and d.classid = 'pg_class'::regclass and d.deptype = 'e'
  join pg_class c on c.oid = d.objid and c.relkind = 'r'
 where e.extname = 'webhook_outbox'
 order by 2 desc, 1;
select extcondition from pg_extension where extname = 'webhook_outbox' and exists (select from unnest(extcondition) as c where c <> '');

-- One seal key, of this database.
select count(*), bool_and(origin = webhook._origin()), bool_and(length(key) = 81) from webhook._seal_key;

-- Partitions by day: made beside the parent, once, and not for a day that has rows in DEFAULT.
begin;
select webhook._add_partition(parent, '2031-01-01')
  from unnest('{_event,_event_version,_feed,_delivery,_attempt,_excerpt}'::text[]) as parent;
select webhook._add_partition('_event', '2031-01-01');
insert into webhook._event (xid, occurred_at, origin, seal_key, test, event_id, partner_id, type, seal, body_sha256, body)
select pg_current_xact_id(), now(), 0, 0, false, webhook._event_bound(at), 'acme', 'a.b', '', '', '{}'
  from unnest('{2031-01-01 00:00:00+00,2031-01-01 23:59:59.999+00,2031-01-02 00:00:00+00,2030-12-31 23:59:59.999+00}'::timestamptz[]) as at
returning tableoid::regclass, webhook._event_time(event_id) at time zone 'UTC';
insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
select webhook._pos_bound(at), at, false, 'acme', 'x', 'a.b'
  from unnest('{2031-01-01 00:00:00+00,2031-01-01 23:59:59.999+00,2031-01-02 00:00:00+00}'::timestamptz[]) as at
returning tableoid::regclass;
select webhook._add_partition('_event', '2031-01-02'), webhook._add_partition('_feed', '2031-01-02'), webhook._add_partition('_event', '2031-01-03');
select replace(p.indexdef, '_default', '') from pg_indexes p where p.schemaname = 'webhook' and p.tablename = '_delivery_default'
except
select replace(p.indexdef, '_20310101', '') from pg_indexes p where p.schemaname = 'webhook' and p.tablename = '_delivery_20310101';
rollback;

-- The schema is the extension's own: another one is refused, and so is a schema with objects in it.
drop extension webhook_outbox;
select count(*) from pg_class where relnamespace = 'webhook'::regnamespace;
create extension webhook_outbox schema public;
create table webhook.intruder (id integer);
create extension webhook_outbox;
drop table webhook.intruder;
create extension webhook_outbox;
select count(*) from webhook.events;
