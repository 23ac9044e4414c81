-- Keys without their material: which there are, which sign, and under which master key they are stored.

create view webhook.signing_keys as
select s.key_id,
       s.endpoint_id,
       e.partner_id,
       s.kept and (s.valid_until is null or s.valid_until > clock_timestamp()) as signs,
       s.created_at,
       s.created_by,
       s.valid_until,
       s.revoked_at,
       case when s.kept then s.stored_under is not null end as encrypted,
       s.stored_under as master_key_id,
       s.kind,
       s.public_key
  from webhook._secret s
  join webhook._endpoint e on e.endpoint_id = s.endpoint_id;
comment on view webhook.signing_keys is
  'Signing keys of endpoints that are not deleted, former ones included; no key material. Fast by key_id and by endpoint_id.';
comment on column webhook.signing_keys.key_id is 'Id of the key, sent as webhook-key-id.';
comment on column webhook.signing_keys.endpoint_id is 'Its endpoint.';
comment on column webhook.signing_keys.partner_id is 'Tenant that owns the endpoint.';
comment on column webhook.signing_keys.signs is 'Whether it signs now.';
comment on column webhook.signing_keys.created_at is 'When it was made.';
comment on column webhook.signing_keys.created_by is 'Session user who made it.';
comment on column webhook.signing_keys.valid_until is 'When it ceases, or ceased, to sign; null = the current key.';
comment on column webhook.signing_keys.revoked_at is 'When it was revoked; null = it was not.';
comment on column webhook.signing_keys.encrypted is 'Whether it is stored encrypted; null when its material is destroyed.';
comment on column webhook.signing_keys.master_key_id is 'Id of the master key that it is stored under.';
comment on column webhook.signing_keys.kind is 'hmac-sha256 or ed25519.';
comment on column webhook.signing_keys.public_key is 'Of an ed25519 key, what receivers check signatures with: whpk_ and base64; null otherwise.';

create view webhook.seal_keys as
select k.key_id,
       k.origin,
       k.origin = (select webhook._origin())
         and not exists (select from webhook._seal_key n where n.origin = k.origin and n.key_id > k.key_id) as seals,
       k.created_at,
       k.stored_under is not null as encrypted,
       k.stored_under as master_key_id
  from webhook._seal_key k;
comment on view webhook.seal_keys is 'Keys that seal events, former ones and those of copied databases included; no key material.';
comment on column webhook.seal_keys.key_id is 'Id of the key.';
comment on column webhook.seal_keys.origin is 'Which database it seals for.';
comment on column webhook.seal_keys.seals is 'Whether events of this database are sealed with it now.';
comment on column webhook.seal_keys.created_at is 'When it was made.';
comment on column webhook.seal_keys.encrypted is 'Whether it is stored encrypted.';
comment on column webhook.seal_keys.master_key_id is 'Id of the master key that it is stored under.';
