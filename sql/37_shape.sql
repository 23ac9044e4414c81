-- What the verbs share about how an endpoint's requests look: format of the body, signature profile, headers of the
-- operator's. The names and rules stand in Rust (rules/shape.rs, profile.rs, headers.rs); the CHECKs of 12_endpoint.sql
-- repeat the names, so that no other row can be written.

create function webhook._valid_format(
  format text -- form of a body
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'valid_format_wrapper';
comment on function webhook._valid_format(text) is 'Whether there is a format of this name.';

create function webhook._key_kind(
  signature text -- signature profile
) returns text -- kind of key that it needs, hmac-sha256 or ed25519; null when there is no such profile
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'key_kind_wrapper';
comment on function webhook._key_kind(text) is 'The kind of key that a signature profile needs.';

create function webhook._check_headers(
  headers jsonb -- object of names and values
) returns jsonb -- the same
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'check_headers_wrapper';
comment on function webhook._check_headers(jsonb) is
  'Refuses headers that cannot be sent, that are reserved, or whose names differ in case only. No error repeats a value.';

create function webhook._check_format(
  format text -- form of a body
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if not webhook._valid_format(format) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('format "%s" does not exist', left(format, 128)),
      hint = 'The formats are native, cloudevents-structured and cloudevents-binary.';
  end if;
  return format;
end
$$;
comment on function webhook._check_format(text) is 'Refuses a format that does not exist.';

create function webhook._check_signature(
  signature text -- signature profile
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if signature is not null and webhook._key_kind(signature) is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('signature profile "%s" does not exist', left(signature, 128)),
      hint = 'The profiles are v1, v1a, rfc9421-hmac-sha256, rfc9421-ed25519, github, github-sha1, stripe, slack and shopify.';
  end if;
  return signature;
end
$$;
comment on function webhook._check_signature(text) is 'Refuses a signature profile that does not exist.';

create function webhook._header_names(
  headers jsonb -- object of names and values
) returns text[] -- the names
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select array_agg(k.name order by k.name)
    from jsonb_object_keys(headers) as k (name)
$$;
comment on function webhook._header_names(jsonb) is 'Names of headers, whose values may be credentials.';

-- What the views and the audit log tell, so that nobody needs the right to the values to read them.
alter table webhook._endpoint
  add column header_names text[] generated always as (webhook._header_names(headers)) stored;
comment on column webhook._endpoint.header_names is 'Names of the headers that the operator adds; null = none.';

create function webhook._reshape(
  endpoint webhook._endpoint, -- an endpoint, locked
  signature text,             -- new signature profile; null = unchanged
  headers jsonb               -- new headers, {} = none; null = unchanged
) returns webhook._endpoint -- the same, changed
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  other boolean := signature <> endpoint.signature;
begin
  if webhook._key_kind(signature) <> webhook._key_kind(endpoint.signature) then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s has no key for the signature profile "%s"', endpoint.endpoint_id, signature),
      detail = format('It needs a key of the kind %s; the endpoint''s is of the kind %s.',
                      webhook._key_kind(signature), webhook._key_kind(endpoint.signature)),
      hint = format('Use webhook.rotate_secret with signature => ''%s'', which makes a key for it.', signature);
  end if;
  endpoint.signature := coalesce(signature, endpoint.signature);
  if headers is not null and nullif(headers, '{}') is distinct from endpoint.headers then
    endpoint.headers := nullif(headers, '{}');
    -- The log compares names; that values changed it learns from this.
    endpoint.headers_changed_at := clock_timestamp();
    other := true;
  end if;
  -- How a receiver knows us, and lets us in: whoever controls the URL says again that he wants it so.
  if other and endpoint.verify <> 'none' then
    endpoint := webhook._demand_proof(endpoint);
  end if;
  return endpoint;
end
$$;
comment on function webhook._reshape(webhook._endpoint, text, jsonb) is
  'Changes how an endpoint''s requests are signed, and their headers; at once, retries included. Control of its URL is to be proven anew.';
