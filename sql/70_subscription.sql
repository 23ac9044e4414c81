-- Who gets what: the consumers' side of the catalogue. Producers are in the view sources, event types in event_types, the
-- fields of their payloads with the purpose of each in event_fields.

create view webhook.subscriptions as
select t.name as event_type,
       e.partner_id,
       e.endpoint_id,
       e.url,
       e.state,
       e.test,
       e.subject_types,
       e.filter,
       e.data_shape,
       e.fields,
       coalesce(e.schema_versions ->> t.name, t.current_version) as schema_version,
       e.format,
       e.description,
       e.created_by,
       e.created_at,
       e.expires_at,
       t.owner,
       t.contact,
       t.sensitivity,
       t.payload_retention,
       (select array_agg(s.name order by s.name)
          from webhook.sources s
         where (t.sources is null or s.name = any (t.sources))
           and (s.event_types is null or webhook._type_matches(s.event_types, t.name))) as sources,
       format('webhook.delete_endpoint(%s, reason)', e.endpoint_id) as switch_off
  from webhook.event_types t
  join webhook.endpoints e on webhook._type_matches(e.event_types, t.name)
 where e.state <> 'deleted';
comment on view webhook.subscriptions is
  'Which endpoint gets which event types of the catalogue, and what of them: a row for each. Costs a comparison of every endpoint with every type.';
comment on column webhook.subscriptions.event_type is 'Event type.';
comment on column webhook.subscriptions.partner_id is 'Tenant that gets it.';
comment on column webhook.subscriptions.endpoint_id is 'Endpoint: the id of the relation.';
comment on column webhook.subscriptions.url is 'Where it goes; for readers that neither operate nor own the endpoint, its host only.';
comment on column webhook.subscriptions.state is 'State of the endpoint.';
comment on column webhook.subscriptions.test is 'Gets test events only.';
comment on column webhook.subscriptions.subject_types is 'Subject types; null = all.';
comment on column webhook.subscriptions.filter is 'Condition on the payload; null = none.';
comment on column webhook.subscriptions.data_shape is 'How much of the data is sent: full, fields, thin or delta.';
comment on column webhook.subscriptions.fields is 'Of fields: which ones. What each is for stands in event_fields.';
comment on column webhook.subscriptions.schema_version is 'Schema version: the pinned one, or the current one; null = the type has no schema.';
comment on column webhook.subscriptions.format is 'Format of the body.';
comment on column webhook.subscriptions.description is 'What the endpoint is.';
comment on column webhook.subscriptions.created_by is 'Session user who created the endpoint.';
comment on column webhook.subscriptions.created_at is 'When.';
comment on column webhook.subscriptions.expires_at is 'When it ends unless it is renewed; null = never.';
comment on column webhook.subscriptions.owner is 'Who answers for the event type.';
comment on column webhook.subscriptions.contact is 'How to reach the owner.';
comment on column webhook.subscriptions.sensitivity is 'How sensitive the payload is.';
comment on column webhook.subscriptions.payload_retention is 'How long payloads of the type are kept here; null = as long as their events.';
comment on column webhook.subscriptions.sources is 'Registered producers that may emit the type; null = none is registered.';
comment on column webhook.subscriptions.switch_off is 'What ends the relation, and nothing else.';
