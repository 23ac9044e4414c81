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
