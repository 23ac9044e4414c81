-- What the verbs share about proofs of control and about expiry. The verbs demand a proof; the leader sends the
-- challenge and, when it is answered rightly, sets the endpoint's row itself (skipping a locked one: it never waits).

create function webhook._check_method(
  method text -- how control of a URL is to be proven
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if method not in ('challenge', 'graph', 'slack', 'none') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('verification method "%s" does not exist', left(method, 128)),
      hint = 'The methods are challenge, graph and slack; none does without a proof.';
  end if;
  return method;
end
$$;
comment on function webhook._check_method(text) is 'Refuses a verification method that does not exist.';

create function webhook._check_expiry(
  name text,     -- name of the argument
  at timestamptz -- when an endpoint is to expire; infinity = never
) returns timestamptz -- the same; null for never
language plpgsql volatile parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if at <= clock_timestamp() then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('argument "%s" is not in the future', name);
  end if;
  return nullif(at, 'infinity');
end
$$;
comment on function webhook._check_expiry(text, timestamptz) is 'Refuses an expiry that has passed.';

create function webhook._demand_proof(
  endpoint webhook._endpoint -- an endpoint whose URL is to be proven
) returns webhook._endpoint -- the same, with a new demand
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  -- A new generation: an answer to an earlier challenge, which may be on its way, proves nothing about this.
  endpoint.proof_generation := endpoint.proof_generation + 1;
  endpoint.proof_asked_at := clock_timestamp();
  return endpoint;
end
$$;
comment on function webhook._demand_proof(webhook._endpoint) is
  'Demands a proof of control: of the pending URL, or of the one in force. For every verb that changes where an endpoint leads or how it is secured.';

create function webhook._spare_proof(
  endpoint webhook._endpoint -- an endpoint whose URL is taken as it is
) returns webhook._endpoint -- the same, with nothing left to prove
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  endpoint.url := coalesce(endpoint.pending_url, endpoint.url);
  endpoint.pending_url := null;
  endpoint.proof_generation := endpoint.proof_generation + 1;
  endpoint.proof_asked_at := null;
  endpoint.verified_at := clock_timestamp();
  endpoint.verified_by := 'none';
  insert into webhook._verification
    (verification_id, endpoint_id, proof_generation, method, host, result, overridden_by)
  values
    (webhook._new_id(), endpoint.endpoint_id, endpoint.proof_generation, 'none', webhook._url_host(endpoint.url), 'overridden',
     session_user);
  return endpoint;
end
$$;
comment on function webhook._spare_proof(webhook._endpoint) is 'Does without a proof of control, and keeps who did.';

create function webhook._url_host(
  url text -- canonical URL
) returns text -- its host and port
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select substring(url from '^[a-z]+://([^/?#]*)')
$$;
comment on function webhook._url_host(text) is 'Host of a URL: paths and queries may hold tokens.';

create function webhook._change_url(
  endpoint webhook._endpoint, -- an endpoint, locked
  url text,                   -- new URL, canonical; null = unchanged
  verify text                 -- new method of verification; null = unchanged
) returns webhook._endpoint -- the same, changed
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  other_method constant boolean := verify <> endpoint.verify;
begin
  endpoint.verify := coalesce(verify, endpoint.verify);
  if url is not null then
    -- The URL in force named again withdraws a new one that was not proven.
    if url = endpoint.url and endpoint.pending_url is not null then
      endpoint.pending_url := null;
      endpoint.proof_generation := endpoint.proof_generation + 1;
      endpoint.proof_asked_at := null;
    elsif url <> endpoint.url then
      endpoint.pending_url := url;
    end if;
  end if;
  if endpoint.pending_url is null and not coalesce(other_method, false) then
    return endpoint;
  end if;
  if endpoint.verify = 'none' then
    endpoint := webhook._spare_proof(endpoint);
    if endpoint.state = 'unverified' then
      endpoint.state := 'active';
      endpoint.state_reason := null;
      endpoint.state_changed_at := clock_timestamp();
    end if;
    return endpoint;
  end if;
  if endpoint.verified_at is null then
    -- Nothing was ever sent to the old one: there is nothing to keep in force.
    endpoint.url := coalesce(endpoint.pending_url, endpoint.url);
    endpoint.pending_url := null;
  end if;
  if url is not null or coalesce(other_method, false) then
    endpoint := webhook._demand_proof(endpoint);
  end if;
  return endpoint;
end
$$;
comment on function webhook._change_url(webhook._endpoint, text, text) is
  'Changes where an endpoint leads, or how that is proven: what needs a proof waits for it, unless the method is none.';
