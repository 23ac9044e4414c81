-- The cursor of the feed. The feed itself is _feed, which the leader writes: one row per event of a partner, in the
-- order in which the leader read them. One process writes it, one transaction after the other, with positions that only
-- grow: whoever sees a row sees every earlier one. So a cursor is the place of the last row read, and there is no stall.
-- Nothing is kept for a reader. A cursor names its row, by position and by event, so that it can be judged when it
-- comes back: the row is there, or it is too old, or the cursor is of another feed.

create function webhook._make_durable()
returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'make_durable_wrapper';
comment on function webhook._make_durable() is
  'Returns when what the snapshot in use can see is on disk: a crash takes back nothing that the feed has shown.';

create function webhook._is_type_among(
  type text,      -- event type
  patterns text[] -- event types, "customer.*" and "*"
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'is_type_among_wrapper';
comment on function webhook._is_type_among(text, text[]) is 'Whether an event type is one of these types and wildcards; the rule by which endpoints subscribe.';

-- SECURITY INVOKER: it judges current_user; the look-up alone runs as the owner.
create function webhook._feed_data(
  partner_id text, -- whose feed
  event_id text    -- the event; null = only judge the right
) returns text -- "data" byte for byte; null when it is expunged
language c stable parallel restricted
as 'MODULE_PATHNAME', 'feed_data_wrapper';
comment on function webhook._feed_data(text, text) is 'Payload of an event of a feed, for a role with a right of kind feed for that partner.';

create function webhook._kept_for(
  setting text,      -- a setting of retention
  otherwise interval -- where the library does not know it
) returns interval -- null = for ever
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select nullif(greatest(coalesce(nullif(current_setting(setting, true), '')::interval, otherwise), interval '0'), interval '0')
$$;
comment on function webhook._kept_for(text, interval) is 'How long something is kept by a setting.';

create function webhook._feed_floor()
returns bigint -- position
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- Retention takes whole days, so what is left of the day in which it ends is still there.
  select coalesce(webhook._pos_bound(date_trunc('day', clock_timestamp() - webhook._kept_for('webhook.event_retention', '90 days'), 'UTC')), 0)
$$;
comment on function webhook._feed_floor() is 'From this position on nothing of the feed has been removed by retention.';

create function webhook._range_bound(
  at timestamptz,  -- beginning or end of a range; null = open
  otherwise bigint -- position where it is open
) returns bigint -- position
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- Positions have room for the times from 2025 to 2094.
  select case
    when at is null then otherwise
    else webhook._pos_bound(least(greatest(at, timestamptz '2025-01-01 00:00:00+00'), timestamptz '2094-01-01 00:00:00+00'))
  end
$$;
comment on function webhook._range_bound(timestamptz, bigint) is 'Position at which a range of time begins or ends.';

create function webhook._known_origin(
  origin bigint -- a database that gave a cursor
) returns boolean
language sql stable parallel safe
-- SECURITY DEFINER: tells of a number whether it is this database's or that of one whose copy this is.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select origin = webhook._origin()
         or exists (select from webhook._seal_key k where k.origin = _known_origin.origin)
         or exists (select from webhook._adoption a where a.adopter = _known_origin.origin)
$$;
comment on function webhook._known_origin(bigint) is 'Whether a database is this one, or one that this one is a copy of.';

create function webhook._cursor_check(
  partner_id text, -- whose feed
  facts text       -- the rest of the cursor
) returns text -- eight hexadecimal digits
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select left(encode(sha256(convert_to('webhook feed 1 ' || partner_id || ' ' || facts, 'UTF8')), 'hex'), 8)
$$;
comment on function webhook._cursor_check(text, text) is 'Finds out cursors that were mangled, or belong to another partner. No secret: a cursor gives no right.';

create function webhook._event_tag(
  event_id text -- the event
) returns text -- eight hexadecimal digits
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select left(encode(sha256(convert_to(event_id, 'UTF8')), 'hex'), 8)
$$;
comment on function webhook._event_tag(text) is 'What a cursor says of the event that it stands for.';

create function webhook._cursor(
  partner_id text,     -- whose feed
  pos bigint,          -- the last row that was read; 0 = none
  tag text,            -- of its event; null = none
  read_at timestamptz  -- up to when the reader knows all there was
) returns text -- feed1_ and 58 hexadecimal digits
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select 'feed1_' || f.facts || webhook._cursor_check(partner_id, f.facts)
    from (select lpad(to_hex(webhook._origin()), 16, '0')
                 || lpad(to_hex(pos), 16, '0')
                 || lpad(to_hex(extract(epoch from read_at)::bigint), 10, '0')
                 || coalesce(tag, '00000000') as facts) as f
$$;
comment on function webhook._cursor(text, bigint, text, timestamptz) is
  'A cursor: version, database, position, the second up to which nothing was missed, a part of a hash of the event, a checksum.';

create function webhook._read_cursor(
  partner_id text,        -- whose feed
  cursor text,            -- what the feed gave; null = from the oldest event on
  out pos bigint,         -- what follows it is unread
  out tag text,           -- of the event there
  out read_at timestamptz -- up to when the reader knows all there was; null = never read
) returns record
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  part text[];
  kept constant interval := webhook._kept_for('webhook.event_retention', '90 days');
  floor_pos bigint;
begin
  pos := 0;
  if cursor is null then
    return;
  end if;
  part := regexp_match(cursor collate "C", '^feed1_([0-9a-f]{16})([0-9a-f]{16})([0-9a-f]{10})([0-9a-f]{8})([0-9a-f]{8})$');
  if part is null or part[5] <> webhook._cursor_check(partner_id, part[1] || part[2] || part[3] || part[4]) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('cursor is not valid for partner "%s"', left(partner_id, 128)),
      detail = case
        when part is not null then 'It was changed on its way, or it belongs to another partner.'
        when cursor ~ '^feed[0-9]+_' then 'It is of another version, or was cut short or changed on its way.'
        else 'It is none that a feed has given.'
      end,
      hint = 'Pass the cursor of the last row that was read, as it is; null for the beginning of the feed.';
  end if;
  pos := ('x' || part[2])::bit(64)::bigint;
  tag := part[4];
  read_at := to_timestamp(('x' || part[3])::bit(40)::bigint);
  if pos > 0 then
    perform
       from webhook._seen_feed f
      where f.partner_id = _read_cursor.partner_id
        and f.pos = _read_cursor.pos
        and webhook._event_tag(f.event_id) = part[4];
    if found then
      -- Retention begins at the old end: with the row there, all that follows it is there.
      return;
    end if;
  end if;
  if not webhook._known_origin(('x' || part[1])::bit(64)::bigint) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'cursor is of another database',
      hint = 'Read from the beginning (null), or find the time with webhook.export_events.';
  end if;
  floor_pos := webhook._feed_floor();
  -- A partner that had no event for long: its last row is gone, and nothing came after it while the reader looked. An
  -- hour for clocks, and for what was on its way into the feed when it was read.
  if pos < floor_pos and (read_at - interval '1 hour' >= clock_timestamp() - kept or kept is null) then
    return;
  end if;
  if pos < floor_pos
     or (pos > 0 and not exists (select from webhook._seen_feed f where f.partner_id = _read_cursor.partner_id and f.pos < _read_cursor.pos))
  then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = 'cursor has expired',
      detail = format('Events that followed it may have been removed: the feed is kept for %s. The oldest valid cursor is %s.',
                      coalesce(kept::text, 'ever'), webhook._cursor(partner_id, 0, null, clock_timestamp())),
      hint = 'Compare your data with the source once, then read on with the oldest valid cursor.';
  end if;
  raise exception using
    errcode = 'object_not_in_prerequisite_state',
    message = 'cursor is ahead of this feed',
    detail = 'The event that it stands for is not there: it was read from another copy of the database, or before a restore of an older state.',
    hint = 'Find a cursor from before that with webhook.export_events, and expect events that were read already.';
end
$$;
comment on function webhook._read_cursor(text, text) is 'Where a cursor stands; an error when it is none, is of another feed or partner, or has expired.';
