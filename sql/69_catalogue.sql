-- The catalogue as people read it.

create view webhook.event_types as
select t.name,
       t.priority,
       t.created_at,
       t.description,
       t.emitted_when,
       t.not_emitted_when,
       t.receiver_action,
       t.authoritative_state,
       t.owner,
       t.contact,
       t.sensitivity,
       t.payload_retention,
       t.sources,
       t.deprecated_at,
       t.deprecation_reason,
       t.replaced_by,
       t.sunset_at,
       (select s.version from webhook._event_schema s where s.event_type = t.name and s.current) as current_version,
       (select array_agg(s.version order by s.added_at, s.version) from webhook._event_schema s where s.event_type = t.name) as versions,
       array_remove(array[
         case when t.emitted_when is null then 'emitted_when' end,
         case when t.not_emitted_when is null then 'not_emitted_when' end,
         case when t.receiver_action is null then 'receiver_action' end,
         case when t.authoritative_state is null then 'authoritative_state' end,
         case when t.owner is null then 'owner' end,
         case when t.sensitivity is null then 'sensitivity' end,
         case when not exists (select from webhook._event_schema s where s.event_type = t.name) then 'schema' end], null) as missing
  from webhook._event_type t;
comment on view webhook.event_types is 'The catalogue: registered event types. What emit does with others is said by webhook.unknown_types.';
comment on column webhook.event_types.name is 'Event type, object.change.';
comment on column webhook.event_types.priority is 'Priority class: 0 is served before 1.';
comment on column webhook.event_types.created_at is 'When it was registered.';
comment on column webhook.event_types.description is 'What the event tells.';
comment on column webhook.event_types.emitted_when is 'When it is emitted.';
comment on column webhook.event_types.not_emitted_when is 'When it is not, although one might think so.';
comment on column webhook.event_types.receiver_action is 'What a receiver typically does.';
comment on column webhook.event_types.authoritative_state is 'Where the state is read that counts.';
comment on column webhook.event_types.owner is 'Who answers for it.';
comment on column webhook.event_types.contact is 'How to reach the owner.';
comment on column webhook.event_types.sensitivity is 'public, internal, confidential or personal.';
comment on column webhook.event_types.payload_retention is 'How long payloads are kept; null = as long as events.';
comment on column webhook.event_types.sources is 'Registered sources that may emit it; null = whoever may emit.';
comment on column webhook.event_types.deprecated_at is 'When it was deprecated; null = it is not.';
comment on column webhook.event_types.deprecation_reason is 'Why.';
comment on column webhook.event_types.replaced_by is 'Event type to use in its place.';
comment on column webhook.event_types.sunset_at is 'From when on emit refuses it; null = it goes on with a warning.';
comment on column webhook.event_types.current_version is 'Schema version of events that name none.';
comment on column webhook.event_types.versions is 'Schema versions, oldest first; null = none.';
comment on column webhook.event_types.missing is 'What the catalogue does not say about it yet.';

create view webhook.event_schemas as
select s.event_type as type,
       s.version,
       s.current,
       s.mode,
       s.schema,
       s.example,
       s.change_note,
       s.uri,
       s.added_at,
       s.added_by,
       s.changed_at,
       s.deprecated_at
  from webhook._event_schema s;
comment on view webhook.event_schemas is 'JSON Schema and example of each version of an event type''s payload.';
comment on column webhook.event_schemas.type is 'The event type.';
comment on column webhook.event_schemas.version is 'The version, as events carry it in schema_version.';
comment on column webhook.event_schemas.current is 'Whether it is the version of events that name none.';
comment on column webhook.event_schemas.mode is 'off, warn or enforce; null = webhook.validation.';
comment on column webhook.event_schemas.schema is 'The JSON Schema.';
comment on column webhook.event_schemas.example is 'A payload that it accepts.';
comment on column webhook.event_schemas.change_note is 'What is different from the version before.';
comment on column webhook.event_schemas.uri is 'Where the version is documented.';
comment on column webhook.event_schemas.added_at is 'When it was added.';
comment on column webhook.event_schemas.added_by is 'Session user who added it.';
comment on column webhook.event_schemas.changed_at is 'When it was last changed.';
comment on column webhook.event_schemas.deprecated_at is 'When it was deprecated; null = it is not.';

create view webhook.event_fields as
select s.event_type as type,
       s.version,
       f.path,
       f.kind,
       f.required,
       f.purpose,
       f.sensitivity,
       f.money::jsonb as money
  from webhook._event_schema s
 cross join lateral webhook._schema_fields(s.schema::text) as f;
comment on view webhook.event_fields is 'Every field that a schema describes, with its purpose.';
comment on column webhook.event_fields.type is 'The event type.';
comment on column webhook.event_fields.version is 'The schema version.';
comment on column webhook.event_fields.path is 'JSON pointer of the field; [] stands for every element of an array, * for any further member.';
comment on column webhook.event_fields.kind is 'Types, separated by commas; empty = any.';
comment on column webhook.event_fields.required is 'Whether the object that it belongs to always has it.';
comment on column webhook.event_fields.purpose is 'What it is there for.';
comment on column webhook.event_fields.sensitivity is 'What x-sensitivity says.';
comment on column webhook.event_fields.money is 'Currency, precision and rounding, where it holds money.';

create view webhook.sources as
select s.name,
       s.enabled,
       s.owner,
       s.contact,
       s.description,
       s.role_name as role,
       s.event_types,
       s.partners,
       s.created_at,
       s.changed_at
  from webhook._source s;
comment on view webhook.sources is 'Registered producers of events.';
comment on column webhook.sources.name is 'Name, as events carry it in source.';
comment on column webhook.sources.enabled is 'Whether events may name it; webhook.update_source switches it.';
comment on column webhook.sources.owner is 'Who answers for it.';
comment on column webhook.sources.contact is 'How to reach the owner.';
comment on column webhook.sources.description is 'What it is, and how it is switched off on its own side.';
comment on column webhook.sources.role is 'Role whose members alone may name it; null = whoever may emit.';
comment on column webhook.sources.event_types is 'Event types and wildcards that it may emit.';
comment on column webhook.sources.partners is 'Partners that it may emit for; null = all.';
comment on column webhook.sources.created_at is 'When it was registered.';
comment on column webhook.sources.changed_at is 'When it was last changed.';

create view webhook.thresholds as
select t.metric,
       t.name,
       t.threshold,
       t.direction,
       t.event_type,
       t.rearm,
       t.rearm_at,
       t.adjustments_cross,
       t.first_crosses,
       t.created_at
  from webhook._threshold t;
comment on view webhook.thresholds is 'Values of metrics whose crossing is an event.';
comment on column webhook.thresholds.metric is 'What is observed.';
comment on column webhook.thresholds.name is 'Name of the threshold within the metric.';
comment on column webhook.thresholds.threshold is 'The value, in the unit of the metric.';
comment on column webhook.thresholds.direction is 'up or down.';
comment on column webhook.thresholds.event_type is 'Type of the event that a crossing emits.';
comment on column webhook.thresholds.rearm is 'What arms it again after an event: reversal, margin or never.';
comment on column webhook.thresholds.rearm_at is 'Of margin: value that arms it again.';
comment on column webhook.thresholds.adjustments_cross is 'Whether an adjustment can cross.';
comment on column webhook.thresholds.first_crosses is 'Whether the first value of a subject crosses when it is beyond already.';
comment on column webhook.thresholds.created_at is 'When it was made.';

create view webhook.observations as
select o.partner_id,
       o.metric,
       o.subject_type,
       o.subject_id,
       o.value,
       o.observation,
       o.observed_at,
       o.disarmed
  from webhook._observation o;
comment on view webhook.observations is 'The last value of each metric of each subject.';
comment on column webhook.observations.partner_id is 'Tenant that the subject belongs to.';
comment on column webhook.observations.metric is 'What is observed.';
comment on column webhook.observations.subject_type is 'Kind of the subject.';
comment on column webhook.observations.subject_id is 'Identity of the subject.';
comment on column webhook.observations.value is 'Last value, in the unit of the metric.';
comment on column webhook.observations.observation is 'How many values there were.';
comment on column webhook.observations.observed_at is 'When the last one came.';
comment on column webhook.observations.disarmed is 'Thresholds that emitted and are not armed again.';
