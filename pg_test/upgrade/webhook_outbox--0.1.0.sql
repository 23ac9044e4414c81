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
-- What became of events: deliveries, attempts, response excerpts, and the work that is still due.
-- The leader is the only writer of every table here.

create table webhook._delivery (
  endpoint_id bigint not null,
  last_attempt_at timestamptz,
  delivered_at timestamptz,
  next_attempt_at timestamptz,
  attempt_count integer not null,
  series_start integer not null,
  revision integer not null,
  last_latency_ms integer,
  last_status smallint,
  event_id text collate "C" not null,
  state text collate "C" not null,
  last_error_category text collate "C",
  reason text,
  last_key_ids bigint[],
  last_body_sha256 bytea,
  last_response_bytes bigint,
  constraint _delivery_state check (state in ('pending', 'retrying', 'delivered', 'dead', 'cancelled', 'skipped', 'closed'))
) partition by range (event_id);
comment on table webhook._delivery is
  'One row per event and endpoint once the pair has an outcome or waits; written once on the happy path. Partitioned like _event.';
comment on column webhook._delivery.endpoint_id is 'The endpoint.';
comment on column webhook._delivery.last_attempt_at is 'Start of the latest attempt.';
comment on column webhook._delivery.delivered_at is 'When the first 2xx arrived; later replays keep it.';
comment on column webhook._delivery.next_attempt_at is 'When the next attempt is due; null when none is.';
comment on column webhook._delivery.attempt_count is 'Attempts so far; the number of the latest one.';
comment on column webhook._delivery.series_start is 'Attempts made before the current series of the schedule; a replay starts a new series.';
comment on column webhook._delivery.revision is 'Shape (row of _endpoint_revision) fixed by the first attempt.';
comment on column webhook._delivery.last_latency_ms is 'Milliseconds from connecting to the end of the answer, latest attempt.';
comment on column webhook._delivery.last_status is 'HTTP status of the latest attempt; null when there was none.';
comment on column webhook._delivery.event_id is 'The event.';
comment on column webhook._delivery.state is 'pending, retrying, delivered, dead, cancelled, skipped or closed.';
comment on column webhook._delivery.last_error_category is 'Why the latest attempt failed; null after a success.';
comment on column webhook._delivery.reason is 'Why the delivery is dead, cancelled, skipped or closed.';
comment on column webhook._delivery.last_key_ids is 'Ids of the keys that signed the latest attempt, in order.';
comment on column webhook._delivery.last_body_sha256 is 'SHA-256 of the body sent in the latest attempt.';
comment on column webhook._delivery.last_response_bytes is 'Bytes of response body read in the latest attempt.';

create table webhook._delivery_default partition of webhook._delivery default with (fillfactor = 80);
comment on table webhook._delivery_default is 'Deliveries of days without a partition of their own.';
alter table webhook._delivery_default add constraint _delivery_default_pkey primary key (event_id, endpoint_id);
create index _delivery_default_endpoint on webhook._delivery_default (endpoint_id, event_id);
create index _delivery_default_open on webhook._delivery_default (state, event_id) where state <> 'delivered';
comment on index webhook._delivery_default_endpoint is 'Deliveries of an endpoint, newest first.';
comment on index webhook._delivery_default_open is 'Deliveries in a state other than delivered.';
create index _delivery_default_dead on webhook._delivery_default (endpoint_id, event_id) where state = 'dead';
comment on index webhook._delivery_default_dead is 'Dead letters of an endpoint, newest first.';

create table webhook._attempt (
  endpoint_id bigint not null,
  started_at timestamptz not null,
  next_attempt_at timestamptz,
  incarnation bigint not null,
  response_bytes bigint,
  attempt_no integer not null,
  latency_ms integer,
  status smallint,
  event_id text collate "C" not null,
  outcome text collate "C" not null,
  error_category text collate "C",
  phase text collate "C",
  detail text,
  key_ids bigint[],
  body_sha256 bytea,
  worker_version text,
  constraint _attempt_outcome check (outcome in ('delivered', 'retry', 'dead'))
) partition by range (event_id);
comment on table webhook._attempt is
  'Every failed attempt and every attempt after the first; a first-try success lives in its _delivery row. Append-only, partitioned like _event.';
comment on column webhook._attempt.endpoint_id is 'The endpoint.';
comment on column webhook._attempt.started_at is 'When the attempt began; its second is the signed timestamp.';
comment on column webhook._attempt.next_attempt_at is 'When the next attempt was planned; null when none was.';
comment on column webhook._attempt.incarnation is 'Which life of the leader made the attempt.';
comment on column webhook._attempt.response_bytes is 'Bytes of response body read.';
comment on column webhook._attempt.attempt_no is 'Number of the attempt within its delivery, from 1 without gaps.';
comment on column webhook._attempt.latency_ms is 'Milliseconds from connecting to the end of the answer; null for a lost attempt.';
comment on column webhook._attempt.status is 'HTTP status; null when there was none.';
comment on column webhook._attempt.event_id is 'The event.';
comment on column webhook._attempt.outcome is 'What follows: delivered, retry or dead.';
comment on column webhook._attempt.error_category is 'Error category; null after a 2xx.';
comment on column webhook._attempt.phase is 'Where a time-out or protocol error struck: resolve, connect, tls, send, headers or body.';
comment on column webhook._attempt.detail is 'What happened, in the sender''s own words; holds no payload and no secret.';
comment on column webhook._attempt.key_ids is 'Ids of the keys that signed, in order.';
comment on column webhook._attempt.body_sha256 is 'SHA-256 of the body sent.';
comment on column webhook._attempt.worker_version is 'Version of the library that made the attempt; null for a first try that succeeded and moved here later.';

create table webhook._attempt_default partition of webhook._attempt default;
comment on table webhook._attempt_default is 'Attempts of days without a partition of their own.';
alter table webhook._attempt_default add constraint _attempt_default_pkey primary key (event_id, endpoint_id, attempt_no);

create table webhook._excerpt (
  endpoint_id bigint not null,
  attempt_no integer not null,
  event_id text collate "C" not null,
  body text not null
) partition by range (event_id);
comment on table webhook._excerpt is 'Bounded beginnings of response bodies. Append-only, partitioned like _event.';
comment on column webhook._excerpt.endpoint_id is 'The endpoint.';
comment on column webhook._excerpt.attempt_no is 'Number of the attempt.';
comment on column webhook._excerpt.event_id is 'The event.';
comment on column webhook._excerpt.body is 'At most webhook.max_response_excerpt bytes; bytes that are no UTF-8 text are replaced.';

create table webhook._excerpt_default partition of webhook._excerpt default;
comment on table webhook._excerpt_default is 'Excerpts of days without a partition of their own.';
alter table webhook._excerpt_default add constraint _excerpt_default_pkey primary key (event_id, endpoint_id, attempt_no);

create table webhook._due (
  endpoint_id bigint not null,
  next_attempt_at timestamptz not null,
  attempt_count integer not null,
  series_start integer not null,
  hold integer not null default 0,
  class smallint not null,
  event_id text collate "C" not null,
  subject_key text collate "C",
  series_at timestamptz,
  deaths smallint not null default 0,
  asked boolean not null default false,
  constraint _due_pkey primary key (event_id, endpoint_id)
) with (
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0,
  -- Auto-ANALYZE would one day see this table empty and plans would flip to sequential scans.
  autovacuum_analyze_threshold = 2000000000
);
comment on table webhook._due is 'What the first pass did not finish: pairs that wait for their next attempt. Not dumped; adopt() rebuilds it.';
comment on column webhook._due.endpoint_id is 'The endpoint.';
comment on column webhook._due.next_attempt_at is 'When the pair may be sent.';
comment on column webhook._due.attempt_count is 'Attempts so far.';
comment on column webhook._due.series_start is 'Attempts before the current series of the schedule.';
comment on column webhook._due.hold is
  'Set of reasons why the pair may not be sent now: 1 event type paused, 2 order, 4 quarantine, 8 filter, 16 conversion, 32 origin not adopted; 0 = may be sent.';
comment on column webhook._due.class is 'Priority class; 0 is served first, 2 is that of replays of a range.';
comment on column webhook._due.event_id is 'The event.';
comment on column webhook._due.subject_key is 'Subject of the event, for endpoints that keep order per subject; null = no order.';
comment on column webhook._due.series_at is 'Start of the first attempt of the current series; null = none was made yet.';
comment on column webhook._due.deaths is 'Lives of the leader that ended while the pair was in doubt, in a row.';
comment on column webhook._due.asked is 'Somebody asked for this attempt; it is made whatever the endpoint subscribes to.';
create index _due_claim on webhook._due (endpoint_id, class, next_attempt_at, event_id) where hold = 0;
comment on index webhook._due_claim is 'Claims per endpoint in order.';
create index _due_held on webhook._due (event_id, endpoint_id) where hold <> 0;
comment on index webhook._due_held is 'What is held, in the order of the events.';
create index _due_held_endpoint on webhook._due (endpoint_id, event_id) where hold <> 0;
comment on index webhook._due_held_endpoint is 'What is held, by endpoint.';
create index _due_subject on webhook._due (endpoint_id, subject_key, event_id) where subject_key is not null;
comment on index webhook._due_subject is 'The events of a subject in their order.';
create index _due_turn on webhook._due (endpoint_id, subject_key) where subject_key is not null and (hold & 2) = 0;
comment on index webhook._due_turn is 'Which event of a subject has its turn.';
-- Where events go and how: endpoints, the leader's view of their health, shapes, secrets, event types, policies,
-- pauses. Users write all of it through functions, except _endpoint_state, which only the leader writes:
-- an administrator's open transaction must never block the leader. One thing the leader writes here: the URL and
-- state of an endpoint whose proof of control has arrived, skipping a locked row until it is free.

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
  policy text collate "C",
  ordered boolean not null default false,
  pending_url text,
  proof_generation bigint not null default 1,
  proof_asked_at timestamptz,
  verified_at timestamptz,
  verified_by text collate "C",
  expires_at timestamptz,
  renewed_at timestamptz not null default pg_catalog.clock_timestamp(),
  signature text collate "C" not null default 'v1',
  headers jsonb,
  headers_changed_at timestamptz,
  constraint _endpoint_pkey primary key (endpoint_id),
  constraint _endpoint_state_known check (state in ('unverified', 'active', 'paused', 'disabled', 'expired', 'deleted')),
  constraint _endpoint_max_in_flight_positive check (max_in_flight > 0),
  constraint _endpoint_signature_known check (signature in (
    'v1', 'v1a', 'rfc9421-hmac-sha256', 'rfc9421-ed25519', 'github', 'github-sha1', 'stripe', 'slack', 'shopify'))
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
comment on column webhook._endpoint.verify is 'How control of the URL is to be proven: challenge, graph or slack; none = it is not.';
comment on column webhook._endpoint.description is 'Free text of the operator.';
comment on column webhook._endpoint.max_in_flight is 'Concurrent requests to this endpoint; null = that of the policy.';
comment on column webhook._endpoint.revision is 'Current shape, row of _endpoint_revision.';
comment on column webhook._endpoint.generation is
  'Raised by what makes the leader''s findings void: a new URL, a change of state, enabling. They count for the generation they were made under.';
comment on column webhook._endpoint.origin is 'Which database made the endpoint; in a copy it is inert.';
comment on column webhook._endpoint.created_xid is 'Transaction that made the endpoint; it gets that transaction''s own events.';
comment on column webhook._endpoint.created_snapshot is 'Snapshot of that transaction; events visible to it are older than the endpoint.';
comment on column webhook._endpoint.changed_xid is 'Transaction of the last change; lets the leader read changes as of its window.';
comment on column webhook._endpoint.created_at is 'When the endpoint was made.';
comment on column webhook._endpoint.created_by is 'Session user who made it.';
comment on column webhook._endpoint.policy is 'Row of _policy; null = the policy "default".';
comment on column webhook._endpoint.ordered is 'Keeps the order of each subject: an event waits until the one before it is settled.';
comment on column webhook._endpoint.pending_url is
  'New callback URL that is not proven yet; the one in url stays in force until it is. The leader puts a proven one in force.';
comment on column webhook._endpoint.proof_generation is 'Raised by each demand for a proof: an answer to a challenge of an earlier one proves nothing.';
comment on column webhook._endpoint.proof_asked_at is 'Since when a proof of control is demanded; null = none is.';
comment on column webhook._endpoint.verified_at is 'When control of the URL in force was proven, or the proof was spared; null = never.';
comment on column webhook._endpoint.verified_by is 'How: challenge, graph, slack, or none when an operator did without.';
comment on column webhook._endpoint.expires_at is 'When the endpoint expires unless it is renewed; null = never.';
comment on column webhook._endpoint.renewed_at is 'When expires_at was last set.';
comment on column webhook._endpoint.signature is 'Signature profile: how requests are signed from now on, retries included.';
comment on column webhook._endpoint.headers is
  'Headers that the operator adds to every request, an object of texts; null = none. Values may be credentials: no view and no log shows them.';
comment on column webhook._endpoint.headers_changed_at is 'When they were last changed; null = never.';
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
  adaptive_window real,
  probe_at timestamptz,
  probe_wait_ms integer,
  failing_since timestamptz,
  failures integer not null default 0,
  warned_at timestamptz,
  last_success_at timestamptz,
  last_failure_at timestamptz,
  last_status smallint,
  last_error_category text collate "C",
  delivered bigint not null default 0,
  failed bigint not null default 0,
  latency_ms integer,
  seen_at timestamptz,
  constraint _endpoint_state_pkey primary key (endpoint_id)
) with (fillfactor = 50);
comment on table webhook._endpoint_state is
  'What the leader found out about an endpoint. All but the two counters counts only while generation equals that of _endpoint.';
comment on column webhook._endpoint_state.endpoint_id is 'The endpoint.';
comment on column webhook._endpoint_state.generation is 'Generation of the endpoint that the finding is about.';
comment on column webhook._endpoint_state.state is 'State set by the leader (disabled after 410 or too many failures, expired); null when it has no say.';
comment on column webhook._endpoint_state.reason is 'Why.';
comment on column webhook._endpoint_state.changed_at is 'When.';
comment on column webhook._endpoint_state.adaptive_window is 'Concurrent requests that the endpoint stands, as far as its answers tell; 0 = shut, only probes are sent.';
comment on column webhook._endpoint_state.probe_at is 'When the next probe of a shut endpoint may be sent.';
comment on column webhook._endpoint_state.probe_wait_ms is 'Current wait between probes; doubles.';
comment on column webhook._endpoint_state.failing_since is 'First failure since the last success; null = the last answer was a success.';
comment on column webhook._endpoint_state.failures is 'Failed attempts since the last success.';
comment on column webhook._endpoint_state.warned_at is 'When the owner was warned of these failures; null = not yet.';
comment on column webhook._endpoint_state.last_success_at is 'When the last 2xx arrived.';
comment on column webhook._endpoint_state.last_failure_at is 'When the last attempt failed.';
comment on column webhook._endpoint_state.last_status is 'HTTP status of the latest attempt; null when there was none.';
comment on column webhook._endpoint_state.last_error_category is 'Why the last failed attempt failed.';
comment on column webhook._endpoint_state.delivered is 'Attempts answered with 2xx since the endpoint exists.';
comment on column webhook._endpoint_state.failed is 'Attempts that failed since the endpoint exists.';
comment on column webhook._endpoint_state.latency_ms is 'Smoothed milliseconds of an attempt.';
comment on column webhook._endpoint_state.seen_at is 'When the row was last written.';

create table webhook._endpoint_revision (
  endpoint_id bigint not null,
  revision integer not null,
  format text collate "C" not null default 'native',
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  created_xid xid8 not null default pg_catalog.pg_current_xact_id(),
  constraint _endpoint_revision_pkey primary key (endpoint_id, revision),
  constraint _endpoint_revision_format check (format in ('native', 'cloudevents-structured', 'cloudevents-binary'))
);
comment on table webhook._endpoint_revision is 'Shapes of an endpoint''s payload. Append-only: retries and replays keep the shape of the first attempt.';
comment on column webhook._endpoint_revision.endpoint_id is 'The endpoint.';
comment on column webhook._endpoint_revision.revision is 'Number of the shape, from 1.';
comment on column webhook._endpoint_revision.format is 'Form of the body: native (the envelope of the documentation), cloudevents-structured or cloudevents-binary.';
comment on column webhook._endpoint_revision.created_at is 'When the shape was chosen.';
comment on column webhook._endpoint_revision.created_xid is
  'Transaction that chose it: tells which shape an attempt had that may have been made before a crash.';

create table webhook._secret (
  key_id bigint not null,
  endpoint_id bigint not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  valid_until timestamptz,
  secret bytea,
  created_by name not null default session_user,
  revoked_at timestamptz,
  kind text collate "C" not null default 'hmac-sha256',
  public_key text collate "C",
  constraint _secret_pkey primary key (key_id),
  constraint _secret_kind_known check (kind in ('hmac-sha256', 'ed25519')),
  constraint _secret_public_key_of_pairs check ((kind = 'ed25519') = (public_key is not null))
);
comment on table webhook._secret is 'Signing keys of endpoints. No function and no view shows key material after its creation.';
comment on column webhook._secret.key_id is 'Id of the key, sent as webhook-key-id.';
comment on column webhook._secret.endpoint_id is 'The endpoint.';
comment on column webhook._secret.created_at is 'When the key was made.';
comment on column webhook._secret.valid_until is 'End of its validity; null = current.';
comment on column webhook._secret.secret is 'The key as it is stored: encrypted under the master key, or in clear; null = destroyed.';
comment on column webhook._secret.created_by is 'Session user who made it.';
comment on column webhook._secret.revoked_at is 'When it was revoked.';
comment on column webhook._secret.kind is 'hmac-sha256 (the receiver holds the same key) or ed25519 (the receiver holds the public half).';
comment on column webhook._secret.public_key is 'whpk_ and the base64 of the public half; null for hmac-sha256.';
create index _secret_endpoint on webhook._secret (endpoint_id);
comment on index webhook._secret_endpoint is 'Keys of an endpoint.';

create table webhook._event_type (
  name text collate "C" not null,
  priority smallint not null default 1,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  changed_xid xid8 not null default pg_catalog.pg_current_xact_id(),
  description text,
  emitted_when text,
  not_emitted_when text,
  receiver_action text,
  authoritative_state text,
  owner text,
  contact text,
  sensitivity text collate "C",
  payload_retention interval,
  sources text[],
  deprecated_at timestamptz,
  deprecation_reason text,
  replaced_by text collate "C",
  sunset_at timestamptz,
  constraint _event_type_pkey primary key (name),
  constraint _event_type_priority check (priority in (0, 1)),
  constraint _event_type_sensitivity check (sensitivity in ('public', 'internal', 'confidential', 'personal'))
);
comment on table webhook._event_type is 'The catalogue: known event types, their priority, and what people must know about them.';
comment on column webhook._event_type.name is 'Event type, object.change.';
comment on column webhook._event_type.priority is 'Priority class: 0 is served before 1.';
comment on column webhook._event_type.created_at is 'When the type was registered.';
comment on column webhook._event_type.changed_xid is 'Transaction of the last change; lets the leader read changes as of its window.';
comment on column webhook._event_type.description is 'What the event tells.';
comment on column webhook._event_type.emitted_when is 'When it is emitted.';
comment on column webhook._event_type.not_emitted_when is 'When it is not, although one might think so.';
comment on column webhook._event_type.receiver_action is 'What a receiver typically does.';
comment on column webhook._event_type.authoritative_state is 'Where the state is read that counts.';
comment on column webhook._event_type.owner is 'Who answers for it.';
comment on column webhook._event_type.contact is 'How to reach the owner.';
comment on column webhook._event_type.sensitivity is 'public, internal, confidential or personal.';
comment on column webhook._event_type.payload_retention is 'How long payloads are kept; null = as long as events.';
comment on column webhook._event_type.sources is 'Registered sources that may emit it; null = whoever may emit.';
comment on column webhook._event_type.deprecated_at is 'When it was deprecated; null = it is not.';
comment on column webhook._event_type.deprecation_reason is 'Why.';
comment on column webhook._event_type.replaced_by is 'Event type to use in its place.';
comment on column webhook._event_type.sunset_at is 'From when on emit refuses it; null = it goes on with a warning.';
create index _event_type_changed on webhook._event_type (changed_xid);
comment on index webhook._event_type_changed is 'Changes since the leader''s last window.';

create table webhook._policy (
  name text collate "C" not null,
  retry_schedule text,
  client_error_attempts integer,
  retry_after_max interval,
  max_in_flight integer,
  rate real,
  burst integer,
  max_age interval,
  disable_after interval,
  disable_failures integer,
  description text,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  changed_at timestamptz not null default pg_catalog.clock_timestamp(),
  changed_by name not null default session_user,
  changed_xid xid8 not null default pg_catalog.pg_current_xact_id(),
  constraint _policy_pkey primary key (name),
  constraint _policy_rate_positive check (rate > 0),
  constraint _policy_burst_positive check (burst >= 1)
);
comment on table webhook._policy is
  'How deliveries to the endpoints that name a policy are retried, limited and given up. A null is the value of the policy "default", and there the server''s setting.';
comment on column webhook._policy.name is 'Name of the policy.';
comment on column webhook._policy.retry_schedule is 'Waits between attempts, as in webhook.retry_schedule.';
comment on column webhook._policy.client_error_attempts is 'Attempts for 3xx and 4xx answers that have no rule of their own.';
comment on column webhook._policy.retry_after_max is 'Longest wait that a receiver''s Retry-After may ask for.';
comment on column webhook._policy.max_in_flight is 'Concurrent requests to an endpoint.';
comment on column webhook._policy.rate is 'Requests per second to an endpoint; none by default.';
comment on column webhook._policy.burst is 'Requests at once after a rest, where a rate is set.';
comment on column webhook._policy.max_age is 'Older events are not sent any more; none by default.';
comment on column webhook._policy.disable_after is 'An endpoint without a success for so long is disabled.';
comment on column webhook._policy.disable_failures is 'But not before so many failures in a row; 20 by default.';
comment on column webhook._policy.description is 'Free text of the operator.';
comment on column webhook._policy.created_at is 'When the policy was made.';
comment on column webhook._policy.changed_at is 'When it was last changed.';
comment on column webhook._policy.changed_by is 'Session user who changed it.';
comment on column webhook._policy.changed_xid is 'Transaction of the last change; lets the leader read changes as of its window.';
create index _policy_changed on webhook._policy (changed_xid);
comment on index webhook._policy_changed is 'Changes since the leader''s last window.';

insert into webhook._policy (name)
values ('default');

create function webhook._make_way()
returns trigger
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  delete from webhook._policy p
   where p.name = new.name;
  return new;
end
$$;
comment on function webhook._make_way() is 'Lets a restored policy "default" replace the one that CREATE EXTENSION made.';

-- A dump holds the row, values and all, and its COPY would fail on ours. ENABLE ALWAYS: tools that restore with
-- session_replication_role = replica need it as well.
create trigger _policy_default
  before insert on webhook._policy
  for each row
  when (new.name = 'default')
  execute function webhook._make_way();
comment on trigger _policy_default on webhook._policy is 'The restored policy "default" wins.';
alter table webhook._policy enable always trigger _policy_default;

create table webhook._pause (
  scope text collate "C" not null,
  target text collate "C" not null,
  paused boolean not null,
  reason text,
  paused_by name not null default session_user,
  paused_at timestamptz not null default pg_catalog.clock_timestamp(),
  changed_xid xid8 not null default pg_catalog.pg_current_xact_id(),
  constraint _pause_pkey primary key (scope, target),
  constraint _pause_scope check (scope in ('all', 'partner', 'event_type'))
);
comment on table webhook._pause is
  'What is paused, or was. Rows are never deleted, so that the leader finds every change by changed_xid. A paused endpoint has no row here: it is a state of _endpoint.';
comment on column webhook._pause.scope is 'all, partner or event_type.';
comment on column webhook._pause.target is 'The partner or the event type; empty for all.';
comment on column webhook._pause.paused is 'Whether the pause is in force.';
comment on column webhook._pause.reason is 'Why it was paused.';
comment on column webhook._pause.paused_by is 'Session user who paused it.';
comment on column webhook._pause.paused_at is 'When.';
comment on column webhook._pause.changed_xid is 'Transaction of the last change; lets the leader read changes as of its window.';
create index _pause_changed on webhook._pause (changed_xid);
comment on index webhook._pause_changed is 'Changes since the leader''s last window.';
-- The leader's memory: its position with its open batches, and what users asked of it.

create table webhook._ledger (
  n bigint not null,
  incarnation bigint not null,
  batch bigint not null,
  kind text collate "C" not null,
  at timestamptz not null default pg_catalog.clock_timestamp(),
  prev pg_snapshot,
  cur pg_snapshot,
  from_xid xid8,
  from_id text collate "C",
  to_xid xid8,
  to_id text collate "C",
  pos bigint,
  event_ids text[],
  endpoint_ids bigint[],
  attempt_nos integer[],
  stream bigint not null default 0,
  partners text[],
  constraint _ledger_pkey primary key (n),
  constraint _ledger_kind check (kind in ('start', 'window', 'claim', 'close', 'aside', 'joined', 'place'))
);
comment on table webhook._ledger is
  'Position of the leader and its open batches. Append-only, trimmed: an updated row degrades under a pinned snapshot. Not dumped.';
comment on column webhook._ledger.n is 'Order of the rows.';
comment on column webhook._ledger.incarnation is 'Life of the leader that wrote the row; a result is refused when a later life exists.';
comment on column webhook._ledger.batch is 'Batch that the row is about.';
comment on column webhook._ledger.kind is
  'start = a life began; window = a batch of new events was opened; claim = pairs listed here are on the wire; close = every pair of the batch has a row; aside = partners with very many events are read by a stream of their own from here on; joined = that stream has caught up and is no more; place = everybody''s stream stands here, having read cur to its end.';
comment on column webhook._ledger.at is 'When the row was written.';
comment on column webhook._ledger.prev is 'Events visible in it were read by earlier windows.';
comment on column webhook._ledger.cur is 'Events visible in it and not in prev belong to this window.';
comment on column webhook._ledger.from_xid is 'Keyset (xid, event_id) after which the batch begins.';
comment on column webhook._ledger.from_id is 'Second part of that keyset.';
comment on column webhook._ledger.to_xid is 'Keyset of the last event of the batch.';
comment on column webhook._ledger.to_id is 'Second part of that keyset.';
comment on column webhook._ledger.pos is 'Last feed position of the batch: the next life goes on after it.';
comment on column webhook._ledger.event_ids is 'Pairs of a claim: the events.';
comment on column webhook._ledger.endpoint_ids is 'Pairs of a claim: the endpoints.';
comment on column webhook._ledger.attempt_nos is 'Pairs of a claim: the numbers of the attempts on the wire.';
comment on column webhook._ledger.stream is 'Who reads: 0 = the stream of everybody, else one that was set aside for the partners named in its rows.';
comment on column webhook._ledger.partners is 'Of the stream 0: whose events it passes over, null = nobody''s. Of another one: whose events it reads.';

-- Everything from the oldest transaction that is open now on is new: the extension did not exist before.
insert into webhook._ledger (n, incarnation, batch, kind, prev, cur)
select 0, 0, 0, 'start',
       pg_catalog.format('%s:%s:', x.oldest, x.oldest)::pg_catalog.pg_snapshot,
       pg_catalog.format('%s:%s:', x.oldest, x.oldest)::pg_catalog.pg_snapshot
  from (select pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()) as oldest) as x;

create table webhook._request (
  request_id bigint not null,
  verb text collate "C" not null,
  event_id text collate "C",
  endpoint_id bigint,
  state text collate "C" not null default 'pending',
  origin bigint not null,
  requested_by name not null default session_user,
  requested_at timestamptz not null default pg_catalog.clock_timestamp(),
  finished_at timestamptz,
  deliveries integer,
  result text,
  xid xid8 not null default pg_catalog.pg_current_xact_id(),
  scope text collate "C",
  target text collate "C",
  reason text,
  event_ids text[],
  endpoint_ids bigint[],
  partner_id text collate "C",
  constraint _request_pkey primary key (request_id),
  constraint _request_verb check (verb in ('replay', 'retry', 'skip', 'close', 'pause', 'resume', 'verify_endpoint', 'adopt', 'replay_range', 'cancel_replay', 'repair')),
  constraint _request_pairs check (cardinality(event_ids) = cardinality(endpoint_ids)),
  constraint _request_state check (state in ('pending', 'done', 'refused'))
);
comment on table webhook._request is
  'What users asked of the leader. They insert, the leader alone updates. Not dumped: a copy has nothing to carry out.';
comment on column webhook._request.request_id is 'Time-ordered random id.';
comment on column webhook._request.verb is 'What is asked.';
comment on column webhook._request.event_id is 'The event concerned; null when there are several, or none.';
comment on column webhook._request.endpoint_id is 'The endpoint concerned; null = every existing pair of the event.';
comment on column webhook._request.state is 'pending, done or refused.';
comment on column webhook._request.origin is 'Which database the request was made in.';
comment on column webhook._request.requested_by is 'Session user who asked.';
comment on column webhook._request.requested_at is 'When.';
comment on column webhook._request.finished_at is 'When the leader carried it out or refused it.';
comment on column webhook._request.deliveries is 'How many deliveries it concerned.';
comment on column webhook._request.result is 'What came of it, in words.';
comment on column webhook._request.xid is 'Transaction that asked; a pause holds from the window that sees it.';
comment on column webhook._request.scope is 'What a pause or its end is about: all, partner, event_type or endpoint.';
comment on column webhook._request.target is 'The partner, event type or endpoint, of an adoption the origin, of cancel_replay the request; null for all.';
comment on column webhook._request.reason is 'Why, in the user''s words.';
comment on column webhook._request.event_ids is 'Pairs of retry, skip and close: the events.';
comment on column webhook._request.endpoint_ids is 'Pairs of retry, skip and close: the endpoints.';
comment on column webhook._request.partner_id is 'Tenant concerned; null when there are several, or none.';
create index _request_pending on webhook._request (request_id) where state = 'pending';
comment on index webhook._request_pending is 'Requests that the leader has not carried out.';

create table webhook._fenced (
  event_id text collate "C" not null,
  reason text not null,
  found_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint _fenced_pkey primary key (event_id)
);
comment on table webhook._fenced is 'Events that the leader read and refused to send: their row does not match its seal.';
comment on column webhook._fenced.event_id is 'The event.';
comment on column webhook._fenced.reason is 'Why it is never sent.';
comment on column webhook._fenced.found_at is 'When the leader found it.';
-- What operators are told and what users did: alerts and the audit log. Append-only.
-- The leader writes alerts, and so do the functions that disable and enable endpoints; every verb writes one
-- audit row (32_audit.sql). Neither table holds a payload or a secret.

create table webhook._alert (
  alert_id bigint not null,
  at timestamptz not null default pg_catalog.clock_timestamp(),
  kind text collate "C" not null,
  severity text collate "C" not null,
  partner_id text collate "C",
  endpoint_id bigint,
  event_id text collate "C",
  detail text,
  constraint _alert_pkey primary key (alert_id),
  constraint _alert_severity check (severity in ('info', 'warning', 'critical'))
);
comment on table webhook._alert is 'What somebody should know: endpoints that fail or were disabled, deliveries that are held, events that were refused.';
comment on column webhook._alert.alert_id is 'Time-ordered random id.';
comment on column webhook._alert.at is 'When it was found.';
comment on column webhook._alert.kind is
  'endpoint.warning, endpoint.disabled, endpoint.recovered, endpoint.missed, endpoint.blocked, endpoint.expiring, endpoint.expired, endpoint.unconfirmed, delivery.quarantined, delivery.unrecorded, delivery.expired, delivery.closed or event.fenced.';
comment on column webhook._alert.severity is 'info, warning or critical.';
comment on column webhook._alert.partner_id is 'Tenant concerned.';
comment on column webhook._alert.endpoint_id is 'Endpoint concerned.';
comment on column webhook._alert.event_id is 'Event concerned.';
comment on column webhook._alert.detail is 'What happened, in words.';
create index _alert_endpoint on webhook._alert (endpoint_id, alert_id) where endpoint_id is not null;
comment on index webhook._alert_endpoint is 'Alerts about an endpoint by time.';
create index _alert_partner on webhook._alert (partner_id, alert_id) where partner_id is not null;
comment on index webhook._alert_partner is 'Alerts about a partner by time.';

create table webhook._audit (
  audit_id bigint not null,
  at timestamptz not null default pg_catalog.clock_timestamp(),
  actor name not null default session_user,
  application text,
  client inet,
  verb text collate "C" not null,
  object_kind text collate "C" not null,
  object_id text collate "C",
  partner_id text collate "C",
  before jsonb,
  after jsonb,
  reason text,
  request_id bigint,
  constraint _audit_pkey primary key (audit_id)
);
comment on table webhook._audit is 'Who did what: one row for each call of a verb, in the caller''s transaction.';
comment on column webhook._audit.audit_id is 'Time-ordered random id.';
comment on column webhook._audit.at is 'When.';
comment on column webhook._audit.actor is 'Session user.';
comment on column webhook._audit.application is 'application_name of the session.';
comment on column webhook._audit.client is 'Address of the client; null = local.';
comment on column webhook._audit.verb is 'Function that was called.';
comment on column webhook._audit.object_kind is 'endpoint, policy, event_type, event_schema, source, threshold, event, delivery, partner, role, origin, inbox_source, inbox_handler, inbox_event, subject, erasure, reconciliation or all.';
comment on column webhook._audit.object_id is 'Which one; null when there are several.';
comment on column webhook._audit.partner_id is 'Tenant concerned; null when there are several, or none.';
comment on column webhook._audit.before is 'What was changed, as it was; of a URL the host only.';
comment on column webhook._audit.after is 'What was changed, as it is; what was asked.';
comment on column webhook._audit.reason is 'Why, in the user''s words.';
comment on column webhook._audit.request_id is 'The request to the leader; null when there is none.';
create index _audit_object on webhook._audit (object_kind, object_id, audit_id);
comment on index webhook._audit_object is 'What was done to an object, by time.';
create index _audit_partner on webhook._audit (partner_id, audit_id) where partner_id is not null;
comment on index webhook._audit_partner is 'What was done to what is a partner''s, by time.';
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
-- Proof that a partner controls a callback URL: what was tried and what came of it. Append-only evidence.
-- The leader writes one row for each challenge it sent; a verb writes one where an operator spares the proof.
-- The value of a challenge is nowhere: it lives in the leader's memory, for one try.

create table webhook._verification (
  verification_id bigint not null,
  endpoint_id bigint not null,
  proof_generation bigint not null,
  started_at timestamptz not null default pg_catalog.clock_timestamp(),
  latency_ms integer,
  status smallint,
  method text collate "C" not null,
  host text not null,
  result text collate "C" not null,
  error_category text collate "C",
  detail text,
  overridden_by name,
  constraint _verification_pkey primary key (verification_id),
  constraint _verification_result check (result in ('proven', 'failed', 'void', 'overridden'))
);
comment on table webhook._verification is 'Proofs of control of callback URLs: every challenge that was sent, and every time that an operator did without one. Append-only.';
comment on column webhook._verification.verification_id is 'Time-ordered random id; the challenge carries it as chl_ and this number.';
comment on column webhook._verification.endpoint_id is 'The endpoint.';
comment on column webhook._verification.proof_generation is 'Which demand for a proof it answers, as in _endpoint.';
comment on column webhook._verification.started_at is 'When the challenge was sent.';
comment on column webhook._verification.latency_ms is 'Milliseconds from connecting to the end of the answer; null when nothing was sent.';
comment on column webhook._verification.status is 'HTTP status of the answer; null when there was none.';
comment on column webhook._verification.method is 'challenge, graph or slack; none where an operator did without.';
comment on column webhook._verification.host is 'Host of the URL that was to be proven.';
comment on column webhook._verification.result is
  'proven, failed, void (answered rightly, but the endpoint had changed meanwhile) or overridden (an operator did without a proof).';
comment on column webhook._verification.error_category is 'Error category of a failed exchange, as in attempts; null when the answer was 2xx.';
comment on column webhook._verification.detail is 'What was wrong, in the sender''s own words.';
comment on column webhook._verification.overridden_by is 'Session user who did without a proof.';
create index _verification_endpoint on webhook._verification (endpoint_id, verification_id);
comment on index webhook._verification_endpoint is 'Proofs of an endpoint by time.';
-- Taking over what came with a copy: which origins were adopted, and how far that has come.
-- Users write _adoption and _adopted_endpoint through adopt(); the leader alone writes _adoption_progress. Each
-- adoption is bound to the database that made it, so that a copy of this one trusts none of them.

create table webhook._adoption (
  request_id bigint not null,
  origin bigint not null,
  adopter bigint not null,
  mode text collate "C" not null,
  reason text not null,
  requested_by name not null default session_user,
  requested_at timestamptz not null default pg_catalog.clock_timestamp(),
  endpoints integer not null,
  snapshot pg_snapshot not null,
  xid xid8 not null default pg_catalog.pg_current_xact_id(),
  constraint _adoption_pkey primary key (request_id),
  constraint _adoption_mode check (mode in ('send', 'skip'))
);
comment on table webhook._adoption is 'Origins that a database has taken over with adopt(). Insert-only.';
comment on column webhook._adoption.request_id is 'The request to the leader; time-ordered.';
comment on column webhook._adoption.origin is 'Origin whose events and endpoints were taken over.';
comment on column webhook._adoption.adopter is 'Origin of the database that took them over; in a copy of it the row means nothing.';
comment on column webhook._adoption.mode is 'send = what was still to be sent is sent; skip = only new events are.';
comment on column webhook._adoption.reason is 'Why, in the user''s words.';
comment on column webhook._adoption.requested_by is 'Session user who asked.';
comment on column webhook._adoption.requested_at is 'When.';
comment on column webhook._adoption.endpoints is 'Endpoints that changed hands.';
comment on column webhook._adoption.snapshot is
  'Snapshot in which they did: own events visible in it were missed by them, later ones reach them through the window.';
comment on column webhook._adoption.xid is 'Transaction that asked; its own events reach the endpoints through the window.';

create table webhook._adopted_endpoint (
  endpoint_id bigint not null,
  origin bigint not null,
  created_xid xid8 not null,
  created_snapshot pg_snapshot not null,
  constraint _adopted_endpoint_pkey primary key (endpoint_id, origin)
);
comment on table webhook._adopted_endpoint is 'Which origins an endpoint belonged to before, and since when by the transactions of each.';
comment on column webhook._adopted_endpoint.endpoint_id is 'The endpoint.';
comment on column webhook._adopted_endpoint.origin is 'An origin that it belonged to.';
comment on column webhook._adopted_endpoint.created_xid is 'Transaction of that origin that made the endpoint, or adopted it.';
comment on column webhook._adopted_endpoint.created_snapshot is 'Snapshot of that transaction: events of that origin visible in it are older than the endpoint.';
create index _adopted_endpoint_origin on webhook._adopted_endpoint (origin);
comment on index webhook._adopted_endpoint_origin is 'Endpoints that came from an origin.';

create table webhook._adoption_progress (
  request_id bigint not null,
  state text collate "C" not null,
  reached text collate "C" not null,
  feed_to bigint not null,
  feed_tail bigint not null,
  last_pos bigint not null,
  events bigint not null default 0,
  published bigint not null default 0,
  made bigint not null default 0,
  resumed bigint not null default 0,
  skipped bigint not null default 0,
  tampered bigint not null default 0,
  started_at timestamptz not null default pg_catalog.clock_timestamp(),
  finished_at timestamptz,
  constraint _adoption_progress_pkey primary key (request_id),
  constraint _adoption_progress_state check (state in ('running', 'done'))
);
comment on table webhook._adoption_progress is
  'How far the leader has come with an adoption. Changed in the transaction that does the work, so that nothing is done twice.';
comment on column webhook._adoption_progress.request_id is 'The adoption.';
comment on column webhook._adoption_progress.state is 'running or done.';
comment on column webhook._adoption_progress.reached is 'Last event looked at; the next round begins after it.';
comment on column webhook._adoption_progress.feed_to is 'End of the feed when the adoption began: what is behind it was published since.';
comment on column webhook._adoption_progress.feed_tail is
  'From here on events that the origin had published may have been in its memory when the copy was made: their missing deliveries are made.';
comment on column webhook._adoption_progress.last_pos is 'Last feed position used.';
comment on column webhook._adoption_progress.events is 'Events looked at.';
comment on column webhook._adoption_progress.published is 'Events that the origin had not read, and that were given a place in the feed.';
comment on column webhook._adoption_progress.made is 'Deliveries made.';
comment on column webhook._adoption_progress.resumed is 'Pending and retrying deliveries that wait for their next attempt again.';
comment on column webhook._adoption_progress.skipped is 'Pending and retrying deliveries that were skipped.';
comment on column webhook._adoption_progress.tampered is 'Events whose row does not match its seal; they stay fenced.';
comment on column webhook._adoption_progress.started_at is 'When the leader began.';
comment on column webhook._adoption_progress.finished_at is 'When it was done; null = not yet.';
-- The catalogue beside _event_type (12_endpoint.sql): schemas, sources, thresholds and what was last observed. Written by
-- the verbs of 43_event_type.sql, 46_catalogue.sql and 47_threshold.sql; read by emitting sessions (src/pg/catalogue.rs).
-- Rows name each other by name, without foreign keys: pg_dump restores the rows of an extension in any order.

create table webhook._event_schema (
  event_type text collate "C" not null,
  version text collate "C" not null,
  current boolean not null,
  mode text collate "C",
  schema jsonb not null,
  example jsonb not null,
  change_note text,
  uri text,
  added_at timestamptz not null default pg_catalog.clock_timestamp(),
  added_by name not null default session_user,
  changed_at timestamptz not null default pg_catalog.clock_timestamp(),
  deprecated_at timestamptz,
  constraint _event_schema_pkey primary key (event_type, version),
  constraint _event_schema_mode check (mode in ('off', 'warn', 'enforce')),
  constraint _event_schema_current check (not (current and deprecated_at is not null))
);
comment on table webhook._event_schema is 'JSON Schema and example of each version of an event type''s payload.';
comment on column webhook._event_schema.event_type is 'The event type.';
comment on column webhook._event_schema.version is 'Version of the payload''s schema, as events carry it in schema_version.';
comment on column webhook._event_schema.current is 'Whether it is the version of events that name none; one per event type at most.';
comment on column webhook._event_schema.mode is 'off, warn or enforce; null = webhook.validation.';
comment on column webhook._event_schema.schema is 'JSON Schema, draft 7 or 2020-12.';
comment on column webhook._event_schema.example is 'A payload that the schema accepts.';
comment on column webhook._event_schema.change_note is 'What is different from the version before.';
comment on column webhook._event_schema.uri is 'Where the version is documented.';
comment on column webhook._event_schema.added_at is 'When the version was added.';
comment on column webhook._event_schema.added_by is 'Session user who added it.';
comment on column webhook._event_schema.changed_at is 'When it was last changed.';
comment on column webhook._event_schema.deprecated_at is 'When the version was deprecated; null = it is not.';
create unique index _event_schema_one_current on webhook._event_schema (event_type) where current;
comment on index webhook._event_schema_one_current is 'One current version per event type.';

create table webhook._source (
  name text collate "C" not null,
  enabled boolean not null default true,
  owner text,
  contact text,
  description text,
  role_name name,
  event_types text[] not null,
  partners text[],
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  changed_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint _source_pkey primary key (name)
);
comment on table webhook._source is 'Registered producers of events. A source that is not registered may be named by whoever may emit.';
comment on column webhook._source.name is 'Name, as events carry it in source.';
comment on column webhook._source.enabled is 'Whether events may name it.';
comment on column webhook._source.owner is 'Who answers for it.';
comment on column webhook._source.contact is 'How to reach the owner.';
comment on column webhook._source.description is 'What it is, and how it is switched off on its own side.';
comment on column webhook._source.role_name is 'Role whose members alone may name it; null = whoever may emit.';
comment on column webhook._source.event_types is 'Event types and wildcards that it may emit.';
comment on column webhook._source.partners is 'Partners that it may emit for; null = all.';
comment on column webhook._source.created_at is 'When it was registered.';
comment on column webhook._source.changed_at is 'When it was last changed.';

create table webhook._threshold (
  metric text collate "C" not null,
  name text collate "C" not null,
  threshold numeric not null,
  direction text collate "C" not null,
  event_type text collate "C" not null,
  rearm text collate "C" not null,
  rearm_at numeric,
  adjustments_cross boolean not null,
  first_crosses boolean not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint _threshold_pkey primary key (metric, name),
  constraint _threshold_direction check (direction in ('up', 'down')),
  constraint _threshold_rearm check (rearm in ('reversal', 'margin', 'never')),
  constraint _threshold_margin check ((rearm = 'margin') = (rearm_at is not null))
);
comment on table webhook._threshold is 'Values of a metric whose crossing is an event.';
comment on column webhook._threshold.metric is 'The metric.';
comment on column webhook._threshold.name is 'Name of the threshold within the metric.';
comment on column webhook._threshold.threshold is 'The value, in the unit of the metric.';
comment on column webhook._threshold.direction is 'up = crossed by a value that reaches or exceeds it, coming from below; down = the reverse.';
comment on column webhook._threshold.event_type is 'Type of the event that a crossing emits.';
comment on column webhook._threshold.rearm is 'After an event: reversal = armed again when the value has gone back across; margin = when it has reached rearm_at; never = once per subject.';
comment on column webhook._threshold.rearm_at is 'Value that arms it again, in the unit of the metric.';
comment on column webhook._threshold.adjustments_cross is 'Whether a value that is an adjustment can cross.';
comment on column webhook._threshold.first_crosses is 'Whether the first value of a subject crosses when it is beyond already.';
comment on column webhook._threshold.created_at is 'When it was made.';

create table webhook._observation (
  partner_id text collate "C" not null,
  metric text collate "C" not null,
  subject_type text collate "C" not null,
  subject_id text collate "C" not null,
  value numeric not null,
  observation bigint not null,
  observed_at timestamptz not null default pg_catalog.clock_timestamp(),
  disarmed text[] not null default '{}',
  constraint _observation_pkey primary key (partner_id, metric, subject_type, subject_id)
)
-- Updated by every observation: in place, as long as the page has room.
with (fillfactor = 70);
comment on table webhook._observation is 'The last value of each metric of each subject, and which thresholds have told already. Written by observe.';
comment on column webhook._observation.partner_id is 'Tenant that the subject belongs to.';
comment on column webhook._observation.metric is 'The metric.';
comment on column webhook._observation.subject_type is 'Kind of the subject.';
comment on column webhook._observation.subject_id is 'Identity of the subject.';
comment on column webhook._observation.value is 'Last value, in the unit of the metric.';
comment on column webhook._observation.observation is 'How many values there were: the order in which they count.';
comment on column webhook._observation.observed_at is 'When the last one came.';
comment on column webhook._observation.disarmed is 'Names of the thresholds that emitted and are not armed again.';
-- What was erased: the erasures that users ordered, a tombstone for every event whose payload is gone, and how far the
-- payload retention of each event type has come. expunge() writes the first two in its caller's transaction; the leader
-- writes tombstones of its own, for payloads that have reached their age. No payload here, and no part of one.

create table webhook._erasure (
  erasure_id bigint not null,
  at timestamptz not null default pg_catalog.clock_timestamp(),
  actor name not null default session_user,
  scope text collate "C" not null,
  event_id text collate "C",
  partner_id text collate "C",
  subject_type text collate "C",
  subject_id text collate "C",
  reason text not null,
  erased jsonb not null default '{}',
  confirmed_at timestamptz,
  confirmed_by name,
  evidence jsonb,
  constraint _erasure_pkey primary key (erasure_id),
  constraint _erasure_scope check (scope in ('event', 'subject', 'partner'))
);
comment on table webhook._erasure is 'Calls of expunge: what was asked, what was erased, and the evidence that nothing is left.';
comment on column webhook._erasure.erasure_id is 'Time-ordered random id.';
comment on column webhook._erasure.at is 'When it was ordered.';
comment on column webhook._erasure.actor is 'Session user who ordered it.';
comment on column webhook._erasure.scope is 'event, subject or partner.';
comment on column webhook._erasure.event_id is 'The event, of scope event.';
comment on column webhook._erasure.partner_id is 'The tenant, of scope partner; of scope subject, where it was given.';
comment on column webhook._erasure.subject_type is 'Kind of the subject, of scope subject.';
comment on column webhook._erasure.subject_id is 'Identity of the subject, of scope subject.';
comment on column webhook._erasure.reason is 'Why, in the user''s words.';
comment on column webhook._erasure.erased is 'How many rows lost their contents, or were deleted, by table.';
comment on column webhook._erasure.confirmed_at is 'When confirm_erasure first found nothing left.';
comment on column webhook._erasure.confirmed_by is 'Session user who asked for that.';
comment on column webhook._erasure.evidence is 'What confirm_erasure counted then, by table.';

create table webhook._tombstone (
  event_id text collate "C" not null,
  body_sha256 bytea not null,
  expunged_at timestamptz not null default pg_catalog.clock_timestamp(),
  expunged_by name not null default session_user,
  erasure_id bigint,
  swept boolean not null default false,
  partner_id text collate "C" not null,
  reason text not null,
  constraint _tombstone_pkey primary key (event_id)
);
comment on table webhook._tombstone is
  'Events whose payload is gone on purpose. An event without a payload that has no tombstone with its digest was tampered with, and is fenced.';
comment on column webhook._tombstone.event_id is 'The event.';
comment on column webhook._tombstone.body_sha256 is 'SHA-256 of the payload that was there; covered by the seal of the event.';
comment on column webhook._tombstone.expunged_at is 'When it went.';
comment on column webhook._tombstone.expunged_by is 'Session user who had it go; the owner of the extension for the payload retention.';
comment on column webhook._tombstone.erasure_id is 'The call of expunge; null = the payload retention of its event type.';
comment on column webhook._tombstone.swept is 'The leader has looked for response excerpts that were written while the erasure was not committed yet.';
comment on column webhook._tombstone.partner_id is 'Tenant that the event belongs to.';
comment on column webhook._tombstone.reason is 'Why.';
create index _tombstone_unswept on webhook._tombstone (event_id) where not swept;
comment on index webhook._tombstone_unswept is 'Tombstones that the leader has still to look at.';
create index _tombstone_erasure on webhook._tombstone (erasure_id, event_id) where erasure_id is not null;
comment on index webhook._tombstone_erasure is 'Events of an erasure.';

create table webhook._payload_progress (
  type text collate "C" not null,
  pos bigint not null,
  constraint _payload_progress_pkey primary key (type)
);
comment on table webhook._payload_progress is 'How far the feed was searched for payloads that have reached the age of their event type. Written by the leader alone; not dumped.';
comment on column webhook._payload_progress.type is 'Event type with a payload retention.';
comment on column webhook._payload_progress.pos is 'Position in the feed up to which its payloads are gone.';
-- Which events of its types an endpoint gets: kinds of subject, and a condition on the payload. What is in force stands
-- with the endpoint, written by create_endpoint and update_endpoint; every version there was stands in _filter, so that
-- an event is decided about by the version that its window saw, however often that is done again (after a crash, by a
-- stream that lags behind, for a new endpoint). The leader decides, in src/pg/leader/filtering.rs and nowhere else.

alter table webhook._endpoint
  add column subject_types text[],
  add column filter text,
  add column filter_version integer not null default 0;
comment on column webhook._endpoint.subject_types is 'Subject types whose events are sent here; null = all, and events without a subject.';
comment on column webhook._endpoint.filter is 'Condition on the payload, a jsonpath predicate as PostgreSQL spells it; null = none.';
comment on column webhook._endpoint.filter_version is 'Number of the current row of _filter; 0 = there never was one.';

create table webhook._filter (
  endpoint_id bigint not null,
  version integer not null,
  subject_types text[],
  filter text,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  created_by name not null default session_user,
  created_xid xid8 not null default pg_catalog.pg_current_xact_id(),
  constraint _filter_pkey primary key (endpoint_id, version)
);
comment on table webhook._filter is 'Every filter that an endpoint has had. Append-only; endpoints that never had one have no row.';
comment on column webhook._filter.endpoint_id is 'The endpoint.';
comment on column webhook._filter.version is 'Number of the version, from 1.';
comment on column webhook._filter.subject_types is 'Subject types; null = all.';
comment on column webhook._filter.filter is 'Condition on the payload; null = none.';
comment on column webhook._filter.created_at is 'When it was chosen.';
comment on column webhook._filter.created_by is 'Session user who chose it.';
comment on column webhook._filter.created_xid is 'Transaction that chose it: it holds for the windows that see it.';
-- The receiving side: where events may come from, what came, and what handlers made of it.
--
-- Configuration (_inbox_source, _inbox_key, _inbox_handler) is written by verbs. _inbox is written once by receive(), in
-- the transaction of whoever answers the sender; one _inbox_run for each handler that wants the event is written with
-- it, and changed by claim_inbox() and finish_inbox() in the handler's own transactions. The leader has no part in any of
-- this but deleting what is older than the retention.
-- _inbox is no partitioned table: its unique key (source, event id) must hold over the whole retention, and a unique key
-- of a partitioned table holds only within a partition. A day's worth of rows is deleted in small pieces instead.
-- No foreign key leads to _inbox_source, whose rows are never deleted: every session that receives would lock the same
-- row, and each of two at once costs a multixact.

create table webhook._inbox_source (
  source_id bigint not null,
  name text collate "C" not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  changed_at timestamptz not null default pg_catalog.clock_timestamp(),
  profile text collate "C" not null,
  partner_id text collate "C",
  partner_from text collate "C",
  partners text[],
  id_from text collate "C",
  type_from text collate "C",
  tolerance interval not null,
  validation text collate "C" not null,
  same_body boolean not null,
  max_body integer not null,
  max_pending integer not null,
  max_per_minute integer,
  enabled boolean not null default true,
  description text,
  constraint _inbox_source_pkey primary key (source_id),
  constraint _inbox_source_name unique (name),
  constraint _inbox_source_partner check ((partner_id is null) <> (partner_from is null)),
  constraint _inbox_source_validation check (validation in ('off', 'enforce')),
  constraint _inbox_source_limits check (max_body > 0 and max_pending > 0 and max_per_minute > 0)
);
comment on table webhook._inbox_source is 'Senders whose events receive() accepts. Not _source, which lists the producers of events that are emitted here.';
comment on column webhook._inbox_source.source_id is 'Time-ordered random id; keys are bound to it.';
comment on column webhook._inbox_source.name is 'Name, as receive() is given it.';
comment on column webhook._inbox_source.created_at is 'When it was created.';
comment on column webhook._inbox_source.changed_at is 'When it was last changed.';
comment on column webhook._inbox_source.profile is 'Signature profile of the sender.';
comment on column webhook._inbox_source.partner_id is 'Tenant of every event of this source; null = partner_from says.';
comment on column webhook._inbox_source.partner_from is 'Where the tenant stands, in what is signed: body: and a JSON pointer, or header: and a name.';
comment on column webhook._inbox_source.partners is 'Tenants that partner_from may name; null = all.';
comment on column webhook._inbox_source.id_from is 'Where the event id stands: header:, body: or digest; null = where senders of the profile put it.';
comment on column webhook._inbox_source.type_from is 'Where the event type stands; null = where senders of the profile put it.';
comment on column webhook._inbox_source.tolerance is 'How far the time of signing may be from the server''s clock, in both directions.';
comment on column webhook._inbox_source.validation is 'off, or enforce: payloads must match the schema of their type in the catalogue.';
comment on column webhook._inbox_source.same_body is 'Whether an event that comes again with another body is a conflict; false = it is a duplicate.';
comment on column webhook._inbox_source.max_body is 'Largest body in bytes; a larger one is answered with 413.';
comment on column webhook._inbox_source.max_pending is 'Unfinished events above which new ones are answered with 503.';
comment on column webhook._inbox_source.max_per_minute is 'Events accepted in a minute above which new ones are answered with 429; null = no limit.';
comment on column webhook._inbox_source.enabled is 'false = everything is answered with 503.';
comment on column webhook._inbox_source.description is 'What it is.';

create table webhook._inbox_key (
  key_id bigint not null,
  source_id bigint not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  valid_until timestamptz,
  created_by name not null default session_user,
  kind text collate "C" not null,
  key bytea,
  -- As in _secret: what the views tell of a key is computed without a function in SQL, and in a CASE.
  kept boolean not null generated always as (key is not null) stored,
  stored_under text collate "C" generated always as (
    case
      when pg_catalog.length(key) > 8 and pg_catalog.get_byte(key, 0) = 1
        then pg_catalog.encode(pg_catalog.substring(key, 2, 8), 'hex')
    end) stored,
  constraint _inbox_key_pkey primary key (key_id),
  constraint _inbox_key_kind check (kind in ('hmac-sha256', 'ed25519', 'text'))
);
comment on table webhook._inbox_key is 'Keys that inbox sources are verified with. Several are in force during a rotation.';
comment on column webhook._inbox_key.key_id is 'Time-ordered random id.';
comment on column webhook._inbox_key.source_id is 'Its source.';
comment on column webhook._inbox_key.created_at is 'When it was added.';
comment on column webhook._inbox_key.valid_until is 'When it ceases to count; null = it has no end.';
comment on column webhook._inbox_key.created_by is 'Session user who added it.';
comment on column webhook._inbox_key.kind is 'hmac-sha256, ed25519 (a public key) or text (as the sender shows it).';
comment on column webhook._inbox_key.key is 'The key''s text as it is stored, see _secret; null = destroyed.';
comment on column webhook._inbox_key.kept is 'Whether its material is still there.';
comment on column webhook._inbox_key.stored_under is 'Id of the master key that it is encrypted under; null = it is in clear, or destroyed.';
create index _inbox_key_source on webhook._inbox_key (source_id, key_id);
comment on index webhook._inbox_key_source is 'Keys of a source.';

create table webhook._inbox_handler (
  name text collate "C" not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  changed_at timestamptz not null default pg_catalog.clock_timestamp(),
  origin bigint not null,
  version text collate "C" not null,
  event_types text[] not null,
  sources text[],
  retry_schedule text not null,
  subject_versions boolean not null,
  paused_at timestamptz,
  paused_by name,
  pause_reason text,
  description text,
  constraint _inbox_handler_pkey primary key (name)
);
comment on table webhook._inbox_handler is 'What processes received events, by name and version.';
comment on column webhook._inbox_handler.name is 'Name, as claim_inbox is given it.';
comment on column webhook._inbox_handler.created_at is 'When it was created: it gets the events received since.';
comment on column webhook._inbox_handler.changed_at is 'When it was last changed.';
comment on column webhook._inbox_handler.origin is 'Database it works in. In a copy it rests until resume_inbox: its work is the original''s.';
comment on column webhook._inbox_handler.version is 'Version in force. An event is processed once by each.';
comment on column webhook._inbox_handler.event_types is 'Event types and wildcards that it wants; * takes events without a type as well.';
comment on column webhook._inbox_handler.sources is 'Inbox sources that it wants events of; null = all.';
comment on column webhook._inbox_handler.retry_schedule is 'Waits between its attempts, as in webhook.retry_schedule; one attempt more than there are waits.';
comment on column webhook._inbox_handler.subject_versions is 'Whether an event about an older version of its subject than the one processed is stale.';
comment on column webhook._inbox_handler.paused_at is 'Since when it gets nothing; null = it is not paused.';
comment on column webhook._inbox_handler.paused_by is 'Session user who paused it.';
comment on column webhook._inbox_handler.pause_reason is 'Why.';
comment on column webhook._inbox_handler.description is 'What it does.';

create table webhook._inbox (
  inbox_id bigint not null,
  source_id bigint not null,
  event_id text collate "C" not null,
  received_at timestamptz not null default pg_catalog.clock_timestamp(),
  signed_at timestamptz,
  expunged_at timestamptz,
  subject_version bigint,
  partner_id text collate "C" not null,
  type text collate "C",
  subject_type text collate "C",
  subject_id text collate "C",
  schema_version text collate "C",
  correlation_id text collate "C",
  bytes integer not null,
  body_hash bytea,
  body bytea,
  constraint _inbox_pkey primary key (inbox_id),
  -- What makes a duplicate one, whoever receives it at the same moment.
  constraint _inbox_event unique (source_id, event_id)
);
comment on table webhook._inbox is 'Events received, one row for each event of a source; kept for webhook.inbox_retention. Append-only but for erasure.';
comment on column webhook._inbox.inbox_id is 'Time-ordered random id.';
comment on column webhook._inbox.source_id is 'Where it came from.';
comment on column webhook._inbox.event_id is 'Id of the event, as its sender gave it.';
comment on column webhook._inbox.received_at is 'When it was received.';
comment on column webhook._inbox.signed_at is 'When the sender signed it; null = the profile signs no time.';
comment on column webhook._inbox.expunged_at is 'When what it says was erased; id and times stay, so that it is not received anew.';
comment on column webhook._inbox.subject_version is 'Version of the subject.';
comment on column webhook._inbox.partner_id is 'Tenant that it belongs to.';
comment on column webhook._inbox.type is 'Event type; null = it says none.';
comment on column webhook._inbox.subject_type is 'Kind of the subject.';
comment on column webhook._inbox.subject_id is 'Identity of the subject.';
comment on column webhook._inbox.schema_version is 'Version of the payload''s schema.';
comment on column webhook._inbox.correlation_id is 'What ties it to others.';
comment on column webhook._inbox.bytes is 'Size of the body.';
comment on column webhook._inbox.body_hash is 'SHA-256 of the body; null = expunged.';
comment on column webhook._inbox.body is 'The body, byte for byte as it was signed; null = expunged.';
-- Its rows are compared in order, so received_at stands for inbox_id: the rate of a source, and what is old.
create index _inbox_received on webhook._inbox (source_id, received_at);
comment on index webhook._inbox_received is 'Events of a source by time: the limit per minute, and the retention.';

create table webhook._inbox_run (
  inbox_id bigint not null,
  source_id bigint not null,
  claim_id bigint,
  next_attempt_at timestamptz not null,
  finished_at timestamptz,
  attempts integer not null default 0,
  handler text collate "C" not null,
  version text collate "C" not null,
  state text collate "C" not null default 'pending',
  note text,
  constraint _inbox_run_pkey primary key (inbox_id, handler, version),
  constraint _inbox_run_inbox foreign key (inbox_id) references webhook._inbox on delete cascade,
  constraint _inbox_run_state check (state in ('pending', 'claimed', 'retrying', 'processed', 'stale', 'dead', 'closed'))
) with (fillfactor = 80);
comment on table webhook._inbox_run is 'Events of handlers: one row for each event, handler and version. That key is what keeps a side effect from happening twice.';
comment on column webhook._inbox_run.inbox_id is 'The event.';
comment on column webhook._inbox_run.source_id is 'Its source.';
comment on column webhook._inbox_run.claim_id is 'The claim in force; finish_inbox must name it.';
comment on column webhook._inbox_run.next_attempt_at is 'When it can be claimed (again); of a claimed one, when its lease ends.';
comment on column webhook._inbox_run.finished_at is 'When it came to its end.';
comment on column webhook._inbox_run.attempts is 'How often it was claimed.';
comment on column webhook._inbox_run.handler is 'The handler.';
comment on column webhook._inbox_run.version is 'Its version.';
comment on column webhook._inbox_run.state is 'pending, claimed, retrying, processed, stale, dead or closed.';
comment on column webhook._inbox_run.note is 'What the handler, or whoever decided, said.';
create index _inbox_run_open on webhook._inbox_run (handler, next_attempt_at, inbox_id) where state in ('pending', 'claimed', 'retrying');
comment on index webhook._inbox_run_open is 'What is to be claimed, and when.';
create index _inbox_run_waiting on webhook._inbox_run (source_id) where state in ('pending', 'claimed', 'retrying');
comment on index webhook._inbox_run_waiting is 'Unfinished events of a source: the limit above which nothing more is accepted.';
create index _inbox_run_dead on webhook._inbox_run (handler, inbox_id) where state = 'dead';
comment on index webhook._inbox_run_dead is 'Dead letters of a handler.';
create unique index _inbox_run_claim on webhook._inbox_run (claim_id) where claim_id is not null;
comment on index webhook._inbox_run_claim is 'The row of a claim.';

create table webhook._inbox_subject (
  changed_at timestamptz not null default pg_catalog.clock_timestamp(),
  version bigint not null,
  source_id bigint not null,
  handler text collate "C" not null,
  partner_id text collate "C" not null,
  subject_type text collate "C" not null,
  subject_id text collate "C" not null,
  constraint _inbox_subject_pkey primary key (handler, source_id, partner_id, subject_type, subject_id)
);
comment on table webhook._inbox_subject is 'The newest version of each subject that a handler processed.';
comment on column webhook._inbox_subject.changed_at is 'When it was processed.';
comment on column webhook._inbox_subject.version is 'The version.';
comment on column webhook._inbox_subject.source_id is 'Source of the events.';
comment on column webhook._inbox_subject.handler is 'The handler.';
comment on column webhook._inbox_subject.partner_id is 'Tenant that the subject belongs to.';
comment on column webhook._inbox_subject.subject_type is 'Kind of the subject.';
comment on column webhook._inbox_subject.subject_id is 'Identity of the subject.';

create table webhook._inbox_count (
  source_id bigint not null,
  total bigint not null,
  last_at timestamptz not null default pg_catalog.clock_timestamp(),
  day date not null,
  slot integer not null,
  result text collate "C" not null,
  reason text collate "C" not null,
  constraint _inbox_count_pkey primary key (source_id, day, result, reason, slot)
) with (fillfactor = 50);
comment on table webhook._inbox_count is
  'What receive() answered, counted by day: nothing that a stranger sends is stored, and however often he sends, there is no more than one row for each reason and each session at work at once.';
comment on column webhook._inbox_count.source_id is 'The source.';
comment on column webhook._inbox_count.total is 'How often.';
comment on column webhook._inbox_count.last_at is 'When last.';
comment on column webhook._inbox_count.day is 'UTC day.';
comment on column webhook._inbox_count.slot is 'Any number: sessions at work at once count in different rows, and wait for none.';
comment on column webhook._inbox_count.result is 'accepted, duplicate, challenge or rejected.';
comment on column webhook._inbox_count.reason is 'Why it was rejected; empty for the others.';
-- Replays of a range: what was asked, and how far the leader has come. Users write _replay through replay_range(); the
-- leader alone writes _replay_progress, in the transactions that make the pairs. A row means something in the database
-- that wrote it, and nothing in a copy.

create table webhook._replay (
  request_id bigint not null,
  origin bigint not null,
  partner_id text collate "C",
  endpoint_id bigint,
  since timestamptz not null,
  until timestamptz not null,
  pos_from bigint not null,
  pos_to bigint not null,
  event_types text[],
  test boolean not null,
  which text collate "C" not null,
  rate integer not null,
  estimate bigint,
  reason text not null,
  requested_by name not null default session_user,
  requested_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint _replay_pkey primary key (request_id),
  constraint _replay_which check (which in ('all', 'failed', 'missing'))
);
comment on table webhook._replay is 'Replays of a range that were asked for. Insert-only.';
comment on column webhook._replay.request_id is 'The request to the leader; time-ordered.';
comment on column webhook._replay.origin is 'Database that asked; in a copy of it the row means nothing.';
comment on column webhook._replay.partner_id is 'Tenant whose events are meant; null = every one.';
comment on column webhook._replay.endpoint_id is 'Endpoint that is meant; null = every one.';
comment on column webhook._replay.since is 'Beginning of the range, by publication.';
comment on column webhook._replay.until is 'End of the range; not in it.';
comment on column webhook._replay.pos_from is 'Feed position at which the range begins.';
comment on column webhook._replay.pos_to is 'Feed position at which it ends; not in it.';
comment on column webhook._replay.event_types is 'Event types and wildcards; null = all.';
comment on column webhook._replay.test is 'Test events, or live ones.';
comment on column webhook._replay.which is 'all = every delivery and what is missing; failed = what is dead or cancelled; missing = what was never made.';
comment on column webhook._replay.rate is 'Deliveries per second at most.';
comment on column webhook._replay.estimate is 'Events of the range when it was asked for; null = too many to count.';
comment on column webhook._replay.reason is 'Why, in the user''s words.';
comment on column webhook._replay.requested_by is 'Session user who asked.';
comment on column webhook._replay.requested_at is 'When.';

create table webhook._replay_progress (
  request_id bigint not null,
  state text collate "C" not null,
  partner_id text collate "C" not null,
  pos bigint not null,
  looked_at bigint not null default 0,
  made bigint not null default 0,
  again bigint not null default 0,
  under_way bigint not null default 0,
  unwanted bigint not null default 0,
  closed bigint not null default 0,
  expunged bigint not null default 0,
  fenced bigint not null default 0,
  started_at timestamptz not null default pg_catalog.clock_timestamp(),
  finished_at timestamptz,
  constraint _replay_progress_pkey primary key (request_id),
  constraint _replay_progress_state check (state in ('running', 'done', 'cancelled'))
);
comment on table webhook._replay_progress is
  'How far the leader has come with a replay of a range. Changed in the transaction that makes the pairs, so that nothing is done twice.';
comment on column webhook._replay_progress.request_id is 'The replay.';
comment on column webhook._replay_progress.state is 'running, done or cancelled.';
comment on column webhook._replay_progress.partner_id is 'Keyset (partner, position) of the last row of the feed that was looked at.';
comment on column webhook._replay_progress.pos is 'Second part of that keyset.';
comment on column webhook._replay_progress.looked_at is 'Events looked at that are of the types meant.';
comment on column webhook._replay_progress.made is 'Deliveries made that were missing.';
comment on column webhook._replay_progress.again is 'Deliveries that began a new series.';
comment on column webhook._replay_progress.under_way is 'Deliveries left out because they wait or are on the wire.';
comment on column webhook._replay_progress.unwanted is 'Deliveries left out because the endpoint does not subscribe to the type any more, or its filter refuses the event.';
comment on column webhook._replay_progress.closed is 'Deliveries left out because the endpoint is closed.';
comment on column webhook._replay_progress.expunged is 'Events left out because their payload, or the event itself, is gone.';
comment on column webhook._replay_progress.fenced is 'Events left out because they are fenced, or of a database that was not adopted.';
comment on column webhook._replay_progress.started_at is 'When the leader began.';
comment on column webhook._replay_progress.finished_at is 'When it was done or cancelled; null = not yet.';
-- What reconcile found: gaps, and what became of them; counts of days that are over, to compare with later; and the
-- queries that find changes of the business without an event. Written by the sessions that reconcile; the leader
-- repairs what can be repaired, on request, and removes old findings.

create table webhook._finding (
  finding_id bigint not null,
  kind text collate "C" not null,
  object text collate "C" not null,
  happened_at timestamptz not null,
  detected_at timestamptz not null default pg_catalog.clock_timestamp(),
  seen_at timestamptz not null default pg_catalog.clock_timestamp(),
  repaired_at timestamptz,
  run bigint not null,
  request_id bigint,
  endpoint_id bigint,
  event_id text collate "C",
  partner_id text collate "C",
  check_name text collate "C",
  detail text,
  how text,
  constraint _finding_pkey primary key (finding_id)
);
comment on table webhook._finding is 'Gaps that reconcile found. One row from the first time a gap is seen until it is not there any more.';
comment on column webhook._finding.finding_id is 'Time-ordered random id.';
comment on column webhook._finding.kind is 'What is wrong, object.fault.';
comment on column webhook._finding.object is 'Which object: event, delivery, table with day, or subject.';
comment on column webhook._finding.happened_at is 'When the object came into being: a run judges what lies in its range.';
comment on column webhook._finding.detected_at is 'When it was found first.';
comment on column webhook._finding.seen_at is 'When it was found last.';
comment on column webhook._finding.repaired_at is 'When it was not found any more; null = it is still there.';
comment on column webhook._finding.run is 'Last run of reconcile that found it.';
comment on column webhook._finding.request_id is 'Request to the leader that is to repair it; null = nobody can.';
comment on column webhook._finding.endpoint_id is 'The endpoint, of a delivery.';
comment on column webhook._finding.event_id is 'The event.';
comment on column webhook._finding.partner_id is 'Tenant concerned, as far as it is known.';
comment on column webhook._finding.check_name is 'The registered query, of a change without an event.';
comment on column webhook._finding.detail is 'What was found, in words and numbers.';
comment on column webhook._finding.how is 'How it was repaired.';
create unique index _finding_open on webhook._finding (kind, object) where repaired_at is null;
comment on index webhook._finding_open is 'A gap is told once.';
create index _finding_range on webhook._finding (happened_at) where repaired_at is null;
comment on index webhook._finding_range is 'Open findings of a range.';

create table webhook._day_count (
  day date not null,
  counted_at timestamptz not null default pg_catalog.clock_timestamp(),
  events bigint not null,
  published bigint not null,
  deliveries bigint not null,
  attempts bigint not null,
  constraint _day_count_pkey primary key (day)
);
comment on table webhook._day_count is 'How many rows a day had when it was over: they never become fewer before the day goes with its retention.';
comment on column webhook._day_count.day is 'UTC day of the event ids, of the feed the day of the positions.';
comment on column webhook._day_count.counted_at is 'When it was counted last.';
comment on column webhook._day_count.events is 'Most events ever counted.';
comment on column webhook._day_count.published is 'Most feed rows.';
comment on column webhook._day_count.deliveries is 'Most deliveries.';
comment on column webhook._day_count.attempts is 'Most attempts in the log.';

create table webhook._reconciliation (
  name text collate "C" not null,
  event_type text collate "C" not null,
  subject_type text collate "C" not null,
  query text not null,
  tolerance interval not null,
  description text,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  created_by name not null default session_user,
  constraint _reconciliation_pkey primary key (name)
);
comment on table webhook._reconciliation is 'Queries that find changes of the business, to be compared with the events of a type.';
comment on column webhook._reconciliation.name is 'Name of the check.';
comment on column webhook._reconciliation.event_type is 'Event type that reports such changes.';
comment on column webhook._reconciliation.subject_type is 'Kind of the subject that changes.';
comment on column webhook._reconciliation.query is 'Function with two timestamptz arguments, as PostgreSQL writes it; it runs with the rights of its owner.';
comment on column webhook._reconciliation.tolerance is 'How far the time of an event may be from that of the change.';
comment on column webhook._reconciliation.description is 'Free text.';
comment on column webhook._reconciliation.created_at is 'When it was registered.';
comment on column webhook._reconciliation.created_by is 'Session user who registered it.';
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
-- Daily partitions of the append-only tables, made ahead by the leader.
-- CREATE TABLE (LIKE) and ATTACH, never CREATE TABLE ... PARTITION OF: the latter locks the parent
-- against every emit (ACCESS EXCLUSIVE), the former does not.

create function webhook._day_bound(
  parent text, -- name of the partitioned table
  day date     -- UTC day
) returns text -- text of the partition bound at the beginning of that day
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'day_bound_wrapper';
comment on function webhook._day_bound(text, date) is 'Partition bound of a table at the beginning of a UTC day.';

create function webhook._close(
  relation regclass -- table, view or sequence
) returns void
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  grantee regrole;
begin
  execute format('revoke all on %s from public', relation);
  for grantee in
    select distinct a.grantee::regrole
      from pg_class as c
     cross join lateral aclexplode(c.relacl) as a
     where c.oid = relation
       and a.grantee <> c.relowner
       and a.grantee <> 0
  loop
    execute format('revoke all on %s from %s', relation, grantee);
  end loop;
end
$$;
comment on function webhook._close(regclass) is 'Takes a relation from everybody but its owner: default privileges of the owner may have given it away.';

create function webhook._add_partition(
  parent text, -- name of the partitioned table
  day date     -- UTC day
) returns boolean -- true when a partition was made; false when the day has one, has begun or has rows in DEFAULT
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  leaf constant text := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
  low constant text := webhook._day_bound(parent, day);
  high constant text := webhook._day_bound(parent, day + 1);
  key_column constant text := case parent when '_feed' then 'pos' else 'event_id' end;
  occupied boolean;
begin
  if to_regclass(format('webhook.%I', leaf)) is not null then
    return false;
  end if;
  -- A row that is on its way into DEFAULT while the day gets a partition would fail in its caller's
  -- transaction, so a day is never touched once it has begun; the margin is for clocks that differ.
  if day <= ((clock_timestamp() + interval '5 minutes') at time zone 'UTC')::date then
    return false;
  end if;
  -- ATTACH would fail: a day that has rows in DEFAULT stays there.
  execute format('select exists (select 1 from webhook.%I where %I >= %L and %I < %L)',
                 parent || '_default', key_column, low, key_column, high)
     into occupied;
  if occupied then
    return false;
  end if;
  execute format('create table webhook.%I (like webhook.%I including defaults including constraints)', leaf, parent);
  case parent
    when '_event' then
      execute format('alter table webhook.%I add primary key (event_id)', leaf);
      execute format('create index %I on webhook.%I (xid, event_id)', leaf || '_xid', leaf);
      execute format('create index %I on webhook.%I (subject_type, subject_id, event_id) where subject_id is not null', leaf || '_subject', leaf);
      execute format('create index %I on webhook.%I (correlation_id, event_id) where correlation_id is not null', leaf || '_correlation', leaf);
    when '_feed' then
      execute format('alter table webhook.%I add primary key (partner_id, pos)', leaf);
      execute format('create index %I on webhook.%I (type, pos)', leaf || '_type', leaf);
    when '_delivery' then
      execute format('alter table webhook.%I set (fillfactor = 80)', leaf);
      execute format('alter table webhook.%I add primary key (event_id, endpoint_id)', leaf);
      execute format('create index %I on webhook.%I (endpoint_id, event_id)', leaf || '_endpoint', leaf);
      execute format('create index %I on webhook.%I (state, event_id) where state <> ''delivered''', leaf || '_open', leaf);
      execute format('create index %I on webhook.%I (endpoint_id, event_id) where state = ''dead''', leaf || '_dead', leaf);
    when '_event_version' then
      execute format('alter table webhook.%I add primary key (event_id, version)', leaf);
    else
      execute format('alter table webhook.%I add primary key (event_id, endpoint_id, attempt_no)', leaf);
  end case;
  -- Default privileges of the owner must not open what the extension keeps closed.
  perform webhook._close(format('webhook.%I', leaf)::regclass);
  execute format('comment on table webhook.%I is %L', leaf, format('Rows of %s of %s (UTC).', parent, day));
  execute format('alter table webhook.%I attach partition webhook.%I for values from (%L) to (%L)', parent, leaf, low, high);
  return true;
end
$$;
comment on function webhook._add_partition(text, date) is 'Makes the partition of one UTC day; called by the leader.';
-- What the rest of the script calls: the Rust functions that are not public, small SQL helpers and
-- the checks that several functions share. One condition, one check, one message.
-- C functions carry no "set search_path": they qualify every name in the statements they run, and the
-- clause would cost each call of emit more than the checks it makes.

create function webhook._origin()
returns bigint -- origin of this database
language c stable parallel safe
as 'MODULE_PATHNAME', 'origin_wrapper';
comment on function webhook._origin() is
  'Which database this is: hash of system identifier, database, extension and webhook.node_name.';

create function webhook._new_id()
returns bigint
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'new_id_wrapper';
comment on function webhook._new_id() is 'Time-ordered random id for endpoints, keys, requests and audit entries; those of one session rise.';

create function webhook._check_url(
  url text -- callback URL as the user wrote it
) returns text -- its canonical form
language c stable strict parallel unsafe
as 'MODULE_PATHNAME', 'check_url_wrapper';
comment on function webhook._check_url(text) is 'Canonical form of a callback URL; an error when the boundary refuses it.';

create function webhook._check_schedule(
  schedule text -- retry schedule as the user wrote it
) returns text -- the same
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'check_schedule_wrapper';
comment on function webhook._check_schedule(text) is 'Refuses a retry schedule that cannot be followed.';

create function webhook._valid_pattern(
  pattern text -- event type, "customer.*" or "*"
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'valid_pattern_wrapper';
comment on function webhook._valid_pattern(text) is 'Whether a text is an event type or a wildcard.';

create function webhook._valid_type(
  type text -- event type
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'valid_type_wrapper';
comment on function webhook._valid_type(text) is 'Whether a text is an event type.';

create function webhook._valid_partner(
  partner_id text -- partner id
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'valid_partner_wrapper';
comment on function webhook._valid_partner(text) is 'Whether a text is a partner id.';

create function webhook._wake()
returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'wake_wrapper';
comment on function webhook._wake() is 'Wakes the leader of this database when the transaction commits.';

create function webhook._event_time(
  event_id text -- event id
) returns timestamptz -- null when the text is no event id
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'event_time_wrapper';
comment on function webhook._event_time(text) is 'When an event was emitted, read from its id.';

create function webhook._event_bound(
  at timestamptz -- moment
) returns text -- smallest event id of its millisecond
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'event_bound_wrapper';
comment on function webhook._event_bound(timestamptz) is 'Smallest event id of a moment; turns times into ranges of event_id.';

create function webhook._pos_bound(
  at timestamptz -- moment
) returns bigint -- smallest feed position of its millisecond
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'pos_bound_wrapper';
comment on function webhook._pos_bound(timestamptz) is 'Smallest feed position of a moment; turns times into ranges of pos.';

create function webhook._worker(
  out database text,            -- this database
  out state text,               -- what the leader does, or why there is none
  out detail text,              -- the same in a sentence
  out hint text,                -- what to do about it
  out pid integer,              -- process of the leader
  out started_at timestamptz,   -- when it started
  out incarnation bigint,       -- which life of the leader this is
  out last_loop_at timestamptz, -- when its loop last came round
  out restarts integer,         -- starts after the first one
  out threads integer,          -- HTTP threads
  out in_flight integer,        -- requests on the wire
  out queued bigint,            -- pairs in memory that are not sent yet
  out open_batches integer,     -- batches opened and not closed
  out delivered bigint,         -- 2xx answers since it started
  out failed bigint,            -- failed attempts since it started
  out lost bigint,              -- attempts found in doubt at its start
  out fenced bigint,            -- events it refused to send since it started
  out last_error text,          -- last error of the leader itself
  out library_version text,     -- version of the loaded library
  out extension_version text    -- version of the installed extension
) returns setof record -- one row
language c volatile parallel restricted rows 1
as 'MODULE_PATHNAME', 'worker_wrapper';
comment on function webhook._worker() is 'State of the leader of this database, from shared memory; behind stat_worker.';

create function webhook._delivery_id(
  event_id text,      -- the event
  endpoint_id bigint  -- the endpoint
) returns text -- dlv_..., null when either is null
language sql immutable parallel safe
-- Parsed when it is created, so the caller's search_path cannot reach it, and still inlined into views.
return 'dlv_' || substr(event_id, 5) || '_' || endpoint_id;
comment on function webhook._delivery_id(text, bigint) is 'Delivery id of an event and an endpoint.';

create function webhook._parse_delivery_id(
  delivery_id text,      -- dlv_...
  out event_id text,     -- the event, null when the text is no delivery id
  out endpoint_id bigint -- the endpoint, null when the text is no delivery id
) returns record
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- Nineteen digits may exceed bigint: compared as text first, and in a CASE, because the planner folds a
  -- cast of a constant whatever WHERE says.
  select case when p.fits then 'evt_' || p.part[1] end,
         case when p.fits then p.part[2]::bigint end
    from (select m.part,
                 length(m.part[2]) < 19 or m.part[2] collate "C" <= '9223372036854775807' as fits
            from regexp_match(delivery_id collate "C", '^dlv_([0-7][0-9A-HJKMNP-TV-Z]{25})_([1-9][0-9]{0,18})$') as m (part)) as p
$$;
comment on function webhook._parse_delivery_id(text) is 'The two ids that a delivery id is made of.';

create function webhook._redact(
  body text -- what a receiver answered
) returns text -- the same without what looks like a secret
language c stable strict parallel safe
as 'MODULE_PATHNAME', 'redact_wrapper';
comment on function webhook._redact(text) is
  'Hides control characters and what looks like a secret, webhook.redact_keys included; the rule that the leader applies before it stores an excerpt.';

create function webhook._check_argument(
  name text,      -- name of the argument
  missing boolean -- whether it is null
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if missing then
    raise exception using
      errcode = 'null_value_not_allowed',
      message = format('argument "%s" must not be null', name);
  end if;
end
$$;
comment on function webhook._check_argument(text, boolean) is 'Refuses NULL where it makes no sense.';

create function webhook._check_writable(
  act text -- what the caller wants to do, "create an endpoint"
) returns void
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if current_setting('transaction_read_only')::boolean then
    raise exception using
      errcode = 'read_only_sql_transaction',
      message = format('cannot %s in a read-only transaction', act),
      hint = case
        when pg_is_in_recovery() then 'This server is a standby. Connect to the primary.'
        else 'Use a transaction with READ WRITE access.'
      end;
  end if;
end
$$;
comment on function webhook._check_writable(text) is 'Refuses read-only transactions with a hint, before anything is written.';

create function webhook._check_reason(
  reason text -- why, in the user's words
) returns text -- the same without surrounding blanks
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('reason', reason is null);
  reason := btrim(reason, E' \t\r\n');
  if reason = '' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'reason must not be empty',
      hint = 'Say in a few words why: the text is shown beside what it concerns, and in the audit log.';
  end if;
  if length(reason) > 1000 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'reason is too long',
      detail = format('It has %s characters; the limit is 1000.', length(reason));
  end if;
  return reason;
end
$$;
comment on function webhook._check_reason(text) is 'Refuses a missing, empty or overlong reason.';

create function webhook._rfc3339(
  at timestamptz -- moment
) returns text -- the same in UTC as RFC 3339 writes it, with microseconds
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;
comment on function webhook._rfc3339(timestamptz) is 'A time as lifecycle events give it.';
-- Emitting events: the only way in. Written in Rust, declared here.
-- SECURITY INVOKER: whoever may execute emit may emit. The insert itself runs with the rights of the
-- extension's owner, switched inside around that one statement.

create function webhook.emit(
  type text,                             -- event type, object.change
  partner_id text,                       -- tenant that the event belongs to
  data jsonb,                            -- payload; sent in jsonb's normal form
  subject_type text default null,        -- kind of the object that changed
  subject_id text default null,          -- identity of the object that changed
  subject_version bigint default null,   -- its version after the change, so that receivers can drop stale events
  source text default null,              -- producer of the event
  scope text default null,               -- authorisation scope
  occurred_at timestamptz default null,  -- when the business change happened; null = now
  schema_version text default null,      -- version of the payload's schema
  correlation_id text default null,      -- ties the event to the operation that caused it
  causation text default null,           -- event id of the parent event
  traceparent text default null,         -- W3C trace context of the operation
  idempotency_key text default null,     -- the same key of the same partner returns the first event id
  test boolean default false             -- true: goes to test endpoints only
) returns text -- event_id
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'emit_wrapper';
comment on function webhook.emit(text, text, jsonb, text, text, bigint, text, text, timestamptz, text, text, text, text, text, boolean) is
  'Records an event in the caller''s transaction and returns its id; committed with it, rolled back with it. jsonb decides the bytes: keys are reordered, duplicates dropped, numbers keep their exact value.';

create function webhook.emit_json(
  type text,                             -- event type, object.change
  partner_id text,                       -- tenant that the event belongs to
  data json,                             -- payload; sent byte for byte as given
  subject_type text default null,        -- kind of the object that changed
  subject_id text default null,          -- identity of the object that changed
  subject_version bigint default null,   -- its version after the change, so that receivers can drop stale events
  source text default null,              -- producer of the event
  scope text default null,               -- authorisation scope
  occurred_at timestamptz default null,  -- when the business change happened; null = now
  schema_version text default null,      -- version of the payload's schema
  correlation_id text default null,      -- ties the event to the operation that caused it
  causation text default null,           -- event id of the parent event
  traceparent text default null,         -- W3C trace context of the operation
  idempotency_key text default null,     -- the same key of the same partner returns the first event id
  test boolean default false             -- true: goes to test endpoints only
) returns text -- event_id
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'emit_json_wrapper';
comment on function webhook.emit_json(text, text, json, text, text, bigint, text, text, timestamptz, text, text, text, text, text, boolean) is
  'Records an event like emit, and keeps the caller''s bytes: blanks, order of keys, spelling of numbers.';

-- Event types "webhook.*" and partners "_*" are reserved: only the extension's own functions emit them.
create function webhook._emit_reserved(
  type text,                             -- webhook.test or webhook.endpoint.*
  partner_id text,                       -- tenant, or _operator
  data jsonb,                            -- payload
  subject_type text default null,        -- as for emit, like all that follow
  subject_id text default null,
  subject_version bigint default null,
  source text default null,
  scope text default null,
  occurred_at timestamptz default null,
  schema_version text default null,
  correlation_id text default null,
  causation text default null,
  traceparent text default null,
  idempotency_key text default null,
  test boolean default false
) returns text -- event_id
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'emit_reserved_wrapper';
comment on function webhook._emit_reserved(text, text, jsonb, text, text, bigint, text, text, timestamptz, text, text, text, text, text, boolean) is
  'Records a lifecycle or test event; like emit, but for the names that emit refuses.';
-- Leaving a trace: the audit row of a verb, and the request that a verb leaves for the leader.
-- _save_endpoint and _ask log, so that a verb that changes an endpoint or asks for something cannot forget to.
-- What is logged holds neither secrets nor payloads.

create function webhook._log(
  verb text,                          -- function that was called
  object_kind text,                   -- endpoint, policy, event_type, event, delivery, partner, role or all
  object_id text,                     -- which one; null = several
  partner_id text default null,       -- tenant concerned
  before jsonb default null,          -- what was changed, as it was
  after jsonb default null,           -- as it is now
  reason text default null,           -- why, in the user's words
  request_id bigint default null      -- the request to the leader
) returns void
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  insert into webhook._audit
    (audit_id, application, client, verb, object_kind, object_id, partner_id, before, after, reason, request_id)
  values
    (webhook._new_id(), nullif(current_setting('application_name'), ''), inet_client_addr(), verb, object_kind, object_id, partner_id,
     nullif(before, '{}'), nullif(after, '{}'), reason, request_id)
$$;
comment on function webhook._log(text, text, text, text, jsonb, jsonb, text, bigint) is 'Writes the audit row of a verb.';

create function webhook._changed(
  one jsonb,  -- members of an object
  other jsonb -- members of the same object at another time
) returns jsonb -- the members of "one" that differ; null members are left out
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select coalesce(jsonb_object_agg(m.key, m.value), '{}')
    from jsonb_each(jsonb_strip_nulls(one)) as m
   where m.value is distinct from other -> m.key
$$;
comment on function webhook._changed(jsonb, jsonb) is 'What is different about an object: for the audit log.';

create function webhook._without_path(
  facts jsonb -- members of an endpoint
) returns jsonb -- the same, with no more of the URL than the host
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- Many receivers take a token in the path or the query.
  select coalesce(
           facts || (select jsonb_object_agg(m.key, regexp_replace(m.value, '^([a-z]+://[^/?#]*).*$', '\1/…'))
                       from jsonb_each_text(facts) as m
                      where m.key in ('url', 'pending_url')
                        and m.value is not null),
           facts)
$$;
comment on function webhook._without_path(jsonb) is 'Cuts the path of a URL, which may hold a token, before it is logged.';

create function webhook._data_shape_facts(
  endpoint webhook._endpoint -- an endpoint
) returns jsonb -- shape of its data, as far as it is not the usual one
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select jsonb_build_object('data_shape', nullif(r.data_shape, 'full'), 'fields', r.fields, 'schema_versions', r.schema_versions)
    from webhook._endpoint_revision r
   where r.endpoint_id = endpoint.endpoint_id
     and r.revision = endpoint.revision
$$;
comment on function webhook._data_shape_facts(webhook._endpoint) is 'What the audit log compares of the shape of an endpoint''s data.';

create function webhook._endpoint_facts(
  endpoint webhook._endpoint -- an endpoint
) returns jsonb -- what of it can be changed and may be logged; the URL still as it is
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select jsonb_build_object(
           'url', endpoint.url,
           'event_types', endpoint.event_types,
           'test', endpoint.test,
           'state', endpoint.state,
           'state_reason', endpoint.state_reason,
           'verify', endpoint.verify,
           'description', endpoint.description,
           'max_in_flight', endpoint.max_in_flight,
           'policy', endpoint.policy,
           'ordered', endpoint.ordered,
           'subject_types', endpoint.subject_types,
           'filter', endpoint.filter,
           'pending_url', endpoint.pending_url,
           'verified_by', endpoint.verified_by,
           'expires_at', webhook._rfc3339(endpoint.expires_at),
           'format', (select r.format
                        from webhook._endpoint_revision r
                       where r.endpoint_id = endpoint.endpoint_id
                         and r.revision = endpoint.revision),
           'data_shape', webhook._data_shape_facts(endpoint) -> 'data_shape',
           'fields', webhook._data_shape_facts(endpoint) -> 'fields',
           'schema_versions', webhook._data_shape_facts(endpoint) -> 'schema_versions',
           'signature', endpoint.signature,
           'headers', webhook._header_names(endpoint.headers),
           'headers_changed_at', webhook._rfc3339(endpoint.headers_changed_at))
$$;
comment on function webhook._endpoint_facts(webhook._endpoint) is 'What the audit log compares of an endpoint.';

create function webhook._ask(
  verb text,                           -- what the leader is to do
  object_kind text,                    -- what it is asked for: event, delivery, partner, event_type, endpoint, origin or all
  object_id text,                      -- which one; null = several
  partner_id text default null,        -- tenant concerned
  event_id text default null,          -- the event, where there is one
  endpoint_id bigint default null,     -- the endpoint, where there is one
  scope text default null,             -- of a pause
  target text default null,            -- of a pause
  reason text default null,            -- why, for the leader to write beside the deliveries
  event_ids text[] default null,       -- pairs: the events
  endpoint_ids bigint[] default null,  -- pairs: the endpoints
  before jsonb default null,           -- for the audit log
  after jsonb default null,            -- for the audit log
  called text default null,            -- function that was called, where it is not named like the verb
  told text default null               -- the user's own reason, where the other one says more
) returns bigint -- request_id
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  request_id constant bigint := webhook._new_id();
begin
  insert into webhook._request
    (request_id, verb, event_id, endpoint_id, origin, scope, target, reason, event_ids, endpoint_ids, partner_id)
  values
    (request_id, verb, event_id, endpoint_id, webhook._origin(), scope, target, reason, event_ids, endpoint_ids, partner_id);
  -- A paused endpoint is a changed endpoint: _save_endpoint logs it.
  if scope is distinct from 'endpoint' then
    perform webhook._log(coalesce(called, verb), object_kind, object_id, partner_id, before, after, coalesce(told, reason), request_id);
  end if;
  perform webhook._wake();
  return request_id;
end
$$;
comment on function webhook._ask(text, text, text, text, text, bigint, text, text, text, text[], bigint[], jsonb, jsonb, text, text) is
  'Leaves a request for the leader, logs it and wakes the leader: the one place that makes requests.';
-- Making keys and encrypting them anew. A key in clear is made inside these functions and leaves them as it is
-- stored: as an argument or a parameter it could end in a log. The master key file is read where it is needed and
-- forgotten at once.

create function webhook._make_secret(
  key_id bigint,      -- id of the new key
  endpoint_id bigint  -- its endpoint
) returns bytea -- a new signing key, as it is stored
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'make_secret_wrapper';
comment on function webhook._make_secret(bigint, bigint) is
  'Makes a signing key and returns it as it is stored: encrypted under the master key, bound to this row; in clear, with a WARNING once per session, when there is none.';

create function webhook._make_key_pair(
  key_id bigint,      -- id of the new key
  endpoint_id bigint, -- its endpoint
  out stored bytea,   -- the private half of a new pair, as it is stored
  out public_key text -- its public half, whpk_ and base64
) returns setof record -- one row
language c volatile strict parallel unsafe rows 1
as 'MODULE_PATHNAME', 'make_key_pair_wrapper';
comment on function webhook._make_key_pair(bigint, bigint) is
  'Makes an ed25519 key pair and returns the private half as it is stored, like _make_secret. It never leaves the database in clear.';

create function webhook._take_secret(
  key_id bigint -- id of the key that _make_secret or _make_key_pair has just made
) returns text -- whsec_ and base64, or whpk_ and the public half; once, null afterwards
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'take_secret_wrapper';
comment on function webhook._take_secret(bigint) is 'Hands out, once, what the receiver needs of the signing key that this session has just made.';

create function webhook._make_seal_key(
  key_id bigint, -- id of the new key
  origin bigint  -- origin that it seals for
) returns bytea -- a new seal key, as it is stored
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'make_seal_key_wrapper';
comment on function webhook._make_seal_key(bigint, bigint) is 'Makes a seal key and returns it as it is stored, like _make_secret.';

create function webhook._reencrypted_secret(
  key_id bigint,      -- id of the key
  endpoint_id bigint, -- its endpoint
  kind text,          -- hmac-sha256 or ed25519
  stored bytea        -- the key as it is stored
) returns bytea -- the same under the current master key; null when it cannot be decrypted
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'reencrypted_secret_wrapper';
comment on function webhook._reencrypted_secret(bigint, bigint, text, bytea) is 'A signing key as it would be stored today.';

create function webhook._reencrypted_seal_key(
  key_id bigint, -- id of the key
  origin bigint, -- origin that it seals for
  stored bytea   -- the key as it is stored
) returns bytea -- the same under the current master key; null when it cannot be decrypted
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'reencrypted_seal_key_wrapper';
comment on function webhook._reencrypted_seal_key(bigint, bigint, bytea) is 'A seal key as it would be stored today.';

create function webhook._master_key_id()
returns text -- id of the master key that encrypts, 16 hexadecimal digits
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'master_key_id_wrapper';
comment on function webhook._master_key_id() is 'Id of the current master key: the beginning of a hash of it. An error when there is none or its file cannot be used.';

create function webhook._forget_seal_key()
returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'forget_seal_key_wrapper';
comment on function webhook._forget_seal_key() is 'Has every session read the seal key again after this transaction has committed.';

-- What the views tell of a key, so that nobody needs the right to its material to read them. Not by a function in SQL:
-- auto_explain would log the key as its argument. In a CASE: the planner may compute what stands beside an AND in any
-- order, and an empty value has no first byte.
alter table webhook._secret
  add column kept boolean not null generated always as (secret is not null) stored,
  add column stored_under text collate "C" generated always as (
    case
      when pg_catalog.length(secret) > 8 and pg_catalog.get_byte(secret, 0) = 1
        then pg_catalog.encode(pg_catalog.substring(secret, 2, 8), 'hex')
    end) stored;
comment on column webhook._secret.kept is 'Whether its material is still there.';
comment on column webhook._secret.stored_under is 'Id of the master key that it is encrypted under; null = it is in clear, or destroyed.';
alter table webhook._seal_key
  add column stored_under text collate "C" generated always as (
    case
      when pg_catalog.length(key) > 8 and pg_catalog.get_byte(key, 0) = 1
        then pg_catalog.encode(pg_catalog.substring(key, 2, 8), 'hex')
    end) stored;
comment on column webhook._seal_key.stored_under is 'Id of the master key that it is encrypted under; null = it is in clear.';

create function webhook._keys_in_clear()
returns boolean -- whether keys of this database are stored in clear
language sql stable parallel safe
-- SECURITY DEFINER: called by status(), whose callers have no right to the keys.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select exists (
           select from webhook._seal_key k
            where k.origin = webhook._origin()
              and k.stored_under is null)
      or exists (
           select from webhook._secret s
            where s.kept
              and s.stored_under is null)
      or exists (
           select from webhook._inbox_key i
            where i.kept
              and i.stored_under is null)
$$;
comment on function webhook._keys_in_clear() is 'Whether there is something to encrypt.';

create function webhook._add_secret(
  endpoint_id bigint, -- the endpoint
  out key_id bigint,  -- id of its new key
  out secret text     -- the key, or the public half of the pair, to be handed to the caller
) returns record
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  kind text;
begin
  key_id := webhook._new_id();
  select webhook._key_kind(e.signature)
    into kind
    from webhook._endpoint e
   where e.endpoint_id = _add_secret.endpoint_id;
  -- What is stored is in clear where there is no master key: it goes into the table without becoming a variable, which
  -- would be a parameter of the statement, and could be logged.
  if kind = 'ed25519' then
    insert into webhook._secret (key_id, endpoint_id, kind, secret, public_key)
    select _add_secret.key_id, _add_secret.endpoint_id, 'ed25519', p.stored, p.public_key
      from webhook._make_key_pair(_add_secret.key_id, _add_secret.endpoint_id) as p;
  else
    insert into webhook._secret (key_id, endpoint_id, secret)
    values (key_id, endpoint_id, webhook._make_secret(key_id, endpoint_id));
  end if;
  secret := webhook._take_secret(key_id);
end
$$;
comment on function webhook._add_secret(bigint) is 'Gives an endpoint a new signing key of the kind that its signature profile needs.';

create function webhook._add_seal_key(
  origin bigint -- origin that it seals for
) returns bigint -- id of the new key
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  key_id constant bigint := webhook._new_id();
begin
  insert into webhook._seal_key (key_id, origin, key)
  values (key_id, origin, webhook._make_seal_key(key_id, origin));
  return key_id;
end
$$;
comment on function webhook._add_seal_key(bigint) is 'Makes the seal key that an origin uses from now on.';

-- The first seal key, so that the first emit finds one. In a restored copy it is the only key of the new
-- origin; the old ones come back beside it, and ids are random, so nothing collides.
select webhook._add_seal_key(webhook._origin());
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
                                              ('_event_schema', '_catalogue_changed'), ('_source', '_catalogue_changed'))
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
-- What the verbs share about proofs of control and about expiry. The verbs demand a proof; the leader sends the
-- challenge and, when it is answered rightly, sets the endpoint's row itself (skipping a locked one: it never waits).

create function webhook._check_method(
  method text -- how control of a URL is to be proven
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if method not in ('challenge', 'graph', 'slack', 'none') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('verification method "%s" does not exist', left(method, 128)),
      hint = 'The methods are challenge, graph and slack; none does without a proof.';
  end if;
  return method;
end
$$;
comment on function webhook._check_method(text) is 'Refuses a verification method that does not exist.';

create function webhook._check_expiry(
  name text,     -- name of the argument
  at timestamptz -- when an endpoint is to expire; infinity = never
) returns timestamptz -- the same; null for never
language plpgsql volatile parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if at <= clock_timestamp() then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('argument "%s" is not in the future', name);
  end if;
  return nullif(at, 'infinity');
end
$$;
comment on function webhook._check_expiry(text, timestamptz) is 'Refuses an expiry that has passed.';

create function webhook._demand_proof(
  endpoint webhook._endpoint -- an endpoint whose URL is to be proven
) returns webhook._endpoint -- the same, with a new demand
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  -- A new generation: an answer to an earlier challenge, which may be on its way, proves nothing about this.
  endpoint.proof_generation := endpoint.proof_generation + 1;
  endpoint.proof_asked_at := clock_timestamp();
  return endpoint;
end
$$;
comment on function webhook._demand_proof(webhook._endpoint) is
  'Demands a proof of control: of the pending URL, or of the one in force. For every verb that changes where an endpoint leads or how it is secured.';

create function webhook._spare_proof(
  endpoint webhook._endpoint -- an endpoint whose URL is taken as it is
) returns webhook._endpoint -- the same, with nothing left to prove
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  endpoint.url := coalesce(endpoint.pending_url, endpoint.url);
  endpoint.pending_url := null;
  endpoint.proof_generation := endpoint.proof_generation + 1;
  endpoint.proof_asked_at := null;
  endpoint.verified_at := clock_timestamp();
  endpoint.verified_by := 'none';
  insert into webhook._verification
    (verification_id, endpoint_id, proof_generation, method, host, result, overridden_by)
  values
    (webhook._new_id(), endpoint.endpoint_id, endpoint.proof_generation, 'none', webhook._url_host(endpoint.url), 'overridden',
     session_user);
  return endpoint;
end
$$;
comment on function webhook._spare_proof(webhook._endpoint) is 'Does without a proof of control, and keeps who did.';

create function webhook._url_host(
  url text -- canonical URL
) returns text -- its host and port
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select substring(url from '^[a-z]+://([^/?#]*)')
$$;
comment on function webhook._url_host(text) is 'Host of a URL: paths and queries may hold tokens.';

create function webhook._change_url(
  endpoint webhook._endpoint, -- an endpoint, locked
  url text,                   -- new URL, canonical; null = unchanged
  verify text                 -- new method of verification; null = unchanged
) returns webhook._endpoint -- the same, changed
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  other_method constant boolean := verify <> endpoint.verify;
begin
  endpoint.verify := coalesce(verify, endpoint.verify);
  if url is not null then
    -- The URL in force named again withdraws a new one that was not proven.
    if url = endpoint.url and endpoint.pending_url is not null then
      endpoint.pending_url := null;
      endpoint.proof_generation := endpoint.proof_generation + 1;
      endpoint.proof_asked_at := null;
    elsif url <> endpoint.url then
      endpoint.pending_url := url;
    end if;
  end if;
  if endpoint.pending_url is null and not coalesce(other_method, false) then
    return endpoint;
  end if;
  if endpoint.verify = 'none' then
    endpoint := webhook._spare_proof(endpoint);
    if endpoint.state = 'unverified' then
      endpoint.state := 'active';
      endpoint.state_reason := null;
      endpoint.state_changed_at := clock_timestamp();
    end if;
    return endpoint;
  end if;
  if endpoint.verified_at is null then
    -- Nothing was ever sent to the old one: there is nothing to keep in force.
    endpoint.url := coalesce(endpoint.pending_url, endpoint.url);
    endpoint.pending_url := null;
  end if;
  if url is not null or coalesce(other_method, false) then
    endpoint := webhook._demand_proof(endpoint);
  end if;
  return endpoint;
end
$$;
comment on function webhook._change_url(webhook._endpoint, text, text) is
  'Changes where an endpoint leads, or how that is proven: what needs a proof waits for it, unless the method is none.';
-- Whose events somebody may ask for: those of this database, and of the origins that it has adopted.

create view webhook._admitted_origin as
select distinct a.origin
  from webhook._adoption a
  -- Not before it is done: a delivery that is asked for would make the leader believe that the origin had read the
  -- event, and the event's other deliveries would never be made.
  join webhook._adoption_progress p on p.request_id = a.request_id
 where a.adopter = (select webhook._origin())
   and p.state = 'done';
comment on view webhook._admitted_origin is 'Origins that this database has adopted, and is done with.';
comment on column webhook._admitted_origin.origin is 'The origin.';

create view webhook._foreign_origin as
select o.origin
  from (select k.origin
          from webhook._seal_key k
        union
        select e.origin
          from webhook._endpoint e) as o
 where o.origin <> (select webhook._origin())
   and not exists (select from webhook._adoption a
                    where a.origin = o.origin
                      and a.adopter = (select webhook._origin()));
comment on view webhook._foreign_origin is 'Origins that came with a copy and that nobody adopted here.';
comment on column webhook._foreign_origin.origin is 'The origin.';

create function webhook._admits(
  origin bigint -- origin of an event
) returns boolean
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select origin = webhook._origin()
      or exists (select from webhook._admitted_origin a where a.origin = _admits.origin)
$$;
comment on function webhook._admits(bigint) is 'Whether events of an origin may be sent from here.';
-- What the verbs share about how an endpoint's requests look: format of the body, signature profile, headers of the
-- operator's. The names and rules stand in Rust (rules/shape.rs, profile.rs, headers.rs); the CHECKs of 12_endpoint.sql
-- repeat the names, so that no other row can be written.

create function webhook._valid_format(
  format text -- form of a body
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'valid_format_wrapper';
comment on function webhook._valid_format(text) is 'Whether there is a format of this name.';

create function webhook._key_kind(
  signature text -- signature profile
) returns text -- kind of key that it needs, hmac-sha256 or ed25519; null when there is no such profile
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'key_kind_wrapper';
comment on function webhook._key_kind(text) is 'The kind of key that a signature profile needs.';

create function webhook._check_headers(
  headers jsonb -- object of names and values
) returns jsonb -- the same
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'check_headers_wrapper';
comment on function webhook._check_headers(jsonb) is
  'Refuses headers that cannot be sent, that are reserved, or whose names differ in case only. No error repeats a value.';

create function webhook._check_format(
  format text -- form of a body
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if not webhook._valid_format(format) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('format "%s" does not exist', left(format, 128)),
      hint = 'The formats are native, cloudevents-structured and cloudevents-binary.';
  end if;
  return format;
end
$$;
comment on function webhook._check_format(text) is 'Refuses a format that does not exist.';

create function webhook._check_signature(
  signature text -- signature profile
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if signature is not null and webhook._key_kind(signature) is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('signature profile "%s" does not exist', left(signature, 128)),
      hint = 'The profiles are v1, v1a, rfc9421-hmac-sha256, rfc9421-ed25519, github, github-sha1, stripe, slack and shopify.';
  end if;
  return signature;
end
$$;
comment on function webhook._check_signature(text) is 'Refuses a signature profile that does not exist.';

create function webhook._header_names(
  headers jsonb -- object of names and values
) returns text[] -- the names
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select array_agg(k.name order by k.name)
    from jsonb_object_keys(headers) as k (name)
$$;
comment on function webhook._header_names(jsonb) is 'Names of headers, whose values may be credentials.';

-- What the views and the audit log tell, so that nobody needs the right to the values to read them.
alter table webhook._endpoint
  add column header_names text[] generated always as (webhook._header_names(headers)) stored;
comment on column webhook._endpoint.header_names is 'Names of the headers that the operator adds; null = none.';

create function webhook._reshape(
  endpoint webhook._endpoint, -- an endpoint, locked
  signature text,             -- new signature profile; null = unchanged
  headers jsonb               -- new headers, {} = none; null = unchanged
) returns webhook._endpoint -- the same, changed
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if webhook._key_kind(signature) <> webhook._key_kind(endpoint.signature) then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s has no key for the signature profile "%s"', endpoint.endpoint_id, signature),
      detail = format('It needs a key of the kind %s; the endpoint''s is of the kind %s.',
                      webhook._key_kind(signature), webhook._key_kind(endpoint.signature)),
      hint = format('Use webhook.rotate_secret with signature => ''%s'', which makes a key for it.', signature);
  end if;
  endpoint.signature := coalesce(signature, endpoint.signature);
  if headers is not null and nullif(headers, '{}') is distinct from endpoint.headers then
    endpoint.headers := nullif(headers, '{}');
    -- The log compares names; that values changed it learns from this.
    endpoint.headers_changed_at := clock_timestamp();
  end if;
  return endpoint;
end
$$;
comment on function webhook._reshape(webhook._endpoint, text, jsonb) is
  'Changes how an endpoint''s requests are signed, and their headers; at once, retries included.';
-- What the verbs about schema versions and payload shapes share. A conversion runs with the rights of the role that owns
-- its function, in the session of whoever emits: that role must have agreed, and must not be able to do much.

create function webhook._function(
  function_name text -- the function, with the types of its arguments
) returns oid -- null when it does not exist
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_regprocedure(function_name)::oid
$$;
comment on function webhook._function(text) is 'A function by its name, as it was looked up when the conversion was registered.';

create function webhook._conversion_fault(
  function_name text,  -- the function, with the types of its arguments
  function_owner name  -- whose it is to be
) returns text -- why it cannot be used, as a sentence; null = it can
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select case
           when p.oid is null then 'The function does not exist.'
           when p.prokind <> 'f' or p.proretset or p.pronargs <> 1
                or p.proargtypes[0] not in ('jsonb'::regtype, 'json'::regtype) or p.prorettype <> p.proargtypes[0]
             then 'It must take one jsonb and return jsonb, or take one json and return json.'
           when p.provolatile <> 'i' then 'It is not declared IMMUTABLE.'
           when p.prosecdef then 'It is declared SECURITY DEFINER; a conversion has the rights of its owner anyway.'
           when pg_is_other_temp_schema(p.pronamespace) or p.pronamespace = pg_my_temp_schema() then 'It is a temporary function.'
           when r.rolname is distinct from function_owner then 'It belongs to another role than when it was registered.'
           when r.rolsuper or r.rolcreaterole or r.rolbypassrls or r.rolreplication
                or pg_has_role(r.oid, (select c.relowner from pg_class as c where c.oid = 'webhook._event'::regclass), 'member')
                or pg_has_role(r.oid, 'pg_execute_server_program'::name, 'member')
                or pg_has_role(r.oid, 'pg_read_server_files'::name, 'member')
                or pg_has_role(r.oid, 'pg_write_server_files'::name, 'member')
             then 'The role that owns it may do too much: superusers, roles with CREATEROLE, BYPASSRLS or REPLICATION, members of the extension''s owner, and roles that reach the server''s files cannot own a conversion.'
         end
    from (select to_regprocedure(function_name)) as f (id)
    left join pg_proc as p on p.oid = f.id
    left join pg_roles as r on r.oid = p.proowner
$$;
comment on function webhook._conversion_fault(text, name) is 'Why a function cannot convert payloads, or cannot any more.';

create function webhook._try_conversion(
  type text,            -- event type
  to_version text,      -- schema version that is made
  function oid,         -- the function
  example text          -- payload of the other version
) returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'try_conversion_wrapper';
comment on function webhook._try_conversion(text, text, oid, text) is
  'Converts an example as emit would, and refuses a function that fails or makes what the schema does not accept.';

create function webhook._check_fields(
  fields text[] -- paths of members
) returns text[] -- the same
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'check_fields_wrapper';
comment on function webhook._check_fields(text[]) is 'Refuses paths that name no member.';

create function webhook._check_data_shape(
  data_shape text -- how much of the data is sent
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if data_shape not in ('full', 'fields', 'thin', 'delta') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('data shape "%s" does not exist', left(data_shape, 128)),
      hint = 'The shapes are full, fields, thin and delta.';
  end if;
  return data_shape;
end
$$;
comment on function webhook._check_data_shape(text) is 'Refuses a shape of the data that does not exist.';

create function webhook._check_schema_versions(
  schema_versions jsonb -- object of event types and versions
) returns jsonb -- the same
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  pin record;
begin
  if schema_versions is null then
    return null;
  end if;
  if jsonb_typeof(schema_versions) <> 'object'
     or exists (select from jsonb_each(schema_versions) as m where jsonb_typeof(m.value) <> 'string')
  then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'schema_versions is not an object of texts',
      hint = 'Write {"order.paid": "1"}; {} is every event as it was emitted.';
  end if;
  if (select count(*) from jsonb_object_keys(schema_versions)) > 100 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'too many schema versions',
      detail = 'The limit is 100 event types for each endpoint.';
  end if;
  select m.key as event_type, m.value as version
    into pin
    from jsonb_each_text(schema_versions) as m
   where not exists (select from webhook._event_schema s where s.event_type = m.key and s.version = m.value)
   order by m.key
   limit 1;
  if found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event type "%s" has no schema version "%s"', left(pin.event_type, 128), left(pin.version, 64)),
      hint = 'Each event type is named by itself, without wildcards; see webhook.event_schemas.';
  end if;
  return schema_versions;
end
$$;
comment on function webhook._check_schema_versions(jsonb) is 'Refuses schema versions that no event can have.';

create function webhook._make_revision(
  former webhook._endpoint_revision, -- the shape until now; of a new endpoint all null
  endpoint_id bigint,                -- the endpoint
  format text,                       -- form of the body; null = as it was, like all that follow
  data_shape text,                   -- how much of the data
  fields text[],                     -- of fields: which
  schema_versions jsonb              -- versions by event type; {} = none
) returns integer -- number of the shape from now on
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  latter webhook._endpoint_revision := former;
begin
  perform webhook._check_format(format);
  perform webhook._check_data_shape(data_shape);
  perform webhook._check_fields(fields);
  perform webhook._check_schema_versions(schema_versions);
  latter.endpoint_id := endpoint_id;
  latter.format := coalesce(format, former.format);
  latter.data_shape := coalesce(data_shape, former.data_shape);
  latter.fields := case when latter.data_shape = 'fields' then coalesce(fields, former.fields) end;
  latter.schema_versions := nullif(coalesce(schema_versions, former.schema_versions), '{}');
  if latter.data_shape = 'fields' and latter.fields is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'data shape "fields" needs fields',
      hint = 'Name them with fields => ''{order_id,customer.id}''.';
  end if;
  if fields is not null and latter.data_shape <> 'fields' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('data shape "%s" has no fields', latter.data_shape),
      hint = 'Use data_shape => ''fields'' with them.';
  end if;
  if (latter.format, latter.data_shape, latter.fields, latter.schema_versions)
     is not distinct from (former.format, former.data_shape, former.fields, former.schema_versions)
  then
    return former.revision;
  end if;
  -- Another revision, even where an earlier one was the same: what was sent before keeps its own.
  latter.revision := coalesce(former.revision, 0) + 1;
  insert into webhook._endpoint_revision (endpoint_id, revision, format, data_shape, fields, schema_versions)
  values (latter.endpoint_id, latter.revision, latter.format, latter.data_shape, latter.fields, latter.schema_versions);
  return latter.revision;
end
$$;
comment on function webhook._make_revision(webhook._endpoint_revision, bigint, text, text, text[], jsonb) is
  'Writes down another shape of an endpoint''s payload, where it is another. It counts for deliveries whose first attempt is still to be made.';
-- The cursor of the feed. The feed itself is _feed, which the leader writes: one row per event of a partner, in the
-- order in which the leader read them. One process writes it, one transaction after the other, with positions that only
-- grow: whoever sees a row sees every earlier one. So a cursor is the place of the last row read, and there is no stall.
-- Nothing is kept for a reader. A cursor names its row, by position and by event, so that it can be judged when it
-- comes back: the row is there, or it is too old, or the cursor is of another feed.

create function webhook._make_durable()
returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'make_durable_wrapper';
comment on function webhook._make_durable() is
  'Returns when what the snapshot in use can see is on disk: a crash takes back nothing that the feed has shown.';

create function webhook._is_type_among(
  type text,      -- event type
  patterns text[] -- event types, "customer.*" and "*"
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'is_type_among_wrapper';
comment on function webhook._is_type_among(text, text[]) is 'Whether an event type is one of these types and wildcards; the rule by which endpoints subscribe.';

-- SECURITY INVOKER: it judges current_user; the look-up alone runs as the owner.
create function webhook._feed_data(
  partner_id text, -- whose feed
  event_id text    -- the event; null = only judge the right
) returns text -- "data" byte for byte; null when it is expunged
language c stable parallel restricted
as 'MODULE_PATHNAME', 'feed_data_wrapper';
comment on function webhook._feed_data(text, text) is 'Payload of an event of a feed, for a role with a right of kind feed for that partner.';

create function webhook._kept_for(
  setting text,      -- a setting of retention
  otherwise interval -- where the library does not know it
) returns interval -- null = for ever
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select nullif(greatest(coalesce(nullif(current_setting(setting, true), '')::interval, otherwise), interval '0'), interval '0')
$$;
comment on function webhook._kept_for(text, interval) is 'How long something is kept by a setting.';

create function webhook._feed_floor()
returns bigint -- position
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- Retention takes whole days, so what is left of the day in which it ends is still there.
  select coalesce(webhook._pos_bound(date_trunc('day', clock_timestamp() - webhook._kept_for('webhook.event_retention', '90 days'), 'UTC')), 0)
$$;
comment on function webhook._feed_floor() is 'From this position on nothing of the feed has been removed by retention.';

create function webhook._range_bound(
  at timestamptz,  -- beginning or end of a range; null = open
  otherwise bigint -- position where it is open
) returns bigint -- position
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- Positions have room for the times from 2025 to 2094.
  select case
    when at is null then otherwise
    else webhook._pos_bound(least(greatest(at, timestamptz '2025-01-01 00:00:00+00'), timestamptz '2094-01-01 00:00:00+00'))
  end
$$;
comment on function webhook._range_bound(timestamptz, bigint) is 'Position at which a range of time begins or ends.';

create function webhook._known_origin(
  origin bigint -- a database that gave a cursor
) returns boolean
language sql stable parallel safe
-- SECURITY DEFINER: tells of a number whether it is this database's or that of one whose copy this is.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select origin = webhook._origin()
         or exists (select from webhook._seal_key k where k.origin = _known_origin.origin)
         or exists (select from webhook._adoption a where a.adopter = _known_origin.origin)
$$;
comment on function webhook._known_origin(bigint) is 'Whether a database is this one, or one that this one is a copy of.';

create function webhook._cursor_check(
  partner_id text, -- whose feed
  facts text       -- the rest of the cursor
) returns text -- eight hexadecimal digits
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select left(encode(sha256(convert_to('webhook feed 1 ' || partner_id || ' ' || facts, 'UTF8')), 'hex'), 8)
$$;
comment on function webhook._cursor_check(text, text) is 'Finds out cursors that were mangled, or belong to another partner. No secret: a cursor gives no right.';

create function webhook._event_tag(
  event_id text -- the event
) returns text -- eight hexadecimal digits
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select left(encode(sha256(convert_to(event_id, 'UTF8')), 'hex'), 8)
$$;
comment on function webhook._event_tag(text) is 'What a cursor says of the event that it stands for.';

create function webhook._cursor(
  partner_id text,     -- whose feed
  pos bigint,          -- the last row that was read; 0 = none
  tag text,            -- of its event; null = none
  read_at timestamptz  -- up to when the reader knows all there was
) returns text -- feed1_ and 58 hexadecimal digits
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select 'feed1_' || f.facts || webhook._cursor_check(partner_id, f.facts)
    from (select lpad(to_hex(webhook._origin()), 16, '0')
                 || lpad(to_hex(pos), 16, '0')
                 || lpad(to_hex(extract(epoch from read_at)::bigint), 10, '0')
                 || coalesce(tag, '00000000') as facts) as f
$$;
comment on function webhook._cursor(text, bigint, text, timestamptz) is
  'A cursor: version, database, position, the second up to which nothing was missed, a part of a hash of the event, a checksum.';

create function webhook._read_cursor(
  partner_id text,        -- whose feed
  cursor text,            -- what the feed gave; null = from the oldest event on
  out pos bigint,         -- what follows it is unread
  out tag text,           -- of the event there
  out read_at timestamptz -- up to when the reader knows all there was; null = never read
) returns record
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  part text[];
  kept constant interval := webhook._kept_for('webhook.event_retention', '90 days');
  floor_pos bigint;
begin
  pos := 0;
  if cursor is null then
    return;
  end if;
  part := regexp_match(cursor collate "C", '^feed1_([0-9a-f]{16})([0-9a-f]{16})([0-9a-f]{10})([0-9a-f]{8})([0-9a-f]{8})$');
  if part is null or part[5] <> webhook._cursor_check(partner_id, part[1] || part[2] || part[3] || part[4]) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('cursor is not valid for partner "%s"', left(partner_id, 128)),
      detail = case
        when part is not null then 'It was changed on its way, or it belongs to another partner.'
        when cursor ~ '^feed[0-9]+_' then 'It is of another version, or was cut short or changed on its way.'
        else 'It is none that a feed has given.'
      end,
      hint = 'Pass the cursor of the last row that was read, as it is; null for the beginning of the feed.';
  end if;
  pos := ('x' || part[2])::bit(64)::bigint;
  tag := part[4];
  read_at := to_timestamp(('x' || part[3])::bit(40)::bigint);
  if pos > 0 then
    perform
       from webhook._seen_feed f
      where f.partner_id = _read_cursor.partner_id
        and f.pos = _read_cursor.pos
        and webhook._event_tag(f.event_id) = part[4];
    if found then
      -- Retention begins at the old end: with the row there, all that follows it is there.
      return;
    end if;
  end if;
  if not webhook._known_origin(('x' || part[1])::bit(64)::bigint) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'cursor is of another database',
      hint = 'Read from the beginning (null), or find the time with webhook.export_events.';
  end if;
  floor_pos := webhook._feed_floor();
  -- A partner that had no event for long: its last row is gone, and nothing came after it while the reader looked. An
  -- hour for clocks, and for what was on its way into the feed when it was read.
  if pos < floor_pos and (read_at - interval '1 hour' >= clock_timestamp() - kept or kept is null) then
    return;
  end if;
  if pos < floor_pos
     or (pos > 0 and not exists (select from webhook._seen_feed f where f.partner_id = _read_cursor.partner_id and f.pos < _read_cursor.pos))
  then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = 'cursor has expired',
      detail = format('Events that followed it may have been removed: the feed is kept for %s. The oldest valid cursor is %s.',
                      coalesce(kept::text, 'ever'), webhook._cursor(partner_id, 0, null, clock_timestamp())),
      hint = 'Compare your data with the source once, then read on with the oldest valid cursor.';
  end if;
  raise exception using
    errcode = 'object_not_in_prerequisite_state',
    message = 'cursor is ahead of this feed',
    detail = 'The event that it stands for is not there: it was read from another copy of the database, or before a restore of an older state.',
    hint = 'Find a cursor from before that with webhook.export_events, and expect events that were read already.';
end
$$;
comment on function webhook._read_cursor(text, text) is 'Where a cursor stands; an error when it is none, is of another feed or partner, or has expired.';
-- What the verbs and the leader share about filters: checks at registration, and the evaluation itself. _try_filters is
-- the one place where a payload meets a filter: the leader, test_filter, preview_filter, explain and dry_run all ask it.
-- Which jsonpath may be a filter, and what it costs, is decided in Rust (rules/filter.rs).

create function webhook._check_filter_form(
  filter text -- a jsonpath as PostgreSQL spells it
) returns void
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'check_filter_form_wrapper';
comment on function webhook._check_filter_form(text) is 'Refuses a jsonpath that is no predicate, or whose evaluation could take long.';

create function webhook._filter_fits(
  filter text, -- a filter as it is stored
  data text    -- a payload
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'filter_fits_wrapper';
comment on function webhook._filter_fits(text, text) is 'Whether deciding about a payload of this size stays within bounds.';

create function webhook._type_matches(
  event_types text[], -- event types and wildcards of an endpoint
  type text           -- event type
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'type_matches_wrapper';
comment on function webhook._type_matches(text[], text) is 'Whether one of the patterns matches the event type.';

create function webhook._check_filter(
  filter text -- jsonpath as the user wrote it; null and '' = none
) returns text -- the same as PostgreSQL spells it; null = none
language plpgsql immutable parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  spelt text;
  why text;
begin
  filter := nullif(btrim(filter, E' \t\r\n'), '');
  if octet_length(filter) > 1000 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'filter is too long',
      detail = format('It has %s bytes; the limit is 1000.', octet_length(filter));
  end if;
  begin
    spelt := filter::jsonpath::text;
  exception when syntax_error or data_exception or feature_not_supported or program_limit_exceeded then
    get stacked diagnostics why = message_text;
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'filter is not a jsonpath',
      detail = format('PostgreSQL says: %s.', left(why, 300)),
      hint = 'Write for example $.amount > 100 && $.currency == "EUR".';
  end;
  perform webhook._check_filter_form(spelt);
  return spelt;
end
$$;
comment on function webhook._check_filter(text) is 'Refuses a filter that is not a bounded jsonpath predicate.';

create function webhook._check_subject_types(
  subject_types text[] -- kinds of subjects; null and {} = all
) returns text[] -- the same without duplicates, in order of first mention; null = all
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  types text[];
begin
  perform webhook._check_argument('subject_types', array_position(subject_types, null) is not null);
  select array_agg(t.type order by t.first_mention)
    into types
    from (select u.type, min(u.place) as first_mention
            from unnest(subject_types) with ordinality as u (type, place)
           group by u.type) as t;
  if cardinality(types) > 100 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'too many subject types',
      detail = format('There are %s; the limit is 100 for each endpoint.', cardinality(types));
  end if;
  if exists (select from unnest(types) as u (type) where octet_length(u.type) not between 1 and 512) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'subject type is too long or empty',
      detail = 'A subject type has 1 to 512 bytes.',
      hint = 'Names are exact: there are no wildcards.';
  end if;
  return types;
end
$$;
comment on function webhook._check_subject_types(text[]) is 'Refuses subject types that no event can have; removes duplicates.';

create function webhook._try_filters(
  body text,     -- payload of an event
  filters text[] -- filters as they are stored
) returns table (
  place integer,   -- which of the filters, from 1
  matched boolean, -- null = it could not be decided
  why text         -- why it could not; holds nothing of the payload
)
language plpgsql immutable parallel unsafe rows 1
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  data jsonb;
begin
  begin
    data := body::jsonb;
  -- A text of type json may hold what jsonb cannot (\u0000, half a surrogate pair, a number beyond numeric). Nothing
  -- else is caught, a cancelled statement least of all. The errors' own texts repeat the payload, and are not kept.
  exception when data_exception or program_limit_exceeded then
    why := format('the payload cannot be read as jsonb (%s)', sqlstate);
  end;
  for n in 1 .. cardinality(filters) loop
    place := n;
    matched := null;
    if data is not null then
      why := null;
      if not webhook._filter_fits(filters[n], body) then
        why := 'the payload has too many values for the filter';
      else
        begin
          matched := jsonb_path_match(data, filters[n]::jsonpath);
          if matched is null then
            why := 'the filter yields unknown: it compares values of different kinds, or looks strictly for what is not there';
          end if;
        exception when syntax_error or data_exception or program_limit_exceeded then
          why := format('the filter failed (%s)', sqlstate);
        end;
      end if;
    end if;
    return next;
  end loop;
end
$$;
comment on function webhook._try_filters(text, text[]) is
  'What filters say about a payload. Never raises for a payload; which way it is decided depends on the payload and the filter alone.';

create function webhook._change_filter(
  endpoint webhook._endpoint, -- an endpoint, locked
  subject_types text[],       -- new subject types, {} = all; null = unchanged
  filter text                 -- new filter, '' = none; null = unchanged
) returns webhook._endpoint -- the same, changed
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  types constant text[] := case when subject_types is null then endpoint.subject_types else webhook._check_subject_types(subject_types) end;
  spelt constant text := case when filter is null then endpoint.filter else webhook._check_filter(filter) end;
begin
  if types is distinct from endpoint.subject_types or spelt is distinct from endpoint.filter then
    endpoint.subject_types := types;
    endpoint.filter := spelt;
    endpoint.filter_version := endpoint.filter_version + 1;
    perform webhook._keep_filter(endpoint);
  end if;
  return endpoint;
end
$$;
comment on function webhook._change_filter(webhook._endpoint, text[], text) is 'Gives an endpoint another filter, as a new version.';

create function webhook._keep_filter(
  endpoint webhook._endpoint -- an endpoint with a new filter
) returns void
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  insert into webhook._filter (endpoint_id, version, subject_types, filter)
  select endpoint.endpoint_id, endpoint.filter_version, endpoint.subject_types, endpoint.filter
   where endpoint.filter_version > 0
$$;
comment on function webhook._keep_filter(webhook._endpoint) is 'Writes down a version of an endpoint''s filter.';
-- Internals of the receiving side: what is written in Rust (src/pg/receive.rs, src/pg/inbox_keys.rs), and small checks.

create function webhook._inspect_received(
  source_id bigint,            -- the inbox source; the rest of its row follows
  profile text,                -- its signature profile
  tolerance bigint,            -- its tolerance in seconds
  partner_id text,             -- its tenant
  partner_from text,           -- where the tenant stands
  partners text[],             -- tenants that may be named
  id_from text,                -- where the event id stands
  type_from text,              -- where the type stands
  enforce boolean,             -- whether the payload must match its schema
  headers jsonb,               -- headers of the request
  body bytea,                  -- its body
  method text,                 -- its method
  url text,                    -- where it went
  out refusal text,            -- why it is refused; null = it is not
  out http_status integer,     -- status of a refusal
  out event_id text,           -- the event
  out event_partner_id text,   -- its tenant
  out event_type text,         -- its type
  out subject_type text,       -- kind of its subject
  out subject_id text,         -- identity of its subject
  out subject_version bigint,  -- version of its subject
  out schema_version text,     -- version of its payload's schema
  out correlation_id text,     -- what ties it to others
  out signed_at bigint,        -- when it was signed, Unix seconds
  out answer text              -- to a challenge: the body of the answer
) returns setof record -- one row
language c volatile parallel unsafe rows 1
as 'MODULE_PATHNAME', 'inspect_received_wrapper';
comment on function webhook._inspect_received(bigint, text, bigint, text, text, text[], text, text, boolean, jsonb, bytea, text, text) is
  'Verifies a request with the keys of its source, and reads which event it is.';

create function webhook._check_locator(
  name text,    -- name of the argument
  profile text, -- signature profile of the source
  locator text  -- header:, body: or digest
) returns text -- its canonical form
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'check_locator_wrapper';
comment on function webhook._check_locator(text, text, text) is 'Refuses a place in a request that cannot be looked at, or that nobody signs.';

create function webhook._hold_inbox_key(
  key_id bigint, -- id of the key
  profile text,  -- signature profile of its source
  key text       -- the key; null = a new one is made
) returns text -- its kind: hmac-sha256, ed25519 or text
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'hold_inbox_key_wrapper';
comment on function webhook._hold_inbox_key(bigint, text, text) is
  'Refuses what is no key, and keeps a good one in this session until _held_inbox_key. A new one is handed out by _take_secret.';

create function webhook._held_inbox_key(
  key_id bigint,   -- id of the key
  source_id bigint -- its source
) returns bytea -- the key, as it is stored; once
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'held_inbox_key_wrapper';
comment on function webhook._held_inbox_key(bigint, bigint) is 'The key that _hold_inbox_key holds, encrypted like _make_secret does.';

create function webhook._reencrypted_inbox_key(
  key_id bigint,    -- id of the key
  source_id bigint, -- its source
  stored bytea      -- the key as it is stored
) returns bytea -- the same under the current master key; null when it cannot be decrypted
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'reencrypted_inbox_key_wrapper';
comment on function webhook._reencrypted_inbox_key(bigint, bigint, bytea) is 'A key of an inbox source as it would be stored today.';

create function webhook._schedule_wait(
  schedule text,  -- waits between attempts
  attempt integer -- number of the attempt that failed
) returns bigint -- milliseconds until the next one; null = there is none
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'schedule_wait_wrapper';
comment on function webhook._schedule_wait(text, integer) is 'How long to wait after an attempt.';

create function webhook._count_inbox(
  source_id bigint, -- the source
  result text,      -- what is counted
  reason text       -- why, or the handler; empty = neither
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  today constant date := (clock_timestamp() at time zone 'UTC')::date;
  free integer;
begin
  -- A row that no other session holds, or a new one: nobody waits, and there are as many as sessions at work at once.
  select c.slot
    into free
    from webhook._inbox_count c
   where c.source_id = _count_inbox.source_id
     and c.day = today
     and c.result = _count_inbox.result
     and c.reason = _count_inbox.reason
   limit 1
     for update skip locked;
  if found then
    update webhook._inbox_count c
       set total = c.total + 1,
           last_at = clock_timestamp()
     where c.source_id = _count_inbox.source_id
       and c.day = today
       and c.result = _count_inbox.result
       and c.reason = _count_inbox.reason
       and c.slot = free;
    return;
  end if;
  -- The slot means nothing: a number of this session's own might be a row that another one holds just now.
  insert into webhook._inbox_count (source_id, day, result, reason, slot, total)
  values (_count_inbox.source_id, today, _count_inbox.result, _count_inbox.reason, 1 + floor(random() * 2000000000)::integer, 1)
  on conflict on constraint _inbox_count_pkey do nothing;
end
$$;
comment on function webhook._count_inbox(bigint, text, text) is 'Counts what receive() answered, or what a handler reported.';

create function webhook._inbox_source_named(
  name text -- name of an inbox source
) returns webhook._inbox_source -- the source, locked against other changes
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_source;
begin
  perform webhook._check_argument('source', name is null);
  select s.*
    into known
    from webhook._inbox_source s
   where s.name = _inbox_source_named.name
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('inbox source "%s" does not exist', left(name, 128)),
      hint = 'See webhook.inbox_sources.';
  end if;
  return known;
end
$$;
comment on function webhook._inbox_source_named(text) is 'An inbox source that is about to be changed.';

create function webhook._inbox_handler_named(
  name text -- name of a handler
) returns webhook._inbox_handler -- the handler, locked against other changes
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_handler;
begin
  perform webhook._check_argument('handler', name is null);
  select h.*
    into known
    from webhook._inbox_handler h
   where h.name = _inbox_handler_named.name
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('inbox handler "%s" does not exist', left(name, 128)),
      hint = 'See webhook.inbox_handlers.';
  end if;
  return known;
end
$$;
comment on function webhook._inbox_handler_named(text) is 'A handler that is about to be changed.';

create function webhook._handles(
  handler webhook._inbox_handler, -- a handler
  source text,                    -- inbox source of an event
  type text                       -- its type; null = it has none
) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select (handler.sources is null or source = any (handler.sources))
     and exists (
           select from unnest(handler.event_types) as p (pattern)
            where case
                    when p.pattern = '*' then coalesce(type not like 'webhook.%', true)
                    when p.pattern like '%.*' then length(type) >= length(p.pattern) and starts_with(type, left(p.pattern, -1))
                    else p.pattern = type
                  end)
$$;
comment on function webhook._handles(webhook._inbox_handler, text, text) is 'Whether a handler wants an event; the rules of endpoints, see type_matches in src/rules/matching.rs.';

create function webhook._check_inbox_name(
  argument text, -- name of the argument
  name text      -- name of a source, a handler or a version
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument(argument, name is null);
  if name !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('argument "%s" is not valid', argument),
      detail = 'It has 1 to 64 characters of A-Z, a-z, 0-9, "_", "." and "-", and begins with a letter or digit.';
  end if;
end
$$;
comment on function webhook._check_inbox_name(text, text) is 'Refuses a name that is none.';

create function webhook._check_inbox_limits(
  tolerance interval,     -- of the time of signing
  validation text,        -- off or enforce
  max_body integer,       -- bytes
  max_pending integer,    -- unfinished events
  max_per_minute integer  -- accepted events; null = no limit
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  given record;
begin
  if not (tolerance >= interval '0' and tolerance <= interval '1 day') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'tolerance is outside the valid range',
      detail = 'It is 0 to 1 day: whatever is signed may be repeated for that long.';
  end if;
  if validation not in ('off', 'enforce') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('validation "%s" does not exist', left(validation, 64)),
      hint = 'It is off or enforce.';
  end if;
  for given in
    select *
      from (values ('max_body', max_body, 67108864), ('max_pending', max_pending, 1000000), ('max_per_minute', max_per_minute, 1000000))
           as v (name, value, high)
     where v.value not between 1 and v.high
  loop
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('%s is outside the valid range', given.name),
      detail = format('It is %s; the range is 1 to %s.', given.value, given.high);
  end loop;
end
$$;
comment on function webhook._check_inbox_limits(interval, text, integer, integer, integer) is 'Refuses limits of an inbox source that make no sense.';
-- What goes when it is old. The leader calls this between its rounds, one small piece at a time and with its short
-- lock time-out: a partition that somebody reads goes later, and nobody who emits waits longer than that time-out.
-- An old day goes in two steps. TRUNCATE gives the disk back and locks the leaf alone; DROP of the empty leaf must
-- lock the parent, which every open transaction that has emitted holds, and waits for a quiet moment.
-- DETACH is no way: it takes the same lock, and CONCURRENTLY leaves a leaf half attached when it is interrupted.
-- Nothing here decides by the wall clock of the caller's transaction: what is old is told by the leader.

create function webhook._age(
  what text -- event, delivery, attempt or audit
) returns interval
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- A session that has not loaded the library knows no setting of it.
  select coalesce(current_setting(format('webhook.%s_retention', what), true),
                  case what when 'event' then '90d' when 'delivery' then '60d' when 'attempt' then '30d' else '365d' end)::interval
$$;
comment on function webhook._age(text) is 'How long something is kept, as it is set.';

create function webhook._retention_list()
returns table (
  place integer, -- order in which tables of a day are cleared: what refers to something goes before it
  parent text,   -- partitioned table
  age text       -- whose age: attempt, delivery or event
)
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  values
    (1, '_excerpt', 'attempt'),
    (2, '_attempt', 'attempt'),
    (3, '_delivery', 'delivery'),
    (4, '_feed', 'event'),
    (5, '_event_version', 'event'),
    (6, '_event', 'event')
$$;
comment on function webhook._retention_list() is 'Which tables have daily partitions that go when they are old: the one place that says so.';

create function webhook._old_partitions(
  attempt_before date,  -- attempts of days before this one are old
  delivery_before date, -- deliveries
  event_before date     -- events and the feed
) returns table (
  parent text, -- partitioned table
  day date     -- UTC day of a partition of it
)
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select t.parent, t.day
    from (select l.parent, l.place, l.age, to_date(right(c.relname, 8), 'YYYYMMDD') as day
            from webhook._retention_list() as l
            join pg_class as p on p.relname = l.parent and p.relnamespace = 'webhook'::regnamespace
            join pg_inherits as i on i.inhparent = p.oid
            join pg_class as c on c.oid = i.inhrelid
           where c.relname ~ ('^' || l.parent || '_[0-9]{4}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])$')) as t
   where t.day < case t.age when 'attempt' then attempt_before when 'delivery' then delivery_before else event_before end
   order by t.day, t.place
$$;
comment on function webhook._old_partitions(date, date, date) is 'Partitions whose day is old, in the order in which they are cleared.';

create function webhook._is_open(
  low text, -- first event id
  high text -- event id behind the last one
) returns boolean
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select exists (select from webhook._due as w where w.event_id >= low and w.event_id < high)
      or exists (select
                   from webhook._delivery as d
                  where d.event_id >= low
                    and d.event_id < high
                    and d.state in ('pending', 'retrying', 'dead'))
$$;
comment on function webhook._is_open(text, text) is 'Whether deliveries of a range of events are still to be made, or dead letters of it still to be looked at.';

create function webhook._may_clear(
  parent text, -- partitioned table
  day date,    -- UTC day
  leaf text,   -- its partition
  reads text[] -- what has been read: a snapshot for each of the leader's streams
) returns boolean
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  low constant text := webhook._day_bound('_event', day);
  high constant text := webhook._day_bound('_event', day + 1);
  unread boolean;
begin
  -- The feed has days of its own: its rows lie behind their events, and nothing refers to them.
  if parent = '_feed' then
    return true;
  end if;
  if webhook._is_open(low, high) then
    return false;
  end if;
  if parent <> '_event' then
    return true;
  end if;
  -- No delivery outlives its event.
  if exists (select from webhook._delivery as d where d.event_id >= low and d.event_id < high) then
    return false;
  end if;
  -- Nor does one go that nobody has read, however late it was committed.
  execute format(
    'select exists (
       select
         from webhook.%I as e
        cross join unnest($1::pg_snapshot[]) as s (seen)
        where e.xid >= (select min(pg_snapshot_xmin(m.seen)) from unnest($1::pg_snapshot[]) as m (seen))
          and e.origin = $2
          and not pg_visible_in_snapshot(e.xid, s.seen))', leaf)
     into unread
    using reads, webhook._origin();
  return not unread;
end
$$;
comment on function webhook._may_clear(text, date, text, text[]) is 'Whether a day of a table is settled: nothing in it is due, dead or unread, and what refers to it is gone.';

create function webhook._clear_partition(
  parent text, -- partitioned table
  day date,    -- UTC day
  reads text[], -- what has been read: a snapshot for each of the leader's streams
  may_drop boolean -- whether to ask for the lock on the parent that a DROP needs
) returns text -- truncated, dropped, gone, waits or held
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  leaf constant text := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
  relation constant regclass := to_regclass(format('webhook.%I', leaf));
  occupied boolean;
begin
  if relation is null then
    return 'gone';
  end if;
  if pg_relation_size(relation) > 0 then
    -- Looked at before the lock is asked for, so that a day that waits troubles nobody; and again behind it.
    if not webhook._may_clear(parent, day, leaf, reads) then
      return 'waits';
    end if;
    begin
      -- Nobody is waited for, and nobody waits behind: an old day is quiet, and whoever reads it is gone some day.
      execute format('lock table only webhook.%I in access exclusive mode nowait', leaf);
    exception when lock_not_available then
      return 'held';
    end;
    if not webhook._may_clear(parent, day, leaf, reads) then
      return 'waits';
    end if;
    execute format('truncate only webhook.%I', leaf);
    return 'truncated';
  end if;
  if not may_drop then
    return 'waits';
  end if;
  -- The parent first, like everybody else.
  execute format('lock table only webhook.%I in access exclusive mode', parent);
  execute format('lock table only webhook.%I in access exclusive mode', leaf);
  execute format('select exists (select from webhook.%I)', leaf) into occupied;
  if occupied then
    return 'waits';
  end if;
  execute format('drop table webhook.%I', leaf);
  return 'dropped';
end
$$;
comment on function webhook._clear_partition(text, date, text[], boolean) is
  'Empties the partition of an old day, or drops it when it is empty; the latter fails with 55P03 when somebody holds the parent longer than the lock time-out.';

create function webhook._clear_default(
  parent text,     -- partitioned table
  before text,     -- event id, of the feed a position: rows before it are old
  after text,      -- rows up to here were looked at
  reads text[],    -- what has been read
  most integer,    -- rows looked at
  out last text,   -- last row looked at; null = there was none
  out removed bigint
) returns record
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  leaf constant text := parent || '_default';
  key_column constant text := case parent when '_feed' then 'pos' else 'event_id' end;
  key_type constant text := case parent when '_feed' then 'bigint' else 'text' end;
  condition text;
  places tid[];
begin
  removed := 0;
  if to_regclass(format('webhook.%I', leaf)) is null then
    return;
  end if;
  execute format(
    'select array_agg(t.ctid), max(t.key)::text
       from (select d.ctid, d.%1$I as key
               from webhook.%2$I as d
              where d.%1$I < $1::%3$s and d.%1$I > $2::%3$s
              order by d.%1$I
              limit $3) as t', key_column, leaf, key_type)
     into places, last
    using before, coalesce(after, case parent when '_feed' then '0' else '' end), most;
  if places is null then
    return;
  end if;
  condition := case parent
    when '_feed' then 'true'
    when '_event_version' then 'not exists (select from webhook._delivery as d where d.event_id = t.event_id)'
    when '_event' then
      'not exists (select from webhook._delivery as d where d.event_id = t.event_id)
       and (t.origin <> webhook._origin()
            or not exists (select from unnest($2::pg_snapshot[]) as s (seen) where not pg_visible_in_snapshot(t.xid, s.seen)))'
    -- What was sent again lately is kept as long as its event, though the day of its event has gone.
    when '_delivery' then
      't.state not in (''pending'', ''retrying'', ''dead'')
       and (t.last_attempt_at is null or t.last_attempt_at < webhook._event_time($3) or t.event_id < $4)
       and not exists (select from webhook._due as w where w.event_id = t.event_id and w.endpoint_id = t.endpoint_id)'
    else
      case parent when '_attempt' then '(t.started_at < webhook._event_time($3) or t.event_id < $4) and ' else '' end ||
      'not exists (select from webhook._delivery as d
                    where d.event_id = t.event_id
                      and d.endpoint_id = t.endpoint_id
                      and d.state in (''pending'', ''retrying'', ''dead''))'
  end;
  execute format('delete from webhook.%I as t where t.ctid = any ($1) and %s', leaf, condition)
    using places, reads, before,
          webhook._event_bound(date_trunc('day', clock_timestamp() - webhook._age('event'), 'UTC'));
  get diagnostics removed = row_count;
end
$$;
comment on function webhook._clear_default(text, text, text, text[], integer) is
  'Deletes old rows of a DEFAULT partition, a bounded number at a time; what is open, unread or referred to stays.';

create function webhook._expire_rows(
  name text,          -- table without partitions
  before timestamptz, -- rows from before this moment are old
  most integer        -- rows deleted at most
) returns bigint -- rows deleted
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  bound constant bigint := webhook._pos_bound(before);
  oldest constant text := webhook._event_bound(before);
  removed bigint;
begin
  -- Ids are ordered by time and are the primary keys: each of these reads from the beginning of an index.
  case name
    when '_audit' then
      delete from webhook._audit a
       where a.audit_id in (select o.audit_id from webhook._audit o where o.audit_id < bound order by o.audit_id limit most);
    when '_alert' then
      delete from webhook._alert a
       where a.alert_id in (select o.alert_id from webhook._alert o where o.alert_id < bound order by o.alert_id limit most);
    when '_request' then
      delete from webhook._request q
       where q.request_id in (select o.request_id from webhook._request o
                               where o.request_id < bound and o.state <> 'pending' order by o.request_id limit most);
    when '_fenced' then
      delete from webhook._fenced f
       where f.event_id in (select o.event_id from webhook._fenced o
                             where o.event_id < oldest
                               and not exists (select from webhook._event e where e.event_id = o.event_id)
                             order by o.event_id limit most);
    when '_tombstone' then
      -- Those of the payload retention tell nothing once their event is gone; the others are evidence, and are kept
      -- as long as the audit log.
      delete from webhook._tombstone t
       where t.event_id in (select o.event_id from webhook._tombstone o
                             where o.event_id < oldest
                               and (o.erasure_id is null or o.event_id < webhook._event_bound(
                                      clock_timestamp() - webhook._age('audit')))
                               and not exists (select from webhook._event e where e.event_id = o.event_id)
                             order by o.event_id limit most);
    when '_finding' then
      delete from webhook._finding f
       where f.finding_id in (select o.finding_id from webhook._finding o where o.finding_id < bound order by o.finding_id limit most);
    when '_inbox' then
      -- What was received has a table and an age of its own.
      return webhook._trim_inbox(most);
    when '_day_count' then
      delete from webhook._day_count c
       where c.day in (select o.day from webhook._day_count o where o.day < (before at time zone 'UTC')::date order by o.day limit most);
    else
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('table "%s" has no retention', name);
  end case;
  get diagnostics removed = row_count;
  return removed;
end
$$;
comment on function webhook._expire_rows(text, timestamptz, integer) is 'Deletes old rows of a table without partitions, oldest first, a bounded number at a time.';

create function webhook._expire_keys(
  before timestamptz, -- keys of events from before this moment stand for nothing any more
  page integer,       -- first page of the table that is looked at
  pages integer       -- how many
) returns integer -- page to go on from; null = the end of the table
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  oldest constant text := webhook._event_bound(before);
begin
  -- The key is a hash: there is no order of time to read by, so the table is walked page by page. A row that an emit
  -- is about to take over is left to it.
  delete from webhook._idempotency i
   where i.ctid in (select o.ctid
                      from webhook._idempotency o
                     where o.ctid >= format('(%s,0)', page)::tid
                       and o.ctid < format('(%s,0)', page + pages)::tid
                       and o.event_id < oldest
                       for update skip locked);
  if (page + pages)::bigint * current_setting('block_size')::bigint >= pg_relation_size('webhook._idempotency') then
    return null;
  end if;
  return page + pages;
end
$$;
comment on function webhook._expire_keys(timestamptz, integer, integer) is 'Deletes idempotency keys whose window is over, some pages of the table at a time.';

create function webhook._expire_payloads(
  most integer -- events looked at
) returns boolean -- whether there may be more
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  progress record;
  found_ids text[];
  last bigint;
  looked_at bigint;
begin
  -- By the feed, which has an index by type and position: an event is in it once it has been read.
  for progress in
    select t.name, webhook._pos_bound(clock_timestamp() - t.payload_retention) as bound, coalesce(p.pos, 0) as pos, t.payload_retention
      from webhook._event_type as t
      left join webhook._payload_progress as p on p.type = t.name
     where t.payload_retention is not null
     order by t.name
  loop
    -- A deadline for each type of its own, so that a busy one keeps no other one waiting for ever: one piece each.
    select array_agg(f.event_id), max(f.pos), count(*)
      into found_ids, last, looked_at
      from (select o.event_id, o.pos
              from webhook._feed as o
             where o.type = progress.name
               and o.pos > progress.pos
               and o.pos < progress.bound
             order by o.pos
             limit most) as f;
    if looked_at = 0 then
      continue;
    end if;
    perform webhook._bury(found_ids, null, format('the payload retention of the event type, %s, is over', progress.payload_retention));
    -- One that somebody has locked keeps the place: he may let go of it without having erased it.
    select least(last, min(f.pos) - 1)
      into last
      from webhook._feed as f
      join webhook._event as e on e.event_id = f.event_id
     where f.type = progress.name
       and f.pos > progress.pos
       and f.pos <= last
       and e.event_id = any (found_ids)
       and e.body is not null;
    continue when last = progress.pos;
    insert into webhook._payload_progress as p (type, pos)
    values (progress.name, last)
    on conflict on constraint _payload_progress_pkey do update
       set pos = excluded.pos;
    return true;
  end loop;
  return false;
end
$$;
comment on function webhook._expire_payloads(integer) is
  'Takes the payloads of one event type that have reached their age, a bounded number at a time; see event_types.payload_retention.';
-- How a payload goes: the event keeps its envelope, its digest and so its seal, and gets a tombstone. Every copy of the
-- payload that the extension keeps is listed in _erase_copies, and nowhere else.

create function webhook._note_expunged()
returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'note_expunged_wrapper';
comment on function webhook._note_expunged() is
  'Tells the leader, when the transaction commits, that payloads are gone: before the next request starts it drops those it holds in memory.';

create function webhook._erase_copies(
  event_ids text[], -- events whose payload goes
  received boolean  -- also what this database received itself
) returns jsonb -- rows by table
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  erased jsonb := '{}';
  n bigint;
begin
  -- What receivers answered may repeat what they were sent.
  delete from webhook._excerpt x where x.event_id = any (event_ids);
  get diagnostics n = row_count;
  erased := erased || jsonb_build_object('excerpts', n);
  -- What receive() keeps of the same events has a retention of its own, but no leave to outlive an erasure.
  if received then
    n := webhook._expunge_inbox(event_ids);
    erased := erased || jsonb_build_object('received', n);
  end if;
  -- Bodies in other versions of the schema.
  update webhook._event_version v set body = null where v.event_id = any (event_ids) and v.body is not null;
  get diagnostics n = row_count;
  erased := erased || jsonb_build_object('versions', n);
  return erased;
end
$$;
comment on function webhook._erase_copies(text[], boolean) is 'Deletes every copy of payloads that is kept beside the events: the one list of them.';

create function webhook._count_copies(
  event_ids text[] -- events whose payload is gone
) returns jsonb -- rows by table that are left
language plpgsql stable
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  remaining jsonb;
begin
  select jsonb_build_object('excerpts', count(*),
           -- By way of the sources, as the index has them.
           'received', (select count(*)
                          from webhook._inbox_source s
                          join webhook._inbox i on i.source_id = s.source_id
                         where i.event_id = any (event_ids)
                           and i.body is not null),
           'versions', (select count(*)
                          from webhook._event_version v
                         where v.event_id = any (event_ids)
                           and v.body is not null))
    into remaining
    from webhook._excerpt x
   where x.event_id = any (event_ids);
  return remaining;
end
$$;
comment on function webhook._count_copies(text[]) is 'Counts what _erase_copies would delete: the evidence that nothing is left.';

create function webhook._bury(
  event_ids text[],  -- events whose payload goes
  erasure_id bigint, -- the call of expunge; null = the payload retention
  reason text        -- why
) returns jsonb -- rows by table
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  buried text[];
begin
  -- The leader must not wait for a user; a user waits for another one, or for a moment of the leader's.
  -- A row that is locked is being erased by somebody already.
  if erasure_id is null then
    select array_agg(e.event_id)
      into event_ids
      from (select o.event_id
              from webhook._event o
             where o.event_id = any (event_ids)
               and o.body is not null
               for update skip locked) as e;
  end if;
  if event_ids is null then
    return '{}';
  end if;
  with gone as (
    update webhook._event e
       set body = null
     where e.event_id = any (event_ids)
       and e.body is not null
    returning e.event_id, e.body_sha256, e.partner_id),
  told as (
    insert into webhook._tombstone as t (event_id, body_sha256, partner_id, erasure_id, reason, swept)
    -- The leader writes its own tombstones between its own results: nothing can slip in between.
    select g.event_id, g.body_sha256, g.partner_id, _bury.erasure_id, _bury.reason, _bury.erasure_id is null
      from gone as g
    on conflict on constraint _tombstone_pkey do nothing)
  select coalesce(array_agg(g.event_id), '{}')
    into buried
    from gone as g;
  perform webhook._note_expunged();
  -- Of events erased before there may be newer copies.
  return jsonb_build_object('payloads', cardinality(buried)) || webhook._erase_copies(event_ids, erasure_id is not null);
end
$$;
comment on function webhook._bury(text[], bigint, text) is 'Takes the payloads of events with all their copies, and leaves a tombstone for each.';

create function webhook._erasure_condition(
  scope text,        -- event, subject or partner
  of_partner boolean -- whether a partner is named
) returns text -- condition on _event e with the parameters event_id, partner_id, subject_type, subject_id
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- Of text alone, so that each can be planned by its index; a partner has none, and is searched for.
  select case scope
           when 'event' then 'e.event_id = $1'
           when 'partner' then 'e.partner_id = $2'
           else 'e.subject_type = $3 and e.subject_id = $4' || case when of_partner then ' and e.partner_id = $2' else '' end
         end
$$;
comment on function webhook._erasure_condition(text, boolean) is 'Which events an erasure is about.';
-- What the verbs about endpoints share: the state in force, checks, locking, storing, lifecycle events.
-- Every change goes through _take_endpoint (lock, state in force) and _save_endpoint (generation, audit, wake);
-- nothing here writes _endpoint_state, and nothing here touches a delivery: the leader cancels and resumes.

create view webhook._effective_endpoint as
select e.endpoint_id,
       e.partner_id,
       e.test,
       e.origin,
       coalesce(s.state, e.state) as state,
       case when s.state is null then e.state_reason else s.reason end as state_reason,
       case when s.state is null then e.state_changed_at else s.changed_at end as state_changed_at
  from webhook._endpoint e
  left join webhook._endpoint_state s
         on s.endpoint_id = e.endpoint_id
        and s.generation = e.generation;
comment on view webhook._effective_endpoint is
  'Endpoints with the state that is in force: the leader''s finding while it is of the current generation, else the user''s word.';
comment on column webhook._effective_endpoint.endpoint_id is 'The endpoint.';
comment on column webhook._effective_endpoint.partner_id is 'Tenant that owns it.';
comment on column webhook._effective_endpoint.test is 'Test endpoint.';
comment on column webhook._effective_endpoint.origin is 'Which database made it.';
comment on column webhook._effective_endpoint.state is 'State in force.';
comment on column webhook._effective_endpoint.state_reason is 'Why.';
comment on column webhook._effective_endpoint.state_changed_at is 'Since when.';

create function webhook._check_partner(
  partner_id text -- tenant
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  -- The operator is a partner like others here: its endpoints get the lifecycle events of all partners.
  if partner_id = '_operator' then
    return partner_id;
  end if;
  -- The words of emit, which refuses the same partner ids.
  if partner_id like '\_%' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'partner ids that begin with "_" are reserved';
  end if;
  if not webhook._valid_partner(partner_id) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'partner id is not valid',
      detail = 'A partner id has 1 to 128 characters of A-Z, a-z, 0-9, "_", ".", ":" and "-".';
  end if;
  return partner_id;
end
$$;
comment on function webhook._check_partner(text) is 'Refuses a partner id that no endpoint can have.';

create function webhook._check_event_types(
  event_types text[] -- event types and wildcards
) returns text[] -- the same without duplicates, in order of first mention
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  patterns text[];
  refused text;
begin
  perform webhook._check_argument('event_types', event_types is null or array_position(event_types, null) is not null);
  select array_agg(p.pattern order by p.first_mention)
    into patterns
    from (select u.pattern, min(u.place) as first_mention
            from unnest(event_types) with ordinality as u (pattern, place)
           group by u.pattern) as p;
  if patterns is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'event_types must not be empty',
      hint = 'Use ''{*}'' for every event type.';
  end if;
  if cardinality(patterns) > 100 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'too many event types',
      detail = format('There are %s; the limit is 100 for each endpoint.', cardinality(patterns)),
      hint = 'Use wildcards such as "customer.*".';
  end if;
  select u.pattern
    into refused
    from unnest(patterns) as u (pattern)
   where not webhook._valid_pattern(u.pattern)
   limit 1;
  if found then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('event type "%s" is not valid', left(refused, 128)),
      detail = 'An event type has 1 to 128 characters of A-Z, a-z, 0-9, "_" and "-", in parts separated by dots.',
      hint = 'Wildcards are "*" and a prefix that ends in ".*".';
  end if;
  return patterns;
end
$$;
comment on function webhook._check_event_types(text[]) is 'Refuses event types that no event can have; removes duplicates.';

create function webhook._check_max_in_flight(
  max_in_flight integer -- concurrent requests to one endpoint, null = not said here
) returns integer
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if max_in_flight not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'max_in_flight is outside the valid range',
      detail = format('It is %s; the range is 1 to 1000.', max_in_flight),
      hint = 'Leave it out for webhook.max_in_flight_per_endpoint, or what the policy says instead.';
  end if;
  return max_in_flight;
end
$$;
comment on function webhook._check_max_in_flight(integer) is 'Refuses a concurrency that is outside the range.';

create function webhook._check_type(
  type text -- event type
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if not webhook._valid_type(type) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('event type "%s" is not valid', left(type, 128)),
      detail = 'An event type has 1 to 128 characters of A-Z, a-z, 0-9, "_" and "-", in parts separated by dots.',
      hint = 'Wildcards are not possible here.';
  end if;
  return type;
end
$$;
comment on function webhook._check_type(text) is 'Refuses a text that is not one event type.';

create function webhook._check_policy_exists(
  policy text -- name of a policy, null = "default"
) returns text -- the same; null for "default"
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  -- FOR KEY SHARE: delete_policy waits for those who are about to name it, update_policy does not.
  perform from webhook._policy p
    where p.name = policy
      for key share;
  if policy is not null and not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('policy "%s" does not exist', left(policy, 128));
  end if;
  return nullif(policy, 'default');
end
$$;
comment on function webhook._check_policy_exists(text) is 'Refuses a policy that does not exist, and keeps it from being deleted until the transaction ends.';

create function webhook._take_endpoint(
  endpoint_id bigint -- the endpoint
) returns webhook._endpoint -- its row, locked, with the state that is in force
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
begin
  perform webhook._check_argument('endpoint_id', endpoint_id is null);
  select e.*
    into endpoint
    from webhook._endpoint e
   where e.endpoint_id = _take_endpoint.endpoint_id
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('endpoint %s does not exist', endpoint_id);
  end if;
  if endpoint.state = 'deleted' then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is deleted', endpoint_id),
      hint = 'Create a new endpoint.';
  end if;
  -- A new generation makes the leader's finding void: without this, a new URL would put an endpoint back into
  -- service that had answered 410.
  select e.state, e.state_reason, e.state_changed_at
    into endpoint.state, endpoint.state_reason, endpoint.state_changed_at
    from webhook._effective_endpoint e
   where e.endpoint_id = _take_endpoint.endpoint_id;
  return endpoint;
end
$$;
comment on function webhook._take_endpoint(bigint) is 'Locks an endpoint that is to be changed and returns it as it stands.';

create function webhook._save_endpoint(
  endpoint webhook._endpoint,       -- row of _take_endpoint with the changes made
  verb text,                        -- function that was called
  reason text default null,         -- why, in the user's words
  request_id bigint default null,   -- the request that goes with the change
  void boolean default false        -- the verb is about the state: it sets it, and the leader's findings are void
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._endpoint;
begin
  -- The row is locked, so this is the one that _take_endpoint read.
  select e.*
    into former
    from webhook._endpoint e
   where e.endpoint_id = endpoint.endpoint_id;
  select e.state, e.state_reason, e.state_changed_at
    into former.state, former.state_reason, former.state_changed_at
    from webhook._effective_endpoint e
   where e.endpoint_id = endpoint.endpoint_id;
  -- The leader waits for no lock and may have found something since: a new description must not put an endpoint
  -- back into service that has just been disabled.
  if not void then
    endpoint.state := former.state;
    endpoint.state_reason := former.state_reason;
    endpoint.state_changed_at := former.state_changed_at;
  end if;
  update webhook._endpoint e
     set url = endpoint.url,
         event_types = endpoint.event_types,
         state = endpoint.state,
         state_reason = endpoint.state_reason,
         state_changed_at = endpoint.state_changed_at,
         description = endpoint.description,
         max_in_flight = endpoint.max_in_flight,
         policy = endpoint.policy,
         ordered = endpoint.ordered,
         subject_types = endpoint.subject_types,
         filter = endpoint.filter,
         filter_version = endpoint.filter_version,
         verify = endpoint.verify,
         pending_url = endpoint.pending_url,
         proof_generation = endpoint.proof_generation,
         proof_asked_at = endpoint.proof_asked_at,
         verified_at = endpoint.verified_at,
         verified_by = endpoint.verified_by,
         expires_at = endpoint.expires_at,
         renewed_at = endpoint.renewed_at,
         revision = endpoint.revision,
         signature = endpoint.signature,
         headers = endpoint.headers,
         headers_changed_at = endpoint.headers_changed_at,
         -- How the endpoint has answered is worth keeping: only what makes it another receiver voids it.
         generation = case
           when void or endpoint.url <> former.url then e.generation + 1
           else e.generation
         end,
         changed_xid = pg_current_xact_id()
   where e.endpoint_id = endpoint.endpoint_id;
  perform webhook._log(
    verb, 'endpoint', endpoint.endpoint_id::text, endpoint.partner_id,
    webhook._without_path(webhook._changed(webhook._endpoint_facts(former), webhook._endpoint_facts(endpoint))),
    webhook._without_path(webhook._changed(webhook._endpoint_facts(endpoint), webhook._endpoint_facts(former))),
    reason, request_id);
  perform webhook._wake();
end
$$;
comment on function webhook._save_endpoint(webhook._endpoint, text, text, bigint, boolean) is
  'Stores a changed endpoint, under a new generation when the leader''s findings are void, logs the change and wakes the leader.';

create function webhook._lifecycle(
  endpoint webhook._endpoint,    -- the endpoint
  what text,                     -- what follows "webhook.endpoint."
  reason text,                   -- why; null = not said
  more jsonb default '{}'        -- further members of data
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  told text;
begin
  -- Its own partner and the operator; the operator's own endpoints have one partner only.
  for told in
    select endpoint.partner_id
     union
    select '_operator'
  loop
    perform webhook._emit_reserved(
      type => 'webhook.endpoint.' || what,
      partner_id => told,
      data => jsonb_strip_nulls(jsonb_build_object(
        'endpoint_id', endpoint.endpoint_id::text, 'partner_id', endpoint.partner_id, 'reason', reason) || more),
      subject_type => 'webhook.endpoint',
      subject_id => endpoint.endpoint_id::text,
      test => endpoint.test);
  end loop;
end
$$;
comment on function webhook._lifecycle(webhook._endpoint, text, text, jsonb) is
  'Emits what happened to an endpoint to its partner''s other endpoints and to the operator''s.';

create function webhook._alert_about(
  endpoint webhook._endpoint, -- the endpoint
  kind text,                  -- kind of alert
  severity text,              -- info, warning or critical
  detail text                 -- what happened
) returns void
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  insert into webhook._alert (alert_id, kind, severity, partner_id, endpoint_id, detail)
  values (webhook._new_id(), kind, severity, endpoint.partner_id, endpoint.endpoint_id, detail)
$$;
comment on function webhook._alert_about(webhook._endpoint, text, text, text) is 'Writes an alert about an endpoint.';
-- Endpoints: creating, changing, enabling, disabling and deleting them, one by one or all of a partner.
-- SECURITY DEFINER, because the tables belong to the extension's owner alone: EXECUTE on one of these
-- functions is the whole right to it. Who acts is session_user, which the switch of rights does not change.

create function webhook.create_endpoint(
  partner_id text,                        -- tenant that owns the endpoint
  url text,                               -- callback URL, https
  event_types text[] default '{*}',       -- event types and wildcards that are sent here
  test boolean default false,             -- true: receives test events only
  verify text default 'challenge',        -- how control of the URL is to be proven: challenge, graph, slack; none = it is not
  description text default null,          -- free text of the operator
  max_in_flight integer default null,     -- concurrent requests; null = what the policy says
  policy text default null,               -- how deliveries are retried and limited; null = the policy "default"
  ordered boolean default false,          -- true: an event waits until the one before it of the same subject is settled
  expires_at timestamptz default null,    -- when it expires unless it is renewed; null = never
  subject_types text[] default null,      -- exact subject types whose events are sent here; null = all
  filter text default null,               -- condition on the payload: a jsonpath predicate; null = none
  format text default 'native',           -- form of the body: native, cloudevents-structured or cloudevents-binary
  signature text default 'v1',            -- how requests are signed: a signature profile
  headers jsonb default '{}',             -- headers that are added to every request: an object of texts
  data_shape text default 'full',         -- how much of the data is sent: full, fields, thin or delta
  fields text[] default null,             -- of fields: paths of the members that are kept
  schema_versions jsonb default '{}',     -- schema version by event type; of the others every event as it was emitted
  out endpoint_id bigint,                 -- the new endpoint
  out secret text                         -- its signing secret, whsec_..., shown this once; of a key pair its public half, whpk_...
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  patterns text[];
  canonical_url text;
  endpoint webhook._endpoint;
  endpoints bigint;
  max_endpoints integer;
begin
  perform webhook._check_writable('create an endpoint');
  perform webhook._check_argument('partner_id', partner_id is null);
  perform webhook._check_argument('url', url is null);
  perform webhook._check_argument('test', test is null);
  perform webhook._check_argument('verify', verify is null);
  perform webhook._check_argument('ordered', ordered is null);
  perform webhook._check_argument('format', format is null);
  perform webhook._check_argument('signature', signature is null);
  perform webhook._check_argument('headers', headers is null);
  perform webhook._check_argument('data_shape', data_shape is null);
  perform webhook._check_argument('schema_versions', schema_versions is null);
  perform webhook._check_partner(partner_id);
  patterns := webhook._check_event_types(event_types);
  canonical_url := webhook._check_url(url);
  perform webhook._check_max_in_flight(max_in_flight);
  policy := webhook._check_policy_exists(policy);
  perform webhook._check_method(verify);
  expires_at := webhook._check_expiry('expires_at', expires_at);
  subject_types := webhook._check_subject_types(subject_types);
  filter := webhook._check_filter(filter);
  perform webhook._check_signature(signature);
  headers := nullif(webhook._check_headers(headers), '{}');

  -- Two transactions that both see one place left would both take it. Other partners are not concerned.
  perform pg_advisory_xact_lock(hashtextextended('webhook.create_endpoint ' || partner_id, 0));
  max_endpoints := current_setting('webhook.max_endpoints_per_partner')::integer;
  select count(*)
    into endpoints
    from webhook._endpoint e
   where e.partner_id = create_endpoint.partner_id
     and e.state <> 'deleted';
  if endpoints >= max_endpoints then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = format('partner "%s" has too many endpoints', partner_id),
      detail = format('There are %s; the limit is %s.', endpoints, max_endpoints),
      hint = 'Delete one, or raise webhook.max_endpoints_per_partner.';
  end if;

  endpoint_id := webhook._new_id();
  insert into webhook._endpoint as e
    (endpoint_id, partner_id, url, event_types, test, state, verify, description, max_in_flight, policy, ordered, origin,
     subject_types, filter, filter_version,
     expires_at, proof_asked_at, verified_at, verified_by, signature, headers, headers_changed_at)
  values
    (endpoint_id, partner_id, canonical_url, patterns, test, case verify when 'none' then 'active' else 'unverified' end, verify,
     description, max_in_flight, policy, ordered, webhook._origin(),
     subject_types, filter, case when subject_types is null and filter is null then 0 else 1 end,
     expires_at, case when verify <> 'none' then clock_timestamp() end, case verify when 'none' then clock_timestamp() end,
     case verify when 'none' then 'none' end, signature, headers, case when headers is not null then clock_timestamp() end)
  returning e.*
    into endpoint;
  perform webhook._keep_filter(endpoint);
  if verify = 'none' then
    perform webhook._spare_proof(endpoint);
  end if;
  perform webhook._make_revision(null, endpoint_id, format, data_shape, fields, schema_versions);
  secret := (webhook._add_secret(endpoint_id)).secret;
  perform webhook._log(
    'create_endpoint', 'endpoint', endpoint_id::text, partner_id,
    after => webhook._without_path(jsonb_strip_nulls(webhook._endpoint_facts(endpoint))));
  perform webhook._wake();
end
$$;
comment on function webhook.create_endpoint(text, text, text[], boolean, text, text, integer, text, boolean, timestamptz, text[], text, text, text, jsonb, text, text[], jsonb) is
  'Makes an endpoint and returns its id and its secret, which is never shown again. Its URL is challenged at once; until the proof it is unverified and its events wait. It gets the events of this transaction and every later one.';

create function webhook.update_endpoint(
  endpoint_id bigint,                 -- the endpoint
  url text default null,              -- new callback URL; null = unchanged
  event_types text[] default null,    -- new event types and wildcards; null = unchanged
  description text default null,      -- new description, '' = none; null = unchanged
  max_in_flight integer default null, -- new concurrency, 0 = what the policy says; null = unchanged
  policy text default null,           -- new policy, '' = the policy "default"; null = unchanged
  ordered boolean default null,       -- whether the order of each subject is kept; null = unchanged
  verify text default null,           -- how control of the URL is to be proven from now on; null = unchanged
  subject_types text[] default null,  -- new subject types, {} = all; null = unchanged
  filter text default null,           -- new condition on the payload, '' = none; null = unchanged
  format text default null,           -- new form of the body, for deliveries not attempted yet; null = unchanged
  signature text default null,        -- new signature profile for the same kind of key; null = unchanged
  headers jsonb default null,         -- new headers, {} = none; null = unchanged
  data_shape text default null,       -- new shape of the data, for deliveries not attempted yet, like the two below; null = unchanged
  fields text[] default null,         -- new paths of the members that are kept; null = unchanged
  schema_versions jsonb default null  -- new schema versions by event type, {} = none; null = unchanged
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  canonical_url text;
  before text;
begin
  perform webhook._check_writable('change an endpoint');
  perform webhook._check_method(verify);
  perform webhook._check_signature(signature);
  perform webhook._check_headers(headers);
  -- Before the row is locked, because the name is looked up: null in, null out.
  canonical_url := webhook._check_url(url);
  endpoint := webhook._take_endpoint(endpoint_id);
  before := endpoint.state;
  endpoint := webhook._change_url(endpoint, canonical_url, verify);
  if event_types is not null then
    endpoint.event_types := webhook._check_event_types(event_types);
  end if;
  if description is not null then
    endpoint.description := nullif(description, '');
  end if;
  if max_in_flight is not null then
    endpoint.max_in_flight := webhook._check_max_in_flight(nullif(max_in_flight, 0));
  end if;
  if policy is not null then
    endpoint.policy := webhook._check_policy_exists(nullif(policy, ''));
  end if;
  endpoint.ordered := coalesce(ordered, endpoint.ordered);
  endpoint := webhook._change_filter(endpoint, subject_types, filter);
  endpoint := webhook._reshape(endpoint, signature, headers);
  endpoint.revision := webhook._make_revision(
    (select r from webhook._endpoint_revision r where r.endpoint_id = endpoint.endpoint_id and r.revision = endpoint.revision),
    endpoint.endpoint_id, format, data_shape, fields, schema_versions);
  perform webhook._save_endpoint(endpoint, 'update_endpoint', void => endpoint.state <> before);
end
$$;
comment on function webhook.update_endpoint(bigint, text, text[], text, integer, text, boolean, text, text[], text, text, text, jsonb, text, text[], jsonb) is
  'Changes an endpoint; what is left out stays. A new URL is challenged, and the old one stays in force until it is proven. The state stays, too: a disabled endpoint needs enable_endpoint. max_in_flight 0 and an empty policy return to the default, an empty description removes it. A new filter decides about events from now on, and about deliveries that a filter holds. A delivery keeps the format, the data shape and the schema version of its first attempt; signature and headers are those of today in retries, too.';

create function webhook.enable_endpoint(
  endpoint_id bigint,       -- the endpoint
  reason text default null  -- why
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  missed jsonb;
begin
  perform webhook._check_writable('enable an endpoint');
  if reason is not null then
    reason := webhook._check_reason(reason);
  end if;
  endpoint := webhook._take_endpoint(endpoint_id);
  -- Enabling an active endpoint is no error: its new generation voids a 410 that is still on its way.
  if endpoint.state not in ('active', 'disabled') then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is %s', endpoint_id, endpoint.state),
      detail = 'Only a disabled endpoint can be enabled.',
      hint = 'A paused endpoint goes on after webhook.resume.';
  end if;
  if endpoint.expires_at <= clock_timestamp() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s has expired', endpoint_id),
      hint = 'Use webhook.renew_endpoint first.';
  end if;
  if endpoint.state = 'disabled' then
    missed := jsonb_build_object('from', webhook._rfc3339(endpoint.state_changed_at), 'to', webhook._rfc3339(clock_timestamp()));
  end if;
  endpoint.state := 'active';
  endpoint.state_reason := reason;
  endpoint.state_changed_at := clock_timestamp();
  if endpoint.verified_at is null and endpoint.verify <> 'none' then
    -- Disabling and enabling must not be a way around the proof.
    endpoint.state := 'unverified';
    endpoint := webhook._demand_proof(endpoint);
  end if;
  perform webhook._save_endpoint(endpoint, 'enable_endpoint', reason, void => true);
  if missed is not null then
    -- No pairs were made meanwhile, and nobody else would say so.
    perform webhook._lifecycle(endpoint, 'missed', reason, missed);
    perform webhook._alert_about(
      endpoint, 'endpoint.missed', 'warning',
      format('The endpoint is in service again; the events from %s to %s were not sent to it.', missed ->> 'from', missed ->> 'to'));
  end if;
end
$$;
comment on function webhook.enable_endpoint(bigint, text) is
  'Puts a disabled endpoint back into service (unverified, if its URL was never proven), and says which time it missed: the events of that time are not sent by themselves.';

create function webhook.disable_endpoint(
  endpoint_id bigint, -- the endpoint
  reason text         -- why; shown beside the deliveries that it cancels
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before text;
begin
  perform webhook._check_writable('disable an endpoint');
  endpoint := webhook._take_endpoint(endpoint_id);
  reason := webhook._check_reason(reason);
  before := endpoint.state;
  endpoint.state := 'disabled';
  endpoint.state_reason := reason;
  -- Disabled once more for another reason: what it misses still begins where it began.
  if before <> 'disabled' then
    endpoint.state_changed_at := clock_timestamp();
  end if;
  perform webhook._save_endpoint(endpoint, 'disable_endpoint', reason, void => true);
  if before <> 'disabled' then
    perform webhook._lifecycle(endpoint, 'disabled', reason);
    perform webhook._alert_about(endpoint, 'endpoint.disabled', 'info', format('The endpoint was disabled by %s: %s', session_user, reason));
  end if;
end
$$;
comment on function webhook.disable_endpoint(bigint, text) is
  'Takes an endpoint out of service: waiting deliveries are cancelled with the reason, new events are not sent to it. Its partner''s other endpoints are told.';

create function webhook.delete_endpoint(
  endpoint_id bigint, -- the endpoint
  reason text         -- why; shown beside the deliveries that it cancels
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
begin
  perform webhook._check_writable('delete an endpoint');
  endpoint := webhook._take_endpoint(endpoint_id);
  reason := webhook._check_reason(reason);
  endpoint.state := 'deleted';
  endpoint.state_reason := reason;
  endpoint.state_changed_at := clock_timestamp();
  -- Its keys will never sign again. Key material that is gone can leak neither from here nor from a dump;
  -- the key ids stay in the evidence.
  delete from webhook._secret s
   where s.endpoint_id = endpoint.endpoint_id;
  perform webhook._save_endpoint(endpoint, 'delete_endpoint', reason, void => true);
end
$$;
comment on function webhook.delete_endpoint(bigint, text) is
  'Removes an endpoint for good: waiting deliveries are cancelled with the reason, its keys are destroyed, its history stays readable.';

create function webhook.offboard(
  partner_id text, -- the partner
  reason text      -- why; shown beside the deliveries that it cancels
) returns integer -- endpoints that were deleted
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoints bigint[];
begin
  perform webhook._check_writable('offboard a partner');
  perform webhook._check_argument('partner_id', partner_id is null);
  reason := webhook._check_reason(reason);
  -- An endpoint that somebody is just creating would stay behind.
  perform pg_advisory_xact_lock(hashtextextended('webhook.create_endpoint ' || partner_id, 0));
  perform from webhook._endpoint e
    where e.partner_id = offboard.partner_id;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('partner "%s" has no endpoint', left(partner_id, 128));
  end if;
  -- In one order, so that two of these, or one and a series of changes, do not wait for each other.
  endpoints := array(
    select e.endpoint_id
      from webhook._endpoint e
     where e.partner_id = offboard.partner_id
       and e.state <> 'deleted'
     order by e.endpoint_id
       for no key update);
  update webhook._endpoint e
     set state = 'deleted',
         state_reason = reason,
         state_changed_at = clock_timestamp(),
         generation = e.generation + 1,
         changed_xid = pg_current_xact_id()
   where e.endpoint_id = any (endpoints);
  delete from webhook._secret s
   where s.endpoint_id = any (endpoints);
  perform webhook._end_access(partner_id);
  perform webhook._log(
    'offboard', 'partner', partner_id, partner_id, after => jsonb_build_object('endpoints', cardinality(endpoints)), reason => reason);
  perform webhook._wake();
  return cardinality(endpoints);
end
$$;
comment on function webhook.offboard(text, text) is
  'Deletes every endpoint of a partner as delete_endpoint does, and returns how many. Events of the partner stay, and are sent to nobody.';
-- Policies: how deliveries are retried, limited and given up, for the endpoints that name one.
-- A value that a policy does not say is that of the policy "default", and what that one does not say is the
-- server's setting. A change counts for attempts that the leader plans after it has committed.

create function webhook._check_policy(
  policy webhook._policy -- a policy as somebody wants it
) returns webhook._policy -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
-- Values become text on their way: the session's styles must not show.
set intervalstyle = 'postgres'
as $$
declare
  refused record;
begin
  if policy.name !~ '^[A-Za-z0-9_.:-]{1,128}$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('policy name "%s" is not valid', left(policy.name, 128)),
      detail = 'A policy name has 1 to 128 characters of A-Z, a-z, 0-9, "_", ".", ":" and "-".';
  end if;
  perform webhook._check_schedule(policy.retry_schedule);
  -- NaN is above every number, so it is outside every range.
  select r.name, r.value, r.range
    into refused
    from (values
      ('client_error_attempts', policy.client_error_attempts::text, '1 to 50', policy.client_error_attempts between 1 and 50),
      ('retry_after_max', policy.retry_after_max::text, '0 seconds to 30 days', policy.retry_after_max between interval '0' and interval '30 days'),
      ('max_in_flight', policy.max_in_flight::text, '1 to 1000', policy.max_in_flight between 1 and 1000),
      ('rate', policy.rate::text, '0.001 to 100000 requests per second', policy.rate between 0.001 and 100000),
      ('burst', policy.burst::text, '1 to 100000', policy.burst between 1 and 100000),
      ('max_age', policy.max_age::text, '1 second to 365 days', policy.max_age between interval '1 second' and interval '365 days'),
      ('disable_after', policy.disable_after::text, '60 seconds to 365 days', policy.disable_after between interval '60 seconds' and interval '365 days'),
      ('disable_failures', policy.disable_failures::text, '1 to 1000000', policy.disable_failures between 1 and 1000000))
      as r (name, value, range, fits)
   where not r.fits
   limit 1;
  if found then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('%s is outside the valid range', refused.name),
      detail = format('It is %s; the range is %s.', refused.value, refused.range),
      hint = 'Leave it out for the value of the policy "default".';
  end if;
  return policy;
end
$$;
comment on function webhook._check_policy(webhook._policy) is 'Refuses a policy that cannot be followed.';

create function webhook._log_policy(
  verb text,              -- function that was called
  name text,              -- name of the policy
  former webhook._policy, -- as it was; null = it is new
  policy webhook._policy  -- as it is now; null = it is gone
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
-- Values become text on their way: the session's styles must not show.
set intervalstyle = 'postgres'
set extra_float_digits = 1
as $$
declare
  bookkeeping constant text[] := '{created_at,changed_at,changed_by,changed_xid}';
  before constant jsonb := coalesce(to_jsonb(former) - bookkeeping, '{}');
  after constant jsonb := coalesce(to_jsonb(policy) - bookkeeping, '{}');
begin
  perform webhook._log(verb, 'policy', name, before => webhook._changed(before, after), after => webhook._changed(after, before));
  perform webhook._wake();
end
$$;
comment on function webhook._log_policy(text, text, webhook._policy, webhook._policy) is 'Logs the change of a policy and wakes the leader.';

create function webhook.create_policy(
  name text,                                    -- name that endpoints refer to
  retry_schedule text default null,             -- waits between attempts, '5s,5m,1h'; '' = no retry
  client_error_attempts integer default null,   -- attempts for 3xx and 4xx answers that have no rule of their own
  retry_after_max interval default null,        -- longest wait that Retry-After may ask for
  max_in_flight integer default null,           -- concurrent requests to an endpoint
  rate real default null,                       -- requests per second to an endpoint
  burst integer default null,                   -- requests at once after a rest
  max_age interval default null,                -- older events are not sent any more
  disable_after interval default null,          -- an endpoint without a success for so long is disabled
  disable_failures integer default null,        -- but not before so many failures in a row
  description text default null                 -- free text of the operator
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  policy webhook._policy;
  created boolean := false;
begin
  perform webhook._check_writable('create a policy');
  perform webhook._check_argument('name', name is null);
  policy.name := name;
  policy.retry_schedule := retry_schedule;
  policy.client_error_attempts := client_error_attempts;
  policy.retry_after_max := retry_after_max;
  policy.max_in_flight := max_in_flight;
  policy.rate := rate;
  policy.burst := burst;
  policy.max_age := max_age;
  policy.disable_after := disable_after;
  policy.disable_failures := disable_failures;
  policy.description := nullif(description, '');
  policy := webhook._check_policy(policy);
  -- The trigger of a restore would make way for the name "default", which is always there.
  if name <> 'default' then
    insert into webhook._policy as p
      (name, retry_schedule, client_error_attempts, retry_after_max, max_in_flight, rate, burst, max_age, disable_after, disable_failures,
       description)
    values
      (policy.name, policy.retry_schedule, policy.client_error_attempts, policy.retry_after_max, policy.max_in_flight, policy.rate,
       policy.burst, policy.max_age, policy.disable_after, policy.disable_failures, policy.description)
    on conflict on constraint _policy_pkey do nothing;
    created := found;
  end if;
  if not created then
    raise exception using
      errcode = 'duplicate_object',
      message = format('policy "%s" already exists', name),
      hint = 'Use webhook.update_policy.';
  end if;
  perform webhook._log_policy('create_policy', name, null, policy);
end
$$;
comment on function webhook.create_policy(text, text, integer, interval, integer, real, integer, interval, interval, integer, text) is
  'Makes a policy. What is left out is the value of the policy "default". Endpoints name it with create_endpoint and update_endpoint.';

create function webhook._take_policy(
  name text -- name of the policy
) returns webhook._policy -- its row, locked
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  policy webhook._policy;
begin
  perform webhook._check_argument('name', name is null);
  select p.*
    into policy
    from webhook._policy p
   where p.name = _take_policy.name
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('policy "%s" does not exist', left(name, 128));
  end if;
  return policy;
end
$$;
comment on function webhook._take_policy(text) is 'Locks a policy that is to be changed.';

create function webhook.update_policy(
  name text,                                    -- name of the policy; "default" is one
  retry_schedule text default null,             -- as for create_policy, like all that follow; null = unchanged
  client_error_attempts integer default null,
  retry_after_max interval default null,
  max_in_flight integer default null,
  rate real default null,
  burst integer default null,
  max_age interval default null,
  disable_after interval default null,
  disable_failures integer default null,
  description text default null,
  reset text[] default null                     -- names of the values that the policy no longer says
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
-- Values become text on their way: the session's styles must not show.
set intervalstyle = 'postgres'
set extra_float_digits = 1
as $$
declare
  former webhook._policy;
  policy webhook._policy;
  given jsonb;
  refused text;
begin
  perform webhook._check_writable('change a policy');
  perform webhook._check_argument('reset', array_position(reset, null) is not null);
  former := webhook._take_policy(name);
  given := jsonb_strip_nulls(jsonb_build_object(
    'retry_schedule', retry_schedule,
    'client_error_attempts', client_error_attempts,
    'retry_after_max', retry_after_max,
    'max_in_flight', max_in_flight,
    'rate', rate,
    'burst', burst,
    'max_age', max_age,
    'disable_after', disable_after,
    'disable_failures', disable_failures,
    'description', description));
  select u.value
    into refused
    from unnest(reset) as u (value)
   where not u.value = any ('{retry_schedule,client_error_attempts,retry_after_max,max_in_flight,rate,burst,max_age,disable_after,disable_failures,description}')
   limit 1;
  if found then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('a policy has no value "%s"', left(refused, 128));
  end if;
  select u.value
    into refused
    from unnest(reset) as u (value)
   where given ? u.value
   limit 1;
  if found then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('cannot set and reset "%s" at once', refused);
  end if;
  policy := jsonb_populate_record(former, given || coalesce((select jsonb_object_agg(u.value, null) from unnest(reset) as u (value)), '{}'));
  policy.description := nullif(policy.description, '');
  policy := webhook._check_policy(policy);
  update webhook._policy p
     set retry_schedule = policy.retry_schedule,
         client_error_attempts = policy.client_error_attempts,
         retry_after_max = policy.retry_after_max,
         max_in_flight = policy.max_in_flight,
         rate = policy.rate,
         burst = policy.burst,
         max_age = policy.max_age,
         disable_after = policy.disable_after,
         disable_failures = policy.disable_failures,
         description = policy.description,
         changed_at = clock_timestamp(),
         changed_by = session_user,
         changed_xid = pg_current_xact_id()
   where p.name = policy.name;
  perform webhook._log_policy('update_policy', policy.name, former, policy);
end
$$;
comment on function webhook.update_policy(text, text, integer, interval, integer, real, integer, interval, interval, integer, text, text[]) is
  'Changes a policy; what is left out stays, and what "reset" names is that of the policy "default" again, or there the server''s setting.';

create function webhook.delete_policy(
  name text -- name of the policy
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  policy webhook._policy;
  endpoints bigint;
begin
  perform webhook._check_writable('delete a policy');
  if name = 'default' then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = 'cannot delete policy "default"',
      detail = 'Endpoints that name no policy follow it.';
  end if;
  -- Waits for those who are about to name it, and then sees what they made.
  perform from webhook._policy p
    where p.name = delete_policy.name
      for update;
  policy := webhook._take_policy(name);
  select count(*)
    into endpoints
    from webhook._endpoint e
   where e.policy = delete_policy.name
     and e.state <> 'deleted';
  if endpoints > 0 then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('policy "%s" is in use', name),
      detail = case endpoints when 1 then 'One endpoint names it.' else format('%s endpoints name it.', endpoints) end,
      hint = 'Give them another one with webhook.update_endpoint.';
  end if;
  delete from webhook._policy p
   where p.name = delete_policy.name;
  perform webhook._log_policy('delete_policy', name, policy, null);
end
$$;
comment on function webhook.delete_policy(text) is 'Removes a policy that no endpoint names.';
-- The catalogue of event types: what each is about, and its priority. Whether emit takes types that are not registered
-- is a setting, webhook.unknown_types. Schemas: 46_catalogue.sql.

create function webhook._check_priority(
  priority integer -- class: 0 is served before 1
) returns smallint -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('priority', priority is null);
  if priority not between 0 and 1 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'priority is outside the valid range',
      detail = format('It is %s; the classes are 0 and 1, and 0 is served first.', priority);
  end if;
  return priority;
end
$$;
comment on function webhook._check_priority(integer) is 'Refuses a priority class that does not exist.';

create function webhook._check_text(
  name text,          -- name of the argument
  value text,         -- its value
  max_length integer  -- characters
) returns text -- the same without surrounding blanks; null when there is nothing else
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  value := nullif(btrim(value, E' \t\r\n'), '');
  if length(value) > max_length then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = format('argument "%s" is too long', name),
      detail = format('It has %s characters; the limit is %s.', length(value), max_length);
  end if;
  return value;
end
$$;
comment on function webhook._check_text(text, text, integer) is 'Refuses overlong free texts.';

create function webhook._event_type_facts(
  event_type webhook._event_type -- an event type
) returns jsonb -- what of it can be changed
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_jsonb(event_type) - '{name,created_at,changed_xid,deprecated_at}'::text[]
$$;
comment on function webhook._event_type_facts(webhook._event_type) is 'What the audit log compares of an event type.';

create function webhook._lock_event_type(
  name text -- event type
) returns webhook._event_type -- as it is
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  found_type webhook._event_type;
begin
  select t.*
    into found_type
    from webhook._event_type t
   where t.name = _lock_event_type.name
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event type "%s" does not exist', left(name, 128)),
      hint = 'Use webhook.create_event_type.';
  end if;
  return found_type;
end
$$;
comment on function webhook._lock_event_type(text) is 'The event type, kept from changing until the transaction ends; one change of it and of its schemas at a time.';

create function webhook._save_event_type(
  verb text,                  -- function that was called
  former webhook._event_type, -- as it was; null = it is new
  latter webhook._event_type, -- as it is to be
  reason text default null    -- why
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  facts constant jsonb := webhook._event_type_facts(latter);
  before constant jsonb := case when former.name is not null then webhook._event_type_facts(former) end;
begin
  update webhook._event_type t
     set priority = latter.priority,
         changed_xid = pg_current_xact_id(),
         description = latter.description,
         emitted_when = latter.emitted_when,
         not_emitted_when = latter.not_emitted_when,
         receiver_action = latter.receiver_action,
         authoritative_state = latter.authoritative_state,
         owner = latter.owner,
         contact = latter.contact,
         sensitivity = latter.sensitivity,
         payload_retention = latter.payload_retention,
         sources = latter.sources,
         deprecated_at = latter.deprecated_at,
         deprecation_reason = latter.deprecation_reason,
         replaced_by = latter.replaced_by,
         sunset_at = latter.sunset_at
   where t.name = latter.name;
  perform webhook._log(
    verb, 'event_type', latter.name,
    before => webhook._changed(before, facts),
    after => webhook._changed(facts, coalesce(before, '{}')),
    reason => reason);
  perform webhook._wake();
end
$$;
comment on function webhook._save_event_type(text, webhook._event_type, webhook._event_type, text) is
  'Writes an event type, logs what is different and wakes the leader.';

create function webhook._with_event_type_arguments(
  event_type webhook._event_type, -- as it is
  priority integer,               -- as for create_event_type, like all that follow; null = keep
  description text,
  emitted_when text,
  not_emitted_when text,
  receiver_action text,
  authoritative_state text,
  owner text,
  contact text,
  sensitivity text,
  payload_retention interval,
  sources text[]
) returns webhook._event_type -- as it is to be; an empty text, interval or array removes what was there
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  given text;
begin
  if priority is not null then
    event_type.priority := webhook._check_priority(priority);
  end if;
  if description is not null then
    event_type.description := webhook._check_text('description', description, 4000);
  end if;
  if emitted_when is not null then
    event_type.emitted_when := webhook._check_text('emitted_when', emitted_when, 4000);
  end if;
  if not_emitted_when is not null then
    event_type.not_emitted_when := webhook._check_text('not_emitted_when', not_emitted_when, 4000);
  end if;
  if receiver_action is not null then
    event_type.receiver_action := webhook._check_text('receiver_action', receiver_action, 4000);
  end if;
  if authoritative_state is not null then
    event_type.authoritative_state := webhook._check_text('authoritative_state', authoritative_state, 4000);
  end if;
  if owner is not null then
    event_type.owner := webhook._check_text('owner', owner, 200);
  end if;
  if contact is not null then
    event_type.contact := webhook._check_text('contact', contact, 200);
  end if;
  if sensitivity is not null then
    given := nullif(sensitivity, '');
    if given not in ('public', 'internal', 'confidential', 'personal') then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('sensitivity "%s" does not exist', left(given, 64)),
        hint = 'It is public, internal, confidential or personal.';
    end if;
    event_type.sensitivity := given;
  end if;
  if payload_retention is not null then
    if payload_retention < interval '0' or payload_retention > interval '3660 days' then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = 'payload retention is outside the valid range',
        detail = 'Payloads are kept for up to 3660 days; 0 removes the limit of the event type.';
    end if;
    event_type.payload_retention := nullif(payload_retention, interval '0');
  end if;
  if sources is not null then
    foreach given in array sources loop
      if given is null or not exists (select from webhook._source s where s.name = given) then
        raise exception using
          errcode = 'undefined_object',
          message = format('source "%s" does not exist', left(given, 128)),
          hint = 'Use webhook.create_source.';
      end if;
    end loop;
    event_type.sources := nullif(sources, '{}');
  end if;
  return event_type;
end
$$;
comment on function webhook._with_event_type_arguments(webhook._event_type, integer, text, text, text, text, text, text, text, text, interval, text[]) is
  'An event type with what is given, checked.';

create function webhook.create_event_type(
  name text,                                -- event type, object.change
  priority integer default 1,               -- class: 0 is served before 1
  description text default null,            -- what the event tells
  emitted_when text default null,           -- when it is emitted
  not_emitted_when text default null,       -- when it is not, although one might think so
  receiver_action text default null,        -- what a receiver typically does
  authoritative_state text default null,    -- where the state is read that counts
  owner text default null,                  -- who answers for it
  contact text default null,                -- how to reach the owner
  sensitivity text default null,            -- public, internal, confidential or personal
  payload_retention interval default null,  -- how long payloads are kept; null = as long as events
  sources text[] default null               -- registered sources that may emit it; null = whoever may emit
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  made webhook._event_type;
begin
  perform webhook._check_writable('create an event type');
  perform webhook._check_argument('name', name is null);
  perform webhook._check_type(name);
  perform webhook._check_priority(priority);
  if name like 'webhook.%' then
    -- The words of emit.
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'event types that begin with "webhook." are reserved';
  end if;
  made.name := name;
  made := webhook._with_event_type_arguments(
    made, priority, description, emitted_when, not_emitted_when, receiver_action, authoritative_state, owner, contact,
    sensitivity, payload_retention, sources);
  insert into webhook._event_type (name)
  values (create_event_type.name)
  on conflict on constraint _event_type_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('event type "%s" already exists', name),
      hint = 'Use webhook.update_event_type.';
  end if;
  perform webhook._save_event_type('create_event_type', null, made);
end
$$;
comment on function webhook.create_event_type(text, integer, text, text, text, text, text, text, text, text, interval, text[]) is
  'Registers an event type: what it is about, and its priority class. Deliveries of class 0 are served before those of class 1.';

create function webhook.update_event_type(
  name text,                                -- event type
  priority integer default null,            -- as for create_event_type, like all that follow; null = keep
  description text default null,
  emitted_when text default null,
  not_emitted_when text default null,
  receiver_action text default null,
  authoritative_state text default null,
  owner text default null,
  contact text default null,
  sensitivity text default null,
  payload_retention interval default null,
  sources text[] default null
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._event_type;
begin
  perform webhook._check_writable('change an event type');
  perform webhook._check_argument('name', name is null);
  former := webhook._lock_event_type(name);
  perform webhook._save_event_type(
    'update_event_type', former,
    webhook._with_event_type_arguments(
      former, priority, description, emitted_when, not_emitted_when, receiver_action, authoritative_state, owner, contact,
      sensitivity, payload_retention, sources));
end
$$;
comment on function webhook.update_event_type(text, integer, text, text, text, text, text, text, text, text, interval, text[]) is
  'Changes what is given of an event type; an empty text, array or interval removes it. What is queued already keeps the class it was queued with.';

create function webhook.deprecate_event_type(
  name text,                            -- event type
  reason text,                          -- why; emit tells it
  replaced_by text default null,        -- event type to use in its place
  sunset_at timestamptz default null    -- from when on emit refuses it; null = it goes on with a warning
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._event_type;
  latter webhook._event_type;
begin
  perform webhook._check_writable('deprecate an event type');
  perform webhook._check_argument('name', name is null);
  reason := webhook._check_reason(reason);
  former := webhook._lock_event_type(name);
  if replaced_by is not null then
    if replaced_by = name or not exists (select from webhook._event_type t where t.name = deprecate_event_type.replaced_by) then
      raise exception using
        errcode = 'undefined_object',
        message = format('event type "%s" cannot be used in its place', left(replaced_by, 128)),
        detail = 'It must be registered, and another one.';
    end if;
  end if;
  if not isfinite(sunset_at) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'sunset_at is out of range',
      hint = 'Leave it out when the event type is to go on.';
  end if;
  latter := former;
  latter.deprecated_at := coalesce(former.deprecated_at, clock_timestamp());
  latter.deprecation_reason := reason;
  latter.replaced_by := replaced_by;
  latter.sunset_at := sunset_at;
  perform webhook._save_event_type('deprecate_event_type', former, latter, reason);
end
$$;
comment on function webhook.deprecate_event_type(text, text, text, timestamptz) is
  'Tells producers, and readers of the catalogue, that an event type is going: emit warns, and refuses it from sunset_at on.';
-- Signing keys: changing them with an overlap, ending the overlap, revoking them, and what holds for every key:
-- encrypting anew under another master key, and another seal key.
-- Every change raises changed_xid of the endpoint, by which the leader finds it; what is handed to a thread after that
-- is signed with the new set. Material of a key that has ended is destroyed; its id stays as evidence.

create function webhook._take_keys(
  endpoint_id bigint -- the endpoint
) returns webhook._endpoint -- its row, locked
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
begin
  endpoint := webhook._take_endpoint(endpoint_id);
  if endpoint.origin <> webhook._origin() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is inert', endpoint_id),
      detail = 'It was made in another database, of which this one is a copy.';
  end if;
  return endpoint;
end
$$;
comment on function webhook._take_keys(bigint) is 'Locks an endpoint whose keys are to be changed. The lock on the endpoint guards its keys, too.';

create function webhook._signing(
  endpoint_id bigint -- the endpoint
) returns bigint[] -- ids of the keys that sign now, in order; null = none
language sql volatile parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select array_agg(s.key_id order by s.valid_until desc nulls first, s.key_id desc)
    from webhook._secret s
   where s.endpoint_id = _signing.endpoint_id
     and s.secret is not null
     and (s.valid_until is null or s.valid_until > clock_timestamp())
$$;
comment on function webhook._signing(bigint) is 'The keys of an endpoint that sign now.';

create function webhook._save_keys(
  endpoint webhook._endpoint, -- row of _take_keys
  verb text,                  -- function that was called
  before bigint[],            -- ids of the keys that signed
  more jsonb default '{}',    -- what else is to be logged
  reason text default null    -- why, in the user's words
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  -- What has ended will never sign again. Material that is gone can leak neither from here nor from a dump.
  update webhook._secret s
     set secret = null
   where s.endpoint_id = endpoint.endpoint_id
     and s.valid_until <= clock_timestamp()
     and s.secret is not null;
  -- Not by _save_endpoint: nothing of the endpoint itself changes, and the log is to name keys.
  update webhook._endpoint e
     set changed_xid = pg_current_xact_id()
   where e.endpoint_id = endpoint.endpoint_id;
  perform webhook._log(
    verb, 'endpoint', endpoint.endpoint_id::text, endpoint.partner_id,
    jsonb_strip_nulls(jsonb_build_object('key_ids', before)),
    jsonb_strip_nulls(jsonb_build_object('key_ids', webhook._signing(endpoint.endpoint_id)) || more),
    reason);
  perform webhook._wake();
end
$$;
comment on function webhook._save_keys(webhook._endpoint, text, bigint[], jsonb, text) is
  'Destroys keys that have ended, lets the leader see that an endpoint has other keys, and logs which.';

create function webhook.rotate_secret(
  endpoint_id bigint,            -- the endpoint
  overlap interval default null, -- how long the former key signs as well, 0 to 7 days; null = webhook.rotation_overlap
  signature text default null,   -- signature profile from now on, of either kind of key; null = unchanged
  out key_id bigint,             -- id of the new key
  out secret text                -- the new signing secret, whsec_..., shown this once; of a key pair its public half, whpk_...
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before bigint[];
  ends timestamptz;
begin
  perform webhook._check_writable('rotate a secret');
  perform webhook._check_signature(signature);
  overlap := coalesce(overlap, current_setting('webhook.rotation_overlap')::interval);
  if overlap not between interval '0' and interval '7 days' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'overlap is outside the valid range',
      detail = format('It is %s; the range is 0 to 7 days.', overlap);
  end if;
  endpoint := webhook._take_keys(endpoint_id);
  before := webhook._signing(endpoint_id);
  -- Each signature costs the receiver a comparison and the header a line: five in all.
  if cardinality(before) >= 5 and overlap > interval '0' then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = format('endpoint %s has too many signing keys', endpoint_id),
      detail = format('%s keys sign; the limit is 5 with the new one.', cardinality(before)),
      hint = 'End the overlaps with webhook.confirm_rotation, or rotate with overlap => ''0''.';
  end if;
  if signature is not null then
    -- Before the key is made, whose kind it tells.
    update webhook._endpoint e
       set signature = rotate_secret.signature
     where e.endpoint_id = rotate_secret.endpoint_id;
  end if;
  ends := clock_timestamp() + overlap;
  -- An earlier overlap is not made longer by this one.
  update webhook._secret s
     set valid_until = least(s.valid_until, ends)
   where s.endpoint_id = rotate_secret.endpoint_id
     and (s.valid_until is null or s.valid_until > ends);
  select a.key_id, a.secret
    into key_id, secret
    from webhook._add_secret(endpoint_id) as a;
  perform webhook._save_keys(
    endpoint, 'rotate_secret', before,
    case when overlap > interval '0' then jsonb_build_object('valid_until', webhook._rfc3339(ends)) else '{}' end
      || jsonb_strip_nulls(jsonb_build_object('signature', signature)));
end
$$;
comment on function webhook.rotate_secret(bigint, interval, text) is
  'Gives an endpoint a new signing key and returns it, which is never shown again. The former key signs as well until the overlap has passed or confirm_rotation ends it. Where a profile has room for one signature, the former key alone makes it until then.';

create function webhook.confirm_rotation(
  endpoint_id bigint -- the endpoint
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before bigint[];
begin
  perform webhook._check_writable('confirm a rotation');
  endpoint := webhook._take_keys(endpoint_id);
  before := webhook._signing(endpoint_id);
  update webhook._secret s
     set valid_until = clock_timestamp()
   where s.endpoint_id = confirm_rotation.endpoint_id
     and s.valid_until > clock_timestamp();
  if not found then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s has no rotation to confirm', endpoint_id),
      detail = 'No former key signs any more.';
  end if;
  perform webhook._save_keys(endpoint, 'confirm_rotation', before);
end
$$;
comment on function webhook.confirm_rotation(bigint) is 'Ends the overlap of a rotation at once: the partner has taken over the new key.';

create function webhook.revoke_secret(
  endpoint_id bigint,          -- the endpoint
  reason text,                 -- why; shown in the audit log
  key_id bigint default null,  -- the key; null = every key of the endpoint
  pause boolean default false, -- true: the endpoint is paused as well
  out new_key_id bigint,       -- id of the key that was made because none was left; null = one was
  out secret text              -- that key, whsec_..., shown this once; of a key pair its public half, whpk_...
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before bigint[];
  revoked bigint[];
begin
  perform webhook._check_writable('revoke a secret');
  perform webhook._check_argument('pause', pause is null);
  endpoint := webhook._take_keys(endpoint_id);
  reason := webhook._check_reason(reason);
  before := webhook._signing(endpoint_id);
  if key_id is not null and not exists (
    select from webhook._secret s
     where s.endpoint_id = revoke_secret.endpoint_id
       and s.key_id = revoke_secret.key_id)
  then
    raise exception using
      errcode = 'undefined_object',
      message = format('endpoint %s has no key %s', endpoint_id, key_id),
      hint = 'See webhook.signing_keys.';
  end if;
  if key_id is not null and key_id <> all (coalesce(before, '{}')) then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('key %s does not sign any more', key_id),
      hint = 'See webhook.signing_keys for those that do.';
  end if;
  revoked := case when key_id is null then before else array[key_id] end;
  update webhook._secret s
     set valid_until = clock_timestamp(),
         revoked_at = clock_timestamp(),
         secret = null
   where s.endpoint_id = revoke_secret.endpoint_id
     and s.key_id = any (revoked);
  -- A former key in its overlap is no key to go on with.
  if not exists (
    select from webhook._secret s
     where s.endpoint_id = revoke_secret.endpoint_id
       and s.secret is not null
       and s.valid_until is null)
  then
    select a.key_id, a.secret
      into new_key_id, secret
      from webhook._add_secret(endpoint_id) as a;
  end if;
  perform webhook._save_keys(endpoint, 'revoke_secret', before, jsonb_build_object('revoked', coalesce(revoked, '{}')), reason);
  -- What is not active sends nothing as it is.
  if pause and endpoint.state = 'active' then
    perform webhook.pause('endpoint', endpoint_id::text, reason);
  end if;
end
$$;
comment on function webhook.revoke_secret(bigint, text, bigint, boolean) is
  'Ends a signing key at once, without an overlap, and destroys it. When no current key is left, a new one is made and returned. With pause the deliveries wait until resume.';

-- SECURITY INVOKER: these two concern every partner and the whole database; they need rights on the tables, which the
-- owner of the extension and superusers alone have.

create function webhook.reencrypt_secrets(
  out secrets integer,    -- signing keys, and keys of inbox sources, that are stored anew
  out seal_keys integer,  -- seal keys that are stored anew
  out unreadable integer  -- keys that no master key of the file opens; they stay as they are
) returns record
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  master_key_id text;
  lost integer;
begin
  perform webhook._check_writable('encrypt keys');
  master_key_id := webhook._master_key_id();
  with renewed as materialized (
    select s.key_id, webhook._reencrypted_secret(s.key_id, s.endpoint_id, s.kind, s.secret) as secret
      from (select s.key_id, s.endpoint_id, s.kind, s.secret
              from webhook._secret s
             where s.secret is not null
               and s.stored_under is distinct from master_key_id
             order by s.key_id
               for no key update) as s),
  changed as (
    update webhook._secret s
       set secret = r.secret
      from renewed r
     where s.key_id = r.key_id
       and r.secret is not null
    returning 1)
  select (select count(*) from changed), (select count(*) from renewed r where r.secret is null)
    into secrets, unreadable;
  with renewed as materialized (
    select k.key_id, webhook._reencrypted_seal_key(k.key_id, k.origin, k.key) as key
      from (select k.key_id, k.origin, k.key
              from webhook._seal_key k
             where k.stored_under is distinct from master_key_id
             order by k.key_id
               for no key update) as k),
  changed as (
    update webhook._seal_key k
       set key = r.key
      from renewed r
     where k.key_id = r.key_id
       and r.key is not null
    returning 1)
  select (select count(*) from changed), (select count(*) from renewed r where r.key is null)
    into seal_keys, lost;
  unreadable := unreadable + lost;
  with renewed as materialized (
    select i.key_id, webhook._reencrypted_inbox_key(i.key_id, i.source_id, i.key) as key
      from (select i.key_id, i.source_id, i.key
              from webhook._inbox_key i
             where i.kept
               and i.stored_under is distinct from master_key_id
             order by i.key_id
               for no key update) as i),
  changed as (
    update webhook._inbox_key i
       set key = r.key
      from renewed r
     where i.key_id = r.key_id
       and r.key is not null
    returning 1)
  select secrets + (select count(*) from changed), (select count(*) from renewed r where r.key is null)
    into secrets, lost;
  unreadable := unreadable + lost;
  if unreadable > 0 then
    raise warning using
      message = format('%s keys could not be decrypted', unreadable),
      detail = 'They are stored under a master key that is not in the file, and stay as they are.',
      hint = 'Add the old master key to the file as a further line, and call webhook.reencrypt_secrets() again.';
  end if;
  perform webhook._log(
    'reencrypt_secrets', 'all', null,
    after => jsonb_build_object('master_key_id', master_key_id, 'secrets', secrets, 'seal_keys', seal_keys, 'unreadable', unreadable));
end
$$;
comment on function webhook.reencrypt_secrets() is
  'Stores every key that is in clear or under a former master key under the current one, the first line of webhook.master_key_file. For the owner of the extension.';

create function webhook.rotate_seal_key()
returns bigint -- id of the new seal key
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  key_id bigint;
begin
  perform webhook._check_writable('rotate the seal key');
  key_id := webhook._add_seal_key(webhook._origin());
  perform webhook._forget_seal_key();
  perform webhook._log('rotate_seal_key', 'all', null, after => jsonb_build_object('seal_key_id', key_id));
  return key_id;
end
$$;
comment on function webhook.rotate_seal_key() is
  'Makes another key that seals events from the commit on, in every session. The former ones stay: what they sealed is still checked with them. For the owner of the extension.';
-- Proof of control and expiry: another challenge, doing without one, a longer life.
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.

create function webhook.verify_endpoint(
  endpoint_id bigint,        -- the endpoint
  method text default null,  -- challenge, graph, slack; none = an operator does without a proof; null = the endpoint's own
  reason text default null   -- why; needed with none
) returns bigint -- request_id; null with none
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before webhook._endpoint;
  request_id bigint;
begin
  perform webhook._check_writable('verify an endpoint');
  perform webhook._check_method(method);
  if reason is not null or method = 'none' then
    reason := webhook._check_reason(reason);
  end if;
  endpoint := webhook._take_endpoint(endpoint_id);
  if endpoint.origin <> webhook._origin() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is inert', endpoint_id),
      detail = 'It was made in another database, of which this one is a copy.';
  end if;
  if endpoint.state = 'expired' and endpoint.expires_at <= clock_timestamp() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is expired', endpoint_id),
      hint = 'Use webhook.renew_endpoint.';
  end if;
  before := endpoint;
  if method = 'none' then
    endpoint := webhook._spare_proof(endpoint);
    if endpoint.state in ('unverified', 'expired') then
      endpoint.state := 'active';
      endpoint.state_reason := reason;
      endpoint.state_changed_at := clock_timestamp();
    end if;
    perform webhook._save_endpoint(endpoint, 'verify_endpoint', reason, void => endpoint.state <> before.state);
    if before.state = 'expired' then
      perform webhook._say_missed(before, reason);
    end if;
    return null;
  end if;
  endpoint.verify := coalesce(method, endpoint.verify);
  if endpoint.verify = 'none' then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s has no verification method', endpoint_id),
      detail = 'It was made, or changed, without a proof of control.',
      hint = 'Name the method: challenge, graph or slack.';
  end if;
  if endpoint.state = 'expired' then
    endpoint.state := 'unverified';
    endpoint.state_reason := reason;
    endpoint.state_changed_at := clock_timestamp();
    -- Whatever was proven of it before does not count: it closed for want of a proof.
    endpoint.verified_at := null;
    endpoint.verified_by := null;
  end if;
  if endpoint.verify <> before.verify or endpoint.state <> before.state then
    endpoint := webhook._demand_proof(endpoint);
    request_id := webhook._ask(
      'verify_endpoint', 'endpoint', endpoint_id::text, endpoint.partner_id,
      endpoint_id => endpoint_id, scope => 'endpoint', target => endpoint_id::text, reason => reason);
    perform webhook._save_endpoint(endpoint, 'verify_endpoint', reason, request_id, void => endpoint.state <> before.state);
    if before.state = 'expired' then
      perform webhook._say_missed(before, reason);
    end if;
    return request_id;
  end if;
  return webhook._ask(
    'verify_endpoint', 'endpoint', endpoint_id::text, endpoint.partner_id, endpoint_id => endpoint_id, reason => reason,
    after => jsonb_build_object('method', endpoint.verify));
end
$$;
comment on function webhook.verify_endpoint(bigint, text, text) is
  'Has the leader send a challenge now, three a minute at most; the view verifications shows what comes of it. Another method than the endpoint''s own becomes its own, and the proof is due. With none nothing is sent: an operator vouches for the URL, with a reason.';

create function webhook.renew_endpoint(
  endpoint_id bigint, -- the endpoint
  until timestamptz   -- when it expires from now on; infinity = never
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before webhook._endpoint;
begin
  perform webhook._check_writable('renew an endpoint');
  perform webhook._check_argument('until', until is null);
  until := webhook._check_expiry('until', until);
  endpoint := webhook._take_endpoint(endpoint_id);
  before := endpoint;
  endpoint.expires_at := until;
  endpoint.renewed_at := clock_timestamp();
  if endpoint.state = 'expired' then
    endpoint.state := 'active';
    endpoint.state_reason := null;
    endpoint.state_changed_at := clock_timestamp();
    if endpoint.verify <> 'none' and (endpoint.proof_asked_at is not null or endpoint.verified_at is null) then
      -- It closed before its URL was proven, or for want of that.
      if endpoint.pending_url is null then
        endpoint.state := 'unverified';
      end if;
      endpoint := webhook._demand_proof(endpoint);
    end if;
  end if;
  -- The leader may just be finding that its time is up: the new generation makes that void. Renewed in good time,
  -- what is known of the endpoint's health stays.
  perform webhook._save_endpoint(
    endpoint, 'renew_endpoint',
    void => before.state = 'expired' or coalesce(before.expires_at < clock_timestamp() + interval '1 hour', false));
  if before.state = 'expired' then
    perform webhook._say_missed(before, null);
  end if;
end
$$;
comment on function webhook.renew_endpoint(bigint, timestamptz) is
  'Sets when an endpoint expires. An expired one is in service again (unverified, if its URL was not proven); what it missed is not sent by itself: use replay_range.';

create function webhook._say_missed(
  endpoint webhook._endpoint, -- the endpoint as it was, out of service
  reason text                 -- why it is in service again
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  missed constant jsonb := jsonb_build_object(
    'from', webhook._rfc3339(endpoint.state_changed_at), 'to', webhook._rfc3339(clock_timestamp()));
begin
  perform webhook._lifecycle(endpoint, 'missed', reason, missed);
  perform webhook._alert_about(
    endpoint, 'endpoint.missed', 'warning',
    format('The endpoint is in service again; the events from %s to %s were not sent to it.', missed ->> 'from', missed ->> 'to'));
end
$$;
comment on function webhook._say_missed(webhook._endpoint, text) is 'Says which time an endpoint missed that is in service again.';
-- Schemas and sources: what payloads must look like, and who may say that he is whom. Emitting sessions keep compiled
-- schemas; a change tells them, and counts for its own transaction at once.

create function webhook._forget_catalogue()
returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'forget_catalogue_wrapper';
comment on function webhook._forget_catalogue() is
  'Has every session read the catalogue again, once this transaction has committed; its own at the next statement.';

create function webhook._catalogue_changed()
returns trigger
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._forget_catalogue();
  return null;
end
$$;
comment on function webhook._catalogue_changed() is 'Tells the sessions that the catalogue has changed.';

-- ENABLE ALWAYS: a restore under session_replication_role = replica changes the catalogue as well.
do $$
declare
  target text;
begin
  foreach target in array '{_event_type,_event_schema,_source}'::text[] loop
    execute format(
      'create trigger _catalogue_changed after insert or update or delete or truncate on webhook.%I
         for each statement execute function webhook._catalogue_changed()', target);
    execute format('comment on trigger _catalogue_changed on webhook.%I is ''The next emit goes by the new catalogue.''', target);
    execute format('alter table webhook.%I enable always trigger _catalogue_changed', target);
  end loop;
end
$$;

create function webhook._check_schema(
  schema text,  -- JSON Schema
  former text,  -- schema of the same version until now; null = there is none
  example text  -- a payload
) returns void
language c stable parallel safe
as 'MODULE_PATHNAME', 'check_schema_wrapper';
comment on function webhook._check_schema(text, text, text) is
  'Refuses a schema that is none, whose fields do not say what they must, that breaks receivers of the former one, or that does not accept the example.';

create function webhook._schema_fields(
  schema text,          -- JSON Schema
  out path text,        -- JSON pointer of the field, [] for every element of an array
  out kind text,        -- types
  out required boolean, -- whether it is always there
  out purpose text,     -- what it is there for
  out sensitivity text, -- its x-sensitivity
  out money text        -- its x-money, JSON
) returns setof record
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'schema_fields_wrapper';
comment on function webhook._schema_fields(text) is 'The fields that a schema describes; behind event_fields.';

create function webhook._check_mode(
  mode text -- off, warn or enforce; empty or null = webhook.validation
) returns text -- the same, null for empty
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if mode not in ('', 'off', 'warn', 'enforce') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('mode "%s" is not valid', left(mode, 64)),
      hint = 'A mode is off, warn or enforce; leave it out for what webhook.validation says.';
  end if;
  return nullif(mode, '');
end
$$;
comment on function webhook._check_mode(text) is 'Refuses a mode of validation that does not exist.';

create function webhook._check_uri(
  uri text -- where something is documented
) returns text -- the same, null for empty
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  uri := webhook._check_text('uri', uri, 1000);
  if uri !~ '^[A-Za-z][A-Za-z0-9+.-]*:[^\s<>"{}|\\^`]+$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'uri is not valid',
      detail = 'It is absolute: it begins with a scheme, like "https:" or "urn:".';
  end if;
  return uri;
end
$$;
comment on function webhook._check_uri(text) is 'Refuses a text that is no absolute URI.';

create function webhook.add_schema(
  type text,                      -- event type, registered
  version text,                   -- version of the payload's schema
  schema jsonb,                   -- JSON Schema, draft 7 or 2020-12
  example jsonb,                  -- a payload that it accepts
  mode text default null,         -- off, warn or enforce; null = webhook.validation
  change_note text default null,  -- what is different from the version before
  uri text default null,          -- where the version is documented
  current boolean default null    -- whether it is the version of events that name none; null = if it is the first one
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._event_schema;
  becomes_current boolean;
begin
  perform webhook._check_writable('add a schema');
  perform webhook._check_argument('type', type is null);
  perform webhook._check_argument('version', version is null);
  perform webhook._check_argument('schema', schema is null);
  perform webhook._check_argument('example', example is null);
  if version !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'schema version is not valid',
      detail = 'It has 1 to 64 characters of A-Z, a-z, 0-9, ".", "_" and "-", and begins with a letter or digit.';
  end if;
  mode := webhook._check_mode(mode);
  change_note := webhook._check_text('change_note', change_note, 4000);
  uri := webhook._check_uri(uri);
  if octet_length(schema::text) > 262144 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'schema is too large',
      detail = format('It has %s bytes; the limit is 262144.', octet_length(schema::text));
  end if;
  perform webhook._lock_event_type(type);
  select s.*
    into former
    from webhook._event_schema s
   where s.event_type = type
     and s.version = add_schema.version;
  perform webhook._check_schema(schema::text, former.schema::text, example::text);
  if former.deprecated_at is not null and current then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('version "%s" of event type "%s" is deprecated', version, type),
      detail = 'It cannot be the current one.';
  end if;
  becomes_current := coalesce(
    current,
    former.current,
    not exists (select from webhook._event_schema s where s.event_type = type));
  if becomes_current then
    update webhook._event_schema s
       set current = false
     where s.event_type = type
       and s.version <> add_schema.version
       and s.current;
  end if;
  insert into webhook._event_schema as s (event_type, version, current, mode, schema, example, change_note, uri)
  values (type, version, becomes_current, mode, schema, example, change_note, uri)
  on conflict on constraint _event_schema_pkey do update
     set current = excluded.current,
         mode = coalesce(excluded.mode, s.mode),
         schema = excluded.schema,
         example = excluded.example,
         change_note = coalesce(excluded.change_note, s.change_note),
         uri = coalesce(excluded.uri, s.uri),
         changed_at = clock_timestamp();
  -- Which schema it was is told by its hash: an example may hold what is nobody's business in a log.
  perform webhook._log(
    'add_schema', 'event_schema', type || ' ' || version,
    before => case when former.version is not null then jsonb_build_object(
      'schema_sha256', encode(sha256(convert_to(former.schema::text, 'UTF8')), 'hex'), 'mode', former.mode, 'current', former.current) end,
    after => jsonb_build_object(
      'schema_sha256', encode(sha256(convert_to(schema::text, 'UTF8')), 'hex'), 'mode', mode, 'current', becomes_current,
      'change_note', change_note, 'uri', uri));
end
$$;
comment on function webhook.add_schema(text, text, jsonb, jsonb, text, text, text, boolean) is
  'Adds the schema of a version of an event type, with an example that it accepts; or changes it, where that cannot break a receiver.';

create function webhook.update_schema(
  type text,                        -- event type
  version text,                     -- version of the payload's schema
  mode text default null,           -- off, warn or enforce; empty = webhook.validation; null = keep
  current boolean default null,     -- true = the version of events that name none; false = it is no longer; null = keep
  deprecated boolean default null,  -- whether receivers should move on; null = keep
  change_note text default null,    -- null = keep; empty = remove
  uri text default null             -- null = keep; empty = remove
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._event_schema;
  latter webhook._event_schema;
  facts constant text[] := '{schema,example,added_at,added_by,changed_at,event_type,version}';
begin
  perform webhook._check_writable('change a schema');
  perform webhook._check_argument('type', type is null);
  perform webhook._check_argument('version', version is null);
  perform webhook._lock_event_type(type);
  select s.*
    into former
    from webhook._event_schema s
   where s.event_type = type
     and s.version = update_schema.version;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event type "%s" has no schema version "%s"', type, left(version, 64)),
      hint = 'Use webhook.add_schema.';
  end if;
  latter := former;
  if mode is not null then
    latter.mode := webhook._check_mode(mode);
  end if;
  if change_note is not null then
    latter.change_note := webhook._check_text('change_note', change_note, 4000);
  end if;
  if uri is not null then
    latter.uri := webhook._check_uri(uri);
  end if;
  latter.current := coalesce(current, former.current);
  if deprecated is not null then
    latter.deprecated_at := case when deprecated then coalesce(former.deprecated_at, clock_timestamp()) end;
  end if;
  if latter.current and latter.deprecated_at is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('version "%s" of event type "%s" cannot be current and deprecated', version, type),
      hint = 'Make another version the current one first.';
  end if;
  if latter.current and not former.current then
    update webhook._event_schema s
       set current = false
     where s.event_type = type
       and s.current;
  end if;
  update webhook._event_schema s
     set current = latter.current,
         mode = latter.mode,
         change_note = latter.change_note,
         uri = latter.uri,
         deprecated_at = latter.deprecated_at,
         changed_at = clock_timestamp()
   where s.event_type = type
     and s.version = update_schema.version;
  perform webhook._log(
    'update_schema', 'event_schema', type || ' ' || version,
    before => webhook._changed(to_jsonb(former) - facts, to_jsonb(latter) - facts),
    after => webhook._changed(to_jsonb(latter) - facts, to_jsonb(former) - facts));
end
$$;
comment on function webhook.update_schema(text, text, text, boolean, boolean, text, text) is
  'Changes how a version is validated, whether it is the current one, whether it is deprecated, and what is said about it.';

create function webhook._check_source(
  role name,           -- role whose members alone may name the source
  event_types text[],  -- event types and wildcards
  partners text[]      -- partners
) returns void
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if role is not null and not exists (select from pg_roles as r where r.rolname = role) then
    raise exception using
      errcode = 'undefined_object',
      message = format('role "%s" does not exist', role);
  end if;
  if event_types is not null then
    perform webhook._check_event_types(event_types);
  end if;
  if partners is not null then
    perform webhook._check_partner(p)
       from unnest(partners) as p;
  end if;
end
$$;
comment on function webhook._check_source(name, text[], text[]) is 'Refuses what a source cannot be limited to.';

create function webhook.create_source(
  name text,                           -- name, as events carry it in source
  owner text default null,             -- who answers for it
  contact text default null,           -- how to reach the owner
  description text default null,       -- what it is, and how it is switched off on its own side
  role name default null,              -- role whose members alone may name it; null = whoever may emit
  event_types text[] default '{*}',    -- event types and wildcards that it may emit
  partners text[] default null         -- partners that it may emit for; null = all
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_writable('create a source');
  perform webhook._check_argument('name', name is null);
  perform webhook._check_argument('event_types', event_types is null);
  if name = '' or octet_length(name) > 512 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'argument "name" is too long or empty',
      detail = format('It has %s bytes; 1 to 512 are accepted.', octet_length(name));
  end if;
  perform webhook._check_source(role, event_types, partners);
  insert into webhook._source (name, owner, contact, description, role_name, event_types, partners)
  values (create_source.name, webhook._check_text('owner', create_source.owner, 200), webhook._check_text('contact', create_source.contact, 200),
          webhook._check_text('description', create_source.description, 4000), create_source.role, create_source.event_types, create_source.partners)
  on conflict on constraint _source_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('source "%s" already exists', name),
      hint = 'Use webhook.update_source.';
  end if;
  perform webhook._log('create_source', 'source', name, after => (
    select jsonb_strip_nulls(to_jsonb(s) - '{name,created_at,changed_at}'::text[])
      from webhook._source s
     where s.name = create_source.name));
end
$$;
comment on function webhook.create_source(text, text, text, text, name, text[], text[]) is
  'Registers a producer of events. From then on events may name it only within its limits.';

create function webhook.update_source(
  name text,                         -- the source
  enabled boolean default null,      -- false = events that name it are refused; null = keep, like all that follow
  owner text default null,           -- '' removes it, like contact and description
  contact text default null,
  description text default null,
  role name default null,            -- '' removes it
  event_types text[] default null,
  partners text[] default null,      -- '{}' removes the limit
  reason text default null           -- why
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._source;
  latter webhook._source;
  facts constant text[] := '{name,created_at,changed_at}';
begin
  perform webhook._check_writable('change a source');
  perform webhook._check_argument('name', name is null);
  if reason is not null then
    reason := webhook._check_reason(reason);
  end if;
  perform webhook._check_source(nullif(role, ''), event_types, nullif(partners, '{}'));
  select s.*
    into former
    from webhook._source s
   where s.name = update_source.name
     for update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('source "%s" does not exist', left(name, 128)),
      hint = 'Use webhook.create_source.';
  end if;
  latter := former;
  latter.enabled := coalesce(enabled, former.enabled);
  latter.owner := case when owner is null then former.owner else webhook._check_text('owner', owner, 200) end;
  latter.contact := case when contact is null then former.contact else webhook._check_text('contact', contact, 200) end;
  latter.description := case when description is null then former.description else webhook._check_text('description', description, 4000) end;
  latter.role_name := case when role is null then former.role_name else nullif(role, '') end;
  latter.event_types := coalesce(event_types, former.event_types);
  latter.partners := case when partners is null then former.partners else nullif(partners, '{}') end;
  update webhook._source s
     set enabled = latter.enabled,
         owner = latter.owner,
         contact = latter.contact,
         description = latter.description,
         role_name = latter.role_name,
         event_types = latter.event_types,
         partners = latter.partners,
         changed_at = clock_timestamp()
   where s.name = latter.name;
  perform webhook._log(
    'update_source', 'source', name,
    before => webhook._changed(to_jsonb(former) - facts, to_jsonb(latter) - facts),
    after => webhook._changed(to_jsonb(latter) - facts, to_jsonb(former) - facts),
    reason => reason);
end
$$;
comment on function webhook.update_source(text, boolean, text, text, text, name, text[], text[], text) is
  'Changes a source, or switches it off and on: events that name a source that is off are refused.';
-- Thresholds: an event when a value crosses, once, and not for each record beyond.

create function webhook.crossed(
  old numeric,                   -- value before; null = there was none, and nothing was crossed
  new numeric,                   -- value now
  threshold numeric,             -- value to cross
  direction text default 'up'    -- up = reached or exceeded, coming from below; down = the reverse
) returns boolean
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('new', new is null);
  perform webhook._check_argument('threshold', threshold is null);
  perform webhook._check_argument('direction', direction is null);
  if 'NaN' in (old, new, threshold) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'NaN crosses nothing',
      hint = 'Give numbers.';
  end if;
  case direction
    when 'up' then
      return coalesce(old < threshold and new >= threshold, false);
    when 'down' then
      return coalesce(old > threshold and new <= threshold, false);
    else
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('direction "%s" does not exist', left(direction, 64)),
        hint = 'It is up or down.';
  end case;
end
$$;
comment on function webhook.crossed(numeric, numeric, numeric, text) is
  'Whether a change of a value crosses a threshold in a direction. A value that stays beyond, or comes to the threshold from beyond, does not.';

create function webhook.create_threshold(
  metric text,                               -- what is observed
  name text,                                 -- name of the threshold within the metric
  threshold numeric,                         -- the value, in the unit of the metric
  event_type text,                           -- type of the event that a crossing emits
  direction text default 'up',               -- up or down
  rearm text default 'reversal',             -- reversal, margin or never
  rearm_at numeric default null,             -- of margin: value that arms it again
  adjustments_cross boolean default true,    -- whether an adjustment can cross
  first_crosses boolean default false        -- whether the first value of a subject crosses when it is beyond already
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  given record;
begin
  perform webhook._check_writable('create a threshold');
  perform webhook._check_argument('threshold', threshold is null);
  perform webhook._check_argument('adjustments_cross', adjustments_cross is null);
  perform webhook._check_argument('first_crosses', first_crosses is null);
  for given in
    select * from (values ('metric', metric), ('name', name), ('event_type', event_type), ('direction', direction), ('rearm', rearm)) as v (name, value)
  loop
    perform webhook._check_argument(given.name, given.value is null);
  end loop;
  for given in
    select * from (values ('metric', metric), ('name', name)) as v (name, value)
  loop
    if not webhook._valid_type(given.value) then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('%s "%s" is not valid', given.name, left(given.value, 128)),
        detail = 'It has 1 to 128 characters of A-Z, a-z, 0-9, "_" and "-", in parts separated by dots.';
    end if;
  end loop;
  perform webhook._check_type(event_type);
  if event_type like 'webhook.%' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'event types that begin with "webhook." are reserved';
  end if;
  -- Refuses NaN and an unknown direction.
  perform webhook.crossed(0, 0, threshold, direction);
  if rearm not in ('reversal', 'margin', 'never') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('rule "%s" for arming again does not exist', left(rearm, 64)),
      hint = 'It is reversal, margin or never.';
  end if;
  if (rearm = 'margin') <> (rearm_at is not null) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'rearm_at goes with the rule "margin", and the rule with it';
  end if;
  if rearm_at is not null
     and (rearm_at = 'NaN' or case direction when 'up' then rearm_at >= threshold else rearm_at <= threshold end)
  then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'rearm_at is on the wrong side of the threshold',
      detail = 'Below it for the direction up, above it for down.';
  end if;
  insert into webhook._threshold
    (metric, name, threshold, direction, event_type, rearm, rearm_at, adjustments_cross, first_crosses)
  values
    (create_threshold.metric, create_threshold.name, create_threshold.threshold, create_threshold.direction, create_threshold.event_type,
     create_threshold.rearm, create_threshold.rearm_at, create_threshold.adjustments_cross, create_threshold.first_crosses)
  on conflict on constraint _threshold_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('threshold "%s" of metric "%s" already exists', name, metric),
      hint = 'Delete it first.';
  end if;
  perform webhook._log('create_threshold', 'threshold', metric || ' ' || name, after => jsonb_strip_nulls(jsonb_build_object(
    'threshold', threshold, 'direction', direction, 'event_type', event_type, 'rearm', rearm, 'rearm_at', rearm_at,
    'adjustments_cross', adjustments_cross, 'first_crosses', first_crosses)));
end
$$;
comment on function webhook.create_threshold(text, text, numeric, text, text, text, numeric, boolean, boolean) is
  'Makes an event of a metric''s crossing a value, in one direction. observe applies it from the next value on.';

create function webhook.delete_threshold(
  metric text, -- the metric
  name text    -- name of the threshold within it
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_writable('delete a threshold');
  perform webhook._check_argument('metric', metric is null);
  perform webhook._check_argument('name', name is null);
  delete from webhook._threshold t
   where t.metric = delete_threshold.metric
     and t.name = delete_threshold.name;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('threshold "%s" of metric "%s" does not exist', left(name, 128), left(metric, 128));
  end if;
  perform webhook._log('delete_threshold', 'threshold', metric || ' ' || name);
end
$$;
comment on function webhook.delete_threshold(text, text) is
  'Deletes a threshold. The last values stay; one that is made anew under the same name goes on where this one was.';

create function webhook._observe(
  partner_id text,      -- tenant
  subject_type text,    -- kind of the subject
  subject_id text,      -- identity of the subject
  metric text,          -- what is observed
  value numeric,        -- the value
  adjustment boolean,   -- whether it corrects what was observed before
  data jsonb,           -- members for the payload
  out observation bigint, -- number of the value
  out event_type text,    -- event to emit; null in the first row, which gives the number
  out payload text        -- its payload
) returns setof record
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
declare
  last webhook._observation;
  rule webhook._threshold;
  beyond boolean;
  told boolean;
begin
  if jsonb_typeof(_observe.data) <> 'object' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'data is not an object',
      detail = 'The value, the threshold and the rest of the facts are added to its members.';
  end if;
  if _observe.value in ('NaN', 'Infinity', '-Infinity') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'value is not a finite number';
  end if;
  insert into webhook._observation as o (partner_id, metric, subject_type, subject_id, value, observation)
  values (_observe.partner_id, _observe.metric, _observe.subject_type, _observe.subject_id, _observe.value, 0)
  on conflict on constraint _observation_pkey do nothing;
  -- One value after the other: the next one waits here until this transaction has ended. Under REPEATABLE READ it
  -- fails with 40001 where it would go by a value that is not the last.
  select o.*
    into last
    from webhook._observation o
   where o.partner_id = _observe.partner_id
     and o.metric = _observe.metric
     and o.subject_type = _observe.subject_type
     and o.subject_id = _observe.subject_id
     for update;
  if last.observation = 0 then
    last.value := null;
  end if;
  observation := last.observation + 1;
  event_type := null;
  payload := null;
  return next;
  for rule in
    select t.*
      from webhook._threshold t
     where t.metric = _observe.metric
     order by t.threshold * case t.direction when 'up' then 1 else -1 end, t.name
  loop
    beyond := case rule.direction when 'up' then _observe.value >= rule.threshold else _observe.value <= rule.threshold end;
    told := rule.name = any (last.disarmed);
    if told
       and (case rule.rearm
              when 'reversal' then not beyond
              when 'margin' then case rule.direction when 'up' then _observe.value <= rule.rearm_at else _observe.value >= rule.rearm_at end
              else false
            end)
    then
      last.disarmed := array_remove(last.disarmed, rule.name);
    elsif not told
       and (rule.adjustments_cross or not _observe.adjustment)
       and (case
              when last.value is null then rule.first_crosses and beyond
              else webhook.crossed(last.value, _observe.value, rule.threshold, rule.direction)
            end)
    then
      last.disarmed := array_append(last.disarmed, rule.name);
      event_type := rule.event_type;
      -- Texts: a number would be read as a float by many receivers.
      payload := (_observe.data || jsonb_strip_nulls(jsonb_build_object(
        'metric', rule.metric,
        'threshold_name', rule.name,
        'threshold', rule.threshold::text,
        'direction', rule.direction,
        'value', _observe.value::text,
        'previous_value', last.value::text,
        'observation', observation)))::text;
      return next;
    end if;
  end loop;
  update webhook._observation o
     set value = _observe.value,
         observation = last.observation + 1,
         observed_at = clock_timestamp(),
         disarmed = last.disarmed
   where o.partner_id = _observe.partner_id
     and o.metric = _observe.metric
     and o.subject_type = _observe.subject_type
     and o.subject_id = _observe.subject_id;
end
$$;
comment on function webhook._observe(text, text, text, text, numeric, boolean, jsonb) is
  'Keeps a value and says which events it makes. Called by observe, as the owner, after the caller''s right to emit them was judged.';

-- SECURITY INVOKER, both: it is the caller's right to emit that is judged; the value is kept as the owner.
create function webhook._observe_as_caller(
  partner_id text,                        -- as for observe, like all that follow
  subject_type text,
  subject_id text,
  metric text,
  value numeric,
  adjustment boolean,
  data text,
  subject_version bigint,
  source text,
  scope text,
  occurred_at timestamptz,
  schema_version text,
  correlation_id text,
  causation text,
  traceparent text,
  test boolean,
  out observation bigint,
  out event_ids text[]
) returns setof record -- one row
language c volatile parallel unsafe rows 1
as 'MODULE_PATHNAME', 'observe_as_caller_wrapper';
comment on function webhook._observe_as_caller(text, text, text, text, numeric, boolean, text, bigint, text, text, timestamptz, text, text, text, text, boolean) is
  'What observe does, with the payload as text.';

create function webhook.observe(
  partner_id text,                        -- tenant that the subject belongs to
  subject_type text,                      -- kind of the subject
  subject_id text,                        -- identity of the subject
  metric text,                            -- what is observed; has a threshold at least
  value numeric,                          -- the value now
  adjustment boolean default false,       -- whether it corrects what was observed before
  data jsonb default '{}',                -- further members for the payloads, an object
  subject_version bigint default null,    -- as for emit, like all that follow
  source text default null,
  scope text default null,
  occurred_at timestamptz default null,
  schema_version text default null,
  correlation_id text default null,
  causation text default null,
  traceparent text default null,
  test boolean default false,
  out observation bigint,                 -- number of the value among those of the subject
  out event_ids text[]                    -- events of the thresholds that it crossed
) returns record
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select o.observation, o.event_ids
    from webhook._observe_as_caller(
           partner_id, subject_type, subject_id, metric, value, adjustment, data::text, subject_version, source, scope,
           occurred_at, schema_version, correlation_id, causation, traceparent, test) as o
$$;
comment on function webhook.observe(text, text, text, text, numeric, boolean, jsonb, bigint, text, text, timestamptz, text, text, text, text, boolean) is
  'Keeps the value of a metric of a subject, and emits an event for each threshold that it crosses since the last one, exactly once.';
-- The catalogue as other people's tools read it: OpenAPI 3.1, webhooks instead of paths.

create function webhook._openapi_envelope(
  type text,           -- event type
  version text,        -- schema version; null = the type has no schema
  deprecated boolean   -- whether receivers should move on
) returns jsonb -- JSON Schema of the body
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select jsonb_build_object(
           'type', 'object',
           'required', to_jsonb(array['event_id', 'type', 'occurred_at', 'partner_id', 'data']
                                || case when version is null then '{}'::text[] else array['schema_version'] end),
           'properties', jsonb_strip_nulls(jsonb_build_object(
             'event_id', '{"type": "string", "pattern": "^evt_[0-7][0-9A-HJKMNP-TV-Z]{25}$", "description": "The same for every attempt and replay: receivers remember it."}'::jsonb,
             'type', jsonb_build_object('const', type, 'description', 'Event type.'),
             'source', '{"type": "string", "description": "Producer of the event."}'::jsonb,
             'occurred_at', '{"type": "string", "format": "date-time", "description": "When the business change happened, UTC."}'::jsonb,
             'partner_id', '{"type": "string", "description": "Tenant that the event belongs to."}'::jsonb,
             'subject', '{"type": "object", "description": "The object that changed.", "required": ["type", "id"],
                          "properties": {"type": {"type": "string", "description": "Kind of the object."},
                                         "id": {"type": "string", "description": "Identity of the object."},
                                         "version": {"type": "integer", "description": "Version after the change: drop what is older than what you have."}}}'::jsonb,
             'scope', '{"type": "string", "description": "Authorisation scope."}'::jsonb,
             'schema_version', case when version is not null then jsonb_build_object('const', version, 'description', 'Version of the payload''s schema.') end,
             'correlation_id', '{"type": "string", "description": "Operation that caused the event."}'::jsonb,
             'test', '{"const": true, "description": "Only on test events."}'::jsonb,
             'data', case
                       when version is null then '{"description": "The payload; it has no schema."}'::jsonb
                       else jsonb_build_object('$ref', format('#/components/schemas/%s..%s.data', type, version))
                     end)),
           'deprecated', deprecated)
$$;
comment on function webhook._openapi_envelope(text, text, boolean) is 'Schema of a body, as openapi shows it.';

create function webhook.openapi(
  title text default 'Webhooks',         -- title of the document
  version text default '1.0.0',          -- version of the document
  event_types text[] default '{*}'       -- event types and wildcards that it describes
) returns jsonb
language sql stable parallel safe
-- SECURITY DEFINER: the tables of the catalogue belong to the owner.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  with wanted as (
    select t.name, t.description, t.emitted_when, t.not_emitted_when, t.receiver_action, t.authoritative_state,
           t.deprecated_at, t.deprecation_reason, t.replaced_by, t.sunset_at
      from webhook._event_type t
     where exists (select
                     from unnest(event_types) as p
                    where p in ('*', t.name)
                       or (p like '%.*' and starts_with(t.name, left(p, -1))))
  ), version as (
    select w.name, s.version, s.current, s.schema, s.example, s.change_note, s.uri, s.deprecated_at, s.added_at,
           coalesce(s.version, 'any') as label
      from wanted w
      left join webhook._event_schema s on s.event_type = w.name
  -- Two full stops, which no event type has: otherwise version 2 of a.b.1 and version 1.2 of a.b would be one.
  ), schema as (
    select format('%s..%s.event', v.name, v.label) as key,
           webhook._openapi_envelope(v.name, v.version, v.deprecated_at is not null) as value
      from version v
     union all
    -- A reference inside of it still means itself: many readers of such documents look at no "$id", so it is rewritten.
    select format('%s..%s.data', v.name, v.version),
           case
             when jsonb_typeof(v.schema) = 'object' and not v.schema ? '$id' then
               regexp_replace(v.schema::text, '"\$ref": "#(?=["/])', format('"$ref": "#/components/schemas/%s..%s.data', v.name, v.version), 'g')::jsonb
             else v.schema
           end
      from version v
     where v.version is not null
  ), body as (
    select v.name,
           jsonb_agg(jsonb_build_object('$ref', format('#/components/schemas/%s..%s.event', v.name, v.label)) order by v.added_at, v.label) as schemas,
           jsonb_object_agg(v.label, jsonb_build_object(
             'summary', coalesce('Version ' || v.version, 'Any payload'),
             'value', jsonb_strip_nulls(jsonb_build_object(
               'event_id', 'evt_01M695MHQQD9798CDF31C02D86',
               'type', v.name,
               'occurred_at', '2026-01-02T03:04:05.678901Z',
               'partner_id', 'acme',
               'schema_version', v.version)) || jsonb_build_object('data', coalesce(v.example, '{}')))) as examples,
           jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
             'version', v.version,
             'current', v.current,
             'deprecated', v.deprecated_at is not null,
             'changeNote', v.change_note,
             'uri', v.uri)) order by v.added_at, v.label) as versions
      from version v
     group by v.name
  ), webhook as (
    select w.name as key,
           jsonb_build_object('post', jsonb_strip_nulls(jsonb_build_object(
             'operationId', w.name,
             'summary', coalesce(split_part(w.description, E'\n', 1), w.name),
             'description', nullif(concat_ws(E'\n\n',
               w.description,
               'Emitted: ' || w.emitted_when,
               'Not emitted: ' || w.not_emitted_when,
               'What to do: ' || w.receiver_action,
               'The state that counts: ' || w.authoritative_state,
               'Deprecated: ' || w.deprecation_reason,
               'Use instead: ' || w.replaced_by,
               'Ends: ' || webhook._rfc3339(w.sunset_at)), ''),
             'deprecated', case when w.deprecated_at is not null then true end,
             'parameters', (select jsonb_agg(jsonb_build_object('$ref', '#/components/parameters/' || h) order by n)
                              from unnest('{webhook-id,webhook-timestamp,webhook-signature,webhook-delivery,webhook-attempt,webhook-key-id,traceparent}'::text[])
                                   with ordinality as headers (h, n)),
             'x-versions', b.versions,
             'responses', '{"2XX": {"description": "The event is durably accepted; the receiver''s own work may follow later."},
                            "410": {"description": "The endpoint is gone: it is disabled, and gets nothing more."},
                            "429": {"description": "Too many requests: sent again later, after Retry-After at the earliest."},
                            "4XX": {"description": "Refused: kept as a dead letter, or sent again by policy."},
                            "5XX": {"description": "Failed: sent again later, by the schedule."}}'::jsonb))
             -- Apart: an example may hold nulls, which are not to be stripped.
             || jsonb_build_object('requestBody', jsonb_build_object(
                  'required', true,
                  'content', jsonb_build_object('application/json', jsonb_build_object(
                    'schema', case when jsonb_array_length(b.schemas) = 1 then b.schemas -> 0 else jsonb_build_object('oneOf', b.schemas) end,
                    'examples', b.examples))))) as value
      from wanted w
      join body b on b.name = w.name
  )
  select jsonb_build_object(
           'openapi', '3.1.0',
           'info', jsonb_build_object(
             'title', coalesce(title, 'Webhooks'),
             'version', coalesce(version, '1.0.0'),
             'description', 'Delivery is at least once and in no promised order: remember event_id, and compare subject.version. Verify webhook-signature over the raw body before you read it.'),
           'jsonSchemaDialect', 'https://json-schema.org/draft/2020-12/schema',
           'webhooks', coalesce((select jsonb_object_agg(w.key, w.value) from webhook w), '{}'),
           'components', jsonb_build_object(
             'schemas', coalesce((select jsonb_object_agg(s.key, s.value) from schema s), '{}'),
             'parameters', (
               select jsonb_object_agg(h.name, jsonb_build_object(
                        'name', h.name,
                        'in', 'header',
                        'required', h.required,
                        'description', h.description,
                        'schema', jsonb_build_object('type', 'string')))
                 from (values
                   ('webhook-id', true, 'The event id; the same for every attempt.'),
                   ('webhook-timestamp', true, 'When the attempt was signed, in seconds since 1970; refuse what is older than five minutes.'),
                   ('webhook-signature', true, 'Standard Webhooks 1.0.0: "v1," and the base64 HMAC-SHA256 of id, timestamp and body, joined by full stops. During a rotation there are several, separated by blanks: one must match.'),
                   ('webhook-delivery', true, 'Id of the delivery: event and endpoint.'),
                   ('webhook-attempt', true, 'Number of the attempt, from 1.'),
                   ('webhook-key-id', true, 'Ids of the signing keys, in the order of the signatures.'),
                   ('traceparent', false, 'W3C Trace Context of the operation that caused the event.')) as h (name, required, description))))
$$;
comment on function webhook.openapi(text, text, text[]) is
  'The catalogue as an OpenAPI 3.1 document: a webhook per event type, with schemas, examples, change notes and the headers of a delivery.';
-- Registering the functions that make one schema version of a payload of another.

create function webhook.create_conversion(
  type text,                -- event type
  from_version text,        -- schema version that the function takes
  to_version text,          -- schema version that it makes
  function regprocedure,    -- jsonb to jsonb, or json to json for exact bytes; IMMUTABLE, and yours
  reason text               -- why
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  called constant text := function::text;
  owned_by constant name := (
    select r.rolname
      from pg_proc as p
      join pg_roles as r on r.oid = p.proowner
     where p.oid = function::oid);
  fault text;
  example jsonb;
  missing text;
begin
  perform webhook._check_writable('create a conversion');
  perform webhook._check_argument('type', type is null);
  perform webhook._check_argument('from_version', from_version is null);
  perform webhook._check_argument('to_version', to_version is null);
  perform webhook._check_argument('function', function is null);
  reason := webhook._check_reason(reason);
  perform webhook._lock_event_type(type);
  select v.version
    into missing
    from (values (from_version, 1), (to_version, 2)) as v (version, place)
   where not exists (select from webhook._event_schema s where s.event_type = type and s.version = v.version)
   order by v.place
   limit 1;
  if found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event type "%s" has no schema version "%s"', type, left(missing, 64)),
      hint = 'Use webhook.add_schema.';
  end if;
  if from_version = to_version then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'a conversion needs two schema versions';
  end if;
  fault := webhook._conversion_fault(called, owned_by);
  if fault is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('function %s cannot be a conversion', called),
      detail = fault;
  end if;
  -- It is going to run with its owner's rights on whatever others emit: the owner has to want that.
  if not pg_has_role(session_user, owned_by, 'member') then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('permission denied for function %s', called),
      detail = 'A conversion runs with the rights of the role that owns it.',
      hint = 'Register it in a session of that role or of one of its members.';
  end if;
  if (select count(*) from webhook._conversion c where c.event_type = type) >= 50 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = format('event type "%s" has too many conversions', type),
      detail = 'The limit is 50 for each event type.';
  end if;
  select s.example
    into example
    from webhook._event_schema s
   where s.event_type = type
     and s.version = from_version;
  perform webhook._try_conversion(type, to_version, function::oid, example::text);
  insert into webhook._conversion (event_type, from_version, to_version, function_name, function_owner, reason)
  values (type, create_conversion.from_version, create_conversion.to_version, called, owned_by, create_conversion.reason)
  on conflict on constraint _conversion_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('conversion of event type "%s" from version "%s" to "%s" already exists', type, from_version, to_version),
      hint = 'Use webhook.delete_conversion first, in the same transaction.';
  end if;
  perform webhook._log(
    'create_conversion', 'conversion', format('%s %s %s', type, from_version, to_version),
    after => jsonb_build_object('function', called, 'owner', owned_by), reason => reason);
end
$$;
comment on function webhook.create_conversion(text, text, text, regprocedure, text) is
  'Registers a function that makes one schema version of an event type''s payload of another. From then on every emit stores the payload in each version that conversions lead to, for the endpoints that want it so.';

create function webhook.delete_conversion(
  type text,         -- event type
  from_version text, -- schema version that the function takes
  to_version text,   -- schema version that it makes
  reason text        -- why
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._conversion;
begin
  perform webhook._check_writable('delete a conversion');
  perform webhook._check_argument('type', type is null);
  perform webhook._check_argument('from_version', from_version is null);
  perform webhook._check_argument('to_version', to_version is null);
  reason := webhook._check_reason(reason);
  delete from webhook._conversion c
   where c.event_type = type
     and c.from_version = delete_conversion.from_version
     and c.to_version = delete_conversion.to_version
  returning c.*
       into former;
  if former.event_type is null then
    raise exception using
      errcode = 'undefined_object',
      message = format('conversion of event type "%s" from version "%s" to "%s" does not exist',
                       left(type, 128), left(from_version, 64), left(to_version, 64)),
      hint = 'See webhook.conversions.';
  end if;
  perform webhook._log(
    'delete_conversion', 'conversion', format('%s %s %s', type, from_version, to_version),
    before => jsonb_build_object('function', former.function_name, 'owner', former.function_owner), reason => reason);
end
$$;
comment on function webhook.delete_conversion(text, text, text, text) is
  'Takes a conversion back: later events are not stored in the versions that only it led to. What is stored stays.';

create trigger _catalogue_changed after insert or update or delete or truncate on webhook._conversion
  for each statement execute function webhook._catalogue_changed();
comment on trigger _catalogue_changed on webhook._conversion is 'The next emit goes by the new conversions.';
-- ENABLE ALWAYS: a restore under session_replication_role = replica changes them as well.
alter table webhook._conversion enable always trigger _catalogue_changed;
-- Trying a filter before it is in force: on a sample, and on what was emitted lately. Both ask what the leader asks.

create function webhook.test_filter(
  filter text,                        -- jsonpath predicate; null and '' = none
  data jsonb,                         -- a payload
  event_types text[] default null,    -- event types and wildcards; null = not looked at
  type text default null,             -- event type of the sample
  subject_types text[] default null,  -- subject types; null = all
  subject_type text default null      -- subject type of the sample
) returns table (
  matched boolean, -- whether the event would be sent; null = it would be held
  reason text      -- why it would not; null = it would
)
language plpgsql stable parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; it reads nothing but its arguments.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  spelt text;
begin
  perform webhook._check_argument('data', data is null);
  spelt := webhook._check_filter(filter);
  subject_types := webhook._check_subject_types(subject_types);
  if event_types is not null then
    event_types := webhook._check_event_types(event_types);
    perform webhook._check_argument('type', type is null);
    if not webhook._type_matches(event_types, type) then
      return query values (false, 'the event type is not subscribed to');
      return;
    end if;
  end if;
  if subject_types is not null and not coalesce(subject_type = any (subject_types), false) then
    return query values (false, 'the subject type is not one of the subject types');
    return;
  end if;
  if spelt is null then
    return query values (true, null);
    return;
  end if;
  return query
    select t.matched, case when not t.matched then 'the filter does not match' else t.why end
      from webhook._try_filters(data::text, array[spelt]) as t;
end
$$;
comment on function webhook.test_filter(text, jsonb, text[], text, text[], text) is 'Says whether a filter, and event types and subject types where they are given, match a sample.';

create function webhook.preview_filter(
  partner_id text default null,       -- whose events; or endpoint_id
  endpoint_id bigint default null,    -- the endpoint whose partner, event types, subject types and filter are meant, but for what is given here
  filter text default null,           -- jsonpath predicate, '' = none; null = the endpoint's
  event_types text[] default null,    -- event types and wildcards; null = the endpoint's, else all
  subject_types text[] default null,  -- subject types, {} = all; null = the endpoint's
  test boolean default null,          -- whether test events are meant; null = those of the endpoint's mode, else live ones
  since timestamptz default null,     -- from when on; null = for one day
  max_events integer default 1000,    -- newest events looked at, 1 to 10000
  out events bigint,                  -- events that were looked at
  out matched bigint,                 -- of these: would be sent
  out not_matched bigint,             -- would not be
  out undecided bigint,               -- would be held
  out reason text,                    -- why, for the newest of those that would be held
  out oldest timestamptz,             -- when the oldest event that was looked at was read by the leader
  out complete boolean                -- whether all events since then were looked at
) returns record
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it. It tells of payloads what any filter asks, so it belongs to those
-- who may have payloads sent wherever they like.
security definer
set search_path = pg_catalog, webhook, pg_temp
set jit = off
as $$
declare
  endpoint webhook._endpoint;
  spelt text;
  started constant timestamptz := clock_timestamp();
  event record;
  said record;
begin
  if (partner_id is null) = (endpoint_id is null) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'either partner_id or endpoint_id must be given';
  end if;
  if max_events is null or max_events not between 1 and 10000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'max_events is outside the valid range',
      detail = 'The range is 1 to 10000.';
  end if;
  perform webhook._check_writable('preview a filter');
  since := coalesce(since, started - interval '1 day');
  if endpoint_id is not null then
    select e.*
      into endpoint
      from webhook._endpoint e
     where e.endpoint_id = preview_filter.endpoint_id;
    if not found then
      raise exception using
        errcode = 'undefined_object',
        message = format('endpoint %s does not exist', endpoint_id);
    end if;
    partner_id := endpoint.partner_id;
  else
    perform webhook._check_partner(partner_id);
  end if;
  spelt := case when filter is null then endpoint.filter else webhook._check_filter(filter) end;
  subject_types := case when subject_types is null then endpoint.subject_types else webhook._check_subject_types(subject_types) end;
  event_types := webhook._check_event_types(coalesce(event_types, endpoint.event_types, '{*}'));
  test := coalesce(test, endpoint.test, false);
  events := 0;
  matched := 0;
  not_matched := 0;
  undecided := 0;
  complete := true;
  for event in
    select f.event_id, f.type, f.published_at
      from webhook._feed f
     where f.partner_id = preview_filter.partner_id
       and f.pos >= webhook._pos_bound(since)
       and f.test = preview_filter.test
       and f.type not like 'webhook.%'
     order by f.pos desc
  loop
    -- A costly filter on large payloads ends here, and says so, rather than going on for minutes.
    if events >= max_events or clock_timestamp() > started + interval '5 seconds' then
      complete := false;
      exit;
    end if;
    events := events + 1;
    oldest := event.published_at;
    if not webhook._type_matches(event_types, event.type) then
      not_matched := not_matched + 1;
      continue;
    end if;
    select subject_types is not null and not coalesce(e.subject_type = any (subject_types), false) as other_subject, e.body, t.matched, t.why
      into said
      from webhook._event e
      left join lateral webhook._try_filters(e.body, array[spelt]) as t on spelt is not null
     where e.event_id = event.event_id;
    if said.body is null or said.other_subject or said.matched = false then
      -- Without its payload it is not sent, whatever the filter says.
      not_matched := not_matched + 1;
    elsif spelt is null or said.matched then
      matched := matched + 1;
    else
      undecided := undecided + 1;
      reason := coalesce(reason, said.why);
    end if;
  end loop;
  -- It was asked about payloads: that leaves a trace, like reading one, which a rollback does not take back.
  raise log 'webhook: a filter was tried on % payloads of partner "%" by role "%"', events, partner_id, session_user;
  perform webhook._log(
    'preview_filter', case when endpoint_id is null then 'partner' else 'endpoint' end, coalesce(endpoint_id::text, partner_id), partner_id,
    after => jsonb_strip_nulls(jsonb_build_object(
      'filter', spelt, 'event_types', event_types, 'subject_types', subject_types, 'test', test, 'since', webhook._rfc3339(since), 'events', events)));
end
$$;
comment on function webhook.preview_filter(text, bigint, text, text[], text[], boolean, timestamptz, integer) is
  'Counts which of a partner''s latest events a filter would have let through. Looks at max_events and for five seconds at most, newest first, and leaves an entry in the audit log.';
-- Where events may come from: inbox sources and their keys. SECURITY DEFINER: EXECUTE is the whole right to these.

create function webhook._inbox_source_facts(
  source webhook._inbox_source -- an inbox source
) returns jsonb -- what of it can be changed
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_jsonb(source) - '{source_id,name,created_at,changed_at}'::text[]
$$;
comment on function webhook._inbox_source_facts(webhook._inbox_source) is 'What the audit log compares of an inbox source; keys are no part of it.';

create function webhook.create_inbox_source(
  name text,                               -- name, as receive is given it
  profile text,                            -- signature profile of the sender
  partner_id text default null,            -- tenant of all its events; or else:
  partner_from text default null,          -- where the tenant stands, in what is signed: body:/pointer, or header:name under RFC 9421
  partners text[] default null,            -- tenants that partner_from may name; null = all
  id_from text default null,               -- where the event id stands: header:name, body:/pointer or digest; null = as the profile has it
  type_from text default null,             -- where the event type stands; null = as the profile has it
  tolerance interval default '5 minutes',  -- how far the time of signing may be from the clock
  validation text default 'off',           -- off, or enforce: payloads must match the catalogue
  same_body boolean default true,          -- whether an event that comes again with another body is a conflict
  max_body integer default 1048576,        -- largest body, bytes
  max_pending integer default 10000,       -- unfinished events above which new ones get a 503
  max_per_minute integer default null,     -- events accepted in a minute above which new ones get a 429; null = no limit
  description text default null            -- what it is
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  given record;
begin
  perform webhook._check_writable('create an inbox source');
  perform webhook._check_inbox_name('name', name);
  for given in
    select v.name
      from (values ('profile', profile is null), ('tolerance', tolerance is null), ('validation', validation is null),
                   ('same_body', same_body is null), ('max_body', max_body is null), ('max_pending', max_pending is null)) as v (name, missing)
     where v.missing
  loop
    perform webhook._check_argument(given.name, true);
  end loop;
  -- Refuses an unknown profile as well.
  perform webhook._check_locator('id_from', profile, 'digest');
  id_from := webhook._check_locator('id_from', profile, id_from);
  type_from := webhook._check_locator('type_from', profile, type_from);
  partner_from := webhook._check_locator('partner_from', profile, partner_from);
  if (partner_id is null) = (partner_from is null) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'an inbox source needs either partner_id or partner_from',
      detail = 'Every event belongs to a tenant: always the same one, or the one that its signed part names.';
  end if;
  if partner_id is not null then
    perform webhook._check_partner(partner_id);
  end if;
  if partners is not null then
    perform webhook._check_partner(p)
       from unnest(partners) as p;
  end if;
  perform webhook._check_inbox_limits(tolerance, validation, max_body, max_pending, max_per_minute);
  description := webhook._check_text('description', description, 4000);
  insert into webhook._inbox_source
    (source_id, name, profile, partner_id, partner_from, partners, id_from, type_from, tolerance, validation, same_body,
     max_body, max_pending, max_per_minute, description)
  values
    (webhook._new_id(), create_inbox_source.name, create_inbox_source.profile, create_inbox_source.partner_id, create_inbox_source.partner_from,
     create_inbox_source.partners, create_inbox_source.id_from, create_inbox_source.type_from, create_inbox_source.tolerance,
     create_inbox_source.validation, create_inbox_source.same_body, create_inbox_source.max_body, create_inbox_source.max_pending,
     create_inbox_source.max_per_minute, create_inbox_source.description)
  on conflict on constraint _inbox_source_name do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('inbox source "%s" already exists', name),
      hint = 'Use webhook.update_inbox_source.';
  end if;
  perform webhook._log('create_inbox_source', 'inbox_source', name, partner_id, after => (
    select jsonb_strip_nulls(webhook._inbox_source_facts(s))
      from webhook._inbox_source s
     where s.name = create_inbox_source.name));
end
$$;
comment on function webhook.create_inbox_source(text, text, text, text, text[], text, text, interval, text, boolean, integer, integer, integer, text) is
  'Registers a sender whose events receive() accepts. It needs a key as well: add_inbox_key.';

create function webhook.update_inbox_source(
  name text,                            -- the source
  enabled boolean default null,         -- false = everything gets a 503; null = keep, like all that follow
  partners text[] default null,         -- '{}' removes the limit
  tolerance interval default null,
  validation text default null,
  same_body boolean default null,
  max_body integer default null,
  max_pending integer default null,
  max_per_minute integer default null,  -- 0 removes the limit
  description text default null         -- '' removes it
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._inbox_source;
  latter webhook._inbox_source;
begin
  perform webhook._check_writable('change an inbox source');
  former := webhook._inbox_source_named(name);
  latter := former;
  latter.enabled := coalesce(enabled, former.enabled);
  latter.partners := coalesce(partners, former.partners);
  latter.tolerance := coalesce(tolerance, former.tolerance);
  latter.validation := coalesce(validation, former.validation);
  latter.same_body := coalesce(same_body, former.same_body);
  latter.max_body := coalesce(max_body, former.max_body);
  latter.max_pending := coalesce(max_pending, former.max_pending);
  latter.max_per_minute := nullif(coalesce(max_per_minute, former.max_per_minute), 0);
  if description is not null then
    latter.description := webhook._check_text('description', description, 4000);
  end if;
  perform webhook._check_partner(p)
     from unnest(partners) as p;
  latter.partners := nullif(latter.partners, '{}');
  perform webhook._check_inbox_limits(latter.tolerance, latter.validation, latter.max_body, latter.max_pending, latter.max_per_minute);
  update webhook._inbox_source s
     set enabled = latter.enabled,
         partners = latter.partners,
         tolerance = latter.tolerance,
         validation = latter.validation,
         same_body = latter.same_body,
         max_body = latter.max_body,
         max_pending = latter.max_pending,
         max_per_minute = latter.max_per_minute,
         description = latter.description,
         changed_at = clock_timestamp()
   where s.source_id = former.source_id;
  perform webhook._log(
    'update_inbox_source', 'inbox_source', name, former.partner_id,
    before => webhook._changed(webhook._inbox_source_facts(former), webhook._inbox_source_facts(latter)),
    after => webhook._changed(webhook._inbox_source_facts(latter), webhook._inbox_source_facts(former)));
end
$$;
comment on function webhook.update_inbox_source(text, boolean, text[], interval, text, boolean, integer, integer, integer, text) is
  'Changes the limits of an inbox source, or switches it off and on. Profile and tenant stay: make another source.';

create function webhook.add_inbox_key(
  source text,            -- the source
  key text default null,  -- the key, as the sender has or shows it; null = one is made
  out key_id bigint,      -- its id
  out new_key text        -- the key that was made, to be handed to the sender; null when it was given
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_source;
  kind text;
begin
  perform webhook._check_writable('add a key');
  known := webhook._inbox_source_named(source);
  key_id := webhook._new_id();
  -- By an assignment, not a statement, which could be logged with its parameters.
  kind := webhook._hold_inbox_key(key_id, known.profile, key);
  if (select count(*) from webhook._inbox_key k
       where k.source_id = known.source_id and k.kept and (k.valid_until is null or k.valid_until > clock_timestamp())) >= 10
  then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = format('inbox source "%s" has too many keys', source),
      detail = 'The limit is 10.',
      hint = 'Revoke one that is no longer used with webhook.revoke_inbox_key.';
  end if;
  insert into webhook._inbox_key (key_id, source_id, kind, key)
  values (key_id, known.source_id, kind, webhook._held_inbox_key(key_id, known.source_id));
  if key is null then
    new_key := webhook._take_secret(key_id);
  end if;
  perform webhook._log(
    'add_inbox_key', 'inbox_source', source, known.partner_id,
    after => jsonb_build_object('key_id', key_id::text, 'kind', kind, 'made_here', key is null));
end
$$;
comment on function webhook.add_inbox_key(text, text) is
  'Adds a key to an inbox source: from the commit on a signature of any of its keys is accepted. Stored encrypted like the keys of endpoints, and never shown.';

create function webhook.revoke_inbox_key(
  key_id bigint,                        -- the key, see inbox_keys
  reason text,                          -- why
  valid_until timestamptz default null  -- end of its validity; null = now, and its material is destroyed
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former record;
begin
  perform webhook._check_writable('revoke a key');
  perform webhook._check_argument('key_id', key_id is null);
  reason := webhook._check_reason(reason);
  select k.source_id, k.valid_until, k.kept, s.name, s.partner_id
    into former
    from webhook._inbox_key k
    join webhook._inbox_source s on s.source_id = k.source_id
   where k.key_id = revoke_inbox_key.key_id
     for no key update of k;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('key %s of an inbox source does not exist', key_id),
      hint = 'See webhook.inbox_keys.';
  end if;
  if not former.kept then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('key %s is destroyed already', key_id);
  end if;
  update webhook._inbox_key k
     set valid_until = coalesce(revoke_inbox_key.valid_until, clock_timestamp()),
         key = case when revoke_inbox_key.valid_until > clock_timestamp() then k.key end
   where k.key_id = revoke_inbox_key.key_id;
  perform webhook._log(
    'revoke_inbox_key', 'inbox_source', former.name, former.partner_id,
    before => jsonb_strip_nulls(jsonb_build_object('valid_until', webhook._rfc3339(former.valid_until))),
    after => jsonb_strip_nulls(jsonb_build_object('key_id', key_id::text, 'valid_until', webhook._rfc3339(valid_until))),
    reason => reason);
end
$$;
comment on function webhook.revoke_inbox_key(bigint, text, timestamptz) is 'Ends a key of an inbox source, at once or at a time: the second half of a rotation.';
-- Asking for another attempt. Verbs that touch deliveries are requests: they commit or roll back with the
-- caller, and the leader, the only writer of deliveries, carries them out.
-- What can be refused is refused here, at once; the leader checks again, because time passes in between.

create function webhook.replay(
  event_id text,                   -- the event
  endpoint_id bigint default null  -- the endpoint; null = every existing delivery of the event
) returns table (
  request_id bigint,               -- the request, see the view requests
  delivery_id text                 -- a delivery that it concerns; null when the event has none yet
)
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  event record;
  endpoint webhook._effective_endpoint;
begin
  perform webhook._check_writable('replay an event');
  perform webhook._check_argument('event_id', event_id is null);
  select e.partner_id, e.test, e.origin, e.body is null as expunged, f.reason as fenced
    into event
    from webhook._event e
    left join webhook._fenced f on f.event_id = e.event_id
   where e.event_id = replay.event_id;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event "%s" does not exist', left(event_id, 128));
  end if;
  if event.expunged then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" is expunged', event_id),
      detail = 'Its payload was removed; what was sent cannot be sent again.';
  end if;
  if not webhook._admits(event.origin) then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" is fenced', event_id),
      detail = 'It was emitted in another database, of which this one is a copy.',
      hint = 'The function adopt takes over the events of another database.';
  end if;
  if event.fenced is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" is fenced', event_id),
      detail = event.fenced;
  end if;

  if endpoint_id is not null then
    select e.*
      into endpoint
      from webhook._effective_endpoint e
     where e.endpoint_id = replay.endpoint_id
       and e.partner_id = event.partner_id;
    -- The same words for another partner's endpoint: whether it exists is nobody else's business.
    if not found then
      raise exception using
        errcode = 'undefined_object',
        message = format('endpoint %s does not exist', endpoint_id);
    end if;
    if endpoint.origin <> webhook._origin() then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = format('endpoint %s is inert', endpoint_id),
        detail = 'It was made in another database, of which this one is a copy.';
    end if;
    if endpoint.state <> 'active' then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = format('endpoint %s is %s', endpoint_id, endpoint.state),
        detail = coalesce(endpoint.state_reason, 'It gets no deliveries in this state.');
    end if;
    if endpoint.test <> event.test then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = case when event.test
          then format('cannot send a test event to endpoint %s', endpoint_id)
          else format('cannot send a live event to endpoint %s', endpoint_id)
        end,
        detail = case when event.test
          then 'It is not a test endpoint.'
          else 'It is a test endpoint.'
        end;
    end if;
  end if;

  request_id := webhook._ask(
    'replay', 'event', event_id, event.partner_id, event_id, endpoint_id,
    after => jsonb_build_object('endpoint_id', coalesce(endpoint_id::text, 'all')));

  if endpoint_id is not null then
    delivery_id := webhook._delivery_id(event_id, endpoint_id);
    return next;
    return;
  end if;
  for delivery_id in
    select webhook._delivery_id(d.event_id, d.endpoint_id)
      from webhook._delivery d
     where d.event_id = replay.event_id
     order by d.endpoint_id
  loop
    return next;
  end loop;
  if not found then
    delivery_id := null;
    return next;
  end if;
end
$$;
comment on function webhook.replay(text, bigint) is
  'Asks for a new attempt with the same event id and the same bytes, to every endpoint that has a delivery of the event or to the one named. Returns the request and the deliveries it concerns.';
-- Deciding about deliveries by hand: another try, leaving it, closing it, sending it mended.
-- All are requests: the leader carries them out and checks again, because time passes in between. What can be
-- refused is refused here, at once, and for all deliveries of a call together.
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.

create function webhook._refuse_delivery(
  delivery_id text,  -- the delivery
  state text,        -- its state; null = it does not exist
  verb text          -- retry, skip, close or correct
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if state is null then
    raise exception using
      errcode = 'undefined_object',
      message = format('delivery "%s" does not exist', delivery_id);
  end if;
  raise exception using
    errcode = 'object_not_in_prerequisite_state',
    message = format('delivery "%s" is %s', delivery_id, state),
    detail = case verb
      when 'retry' then 'A delivery that has arrived is not retried.'
      when 'skip' then 'Only a pending, retrying or dead delivery can be skipped.'
      when 'close' then 'Only a dead, cancelled or skipped delivery can be closed.'
      else 'Only a dead delivery can be corrected.'
    end,
    hint = case verb
      when 'retry' then 'Use webhook.replay to send it once more.'
      when 'skip' then 'See webhook.deliveries for the states.'
      when 'close' then 'Use webhook.skip for a delivery that still waits.'
      else 'Emit a new event instead.'
    end;
end
$$;
comment on function webhook._refuse_delivery(text, text, text) is 'Refuses a delivery that does not exist or is in the wrong state for a verb.';

create function webhook._check_delivery_id(
  delivery_id text -- dlv_...
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if (select p.event_id from webhook._parse_delivery_id(delivery_id) as p) is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('delivery id "%s" is not valid', left(delivery_id, 128)),
      detail = 'A delivery id is "dlv_", 26 characters of the event''s id, "_" and the endpoint''s id.';
  end if;
end
$$;
comment on function webhook._check_delivery_id(text) is 'Refuses a text that is no delivery id.';

create function webhook._decide(
  verb text,           -- retry, skip or close
  argument text,       -- name of the argument, for messages
  delivery_ids text[], -- the deliveries; one that is named twice counts once
  reason text          -- why
) returns bigint -- request_id
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
-- The plan's estimated cost grows with the partitions, most of which are never opened: no reason to compile it.
set jit = off
as $$
declare
  fitting constant text[] := case verb
    when 'retry' then '{pending,retrying,dead,cancelled,skipped,closed}'
    when 'skip' then '{pending,retrying,dead}'
    else '{dead,cancelled,skipped}'
  end;
  refused record;
  pairs record;
begin
  perform webhook._check_writable(format('%s a delivery', verb));
  perform webhook._check_argument(argument, delivery_ids is null or array_position(delivery_ids, null) is not null);
  reason := webhook._check_reason(reason);
  if delivery_ids = '{}' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'delivery_ids must not be empty';
  end if;
  if cardinality(delivery_ids) > 10000 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'too many deliveries',
      detail = format('There are %s; the limit is 10000 for each request.', cardinality(delivery_ids));
  end if;
  perform webhook._check_delivery_id(u.delivery_id)
     from unnest(delivery_ids) as u (delivery_id);
  -- One look-up per pair, which LIMIT enforces: the planner does not know that each opens one partition, and
  -- would rather read all deliveries once.
  select u.delivery_id, d.state
    into refused
    from unnest(delivery_ids) with ordinality as u (delivery_id, place)
   cross join lateral webhook._parse_delivery_id(u.delivery_id) as p
    left join lateral
         (select d.state
            from webhook._delivery d
           where d.event_id = p.event_id
             and d.endpoint_id = p.endpoint_id
           limit 1) as d on true
   where d.state is null
      or d.state <> all (fitting)
   order by u.place
   limit 1;
  if found then
    perform webhook._refuse_delivery(refused.delivery_id, refused.state, verb);
  end if;
  select array_agg(p.event_id order by p.event_id, p.endpoint_id) as events,
         array_agg(p.endpoint_id order by p.event_id, p.endpoint_id) as endpoints,
         count(*) as n
    into pairs
    from (select distinct p.event_id, p.endpoint_id
            from unnest(delivery_ids) as u (delivery_id)
           cross join lateral webhook._parse_delivery_id(u.delivery_id) as p) as p;
  return webhook._ask(
    verb, 'delivery',
    case when pairs.n = 1 then delivery_ids[1] end,
    -- The partner, when it is one.
    (select case when count(distinct e.partner_id) = 1 then min(e.partner_id) end from webhook._endpoint e where e.endpoint_id = any (pairs.endpoints)),
    case when pairs.n = 1 then pairs.events[1] end,
    case when pairs.n = 1 then pairs.endpoints[1] end,
    reason => reason,
    event_ids => pairs.events,
    endpoint_ids => pairs.endpoints,
    after => jsonb_build_object('deliveries', pairs.n));
end
$$;
comment on function webhook._decide(text, text, text[], text) is 'Checks deliveries and asks the leader to retry, skip or close them.';

create function webhook.retry(
  delivery_id text, -- the delivery
  reason text       -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('retry', 'delivery_id', array[delivery_id], reason)
$$;
comment on function webhook.retry(text, text) is
  'Asks for a delivery to be tried again now, in a new series of the schedule, and frees it of what holds it. Returns the request.';

create function webhook.retry(
  delivery_ids text[], -- the deliveries, at most 10,000
  reason text          -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('retry', 'delivery_ids', delivery_ids, reason)
$$;
comment on function webhook.retry(text[], text) is 'Asks for many deliveries to be tried again now, as one request.';

create function webhook.skip(
  delivery_id text, -- the delivery
  reason text       -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('skip', 'delivery_id', array[delivery_id], reason)
$$;
comment on function webhook.skip(text, text) is
  'Asks for a delivery not to be sent any more; what waits behind it goes on. Returns the request.';

create function webhook.skip(
  delivery_ids text[], -- the deliveries, at most 10,000
  reason text          -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('skip', 'delivery_ids', delivery_ids, reason)
$$;
comment on function webhook.skip(text[], text) is 'Asks for many deliveries not to be sent any more, as one request.';

create function webhook.close(
  delivery_id text, -- the delivery
  reason text       -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('close', 'delivery_id', array[delivery_id], reason)
$$;
comment on function webhook.close(text, text) is
  'Asks for a delivery that was given up to be marked as dealt with, so that it is no dead letter any more. Returns the request.';

create function webhook.close(
  delivery_ids text[], -- the deliveries, at most 10,000
  reason text          -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._decide('close', 'delivery_ids', delivery_ids, reason)
$$;
comment on function webhook.close(text[], text) is 'Asks for many deliveries to be marked as dealt with, as one request.';

create function webhook.correct(
  delivery_id text, -- the dead delivery
  data jsonb,       -- payload that should have been sent
  reason text       -- why
) returns text -- event_id of the new event
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  pair record;
  dead_state text;
  event webhook._event;
  fence text;
  new_id text;
begin
  perform webhook._check_writable('correct a delivery');
  perform webhook._check_argument('delivery_id', delivery_id is null);
  perform webhook._check_argument('data', data is null);
  reason := webhook._check_reason(reason);
  perform webhook._check_delivery_id(delivery_id);
  select p.event_id, p.endpoint_id
    into pair
    from webhook._parse_delivery_id(delivery_id) as p;
  -- Two that correct the same delivery would emit two events.
  perform pg_advisory_xact_lock(hashtextextended('webhook.correct ' || delivery_id, 0));
  select d.state
    into dead_state
    from webhook._delivery d
   where d.event_id = pair.event_id
     and d.endpoint_id = pair.endpoint_id;
  select e.*
    into event
    from webhook._event e
   where e.event_id = pair.event_id;
  if dead_state is distinct from 'dead' then
    perform webhook._refuse_delivery(delivery_id, dead_state, 'correct');
  end if;
  if event.event_id is null then
    raise exception using
      errcode = 'undefined_object',
      message = format('event "%s" does not exist', pair.event_id),
      detail = 'It is older than the retention of events.';
  end if;
  if event.type like 'webhook.%' then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" cannot be corrected', event.event_id),
      detail = 'It is the extension''s own; event types that begin with "webhook." are reserved.';
  end if;
  -- The new event takes over the envelope: not one that was changed behind the extension's back.
  select case
           when not webhook._admits(event.origin) then 'It was emitted in another database, of which this one is a copy.'
           else (select f.reason from webhook._fenced f where f.event_id = event.event_id)
         end
    into fence;
  if fence is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" is fenced', event.event_id),
      detail = fence;
  end if;
  if exists (
       select
         from webhook._request r
        where r.state = 'pending'
          and r.verb = 'close'
          and r.reason like 'corrected by evt\_%'
          and r.event_id = pair.event_id
          and r.endpoint_id = pair.endpoint_id)
  then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('delivery "%s" was corrected before', delivery_id),
      detail = 'The leader has not closed it yet.',
      hint = 'See webhook.requests and webhook.audit_log.';
  end if;
  new_id := webhook.emit(
    type => event.type,
    partner_id => event.partner_id,
    data => data,
    subject_type => event.subject_type,
    subject_id => event.subject_id,
    subject_version => event.subject_version,
    source => event.source,
    scope => event.scope,
    occurred_at => event.occurred_at,
    schema_version => event.schema_version,
    correlation_id => event.correlation_id,
    causation => event.event_id,
    test => event.test);
  perform webhook._ask(
    'close', 'delivery', delivery_id, event.partner_id, pair.event_id, pair.endpoint_id,
    reason => format('corrected by %s: %s', new_id, reason),
    event_ids => array[pair.event_id],
    endpoint_ids => array[pair.endpoint_id],
    after => jsonb_build_object('event_id', new_id),
    called => 'correct',
    told => reason);
  return new_id;
end
$$;
comment on function webhook.correct(text, jsonb, text) is
  'Emits the event of a dead delivery anew with another payload, and asks to close the delivery. The new event names the old one as its causation, and goes to every endpoint that matches.';
-- Holding deliveries back, and letting them go: everything, a partner, an event type, an endpoint.
-- A pause is configuration that the leader reads as of its window; the request that goes with it says from when
-- on nothing new starts. Nothing is lost meanwhile: what is paused queues up.

create function webhook._check_scope(
  scope text,  -- all, partner, event_type or endpoint
  target text  -- the partner, event type or endpoint
) returns text -- the target; empty for all
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('scope', scope is null);
  if scope not in ('all', 'partner', 'event_type', 'endpoint') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('scope "%s" does not exist', left(scope, 128)),
      hint = 'The scopes are all, partner, event_type and endpoint.';
  end if;
  if scope = 'all' then
    if target is not null then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = 'scope "all" has no target',
        hint = 'Leave it null, or use the scope partner, event_type or endpoint.';
    end if;
    return '';
  end if;
  perform webhook._check_argument('target', target is null);
  case scope
    when 'partner' then
      perform webhook._check_partner(target);
    when 'event_type' then
      perform webhook._check_type(target);
    else
      if target !~ '^[1-9][0-9]{0,18}$' or target::numeric > 9223372036854775807 then
        raise exception using
          errcode = 'invalid_parameter_value',
          message = format('endpoint id "%s" is not valid', left(target, 128));
      end if;
  end case;
  return target;
end
$$;
comment on function webhook._check_scope(text, text) is 'Refuses what cannot be paused.';

create function webhook._scope_name(
  scope text,  -- all, partner or event_type
  target text  -- the partner or the event type
) returns text -- how messages call it
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select case scope
           when 'all' then 'scope "all"'
           when 'partner' then format('partner "%s"', target)
           else format('event type "%s"', target)
         end
$$;
comment on function webhook._scope_name(text, text) is 'What is paused, in words.';

create function webhook._ask_pause(
  verb text,           -- pause or resume
  scope text,          -- all, partner, event_type or endpoint
  target text,         -- the partner, event type or endpoint; empty for all
  partner_id text,     -- tenant concerned
  reason text          -- why
) returns bigint -- request_id
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._ask(
           verb, scope, nullif(target, ''), partner_id,
           endpoint_id => case when scope = 'endpoint' then target::bigint end,
           scope => scope,
           target => nullif(target, ''),
           reason => reason,
           before => jsonb_build_object('paused', verb = 'resume'),
           after => jsonb_build_object('paused', verb = 'pause'))
$$;
comment on function webhook._ask_pause(text, text, text, text, text) is 'Asks the leader to say from when on a pause, or its end, holds.';

create function webhook.pause(
  scope text,   -- all, partner, event_type or endpoint
  target text,  -- partner id, exact event type, or endpoint id as text; null for all
  reason text   -- why; shown in webhook.pauses
) returns bigint -- request_id
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  request_id bigint;
begin
  perform webhook._check_writable('pause deliveries');
  target := webhook._check_scope(scope, target);
  reason := webhook._check_reason(reason);
  if scope = 'endpoint' then
    endpoint := webhook._take_endpoint(target::bigint);
    if endpoint.state <> 'active' then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = format('endpoint %s is %s', target, endpoint.state),
        detail = 'Only an active endpoint can be paused.';
    end if;
    endpoint.state := 'paused';
    endpoint.state_reason := reason;
    endpoint.state_changed_at := clock_timestamp();
    request_id := webhook._ask_pause('pause', scope, target, endpoint.partner_id, reason);
    perform webhook._save_endpoint(endpoint, 'pause', reason, request_id, void => true);
    return request_id;
  end if;
  -- Waits for another session that pauses or resumes the same, and then sees what it left.
  insert into webhook._pause as p (scope, target, paused, reason)
  values (pause.scope, pause.target, true, pause.reason)
  on conflict on constraint _pause_pkey do update
     set paused = true,
         reason = excluded.reason,
         paused_by = excluded.paused_by,
         paused_at = excluded.paused_at,
         changed_xid = excluded.changed_xid
   where not p.paused;
  if not found then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('%s is already paused', webhook._scope_name(scope, target)),
      hint = 'See webhook.pauses for since when and why.';
  end if;
  if scope = 'partner' and not exists (select from webhook._endpoint e where e.partner_id = target) then
    -- It may be meant; in an emergency it is a misspelling.
    raise warning using
      message = format('partner "%s" has no endpoint', target),
      detail = 'The pause will hold for endpoints that it gets later.';
  end if;
  return webhook._ask_pause('pause', scope, target, case when scope = 'partner' then target end, reason);
end
$$;
comment on function webhook.pause(text, text, text) is
  'Holds deliveries back until resume: of everything, a partner, an event type or an endpoint. They queue up. The request says from when on nothing new starts.';

create function webhook.resume(
  scope text,               -- all, partner, event_type or endpoint
  target text default null, -- partner id, exact event type, or endpoint id as text; null for all
  reason text default null  -- why
) returns bigint -- request_id
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  request_id bigint;
begin
  perform webhook._check_writable('resume deliveries');
  target := webhook._check_scope(scope, target);
  if reason is not null then
    reason := webhook._check_reason(reason);
  end if;
  if scope = 'endpoint' then
    endpoint := webhook._take_endpoint(target::bigint);
    if endpoint.state <> 'paused' then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = format('endpoint %s is not paused', target),
        detail = format('It is %s.', endpoint.state);
    end if;
    endpoint.state := 'active';
    endpoint.state_reason := reason;
    endpoint.state_changed_at := clock_timestamp();
    request_id := webhook._ask_pause('resume', scope, target, endpoint.partner_id, reason);
    perform webhook._save_endpoint(endpoint, 'resume', reason, request_id, void => true);
    return request_id;
  end if;
  -- The row stays and keeps the last pause's reason: the leader finds changes by changed_xid.
  update webhook._pause p
     set paused = false,
         changed_xid = pg_current_xact_id()
   where p.scope = resume.scope
     and p.target = resume.target
     and p.paused;
  if not found then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('%s is not paused', webhook._scope_name(scope, target)),
      hint = 'See webhook.pauses for what is.';
  end if;
  return webhook._ask_pause('resume', scope, target, case when scope = 'partner' then target end, reason);
end
$$;
comment on function webhook.resume(text, text, text) is
  'Ends a pause of the same scope and target; what was held goes out. Other pauses stay in force.';
-- Test events: one endpoint, asked to show that it receives well.
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.

create function webhook.send_test(
  endpoint_id bigint,          -- the endpoint
  kind text default 'normal',  -- normal, duplicate, stale, bad_signature or malformed
  out event_id text,           -- the test event
  out delivery_id text         -- its delivery
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._effective_endpoint;
begin
  perform webhook._check_writable('send a test event');
  perform webhook._check_argument('endpoint_id', endpoint_id is null);
  perform webhook._check_argument('kind', kind is null);
  if kind not in ('normal', 'duplicate', 'stale', 'bad_signature', 'malformed') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('kind of test "%s" does not exist', left(kind, 128)),
      hint = 'The kinds are normal, duplicate, stale, bad_signature and malformed.';
  end if;
  select e.*
    into endpoint
    from webhook._effective_endpoint e
   where e.endpoint_id = send_test.endpoint_id;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('endpoint %s does not exist', endpoint_id);
  end if;
  if endpoint.origin <> webhook._origin() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is inert', endpoint_id),
      detail = 'It was made in another database, of which this one is a copy.';
  end if;
  if endpoint.state not in ('active', 'paused', 'unverified') then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is %s', endpoint_id, endpoint.state),
      detail = coalesce(endpoint.state_reason, 'It gets no deliveries in this state.');
  end if;
  event_id := webhook._emit_reserved(
    type => 'webhook.test',
    partner_id => endpoint.partner_id,
    data => jsonb_build_object('endpoint_id', endpoint_id::text, 'kind', kind),
    subject_type => 'webhook.endpoint',
    subject_id => endpoint_id::text,
    test => true);
  delivery_id := webhook._delivery_id(event_id, endpoint_id);
  perform webhook._log(
    'send_test', 'endpoint', endpoint_id::text, endpoint.partner_id,
    after => jsonb_build_object('kind', kind, 'event_id', event_id));
end
$$;
comment on function webhook.send_test(bigint, text) is
  'Sends a test event to one endpoint, whatever its event types. The kinds beyond normal show whether it drops duplicates and stale requests and refuses what is not signed or not well-formed.';
-- Giving and taking rights. The privileges of each kind stand in one list; a right is those privileges and a row of
-- _access, which limits what they reach: partners, event types, time.
-- None of these verbs belongs to a kind: whoever may execute them may give himself everything.

create function webhook._access_list()
returns table (
  kinds text, -- kinds that need it, separated by blanks
  name text   -- function, with all its forms, or view
)
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  values
    ('emit', 'emit'),
    ('emit', 'emit_json'),
    ('emit', 'observe'),
    ('emit', '_observe_as_caller'),
    ('emit read operate', 'crossed'),
    -- What a partner may see of itself: its events, what became of them, its endpoints, its alerts.
    ('read operate partner', 'events'),
    ('read operate partner', 'deliveries'),
    ('read operate partner', 'attempts'),
    ('read operate partner', 'dead_letters'),
    ('read operate partner', 'endpoints'),
    ('read operate partner', 'endpoint_health'),
    ('read operate partner', 'stat_endpoint'),
    ('read operate partner', 'alerts'),
    ('read operate partner', 'requests'),
    ('read operate partner', 'verifications'),
    ('read operate partner', 'signing_keys'),
    ('read operate partner', 'tombstones'),
    ('read operate partner', 'explain'),
    ('read operate partner', 'test_filter'),
    ('read operate partner', 'list_events'),
    ('read operate partner', 'list_deliveries'),
    ('read operate partner', 'read_excerpt'),
    ('read operate partner feed', 'events_after'),
    ('read operate partner feed', 'export_events'),
    ('read operate partner feed', 'feed_status'),
    ('read operate partner', 'partner_status'),
    ('read operate partner feed', 'limits'),
    -- What is nobody's own: the house's configuration and how it is doing.
    ('read operate', 'event_types'),
    ('read operate', 'event_schemas'),
    ('read operate', 'event_fields'),
    ('read operate', 'sources'),
    ('read operate', 'thresholds'),
    ('read operate', 'observations'),
    ('read operate', 'openapi'),
    ('read operate', 'conversions'),
    ('read operate partner', 'event_versions'),
    ('read operate', '_conversion_fault'),
    ('read operate', 'policies'),
    ('read operate', 'pauses'),
    ('read operate', 'stat_queue'),
    ('read operate', 'stat_worker'),
    ('read operate', 'stat_fenced'),
    ('read operate', 'adoptions'),
    ('read operate', 'erasures'),
    ('read operate', 'reconciliation'),
    ('read operate', 'reconciliations'),
    ('read operate', 'replays'),
    ('read operate', 'seal_keys'),
    ('read operate', 'status'),
    ('operate', 'create_endpoint'),
    ('operate', 'update_endpoint'),
    ('operate', 'preview_filter'),
    ('operate', 'dry_run'),
    ('operate', 'enable_endpoint'),
    ('operate', 'disable_endpoint'),
    ('operate', 'delete_endpoint'),
    ('operate', 'verify_endpoint'),
    ('operate', 'renew_endpoint'),
    ('operate', 'rotate_secret'),
    ('operate', 'confirm_rotation'),
    ('operate', 'revoke_secret'),
    ('operate', 'offboard'),
    ('operate', 'create_policy'),
    ('operate', 'update_policy'),
    ('operate', 'delete_policy'),
    ('operate', 'create_event_type'),
    ('operate', 'update_event_type'),
    ('operate', 'deprecate_event_type'),
    ('operate', 'add_schema'),
    ('operate', 'update_schema'),
    ('operate', 'create_conversion'),
    ('operate', 'delete_conversion'),
    ('operate', 'create_source'),
    ('operate', 'update_source'),
    ('operate', 'create_threshold'),
    ('operate', 'delete_threshold'),
    ('operate', 'replay'),
    ('operate', 'replay_range'),
    ('operate', 'cancel_replay'),
    ('operate', 'retry'),
    ('operate', 'skip'),
    ('operate', 'close'),
    ('operate', 'correct'),
    ('operate', 'pause'),
    ('operate', 'resume'),
    ('operate', 'send_test'),
    ('operate', 'adopt'),
    -- The receiving side. Whoever answers senders reads nothing; handlers get what they process.
    ('receive', 'receive'),
    ('receive handle operate', 'verify'),
    ('receive handle operate', 'explain_signature'),
    ('handle', 'claim_inbox'),
    ('handle', 'finish_inbox'),
    ('read operate', 'inbox'),
    ('read operate', 'inbox_sources'),
    ('read operate', 'inbox_keys'),
    ('read operate', 'inbox_handlers'),
    ('read operate', 'stat_inbox'),
    ('read operate', 'inbox_rejections'),
    ('operate', 'create_inbox_source'),
    ('operate', 'update_inbox_source'),
    ('operate', 'add_inbox_key'),
    ('operate', 'revoke_inbox_key'),
    ('operate', 'create_inbox_handler'),
    ('operate', 'update_inbox_handler'),
    ('operate', 'delete_inbox_handler'),
    ('operate', 'pause_inbox'),
    ('operate', 'resume_inbox'),
    ('operate', 'retry_inbox'),
    ('operate', 'close_inbox'),
    ('operate', 'replay_inbox'),
    ('operate', 'expunge'),
    ('operate', 'confirm_erasure'),
    ('operate', 'reconcile'),
    ('operate', 'create_reconciliation'),
    ('operate', 'delete_reconciliation'),
    -- What was done, and who may do it: for somebody else than those who do it.
    ('audit', 'audit_log'),
    ('audit', 'access_rights'),
    ('payload', 'read_payload'),
    -- A function that stands in a view runs with the rights of whoever reads it, and so do the lists.
    ('read operate partner feed', '_sees_all'),
    ('read operate partner', '_manages'),
    ('read operate partner feed', '_own_partners'),
    ('read operate partner', '_own_endpoints'),
    ('read operate partner feed', '_origin'),
    ('read operate partner', '_event_time'),
    ('read operate partner', '_event_bound'),
    ('read operate partner feed', '_pos_bound'),
    ('read operate partner', '_delivery_id'),
    ('read operate partner', '_parse_delivery_id'),
    ('read operate partner', '_publication'),
    ('read operate partner', '_redact'),
    ('read operate partner feed', '_check_argument'),
    ('read operate partner', '_check_page'),
    ('read operate partner', '_first_day'),
    ('read operate partner', '_seen_endpoint'),
    ('read operate partner', '_seen_match'),
    ('read operate partner', '_try_filters'),
    ('read operate partner', '_filter_fits'),
    ('read operate partner', '_type_matches'),
    ('read operate partner', '_rfc3339'),
    ('read operate partner feed', '_seen_feed'),
    ('read operate partner', '_seen_delivery'),
    ('read operate partner', '_seen_excerpt'),
    ('read operate partner feed', '_seen_event'),
    ('read operate partner feed', '_check_event_types'),
    ('read operate partner feed', '_valid_pattern'),
    ('read operate partner feed', '_rfc3339'),
    ('read operate partner feed', '_make_durable'),
    ('read operate partner feed', '_is_type_among'),
    ('read operate partner feed', '_feed_data'),
    ('read operate partner feed', '_kept_for'),
    ('read operate partner feed', '_feed_floor'),
    ('read operate partner feed', '_known_origin'),
    ('read operate partner feed', '_range_bound'),
    ('read operate partner feed', '_cursor_check'),
    ('read operate partner feed', '_event_tag'),
    ('read operate partner feed', '_cursor'),
    ('read operate partner feed', '_read_cursor'),
    ('read operate partner feed', '_check_feed'),
    ('read operate partner feed', '_check_export'),
    ('read operate partner feed', '_feed_lag'),
    ('read operate partner', '_seen_due'),
    ('read operate', '_schema_fields'),
    ('read operate', '_keys_in_clear'),
    ('read operate', '_unread'),
    ('read operate', '_worker'),
    ('read operate', '_foreign_code'),
    ('audit', '_cluster')
$$;
comment on function webhook._access_list() is 'Which kind of right needs which function and view: the one place that says so.';

create function webhook._access_privileges(
  kinds text[] -- kinds of rights
) returns setof text -- "select on ..." and "execute on function ...", for GRANT and REVOKE
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select format('select on %s', c.oid::regclass)
    from webhook._access_list() as l
    join pg_class as c on c.relname = l.name and c.relkind = 'v' and c.relnamespace = 'webhook'::regnamespace
   where string_to_array(l.kinds, ' ') && _access_privileges.kinds
   union
  select format('execute on function %s', p.oid::regprocedure)
    from webhook._access_list() as l
    join pg_proc as p on p.proname = l.name and p.pronamespace = 'webhook'::regnamespace
   where string_to_array(l.kinds, ' ') && _access_privileges.kinds
$$;
comment on function webhook._access_privileges(text[]) is 'Privileges that kinds of rights need.';

create function webhook._check_access(
  role name,      -- role that gets or loses a right
  kind text,      -- kind of right
  partner_id text -- partner that it is limited to
) returns oid -- of the role
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  role_id oid;
begin
  perform webhook._check_argument('role', role is null);
  perform webhook._check_argument('kind', kind is null);
  if kind not in ('emit', 'read', 'operate', 'partner', 'audit', 'payload', 'receive', 'handle', 'feed') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('kind of right "%s" does not exist', left(kind, 128)),
      hint = 'The kinds are emit, read, operate, partner, audit, payload, receive, handle and feed.';
  end if;
  if kind in ('partner', 'feed') then
    perform webhook._check_argument('partner_id', partner_id is null);
  elsif kind not in ('emit', 'payload') and partner_id is not null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('kind "%s" cannot be limited to a partner', kind),
      hint = 'Use the kind "partner" for a role that sees one partner.';
  end if;
  select r.oid
    into role_id
    from pg_roles as r
   where r.rolname = role;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('role "%s" does not exist', role);
  end if;
  return role_id;
end
$$;
comment on function webhook._check_access(name, text, text) is 'Refuses a right that cannot be given to a role.';

create function webhook._lock_access()
returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  -- Sessions that grant at once would both change the same rows of the catalogue, and one would fail.
  lock table webhook._access in share row exclusive mode;
  -- Rights that a dump brought from another cluster are those of the roles of the same names, unless they were
  -- granted here as well.
  delete from webhook._access a
   using webhook._access own, pg_roles r
   where a.cluster <> webhook._cluster()
     and own.cluster = webhook._cluster()
     and r.rolname = a.role_name
     and own.role_id = r.oid
     and own.kind = a.kind
     and own.partner_id is not distinct from a.partner_id;
  update webhook._access a
     set cluster = webhook._cluster(),
         role_id = r.oid
    from pg_roles r
   where a.cluster <> webhook._cluster()
     and r.rolname = a.role_name;
  -- A dump knows roles by their names only.
  update webhook._access a
     set role_name = r.rolname
    from pg_roles r
   where a.cluster = webhook._cluster()
     and r.oid = a.role_id
     and r.rolname <> a.role_name;
end
$$;
comment on function webhook._lock_access() is 'Lets one session at a time change rights, and makes restored rights those of this cluster.';

create function webhook.grant_access(
  role name,                            -- role that gets the right; its members have it, too
  kind text,                            -- emit, read, operate, partner, audit, payload, receive, handle or feed
  partner_id text default null,         -- of emit, partner, payload and feed: this partner only
  event_types text[] default null,      -- of emit and payload: these event types and wildcards only
  valid_until timestamptz default null  -- of payload: end of the right; null = in an hour
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: grants privileges of the owner.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  grantee oid;
  former record;
  privilege text;
begin
  perform webhook._check_writable('grant a right');
  grantee := webhook._check_access(role, kind, partner_id);
  if partner_id is not null then
    perform webhook._check_partner(partner_id);
  end if;
  if event_types is not null then
    if kind not in ('emit', 'payload') then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('kind "%s" cannot be limited to event types', kind);
    end if;
    event_types := webhook._check_event_types(event_types);
  end if;
  if kind = 'payload' then
    valid_until := coalesce(valid_until, clock_timestamp() + interval '1 hour');
    if not (valid_until > clock_timestamp() and valid_until <= clock_timestamp() + interval '7 days') then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = 'valid_until is outside the valid range',
        detail = 'A right to read payloads ends within 7 days.',
        hint = 'Leave it out for one hour.';
    end if;
  elsif valid_until is not null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('kind "%s" has no end', kind),
      hint = 'Only a right to read payloads is limited in time; take others back with webhook.revoke_access.';
  end if;
  perform webhook._lock_access();
  -- A role that sees everything is no partner's: the wider right wins, and somebody would believe otherwise.
  if kind in ('partner', 'feed')
     and (exists (select from pg_roles as r where r.oid = grantee and r.rolsuper)
          or pg_has_role(grantee, 'pg_monitor', 'usage')
          or exists (select from webhook._access a
                      where a.kind in ('read', 'operate')
                        and a.cluster = webhook._cluster()
                        and exists (select from pg_roles as r where r.oid = a.role_id)
                        and pg_has_role(grantee, a.role_id, 'usage')))
  then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('role "%s" sees every partner', role),
      hint = 'Use a role of its own for each partner.';
  end if;
  if kind in ('read', 'operate')
     and exists (select from webhook._access a
                  where a.kind in ('partner', 'feed')
                    and a.cluster = webhook._cluster()
                    and a.role_id = grantee)
  then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('role "%s" is a partner''s', role),
      hint = 'Use another role, or take the kinds "partner" and "feed" back first.';
  end if;
  -- What one of the two shows, the other would show of its partner as well.
  if kind in ('partner', 'feed')
     and exists (select from webhook._access a
                  where a.kind in ('partner', 'feed')
                    and a.kind <> grant_access.kind
                    and a.partner_id <> grant_access.partner_id
                    and a.cluster = webhook._cluster()
                    and a.role_id = grantee)
  then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('role "%s" is another partner''s', role),
      hint = 'Use a role of its own for each partner.';
  end if;

  delete from webhook._access a
   where a.role_id = grantee
     and a.cluster = webhook._cluster()
     and a.kind = grant_access.kind
     and a.partner_id is not distinct from grant_access.partner_id
  returning a.event_types, a.valid_until
       into former;
  insert into webhook._access as a (cluster, role_id, role_name, kind, partner_id, event_types, valid_until)
  values (webhook._cluster(), grantee, role, grant_access.kind, grant_access.partner_id, grant_access.event_types,
          grant_access.valid_until);
  execute format('grant usage on schema webhook to %I', role);
  for privilege in
    select p from webhook._access_privileges(array[kind]) as p
  loop
    execute format('grant %s to %I', privilege, role);
  end loop;
  perform webhook._log(
    'grant_access', 'role', role::text, partner_id,
    before => jsonb_strip_nulls(jsonb_build_object('event_types', former.event_types, 'valid_until', webhook._rfc3339(former.valid_until))),
    after => jsonb_strip_nulls(jsonb_build_object(
      'kind', kind, 'event_types', event_types, 'valid_until', webhook._rfc3339(valid_until))));
end
$$;
comment on function webhook.grant_access(name, text, text, text[], timestamptz) is
  'Gives a role what a kind of right needs: emit, read, operate, partner, audit, payload, receive, handle, feed. Rights of one role add up; granting the same kind for the same partner again replaces its limits.';

create function webhook._take_access(
  role_id oid,    -- role that loses a right
  kind text,      -- kind of right
  partner_id text -- partner that it is limited to; null = that for all of them
) returns boolean -- whether there was such a right
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  role constant name := (select r.rolname from pg_roles as r where r.oid = _take_access.role_id);
  remaining text[];
  privilege text;
begin
  delete from webhook._access a
   where a.role_id = _take_access.role_id
     and a.cluster = webhook._cluster()
     and a.kind = _take_access.kind
     and a.partner_id is not distinct from _take_access.partner_id;
  if not found then
    return false;
  end if;
  select coalesce(array_agg(distinct a.kind::text), '{}')
    into remaining
    from webhook._access a
   where a.role_id = _take_access.role_id
     and a.cluster = webhook._cluster();
  -- A role that was dropped left its privileges behind.
  if role is null then
    return true;
  end if;
  for privilege in
    select p from webhook._access_privileges(array[_take_access.kind]) as p
    except
    select p from webhook._access_privileges(remaining) as p
  loop
    execute format('revoke %s from %I', privilege, role);
  end loop;
  if remaining = '{}' then
    execute format('revoke usage on schema webhook from %I', role);
  end if;
  return true;
end
$$;
comment on function webhook._take_access(oid, text, text) is 'Takes a right and the privileges that no other right of the role needs.';

create function webhook.revoke_access(
  role name,                    -- role that loses the right
  kind text,                    -- emit, read, operate, partner, audit, payload, receive, handle or feed
  partner_id text default null  -- the partner that it was limited to; null = the right for all of them
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: revokes privileges of the owner.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  grantee oid;
begin
  perform webhook._check_writable('revoke a right');
  grantee := webhook._check_access(role, kind, partner_id);
  perform webhook._lock_access();
  if not webhook._take_access(grantee, kind, partner_id) then
    raise exception using
      errcode = 'undefined_object',
      message = format('role "%s" has no right of kind "%s"', role, kind),
      detail = case when partner_id is null
        then 'A right that is limited to a partner is revoked by naming the partner.'
        else format('None that is limited to partner "%s".', partner_id)
      end,
      hint = 'See webhook.access_rights.';
  end if;
  perform webhook._log('revoke_access', 'role', role::text, partner_id, before => jsonb_build_object('kind', kind));
end
$$;
comment on function webhook.revoke_access(name, text, text) is
  'Takes a right from a role, with the privileges that none of its other rights needs. Sessions under way lose it at their next statement.';

create function webhook._end_access(
  partner_id text -- a partner that leaves
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  lost record;
begin
  perform webhook._lock_access();
  for lost in
    select a.role_id, a.role_name, a.kind
      from webhook._access a
     where a.partner_id = _end_access.partner_id
       and a.cluster = webhook._cluster()
     order by a.role_id, a.kind
  loop
    perform webhook._take_access(lost.role_id, lost.kind, _end_access.partner_id);
  end loop;
end
$$;
comment on function webhook._end_access(text) is 'Takes every right that is limited to a partner: offboard does.';

-- SECURITY INVOKER: it judges current_user; the look-up alone runs as the owner.
create function webhook.read_payload(
  event_id text, -- the event
  reason text    -- why it is read; kept in the audit log
) returns text -- "data" of the event, byte for byte as it is sent
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'read_payload_wrapper';
comment on function webhook.read_payload(text, text) is
  'Payload of one event, for a role with a right of kind payload that is in force. Every call is in the audit log and, even when it is rolled back, in the server log.';
-- Taking over the events and endpoints that came with a copy of another database. Endpoints change hands here, in
-- the caller's transaction; what they are owed is the leader's work, at its own pace.

create function webhook.adopt(
  origin bigint, -- the other database, see stat_fenced
  mode text,     -- send = what was still to be sent is sent from here; skip = only new events are
  reason text    -- why
) returns bigint -- request_id, see the views requests and adoptions
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  own constant bigint := webhook._origin();
  -- One snapshot for all of it: it divides own events into those that the leader's scan gives to the endpoints
  -- and those that its window does.
  taken_in constant pg_snapshot := pg_current_snapshot();
  request bigint;
  running record;
  taken integer;
begin
  perform webhook._check_writable('adopt an origin');
  perform webhook._check_argument('origin', origin is null);
  perform webhook._check_argument('mode', mode is null);
  reason := webhook._check_reason(reason);
  if mode not in ('send', 'skip') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('mode "%s" is not valid', left(mode, 64)),
      detail = 'A mode is "send" (what was still to be sent is sent from here) or "skip" (only new events are).';
  end if;
  if origin = own then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('origin %s is this database itself', origin),
      hint = 'The view stat_fenced shows the origins that can be adopted.';
  end if;
  if not exists (select from webhook._seal_key k where k.origin = adopt.origin)
     and not exists (select from webhook._endpoint e where e.origin = adopt.origin) then
    raise exception using
      errcode = 'undefined_object',
      message = format('origin %s does not exist', origin),
      hint = 'The view stat_fenced shows the origins that can be adopted.';
  end if;
  -- One after the other: the second of two that adopt at once sees what the first one did.
  lock table webhook._adoption in share row exclusive mode;
  select a.request_id, a.mode
    into running
    from webhook._adoption a
    left join webhook._adoption_progress p on p.request_id = a.request_id
   where a.origin = adopt.origin
     and a.adopter = own
     and p.state is distinct from 'done'
   limit 1;
  if found then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('origin %s is being adopted already', origin),
      detail = format('Request %s with mode "%s" is not finished.', running.request_id, running.mode),
      hint = 'The view adoptions shows how far it has come. It can be adopted again afterwards, which concerns what came here since.';
  end if;

  -- Since when each endpoint is there, by the transactions of the database that it comes from.
  insert into webhook._adopted_endpoint as m (endpoint_id, origin, created_xid, created_snapshot)
  select e.endpoint_id, e.origin, e.created_xid, e.created_snapshot
    from webhook._endpoint e
   where e.origin = adopt.origin
  on conflict on constraint _adopted_endpoint_pkey do nothing;
  -- What the leader found out holds on as the user's word: a disabled endpoint stays disabled. How it fared is
  -- void: it is another network that requests leave from.
  update webhook._endpoint e
     set origin = own,
         state = f.state,
         state_reason = f.state_reason,
         state_changed_at = f.state_changed_at,
         generation = e.generation + 1,
         -- Challenges that another network sent, or did not send, are nobody's fault here: the time to prove begins anew.
         proof_generation = e.proof_generation + case when e.proof_asked_at is null then 0 else 1 end,
         proof_asked_at = case when e.proof_asked_at is not null then clock_timestamp() end,
         created_xid = pg_current_xact_id(),
         created_snapshot = taken_in,
         changed_xid = pg_current_xact_id()
    from webhook._effective_endpoint f
   where f.endpoint_id = e.endpoint_id
     and e.origin = adopt.origin;
  get diagnostics taken = row_count;
  -- What their filters were in the other database's past, none of its transactions can tell here.
  update webhook._filter f
     set created_xid = pg_current_xact_id()
    from webhook._endpoint e
   where e.endpoint_id = f.endpoint_id
     and e.created_xid = pg_current_xact_id();
  -- Policies, pauses and priorities came with the copy as well. A leader that ran already while they were restored has
  -- not seen them: their transactions are those of the other database.
  update webhook._policy set changed_xid = pg_current_xact_id();
  update webhook._pause set changed_xid = pg_current_xact_id();
  update webhook._event_type set changed_xid = pg_current_xact_id();

  request := webhook._ask(
    'adopt', 'origin', origin::text,
    target => origin::text,
    reason => reason,
    after => jsonb_build_object('mode', mode, 'endpoints', taken));
  insert into webhook._adoption (request_id, origin, adopter, mode, reason, endpoints, snapshot)
  values (request, adopt.origin, own, adopt.mode, adopt.reason, taken, taken_in);
  return request;
end
$$;
comment on function webhook.adopt(bigint, text, text) is
  'Takes over the events and endpoints of another database, of which this one is a copy. With "send" the leader sends what was still to be sent there, and what the endpoints missed here; with "skip" only new events are sent. Returns the request.';
-- What would be sent of an event, to whom: by the code that sends.

create function webhook._dry_run(
  type text,                    -- as for emit, like all that follow
  partner_id text,
  data text,
  subject_type text,
  subject_id text,
  subject_version bigint,
  source text,
  scope text,
  occurred_at timestamptz,
  schema_version text,
  correlation_id text,
  causation text,
  traceparent text,
  test boolean,
  out endpoint_id bigint,       -- an endpoint of the partner
  out matched boolean,          -- whether it would get the event; null = it would be held
  out reason text,              -- why not, or why later
  out url text,                 -- where to
  out headers text,             -- JSON object in the order of the wire
  out body text                 -- what would be sent
) returns setof record
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'dry_run_wrapper';
comment on function webhook._dry_run(text, text, text, text, text, bigint, text, text, timestamptz, text, text, text, text, boolean) is
  'What dry_run answers.';

create function webhook.dry_run(
  type text,                             -- event type, object.change
  partner_id text,                       -- tenant that the event would belong to
  data jsonb,                            -- payload
  subject_type text default null,        -- kind of the object that changed
  subject_id text default null,          -- identity of the object that changed
  subject_version bigint default null,   -- its version after the change
  source text default null,              -- producer of the event
  scope text default null,               -- authorisation scope
  occurred_at timestamptz default null,  -- when the business change happened; null = now
  schema_version text default null,      -- version of the payload's schema
  correlation_id text default null,      -- ties the event to the operation that caused it
  causation text default null,           -- event id of the parent event
  traceparent text default null,         -- W3C trace context of the operation
  idempotency_key text default null,     -- looked at by nobody: a dry run uses up no key
  test boolean default false             -- true: would go to test endpoints only
) returns table (
  endpoint_id bigint, -- an endpoint of the partner
  matched boolean,    -- whether it would get the event; null = the delivery would be held
  reason text,        -- why not, or what it would wait for; null = it would be sent at once
  url text,           -- callback URL; null when nothing would be sent
  headers json,       -- headers of the first attempt in the order of the wire, the signature included
  body text           -- body of the first attempt
)
language sql volatile parallel unsafe
-- SECURITY DEFINER: signs with the endpoints' keys. The signatures are valid: EXECUTE belongs to those who may have
-- anything signed by an event of their own making.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select d.endpoint_id, d.matched, d.reason, d.url, d.headers::json, d.body
    from webhook._dry_run(type, partner_id, data::text, subject_type, subject_id, subject_version, source, scope, occurred_at,
                          schema_version, correlation_id, causation, traceparent, test) as d
$$;
comment on function webhook.dry_run(text, text, jsonb, text, text, bigint, text, text, timestamptz, text, text, text, text, text, boolean) is
  'Shows which endpoints would get an event that emit would accept, and the exact requests. Sends nothing, writes nothing. The signatures are valid: keep the result as you would keep the endpoints'' secrets.';
-- Erasing payloads: what somebody has the right to have deleted. All of it happens in the caller's transaction; the
-- event stays as ids, digest and seal, and so does the evidence that it was delivered.

create function webhook.expunge(
  reason text,                      -- why; kept with the tombstones and in the audit log
  event_id text default null,       -- this event
  partner_id text default null,     -- every event of this partner; with a subject: those about it
  subject_type text default null,   -- kind of the subject whose events are meant
  subject_id text default null      -- its identity
) returns bigint -- erasure_id
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  id constant bigint := webhook._new_id();
  scope text;
  piece_ids text[];
  one record;
  counts jsonb := '{}';
  n bigint;
begin
  perform webhook._check_writable('erase payloads');
  reason := webhook._check_reason(reason);
  scope := case
    when event_id is not null and partner_id is null and subject_type is null and subject_id is null then 'event'
    when event_id is null and subject_type is not null and subject_id is not null then 'subject'
    when event_id is null and partner_id is not null and subject_type is null and subject_id is null then 'partner'
  end;
  if scope is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'it is not clear what is to be erased',
      hint = 'Name an event_id, or a subject_type and a subject_id, with a partner_id or without, or a partner_id alone.';
  end if;
  if partner_id is not null then
    perform webhook._check_partner(partner_id);
  end if;
  if scope = 'event' and not exists (select from webhook._event e where e.event_id = expunge.event_id) then
    raise exception using
      errcode = 'undefined_object',
      message = format('event "%s" does not exist', left(event_id, 128));
  end if;
  insert into webhook._erasure (erasure_id, scope, event_id, partner_id, subject_type, subject_id, reason)
  values (id, scope, expunge.event_id, expunge.partner_id, expunge.subject_type, expunge.subject_id, expunge.reason);
  for piece_ids in execute
    'select array_agg(t.event_id)
       from (select e.event_id, (row_number() over (order by e.event_id) - 1) / 5000 as piece
               from webhook._event as e
              where ' || webhook._erasure_condition(scope, partner_id is not null) || ') as t
      group by t.piece'
    using event_id, partner_id, subject_type, subject_id
  loop
    for one in
      select b.key, b.value from jsonb_each_text(webhook._bury(piece_ids, id, reason)) as b
    loop
      counts := counts || jsonb_build_object(one.key, coalesce((counts ->> one.key)::bigint, 0) + one.value::bigint);
    end loop;
  end loop;
  -- The last values of a subject's metrics came from somewhere else, and are told of nobody but it.
  if scope <> 'event' then
    counts := counts || jsonb_build_object('received', coalesce((counts ->> 'received')::bigint, 0)
      + webhook._expunge_received(webhook._received_of(partner_id, subject_type, subject_id)));
    delete from webhook._observation o
     where (scope = 'partner' or (o.subject_type = expunge.subject_type and o.subject_id = expunge.subject_id))
       and (expunge.partner_id is null or o.partner_id = expunge.partner_id);
    get diagnostics n = row_count;
    counts := counts || jsonb_build_object('observations', n);
  end if;
  update webhook._erasure r
     set erased = counts
   where r.erasure_id = id;
  perform webhook._log(
    'expunge', case scope when 'subject' then 'subject' else scope end,
    case scope when 'event' then event_id when 'partner' then partner_id else format('%s:%s', subject_type, subject_id) end,
    coalesce(partner_id, (select e.partner_id from webhook._event e where e.event_id = expunge.event_id)),
    after => jsonb_build_object('erasure_id', id::text) || counts,
    reason => reason);
  -- Whatever the leader holds of it is read again before anything else is sent.
  perform webhook._note_expunged();
  return id;
end
$$;
comment on function webhook.expunge(text, text, text, text, text) is
  'Erases the payloads of an event, a subject or a partner, with every copy, in the caller''s transaction; ids, digests and evidence stay. What is still to be delivered is cancelled; a deletion event leaves as ids only.';

create function webhook.confirm_erasure(
  erasure_id bigint -- as expunge returned it
) returns table (
  item text,        -- what was looked for
  erased bigint,    -- how much of it went with the erasure; null = it is not counted then
  remaining bigint  -- how much is left
)
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: as expunge.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
declare
  erasure webhook._erasure;
  counted jsonb := webhook._count_copies('{}');
  piece_ids text[];
  one record;
  n bigint;
begin
  perform webhook._check_writable('confirm an erasure');
  perform webhook._check_argument('erasure_id', confirm_erasure.erasure_id is null);
  select r.*
    into erasure
    from webhook._erasure r
   where r.erasure_id = confirm_erasure.erasure_id
     for update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('erasure %s does not exist', confirm_erasure.erasure_id),
      hint = 'See webhook.erasures.';
  end if;
  -- Also what was emitted before and committed after: it was not visible to the erasure.
  execute
    'select count(*) filter (where e.body is not null)
       from webhook._event as e
      where ' || webhook._erasure_condition(erasure.scope, erasure.partner_id is not null) || '
        and e.event_id < webhook._event_bound($5)'
     into n
    using erasure.event_id, erasure.partner_id, erasure.subject_type, erasure.subject_id, erasure.at;
  counted := counted || jsonb_build_object('payloads', n);
  for piece_ids in
    select array_agg(p.event_id)
      from (select t.event_id, (row_number() over (order by t.event_id) - 1) / 5000 as piece
              from webhook._tombstone t
             where t.erasure_id = confirm_erasure.erasure_id) as p
     group by p.piece
  loop
    for one in
      select c.key, c.value from jsonb_each_text(webhook._count_copies(piece_ids)) as c
    loop
      counted := counted || jsonb_build_object(one.key, coalesce((counted ->> one.key)::bigint, 0) + one.value::bigint);
    end loop;
  end loop;
  if erasure.scope <> 'event' then
    -- What came since is another matter.
    select count(*)
      into n
      from webhook._inbox i
     where i.inbox_id = any (webhook._received_of(erasure.partner_id, erasure.subject_type, erasure.subject_id))
       and i.received_at < erasure.at;
    counted := counted || jsonb_build_object('received', coalesce((counted ->> 'received')::bigint, 0) + n);
    select count(*)
      into n
      from webhook._observation o
     where (erasure.scope = 'partner' or (o.subject_type = erasure.subject_type and o.subject_id = erasure.subject_id))
       and (erasure.partner_id is null or o.partner_id = erasure.partner_id)
       and o.observed_at < erasure.at;
    counted := counted || jsonb_build_object('observations', n);
  end if;
  -- The leader has looked for answers that arrived while the erasure was not committed.
  select count(*)
    into n
    from webhook._tombstone t
   where t.erasure_id = confirm_erasure.erasure_id
     and not t.swept;
  counted := counted || jsonb_build_object('unswept', n);

  if erasure.confirmed_at is null
     and not exists (select from jsonb_each_text(counted) as c where c.value::bigint > 0)
  then
    update webhook._erasure r
       set confirmed_at = clock_timestamp(),
           confirmed_by = session_user,
           evidence = counted
     where r.erasure_id = confirm_erasure.erasure_id;
  end if;
  perform webhook._log(
    'confirm_erasure', 'erasure', confirm_erasure.erasure_id::text, erasure.partner_id,
    after => counted);
  return query
    select c.key, (erasure.erased ->> c.key)::bigint, c.value::bigint
      from jsonb_each_text(counted) as c
     order by c.key;
end
$$;
comment on function webhook.confirm_erasure(bigint) is
  'Looks again for what an erasure was to erase, and keeps the first result that finds nothing as evidence. "unswept" are events whose late answers the leader has still to look for.';
-- Asking for many attempts at once: everything of a time range, or what failed of it, or what is missing. One request; the
-- leader walks the feed at a bounded rate, beside live traffic.

create function webhook._check_replay(
  partner_id text,     -- tenant, null = that of the endpoint, or all
  endpoint_id bigint,  -- endpoint, null = all
  since timestamptz,   -- beginning of the range
  until timestamptz,   -- its end
  types text[],        -- event types and wildcards
  test boolean,        -- test events, or live ones
  which text,      -- all, failed or missing
  rate integer         -- deliveries per second
) returns text -- partner_id
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._effective_endpoint;
  kept constant interval := webhook._kept_for('webhook.delivery_retention', '60 days');
begin
  perform webhook._check_argument('since', since is null);
  perform webhook._check_argument('until', until is null);
  perform webhook._check_argument('test', test is null);
  perform webhook._check_argument('which', which is null);
  perform webhook._check_argument('rate', rate is null);
  if since >= until then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'the range is empty',
      detail = '"since" must be earlier than "until".';
  end if;
  if which not in ('all', 'failed', 'missing') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('"%s" is not valid for "which"', left(which, 64)),
      detail = 'It is "all" (every delivery, and what is missing), "failed" (what is dead or cancelled) or "missing" (what was never made).';
  end if;
  if rate not between 1 and 10000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'rate is outside the valid range',
      detail = format('It is %s; the range is 1 to 10000 deliveries per second.', rate);
  end if;
  if types is not null then
    perform webhook._check_event_types(types);
  end if;
  -- Beyond it nobody can tell what was delivered from what was not.
  if since < clock_timestamp() - kept then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = 'the range begins before what is kept of deliveries',
      detail = format('Deliveries are kept for %s: from %s on.', kept, webhook._rfc3339(clock_timestamp() - kept)),
      hint = 'Older events, as far as they are kept, are read with webhook.export_events.';
  end if;
  if endpoint_id is not null then
    select e.*
      into endpoint
      from webhook._effective_endpoint e
     where e.endpoint_id = _check_replay.endpoint_id
       and (_check_replay.partner_id is null or e.partner_id = _check_replay.partner_id);
    if not found then
      raise exception using
        errcode = 'undefined_object',
        message = format('endpoint %s does not exist', endpoint_id);
    end if;
    if endpoint.origin <> webhook._origin() then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = format('endpoint %s is inert', endpoint_id),
        detail = 'It was made in another database, of which this one is a copy.';
    end if;
    if endpoint.state not in ('active', 'paused', 'unverified') then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = format('endpoint %s is %s', endpoint_id, endpoint.state),
        detail = coalesce(endpoint.state_reason, 'It gets no deliveries in this state.');
    end if;
    if endpoint.test <> test then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = case when test
          then format('cannot send test events to endpoint %s', endpoint_id)
          else format('cannot send live events to endpoint %s', endpoint_id)
        end,
        detail = case when test then 'It is not a test endpoint.' else 'It is a test endpoint.' end;
    end if;
    return endpoint.partner_id;
  end if;
  if partner_id is not null
     and not exists (select from webhook._endpoint e where e.partner_id = _check_replay.partner_id)
  then
    raise exception using
      errcode = 'undefined_object',
      message = format('partner "%s" has no endpoint', left(partner_id, 128));
  end if;
  return partner_id;
end
$$;
comment on function webhook._check_replay(text, bigint, timestamptz, timestamptz, text[], boolean, text, integer) is
  'Refuses a replay of a range that cannot be carried out; returns the tenant that it is about.';

create function webhook.replay_range(
  inout partner_id text,                -- tenant; null = that of the endpoint, or every one
  since timestamptz,                    -- events published at this time or later
  until timestamptz,                    -- events published before this time
  reason text,                          -- why
  types text[] default null,            -- event types and wildcards; null = all
  inout endpoint_id bigint default null, -- this endpoint alone; null = every one
  which text default 'all',             -- all, failed (dead or cancelled) or missing (never made)
  test boolean default false,           -- test events, or live ones
  rate integer default 100,             -- deliveries per second at most, 1 to 10000
  dry_run boolean default false,        -- count what it would do, and do nothing
  out request_id bigint,                -- the request, see the view replays; null of a dry run
  out events bigint,                    -- events of the range; null = more than 20000
  out deliveries bigint,                -- of a dry run: deliveries of this endpoint
  out complete boolean                  -- of a dry run: false = counting stopped at 20000 events
) returns setof record
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  most constant integer := 20000;
  whose text;
  pos_from bigint;
  pos_to bigint;
  walked integer;
  found_ids text[];
  found_types text[];
  found_partners text[];
begin
  perform webhook._check_argument('dry_run', dry_run is null);
  if not dry_run then
    perform webhook._check_writable('replay a range');
  end if;
  reason := webhook._check_reason(reason);
  whose := webhook._check_replay(partner_id, endpoint_id, since, until, types, test, which, rate);
  -- What is published from now on reaches its endpoints by itself.
  until := least(until, clock_timestamp());
  pos_from := webhook._range_bound(since, 0);
  pos_to := webhook._range_bound(until, 0);
  select count(*),
         array_agg(w.event_id) filter (where w.meant),
         array_agg(w.type) filter (where w.meant),
         array_agg(w.partner_id) filter (where w.meant)
    into walked, found_ids, found_types, found_partners
    from (select f.event_id,
                 f.type,
                 f.partner_id,
                 f.test = replay_range.test and (types is null or webhook._is_type_among(f.type, types)) as meant
            from webhook._feed f
           where (whose is null or f.partner_id = whose)
             and f.pos >= pos_from
             and f.pos < pos_to
           limit most + 1) as w;
  complete := walked <= most;
  if complete then
    events := cardinality(coalesce(found_ids, '{}'));
  end if;

  if dry_run then
    return query
    select p.partner_id::text,
           p.endpoint_id,
           null::bigint,
           replay_range.events,
           count(*),
           replay_range.complete
      from unnest(found_ids, found_types, found_partners) as w (event_id, type, partner_id)
      join webhook._effective_endpoint p
        on p.partner_id = w.partner_id
       and p.origin = webhook._origin()
       and p.state in ('active', 'paused', 'unverified')
       and p.test = replay_range.test
       and (replay_range.endpoint_id is null or p.endpoint_id = replay_range.endpoint_id)
      join webhook._endpoint s
        on s.endpoint_id = p.endpoint_id
       and webhook._is_type_among(w.type, s.event_types)
      left join webhook._delivery d on d.event_id = w.event_id and d.endpoint_id = p.endpoint_id
     where case which
             when 'missing' then d.state is null
             when 'failed' then d.state in ('dead', 'cancelled')
             else d.state is null or d.state not in ('pending', 'retrying')
           end
     group by p.partner_id, p.endpoint_id
     order by p.partner_id, p.endpoint_id;
    return;
  end if;

  request_id := webhook._ask(
    'replay_range',
    case when endpoint_id is not null then 'endpoint' when whose is not null then 'partner' else 'all' end,
    coalesce(endpoint_id::text, whose),
    whose,
    endpoint_id => endpoint_id,
    reason => reason,
    after => jsonb_strip_nulls(jsonb_build_object(
      'since', webhook._rfc3339(since), 'until', webhook._rfc3339(until), 'types', types, 'test', test, 'which', which, 'rate', rate, 'events', events)));
  insert into webhook._replay
    (request_id, origin, partner_id, endpoint_id, since, until, pos_from, pos_to, event_types, test, which, rate, estimate, reason)
  values
    (replay_range.request_id, webhook._origin(), whose, replay_range.endpoint_id, replay_range.since, replay_range.until, pos_from, pos_to,
     types, replay_range.test, which, replay_range.rate, events, replay_range.reason);
  partner_id := whose;
  deliveries := null;
  complete := null;
  return next;
end
$$;
comment on function webhook.replay_range(text, timestamptz, timestamptz, text, text[], bigint, text, boolean, integer, boolean) is
  'Asks for new attempts of everything, of what failed, or of what is missing in a time range, at a bounded rate beside live traffic. Returns the request; of a dry run, what each endpoint would get.';

create function webhook.cancel_replay(
  request_id bigint, -- what replay_range returned
  reason text        -- why
) returns bigint -- request_id of the cancellation
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  replay record;
begin
  perform webhook._check_writable('cancel a replay');
  perform webhook._check_argument('request_id', request_id is null);
  reason := webhook._check_reason(reason);
  select r.partner_id, r.origin, p.state
    into replay
    from webhook._replay r
    left join webhook._replay_progress p on p.request_id = r.request_id
   where r.request_id = cancel_replay.request_id;
  if not found or replay.origin <> webhook._origin() then
    raise exception using
      errcode = 'undefined_object',
      message = format('replay %s does not exist', request_id),
      hint = 'The view replays shows those of this database.';
  end if;
  if replay.state in ('done', 'cancelled') then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('replay %s is %s', request_id, replay.state);
  end if;
  return webhook._ask(
    'cancel_replay', 'all', request_id::text, replay.partner_id,
    target => request_id::text,
    reason => reason);
end
$$;
comment on function webhook.cancel_replay(bigint, text) is
  'Ends a replay of a range: no more deliveries are made. Those made already stay; skip takes them back.';
-- Verifying what others sent. Neither function touches a table, and whatever a sender wrote is judged, never an error.

create function webhook.verify(
  profile text,                                  -- signature profile of the sender
  keys text[],                                   -- the receiver's keys; one that fits is enough
  headers jsonb,                                 -- headers of the request: {"name": "value"} or {"name": ["value", ...]}
  body bytea,                                    -- its body, as it came
  tolerance interval default '5 minutes',        -- how far the time of signing may be from the clock, in both directions
  method text default 'POST',                    -- its method; of RFC 9421
  url text default null,                         -- absolute URL that it was sent to; of RFC 9421, when a signature covers it
  at timestamptz default null                    -- the time to go by; null = now
) returns boolean -- whether one of the keys signed exactly this
language c volatile parallel safe
as 'MODULE_PATHNAME', 'verify_wrapper';
comment on function webhook.verify(text, text[], jsonb, bytea, interval, text, text, timestamptz) is
  'Whether a request was signed with one of the keys: Standard Webhooks (v1, v1a), RFC 9421 with RFC 9530, GitHub, Stripe, Slack, Shopify. False for whatever does not verify.';

create function webhook.explain_signature(
  profile text,                                  -- as for verify, like all of them
  keys text[],
  headers jsonb,
  body bytea,
  tolerance interval default '5 minutes',
  method text default 'POST',
  url text default null,
  at timestamptz default null
) returns text -- valid, or why not
language c volatile parallel safe
as 'MODULE_PATHNAME', 'explain_signature_wrapper';
comment on function webhook.explain_signature(text, text[], jsonb, bytea, interval, text, text, timestamptz) is
  'What verify finds, in a word: valid, missing_header, repeated_header, bad_timestamp, too_old, too_new, no_match, malformed_signature, invalid_component, not_covered or digest_mismatch. For operators: it is not told to senders.';
-- Handlers: what processes received events, its versions and its pauses. SECURITY DEFINER: EXECUTE is the whole right.

create function webhook.create_inbox_handler(
  name text,                                                   -- name, as claim_inbox is given it
  version text default '1',                                    -- version of its code; an event is processed once by each
  event_types text[] default '{*}',                            -- event types and wildcards that it wants
  sources text[] default null,                                 -- inbox sources that it wants events of; null = all
  retry_schedule text default '5s,1m,10m,1h,6h,1d',            -- waits between attempts
  subject_versions boolean default true,                       -- whether an event about an older version of its subject is stale
  description text default null                                -- what it does
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_writable('create an inbox handler');
  perform webhook._check_inbox_name('name', name);
  perform webhook._check_inbox_name('version', version);
  event_types := webhook._check_event_types(event_types);
  perform webhook._check_argument('retry_schedule', retry_schedule is null);
  perform webhook._check_argument('subject_versions', subject_versions is null);
  perform webhook._check_schedule(retry_schedule);
  perform webhook._check_inbox_sources(sources);
  description := webhook._check_text('description', description, 4000);
  insert into webhook._inbox_handler (name, origin, version, event_types, sources, retry_schedule, subject_versions, description)
  values (create_inbox_handler.name, webhook._origin(), create_inbox_handler.version, create_inbox_handler.event_types, create_inbox_handler.sources,
          create_inbox_handler.retry_schedule, create_inbox_handler.subject_versions, create_inbox_handler.description)
  on conflict on constraint _inbox_handler_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('inbox handler "%s" already exists', name),
      hint = 'Use webhook.update_inbox_handler.';
  end if;
  perform webhook._log('create_inbox_handler', 'inbox_handler', name, after => (
    select jsonb_strip_nulls(webhook._inbox_handler_facts(h))
      from webhook._inbox_handler h
     where h.name = create_inbox_handler.name));
end
$$;
comment on function webhook.create_inbox_handler(text, text, text[], text[], text, boolean, text) is
  'Registers what processes received events. It gets those that are received from now on; earlier ones with replay_inbox.';

create function webhook._check_inbox_sources(
  sources text[] -- names of inbox sources
) returns void
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  missing text;
begin
  select u.name
    into missing
    from unnest(sources) as u (name)
   where not exists (select from webhook._inbox_source s where s.name = u.name)
   limit 1;
  if found then
    raise exception using
      errcode = 'undefined_object',
      message = format('inbox source "%s" does not exist', left(missing, 128)),
      hint = 'See webhook.inbox_sources.';
  end if;
end
$$;
comment on function webhook._check_inbox_sources(text[]) is 'Refuses inbox sources that do not exist.';

create function webhook._inbox_handler_facts(
  handler webhook._inbox_handler -- a handler
) returns jsonb -- what of it can be changed
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_jsonb(handler) - '{name,origin,created_at,changed_at,paused_by}'::text[]
$$;
comment on function webhook._inbox_handler_facts(webhook._inbox_handler) is 'What the audit log compares of a handler.';

create function webhook.update_inbox_handler(
  name text,                              -- the handler
  version text default null,              -- null = keep, like all that follow
  event_types text[] default null,
  sources text[] default null,            -- '{}' removes the limit
  retry_schedule text default null,
  subject_versions boolean default null,
  description text default null           -- '' removes it
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._inbox_handler;
  latter webhook._inbox_handler;
begin
  perform webhook._check_writable('change an inbox handler');
  former := webhook._inbox_handler_named(name);
  latter := former;
  if version is not null then
    perform webhook._check_inbox_name('version', version);
    latter.version := version;
  end if;
  if event_types is not null then
    latter.event_types := webhook._check_event_types(event_types);
  end if;
  perform webhook._check_inbox_sources(sources);
  latter.sources := nullif(coalesce(sources, former.sources), '{}');
  if retry_schedule is not null then
    perform webhook._check_schedule(retry_schedule);
    latter.retry_schedule := retry_schedule;
  end if;
  latter.subject_versions := coalesce(subject_versions, former.subject_versions);
  if description is not null then
    latter.description := webhook._check_text('description', description, 4000);
  end if;
  update webhook._inbox_handler h
     set version = latter.version,
         event_types = latter.event_types,
         sources = latter.sources,
         retry_schedule = latter.retry_schedule,
         subject_versions = latter.subject_versions,
         description = latter.description,
         changed_at = clock_timestamp()
   where h.name = former.name;
  perform webhook._log(
    'update_inbox_handler', 'inbox_handler', name,
    before => webhook._changed(webhook._inbox_handler_facts(former), webhook._inbox_handler_facts(latter)),
    after => webhook._changed(webhook._inbox_handler_facts(latter), webhook._inbox_handler_facts(former)));
end
$$;
comment on function webhook.update_inbox_handler(text, text, text[], text[], text, boolean, text) is
  'Changes a handler. With a new version what is not finished goes to that version; what an earlier one processed comes again only by replay_inbox.';

create function webhook.delete_inbox_handler(
  name text,   -- the handler
  reason text  -- why
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._inbox_handler;
  closed bigint;
begin
  perform webhook._check_writable('delete an inbox handler');
  former := webhook._inbox_handler_named(name);
  reason := webhook._check_reason(reason);
  update webhook._inbox_run r
     set state = 'closed',
         claim_id = null,
         finished_at = clock_timestamp(),
         note = delete_inbox_handler.reason
   where r.handler = former.name
     and r.state in ('pending', 'claimed', 'retrying');
  get diagnostics closed = row_count;
  delete from webhook._inbox_handler h where h.name = former.name;
  perform webhook._log(
    'delete_inbox_handler', 'inbox_handler', name,
    before => jsonb_strip_nulls(webhook._inbox_handler_facts(former)), after => jsonb_build_object('closed', closed), reason => reason);
end
$$;
comment on function webhook.delete_inbox_handler(text, text) is 'Removes a handler and closes what it has not finished. What it processed stays in the inbox.';

create function webhook.pause_inbox(
  handler text, -- the handler
  reason text   -- why
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._inbox_handler;
begin
  perform webhook._check_writable('pause an inbox handler');
  former := webhook._inbox_handler_named(handler);
  reason := webhook._check_reason(reason);
  update webhook._inbox_handler h
     set paused_at = coalesce(h.paused_at, clock_timestamp()),
         paused_by = session_user,
         pause_reason = pause_inbox.reason
   where h.name = former.name;
  perform webhook._log('pause_inbox', 'inbox_handler', handler, reason => reason);
end
$$;
comment on function webhook.pause_inbox(text, text) is
  'Lets claim_inbox give a handler nothing until resume_inbox. Events are received and wait; what is claimed may be finished.';

create function webhook.resume_inbox(
  handler text -- the handler
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._inbox_handler;
begin
  perform webhook._check_writable('resume an inbox handler');
  former := webhook._inbox_handler_named(handler);
  if former.paused_at is null and former.origin = webhook._origin() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('inbox handler "%s" is not paused', handler);
  end if;
  update webhook._inbox_handler h
     set paused_at = null,
         paused_by = null,
         pause_reason = null,
         origin = webhook._origin()
   where h.name = former.name;
  perform webhook._log(
    'resume_inbox', 'inbox_handler', handler,
    before => jsonb_strip_nulls(jsonb_build_object('reason', former.pause_reason)));
end
$$;
comment on function webhook.resume_inbox(text) is 'Ends the pause of a handler. In a copy of a database it also says that the handler is to work here.';
-- Receiving: verify, find the tenant, check the schema, store once, and say what to answer.
--
-- What a stranger sends leaves a counter, nothing else. The answer counts once the caller's transaction has committed.

create function webhook.receive(
  source text,                  -- inbox source
  headers jsonb,                -- headers of the request: {"name": "value"} or {"name": ["value", ...]}
  body bytea,                   -- its body, as it came
  method text default 'POST',   -- its method; of RFC 9421
  url text default null,        -- absolute URL that it was sent to; of RFC 9421, when a signature covers it
  out result text,              -- accepted, duplicate, challenge or rejected
  out event_id text,            -- the event; null before a signature was found good
  out http_status integer,      -- what to answer, after the commit
  out reason text,              -- why it was rejected; for operators, not for the answer
  out answer text               -- body of the answer to a challenge; null = none
) returns record
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; whoever answers senders sees no table.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_source;
  found_event record;
  former_hash bytea;
  taken bigint;
begin
  perform webhook._check_writable('receive an event');
  perform webhook._check_argument('source', source is null);
  perform webhook._check_argument('headers', headers is null);
  perform webhook._check_argument('body', body is null);
  perform webhook._check_argument('method', method is null);
  result := 'rejected';
  select s.*
    into known
    from webhook._inbox_source s
   where s.name = receive.source;
  if not found then
    -- Not counted: the name may be the stranger's, and there is no end of names.
    http_status := 404;
    reason := 'unknown_source';
    return;
  end if;
  if not known.enabled then
    http_status := 503;
    reason := 'disabled';
  elsif octet_length(body) > known.max_body then
    http_status := 413;
    reason := 'too_large';
  else
    select i.*
      into found_event
      from webhook._inspect_received(
             known.source_id, known.profile, extract(epoch from known.tolerance)::bigint, known.partner_id, known.partner_from,
             known.partners, known.id_from, known.type_from, known.validation = 'enforce', headers, body, method, url) as i;
    if found_event.refusal is not null then
      http_status := found_event.http_status;
      reason := found_event.refusal;
    elsif found_event.answer is not null then
      result := 'challenge';
      http_status := 200;
      answer := found_event.answer;
    else
      event_id := found_event.event_id;
      select i.inbox_id, i.body_hash
        into taken, former_hash
        from webhook._inbox i
       where i.source_id = known.source_id
         and i.event_id = found_event.event_id;
      -- A duplicate is welcome whatever the limits say: to refuse it would only bring it again.
      if not found then
        reason := webhook._inbox_full(known);
        if reason is null then
          taken := webhook._take_in(known, found_event.event_id, found_event.event_partner_id, found_event.event_type,
                                    found_event.subject_type, found_event.subject_id, found_event.subject_version,
                                    found_event.schema_version, found_event.correlation_id, found_event.signed_at, body);
          if taken is not null then
            result := 'accepted';
            http_status := 202;
          else
            -- Another session was faster; its row is visible now, or, under REPEATABLE READ, the insert has failed.
            select i.body_hash
              into former_hash
              from webhook._inbox i
             where i.source_id = known.source_id
               and i.event_id = found_event.event_id;
          end if;
        end if;
      end if;
      if reason is not null then
        http_status := case reason when 'rate_limited' then 429 else 503 end;
      elsif result <> 'accepted' then
        if known.same_body and former_hash <> sha256(body) then
          http_status := 409;
          reason := 'conflict';
        else
          result := 'duplicate';
          http_status := 200;
        end if;
      end if;
    end if;
  end if;
  perform webhook._count_inbox(known.source_id, result, coalesce(reason, ''));
end
$$;
comment on function webhook.receive(text, jsonb, bytea, text, text) is
  'Takes a webhook in: verifies it, finds its tenant, checks its schema and stores it under its id. Returns what to answer, which is to be sent after the commit. A duplicate is a normal result.';

create function webhook._inbox_full(
  source webhook._inbox_source -- an inbox source
) returns text -- rate_limited or too_many_pending; null = there is room
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  -- A variable: an index cannot be searched for what clock_timestamp() may yet return.
  since constant timestamptz := clock_timestamp() - interval '1 minute';
begin
  -- Counted no further than the limit. Sessions that receive at once may exceed it by as many as they are.
  if source.max_per_minute is not null
     and (select count(*)
            from (select
                    from webhook._inbox i
                   where i.source_id = source.source_id
                     and i.received_at > since
                   limit source.max_per_minute) as recent) >= source.max_per_minute
  then
    return 'rate_limited';
  end if;
  if (select count(*)
        from (select
                from webhook._inbox_run r
               where r.source_id = source.source_id
                 and r.state in ('pending', 'claimed', 'retrying')
               limit source.max_pending) as waiting) >= source.max_pending
  then
    return 'too_many_pending';
  end if;
  return null;
end
$$;
comment on function webhook._inbox_full(webhook._inbox_source) is 'Whether a source has reached one of its limits.';

create function webhook._take_in(
  source webhook._inbox_source, -- where the event came from
  event_id text,                -- the event, and what it says of itself
  partner_id text,
  type text,
  subject_type text,
  subject_id text,
  subject_version bigint,
  schema_version text,
  correlation_id text,
  signed_at bigint,             -- Unix seconds
  body bytea                    -- the body
) returns bigint -- inbox_id; null = it is there already
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  new_id bigint;
begin
  insert into webhook._inbox as i
    (inbox_id, source_id, event_id, partner_id, type, subject_type, subject_id, subject_version, schema_version, correlation_id,
     signed_at, bytes, body_hash, body)
  values
    (webhook._new_id(), source.source_id, _take_in.event_id, _take_in.partner_id, _take_in.type, _take_in.subject_type,
     _take_in.subject_id, _take_in.subject_version, _take_in.schema_version, _take_in.correlation_id,
     to_timestamp(_take_in.signed_at), octet_length(_take_in.body), sha256(_take_in.body), _take_in.body)
  -- Waits for another session that inserts the same event, and inserts when that one rolls back.
  on conflict on constraint _inbox_event do nothing
  returning i.inbox_id into new_id;
  if new_id is null then
    return null;
  end if;
  insert into webhook._inbox_run (inbox_id, source_id, handler, version, next_attempt_at)
  select new_id, source.source_id, h.name, h.version, clock_timestamp()
    from webhook._inbox_handler h
   where webhook._handles(h, source.name, _take_in.type);
  return new_id;
end
$$;
comment on function webhook._take_in(webhook._inbox_source, text, text, text, text, text, bigint, text, text, bigint, bytea) is
  'Stores an event that is not there yet, and what its handlers have to do.';
-- Why an event went to an endpoint, or did not.

-- One pair with all that decides about it. Like the public views it belongs to webhook_views: readers get their own rows.
create view webhook._seen_match as
select e.event_id,
       p.endpoint_id,
       jsonb_build_object(
         'event_partner', e.partner_id,
         'endpoint_partner', p.partner_id,
         'type', e.type,
         'subject_type', e.subject_type,
         'subject_id', e.subject_id,
         'event_test', e.test,
         'endpoint_test', p.test,
         'event_origin', e.origin,
         'endpoint_origin', p.origin,
         'event_types', p.event_types,
         'subject_types', p.subject_types,
         'filter', p.filter,
         'expunged', e.body is null,
         'in_time', e.xid = p.created_xid or not pg_visible_in_snapshot(e.xid, p.created_snapshot),
         'created_at', p.created_at,
         'state', coalesce(s.state, p.state),
         'state_reason', case when s.state is null then p.state_reason else s.reason end,
         'state_changed_at', case when s.state is null then p.state_changed_at else s.changed_at end,
         'delivery_state', d.state,
         'delivery_reason', d.reason,
         'attempt_count', d.attempt_count,
         'hold', w.hold,
         'matched', t.matched,
         'why', t.why) as facts
  from webhook._event e
 cross join webhook._endpoint p
  left join webhook._endpoint_state s on s.endpoint_id = p.endpoint_id and s.generation = p.generation
  left join webhook._delivery d on d.event_id = e.event_id and d.endpoint_id = p.endpoint_id
  left join webhook._due w on w.event_id = e.event_id and w.endpoint_id = p.endpoint_id
  left join lateral webhook._try_filters(e.body, array[p.filter]) as t on p.filter is not null and e.body is not null;
comment on view webhook._seen_match is 'An event and an endpoint as the reader may see them, with what decides whether one goes to the other. To be asked for one pair.';
comment on column webhook._seen_match.event_id is 'The event.';
comment on column webhook._seen_match.endpoint_id is 'The endpoint.';
comment on column webhook._seen_match.facts is 'All that explain looks at: of both of them, of the delivery, and what the filter says. No payload.';

create function webhook.explain(
  event_id text,     -- the event
  endpoint_id bigint -- the endpoint
) returns table (
  step text,      -- what was looked at
  passed boolean, -- whether it lets the event through; null = it cannot be said
  detail text     -- in words
)
language plpgsql stable parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
set jit = off
as $$
declare
  pair record;
  about_webhooks boolean;
  about_it boolean;
  published timestamptz;
  emitted timestamptz;
  all_passed boolean := true;
begin
  perform webhook._check_argument('event_id', event_id is null);
  perform webhook._check_argument('endpoint_id', endpoint_id is null);
  select f.*
    into pair
    from webhook._seen_match m
   cross join lateral jsonb_to_record(m.facts) as f (
         event_partner text, endpoint_partner text, type text, subject_type text, subject_id text, event_test boolean,
         endpoint_test boolean, event_origin bigint, endpoint_origin bigint, event_types text[], subject_types text[], filter text,
         expunged boolean, in_time boolean, created_at timestamptz, state text, state_reason text, state_changed_at timestamptz,
         delivery_state text, delivery_reason text, attempt_count integer, hold integer, matched boolean, why text)
   where m.event_id = explain.event_id
     and m.endpoint_id = explain.endpoint_id;
  if not found then
    -- A foreign row is answered like one that does not exist.
    perform from webhook.events e where e.event_id = explain.event_id;
    raise exception using
      errcode = 'undefined_object',
      message = case
        when found then format('endpoint %s does not exist', endpoint_id)
        else format('event "%s" does not exist', left(event_id, 128))
      end;
  end if;
  about_webhooks := pair.type like 'webhook.%';
  about_it := pair.subject_id is not distinct from explain.endpoint_id::text;
  emitted := webhook._event_time(event_id);

  for step, passed, detail in
    values
      ('partner',
       pair.event_partner = pair.endpoint_partner,
       case
         when pair.event_partner = pair.endpoint_partner then format('both belong to "%s"', pair.event_partner)
         else format('the event belongs to "%s", the endpoint to "%s"', pair.event_partner, pair.endpoint_partner)
       end),
      ('origin',
       pair.event_origin = webhook._origin() and pair.endpoint_origin = webhook._origin(),
       case
         when pair.endpoint_origin <> webhook._origin() then 'the endpoint came with a copy of another database and is inert'
         when pair.event_origin <> webhook._origin() then 'the event came with a copy of another database: it is sent by an adoption alone'
         else 'both are of this database'
       end),
      ('mode',
       pair.event_test = pair.endpoint_test or pair.type = 'webhook.test',
       case
         when pair.type = 'webhook.test' then 'a test goes to the endpoint that it names'
         else format('%s event, %s endpoint', case when pair.event_test then 'test' else 'live' end, case when pair.endpoint_test then 'test' else 'live' end)
       end),
      ('lifecycle',
       case
         when pair.type = 'webhook.test' then about_it
         else not (pair.type like 'webhook.endpoint.%' and about_it)
       end,
       case
         when pair.type = 'webhook.test' and about_it then 'it is a test of this endpoint'
         when pair.type = 'webhook.test' then 'it is a test of another endpoint'
         when pair.type like 'webhook.endpoint.%' and about_it then 'what happens to an endpoint is told to others only'
         else 'the event is not about this endpoint'
       end),
      ('time',
       pair.in_time,
       case
         when pair.in_time then 'the endpoint was there, or was made while the event was'
         else format('the event was visible when the endpoint was made, at %s: it is older', webhook._rfc3339(pair.created_at))
       end),
      ('state',
       pair.state in ('active', 'paused', 'unverified'),
       format('the endpoint is %s since %s%s%s', pair.state, webhook._rfc3339(pair.state_changed_at), ': ' || pair.state_reason,
              case
                when pair.state in ('paused', 'unverified') then '; deliveries wait'
                when pair.state = 'active' and pair.state_changed_at > emitted then '; what it was when the event was read is in the audit log'
              end)),
      ('type',
       pair.type = 'webhook.test' or webhook._type_matches(pair.event_types, pair.type),
       case
         when pair.type = 'webhook.test' then 'a test needs no subscription'
         else format('"%s", and the endpoint subscribes to %s', pair.type, array_to_string(pair.event_types, ', '))
       end),
      ('subject',
       about_webhooks or pair.subject_types is null or coalesce(pair.subject_type = any (pair.subject_types), false),
       case
         when about_webhooks then 'not asked for events about webhooks'
         when pair.subject_types is null then 'the endpoint takes every subject'
         else format('%s, and the endpoint takes %s', coalesce('"' || pair.subject_type || '"', 'the event has no subject'), array_to_string(pair.subject_types, ', '))
       end),
      ('filter',
       case when about_webhooks or pair.filter is null then true else pair.matched end,
       case
         when about_webhooks then 'not asked for events about webhooks'
         when pair.filter is null then 'the endpoint has none'
         when pair.expunged then 'the payload was expunged'
         else format('%s: %s', pair.filter, case when pair.matched then 'matches' when not pair.matched then 'does not match' else pair.why end)
       end)
  loop
    all_passed := all_passed and coalesce(passed, false);
    return next;
  end loop;

  step := 'delivery';
  passed := pair.delivery_state is not null;
  if passed then
    detail := concat_ws(', ',
      format('%s is %s', webhook._delivery_id(event_id, endpoint_id), pair.delivery_state),
      format('%s attempts', pair.attempt_count),
      pair.delivery_reason,
      'held by ' || nullif(concat_ws(' and ',
        case when pair.hold & 1 <> 0 then 'a paused event type' end,
        case when pair.hold & 2 <> 0 then 'the event before it' end,
        case when pair.hold & 4 <> 0 then 'quarantine' end,
        case when pair.hold & 8 <> 0 then 'the filter' end,
        case when pair.hold & 16 <> 0 then 'a failed conversion' end,
        case when pair.hold & 32 <> 0 then 'its origin' end), ''),
      case when not all_passed then 'made under what was in force then, or because somebody asked for it' end);
  else
    select p.published_at
      into published
      from webhook._publication(pair.event_partner, event_id) as p;
    detail := case
      when published is null then 'there is none: the leader has not read the event'
      when pair.expunged then 'there is none: the payload was expunged'
      when all_passed then format('there is none, although today all of the above lets it through: the event was read at %s; it is on its way just now, or the endpoint was another then (see the audit log)', webhook._rfc3339(published))
      else format('there is none; the event was read at %s', webhook._rfc3339(published))
    end;
  end if;
  return next;
end
$$;
comment on function webhook.explain(text, bigint) is
  'Says step by step why an event went to an endpoint or did not, by what is in force now. A replay to the endpoint passes over time, type, subject and filter.';
-- Processing what was received: claims and results. Everything here is the handler's own transaction: what finish_inbox
-- writes commits, or does not, with the side effect beside it.

create function webhook.claim_inbox(
  handler text,                          -- the handler
  max_events integer default 1,          -- most events to return, 1 to 1000
  lease interval default '1 minute',     -- for how long nobody else gets them
  version text default null,             -- version of the caller's code; refused when it is not the one in force
  out claim_id bigint,                   -- to be given to finish_inbox
  out event_id text,
  out source text,
  out partner_id text,
  out type text,
  out subject_type text,
  out subject_id text,
  out subject_version bigint,
  out schema_version text,
  out correlation_id text,
  out received_at timestamptz,
  out attempt integer,                   -- number of this attempt, from 1
  out body bytea                         -- byte for byte as it was received
) returns setof record
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it. It hands out payloads: grant it to handlers alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
-- The plan must follow the index that knows what is due, whatever the statistics say.
set enable_seqscan = off
as $$
declare
  known webhook._inbox_handler;
  candidate record;
  given integer := 0;
  passed_over integer := 0;
  moment timestamptz;
  ended text;
  why text;
begin
  perform webhook._check_writable('claim events');
  perform webhook._check_argument('handler', handler is null);
  perform webhook._check_argument('max_events', max_events is null);
  perform webhook._check_argument('lease', lease is null);
  if max_events not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'max_events is outside the valid range',
      detail = format('It is %s; the range is 1 to 1000.', max_events);
  end if;
  if not (lease >= interval '1 second' and lease <= interval '1 day') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'lease is outside the valid range',
      detail = 'It is 1 second to 1 day.';
  end if;
  select h.*
    into known
    from webhook._inbox_handler h
   where h.name = claim_inbox.handler;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('inbox handler "%s" does not exist', left(handler, 128)),
      hint = 'Use webhook.create_inbox_handler.';
  end if;
  if version <> known.version then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('version "%s" of inbox handler "%s" is not in force', left(version, 64), handler),
      detail = format('Version "%s" is.', known.version),
      hint = 'Use webhook.update_inbox_handler when the new code takes over.';
  end if;
  if known.paused_at is not null or known.origin <> webhook._origin() then
    return;
  end if;
  -- One by one: FOR over a query would lock rows ahead of the one it is at. What is stale or spent ends here and now, but
  -- no more than a thousand in a call.
  while given < max_events and passed_over < 1000 loop
    moment := clock_timestamp();
    select r.inbox_id, r.version as run_version, r.attempts, r.state
      into candidate
      from webhook._inbox_run r
     where r.handler = known.name
       and r.state in ('pending', 'claimed', 'retrying')
       and r.next_attempt_at <= moment
     order by r.next_attempt_at, r.inbox_id
     limit 1
       for update skip locked;
    exit when not found;
    select i.event_id, s.name, i.partner_id, i.type, i.subject_type, i.subject_id, i.subject_version, i.schema_version,
           i.correlation_id, i.received_at, i.body
      into event_id, source, partner_id, type, subject_type, subject_id, subject_version, schema_version, correlation_id,
           received_at, body
      from webhook._inbox i
      join webhook._inbox_source s on s.source_id = i.source_id
     where i.inbox_id = candidate.inbox_id;
    ended := null;
    if body is null then
      ended := 'closed';
      why := 'it was expunged';
    elsif candidate.run_version <> known.version
          and exists (select from webhook._inbox_run o
                       where o.inbox_id = candidate.inbox_id and o.handler = known.name and o.version = known.version) then
      ended := 'closed';
      why := format('version "%s" has had it before', known.version);
    elsif candidate.state = 'claimed' and webhook._schedule_wait(known.retry_schedule, candidate.attempts) is null then
      ended := 'dead';
      why := 'the last lease ended without a result';
    elsif known.subject_versions and subject_version is not null and exists (
            select from webhook._inbox_subject b
             where b.handler = known.name
               and b.source_id = (select i.source_id from webhook._inbox i where i.inbox_id = candidate.inbox_id)
               and b.partner_id = claim_inbox.partner_id
               and b.subject_type = claim_inbox.subject_type
               and b.subject_id = claim_inbox.subject_id
               and b.version > claim_inbox.subject_version) then
      ended := 'stale';
      why := 'a newer version of its subject was processed';
    end if;
    if ended is not null then
      passed_over := passed_over + 1;
      update webhook._inbox_run r
         set state = ended,
             note = why,
             claim_id = null,
             finished_at = clock_timestamp()
       where r.inbox_id = candidate.inbox_id
         and r.handler = known.name
         and r.version = candidate.run_version;
      if ended = 'stale' then
        perform webhook._count_inbox((select i.source_id from webhook._inbox i where i.inbox_id = candidate.inbox_id), 'stale', known.name);
      end if;
      continue;
    end if;
    claim_id := webhook._new_id();
    attempt := candidate.attempts + 1;
    update webhook._inbox_run r
       set state = 'claimed',
           version = known.version,
           claim_id = claim_inbox.claim_id,
           attempts = attempt,
           next_attempt_at = clock_timestamp() + lease
     where r.inbox_id = candidate.inbox_id
       and r.handler = known.name
       and r.version = candidate.run_version;
    given := given + 1;
    return next;
  end loop;
end
$$;
comment on function webhook.claim_inbox(text, integer, interval, text) is
  'Gives a handler the events that it is to process, oldest first, and to nobody else until the lease ends. In one transaction with finish_inbox, or in one of its own. Nothing while the handler is paused.';

create function webhook.finish_inbox(
  claim_id bigint,                     -- the claim
  result text default 'processed',     -- processed, failed (try again later), rejected (never) or stale
  note text default null               -- what came of it, or what went wrong; no payload
) returns text -- state of the event for this handler: processed, retrying, dead or stale
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  held record;
  wait bigint;
  outcome text;
begin
  perform webhook._check_writable('finish an event');
  perform webhook._check_argument('claim_id', claim_id is null);
  perform webhook._check_argument('result', result is null);
  if result not in ('processed', 'failed', 'rejected', 'stale') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('result "%s" does not exist', left(result, 64)),
      hint = 'It is processed, failed, rejected or stale.';
  end if;
  note := webhook._check_text('note', note, 1000);
  select r.inbox_id, r.source_id, r.handler, r.version, r.attempts, h.retry_schedule, h.subject_versions,
         i.partner_id, i.subject_type, i.subject_id, i.subject_version
    into held
    from webhook._inbox_run r
    join webhook._inbox i on i.inbox_id = r.inbox_id
    join webhook._inbox_handler h on h.name = r.handler
   where r.claim_id = finish_inbox.claim_id
     for no key update of r;
  if not found then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('claim %s is not held', claim_id),
      detail = 'Its lease ended and another session claimed the event, it was finished already, or somebody closed it.',
      hint = 'Roll back what was done for it.';
  end if;
  case result
    when 'processed' then
      outcome := 'processed';
      if held.subject_versions and held.subject_version is not null and held.subject_id is not null then
        insert into webhook._inbox_subject as b (handler, source_id, partner_id, subject_type, subject_id, version)
        values (held.handler, held.source_id, held.partner_id, held.subject_type, held.subject_id, held.subject_version)
        on conflict on constraint _inbox_subject_pkey do update
           set version = excluded.version,
               changed_at = clock_timestamp()
         where b.version <= excluded.version;
        -- It was not so when the event was claimed: what was done since then must not stay.
        if not found then
          raise exception using
            errcode = 'serialization_failure',
            message = 'a newer version of the subject was processed meanwhile',
            hint = 'Roll back: claim_inbox will find the event stale.';
        end if;
      end if;
    when 'failed' then
      wait := webhook._schedule_wait(held.retry_schedule, held.attempts);
      outcome := case when wait is null then 'dead' else 'retrying' end;
    when 'rejected' then
      outcome := 'dead';
    else
      outcome := 'stale';
  end case;
  update webhook._inbox_run r
     set state = outcome,
         claim_id = null,
         note = finish_inbox.note,
         finished_at = case when wait is null then clock_timestamp() end,
         -- Up to a fifth longer, so that what failed together does not come back together.
         next_attempt_at = clock_timestamp() + make_interval(secs => coalesce(wait, 0) / 1000.0 * (1 + random() / 5))
   where r.inbox_id = held.inbox_id
     and r.handler = held.handler
     and r.version = held.version;
  perform webhook._count_inbox(held.source_id, case result when 'rejected' then 'failed' else result end, held.handler);
  return outcome;
end
$$;
comment on function webhook.finish_inbox(bigint, text, text) is
  'Says what came of a claimed event, in the transaction of the side effect: both commit or neither. An error when the claim is no longer held, so that the side effect rolls back.';
-- Deciding about received events by hand, processing them again, erasing them and forgetting them.

create function webhook._inbox_run_of(
  event_id text, -- the event
  handler text,  -- the handler
  source text    -- inbox source; null = there is only one that has the event
) returns webhook._inbox_run -- the newest version's row, locked
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_handler;
  found_run webhook._inbox_run;
  events bigint[];
begin
  perform webhook._check_argument('event_id', event_id is null);
  known := webhook._inbox_handler_named(handler);
  select array_agg(i.inbox_id)
    into events
    from webhook._inbox_source s
    join webhook._inbox i on i.source_id = s.source_id
   where i.event_id = _inbox_run_of.event_id
     and (_inbox_run_of.source is null or s.name = _inbox_run_of.source);
  if cardinality(events) > 1 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('event "%s" came from several sources', left(event_id, 256)),
      hint = 'Name the source.';
  end if;
  select r.*
    into found_run
    from webhook._inbox_run r
   where r.inbox_id = events[1]
     and r.handler = known.name
   order by r.version = known.version desc, r.state in ('pending', 'claimed', 'retrying') desc, r.finished_at desc
   limit 1
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event "%s" of handler "%s" does not exist', left(event_id, 256), handler),
      detail = case when events is null then 'It was not received, or is older than the retention.' else 'The handler did not want it.' end,
      hint = 'See webhook.inbox.';
  end if;
  return found_run;
end
$$;
comment on function webhook._inbox_run_of(text, text, text) is 'The row that a decision about an event and a handler is about.';

create function webhook.retry_inbox(
  event_id text,              -- the event
  handler text,               -- the handler
  reason text,                -- why
  source text default null    -- inbox source; needed when several have an event of this id
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  run webhook._inbox_run;
  event record;
begin
  perform webhook._check_writable('retry an event');
  reason := webhook._check_reason(reason);
  run := webhook._inbox_run_of(event_id, handler, source);
  select i.partner_id, i.expunged_at
    into event
    from webhook._inbox i
   where i.inbox_id = run.inbox_id;
  if run.state = 'processed' or run.state = 'claimed' and run.next_attempt_at > clock_timestamp() or event.expunged_at is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" of handler "%s" is %s', left(event_id, 256), handler,
                       case when event.expunged_at is not null then 'expunged' else run.state end),
      detail = 'A version processes an event once; what is claimed is being processed; what is expunged is gone.',
      hint = case when run.state = 'processed' then 'Give the handler a new version, and use webhook.replay_inbox.' else 'See webhook.inbox.' end;
  end if;
  update webhook._inbox_run r
     set state = 'pending',
         attempts = 0,
         claim_id = null,
         finished_at = null,
         next_attempt_at = clock_timestamp(),
         note = retry_inbox.reason
   where r.inbox_id = run.inbox_id
     and r.handler = run.handler
     and r.version = run.version;
  perform webhook._log('retry_inbox', 'inbox_event', event_id, event.partner_id,
                       before => jsonb_build_object('handler', handler, 'state', run.state), reason => reason);
end
$$;
comment on function webhook.retry_inbox(text, text, text, text) is
  'Gives a received event that is dead, stale, closed or waiting back to its handler, at once and with all its attempts.';

create function webhook.close_inbox(
  event_id text,              -- the event
  handler text,               -- the handler
  reason text,                -- why
  source text default null    -- inbox source; needed when several have an event of this id
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  run webhook._inbox_run;
begin
  perform webhook._check_writable('close an event');
  reason := webhook._check_reason(reason);
  run := webhook._inbox_run_of(event_id, handler, source);
  if run.state in ('processed', 'stale', 'closed') then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" of handler "%s" is %s', left(event_id, 256), handler, run.state),
      detail = 'Only what is dead or unfinished can be closed.';
  end if;
  update webhook._inbox_run r
     set state = 'closed',
         claim_id = null,
         finished_at = clock_timestamp(),
         note = close_inbox.reason
   where r.inbox_id = run.inbox_id
     and r.handler = run.handler
     and r.version = run.version;
  perform webhook._log('close_inbox', 'inbox_event', event_id, (select i.partner_id from webhook._inbox i where i.inbox_id = run.inbox_id),
                       before => jsonb_build_object('handler', handler, 'state', run.state), reason => reason);
end
$$;
comment on function webhook.close_inbox(text, text, text, text) is 'Decides that a handler will not process a received event.';

create function webhook.replay_inbox(
  handler text,                       -- the handler
  reason text,                        -- why
  since timestamptz default null,     -- events received from then on; null = all that are kept
  until timestamptz default null      -- and before then; null = up to now
) returns bigint -- events that the handler is given
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_handler;
  given bigint;
begin
  perform webhook._check_writable('process events again');
  known := webhook._inbox_handler_named(handler);
  reason := webhook._check_reason(reason);
  insert into webhook._inbox_run (inbox_id, source_id, handler, version, next_attempt_at)
  select i.inbox_id, i.source_id, known.name, known.version, clock_timestamp()
    from webhook._inbox i
    join webhook._inbox_source s on s.source_id = i.source_id
   where (since is null or i.received_at >= since)
     and (until is null or i.received_at < until)
     and i.body is not null
     and webhook._handles(known, s.name, i.type)
     and not exists (
           select from webhook._inbox_run r
            where r.inbox_id = i.inbox_id
              and r.handler = known.name
              and r.state in ('pending', 'claimed', 'retrying'))
  -- What this version has had, whatever came of it, it does not get again.
  on conflict on constraint _inbox_run_pkey do nothing;
  get diagnostics given = row_count;
  perform webhook._log(
    'replay_inbox', 'inbox_handler', handler,
    after => jsonb_strip_nulls(jsonb_build_object(
      'version', known.version, 'since', webhook._rfc3339(since), 'until', webhook._rfc3339(until), 'events', given)),
    reason => reason);
  return given;
end
$$;
comment on function webhook.replay_inbox(text, text, timestamptz, timestamptz) is
  'Gives a handler the events in the inbox that its version in force has not had: those from before it was created, or all of them for a new version. Calling it twice gives nothing twice.';

create function webhook._expunge_inbox(
  event_ids text[] -- events to erase, of whatever source
) returns bigint -- events that were erased
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._expunge_received(array(
    select i.inbox_id
      from webhook._inbox_source s
      join webhook._inbox i on i.source_id = s.source_id
     where i.event_id = any (event_ids)
       and i.expunged_at is null))
$$;
comment on function webhook._expunge_inbox(text[]) is 'Erases what was received of these events.';

create function webhook._received_of(
  partner_id text,   -- a partner; null = of all
  subject_type text, -- kind of a subject; null = whatever it is about
  subject_id text    -- its identity
) returns bigint[] -- rows of _inbox whose payload is there
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select coalesce(array_agg(i.inbox_id), '{}')
    from webhook._inbox i
   where i.expunged_at is null
     and (_received_of.partner_id is null or i.partner_id = _received_of.partner_id)
     and (_received_of.subject_type is null
          or (i.subject_type = _received_of.subject_type and i.subject_id = _received_of.subject_id))
$$;
comment on function webhook._received_of(text, text, text) is
  'What others sent about a partner or a subject: their events have ids of their own, so these are found by what they say.';

create function webhook._expunge_received(
  inbox_ids bigint[] -- rows of _inbox
) returns bigint -- events that were erased
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  expunged bigint;
begin
  with target as (
    select i.inbox_id, i.source_id, i.partner_id, i.subject_type, i.subject_id, i.subject_version
      from webhook._inbox i
     where i.inbox_id = any (inbox_ids)
       and i.expunged_at is null
       for no key update of i),
  gone as (
    update webhook._inbox i
       set body = null,
           -- The hash of a short text tells the text.
           body_hash = null,
           subject_id = null,
           subject_type = null,
           subject_version = null,
           correlation_id = null,
           expunged_at = clock_timestamp()
      from target t
     where i.inbox_id = t.inbox_id
    returning i.inbox_id),
  subjects as (
    -- Who the subject is stays known only while a newer event about it is.
    delete from webhook._inbox_subject b
     using target t
     where b.source_id = t.source_id
       and b.partner_id = t.partner_id
       and b.subject_type = t.subject_type
       and b.subject_id = t.subject_id
       and b.version <= t.subject_version),
  runs as (
    update webhook._inbox_run r
       set note = null,
           claim_id = null,
           state = case when r.state in ('pending', 'claimed', 'retrying', 'dead') then 'closed' else r.state end,
           finished_at = coalesce(r.finished_at, clock_timestamp())
      from gone g
     where r.inbox_id = g.inbox_id)
  select count(*) into expunged from gone;
  return expunged;
end
$$;
comment on function webhook._expunge_received(bigint[]) is
  'Erases what received events say and what handlers noted. Ids, times and tenant stay, so that they are not received anew; what was not processed will not be.';

create function webhook._trim_inbox(
  max_rows integer -- most events to delete
) returns bigint -- events that were deleted; fewer than max_rows = there is nothing more to do
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  -- The setting is not there in a session that has not loaded the library.
  cutoff constant timestamptz := clock_timestamp() - coalesce(current_setting('webhook.inbox_retention', true), '120d')::interval;
  trimmed bigint;
begin
  delete from webhook._inbox i
   where i.inbox_id in (
           select o.inbox_id
             from webhook._inbox_source s
            cross join lateral (
                  select n.inbox_id
                    from webhook._inbox n
                   where n.source_id = s.source_id
                     and n.received_at < cutoff
                     -- What a handler still owes is not forgotten; dead letters are, when their time is over.
                     and not exists (
                           select from webhook._inbox_run r
                            where r.inbox_id = n.inbox_id
                              and r.state in ('pending', 'claimed', 'retrying'))
                   order by n.received_at
                   limit max_rows) as o
            limit max_rows);
  get diagnostics trimmed = row_count;
  if trimmed < max_rows then
    delete from webhook._inbox_subject b where b.changed_at < cutoff;
    delete from webhook._inbox_count c where c.day < (cutoff at time zone 'UTC')::date;
    -- Rows of one counter that many sessions made are put together once their day is over.
    with former as (
      delete from webhook._inbox_count c
       where c.day < (clock_timestamp() at time zone 'UTC')::date - 1
         and exists (select from webhook._inbox_count o
                      where (o.source_id, o.day, o.result, o.reason) = (c.source_id, c.day, c.result, c.reason)
                        and o.slot <> c.slot)
      returning c.*)
    insert into webhook._inbox_count (source_id, day, result, reason, slot, total, last_at)
    select f.source_id, f.day, f.result, f.reason, 0, sum(f.total), max(f.last_at)
      from former f
     group by f.source_id, f.day, f.result, f.reason
    on conflict on constraint _inbox_count_pkey do nothing;
  end if;
  return trimmed;
end
$$;
comment on function webhook._trim_inbox(integer) is
  'Deletes received events that are older than webhook.inbox_retention and have no unfinished work, with all that belongs to them; a bounded number at a time.';
-- Whether everything that must be there is there: what the tables say of one another, and what the business says.
-- Only what is settled is judged: older than a settle time, and behind the place that the leader has read up to. Every
-- check is one query over a range of event ids, which are ordered by time and lead the indexes that it uses.
-- Gaps are recorded; what can be repaired the leader is asked to repair, and looks at it anew.

create function webhook._read_positions()
returns table (
  stream bigint,       -- 0 = everybody's
  partners text[],     -- of 0: whose events it passes over; of another one: whose events it reads
  before pg_snapshot,  -- events visible in it were read
  amid pg_snapshot,    -- and of those visible in it
  to_xid xid8,         --   what comes up to here in the order of (xid, event_id)
  to_id text
)
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select distinct on (l.stream)
         l.stream, coalesce(l.partners, '{}'), case when l.kind in ('window', 'aside') then l.prev else l.cur end,
         case when l.kind = 'window' then l.cur end, l.to_xid, l.to_id
    from webhook._ledger as l
   where l.prev is not null
     and l.cur is not null
     and not exists (select from webhook._ledger as j where j.stream = l.stream and j.kind = 'joined')
   order by l.stream, l.n desc
$$;
comment on function webhook._read_positions() is 'How far each stream of the leader has read.';

create function webhook._find_gaps(
  since timestamptz,     -- emitted at this time or later
  until timestamptz,     -- emitted before this time
  settled timestamptz    -- and published before this one
) returns table (
  kind text,
  object text,
  happened_at timestamptz,
  partner_id text,
  event_id text,
  endpoint_id bigint,
  detail text
)
language plpgsql stable
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
declare
  low constant text := webhook._event_bound(since);
  high constant text := webhook._event_bound(until);
  low_pos constant bigint := webhook._pos_bound(since);
  settled_pos constant bigint := webhook._pos_bound(settled);
  own constant bigint := webhook._origin();
  attempts_from constant text := webhook._event_bound(date_trunc('day', clock_timestamp()
    - least(webhook._age('attempt'), webhook._age('delivery'),
            webhook._age('event')), 'UTC') + interval '1 day');
  events_from constant text := webhook._event_bound(date_trunc('day', clock_timestamp()
    - webhook._age('event'), 'UTC') + interval '1 day');
begin
  -- Read, and not in the feed. The feed is searched up to an hour behind the range, and event by event for the rest.
  return query
    with place as materialized (select p.* from webhook._read_positions() as p),
    unpublished as materialized (
      select e.event_id, e.partner_id
        from webhook._event as e
       where e.event_id >= low
         and e.event_id < high
         and e.origin = own
         and not exists (select from place as p
                          where (p.stream = 0) <> (e.partner_id = any (p.partners))
                            and not (pg_visible_in_snapshot(e.xid, p.before)
                                     or (p.amid is not null and pg_visible_in_snapshot(e.xid, p.amid)
                                         and (e.xid < p.to_xid or (e.xid = p.to_xid and e.event_id <= p.to_id)))))
         and not exists (select from webhook._feed as f
                          where f.partner_id = e.partner_id
                            and f.event_id = e.event_id
                            and f.pos >= low_pos
                            and f.pos < webhook._pos_bound(until + interval '1 hour'))
         and not exists (select from webhook._fenced as f where f.event_id = e.event_id))
    select 'event.unpublished', u.event_id, webhook._event_time(u.event_id), u.partner_id, u.event_id, null::bigint,
           'It was read and is not in the feed.'
      from unpublished as u
     where not exists (select from webhook._publication(u.partner_id, u.event_id) as p where p.pos is not null);

  -- A payload that is gone without a tombstone, and one that is there in spite of its tombstone.
  return query
    select case when e.body is null then 'event.body_gone' else 'event.not_expunged' end, e.event_id, webhook._event_time(e.event_id),
           e.partner_id, e.event_id, null::bigint,
           case when e.body is null then 'Its payload is gone and it has no tombstone.' else 'It has a tombstone and a payload.' end
      from webhook._event as e
      left join webhook._tombstone as t
             on t.event_id = e.event_id and t.body_sha256 = e.body_sha256 and t.event_id >= low and t.event_id < high
     where e.event_id >= low
       and e.event_id < high
       and (e.body is null) <> (t.event_id is not null);

  -- Published, wanted, and no delivery. An endpoint is judged by what it was since before the event. Which types it wants is
  -- decided once for each of them, and whether an event is settled only for those in question.
  return query
    with type as materialized (
      select distinct e.partner_id, e.type
        from webhook._event as e
       where e.event_id >= low
         and e.event_id < high
         and e.origin = own
         and e.type <> 'webhook.test'),
    wanted as materialized (
      select p.endpoint_id, p.partner_id, p.test, p.changed_xid, p.created_snapshot, t.type,
             webhook._event_bound(greatest(p.state_changed_at, s.state_changed_at)) as from_id
        from webhook._endpoint as p
        join webhook._effective_endpoint as s on s.endpoint_id = p.endpoint_id and s.state = 'active'
        join type as t on t.partner_id = p.partner_id and webhook._type_matches(p.event_types, t.type)
       where p.origin = own
         -- What a filter or the subject has decided is not decided here once more.
         and coalesce(to_jsonb(p) ->> 'filter', to_jsonb(p) ->> 'subject_types') is null),
    missing as materialized (
      select e.event_id, e.partner_id, w.endpoint_id
        from webhook._event as e
        join wanted as w on w.partner_id = e.partner_id and w.type = e.type and w.test = e.test
       where e.event_id >= low
         and e.event_id < high
         and e.origin = own
         and w.changed_xid < e.xid
         and w.from_id < e.event_id
         and not pg_visible_in_snapshot(e.xid, w.created_snapshot)
         and not (e.type like 'webhook.endpoint.%' and e.subject_id = w.endpoint_id::text)
         and (e.body is not null or e.type ~ '(^|\.)(deleted|erased)$')
         and not exists (select from webhook._fenced as f where f.event_id = e.event_id)
         and not exists (select
                           from webhook._delivery as d
                          where d.event_id = e.event_id
                            and d.endpoint_id = w.endpoint_id
                            and d.event_id >= low
                            and d.event_id < high)
         -- One that is due is another fault.
         and not exists (select
                           from webhook._due as u
                          where u.event_id = e.event_id
                            and u.endpoint_id = w.endpoint_id
                            and u.event_id >= low
                            and u.event_id < high))
    select 'pair.missing', webhook._delivery_id(m.event_id, m.endpoint_id), webhook._event_time(m.event_id), m.partner_id, m.event_id,
           m.endpoint_id, 'The endpoint gets such events and has no delivery of this one.'
      from missing as m
     where (select n.pos from webhook._publication(m.partner_id, m.event_id) as n) < settled_pos;

  -- A delivery and the due table.
  return query
    select 'delivery.not_due', webhook._delivery_id(d.event_id, d.endpoint_id), webhook._event_time(d.event_id), p.partner_id, d.event_id,
           d.endpoint_id, format('It is %s and nobody would ever send it.', d.state)
      from webhook._delivery as d
      left join webhook._endpoint as p on p.endpoint_id = d.endpoint_id
     where d.event_id >= low
       and d.event_id < high
       and d.state in ('pending', 'retrying')
       and not exists (select
                         from webhook._due as w
                        where w.event_id = d.event_id and w.endpoint_id = d.endpoint_id and w.event_id >= low and w.event_id < high)
       -- A copy has no due table until it is adopted.
       and exists (select
                     from webhook._event as e
                    where e.event_id = d.event_id and e.origin = own and e.event_id >= low and e.event_id < high)
     union all
    select case when d.event_id is null then 'due.without_delivery' else 'due.settled' end,
           webhook._delivery_id(w.event_id, w.endpoint_id), webhook._event_time(w.event_id), p.partner_id, w.event_id, w.endpoint_id,
           case when d.event_id is null then 'It is due and has no delivery.' else format('It is due and the delivery is %s.', d.state) end
      from webhook._due as w
      left join webhook._delivery as d
             on d.event_id = w.event_id and d.endpoint_id = w.endpoint_id and d.event_id >= low and d.event_id < high
      left join webhook._endpoint as p on p.endpoint_id = w.endpoint_id
     where w.event_id >= low
       and w.event_id < high
       and (d.event_id is null or d.state not in ('pending', 'retrying'));

  -- A delivery, its event and its attempts.
  return query
    select g.kind, webhook._delivery_id(g.event_id, g.endpoint_id), webhook._event_time(g.event_id), p.partner_id, g.event_id,
           g.endpoint_id, g.detail
      from (select 'delivery.without_event' as kind, d.event_id, d.endpoint_id, 'Its event is gone.' as detail
              from webhook._delivery as d
             where d.event_id >= low
               and d.event_id < high
               and not exists (select from webhook._event as e where e.event_id = d.event_id and e.event_id >= low and e.event_id < high)
             union all
            select 'delivery.contradictory', d.event_id, d.endpoint_id,
                   'It is delivered, and nobody knows when or by which attempt.'
              from webhook._delivery as d
             where d.event_id >= low
               and d.event_id < high
               and d.state = 'delivered'
               and (d.delivered_at is null or d.attempt_count = 0)
             union all
            select 'attempt.missing', d.event_id, d.endpoint_id,
                   format('The delivery has had %s attempts, the log has %s.', d.attempt_count, a.attempts)
              from webhook._delivery as d
             cross join lateral (select count(*) as attempts
                                   from webhook._attempt as t
                                  where t.event_id = d.event_id
                                    and t.endpoint_id = d.endpoint_id) as a
             where d.event_id >= greatest(low, attempts_from)
               and d.event_id < high
               and (d.attempt_count > 1 or (d.attempt_count = 1 and d.state <> 'delivered'))
               and a.attempts < d.attempt_count
             union all
            select distinct 'attempt.without_delivery', a.event_id, a.endpoint_id, 'It has attempts and no delivery.'
              from webhook._attempt as a
             where a.event_id >= low
               and a.event_id < high
               and not exists (select
                                 from webhook._delivery as d
                                where d.event_id = a.event_id and d.endpoint_id = a.endpoint_id and d.event_id >= low and d.event_id < high)
             union all
            select distinct 'excerpt.without_delivery', x.event_id, x.endpoint_id, 'It has response excerpts and no delivery.'
              from webhook._excerpt as x
             where x.event_id >= low
               and x.event_id < high
               and not exists (select
                                 from webhook._delivery as d
                                where d.event_id = x.event_id and d.endpoint_id = x.endpoint_id and d.event_id >= low and d.event_id < high)) as g
      left join webhook._endpoint as p on p.endpoint_id = g.endpoint_id;

  -- The feed.
  return query
    -- Most events are published at once; the others are looked for one by one.
    with lost as materialized (
      select f.event_id, f.published_at, f.partner_id
        from webhook._feed as f
       where f.pos >= low_pos
         and f.pos < webhook._pos_bound(until)
         and f.event_id >= events_from
         and not exists (select
                           from webhook._event as e
                          where e.event_id = f.event_id
                            and e.event_id >= webhook._event_bound(since - interval '1 hour')
                            and e.event_id < webhook._event_bound(until + interval '1 minute')))
    select 'feed.without_event', f.event_id, f.published_at, f.partner_id, f.event_id, null::bigint, 'It is in the feed and its event is gone.'
      from lost as f
     where not exists (select from webhook._event as e where e.event_id = f.event_id)
     union all
    select 'feed.twice', f.event_id, min(f.published_at), f.partner_id, f.event_id, null::bigint, format('It is in the feed %s times.', count(*))
      from webhook._feed as f
     where f.pos >= low_pos
       and f.pos < webhook._pos_bound(until)
     group by f.partner_id, f.event_id
    having count(*) > 1;
end
$$;
comment on function webhook._find_gaps(timestamptz, timestamptz, timestamptz) is 'Everything that does not go together in a range of time.';

create function webhook._find_default_rows(
  since timestamptz, -- of this time or later
  until timestamptz  -- before this time
) returns table (
  object text,
  happened_at timestamptz,
  detail text
)
language plpgsql stable
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
declare
  target record;
  first_day date;
  rows bigint;
  low text;
  high text;
begin
  for target in
    select l.parent, case l.parent when '_feed' then 'pos' else 'event_id' end as key
      from webhook._retention_list() as l
  loop
    continue when to_regclass(format('webhook.%I', target.parent)) is null;
    -- The first day has no partition: there was nobody yet who could have made one.
    select min(to_date(right(c.relname, 8), 'YYYYMMDD'))
      into first_day
      from pg_inherits as i
      join pg_class as c on c.oid = i.inhrelid
     where i.inhparent = format('webhook.%I', target.parent)::regclass
       and c.relname ~ '_[0-9]{8}$';
    continue when first_day is null;
    low := webhook._day_bound(target.parent, greatest((since at time zone 'UTC')::date, first_day));
    high := webhook._day_bound(target.parent, (until at time zone 'UTC')::date + 1);
    execute format('select count(*) from webhook.%I as t where t.%I >= %L and t.%I < %L', target.parent || '_default', target.key, low,
                   target.key, high)
       into rows;
    if rows > 0 then
      object := target.parent;
      happened_at := until - interval '1 microsecond';
      detail := format('%s rows are in the DEFAULT partition although partitions were made before.', rows);
      return next;
    end if;
  end loop;
end
$$;
comment on function webhook._find_default_rows(timestamptz, timestamptz) is 'Rows of days that should have a partition and have none.';

create function webhook._count_days(
  since timestamptz, -- days that end after this time
  until timestamptz  -- and before this one
) returns table (
  day date,
  happened_at timestamptz,
  detail text
)
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
declare
  now_there webhook._day_count;
  was webhook._day_count;
  low text;
  high text;
begin
  for day in
    select d::date
      from generate_series(date_trunc('day', since, 'UTC') at time zone 'UTC', (until at time zone 'UTC') - interval '1 day', '1 day') as d
  loop
    low := webhook._day_bound('_event', day);
    high := webhook._day_bound('_event', day + 1);
    now_there := row(
      day, clock_timestamp(),
      (select count(*) from webhook._event as e where e.event_id >= low and e.event_id < high),
      (select count(*) from webhook._feed as f
        where f.pos >= webhook._day_bound('_feed', day)::bigint and f.pos < webhook._day_bound('_feed', day + 1)::bigint),
      (select count(*) from webhook._delivery as d where d.event_id >= low and d.event_id < high),
      (select count(*) from webhook._attempt as a where a.event_id >= low and a.event_id < high));
    -- Attempts go first, by their own retention.
    if day < ((clock_timestamp() - least(webhook._age('attempt'),
                                         webhook._age('delivery'))) at time zone 'UTC')::date + 1 then
      now_there.attempts := null;
    end if;
    select c.* into was from webhook._day_count as c where c.day = _count_days.day;
    if found and (now_there.events < was.events or now_there.published < was.published or now_there.deliveries < was.deliveries
                  or now_there.attempts < was.attempts) then
      happened_at := (day + 1)::timestamp at time zone 'UTC' - interval '1 microsecond';
      detail := format('There were %s events, %s in the feed, %s deliveries and %s attempts; there are %s, %s, %s and %s.',
                       was.events, was.published, was.deliveries, was.attempts, now_there.events, now_there.published,
                       now_there.deliveries, coalesce(now_there.attempts, was.attempts));
      return next;
    end if;
    insert into webhook._day_count as c (day, events, published, deliveries, attempts)
    values (now_there.day, now_there.events, now_there.published, now_there.deliveries, coalesce(now_there.attempts, 0))
    on conflict on constraint _day_count_pkey do update
       set counted_at = excluded.counted_at,
           events = greatest(c.events, excluded.events),
           published = greatest(c.published, excluded.published),
           deliveries = greatest(c.deliveries, excluded.deliveries),
           attempts = greatest(c.attempts, excluded.attempts);
  end loop;
end
$$;
comment on function webhook._count_days(timestamptz, timestamptz) is 'Counts the days that ended in a range, and tells those that have fewer rows than before.';

create function webhook._ask_repair(
  run bigint -- run of reconcile whose findings are to be repaired
) returns void
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  piece record;
  asked bigint;
begin
  for piece in
    select f.event_id, null::text[] as event_ids, null::bigint[] as endpoint_ids, array[f.finding_id] as findings, f.partner_id
      from webhook._finding as f
     where f.run = _ask_repair.run
       and f.repaired_at is null
       and f.kind = 'event.unpublished'
     union all
    -- As many pairs in one request as the leader takes up at a time.
    select null, array_agg(t.event_id), array_agg(t.endpoint_id), array_agg(t.finding_id), null
      from (select f.event_id, f.endpoint_id, f.finding_id, (row_number() over (order by f.finding_id) - 1) / 1000 as n
              from webhook._finding as f
             where f.run = _ask_repair.run
               and f.repaired_at is null
               and f.kind in ('pair.missing', 'delivery.not_due', 'due.without_delivery', 'due.settled')) as t
     group by t.n
  loop
    -- An earlier request about the very same may still wait.
    continue when exists (
      select
        from webhook._finding as f
        join webhook._request as q on q.request_id = f.request_id and q.state = 'pending'
       where f.finding_id = any (piece.findings));
    asked := webhook._ask(
      'repair', case when piece.event_id is null then 'delivery' else 'event' end, piece.event_id, piece.partner_id, piece.event_id,
      reason => 'found by reconcile',
      event_ids => piece.event_ids,
      endpoint_ids => piece.endpoint_ids,
      after => jsonb_build_object('findings', cardinality(piece.findings)),
      called => 'reconcile');
    update webhook._finding as f
       set request_id = asked
     where f.finding_id = any (piece.findings);
  end loop;
end
$$;
comment on function webhook._ask_repair(bigint) is 'Asks the leader to repair what a run found and can be repaired; tampered rows and lost evidence cannot.';

create function webhook._close_findings(
  run bigint,        -- run of reconcile that did not find them any more
  check_name text,   -- registered query; null = the tables
  since timestamptz, -- judged from this time
  until timestamptz  -- up to this one
) returns void
language sql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
  update webhook._finding as f
     set repaired_at = clock_timestamp(),
         how = coalesce((select format('request %s: %s', q.request_id, q.result)
                           from webhook._request as q
                          where q.request_id = f.request_id
                            and q.state = 'done'), 'it is not there any more')
   where f.repaired_at is null
     and f.run <> _close_findings.run
     and f.check_name is not distinct from _close_findings.check_name
     and f.happened_at >= since
     and f.happened_at < until
$$;
comment on function webhook._close_findings(bigint, text, timestamptz, timestamptz) is 'Gaps of a range that a run did not find any more are repaired.';

create function webhook._reconcile(
  since timestamptz,  -- judged from this time
  until timestamptz,  -- up to this one
  settle interval,    -- what is younger is not judged
  repair boolean,     -- whether the leader is asked to repair
  out run bigint,
  out low timestamptz,
  out high timestamptz
) returns record
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: the tables belong to the owner alone; what runs here is the extension's own code.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_variable
declare
  kept constant timestamptz := date_trunc('day', clock_timestamp()
    - least(webhook._age('delivery'), webhook._age('event')), 'UTC')
    + interval '1 day';
begin
  perform webhook._check_writable('reconcile');
  perform webhook._check_argument('settle', settle is null);
  perform webhook._check_argument('repair', repair is null);
  if settle < interval '0' or settle > interval '1 day' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'settle is outside the valid range',
      detail = 'It is at most a day.';
  end if;
  high := least(until, clock_timestamp() - settle);
  low := coalesce(since, high - interval '25 hours');
  if since >= until or not isfinite(low) or not isfinite(high) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = '"since" must be earlier than "until"',
      detail = 'Both are finite; null means the last 25 hours.';
  end if;
  if high - low > interval '32 days' then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'the range is too long',
      detail = 'It may be 32 days.',
      hint = 'Reconcile one month after the other.';
  end if;
  -- Deliveries of older days have gone by their retention.
  low := greatest(low, kept);
  run := webhook._new_id();
  if low < high then
    insert into webhook._finding as f
      (finding_id, kind, object, happened_at, partner_id, event_id, endpoint_id, detail, run)
    select webhook._new_id(), g.kind, g.object, g.happened_at, g.partner_id, g.event_id, g.endpoint_id, g.detail, run
      from (select distinct on (t.kind, t.object) t.*
              from (select a.* from webhook._find_gaps(low, high, clock_timestamp() - settle) as a
                     union all
                    select 'default.rows', d.object, d.happened_at, null, null, null, d.detail
                      from webhook._find_default_rows(low, high) as d
                     union all
                    select 'day.count_drift', c.day::text, c.happened_at, null, null, null, c.detail
                      from webhook._count_days(low, high) as c) as t
             order by t.kind, t.object) as g
    on conflict (kind, object) where repaired_at is null do update
       set seen_at = clock_timestamp(),
           detail = excluded.detail,
           run = excluded.run;
    perform webhook._close_findings(run, null, low, high);
    if repair then
      perform webhook._ask_repair(run);
    end if;
  end if;
  perform webhook._log(
    'reconcile', 'all', null,
    after => jsonb_build_object('since', webhook._rfc3339(low), 'until', webhook._rfc3339(high),
                                'found', (select count(*) from webhook._finding as f where f.run = _reconcile.run)));
end
$$;
comment on function webhook._reconcile(timestamptz, timestamptz, interval, boolean) is 'What reconcile does with the tables.';

create function webhook._registered_checks(
  out name text,
  out query text
) returns setof record
language plpgsql stable parallel safe
-- SECURITY DEFINER: for reconcile, whose caller need not read the table.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
begin
  for name, query in
    select r.name, r.query from webhook._reconciliation as r order by r.name
  loop
    perform webhook._check_query(query);
    return next;
  end loop;
end
$$;
comment on function webhook._registered_checks() is 'The registered queries, after another look at whose rights they run with.';

create function webhook._check_query(
  query text -- schema-qualified name of a function
) returns void
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  definer boolean;
begin
  select p.prosecdef
    into definer
    from pg_proc as p
   where p.oid = to_regprocedure(query || '(timestamptz, timestamptz)')
     and p.prokind = 'f';
  if not found then
    raise exception using
      errcode = 'undefined_function',
      message = format('function %s(timestamptz, timestamptz) does not exist', left(query, 200)),
      hint = 'A query is a function of the two ends of a range that returns rows with subject_id and changed_at.';
  end if;
  -- Whoever reconciles must not lend his rights to whoever wrote the query.
  if not definer then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('function %s runs with the rights of whoever calls it', query),
      hint = 'Make it SECURITY DEFINER, with a search_path of its own: then it can do what its owner can and no more.';
  end if;
end
$$;
comment on function webhook._check_query(text) is 'Refuses a query that would run with the rights of whoever reconciles.';

create function webhook._judge_changes(
  run bigint,        -- run of reconcile
  name text,         -- registered query
  changes jsonb,     -- its rows
  since timestamptz, -- the range that it was asked for
  until timestamptz
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: as _reconcile; the rows are compared, never executed.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_variable
declare
  asked webhook._reconciliation;
  bad jsonb;
begin
  select r.* into asked from webhook._reconciliation as r where r.name = _judge_changes.name;
  if not found then
    return;
  end if;
  select c.row
    into bad
    from jsonb_array_elements(changes) as c (row)
   where c.row ->> 'subject_id' is null
      or c.row ->> 'changed_at' is null
   limit 1;
  if found then
    raise exception using
      errcode = 'null_value_not_allowed',
      message = format('query "%s" returned a change without subject_id or changed_at', name);
  end if;
  insert into webhook._finding as f
    (finding_id, kind, object, happened_at, partner_id, check_name, detail, run)
  select webhook._new_id(), 'change.without_event',
         format('%s %s:%s %s', name, asked.subject_type, g.subject_id, coalesce('version ' || g.version, webhook._rfc3339(g.changed_at))),
         least(greatest(g.changed_at, since), until - interval '1 microsecond'), g.partner_id, name,
         format('No event %s reports it.', asked.event_type), run
    from (select distinct on (c.subject_id, coalesce(c.version::text, c.changed_at::text)) c.*
            from (select e.row ->> 'subject_id' as subject_id,
                         (e.row ->> 'changed_at')::timestamptz as changed_at,
                         e.row ->> 'partner_id' as partner_id,
                         (e.row ->> 'subject_version')::bigint as version
                    from jsonb_array_elements(changes) as e (row)) as c
           order by c.subject_id, coalesce(c.version::text, c.changed_at::text)) as g
   where not exists (
           select
             from webhook._event as e
            where e.subject_type = asked.subject_type
              and e.subject_id = g.subject_id
              and e.type = asked.event_type
              and (g.partner_id is null or e.partner_id = g.partner_id)
              and case
                    when g.version is not null then e.subject_version = g.version
                    else webhook._event_time(e.event_id) between g.changed_at - asked.tolerance and g.changed_at + asked.tolerance
                      or e.occurred_at between g.changed_at - asked.tolerance and g.changed_at + asked.tolerance
                  end)
  on conflict (kind, object) where repaired_at is null do update
     set seen_at = clock_timestamp(),
         run = excluded.run;
  perform webhook._close_findings(run, name, since, until);
end
$$;
comment on function webhook._judge_changes(bigint, text, jsonb, timestamptz, timestamptz) is 'Compares changes of the business with the events that should report them.';

create function webhook._found(
  run bigint,            -- run of reconcile
  out kind text,
  out found bigint,
  out new bigint,
  out repairing bigint
) returns setof record
language sql stable parallel safe
-- SECURITY DEFINER: for reconcile, whose caller need not read the table; it tells numbers.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select f.kind, count(*), count(*) filter (where f.seen_at = f.detected_at or f.finding_id > _found.run), count(q.request_id)
    from webhook._finding as f
    left join webhook._request as q on q.request_id = f.request_id and q.state = 'pending'
   where f.run = _found.run
   group by f.kind
   order by f.kind
$$;
comment on function webhook._found(bigint) is 'What a run of reconcile found, by kind.';

create function webhook._ask_query(
  query text,         -- schema-qualified name of a function
  since timestamptz,  -- the range that it is asked for
  until timestamptz
) returns text -- its rows, as a JSON array
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  changes text;
begin
  execute format('select coalesce(pg_catalog.jsonb_agg(pg_catalog.to_jsonb(c)), ''[]'')::text from (select r.* from %s($1, $2) as r limit 10001) as c', query)
     into changes
    using since, until;
  return changes;
end
$$;
comment on function webhook._ask_query(text, timestamptz, timestamptz) is 'What a registered query returns. Called by _changes alone, as the owner of the query.';

create function webhook._changes(
  helper oid,         -- _ask_query
  query text,         -- schema-qualified name of a function
  since timestamptz,  -- the range that it is asked for
  until timestamptz
) returns text -- its rows, as a JSON array
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'changes_of_wrapper';
comment on function webhook._changes(oid, text, timestamptz, timestamptz) is
  'Asks a registered query with the rights of its owner and no others: in a savepoint, as a security-restricted operation that writes nothing.';

create function webhook.reconcile(
  since timestamptz default null,        -- judge what happened at this time or later; null = the last 25 hours
  until timestamptz default null,        -- and before this time; null = up to now
  repair boolean default true,           -- whether the leader is asked to repair what can be repaired
  settle interval default '5 minutes'    -- what is younger is not judged
) returns table (
  kind text,        -- what is wrong
  found bigint,     -- how many there are
  new bigint,       -- how many of them were not known before
  repairing bigint  -- for how many a request to the leader is under way
)
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: the tables belong to the owner alone. Registered queries run with the rights of theirs, see _changes.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  range record;
  registered record;
  changes jsonb;
begin
  range := webhook._reconcile(since, until, settle, repair);
  for registered in
    select c.name, c.query from webhook._registered_checks() as c
  loop
    changes := webhook._changes('webhook._ask_query(text, timestamptz, timestamptz)'::regprocedure, registered.query, range.low, range.high);
    if jsonb_array_length(changes) > 10000 then
      raise exception using
        errcode = 'program_limit_exceeded',
        message = format('query "%s" returned too many changes', registered.name),
        detail = 'At most 10000 are compared at a time.',
        hint = 'Reconcile a shorter range.';
    end if;
    perform webhook._judge_changes(range.run, registered.name, changes, range.low, range.high);
  end loop;
  return query
    select f.kind, f.found, f.new, f.repairing from webhook._found(range.run) as f;
end
$$;
comment on function webhook.reconcile(timestamptz, timestamptz, boolean, interval) is
  'Looks for gaps: between events, feed, deliveries, attempts and what is due, in the counts of days, and in what registered queries report. Records them in the view reconciliation, and asks the leader to repair what can be repaired.';

create function webhook.create_reconciliation(
  name text,                              -- name of the check
  event_type text,                        -- event type that reports the changes
  subject_type text,                      -- kind of the subject that changes
  query regprocedure,                     -- function (since timestamptz, until timestamptz): rows with subject_id, changed_at and, where there is one, partner_id and subject_version
  tolerance interval default '5 minutes', -- how far the time of the event may be from that of the change
  description text default null           -- free text
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: as expunge.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  called text;
begin
  perform webhook._check_writable('register a query');
  perform webhook._check_argument('name', name is null);
  perform webhook._check_argument('event_type', event_type is null);
  perform webhook._check_argument('subject_type', subject_type is null);
  perform webhook._check_argument('query', query is null);
  perform webhook._check_argument('tolerance', tolerance is null);
  if name !~ '^[A-Za-z0-9_.-]{1,128}$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'name is not valid',
      detail = 'A name has 1 to 128 characters of A-Z, a-z, 0-9, "_", "." and "-".';
  end if;
  perform webhook._check_type(event_type);
  if tolerance < interval '0' or tolerance > interval '7 days' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'tolerance is outside the valid range',
      detail = 'It is at most 7 days.';
  end if;
  select format('%I.%I', n.nspname, p.proname)
    into called
    from pg_proc as p
    join pg_namespace as n on n.oid = p.pronamespace
   where p.oid = query
     and p.pronargs = 2
     and p.proargtypes[0] = 'timestamptz'::regtype
     and p.proargtypes[1] = 'timestamptz'::regtype;
  perform webhook._check_query(coalesce(called, query::regproc::text));
  -- It runs with the rights of its owner, who must have agreed.
  if not exists (select from pg_proc as p where p.oid = query and pg_has_role(session_user, p.proowner, 'member')) then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('permission denied for function %s', called),
      detail = 'A query is registered by its owner, or a member of that role: it runs with the owner''s rights.';
  end if;
  insert into webhook._reconciliation as r (name, event_type, subject_type, query, tolerance, description)
  values (create_reconciliation.name, create_reconciliation.event_type, create_reconciliation.subject_type, called,
          create_reconciliation.tolerance, create_reconciliation.description)
  on conflict on constraint _reconciliation_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('query "%s" already exists', name),
      hint = 'See webhook.reconciliations.';
  end if;
  perform webhook._log('create_reconciliation', 'reconciliation', name,
                       after => jsonb_build_object('event_type', event_type, 'subject_type', subject_type, 'query', called));
end
$$;
comment on function webhook.create_reconciliation(text, text, text, regprocedure, interval, text) is
  'Registers a query that finds changes of the business: reconcile compares them with the events of a type. It must be SECURITY DEFINER.';

create function webhook.delete_reconciliation(
  name text -- name of the check
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: as expunge.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_writable('delete a query');
  perform webhook._check_argument('name', name is null);
  delete from webhook._reconciliation as r where r.name = delete_reconciliation.name;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('query "%s" does not exist', left(name, 128)),
      hint = 'See webhook.reconciliations.';
  end if;
  -- Nobody will look at them again.
  update webhook._finding as f
     set repaired_at = clock_timestamp(),
         how = 'the query was deleted'
   where f.check_name = delete_reconciliation.name
     and f.repaired_at is null;
  perform webhook._log('delete_reconciliation', 'reconciliation', name);
end
$$;
comment on function webhook.delete_reconciliation(text) is 'Forgets a registered query; its findings stay.';
-- The private tables as whoever reads them may see them: what the public views and lists are built on.
-- Like the public views these belong to webhook_views, so that the policies of 91_access.sql hold below them. The lists
-- run with the rights of their caller and read nothing else, so what they show cannot exceed what the views show.

create view webhook._seen_endpoint as
select e.endpoint_id,
       e.partner_id,
       e.test,
       e.origin,
       coalesce(s.state, e.state) as state,
       case when s.state is null then e.state_reason else s.reason end as state_reason,
       case when s.state is null then e.state_changed_at else s.changed_at end as state_changed_at
  from webhook._endpoint e
  left join webhook._endpoint_state s
         on s.endpoint_id = e.endpoint_id
        and s.generation = e.generation;
comment on view webhook._seen_endpoint is '_effective_endpoint as the reader may see it.';
comment on column webhook._seen_endpoint.endpoint_id is 'The endpoint.';
comment on column webhook._seen_endpoint.partner_id is 'Tenant that owns it.';
comment on column webhook._seen_endpoint.test is 'Test endpoint.';
comment on column webhook._seen_endpoint.origin is 'Which database made it.';
comment on column webhook._seen_endpoint.state is 'State in force.';
comment on column webhook._seen_endpoint.state_reason is 'Why.';
comment on column webhook._seen_endpoint.state_changed_at is 'Since when.';

create view webhook._seen_feed as
select f.pos,
       f.published_at,
       f.partner_id,
       f.event_id,
       f.type,
       f.test
  from webhook._feed f;
comment on view webhook._seen_feed is 'The feed as the reader may see it.';
comment on column webhook._seen_feed.pos is 'Position.';
comment on column webhook._seen_feed.published_at is 'When the leader read the event.';
comment on column webhook._seen_feed.partner_id is 'Tenant that the event belongs to.';
comment on column webhook._seen_feed.event_id is 'The event.';
comment on column webhook._seen_feed.type is 'Event type.';
comment on column webhook._seen_feed.test is 'Test event.';

create view webhook._seen_delivery as
select d.event_id,
       d.endpoint_id,
       d.state,
       d.attempt_count
  from webhook._delivery d;
comment on view webhook._seen_delivery is 'Deliveries as the reader may see them, as much as the lists need.';
comment on column webhook._seen_delivery.event_id is 'The event.';
comment on column webhook._seen_delivery.endpoint_id is 'The endpoint.';
comment on column webhook._seen_delivery.state is 'State of the delivery.';
comment on column webhook._seen_delivery.attempt_count is 'Attempts so far.';

create view webhook._seen_excerpt as
select x.event_id,
       x.endpoint_id,
       x.attempt_no,
       -- Redacted when it was stored, and again: what a later version or a new setting hides is hidden in old rows, too.
       webhook._redact(x.body) as body
  from webhook._excerpt x;
comment on view webhook._seen_excerpt is 'Excerpts of responses as the reader may see them.';
comment on column webhook._seen_excerpt.event_id is 'The event.';
comment on column webhook._seen_excerpt.endpoint_id is 'The endpoint.';
comment on column webhook._seen_excerpt.attempt_no is 'Number of the attempt.';
comment on column webhook._seen_excerpt.body is 'Beginning of the response body, redacted.';
-- What users look at: events, deliveries, attempts, endpoints, event types and requests.
-- No view shows a payload, a response body or a secret. Look-ups that a view cannot answer from an index
-- are the functions of 61_list.sql.
-- A function that is named in a view runs with the rights of whoever reads the view: grant_access gives what they need.

create function webhook._publication(
  partner_id text,             -- tenant of the event
  event_id text,               -- the event
  out pos bigint,              -- its place in the feed; null when the leader has not read it
  out published_at timestamptz -- when the leader read it
) returns record
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  emitted_at constant timestamptz := webhook._event_time(event_id);
  span interval := '1 minute';
  low bigint := webhook._pos_bound(emitted_at);
  high bigint;
begin
  -- The feed has no index by event: the partner's rows are walked from the moment of the emit on. The walk
  -- is cut into growing pieces, because one ORDER BY over all days merges them and reads every later row
  -- of the partner first (13,085 buffers instead of 5 for a month-old event of a busy partner).
  loop
    if emitted_at + span < clock_timestamp() then
      high := webhook._pos_bound(emitted_at + span);
    else
      high := 9223372036854775807;
    end if;
    select f.pos, f.published_at
      into pos, published_at
      from webhook._seen_feed f
     where f.partner_id = _publication.partner_id
       and f.event_id = _publication.event_id
       and f.pos >= low
       and f.pos < high
     order by f.pos
     limit 1;
    exit when found or high = 9223372036854775807;
    low := high;
    span := span * 8;
  end loop;
end
$$;
comment on function webhook._publication(text, text) is 'Where an event stands in its partner''s feed.';

create view webhook.events as
select e.event_id,
       e.partner_id,
       e.type,
       e.source,
       e.subject_type,
       e.subject_id,
       e.subject_version,
       e.scope,
       e.schema_version,
       e.correlation_id,
       e.causation,
       e.traceparent,
       e.test,
       e.occurred_at,
       webhook._event_time(e.event_id) as emitted_at,
       (select p.published_at from webhook._publication(e.partner_id, e.event_id) as p) as published_at,
       octet_length(e.body) as data_bytes,
       case
         when e.origin <> (select webhook._origin())
              and not exists (select from webhook._admitted_origin a where a.origin = e.origin) then 'origin'
         when exists (select from webhook._fenced f where f.event_id = e.event_id) then 'seal'
       end as fenced
  from webhook._event e;
comment on view webhook.events is
  'Events, without their payload. Fast by event_id, by subject_type with subject_id, and by correlation_id; by partner or type with time use list_events.';
comment on column webhook.events.event_id is 'Id of the event; sorts by the time of the emit.';
comment on column webhook.events.partner_id is 'Tenant that the event belongs to.';
comment on column webhook.events.type is 'Event type, object.change.';
comment on column webhook.events.source is 'Producer of the event.';
comment on column webhook.events.subject_type is 'Kind of the object that changed.';
comment on column webhook.events.subject_id is 'Identity of the object that changed.';
comment on column webhook.events.subject_version is 'Version of the object after the change.';
comment on column webhook.events.scope is 'Authorisation scope.';
comment on column webhook.events.schema_version is 'Version of the payload''s schema.';
comment on column webhook.events.correlation_id is 'Ties the event to the operation that caused it.';
comment on column webhook.events.causation is 'Event id of the parent event.';
comment on column webhook.events.traceparent is 'W3C trace context of the operation.';
comment on column webhook.events.test is 'Test event: goes to test endpoints only.';
comment on column webhook.events.occurred_at is 'When the business change happened.';
comment on column webhook.events.emitted_at is 'When the event was emitted.';
comment on column webhook.events.published_at is 'When the leader read the event, after its transaction had committed; null = not yet. Costs a short walk of the partner''s feed for each row.';
comment on column webhook.events.data_bytes is 'Size of the payload; null once it is expunged.';
comment on column webhook.events.fenced is
  'Why the event is never sent: origin = it came with a copy of another database and was not adopted, seal = its row was changed after the emit; null = it is not fenced.';

create view webhook.deliveries as
select webhook._delivery_id(d.event_id, d.endpoint_id) as delivery_id,
       d.event_id,
       d.endpoint_id,
       p.partner_id,
       (select e.type from webhook._event e where e.event_id = d.event_id) as type,
       d.state,
       d.reason,
       d.attempt_count,
       d.series_start,
       case
         when d.attempt_count = 1 then d.last_attempt_at
         when d.attempt_count > 1 then
           (select a.started_at
              from webhook._attempt a
             where a.event_id = d.event_id
               and a.endpoint_id = d.endpoint_id
               and a.attempt_no = 1)
       end as first_attempt_at,
       d.last_attempt_at,
       d.next_attempt_at,
       d.delivered_at,
       d.last_status,
       d.last_latency_ms,
       d.last_error_category,
       d.last_response_bytes,
       d.last_key_ids,
       d.last_body_sha256,
       d.revision,
       case when d.state in ('pending', 'retrying') then
         (select nullif(array_remove(array[
                   case when w.hold & 1 <> 0 then 'event_type' end,
                   case when w.hold & 2 <> 0 then 'order' end,
                   case when w.hold & 4 <> 0 then 'quarantine' end,
                   case when w.hold & 8 <> 0 then 'filter' end,
                   case when w.hold & 16 <> 0 then 'conversion' end], null), '{}')
            from webhook._due w
           where w.event_id = d.event_id
             and w.endpoint_id = d.endpoint_id)
       end as held_by
  from webhook._delivery d
  join webhook._endpoint p on p.endpoint_id = d.endpoint_id;
comment on view webhook.deliveries is
  'What became of each event at each endpoint, from its first outcome on. Fast by event_id, by endpoint_id newest first (order by event_id desc), and by a state other than delivered; by partner and time, or by delivery_id, use list_deliveries.';
comment on column webhook.deliveries.delivery_id is 'Id of the delivery, made of event_id and endpoint_id; sent as webhook-delivery.';
comment on column webhook.deliveries.event_id is 'The event.';
comment on column webhook.deliveries.endpoint_id is 'The endpoint.';
comment on column webhook.deliveries.partner_id is 'Tenant that owns the endpoint and the event.';
comment on column webhook.deliveries.type is 'Event type; looked up for each row.';
comment on column webhook.deliveries.state is 'pending, retrying, delivered, dead, cancelled, skipped or closed.';
comment on column webhook.deliveries.reason is 'Why it is dead, cancelled, skipped or closed.';
comment on column webhook.deliveries.attempt_count is 'Attempts so far; the number of the latest one.';
comment on column webhook.deliveries.series_start is 'Attempts made before the current series of the schedule; a replay starts a new one.';
comment on column webhook.deliveries.first_attempt_at is 'Start of the first attempt; null before it, and once it is older than the retention of attempts.';
comment on column webhook.deliveries.last_attempt_at is 'Start of the latest attempt.';
comment on column webhook.deliveries.next_attempt_at is 'When the next attempt is due; null when none is.';
comment on column webhook.deliveries.delivered_at is 'When the first 2xx arrived; later replays keep it.';
comment on column webhook.deliveries.last_status is 'HTTP status of the latest attempt; null when there was none.';
comment on column webhook.deliveries.last_latency_ms is 'Milliseconds that the latest attempt took.';
comment on column webhook.deliveries.last_error_category is 'Why the latest attempt failed; null after a success.';
comment on column webhook.deliveries.last_response_bytes is 'Bytes of response body read in the latest attempt.';
comment on column webhook.deliveries.last_key_ids is 'Ids of the keys that signed the latest attempt, in order.';
comment on column webhook.deliveries.last_body_sha256 is 'SHA-256 of the body sent in the latest attempt.';
comment on column webhook.deliveries.revision is 'Shape of the payload, fixed by the first attempt.';
comment on column webhook.deliveries.held_by is
  'Why a pending or retrying delivery is not sent when its time comes: event_type (paused), order, quarantine, filter, conversion; null = it is not held. Pauses of the endpoint, the partner or everything: see pauses.';

create view webhook.attempts as
select webhook._delivery_id(a.event_id, a.endpoint_id) as delivery_id,
       a.event_id,
       a.endpoint_id,
       a.attempt_no,
       a.started_at,
       a.outcome,
       a.status,
       a.latency_ms,
       a.error_category,
       a.phase,
       -- Where a name leads inside the network is not for tenants.
       case
         when a.error_category = 'blocked' and not (select webhook._sees_all()) then 'address, port or URL is refused by the boundary'
         else a.detail
       end as detail,
       a.next_attempt_at,
       a.response_bytes,
       a.key_ids,
       a.body_sha256,
       (select e.correlation_id from webhook._event e where e.event_id = a.event_id) as correlation_id,
       (select e.causation from webhook._event e where e.event_id = a.event_id) as causation,
       (select e.traceparent from webhook._event e where e.event_id = a.event_id) as traceparent
  from webhook._attempt a
union all
-- A first try that succeeded has no row in _attempt until there is a second one.
select webhook._delivery_id(d.event_id, d.endpoint_id),
       d.event_id,
       d.endpoint_id,
       1,
       d.last_attempt_at,
       d.state,
       d.last_status,
       d.last_latency_ms,
       null,
       null,
       null,
       null,
       d.last_response_bytes,
       d.last_key_ids,
       d.last_body_sha256,
       (select e.correlation_id from webhook._event e where e.event_id = d.event_id),
       (select e.causation from webhook._event e where e.event_id = d.event_id),
       (select e.traceparent from webhook._event e where e.event_id = d.event_id)
  from webhook._delivery d
 where d.state = 'delivered'
   and d.attempt_count = 1;
comment on view webhook.attempts is
  'Every HTTP request made or possibly made. Fast by event_id, with or without endpoint_id. What the receiver answered: read_excerpt.';
comment on column webhook.attempts.delivery_id is 'The delivery.';
comment on column webhook.attempts.event_id is 'The event.';
comment on column webhook.attempts.endpoint_id is 'The endpoint.';
comment on column webhook.attempts.attempt_no is 'Number within the delivery, from 1 without gaps; sent as webhook-attempt.';
comment on column webhook.attempts.started_at is 'When it began; its second is the signed timestamp.';
comment on column webhook.attempts.outcome is 'What followed: delivered, retry or dead.';
comment on column webhook.attempts.status is 'HTTP status; null when there was none.';
comment on column webhook.attempts.latency_ms is 'Milliseconds from connecting to the end of the answer; null for a lost attempt.';
comment on column webhook.attempts.error_category is 'Error category; null after a 2xx.';
comment on column webhook.attempts.phase is 'Where a time-out or protocol error struck.';
comment on column webhook.attempts.detail is 'What happened, in the sender''s own words; a partner''s role is not told which address was blocked.';
comment on column webhook.attempts.next_attempt_at is 'When the next attempt was planned; null when none was.';
comment on column webhook.attempts.response_bytes is 'Bytes of response body read.';
comment on column webhook.attempts.key_ids is 'Ids of the keys that signed, in order.';
comment on column webhook.attempts.body_sha256 is 'SHA-256 of the body sent.';
comment on column webhook.attempts.correlation_id is 'Ties the event to the operation that caused it; sent as webhook-correlation-id, percent-encoded. This and the two below are looked up for each row.';
comment on column webhook.attempts.causation is 'Event id of the parent event; sent as webhook-causation-id.';
comment on column webhook.attempts.traceparent is 'W3C trace context of the operation; sent as traceparent.';

create view webhook.endpoints as
select e.endpoint_id,
       e.partner_id,
       -- Many receivers take a token in the path or the query.
       case
         when (select webhook._manages()) or e.partner_id = any ((select webhook._own_partners())::text[]) then e.url
         else regexp_replace(e.url, '^([a-z]+://[^/?#]*).*$', '\1/…')
       end as url,
       e.event_types,
       e.test,
       f.state,
       f.state_reason,
       f.state_changed_at,
       e.verify,
       e.description,
       e.max_in_flight,
       (select array_agg(s.key_id order by s.key_id)
          from webhook._secret s
         where s.endpoint_id = e.endpoint_id
           and (s.valid_until is null or s.valid_until > clock_timestamp())) as key_ids,
       r.format,
       e.revision,
       e.origin <> (select webhook._origin()) as inert,
       e.created_at,
       e.created_by,
       e.policy,
       e.ordered,
       e.verified_at,
       e.verified_by,
       substring(e.pending_url from '^[a-z]+://([^/?#]*)') as pending_host,
       e.expires_at,
       e.signature,
       e.header_names,
       e.subject_types,
       e.filter,
       e.filter_version,
       r.data_shape,
       r.fields,
       r.schema_versions
  from webhook._endpoint e
  join webhook._seen_endpoint f on f.endpoint_id = e.endpoint_id
  left join webhook._endpoint_revision r on r.endpoint_id = e.endpoint_id and r.revision = e.revision;
comment on view webhook.endpoints is 'Endpoints with the state that is in force; deleted ones stay. Fast by endpoint_id and by partner_id.';
comment on column webhook.endpoints.endpoint_id is 'Id of the endpoint.';
comment on column webhook.endpoints.partner_id is 'Tenant that owns it.';
comment on column webhook.endpoints.url is 'Callback URL; for readers that neither operate nor own the endpoint, its host only.';
comment on column webhook.endpoints.event_types is 'Event types and wildcards that are sent here.';
comment on column webhook.endpoints.test is 'Test endpoint: receives test events only.';
comment on column webhook.endpoints.state is 'unverified, active, paused, disabled, expired or deleted.';
comment on column webhook.endpoints.state_reason is 'Why.';
comment on column webhook.endpoints.state_changed_at is 'Since when.';
comment on column webhook.endpoints.verify is 'How control of the URL is to be proven.';
comment on column webhook.endpoints.description is 'Free text of the operator.';
comment on column webhook.endpoints.max_in_flight is 'Concurrent requests; null = what the policy says.';
comment on column webhook.endpoints.key_ids is 'Ids of the keys that sign now; null when there is none.';
comment on column webhook.endpoints.format is 'Form of the body: native, cloudevents-structured or cloudevents-binary.';
comment on column webhook.endpoints.revision is 'Number of the current shape.';
comment on column webhook.endpoints.inert is 'True in a copy of the database that made the endpoint: nothing is sent to it.';
comment on column webhook.endpoints.created_at is 'When it was made.';
comment on column webhook.endpoints.created_by is 'Session user who made it.';
comment on column webhook.endpoints.policy is 'How deliveries are retried and limited; null = the policy "default".';
comment on column webhook.endpoints.ordered is 'Keeps the order of each subject.';
comment on column webhook.endpoints.verified_at is 'When control of the URL was proven, or the proof was spared; null = never.';
comment on column webhook.endpoints.verified_by is 'How: challenge, graph, slack, or none when an operator did without.';
comment on column webhook.endpoints.pending_host is 'Host of a new URL that is not proven yet; url stays in force until it is.';
comment on column webhook.endpoints.expires_at is 'When it expires unless it is renewed; null = never.';
comment on column webhook.endpoints.signature is 'Signature profile.';
comment on column webhook.endpoints.header_names is 'Names of the headers that the operator adds; null = none.';
comment on column webhook.endpoints.subject_types is 'Subject types whose events are sent here; null = all, and events without a subject.';
comment on column webhook.endpoints.filter is 'Condition on the payload, as PostgreSQL spells it; null = none.';
comment on column webhook.endpoints.filter_version is 'How often subject types or filter were set.';
comment on column webhook.endpoints.data_shape is 'How much of the data is sent: full, fields, thin or delta.';
comment on column webhook.endpoints.fields is 'Of fields: paths of the members that are kept.';
comment on column webhook.endpoints.schema_versions is 'Schema version by event type; null = every event as it was emitted.';

create view webhook.requests as
select r.request_id,
       r.verb,
       r.event_id,
       r.endpoint_id,
       r.state,
       r.result,
       r.deliveries,
       r.requested_by,
       r.requested_at,
       r.finished_at,
       r.scope,
       r.target,
       r.reason
  from webhook._request r;
comment on view webhook.requests is 'What was asked of the leader, and what came of it. Fast by request_id, which sorts by time.';
comment on column webhook.requests.request_id is 'Id of the request.';
comment on column webhook.requests.verb is 'What is asked: replay, retry, skip, close, pause, resume, verify_endpoint, adopt, replay_range, cancel_replay or repair.';
comment on column webhook.requests.event_id is 'The event concerned; null when there are several, or none.';
comment on column webhook.requests.endpoint_id is 'The endpoint concerned; null = several, and of a replay every delivery of the event.';
comment on column webhook.requests.state is 'pending, done or refused.';
comment on column webhook.requests.result is 'What came of it, in words.';
comment on column webhook.requests.deliveries is 'How many deliveries it concerned.';
comment on column webhook.requests.requested_by is 'Session user who asked.';
comment on column webhook.requests.requested_at is 'When it was asked.';
comment on column webhook.requests.finished_at is 'When the leader carried it out or refused it, and from when on a pause holds; null = not yet.';
comment on column webhook.requests.scope is 'Of a pause or its end: all, partner, event_type or endpoint.';
comment on column webhook.requests.target is 'The partner, event type or endpoint, of an adoption the origin, of cancel_replay the request; null for all.';
comment on column webhook.requests.reason is 'Why, in the user''s words.';
-- Reading the feed: pages after a cursor, and a time range in one go. How it stands is in 65_feed_status.sql.
-- SECURITY INVOKER, over views that row-level policies bind: whoever asks for another partner's feed finds it empty.
-- Payloads come from _feed_data, which judges the right to them. Nothing here writes: it works on a standby.

create view webhook._seen_event as
select e.event_id,
       e.partner_id,
       e.type,
       e.test,
       e.source,
       e.subject_type,
       e.subject_id,
       e.subject_version,
       e.scope,
       e.schema_version,
       e.correlation_id,
       e.causation,
       e.traceparent,
       e.occurred_at
  from webhook._event e;
comment on view webhook._seen_event is 'Events as the reader may see them, without payload.';
comment on column webhook._seen_event.event_id is 'The event.';
comment on column webhook._seen_event.partner_id is 'Tenant that it belongs to.';
comment on column webhook._seen_event.type is 'Event type.';
comment on column webhook._seen_event.test is 'Test event.';
comment on column webhook._seen_event.source is 'Producer of the event.';
comment on column webhook._seen_event.subject_type is 'Kind of the object that changed.';
comment on column webhook._seen_event.subject_id is 'Identity of the object that changed.';
comment on column webhook._seen_event.subject_version is 'Version of the object after the change.';
comment on column webhook._seen_event.scope is 'Authorisation scope.';
comment on column webhook._seen_event.schema_version is 'Version of the payload''s schema.';
comment on column webhook._seen_event.correlation_id is 'Ties the event to the operation that caused it.';
comment on column webhook._seen_event.causation is 'Event id of the parent event.';
comment on column webhook._seen_event.traceparent is 'W3C trace context of the operation.';
comment on column webhook._seen_event.occurred_at is 'When the business change happened.';

create view webhook._seen_due as
select w.event_id,
       w.endpoint_id,
       w.hold
  from webhook._due w;
comment on view webhook._seen_due is 'What waits for its next attempt, as the reader may see it.';
comment on column webhook._seen_due.event_id is 'The event.';
comment on column webhook._seen_due.endpoint_id is 'The endpoint.';
comment on column webhook._seen_due.hold is 'Why it is held, a bit each; 0 = it is not.';

create function webhook._check_feed(
  partner_id text, -- whose feed
  types text[],    -- event types and wildcards; null = all
  payload boolean  -- whether payloads are wanted
) returns boolean -- true
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('partner_id', partner_id is null);
  perform webhook._check_argument('payload', payload is null);
  if types is not null then
    perform webhook._check_event_types(types);
  end if;
  if payload then
    perform webhook._feed_data(partner_id, null);
  end if;
  return true;
end
$$;
comment on function webhook._check_feed(text, text[], boolean) is 'Refuses what no feed can answer, and payloads without a right to them.';

create function webhook._check_export(
  partner_id text,   -- whose feed
  since timestamptz, -- beginning of the range
  until timestamptz, -- its end
  types text[],      -- event types and wildcards
  test boolean,      -- which events
  payload boolean    -- whether payloads are wanted
) returns text -- partner_id
language plpgsql volatile parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_feed(partner_id, types, payload);
  perform webhook._check_argument('test', test is null);
  if since > until then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = '"since" is later than "until"';
  end if;
  -- The rows carry cursors.
  perform webhook._make_durable();
  return partner_id;
end
$$;
comment on function webhook._check_export(text, timestamptz, timestamptz, text[], boolean, boolean) is 'Refuses what cannot be exported.';

create function webhook.events_after(
  partner_id text,                 -- whose feed
  inout cursor text default null,  -- cursor of the last row read; null = from the oldest event on. Out: the cursor after this row
  max_events integer default 100,  -- 1 to 1000
  types text[] default null,       -- event types and wildcards; null = all
  test boolean default false,      -- true = test events, false = live ones
  payload boolean default false,   -- whether "data" is filled; needs a right of kind feed
  out event_id text,               -- null = the row moves the cursor and nothing else
  out type text,
  out subject_type text,
  out subject_id text,
  out subject_version bigint,
  out occurred_at timestamptz,
  out published_at timestamptz,
  out source text,
  out scope text,
  out schema_version text,
  out correlation_id text,
  out causation text,
  out traceparent text,
  out data text
) returns setof record
-- STABLE: one snapshot for the whole page. In that of a later statement a row could appear behind one that was not seen.
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  -- Rows looked at for one page, so that a rare type costs no more than this.
  most constant integer := 5000;
  known_at timestamptz;
  read_at timestamptz;
  low bigint;
  high bigint;
  seen record;
  last_pos bigint;
  last_tag text;
  looked_at integer := 0;
  found_events integer := 0;
  passed_over boolean := false;
begin
  perform webhook._check_feed(partner_id, types, payload);
  perform webhook._check_argument('max_events', max_events is null);
  perform webhook._check_argument('test', test is null);
  if max_events not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'max_events is outside the valid range',
      detail = format('It is %s; the range is 1 to 1000.', max_events),
      hint = 'Ask for the next page with the cursor of the last row.';
  end if;
  select c.pos, c.tag, c.read_at
    into last_pos, last_tag, known_at
    from webhook._read_cursor(partner_id, cursor) as c;
  low := last_pos;
  -- First the day of the cursor, then whatever follows: a page from the middle of a long feed opens one partition.
  high := case
    when low > 0 then webhook._pos_bound(date_trunc('day', timestamptz '2025-01-01 00:00:00+00' + (low >> 22) * interval '1 millisecond', 'UTC') + interval '1 day')
    else 9223372036854775807
  end;
  <<page>>
  loop
    for seen in
      select f.pos, f.published_at, f.event_id, f.type, f.test
        from webhook._seen_feed f
       where f.partner_id = events_after.partner_id
         and f.pos > low
         and f.pos < high
       order by f.pos
       limit most - looked_at
    loop
      if looked_at = 0 then
        perform webhook._make_durable();
      end if;
      looked_at := looked_at + 1;
      last_pos := seen.pos;
      last_tag := webhook._event_tag(seen.event_id);
      known_at := seen.published_at;
      passed_over := seen.test <> test or (types is not null and not webhook._is_type_among(seen.type, types));
      continue when passed_over;
      select e.subject_type, e.subject_id, e.subject_version, e.occurred_at, e.source, e.scope, e.schema_version,
             e.correlation_id, e.causation, e.traceparent
        into subject_type, subject_id, subject_version, occurred_at, source, scope, schema_version,
             correlation_id, causation, traceparent
        from webhook._seen_event e
       where e.event_id = seen.event_id;
      cursor := webhook._cursor(partner_id, seen.pos, last_tag, seen.published_at);
      event_id := seen.event_id;
      type := seen.type;
      published_at := seen.published_at;
      if payload then
        data := webhook._feed_data(partner_id, seen.event_id);
      end if;
      return next;
      found_events := found_events + 1;
      if found_events = max_events then
        return;
      end if;
    end loop;
    exit page when high = 9223372036854775807 or looked_at >= most;
    low := high - 1;
    high := 9223372036854775807;
  end loop;
  if looked_at < most then
    -- The end of the feed: there was nothing more up to now, on a standby up to where it is.
    read_at := case when pg_is_in_recovery() then coalesce(pg_last_xact_replay_timestamp(), known_at) else transaction_timestamp() end;
  else
    read_at := known_at;
  end if;
  -- A row without an event, where the last rows were passed over, or where the cursor has not moved for an hour: one that
  -- says when it was read last does not expire for want of events.
  if passed_over or read_at - known_at > interval '1 hour' or (known_at is null and read_at is not null) then
    select webhook._cursor(partner_id, last_pos, last_tag, greatest(known_at, read_at))
      into cursor;
    event_id := null;
    type := null;
    subject_type := null;
    subject_id := null;
    subject_version := null;
    occurred_at := null;
    published_at := null;
    source := null;
    scope := null;
    schema_version := null;
    correlation_id := null;
    causation := null;
    traceparent := null;
    data := null;
    return next;
  end if;
end
$$;
comment on function webhook.events_after(text, text, integer, text[], boolean, boolean) is
  'A page of a partner''s feed after a cursor: every committed event once, in an order that never changes. Read on with the cursor of the last row; a row without event_id moves the cursor and nothing else; no row = nothing new.';

create function webhook.export_events(
  partner_id text,                           -- whose feed
  since timestamptz default null,            -- published at this time or later; null = from the oldest on
  until timestamptz default null,            -- published before this time; null = up to now
  types text[] default null,                 -- event types and wildcards; null = all
  test boolean default false,                -- true = test events, false = live ones
  payload boolean default false              -- whether "data" is filled; needs a right of kind feed
) returns table (
  cursor text,                               -- cursor after this row: where events_after goes on
  event_id text,
  type text,
  subject_type text,
  subject_id text,
  subject_version bigint,
  occurred_at timestamptz,
  published_at timestamptz,
  source text,
  scope text,
  schema_version text,
  correlation_id text,
  causation text,
  traceparent text,
  data text
)
-- Parsed when it is created, so that it needs no search_path of its own and is planned into the query that calls it:
-- rows leave as they are read, however many there are.
language sql stable parallel restricted
begin atomic
  select webhook._cursor(f.partner_id, f.pos, webhook._event_tag(f.event_id), f.published_at),
         f.event_id,
         f.type,
         e.subject_type,
         e.subject_id,
         e.subject_version,
         e.occurred_at,
         f.published_at,
         e.source,
         e.scope,
         e.schema_version,
         e.correlation_id,
         e.causation,
         e.traceparent,
         case when export_events.payload then webhook._feed_data(f.partner_id, f.event_id) end
    from webhook._seen_feed as f
    left join lateral (select o.* from webhook._seen_event as o where o.event_id = f.event_id limit 1) as e on true
   -- In a sub-select, so that it is run once, and is not folded away with a null.
   where f.partner_id = (select webhook._check_export(
           export_events.partner_id, export_events.since, export_events.until, export_events.types, export_events.test, export_events.payload))
     and f.pos >= webhook._range_bound(export_events.since, 0)
     and f.pos < webhook._range_bound(export_events.until, 9223372036854775807)
     and f.test is not distinct from export_events.test
     and (export_events.types is null or webhook._is_type_among(f.type, export_events.types))
   order by f.pos;
end;
comment on function webhook.export_events(text, timestamptz, timestamptz, text[], boolean, boolean) is
  'Every event of a partner that was published in a time range, oldest first, as a stream. Ranges that meet have no event twice and miss none.';
-- Look-ups that a view cannot answer from an index, and the excerpt of one response.
-- The lists go backwards day by day and stop at the page's end: one query over all days would open every
-- partition, and a filter would make it read each of them to its first match.
-- They run with the rights of their caller and read the views only: a partner's role gets its own rows from them, and
-- the id of a foreign row is answered like one that does not exist.

create function webhook._check_page(
  since timestamptz, -- lower end of the time range
  until timestamptz, -- upper end of the time range
  max_rows integer   -- rows asked for
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('max_rows', max_rows is null);
  if max_rows not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'max_rows is outside the valid range',
      detail = format('It is %s; the range is 1 to 1000.', max_rows),
      hint = 'Ask for the next page with "before".';
  end if;
  if since > until then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = '"since" is later than "until"';
  end if;
end
$$;
comment on function webhook._check_page(timestamptz, timestamptz, integer) is 'Refuses page sizes outside the range and time ranges that end before they begin.';

create function webhook._first_day()
returns timestamptz -- UTC midnight at or before the oldest event
language plpgsql stable parallel safe
-- SECURITY DEFINER: the oldest event of all, found at the end of an index; it tells a day and no more.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  return date_trunc('day', coalesce(webhook._event_time(min(e.event_id)), clock_timestamp()), 'UTC')
    from webhook._event e;
end
$$;
comment on function webhook._first_day() is 'Where a walk backwards through the days may stop.';

create function webhook.list_events(
  partner_id text default null,    -- tenant; null = all, then type is needed
  type text default null,          -- event type; null = all, then partner_id is needed
  since timestamptz default null,  -- published at this time or later
  until timestamptz default null,  -- published before this time
  before text default null,        -- event_id of the last row of the page before; null = first page
  max_rows integer default 100     -- 1 to 1000
) returns setof webhook.events
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  page text[] := '{}';
  piece text[];
  floor_at timestamptz;
  floor_pos bigint;
  day timestamptz := date_trunc('day', least(until, clock_timestamp()), 'UTC');
  low bigint;
  high bigint := 9223372036854775807;
begin
  perform webhook._check_page(since, until, max_rows);
  if partner_id is null and type is null then
    raise exception using
      errcode = 'null_value_not_allowed',
      message = 'partner_id or type must not be null',
      hint = 'For events of all partners and types, read the view webhook.events in the order of event_id.';
  end if;
  floor_at := least(greatest(since, webhook._first_day()), clock_timestamp() + interval '1 day');
  floor_pos := webhook._pos_bound(floor_at);
  if until < clock_timestamp() then
    high := webhook._pos_bound(greatest(until, floor_at));
  end if;
  if before is not null then
    select least(high, p.pos), date_trunc('day', least(day, p.published_at), 'UTC')
      into high, day
      from webhook.events e
     cross join lateral webhook._publication(e.partner_id, e.event_id) as p
     where e.event_id = before
       and p.pos is not null;
    if not found then
      raise exception using
        errcode = 'undefined_object',
        message = format('event "%s" does not exist', left(before, 128)),
        hint = 'Pass the event_id of the last row of the page before.';
    end if;
  end if;

  while high > floor_pos and cardinality(page) < max_rows loop
    low := greatest(webhook._pos_bound(greatest(day, floor_at)), floor_pos);
    if partner_id is not null then
      select array_agg(p.event_id)
        into piece
        from (select f.event_id
                from webhook._seen_feed f
               where f.partner_id = list_events.partner_id
                 and f.pos >= low
                 and f.pos < high
                 and (list_events.type is null or f.type = list_events.type)
               order by f.pos desc
               limit max_rows - cardinality(page)) as p;
    else
      select array_agg(p.event_id)
        into piece
        from (select f.event_id
                from webhook._seen_feed f
               where f.type = list_events.type
                 and f.pos >= low
                 and f.pos < high
               order by f.pos desc
               limit max_rows - cardinality(page)) as p;
    end if;
    page := page || piece;
    high := low;
    day := day - interval '1 day';
  end loop;

  return query
  select v.*
    from unnest(page) with ordinality as p (event_id, place)
    join webhook.events v on v.event_id = p.event_id
   order by p.place;
end
$$;
comment on function webhook.list_events(text, text, timestamptz, timestamptz, text, integer) is
  'Events of a partner, of a type, or of both, in the order of publication, newest first. Events that the leader has not read yet are not in it.';

create function webhook.list_deliveries(
  partner_id text default null,     -- tenant; null = all, then one of the next three is needed
  endpoint_id bigint default null,  -- endpoint; null = all
  state text default null,          -- state; null = all; "delivered" alone is not enough
  delivery_id text default null,    -- this delivery alone
  since timestamptz default null,   -- of events emitted at this time or later
  until timestamptz default null,   -- of events emitted before this time
  before text default null,         -- delivery_id of the last row of the page before; null = first page
  max_rows integer default 100      -- 1 to 1000
) returns setof webhook.deliveries
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  page_events text[] := '{}';
  page_endpoints bigint[] := '{}';
  piece_events text[];
  piece_endpoints bigint[];
  endpoints bigint[];
  floor_at timestamptz;
  floor_id text;
  day timestamptz := date_trunc('day', least(until, clock_timestamp()), 'UTC');
  low text;
  high text := 'evt_8'; -- above every event id
  last_event text;
  last_endpoint bigint;
  open_state boolean := state <> 'delivered';
begin
  perform webhook._check_page(since, until, max_rows);
  if state not in ('pending', 'retrying', 'delivered', 'dead', 'cancelled', 'skipped', 'closed') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('delivery state "%s" does not exist', left(state, 128)),
      hint = 'The states are pending, retrying, delivered, dead, cancelled, skipped and closed.';
  end if;
  if delivery_id is not null then
    return query
    select v.*
      from webhook._parse_delivery_id(delivery_id) as p
      join webhook.deliveries v on v.event_id = p.event_id and v.endpoint_id = p.endpoint_id
     where (list_deliveries.partner_id is null or v.partner_id = list_deliveries.partner_id)
       and (list_deliveries.endpoint_id is null or v.endpoint_id = list_deliveries.endpoint_id)
       and (list_deliveries.state is null or v.state = list_deliveries.state);
    return;
  end if;
  if partner_id is null and endpoint_id is null and open_state is not true then
    raise exception using
      errcode = 'null_value_not_allowed',
      message = 'partner_id, endpoint_id or a state other than delivered must be given',
      hint = 'For the deliveries of one event, filter the view webhook.deliveries by event_id.';
  end if;
  floor_at := least(greatest(since, webhook._first_day()), clock_timestamp() + interval '1 day');
  floor_id := webhook._event_bound(floor_at);
  if until < clock_timestamp() then
    high := webhook._event_bound(greatest(until, floor_at));
  end if;
  if before is not null then
    select p.event_id, p.endpoint_id
      into last_event, last_endpoint
      from webhook._parse_delivery_id(before) as p;
    if last_event is null then
      raise exception using
        errcode = 'undefined_object',
        message = format('delivery "%s" does not exist', left(before, 128)),
        hint = 'Pass the delivery_id of the last row of the page before.';
    end if;
    high := least(high, last_event || '0');
    day := date_trunc('day', least(day, webhook._event_time(last_event)), 'UTC');
  end if;
  if partner_id is not null then
    select coalesce(array_agg(e.endpoint_id), '{}')
      into endpoints
      from webhook._seen_endpoint e
     where e.partner_id = list_deliveries.partner_id
       and (list_deliveries.endpoint_id is null or e.endpoint_id = list_deliveries.endpoint_id);
  elsif endpoint_id is not null then
    endpoints := array[endpoint_id];
  end if;

  while high > floor_id and cardinality(page_events) < max_rows loop
    low := greatest(webhook._event_bound(greatest(day, floor_at)), floor_id);
    if open_state then
      -- "<> delivered" is written out, because the partial index needs it when the plan is made.
      select array_agg(p.event_id), array_agg(p.endpoint_id)
        into piece_events, piece_endpoints
        from (select d.event_id, d.endpoint_id
                from webhook._seen_delivery d
               where d.state = list_deliveries.state
                 and d.state <> 'delivered'
                 and d.event_id >= low
                 and d.event_id < high
                 and (last_event is null or (d.event_id, d.endpoint_id) < (last_event, last_endpoint))
                 and (endpoints is null or d.endpoint_id = any (endpoints))
               order by d.event_id desc, d.endpoint_id desc
               limit max_rows - cardinality(page_events)) as p;
    else
      select array_agg(p.event_id order by p.event_id desc, p.endpoint_id desc),
             array_agg(p.endpoint_id order by p.event_id desc, p.endpoint_id desc)
        into piece_events, piece_endpoints
        from (select d.event_id, d.endpoint_id
                from unnest(endpoints) as e (endpoint_id)
               cross join lateral
                     (select d.event_id, d.endpoint_id
                        from webhook._seen_delivery d
                       where d.endpoint_id = e.endpoint_id
                         and d.event_id >= low
                         and d.event_id < high
                         and (last_event is null or (d.event_id, d.endpoint_id) < (last_event, last_endpoint))
                         and (list_deliveries.state is null or d.state = list_deliveries.state)
                       order by d.event_id desc
                       limit max_rows - cardinality(page_events)) as d
               order by d.event_id desc, d.endpoint_id desc
               limit max_rows - cardinality(page_events)) as p;
    end if;
    page_events := page_events || piece_events;
    page_endpoints := page_endpoints || piece_endpoints;
    high := low;
    day := day - interval '1 day';
  end loop;

  return query
  select v.*
    from rows from (unnest(page_events), unnest(page_endpoints)) with ordinality as p (event_id, endpoint_id, place)
    join webhook.deliveries v on v.event_id = p.event_id and v.endpoint_id = p.endpoint_id
   order by p.place;
end
$$;
comment on function webhook.list_deliveries(text, bigint, text, text, timestamptz, timestamptz, text, integer) is
  'Deliveries of a partner, of an endpoint, in a state, or one alone; newest event first. The times are those of the events.';

create function webhook.read_excerpt(
  delivery_id text,  -- the delivery
  attempt_no integer -- number of the attempt
) returns text -- beginning of the response body, redacted; null when none was kept
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  pair record;
  excerpt text;
begin
  perform webhook._check_argument('delivery_id', delivery_id is null);
  perform webhook._check_argument('attempt_no', attempt_no is null);
  select p.event_id, p.endpoint_id
    into pair
    from webhook._parse_delivery_id(delivery_id) as p
    join webhook._seen_delivery d on d.event_id = p.event_id and d.endpoint_id = p.endpoint_id
   where attempt_no between 1 and d.attempt_count;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('attempt %s of delivery "%s" does not exist', attempt_no, left(delivery_id, 128));
  end if;
  select x.body
    into excerpt
    from webhook._seen_excerpt x
   where x.event_id = pair.event_id
     and x.endpoint_id = pair.endpoint_id
     and x.attempt_no = read_excerpt.attempt_no;
  return excerpt;
end
$$;
comment on function webhook.read_excerpt(text, integer) is
  'Beginning of what the receiver answered to an attempt. Control characters and what looks like a secret are hidden.';
-- How it is going: the leader, the queue, and one row that says what to do.
-- Everything here is counted when it is read and nothing is kept for it; the comments say what that costs.
-- All of it works on a standby, where the leader's part is empty.

create view webhook.stat_worker as
select w.database,
       w.state,
       w.detail,
       w.hint,
       w.pid,
       w.started_at,
       w.incarnation,
       w.last_loop_at,
       w.restarts,
       w.threads,
       w.in_flight,
       w.queued,
       w.open_batches,
       w.delivered,
       w.failed,
       w.lost,
       w.fenced,
       w.last_error,
       w.library_version,
       w.extension_version
  from webhook._worker() as w;
comment on view webhook.stat_worker is
  'The leader of this database, one row, read from shared memory. Counters begin with the server and survive a leader that ends.';
comment on column webhook.stat_worker.database is 'This database.';
comment on column webhook.stat_worker.state is
  'running; or why nothing is sent: not preloaded, standby, not served, off, starting, no worker slot, idle: other version, stopped.';
comment on column webhook.stat_worker.detail is 'The state in a sentence.';
comment on column webhook.stat_worker.hint is 'What to do about it; null = nothing.';
comment on column webhook.stat_worker.pid is 'Process id of the leader.';
comment on column webhook.stat_worker.started_at is 'When it started.';
comment on column webhook.stat_worker.incarnation is 'Which life of the leader this is.';
comment on column webhook.stat_worker.last_loop_at is 'When its loop last came round; far behind = it hangs.';
comment on column webhook.stat_worker.restarts is 'Starts after the first one.';
comment on column webhook.stat_worker.threads is 'HTTP threads.';
comment on column webhook.stat_worker.in_flight is 'Requests on the wire.';
comment on column webhook.stat_worker.queued is 'Pairs of event and endpoint in memory that are not sent yet.';
comment on column webhook.stat_worker.open_batches is 'Batches whose pairs do not all have a row yet.';
comment on column webhook.stat_worker.delivered is 'Attempts answered with 2xx.';
comment on column webhook.stat_worker.failed is 'Attempts that failed.';
comment on column webhook.stat_worker.lost is 'Attempts found in doubt when the leader started.';
comment on column webhook.stat_worker.fenced is 'Events it refused to send.';
comment on column webhook.stat_worker.last_error is 'Last error of the leader itself; endpoints'' errors are in attempts.';
comment on column webhook.stat_worker.library_version is 'Version of the loaded library.';
comment on column webhook.stat_worker.extension_version is 'Version of the installed extension.';

create function webhook._unread(
  out events bigint, -- events of this origin that are committed and that the leader has not read
  out first_id text  -- the oldest of them
) returns record
language plpgsql volatile parallel safe
-- SECURITY DEFINER: called by the view stat_queue, whose readers have no right to the events.
security definer
set search_path = pg_catalog, webhook, pg_temp
-- The planner takes a range of xid for a ninth of the table and would compile the plan: 0.25 s for nothing.
set jit = off
as $$
declare
  place record;
  late xid8[];
  more_events bigint;
  more_id text;
  late_events bigint;
  late_id text;
begin
  events := 0;
  -- One place of everybody's stream, and one of each that was set aside and has not joined it again.
  for place in
    with stream as (
      select distinct on (l.stream) l.stream, l.partners, l.prev, l.cur, l.to_xid, l.to_id
        from webhook._ledger l
       where l.kind in ('start', 'window', 'aside', 'place')
         and l.cur is not null
         and not exists (select from webhook._ledger j where j.stream = l.stream and j.kind = 'joined')
       order by l.stream, l.n desc)
    select s.prev,
           s.cur,
           coalesce(s.to_xid, '0'::xid8) as to_xid,
           coalesce(s.to_id, '') as to_id,
           greatest(pg_snapshot_xmax(s.prev), s.to_xid) as low_xid,
           pg_snapshot_xmax(pg_current_snapshot()) as high_xid,
           s.stream <> 0 as only_these,
           case
             when s.stream <> 0 then s.partners
             else array(select unnest(a.partners) from stream a where a.stream <> 0)
           end as partners
      from stream s
  loop
    -- Behind the leader's place, in its order. The upper bound spares the rows of a restored copy, whose
    -- transaction ids may lie in this cluster's future.
    select count(*), min(e.event_id)
      into more_events, more_id
      from webhook._event e
     where e.xid >= place.low_xid
       and e.xid < place.high_xid
       and (e.xid, e.event_id) > (place.to_xid, place.to_id)
       and e.origin = webhook._origin()
       and (e.partner_id = any (place.partners)) = place.only_these;
    -- Transactions that were open when a snapshot of the leader was taken, and have committed since.
    late := array(select pg_snapshot_xip(place.prev) union select pg_snapshot_xip(place.cur));
    if cardinality(late) > 0 then
      select count(*), min(e.event_id)
        into late_events, late_id
        from webhook._event e
       where e.xid = any (late)
         and e.origin = webhook._origin()
         and (e.partner_id = any (place.partners)) = place.only_these
         and (((e.xid, e.event_id) > (place.to_xid, place.to_id) and e.xid < pg_snapshot_xmax(place.prev))
              or ((e.xid, e.event_id) <= (place.to_xid, place.to_id) and not pg_visible_in_snapshot(e.xid, place.cur)));
      more_events := more_events + late_events;
      more_id := least(more_id, late_id);
    end if;
    events := events + more_events;
    first_id := least(first_id, more_id);
  end loop;
end
$$;
comment on function webhook._unread() is 'What the leader has still to read.';

create view webhook.stat_queue as
select u.events as unread_events,
       webhook._event_time(u.first_id) as oldest_unread_at,
       clock_timestamp() - webhook._event_time(u.first_id) as oldest_unread_age,
       w.queued,
       w.in_flight,
       d.pending,
       d.retrying,
       d.dead,
       q.due,
       q.waiting,
       q.held,
       q.next_due_at,
       (select count(*) from webhook._request r where r.state = 'pending') as pending_requests,
       (select count(*) from webhook._fenced) as fenced,
       (select count(*) from webhook._foreign_origin) as other_origins,
       -- No index finds them, and without a copy nobody pays for it.
       case when exists (select from webhook._foreign_origin)
         then (select count(*) from webhook._event e where e.origin in (select o.origin from webhook._foreign_origin o))
         else 0
       end as foreign_events,
       (select count(*) from webhook._endpoint p where p.origin <> (select webhook._origin())) as inert_endpoints,
       (select count(*)
          from webhook._adoption a
          left join webhook._adoption_progress p on p.request_id = a.request_id
         where a.adopter = (select webhook._origin())
           and p.state is distinct from 'done') as running_adoptions
  from webhook._worker() as w
 cross join webhook._unread() as u
 cross join (select count(*) filter (where v.state = 'pending') as pending,
                    count(*) filter (where v.state = 'retrying') as retrying,
                    count(*) filter (where v.state = 'dead') as dead
               from webhook._delivery v
              where v.state <> 'delivered') as d
 cross join (select count(*) filter (where s.hold = 0 and s.next_attempt_at <= clock_timestamp()) as due,
                    count(*) filter (where s.hold = 0 and s.next_attempt_at > clock_timestamp()) as waiting,
                    count(*) filter (where s.hold <> 0) as held,
                    min(s.next_attempt_at) filter (where s.hold = 0) as next_due_at
               from webhook._due s) as q;
comment on view webhook.stat_queue is
  'What waits, one row. Cost grows with the events not read, the deliveries that are not delivered, and the rows that are due; not with the history, unless there is an origin that nobody adopted.';
comment on column webhook.stat_queue.unread_events is 'Events committed and not read by the leader yet.';
comment on column webhook.stat_queue.oldest_unread_at is 'When the oldest of them was emitted.';
comment on column webhook.stat_queue.oldest_unread_age is 'How long ago that was: the age of the outbox.';
comment on column webhook.stat_queue.queued is 'Pairs of event and endpoint in the leader''s memory, read and not sent; they have no delivery row yet.';
comment on column webhook.stat_queue.in_flight is 'Requests on the wire.';
comment on column webhook.stat_queue.pending is 'Deliveries that wait for the first attempt of their series.';
comment on column webhook.stat_queue.retrying is 'Deliveries that failed and will be tried again.';
comment on column webhook.stat_queue.dead is 'Deliveries that failed for good and wait for a decision.';
comment on column webhook.stat_queue.due is 'Pairs that may be sent now.';
comment on column webhook.stat_queue.waiting is 'Pairs whose time has not come.';
comment on column webhook.stat_queue.held is 'Pairs that may not be sent for now, whatever their time.';
comment on column webhook.stat_queue.next_due_at is 'When the next pair is due, or since when the oldest one has been.';
comment on column webhook.stat_queue.pending_requests is 'Requests that the leader has not carried out.';
comment on column webhook.stat_queue.fenced is 'Events that the leader refused to send because their row was changed after the emit.';
comment on column webhook.stat_queue.other_origins is
  'Other databases whose events came here by a copy, or earlier values of webhook.node_name, that were not adopted; their events are never sent.';
comment on column webhook.stat_queue.foreign_events is 'Events of those origins.';
comment on column webhook.stat_queue.inert_endpoints is 'Endpoints of other origins: nothing is sent to them. What is fenced by origin and reason: stat_fenced.';
comment on column webhook.stat_queue.running_adoptions is 'Adoptions that the leader has not finished.';

create function webhook.status()
returns table (
  worker text,                 -- state of the leader, see stat_worker
  detail text,                 -- the same in a sentence
  unread_events bigint,        -- events not read by the leader yet
  oldest_unread_age interval,  -- age of the oldest of them
  queued bigint,               -- pairs in memory, not sent yet
  in_flight integer,           -- requests on the wire
  pending bigint,              -- deliveries that wait for the first attempt of their series
  retrying bigint,             -- deliveries that will be tried again
  dead bigint,                 -- deliveries that wait for a decision
  fenced bigint,               -- events refused because their row was changed
  foreign_events bigint,       -- events of other databases, of which this one is a copy
  last_error text,             -- last error of the leader itself
  advice text                  -- what to do
)
language sql volatile parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
  select w.state,
         w.detail,
         q.unread_events,
         q.oldest_unread_age,
         q.queued,
         q.in_flight,
         q.pending,
         q.retrying,
         q.dead,
         q.fenced,
         q.foreign_events,
         w.last_error,
         coalesce(nullif(concat_ws(' ',
           w.hint,
           case when w.state = 'running' and q.oldest_unread_age > interval '1 minute'
             then 'The leader is behind: see webhook.stat_worker and the server log.' end,
           case when q.dead > 0
             then 'Some deliveries are dead: see webhook.dead_letters, mend the cause, then use webhook.retry.' end,
           case when exists (select from webhook.pauses p)
             then 'Deliveries are paused: see webhook.pauses.' end,
           case when webhook._keys_in_clear()
             then 'Keys are stored unencrypted: set webhook.master_key_file and call webhook.reencrypt_secrets().' end,
           case when q.fenced > 0
             then 'Rows of webhook._event were changed after the emit and are not sent: see webhook.events where fenced = ''seal'' and find out who did it.' end,
           'Not the extension''s own, and able to stop it: ' || array_to_string(webhook._foreign_code(), ', ') || '.',
           case when q.running_adoptions > 0
             then 'An origin is being adopted: see webhook.adoptions.' end,
           case when q.other_origins > 0
             then 'This database is a copy of another one, whose events and endpoints do nothing here: see webhook.stat_fenced. If it takes the other one''s place, use webhook.adopt; never while the other one still sends.' end),
           ''), 'Nothing to do.')
    from webhook.stat_worker w
   cross join webhook.stat_queue q
$$;
comment on function webhook.status() is 'State of the outbox in one row, with advice. Costs what stat_queue costs.';
-- What waits for a decision, and what was decided: dead letters, policies, pauses.

create view webhook.dead_letters as
select webhook._delivery_id(d.event_id, d.endpoint_id) as delivery_id,
       d.event_id,
       d.endpoint_id,
       p.partner_id,
       (select e.type from webhook._event e where e.event_id = d.event_id) as type,
       (select e.subject_type from webhook._event e where e.event_id = d.event_id) as subject_type,
       (select e.subject_id from webhook._event e where e.event_id = d.event_id) as subject_id,
       d.reason,
       d.attempt_count,
       d.last_attempt_at,
       d.last_status,
       d.last_error_category,
       (select case
                 when a.error_category = 'blocked' and not (select webhook._sees_all()) then 'address, port or URL is refused by the boundary'
                 else a.detail
               end
          from webhook._attempt a
         where a.event_id = d.event_id
           and a.endpoint_id = d.endpoint_id
           and a.attempt_no = d.attempt_count) as last_detail,
       (select a.worker_version
          from webhook._attempt a
         where a.event_id = d.event_id
           and a.endpoint_id = d.endpoint_id
           and a.attempt_no = d.attempt_count) as worker_version,
       p.created_by as owner,
       webhook._event_time(d.event_id) as emitted_at
  from webhook._delivery d
  join webhook._endpoint p on p.endpoint_id = d.endpoint_id
 where d.state = 'dead';
comment on view webhook.dead_letters is
  'Deliveries that were given up and wait for retry, skip, close or correct. Fast by endpoint_id newest first (order by event_id desc), by event_id, and over all.';
comment on column webhook.dead_letters.delivery_id is 'Id of the delivery: what retry, skip, close and correct take.';
comment on column webhook.dead_letters.event_id is 'The event.';
comment on column webhook.dead_letters.endpoint_id is 'The endpoint.';
comment on column webhook.dead_letters.partner_id is 'Tenant that owns the endpoint and the event.';
comment on column webhook.dead_letters.type is 'Event type; looked up for each row.';
comment on column webhook.dead_letters.subject_type is 'Kind of the object that changed.';
comment on column webhook.dead_letters.subject_id is 'Identity of the object that changed.';
comment on column webhook.dead_letters.reason is 'Why it was given up.';
comment on column webhook.dead_letters.attempt_count is 'Attempts that were made.';
comment on column webhook.dead_letters.last_attempt_at is 'Start of the latest attempt.';
comment on column webhook.dead_letters.last_status is 'HTTP status of the latest attempt; null when there was none.';
comment on column webhook.dead_letters.last_error_category is 'Why the latest attempt failed, or why there was no further one.';
comment on column webhook.dead_letters.last_detail is 'What happened in the latest attempt, in the sender''s own words.';
comment on column webhook.dead_letters.worker_version is 'Version of the library that made the latest attempt.';
comment on column webhook.dead_letters.owner is 'Session user who made the endpoint.';
comment on column webhook.dead_letters.emitted_at is 'When the event was emitted.';

create view webhook.policies as
select p.name,
       p.retry_schedule,
       p.client_error_attempts,
       p.retry_after_max,
       p.max_in_flight,
       p.rate,
       p.burst,
       p.max_age,
       p.disable_after,
       p.disable_failures,
       p.description,
       p.created_at,
       p.changed_at,
       p.changed_by
  from webhook._policy p;
comment on view webhook.policies is
  'Policies. A null is the value of the policy "default", and there the server''s setting (rate and max_age: none; disable_failures: 20).';
comment on column webhook.policies.name is 'Name of the policy.';
comment on column webhook.policies.retry_schedule is 'Waits between attempts; empty = no retry.';
comment on column webhook.policies.client_error_attempts is 'Attempts for 3xx and 4xx answers that have no rule of their own.';
comment on column webhook.policies.retry_after_max is 'Longest wait that a receiver''s Retry-After may ask for.';
comment on column webhook.policies.max_in_flight is 'Concurrent requests to an endpoint.';
comment on column webhook.policies.rate is 'Requests per second to an endpoint.';
comment on column webhook.policies.burst is 'Requests at once after a rest.';
comment on column webhook.policies.max_age is 'Older events are not sent any more.';
comment on column webhook.policies.disable_after is 'An endpoint without a success for so long is disabled.';
comment on column webhook.policies.disable_failures is 'But not before so many failures in a row.';
comment on column webhook.policies.description is 'Free text of the operator.';
comment on column webhook.policies.created_at is 'When it was made.';
comment on column webhook.policies.changed_at is 'When it was last changed.';
comment on column webhook.policies.changed_by is 'Session user who changed it.';

create view webhook.pauses as
select p.scope,
       nullif(p.target, '') as target,
       p.reason,
       p.paused_by,
       p.paused_at
  from webhook._pause p
 where p.paused
union all
select 'endpoint',
       e.endpoint_id::text,
       e.state_reason,
       (select a.actor
          from webhook._audit a
         where a.object_kind = 'endpoint'
           and a.object_id = e.endpoint_id::text
           and a.verb = 'pause'
         order by a.audit_id desc
         limit 1),
       e.state_changed_at
  from webhook._seen_endpoint e
 where e.state = 'paused';
comment on view webhook.pauses is 'What is paused now: everything, partners, event types, endpoints.';
comment on column webhook.pauses.scope is 'all, partner, event_type or endpoint.';
comment on column webhook.pauses.target is 'The partner, the event type, or the endpoint''s id; null for all.';
comment on column webhook.pauses.reason is 'Why.';
comment on column webhook.pauses.paused_by is 'Session user who paused it; of an endpoint null once the audit log no longer has it.';
comment on column webhook.pauses.paused_at is 'Since when it was asked for; the request says from when on it holds.';
-- How endpoints do: what the leader found out about each, and what waits for it.
-- The leader writes its findings now and then, not with every attempt; seen_at says how old they are.

create view webhook.endpoint_health as
select e.endpoint_id,
       e.partner_id,
       e.state,
       case
         when e.state in ('disabled', 'expired', 'deleted') then 'closed'
         when e.state in ('paused', 'unverified') then 'held'
         when s.last_success_at is null and s.last_failure_at is null then 'unknown'
         when s.adaptive_window < 1 then 'down'
         when s.failures > 0 then 'failing'
         else 'healthy'
       end as health,
       s.adaptive_window,
       s.probe_at,
       s.failing_since,
       s.failures,
       s.warned_at,
       s.failing_since + coalesce(
         own.disable_after,
         (select d.disable_after from webhook._policy d where d.name = 'default'),
         current_setting('webhook.disable_after', true)::interval) as disable_at,
       s.last_success_at,
       s.last_failure_at,
       s.last_status,
       s.last_error_category,
       nullif(array_remove(array[
         case when exists (select from webhook._pause p where p.scope = 'partner' and p.target = e.partner_id and p.paused) then 'partner' end,
         case when exists (select from webhook._pause p where p.scope = 'all' and p.paused) then 'all' end], null), '{}') as paused_by_scope,
       s.seen_at
  from webhook._endpoint n
  join webhook._seen_endpoint e on e.endpoint_id = n.endpoint_id
  left join webhook._policy own on own.name = n.policy
  left join webhook._endpoint_state s on s.endpoint_id = n.endpoint_id and s.generation = n.generation;
comment on view webhook.endpoint_health is
  'How each endpoint answers. What was found before a new URL or a change of state does not count. Fast by endpoint_id.';
comment on column webhook.endpoint_health.endpoint_id is 'The endpoint.';
comment on column webhook.endpoint_health.partner_id is 'Tenant that owns it.';
comment on column webhook.endpoint_health.state is 'State in force.';
comment on column webhook.endpoint_health.health is
  'unknown (no attempt yet), healthy, failing (failures since the last success), down (nothing but probes is sent), held (paused or unverified), closed.';
comment on column webhook.endpoint_health.adaptive_window is 'Concurrent requests that it stands, as far as its answers tell; 0 = shut, only probes are sent.';
comment on column webhook.endpoint_health.probe_at is 'When the next probe of a shut endpoint may be sent.';
comment on column webhook.endpoint_health.failing_since is 'First failure since the last success; null = the last attempt succeeded.';
comment on column webhook.endpoint_health.failures is 'Failed attempts since the last success.';
comment on column webhook.endpoint_health.warned_at is 'When its owner was warned of them.';
comment on column webhook.endpoint_health.disable_at is 'When it will be disabled at the earliest, if nothing succeeds; null = it is not failing.';
comment on column webhook.endpoint_health.last_success_at is 'When the last 2xx arrived.';
comment on column webhook.endpoint_health.last_failure_at is 'When the last attempt failed.';
comment on column webhook.endpoint_health.last_status is 'HTTP status of the latest attempt; null when there was none.';
comment on column webhook.endpoint_health.last_error_category is 'Why the last failed attempt failed.';
comment on column webhook.endpoint_health.paused_by_scope is 'Pauses that hold it although it is active itself: partner, all; null = none.';
comment on column webhook.endpoint_health.seen_at is 'When the leader last wrote what it knows; null = never.';

create view webhook.stat_endpoint as
select e.endpoint_id,
       e.partner_id,
       coalesce(c.delivered, 0) as delivered,
       coalesce(c.failed, 0) as failed,
       round(c.delivered::numeric / nullif(c.delivered + c.failed, 0), 4) as success_rate,
       case when c.generation = e.generation then c.latency_ms end as latency_ms,
       q.due,
       q.waiting,
       (select count(*)
          from webhook._due w
         where w.endpoint_id = e.endpoint_id
           and w.hold <> 0) as held,
       q.oldest_due_at,
       (select count(*)
          from webhook._delivery d
         where d.endpoint_id = e.endpoint_id
           and d.state = 'dead') as dead,
       case when c.generation = e.generation then c.last_success_at end as last_success_at,
       case when c.generation = e.generation then c.last_failure_at end as last_failure_at
  from webhook._endpoint e
  left join webhook._endpoint_state c on c.endpoint_id = e.endpoint_id
 cross join lateral
       (select count(*) filter (where w.next_attempt_at <= clock_timestamp()) as due,
               count(*) filter (where w.next_attempt_at > clock_timestamp()) as waiting,
               min(w.next_attempt_at) filter (where w.next_attempt_at <= clock_timestamp()) as oldest_due_at
          from webhook._due w
         where w.endpoint_id = e.endpoint_id
           and w.hold = 0) as q;
comment on view webhook.stat_endpoint is
  'Counters of each endpoint. Cost grows with what waits for the endpoints and with their dead letters, and with endpoints times partitions; fast by endpoint_id.';
comment on column webhook.stat_endpoint.endpoint_id is 'The endpoint.';
comment on column webhook.stat_endpoint.partner_id is 'Tenant that owns it.';
comment on column webhook.stat_endpoint.delivered is 'Attempts answered with 2xx since the endpoint exists.';
comment on column webhook.stat_endpoint.failed is 'Attempts that failed since the endpoint exists.';
comment on column webhook.stat_endpoint.success_rate is 'Share of attempts that succeeded, 0 to 1; null before the first one.';
comment on column webhook.stat_endpoint.latency_ms is 'Smoothed milliseconds of an attempt.';
comment on column webhook.stat_endpoint.due is 'Parked pairs that may be sent now.';
comment on column webhook.stat_endpoint.waiting is 'Parked pairs whose time has not come.';
comment on column webhook.stat_endpoint.held is 'Parked pairs that may not be sent for now, whatever their time.';
comment on column webhook.stat_endpoint.oldest_due_at is 'Since when the oldest of those that may be sent has been due.';
comment on column webhook.stat_endpoint.dead is 'Deliveries that were given up and wait for a decision.';
comment on column webhook.stat_endpoint.last_success_at is 'When the last 2xx arrived.';
comment on column webhook.stat_endpoint.last_failure_at is 'When the last attempt failed.';
-- What was reported and what was done: alerts and the audit log, as users see them.

create view webhook.alerts as
select a.alert_id,
       a.at,
       a.kind,
       a.severity,
       a.partner_id,
       a.endpoint_id,
       a.event_id,
       a.detail
  from webhook._alert a;
comment on view webhook.alerts is
  'What somebody should know. Fast by endpoint_id, by partner_id, and in the order of alert_id, which sorts by time. LISTEN webhook_alerts tells of those that the leader writes.';
comment on column webhook.alerts.alert_id is 'Id of the alert.';
comment on column webhook.alerts.at is 'When it was found.';
comment on column webhook.alerts.kind is
  'endpoint.warning, endpoint.disabled, endpoint.recovered, endpoint.missed, endpoint.blocked, endpoint.expiring, endpoint.expired, endpoint.unconfirmed, delivery.quarantined, delivery.unrecorded, delivery.expired, delivery.closed or event.fenced.';
comment on column webhook.alerts.severity is 'info, warning or critical.';
comment on column webhook.alerts.partner_id is 'Tenant concerned.';
comment on column webhook.alerts.endpoint_id is 'Endpoint concerned.';
comment on column webhook.alerts.event_id is 'Event concerned.';
comment on column webhook.alerts.detail is 'What happened, in words.';

create view webhook.audit_log as
select a.audit_id,
       a.at,
       a.actor,
       a.application,
       a.client,
       a.verb,
       a.object_kind,
       a.object_id,
       a.partner_id,
       a.before,
       a.after,
       a.reason,
       a.request_id
  from webhook._audit a;
comment on view webhook.audit_log is
  'Who did what, one row for each call. Fast by object_kind with object_id, by partner_id, and in the order of audit_id, which sorts by time. Holds no payload and no secret.';
comment on column webhook.audit_log.audit_id is 'Id of the entry.';
comment on column webhook.audit_log.at is 'When.';
comment on column webhook.audit_log.actor is 'Session user.';
comment on column webhook.audit_log.application is 'application_name of the session.';
comment on column webhook.audit_log.client is 'Address of the client; null = local.';
comment on column webhook.audit_log.verb is 'Function that was called.';
comment on column webhook.audit_log.object_kind is 'endpoint, policy, event_type, event, delivery, partner, role or all.';
comment on column webhook.audit_log.object_id is 'Which one; null when there are several.';
comment on column webhook.audit_log.partner_id is 'Tenant concerned; null when there are several, or none.';
comment on column webhook.audit_log.before is 'What was changed, as it was; of a URL the host only.';
comment on column webhook.audit_log.after is 'What was changed, as it is; what was asked.';
comment on column webhook.audit_log.reason is 'Why, in the user''s words.';
comment on column webhook.audit_log.request_id is 'The request to the leader, see requests; null when there is none.';
-- How a feed, its readers and a partner stand, and what the limits are here. SECURITY INVOKER, like the feed itself; how far
-- the leader is behind is told by _feed_lag alone.

create function webhook._feed_lag(
  out worker text,                  -- state of the leader
  out detail text,                  -- the same in a sentence
  out oldest_unread_at timestamptz, -- when the oldest event was emitted that is committed and not in the feed
  out busy boolean                  -- whether the leader has pairs in memory, which have no row yet
) returns record
language plpgsql volatile parallel restricted
-- SECURITY DEFINER: tells how far the leader is, and nothing of anybody's events.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  select w.state, w.detail, w.queued > 0 or w.in_flight > 0
    into worker, detail, busy
    from webhook._worker() as w;
  select webhook._event_time(u.first_id)
    into oldest_unread_at
    from webhook._unread() as u;
end
$$;
comment on function webhook._feed_lag() is 'How far the leader is behind what is committed.';

create function webhook.feed_status(
  partner_id text,              -- whose feed
  cursor text default null,     -- where its reader stands; null = at the beginning
  test boolean default false    -- of test events, or of live ones
) returns table (
  state text,                   -- current, unread, behind or stopped
  detail text,                  -- the same in a sentence
  unread bigint,                -- events in the feed after the cursor; 10000 = that many or more
  oldest_unread_at timestamptz, -- when the first of them was published
  last_published_at timestamptz, -- when the newest event of the feed was published
  published_until timestamptz,  -- what was emitted before and is committed is in the feed
  first_cursor text,            -- where the feed begins
  last_cursor text              -- where it ends: a reader that begins here gets what is new
)
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  place record;
  newest record;
  lag record;
begin
  perform webhook._check_feed(partner_id, null, false);
  perform webhook._check_argument('test', test is null);
  lag := webhook._feed_lag();
  place := webhook._read_cursor(partner_id, cursor);
  select count(*), min(f.published_at)
    into unread, oldest_unread_at
    from (select f.published_at
            from webhook._seen_feed f
           where f.partner_id = feed_status.partner_id
             and f.pos > place.pos
             and f.test = feed_status.test
           order by f.pos
           limit 10000) as f;
  select f.pos, f.event_id, f.published_at
    into newest
    from webhook._seen_feed f
   where f.partner_id = feed_status.partner_id
   order by f.pos desc
   limit 1;
  if newest.pos is not null then
    -- It shows a position.
    perform webhook._make_durable();
  end if;
  last_published_at := newest.published_at;
  published_until := coalesce(
    lag.oldest_unread_at,
    case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() else statement_timestamp() end);
  first_cursor := webhook._cursor(partner_id, 0, null, statement_timestamp());
  last_cursor := webhook._cursor(
    partner_id, coalesce(newest.pos, 0), webhook._event_tag(newest.event_id), coalesce(newest.published_at, statement_timestamp()));
  if lag.worker not in ('running', 'standby') then
    state := 'stopped';
    detail := coalesce(lag.detail, format('The leader is %s.', lag.worker));
  elsif lag.oldest_unread_at < clock_timestamp() - interval '10 seconds' then
    state := 'behind';
    detail := format('The leader is behind: what was emitted since %s is not in the feed yet.', webhook._rfc3339(lag.oldest_unread_at));
  elsif unread > 0 then
    state := 'unread';
    detail := 'The reader is behind: the feed has events after its cursor.';
  else
    state := 'current';
    detail := 'The reader has everything.';
  end if;
  return next;
end
$$;
comment on function webhook.feed_status(text, text, boolean) is
  'How far the feed of a partner is behind what is committed, how far its reader is behind the feed, and why. Costs what the leader has not read, and at most 10000 rows of the feed.';

create function webhook.partner_status(
  partner_id text                  -- tenant
) returns table (
  state text,                      -- current, behind, incomplete, stopped or closed
  detail text,                     -- the same in a sentence
  synchronised_at timestamptz,     -- what was emitted before is settled at every endpoint
  last_published_at timestamptz,   -- when the newest event of the partner was published
  last_delivered_at timestamptz,   -- when an endpoint last answered with 2xx
  endpoints bigint,                -- endpoints that get events, test endpoints included
  waiting bigint,                  -- deliveries that wait for an attempt
  oldest_waiting_at timestamptz,   -- when the event of the oldest of them was emitted
  dead bigint                      -- deliveries that were given up and wait for a decision
)
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  lag record;
begin
  perform webhook._check_argument('partner_id', partner_id is null);
  lag := webhook._feed_lag();
  select count(*) filter (where e.state in ('active', 'paused', 'unverified')),
         coalesce(sum(w.waiting), 0),
         webhook._event_time(min(w.first_id)),
         coalesce(sum((select count(*) from webhook.dead_letters d where d.endpoint_id = e.endpoint_id)), 0),
         max(h.last_success_at)
    into endpoints, waiting, oldest_waiting_at, dead, last_delivered_at
    from webhook._seen_endpoint e
    left join webhook.endpoint_health h on h.endpoint_id = e.endpoint_id
   cross join lateral
         (select count(*) as waiting, min(u.event_id) as first_id
            from (select w.event_id from webhook._seen_due w where w.endpoint_id = e.endpoint_id and w.hold = 0
                   union all
                  select w.event_id from webhook._seen_due w where w.endpoint_id = e.endpoint_id and w.hold <> 0) as u) as w
   where e.partner_id = partner_status.partner_id;
  select f.published_at
    into last_published_at
    from webhook._seen_feed f
   where f.partner_id = partner_status.partner_id
   order by f.pos desc
   limit 1;
  -- What the leader has in memory gets a row within the first pass.
  synchronised_at := least(
    lag.oldest_unread_at,
    oldest_waiting_at,
    case
      when pg_is_in_recovery() then pg_last_xact_replay_timestamp()
      else statement_timestamp()
    end - case when lag.busy then 2 * coalesce(current_setting('webhook.first_pass_limit', true), '2s')::interval else interval '0' end);
  if lag.worker not in ('running', 'standby') then
    state := 'stopped';
    detail := coalesce(lag.detail, format('The leader is %s.', lag.worker));
  elsif endpoints = 0 then
    state := 'closed';
    detail := 'The partner has no endpoint that gets events.';
  elsif waiting > 0 or lag.oldest_unread_at < clock_timestamp() - interval '10 seconds' then
    state := 'behind';
    detail := case
      when waiting > 0 then format('%s deliveries wait for an attempt.', waiting)
      else 'The leader is behind with reading events.'
    end;
  elsif dead > 0 then
    state := 'incomplete';
    detail := format('%s deliveries were given up and wait for a decision.', dead);
  else
    state := 'current';
    detail := 'Everything is delivered.';
  end if;
  return next;
end
$$;
comment on function webhook.partner_status(text) is
  'How a partner stands: until when everything is settled at its endpoints, and what waits. Costs what waits for the partner and its dead letters.';

create function webhook.limits()
returns table (
  name text,         -- the limit
  value text,        -- as it is in force here
  since timestamptz, -- of a retention: what is older may be gone
  meaning text       -- in a sentence
)
language sql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
  select l.name,
         coalesce(nullif(current_setting('webhook.' || l.name, true), ''), l.otherwise),
         case when l.name like '%\_retention' then clock_timestamp() - webhook._kept_for('webhook.' || l.name, l.otherwise::interval) end,
         l.meaning
    from (values
      ('event_retention', '90d', 'How long events and the feed are kept: as far back events_after and export_events reach, and as long a cursor is valid.'),
      ('delivery_retention', '60d', 'How long deliveries are kept: as far back replay_range reaches.'),
      ('attempt_retention', '30d', 'How long attempts are kept.'),
      ('inbox_retention', '120d', 'How long received messages are known, so that one that comes again is recognised.'),
      ('audit_retention', '365d', 'How long the audit log is kept.'),
      ('alert_retention', '90d', 'How long alerts are kept.'),
      ('idempotency_window', '24h', 'How long an idempotency key stands for its event.'),
      ('retry_schedule', '', 'Waits between the attempts of a delivery, where no policy says otherwise.'),
      ('retry_after_max', '24h', 'Longest wait that a receiver can ask for.'),
      ('disable_after', '5d', 'An endpoint without a success for so long is disabled.'),
      ('rotation_overlap', '24h', 'How long a replaced secret goes on signing.'),
      ('max_payload', '256kB', 'Largest payload of an event.'),
      ('max_response_excerpt', '4kB', 'How much of a response is kept.'),
      ('max_endpoints_per_partner', '50', 'Endpoints of one partner.')) as l (name, otherwise, meaning)
   union all
  select l.name, l.value, null, l.meaning
    from (values
      ('events_per_page', '1000', 'Most events that one call of events_after returns.'),
      ('rows_per_page', '5000', 'Most rows of the feed that one call of events_after looks at.')) as l (name, value, meaning)
$$;
comment on function webhook.limits() is 'Retention, windows and sizes as they are in force: what can still be read, replayed and sent. One row for each.';
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
-- What came with a copy: what is fenced, and how far adoptions have come.

create view webhook.stat_fenced as
select o.origin,
       'origin' as reason,
       (select count(*) from webhook._event e where e.origin = o.origin) as events,
       (select count(*) from webhook._endpoint p where p.origin = o.origin) as endpoints,
       (select webhook._event_time(min(e.event_id)) from webhook._event e where e.origin = o.origin) as oldest_at,
       (select webhook._event_time(max(e.event_id)) from webhook._event e where e.origin = o.origin) as newest_at
  from webhook._foreign_origin o
union all
select e.origin,
       'seal',
       count(*),
       0,
       webhook._event_time(min(e.event_id)),
       webhook._event_time(max(e.event_id))
  from webhook._fenced f
  join webhook._event e on e.event_id = f.event_id
 group by e.origin;
comment on view webhook.stat_fenced is
  'What is never sent from here, by origin and reason. Reads all events when there is an origin that nobody adopted; else only those that are fenced.';
comment on column webhook.stat_fenced.origin is 'Database that the events and endpoints are of: what adopt takes.';
comment on column webhook.stat_fenced.reason is
  'origin = they came with a copy of another database, or were made under another webhook.node_name, and were not adopted; seal = their row was changed after the emit.';
comment on column webhook.stat_fenced.events is 'Events.';
comment on column webhook.stat_fenced.endpoints is 'Endpoints that are inert for that reason.';
comment on column webhook.stat_fenced.oldest_at is 'When the oldest of the events was emitted; null = there is none.';
comment on column webhook.stat_fenced.newest_at is 'When the newest of the events was emitted.';

create view webhook.adoptions as
select a.request_id,
       a.origin,
       a.mode,
       case
         when a.adopter <> (select webhook._origin()) then 'elsewhere'
         else coalesce(p.state, 'waiting')
       end as state,
       a.reason,
       a.requested_by,
       a.requested_at,
       a.endpoints,
       coalesce(p.events, 0) as events,
       coalesce(p.published, 0) as published,
       coalesce(p.made, 0) as made,
       coalesce(p.resumed, 0) as resumed,
       coalesce(p.skipped, 0) as skipped,
       coalesce(p.tampered, 0) as tampered,
       webhook._event_time(p.reached) as reached_at,
       p.started_at,
       p.finished_at
  from webhook._adoption a
  left join webhook._adoption_progress p on p.request_id = a.request_id;
comment on view webhook.adoptions is 'Origins that were adopted, and how far the leader has come with each.';
comment on column webhook.adoptions.request_id is 'Id of the request; sorts by time.';
comment on column webhook.adoptions.origin is 'Origin that was adopted.';
comment on column webhook.adoptions.mode is 'send or skip.';
comment on column webhook.adoptions.state is
  'waiting, running or done; elsewhere = another database did it, of which this one is a copy, and here it means nothing.';
comment on column webhook.adoptions.reason is 'Why, in the user''s words.';
comment on column webhook.adoptions.requested_by is 'Session user who asked.';
comment on column webhook.adoptions.requested_at is 'When.';
comment on column webhook.adoptions.endpoints is 'Endpoints that changed hands.';
comment on column webhook.adoptions.events is 'Events that the leader has looked at.';
comment on column webhook.adoptions.published is 'Events that the origin had not read, and that have a place in the feed now.';
comment on column webhook.adoptions.made is 'Deliveries that were made.';
comment on column webhook.adoptions.resumed is 'Pending and retrying deliveries that wait for their next attempt again.';
comment on column webhook.adoptions.skipped is 'Pending and retrying deliveries that were skipped.';
comment on column webhook.adoptions.tampered is 'Events whose row was changed after the emit; they stay fenced.';
comment on column webhook.adoptions.reached_at is 'Time of the last event looked at; events are looked at oldest first.';
comment on column webhook.adoptions.started_at is 'When the leader began.';
comment on column webhook.adoptions.finished_at is 'When it was done; null = not yet.';
-- How far replays of a range have come.

create view webhook.replays as
select r.request_id,
       r.partner_id,
       r.endpoint_id,
       r.since,
       r.until,
       r.event_types,
       r.test,
       r.which,
       r.rate,
       r.reason,
       r.requested_by,
       r.requested_at,
       case
         when r.origin <> (select webhook._origin()) then 'elsewhere'
         else coalesce(p.state, 'waiting')
       end as state,
       r.estimate,
       coalesce(p.looked_at, 0) as looked_at,
       coalesce(p.made, 0) as made,
       coalesce(p.again, 0) as again,
       coalesce(p.under_way, 0) as under_way,
       coalesce(p.unwanted, 0) as unwanted,
       coalesce(p.closed, 0) as closed,
       coalesce(p.expunged, 0) as expunged,
       coalesce(p.fenced, 0) as fenced,
       timestamptz '2025-01-01 00:00:00+00' + (nullif(p.pos, 0) >> 22) * interval '1 millisecond' as reached_at,
       round((p.made + p.again) / greatest(extract(epoch from coalesce(p.finished_at, clock_timestamp()) - p.started_at), 1), 1) as per_second,
       p.started_at,
       p.finished_at
  from webhook._replay r
  left join webhook._replay_progress p on p.request_id = r.request_id;
comment on view webhook.replays is 'Replays of a time range, and how far the leader has come with each. Fast by request_id, which sorts by time.';
comment on column webhook.replays.request_id is 'Id of the request; sorts by time. What cancel_replay takes.';
comment on column webhook.replays.partner_id is 'Tenant whose events are meant; null = every one.';
comment on column webhook.replays.endpoint_id is 'Endpoint that is meant; null = every one.';
comment on column webhook.replays.since is 'Beginning of the range, by publication.';
comment on column webhook.replays.until is 'End of the range; not in it.';
comment on column webhook.replays.event_types is 'Event types and wildcards; null = all.';
comment on column webhook.replays.test is 'Test events, or live ones.';
comment on column webhook.replays.which is 'all, failed or missing.';
comment on column webhook.replays.rate is 'Deliveries per second at most.';
comment on column webhook.replays.reason is 'Why, in the user''s words.';
comment on column webhook.replays.requested_by is 'Session user who asked.';
comment on column webhook.replays.requested_at is 'When.';
comment on column webhook.replays.state is
  'waiting, running, done or cancelled; elsewhere = another database asked for it, of which this one is a copy, and nothing is done here.';
comment on column webhook.replays.estimate is 'Events of the range when it was asked for; null = more than 20000.';
comment on column webhook.replays.looked_at is 'Events that the leader has looked at.';
comment on column webhook.replays.made is 'Deliveries made that were missing.';
comment on column webhook.replays.again is 'Deliveries that are sent again.';
comment on column webhook.replays.under_way is 'Deliveries left out because they wait or are on the wire.';
comment on column webhook.replays.unwanted is 'Deliveries left out because the endpoint does not subscribe to the type any more, or its filter refuses the event.';
comment on column webhook.replays.closed is 'Deliveries left out because the endpoint is closed.';
comment on column webhook.replays.expunged is 'Events left out because their payload, or the event itself, is gone.';
comment on column webhook.replays.fenced is 'Events left out because they are fenced, or of a database that was not adopted.';
comment on column webhook.replays.reached_at is 'Publication of the last event looked at; of one partner they are looked at oldest first.';
comment on column webhook.replays.per_second is 'Deliveries per second, on average.';
comment on column webhook.replays.started_at is 'When the leader began.';
comment on column webhook.replays.finished_at is 'When it was done or cancelled; null = not yet.';
-- Proofs of control, as users see them.

create view webhook.verifications as
select v.verification_id,
       v.endpoint_id,
       (select e.partner_id from webhook._endpoint e where e.endpoint_id = v.endpoint_id) as partner_id,
       v.method,
       v.host,
       v.started_at,
       v.latency_ms,
       v.result,
       v.status,
       v.error_category,
       v.detail,
       v.overridden_by
  from webhook._verification v;
comment on view webhook.verifications is
  'Every challenge that was sent, and every time that an operator did without one. Fast by endpoint_id, and in the order of verification_id, which sorts by time.';
comment on column webhook.verifications.verification_id is 'Id of the try; the challenge carried it as webhook-id, after chl_.';
comment on column webhook.verifications.endpoint_id is 'The endpoint.';
comment on column webhook.verifications.partner_id is 'Tenant that owns it.';
comment on column webhook.verifications.method is 'challenge, graph or slack; none where an operator did without.';
comment on column webhook.verifications.host is 'Host of the URL that was to be proven.';
comment on column webhook.verifications.started_at is 'When the challenge was sent, or the proof was spared.';
comment on column webhook.verifications.latency_ms is 'Milliseconds from connecting to the end of the answer; null when nothing was sent.';
comment on column webhook.verifications.result is
  'proven, failed, void (answered rightly, but the endpoint had changed meanwhile) or overridden (an operator did without a proof).';
comment on column webhook.verifications.status is 'HTTP status of the answer; null when there was none.';
comment on column webhook.verifications.error_category is 'Error category of a failed exchange; null when the answer was 2xx.';
comment on column webhook.verifications.detail is 'What was wrong with the answer, in the sender''s own words.';
comment on column webhook.verifications.overridden_by is 'Session user who did without a proof.';
-- The catalogue as people read it.

create view webhook.event_types as
select t.name,
       t.priority,
       t.created_at,
       t.description,
       t.emitted_when,
       t.not_emitted_when,
       t.receiver_action,
       t.authoritative_state,
       t.owner,
       t.contact,
       t.sensitivity,
       t.payload_retention,
       t.sources,
       t.deprecated_at,
       t.deprecation_reason,
       t.replaced_by,
       t.sunset_at,
       (select s.version from webhook._event_schema s where s.event_type = t.name and s.current) as current_version,
       (select array_agg(s.version order by s.added_at, s.version) from webhook._event_schema s where s.event_type = t.name) as versions,
       array_remove(array[
         case when t.emitted_when is null then 'emitted_when' end,
         case when t.not_emitted_when is null then 'not_emitted_when' end,
         case when t.receiver_action is null then 'receiver_action' end,
         case when t.authoritative_state is null then 'authoritative_state' end,
         case when t.owner is null then 'owner' end,
         case when t.sensitivity is null then 'sensitivity' end,
         case when not exists (select from webhook._event_schema s where s.event_type = t.name) then 'schema' end], null) as missing
  from webhook._event_type t;
comment on view webhook.event_types is 'The catalogue: registered event types. What emit does with others is said by webhook.unknown_types.';
comment on column webhook.event_types.name is 'Event type, object.change.';
comment on column webhook.event_types.priority is 'Priority class: 0 is served before 1.';
comment on column webhook.event_types.created_at is 'When it was registered.';
comment on column webhook.event_types.description is 'What the event tells.';
comment on column webhook.event_types.emitted_when is 'When it is emitted.';
comment on column webhook.event_types.not_emitted_when is 'When it is not, although one might think so.';
comment on column webhook.event_types.receiver_action is 'What a receiver typically does.';
comment on column webhook.event_types.authoritative_state is 'Where the state is read that counts.';
comment on column webhook.event_types.owner is 'Who answers for it.';
comment on column webhook.event_types.contact is 'How to reach the owner.';
comment on column webhook.event_types.sensitivity is 'public, internal, confidential or personal.';
comment on column webhook.event_types.payload_retention is 'How long payloads are kept; null = as long as events.';
comment on column webhook.event_types.sources is 'Registered sources that may emit it; null = whoever may emit.';
comment on column webhook.event_types.deprecated_at is 'When it was deprecated; null = it is not.';
comment on column webhook.event_types.deprecation_reason is 'Why.';
comment on column webhook.event_types.replaced_by is 'Event type to use in its place.';
comment on column webhook.event_types.sunset_at is 'From when on emit refuses it; null = it goes on with a warning.';
comment on column webhook.event_types.current_version is 'Schema version of events that name none.';
comment on column webhook.event_types.versions is 'Schema versions, oldest first; null = none.';
comment on column webhook.event_types.missing is 'What the catalogue does not say about it yet.';

create view webhook.event_schemas as
select s.event_type as type,
       s.version,
       s.current,
       s.mode,
       s.schema,
       s.example,
       s.change_note,
       s.uri,
       s.added_at,
       s.added_by,
       s.changed_at,
       s.deprecated_at
  from webhook._event_schema s;
comment on view webhook.event_schemas is 'JSON Schema and example of each version of an event type''s payload.';
comment on column webhook.event_schemas.type is 'The event type.';
comment on column webhook.event_schemas.version is 'The version, as events carry it in schema_version.';
comment on column webhook.event_schemas.current is 'Whether it is the version of events that name none.';
comment on column webhook.event_schemas.mode is 'off, warn or enforce; null = webhook.validation.';
comment on column webhook.event_schemas.schema is 'The JSON Schema.';
comment on column webhook.event_schemas.example is 'A payload that it accepts.';
comment on column webhook.event_schemas.change_note is 'What is different from the version before.';
comment on column webhook.event_schemas.uri is 'Where the version is documented.';
comment on column webhook.event_schemas.added_at is 'When it was added.';
comment on column webhook.event_schemas.added_by is 'Session user who added it.';
comment on column webhook.event_schemas.changed_at is 'When it was last changed.';
comment on column webhook.event_schemas.deprecated_at is 'When it was deprecated; null = it is not.';

create view webhook.event_fields as
select s.event_type as type,
       s.version,
       f.path,
       f.kind,
       f.required,
       f.purpose,
       f.sensitivity,
       f.money::jsonb as money
  from webhook._event_schema s
 cross join lateral webhook._schema_fields(s.schema::text) as f;
comment on view webhook.event_fields is 'Every field that a schema describes, with its purpose.';
comment on column webhook.event_fields.type is 'The event type.';
comment on column webhook.event_fields.version is 'The schema version.';
comment on column webhook.event_fields.path is 'JSON pointer of the field; [] stands for every element of an array, * for any further member.';
comment on column webhook.event_fields.kind is 'Types, separated by commas; empty = any.';
comment on column webhook.event_fields.required is 'Whether the object that it belongs to always has it.';
comment on column webhook.event_fields.purpose is 'What it is there for.';
comment on column webhook.event_fields.sensitivity is 'What x-sensitivity says.';
comment on column webhook.event_fields.money is 'Currency, precision and rounding, where it holds money.';

create view webhook.sources as
select s.name,
       s.enabled,
       s.owner,
       s.contact,
       s.description,
       s.role_name as role,
       s.event_types,
       s.partners,
       s.created_at,
       s.changed_at
  from webhook._source s;
comment on view webhook.sources is 'Registered producers of events.';
comment on column webhook.sources.name is 'Name, as events carry it in source.';
comment on column webhook.sources.enabled is 'Whether events may name it; webhook.update_source switches it.';
comment on column webhook.sources.owner is 'Who answers for it.';
comment on column webhook.sources.contact is 'How to reach the owner.';
comment on column webhook.sources.description is 'What it is, and how it is switched off on its own side.';
comment on column webhook.sources.role is 'Role whose members alone may name it; null = whoever may emit.';
comment on column webhook.sources.event_types is 'Event types and wildcards that it may emit.';
comment on column webhook.sources.partners is 'Partners that it may emit for; null = all.';
comment on column webhook.sources.created_at is 'When it was registered.';
comment on column webhook.sources.changed_at is 'When it was last changed.';

create view webhook.thresholds as
select t.metric,
       t.name,
       t.threshold,
       t.direction,
       t.event_type,
       t.rearm,
       t.rearm_at,
       t.adjustments_cross,
       t.first_crosses,
       t.created_at
  from webhook._threshold t;
comment on view webhook.thresholds is 'Values of metrics whose crossing is an event.';
comment on column webhook.thresholds.metric is 'What is observed.';
comment on column webhook.thresholds.name is 'Name of the threshold within the metric.';
comment on column webhook.thresholds.threshold is 'The value, in the unit of the metric.';
comment on column webhook.thresholds.direction is 'up or down.';
comment on column webhook.thresholds.event_type is 'Type of the event that a crossing emits.';
comment on column webhook.thresholds.rearm is 'What arms it again after an event: reversal, margin or never.';
comment on column webhook.thresholds.rearm_at is 'Of margin: value that arms it again.';
comment on column webhook.thresholds.adjustments_cross is 'Whether an adjustment can cross.';
comment on column webhook.thresholds.first_crosses is 'Whether the first value of a subject crosses when it is beyond already.';
comment on column webhook.thresholds.created_at is 'When it was made.';

create view webhook.observations as
select o.partner_id,
       o.metric,
       o.subject_type,
       o.subject_id,
       o.value,
       o.observation,
       o.observed_at,
       o.disarmed
  from webhook._observation o;
comment on view webhook.observations is 'The last value of each metric of each subject.';
comment on column webhook.observations.partner_id is 'Tenant that the subject belongs to.';
comment on column webhook.observations.metric is 'What is observed.';
comment on column webhook.observations.subject_type is 'Kind of the subject.';
comment on column webhook.observations.subject_id is 'Identity of the subject.';
comment on column webhook.observations.value is 'Last value, in the unit of the metric.';
comment on column webhook.observations.observation is 'How many values there were.';
comment on column webhook.observations.observed_at is 'When the last one came.';
comment on column webhook.observations.disarmed is 'Thresholds that emitted and are not armed again.';
-- Conversions, and what they made of events: without payloads.

create view webhook.conversions as
select c.event_type as type,
       c.from_version,
       c.to_version,
       c.function_name as function,
       c.function_owner as owner,
       webhook._conversion_fault(c.function_name, c.function_owner) as fault,
       c.reason,
       c.created_at,
       c.created_by
  from webhook._conversion c;
comment on view webhook.conversions is 'Functions that make one schema version of a payload of another.';
comment on column webhook.conversions.type is 'The event type.';
comment on column webhook.conversions.from_version is 'Schema version that the function takes.';
comment on column webhook.conversions.to_version is 'Schema version that it makes.';
comment on column webhook.conversions.function is 'The function.';
comment on column webhook.conversions.owner is 'Whose rights it runs with.';
comment on column webhook.conversions.fault is 'Why it is not run any more; null = it is.';
comment on column webhook.conversions.reason is 'Why it is there.';
comment on column webhook.conversions.created_at is 'When it was registered.';
comment on column webhook.conversions.created_by is 'Session user who registered it.';

create view webhook.event_versions as
select v.event_id,
       v.partner_id,
       v.version,
       octet_length(v.body) as data_bytes,
       v.failure
  from webhook._event_version v;
comment on view webhook.event_versions is
  'In which other schema versions events are stored, or why not. Fast by event_id.';
comment on column webhook.event_versions.event_id is 'The event.';
comment on column webhook.event_versions.partner_id is 'Tenant that the event belongs to.';
comment on column webhook.event_versions.version is 'The schema version; that of the event itself stands in events.';
comment on column webhook.event_versions.data_bytes is 'Size of the payload in it; null where there is none.';
comment on column webhook.event_versions.failure is 'Why there is none; null = the conversion succeeded.';
-- The receiving side as people read it. No payload, no key.

create view webhook.inbox_sources as
select s.name,
       s.profile,
       s.partner_id,
       s.partner_from,
       s.partners,
       s.id_from,
       s.type_from,
       s.tolerance,
       s.validation,
       s.same_body,
       s.max_body,
       s.max_pending,
       s.max_per_minute,
       s.enabled,
       (select count(*)
          from webhook._inbox_key k
         where k.source_id = s.source_id
           and k.kept
           and (k.valid_until is null or k.valid_until > clock_timestamp())) as keys,
       s.description,
       s.created_at,
       s.changed_at
  from webhook._inbox_source s;
comment on view webhook.inbox_sources is 'Senders whose events receive() accepts.';
comment on column webhook.inbox_sources.name is 'Name, as receive is given it.';
comment on column webhook.inbox_sources.profile is 'Signature profile of the sender.';
comment on column webhook.inbox_sources.partner_id is 'Tenant of all its events; null = partner_from says.';
comment on column webhook.inbox_sources.partner_from is 'Where the tenant stands.';
comment on column webhook.inbox_sources.partners is 'Tenants that may be named; null = all.';
comment on column webhook.inbox_sources.id_from is 'Where the event id stands; null = as the profile has it.';
comment on column webhook.inbox_sources.type_from is 'Where the event type stands; null = as the profile has it.';
comment on column webhook.inbox_sources.tolerance is 'How far the time of signing may be from the clock.';
comment on column webhook.inbox_sources.validation is 'off or enforce.';
comment on column webhook.inbox_sources.same_body is 'Whether an event that comes again with another body is a conflict.';
comment on column webhook.inbox_sources.max_body is 'Largest body, bytes.';
comment on column webhook.inbox_sources.max_pending is 'Unfinished events, each counted once for each handler, above which new ones get a 503.';
comment on column webhook.inbox_sources.max_per_minute is 'Events accepted in a minute above which new ones get a 429; null = no limit.';
comment on column webhook.inbox_sources.enabled is 'false = everything gets a 503.';
comment on column webhook.inbox_sources.keys is 'Keys in force.';
comment on column webhook.inbox_sources.description is 'What it is.';
comment on column webhook.inbox_sources.created_at is 'When it was created.';
comment on column webhook.inbox_sources.changed_at is 'When it was last changed.';

create view webhook.inbox_keys as
select k.key_id,
       s.name as source,
       k.kind,
       k.kept and (k.valid_until is null or k.valid_until > clock_timestamp()) as in_force,
       k.created_at,
       k.created_by,
       k.valid_until,
       case when k.kept then k.stored_under is not null end as encrypted,
       k.stored_under as master_key_id
  from webhook._inbox_key k
  join webhook._inbox_source s on s.source_id = k.source_id;
comment on view webhook.inbox_keys is 'Keys of inbox sources, former ones included; no key material.';
comment on column webhook.inbox_keys.key_id is 'Id of the key.';
comment on column webhook.inbox_keys.source is 'Its inbox source.';
comment on column webhook.inbox_keys.kind is 'hmac-sha256, ed25519 or text.';
comment on column webhook.inbox_keys.in_force is 'Whether its signatures are accepted now.';
comment on column webhook.inbox_keys.created_at is 'When it was added.';
comment on column webhook.inbox_keys.created_by is 'Session user who added it.';
comment on column webhook.inbox_keys.valid_until is 'When it ceases, or ceased, to count; null = it has no end.';
comment on column webhook.inbox_keys.encrypted is 'Whether it is stored encrypted; null when its material is destroyed.';
comment on column webhook.inbox_keys.master_key_id is 'Id of the master key that it is stored under.';

create view webhook.inbox_handlers as
select h.name,
       h.version,
       h.event_types,
       h.sources,
       h.retry_schedule,
       h.subject_versions,
       h.paused_at,
       h.paused_by,
       h.pause_reason,
       h.origin <> (select webhook._origin()) as rests,
       h.description,
       h.created_at,
       h.changed_at
  from webhook._inbox_handler h;
comment on view webhook.inbox_handlers is 'What processes received events.';
comment on column webhook.inbox_handlers.name is 'Name, as claim_inbox is given it.';
comment on column webhook.inbox_handlers.version is 'Version in force.';
comment on column webhook.inbox_handlers.event_types is 'Event types and wildcards that it wants.';
comment on column webhook.inbox_handlers.sources is 'Inbox sources that it wants events of; null = all.';
comment on column webhook.inbox_handlers.retry_schedule is 'Waits between its attempts.';
comment on column webhook.inbox_handlers.subject_versions is 'Whether an event about an older version of its subject is stale.';
comment on column webhook.inbox_handlers.paused_at is 'Since when it gets nothing; null = it is not paused.';
comment on column webhook.inbox_handlers.paused_by is 'Session user who paused it.';
comment on column webhook.inbox_handlers.pause_reason is 'Why.';
comment on column webhook.inbox_handlers.rests is 'Whether it came with a copy of another database and gets nothing here until resume_inbox.';
comment on column webhook.inbox_handlers.description is 'What it does.';
comment on column webhook.inbox_handlers.created_at is 'When it was created.';
comment on column webhook.inbox_handlers.changed_at is 'When it was last changed.';

create view webhook.inbox as
select i.event_id,
       s.name as source,
       i.partner_id,
       i.type,
       i.subject_type,
       i.subject_id,
       i.subject_version,
       i.schema_version,
       i.correlation_id,
       i.received_at,
       i.signed_at,
       i.expunged_at,
       i.bytes,
       r.handler,
       r.version as handler_version,
       case
         when r.inbox_id is null then 'unhandled'
         -- A lease that has ended binds nobody.
         when r.state = 'claimed' and r.next_attempt_at <= clock_timestamp() then 'retrying'
         else r.state
       end as state,
       r.attempts,
       case when r.state in ('pending', 'claimed', 'retrying') then r.next_attempt_at end as next_attempt_at,
       r.finished_at,
       r.note
  from webhook._inbox i
  join webhook._inbox_source s on s.source_id = i.source_id
  left join webhook._inbox_run r on r.inbox_id = i.inbox_id;
comment on view webhook.inbox is
  'Received events and what each handler made of them: a row for each event, handler and version. Joins events by event_id where sender and receiver share a database.';
comment on column webhook.inbox.event_id is 'The event, as its sender names it.';
comment on column webhook.inbox.source is 'Inbox source that it came from.';
comment on column webhook.inbox.partner_id is 'Tenant that it belongs to.';
comment on column webhook.inbox.type is 'Event type; null = it says none.';
comment on column webhook.inbox.subject_type is 'Kind of the subject.';
comment on column webhook.inbox.subject_id is 'Identity of the subject.';
comment on column webhook.inbox.subject_version is 'Version of the subject.';
comment on column webhook.inbox.schema_version is 'Version of the payload''s schema.';
comment on column webhook.inbox.correlation_id is 'What ties it to others.';
comment on column webhook.inbox.received_at is 'When it was received.';
comment on column webhook.inbox.signed_at is 'When the sender signed it; null = the profile signs no time.';
comment on column webhook.inbox.expunged_at is 'When what it says was erased.';
comment on column webhook.inbox.bytes is 'Size of the body.';
comment on column webhook.inbox.handler is 'Handler that wants it; null = none did when it was received.';
comment on column webhook.inbox.handler_version is 'Version of the handler.';
comment on column webhook.inbox.state is 'unhandled, pending, claimed, retrying, processed, stale, dead or closed.';
comment on column webhook.inbox.attempts is 'How often it was claimed since it was last given to the handler.';
comment on column webhook.inbox.next_attempt_at is 'When it can be claimed (again); of a claimed one, when its lease ends.';
comment on column webhook.inbox.finished_at is 'When it came to its end.';
comment on column webhook.inbox.note is 'What the handler, or whoever decided, said.';

create view webhook.stat_inbox as
select s.name as source,
       h.name as handler,
       c.accepted,
       c.duplicates,
       c.conflicts,
       c.rejected,
       c.processed,
       c.failures,
       c.stale,
       case when h.name is not null then (
         select count(*)
           from webhook._inbox_run r
          where r.handler = h.name
            and r.source_id = s.source_id
            and r.state in ('pending', 'claimed', 'retrying'))
       end as open,
       case when h.name is not null then (
         select count(*)
           from webhook._inbox_run r
          where r.handler = h.name
            and r.source_id = s.source_id
            and r.state = 'dead')
       end as dead,
       c.last_at
  from webhook._inbox_source s
 cross join (select null::text as name union all select n.name from webhook._inbox_handler n) as h
 cross join lateral (
       select coalesce(sum(k.total) filter (where k.result = 'accepted'), 0)::bigint as accepted,
              coalesce(sum(k.total) filter (where k.result = 'duplicate'), 0)::bigint as duplicates,
              coalesce(sum(k.total) filter (where k.result = 'rejected' and k.reason = 'conflict'), 0)::bigint as conflicts,
              coalesce(sum(k.total) filter (where k.result = 'rejected'), 0)::bigint as rejected,
              coalesce(sum(k.total) filter (where k.result = 'processed'), 0)::bigint as processed,
              coalesce(sum(k.total) filter (where k.result = 'failed'), 0)::bigint as failures,
              coalesce(sum(k.total) filter (where k.result = 'stale'), 0)::bigint as stale,
              max(k.last_at) as last_at
         from webhook._inbox_count k
        where k.source_id = s.source_id
          and case
                when h.name is null then k.result in ('accepted', 'duplicate', 'rejected', 'challenge')
                else k.result in ('processed', 'failed', 'stale') and k.reason = h.name
              end) as c;
comment on view webhook.stat_inbox is
  'What was received and processed, in counters since the retention began: a row for each source, with no handler, and one for each source and handler.';
comment on column webhook.stat_inbox.source is 'Inbox source.';
comment on column webhook.stat_inbox.handler is 'Handler; null = the row tells what receive answered.';
comment on column webhook.stat_inbox.accepted is 'Events accepted.';
comment on column webhook.stat_inbox.duplicates is 'Events that came again.';
comment on column webhook.stat_inbox.conflicts is 'Events that came again with another body; part of rejected.';
comment on column webhook.stat_inbox.rejected is 'Requests rejected, whatever the reason; see inbox_rejections.';
comment on column webhook.stat_inbox.processed is 'Events processed.';
comment on column webhook.stat_inbox.failures is 'Attempts that failed.';
comment on column webhook.stat_inbox.stale is 'Events about an older version of their subject.';
comment on column webhook.stat_inbox.open is 'Events not finished.';
comment on column webhook.stat_inbox.dead is 'Dead letters.';
comment on column webhook.stat_inbox.last_at is 'When the last of these was counted.';

create view webhook.inbox_rejections as
select s.name as source,
       c.day,
       c.reason,
       sum(c.total)::bigint as total,
       max(c.last_at) as last_at
  from webhook._inbox_count c
  join webhook._inbox_source s on s.source_id = c.source_id
 where c.result = 'rejected'
 group by s.name, c.day, c.reason;
comment on view webhook.inbox_rejections is 'Requests that were rejected, by day and reason. Of the requests themselves nothing is kept.';
comment on column webhook.inbox_rejections.source is 'Inbox source.';
comment on column webhook.inbox_rejections.day is 'UTC day.';
comment on column webhook.inbox_rejections.reason is 'Why.';
comment on column webhook.inbox_rejections.total is 'How often.';
comment on column webhook.inbox_rejections.last_at is 'When last.';
-- What was erased and what is still where it should not be.

create view webhook.erasures as
select r.erasure_id,
       r.at,
       r.actor,
       r.scope,
       r.event_id,
       r.partner_id,
       r.subject_type,
       r.subject_id,
       r.reason,
       r.erased,
       r.confirmed_at,
       r.confirmed_by,
       r.evidence
  from webhook._erasure as r;
comment on view webhook.erasures is 'Calls of expunge, with the evidence that confirm_erasure found.';
comment on column webhook.erasures.erasure_id is 'As expunge returned it.';
comment on column webhook.erasures.at is 'When it was ordered.';
comment on column webhook.erasures.actor is 'Session user who ordered it.';
comment on column webhook.erasures.scope is 'event, subject or partner.';
comment on column webhook.erasures.event_id is 'The event, of scope event.';
comment on column webhook.erasures.partner_id is 'The partner, where one was named.';
comment on column webhook.erasures.subject_type is 'Kind of the subject, of scope subject.';
comment on column webhook.erasures.subject_id is 'Identity of the subject, of scope subject.';
comment on column webhook.erasures.reason is 'Why.';
comment on column webhook.erasures.erased is 'How many rows lost their contents, or were deleted.';
comment on column webhook.erasures.confirmed_at is 'When confirm_erasure first found nothing left; null = not yet.';
comment on column webhook.erasures.confirmed_by is 'Session user who asked for that.';
comment on column webhook.erasures.evidence is 'What it counted then.';

create view webhook.tombstones as
select t.event_id,
       t.partner_id,
       encode(t.body_sha256, 'hex') as body_sha256,
       t.expunged_at,
       t.expunged_by,
       t.reason,
       t.erasure_id
  from webhook._tombstone as t;
comment on view webhook.tombstones is 'Events whose payload is gone: digest, time, who and why.';
comment on column webhook.tombstones.event_id is 'The event.';
comment on column webhook.tombstones.partner_id is 'Tenant that it belongs to.';
comment on column webhook.tombstones.body_sha256 is 'SHA-256 of the payload that was there, hexadecimal.';
comment on column webhook.tombstones.expunged_at is 'When it went.';
comment on column webhook.tombstones.expunged_by is 'Session user who had it go; the owner of the extension for the payload retention.';
comment on column webhook.tombstones.reason is 'Why.';
comment on column webhook.tombstones.erasure_id is 'The call of expunge; null = the payload retention of its event type.';

create view webhook.reconciliation as
select f.finding_id,
       f.kind,
       f.object,
       f.happened_at,
       f.partner_id,
       f.event_id,
       f.endpoint_id,
       f.check_name,
       f.detail,
       f.detected_at,
       f.seen_at,
       f.request_id,
       f.repaired_at,
       f.how
  from webhook._finding as f;
comment on view webhook.reconciliation is 'Gaps that reconcile found, and what became of them.';
comment on column webhook.reconciliation.finding_id is 'Time-ordered id.';
comment on column webhook.reconciliation.kind is 'What is wrong.';
comment on column webhook.reconciliation.object is 'Which object.';
comment on column webhook.reconciliation.happened_at is 'When the object came into being.';
comment on column webhook.reconciliation.partner_id is 'Tenant concerned, as far as it is known.';
comment on column webhook.reconciliation.event_id is 'The event, where there is one.';
comment on column webhook.reconciliation.endpoint_id is 'The endpoint, of a delivery.';
comment on column webhook.reconciliation.check_name is 'The registered query, of a change without an event.';
comment on column webhook.reconciliation.detail is 'What was found.';
comment on column webhook.reconciliation.detected_at is 'When it was found first.';
comment on column webhook.reconciliation.seen_at is 'When it was found last.';
comment on column webhook.reconciliation.request_id is 'Request to the leader to repair it; see the view requests.';
comment on column webhook.reconciliation.repaired_at is 'When it was not found any more; null = it is still there.';
comment on column webhook.reconciliation.how is 'How it was repaired.';

create view webhook.reconciliations as
select r.name,
       r.event_type,
       r.subject_type,
       r.query,
       r.tolerance,
       r.description,
       r.created_at,
       r.created_by
  from webhook._reconciliation as r;
comment on view webhook.reconciliations is 'Registered queries that find changes of the business without an event.';
comment on column webhook.reconciliations.name is 'Name of the check.';
comment on column webhook.reconciliations.event_type is 'Event type that reports the changes.';
comment on column webhook.reconciliations.subject_type is 'Kind of the subject.';
comment on column webhook.reconciliations.query is 'The function.';
comment on column webhook.reconciliations.tolerance is 'How far apart change and event may be.';
comment on column webhook.reconciliations.description is 'Free text.';
comment on column webhook.reconciliations.created_at is 'When it was registered.';
comment on column webhook.reconciliations.created_by is 'Session user who registered it.';
-- Who may do what, in one place. Nothing is granted to PUBLIC; roles get what they need one by one.

-- EXECUTE on every new function is PUBLIC's by default: it would let any user of the database emit, make
-- endpoints and read the lists.
revoke all on all routines in schema webhook from public;
-- ALTER DEFAULT PRIVILEGES of the installing role may have given tables, or the schema, to everybody.
revoke all on all tables in schema webhook from public;
revoke all on all sequences in schema webhook from public;
revoke all on schema webhook from public;
-- They may have named roles, too.
do $$
declare
  given record;
begin
  perform webhook._close(c.oid::regclass)
     from pg_catalog.pg_class as c
    where c.relnamespace = 'webhook'::regnamespace
      and c.relkind in ('r', 'p', 'v', 'S');
  for given in
    select p.oid::regprocedure as routine, a.grantee::regrole as grantee
      from pg_catalog.pg_proc as p
     cross join lateral pg_catalog.aclexplode(p.proacl) as a
     where p.pronamespace = 'webhook'::regnamespace
       and a.grantee <> p.proowner
       and a.grantee <> 0
  loop
    execute format('revoke all on function %s from %s', given.routine, given.grantee);
  end loop;
end
$$;

-- Monitoring agents read how it is going, by endpoint too, and what alerts there are: no payload, no URL, no
-- evidence of single deliveries. Functions that a view calls run with the rights of whoever reads it, so they
-- need EXECUTE as well: what they tell is an origin, a time and counters.
grant usage on schema webhook to pg_monitor;
grant select on webhook.stat_queue to pg_monitor;
grant select on webhook.stat_worker to pg_monitor;
grant select on webhook.stat_fenced to pg_monitor;
grant select on webhook.stat_endpoint to pg_monitor;
grant select on webhook.endpoint_health to pg_monitor;
grant select on webhook.alerts to pg_monitor;
grant select on webhook.stat_inbox to pg_monitor;
grant select on webhook.inbox_rejections to pg_monitor;
grant execute on function webhook._origin() to pg_monitor;
grant execute on function webhook._event_time(text) to pg_monitor;
grant execute on function webhook._unread() to pg_monitor;
grant execute on function webhook._worker() to pg_monitor;
-- Row-level tenancy: whoever reads a public view sees every partner, its own, or none. The views belong to
-- webhook_views (15_access.sql); that role may read exactly the columns that they use, and of the rows those that the
-- policy lets the reader see. PostgreSQL applies a policy before any condition of the query that could tell of a row
-- it hides, and still uses the indexes; a security_barrier view would lose the order and the joins of the look-ups.

do $$
declare
  target record;
begin
  -- Tables with the rows of a tenant. The owner is not bound by policies: the leader, emit and the verbs pay nothing.
  for target in
    select t.name, 'partner_id = any ((select webhook._own_partners())::text[])' as own
      from unnest('{_event,_feed,_endpoint,_alert,_request,_observation,_inbox,_tombstone,_replay,_event_version}'::text[]) as t (name)
     union all
    select t.name, 'endpoint_id = any ((select webhook._own_endpoints())::bigint[])'
      from unnest('{_endpoint_state,_endpoint_revision,_secret,_delivery,_attempt,_excerpt,_due,_verification}'::text[]) as t (name)
  loop
    execute format('alter table webhook.%I enable row level security', target.name);
    -- In sub-selects, so that each is asked once per statement, not once per row.
    execute format('create policy _tenant on webhook.%I for select to webhook_views using ((select webhook._sees_all()) or %s)',
                   target.name, target.own);
    execute format('comment on policy _tenant on webhook.%I is ''A reader''''s own rows; all of them for those who may see every partner.''',
                   target.name);
  end loop;

  for target in
    select c.oid::regclass as name
      from pg_catalog.pg_class as c
     where c.relnamespace = 'webhook'::regnamespace
       and c.relkind = 'v'
       -- Read by functions of the owner, for which it must hold all rows whoever calls them.
       and c.relname not in ('_effective_endpoint', '_admitted_origin', '_foreign_origin')
  loop
    execute format('alter view %s owner to webhook_views', target.name);
  end loop;

  -- The columns that stand in the views; of a table of which only rows are counted, the first one.
  for target in
    select t.oid::regclass as name,
           string_agg(distinct quote_ident(a.attname), ', ') as columns
      from pg_catalog.pg_class as v
      join pg_catalog.pg_rewrite as r on r.ev_class = v.oid
      join pg_catalog.pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_class'::regclass
      join pg_catalog.pg_class as t on t.oid = d.refobjid and t.relnamespace = 'webhook'::regnamespace and t.relkind in ('r', 'p')
      join pg_catalog.pg_attribute as a on a.attrelid = t.oid and a.attnum = greatest(d.refobjsubid, 1)
     where v.relowner = 'webhook_views'::regrole
     group by t.oid
  loop
    execute format('grant select (%s) on %s to webhook_views', target.columns, target.name);
  end loop;
end
$$;

-- These two tell origins and nothing else; verbs of the owner read them as well.
grant select on webhook._admitted_origin to webhook_views;
grant select on webhook._foreign_origin to webhook_views;

-- Monitoring sees all partners in the views that 90_privileges.sql gives it.
grant execute on function webhook._sees_all() to pg_monitor;
grant execute on function webhook._own_partners() to pg_monitor;
grant execute on function webhook._own_endpoints() to pg_monitor;
-- What a dump keeps, and the first wake. Rows of an extension's tables are dumped only when it says so.
-- Not dumped: _due, _ledger, _request, _day_count and _payload_progress. A copy has nothing to carry out; its leader begins its own ledger,
-- and what waited is in _delivery.

-- Daily partitions are no members of the extension: pg_dump writes them as plain tables and attaches them.
select pg_catalog.pg_extension_config_dump('webhook._event_default', '');
select pg_catalog.pg_extension_config_dump('webhook._event_version_default', '');
select pg_catalog.pg_extension_config_dump('webhook._feed_default', '');
select pg_catalog.pg_extension_config_dump('webhook._delivery_default', '');
select pg_catalog.pg_extension_config_dump('webhook._attempt_default', '');
select pg_catalog.pg_extension_config_dump('webhook._excerpt_default', '');
select pg_catalog.pg_extension_config_dump('webhook._idempotency', '');
select pg_catalog.pg_extension_config_dump('webhook._fenced', '');
select pg_catalog.pg_extension_config_dump('webhook._erasure', '');
select pg_catalog.pg_extension_config_dump('webhook._tombstone', '');
select pg_catalog.pg_extension_config_dump('webhook._finding', '');
select pg_catalog.pg_extension_config_dump('webhook._reconciliation', '');
select pg_catalog.pg_extension_config_dump('webhook._endpoint', '');
select pg_catalog.pg_extension_config_dump('webhook._endpoint_state', '');
select pg_catalog.pg_extension_config_dump('webhook._endpoint_revision', '');
select pg_catalog.pg_extension_config_dump('webhook._filter', '');
select pg_catalog.pg_extension_config_dump('webhook._verification', '');
select pg_catalog.pg_extension_config_dump('webhook._secret', '');
select pg_catalog.pg_extension_config_dump('webhook._event_type', '');
select pg_catalog.pg_extension_config_dump('webhook._event_schema', '');
select pg_catalog.pg_extension_config_dump('webhook._conversion', '');
select pg_catalog.pg_extension_config_dump('webhook._source', '');
select pg_catalog.pg_extension_config_dump('webhook._threshold', '');
select pg_catalog.pg_extension_config_dump('webhook._observation', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_source', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_key', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_handler', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_run', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_subject', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_count', '');
-- The row "default" that CREATE EXTENSION made gives way to the restored one, see 12_endpoint.sql.
select pg_catalog.pg_extension_config_dump('webhook._policy', '');
select pg_catalog.pg_extension_config_dump('webhook._pause', '');
select pg_catalog.pg_extension_config_dump('webhook._access', '');
select pg_catalog.pg_extension_config_dump('webhook._alert', '');
select pg_catalog.pg_extension_config_dump('webhook._audit', '');
-- Evidence, and where endpoints come from. A copy trusts none of it: each row names the database that adopted.
select pg_catalog.pg_extension_config_dump('webhook._adoption', '');
select pg_catalog.pg_extension_config_dump('webhook._adopted_endpoint', '');
select pg_catalog.pg_extension_config_dump('webhook._adoption_progress', '');
-- Evidence as well: each row names the database that asked, and another one carries out none of them.
select pg_catalog.pg_extension_config_dump('webhook._replay', '');
select pg_catalog.pg_extension_config_dump('webhook._replay_progress', '');
-- The row that CREATE EXTENSION made before the restore has a random id of its own.
select pg_catalog.pg_extension_config_dump('webhook._seal_key', '');

-- Without the launcher everything works but the sending: said now, rather than found out later.
do $$
declare
  worker record;
begin
  select w.state, w.detail, w.hint
    into worker
    from webhook._worker() as w;
  if worker.state operator(pg_catalog.=) 'not preloaded' then
    raise warning using
      message = 'webhooks will not be sent',
      detail = worker.detail,
      hint = worker.hint;
  end if;
end
$$;

-- The launcher looks for the extension when this transaction commits.
select webhook._wake();
