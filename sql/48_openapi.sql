-- The catalogue as other people's tools read it: OpenAPI 3.1, webhooks instead of paths.

create function webhook._openapi_envelope(
  type text,           -- event type
  version text,        -- schema version; null = the type has no schema
  deprecated boolean   -- whether receivers should move on
) returns jsonb -- JSON Schema of the body
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select jsonb_build_object(
           'type', 'object',
           'required', to_jsonb(array['event_id', 'type', 'occurred_at', 'partner_id', 'data']
                                || case when version is null then '{}'::text[] else array['schema_version'] end),
           'properties', jsonb_strip_nulls(jsonb_build_object(
             'event_id', '{"type": "string", "pattern": "^evt_[0-7][0-9A-HJKMNP-TV-Z]{25}$", "description": "The same for every attempt and replay: receivers remember it."}'::jsonb,
             'type', jsonb_build_object('const', type, 'description', 'Event type.'),
             'source', '{"type": "string", "description": "Producer of the event."}'::jsonb,
             'occurred_at', '{"type": "string", "format": "date-time", "description": "When the business change happened, UTC."}'::jsonb,
             'partner_id', '{"type": "string", "description": "Tenant that the event belongs to."}'::jsonb,
             'subject', '{"type": "object", "description": "The object that changed.", "required": ["type", "id"],
                          "properties": {"type": {"type": "string", "description": "Kind of the object."},
                                         "id": {"type": "string", "description": "Identity of the object."},
                                         "version": {"type": "integer", "description": "Version after the change: drop what is older than what you have."}}}'::jsonb,
             'scope', '{"type": "string", "description": "Authorisation scope."}'::jsonb,
             'schema_version', case when version is not null then jsonb_build_object('const', version, 'description', 'Version of the payload''s schema.') end,
             'correlation_id', '{"type": "string", "description": "Operation that caused the event."}'::jsonb,
             'test', '{"const": true, "description": "Only on test events."}'::jsonb,
             'data', case
                       when version is null then '{"description": "The payload; it has no schema."}'::jsonb
                       else jsonb_build_object('$ref', format('#/components/schemas/%s..%s.data', type, version))
                     end)),
           'deprecated', deprecated)
$$;
comment on function webhook._openapi_envelope(text, text, boolean) is 'Schema of a body, as openapi shows it.';

create function webhook.openapi(
  title text default 'Webhooks',         -- title of the document
  version text default '1.0.0',          -- version of the document
  event_types text[] default '{*}'       -- event types and wildcards that it describes
) returns jsonb
language sql stable parallel safe
-- SECURITY DEFINER: the tables of the catalogue belong to the owner.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  with wanted as (
    select t.name, t.description, t.emitted_when, t.not_emitted_when, t.receiver_action, t.authoritative_state,
           t.deprecated_at, t.deprecation_reason, t.replaced_by, t.sunset_at
      from webhook._event_type t
     where exists (select
                     from unnest(event_types) as p
                    where p in ('*', t.name)
                       or (p like '%.*' and starts_with(t.name, left(p, -1))))
  ), version as (
    select w.name, s.version, s.current, s.schema, s.example, s.change_note, s.uri, s.deprecated_at, s.added_at,
           coalesce(s.version, 'any') as label
      from wanted w
      left join webhook._event_schema s on s.event_type = w.name
  -- Two full stops, which no event type has: otherwise version 2 of a.b.1 and version 1.2 of a.b would be one.
  ), schema as (
    select format('%s..%s.event', v.name, v.label) as key,
           webhook._openapi_envelope(v.name, v.version, v.deprecated_at is not null) as value
      from version v
     union all
    -- A reference inside of it still means itself: many readers of such documents look at no "$id", so it is rewritten.
    select format('%s..%s.data', v.name, v.version),
           case
             when jsonb_typeof(v.schema) = 'object' and not v.schema ? '$id' then
               regexp_replace(v.schema::text, '"\$ref": "#(?=["/])', format('"$ref": "#/components/schemas/%s..%s.data', v.name, v.version), 'g')::jsonb
             else v.schema
           end
      from version v
     where v.version is not null
  ), body as (
    select v.name,
           jsonb_agg(jsonb_build_object('$ref', format('#/components/schemas/%s..%s.event', v.name, v.label)) order by v.added_at, v.label) as schemas,
           jsonb_object_agg(v.label, jsonb_build_object(
             'summary', coalesce('Version ' || v.version, 'Any payload'),
             'value', jsonb_strip_nulls(jsonb_build_object(
               'event_id', 'evt_01M695MHQQD9798CDF31C02D86',
               'type', v.name,
               'occurred_at', '2026-01-02T03:04:05.678901Z',
               'partner_id', 'acme',
               'schema_version', v.version)) || jsonb_build_object('data', coalesce(v.example, '{}')))) as examples,
           jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
             'version', v.version,
             'current', v.current,
             'deprecated', v.deprecated_at is not null,
             'changeNote', v.change_note,
             'uri', v.uri)) order by v.added_at, v.label) as versions
      from version v
     group by v.name
  ), webhook as (
    select w.name as key,
           jsonb_build_object('post', jsonb_strip_nulls(jsonb_build_object(
             'operationId', w.name,
             'summary', coalesce(split_part(w.description, E'\n', 1), w.name),
             'description', nullif(concat_ws(E'\n\n',
               w.description,
               'Emitted: ' || w.emitted_when,
               'Not emitted: ' || w.not_emitted_when,
               'What to do: ' || w.receiver_action,
               'The state that counts: ' || w.authoritative_state,
               'Deprecated: ' || w.deprecation_reason,
               'Use instead: ' || w.replaced_by,
               'Ends: ' || webhook._rfc3339(w.sunset_at)), ''),
             'deprecated', case when w.deprecated_at is not null then true end,
             'parameters', (select jsonb_agg(jsonb_build_object('$ref', '#/components/parameters/' || h) order by n)
                              from unnest('{webhook-id,webhook-timestamp,webhook-signature,webhook-delivery,webhook-attempt,webhook-key-id,traceparent,webhook-correlation-id,webhook-causation-id}'::text[])
                                   with ordinality as headers (h, n)),
             'x-versions', b.versions,
             'responses', '{"2XX": {"description": "The event is durably accepted; the receiver''s own work may follow later."},
                            "410": {"description": "The endpoint is gone: it is disabled, and gets nothing more."},
                            "429": {"description": "Too many requests: sent again later, after Retry-After at the earliest."},
                            "4XX": {"description": "Refused: kept as a dead letter, or sent again by policy."},
                            "5XX": {"description": "Failed: sent again later, by the schedule."}}'::jsonb))
             -- Apart: an example may hold nulls, which are not to be stripped.
             || jsonb_build_object('requestBody', jsonb_build_object(
                  'required', true,
                  'content', jsonb_build_object('application/json', jsonb_build_object(
                    'schema', case when jsonb_array_length(b.schemas) = 1 then b.schemas -> 0 else jsonb_build_object('oneOf', b.schemas) end,
                    'examples', b.examples))))) as value
      from wanted w
      join body b on b.name = w.name
  )
  select jsonb_build_object(
           'openapi', '3.1.0',
           'info', jsonb_build_object(
             'title', coalesce(title, 'Webhooks'),
             'version', coalesce(version, '1.0.0'),
             'description', 'Delivery is at least once and in no promised order: remember event_id, and compare subject.version. Verify webhook-signature over the raw body before you read it.'),
           'jsonSchemaDialect', 'https://json-schema.org/draft/2020-12/schema',
           'webhooks', coalesce((select jsonb_object_agg(w.key, w.value) from webhook w), '{}'),
           'components', jsonb_build_object(
             'schemas', coalesce((select jsonb_object_agg(s.key, s.value) from schema s), '{}'),
             'parameters', (
               select jsonb_object_agg(h.name, jsonb_build_object(
                        'name', h.name,
                        'in', 'header',
                        'required', h.required,
                        'description', h.description,
                        'schema', jsonb_build_object('type', 'string')))
                 from (values
                   ('webhook-id', true, 'The event id; the same for every attempt.'),
                   ('webhook-timestamp', true, 'When the attempt was signed, in seconds since 1970; refuse what is older than five minutes.'),
                   ('webhook-signature', true, 'Standard Webhooks 1.0.0: "v1," and the base64 HMAC-SHA256 of id, timestamp and body, joined by full stops. During a rotation there are several, separated by blanks: one must match.'),
                   ('webhook-delivery', true, 'Id of the delivery: event and endpoint.'),
                   ('webhook-attempt', true, 'Number of the attempt, from 1.'),
                   ('webhook-key-id', true, 'Ids of the signing keys, in the order of the signatures.'),
                   ('traceparent', false, 'W3C Trace Context of the operation that caused the event.'),
                   ('webhook-correlation-id', false, 'correlation_id of the event; what is no printable ASCII in it, quotes, blanks and "%" are percent-encoded.'),
                   ('webhook-causation-id', false, 'Id of the event that led to this one.')) as h (name, required, description))))
$$;
comment on function webhook.openapi(text, text, text[]) is
  'The catalogue as an OpenAPI 3.1 document: a webhook per event type, with schemas, examples, change notes and the headers of a delivery.';
