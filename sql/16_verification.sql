-- Proof that a partner controls a callback URL: what was tried and what came of it. Append-only evidence.
-- The leader writes one row for each challenge it sent; a verb writes one where an operator spares the proof.
-- The value of a challenge is nowhere: it lives in the leader's memory, for one try.

create table webhook._verification (
  verification_id bigint not null,
  endpoint_id bigint not null,
  proof_generation bigint not null,
  started_at timestamptz not null default pg_catalog.clock_timestamp(),
  latency_ms integer,
  status smallint,
  method text collate "C" not null,
  host text not null,
  result text collate "C" not null,
  error_category text collate "C",
  detail text,
  overridden_by name,
  constraint _verification_pkey primary key (verification_id),
  constraint _verification_result check (result in ('proven', 'failed', 'void', 'overridden'))
);
comment on table webhook._verification is 'Proofs of control of callback URLs: every challenge that was sent, and every time that an operator did without one. Append-only.';
comment on column webhook._verification.verification_id is 'Time-ordered random id; the challenge carries it as chl_ and this number.';
comment on column webhook._verification.endpoint_id is 'The endpoint.';
comment on column webhook._verification.proof_generation is 'Which demand for a proof it answers, as in _endpoint.';
comment on column webhook._verification.started_at is 'When the challenge was sent.';
comment on column webhook._verification.latency_ms is 'Milliseconds from connecting to the end of the answer; null when nothing was sent.';
comment on column webhook._verification.status is 'HTTP status of the answer; null when there was none.';
comment on column webhook._verification.method is 'challenge, graph or slack; none where an operator did without.';
comment on column webhook._verification.host is 'Host of the URL that was to be proven.';
comment on column webhook._verification.result is
  'proven, failed, void (answered rightly, but the endpoint had changed meanwhile) or overridden (an operator did without a proof).';
comment on column webhook._verification.error_category is 'Error category of a failed exchange, as in attempts; null when the answer was 2xx.';
comment on column webhook._verification.detail is 'What was wrong, in the sender''s own words.';
comment on column webhook._verification.overridden_by is 'Session user who did without a proof.';
create index _verification_endpoint on webhook._verification (endpoint_id, verification_id);
comment on index webhook._verification_endpoint is 'Proofs of an endpoint by time.';
