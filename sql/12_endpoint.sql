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
  'Transaction that chose it, of an adopted endpoint the one that adopted it: tells which shape the events of a window are sent in.';

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
