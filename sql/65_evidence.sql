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
  'endpoint.warning, endpoint.disabled, endpoint.recovered, endpoint.missed, endpoint.blocked, endpoint.expiring, endpoint.expired, endpoint.unconfirmed, delivery.quarantined, delivery.filter, delivery.unconverted, delivery.unrecorded, delivery.expired, delivery.closed, event.fenced, inbox.dead or reconciliation.failed.';
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
