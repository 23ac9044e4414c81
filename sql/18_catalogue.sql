-- The catalogue beside _event_type (12_endpoint.sql): schemas, sources, thresholds and what was last observed. Written by
-- the verbs of 43_event_type.sql, 46_catalogue.sql and 47_threshold.sql; read by emitting sessions (src/pg/catalogue.rs).
-- Rows name each other by name, without foreign keys: pg_dump restores the rows of an extension in any order.

create table webhook._event_schema (
  event_type text collate "C" not null,
  version text collate "C" not null,
  current boolean not null,
  mode text collate "C",
  schema jsonb not null,
  example jsonb not null,
  change_note text,
  uri text,
  added_at timestamptz not null default pg_catalog.clock_timestamp(),
  added_by name not null default session_user,
  changed_at timestamptz not null default pg_catalog.clock_timestamp(),
  deprecated_at timestamptz,
  constraint _event_schema_pkey primary key (event_type, version),
  constraint _event_schema_mode check (mode in ('off', 'warn', 'enforce')),
  constraint _event_schema_current check (not (current and deprecated_at is not null))
);
comment on table webhook._event_schema is 'JSON Schema and example of each version of an event type''s payload.';
comment on column webhook._event_schema.event_type is 'The event type.';
comment on column webhook._event_schema.version is 'Version of the payload''s schema, as events carry it in schema_version.';
comment on column webhook._event_schema.current is 'Whether it is the version of events that name none; one per event type at most.';
comment on column webhook._event_schema.mode is 'off, warn or enforce; null = webhook.validation.';
comment on column webhook._event_schema.schema is 'JSON Schema, draft 7 or 2020-12.';
comment on column webhook._event_schema.example is 'A payload that the schema accepts.';
comment on column webhook._event_schema.change_note is 'What is different from the version before.';
comment on column webhook._event_schema.uri is 'Where the version is documented.';
comment on column webhook._event_schema.added_at is 'When the version was added.';
comment on column webhook._event_schema.added_by is 'Session user who added it.';
comment on column webhook._event_schema.changed_at is 'When it was last changed.';
comment on column webhook._event_schema.deprecated_at is 'When the version was deprecated; null = it is not.';
create unique index _event_schema_one_current on webhook._event_schema (event_type) where current;
comment on index webhook._event_schema_one_current is 'One current version per event type.';

create table webhook._source (
  name text collate "C" not null,
  enabled boolean not null default true,
  owner text,
  contact text,
  description text,
  role_name name,
  event_types text[] not null,
  partners text[],
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  changed_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint _source_pkey primary key (name)
);
comment on table webhook._source is 'Registered producers of events. A source that is not registered may be named by whoever may emit.';
comment on column webhook._source.name is 'Name, as events carry it in source.';
comment on column webhook._source.enabled is 'Whether events may name it.';
comment on column webhook._source.owner is 'Who answers for it.';
comment on column webhook._source.contact is 'How to reach the owner.';
comment on column webhook._source.description is 'What it is, and how it is switched off on its own side.';
comment on column webhook._source.role_name is 'Role whose members alone may name it; null = whoever may emit.';
comment on column webhook._source.event_types is 'Event types and wildcards that it may emit.';
comment on column webhook._source.partners is 'Partners that it may emit for; null = all.';
comment on column webhook._source.created_at is 'When it was registered.';
comment on column webhook._source.changed_at is 'When it was last changed.';

create table webhook._threshold (
  metric text collate "C" not null,
  name text collate "C" not null,
  threshold numeric not null,
  direction text collate "C" not null,
  event_type text collate "C" not null,
  rearm text collate "C" not null,
  rearm_at numeric,
  adjustments_cross boolean not null,
  first_crosses boolean not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint _threshold_pkey primary key (metric, name),
  constraint _threshold_direction check (direction in ('up', 'down')),
  constraint _threshold_rearm check (rearm in ('reversal', 'margin', 'never')),
  constraint _threshold_margin check ((rearm = 'margin') = (rearm_at is not null))
);
comment on table webhook._threshold is 'Values of a metric whose crossing is an event.';
comment on column webhook._threshold.metric is 'The metric.';
comment on column webhook._threshold.name is 'Name of the threshold within the metric.';
comment on column webhook._threshold.threshold is 'The value, in the unit of the metric.';
comment on column webhook._threshold.direction is 'up = crossed by a value that reaches or exceeds it, coming from below; down = the reverse.';
comment on column webhook._threshold.event_type is 'Type of the event that a crossing emits.';
comment on column webhook._threshold.rearm is 'After an event: reversal = armed again when the value has gone back across; margin = when it has reached rearm_at; never = once per subject.';
comment on column webhook._threshold.rearm_at is 'Value that arms it again, in the unit of the metric.';
comment on column webhook._threshold.adjustments_cross is 'Whether a value that is an adjustment can cross.';
comment on column webhook._threshold.first_crosses is 'Whether the first value of a subject crosses when it is beyond already.';
comment on column webhook._threshold.created_at is 'When it was made.';

create table webhook._observation (
  partner_id text collate "C" not null,
  metric text collate "C" not null,
  subject_type text collate "C" not null,
  subject_id text collate "C" not null,
  value numeric not null,
  observation bigint not null,
  observed_at timestamptz not null default pg_catalog.clock_timestamp(),
  disarmed text[] not null default '{}',
  constraint _observation_pkey primary key (partner_id, metric, subject_type, subject_id)
)
-- Updated by every observation: in place, as long as the page has room.
with (fillfactor = 70);
comment on table webhook._observation is 'The last value of each metric of each subject, and which thresholds have told already. Written by observe.';
comment on column webhook._observation.partner_id is 'Tenant that the subject belongs to.';
comment on column webhook._observation.metric is 'The metric.';
comment on column webhook._observation.subject_type is 'Kind of the subject.';
comment on column webhook._observation.subject_id is 'Identity of the subject.';
comment on column webhook._observation.value is 'Last value, in the unit of the metric.';
comment on column webhook._observation.observation is 'How many values there were: the order in which they count.';
comment on column webhook._observation.observed_at is 'When the last one came.';
comment on column webhook._observation.disarmed is 'Names of the thresholds that emitted and are not armed again.';
