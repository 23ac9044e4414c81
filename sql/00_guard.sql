-- Opens the install script: refuses what could never work, before anything is created.
\echo Use "CREATE EXTENSION webhook_outbox" to load this file. \quit

do $$
begin
  -- Payloads are signed byte for byte and JSON is UTF-8 (RFC 8259 section 8.1): another encoding
  -- would store one text and sign another.
  if pg_catalog.getdatabaseencoding() operator(pg_catalog.<>) 'UTF8' then
    raise exception using
      errcode = '0A000',
      message = 'webhook_outbox needs a database with encoding UTF8',
      detail = pg_catalog.format('This database has encoding %s.', pg_catalog.getdatabaseencoding()),
      hint = 'Create the database with ENCODING ''UTF8'' TEMPLATE template0.';
  end if;
  -- Whoever owns the schema, or may create in it, could plant functions that ours would then call with
  -- the rights of the extension. A superuser's schema is fine: pg_restore makes one before the extension.
  if exists (
       select 1
         from pg_catalog.pg_namespace as n
        where n.nspname operator(pg_catalog.=) 'webhook'
          and (not exists (select 1 from pg_catalog.pg_roles as r
                            where r.oid operator(pg_catalog.=) n.nspowner
                              and (r.rolsuper or r.rolname operator(pg_catalog.=) current_user))
               or exists (select 1 from pg_catalog.aclexplode(n.nspacl) as a
                           where a.grantee operator(pg_catalog.<>) n.nspowner
                             and a.privilege_type operator(pg_catalog.=) 'CREATE')))
  then
    raise exception using
      errcode = '42501',
      message = 'schema "webhook" belongs to somebody else',
      detail = 'Only a superuser and the role that creates the extension may own the schema or create objects in it.',
      hint = 'Drop the schema, or have a superuser own it and revoke CREATE on it.';
  end if;
  -- CREATE EXTENSION adopts a schema of the right name that exists already. Objects in it belong to
  -- somebody else and could shadow ours, so the schema must be empty.
  if exists (select 1 from pg_catalog.pg_class c where c.relnamespace operator(pg_catalog.=) 'webhook'::pg_catalog.regnamespace)
     or exists (select 1 from pg_catalog.pg_proc p where p.pronamespace operator(pg_catalog.=) 'webhook'::pg_catalog.regnamespace)
     or exists (select 1 from pg_catalog.pg_type t where t.typnamespace operator(pg_catalog.=) 'webhook'::pg_catalog.regnamespace)
  then
    raise exception using
      errcode = '55000',
      message = 'schema "webhook" is not empty',
      detail = 'The extension installs into a schema of its own and adopts nothing that it finds there.',
      hint = 'Move or drop the objects in schema "webhook" first.';
  end if;
end
$$;

comment on schema webhook is
  'webhook_outbox: transactional webhooks. Names that begin with "_" are private; use the functions and views.';
