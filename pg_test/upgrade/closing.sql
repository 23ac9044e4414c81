-- New objects are the owner's of the extension, whoever updates it, and nobody else's: EXECUTE is PUBLIC's by default,
-- and ALTER DEFAULT PRIVILEGES of the updating role may have given more. What operators granted on older objects stays.
do $$
declare
  owner constant regrole := (select e.extowner from pg_catalog.pg_extension as e where e.extname = 'webhook_outbox');
  given record;
begin
  for given in
    select r as routine from unnest('{NEW_ROUTINES}'::regprocedure[]) as r
  loop
    execute format('alter function %s owner to %s', given.routine, owner);
  end loop;
  for given in
    select c.oid::regclass as relation, c.relkind
      from unnest('{NEW_RELATIONS}'::regclass[]) as r
      join pg_catalog.pg_class as c on c.oid = r
  loop
    execute format('alter table %s owner to %s', given.relation, owner);
    perform webhook._close(given.relation);
  end loop;
  for given in
    select p.oid::regprocedure as routine, case a.grantee when 0 then 'public' else a.grantee::regrole::text end as grantee
      from pg_catalog.pg_proc as p
     cross join lateral pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) as a
     where p.oid = any ('{NEW_ROUTINES}'::regprocedure[])
       and a.grantee <> p.proowner
  loop
    execute format('revoke all on function %s from %s', given.routine, given.grantee);
  end loop;
end
$$;
