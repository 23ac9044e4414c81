-- What the views and policies ask about whoever reads them. Written in Rust, src/pg/access.rs: SECURITY INVOKER,
-- because they judge current_user; only the look-up runs as the owner. They tell a role nothing but its own rights.

create function webhook._cluster()
returns bigint
language c stable parallel safe
as 'MODULE_PATHNAME', 'cluster_wrapper';
comment on function webhook._cluster() is 'System identifier of the cluster: where an oid of a role means something.';

create function webhook._sees_all()
returns boolean
language c stable parallel restricted
as 'MODULE_PATHNAME', 'sees_all_wrapper';
comment on function webhook._sees_all() is
  'Whether the current user sees every partner: by a right of kind read or operate, as a member of pg_monitor, or as superuser or owner.';

create function webhook._manages()
returns boolean
language c stable parallel restricted
as 'MODULE_PATHNAME', 'manages_wrapper';
comment on function webhook._manages() is
  'Whether the current user sees the whole callback URL of every partner: by a right of kind operate, or as superuser or owner.';

create function webhook._own_partners()
returns text[]
language c stable parallel restricted
as 'MODULE_PATHNAME', 'own_partners_wrapper';
comment on function webhook._own_partners() is 'Partners whose rows the current user sees by a right of kind partner.';

create function webhook._own_endpoints()
returns bigint[]
language c stable parallel restricted
as 'MODULE_PATHNAME', 'own_endpoints_wrapper';
comment on function webhook._own_endpoints() is 'Endpoints of those partners, deleted ones included.';

create function webhook._forget_access()
returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'forget_access_wrapper';
comment on function webhook._forget_access() is 'Has every session read _access again, once this transaction has committed; its own at the next statement.';

create function webhook._access_changed()
returns trigger
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._forget_access();
  return null;
end
$$;
comment on function webhook._access_changed() is 'Tells the sessions that rights have changed.';

-- ENABLE ALWAYS: a restore under session_replication_role = replica changes rights as well.
create trigger _access_changed
  after insert or update or delete or truncate on webhook._access
  for each statement
  execute function webhook._access_changed();
comment on trigger _access_changed on webhook._access is 'A right that is taken away is gone at once.';
alter table webhook._access enable always trigger _access_changed;

create function webhook._foreign_code()
returns text[] -- triggers, rules and policies on the extension's tables that are not its own; null = none
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select array_agg(f.name order by f.name)
    from (select format('trigger %s on %s', t.tgname, c.relname) as name
            from pg_class as c
            join pg_trigger as t on t.tgrelid = c.oid
           where c.relnamespace = 'webhook'::regnamespace
             and not t.tgisinternal
             and (c.relname, t.tgname) not in (('_policy', '_policy_default'), ('_access', '_access_changed'), ('_event_type', '_catalogue_changed'),
                                              ('_event_schema', '_catalogue_changed'), ('_source', '_catalogue_changed'), ('_conversion', '_catalogue_changed'))
           union all
          select format('rule %s on %s', r.rulename, c.relname)
            from pg_class as c
            join pg_rewrite as r on r.ev_class = c.oid
           where c.relnamespace = 'webhook'::regnamespace
             and r.rulename <> '_RETURN'
           union all
          select format('policy %s on %s', p.polname, c.relname)
            from pg_class as c
            join pg_policy as p on p.polrelid = c.oid
           where c.relnamespace = 'webhook'::regnamespace
             and p.polname <> '_tenant') as f
$$;
comment on function webhook._foreign_code() is 'What somebody has hung onto the extension''s tables; status() warns of it.';
