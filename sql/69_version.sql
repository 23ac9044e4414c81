-- Conversions, and what they made of events: without payloads.

create view webhook.conversions as
select c.event_type as type,
       c.from_version,
       c.to_version,
       c.function_name as function,
       c.function_owner as owner,
       webhook._conversion_fault(c.function_name, c.function_owner) as fault,
       c.reason,
       c.created_at,
       c.created_by
  from webhook._conversion c;
comment on view webhook.conversions is 'Functions that make one schema version of a payload of another.';
comment on column webhook.conversions.type is 'The event type.';
comment on column webhook.conversions.from_version is 'Schema version that the function takes.';
comment on column webhook.conversions.to_version is 'Schema version that it makes.';
comment on column webhook.conversions.function is 'The function.';
comment on column webhook.conversions.owner is 'Whose rights it runs with.';
comment on column webhook.conversions.fault is 'Why it is not run any more; null = it is.';
comment on column webhook.conversions.reason is 'Why it is there.';
comment on column webhook.conversions.created_at is 'When it was registered.';
comment on column webhook.conversions.created_by is 'Session user who registered it.';

create view webhook.event_versions as
select v.event_id,
       v.partner_id,
       v.version,
       octet_length(v.body) as data_bytes,
       v.failure
  from webhook._event_version v;
comment on view webhook.event_versions is
  'In which other schema versions events are stored, or why not. Fast by event_id.';
comment on column webhook.event_versions.event_id is 'The event.';
comment on column webhook.event_versions.partner_id is 'Tenant that the event belongs to.';
comment on column webhook.event_versions.version is 'The schema version; that of the event itself stands in events.';
comment on column webhook.event_versions.data_bytes is 'Size of the payload in it; null where there is none.';
comment on column webhook.event_versions.failure is 'Why there is none; null = the conversion succeeded.';
