-- Row-level tenancy: whoever reads a public view sees every partner, its own, or none. The views belong to
-- webhook_views (15_access.sql); that role may read exactly the columns that they use, and of the rows those that the
-- policy lets the reader see. PostgreSQL applies a policy before any condition of the query that could tell of a row
-- it hides, and still uses the indexes; a security_barrier view would lose the order and the joins of the look-ups.

do $$
declare
  target record;
begin
  -- Tables with the rows of a tenant. The owner is not bound by policies: the leader, emit and the verbs pay nothing.
  for target in
    select t.name, 'partner_id = any ((select webhook._own_partners())::text[])' as own
      from unnest('{_event,_feed,_endpoint,_alert,_request,_observation,_inbox,_tombstone,_replay,_event_version}'::text[]) as t (name)
     union all
    select t.name, 'endpoint_id = any ((select webhook._own_endpoints())::bigint[])'
      from unnest('{_endpoint_state,_endpoint_revision,_secret,_delivery,_attempt,_excerpt,_due,_verification}'::text[]) as t (name)
  loop
    execute format('alter table webhook.%I enable row level security', target.name);
    -- An update of the extension runs this again.
    execute format('drop policy if exists _tenant on webhook.%I', target.name);
    -- In sub-selects, so that each is asked once per statement, not once per row.
    execute format('create policy _tenant on webhook.%I for select to webhook_views using ((select webhook._sees_all()) or %s)',
                   target.name, target.own);
    execute format('comment on policy _tenant on webhook.%I is ''A reader''''s own rows; all of them for those who may see every partner.''',
                   target.name);
  end loop;

  for target in
    select c.oid::regclass as name
      from pg_catalog.pg_class as c
     where c.relnamespace = 'webhook'::regnamespace
       and c.relkind = 'v'
       -- Read by functions of the owner, for which it must hold all rows whoever calls them.
       and c.relname not in ('_effective_endpoint', '_admitted_origin', '_foreign_origin')
  loop
    execute format('alter view %s owner to webhook_views', target.name);
  end loop;

  for target in
    select c.oid::regclass as name
      from pg_catalog.pg_class as c
     where c.relnamespace = 'webhook'::regnamespace
       and c.relkind in ('r', 'p')
       and exists (select from pg_catalog.pg_attribute as a
                    where a.attrelid = c.oid and a.attacl is not null)
  loop
    execute format('revoke select on %s from webhook_views', target.name);
  end loop;

  -- The columns that stand in the views; of a table of which only rows are counted, the first one.
  for target in
    select t.oid::regclass as name,
           string_agg(distinct quote_ident(a.attname), ', ') as columns
      from pg_catalog.pg_class as v
      join pg_catalog.pg_rewrite as r on r.ev_class = v.oid
      join pg_catalog.pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_class'::regclass
      join pg_catalog.pg_class as t on t.oid = d.refobjid and t.relnamespace = 'webhook'::regnamespace and t.relkind in ('r', 'p')
      join pg_catalog.pg_attribute as a on a.attrelid = t.oid and a.attnum = greatest(d.refobjsubid, 1)
     where v.relowner = 'webhook_views'::regrole
     group by t.oid
  loop
    execute format('grant select (%s) on %s to webhook_views', target.columns, target.name);
  end loop;
end
$$;

-- These two tell origins and nothing else; verbs of the owner read them as well.
grant select on webhook._admitted_origin to webhook_views;
grant select on webhook._foreign_origin to webhook_views;

-- Monitoring sees all partners in the views that 90_privileges.sql gives it.
grant execute on function webhook._sees_all() to pg_monitor;
grant execute on function webhook._own_partners() to pg_monitor;
grant execute on function webhook._own_endpoints() to pg_monitor;
