-- Payloads in several schema versions. _conversion: which functions make one version of another; configuration, written by
-- the verbs of 49_conversion.sql and read by emitting sessions alone (src/pg/conversion.rs), so that worker and replay run
-- no user's code. _event_version: what they made; written with the event, in its transaction, sealed with its key, read by
-- the leader, never changed. Which version an endpoint gets stands in its revision, beside the rest of its shape.

create table webhook._conversion (
  event_type text collate "C" not null,
  from_version text collate "C" not null,
  to_version text collate "C" not null,
  function_name text not null,
  function_owner name not null,
  reason text not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  created_by name not null default session_user,
  constraint _conversion_pkey primary key (event_type, from_version, to_version),
  constraint _conversion_versions check (from_version <> to_version)
);
comment on table webhook._conversion is 'Functions that make one schema version of an event type''s payload of another.';
comment on column webhook._conversion.event_type is 'The event type.';
comment on column webhook._conversion.from_version is 'Schema version that the function takes.';
comment on column webhook._conversion.to_version is 'Schema version that it makes.';
comment on column webhook._conversion.function_name is
  'The function with the types of its arguments. A text: a dump knows functions by their names, and must be restorable without them.';
comment on column webhook._conversion.function_owner is 'Whose function it was when it was registered; another role''s is not run.';
comment on column webhook._conversion.reason is 'Why it is there.';
comment on column webhook._conversion.created_at is 'When it was registered.';
comment on column webhook._conversion.created_by is 'Session user who registered it.';

create table webhook._event_version (
  event_id text collate "C" not null,
  version text collate "C" not null,
  partner_id text collate "C" not null,
  failure text,
  seal bytea not null,
  body_sha256 bytea not null,
  body text
) partition by range (event_id);
comment on table webhook._event_version is
  'Payloads of events in other schema versions, made at the emit. Append-only, partitioned like _event.';
comment on column webhook._event_version.event_id is 'The event.';
comment on column webhook._event_version.version is 'Schema version of body.';
comment on column webhook._event_version.partner_id is 'Tenant that the event belongs to.';
comment on column webhook._event_version.failure is 'Why there is no body: what went wrong, without payload; null = nothing did.';
comment on column webhook._event_version.seal is
  'HMAC-SHA256, first 16 bytes, over origin and id of the event, version, failure and body_sha256, by the key that sealed the event.';
comment on column webhook._event_version.body_sha256 is 'SHA-256 of body.';
comment on column webhook._event_version.body is 'JSON text: the exact bytes that are sent; null where the conversion failed, and once it is expunged.';

create table webhook._event_version_default partition of webhook._event_version default;
comment on table webhook._event_version_default is 'Versions of events of days without a partition of their own.';
alter table webhook._event_version_default add constraint _event_version_default_pkey primary key (event_id, version);

alter table webhook._endpoint_revision
  add column data_shape text collate "C" not null default 'full',
  add column fields text[],
  add column schema_versions jsonb,
  add constraint _endpoint_revision_data_shape check (data_shape in ('full', 'fields', 'thin', 'delta')),
  add constraint _endpoint_revision_fields check ((data_shape = 'fields') = (fields is not null)),
  add constraint _endpoint_revision_schema_versions check (pg_catalog.jsonb_typeof(schema_versions) = 'object');
comment on column webhook._endpoint_revision.data_shape is 'How much of the data is sent: full, fields, thin (none of it) or delta (what has changed).';
comment on column webhook._endpoint_revision.fields is 'Of fields: paths of the members that are kept.';
comment on column webhook._endpoint_revision.schema_versions is 'Object of event types and the schema version that the endpoint gets of each; null = every event as it was emitted.';
