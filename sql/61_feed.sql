-- Reading the feed: pages after a cursor, a time range in one go, and how far a feed and its reader are.
-- SECURITY INVOKER, over views that row-level policies bind: whoever asks for another partner's feed finds it empty.
-- Payloads come from _feed_data, which judges the right to them. Nothing here writes: it works on a standby.

create view webhook._seen_event as
select e.event_id,
       e.partner_id,
       e.type,
       e.test,
       e.source,
       e.subject_type,
       e.subject_id,
       e.subject_version,
       e.scope,
       e.schema_version,
       e.correlation_id,
       e.causation,
       e.traceparent,
       e.occurred_at
  from webhook._event e;
comment on view webhook._seen_event is 'Events as the reader may see them, without payload.';
comment on column webhook._seen_event.event_id is 'The event.';
comment on column webhook._seen_event.partner_id is 'Tenant that it belongs to.';
comment on column webhook._seen_event.type is 'Event type.';
comment on column webhook._seen_event.test is 'Test event.';
comment on column webhook._seen_event.source is 'Producer of the event.';
comment on column webhook._seen_event.subject_type is 'Kind of the object that changed.';
comment on column webhook._seen_event.subject_id is 'Identity of the object that changed.';
comment on column webhook._seen_event.subject_version is 'Version of the object after the change.';
comment on column webhook._seen_event.scope is 'Authorisation scope.';
comment on column webhook._seen_event.schema_version is 'Version of the payload''s schema.';
comment on column webhook._seen_event.correlation_id is 'Ties the event to the operation that caused it.';
comment on column webhook._seen_event.causation is 'Event id of the parent event.';
comment on column webhook._seen_event.traceparent is 'W3C trace context of the operation.';
comment on column webhook._seen_event.occurred_at is 'When the business change happened.';

create view webhook._seen_due as
select w.event_id,
       w.endpoint_id,
       w.hold
  from webhook._due w;
comment on view webhook._seen_due is 'What waits for its next attempt, as the reader may see it.';
comment on column webhook._seen_due.event_id is 'The event.';
comment on column webhook._seen_due.endpoint_id is 'The endpoint.';
comment on column webhook._seen_due.hold is 'Why it is held, a bit each; 0 = it is not.';

create function webhook._check_feed(
  partner_id text, -- whose feed
  types text[],    -- event types and wildcards; null = all
  payload boolean  -- whether payloads are wanted
) returns boolean -- true
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('partner_id', partner_id is null);
  perform webhook._check_argument('payload', payload is null);
  if types is not null then
    perform webhook._check_event_types(types);
  end if;
  if payload then
    perform webhook._feed_data(partner_id, null);
  end if;
  return true;
end
$$;
comment on function webhook._check_feed(text, text[], boolean) is 'Refuses what no feed can answer, and payloads without a right to them.';

create function webhook._check_export(
  partner_id text,   -- whose feed
  since timestamptz, -- beginning of the range
  until timestamptz, -- its end
  types text[],      -- event types and wildcards
  test boolean,      -- which events
  payload boolean    -- whether payloads are wanted
) returns text -- partner_id
language plpgsql volatile parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_feed(partner_id, types, payload);
  perform webhook._check_argument('test', test is null);
  if since > until then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = '"since" is later than "until"';
  end if;
  -- The rows carry cursors.
  perform webhook._make_durable();
  return partner_id;
end
$$;
comment on function webhook._check_export(text, timestamptz, timestamptz, text[], boolean, boolean) is 'Refuses what cannot be exported.';

create function webhook.events_after(
  partner_id text,                 -- whose feed
  inout cursor text default null,  -- cursor of the last row read; null = from the oldest event on. Out: the cursor after this row
  max_events integer default 100,  -- 1 to 1000
  types text[] default null,       -- event types and wildcards; null = all
  test boolean default false,      -- true = test events, false = live ones
  payload boolean default false,   -- whether "data" is filled; needs a right of kind feed
  out event_id text,               -- null = the row moves the cursor and nothing else
  out type text,
  out subject_type text,
  out subject_id text,
  out subject_version bigint,
  out occurred_at timestamptz,
  out published_at timestamptz,
  out source text,
  out scope text,
  out schema_version text,
  out correlation_id text,
  out causation text,
  out traceparent text,
  out data text
) returns setof record
-- STABLE: one snapshot for the whole page. In that of a later statement a row could appear behind one that was not seen.
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  -- Rows looked at for one page, so that a rare type costs no more than this.
  most constant integer := 5000;
  known_at timestamptz;
  read_at timestamptz;
  low bigint;
  high bigint;
  seen record;
  last_pos bigint;
  last_tag text;
  looked_at integer := 0;
  found_events integer := 0;
  passed_over boolean := false;
begin
  perform webhook._check_feed(partner_id, types, payload);
  perform webhook._check_argument('max_events', max_events is null);
  perform webhook._check_argument('test', test is null);
  if max_events not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'max_events is outside the valid range',
      detail = format('It is %s; the range is 1 to 1000.', max_events),
      hint = 'Ask for the next page with the cursor of the last row.';
  end if;
  select c.pos, c.tag, c.read_at
    into last_pos, last_tag, known_at
    from webhook._read_cursor(partner_id, cursor) as c;
  low := last_pos;
  -- First the day of the cursor, then whatever follows: a page from the middle of a long feed opens one partition.
  high := case
    when low > 0 then webhook._pos_bound(date_trunc('day', timestamptz '2025-01-01 00:00:00+00' + (low >> 22) * interval '1 millisecond', 'UTC') + interval '1 day')
    else 9223372036854775807
  end;
  <<page>>
  loop
    for seen in
      select f.pos, f.published_at, f.event_id, f.type, f.test
        from webhook._seen_feed f
       where f.partner_id = events_after.partner_id
         and f.pos > low
         and f.pos < high
       order by f.pos
       limit most - looked_at
    loop
      if looked_at = 0 then
        perform webhook._make_durable();
      end if;
      looked_at := looked_at + 1;
      last_pos := seen.pos;
      last_tag := webhook._event_tag(seen.event_id);
      known_at := seen.published_at;
      passed_over := seen.test <> test or (types is not null and not webhook._is_type_among(seen.type, types));
      continue when passed_over;
      select e.subject_type, e.subject_id, e.subject_version, e.occurred_at, e.source, e.scope, e.schema_version,
             e.correlation_id, e.causation, e.traceparent
        into subject_type, subject_id, subject_version, occurred_at, source, scope, schema_version,
             correlation_id, causation, traceparent
        from webhook._seen_event e
       where e.event_id = seen.event_id;
      cursor := webhook._cursor(partner_id, seen.pos, last_tag, seen.published_at);
      event_id := seen.event_id;
      type := seen.type;
      published_at := seen.published_at;
      if payload then
        data := webhook._feed_data(partner_id, seen.event_id);
      end if;
      return next;
      found_events := found_events + 1;
      if found_events = max_events then
        return;
      end if;
    end loop;
    exit page when high = 9223372036854775807 or looked_at >= most;
    low := high - 1;
    high := 9223372036854775807;
  end loop;
  if looked_at < most then
    -- The end of the feed: there was nothing more up to now, on a standby up to where it is.
    read_at := case when pg_is_in_recovery() then coalesce(pg_last_xact_replay_timestamp(), known_at) else transaction_timestamp() end;
  else
    read_at := known_at;
  end if;
  -- A row without an event, where the last rows were passed over, or where the cursor has not moved for an hour: one that
  -- says when it was read last does not expire for want of events.
  if passed_over or read_at - known_at > interval '1 hour' or (known_at is null and read_at is not null) then
    select webhook._cursor(partner_id, last_pos, last_tag, greatest(known_at, read_at))
      into cursor;
    event_id := null;
    type := null;
    subject_type := null;
    subject_id := null;
    subject_version := null;
    occurred_at := null;
    published_at := null;
    source := null;
    scope := null;
    schema_version := null;
    correlation_id := null;
    causation := null;
    traceparent := null;
    data := null;
    return next;
  end if;
end
$$;
comment on function webhook.events_after(text, text, integer, text[], boolean, boolean) is
  'A page of a partner''s feed after a cursor: every committed event once, in an order that never changes. Read on with the cursor of the last row; a row without event_id moves the cursor and nothing else; no row = nothing new.';

create function webhook.export_events(
  partner_id text,                           -- whose feed
  since timestamptz default null,            -- published at this time or later; null = from the oldest on
  until timestamptz default null,            -- published before this time; null = up to now
  types text[] default null,                 -- event types and wildcards; null = all
  test boolean default false,                -- true = test events, false = live ones
  payload boolean default false              -- whether "data" is filled; needs a right of kind feed
) returns table (
  cursor text,                               -- cursor after this row: where events_after goes on
  event_id text,
  type text,
  subject_type text,
  subject_id text,
  subject_version bigint,
  occurred_at timestamptz,
  published_at timestamptz,
  source text,
  scope text,
  schema_version text,
  correlation_id text,
  causation text,
  traceparent text,
  data text
)
-- Parsed when it is created, so that it needs no search_path of its own and is planned into the query that calls it:
-- rows leave as they are read, however many there are.
language sql stable parallel restricted
begin atomic
  select webhook._cursor(f.partner_id, f.pos, webhook._event_tag(f.event_id), f.published_at),
         f.event_id,
         f.type,
         e.subject_type,
         e.subject_id,
         e.subject_version,
         e.occurred_at,
         f.published_at,
         e.source,
         e.scope,
         e.schema_version,
         e.correlation_id,
         e.causation,
         e.traceparent,
         case when export_events.payload then webhook._feed_data(f.partner_id, f.event_id) end
    from webhook._seen_feed as f
    left join lateral (select o.* from webhook._seen_event as o where o.event_id = f.event_id limit 1) as e on true
   -- In a sub-select, so that it is run once, and is not folded away with a null.
   where f.partner_id = (select webhook._check_export(
           export_events.partner_id, export_events.since, export_events.until, export_events.types, export_events.test, export_events.payload))
     and f.pos >= webhook._range_bound(export_events.since, 0)
     and f.pos < webhook._range_bound(export_events.until, 9223372036854775807)
     and f.test is not distinct from export_events.test
     and (export_events.types is null or webhook._is_type_among(f.type, export_events.types))
   order by f.pos;
end;
comment on function webhook.export_events(text, timestamptz, timestamptz, text[], boolean, boolean) is
  'Every event of a partner that was published in a time range, oldest first, as a stream. Ranges that meet have no event twice and miss none.';

create function webhook._feed_lag(
  out worker text,                  -- state of the leader
  out detail text,                  -- the same in a sentence
  out oldest_unread_at timestamptz, -- when the oldest event was emitted that is committed and not in the feed
  out busy boolean                  -- whether the leader has pairs in memory, which have no row yet
) returns record
language plpgsql volatile parallel restricted
-- SECURITY DEFINER: tells how far the leader is, and nothing of anybody's events.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  select w.state, w.detail, w.queued > 0 or w.in_flight > 0
    into worker, detail, busy
    from webhook._worker() as w;
  select webhook._event_time(u.first_id)
    into oldest_unread_at
    from webhook._unread() as u;
end
$$;
comment on function webhook._feed_lag() is 'How far the leader is behind what is committed.';

create function webhook.feed_status(
  partner_id text,              -- whose feed
  cursor text default null,     -- where its reader stands; null = at the beginning
  test boolean default false    -- of test events, or of live ones
) returns table (
  state text,                   -- current, unread, behind or stopped
  detail text,                  -- the same in a sentence
  unread bigint,                -- events in the feed after the cursor; 10000 = that many or more
  oldest_unread_at timestamptz, -- when the first of them was published
  last_published_at timestamptz, -- when the newest event of the feed was published
  published_until timestamptz,  -- what was emitted before and is committed is in the feed
  first_cursor text,            -- where the feed begins
  last_cursor text              -- where it ends: a reader that begins here gets what is new
)
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  place record;
  newest record;
  lag record;
begin
  perform webhook._check_feed(partner_id, null, false);
  perform webhook._check_argument('test', test is null);
  lag := webhook._feed_lag();
  place := webhook._read_cursor(partner_id, cursor);
  select count(*), min(f.published_at)
    into unread, oldest_unread_at
    from (select f.published_at
            from webhook._seen_feed f
           where f.partner_id = feed_status.partner_id
             and f.pos > place.pos
             and f.test = feed_status.test
           order by f.pos
           limit 10000) as f;
  select f.pos, f.event_id, f.published_at
    into newest
    from webhook._seen_feed f
   where f.partner_id = feed_status.partner_id
   order by f.pos desc
   limit 1;
  if newest.pos is not null then
    -- It shows a position.
    perform webhook._make_durable();
  end if;
  last_published_at := newest.published_at;
  published_until := coalesce(
    lag.oldest_unread_at,
    case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() else statement_timestamp() end);
  first_cursor := webhook._cursor(partner_id, 0, null, statement_timestamp());
  last_cursor := webhook._cursor(
    partner_id, coalesce(newest.pos, 0), webhook._event_tag(newest.event_id), coalesce(newest.published_at, statement_timestamp()));
  if lag.worker not in ('running', 'standby') then
    state := 'stopped';
    detail := coalesce(lag.detail, format('The leader is %s.', lag.worker));
  elsif lag.oldest_unread_at < clock_timestamp() - interval '10 seconds' then
    state := 'behind';
    detail := format('The leader is behind: what was emitted since %s is not in the feed yet.', webhook._rfc3339(lag.oldest_unread_at));
  elsif unread > 0 then
    state := 'unread';
    detail := 'The reader is behind: the feed has events after its cursor.';
  else
    state := 'current';
    detail := 'The reader has everything.';
  end if;
  return next;
end
$$;
comment on function webhook.feed_status(text, text, boolean) is
  'How far the feed of a partner is behind what is committed, how far its reader is behind the feed, and why. Costs what the leader has not read, and at most 10000 rows of the feed.';

create function webhook.partner_status(
  partner_id text                  -- tenant
) returns table (
  state text,                      -- current, behind, incomplete, stopped or closed
  detail text,                     -- the same in a sentence
  synchronised_at timestamptz,     -- what was emitted before is settled at every endpoint
  last_published_at timestamptz,   -- when the newest event of the partner was published
  last_delivered_at timestamptz,   -- when an endpoint last answered with 2xx
  endpoints bigint,                -- endpoints that get events, test endpoints included
  waiting bigint,                  -- deliveries that wait for an attempt
  oldest_waiting_at timestamptz,   -- when the event of the oldest of them was emitted
  dead bigint                      -- deliveries that were given up and wait for a decision
)
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  lag record;
begin
  perform webhook._check_argument('partner_id', partner_id is null);
  lag := webhook._feed_lag();
  select count(*) filter (where e.state in ('active', 'paused', 'unverified')),
         coalesce(sum(w.waiting), 0),
         webhook._event_time(min(w.first_id)),
         coalesce(sum((select count(*) from webhook.dead_letters d where d.endpoint_id = e.endpoint_id)), 0),
         max(h.last_success_at)
    into endpoints, waiting, oldest_waiting_at, dead, last_delivered_at
    from webhook._seen_endpoint e
    left join webhook.endpoint_health h on h.endpoint_id = e.endpoint_id
   cross join lateral
         (select count(*) as waiting, min(u.event_id) as first_id
            from (select w.event_id from webhook._seen_due w where w.endpoint_id = e.endpoint_id and w.hold = 0
                   union all
                  select w.event_id from webhook._seen_due w where w.endpoint_id = e.endpoint_id and w.hold <> 0) as u) as w
   where e.partner_id = partner_status.partner_id;
  select f.published_at
    into last_published_at
    from webhook._seen_feed f
   where f.partner_id = partner_status.partner_id
   order by f.pos desc
   limit 1;
  -- What the leader has in memory gets a row within the first pass.
  synchronised_at := least(
    lag.oldest_unread_at,
    oldest_waiting_at,
    case
      when pg_is_in_recovery() then pg_last_xact_replay_timestamp()
      else statement_timestamp()
    end - case when lag.busy then 2 * coalesce(current_setting('webhook.first_pass_limit', true), '2s')::interval else interval '0' end);
  if lag.worker not in ('running', 'standby') then
    state := 'stopped';
    detail := coalesce(lag.detail, format('The leader is %s.', lag.worker));
  elsif endpoints = 0 then
    state := 'closed';
    detail := 'The partner has no endpoint that gets events.';
  elsif waiting > 0 or lag.oldest_unread_at < clock_timestamp() - interval '10 seconds' then
    state := 'behind';
    detail := case
      when waiting > 0 then format('%s deliveries wait for an attempt.', waiting)
      else 'The leader is behind with reading events.'
    end;
  elsif dead > 0 then
    state := 'incomplete';
    detail := format('%s deliveries were given up and wait for a decision.', dead);
  else
    state := 'current';
    detail := 'Everything is delivered.';
  end if;
  return next;
end
$$;
comment on function webhook.partner_status(text) is
  'How a partner stands: until when everything is settled at its endpoints, and what waits. Costs what waits for the partner and its dead letters.';

create function webhook.limits()
returns table (
  name text,         -- the limit
  value text,        -- as it is in force here
  since timestamptz, -- of a retention: what is older may be gone
  meaning text       -- in a sentence
)
language sql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
  select l.name,
         coalesce(nullif(current_setting('webhook.' || l.name, true), ''), l.otherwise),
         case when l.name like '%\_retention' then clock_timestamp() - webhook._kept_for('webhook.' || l.name, l.otherwise::interval) end,
         l.meaning
    from (values
      ('event_retention', '90d', 'How long events and the feed are kept: as far back events_after and export_events reach, and as long a cursor is valid.'),
      ('delivery_retention', '60d', 'How long deliveries are kept: as far back replay_range reaches.'),
      ('attempt_retention', '30d', 'How long attempts are kept.'),
      ('inbox_retention', '120d', 'How long received messages are known, so that one that comes again is recognised.'),
      ('audit_retention', '365d', 'How long the audit log is kept.'),
      ('alert_retention', '90d', 'How long alerts are kept.'),
      ('idempotency_window', '24h', 'How long an idempotency key stands for its event.'),
      ('retry_schedule', '', 'Waits between the attempts of a delivery, where no policy says otherwise.'),
      ('retry_after_max', '24h', 'Longest wait that a receiver can ask for.'),
      ('disable_after', '5d', 'An endpoint without a success for so long is disabled.'),
      ('rotation_overlap', '24h', 'How long a replaced secret goes on signing.'),
      ('max_payload', '256kB', 'Largest payload of an event.'),
      ('max_response_excerpt', '4kB', 'How much of a response is kept.'),
      ('max_endpoints_per_partner', '50', 'Endpoints of one partner.')) as l (name, otherwise, meaning)
   union all
  select l.name, l.value, null, l.meaning
    from (values
      ('events_per_page', '1000', 'Most events that one call of events_after returns.'),
      ('rows_per_page', '5000', 'Most rows of the feed that one call of events_after looks at.')) as l (name, value, meaning)
$$;
comment on function webhook.limits() is 'Retention, windows and sizes as they are in force: what can still be read, replayed and sent. One row for each.';
