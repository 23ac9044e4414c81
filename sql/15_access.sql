-- Who was given what: rights by kind, partner and event type, beside the privileges that PostgreSQL keeps itself.
-- Written by grant_access, revoke_access and offboard (54_access.sql); read by src/pg/access.rs, in sessions that
-- emit, read a view or read a payload.

-- The public views belong to a role that can do nothing else. A superuser's views would bypass the row-level
-- policies of 91_access.sql; those of a plain owner do not, and neither do they ask what the reader may do with
-- the private tables. Roles are the cluster's: the first database with the extension makes it, the others find it.
do $$
begin
  begin
    create role webhook_views nologin noinherit;
  exception when duplicate_object or unique_violation then
    -- Found, or made by another database a moment ago; looked at below.
    null;
  end;
  if exists (select from pg_catalog.pg_roles as r
              where r.rolname = 'webhook_views'
                and (r.rolsuper or r.rolbypassrls or r.rolcanlogin or r.rolcreaterole or r.rolcreatedb or r.rolreplication))
     or exists (select from pg_catalog.pg_auth_members as m
                 where 'webhook_views'::pg_catalog.regrole in (m.roleid, m.member))
  then
    raise exception using
      errcode = '42501',
      message = 'role "webhook_views" can do more than own the views',
      detail = 'It must have no attribute and no LOGIN, belong to no role and have no member: whoever is a member could change the views.',
      hint = 'Drop or rename the role; CREATE EXTENSION makes one.';
  end if;
end
$$;

create table webhook._access (
  cluster bigint not null,
  granted_at timestamptz not null default pg_catalog.clock_timestamp(),
  valid_until timestamptz,
  role_id oid not null,
  role_name name not null,
  granted_by name not null default session_user,
  kind text collate "C" not null,
  partner_id text collate "C",
  event_types text[],
  constraint _access_kind check (kind in ('emit', 'read', 'operate', 'partner', 'audit', 'payload', 'receive', 'handle', 'feed')),
  constraint _access_partner check (kind not in ('partner', 'feed') or partner_id is not null),
  constraint _access_payload check (kind <> 'payload' or valid_until is not null)
);
comment on table webhook._access is 'Rights that grant_access gave: which kind, for which partner and event types, until when.';
comment on column webhook._access.cluster is 'System identifier of the cluster in which role_id is the role; elsewhere, in a restored dump, role_name tells.';
comment on column webhook._access.granted_at is 'When it was granted.';
comment on column webhook._access.valid_until is 'End of the right; null = it has none. Every right to read payloads has one.';
comment on column webhook._access.role_id is 'The role; a renamed role keeps its rights and their limits.';
comment on column webhook._access.role_name is 'Its name when rights were last given or taken.';
comment on column webhook._access.granted_by is 'Session user who granted it.';
comment on column webhook._access.kind is 'emit, read, operate, partner, audit, payload, receive, handle or feed.';
comment on column webhook._access.partner_id is 'Partner that it is limited to; null = all.';
comment on column webhook._access.event_types is 'Event types and wildcards that it is limited to; null = all.';
create unique index _access_right on webhook._access (role_id, kind, coalesce(partner_id, ''), cluster);
comment on index webhook._access_right is 'A role has a kind once for each partner.';
