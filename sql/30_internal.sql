-- What the rest of the script calls: the Rust functions that are not public, small SQL helpers and
-- the checks that several functions share. One condition, one check, one message.
-- C functions carry no "set search_path": they qualify every name in the statements they run, and the
-- clause would cost each call of emit more than the checks it makes.

create function webhook._origin()
returns bigint -- origin of this database
language c stable parallel safe
as 'MODULE_PATHNAME', 'origin_wrapper';
comment on function webhook._origin() is
  'Which database this is: hash of system identifier, database, extension and webhook.node_name.';

create function webhook._new_id()
returns bigint
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'new_id_wrapper';
comment on function webhook._new_id() is 'Time-ordered random id for endpoints, keys, requests and audit entries; those of one session rise.';

create function webhook._check_url(
  url text -- callback URL as the user wrote it
) returns text -- its canonical form
language c stable strict parallel unsafe
as 'MODULE_PATHNAME', 'check_url_wrapper';
comment on function webhook._check_url(text) is 'Canonical form of a callback URL; an error when the boundary refuses it.';

create function webhook._check_schedule(
  schedule text -- retry schedule as the user wrote it
) returns text -- the same
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'check_schedule_wrapper';
comment on function webhook._check_schedule(text) is 'Refuses a retry schedule that cannot be followed.';

create function webhook._valid_pattern(
  pattern text -- event type, "customer.*" or "*"
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'valid_pattern_wrapper';
comment on function webhook._valid_pattern(text) is 'Whether a text is an event type or a wildcard.';

create function webhook._valid_type(
  type text -- event type
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'valid_type_wrapper';
comment on function webhook._valid_type(text) is 'Whether a text is an event type.';

create function webhook._valid_partner(
  partner_id text -- partner id
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'valid_partner_wrapper';
comment on function webhook._valid_partner(text) is 'Whether a text is a partner id.';

create function webhook._wake()
returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'wake_wrapper';
comment on function webhook._wake() is 'Wakes the leader of this database when the transaction commits.';

create function webhook._event_time(
  event_id text -- event id
) returns timestamptz -- null when the text is no event id
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'event_time_wrapper';
comment on function webhook._event_time(text) is 'When an event was emitted, read from its id.';

create function webhook._event_bound(
  at timestamptz -- moment
) returns text -- smallest event id of its millisecond
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'event_bound_wrapper';
comment on function webhook._event_bound(timestamptz) is 'Smallest event id of a moment; turns times into ranges of event_id.';

create function webhook._pos_bound(
  at timestamptz -- moment
) returns bigint -- smallest feed position of its millisecond
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'pos_bound_wrapper';
comment on function webhook._pos_bound(timestamptz) is 'Smallest feed position of a moment; turns times into ranges of pos.';

create function webhook._worker(
  out database text,            -- this database
  out state text,               -- what the leader does, or why there is none
  out detail text,              -- the same in a sentence
  out hint text,                -- what to do about it
  out pid integer,              -- process of the leader
  out started_at timestamptz,   -- when it started
  out incarnation bigint,       -- which life of the leader this is
  out last_loop_at timestamptz, -- when its loop last came round
  out restarts integer,         -- starts after the first one
  out threads integer,          -- HTTP threads
  out in_flight integer,        -- requests on the wire
  out queued bigint,            -- pairs in memory that are not sent yet
  out open_batches integer,     -- batches opened and not closed
  out delivered bigint,         -- 2xx answers since it started
  out failed bigint,            -- failed attempts since it started
  out lost bigint,              -- attempts found in doubt at its start
  out fenced bigint,            -- events it refused to send since it started
  out last_error text,          -- last error of the leader itself
  out library_version text,     -- version of the loaded library
  out extension_version text    -- version of the installed extension
) returns setof record -- one row
language c volatile parallel restricted rows 1
as 'MODULE_PATHNAME', 'worker_wrapper';
comment on function webhook._worker() is 'State of the leader of this database, from shared memory; behind stat_worker.';

create function webhook._delivery_id(
  event_id text,      -- the event
  endpoint_id bigint  -- the endpoint
) returns text -- dlv_..., null when either is null
language sql immutable parallel safe
-- Parsed when it is created, so the caller's search_path cannot reach it, and still inlined into views.
return 'dlv_' || substr(event_id, 5) || '_' || endpoint_id;
comment on function webhook._delivery_id(text, bigint) is 'Delivery id of an event and an endpoint.';

create function webhook._parse_delivery_id(
  delivery_id text,      -- dlv_...
  out event_id text,     -- the event, null when the text is no delivery id
  out endpoint_id bigint -- the endpoint, null when the text is no delivery id
) returns record
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- Nineteen digits may exceed bigint: compared as text first, and in a CASE, because the planner folds a
  -- cast of a constant whatever WHERE says.
  select case when p.fits then 'evt_' || p.part[1] end,
         case when p.fits then p.part[2]::bigint end
    from (select m.part,
                 length(m.part[2]) < 19 or m.part[2] collate "C" <= '9223372036854775807' as fits
            from regexp_match(delivery_id collate "C", '^dlv_([0-7][0-9A-HJKMNP-TV-Z]{25})_([1-9][0-9]{0,18})$') as m (part)) as p
$$;
comment on function webhook._parse_delivery_id(text) is 'The two ids that a delivery id is made of.';

create function webhook._redact(
  body text -- what a receiver answered
) returns text -- the same without what looks like a secret
language c stable strict parallel safe
as 'MODULE_PATHNAME', 'redact_wrapper';
comment on function webhook._redact(text) is
  'Hides control characters and what looks like a secret, webhook.redact_keys included; the rule that the leader applies before it stores an excerpt.';

create function webhook._check_argument(
  name text,      -- name of the argument
  missing boolean -- whether it is null
) returns void
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if missing then
    raise exception using
      errcode = 'null_value_not_allowed',
      message = format('argument "%s" must not be null', name);
  end if;
end
$$;
comment on function webhook._check_argument(text, boolean) is 'Refuses NULL where it makes no sense.';

create function webhook._check_writable(
  act text -- what the caller wants to do, "create an endpoint"
) returns void
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if current_setting('transaction_read_only')::boolean then
    raise exception using
      errcode = 'read_only_sql_transaction',
      message = format('cannot %s in a read-only transaction', act),
      hint = case
        when pg_is_in_recovery() then 'This server is a standby. Connect to the primary.'
        else 'Use a transaction with READ WRITE access.'
      end;
  end if;
end
$$;
comment on function webhook._check_writable(text) is 'Refuses read-only transactions with a hint, before anything is written.';

create function webhook._check_reason(
  reason text -- why, in the user's words
) returns text -- the same without surrounding blanks
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('reason', reason is null);
  reason := btrim(reason, E' \t\r\n');
  if reason = '' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'reason must not be empty',
      hint = 'Say in a few words why: the text is shown beside what it concerns, and in the audit log.';
  end if;
  if length(reason) > 1000 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'reason is too long',
      detail = format('It has %s characters; the limit is 1000.', length(reason));
  end if;
  return reason;
end
$$;
comment on function webhook._check_reason(text) is 'Refuses a missing, empty or overlong reason.';

create function webhook._rfc3339(
  at timestamptz -- moment
) returns text -- the same in UTC as RFC 3339 writes it, with microseconds
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;
comment on function webhook._rfc3339(timestamptz) is 'A time as lifecycle events give it.';
