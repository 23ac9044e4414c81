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
