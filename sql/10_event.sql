-- What happened: events, the feed of their publication, idempotency keys and seal keys.
-- Emitting sessions write _event and _idempotency; the leader alone writes _feed.
-- Partitioned parents carry no index: pg_dump restores member parents through CREATE EXTENSION and
-- leaves as plain tables, which works only when every leaf owns its indexes (see 20_partition.sql).

create table webhook._event (
  xid xid8 not null,
  occurred_at timestamptz not null,
  origin bigint not null,
  seal_key bigint not null,
  subject_version bigint,
  test boolean not null,
  event_id text collate "C" not null,
  partner_id text collate "C" not null,
  type text collate "C" not null,
  source text,
  subject_type text,
  subject_id text,
  scope text,
  schema_version text,
  correlation_id text,
  causation text,
  traceparent text,
  seal bytea not null,
  body_sha256 bytea not null,
  body text
) partition by range (event_id);
comment on table webhook._event is
  'The outbox: one immutable, sealed row per emit, written in the caller''s transaction. Partitioned by day of event_id.';
comment on column webhook._event.xid is 'Top-level transaction that emitted; drives the two-snapshot window.';
comment on column webhook._event.occurred_at is 'When the business change happened.';
comment on column webhook._event.origin is 'Which database wrote the row (hash of system identifier, database, extension and webhook.node_name); rows of another origin are never sent.';
comment on column webhook._event.seal_key is 'Which row of _seal_key sealed this event.';
comment on column webhook._event.subject_version is 'Version of the subject after the change; lets a receiver drop stale events.';
comment on column webhook._event.test is 'Test event: goes to test endpoints only.';
comment on column webhook._event.event_id is 'evt_ and 26 characters of Crockford base32 over a time-ordered 128-bit id.';
comment on column webhook._event.partner_id is 'Tenant that the event belongs to; only endpoints of the same partner receive it.';
comment on column webhook._event.type is 'Event type, object.change.';
comment on column webhook._event.source is 'Producer of the event.';
comment on column webhook._event.subject_type is 'Kind of the object that changed.';
comment on column webhook._event.subject_id is 'Identity of the object that changed.';
comment on column webhook._event.scope is 'Optional authorisation scope.';
comment on column webhook._event.schema_version is 'Version of the payload''s schema.';
comment on column webhook._event.correlation_id is 'Ties the event to the operation that caused it.';
comment on column webhook._event.causation is 'Event id of the parent event.';
comment on column webhook._event.traceparent is 'W3C trace context of the operation, sent as a header.';
comment on column webhook._event.seal is 'HMAC-SHA256, first 16 bytes, over the whole envelope, the origin and body_sha256.';
comment on column webhook._event.body_sha256 is 'SHA-256 of body.';
comment on column webhook._event.body is 'JSON text of "data": the exact bytes that are signed and sent; null once expunged.';

create table webhook._event_default partition of webhook._event default;
comment on table webhook._event_default is
  'Events of days without a partition of their own, so that emit never fails for want of one.';
alter table webhook._event_default add constraint _event_default_pkey primary key (event_id);
create index _event_default_xid on webhook._event_default (xid, event_id);
create index _event_default_subject on webhook._event_default (subject_type, subject_id, event_id) where subject_id is not null;
create index _event_default_correlation on webhook._event_default (correlation_id, event_id) where correlation_id is not null;
comment on index webhook._event_default_xid is 'Read by the two-snapshot window.';
comment on index webhook._event_default_subject is 'Events by subject.';
comment on index webhook._event_default_correlation is 'Events by correlation_id.';

create table webhook._feed (
  pos bigint not null,
  published_at timestamptz not null,
  test boolean not null,
  partner_id text collate "C" not null,
  event_id text collate "C" not null,
  type text collate "C" not null
) partition by range (pos);
comment on table webhook._feed is
  'One row per event in the order in which the leader read them: the partner''s gap-free cursor. Partitioned by day of pos.';
comment on column webhook._feed.pos is 'Position: milliseconds since 2025-01-01 UTC times 2^22 plus a counter; strictly increasing, never reused.';
comment on column webhook._feed.published_at is 'When the leader read the event.';
comment on column webhook._feed.test is 'Test event.';
comment on column webhook._feed.partner_id is 'Tenant that the event belongs to.';
comment on column webhook._feed.event_id is 'The event.';
comment on column webhook._feed.type is 'Event type, repeated here so that lists by type need no look-up.';

create table webhook._feed_default partition of webhook._feed default;
comment on table webhook._feed_default is 'Feed rows of days without a partition of their own.';
alter table webhook._feed_default add constraint _feed_default_pkey primary key (partner_id, pos);
create index _feed_default_type on webhook._feed_default (type, pos);
comment on index webhook._feed_default_type is 'Events by type and time.';

create table webhook._idempotency (
  key_hash uuid not null,
  event_id text collate "C" not null,
  constraint _idempotency_pkey primary key (key_hash)
);
comment on table webhook._idempotency is 'Keyed emits: which event a (partner, key) produced. Age is the time inside event_id.';
comment on column webhook._idempotency.key_hash is 'First 128 bits of SHA-256 over partner_id, a zero byte and the key.';
comment on column webhook._idempotency.event_id is 'The event that the key stands for.';

create table webhook._seal_key (
  key_id bigint not null,
  origin bigint not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  key bytea not null,
  constraint _seal_key_pkey primary key (key_id)
);
comment on table webhook._seal_key is 'Keys that seal events; the newest of the own origin is in use, old ones stay so that old events can be checked.';
comment on column webhook._seal_key.key_id is 'Time-ordered random id, unique over nodes.';
comment on column webhook._seal_key.origin is 'Origin that the key seals for.';
comment on column webhook._seal_key.created_at is 'When the key was made.';
comment on column webhook._seal_key.key is 'The key as it is stored: encrypted under the master key, or in clear. Never shown.';
