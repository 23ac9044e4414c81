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
