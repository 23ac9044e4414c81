-- Proof of control and expiry: another challenge, doing without one, a longer life.
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.

create function webhook.verify_endpoint(
  endpoint_id bigint,        -- the endpoint
  method text default null,  -- challenge, graph, slack; none = an operator does without a proof; null = the endpoint's own
  reason text default null   -- why; needed with none
) returns bigint -- request_id; null with none
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before webhook._endpoint;
  request_id bigint;
begin
  perform webhook._check_writable('verify an endpoint');
  perform webhook._check_method(method);
  if reason is not null or method = 'none' then
    reason := webhook._check_reason(reason);
  end if;
  endpoint := webhook._take_endpoint(endpoint_id);
  if endpoint.origin <> webhook._origin() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is inert', endpoint_id),
      detail = 'It was made in another database, of which this one is a copy.';
  end if;
  if endpoint.state = 'expired' and endpoint.expires_at <= clock_timestamp() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is expired', endpoint_id),
      hint = 'Use webhook.renew_endpoint.';
  end if;
  before := endpoint;
  if method = 'none' then
    endpoint := webhook._spare_proof(endpoint);
    if endpoint.state in ('unverified', 'expired') then
      endpoint.state := 'active';
      endpoint.state_reason := reason;
      endpoint.state_changed_at := clock_timestamp();
    end if;
    perform webhook._save_endpoint(endpoint, 'verify_endpoint', reason, void => endpoint.state <> before.state);
    if before.state = 'expired' then
      perform webhook._say_missed(before, reason);
    end if;
    return null;
  end if;
  endpoint.verify := coalesce(method, endpoint.verify);
  if endpoint.verify = 'none' then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s has no verification method', endpoint_id),
      detail = 'It was made, or changed, without a proof of control.',
      hint = 'Name the method: challenge, graph or slack.';
  end if;
  if endpoint.state = 'expired' then
    endpoint.state := 'unverified';
    endpoint.state_reason := reason;
    endpoint.state_changed_at := clock_timestamp();
    -- Whatever was proven of it before does not count: it closed for want of a proof.
    endpoint.verified_at := null;
    endpoint.verified_by := null;
  end if;
  if endpoint.verify <> before.verify or endpoint.state <> before.state then
    endpoint := webhook._demand_proof(endpoint);
    request_id := webhook._ask(
      'verify_endpoint', 'endpoint', endpoint_id::text, endpoint.partner_id,
      endpoint_id => endpoint_id, scope => 'endpoint', target => endpoint_id::text, reason => reason);
    perform webhook._save_endpoint(endpoint, 'verify_endpoint', reason, request_id, void => endpoint.state <> before.state);
    if before.state = 'expired' then
      perform webhook._say_missed(before, reason);
    end if;
    return request_id;
  end if;
  return webhook._ask(
    'verify_endpoint', 'endpoint', endpoint_id::text, endpoint.partner_id, endpoint_id => endpoint_id, reason => reason,
    after => jsonb_build_object('method', endpoint.verify));
end
$$;
comment on function webhook.verify_endpoint(bigint, text, text) is
  'Has the leader send a challenge now, three a minute at most; the view verifications shows what comes of it. Another method than the endpoint''s own becomes its own, and the proof is due. With none nothing is sent: an operator vouches for the URL, with a reason.';

create function webhook.renew_endpoint(
  endpoint_id bigint, -- the endpoint
  until timestamptz   -- when it expires from now on; infinity = never
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before webhook._endpoint;
begin
  perform webhook._check_writable('renew an endpoint');
  perform webhook._check_argument('until', until is null);
  until := webhook._check_expiry('until', until);
  endpoint := webhook._take_endpoint(endpoint_id);
  before := endpoint;
  endpoint.expires_at := until;
  endpoint.renewed_at := clock_timestamp();
  if endpoint.state = 'expired' then
    endpoint.state := 'active';
    endpoint.state_reason := null;
    endpoint.state_changed_at := clock_timestamp();
    if endpoint.verify <> 'none' and (endpoint.proof_asked_at is not null or endpoint.verified_at is null) then
      -- It closed before its URL was proven, or for want of that.
      if endpoint.pending_url is null then
        endpoint.state := 'unverified';
      end if;
      endpoint := webhook._demand_proof(endpoint);
    end if;
  end if;
  -- The leader may just be finding that its time is up: the new generation makes that void. Renewed in good time,
  -- what is known of the endpoint's health stays.
  perform webhook._save_endpoint(
    endpoint, 'renew_endpoint',
    void => before.state = 'expired' or coalesce(before.expires_at < clock_timestamp() + interval '1 hour', false));
  if before.state = 'expired' then
    perform webhook._say_missed(before, null);
  end if;
end
$$;
comment on function webhook.renew_endpoint(bigint, timestamptz) is
  'Sets when an endpoint expires. An expired one is in service again (unverified, if its URL was not proven); what it missed is not sent by itself: use replay_range.';

create function webhook._say_missed(
  endpoint webhook._endpoint, -- the endpoint as it was, out of service
  reason text                 -- why it is in service again
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  missed constant jsonb := jsonb_build_object(
    'from', webhook._rfc3339(endpoint.state_changed_at), 'to', webhook._rfc3339(clock_timestamp()));
begin
  perform webhook._lifecycle(endpoint, 'missed', reason, missed);
  perform webhook._alert_about(
    endpoint, 'endpoint.missed', 'warning',
    format('The endpoint is in service again; the events from %s to %s were not sent to it.', missed ->> 'from', missed ->> 'to'));
end
$$;
comment on function webhook._say_missed(webhook._endpoint, text) is 'Says which time an endpoint missed that is in service again.';
