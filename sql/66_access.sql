-- Who has which right, as auditors see it.

create view webhook.access_rights as
select case when r.oid is null then a.role_name else r.rolname end as role,
       a.kind,
       a.partner_id,
       a.event_types,
       a.valid_until,
       a.granted_by,
       a.granted_at
  from webhook._access a
  left join pg_catalog.pg_roles r
         on r.oid = a.role_id
        and a.cluster = (select webhook._cluster());
comment on view webhook.access_rights is
  'Rights that grant_access gave. Members of a role have its rights as well; a right that is over stays until it is revoked or granted anew.';
comment on column webhook.access_rights.role is 'The role.';
comment on column webhook.access_rights.kind is 'emit, read, operate, partner, audit, payload or feed.';
comment on column webhook.access_rights.partner_id is 'Partner that it is limited to; null = all.';
comment on column webhook.access_rights.event_types is 'Event types and wildcards that it is limited to; null = all.';
comment on column webhook.access_rights.valid_until is 'End of the right; null = it has none.';
comment on column webhook.access_rights.granted_by is 'Session user who granted it.';
comment on column webhook.access_rights.granted_at is 'When it was granted.';
