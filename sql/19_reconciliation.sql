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

create table webhook._endpoint_seen (
  endpoint_id bigint not null,
  changed_xid xid8 not null,
  seen pg_snapshot not null,
  constraint _endpoint_seen_pkey primary key (endpoint_id)
);
comment on table webhook._endpoint_seen is
  'Since when the leader goes by the last change of an endpoint: when a change was made says nothing about when it was committed. Written by the leader alone; not dumped.';
comment on column webhook._endpoint_seen.endpoint_id is 'The endpoint.';
comment on column webhook._endpoint_seen.changed_xid is 'Transaction of that change.';
comment on column webhook._endpoint_seen.seen is 'Snapshot taken after the leader had read it: events that are not visible in it are decided by what the endpoint is since.';

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
