-- Policies: how deliveries are retried, limited and given up, for the endpoints that name one.
-- A value that a policy does not say is that of the policy "default", and what that one does not say is the
-- server's setting. A change counts for attempts that the leader plans after it has committed.

create function webhook._check_policy(
  policy webhook._policy -- a policy as somebody wants it
) returns webhook._policy -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
-- Values become text on their way: the session's styles must not show.
set intervalstyle = 'postgres'
as $$
declare
  refused record;
begin
  if policy.name !~ '^[A-Za-z0-9_.:-]{1,128}$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('policy name "%s" is not valid', left(policy.name, 128)),
      detail = 'A policy name has 1 to 128 characters of A-Z, a-z, 0-9, "_", ".", ":" and "-".';
  end if;
  perform webhook._check_schedule(policy.retry_schedule);
  -- NaN is above every number, so it is outside every range.
  select r.name, r.value, r.range
    into refused
    from (values
      ('client_error_attempts', policy.client_error_attempts::text, '1 to 50', policy.client_error_attempts between 1 and 50),
      ('retry_after_max', policy.retry_after_max::text, '0 seconds to 30 days', policy.retry_after_max between interval '0' and interval '30 days'),
      ('max_in_flight', policy.max_in_flight::text, '1 to 1000', policy.max_in_flight between 1 and 1000),
      ('rate', policy.rate::text, '0.001 to 100000 requests per second', policy.rate between 0.001 and 100000),
      ('burst', policy.burst::text, '1 to 100000', policy.burst between 1 and 100000),
      ('max_age', policy.max_age::text, '1 second to 365 days', policy.max_age between interval '1 second' and interval '365 days'),
      ('disable_after', policy.disable_after::text, '60 seconds to 365 days', policy.disable_after between interval '60 seconds' and interval '365 days'),
      ('disable_failures', policy.disable_failures::text, '1 to 1000000', policy.disable_failures between 1 and 1000000))
      as r (name, value, range, fits)
   where not r.fits
   limit 1;
  if found then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('%s is outside the valid range', refused.name),
      detail = format('It is %s; the range is %s.', refused.value, refused.range),
      hint = 'Leave it out for the value of the policy "default".';
  end if;
  return policy;
end
$$;
comment on function webhook._check_policy(webhook._policy) is 'Refuses a policy that cannot be followed.';

create function webhook._log_policy(
  verb text,              -- function that was called
  name text,              -- name of the policy
  former webhook._policy, -- as it was; null = it is new
  policy webhook._policy  -- as it is now; null = it is gone
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
-- Values become text on their way: the session's styles must not show.
set intervalstyle = 'postgres'
set extra_float_digits = 1
as $$
declare
  bookkeeping constant text[] := '{created_at,changed_at,changed_by,changed_xid}';
  before constant jsonb := coalesce(to_jsonb(former) - bookkeeping, '{}');
  after constant jsonb := coalesce(to_jsonb(policy) - bookkeeping, '{}');
begin
  perform webhook._log(verb, 'policy', name, before => webhook._changed(before, after), after => webhook._changed(after, before));
  perform webhook._wake();
end
$$;
comment on function webhook._log_policy(text, text, webhook._policy, webhook._policy) is 'Logs the change of a policy and wakes the leader.';

create function webhook.create_policy(
  name text,                                    -- name that endpoints refer to
  retry_schedule text default null,             -- waits between attempts, '5s,5m,1h'; '' = no retry
  client_error_attempts integer default null,   -- attempts for 3xx and 4xx answers that have no rule of their own
  retry_after_max interval default null,        -- longest wait that Retry-After may ask for
  max_in_flight integer default null,           -- concurrent requests to an endpoint
  rate real default null,                       -- requests per second to an endpoint
  burst integer default null,                   -- requests at once after a rest
  max_age interval default null,                -- older events are not sent any more
  disable_after interval default null,          -- an endpoint without a success for so long is disabled
  disable_failures integer default null,        -- but not before so many failures in a row
  description text default null                 -- free text of the operator
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  policy webhook._policy;
  created boolean := false;
begin
  perform webhook._check_writable('create a policy');
  perform webhook._check_argument('name', name is null);
  policy.name := name;
  policy.retry_schedule := retry_schedule;
  policy.client_error_attempts := client_error_attempts;
  policy.retry_after_max := retry_after_max;
  policy.max_in_flight := max_in_flight;
  policy.rate := rate;
  policy.burst := burst;
  policy.max_age := max_age;
  policy.disable_after := disable_after;
  policy.disable_failures := disable_failures;
  policy.description := nullif(description, '');
  policy := webhook._check_policy(policy);
  -- The trigger of a restore would make way for the name "default", which is always there.
  if name <> 'default' then
    insert into webhook._policy as p
      (name, retry_schedule, client_error_attempts, retry_after_max, max_in_flight, rate, burst, max_age, disable_after, disable_failures,
       description)
    values
      (policy.name, policy.retry_schedule, policy.client_error_attempts, policy.retry_after_max, policy.max_in_flight, policy.rate,
       policy.burst, policy.max_age, policy.disable_after, policy.disable_failures, policy.description)
    on conflict on constraint _policy_pkey do nothing;
    created := found;
  end if;
  if not created then
    raise exception using
      errcode = 'duplicate_object',
      message = format('policy "%s" already exists', name),
      hint = 'Use webhook.update_policy.';
  end if;
  perform webhook._log_policy('create_policy', name, null, policy);
end
$$;
comment on function webhook.create_policy(text, text, integer, interval, integer, real, integer, interval, interval, integer, text) is
  'Makes a policy. What is left out is the value of the policy "default". Endpoints name it with create_endpoint and update_endpoint.';

create function webhook._take_policy(
  name text -- name of the policy
) returns webhook._policy -- its row, locked
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  policy webhook._policy;
begin
  perform webhook._check_argument('name', name is null);
  select p.*
    into policy
    from webhook._policy p
   where p.name = _take_policy.name
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('policy "%s" does not exist', left(name, 128));
  end if;
  return policy;
end
$$;
comment on function webhook._take_policy(text) is 'Locks a policy that is to be changed.';

create function webhook.update_policy(
  name text,                                    -- name of the policy; "default" is one
  retry_schedule text default null,             -- as for create_policy, like all that follow; null = unchanged
  client_error_attempts integer default null,
  retry_after_max interval default null,
  max_in_flight integer default null,
  rate real default null,
  burst integer default null,
  max_age interval default null,
  disable_after interval default null,
  disable_failures integer default null,
  description text default null,
  reset text[] default null                     -- names of the values that the policy no longer says
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
-- Values become text on their way: the session's styles must not show.
set intervalstyle = 'postgres'
set extra_float_digits = 1
as $$
declare
  former webhook._policy;
  policy webhook._policy;
  given jsonb;
  refused text;
begin
  perform webhook._check_writable('change a policy');
  perform webhook._check_argument('reset', array_position(reset, null) is not null);
  former := webhook._take_policy(name);
  given := jsonb_strip_nulls(jsonb_build_object(
    'retry_schedule', retry_schedule,
    'client_error_attempts', client_error_attempts,
    'retry_after_max', retry_after_max,
    'max_in_flight', max_in_flight,
    'rate', rate,
    'burst', burst,
    'max_age', max_age,
    'disable_after', disable_after,
    'disable_failures', disable_failures,
    'description', description));
  select u.value
    into refused
    from unnest(reset) as u (value)
   where not u.value = any ('{retry_schedule,client_error_attempts,retry_after_max,max_in_flight,rate,burst,max_age,disable_after,disable_failures,description}')
   limit 1;
  if found then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('a policy has no value "%s"', left(refused, 128));
  end if;
  select u.value
    into refused
    from unnest(reset) as u (value)
   where given ? u.value
   limit 1;
  if found then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('cannot set and reset "%s" at once', refused);
  end if;
  policy := jsonb_populate_record(former, given || coalesce((select jsonb_object_agg(u.value, null) from unnest(reset) as u (value)), '{}'));
  policy.description := nullif(policy.description, '');
  policy := webhook._check_policy(policy);
  update webhook._policy p
     set retry_schedule = policy.retry_schedule,
         client_error_attempts = policy.client_error_attempts,
         retry_after_max = policy.retry_after_max,
         max_in_flight = policy.max_in_flight,
         rate = policy.rate,
         burst = policy.burst,
         max_age = policy.max_age,
         disable_after = policy.disable_after,
         disable_failures = policy.disable_failures,
         description = policy.description,
         changed_at = clock_timestamp(),
         changed_by = session_user,
         changed_xid = pg_current_xact_id()
   where p.name = policy.name;
  perform webhook._log_policy('update_policy', policy.name, former, policy);
end
$$;
comment on function webhook.update_policy(text, text, integer, interval, integer, real, integer, interval, interval, integer, text, text[]) is
  'Changes a policy; what is left out stays, and what "reset" names is that of the policy "default" again, or there the server''s setting.';

create function webhook.delete_policy(
  name text -- name of the policy
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  policy webhook._policy;
  endpoints bigint;
begin
  perform webhook._check_writable('delete a policy');
  if name = 'default' then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = 'cannot delete policy "default"',
      detail = 'Endpoints that name no policy follow it.';
  end if;
  -- Waits for those who are about to name it, and then sees what they made.
  perform from webhook._policy p
    where p.name = delete_policy.name
      for update;
  policy := webhook._take_policy(name);
  select count(*)
    into endpoints
    from webhook._endpoint e
   where e.policy = delete_policy.name
     and e.state <> 'deleted';
  if endpoints > 0 then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('policy "%s" is in use', name),
      detail = case endpoints when 1 then 'One endpoint names it.' else format('%s endpoints name it.', endpoints) end,
      hint = 'Give them another one with webhook.update_endpoint.';
  end if;
  delete from webhook._policy p
   where p.name = delete_policy.name;
  perform webhook._log_policy('delete_policy', name, policy, null);
end
$$;
comment on function webhook.delete_policy(text) is 'Removes a policy that no endpoint names.';
