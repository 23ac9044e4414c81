-- Emitting events: the only way in. Written in Rust, declared here.
-- SECURITY INVOKER: whoever may execute emit may emit. The insert itself runs with the rights of the
-- extension's owner, switched inside around that one statement.

create function webhook.emit(
  type text,                             -- event type, object.change
  partner_id text,                       -- tenant that the event belongs to
  data jsonb,                            -- payload; sent in jsonb's normal form
  subject_type text default null,        -- kind of the object that changed
  subject_id text default null,          -- identity of the object that changed
  subject_version bigint default null,   -- its version after the change, so that receivers can drop stale events
  source text default null,              -- producer of the event
  scope text default null,               -- authorisation scope
  occurred_at timestamptz default null,  -- when the business change happened; null = now
  schema_version text default null,      -- version of the payload's schema
  correlation_id text default null,      -- ties the event to the operation that caused it
  causation text default null,           -- event id of the parent event
  traceparent text default null,         -- W3C trace context of the operation
  idempotency_key text default null,     -- the same key of the same partner returns the first event id
  test boolean default false             -- true: goes to test endpoints only
) returns text -- event_id
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'emit_wrapper';
comment on function webhook.emit(text, text, jsonb, text, text, bigint, text, text, timestamptz, text, text, text, text, text, boolean) is
  'Records an event in the caller''s transaction and returns its id; committed with it, rolled back with it. jsonb decides the bytes: keys are reordered, duplicates dropped, numbers keep their exact value.';

create function webhook.emit_json(
  type text,                             -- event type, object.change
  partner_id text,                       -- tenant that the event belongs to
  data json,                             -- payload; sent byte for byte as given
  subject_type text default null,        -- kind of the object that changed
  subject_id text default null,          -- identity of the object that changed
  subject_version bigint default null,   -- its version after the change, so that receivers can drop stale events
  source text default null,              -- producer of the event
  scope text default null,               -- authorisation scope
  occurred_at timestamptz default null,  -- when the business change happened; null = now
  schema_version text default null,      -- version of the payload's schema
  correlation_id text default null,      -- ties the event to the operation that caused it
  causation text default null,           -- event id of the parent event
  traceparent text default null,         -- W3C trace context of the operation
  idempotency_key text default null,     -- the same key of the same partner returns the first event id
  test boolean default false             -- true: goes to test endpoints only
) returns text -- event_id
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'emit_json_wrapper';
comment on function webhook.emit_json(text, text, json, text, text, bigint, text, text, timestamptz, text, text, text, text, text, boolean) is
  'Records an event like emit, and keeps the caller''s bytes: blanks, order of keys, spelling of numbers.';

-- Event types "webhook.*" and partners "_*" are reserved: only the extension's own functions emit them.
create function webhook._emit_reserved(
  type text,                             -- webhook.test or webhook.endpoint.*
  partner_id text,                       -- tenant, or _operator
  data jsonb,                            -- payload
  subject_type text default null,        -- as for emit, like all that follow
  subject_id text default null,
  subject_version bigint default null,
  source text default null,
  scope text default null,
  occurred_at timestamptz default null,
  schema_version text default null,
  correlation_id text default null,
  causation text default null,
  traceparent text default null,
  idempotency_key text default null,
  test boolean default false
) returns text -- event_id
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'emit_reserved_wrapper';
comment on function webhook._emit_reserved(text, text, jsonb, text, text, bigint, text, text, timestamptz, text, text, text, text, text, boolean) is
  'Records a lifecycle or test event; like emit, but for the names that emit refuses.';
