-- Verifying what others sent. Neither function touches a table, and whatever a sender wrote is judged, never an error.

create function webhook.verify(
  profile text,                                  -- signature profile of the sender
  keys text[],                                   -- the receiver's keys; one that fits is enough
  headers jsonb,                                 -- headers of the request: {"name": "value"} or {"name": ["value", ...]}
  body bytea,                                    -- its body, as it came
  tolerance interval default '5 minutes',        -- how far the time of signing may be from the clock, in both directions
  method text default 'POST',                    -- its method; of RFC 9421
  url text default null,                         -- absolute URL that it was sent to; of RFC 9421, when a signature covers it
  at timestamptz default null                    -- the time to go by; null = now
) returns boolean -- whether one of the keys signed exactly this
language c volatile parallel safe
as 'MODULE_PATHNAME', 'verify_wrapper';
comment on function webhook.verify(text, text[], jsonb, bytea, interval, text, text, timestamptz) is
  'Whether a request was signed with one of the keys: Standard Webhooks (v1, v1a), RFC 9421 with RFC 9530, GitHub, Stripe, Slack, Shopify. False for whatever does not verify.';

create function webhook.explain_signature(
  profile text,                                  -- as for verify, like all of them
  keys text[],
  headers jsonb,
  body bytea,
  tolerance interval default '5 minutes',
  method text default 'POST',
  url text default null,
  at timestamptz default null
) returns text -- valid, or why not
language c volatile parallel safe
as 'MODULE_PATHNAME', 'explain_signature_wrapper';
comment on function webhook.explain_signature(text, text[], jsonb, bytea, interval, text, text, timestamptz) is
  'What verify finds, in a word: valid, missing_header, repeated_header, bad_timestamp, too_old, too_new, no_match, malformed_signature, invalid_component, not_covered or digest_mismatch. For operators: it is not told to senders.';
