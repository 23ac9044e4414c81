-- How a feed, its readers and a partner stand, and what the limits are here. SECURITY INVOKER, like the feed itself; how far
-- the leader is behind is told by _feed_lag alone.

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
  -- In this order: what is read meanwhile is in memory by the time that the leader is asked.
  select webhook._event_time(u.first_id)
    into oldest_unread_at
    from webhook._unread() as u;
  select w.state, w.detail, w.queued > 0 or w.in_flight > 0
    into worker, detail, busy
    from webhook._worker() as w;
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
