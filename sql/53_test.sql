-- Test events: one endpoint, asked to show that it receives well.
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.

create function webhook.send_test(
  endpoint_id bigint,          -- the endpoint
  kind text default 'normal',  -- normal, duplicate, stale, bad_signature or malformed
  out event_id text,           -- the test event
  out delivery_id text         -- its delivery
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._effective_endpoint;
begin
  perform webhook._check_writable('send a test event');
  perform webhook._check_argument('endpoint_id', endpoint_id is null);
  perform webhook._check_argument('kind', kind is null);
  if kind not in ('normal', 'duplicate', 'stale', 'bad_signature', 'malformed') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('kind of test "%s" does not exist', left(kind, 128)),
      hint = 'The kinds are normal, duplicate, stale, bad_signature and malformed.';
  end if;
  select e.*
    into endpoint
    from webhook._effective_endpoint e
   where e.endpoint_id = send_test.endpoint_id;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('endpoint %s does not exist', endpoint_id);
  end if;
  if endpoint.origin <> webhook._origin() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is inert', endpoint_id),
      detail = 'It was made in another database, of which this one is a copy.';
  end if;
  if endpoint.state not in ('active', 'paused', 'unverified') then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is %s', endpoint_id, endpoint.state),
      detail = coalesce(endpoint.state_reason, 'It gets no deliveries in this state.');
  end if;
  event_id := webhook._emit_reserved(
    type => 'webhook.test',
    partner_id => endpoint.partner_id,
    data => jsonb_build_object('endpoint_id', endpoint_id::text, 'kind', kind),
    subject_type => 'webhook.endpoint',
    subject_id => endpoint_id::text,
    test => true);
  delivery_id := webhook._delivery_id(event_id, endpoint_id);
  perform webhook._log(
    'send_test', 'endpoint', endpoint_id::text, endpoint.partner_id,
    after => jsonb_build_object('kind', kind, 'event_id', event_id));
end
$$;
comment on function webhook.send_test(bigint, text) is
  'Sends a test event to one endpoint, whatever its event types. The kinds beyond normal show whether it drops duplicates and stale requests and refuses what is not signed or not well-formed.';
