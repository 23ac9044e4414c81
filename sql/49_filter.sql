-- Trying a filter before it is in force: on a sample, and on what was emitted lately. Both ask what the leader asks.

create function webhook.test_filter(
  filter text,                        -- jsonpath predicate; null and '' = none
  data jsonb,                         -- a payload
  event_types text[] default null,    -- event types and wildcards; null = not looked at
  type text default null,             -- event type of the sample
  subject_types text[] default null,  -- subject types; null = all
  subject_type text default null      -- subject type of the sample
) returns table (
  matched boolean, -- whether the event would be sent; null = it would be held
  reason text      -- why it would not; null = it would
)
language plpgsql stable parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; it reads nothing but its arguments.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  spelt text;
begin
  perform webhook._check_argument('data', data is null);
  spelt := webhook._check_filter(filter);
  subject_types := webhook._check_subject_types(subject_types);
  if event_types is not null then
    event_types := webhook._check_event_types(event_types);
    perform webhook._check_argument('type', type is null);
    if not webhook._type_matches(event_types, type) then
      return query values (false, 'the event type is not subscribed to');
      return;
    end if;
  end if;
  if subject_types is not null and not coalesce(subject_type = any (subject_types), false) then
    return query values (false, 'the subject type is not one of the subject types');
    return;
  end if;
  if spelt is null then
    return query values (true, null);
    return;
  end if;
  return query
    select t.matched, case when not t.matched then 'the filter does not match' else t.why end
      from webhook._try_filters(data::text, array[spelt]) as t;
end
$$;
comment on function webhook.test_filter(text, jsonb, text[], text, text[], text) is 'Says whether a filter, and event types and subject types where they are given, match a sample.';

create function webhook.preview_filter(
  partner_id text default null,       -- whose events; or endpoint_id
  endpoint_id bigint default null,    -- the endpoint whose partner, event types, subject types and filter are meant, but for what is given here
  filter text default null,           -- jsonpath predicate, '' = none; null = the endpoint's
  event_types text[] default null,    -- event types and wildcards; null = the endpoint's, else all
  subject_types text[] default null,  -- subject types, {} = all; null = the endpoint's
  test boolean default null,          -- whether test events are meant; null = those of the endpoint's mode, else live ones
  since timestamptz default null,     -- from when on; null = for one day
  max_events integer default 1000,    -- newest events looked at, 1 to 10000
  out events bigint,                  -- events that were looked at
  out matched bigint,                 -- of these: would be sent
  out not_matched bigint,             -- would not be
  out undecided bigint,               -- would be held
  out reason text,                    -- why, for the newest of those that would be held
  out oldest timestamptz,             -- when the oldest event that was looked at was read by the leader
  out complete boolean                -- whether all events since then were looked at
) returns record
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it. It tells of payloads what any filter asks, so it belongs to those
-- who may have payloads sent wherever they like.
security definer
set search_path = pg_catalog, webhook, pg_temp
set jit = off
as $$
declare
  endpoint webhook._endpoint;
  spelt text;
  started constant timestamptz := clock_timestamp();
  event record;
  said record;
begin
  if (partner_id is null) = (endpoint_id is null) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'either partner_id or endpoint_id must be given';
  end if;
  if max_events is null or max_events not between 1 and 10000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'max_events is outside the valid range',
      detail = 'The range is 1 to 10000.';
  end if;
  perform webhook._check_writable('preview a filter');
  since := coalesce(since, started - interval '1 day');
  if endpoint_id is not null then
    select e.*
      into endpoint
      from webhook._endpoint e
     where e.endpoint_id = preview_filter.endpoint_id;
    if not found then
      raise exception using
        errcode = 'undefined_object',
        message = format('endpoint %s does not exist', endpoint_id);
    end if;
    partner_id := endpoint.partner_id;
  else
    perform webhook._check_partner(partner_id);
  end if;
  spelt := case when filter is null then endpoint.filter else webhook._check_filter(filter) end;
  subject_types := case when subject_types is null then endpoint.subject_types else webhook._check_subject_types(subject_types) end;
  event_types := webhook._check_event_types(coalesce(event_types, endpoint.event_types, '{*}'));
  test := coalesce(test, endpoint.test, false);
  events := 0;
  matched := 0;
  not_matched := 0;
  undecided := 0;
  complete := true;
  for event in
    select f.event_id, f.type, f.published_at
      from webhook._feed f
     where f.partner_id = preview_filter.partner_id
       and f.pos >= webhook._pos_bound(since)
       and f.test = preview_filter.test
       and f.type not like 'webhook.%'
     order by f.pos desc
  loop
    -- A costly filter on large payloads ends here, and says so, rather than going on for minutes.
    if events >= max_events or clock_timestamp() > started + interval '5 seconds' then
      complete := false;
      exit;
    end if;
    events := events + 1;
    oldest := event.published_at;
    if not webhook._type_matches(event_types, event.type) then
      not_matched := not_matched + 1;
      continue;
    end if;
    select subject_types is not null and not coalesce(e.subject_type = any (subject_types), false) as other_subject, e.body, t.matched, t.why
      into said
      from webhook._event e
      left join lateral webhook._try_filters(e.body, array[spelt]) as t on spelt is not null
     where e.event_id = event.event_id;
    if said.body is null or said.other_subject or said.matched = false then
      -- Without its payload it is not sent, whatever the filter says.
      not_matched := not_matched + 1;
    elsif spelt is null or said.matched then
      matched := matched + 1;
    else
      undecided := undecided + 1;
      reason := coalesce(reason, said.why);
    end if;
  end loop;
  -- It was asked about payloads: that leaves a trace, like reading one, which a rollback does not take back.
  raise log 'webhook: a filter was tried on % payloads of partner "%" by role "%"', events, partner_id, session_user;
  perform webhook._log(
    'preview_filter', case when endpoint_id is null then 'partner' else 'endpoint' end, coalesce(endpoint_id::text, partner_id), partner_id,
    after => jsonb_strip_nulls(jsonb_build_object(
      'filter', spelt, 'event_types', event_types, 'subject_types', subject_types, 'test', test, 'since', webhook._rfc3339(since), 'events', events)));
end
$$;
comment on function webhook.preview_filter(text, bigint, text, text[], text[], boolean, timestamptz, integer) is
  'Counts which of a partner''s latest events a filter would have let through. Looks at max_events and for five seconds at most, newest first, and leaves an entry in the audit log.';
