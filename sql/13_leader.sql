-- The leader's memory: its position with its open batches, and what users asked of it.

create table webhook._ledger (
  n bigint not null,
  incarnation bigint not null,
  batch bigint not null,
  kind text collate "C" not null,
  at timestamptz not null default pg_catalog.clock_timestamp(),
  prev pg_snapshot,
  cur pg_snapshot,
  from_xid xid8,
  from_id text collate "C",
  to_xid xid8,
  to_id text collate "C",
  pos bigint,
  event_ids text[],
  endpoint_ids bigint[],
  attempt_nos integer[],
  stream bigint not null default 0,
  partners text[],
  constraint _ledger_pkey primary key (n),
  constraint _ledger_kind check (kind in ('start', 'window', 'claim', 'close', 'aside', 'joined', 'place'))
);
comment on table webhook._ledger is
  'Position of the leader and its open batches. Append-only, trimmed: an updated row degrades under a pinned snapshot. Not dumped.';
comment on column webhook._ledger.n is 'Order of the rows.';
comment on column webhook._ledger.incarnation is 'Life of the leader that wrote the row; a result is refused when a later life exists.';
comment on column webhook._ledger.batch is 'Batch that the row is about.';
comment on column webhook._ledger.kind is
  'start = a life began; window = a batch of new events was opened; claim = pairs listed here are on the wire; close = every pair of the batch has a row; aside = partners with very many events are read by a stream of their own from here on; joined = that stream has caught up and is no more; place = everybody''s stream stands here, having read cur to its end.';
comment on column webhook._ledger.at is 'When the row was written.';
comment on column webhook._ledger.prev is 'Events visible in it were read by earlier windows.';
comment on column webhook._ledger.cur is 'Events visible in it and not in prev belong to this window.';
comment on column webhook._ledger.from_xid is 'Keyset (xid, event_id) after which the batch begins.';
comment on column webhook._ledger.from_id is 'Second part of that keyset.';
comment on column webhook._ledger.to_xid is 'Keyset of the last event of the batch.';
comment on column webhook._ledger.to_id is 'Second part of that keyset.';
comment on column webhook._ledger.pos is 'Last feed position of the batch: the next life goes on after it.';
comment on column webhook._ledger.event_ids is 'Pairs of a claim: the events.';
comment on column webhook._ledger.endpoint_ids is 'Pairs of a claim: the endpoints.';
comment on column webhook._ledger.attempt_nos is 'Pairs of a claim: the numbers of the attempts on the wire.';
comment on column webhook._ledger.stream is 'Who reads: 0 = the stream of everybody, else one that was set aside for the partners named in its rows.';
comment on column webhook._ledger.partners is 'Of the stream 0: whose events it passes over, null = nobody''s. Of another one: whose events it reads.';

-- Everything from the oldest transaction that is open now on is new: the extension did not exist before.
insert into webhook._ledger (n, incarnation, batch, kind, prev, cur)
select 0, 0, 0, 'start',
       pg_catalog.format('%s:%s:', x.oldest, x.oldest)::pg_catalog.pg_snapshot,
       pg_catalog.format('%s:%s:', x.oldest, x.oldest)::pg_catalog.pg_snapshot
  from (select pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()) as oldest) as x;

create table webhook._request (
  request_id bigint not null,
  verb text collate "C" not null,
  event_id text collate "C",
  endpoint_id bigint,
  state text collate "C" not null default 'pending',
  origin bigint not null,
  requested_by name not null default session_user,
  requested_at timestamptz not null default pg_catalog.clock_timestamp(),
  finished_at timestamptz,
  deliveries integer,
  result text,
  xid xid8 not null default pg_catalog.pg_current_xact_id(),
  scope text collate "C",
  target text collate "C",
  reason text,
  event_ids text[],
  endpoint_ids bigint[],
  partner_id text collate "C",
  constraint _request_pkey primary key (request_id),
  constraint _request_verb check (verb in ('replay', 'retry', 'skip', 'close', 'pause', 'resume', 'verify_endpoint', 'adopt', 'replay_range', 'cancel_replay', 'repair')),
  constraint _request_pairs check (cardinality(event_ids) = cardinality(endpoint_ids)),
  constraint _request_state check (state in ('pending', 'done', 'refused'))
);
comment on table webhook._request is
  'What users asked of the leader. They insert, the leader alone updates. Not dumped: a copy has nothing to carry out.';
comment on column webhook._request.request_id is 'Time-ordered random id.';
comment on column webhook._request.verb is 'What is asked.';
comment on column webhook._request.event_id is 'The event concerned; null when there are several, or none.';
comment on column webhook._request.endpoint_id is 'The endpoint concerned; null = every existing pair of the event.';
comment on column webhook._request.state is 'pending, done or refused.';
comment on column webhook._request.origin is 'Which database the request was made in.';
comment on column webhook._request.requested_by is 'Session user who asked.';
comment on column webhook._request.requested_at is 'When.';
comment on column webhook._request.finished_at is 'When the leader carried it out or refused it.';
comment on column webhook._request.deliveries is 'How many deliveries it concerned.';
comment on column webhook._request.result is 'What came of it, in words.';
comment on column webhook._request.xid is 'Transaction that asked; a pause holds from the window that sees it.';
comment on column webhook._request.scope is 'What a pause or its end is about: all, partner, event_type or endpoint.';
comment on column webhook._request.target is 'The partner, event type or endpoint, of an adoption the origin, of cancel_replay the request; null for all.';
comment on column webhook._request.reason is 'Why, in the user''s words.';
comment on column webhook._request.event_ids is 'Pairs of retry, skip and close: the events.';
comment on column webhook._request.endpoint_ids is 'Pairs of retry, skip and close: the endpoints.';
comment on column webhook._request.partner_id is 'Tenant concerned; null when there are several, or none.';
create index _request_pending on webhook._request (request_id) where state = 'pending';
comment on index webhook._request_pending is 'Requests that the leader has not carried out.';

create table webhook._fenced (
  event_id text collate "C" not null,
  reason text not null,
  found_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint _fenced_pkey primary key (event_id)
);
comment on table webhook._fenced is 'Events that the leader read and refused to send: their row does not match its seal.';
comment on column webhook._fenced.event_id is 'The event.';
comment on column webhook._fenced.reason is 'Why it is never sent.';
comment on column webhook._fenced.found_at is 'When the leader found it.';
