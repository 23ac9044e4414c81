-- Everything that the catalogue says about the extension: one row for each object, with what it is in words that are
-- the same in every database. The order of columns is left out: a column that an update adds comes last, whereever
-- the install script has it, and no statement of the extension depends on it.
with extension as (
  select e.oid, e.extconfig, e.extcondition, e.extrelocatable, e.extnamespace
    from pg_extension e
   where e.extname = 'webhook_outbox'
), member as (
  select d.classid, d.objid
    from pg_depend d
    join extension e on d.refobjid = e.oid
   where d.refclassid = 'pg_extension'::regclass
     and d.deptype = 'e'
), acl as (
  select a.classid, a.objid, a.objsubid, string_agg(a.item, ', ' order by a.item) as items
    from (select o.classid, o.objid, o.objsubid,
                 format('%s:%s%s', coalesce(r.rolname, 'PUBLIC'), x.privilege_type, case when x.is_grantable then '*' end) as item
            from (select 'pg_class'::regclass as classid, oid as objid, 0 as objsubid, coalesce(relacl, acldefault(case relkind when 'S' then 's' else 'r' end::"char", relowner)) as acl from pg_class
                   union all
                  select 'pg_class'::regclass, attrelid, attnum, attacl from pg_attribute
                   union all
                  select 'pg_proc'::regclass, oid, 0, coalesce(proacl, acldefault('f', proowner)) from pg_proc
                   union all
                  select 'pg_namespace'::regclass, oid, 0, coalesce(nspacl, acldefault('n', nspowner)) from pg_namespace) as o
           cross join lateral aclexplode(o.acl) as x
            left join pg_roles r on r.oid = x.grantee) as a
   group by a.classid, a.objid, a.objsubid
), relation as (
  select c.*
    from pg_class c
    join member m on m.classid = 'pg_class'::regclass and m.objid = c.oid
), found (object, definition) as (
  select 'extension', concat_ws(' | ', e.extrelocatable, e.extnamespace::regnamespace)
    from extension e
   union all
  select format('member %s %s', i.type, i.identity), ''
    from member m
   cross join lateral pg_identify_object(m.classid, m.objid, 0) as i
   union all
  select format('dumped rows of %s', x.config::regclass), x.condition
    from extension e
   cross join lateral unnest(e.extconfig, e.extcondition) as x (config, condition)
   union all
  select format('schema %I', n.nspname), concat_ws(' | ', n.nspowner::regrole, a.items, obj_description(n.oid, 'pg_namespace'))
    from pg_namespace n
    join extension e on e.extnamespace = n.oid
    left join acl a on a.classid = 'pg_namespace'::regclass and a.objid = n.oid
   union all
  select format('relation %s', r.oid::regclass),
         concat_ws(' | ', r.relkind, r.relowner::regrole, r.relpersistence, r.reloptions::text, r.relrowsecurity, r.relforcerowsecurity,
                   r.relreplident, r.relispartition, pg_get_expr(r.relpartbound, r.oid), a.items, obj_description(r.oid, 'pg_class'),
                   case when r.relkind = 'p' then pg_get_partkeydef(r.oid) end,
                   case when r.relkind = 'v' then pg_get_viewdef(r.oid) end)
    from relation r
    left join acl a on a.classid = 'pg_class'::regclass and a.objid = r.oid and a.objsubid = 0
   union all
  select format('column %s.%I', r.oid::regclass, t.attname),
         concat_ws(' | ', format_type(t.atttypid, t.atttypmod), t.attnotnull, pg_get_expr(d.adbin, d.adrelid), t.attidentity, t.attgenerated,
                   t.attstorage, t.attcompression, t.attcollation::regcollation,
                   -- Some releases of a server count changes of the column there.
                   (select string_agg(o, ',' order by o) from unnest(t.attoptions) as o where o not like 'pg\_attver=%'), a.items, col_description(r.oid, t.attnum))
    from relation r
    join pg_attribute t on t.attrelid = r.oid and t.attnum > 0 and not t.attisdropped
    left join pg_attrdef d on d.adrelid = r.oid and d.adnum = t.attnum
    left join acl a on a.classid = 'pg_class'::regclass and a.objid = r.oid and a.objsubid = t.attnum
   union all
  select format('sequence %s', r.oid::regclass),
         concat_ws(' | ', s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle)
    from relation r
    join pg_sequence s on s.seqrelid = r.oid
   union all
  select format('constraint %I on %s', c.conname, r.oid::regclass),
         concat_ws(' | ', c.contype, c.convalidated, c.condeferrable, pg_get_constraintdef(c.oid), obj_description(c.oid, 'pg_constraint'))
    from relation r
    join pg_constraint c on c.conrelid = r.oid
   union all
  select format('index %s', i.indexrelid::regclass),
         concat_ws(' | ', pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisclustered, i.indisreplident, obj_description(i.indexrelid, 'pg_class'))
    from relation r
    join pg_index i on i.indrelid = r.oid
   union all
  select format('trigger %I on %s', t.tgname, r.oid::regclass),
         concat_ws(' | ', pg_get_triggerdef(t.oid), t.tgenabled, obj_description(t.oid, 'pg_trigger'))
    from relation r
    join pg_trigger t on t.tgrelid = r.oid and not t.tgisinternal
   union all
  select format('rule %I on %s', w.rulename, r.oid::regclass), concat_ws(' | ', pg_get_ruledef(w.oid), w.ev_enabled)
    from relation r
    join pg_rewrite w on w.ev_class = r.oid and w.rulename <> '_RETURN'
   union all
  select format('policy %I on %s', p.polname, r.oid::regclass),
         concat_ws(' | ', p.polcmd, p.polpermissive, p.polroles::regrole[]::text, pg_get_expr(p.polqual, p.polrelid),
                   pg_get_expr(p.polwithcheck, p.polrelid), obj_description(p.oid, 'pg_policy'))
    from relation r
    join pg_policy p on p.polrelid = r.oid
   union all
  select format('function %s', p.oid::regprocedure),
         concat_ws(' | ', p.proowner::regrole, p.proleakproof, a.items, obj_description(p.oid, 'pg_proc'), pg_get_functiondef(p.oid))
    from pg_proc p
    join member m on m.classid = 'pg_proc'::regclass and m.objid = p.oid
    left join acl a on a.classid = 'pg_proc'::regclass and a.objid = p.oid and a.objsubid = 0
   union all
  select format('type %s', t.oid::regtype), concat_ws(' | ', t.typtype, t.typowner::regrole, obj_description(t.oid, 'pg_type'))
    from pg_type t
    join member m on m.classid = 'pg_type'::regclass and m.objid = t.oid
)
select object, definition
  from found
 order by object collate "C", definition collate "C"
