-- What would be sent of an event, to whom: by the code that sends.

create function webhook._dry_run(
  type text,                    -- as for emit, like all that follow
  partner_id text,
  data text,
  subject_type text,
  subject_id text,
  subject_version bigint,
  source text,
  scope text,
  occurred_at timestamptz,
  schema_version text,
  correlation_id text,
  causation text,
  traceparent text,
  test boolean,
  out endpoint_id bigint,       -- an endpoint of the partner
  out matched boolean,          -- whether it would get the event; null = it would be held
  out reason text,              -- why not, or why later
  out url text,                 -- where to
  out headers text,             -- JSON object in the order of the wire
  out body text                 -- what would be sent
) returns setof record
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'dry_run_wrapper';
comment on function webhook._dry_run(text, text, text, text, text, bigint, text, text, timestamptz, text, text, text, text, boolean) is
  'What dry_run answers.';

create function webhook.dry_run(
  type text,                             -- event type, object.change
  partner_id text,                       -- tenant that the event would belong to
  data jsonb,                            -- payload
  subject_type text default null,        -- kind of the object that changed
  subject_id text default null,          -- identity of the object that changed
  subject_version bigint default null,   -- its version after the change
  source text default null,              -- producer of the event
  scope text default null,               -- authorisation scope
  occurred_at timestamptz default null,  -- when the business change happened; null = now
  schema_version text default null,      -- version of the payload's schema
  correlation_id text default null,      -- ties the event to the operation that caused it
  causation text default null,           -- event id of the parent event
  traceparent text default null,         -- W3C trace context of the operation
  idempotency_key text default null,     -- looked at by nobody: a dry run uses up no key
  test boolean default false             -- true: would go to test endpoints only
) returns table (
  endpoint_id bigint, -- an endpoint of the partner
  matched boolean,    -- whether it would get the event; null = the delivery would be held
  reason text,        -- why not, or what it would wait for; null = it would be sent at once
  url text,           -- callback URL; null when nothing would be sent
  headers json,       -- headers of the first attempt in the order of the wire, the signature included
  body text           -- body of the first attempt
)
language sql volatile parallel unsafe
-- SECURITY DEFINER: signs with the endpoints' keys. The signatures are valid: EXECUTE belongs to those who may have
-- anything signed by an event of their own making.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select d.endpoint_id, d.matched, d.reason, d.url, d.headers::json, d.body
    from webhook._dry_run(type, partner_id, data::text, subject_type, subject_id, subject_version, source, scope, occurred_at,
                          schema_version, correlation_id, causation, traceparent, test) as d
$$;
comment on function webhook.dry_run(text, text, jsonb, text, text, bigint, text, text, timestamptz, text, text, text, text, text, boolean) is
  'Shows which endpoints would get an event that emit would accept, and the exact requests. Sends nothing, writes nothing. The signatures are valid: keep the result as you would keep the endpoints'' secrets.';
