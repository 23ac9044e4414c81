-- The receiving side: where events may come from, what came, and what handlers made of it.
--
-- Configuration (_inbox_source, _inbox_key, _inbox_handler) is written by verbs. _inbox is written once by receive(), in
-- the transaction of whoever answers the sender; one _inbox_run for each handler that wants the event is written with
-- it, and changed by claim_inbox() and finish_inbox() in the handler's own transactions. The leader has no part in any of
-- this but deleting what is older than the retention.
-- _inbox is no partitioned table: its unique key (source, event id, tenant) must hold over the whole retention, and a
-- unique key of a partitioned table holds only within a partition. A day's worth of rows is deleted in small pieces instead.
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
  -- What makes a duplicate one, whoever receives it at the same moment. With the tenant, where a source speaks for
  -- several: none of them can take another's id first, or find out by trying whether it is taken.
  constraint _inbox_event unique (source_id, event_id, partner_id)
);
comment on table webhook._inbox is 'Events received, one row for each event of a source and tenant; kept for webhook.inbox_retention. Append-only but for erasure.';
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
create index _inbox_about on webhook._inbox (subject_type, subject_id, partner_id) where subject_id is not null;
comment on index webhook._inbox_about is 'What was received about a subject: an erasure finds it so.';
create index _inbox_partner on webhook._inbox (partner_id, received_at);
comment on index webhook._inbox_partner is 'What was received for a tenant, by time: an erasure, and whoever looks at his own events.';

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
create index _inbox_subject_changed on webhook._inbox_subject (changed_at);
comment on index webhook._inbox_subject_changed is 'Oldest first: the retention.';

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
comment on column webhook._inbox_count.slot is 'Any number but 0: sessions at work at once count in different rows, and wait for none. 0 = the sum of them, once the day is over.';
comment on column webhook._inbox_count.result is 'accepted, duplicate, challenge or rejected.';
comment on column webhook._inbox_count.reason is 'Why it was rejected; empty for the others.';
create index _inbox_count_open on webhook._inbox_count (day) where slot <> 0;
comment on index webhook._inbox_count_open is 'Counters whose rows are not put together: those of the last days.';
create index _inbox_count_day on webhook._inbox_count (day) where slot = 0;
comment on index webhook._inbox_count_day is 'Counters of days that are over, oldest first: the retention.';
