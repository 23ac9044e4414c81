-- Internals of the receiving side: what is written in Rust (src/pg/receive.rs, src/pg/inbox_keys.rs), and small checks.

create function webhook._inspect_received(
  source_id bigint,            -- the inbox source; the rest of its row follows
  profile text,                -- its signature profile
  tolerance bigint,            -- its tolerance in seconds
  partner_id text,             -- its tenant
  partner_from text,           -- where the tenant stands
  partners text[],             -- tenants that may be named
  id_from text,                -- where the event id stands
  type_from text,              -- where the type stands
  enforce boolean,             -- whether the payload must match its schema
  headers jsonb,               -- headers of the request
  body bytea,                  -- its body
  method text,                 -- its method
  url text,                    -- where it went
  out refusal text,            -- why it is refused; null = it is not
  out http_status integer,     -- status of a refusal
  out event_id text,           -- the event
  out event_partner_id text,   -- its tenant
  out event_type text,         -- its type
  out subject_type text,       -- kind of its subject
  out subject_id text,         -- identity of its subject
  out subject_version bigint,  -- version of its subject
  out schema_version text,     -- version of its payload's schema
  out correlation_id text,     -- what ties it to others
  out signed_at bigint,        -- when it was signed, Unix seconds
  out answer text              -- to a challenge: the body of the answer
) returns setof record -- one row
language c volatile parallel unsafe rows 1
as 'MODULE_PATHNAME', 'inspect_received_wrapper';
comment on function webhook._inspect_received(bigint, text, bigint, text, text, text[], text, text, boolean, jsonb, bytea, text, text) is
  'Verifies a request with the keys of its source, and reads which event it is.';

create function webhook._check_locator(
  name text,    -- name of the argument
  profile text, -- signature profile of the source
  locator text  -- header:, body: or digest
) returns text -- its canonical form
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'check_locator_wrapper';
comment on function webhook._check_locator(text, text, text) is 'Refuses a place in a request that cannot be looked at, or that nobody signs.';

create function webhook._hold_inbox_key(
  key_id bigint, -- id of the key
  profile text,  -- signature profile of its source
  key text       -- the key; null = a new one is made
) returns text -- its kind: hmac-sha256, ed25519 or text
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'hold_inbox_key_wrapper';
comment on function webhook._hold_inbox_key(bigint, text, text) is
  'Refuses what is no key, and keeps a good one in this session until _held_inbox_key. A new one is handed out by _take_secret.';

create function webhook._held_inbox_key(
  key_id bigint,   -- id of the key
  source_id bigint -- its source
) returns bytea -- the key, as it is stored; once
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'held_inbox_key_wrapper';
comment on function webhook._held_inbox_key(bigint, bigint) is 'The key that _hold_inbox_key holds, encrypted like _make_secret does.';

create function webhook._reencrypted_inbox_key(
  key_id bigint,    -- id of the key
  source_id bigint, -- its source
  stored bytea      -- the key as it is stored
) returns bytea -- the same under the current master key; null when it cannot be decrypted
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'reencrypted_inbox_key_wrapper';
comment on function webhook._reencrypted_inbox_key(bigint, bigint, bytea) is 'A key of an inbox source as it would be stored today.';

create function webhook._schedule_wait(
  schedule text,  -- waits between attempts
  attempt integer -- number of the attempt that failed
) returns bigint -- milliseconds until the next one; null = there is none
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'schedule_wait_wrapper';
comment on function webhook._schedule_wait(text, integer) is 'How long to wait after an attempt.';

create function webhook._count_inbox(
  source_id bigint, -- the source
  result text,      -- what is counted
  reason text       -- why, or the handler; empty = neither
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  today constant date := (clock_timestamp() at time zone 'UTC')::date;
  free integer;
begin
  -- A row that no other session holds, or a new one: nobody waits, and there are as many as sessions at work at once.
  select c.slot
    into free
    from webhook._inbox_count c
   where c.source_id = _count_inbox.source_id
     and c.day = today
     and c.result = _count_inbox.result
     and c.reason = _count_inbox.reason
   limit 1
     for update skip locked;
  if found then
    update webhook._inbox_count c
       set total = c.total + 1,
           last_at = clock_timestamp()
     where c.source_id = _count_inbox.source_id
       and c.day = today
       and c.result = _count_inbox.result
       and c.reason = _count_inbox.reason
       and c.slot = free;
    return;
  end if;
  -- The slot means nothing: a number of this session's own might be a row that another one holds just now.
  insert into webhook._inbox_count (source_id, day, result, reason, slot, total)
  values (_count_inbox.source_id, today, _count_inbox.result, _count_inbox.reason, 1 + floor(random() * 2000000000)::integer, 1)
  on conflict on constraint _inbox_count_pkey do nothing;
end
$$;
comment on function webhook._count_inbox(bigint, text, text) is 'Counts what receive() answered, or what a handler reported.';

create function webhook._inbox_source_named(
  name text -- name of an inbox source
) returns webhook._inbox_source -- the source, locked against other changes
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_source;
begin
  perform webhook._check_argument('source', name is null);
  select s.*
    into known
    from webhook._inbox_source s
   where s.name = _inbox_source_named.name
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('inbox source "%s" does not exist', left(name, 128)),
      hint = 'See webhook.inbox_sources.';
  end if;
  return known;
end
$$;
comment on function webhook._inbox_source_named(text) is 'An inbox source that is about to be changed.';

create function webhook._inbox_handler_named(
  name text -- name of a handler
) returns webhook._inbox_handler -- the handler, locked against other changes
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_handler;
begin
  perform webhook._check_argument('handler', name is null);
  select h.*
    into known
    from webhook._inbox_handler h
   where h.name = _inbox_handler_named.name
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('inbox handler "%s" does not exist', left(name, 128)),
      hint = 'See webhook.inbox_handlers.';
  end if;
  return known;
end
$$;
comment on function webhook._inbox_handler_named(text) is 'A handler that is about to be changed.';

create function webhook._handles(
  handler webhook._inbox_handler, -- a handler
  source text,                    -- inbox source of an event
  type text                       -- its type; null = it has none
) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select (handler.sources is null or source = any (handler.sources))
     and exists (
           select from unnest(handler.event_types) as p (pattern)
            where case
                    when p.pattern = '*' then coalesce(type not like 'webhook.%', true)
                    when p.pattern like '%.*' then length(type) >= length(p.pattern) and starts_with(type, left(p.pattern, -1))
                    else p.pattern = type
                  end)
$$;
comment on function webhook._handles(webhook._inbox_handler, text, text) is 'Whether a handler wants an event; the rules of endpoints, see type_matches in src/rules/matching.rs.';

create function webhook._check_inbox_name(
  argument text, -- name of the argument
  name text      -- name of a source, a handler or a version
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument(argument, name is null);
  if name !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('argument "%s" is not valid', argument),
      detail = 'It has 1 to 64 characters of A-Z, a-z, 0-9, "_", "." and "-", and begins with a letter or digit.';
  end if;
end
$$;
comment on function webhook._check_inbox_name(text, text) is 'Refuses a name that is none.';

create function webhook._check_inbox_limits(
  tolerance interval,     -- of the time of signing
  validation text,        -- off or enforce
  max_body integer,       -- bytes
  max_pending integer,    -- unfinished events
  max_per_minute integer  -- accepted events; null = no limit
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  given record;
begin
  if not (tolerance >= interval '0' and tolerance <= interval '1 day') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'tolerance is outside the valid range',
      detail = 'It is 0 to 1 day: whatever is signed may be repeated for that long.';
  end if;
  if validation not in ('off', 'enforce') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('validation "%s" does not exist', left(validation, 64)),
      hint = 'It is off or enforce.';
  end if;
  for given in
    select *
      from (values ('max_body', max_body, 67108864), ('max_pending', max_pending, 1000000), ('max_per_minute', max_per_minute, 1000000))
           as v (name, value, high)
     where v.value not between 1 and v.high
  loop
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('%s is outside the valid range', given.name),
      detail = format('It is %s; the range is 1 to %s.', given.value, given.high);
  end loop;
end
$$;
comment on function webhook._check_inbox_limits(interval, text, integer, integer, integer) is 'Refuses limits of an inbox source that make no sense.';

create function webhook._is_signed(
  profile text, -- signature profile
  locator text  -- where a value stands in a request; null = in the body
) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- Under the other profiles a header that no signature covers is not read at all (src/rules/inbound.rs).
  select not (coalesce(locator, '') like 'header:%' and profile in ('github', 'github-sha1', 'shopify', 'stripe', 'slack'))
$$;
comment on function webhook._is_signed(text, text) is 'Whether a signature vouches for what stands there.';
