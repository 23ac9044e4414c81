-- Asking for many attempts at once: everything of a time range, or what failed of it, or what is missing. One request; the
-- leader walks the feed at a bounded rate, beside live traffic.

create function webhook._check_replay(
  partner_id text,     -- tenant, null = that of the endpoint, or all
  endpoint_id bigint,  -- endpoint, null = all
  since timestamptz,   -- beginning of the range
  until timestamptz,   -- its end
  types text[],        -- event types and wildcards
  test boolean,        -- test events, or live ones
  which text,      -- all, failed or missing
  rate integer         -- deliveries per second
) returns text -- partner_id
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._effective_endpoint;
  kept constant interval := webhook._kept_for('webhook.delivery_retention', '60 days');
begin
  perform webhook._check_argument('since', since is null);
  perform webhook._check_argument('until', until is null);
  perform webhook._check_argument('test', test is null);
  perform webhook._check_argument('which', which is null);
  perform webhook._check_argument('rate', rate is null);
  if since >= until then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'the range is empty',
      detail = '"since" must be earlier than "until".';
  end if;
  if which not in ('all', 'failed', 'missing') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('"%s" is not valid for "which"', left(which, 64)),
      detail = 'It is "all" (every delivery, and what is missing), "failed" (what is dead or cancelled) or "missing" (what was never made).';
  end if;
  if rate not between 1 and 10000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'rate is outside the valid range',
      detail = format('It is %s; the range is 1 to 10000 deliveries per second.', rate);
  end if;
  if types is not null then
    perform webhook._check_event_types(types);
  end if;
  -- Beyond it nobody can tell what was delivered from what was not.
  if since < clock_timestamp() - kept then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = 'the range begins before what is kept of deliveries',
      detail = format('Deliveries are kept for %s: from %s on.', kept, webhook._rfc3339(clock_timestamp() - kept)),
      hint = 'Older events, as far as they are kept, are read with webhook.export_events.';
  end if;
  if endpoint_id is not null then
    select e.*
      into endpoint
      from webhook._effective_endpoint e
     where e.endpoint_id = _check_replay.endpoint_id
       and (_check_replay.partner_id is null or e.partner_id = _check_replay.partner_id);
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
    if endpoint.test <> test then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = case when test
          then format('cannot send test events to endpoint %s', endpoint_id)
          else format('cannot send live events to endpoint %s', endpoint_id)
        end,
        detail = case when test then 'It is not a test endpoint.' else 'It is a test endpoint.' end;
    end if;
    return endpoint.partner_id;
  end if;
  if partner_id is not null
     and not exists (select from webhook._endpoint e where e.partner_id = _check_replay.partner_id)
  then
    raise exception using
      errcode = 'undefined_object',
      message = format('partner "%s" has no endpoint', left(partner_id, 128));
  end if;
  return partner_id;
end
$$;
comment on function webhook._check_replay(text, bigint, timestamptz, timestamptz, text[], boolean, text, integer) is
  'Refuses a replay of a range that cannot be carried out; returns the tenant that it is about.';

create function webhook.replay_range(
  inout partner_id text,                -- tenant; null = that of the endpoint, or every one
  since timestamptz,                    -- events published at this time or later
  until timestamptz,                    -- events published before this time
  reason text,                          -- why
  types text[] default null,            -- event types and wildcards; null = all
  inout endpoint_id bigint default null, -- this endpoint alone; null = every one
  which text default 'all',             -- all, failed (dead or cancelled) or missing (never made)
  test boolean default false,           -- test events, or live ones
  rate integer default 100,             -- deliveries per second at most, 1 to 10000
  dry_run boolean default false,        -- count what it would do, and do nothing
  out request_id bigint,                -- the request, see the view replays; null of a dry run
  out events bigint,                    -- events of the range; null = more than 20000
  out deliveries bigint,                -- of a dry run: deliveries of this endpoint
  out complete boolean                  -- of a dry run: false = counting stopped at 20000 events
) returns setof record
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  most constant integer := 20000;
  whose text;
  pos_from bigint;
  pos_to bigint;
  walked integer;
  found_ids text[];
  found_types text[];
  found_partners text[];
begin
  perform webhook._check_argument('dry_run', dry_run is null);
  if not dry_run then
    perform webhook._check_writable('replay a range');
  end if;
  reason := webhook._check_reason(reason);
  whose := webhook._check_replay(partner_id, endpoint_id, since, until, types, test, which, rate);
  -- What is published from now on reaches its endpoints by itself.
  until := least(until, clock_timestamp());
  pos_from := webhook._range_bound(since, 0);
  pos_to := webhook._range_bound(until, 0);
  select count(*),
         array_agg(w.event_id) filter (where w.meant),
         array_agg(w.type) filter (where w.meant),
         array_agg(w.partner_id) filter (where w.meant)
    into walked, found_ids, found_types, found_partners
    from (select f.event_id,
                 f.type,
                 f.partner_id,
                 f.test = replay_range.test and (types is null or webhook._is_type_among(f.type, types)) as meant
            from webhook._feed f
           where (whose is null or f.partner_id = whose)
             and f.pos >= pos_from
             and f.pos < pos_to
           limit most + 1) as w;
  complete := walked <= most;
  if complete then
    events := cardinality(coalesce(found_ids, '{}'));
  end if;

  if dry_run then
    return query
    select p.partner_id::text,
           p.endpoint_id,
           null::bigint,
           replay_range.events,
           count(*),
           replay_range.complete
      from unnest(found_ids, found_types, found_partners) as w (event_id, type, partner_id)
      join webhook._effective_endpoint p
        on p.partner_id = w.partner_id
       and p.origin = webhook._origin()
       and p.state in ('active', 'paused', 'unverified')
       and p.test = replay_range.test
       and (replay_range.endpoint_id is null or p.endpoint_id = replay_range.endpoint_id)
      join webhook._endpoint s
        on s.endpoint_id = p.endpoint_id
       and webhook._is_type_among(w.type, s.event_types)
      left join webhook._delivery d on d.event_id = w.event_id and d.endpoint_id = p.endpoint_id
     where case which
             when 'missing' then d.state is null
             when 'failed' then d.state in ('dead', 'cancelled')
             else d.state is null or d.state not in ('pending', 'retrying')
           end
     group by p.partner_id, p.endpoint_id
     order by p.partner_id, p.endpoint_id;
    return;
  end if;

  request_id := webhook._ask(
    'replay_range',
    case when endpoint_id is not null then 'endpoint' when whose is not null then 'partner' else 'all' end,
    coalesce(endpoint_id::text, whose),
    whose,
    endpoint_id => endpoint_id,
    reason => reason,
    after => jsonb_strip_nulls(jsonb_build_object(
      'since', webhook._rfc3339(since), 'until', webhook._rfc3339(until), 'types', types, 'test', test, 'which', which, 'rate', rate, 'events', events)));
  insert into webhook._replay
    (request_id, origin, partner_id, endpoint_id, since, until, pos_from, pos_to, event_types, test, which, rate, estimate, reason)
  values
    (replay_range.request_id, webhook._origin(), whose, replay_range.endpoint_id, replay_range.since, replay_range.until, pos_from, pos_to,
     types, replay_range.test, which, replay_range.rate, events, replay_range.reason);
  partner_id := whose;
  deliveries := null;
  complete := null;
  return next;
end
$$;
comment on function webhook.replay_range(text, timestamptz, timestamptz, text, text[], bigint, text, boolean, integer, boolean) is
  'Asks for new attempts of everything, of what failed, or of what is missing in a time range, at a bounded rate beside live traffic. Returns the request; of a dry run, what each endpoint would get.';

create function webhook.cancel_replay(
  request_id bigint, -- what replay_range returned
  reason text        -- why
) returns bigint -- request_id of the cancellation
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  replay record;
begin
  perform webhook._check_writable('cancel a replay');
  perform webhook._check_argument('request_id', request_id is null);
  reason := webhook._check_reason(reason);
  select r.partner_id, r.origin, p.state
    into replay
    from webhook._replay r
    left join webhook._replay_progress p on p.request_id = r.request_id
   where r.request_id = cancel_replay.request_id;
  if not found or replay.origin <> webhook._origin() then
    raise exception using
      errcode = 'undefined_object',
      message = format('replay %s does not exist', request_id),
      hint = 'The view replays shows those of this database.';
  end if;
  if replay.state in ('done', 'cancelled') then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('replay %s is %s', request_id, replay.state);
  end if;
  return webhook._ask(
    'cancel_replay', 'all', request_id::text, replay.partner_id,
    target => request_id::text,
    reason => reason);
end
$$;
comment on function webhook.cancel_replay(bigint, text) is
  'Ends a replay of a range: no more deliveries are made. Those made already stay; skip takes them back.';
