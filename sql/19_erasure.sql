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
comment on column webhook._erasure.partner_id is 'The tenant, of scope partner; of the others, where it was given.';
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
comment on column webhook._tombstone.swept is 'The leader has looked for response excerpts that were written while the erasure was not committed yet, and for deliveries that waited for the payload.';
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
