-- Endpoints: creating, changing, enabling, disabling and deleting them.
-- Every change goes through _take_endpoint (lock, state in force) and _save_endpoint (generation, wake);
-- nothing here writes _endpoint_state, and nothing here touches a delivery: the leader cancels and resumes.
-- SECURITY DEFINER, because the tables belong to the extension's owner alone: EXECUTE on one of these
-- functions is the whole right to it. Who acts is session_user, which the switch of rights does not change.

create view webhook._effective_endpoint as
select e.endpoint_id,
       e.partner_id,
       e.test,
       e.origin,
       coalesce(s.state, e.state) as state,
       case when s.state is null then e.state_reason else s.reason end as state_reason,
       case when s.state is null then e.state_changed_at else s.changed_at end as state_changed_at
  from webhook._endpoint e
  left join webhook._endpoint_state s
         on s.endpoint_id = e.endpoint_id
        and s.generation = e.generation;
comment on view webhook._effective_endpoint is
  'Endpoints with the state that is in force: the leader''s finding while it is of the current generation, else the user''s word.';
comment on column webhook._effective_endpoint.endpoint_id is 'The endpoint.';
comment on column webhook._effective_endpoint.partner_id is 'Tenant that owns it.';
comment on column webhook._effective_endpoint.test is 'Test endpoint.';
comment on column webhook._effective_endpoint.origin is 'Which database made it.';
comment on column webhook._effective_endpoint.state is 'State in force.';
comment on column webhook._effective_endpoint.state_reason is 'Why.';
comment on column webhook._effective_endpoint.state_changed_at is 'Since when.';

create function webhook._check_event_types(
  event_types text[] -- event types and wildcards
) returns text[] -- the same without duplicates, in order of first mention
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  patterns text[];
  refused text;
begin
  perform webhook._check_argument('event_types', event_types is null or array_position(event_types, null) is not null);
  select array_agg(p.pattern order by p.first_mention)
    into patterns
    from (select u.pattern, min(u.place) as first_mention
            from unnest(event_types) with ordinality as u (pattern, place)
           group by u.pattern) as p;
  if patterns is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'event_types must not be empty',
      hint = 'Use ''{*}'' for every event type.';
  end if;
  if cardinality(patterns) > 100 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'too many event types',
      detail = format('There are %s; the limit is 100 for each endpoint.', cardinality(patterns)),
      hint = 'Use wildcards such as "customer.*".';
  end if;
  select u.pattern
    into refused
    from unnest(patterns) as u (pattern)
   where not webhook._valid_pattern(u.pattern)
   limit 1;
  if found then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('event type "%s" is not valid', left(refused, 128)),
      detail = 'An event type has 1 to 128 characters of A-Z, a-z, 0-9, "_" and "-", in parts separated by dots.',
      hint = 'Wildcards are "*" and a prefix that ends in ".*".';
  end if;
  return patterns;
end
$$;
comment on function webhook._check_event_types(text[]) is 'Refuses event types that no event can have; removes duplicates.';

create function webhook._check_max_in_flight(
  max_in_flight integer -- concurrent requests to one endpoint, null = default
) returns integer
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if max_in_flight not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'max_in_flight is outside the valid range',
      detail = format('It is %s; the range is 1 to 1000.', max_in_flight),
      hint = 'Leave it out for webhook.max_in_flight_per_endpoint.';
  end if;
  return max_in_flight;
end
$$;
comment on function webhook._check_max_in_flight(integer) is 'Refuses a concurrency that is outside the range.';

create function webhook.create_endpoint(
  partner_id text,                        -- tenant that owns the endpoint
  url text,                               -- callback URL, https
  event_types text[] default '{*}',       -- event types and wildcards that are sent here
  test boolean default false,             -- true: receives test events only
  verify text default 'none',             -- how control of the URL is to be proven: none or challenge
  description text default null,          -- free text of the operator
  max_in_flight integer default null,     -- concurrent requests; null = webhook.max_in_flight_per_endpoint
  out endpoint_id bigint,                 -- the new endpoint
  out secret text                         -- its signing secret, whsec_...; shown this once
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  patterns text[];
  canonical_url text;
  key bytea;
  endpoints bigint;
  max_endpoints integer;
begin
  perform webhook._check_writable('create an endpoint');
  perform webhook._check_argument('partner_id', partner_id is null);
  perform webhook._check_argument('url', url is null);
  perform webhook._check_argument('test', test is null);
  perform webhook._check_argument('verify', verify is null);
  -- The words of emit, which refuses the same partner ids.
  if partner_id like '\_%' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'partner ids that begin with "_" are reserved';
  end if;
  if not webhook._valid_partner(partner_id) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'partner id is not valid',
      detail = 'A partner id has 1 to 128 characters of A-Z, a-z, 0-9, "_", ".", ":" and "-".';
  end if;
  patterns := webhook._check_event_types(event_types);
  canonical_url := webhook._check_url(url);
  perform webhook._check_max_in_flight(max_in_flight);
  if verify not in ('none', 'challenge') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('verification method "%s" does not exist', left(verify, 128)),
      hint = 'Use "none" or "challenge".';
  end if;
  if verify = 'challenge' then
    -- Held until it is proven, it would be held for ever: nothing sends a challenge yet.
    raise warning using
      message = 'the endpoint is active without a challenge',
      detail = 'This version keeps the method and sends no challenge.',
      hint = 'Prove by other means that the partner controls the URL.';
  end if;

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
  key := webhook._random_key();
  secret := webhook._secret_text(key);
  insert into webhook._endpoint
    (endpoint_id, partner_id, url, event_types, test, state, verify, description, max_in_flight, origin)
  values
    (endpoint_id, partner_id, canonical_url, patterns, test, 'active', verify, description, max_in_flight, webhook._origin());
  insert into webhook._endpoint_revision (endpoint_id, revision)
  values (endpoint_id, 1);
  insert into webhook._secret (key_id, endpoint_id, secret)
  values (webhook._new_id(), endpoint_id, key);
  perform webhook._wake();
end
$$;
comment on function webhook.create_endpoint(text, text, text[], boolean, text, text, integer) is
  'Makes an active endpoint and returns its id and its secret, which is never shown again. It gets the events of this transaction and every later one. The method in verify is kept; this version sends no challenge.';

create function webhook._take_endpoint(
  endpoint_id bigint -- the endpoint
) returns webhook._endpoint -- its row, locked, with the state that is in force
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
begin
  perform webhook._check_argument('endpoint_id', endpoint_id is null);
  select e.*
    into endpoint
    from webhook._endpoint e
   where e.endpoint_id = _take_endpoint.endpoint_id
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('endpoint %s does not exist', endpoint_id);
  end if;
  if endpoint.state = 'deleted' then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is deleted', endpoint_id),
      hint = 'Create a new endpoint.';
  end if;
  -- A change raises the generation, and the leader's finding would no longer count: without this, a new
  -- description would put an endpoint back into service that had answered 410.
  select e.state, e.state_reason, e.state_changed_at
    into endpoint.state, endpoint.state_reason, endpoint.state_changed_at
    from webhook._effective_endpoint e
   where e.endpoint_id = _take_endpoint.endpoint_id;
  return endpoint;
end
$$;
comment on function webhook._take_endpoint(bigint) is 'Locks an endpoint that is to be changed and returns it as it stands.';

create function webhook._save_endpoint(
  endpoint webhook._endpoint -- row of _take_endpoint with the changes made
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  update webhook._endpoint e
     set url = endpoint.url,
         event_types = endpoint.event_types,
         state = endpoint.state,
         state_reason = endpoint.state_reason,
         state_changed_at = endpoint.state_changed_at,
         description = endpoint.description,
         max_in_flight = endpoint.max_in_flight,
         generation = e.generation + 1,
         changed_xid = pg_current_xact_id()
   where e.endpoint_id = endpoint.endpoint_id;
  perform webhook._wake();
end
$$;
comment on function webhook._save_endpoint(webhook._endpoint) is 'Stores a changed endpoint under a new generation and wakes the leader.';

create function webhook.update_endpoint(
  endpoint_id bigint,                 -- the endpoint
  url text default null,              -- new callback URL; null = unchanged
  event_types text[] default null,    -- new event types and wildcards; null = unchanged
  description text default null,      -- new description, '' = none; null = unchanged
  max_in_flight integer default null  -- new concurrency, 0 = webhook.max_in_flight_per_endpoint; null = unchanged
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  canonical_url text;
begin
  perform webhook._check_writable('change an endpoint');
  -- Before the row is locked, because the name is looked up: null in, null out.
  canonical_url := webhook._check_url(url);
  endpoint := webhook._take_endpoint(endpoint_id);
  endpoint.url := coalesce(canonical_url, endpoint.url);
  if event_types is not null then
    endpoint.event_types := webhook._check_event_types(event_types);
  end if;
  if description is not null then
    endpoint.description := nullif(description, '');
  end if;
  if max_in_flight is not null then
    endpoint.max_in_flight := webhook._check_max_in_flight(nullif(max_in_flight, 0));
  end if;
  perform webhook._save_endpoint(endpoint);
end
$$;
comment on function webhook.update_endpoint(bigint, text, text[], text, integer) is
  'Changes an endpoint; what is left out stays. The state stays, too: a disabled endpoint needs enable_endpoint. max_in_flight 0 returns to the default, an empty description removes it.';

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
begin
  perform webhook._check_writable('enable an endpoint');
  endpoint := webhook._take_endpoint(endpoint_id);
  -- Enabling an active endpoint is no error: its new generation voids a 410 that is still on its way.
  if endpoint.state not in ('active', 'disabled') then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is %s', endpoint_id, endpoint.state),
      detail = 'Only a disabled endpoint can be enabled.';
  end if;
  endpoint.state := 'active';
  endpoint.state_reason := case when reason is not null then webhook._check_reason(reason) end;
  endpoint.state_changed_at := clock_timestamp();
  perform webhook._save_endpoint(endpoint);
end
$$;
comment on function webhook.enable_endpoint(bigint, text) is
  'Puts a disabled endpoint back into service. Events of the time between are not sent by themselves.';

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
begin
  perform webhook._check_writable('disable an endpoint');
  endpoint := webhook._take_endpoint(endpoint_id);
  endpoint.state := 'disabled';
  endpoint.state_reason := webhook._check_reason(reason);
  endpoint.state_changed_at := clock_timestamp();
  perform webhook._save_endpoint(endpoint);
end
$$;
comment on function webhook.disable_endpoint(bigint, text) is
  'Takes an endpoint out of service: waiting deliveries are cancelled with the reason, new events are not sent to it.';

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
  endpoint.state := 'deleted';
  endpoint.state_reason := webhook._check_reason(reason);
  endpoint.state_changed_at := clock_timestamp();
  -- Its keys will never sign again. Key material that is gone can leak neither from here nor from a dump;
  -- the key ids stay in the evidence.
  delete from webhook._secret s
   where s.endpoint_id = endpoint.endpoint_id;
  perform webhook._save_endpoint(endpoint);
end
$$;
comment on function webhook.delete_endpoint(bigint, text) is
  'Removes an endpoint for good: waiting deliveries are cancelled with the reason, its keys are destroyed, its history stays readable.';
