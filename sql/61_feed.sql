-- Reading the feed: pages after a cursor, and a time range in one go. How it stands is in 65_feed_status.sql.
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
