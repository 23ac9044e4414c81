
-- Kinds of rights may need more than before: whoever has one gets that as well.
do $$
declare
  given record;
begin
  for given in
    select p.privilege, r.rolname
      from webhook._access as a
      join pg_catalog.pg_roles as r on r.oid = a.role_id
     cross join lateral webhook._access_privileges(array[a.kind]) as p (privilege)
     where a.cluster = webhook._cluster()
       and (a.valid_until is null or a.valid_until > pg_catalog.clock_timestamp())
     group by p.privilege, r.rolname
  loop
    execute format('grant %s to %I', given.privilege, given.rolname);
  end loop;
end
$$;

-- The leader, which waited for this version, looks again when this transaction commits.
select webhook._wake();
