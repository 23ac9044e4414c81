-- Endpoints: creating, changing, enabling, disabling and deleting them, one by one or all of a partner.
-- SECURITY DEFINER, because the tables belong to the extension's owner alone: EXECUTE on one of these
-- functions is the whole right to it. Who acts is session_user, which the switch of rights does not change.

create function webhook.create_endpoint(
  partner_id text,                        -- tenant that owns the endpoint
  url text,                               -- callback URL, https
  event_types text[] default '{*}',       -- event types and wildcards that are sent here
  test boolean default false,             -- true: receives test events only
  verify text default 'challenge',        -- how control of the URL is to be proven: challenge, graph, slack; none = it is not
  description text default null,          -- free text of the operator
  max_in_flight integer default null,     -- concurrent requests; null = what the policy says
  policy text default null,               -- how deliveries are retried and limited; null = the policy "default"
  ordered boolean default false,          -- true: an event waits until the one before it of the same subject is settled
  expires_at timestamptz default null,    -- when it expires unless it is renewed; null = never
  subject_types text[] default null,      -- exact subject types whose events are sent here; null = all
  filter text default null,               -- condition on the payload: a jsonpath predicate; null = none
  format text default 'native',           -- form of the body: native, cloudevents-structured or cloudevents-binary
  signature text default 'v1',            -- how requests are signed: a signature profile
  headers jsonb default '{}',             -- headers that are added to every request: an object of texts
  data_shape text default 'full',         -- how much of the data is sent: full, fields, thin or delta
  fields text[] default null,             -- of fields: paths of the members that are kept
  schema_versions jsonb default '{}',     -- schema version by event type; of the others every event as it was emitted
  out endpoint_id bigint,                 -- the new endpoint
  out secret text                         -- its signing secret, whsec_..., shown this once; of a key pair its public half, whpk_...
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  patterns text[];
  canonical_url text;
  endpoint webhook._endpoint;
  endpoints bigint;
  max_endpoints integer;
begin
  perform webhook._check_writable('create an endpoint');
  perform webhook._check_argument('partner_id', partner_id is null);
  perform webhook._check_argument('url', url is null);
  perform webhook._check_argument('test', test is null);
  perform webhook._check_argument('verify', verify is null);
  perform webhook._check_argument('ordered', ordered is null);
  perform webhook._check_argument('format', format is null);
  perform webhook._check_argument('signature', signature is null);
  perform webhook._check_argument('headers', headers is null);
  perform webhook._check_argument('data_shape', data_shape is null);
  perform webhook._check_argument('schema_versions', schema_versions is null);
  perform webhook._check_partner(partner_id);
  patterns := webhook._check_event_types(event_types);
  canonical_url := webhook._check_url(url);
  perform webhook._check_max_in_flight(max_in_flight);
  policy := webhook._check_policy_exists(policy);
  perform webhook._check_method(verify);
  expires_at := webhook._check_expiry('expires_at', expires_at);
  subject_types := webhook._check_subject_types(subject_types);
  filter := webhook._check_filter(filter);
  perform webhook._check_signature(signature);
  headers := nullif(webhook._check_headers(headers), '{}');

  -- Two transactions that both see one place left would both take it. Other partners are not concerned.
  perform pg_advisory_xact_lock(hashtextextended('webhook.create_endpoint ' || partner_id, 0));
  max_endpoints := current_setting('webhook.max_endpoints_per_partner')::integer;
  select count(*)
    into endpoints
    from webhook._endpoint e
   where e.partner_id = create_endpoint.partner_id
     and e.state <> 'deleted';
  if endpoints >= max_endpoints then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = format('partner "%s" has too many endpoints', partner_id),
      detail = format('There are %s; the limit is %s.', endpoints, max_endpoints),
      hint = 'Delete one, or raise webhook.max_endpoints_per_partner.';
  end if;

  endpoint_id := webhook._new_id();
  insert into webhook._endpoint as e
    (endpoint_id, partner_id, url, event_types, test, state, verify, description, max_in_flight, policy, ordered, origin,
     subject_types, filter, filter_version,
     expires_at, proof_asked_at, verified_at, verified_by, signature, headers, headers_changed_at)
  values
    (endpoint_id, partner_id, canonical_url, patterns, test, case verify when 'none' then 'active' else 'unverified' end, verify,
     description, max_in_flight, policy, ordered, webhook._origin(),
     subject_types, filter, case when subject_types is null and filter is null then 0 else 1 end,
     expires_at, case when verify <> 'none' then clock_timestamp() end, case verify when 'none' then clock_timestamp() end,
     case verify when 'none' then 'none' end, signature, headers, case when headers is not null then clock_timestamp() end)
  returning e.*
    into endpoint;
  perform webhook._keep_filter(endpoint);
  if verify = 'none' then
    perform webhook._spare_proof(endpoint);
  end if;
  perform webhook._make_revision(null, endpoint_id, format, data_shape, fields, schema_versions);
  secret := (webhook._add_secret(endpoint_id)).secret;
  perform webhook._log(
    'create_endpoint', 'endpoint', endpoint_id::text, partner_id,
    after => webhook._without_path(jsonb_strip_nulls(webhook._endpoint_facts(endpoint))));
  perform webhook._wake();
end
$$;
comment on function webhook.create_endpoint(text, text, text[], boolean, text, text, integer, text, boolean, timestamptz, text[], text, text, text, jsonb, text, text[], jsonb) is
  'Makes an endpoint and returns its id and its secret, which is never shown again. Its URL is challenged at once; until the proof it is unverified and its events wait. It gets the events of this transaction and every later one.';

create function webhook.update_endpoint(
  endpoint_id bigint,                 -- the endpoint
  url text default null,              -- new callback URL; null = unchanged
  event_types text[] default null,    -- new event types and wildcards; null = unchanged
  description text default null,      -- new description, '' = none; null = unchanged
  max_in_flight integer default null, -- new concurrency, 0 = what the policy says; null = unchanged
  policy text default null,           -- new policy, '' = the policy "default"; null = unchanged
  ordered boolean default null,       -- whether the order of each subject is kept; null = unchanged
  verify text default null,           -- how control of the URL is to be proven from now on; null = unchanged
  subject_types text[] default null,  -- new subject types, {} = all; null = unchanged
  filter text default null,           -- new condition on the payload, '' = none; null = unchanged
  format text default null,           -- new form of the body, for deliveries not attempted yet; null = unchanged
  signature text default null,        -- new signature profile for the same kind of key; null = unchanged
  headers jsonb default null,         -- new headers, {} = none; null = unchanged
  data_shape text default null,       -- new shape of the data, for deliveries not attempted yet, like the two below; null = unchanged
  fields text[] default null,         -- new paths of the members that are kept; null = unchanged
  schema_versions jsonb default null  -- new schema versions by event type, {} = none; null = unchanged
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  canonical_url text;
  before text;
begin
  perform webhook._check_writable('change an endpoint');
  perform webhook._check_method(verify);
  perform webhook._check_signature(signature);
  perform webhook._check_headers(headers);
  -- Before the row is locked, because the name is looked up: null in, null out.
  canonical_url := webhook._check_url(url);
  endpoint := webhook._take_endpoint(endpoint_id);
  before := endpoint.state;
  endpoint := webhook._change_url(endpoint, canonical_url, verify);
  if event_types is not null then
    endpoint.event_types := webhook._check_event_types(event_types);
  end if;
  if description is not null then
    endpoint.description := nullif(description, '');
  end if;
  if max_in_flight is not null then
    endpoint.max_in_flight := webhook._check_max_in_flight(nullif(max_in_flight, 0));
  end if;
  if policy is not null then
    endpoint.policy := webhook._check_policy_exists(nullif(policy, ''));
  end if;
  endpoint.ordered := coalesce(ordered, endpoint.ordered);
  endpoint := webhook._change_filter(endpoint, subject_types, filter);
  endpoint := webhook._reshape(endpoint, signature, headers);
  endpoint.revision := webhook._make_revision(
    (select r from webhook._endpoint_revision r where r.endpoint_id = endpoint.endpoint_id and r.revision = endpoint.revision),
    endpoint.endpoint_id, format, data_shape, fields, schema_versions);
  perform webhook._save_endpoint(endpoint, 'update_endpoint', void => endpoint.state <> before);
end
$$;
comment on function webhook.update_endpoint(bigint, text, text[], text, integer, text, boolean, text, text[], text, text, text, jsonb, text, text[], jsonb) is
  'Changes an endpoint; what is left out stays. A new URL is challenged, and the old one stays in force until it is proven. The state stays, too: a disabled endpoint needs enable_endpoint. max_in_flight 0 and an empty policy return to the default, an empty description removes it. A new filter decides about events from now on, and about deliveries that a filter holds. A delivery keeps the format, the data shape and the schema version of its first attempt; signature and headers are those of today in retries, too.';

create function webhook.enable_endpoint(
  endpoint_id bigint,       -- the endpoint
  reason text default null  -- why
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  missed jsonb;
begin
  perform webhook._check_writable('enable an endpoint');
  if reason is not null then
    reason := webhook._check_reason(reason);
  end if;
  endpoint := webhook._take_endpoint(endpoint_id);
  -- Enabling an active endpoint is no error: its new generation voids a 410 that is still on its way.
  if endpoint.state not in ('active', 'disabled') then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is %s', endpoint_id, endpoint.state),
      detail = 'Only a disabled endpoint can be enabled.',
      hint = 'A paused endpoint goes on after webhook.resume.';
  end if;
  if endpoint.expires_at <= clock_timestamp() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s has expired', endpoint_id),
      hint = 'Use webhook.renew_endpoint first.';
  end if;
  if endpoint.state = 'disabled' then
    missed := jsonb_build_object('from', webhook._rfc3339(endpoint.state_changed_at), 'to', webhook._rfc3339(clock_timestamp()));
  end if;
  endpoint.state := 'active';
  endpoint.state_reason := reason;
  endpoint.state_changed_at := clock_timestamp();
  if endpoint.verified_at is null and endpoint.verify <> 'none' then
    -- Disabling and enabling must not be a way around the proof.
    endpoint.state := 'unverified';
    endpoint := webhook._demand_proof(endpoint);
  end if;
  perform webhook._save_endpoint(endpoint, 'enable_endpoint', reason, void => true);
  if missed is not null then
    -- No pairs were made meanwhile, and nobody else would say so.
    perform webhook._lifecycle(endpoint, 'missed', reason, missed);
    perform webhook._alert_about(
      endpoint, 'endpoint.missed', 'warning',
      format('The endpoint is in service again; the events from %s to %s were not sent to it.', missed ->> 'from', missed ->> 'to'));
  end if;
end
$$;
comment on function webhook.enable_endpoint(bigint, text) is
  'Puts a disabled endpoint back into service (unverified, if its URL was never proven), and says which time it missed: the events of that time are not sent by themselves.';

create function webhook.disable_endpoint(
  endpoint_id bigint, -- the endpoint
  reason text         -- why; shown beside the deliveries that it cancels
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before text;
begin
  perform webhook._check_writable('disable an endpoint');
  endpoint := webhook._take_endpoint(endpoint_id);
  reason := webhook._check_reason(reason);
  before := endpoint.state;
  endpoint.state := 'disabled';
  endpoint.state_reason := reason;
  -- Disabled once more for another reason: what it misses still begins where it began.
  if before <> 'disabled' then
    endpoint.state_changed_at := clock_timestamp();
  end if;
  perform webhook._save_endpoint(endpoint, 'disable_endpoint', reason, void => true);
  if before <> 'disabled' then
    perform webhook._lifecycle(endpoint, 'disabled', reason);
    perform webhook._alert_about(endpoint, 'endpoint.disabled', 'info', format('The endpoint was disabled by %s: %s', session_user, reason));
  end if;
end
$$;
comment on function webhook.disable_endpoint(bigint, text) is
  'Takes an endpoint out of service: waiting deliveries are cancelled with the reason, new events are not sent to it. Its partner''s other endpoints are told.';

create function webhook.delete_endpoint(
  endpoint_id bigint, -- the endpoint
  reason text         -- why; shown beside the deliveries that it cancels
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
begin
  perform webhook._check_writable('delete an endpoint');
  endpoint := webhook._take_endpoint(endpoint_id);
  reason := webhook._check_reason(reason);
  endpoint.state := 'deleted';
  endpoint.state_reason := reason;
  endpoint.state_changed_at := clock_timestamp();
  -- Its keys will never sign again. Key material that is gone can leak neither from here nor from a dump;
  -- the key ids stay in the evidence.
  delete from webhook._secret s
   where s.endpoint_id = endpoint.endpoint_id;
  perform webhook._save_endpoint(endpoint, 'delete_endpoint', reason, void => true);
end
$$;
comment on function webhook.delete_endpoint(bigint, text) is
  'Removes an endpoint for good: waiting deliveries are cancelled with the reason, its keys are destroyed, its history stays readable.';

create function webhook.offboard(
  partner_id text, -- the partner
  reason text      -- why; shown beside the deliveries that it cancels
) returns integer -- endpoints that were deleted
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoints bigint[];
  sources jsonb;
begin
  perform webhook._check_writable('offboard a partner');
  perform webhook._check_argument('partner_id', partner_id is null);
  reason := webhook._check_reason(reason);
  -- An endpoint that somebody is just creating would stay behind.
  perform pg_advisory_xact_lock(hashtextextended('webhook.create_endpoint ' || partner_id, 0));
  if not exists (select from webhook._endpoint e where e.partner_id = offboard.partner_id)
     and not exists (select from webhook._inbox_source s
                      where s.partner_id = offboard.partner_id or offboard.partner_id = any (s.partners))
  then
    raise exception using
      errcode = 'undefined_object',
      message = format('partner "%s" has no endpoint and no inbox source', left(partner_id, 128));
  end if;
  -- In one order, so that two of these, or one and a series of changes, do not wait for each other.
  endpoints := array(
    select e.endpoint_id
      from webhook._endpoint e
     where e.partner_id = offboard.partner_id
       and e.state <> 'deleted'
     order by e.endpoint_id
       for no key update);
  update webhook._endpoint e
     set state = 'deleted',
         state_reason = reason,
         state_changed_at = clock_timestamp(),
         generation = e.generation + 1,
         changed_xid = pg_current_xact_id()
   where e.endpoint_id = any (endpoints);
  delete from webhook._secret s
   where s.endpoint_id = any (endpoints);
  sources := webhook._end_sources(partner_id);
  perform webhook._end_access(partner_id);
  perform webhook._log(
    'offboard', 'partner', partner_id, partner_id,
    after => jsonb_build_object('endpoints', cardinality(endpoints)) || sources, reason => reason);
  perform webhook._wake();
  return cardinality(endpoints);
end
$$;
comment on function webhook.offboard(text, text) is
  'Deletes every endpoint of a partner as delete_endpoint does, and returns how many; switches its inbox sources off and destroys their keys. Events of the partner stay, and are sent to nobody; what was received stays, and is processed.';
