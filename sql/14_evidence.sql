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
  notified boolean not null default false,
  constraint _alert_pkey primary key (alert_id),
  constraint _alert_severity check (severity in ('info', 'warning', 'critical'))
);
comment on table webhook._alert is 'What somebody should know: endpoints that fail or were disabled, deliveries that are held, events that were refused.';
comment on column webhook._alert.alert_id is 'Time-ordered random id.';
comment on column webhook._alert.at is 'When it was found.';
comment on column webhook._alert.kind is
  'endpoint.warning, endpoint.disabled, endpoint.recovered, endpoint.missed, endpoint.blocked, endpoint.expiring, endpoint.expired, endpoint.unconfirmed, delivery.quarantined, delivery.filter, delivery.unconverted, delivery.unrecorded, delivery.expired, delivery.closed, event.fenced, inbox.dead or reconciliation.failed.';
comment on column webhook._alert.severity is 'info, warning or critical.';
comment on column webhook._alert.partner_id is 'Tenant concerned.';
comment on column webhook._alert.endpoint_id is 'Endpoint concerned.';
comment on column webhook._alert.event_id is 'Event concerned.';
comment on column webhook._alert.detail is 'What happened, in words.';
comment on column webhook._alert.notified is 'Whoever listens was told, or could not be. Set by the leader, once the alert is committed.';
create index _alert_unnotified on webhook._alert (alert_id) where not notified;
comment on index webhook._alert_unnotified is 'Alerts that the leader has still to tell of.';
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
