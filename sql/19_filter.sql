-- Which events of its types an endpoint gets: kinds of subject, and a condition on the payload. What is in force stands
-- with the endpoint, written by create_endpoint and update_endpoint; every version there was stands in _filter, so that
-- an event is decided about by the version that its window saw, however often that is done again (after a crash, by a
-- stream that lags behind, for a new endpoint). The leader decides, in src/pg/leader/filtering.rs and nowhere else.

alter table webhook._endpoint
  add column subject_types text[],
  add column filter text,
  add column filter_version integer not null default 0;
comment on column webhook._endpoint.subject_types is 'Subject types whose events are sent here; null = all, and events without a subject.';
comment on column webhook._endpoint.filter is 'Condition on the payload, a jsonpath predicate as PostgreSQL spells it; null = none.';
comment on column webhook._endpoint.filter_version is 'Number of the current row of _filter; 0 = there never was one.';

create table webhook._filter (
  endpoint_id bigint not null,
  version integer not null,
  subject_types text[],
  filter text,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  created_by name not null default session_user,
  created_xid xid8 not null default pg_catalog.pg_current_xact_id(),
  constraint _filter_pkey primary key (endpoint_id, version)
);
comment on table webhook._filter is 'Every filter that an endpoint has had. Append-only; endpoints that never had one have no row.';
comment on column webhook._filter.endpoint_id is 'The endpoint.';
comment on column webhook._filter.version is 'Number of the version, from 1.';
comment on column webhook._filter.subject_types is 'Subject types; null = all.';
comment on column webhook._filter.filter is 'Condition on the payload; null = none.';
comment on column webhook._filter.created_at is 'When it was chosen.';
comment on column webhook._filter.created_by is 'Session user who chose it.';
comment on column webhook._filter.created_xid is 'Transaction that chose it: it holds for the windows that see it.';
