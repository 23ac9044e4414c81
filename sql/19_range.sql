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
  expired bigint not null default 0,
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
comment on column webhook._replay_progress.expired is 'Deliveries not made because those of the event are not kept any more: nobody can tell what is missing.';
comment on column webhook._replay_progress.started_at is 'When the leader began.';
comment on column webhook._replay_progress.finished_at is 'When it was done or cancelled; null = not yet.';
