-- Where events go: endpoints, the leader's view of their health, shapes, secrets, event types.
-- Users write all of it through functions, except _endpoint_state, which only the leader writes:
-- an administrator's open transaction must never block the leader.

create table webhook._endpoint (
  endpoint_id bigint not null,
  partner_id text collate "C" not null,
  url text not null,
  event_types text[] not null,
  test boolean not null,
  state text collate "C" not null,
  state_reason text,
  state_changed_at timestamptz not null default pg_catalog.clock_timestamp(),
  verify text,
  description text,
  max_in_flight integer,
  revision integer not null default 1,
  generation bigint not null default 1,
  origin bigint not null,
  created_xid xid8 not null default pg_catalog.pg_current_xact_id(),
  created_snapshot pg_snapshot not null default pg_catalog.pg_current_snapshot(),
  changed_xid xid8 not null default pg_catalog.pg_current_xact_id(),
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  created_by name not null default session_user,
  constraint _endpoint_pkey primary key (endpoint_id),
  constraint _endpoint_state_known check (state in ('unverified', 'active', 'paused', 'disabled', 'expired', 'deleted')),
  constraint _endpoint_max_in_flight_positive check (max_in_flight > 0)
);
comment on table webhook._endpoint is 'Endpoints: one subscription of one partner each. Rows are never deleted; state "deleted" keeps their deliveries readable.';
comment on column webhook._endpoint.endpoint_id is 'Time-ordered random id, unique over nodes.';
comment on column webhook._endpoint.partner_id is 'Tenant that owns the endpoint.';
comment on column webhook._endpoint.url is 'Callback URL, canonical form.';
comment on column webhook._endpoint.event_types is 'Event types and wildcards ("customer.*", "*") that are sent here.';
comment on column webhook._endpoint.test is 'Test endpoint: receives test events only.';
comment on column webhook._endpoint.state is 'State as last set by a user; _endpoint_state may override it.';
comment on column webhook._endpoint.state_reason is 'Why the endpoint is in this state.';
comment on column webhook._endpoint.state_changed_at is 'Since when.';
comment on column webhook._endpoint.verify is 'How control of the URL is to be proven.';
comment on column webhook._endpoint.description is 'Free text of the operator.';
comment on column webhook._endpoint.max_in_flight is 'Concurrent requests to this endpoint; null = webhook.max_in_flight_per_endpoint.';
comment on column webhook._endpoint.revision is 'Current shape, row of _endpoint_revision.';
comment on column webhook._endpoint.generation is 'Raised by every change; the leader''s findings count for the generation they were made under.';
comment on column webhook._endpoint.origin is 'Which database made the endpoint; in a copy it is inert.';
comment on column webhook._endpoint.created_xid is 'Transaction that made the endpoint; it gets that transaction''s own events.';
comment on column webhook._endpoint.created_snapshot is 'Snapshot of that transaction; events visible to it are older than the endpoint.';
comment on column webhook._endpoint.changed_xid is 'Transaction of the last change; lets the leader read changes as of its window.';
comment on column webhook._endpoint.created_at is 'When the endpoint was made.';
comment on column webhook._endpoint.created_by is 'Session user who made it.';
create index _endpoint_partner on webhook._endpoint (partner_id);
comment on index webhook._endpoint_partner is 'Endpoints of a partner.';
create index _endpoint_changed on webhook._endpoint (changed_xid);
comment on index webhook._endpoint_changed is 'Changes since the leader''s last window.';

create table webhook._endpoint_state (
  endpoint_id bigint not null,
  generation bigint not null,
  state text collate "C",
  reason text,
  changed_at timestamptz not null,
  constraint _endpoint_state_pkey primary key (endpoint_id)
);
comment on table webhook._endpoint_state is 'What the leader found out about an endpoint; counts only while generation equals that of _endpoint.';
comment on column webhook._endpoint_state.endpoint_id is 'The endpoint.';
comment on column webhook._endpoint_state.generation is 'Generation of the endpoint that the finding is about.';
comment on column webhook._endpoint_state.state is 'State set by the leader (disabled after 410); null when it has no say.';
comment on column webhook._endpoint_state.reason is 'Why.';
comment on column webhook._endpoint_state.changed_at is 'When.';

create table webhook._endpoint_revision (
  endpoint_id bigint not null,
  revision integer not null,
  format text collate "C" not null default 'native',
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint _endpoint_revision_pkey primary key (endpoint_id, revision),
  constraint _endpoint_revision_format check (format in ('native'))
);
comment on table webhook._endpoint_revision is 'Shapes of an endpoint''s payload. Append-only: retries and replays keep the shape of the first attempt.';
comment on column webhook._endpoint_revision.endpoint_id is 'The endpoint.';
comment on column webhook._endpoint_revision.revision is 'Number of the shape, from 1.';
comment on column webhook._endpoint_revision.format is 'Form of the body; native = the envelope of the documentation.';
comment on column webhook._endpoint_revision.created_at is 'When the shape was chosen.';

create table webhook._secret (
  key_id bigint not null,
  endpoint_id bigint not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  valid_until timestamptz,
  secret bytea not null,
  constraint _secret_pkey primary key (key_id)
);
comment on table webhook._secret is 'Signing keys of endpoints. No function and no view shows key material after its creation.';
comment on column webhook._secret.key_id is 'Id of the key, sent as webhook-key-id.';
comment on column webhook._secret.endpoint_id is 'The endpoint.';
comment on column webhook._secret.created_at is 'When the key was made.';
comment on column webhook._secret.valid_until is 'End of its validity; null = current.';
comment on column webhook._secret.secret is 'Key material, 32 bytes.';
create index _secret_endpoint on webhook._secret (endpoint_id);
comment on index webhook._secret_endpoint is 'Keys of an endpoint.';

create table webhook._event_type (
  name text collate "C" not null,
  priority smallint not null default 1,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  changed_xid xid8 not null default pg_catalog.pg_current_xact_id(),
  constraint _event_type_pkey primary key (name),
  constraint _event_type_priority check (priority in (0, 1))
);
comment on table webhook._event_type is 'Known event types and their priority.';
comment on column webhook._event_type.name is 'Event type, object.change.';
comment on column webhook._event_type.priority is 'Priority class: 0 is served before 1.';
comment on column webhook._event_type.created_at is 'When the type was registered.';
comment on column webhook._event_type.changed_xid is 'Transaction of the last change; lets the leader read changes as of its window.';
create index _event_type_changed on webhook._event_type (changed_xid);
comment on index webhook._event_type_changed is 'Changes since the leader''s last window.';
