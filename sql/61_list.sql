-- Look-ups that a view cannot answer from an index, and the excerpt of one response.
-- The lists go backwards day by day and stop at the page's end: one query over all days would open every
-- partition, and a filter would make it read each of them to its first match.
-- They run with the rights of their caller and read the views only: a partner's role gets its own rows from them, and
-- the id of a foreign row is answered like one that does not exist.

create function webhook._check_page(
  since timestamptz, -- lower end of the time range
  until timestamptz, -- upper end of the time range
  max_rows integer   -- rows asked for
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('max_rows', max_rows is null);
  if max_rows not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'max_rows is outside the valid range',
      detail = format('It is %s; the range is 1 to 1000.', max_rows),
      hint = 'Ask for the next page with "before".';
  end if;
  if since > until then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = '"since" is later than "until"';
  end if;
end
$$;
comment on function webhook._check_page(timestamptz, timestamptz, integer) is 'Refuses page sizes outside the range and time ranges that end before they begin.';

create function webhook._first_day()
returns timestamptz -- UTC midnight at or before the oldest event
language plpgsql stable parallel safe
-- SECURITY DEFINER: the oldest event of all, found at the end of an index; it tells a day and no more.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  return date_trunc('day', coalesce(webhook._event_time(min(e.event_id)), clock_timestamp()), 'UTC')
    from webhook._event e;
end
$$;
comment on function webhook._first_day() is 'Where a walk backwards through the days may stop.';

create function webhook.list_events(
  partner_id text default null,    -- tenant; null = all, then type is needed
  type text default null,          -- event type; null = all, then partner_id is needed
  since timestamptz default null,  -- published at this time or later
  until timestamptz default null,  -- published before this time
  before text default null,        -- event_id of the last row of the page before; null = first page
  max_rows integer default 100     -- 1 to 1000
) returns setof webhook.events
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  page text[] := '{}';
  piece text[];
  floor_at timestamptz;
  floor_pos bigint;
  day timestamptz := date_trunc('day', least(until, clock_timestamp()), 'UTC');
  low bigint;
  high bigint := 9223372036854775807;
begin
  perform webhook._check_page(since, until, max_rows);
  if partner_id is null and type is null then
    raise exception using
      errcode = 'null_value_not_allowed',
      message = 'partner_id or type must not be null',
      hint = 'For events of all partners and types, read the view webhook.events in the order of event_id.';
  end if;
  floor_at := least(greatest(since, webhook._first_day()), clock_timestamp() + interval '1 day');
  floor_pos := webhook._pos_bound(floor_at);
  if until < clock_timestamp() then
    high := webhook._pos_bound(greatest(until, floor_at));
  end if;
  if before is not null then
    select least(high, p.pos), date_trunc('day', least(day, p.published_at), 'UTC')
      into high, day
      from webhook.events e
     cross join lateral webhook._publication(e.partner_id, e.event_id) as p
     where e.event_id = before
       and p.pos is not null;
    if not found then
      raise exception using
        errcode = 'undefined_object',
        message = format('event "%s" does not exist', left(before, 128)),
        hint = 'Pass the event_id of the last row of the page before.';
    end if;
  end if;

  while high > floor_pos and cardinality(page) < max_rows loop
    low := greatest(webhook._pos_bound(greatest(day, floor_at)), floor_pos);
    if partner_id is not null then
      select array_agg(p.event_id)
        into piece
        from (select f.event_id
                from webhook._seen_feed f
               where f.partner_id = list_events.partner_id
                 and f.pos >= low
                 and f.pos < high
                 and (list_events.type is null or f.type = list_events.type)
               order by f.pos desc
               limit max_rows - cardinality(page)) as p;
    else
      select array_agg(p.event_id)
        into piece
        from (select f.event_id
                from webhook._seen_feed f
               where f.type = list_events.type
                 and f.pos >= low
                 and f.pos < high
               order by f.pos desc
               limit max_rows - cardinality(page)) as p;
    end if;
    page := page || piece;
    high := low;
    day := day - interval '1 day';
  end loop;

  return query
  select v.*
    from unnest(page) with ordinality as p (event_id, place)
    join webhook.events v on v.event_id = p.event_id
   order by p.place;
end
$$;
comment on function webhook.list_events(text, text, timestamptz, timestamptz, text, integer) is
  'Events of a partner, of a type, or of both, in the order of publication, newest first. Events that the leader has not read yet are not in it.';

create function webhook.list_deliveries(
  partner_id text default null,     -- tenant; null = all, then one of the next three is needed
  endpoint_id bigint default null,  -- endpoint; null = all
  state text default null,          -- state; null = all; "delivered" alone is not enough
  delivery_id text default null,    -- this delivery alone
  since timestamptz default null,   -- of events emitted at this time or later
  until timestamptz default null,   -- of events emitted before this time
  before text default null,         -- delivery_id of the last row of the page before; null = first page
  max_rows integer default 100      -- 1 to 1000
) returns setof webhook.deliveries
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  page_events text[] := '{}';
  page_endpoints bigint[] := '{}';
  piece_events text[];
  piece_endpoints bigint[];
  endpoints bigint[];
  floor_at timestamptz;
  floor_id text;
  day timestamptz := date_trunc('day', least(until, clock_timestamp()), 'UTC');
  low text;
  high text := 'evt_8'; -- above every event id
  last_event text;
  last_endpoint bigint;
  open_state boolean := state <> 'delivered';
begin
  perform webhook._check_page(since, until, max_rows);
  if state not in ('pending', 'retrying', 'delivered', 'dead', 'cancelled', 'skipped', 'closed') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('delivery state "%s" does not exist', left(state, 128)),
      hint = 'The states are pending, retrying, delivered, dead, cancelled, skipped and closed.';
  end if;
  if delivery_id is not null then
    return query
    select v.*
      from webhook._parse_delivery_id(delivery_id) as p
      join webhook.deliveries v on v.event_id = p.event_id and v.endpoint_id = p.endpoint_id
     where (list_deliveries.partner_id is null or v.partner_id = list_deliveries.partner_id)
       and (list_deliveries.endpoint_id is null or v.endpoint_id = list_deliveries.endpoint_id)
       and (list_deliveries.state is null or v.state = list_deliveries.state);
    return;
  end if;
  if partner_id is null and endpoint_id is null and open_state is not true then
    raise exception using
      errcode = 'null_value_not_allowed',
      message = 'partner_id, endpoint_id or a state other than delivered must be given',
      hint = 'For the deliveries of one event, filter the view webhook.deliveries by event_id.';
  end if;
  floor_at := least(greatest(since, webhook._first_day()), clock_timestamp() + interval '1 day');
  floor_id := webhook._event_bound(floor_at);
  if until < clock_timestamp() then
    high := webhook._event_bound(greatest(until, floor_at));
  end if;
  if before is not null then
    select p.event_id, p.endpoint_id
      into last_event, last_endpoint
      from webhook._parse_delivery_id(before) as p;
    if last_event is null then
      raise exception using
        errcode = 'undefined_object',
        message = format('delivery "%s" does not exist', left(before, 128)),
        hint = 'Pass the delivery_id of the last row of the page before.';
    end if;
    high := least(high, last_event || '0');
    day := date_trunc('day', least(day, webhook._event_time(last_event)), 'UTC');
  end if;
  if partner_id is not null then
    select coalesce(array_agg(e.endpoint_id), '{}')
      into endpoints
      from webhook._seen_endpoint e
     where e.partner_id = list_deliveries.partner_id
       and (list_deliveries.endpoint_id is null or e.endpoint_id = list_deliveries.endpoint_id);
  elsif endpoint_id is not null then
    endpoints := array[endpoint_id];
  end if;

  while high > floor_id and cardinality(page_events) < max_rows loop
    low := greatest(webhook._event_bound(greatest(day, floor_at)), floor_id);
    if open_state then
      -- "<> delivered" is written out, because the partial index needs it when the plan is made.
      select array_agg(p.event_id), array_agg(p.endpoint_id)
        into piece_events, piece_endpoints
        from (select d.event_id, d.endpoint_id
                from webhook._seen_delivery d
               where d.state = list_deliveries.state
                 and d.state <> 'delivered'
                 and d.event_id >= low
                 and d.event_id < high
                 and (last_event is null or (d.event_id, d.endpoint_id) < (last_event, last_endpoint))
                 and (endpoints is null or d.endpoint_id = any (endpoints))
               order by d.event_id desc, d.endpoint_id desc
               limit max_rows - cardinality(page_events)) as p;
    else
      select array_agg(p.event_id order by p.event_id desc, p.endpoint_id desc),
             array_agg(p.endpoint_id order by p.event_id desc, p.endpoint_id desc)
        into piece_events, piece_endpoints
        from (select d.event_id, d.endpoint_id
                from unnest(endpoints) as e (endpoint_id)
               cross join lateral
                     (select d.event_id, d.endpoint_id
                        from webhook._seen_delivery d
                       where d.endpoint_id = e.endpoint_id
                         and d.event_id >= low
                         and d.event_id < high
                         and (last_event is null or (d.event_id, d.endpoint_id) < (last_event, last_endpoint))
                         and (list_deliveries.state is null or d.state = list_deliveries.state)
                       order by d.event_id desc
                       limit max_rows - cardinality(page_events)) as d
               order by d.event_id desc, d.endpoint_id desc
               limit max_rows - cardinality(page_events)) as p;
    end if;
    page_events := page_events || piece_events;
    page_endpoints := page_endpoints || piece_endpoints;
    high := low;
    day := day - interval '1 day';
  end loop;

  return query
  select v.*
    from rows from (unnest(page_events), unnest(page_endpoints)) with ordinality as p (event_id, endpoint_id, place)
    join webhook.deliveries v on v.event_id = p.event_id and v.endpoint_id = p.endpoint_id
   order by p.place;
end
$$;
comment on function webhook.list_deliveries(text, bigint, text, text, timestamptz, timestamptz, text, integer) is
  'Deliveries of a partner, of an endpoint, in a state, or one alone; newest event first. The times are those of the events.';

create function webhook.read_excerpt(
  delivery_id text,  -- the delivery
  attempt_no integer -- number of the attempt
) returns text -- beginning of the response body, redacted; null when none was kept
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  pair record;
  excerpt text;
begin
  perform webhook._check_argument('delivery_id', delivery_id is null);
  perform webhook._check_argument('attempt_no', attempt_no is null);
  select p.event_id, p.endpoint_id
    into pair
    from webhook._parse_delivery_id(delivery_id) as p
    join webhook._seen_delivery d on d.event_id = p.event_id and d.endpoint_id = p.endpoint_id
   where attempt_no between 1 and d.attempt_count;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('attempt %s of delivery "%s" does not exist', attempt_no, left(delivery_id, 128));
  end if;
  select x.body
    into excerpt
    from webhook._seen_excerpt x
   where x.event_id = pair.event_id
     and x.endpoint_id = pair.endpoint_id
     and x.attempt_no = read_excerpt.attempt_no;
  return excerpt;
end
$$;
comment on function webhook.read_excerpt(text, integer) is
  'Beginning of what the receiver answered to an attempt. Control characters and what looks like a secret are hidden.';
