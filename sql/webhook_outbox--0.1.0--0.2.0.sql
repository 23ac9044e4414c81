-- Brings version 0.1.0 to 0.2.0. See CHANGELOG.md for whether the server has to be restarted first.
\echo Use "ALTER EXTENSION webhook_outbox UPDATE TO '0.2.0'" to load this file. \quit

-- Alerts of before are not told again.
alter table webhook._alert add column notified boolean not null default true;
alter table webhook._alert alter column notified set default false;

alter table webhook._inbox drop constraint _inbox_event;
alter table webhook._inbox add constraint _inbox_event unique (source_id, event_id, partner_id);

alter table webhook._replay_progress add column expired bigint not null default 0;

-- Written by pg_test/upgrade/write.py from here on; what it cannot derive stands above.

drop view webhook.inbox_sources;

drop view webhook.replays;

drop function webhook.status();

drop view webhook.stat_queue;

drop function webhook._unread();

drop function webhook._registered_checks();

drop function webhook._trim_inbox(integer);

drop function webhook._received_of(text, text, text);

drop function webhook.close_inbox(text, text, text, text);

drop function webhook.retry_inbox(text, text, text, text);

drop function webhook._inbox_run_of(text, text, text);

drop function webhook.read_payload(text, text);

drop function webhook._expire_payloads(integer);

drop function webhook._expire_rows(text, timestamptz, integer);

drop function webhook._clear_default(text, text, text, text[], integer);

drop function webhook._may_clear(text, date, text, text[]);

comment on column webhook._endpoint_revision.created_xid is
  'Transaction that chose it, of an adopted endpoint the one that adopted it: tells which shape the events of a window are sent in.';

comment on column webhook._alert.kind is
  'endpoint.warning, endpoint.disabled, endpoint.recovered, endpoint.missed, endpoint.blocked, endpoint.expiring, endpoint.expired, endpoint.unconfirmed, delivery.quarantined, delivery.filter, delivery.unconverted, delivery.unrecorded, delivery.expired, delivery.closed, event.fenced, inbox.dead or reconciliation.failed.';

comment on column webhook._alert.notified is 'Whoever listens was told, or could not be. Set by the leader, once the alert is committed.';

create index _alert_unnotified on webhook._alert (alert_id) where not notified;

comment on index webhook._alert_unnotified is 'Alerts that the leader has still to tell of.';

comment on column webhook._erasure.partner_id is 'The tenant, of scope partner; of the others, where it was given.';

comment on column webhook._tombstone.swept is 'The leader has looked for response excerpts that were written while the erasure was not committed yet, and for deliveries that waited for the payload.';

comment on table webhook._inbox is 'Events received, one row for each event of a source and tenant; kept for webhook.inbox_retention. Append-only but for erasure.';

create index _inbox_about on webhook._inbox (subject_type, subject_id, partner_id) where subject_id is not null;

comment on index webhook._inbox_about is 'What was received about a subject: an erasure finds it so.';

create index _inbox_partner on webhook._inbox (partner_id, received_at);

comment on index webhook._inbox_partner is 'What was received for a tenant, by time: an erasure, and whoever looks at his own events.';

create index _inbox_subject_changed on webhook._inbox_subject (changed_at);

comment on index webhook._inbox_subject_changed is 'Oldest first: the retention.';

comment on column webhook._inbox_count.slot is 'Any number but 0: sessions at work at once count in different rows, and wait for none. 0 = the sum of them, once the day is over.';

create index _inbox_count_open on webhook._inbox_count (day) where slot <> 0;

comment on index webhook._inbox_count_open is 'Counters whose rows are not put together: those of the last days.';

create index _inbox_count_day on webhook._inbox_count (day) where slot = 0;

comment on index webhook._inbox_count_day is 'Counters of days that are over, oldest first: the retention.';

comment on column webhook._replay_progress.expired is 'Deliveries not made because those of the event are not kept any more: nobody can tell what is missing.';

create table webhook._endpoint_seen (
  endpoint_id bigint not null,
  changed_xid xid8 not null,
  seen pg_snapshot not null,
  constraint _endpoint_seen_pkey primary key (endpoint_id)
);

comment on table webhook._endpoint_seen is
  'Since when the leader goes by the last change of an endpoint: when a change was made says nothing about when it was committed. Written by the leader alone; not dumped.';

comment on column webhook._endpoint_seen.endpoint_id is 'The endpoint.';

comment on column webhook._endpoint_seen.changed_xid is 'Transaction of that change.';

comment on column webhook._endpoint_seen.seen is 'Snapshot taken after the leader had read it: events that are not visible in it are decided by what the endpoint is since.';

create or replace function webhook._foreign_code()
returns text[] -- triggers, rules and policies on the extension's tables that are not its own; null = none
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select array_agg(f.name order by f.name)
    from (select format('trigger %s on %s', t.tgname, c.relname) as name
            from pg_class as c
            join pg_trigger as t on t.tgrelid = c.oid
           where c.relnamespace = 'webhook'::regnamespace
             and not t.tgisinternal
             and (c.relname, t.tgname) not in (('_policy', '_policy_default'), ('_access', '_access_changed'), ('_event_type', '_catalogue_changed'),
                                              ('_event_schema', '_catalogue_changed'), ('_source', '_catalogue_changed'), ('_conversion', '_catalogue_changed'))
           union all
          select format('rule %s on %s', r.rulename, c.relname)
            from pg_class as c
            join pg_rewrite as r on r.ev_class = c.oid
           where c.relnamespace = 'webhook'::regnamespace
             and r.rulename <> '_RETURN'
           union all
          select format('policy %s on %s', p.polname, c.relname)
            from pg_class as c
            join pg_policy as p on p.polrelid = c.oid
           where c.relnamespace = 'webhook'::regnamespace
             and p.polname <> '_tenant') as f
$$;

create or replace function webhook._reshape(
  endpoint webhook._endpoint, -- an endpoint, locked
  signature text,             -- new signature profile; null = unchanged
  headers jsonb               -- new headers, {} = none; null = unchanged
) returns webhook._endpoint -- the same, changed
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  other boolean := signature <> endpoint.signature;
begin
  if webhook._key_kind(signature) <> webhook._key_kind(endpoint.signature) then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s has no key for the signature profile "%s"', endpoint.endpoint_id, signature),
      detail = format('It needs a key of the kind %s; the endpoint''s is of the kind %s.',
                      webhook._key_kind(signature), webhook._key_kind(endpoint.signature)),
      hint = format('Use webhook.rotate_secret with signature => ''%s'', which makes a key for it.', signature);
  end if;
  endpoint.signature := coalesce(signature, endpoint.signature);
  if headers is not null and nullif(headers, '{}') is distinct from endpoint.headers then
    endpoint.headers := nullif(headers, '{}');
    -- The log compares names; that values changed it learns from this.
    endpoint.headers_changed_at := clock_timestamp();
    other := true;
  end if;
  -- How a receiver knows us, and lets us in: whoever controls the URL says again that he wants it so.
  if other and endpoint.verify <> 'none' then
    endpoint := webhook._demand_proof(endpoint);
  end if;
  return endpoint;
end
$$;

comment on function webhook._reshape(webhook._endpoint, text, jsonb) is
  'Changes how an endpoint''s requests are signed, and their headers; at once, retries included. Control of its URL is to be proven anew.';

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

create function webhook._may_clear(
  parent text, -- partitioned table
  day date,    -- UTC day
  reads text[] -- what has been read: a snapshot for each of the leader's streams
) returns boolean
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  low constant text := webhook._day_bound('_event', day);
  high constant text := webhook._day_bound('_event', day + 1);
  unread boolean;
begin
  -- The feed has days of its own: its rows lie behind their events, and nothing refers to them. But it goes from its old
  -- end: a cursor whose row is there relies on all that followed it (_read_cursor).
  if parent = '_feed' then
    return not exists (select from webhook._feed as f where f.pos < webhook._day_bound('_feed', day)::bigint);
  end if;
  if webhook._is_open(low, high) then
    return false;
  end if;
  if parent not in ('_event', '_event_version') then
    return true;
  end if;
  -- No delivery outlives its event, nor what may be sent of it.
  if exists (select from webhook._delivery as d where d.event_id >= low and d.event_id < high) then
    return false;
  end if;
  -- Nor does one go that nobody has read, however late it was committed. The versions of a day go just before its events:
  -- no payload is left that belongs to nothing.
  execute format(
    'select exists (
       select
         from webhook._event as e
        cross join unnest($1::pg_snapshot[]) as s (seen)
        where e.event_id >= %L
          and e.event_id < %L
          and e.xid >= (select min(pg_snapshot_xmin(m.seen)) from unnest($1::pg_snapshot[]) as m (seen))
          and e.origin = $2
          and not pg_visible_in_snapshot(e.xid, s.seen))', low, high)
     into unread
    using reads, webhook._origin();
  return not unread;
end
$$;

comment on function webhook._may_clear(text, date, text[]) is 'Whether a day of a table is settled: nothing in it is due, dead or unread, and what refers to it is gone.';

create or replace function webhook._clear_partition(
  parent text, -- partitioned table
  day date,    -- UTC day
  reads text[], -- what has been read: a snapshot for each of the leader's streams
  may_drop boolean -- whether to ask for the lock on the parent that a DROP needs
) returns text -- truncated, dropped, gone, waits or held
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  leaf constant text := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
  relation constant regclass := to_regclass(format('webhook.%I', leaf));
  occupied boolean;
begin
  if relation is null then
    return 'gone';
  end if;
  if pg_relation_size(relation) > 0 then
    -- Looked at before the lock is asked for, so that a day that waits troubles nobody; and again behind it.
    if not webhook._may_clear(parent, day, reads) then
      return 'waits';
    end if;
    begin
      -- Nobody is waited for, and nobody waits behind: an old day is quiet, and whoever reads it is gone some day.
      execute format('lock table only webhook.%I in access exclusive mode nowait', leaf);
    exception when lock_not_available then
      return 'held';
    end;
    if not webhook._may_clear(parent, day, reads) then
      return 'waits';
    end if;
    execute format('truncate only webhook.%I', leaf);
    return 'truncated';
  end if;
  if not may_drop then
    return 'waits';
  end if;
  -- The parent first, like everybody else.
  execute format('lock table only webhook.%I in access exclusive mode', parent);
  execute format('lock table only webhook.%I in access exclusive mode', leaf);
  execute format('select exists (select from webhook.%I)', leaf) into occupied;
  if occupied then
    return 'waits';
  end if;
  execute format('drop table webhook.%I', leaf);
  return 'dropped';
end
$$;

create function webhook._oldest_feed_day()
returns bigint -- position
language plpgsql stable
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  leaf record;
  occupied boolean;
begin
  for leaf in
    select c.oid::regclass as name, to_date(right(c.relname, 8), 'YYYYMMDD') as day
      from pg_inherits as i
      join pg_class as c on c.oid = i.inhrelid
     where i.inhparent = 'webhook._feed'::regclass
       and c.relname ~ '^_feed_[0-9]{8}$'
     order by c.relname
  loop
    continue when pg_relation_size(leaf.name) = 0;
    execute format('select exists (select from %s)', leaf.name) into occupied;
    if occupied then
      return webhook._day_bound('_feed', leaf.day)::bigint;
    end if;
  end loop;
  return 9223372036854775807;
end
$$;

comment on function webhook._oldest_feed_day() is
  'Where the oldest day of the feed begins that has a partition with rows; rows of _feed_default from there on are not its old end.';

create function webhook._clear_default(
  parent text,     -- partitioned table
  before text,     -- event id, of the feed a position: rows before it are old
  after text,      -- rows up to here were looked at
  reads text[],    -- what has been read
  oldest text,     -- first event id of the days whose events are kept
  most integer,    -- rows looked at
  out last text,   -- last row looked at; null = there was none
  out removed bigint
) returns record
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  leaf constant text := parent || '_default';
  key_column constant text := case parent when '_feed' then 'pos' else 'event_id' end;
  key_type constant text := case parent when '_feed' then 'bigint' else 'text' end;
  condition text;
  places tid[];
begin
  removed := 0;
  if to_regclass(format('webhook.%I', leaf)) is null then
    return;
  end if;
  if parent = '_feed' then
    -- The feed goes from its old end, whichever table that is in.
    before := least(before::bigint, webhook._oldest_feed_day())::text;
  end if;
  execute format(
    'select array_agg(t.ctid), max(t.key)::text
       from (select d.ctid, d.%1$I as key
               from webhook.%2$I as d
              where d.%1$I < $1::%3$s and d.%1$I > $2::%3$s
              order by d.%1$I
              limit $3) as t', key_column, leaf, key_type)
     into places, last
    using before, coalesce(after, case parent when '_feed' then '0' else '' end), most;
  if places is null then
    return;
  end if;
  condition := case parent
    when '_feed' then 'true'
    when '_event_version' then
      'not exists (select from webhook._delivery as d where d.event_id = t.event_id)
       and not exists (select
                         from webhook._event as e
                        cross join unnest($2::pg_snapshot[]) as s (seen)
                        where e.event_id = t.event_id
                          and e.origin = webhook._origin()
                          and not pg_visible_in_snapshot(e.xid, s.seen))'
    when '_event' then
      'not exists (select from webhook._delivery as d where d.event_id = t.event_id)
       and (t.origin <> webhook._origin()
            or not exists (select from unnest($2::pg_snapshot[]) as s (seen) where not pg_visible_in_snapshot(t.xid, s.seen)))'
    -- What was sent again lately is kept as long as its event, though the day of its event has gone.
    when '_delivery' then
      't.state not in (''pending'', ''retrying'', ''dead'')
       and (t.last_attempt_at is null or t.last_attempt_at < webhook._event_time($3) or t.event_id < $4)
       and not exists (select from webhook._due as w where w.event_id = t.event_id and w.endpoint_id = t.endpoint_id)'
    else
      case parent when '_attempt' then '(t.started_at < webhook._event_time($3) or t.event_id < $4) and ' else '' end ||
      'not exists (select from webhook._delivery as d
                    where d.event_id = t.event_id
                      and d.endpoint_id = t.endpoint_id
                      and d.state in (''pending'', ''retrying'', ''dead''))'
  end;
  execute format('delete from webhook.%I as t where t.ctid = any ($1) and %s', leaf, condition)
    using places, reads, before, oldest;
  get diagnostics removed = row_count;
end
$$;

comment on function webhook._clear_default(text, text, text, text[], text, integer) is
  'Deletes old rows of a DEFAULT partition, a bounded number at a time; what is open, unread or referred to stays.';

create function webhook._expire_rows(
  name text,          -- table without partitions
  before timestamptz, -- rows from before this moment are old
  most integer,       -- rows deleted at most
  evidence timestamptz default null -- of _tombstone: those of calls of expunge are old from before this moment only
) returns bigint -- rows deleted
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  bound constant bigint := webhook._pos_bound(before);
  oldest constant text := webhook._event_bound(before);
  removed bigint;
begin
  -- Ids are ordered by time and are the primary keys: each of these reads from the beginning of an index.
  case name
    when '_audit' then
      delete from webhook._audit a
       where a.audit_id in (select o.audit_id from webhook._audit o where o.audit_id < bound order by o.audit_id limit most);
    when '_alert' then
      delete from webhook._alert a
       where a.alert_id in (select o.alert_id from webhook._alert o where o.alert_id < bound order by o.alert_id limit most);
    when '_request' then
      delete from webhook._request q
       where q.request_id in (select o.request_id from webhook._request o
                               where o.request_id < bound and o.state <> 'pending' order by o.request_id limit most);
    when '_fenced' then
      delete from webhook._fenced f
       where f.event_id in (select o.event_id from webhook._fenced o
                             where o.event_id < oldest
                               and not exists (select from webhook._event e where e.event_id = o.event_id)
                             order by o.event_id limit most);
    when '_tombstone' then
      -- Those of the payload retention tell nothing once their event is gone; the others are evidence, and are kept
      -- as long as the audit log.
      delete from webhook._tombstone t
       where t.event_id in (select o.event_id from webhook._tombstone o
                             where o.event_id < oldest
                               and (o.erasure_id is null or o.event_id < webhook._event_bound(evidence))
                               and not exists (select from webhook._event e where e.event_id = o.event_id)
                             order by o.event_id limit most);
    when '_finding' then
      delete from webhook._finding f
       where f.finding_id in (select o.finding_id from webhook._finding o where o.finding_id < bound order by o.finding_id limit most);
    when '_inbox' then
      return webhook._trim_inbox(before, most);
    when '_day_count' then
      delete from webhook._day_count c
       where c.day in (select o.day from webhook._day_count o where o.day < (before at time zone 'UTC')::date order by o.day limit most);
    else
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('table "%s" has no retention', name);
  end case;
  get diagnostics removed = row_count;
  return removed;
end
$$;

comment on function webhook._expire_rows(text, timestamptz, integer, timestamptz) is 'Deletes old rows of a table without partitions, oldest first, a bounded number at a time.';

create function webhook._expire_payloads(
  at timestamptz, -- what time it is
  most integer    -- events looked at
) returns boolean -- whether there may be more
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  progress record;
  found_ids text[];
  last bigint;
  looked_at bigint;
begin
  -- By the feed, which has an index by type and position: an event is in it once it has been read.
  for progress in
    select t.name, webhook._pos_bound(_expire_payloads.at - t.payload_retention) as bound, coalesce(p.pos, 0) as pos, t.payload_retention
      from webhook._event_type as t
      left join webhook._payload_progress as p on p.type = t.name
     where t.payload_retention is not null
     order by t.name
  loop
    -- A deadline for each type of its own, so that a busy one keeps no other one waiting for ever: one piece each.
    select array_agg(f.event_id), max(f.pos), count(*)
      into found_ids, last, looked_at
      from (select o.event_id, o.pos
              from webhook._feed as o
             where o.type = progress.name
               and o.pos > progress.pos
               and o.pos < progress.bound
             order by o.pos
             limit most) as f;
    if looked_at = 0 then
      continue;
    end if;
    perform webhook._bury(found_ids, null, format('the payload retention of the event type, %s, is over', progress.payload_retention));
    -- One that somebody has locked keeps the place: he may let go of it without having erased it.
    select least(last, min(f.pos) - 1)
      into last
      from webhook._feed as f
      join webhook._event as e on e.event_id = f.event_id
     where f.type = progress.name
       and f.pos > progress.pos
       and f.pos <= last
       and e.event_id = any (found_ids)
       and e.body is not null;
    continue when last = progress.pos;
    insert into webhook._payload_progress as p (type, pos)
    values (progress.name, last)
    on conflict on constraint _payload_progress_pkey do update
       set pos = excluded.pos;
    return true;
  end loop;
  return false;
end
$$;

comment on function webhook._expire_payloads(timestamptz, integer) is
  'Takes the payloads of one event type that have reached their age, a bounded number at a time; see event_types.payload_retention.';

create or replace function webhook._bury(
  event_ids text[],  -- events whose payload goes
  erasure_id bigint, -- the call of expunge; null = the payload retention
  reason text        -- why
) returns jsonb -- rows by table
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  buried text[];
begin
  -- The leader must not wait for a user; a user waits for another one, or for a moment of the leader's.
  -- A row that is locked is being erased by somebody already.
  if erasure_id is null then
    select array_agg(e.event_id)
      into event_ids
      from (select o.event_id
              from webhook._event o
             where o.event_id = any (event_ids)
               and o.body is not null
               for update skip locked) as e;
  end if;
  if event_ids is null then
    return '{}';
  end if;
  with gone as (
    update webhook._event e
       set body = null
     where e.event_id = any (event_ids)
       and e.body is not null
    returning e.event_id, e.body_sha256, e.partner_id),
  told as (
    insert into webhook._tombstone as t (event_id, body_sha256, partner_id, erasure_id, reason, swept)
    -- The leader writes its own tombstones between its own results: nothing can slip in between. It has still to let
    -- go of what waits for the payload: of a filter (8), or of a conversion (16).
    select g.event_id, g.body_sha256, g.partner_id, _bury.erasure_id, _bury.reason,
           _bury.erasure_id is null
             and not exists (select from webhook._due d where d.event_id = g.event_id and (d.hold & 24) <> 0)
      from gone as g
    on conflict on constraint _tombstone_pkey do nothing)
  select coalesce(array_agg(g.event_id), '{}')
    into buried
    from gone as g;
  perform webhook._note_expunged();
  -- Of events erased before there may be newer copies.
  return jsonb_build_object('payloads', cardinality(buried)) || webhook._erase_copies(event_ids, erasure_id is not null);
end
$$;

create or replace function webhook._erasure_condition(
  scope text,        -- event, subject or partner
  of_partner boolean -- whether a partner is named
) returns text -- condition on _event e with the parameters event_id, partner_id, subject_type, subject_id
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- Of text alone, so that each can be planned by its index; a partner has none, and is searched for.
  select case scope
           when 'event' then 'e.event_id = $1' || case when of_partner then ' and e.partner_id = $2' else '' end
           when 'partner' then 'e.partner_id = $2'
           else 'e.subject_type = $3 and e.subject_id = $4' || case when of_partner then ' and e.partner_id = $2' else '' end
         end
$$;

-- Published, wanted, and no delivery. An endpoint is judged by what the leader knew it to be when it read the event: a
-- change may have been committed long after it was made, and after an event with a higher xid was read. One that was never
-- changed gets what its own transaction could not see, once the leader has read that it is there. Which types it wants is
-- decided once for each of them, and whether an event is settled only for those in question.
create function webhook._missing_pairs(
  low text,          -- of this event id or a later one
  high text,         -- and before this one
  settled_pos bigint -- and published before this place of the feed
) returns table (
  kind text,
  object text,
  happened_at timestamptz,
  partner_id text,
  event_id text,
  endpoint_id bigint,
  detail text
)
language sql stable
set search_path = pg_catalog, webhook, pg_temp
-- The planner takes the endpoints for one row, and would walk the events of the range once for each of them.
set enable_nestloop = off
set jit = off
as $$
  with type as materialized (
    select distinct e.partner_id, e.type
      from webhook._event as e
     where e.event_id >= low
       and e.event_id < high
       and e.origin = (select webhook._origin())
       and e.type <> 'webhook.test'),
  wanted as materialized (
    select p.endpoint_id, p.partner_id, p.test, t.type,
           case when p.changed_xid = p.created_xid then p.created_snapshot else n.seen end as known_since,
           webhook._event_bound(greatest(p.state_changed_at, s.state_changed_at)) as from_id
      from webhook._endpoint as p
      join webhook._effective_endpoint as s on s.endpoint_id = p.endpoint_id and s.state = 'active'
      join type as t on t.partner_id = p.partner_id and webhook._type_matches(p.event_types, t.type)
      left join webhook._endpoint_seen as n on n.endpoint_id = p.endpoint_id and n.changed_xid = p.changed_xid
     where p.origin = (select webhook._origin())
       and (n.seen is not null
            or (p.changed_xid = p.created_xid
                and exists (select from webhook._read_positions() as r
                             where r.stream = 0 and pg_visible_in_snapshot(p.created_xid, coalesce(r.amid, r.before)))))
       -- What a filter or the subject has decided is not decided here once more.
       and coalesce(to_jsonb(p) ->> 'filter', to_jsonb(p) ->> 'subject_types') is null),
  missing as materialized (
    select e.event_id, e.partner_id, w.endpoint_id
      from webhook._event as e
      join wanted as w on w.partner_id = e.partner_id and w.type = e.type and w.test = e.test
     where e.event_id >= low
       and e.event_id < high
       and e.origin = (select webhook._origin())
       and w.from_id < e.event_id
       and not pg_visible_in_snapshot(e.xid, w.known_since)
       and not (e.type like 'webhook.endpoint.%' and e.subject_id = w.endpoint_id::text)
       and (e.body is not null or e.type ~ '(^|\.)(deleted|erased)$')
       and not exists (select from webhook._fenced as f where f.event_id = e.event_id)
       and not exists (select
                         from webhook._delivery as d
                        where d.event_id = e.event_id
                          and d.endpoint_id = w.endpoint_id
                          and d.event_id >= low
                          and d.event_id < high)
       -- One that is due is another fault.
       and not exists (select
                         from webhook._due as u
                        where u.event_id = e.event_id
                          and u.endpoint_id = w.endpoint_id
                          and u.event_id >= low
                          and u.event_id < high))
  select 'pair.missing', webhook._delivery_id(m.event_id, m.endpoint_id), webhook._event_time(m.event_id), m.partner_id, m.event_id,
         m.endpoint_id, 'The endpoint gets such events and has no delivery of this one.'
    from missing as m
   where (select n.pos from webhook._publication(m.partner_id, m.event_id) as n) < settled_pos
$$;

comment on function webhook._missing_pairs(text, text, bigint) is 'Pairs of an event and an endpoint that ought to have a delivery and have none.';

create or replace function webhook._find_gaps(
  since timestamptz,     -- emitted at this time or later
  until timestamptz,     -- emitted before this time
  settled timestamptz    -- and published before this one
) returns table (
  kind text,
  object text,
  happened_at timestamptz,
  partner_id text,
  event_id text,
  endpoint_id bigint,
  detail text
)
language plpgsql stable
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
declare
  low constant text := webhook._event_bound(since);
  high constant text := webhook._event_bound(until);
  low_pos constant bigint := webhook._pos_bound(since);
  settled_pos constant bigint := webhook._pos_bound(settled);
  own constant bigint := webhook._origin();
  attempts_from constant text := webhook._event_bound(date_trunc('day', clock_timestamp()
    - least(webhook._age('attempt'), webhook._age('delivery'),
            webhook._age('event')), 'UTC') + interval '1 day');
  events_from constant text := webhook._event_bound(date_trunc('day', clock_timestamp()
    - webhook._age('event'), 'UTC') + interval '1 day');
begin
  -- Read, and not in the feed. The feed is searched up to an hour behind the range, and event by event for the rest.
  return query
    with place as materialized (select p.* from webhook._read_positions() as p),
    unpublished as materialized (
      select e.event_id, e.partner_id
        from webhook._event as e
       where e.event_id >= low
         and e.event_id < high
         and e.origin = own
         and not exists (select from place as p
                          where (p.stream = 0) <> (e.partner_id = any (p.partners))
                            and not (pg_visible_in_snapshot(e.xid, p.before)
                                     or (p.amid is not null and pg_visible_in_snapshot(e.xid, p.amid)
                                         and (e.xid < p.to_xid or (e.xid = p.to_xid and e.event_id <= p.to_id)))))
         and not exists (select from webhook._feed as f
                          where f.partner_id = e.partner_id
                            and f.event_id = e.event_id
                            and f.pos >= low_pos
                            and f.pos < webhook._pos_bound(until + interval '1 hour'))
         and not exists (select from webhook._fenced as f where f.event_id = e.event_id))
    select 'event.unpublished', u.event_id, webhook._event_time(u.event_id), u.partner_id, u.event_id, null::bigint,
           'It was read and is not in the feed.'
      from unpublished as u
     where not exists (select from webhook._publication(u.partner_id, u.event_id) as p where p.pos is not null);

  -- A payload that is gone without a tombstone, and one that is there in spite of its tombstone.
  return query
    select case when e.body is null then 'event.body_gone' else 'event.not_expunged' end, e.event_id, webhook._event_time(e.event_id),
           e.partner_id, e.event_id, null::bigint,
           case when e.body is null then 'Its payload is gone and it has no tombstone.' else 'It has a tombstone and a payload.' end
      from webhook._event as e
      left join webhook._tombstone as t
             on t.event_id = e.event_id and t.body_sha256 = e.body_sha256 and t.event_id >= low and t.event_id < high
     where e.event_id >= low
       and e.event_id < high
       and (e.body is null) <> (t.event_id is not null);

  return query
    select m.* from webhook._missing_pairs(low, high, settled_pos) as m;

  -- A delivery and the due table.
  return query
    select 'delivery.not_due', webhook._delivery_id(d.event_id, d.endpoint_id), webhook._event_time(d.event_id), p.partner_id, d.event_id,
           d.endpoint_id, format('It is %s and nobody would ever send it.', d.state)
      from webhook._delivery as d
      left join webhook._endpoint as p on p.endpoint_id = d.endpoint_id
     where d.event_id >= low
       and d.event_id < high
       and d.state in ('pending', 'retrying')
       and not exists (select
                         from webhook._due as w
                        where w.event_id = d.event_id and w.endpoint_id = d.endpoint_id and w.event_id >= low and w.event_id < high)
       -- A copy has no due table until it is adopted.
       and exists (select
                     from webhook._event as e
                    where e.event_id = d.event_id and e.origin = own and e.event_id >= low and e.event_id < high)
     union all
    select case when d.event_id is null then 'due.without_delivery' else 'due.settled' end,
           webhook._delivery_id(w.event_id, w.endpoint_id), webhook._event_time(w.event_id), p.partner_id, w.event_id, w.endpoint_id,
           case when d.event_id is null then 'It is due and has no delivery.' else format('It is due and the delivery is %s.', d.state) end
      from webhook._due as w
      left join webhook._delivery as d
             on d.event_id = w.event_id and d.endpoint_id = w.endpoint_id and d.event_id >= low and d.event_id < high
      left join webhook._endpoint as p on p.endpoint_id = w.endpoint_id
     where w.event_id >= low
       and w.event_id < high
       and (d.event_id is null or d.state not in ('pending', 'retrying'));

  -- A delivery, its event and its attempts.
  return query
    select g.kind, webhook._delivery_id(g.event_id, g.endpoint_id), webhook._event_time(g.event_id), p.partner_id, g.event_id,
           g.endpoint_id, g.detail
      from (select 'delivery.without_event' as kind, d.event_id, d.endpoint_id, 'Its event is gone.' as detail
              from webhook._delivery as d
             where d.event_id >= low
               and d.event_id < high
               and not exists (select from webhook._event as e where e.event_id = d.event_id and e.event_id >= low and e.event_id < high)
             union all
            select 'delivery.contradictory', d.event_id, d.endpoint_id,
                   'It is delivered, and nobody knows when or by which attempt.'
              from webhook._delivery as d
             where d.event_id >= low
               and d.event_id < high
               and d.state = 'delivered'
               and (d.delivered_at is null or d.attempt_count = 0)
             union all
            select 'attempt.missing', d.event_id, d.endpoint_id,
                   format('The delivery has had %s attempts, the log has %s.', d.attempt_count, a.attempts)
              from webhook._delivery as d
             cross join lateral (select count(*) as attempts
                                   from webhook._attempt as t
                                  where t.event_id = d.event_id
                                    and t.endpoint_id = d.endpoint_id) as a
             where d.event_id >= greatest(low, attempts_from)
               and d.event_id < high
               and (d.attempt_count > 1 or (d.attempt_count = 1 and d.state <> 'delivered'))
               and a.attempts < d.attempt_count
             union all
            select distinct 'attempt.without_delivery', a.event_id, a.endpoint_id, 'It has attempts and no delivery.'
              from webhook._attempt as a
             where a.event_id >= low
               and a.event_id < high
               and not exists (select
                                 from webhook._delivery as d
                                where d.event_id = a.event_id and d.endpoint_id = a.endpoint_id and d.event_id >= low and d.event_id < high)
             union all
            select distinct 'excerpt.without_delivery', x.event_id, x.endpoint_id, 'It has response excerpts and no delivery.'
              from webhook._excerpt as x
             where x.event_id >= low
               and x.event_id < high
               and not exists (select
                                 from webhook._delivery as d
                                where d.event_id = x.event_id and d.endpoint_id = x.endpoint_id and d.event_id >= low and d.event_id < high)) as g
      left join webhook._endpoint as p on p.endpoint_id = g.endpoint_id;

  -- The feed.
  return query
    -- Most events are published at once; the others are looked for one by one.
    with lost as materialized (
      select f.event_id, f.published_at, f.partner_id
        from webhook._feed as f
       where f.pos >= low_pos
         and f.pos < webhook._pos_bound(until)
         and f.event_id >= events_from
         and not exists (select
                           from webhook._event as e
                          where e.event_id = f.event_id
                            and e.event_id >= webhook._event_bound(since - interval '1 hour')
                            and e.event_id < webhook._event_bound(until + interval '1 minute')))
    select 'feed.without_event', f.event_id, f.published_at, f.partner_id, f.event_id, null::bigint, 'It is in the feed and its event is gone.'
      from lost as f
     where not exists (select from webhook._event as e where e.event_id = f.event_id)
     union all
    select 'feed.twice', f.event_id, min(f.published_at), f.partner_id, f.event_id, null::bigint, format('It is in the feed %s times.', count(*))
      from webhook._feed as f
     where f.pos >= low_pos
       and f.pos < webhook._pos_bound(until)
     group by f.partner_id, f.event_id
    having count(*) > 1;
end
$$;

create or replace function webhook.offboard(
  partner_id text, -- the partner
  reason text      -- why; shown beside the deliveries that it cancels
) returns integer -- endpoints that were deleted
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoints bigint[];
  sources jsonb;
begin
  perform webhook._check_writable('offboard a partner');
  perform webhook._check_argument('partner_id', partner_id is null);
  reason := webhook._check_reason(reason);
  -- An endpoint that somebody is just creating would stay behind.
  perform pg_advisory_xact_lock(hashtextextended('webhook.create_endpoint ' || partner_id, 0));
  if not exists (select from webhook._endpoint e where e.partner_id = offboard.partner_id)
     and not exists (select from webhook._inbox_source s
                      where s.partner_id = offboard.partner_id or offboard.partner_id = any (s.partners))
  then
    raise exception using
      errcode = 'undefined_object',
      message = format('partner "%s" has no endpoint and no inbox source', left(partner_id, 128));
  end if;
  -- In one order, so that two of these, or one and a series of changes, do not wait for each other.
  endpoints := array(
    select e.endpoint_id
      from webhook._endpoint e
     where e.partner_id = offboard.partner_id
       and e.state <> 'deleted'
     order by e.endpoint_id
       for no key update);
  update webhook._endpoint e
     set state = 'deleted',
         state_reason = reason,
         state_changed_at = clock_timestamp(),
         generation = e.generation + 1,
         changed_xid = pg_current_xact_id()
   where e.endpoint_id = any (endpoints);
  delete from webhook._secret s
   where s.endpoint_id = any (endpoints);
  sources := webhook._end_sources(partner_id);
  perform webhook._end_access(partner_id);
  perform webhook._log(
    'offboard', 'partner', partner_id, partner_id,
    after => jsonb_build_object('endpoints', cardinality(endpoints)) || sources, reason => reason);
  perform webhook._wake();
  return cardinality(endpoints);
end
$$;

comment on function webhook.offboard(text, text) is
  'Deletes every endpoint of a partner as delete_endpoint does, and returns how many; switches its inbox sources off and destroys their keys. Events of the partner stay, and are sent to nobody; what was received stays, and is processed.';

create function webhook._with_text(
  name text,          -- name of the argument of an update
  given text,         -- its value: null keeps what there is, '' removes it
  former text,        -- what there is
  max_length integer  -- characters
) returns text -- what there will be
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if given is null then
    return former;
  end if;
  return webhook._check_text(name, given, max_length);
end
$$;

comment on function webhook._with_text(text, text, text, integer) is 'A free text after an update, checked.';

create or replace function webhook._with_event_type_arguments(
  event_type webhook._event_type, -- as it is
  priority integer,               -- as for create_event_type, like all that follow; null = keep
  description text,
  emitted_when text,
  not_emitted_when text,
  receiver_action text,
  authoritative_state text,
  owner text,
  contact text,
  sensitivity text,
  payload_retention interval,
  sources text[]
) returns webhook._event_type -- as it is to be; an empty text, interval or array removes what was there
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  given text;
begin
  if priority is not null then
    event_type.priority := webhook._check_priority(priority);
  end if;
  event_type.description := webhook._with_text('description', description, event_type.description, 4000);
  event_type.emitted_when := webhook._with_text('emitted_when', emitted_when, event_type.emitted_when, 4000);
  event_type.not_emitted_when := webhook._with_text('not_emitted_when', not_emitted_when, event_type.not_emitted_when, 4000);
  event_type.receiver_action := webhook._with_text('receiver_action', receiver_action, event_type.receiver_action, 4000);
  event_type.authoritative_state := webhook._with_text('authoritative_state', authoritative_state, event_type.authoritative_state, 4000);
  event_type.owner := webhook._with_text('owner', owner, event_type.owner, 200);
  event_type.contact := webhook._with_text('contact', contact, event_type.contact, 200);
  if sensitivity is not null then
    given := nullif(sensitivity, '');
    if given not in ('public', 'internal', 'confidential', 'personal') then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('sensitivity "%s" does not exist', left(given, 64)),
        hint = 'It is public, internal, confidential or personal.';
    end if;
    event_type.sensitivity := given;
  end if;
  if payload_retention is not null then
    if payload_retention < interval '0' or payload_retention > interval '3660 days' then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = 'payload retention is outside the valid range',
        detail = 'Payloads are kept for up to 3660 days; 0 removes the limit of the event type.';
    end if;
    event_type.payload_retention := nullif(payload_retention, interval '0');
  end if;
  if sources is not null then
    foreach given in array sources loop
      if given is null or not exists (select from webhook._source s where s.name = given) then
        raise exception using
          errcode = 'undefined_object',
          message = format('source "%s" does not exist', left(given, 128)),
          hint = 'Use webhook.create_source.';
      end if;
    end loop;
    event_type.sources := nullif(sources, '{}');
  end if;
  return event_type;
end
$$;

create or replace function webhook.rotate_secret(
  endpoint_id bigint,            -- the endpoint
  overlap interval default null, -- how long the former key signs as well, 0 to 7 days; null = webhook.rotation_overlap
  signature text default null,   -- signature profile from now on, of either kind of key; null = unchanged
  out key_id bigint,             -- id of the new key
  out secret text                -- the new signing secret, whsec_..., shown this once; of a key pair its public half, whpk_...
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before bigint[];
  ends timestamptz;
begin
  perform webhook._check_writable('rotate a secret');
  perform webhook._check_signature(signature);
  overlap := coalesce(overlap, current_setting('webhook.rotation_overlap')::interval);
  if overlap not between interval '0' and interval '7 days' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'overlap is outside the valid range',
      detail = format('It is %s; the range is 0 to 7 days.', overlap);
  end if;
  endpoint := webhook._take_keys(endpoint_id);
  before := webhook._signing(endpoint_id);
  -- Each signature costs the receiver a comparison and the header a line: five in all.
  if cardinality(before) >= 5 and overlap > interval '0' then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = format('endpoint %s has too many signing keys', endpoint_id),
      detail = format('%s keys sign; the limit is 5 with the new one.', cardinality(before)),
      hint = 'End the overlaps with webhook.confirm_rotation, or rotate with overlap => ''0''.';
  end if;
  if signature is not null then
    -- Before the key is made, whose kind it tells.
    -- Another way to sign asks for a proof, as in _reshape; another key of the same kind does not.
    update webhook._endpoint e
       set signature = rotate_secret.signature,
           proof_generation = e.proof_generation + case when p.demanded then 1 else 0 end,
           proof_asked_at = case when p.demanded then clock_timestamp() else e.proof_asked_at end
      from (select endpoint.signature <> rotate_secret.signature and endpoint.verify <> 'none' as demanded) as p
     where e.endpoint_id = rotate_secret.endpoint_id;
  end if;
  ends := clock_timestamp() + overlap;
  -- An earlier overlap is not made longer by this one.
  update webhook._secret s
     set valid_until = least(s.valid_until, ends)
   where s.endpoint_id = rotate_secret.endpoint_id
     and (s.valid_until is null or s.valid_until > ends);
  select a.key_id, a.secret
    into key_id, secret
    from webhook._add_secret(endpoint_id) as a;
  perform webhook._save_keys(
    endpoint, 'rotate_secret', before,
    case when overlap > interval '0' then jsonb_build_object('valid_until', webhook._rfc3339(ends)) else '{}' end
      || jsonb_strip_nulls(jsonb_build_object('signature', signature)));
end
$$;

create or replace function webhook.update_source(
  name text,                         -- the source
  enabled boolean default null,      -- false = events that name it are refused; null = keep, like all that follow
  owner text default null,           -- '' removes it, like contact and description
  contact text default null,
  description text default null,
  role name default null,            -- '' removes it
  event_types text[] default null,
  partners text[] default null,      -- '{}' removes the limit
  reason text default null           -- why
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._source;
  latter webhook._source;
  facts constant text[] := '{name,created_at,changed_at}';
begin
  perform webhook._check_writable('change a source');
  perform webhook._check_argument('name', name is null);
  if reason is not null then
    reason := webhook._check_reason(reason);
  end if;
  perform webhook._check_source(nullif(role, ''), event_types, nullif(partners, '{}'));
  select s.*
    into former
    from webhook._source s
   where s.name = update_source.name
     for update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('source "%s" does not exist', left(name, 128)),
      hint = 'Use webhook.create_source.';
  end if;
  latter := former;
  latter.enabled := coalesce(enabled, former.enabled);
  latter.owner := webhook._with_text('owner', owner, former.owner, 200);
  latter.contact := webhook._with_text('contact', contact, former.contact, 200);
  latter.description := webhook._with_text('description', description, former.description, 4000);
  latter.role_name := case when role is null then former.role_name else nullif(role, '') end;
  latter.event_types := coalesce(event_types, former.event_types);
  latter.partners := case when partners is null then former.partners else nullif(partners, '{}') end;
  update webhook._source s
     set enabled = latter.enabled,
         owner = latter.owner,
         contact = latter.contact,
         description = latter.description,
         role_name = latter.role_name,
         event_types = latter.event_types,
         partners = latter.partners,
         changed_at = clock_timestamp()
   where s.name = latter.name;
  perform webhook._log(
    'update_source', 'source', name,
    before => webhook._changed(to_jsonb(former) - facts, to_jsonb(latter) - facts),
    after => webhook._changed(to_jsonb(latter) - facts, to_jsonb(former) - facts),
    reason => reason);
end
$$;

create or replace function webhook.openapi(
  title text default 'Webhooks',         -- title of the document
  version text default '1.0.0',          -- version of the document
  event_types text[] default '{*}'       -- event types and wildcards that it describes
) returns jsonb
language sql stable parallel safe
-- SECURITY DEFINER: the tables of the catalogue belong to the owner.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  with wanted as (
    select t.name, t.description, t.emitted_when, t.not_emitted_when, t.receiver_action, t.authoritative_state,
           t.deprecated_at, t.deprecation_reason, t.replaced_by, t.sunset_at
      from webhook._event_type t
     where exists (select
                     from unnest(event_types) as p
                    where p in ('*', t.name)
                       or (p like '%.*' and starts_with(t.name, left(p, -1))))
  ), version as (
    select w.name, s.version, s.current, s.schema, s.example, s.change_note, s.uri, s.deprecated_at, s.added_at,
           coalesce(s.version, 'any') as label
      from wanted w
      left join webhook._event_schema s on s.event_type = w.name
  -- Two full stops, which no event type has: otherwise version 2 of a.b.1 and version 1.2 of a.b would be one.
  ), schema as (
    select format('%s..%s.event', v.name, v.label) as key,
           webhook._openapi_envelope(v.name, v.version, v.deprecated_at is not null) as value
      from version v
     union all
    -- A reference inside of it still means itself: many readers of such documents look at no "$id", so it is rewritten.
    select format('%s..%s.data', v.name, v.version),
           case
             when jsonb_typeof(v.schema) = 'object' and not v.schema ? '$id' then
               regexp_replace(v.schema::text, '"\$ref": "#(?=["/])', format('"$ref": "#/components/schemas/%s..%s.data', v.name, v.version), 'g')::jsonb
             else v.schema
           end
      from version v
     where v.version is not null
  ), body as (
    select v.name,
           jsonb_agg(jsonb_build_object('$ref', format('#/components/schemas/%s..%s.event', v.name, v.label)) order by v.added_at, v.label) as schemas,
           jsonb_object_agg(v.label, jsonb_build_object(
             'summary', coalesce('Version ' || v.version, 'Any payload'),
             'value', jsonb_strip_nulls(jsonb_build_object(
               'event_id', 'evt_01M695MHQQD9798CDF31C02D86',
               'type', v.name,
               'occurred_at', '2026-01-02T03:04:05.678901Z',
               'partner_id', 'acme',
               'schema_version', v.version)) || jsonb_build_object('data', coalesce(v.example, '{}')))) as examples,
           jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
             'version', v.version,
             'current', v.current,
             'deprecated', v.deprecated_at is not null,
             'changeNote', v.change_note,
             'uri', v.uri)) order by v.added_at, v.label) as versions
      from version v
     group by v.name
  ), webhook as (
    select w.name as key,
           jsonb_build_object('post', jsonb_strip_nulls(jsonb_build_object(
             'operationId', w.name,
             'summary', coalesce(split_part(w.description, E'\n', 1), w.name),
             'description', nullif(concat_ws(E'\n\n',
               w.description,
               'Emitted: ' || w.emitted_when,
               'Not emitted: ' || w.not_emitted_when,
               'What to do: ' || w.receiver_action,
               'The state that counts: ' || w.authoritative_state,
               'Deprecated: ' || w.deprecation_reason,
               'Use instead: ' || w.replaced_by,
               'Ends: ' || webhook._rfc3339(w.sunset_at)), ''),
             'deprecated', case when w.deprecated_at is not null then true end,
             'parameters', (select jsonb_agg(jsonb_build_object('$ref', '#/components/parameters/' || h) order by n)
                              from unnest('{webhook-id,webhook-timestamp,webhook-signature,webhook-delivery,webhook-attempt,webhook-key-id,traceparent,webhook-correlation-id,webhook-causation-id}'::text[])
                                   with ordinality as headers (h, n)),
             'x-versions', b.versions,
             'responses', '{"2XX": {"description": "The event is durably accepted; the receiver''s own work may follow later."},
                            "410": {"description": "The endpoint is gone: it is disabled, and gets nothing more."},
                            "429": {"description": "Too many requests: sent again later, after Retry-After at the earliest."},
                            "4XX": {"description": "Refused: kept as a dead letter, or sent again by policy."},
                            "5XX": {"description": "Failed: sent again later, by the schedule."}}'::jsonb))
             -- Apart: an example may hold nulls, which are not to be stripped.
             || jsonb_build_object('requestBody', jsonb_build_object(
                  'required', true,
                  'content', jsonb_build_object('application/json', jsonb_build_object(
                    'schema', case when jsonb_array_length(b.schemas) = 1 then b.schemas -> 0 else jsonb_build_object('oneOf', b.schemas) end,
                    'examples', b.examples))))) as value
      from wanted w
      join body b on b.name = w.name
  )
  select jsonb_build_object(
           'openapi', '3.1.0',
           'info', jsonb_build_object(
             'title', coalesce(title, 'Webhooks'),
             'version', coalesce(version, '1.0.0'),
             'description', 'Delivery is at least once and in no promised order: remember event_id, and compare subject.version. Verify webhook-signature over the raw body before you read it.'),
           'jsonSchemaDialect', 'https://json-schema.org/draft/2020-12/schema',
           'webhooks', coalesce((select jsonb_object_agg(w.key, w.value) from webhook w), '{}'),
           'components', jsonb_build_object(
             'schemas', coalesce((select jsonb_object_agg(s.key, s.value) from schema s), '{}'),
             'parameters', (
               select jsonb_object_agg(h.name, jsonb_build_object(
                        'name', h.name,
                        'in', 'header',
                        'required', h.required,
                        'description', h.description,
                        'schema', jsonb_build_object('type', 'string')))
                 from (values
                   ('webhook-id', true, 'The event id; the same for every attempt.'),
                   ('webhook-timestamp', true, 'When the attempt was signed, in seconds since 1970; refuse what is older than five minutes.'),
                   ('webhook-signature', true, 'Standard Webhooks 1.0.0: "v1," and the base64 HMAC-SHA256 of id, timestamp and body, joined by full stops. During a rotation there are several, separated by blanks: one must match.'),
                   ('webhook-delivery', true, 'Id of the delivery: event and endpoint.'),
                   ('webhook-attempt', true, 'Number of the attempt, from 1.'),
                   ('webhook-key-id', true, 'Ids of the signing keys, in the order of the signatures.'),
                   ('traceparent', false, 'W3C Trace Context of the operation that caused the event.'),
                   ('webhook-correlation-id', false, 'correlation_id of the event; what is no printable ASCII in it, quotes, blanks and "%" are percent-encoded.'),
                   ('webhook-causation-id', false, 'Id of the event that led to this one.')) as h (name, required, description))))
$$;

create or replace function webhook.create_inbox_source(
  name text,                               -- name, as receive is given it
  profile text,                            -- signature profile of the sender
  partner_id text default null,            -- tenant of all its events; or else:
  partner_from text default null,          -- where the tenant stands, in what is signed: body:/pointer, or header:name under RFC 9421
  partners text[] default null,            -- tenants that partner_from may name; null = all
  id_from text default null,               -- where the event id stands: header:name, body:/pointer or digest; null = as the profile has it
  type_from text default null,             -- where the event type stands; null = as the profile has it
  tolerance interval default '5 minutes',  -- how far the time of signing may be from the clock
  validation text default 'off',           -- off, or enforce: payloads must match the catalogue
  same_body boolean default true,          -- whether an event that comes again with another body is a conflict
  max_body integer default 1048576,        -- largest body, bytes
  max_pending integer default 10000,       -- unfinished events above which new ones get a 503
  max_per_minute integer default 6000,     -- events accepted in a minute above which new ones get a 429; null = no limit
  description text default null            -- what it is
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  given record;
begin
  perform webhook._check_writable('create an inbox source');
  perform webhook._check_inbox_name('name', name);
  for given in
    select v.name
      from (values ('profile', profile is null), ('tolerance', tolerance is null), ('validation', validation is null),
                   ('same_body', same_body is null), ('max_body', max_body is null), ('max_pending', max_pending is null)) as v (name, missing)
     where v.missing
  loop
    perform webhook._check_argument(given.name, true);
  end loop;
  -- Refuses an unknown profile as well.
  perform webhook._check_locator('id_from', profile, 'digest');
  id_from := webhook._check_locator('id_from', profile, id_from);
  type_from := webhook._check_locator('type_from', profile, type_from);
  partner_from := webhook._check_locator('partner_from', profile, partner_from);
  if (partner_id is null) = (partner_from is null) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'an inbox source needs either partner_id or partner_from',
      detail = 'Every event belongs to a tenant: always the same one, or the one that its signed part names.';
  end if;
  if partner_id is not null then
    perform webhook._check_partner(partner_id);
    -- As create_endpoint: a partner that is just being offboarded would keep this one.
    perform pg_advisory_xact_lock(hashtextextended('webhook.create_endpoint ' || partner_id, 0));
  end if;
  if partners is not null then
    perform webhook._check_partner(p)
       from unnest(partners) as p;
  end if;
  perform webhook._check_inbox_limits(tolerance, validation, max_body, max_pending, max_per_minute);
  description := webhook._check_text('description', description, 4000);
  insert into webhook._inbox_source
    (source_id, name, profile, partner_id, partner_from, partners, id_from, type_from, tolerance, validation, same_body,
     max_body, max_pending, max_per_minute, description)
  values
    (webhook._new_id(), create_inbox_source.name, create_inbox_source.profile, create_inbox_source.partner_id, create_inbox_source.partner_from,
     create_inbox_source.partners, create_inbox_source.id_from, create_inbox_source.type_from, create_inbox_source.tolerance,
     create_inbox_source.validation, create_inbox_source.same_body, create_inbox_source.max_body, create_inbox_source.max_pending,
     create_inbox_source.max_per_minute, create_inbox_source.description)
  on conflict on constraint _inbox_source_name do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('inbox source "%s" already exists', name),
      hint = 'Use webhook.update_inbox_source.';
  end if;
  if not webhook._is_signed(profile, id_from) then
    raise warning using
      message = format('event ids of inbox source "%s" are not signed', name),
      detail = format('Under profile "%s" no signature covers the header: whoever has seen a request can send its body again under another id, and it counts as another event.', profile),
      hint = 'Leave id_from out: then the id is the digest of the body.';
  end if;
  perform webhook._log('create_inbox_source', 'inbox_source', name, partner_id, after => (
    select jsonb_strip_nulls(webhook._inbox_source_facts(s))
      from webhook._inbox_source s
     where s.name = create_inbox_source.name));
end
$$;

create or replace function webhook.update_inbox_source(
  name text,                            -- the source
  enabled boolean default null,         -- false = everything gets a 503; null = keep, like all that follow
  partners text[] default null,         -- '{}' removes the limit
  tolerance interval default null,
  validation text default null,
  same_body boolean default null,
  max_body integer default null,
  max_pending integer default null,
  max_per_minute integer default null,  -- 0 removes the limit
  description text default null         -- '' removes it
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._inbox_source;
  latter webhook._inbox_source;
begin
  perform webhook._check_writable('change an inbox source');
  former := webhook._inbox_source_named(name);
  latter := former;
  latter.enabled := coalesce(enabled, former.enabled);
  latter.partners := coalesce(partners, former.partners);
  latter.tolerance := coalesce(tolerance, former.tolerance);
  latter.validation := coalesce(validation, former.validation);
  latter.same_body := coalesce(same_body, former.same_body);
  latter.max_body := coalesce(max_body, former.max_body);
  latter.max_pending := coalesce(max_pending, former.max_pending);
  latter.max_per_minute := nullif(coalesce(max_per_minute, former.max_per_minute), 0);
  latter.description := webhook._with_text('description', description, former.description, 4000);
  perform webhook._check_partner(p)
     from unnest(partners) as p;
  latter.partners := nullif(latter.partners, '{}');
  perform webhook._check_inbox_limits(latter.tolerance, latter.validation, latter.max_body, latter.max_pending, latter.max_per_minute);
  update webhook._inbox_source s
     set enabled = latter.enabled,
         partners = latter.partners,
         tolerance = latter.tolerance,
         validation = latter.validation,
         same_body = latter.same_body,
         max_body = latter.max_body,
         max_pending = latter.max_pending,
         max_per_minute = latter.max_per_minute,
         description = latter.description,
         changed_at = clock_timestamp()
   where s.source_id = former.source_id;
  perform webhook._log(
    'update_inbox_source', 'inbox_source', name, former.partner_id,
    before => webhook._changed(webhook._inbox_source_facts(former), webhook._inbox_source_facts(latter)),
    after => webhook._changed(webhook._inbox_source_facts(latter), webhook._inbox_source_facts(former)));
end
$$;

create function webhook._end_sources(
  partner_id text -- a partner that leaves
) returns jsonb -- names of its inbox sources, and of those that it shared
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  own text[];
  shared text[];
begin
  with ended as (
    update webhook._inbox_source s
       set enabled = false,
           changed_at = clock_timestamp()
     where s.partner_id = _end_sources.partner_id
    returning s.source_id, s.name),
  destroyed as (
    update webhook._inbox_key k
       set key = null,
           valid_until = least(k.valid_until, clock_timestamp())
      from ended
     where k.source_id = ended.source_id
       and k.kept)
  select array_agg(e.name order by e.name) into own from ended e;
  -- Of a source that speaks for several, only this one goes. An empty list would stand for everybody.
  with ended as (
    update webhook._inbox_source s
       set partners = case when cardinality(s.partners) > 1 then array_remove(s.partners, _end_sources.partner_id) else s.partners end,
           enabled = s.enabled and cardinality(s.partners) > 1,
           changed_at = clock_timestamp()
     where _end_sources.partner_id = any (s.partners)
    returning s.name)
  select array_agg(e.name order by e.name) into shared from ended e;
  return jsonb_strip_nulls(jsonb_build_object('inbox_sources', own, 'shared_inbox_sources', shared));
end
$$;

comment on function webhook._end_sources(text) is
  'Switches the inbox sources of a partner off, destroys their keys, and takes the partner out of sources that name it among others.';

-- Asking for another attempt. Verbs that touch deliveries are requests: they commit or roll back with the
-- caller, and the leader, the only writer of deliveries, carries them out.
-- What can be refused is refused here, at once; the leader checks again, because time passes in between.

create or replace function webhook.replay(
  event_id text,                   -- the event
  endpoint_id bigint default null  -- the endpoint; null = every existing delivery of the event
) returns table (
  request_id bigint,               -- the request, see the view requests
  delivery_id text                 -- a delivery that it concerns; null when the event has none yet
)
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  event record;
  endpoint webhook._effective_endpoint;
begin
  perform webhook._check_writable('replay an event');
  perform webhook._check_argument('event_id', event_id is null);
  select e.partner_id, e.test, e.origin, e.body is null as expunged, f.reason as fenced
    into event
    from webhook._event e
    left join webhook._fenced f on f.event_id = e.event_id
   where e.event_id = replay.event_id;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event "%s" does not exist', left(event_id, 128));
  end if;
  if event.expunged then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" is expunged', event_id),
      detail = 'Its payload was removed; what was sent cannot be sent again.';
  end if;
  -- It may still be there, because something of its day waits; the leader would end whatever is made of it.
  if event_id < webhook._event_bound(date_trunc('day', clock_timestamp() - webhook._age('event'), 'UTC')) then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" has expired', event_id),
      detail = format('Events are kept for %s.', webhook._age('event'));
  end if;
  if not webhook._admits(event.origin) then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" is fenced', event_id),
      detail = 'It was emitted in another database, of which this one is a copy.',
      hint = 'The function adopt takes over the events of another database.';
  end if;
  if event.fenced is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" is fenced', event_id),
      detail = event.fenced;
  end if;

  if endpoint_id is not null then
    select e.*
      into endpoint
      from webhook._effective_endpoint e
     where e.endpoint_id = replay.endpoint_id
       and e.partner_id = event.partner_id;
    -- The same words for another partner's endpoint: whether it exists is nobody else's business.
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
    if endpoint.state <> 'active' then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = format('endpoint %s is %s', endpoint_id, endpoint.state),
        detail = coalesce(endpoint.state_reason, 'It gets no deliveries in this state.');
    end if;
    if endpoint.test <> event.test then
      raise exception using
        errcode = 'object_not_in_prerequisite_state',
        message = case when event.test
          then format('cannot send a test event to endpoint %s', endpoint_id)
          else format('cannot send a live event to endpoint %s', endpoint_id)
        end,
        detail = case when event.test
          then 'It is not a test endpoint.'
          else 'It is a test endpoint.'
        end;
    end if;
  end if;

  request_id := webhook._ask(
    'replay', 'event', event_id, event.partner_id, event_id, endpoint_id,
    after => jsonb_build_object('endpoint_id', coalesce(endpoint_id::text, 'all')));

  if endpoint_id is not null then
    delivery_id := webhook._delivery_id(event_id, endpoint_id);
    return next;
    return;
  end if;
  for delivery_id in
    select webhook._delivery_id(d.event_id, d.endpoint_id)
      from webhook._delivery d
     where d.event_id = replay.event_id
     order by d.endpoint_id
  loop
    return next;
  end loop;
  if not found then
    delivery_id := null;
    return next;
  end if;
end
$$;

-- Giving and taking rights. The privileges of each kind stand in one list; a right is those privileges and a row of
-- _access, which limits what they reach: partners, event types, time.
-- None of these verbs belongs to a kind: whoever may execute them may give himself everything.

create or replace function webhook._access_list()
returns table (
  kinds text, -- kinds that need it, separated by blanks
  name text   -- function, with all its forms, or view
)
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  values
    ('emit', 'emit'),
    ('emit', 'emit_json'),
    ('emit', 'observe'),
    ('emit', '_observe_as_caller'),
    ('emit read operate', 'crossed'),
    -- What a partner may see of itself: its events, what became of them, its endpoints, its alerts.
    ('read operate partner', 'events'),
    ('read operate partner', 'deliveries'),
    ('read operate partner', 'attempts'),
    ('read operate partner', 'dead_letters'),
    ('read operate partner', 'endpoints'),
    ('read operate partner', 'endpoint_health'),
    ('read operate partner', 'stat_endpoint'),
    ('read operate partner', 'alerts'),
    ('read operate partner', 'requests'),
    ('read operate partner', 'verifications'),
    ('read operate partner', 'signing_keys'),
    ('read operate partner', 'tombstones'),
    ('read operate partner', 'explain'),
    ('read operate partner', 'test_filter'),
    ('read operate partner', 'list_events'),
    ('read operate partner', 'list_deliveries'),
    ('read operate partner', 'read_excerpt'),
    ('read operate partner feed', 'events_after'),
    ('read operate partner feed', 'export_events'),
    ('read operate partner feed', 'feed_status'),
    ('read operate partner', 'partner_status'),
    ('read operate partner feed', 'limits'),
    -- What is nobody's own: the house's configuration and how it is doing.
    ('read operate', 'event_types'),
    ('read operate', 'event_schemas'),
    ('read operate', 'event_fields'),
    ('read operate', 'sources'),
    ('read operate', 'subscriptions'),
    ('read operate', 'thresholds'),
    ('read operate', 'observations'),
    ('read operate', 'openapi'),
    ('read operate', 'conversions'),
    ('read operate partner', 'event_versions'),
    ('read operate', '_conversion_fault'),
    ('read operate', 'policies'),
    ('read operate', 'pauses'),
    ('read operate', 'stat_queue'),
    ('read operate', 'stat_worker'),
    ('read operate', 'stat_fenced'),
    ('read operate', 'adoptions'),
    ('read operate', 'erasures'),
    ('read operate', 'reconciliation'),
    ('read operate', 'reconciliations'),
    ('read operate', 'replays'),
    ('read operate', 'seal_keys'),
    ('read operate', 'status'),
    ('read operate', 'metrics'),
    ('read operate', 'stat_metrics'),
    ('read operate', '_metric_list'),
    ('read operate', '_counters'),
    ('read operate', '_gauges'),
    ('read operate', 'dashboard'),
    ('read operate', '_dashboard_page'),
    ('read operate', '_history'),
    ('read operate', '_utc'),
    ('read operate', 'stat_progress_replay'),
    ('read operate', 'stat_progress_adopt'),
    ('read operate', 'stat_progress_retention'),
    ('read operate', 'stat_progress_expunge'),
    ('read operate', '_retention_progress'),
    ('read operate', 'report'),
    ('operate', 'create_endpoint'),
    ('operate', 'update_endpoint'),
    ('operate', 'preview_filter'),
    ('operate', 'dry_run'),
    ('operate', 'enable_endpoint'),
    ('operate', 'disable_endpoint'),
    ('operate', 'delete_endpoint'),
    ('operate', 'verify_endpoint'),
    ('operate', 'renew_endpoint'),
    ('operate', 'rotate_secret'),
    ('operate', 'confirm_rotation'),
    ('operate', 'revoke_secret'),
    ('operate', 'offboard'),
    ('operate', 'create_policy'),
    ('operate', 'update_policy'),
    ('operate', 'delete_policy'),
    ('operate', 'create_event_type'),
    ('operate', 'update_event_type'),
    ('operate', 'deprecate_event_type'),
    ('operate', 'add_schema'),
    ('operate', 'update_schema'),
    ('operate', 'create_conversion'),
    ('operate', 'delete_conversion'),
    ('operate', 'create_source'),
    ('operate', 'update_source'),
    ('operate', 'create_threshold'),
    ('operate', 'delete_threshold'),
    ('operate', 'replay'),
    ('operate', 'replay_range'),
    ('operate', 'cancel_replay'),
    ('operate', 'retry'),
    ('operate', 'skip'),
    ('operate', 'close'),
    ('operate', 'correct'),
    ('operate', 'pause'),
    ('operate', 'resume'),
    ('operate', 'send_test'),
    ('operate', 'adopt'),
    -- The receiving side. Whoever answers senders reads nothing; handlers get what they process.
    ('receive', 'receive'),
    ('receive handle operate', 'verify'),
    ('receive handle operate', 'explain_signature'),
    ('handle', 'claim_inbox'),
    ('handle', 'finish_inbox'),
    ('read operate', 'inbox'),
    ('read operate', 'inbox_sources'),
    ('read operate', '_is_signed'),
    ('read operate', 'inbox_keys'),
    ('read operate', 'inbox_handlers'),
    ('read operate', 'stat_inbox'),
    ('read operate', 'inbox_rejections'),
    ('operate', 'create_inbox_source'),
    ('operate', 'update_inbox_source'),
    ('operate', 'add_inbox_key'),
    ('operate', 'revoke_inbox_key'),
    ('operate', 'create_inbox_handler'),
    ('operate', 'update_inbox_handler'),
    ('operate', 'delete_inbox_handler'),
    ('operate', 'pause_inbox'),
    ('operate', 'resume_inbox'),
    ('operate', 'retry_inbox'),
    ('operate', 'close_inbox'),
    ('operate', 'replay_inbox'),
    ('operate', 'expunge'),
    ('operate', 'confirm_erasure'),
    ('operate', 'reconcile'),
    ('operate', 'create_reconciliation'),
    ('operate', 'delete_reconciliation'),
    -- What was done, and who may do it: for somebody else than those who do it.
    ('audit', 'audit_log'),
    ('audit', 'access_rights'),
    ('payload', 'read_payload'),
    -- A function that stands in a view runs with the rights of whoever reads it, and so do the lists.
    ('read operate partner feed', '_sees_all'),
    ('read operate partner', '_manages'),
    ('read operate partner feed', '_own_partners'),
    ('read operate partner', '_own_endpoints'),
    ('read operate partner feed', '_origin'),
    ('read operate partner', '_event_time'),
    ('read operate partner', '_event_bound'),
    ('read operate partner feed', '_pos_bound'),
    ('read operate partner', '_delivery_id'),
    ('read operate partner', '_parse_delivery_id'),
    ('read operate partner', '_publication'),
    ('read operate partner', '_redact'),
    ('read operate partner feed', '_check_argument'),
    ('read operate partner', '_check_page'),
    ('read operate partner', '_first_day'),
    ('read operate partner', '_seen_endpoint'),
    ('read operate partner', '_seen_match'),
    ('read operate partner', '_try_filters'),
    ('read operate partner', '_filter_fits'),
    ('read operate partner', '_type_matches'),
    ('read operate partner', '_rfc3339'),
    ('read operate partner feed', '_seen_feed'),
    ('read operate partner', '_seen_delivery'),
    ('read operate partner', '_seen_excerpt'),
    ('read operate partner feed', '_seen_event'),
    ('read operate partner feed', '_check_event_types'),
    ('read operate partner feed', '_valid_pattern'),
    ('read operate partner feed', '_rfc3339'),
    ('read operate partner feed', '_make_durable'),
    ('read operate partner feed', '_is_type_among'),
    ('read operate partner feed', '_feed_data'),
    ('read operate partner feed', '_kept_for'),
    ('read operate partner feed', '_feed_floor'),
    ('read operate partner feed', '_known_origin'),
    ('read operate partner feed', '_range_bound'),
    ('read operate partner feed', '_cursor_check'),
    ('read operate partner feed', '_event_tag'),
    ('read operate partner feed', '_cursor'),
    ('read operate partner feed', '_read_cursor'),
    ('read operate partner feed', '_check_feed'),
    ('read operate partner feed', '_check_export'),
    ('read operate partner feed', '_feed_lag'),
    ('read operate partner', '_seen_due'),
    ('read operate', '_schema_fields'),
    ('read operate', '_keys_in_clear'),
    ('read operate', '_unread'),
    ('read operate', '_inbox_backlog'),
    ('read operate', '_worker'),
    ('read operate', '_foreign_code'),
    ('audit', '_cluster')
$$;

-- SECURITY INVOKER: it judges current_user; the look-up alone runs as the owner.
create function webhook.read_payload(
  event_id text,            -- the event
  reason text,              -- why it is read; kept in the audit log
  version text default null -- schema version, see event_versions; null = as it was emitted
) returns text -- "data" of the event, byte for byte as it is sent
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'read_payload_wrapper';

comment on function webhook.read_payload(text, text, text) is
  'Payload of one event, for a role with a right of kind payload that is in force. Every call is in the audit log and, even when it is rolled back, in the server log.';

-- Taking over the events and endpoints that came with a copy of another database. Endpoints change hands here, in
-- the caller's transaction; what they are owed is the leader's work, at its own pace.

create or replace function webhook.adopt(
  origin bigint, -- the other database, see stat_fenced
  mode text,     -- send = what was still to be sent is sent from here; skip = only new events are
  reason text    -- why
) returns bigint -- request_id, see the views requests and adoptions
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  own constant bigint := webhook._origin();
  -- One snapshot for all of it: it divides own events into those that the leader's scan gives to the endpoints
  -- and those that its window does.
  taken_in constant pg_snapshot := pg_current_snapshot();
  request bigint;
  running record;
  taken integer;
begin
  perform webhook._check_writable('adopt an origin');
  perform webhook._check_argument('origin', origin is null);
  perform webhook._check_argument('mode', mode is null);
  reason := webhook._check_reason(reason);
  if mode not in ('send', 'skip') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('mode "%s" is not valid', left(mode, 64)),
      detail = 'A mode is "send" (what was still to be sent is sent from here) or "skip" (only new events are).';
  end if;
  if origin = own then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('origin %s is this database itself', origin),
      hint = 'The view stat_fenced shows the origins that can be adopted.';
  end if;
  if not exists (select from webhook._seal_key k where k.origin = adopt.origin)
     and not exists (select from webhook._endpoint e where e.origin = adopt.origin) then
    raise exception using
      errcode = 'undefined_object',
      message = format('origin %s does not exist', origin),
      hint = 'The view stat_fenced shows the origins that can be adopted.';
  end if;
  -- One after the other: the second of two that adopt at once sees what the first one did.
  lock table webhook._adoption in share row exclusive mode;
  select a.request_id, a.mode
    into running
    from webhook._adoption a
    left join webhook._adoption_progress p on p.request_id = a.request_id
   where a.origin = adopt.origin
     and a.adopter = own
     and p.state is distinct from 'done'
   limit 1;
  if found then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('origin %s is being adopted already', origin),
      detail = format('Request %s with mode "%s" is not finished.', running.request_id, running.mode),
      hint = 'The view adoptions shows how far it has come. It can be adopted again afterwards, which concerns what came here since.';
  end if;

  -- Since when each endpoint is there, by the transactions of the database that it comes from.
  insert into webhook._adopted_endpoint as m (endpoint_id, origin, created_xid, created_snapshot)
  select e.endpoint_id, e.origin, e.created_xid, e.created_snapshot
    from webhook._endpoint e
   where e.origin = adopt.origin
  on conflict on constraint _adopted_endpoint_pkey do nothing;
  -- What the leader found out holds on as the user's word: a disabled endpoint stays disabled. How it fared is
  -- void: it is another network that requests leave from.
  update webhook._endpoint e
     set origin = own,
         state = f.state,
         state_reason = f.state_reason,
         state_changed_at = f.state_changed_at,
         generation = e.generation + 1,
         -- Challenges that another network sent, or did not send, are nobody's fault here: the time to prove begins anew.
         proof_generation = e.proof_generation + case when e.proof_asked_at is null then 0 else 1 end,
         proof_asked_at = case when e.proof_asked_at is not null then clock_timestamp() end,
         created_xid = pg_current_xact_id(),
         created_snapshot = taken_in,
         changed_xid = pg_current_xact_id()
    from webhook._effective_endpoint f
   where f.endpoint_id = e.endpoint_id
     and e.origin = adopt.origin;
  get diagnostics taken = row_count;
  -- What their filters were in the other database's past, none of its transactions can tell here.
  update webhook._filter f
     set created_xid = pg_current_xact_id()
    from webhook._endpoint e
   where e.endpoint_id = f.endpoint_id
     and e.created_xid = pg_current_xact_id();
  -- The same of their shapes: an event of this database has the shape of its window.
  update webhook._endpoint_revision r
     set created_xid = pg_current_xact_id()
    from webhook._endpoint e
   where e.endpoint_id = r.endpoint_id
     and e.created_xid = pg_current_xact_id();
  -- Policies, pauses and priorities came with the copy as well. A leader that ran already while they were restored has
  -- not seen them: their transactions are those of the other database.
  update webhook._policy set changed_xid = pg_current_xact_id();
  update webhook._pause set changed_xid = pg_current_xact_id();
  update webhook._event_type set changed_xid = pg_current_xact_id();

  request := webhook._ask(
    'adopt', 'origin', origin::text,
    target => origin::text,
    reason => reason,
    after => jsonb_build_object('mode', mode, 'endpoints', taken));
  insert into webhook._adoption (request_id, origin, adopter, mode, reason, endpoints, snapshot)
  values (request, adopt.origin, own, adopt.mode, adopt.reason, taken, taken_in);
  return request;
end
$$;

-- Erasing payloads: what somebody has the right to have deleted. All of it happens in the caller's transaction; the
-- event stays as ids, digest and seal, and so does the evidence that it was delivered.

create or replace function webhook.expunge(
  reason text,                      -- why; kept with the tombstones and in the audit log
  event_id text default null,       -- this event, emitted or received here
  partner_id text default null,     -- every event of this partner; with a subject: those about it; with an event: its tenant
  subject_type text default null,   -- kind of the subject whose events are meant
  subject_id text default null      -- its identity
) returns bigint -- erasure_id
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  id constant bigint := webhook._new_id();
  scope text;
  owners text[];
  piece_ids text[];
  one record;
  counts jsonb := '{}';
  n bigint;
begin
  perform webhook._check_writable('erase payloads');
  reason := webhook._check_reason(reason);
  scope := case
    when event_id is not null and subject_type is null and subject_id is null then 'event'
    when event_id is null and subject_type is not null and subject_id is not null then 'subject'
    when event_id is null and partner_id is not null and subject_type is null and subject_id is null then 'partner'
  end;
  if scope is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'it is not clear what is to be erased',
      hint = 'Name an event_id, or a subject_type and a subject_id, each with a partner_id or without, or a partner_id alone.';
  end if;
  if partner_id is not null then
    perform webhook._check_partner(partner_id);
  end if;
  if scope = 'event' then
    -- An id of ours is nobody else's. Senders choose theirs, and two tenants may have chosen the same.
    select array_agg(e.partner_id)
      into owners
      from webhook._event e
     where e.event_id = expunge.event_id
       and (expunge.partner_id is null or e.partner_id = expunge.partner_id);
    if owners is null then
      select array_agg(distinct i.partner_id)
        into owners
        from webhook._inbox_source s
        join webhook._inbox i on i.source_id = s.source_id
       where i.event_id = expunge.event_id
         and (expunge.partner_id is null or i.partner_id = expunge.partner_id);
    end if;
    if owners is null then
      raise exception using
        errcode = 'undefined_object',
        message = format('event "%s" does not exist', left(event_id, 128));
    end if;
    if cardinality(owners) > 1 then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('event "%s" was received for several partners', left(event_id, 128)),
        hint = 'Name the partner_id as well.';
    end if;
  end if;
  insert into webhook._erasure (erasure_id, scope, event_id, partner_id, subject_type, subject_id, reason)
  values (id, scope, expunge.event_id, expunge.partner_id, expunge.subject_type, expunge.subject_id, expunge.reason);
  for piece_ids in execute
    'select array_agg(t.event_id)
       from (select e.event_id, (row_number() over (order by e.event_id) - 1) / 5000 as piece
               from webhook._event as e
              where ' || webhook._erasure_condition(scope, partner_id is not null) || ') as t
      group by t.piece'
    using event_id, partner_id, subject_type, subject_id
  loop
    for one in
      select b.key, b.value from jsonb_each_text(webhook._bury(piece_ids, id, reason)) as b
    loop
      counts := counts || jsonb_build_object(one.key, coalesce((counts ->> one.key)::bigint, 0) + one.value::bigint);
    end loop;
  end loop;
  counts := counts || jsonb_build_object('received', coalesce((counts ->> 'received')::bigint, 0)
    + webhook._expunge_received(webhook._received_of(event_id, partner_id, subject_type, subject_id)));
  -- The last values of a subject's metrics came from somewhere else, and are told of nobody but it.
  if scope <> 'event' then
    delete from webhook._observation o
     where (scope = 'partner' or (o.subject_type = expunge.subject_type and o.subject_id = expunge.subject_id))
       and (expunge.partner_id is null or o.partner_id = expunge.partner_id);
    get diagnostics n = row_count;
    counts := counts || jsonb_build_object('observations', n);
  end if;
  update webhook._erasure r
     set erased = counts
   where r.erasure_id = id;
  perform webhook._log(
    'expunge', case scope when 'subject' then 'subject' else scope end,
    case scope when 'event' then event_id when 'partner' then partner_id else format('%s:%s', subject_type, subject_id) end,
    coalesce(partner_id, owners[1]),
    after => jsonb_build_object('erasure_id', id::text) || counts,
    reason => reason);
  -- Whatever the leader holds of it is read again before anything else is sent.
  perform webhook._note_expunged();
  return id;
end
$$;

comment on function webhook.expunge(text, text, text, text, text) is
  'Erases the payloads of an event, a subject or a partner, emitted or received here, with every copy, in the caller''s transaction; ids, digests and evidence stay. What is still to be delivered is cancelled; a deletion event leaves as ids only.';

create or replace function webhook.confirm_erasure(
  erasure_id bigint -- as expunge returned it
) returns table (
  item text,        -- what was looked for
  erased bigint,    -- how much of it went with the erasure; null = it is not counted then
  remaining bigint  -- how much is left
)
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: as expunge.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
declare
  erasure webhook._erasure;
  counted jsonb := webhook._count_copies('{}');
  piece_ids text[];
  one record;
  n bigint;
begin
  perform webhook._check_writable('confirm an erasure');
  perform webhook._check_argument('erasure_id', confirm_erasure.erasure_id is null);
  select r.*
    into erasure
    from webhook._erasure r
   where r.erasure_id = confirm_erasure.erasure_id
     for update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('erasure %s does not exist', confirm_erasure.erasure_id),
      hint = 'See webhook.erasures.';
  end if;
  -- Also what was emitted before and committed after: it was not visible to the erasure.
  execute
    'select count(*) filter (where e.body is not null)
       from webhook._event as e
      where ' || webhook._erasure_condition(erasure.scope, erasure.partner_id is not null) || '
        and e.event_id < webhook._event_bound($5)'
     into n
    using erasure.event_id, erasure.partner_id, erasure.subject_type, erasure.subject_id, erasure.at;
  counted := counted || jsonb_build_object('payloads', n);
  for piece_ids in
    select array_agg(p.event_id)
      from (select t.event_id, (row_number() over (order by t.event_id) - 1) / 5000 as piece
              from webhook._tombstone t
             where t.erasure_id = confirm_erasure.erasure_id) as p
     group by p.piece
  loop
    for one in
      select c.key, c.value from jsonb_each_text(webhook._count_copies(piece_ids)) as c
    loop
      counted := counted || jsonb_build_object(one.key, coalesce((counted ->> one.key)::bigint, 0) + one.value::bigint);
    end loop;
  end loop;
  -- What came since is another matter.
  select count(*)
    into n
    from webhook._inbox i
   where i.inbox_id = any (webhook._received_of(erasure.event_id, erasure.partner_id, erasure.subject_type, erasure.subject_id))
     and i.received_at < erasure.at;
  counted := counted || jsonb_build_object('received', greatest((counted ->> 'received')::bigint, n));
  if erasure.scope <> 'event' then
    select count(*)
      into n
      from webhook._observation o
     where (erasure.scope = 'partner' or (o.subject_type = erasure.subject_type and o.subject_id = erasure.subject_id))
       and (erasure.partner_id is null or o.partner_id = erasure.partner_id)
       and o.observed_at < erasure.at;
    counted := counted || jsonb_build_object('observations', n);
  end if;
  -- The leader has looked for answers that arrived while the erasure was not committed.
  select count(*)
    into n
    from webhook._tombstone t
   where t.erasure_id = confirm_erasure.erasure_id
     and not t.swept;
  counted := counted || jsonb_build_object('unswept', n);

  if erasure.confirmed_at is null
     and not exists (select from jsonb_each_text(counted) as c where c.value::bigint > 0)
  then
    update webhook._erasure r
       set confirmed_at = clock_timestamp(),
           confirmed_by = session_user,
           evidence = counted
     where r.erasure_id = confirm_erasure.erasure_id;
  end if;
  perform webhook._log(
    'confirm_erasure', 'erasure', confirm_erasure.erasure_id::text, erasure.partner_id,
    after => counted);
  return query
    select c.key, (erasure.erased ->> c.key)::bigint, c.value::bigint
      from jsonb_each_text(counted) as c
     order by c.key;
end
$$;

create or replace function webhook.update_inbox_handler(
  name text,                              -- the handler
  version text default null,              -- null = keep, like all that follow
  event_types text[] default null,
  sources text[] default null,            -- '{}' removes the limit
  retry_schedule text default null,
  subject_versions boolean default null,
  description text default null           -- '' removes it
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._inbox_handler;
  latter webhook._inbox_handler;
begin
  perform webhook._check_writable('change an inbox handler');
  former := webhook._inbox_handler_named(name);
  latter := former;
  if version is not null then
    perform webhook._check_inbox_name('version', version);
    latter.version := version;
  end if;
  if event_types is not null then
    latter.event_types := webhook._check_event_types(event_types);
  end if;
  perform webhook._check_inbox_sources(sources);
  latter.sources := nullif(coalesce(sources, former.sources), '{}');
  if retry_schedule is not null then
    perform webhook._check_schedule(retry_schedule);
    latter.retry_schedule := retry_schedule;
  end if;
  latter.subject_versions := coalesce(subject_versions, former.subject_versions);
  latter.description := webhook._with_text('description', description, former.description, 4000);
  update webhook._inbox_handler h
     set version = latter.version,
         event_types = latter.event_types,
         sources = latter.sources,
         retry_schedule = latter.retry_schedule,
         subject_versions = latter.subject_versions,
         description = latter.description,
         changed_at = clock_timestamp()
   where h.name = former.name;
  perform webhook._log(
    'update_inbox_handler', 'inbox_handler', name,
    before => webhook._changed(webhook._inbox_handler_facts(former), webhook._inbox_handler_facts(latter)),
    after => webhook._changed(webhook._inbox_handler_facts(latter), webhook._inbox_handler_facts(former)));
end
$$;

-- Receiving: verify, find the tenant, check the schema, store once, and say what to answer.
--
-- What a stranger sends leaves a counter, nothing else. The answer counts once the caller's transaction has committed.

create or replace function webhook.receive(
  source text,                  -- inbox source
  headers jsonb,                -- headers of the request: {"name": "value"} or {"name": ["value", ...]}
  body bytea,                   -- its body, as it came
  method text default 'POST',   -- its method; of RFC 9421
  url text default null,        -- absolute URL that it was sent to; of RFC 9421, when a signature covers it
  out result text,              -- accepted, duplicate, challenge or rejected
  out event_id text,            -- the event; null before a signature was found good
  out http_status integer,      -- what to answer, after the commit
  out reason text,              -- why it was rejected; for operators, not for the answer
  out answer text               -- body of the answer to a challenge; null = none
) returns record
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; whoever answers senders sees no table.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_source;
  found_event record;
  former_hash bytea;
  taken bigint;
begin
  perform webhook._check_writable('receive an event');
  perform webhook._check_argument('source', source is null);
  perform webhook._check_argument('headers', headers is null);
  perform webhook._check_argument('body', body is null);
  perform webhook._check_argument('method', method is null);
  result := 'rejected';
  select s.*
    into known
    from webhook._inbox_source s
   where s.name = receive.source;
  if not found then
    -- Not counted: the name may be the stranger's, and there is no end of names.
    http_status := 404;
    reason := 'unknown_source';
    return;
  end if;
  if not known.enabled then
    http_status := 503;
    reason := 'disabled';
  elsif octet_length(body) > known.max_body then
    http_status := 413;
    reason := 'too_large';
  else
    select i.*
      into found_event
      from webhook._inspect_received(
             known.source_id, known.profile, extract(epoch from known.tolerance)::bigint, known.partner_id, known.partner_from,
             known.partners, known.id_from, known.type_from, known.validation = 'enforce', headers, body, method, url) as i;
    if found_event.refusal is not null then
      http_status := found_event.http_status;
      reason := found_event.refusal;
    elsif found_event.answer is not null then
      result := 'challenge';
      http_status := 200;
      answer := found_event.answer;
    else
      event_id := found_event.event_id;
      select i.inbox_id, i.body_hash
        into taken, former_hash
        from webhook._inbox i
       where i.source_id = known.source_id
         and i.event_id = found_event.event_id
         and i.partner_id = found_event.event_partner_id;
      -- A duplicate is welcome whatever the limits say: to refuse it would only bring it again.
      if not found then
        reason := webhook._inbox_full(known);
        if reason is null then
          taken := webhook._take_in(known, found_event.event_id, found_event.event_partner_id, found_event.event_type,
                                    found_event.subject_type, found_event.subject_id, found_event.subject_version,
                                    found_event.schema_version, found_event.correlation_id, found_event.signed_at, body);
          if taken is not null then
            result := 'accepted';
            http_status := 202;
          else
            -- Another session was faster; its row is visible now, or, under REPEATABLE READ, the insert has failed.
            select i.body_hash
              into former_hash
              from webhook._inbox i
             where i.source_id = known.source_id
               and i.event_id = found_event.event_id
               and i.partner_id = found_event.event_partner_id;
          end if;
        end if;
      end if;
      if reason is not null then
        http_status := case reason when 'rate_limited' then 429 else 503 end;
      elsif result <> 'accepted' then
        if known.same_body and former_hash <> sha256(body) then
          http_status := 409;
          reason := 'conflict';
        else
          result := 'duplicate';
          http_status := 200;
        end if;
      end if;
    end if;
  end if;
  perform webhook._count_inbox(known.source_id, result, coalesce(reason, ''));
end
$$;

-- Why an event went to an endpoint, or did not.

-- One pair with all that decides about it. Like the public views it belongs to webhook_views: readers get their own rows.
create or replace view webhook._seen_match as
select e.event_id,
       p.endpoint_id,
       jsonb_build_object(
         'event_partner', e.partner_id,
         'endpoint_partner', p.partner_id,
         'type', e.type,
         'subject_type', e.subject_type,
         'subject_id', e.subject_id,
         'event_test', e.test,
         'endpoint_test', p.test,
         'event_origin', e.origin,
         'endpoint_origin', p.origin,
         'event_types', p.event_types,
         'subject_types', p.subject_types,
         'filter', p.filter,
         'filter_in_force', k.in_force,
         'expunged', e.body is null,
         'in_time', e.xid = p.created_xid or not pg_visible_in_snapshot(e.xid, p.created_snapshot),
         'created_at', p.created_at,
         'state', coalesce(s.state, p.state),
         'state_reason', case when s.state is null then p.state_reason else s.reason end,
         'state_changed_at', case when s.state is null then p.state_changed_at else s.changed_at end,
         'delivery_state', d.state,
         'delivery_reason', d.reason,
         'attempt_count', d.attempt_count,
         'hold', w.hold,
         'matched', t.matched,
         'why', t.why) as facts
  from webhook._event e
 cross join webhook._endpoint p
  left join webhook._endpoint_state s on s.endpoint_id = p.endpoint_id and s.generation = p.generation
  left join webhook._delivery d on d.event_id = e.event_id and d.endpoint_id = p.endpoint_id
  left join webhook._due w on w.event_id = e.event_id and w.endpoint_id = p.endpoint_id
  -- A filter of this very transaction is not asked: it could be taken back without a trace, and the next one chosen by
  -- what it said of a payload that the reader may not read. One that was committed stands in the audit log.
 cross join lateral (select p.changed_xid is distinct from pg_current_xact_id_if_assigned() as in_force) as k
  left join lateral webhook._try_filters(e.body, array[p.filter]) as t on p.filter is not null and e.body is not null and k.in_force;

create or replace function webhook.explain(
  event_id text,     -- the event
  endpoint_id bigint -- the endpoint
) returns table (
  step text,      -- what was looked at
  passed boolean, -- whether it lets the event through; null = it cannot be said
  detail text     -- in words
)
language plpgsql stable parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
set jit = off
as $$
declare
  pair record;
  about_webhooks boolean;
  about_it boolean;
  published timestamptz;
  emitted timestamptz;
  all_passed boolean := true;
begin
  perform webhook._check_argument('event_id', event_id is null);
  perform webhook._check_argument('endpoint_id', endpoint_id is null);
  select f.*
    into pair
    from webhook._seen_match m
   cross join lateral jsonb_to_record(m.facts) as f (
         event_partner text, endpoint_partner text, type text, subject_type text, subject_id text, event_test boolean,
         endpoint_test boolean, event_origin bigint, endpoint_origin bigint, event_types text[], subject_types text[], filter text, filter_in_force boolean,
         expunged boolean, in_time boolean, created_at timestamptz, state text, state_reason text, state_changed_at timestamptz,
         delivery_state text, delivery_reason text, attempt_count integer, hold integer, matched boolean, why text)
   where m.event_id = explain.event_id
     and m.endpoint_id = explain.endpoint_id;
  if not found then
    -- A foreign row is answered like one that does not exist.
    perform from webhook.events e where e.event_id = explain.event_id;
    raise exception using
      errcode = 'undefined_object',
      message = case
        when found then format('endpoint %s does not exist', endpoint_id)
        else format('event "%s" does not exist', left(event_id, 128))
      end;
  end if;
  about_webhooks := pair.type like 'webhook.%';
  about_it := pair.subject_id is not distinct from explain.endpoint_id::text;
  emitted := webhook._event_time(event_id);

  for step, passed, detail in
    values
      ('partner',
       pair.event_partner = pair.endpoint_partner,
       case
         when pair.event_partner = pair.endpoint_partner then format('both belong to "%s"', pair.event_partner)
         else format('the event belongs to "%s", the endpoint to "%s"', pair.event_partner, pair.endpoint_partner)
       end),
      ('origin',
       pair.event_origin = webhook._origin() and pair.endpoint_origin = webhook._origin(),
       case
         when pair.endpoint_origin <> webhook._origin() then 'the endpoint came with a copy of another database and is inert'
         when pair.event_origin <> webhook._origin() then 'the event came with a copy of another database: it is sent by an adoption alone'
         else 'both are of this database'
       end),
      ('mode',
       pair.event_test = pair.endpoint_test or pair.type = 'webhook.test',
       case
         when pair.type = 'webhook.test' then 'a test goes to the endpoint that it names'
         else format('%s event, %s endpoint', case when pair.event_test then 'test' else 'live' end, case when pair.endpoint_test then 'test' else 'live' end)
       end),
      ('lifecycle',
       case
         when pair.type = 'webhook.test' then about_it
         else not (pair.type like 'webhook.endpoint.%' and about_it)
       end,
       case
         when pair.type = 'webhook.test' and about_it then 'it is a test of this endpoint'
         when pair.type = 'webhook.test' then 'it is a test of another endpoint'
         when pair.type like 'webhook.endpoint.%' and about_it then 'what happens to an endpoint is told to others only'
         else 'the event is not about this endpoint'
       end),
      ('time',
       pair.in_time,
       case
         when pair.in_time then 'the endpoint was there, or was made while the event was'
         else format('the event was visible when the endpoint was made, at %s: it is older', webhook._rfc3339(pair.created_at))
       end),
      ('state',
       pair.state in ('active', 'paused', 'unverified'),
       format('the endpoint is %s since %s%s%s', pair.state, webhook._rfc3339(pair.state_changed_at), ': ' || pair.state_reason,
              case
                when pair.state in ('paused', 'unverified') then '; deliveries wait'
                when pair.state = 'active' and pair.state_changed_at > emitted then '; what it was when the event was read is in the audit log'
              end)),
      ('type',
       pair.type = 'webhook.test' or webhook._type_matches(pair.event_types, pair.type),
       case
         when pair.type = 'webhook.test' then 'a test needs no subscription'
         else format('"%s", and the endpoint subscribes to %s', pair.type, array_to_string(pair.event_types, ', '))
       end),
      ('subject',
       about_webhooks or pair.subject_types is null or coalesce(pair.subject_type = any (pair.subject_types), false),
       case
         when about_webhooks then 'not asked for events about webhooks'
         when pair.subject_types is null then 'the endpoint takes every subject'
         else format('%s, and the endpoint takes %s', coalesce('"' || pair.subject_type || '"', 'the event has no subject'), array_to_string(pair.subject_types, ', '))
       end),
      ('filter',
       case when about_webhooks or pair.filter is null then true else pair.matched end,
       case
         when about_webhooks then 'not asked for events about webhooks'
         when pair.filter is null then 'the endpoint has none'
         when pair.expunged then 'the payload was expunged'
         when not pair.filter_in_force then format('%s: the endpoint was changed by this transaction, which has not committed; ask again afterwards', pair.filter)
         else format('%s: %s', pair.filter, case when pair.matched then 'matches' when not pair.matched then 'does not match' else pair.why end)
       end)
  loop
    all_passed := all_passed and coalesce(passed, false);
    return next;
  end loop;

  step := 'delivery';
  passed := pair.delivery_state is not null;
  if passed then
    detail := concat_ws(', ',
      format('%s is %s', webhook._delivery_id(event_id, endpoint_id), pair.delivery_state),
      format('%s attempts', pair.attempt_count),
      pair.delivery_reason,
      'held by ' || nullif(concat_ws(' and ',
        case when pair.hold & 1 <> 0 then 'a paused event type' end,
        case when pair.hold & 2 <> 0 then 'the event before it' end,
        case when pair.hold & 4 <> 0 then 'quarantine' end,
        case when pair.hold & 8 <> 0 then 'the filter' end,
        case when pair.hold & 16 <> 0 then 'a failed conversion' end,
        case when pair.hold & 32 <> 0 then 'its origin' end), ''),
      case when not all_passed then 'made under what was in force then, or because somebody asked for it' end);
  else
    select p.published_at
      into published
      from webhook._publication(pair.event_partner, event_id) as p;
    detail := case
      when published is null then 'there is none: the leader has not read the event'
      when pair.expunged then 'there is none: the payload was expunged'
      when all_passed then format('there is none, although today all of the above lets it through: the event was read at %s; it is on its way just now, or the endpoint was another then (see the audit log)', webhook._rfc3339(published))
      else format('there is none; the event was read at %s', webhook._rfc3339(published))
    end;
  end if;
  return next;
end
$$;

-- Processing what was received: claims and results. Everything here is the handler's own transaction: what finish_inbox
-- writes commits, or does not, with the side effect beside it.

create or replace function webhook.claim_inbox(
  handler text,                          -- the handler
  max_events integer default 1,          -- most events to return, 1 to 1000
  lease interval default '1 minute',     -- for how long nobody else gets them
  version text default null,             -- version of the caller's code; refused when it is not the one in force
  out claim_id bigint,                   -- to be given to finish_inbox
  out event_id text,
  out source text,
  out partner_id text,
  out type text,
  out subject_type text,
  out subject_id text,
  out subject_version bigint,
  out schema_version text,
  out correlation_id text,
  out received_at timestamptz,
  out attempt integer,                   -- number of this attempt, from 1
  out body bytea                         -- byte for byte as it was received
) returns setof record
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it. It hands out payloads: grant it to handlers alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
-- The plan must follow the index that knows what is due, whatever the statistics say.
set enable_seqscan = off
as $$
declare
  known webhook._inbox_handler;
  candidate record;
  given integer := 0;
  passed_over integer := 0;
  moment timestamptz;
  ended text;
  why text;
begin
  perform webhook._check_writable('claim events');
  perform webhook._check_argument('handler', handler is null);
  perform webhook._check_argument('max_events', max_events is null);
  perform webhook._check_argument('lease', lease is null);
  if max_events not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'max_events is outside the valid range',
      detail = format('It is %s; the range is 1 to 1000.', max_events);
  end if;
  if not (lease >= interval '1 second' and lease <= interval '1 day') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'lease is outside the valid range',
      detail = 'It is 1 second to 1 day.';
  end if;
  select h.*
    into known
    from webhook._inbox_handler h
   where h.name = claim_inbox.handler;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('inbox handler "%s" does not exist', left(handler, 128)),
      hint = 'Use webhook.create_inbox_handler.';
  end if;
  if version <> known.version then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('version "%s" of inbox handler "%s" is not in force', left(version, 64), handler),
      detail = format('Version "%s" is.', known.version),
      hint = 'Use webhook.update_inbox_handler when the new code takes over.';
  end if;
  if known.paused_at is not null or known.origin <> webhook._origin() then
    return;
  end if;
  -- One by one: FOR over a query would lock rows ahead of the one it is at. What is stale or spent ends here and now, but
  -- no more than a thousand in a call.
  while given < max_events and passed_over < 1000 loop
    moment := clock_timestamp();
    select r.inbox_id, r.version as run_version, r.attempts, r.state
      into candidate
      from webhook._inbox_run r
     where r.handler = known.name
       and r.state in ('pending', 'claimed', 'retrying')
       and r.next_attempt_at <= moment
     order by r.next_attempt_at, r.inbox_id
     limit 1
       for update skip locked;
    exit when not found;
    select i.event_id, s.name, i.partner_id, i.type, i.subject_type, i.subject_id, i.subject_version, i.schema_version,
           i.correlation_id, i.received_at, i.body
      into event_id, source, partner_id, type, subject_type, subject_id, subject_version, schema_version, correlation_id,
           received_at, body
      from webhook._inbox i
      join webhook._inbox_source s on s.source_id = i.source_id
     where i.inbox_id = candidate.inbox_id;
    ended := null;
    if body is null then
      ended := 'closed';
      why := 'it was expunged';
    elsif candidate.run_version <> known.version
          and exists (select from webhook._inbox_run o
                       where o.inbox_id = candidate.inbox_id and o.handler = known.name and o.version = known.version) then
      ended := 'closed';
      why := format('version "%s" has had it before', known.version);
    elsif candidate.state = 'claimed' and webhook._schedule_wait(known.retry_schedule, candidate.attempts) is null then
      ended := 'dead';
      why := 'the last lease ended without a result';
    elsif known.subject_versions and subject_version is not null and exists (
            select from webhook._inbox_subject b
             where b.handler = known.name
               and b.source_id = (select i.source_id from webhook._inbox i where i.inbox_id = candidate.inbox_id)
               and b.partner_id = claim_inbox.partner_id
               and b.subject_type = claim_inbox.subject_type
               and b.subject_id = claim_inbox.subject_id
               and b.version > claim_inbox.subject_version) then
      ended := 'stale';
      why := 'a newer version of its subject was processed';
    end if;
    if ended is not null then
      passed_over := passed_over + 1;
      update webhook._inbox_run r
         set state = ended,
             note = why,
             claim_id = null,
             finished_at = clock_timestamp()
       where r.inbox_id = candidate.inbox_id
         and r.handler = known.name
         and r.version = candidate.run_version;
      if ended = 'dead' then
        perform webhook._tell_dead_inbox(known.name, source, event_id);
      elsif ended = 'stale' then
        perform webhook._count_inbox((select i.source_id from webhook._inbox i where i.inbox_id = candidate.inbox_id), 'stale', known.name);
      end if;
      continue;
    end if;
    claim_id := webhook._new_id();
    attempt := candidate.attempts + 1;
    update webhook._inbox_run r
       set state = 'claimed',
           version = known.version,
           claim_id = claim_inbox.claim_id,
           attempts = attempt,
           next_attempt_at = clock_timestamp() + lease
     where r.inbox_id = candidate.inbox_id
       and r.handler = known.name
       and r.version = candidate.run_version;
    given := given + 1;
    return next;
  end loop;
end
$$;

create or replace function webhook.finish_inbox(
  claim_id bigint,                     -- the claim
  result text default 'processed',     -- processed, failed (try again later), rejected (never) or stale
  note text default null               -- what came of it, or what went wrong; no payload
) returns text -- state of the event for this handler: processed, retrying, dead or stale
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  held record;
  wait bigint;
  outcome text;
begin
  perform webhook._check_writable('finish an event');
  perform webhook._check_argument('claim_id', claim_id is null);
  perform webhook._check_argument('result', result is null);
  if result not in ('processed', 'failed', 'rejected', 'stale') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('result "%s" does not exist', left(result, 64)),
      hint = 'It is processed, failed, rejected or stale.';
  end if;
  note := webhook._check_text('note', note, 1000);
  select r.inbox_id, r.source_id, r.handler, r.version, r.attempts, h.retry_schedule, h.subject_versions,
         i.event_id, i.partner_id, i.subject_type, i.subject_id, i.subject_version
    into held
    from webhook._inbox_run r
    join webhook._inbox i on i.inbox_id = r.inbox_id
    join webhook._inbox_handler h on h.name = r.handler
   where r.claim_id = finish_inbox.claim_id
     for no key update of r;
  if not found then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('claim %s is not held', claim_id),
      detail = 'Its lease ended and another session claimed the event, it was finished already, or somebody closed it.',
      hint = 'Roll back what was done for it.';
  end if;
  case result
    when 'processed' then
      outcome := 'processed';
      if held.subject_versions and held.subject_version is not null and held.subject_id is not null then
        insert into webhook._inbox_subject as b (handler, source_id, partner_id, subject_type, subject_id, version)
        values (held.handler, held.source_id, held.partner_id, held.subject_type, held.subject_id, held.subject_version)
        on conflict on constraint _inbox_subject_pkey do update
           set version = excluded.version,
               changed_at = clock_timestamp()
         where b.version <= excluded.version;
        -- It was not so when the event was claimed: what was done since then must not stay.
        if not found then
          raise exception using
            errcode = 'serialization_failure',
            message = 'a newer version of the subject was processed meanwhile',
            hint = 'Roll back: claim_inbox will find the event stale.';
        end if;
      end if;
    when 'failed' then
      wait := webhook._schedule_wait(held.retry_schedule, held.attempts);
      outcome := case when wait is null then 'dead' else 'retrying' end;
    when 'rejected' then
      outcome := 'dead';
    else
      outcome := 'stale';
  end case;
  update webhook._inbox_run r
     set state = outcome,
         claim_id = null,
         note = finish_inbox.note,
         finished_at = case when wait is null then clock_timestamp() end,
         -- Up to a fifth longer, so that what failed together does not come back together.
         next_attempt_at = clock_timestamp() + make_interval(secs => coalesce(wait, 0) / 1000.0 * (1 + random() / 5))
   where r.inbox_id = held.inbox_id
     and r.handler = held.handler
     and r.version = held.version;
  if outcome = 'dead' then
    perform webhook._tell_dead_inbox(held.handler, (select s.name from webhook._inbox_source s where s.source_id = held.source_id), held.event_id);
  end if;
  perform webhook._count_inbox(held.source_id, case result when 'rejected' then 'failed' else result end, held.handler);
  return outcome;
end
$$;

create function webhook._tell_dead_inbox(
  handler text, -- who gave it up
  source text,  -- where it came from
  event_id text -- the event
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  what constant text := format('Inbox handler "%s" has given up events of source "%s": see webhook.inbox where state = ''dead''; this is the first within an hour.', handler, source);
begin
  -- One that fails on everything is told once an hour. Of no partner: handlers are the house's own.
  if not exists (
       select
         from webhook._alert a
        where a.alert_id >= webhook._pos_bound(clock_timestamp() - interval '1 hour')
          and a.kind = 'inbox.dead'
          and a.detail = what)
  then
    insert into webhook._alert (alert_id, kind, severity, event_id, detail)
    values (webhook._new_id(), 'inbox.dead', 'warning', _tell_dead_inbox.event_id, what);
  end if;
end
$$;

comment on function webhook._tell_dead_inbox(text, text, text) is 'Writes an alert about a dead letter of the inbox, unless there was one of the same handler and source within the hour.';

create function webhook._inbox_backlog(
  out pending bigint, -- received events that handlers have not finished, each counted for each handler
  out dead bigint     -- those that they have given up
) returns record
language sql stable parallel safe
-- SECURITY DEFINER: called by status, whose readers have no right to the table.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select (select count(*) from webhook._inbox_run r where r.state in ('pending', 'claimed', 'retrying')),
         (select count(*) from webhook._inbox_run r where r.state = 'dead')
$$;

comment on function webhook._inbox_backlog() is 'What waits in the inbox.';

-- Deciding about received events by hand, and processing them again.

create function webhook._inbox_run_of(
  event_id text, -- the event
  handler text,  -- the handler
  source text,    -- inbox source; null = there is only one that has the event
  partner_id text -- its tenant; null = there is only one
) returns webhook._inbox_run -- the newest version's row, locked
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_handler;
  found_run webhook._inbox_run;
  events bigint[];
begin
  perform webhook._check_argument('event_id', event_id is null);
  known := webhook._inbox_handler_named(handler);
  select array_agg(i.inbox_id)
    into events
    from webhook._inbox_source s
    join webhook._inbox i on i.source_id = s.source_id
   where i.event_id = _inbox_run_of.event_id
     and (_inbox_run_of.source is null or s.name = _inbox_run_of.source)
     and (_inbox_run_of.partner_id is null or i.partner_id = _inbox_run_of.partner_id);
  if cardinality(events) > 1 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('event "%s" came from several sources, or for several partners', left(event_id, 256)),
      hint = 'Name the source and the partner_id.';
  end if;
  select r.*
    into found_run
    from webhook._inbox_run r
   where r.inbox_id = events[1]
     and r.handler = known.name
   order by r.version = known.version desc, r.state in ('pending', 'claimed', 'retrying') desc, r.finished_at desc
   limit 1
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event "%s" of handler "%s" does not exist', left(event_id, 256), handler),
      detail = case when events is null then 'It was not received, or is older than the retention.' else 'The handler did not want it.' end,
      hint = 'See webhook.inbox.';
  end if;
  return found_run;
end
$$;

comment on function webhook._inbox_run_of(text, text, text, text) is 'The row that a decision about an event and a handler is about.';

create function webhook.retry_inbox(
  event_id text,              -- the event
  handler text,               -- the handler
  reason text,                -- why
  source text default null,     -- inbox source; needed when several have an event of this id
  partner_id text default null  -- its tenant; needed when events of several have this id
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  run webhook._inbox_run;
  event record;
begin
  perform webhook._check_writable('retry an event');
  reason := webhook._check_reason(reason);
  run := webhook._inbox_run_of(event_id, handler, source, partner_id);
  select i.partner_id, i.expunged_at
    into event
    from webhook._inbox i
   where i.inbox_id = run.inbox_id;
  if run.state = 'processed' or run.state = 'claimed' and run.next_attempt_at > clock_timestamp() or event.expunged_at is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" of handler "%s" is %s', left(event_id, 256), handler,
                       case when event.expunged_at is not null then 'expunged' else run.state end),
      detail = 'A version processes an event once; what is claimed is being processed; what is expunged is gone.',
      hint = case when run.state = 'processed' then 'Give the handler a new version, and use webhook.replay_inbox.' else 'See webhook.inbox.' end;
  end if;
  update webhook._inbox_run r
     set state = 'pending',
         attempts = 0,
         claim_id = null,
         finished_at = null,
         next_attempt_at = clock_timestamp(),
         note = retry_inbox.reason
   where r.inbox_id = run.inbox_id
     and r.handler = run.handler
     and r.version = run.version;
  perform webhook._log('retry_inbox', 'inbox_event', event_id, event.partner_id,
                       before => jsonb_build_object('handler', handler, 'state', run.state), reason => reason);
end
$$;

comment on function webhook.retry_inbox(text, text, text, text, text) is
  'Gives a received event that is dead, stale, closed or waiting back to its handler, at once and with all its attempts.';

create function webhook.close_inbox(
  event_id text,              -- the event
  handler text,               -- the handler
  reason text,                -- why
  source text default null,     -- inbox source; needed when several have an event of this id
  partner_id text default null  -- its tenant; needed when events of several have this id
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  run webhook._inbox_run;
begin
  perform webhook._check_writable('close an event');
  reason := webhook._check_reason(reason);
  run := webhook._inbox_run_of(event_id, handler, source, partner_id);
  if run.state in ('processed', 'stale', 'closed') then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('event "%s" of handler "%s" is %s', left(event_id, 256), handler, run.state),
      detail = 'Only what is dead or unfinished can be closed.';
  end if;
  update webhook._inbox_run r
     set state = 'closed',
         claim_id = null,
         finished_at = clock_timestamp(),
         note = close_inbox.reason
   where r.inbox_id = run.inbox_id
     and r.handler = run.handler
     and r.version = run.version;
  perform webhook._log('close_inbox', 'inbox_event', event_id, (select i.partner_id from webhook._inbox i where i.inbox_id = run.inbox_id),
                       before => jsonb_build_object('handler', handler, 'state', run.state), reason => reason);
end
$$;

comment on function webhook.close_inbox(text, text, text, text, text) is 'Decides that a handler will not process a received event.';

-- Erasing what was received, and forgetting it when it is old: what expunge and the leader call. Both find their rows by
-- indexes, however much was received.

create function webhook._received_of(
  event_id text,     -- an event; null = whatever its id is
  partner_id text,   -- a partner; null = of all
  subject_type text, -- kind of a subject; null = whatever it is about
  subject_id text    -- its identity
) returns bigint[] -- rows of _inbox whose payload is there
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  found_ids bigint[];
begin
  -- Of text, with nothing in it that is not asked for: each is planned by its own index.
  execute
    'select array_agg(i.inbox_id)
       from ' || case when event_id is null then 'webhook._inbox i'
                      -- By way of the sources, as the index has it.
                      else 'webhook._inbox_source s join webhook._inbox i on i.source_id = s.source_id and i.event_id = $1' end || '
      where i.expunged_at is null'
      || case when partner_id is null then '' else ' and i.partner_id = $2' end
      || case when subject_type is null then '' else ' and i.subject_type = $3 and i.subject_id = $4' end
     into found_ids
    using event_id, partner_id, subject_type, subject_id;
  return coalesce(found_ids, '{}');
end
$$;

comment on function webhook._received_of(text, text, text, text) is
  'What others sent as an event, about a partner or about a subject: their events have ids of their own, so the latter are found by what they say.';

create function webhook._trim_inbox(
  before timestamptz, -- what was received before this moment is old
  max_rows integer    -- most events to delete, and most rows of each other table
) returns bigint -- rows of the table of which most were deleted; fewer than max_rows = there is nothing more to do
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  today constant date := (clock_timestamp() at time zone 'UTC')::date;
  trimmed bigint;
  others bigint;
begin
  delete from webhook._inbox i
   where i.inbox_id in (
           select o.inbox_id
             from webhook._inbox_source s
            cross join lateral (
                  select n.inbox_id
                    from webhook._inbox n
                   where n.source_id = s.source_id
                     and n.received_at < before
                     -- What a handler still owes is not forgotten; dead letters are, when their time is over.
                     and not exists (
                           select from webhook._inbox_run r
                            where r.inbox_id = n.inbox_id
                              and r.state in ('pending', 'claimed', 'retrying'))
                   order by n.received_at
                   limit max_rows) as o
            limit max_rows);
  get diagnostics trimmed = row_count;
  delete from webhook._inbox_subject b
   where b.ctid = any (array(
           select o.ctid
             from webhook._inbox_subject o
            where o.changed_at < before
            order by o.changed_at
            limit max_rows
              -- One that is about to become newer is none of these.
              for update skip locked));
  get diagnostics others = row_count;
  trimmed := greatest(trimmed, others);
  delete from webhook._inbox_count c
   where c.ctid = any (array(
           select o.ctid
             from webhook._inbox_count o
            where o.slot = 0
              and o.day < (before at time zone 'UTC')::date
            order by o.day
            limit max_rows
              for update skip locked));
  get diagnostics others = row_count;
  trimmed := greatest(trimmed, others);
  -- Rows of one counter that many sessions made are put together once their day is over: what is to be looked at is
  -- always of the last days. A transaction that began before midnight may be open for a while.
  with former as (
    delete from webhook._inbox_count c
     where c.ctid = any (array(
             select o.ctid
               from webhook._inbox_count o
              where o.slot <> 0
                and o.day < today - 1
              order by o.day
              limit max_rows
                for update skip locked))
    returning c.*),
  latter as (
    insert into webhook._inbox_count as c (source_id, day, result, reason, slot, total, last_at)
    select f.source_id, f.day, f.result, f.reason, 0, sum(f.total), max(f.last_at)
      from former f
     group by f.source_id, f.day, f.result, f.reason
    on conflict on constraint _inbox_count_pkey do update
       set total = c.total + excluded.total,
           last_at = greatest(c.last_at, excluded.last_at))
  select count(*) into others from former f;
  return greatest(trimmed, others);
end
$$;

comment on function webhook._trim_inbox(timestamptz, integer) is
  'Deletes received events that are older than webhook.inbox_retention and have no unfinished work, with all that belongs to them; a bounded number at a time.';

create or replace function webhook._close_findings(
  run bigint,        -- run of reconcile that did not find them any more
  check_name text,   -- registered query; null = the tables
  since timestamptz, -- judged from this time
  until timestamptz  -- up to this one
) returns void
language sql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
  update webhook._finding as f
     set repaired_at = clock_timestamp(),
         how = coalesce((select format('request %s: %s', q.request_id, q.result)
                           from webhook._request as q
                          where q.request_id = f.request_id
                            and q.state = 'done'), 'it is not there any more')
   where f.repaired_at is null
     and f.run <> _close_findings.run
     and f.check_name is not distinct from _close_findings.check_name
     -- Of a query itself, not of what it says: see _note_query.
     and f.kind <> 'query.failed'
     and f.happened_at >= since
     and f.happened_at < until
$$;

create or replace function webhook.reconcile(
  since timestamptz default null,        -- judge what happened at this time or later; null = the last 25 hours
  until timestamptz default null,        -- and before this time; null = up to now
  repair boolean default true,           -- whether the leader is asked to repair what can be repaired
  settle interval default '5 minutes'    -- what is younger is not judged
) returns table (
  kind text,        -- what is wrong
  found bigint,     -- how many there are
  new bigint,       -- how many of them were not known before
  repairing bigint  -- for how many a request to the leader is under way
)
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: the tables belong to the owner alone. Registered queries run with the rights of theirs, see _changes.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  range record;
  registered record;
begin
  range := webhook._reconcile(since, until, settle, repair);
  for registered in
    select r.name, r.query from webhook._reconciliation as r order by r.name
  loop
    perform webhook._reconcile_query(range.run, registered.name, registered.query, range.low, range.high);
  end loop;
  return query
    select f.kind, f.found, f.new, f.repairing from webhook._found(range.run) as f;
end
$$;

create function webhook._reconcile_query(
  run bigint,        -- run of reconcile
  name text,         -- registered query
  query text,        -- its function
  since timestamptz, -- the range that it is asked for
  until timestamptz
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_variable
declare
  changes jsonb;
  code text;
  what text;
begin
  -- In a savepoint: whatever is wrong with one query, the others are asked, and the tables were looked at.
  begin
    -- Once more: somebody may have changed whose rights it runs with.
    perform webhook._check_query(query);
    changes := webhook._changes('webhook._ask_query(text, timestamptz, timestamptz)'::regprocedure, query, since, until);
    if jsonb_array_length(changes) > 10000 then
      raise exception using
        errcode = 'program_limit_exceeded',
        message = 'it returned too many changes',
        detail = 'At most 10000 are compared at a time: reconcile a shorter range.';
    end if;
    perform webhook._judge_changes(run, name, changes, since, until);
  exception
    -- Of a query that failed the SQLSTATE is told and no more: its message may hold what its owner alone may read.
    when external_routine_exception then
      get stacked diagnostics what = pg_exception_detail;
    -- So may the value that is no time, or no number.
    when data_exception then
      code := sqlstate;
      what := format('It returned what cannot be compared (SQLSTATE %s).', code);
    when undefined_function or object_not_in_prerequisite_state or program_limit_exceeded then
      get stacked diagnostics code = returned_sqlstate, what = message_text;
      what := format('%s (SQLSTATE %s).', upper(left(what, 1)) || substr(what, 2), code);
  end;
  perform webhook._note_query(run, name, until, what);
end
$$;

comment on function webhook._reconcile_query(bigint, text, text, timestamptz, timestamptz) is
  'Asks one registered query and judges what it says. That it failed is a finding.';

create function webhook._note_query(
  run bigint,        -- run of reconcile
  name text,         -- registered query
  until timestamptz, -- end of the range that it was asked for
  failure text       -- why it could not be asked; null = it could
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  is_new boolean;
begin
  if failure is null then
    update webhook._finding as f
       set repaired_at = clock_timestamp(),
           how = 'the query could be asked again'
     where f.kind = 'query.failed'
       and f.object = _note_query.name
       and f.repaired_at is null;
    return;
  end if;
  insert into webhook._finding as f (finding_id, kind, object, happened_at, check_name, detail, run)
  values (webhook._new_id(), 'query.failed', _note_query.name, until - interval '1 microsecond', _note_query.name, failure, _note_query.run)
  on conflict (kind, object) where repaired_at is null do update
     set seen_at = clock_timestamp(),
         detail = excluded.detail,
         run = excluded.run
  -- A new row has no former version.
  returning f.xmax = 0 into is_new;
  -- Told once, until it could be asked again: its changes are found by nobody meanwhile.
  if is_new then
    insert into webhook._alert (alert_id, kind, severity, detail)
    values (webhook._new_id(), 'reconciliation.failed', 'warning',
            format('The registered query "%s" could not be asked: changes without an event are not found. %s', _note_query.name, failure));
  end if;
end
$$;

comment on function webhook._note_query(bigint, text, timestamptz, text) is
  'Records that a registered query failed, with an alert when it had not before; or that it does so no longer.';

create or replace function webhook._judge_changes(
  run bigint,        -- run of reconcile
  name text,         -- registered query
  changes jsonb,     -- its rows
  since timestamptz, -- the range that it was asked for
  until timestamptz
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: as _reconcile; the rows are compared, never executed.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_variable
declare
  asked webhook._reconciliation;
  bad jsonb;
begin
  select r.* into asked from webhook._reconciliation as r where r.name = _judge_changes.name;
  if not found then
    return;
  end if;
  select c.row
    into bad
    from jsonb_array_elements(changes) as c (row)
   where c.row ->> 'subject_id' is null
      or c.row ->> 'changed_at' is null
   limit 1;
  if found then
    raise exception using
      errcode = 'null_value_not_allowed',
      message = 'it returned a change without subject_id or changed_at';
  end if;
  insert into webhook._finding as f
    (finding_id, kind, object, happened_at, partner_id, check_name, detail, run)
  select webhook._new_id(), 'change.without_event',
         format('%s %s:%s %s', name, asked.subject_type, g.subject_id, coalesce('version ' || g.version, webhook._rfc3339(g.changed_at))),
         least(greatest(g.changed_at, since), until - interval '1 microsecond'), g.partner_id, name,
         format('No event %s reports it.', asked.event_type), run
    from (select distinct on (c.subject_id, coalesce(c.version::text, c.changed_at::text)) c.*
            from (select e.row ->> 'subject_id' as subject_id,
                         (e.row ->> 'changed_at')::timestamptz as changed_at,
                         e.row ->> 'partner_id' as partner_id,
                         (e.row ->> 'subject_version')::bigint as version
                    from jsonb_array_elements(changes) as e (row)) as c
           order by c.subject_id, coalesce(c.version::text, c.changed_at::text)) as g
   where not exists (
           select
             from webhook._event as e
            where e.subject_type = asked.subject_type
              and e.subject_id = g.subject_id
              and e.type = asked.event_type
              and (g.partner_id is null or e.partner_id = g.partner_id)
              and case
                    when g.version is not null then e.subject_version = g.version
                    else webhook._event_time(e.event_id) between g.changed_at - asked.tolerance and g.changed_at + asked.tolerance
                      or e.occurred_at between g.changed_at - asked.tolerance and g.changed_at + asked.tolerance
                  end)
  on conflict (kind, object) where repaired_at is null do update
     set seen_at = clock_timestamp(),
         run = excluded.run;
  perform webhook._close_findings(run, name, since, until);
end
$$;

create function webhook._unread(
  most bigint default null, -- so many of each stream are counted at most; null = all
  out events bigint, -- events of this origin that are committed and that the leader has not read
  out first_id text  -- the oldest of them
) returns record
language plpgsql volatile parallel safe
-- SECURITY DEFINER: called by the view stat_queue, whose readers have no right to the events.
security definer
set search_path = pg_catalog, webhook, pg_temp
-- The planner takes a range of xid for a ninth of the table and would compile the plan: 0.25 s for nothing.
set jit = off
as $$
declare
  place record;
  late xid8[];
  more_events bigint;
  more_id text;
  late_events bigint;
  late_id text;
begin
  events := 0;
  -- One place of everybody's stream, and one of each that was set aside and has not joined it again.
  for place in
    with stream as (
      select distinct on (l.stream) l.stream, l.partners, l.prev, l.cur, l.to_xid, l.to_id
        from webhook._ledger l
       where l.kind in ('start', 'window', 'aside', 'place')
         and l.cur is not null
         and not exists (select from webhook._ledger j where j.stream = l.stream and j.kind = 'joined')
       order by l.stream, l.n desc)
    select s.prev,
           s.cur,
           coalesce(s.to_xid, '0'::xid8) as to_xid,
           coalesce(s.to_id, '') as to_id,
           greatest(pg_snapshot_xmax(s.prev), s.to_xid) as low_xid,
           pg_snapshot_xmax(pg_current_snapshot()) as high_xid,
           s.stream <> 0 as only_these,
           case
             when s.stream <> 0 then s.partners
             else array(select unnest(a.partners) from stream a where a.stream <> 0)
           end as partners
      from stream s
  loop
    -- Behind the leader's place, in its order. The upper bound spares the rows of a restored copy, whose
    -- transaction ids may lie in this cluster's future.
    select count(*), min(s.event_id)
      into more_events, more_id
      from (select e.event_id, e.partner_id
              from webhook._event e
             where e.xid >= place.low_xid
               and e.xid < place.high_xid
               and (e.xid, e.event_id) > (place.to_xid, place.to_id)
               and e.origin = webhook._origin()
             limit most) as s
     where (s.partner_id = any (place.partners)) = place.only_these;
    -- Transactions that were open when a snapshot of the leader was taken, and have committed since.
    late := array(select pg_snapshot_xip(place.prev) union select pg_snapshot_xip(place.cur));
    if cardinality(late) > 0 then
      select count(*), min(s.event_id)
        into late_events, late_id
        from (select e.event_id, e.partner_id
                from webhook._event e
               where e.xid = any (late)
                 and e.origin = webhook._origin()
                 and (((e.xid, e.event_id) > (place.to_xid, place.to_id) and e.xid < pg_snapshot_xmax(place.prev))
                      or ((e.xid, e.event_id) <= (place.to_xid, place.to_id) and not pg_visible_in_snapshot(e.xid, place.cur)))
               limit most) as s
       where (s.partner_id = any (place.partners)) = place.only_these;
      more_events := more_events + late_events;
      more_id := least(more_id, late_id);
    end if;
    events := events + more_events;
    first_id := least(first_id, more_id);
  end loop;
end
$$;

comment on function webhook._unread(bigint) is 'What the leader has still to read; with an argument, of so many events looked at in each stream.';

create view webhook.stat_queue as
select u.events as unread_events,
       webhook._event_time(u.first_id) as oldest_unread_at,
       clock_timestamp() - webhook._event_time(u.first_id) as oldest_unread_age,
       w.queued,
       w.in_flight,
       d.pending,
       d.retrying,
       d.dead,
       q.due,
       q.waiting,
       q.held,
       q.next_due_at,
       (select count(*) from webhook._request r where r.state = 'pending') as pending_requests,
       (select count(*) from webhook._fenced) as fenced,
       (select count(*) from webhook._foreign_origin) as other_origins,
       -- No index finds them, and without a copy nobody pays for it.
       case when exists (select from webhook._foreign_origin)
         then (select count(*) from webhook._event e where e.origin in (select o.origin from webhook._foreign_origin o))
         else 0
       end as foreign_events,
       (select count(*) from webhook._endpoint p where p.origin <> (select webhook._origin())) as inert_endpoints,
       (select count(*)
          from webhook._adoption a
          left join webhook._adoption_progress p on p.request_id = a.request_id
         where a.adopter = (select webhook._origin())
           and p.state is distinct from 'done') as running_adoptions
  from webhook._worker() as w
 cross join webhook._unread() as u
 cross join (select count(*) filter (where v.state = 'pending') as pending,
                    count(*) filter (where v.state = 'retrying') as retrying,
                    count(*) filter (where v.state = 'dead') as dead
               from webhook._delivery v
              where v.state <> 'delivered') as d
 cross join (select count(*) filter (where s.hold = 0 and s.next_attempt_at <= clock_timestamp()) as due,
                    count(*) filter (where s.hold = 0 and s.next_attempt_at > clock_timestamp()) as waiting,
                    count(*) filter (where s.hold <> 0) as held,
                    min(s.next_attempt_at) filter (where s.hold = 0) as next_due_at
               from webhook._due s) as q;

comment on view webhook.stat_queue is
  'What waits, one row. Cost grows with the events not read, the deliveries that are not delivered, and the rows that are due; not with the history, unless there is an origin that nobody adopted.';

comment on column webhook.stat_queue.unread_events is 'Events committed and not read by the leader yet.';

comment on column webhook.stat_queue.oldest_unread_at is 'When the oldest of them was emitted.';

comment on column webhook.stat_queue.oldest_unread_age is 'How long ago that was: the age of the outbox.';

comment on column webhook.stat_queue.queued is 'Pairs of event and endpoint in the leader''s memory, read and not sent; they have no delivery row yet.';

comment on column webhook.stat_queue.in_flight is 'Requests on the wire.';

comment on column webhook.stat_queue.pending is 'Deliveries that wait for the first attempt of their series.';

comment on column webhook.stat_queue.retrying is 'Deliveries that failed and will be tried again.';

comment on column webhook.stat_queue.dead is 'Deliveries that failed for good and wait for a decision.';

comment on column webhook.stat_queue.due is 'Pairs that may be sent now.';

comment on column webhook.stat_queue.waiting is 'Pairs whose time has not come.';

comment on column webhook.stat_queue.held is 'Pairs that may not be sent for now, whatever their time.';

comment on column webhook.stat_queue.next_due_at is 'When the next pair is due, or since when the oldest one has been.';

comment on column webhook.stat_queue.pending_requests is 'Requests that the leader has not carried out.';

comment on column webhook.stat_queue.fenced is 'Events that the leader refused to send because their row was changed after the emit.';

comment on column webhook.stat_queue.other_origins is
  'Other databases whose events came here by a copy, or earlier values of webhook.node_name, that were not adopted; their events are never sent.';

comment on column webhook.stat_queue.foreign_events is 'Events of those origins.';

comment on column webhook.stat_queue.inert_endpoints is 'Endpoints of other origins: nothing is sent to them. What is fenced by origin and reason: stat_fenced.';

comment on column webhook.stat_queue.running_adoptions is 'Adoptions that the leader has not finished.';

create function webhook.status()
returns table (
  worker text,                 -- state of the leader, see stat_worker
  detail text,                 -- the same in a sentence
  unread_events bigint,        -- events not read by the leader yet
  oldest_unread_age interval,  -- age of the oldest of them
  queued bigint,               -- pairs in memory, not sent yet
  in_flight integer,           -- requests on the wire
  pending bigint,              -- deliveries that wait for the first attempt of their series
  retrying bigint,             -- deliveries that will be tried again
  dead bigint,                 -- deliveries that wait for a decision
  fenced bigint,               -- events refused because their row was changed
  foreign_events bigint,       -- events of other databases, of which this one is a copy
  inbox_pending bigint,        -- received events that handlers have not finished
  inbox_dead bigint,           -- received events that handlers have given up
  last_error text,             -- last error of the leader itself
  advice text                  -- what to do
)
language sql volatile parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
  select w.state,
         w.detail,
         q.unread_events,
         q.oldest_unread_age,
         q.queued,
         q.in_flight,
         q.pending,
         q.retrying,
         q.dead,
         q.fenced,
         q.foreign_events,
         i.pending,
         i.dead,
         w.last_error,
         coalesce(nullif(concat_ws(' ',
           w.hint,
           case when w.state = 'running' and q.oldest_unread_age > interval '1 minute'
             then 'The leader is behind: see webhook.stat_worker and the server log.' end,
           case when q.dead > 0
             then 'Some deliveries are dead: see webhook.dead_letters, mend the cause, then use webhook.retry.' end,
           case when i.dead > 0
             then 'Some received events are dead: see webhook.inbox where state = ''dead'', mend the handler, then use webhook.retry_inbox.' end,
           case when exists (select from webhook.pauses p)
             then 'Deliveries are paused: see webhook.pauses.' end,
           case when webhook._keys_in_clear()
             then 'Keys are stored unencrypted: set webhook.master_key_file and call webhook.reencrypt_secrets().' end,
           case when q.fenced > 0
             then 'Rows of webhook._event were changed after the emit and are not sent: see webhook.events where fenced = ''seal'' and find out who did it.' end,
           'Not the extension''s own, and able to stop it: ' || array_to_string(webhook._foreign_code(), ', ') || '.',
           case when q.running_adoptions > 0
             then 'An origin is being adopted: see webhook.adoptions.' end,
           case when q.other_origins > 0
             then 'This database is a copy of another one, whose events and endpoints do nothing here: see webhook.stat_fenced. If it takes the other one''s place, use webhook.adopt; never while the other one still sends.' end),
           ''), 'Nothing to do.')
    from webhook.stat_worker w
   cross join webhook.stat_queue q
   cross join webhook._inbox_backlog() as i
$$;

comment on function webhook.status() is 'State of the outbox in one row, with advice. Costs what stat_queue costs.';

comment on column webhook.alerts.kind is
  'endpoint.warning, endpoint.disabled, endpoint.recovered, endpoint.missed, endpoint.blocked, endpoint.expiring, endpoint.expired, endpoint.unconfirmed, delivery.quarantined, delivery.filter, delivery.unconverted, delivery.unrecorded, delivery.expired, delivery.closed, event.fenced, inbox.dead or reconciliation.failed.';

-- How a feed, its readers and a partner stand, and what the limits are here. SECURITY INVOKER, like the feed itself; how far
-- the leader is behind is told by _feed_lag alone.

create or replace function webhook._feed_lag(
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

-- How far replays of a range have come.

create view webhook.replays as
select r.request_id,
       r.partner_id,
       r.endpoint_id,
       r.since,
       r.until,
       r.event_types,
       r.test,
       r.which,
       r.rate,
       r.reason,
       r.requested_by,
       r.requested_at,
       case
         when r.origin <> (select webhook._origin()) then 'elsewhere'
         else coalesce(p.state, 'waiting')
       end as state,
       r.estimate,
       coalesce(p.looked_at, 0) as looked_at,
       coalesce(p.made, 0) as made,
       coalesce(p.again, 0) as again,
       coalesce(p.under_way, 0) as under_way,
       coalesce(p.unwanted, 0) as unwanted,
       coalesce(p.closed, 0) as closed,
       coalesce(p.expunged, 0) as expunged,
       coalesce(p.fenced, 0) as fenced,
       coalesce(p.expired, 0) as expired,
       timestamptz '2025-01-01 00:00:00+00' + (nullif(p.pos, 0) >> 22) * interval '1 millisecond' as reached_at,
       round((p.made + p.again) / greatest(extract(epoch from coalesce(p.finished_at, clock_timestamp()) - p.started_at), 1), 1) as per_second,
       p.started_at,
       p.finished_at
  from webhook._replay r
  left join webhook._replay_progress p on p.request_id = r.request_id;

comment on view webhook.replays is 'Replays of a time range, and how far the leader has come with each. Fast by request_id, which sorts by time.';

comment on column webhook.replays.request_id is 'Id of the request; sorts by time. What cancel_replay takes.';

comment on column webhook.replays.partner_id is 'Tenant whose events are meant; null = every one.';

comment on column webhook.replays.endpoint_id is 'Endpoint that is meant; null = every one.';

comment on column webhook.replays.since is 'Beginning of the range, by publication.';

comment on column webhook.replays.until is 'End of the range; not in it.';

comment on column webhook.replays.event_types is 'Event types and wildcards; null = all.';

comment on column webhook.replays.test is 'Test events, or live ones.';

comment on column webhook.replays.which is 'all, failed or missing.';

comment on column webhook.replays.rate is 'Deliveries per second at most.';

comment on column webhook.replays.reason is 'Why, in the user''s words.';

comment on column webhook.replays.requested_by is 'Session user who asked.';

comment on column webhook.replays.requested_at is 'When.';

comment on column webhook.replays.state is
  'waiting, running, done or cancelled; elsewhere = another database asked for it, of which this one is a copy, and nothing is done here.';

comment on column webhook.replays.estimate is 'Events of the range when it was asked for; null = more than 20000.';

comment on column webhook.replays.looked_at is 'Events that the leader has looked at.';

comment on column webhook.replays.made is 'Deliveries made that were missing.';

comment on column webhook.replays.again is 'Deliveries that are sent again.';

comment on column webhook.replays.under_way is 'Deliveries left out because they wait or are on the wire.';

comment on column webhook.replays.unwanted is 'Deliveries left out because the endpoint does not subscribe to the type any more, or its filter refuses the event.';

comment on column webhook.replays.closed is 'Deliveries left out because the endpoint is closed.';

comment on column webhook.replays.expunged is 'Events left out because their payload, or the event itself, is gone.';

comment on column webhook.replays.fenced is 'Events left out because they are fenced, or of a database that was not adopted.';

comment on column webhook.replays.expired is 'Deliveries not made because those of the event are not kept any more: nobody can tell what is missing.';

comment on column webhook.replays.reached_at is 'Publication of the last event looked at; of one partner they are looked at oldest first.';

comment on column webhook.replays.per_second is 'Deliveries per second, on average.';

comment on column webhook.replays.started_at is 'When the leader began.';

comment on column webhook.replays.finished_at is 'When it was done or cancelled; null = not yet.';

-- Proofs of control, as users see them.

create or replace view webhook.verifications as
select v.verification_id,
       v.endpoint_id,
       (select e.partner_id from webhook._endpoint e where e.endpoint_id = v.endpoint_id) as partner_id,
       v.method,
       v.host,
       v.started_at,
       v.latency_ms,
       v.result,
       v.status,
       v.error_category,
       case
         -- Which address it was would tell of the inside of the network.
         when v.error_category = 'blocked' and not (select webhook._sees_all()) then 'address, port or URL is refused by the boundary'
         else v.detail
       end as detail,
       v.overridden_by
  from webhook._verification v;

comment on column webhook.verifications.detail is 'What was wrong with the answer, in the sender''s own words; a partner''s role is not told which address was blocked.';

-- The receiving side as people read it. No payload, no key.

create view webhook.inbox_sources as
select s.name,
       s.profile,
       s.partner_id,
       s.partner_from,
       s.partners,
       s.id_from,
       s.type_from,
       webhook._is_signed(s.profile, s.id_from) as id_signed,
       webhook._is_signed(s.profile, coalesce(s.type_from, case when s.profile in ('github', 'github-sha1', 'shopify') then 'header:' end)) as type_signed,
       s.tolerance,
       s.validation,
       s.same_body,
       s.max_body,
       s.max_pending,
       s.max_per_minute,
       s.enabled,
       (select count(*)
          from webhook._inbox_key k
         where k.source_id = s.source_id
           and k.kept
           and (k.valid_until is null or k.valid_until > clock_timestamp())) as keys,
       s.description,
       s.created_at,
       s.changed_at
  from webhook._inbox_source s;

comment on view webhook.inbox_sources is 'Senders whose events receive() accepts.';

comment on column webhook.inbox_sources.name is 'Name, as receive is given it.';

comment on column webhook.inbox_sources.profile is 'Signature profile of the sender.';

comment on column webhook.inbox_sources.partner_id is 'Tenant of all its events; null = partner_from says.';

comment on column webhook.inbox_sources.partner_from is 'Where the tenant stands.';

comment on column webhook.inbox_sources.partners is 'Tenants that may be named; null = all.';

comment on column webhook.inbox_sources.id_from is 'Where the event id stands; null = as the profile has it.';

comment on column webhook.inbox_sources.type_from is 'Where the event type stands; null = as the profile has it.';

comment on column webhook.inbox_sources.id_signed is 'Whether a signature vouches for event ids; false = a body that was sent before counts as another event under another id.';

comment on column webhook.inbox_sources.type_signed is 'Whether a signature vouches for event types; false = a body may come under another type.';

comment on column webhook.inbox_sources.tolerance is 'How far the time of signing may be from the clock.';

comment on column webhook.inbox_sources.validation is 'off or enforce.';

comment on column webhook.inbox_sources.same_body is 'Whether an event that comes again with another body is a conflict.';

comment on column webhook.inbox_sources.max_body is 'Largest body, bytes.';

comment on column webhook.inbox_sources.max_pending is 'Unfinished events, each counted once for each handler, above which new ones get a 503.';

comment on column webhook.inbox_sources.max_per_minute is 'Events accepted in a minute above which new ones get a 429; null = no limit.';

comment on column webhook.inbox_sources.enabled is 'false = everything gets a 503.';

comment on column webhook.inbox_sources.keys is 'Keys in force.';

comment on column webhook.inbox_sources.description is 'What it is.';

comment on column webhook.inbox_sources.created_at is 'When it was created.';

comment on column webhook.inbox_sources.changed_at is 'When it was last changed.';

-- Who gets what: the consumers' side of the catalogue. Producers are in the view sources, event types in event_types, the
-- fields of their payloads with the purpose of each in event_fields.

create view webhook.subscriptions as
select t.name as event_type,
       e.partner_id,
       e.endpoint_id,
       e.url,
       e.state,
       e.test,
       e.subject_types,
       e.filter,
       e.data_shape,
       e.fields,
       coalesce(e.schema_versions ->> t.name, t.current_version) as schema_version,
       e.format,
       e.description,
       e.created_by,
       e.created_at,
       e.expires_at,
       t.owner,
       t.contact,
       t.sensitivity,
       t.payload_retention,
       (select array_agg(s.name order by s.name)
          from webhook.sources s
         where (t.sources is null or s.name = any (t.sources))
           and (s.event_types is null or webhook._type_matches(s.event_types, t.name))) as sources,
       format('webhook.delete_endpoint(%s, reason)', e.endpoint_id) as switch_off
  from webhook.event_types t
  join webhook.endpoints e on webhook._type_matches(e.event_types, t.name)
 where e.state <> 'deleted';

comment on view webhook.subscriptions is
  'Which endpoint gets which event types of the catalogue, and what of them: a row for each. Costs a comparison of every endpoint with every type.';

comment on column webhook.subscriptions.event_type is 'Event type.';

comment on column webhook.subscriptions.partner_id is 'Tenant that gets it.';

comment on column webhook.subscriptions.endpoint_id is 'Endpoint: the id of the relation.';

comment on column webhook.subscriptions.url is 'Where it goes; for readers that neither operate nor own the endpoint, its host only.';

comment on column webhook.subscriptions.state is 'State of the endpoint.';

comment on column webhook.subscriptions.test is 'Gets test events only.';

comment on column webhook.subscriptions.subject_types is 'Subject types; null = all.';

comment on column webhook.subscriptions.filter is 'Condition on the payload; null = none.';

comment on column webhook.subscriptions.data_shape is 'How much of the data is sent: full, fields, thin or delta.';

comment on column webhook.subscriptions.fields is 'Of fields: which ones. What each is for stands in event_fields.';

comment on column webhook.subscriptions.schema_version is 'Schema version: the pinned one, or the current one; null = the type has no schema.';

comment on column webhook.subscriptions.format is 'Format of the body.';

comment on column webhook.subscriptions.description is 'What the endpoint is.';

comment on column webhook.subscriptions.created_by is 'Session user who created the endpoint.';

comment on column webhook.subscriptions.created_at is 'When.';

comment on column webhook.subscriptions.expires_at is 'When it ends unless it is renewed; null = never.';

comment on column webhook.subscriptions.owner is 'Who answers for the event type.';

comment on column webhook.subscriptions.contact is 'How to reach the owner.';

comment on column webhook.subscriptions.sensitivity is 'How sensitive the payload is.';

comment on column webhook.subscriptions.payload_retention is 'How long payloads of the type are kept here; null = as long as their events.';

comment on column webhook.subscriptions.sources is 'Registered producers that may emit the type; null = none is registered.';

comment on column webhook.subscriptions.switch_off is 'What ends the relation, and nothing else.';

-- Metrics for Prometheus. Counters and distributions are counted by the leader in shared memory as it writes results
-- (src/pg/counters.rs): reading them touches no table. Gauges are counted when they are read, and no count looks at more
-- than 10000 rows, so that a scrape costs the same whatever waits.
-- No label names a tenant, an endpoint or an event: that is what stat_endpoint, endpoint_health and dead_letters are for.

create function webhook._metric_list()
returns table (
  place integer, -- order in which they are shown
  family text,   -- name of the metric
  type text,     -- counter, gauge or histogram
  help text      -- what it tells
)
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  values
    (1, 'webhook_events_fanned_out_total', 'counter', 'Events that the leader has read and published in the feed.'),
    (2, 'webhook_pairs_made_total', 'counter', 'Pairs of event and endpoint made of them.'),
    (3, 'webhook_deliveries_total', 'counter', 'Deliveries that ended, by outcome: delivered, dead, or cancelled with their endpoint.'),
    (4, 'webhook_attempts_total', 'counter', 'HTTP attempts, by outcome: delivered (2xx) or the error category.'),
    (5, 'webhook_alerts_total', 'counter', 'Alerts that the leader has raised, by kind.'),
    (6, 'webhook_result_flushes_total', 'counter', 'Transactions in which the leader wrote results.'),
    (7, 'webhook_events_fenced_total', 'counter', 'Events that the leader refused to send because their row was changed after the emit.'),
    (8, 'webhook_leader_restarts_total', 'counter', 'Starts of the leader after the first one.'),
    (9, 'webhook_delivery_lag_seconds', 'histogram', 'Time from the emit of an event to the end of the attempt that delivered it; replays are not counted.'),
    (10, 'webhook_attempt_duration_seconds', 'histogram', 'Time of an attempt, from connecting to the end of the answer.'),
    (11, 'webhook_build_info', 'gauge', 'Always 1; the labels tell the database and the versions.'),
    (12, 'webhook_leader_up', 'gauge', 'Whether the leader of this database runs and sends.'),
    (13, 'webhook_in_recovery', 'gauge', 'Whether this server is a standby, on which nothing is sent.'),
    (14, 'webhook_leader_start_time_seconds', 'gauge', 'When the leader started, Unix time; 0 = it never has.'),
    (15, 'webhook_leader_last_loop_time_seconds', 'gauge', 'When the loop of the leader last came round, Unix time.'),
    (16, 'webhook_threads', 'gauge', 'HTTP threads.'),
    (17, 'webhook_requests_in_flight', 'gauge', 'HTTP requests on the wire.'),
    (18, 'webhook_pairs_queued', 'gauge', 'Pairs in the memory of the leader that are not sent yet.'),
    (19, 'webhook_batches_open', 'gauge', 'Batches whose pairs do not all have a row yet.'),
    (20, 'webhook_events_unread', 'gauge', 'Events committed and not read by the leader yet; counted up to 10000.'),
    (21, 'webhook_oldest_unread_age_seconds', 'gauge', 'Age of the oldest of them; 0 = there is none.'),
    (22, 'webhook_open_deliveries', 'gauge', 'Deliveries by state: pending, retrying, dead; each counted up to 10000.'),
    (23, 'webhook_pairs_parked', 'gauge', 'Pairs that wait in the tables: due, waiting for their time, or held; of those that may be sent the first 10000 are looked at.'),
    (24, 'webhook_oldest_due_age_seconds', 'gauge', 'How long the oldest pair that may be sent has been due; 0 = there is none.'),
    (25, 'webhook_requests_pending', 'gauge', 'Requests of users that the leader has not carried out.'),
    (26, 'webhook_events_fenced', 'gauge', 'Events that are not sent because their row was changed after the emit.'),
    (27, 'webhook_origins_foreign', 'gauge', 'Other databases whose events came here by a copy and were not adopted.'),
    (28, 'webhook_endpoints_registered', 'gauge', 'Endpoints by health: healthy, failing, down, held, closed, unknown.'),
    (29, 'webhook_pauses_active', 'gauge', 'Pauses in force by scope: all, partner, event_type, endpoint.'),
    (30, 'webhook_keys_in_clear', 'gauge', 'Whether keys are stored unencrypted.'),
    (31, 'webhook_jobs_running', 'gauge', 'Long jobs of the leader that are not finished: replay, adopt.'),
    (32, 'webhook_findings_open', 'gauge', 'Gaps that reconcile found and that are still there.'),
    (33, 'webhook_inbox_events_today', 'gauge', 'What receive and the handlers made of events since the UTC day began, by result.'),
    (34, 'webhook_inbox_open', 'gauge', 'Received events by state: unfinished, dead; each counted up to 10000.')
$$;

comment on function webhook._metric_list() is 'The metrics: the one place that says their names, types and meanings.';

create function webhook._counters()
returns table (
  family text,           -- name of the metric
  metric text,           -- name of the sample; of a histogram with _bucket, _sum or _count
  labels jsonb,          -- its labels
  value double precision -- its value
)
language c volatile parallel restricted rows 100
as 'MODULE_PATHNAME', 'counters_wrapper';

comment on function webhook._counters() is 'What the leader of this database has counted since the server started, from shared memory.';

create function webhook._gauges()
returns table (
  metric text,           -- name of the metric
  labels jsonb,          -- its labels
  value double precision -- its value
)
language sql volatile parallel restricted rows 60
-- SECURITY DEFINER: its readers have no right to the tables, and what they get of them is a few numbers.
security definer
set search_path = pg_catalog, webhook, pg_temp
set jit = off
as $$
  with recursive worker as materialized (
    select * from webhook._worker()),
  unread as materialized (
    select * from webhook._unread(10000)),
  -- Each queue that has rows, with its first one: a step along the index for each, whatever waits behind.
  queue (endpoint_id, class, first_at) as (
    (select d.endpoint_id, d.class, d.next_attempt_at
       from webhook._due d
      where d.hold = 0
      order by d.endpoint_id, d.class, d.next_attempt_at
      limit 1)
    union all
    select n.endpoint_id, n.class, n.next_attempt_at
      from queue as q
     cross join lateral (
       select d.endpoint_id, d.class, d.next_attempt_at
         from webhook._due d
        where d.hold = 0
          and (d.endpoint_id, d.class) > (q.endpoint_id, q.class)
        order by d.endpoint_id, d.class, d.next_attempt_at
        limit 1) as n),
  queues as materialized (
    select q.endpoint_id, q.class, q.first_at from queue as q limit 10000),
  parked as materialized (
    select (select count(*)
              from (select
                      from queues as q
                     cross join lateral (
                       select from webhook._due d
                        where d.endpoint_id = q.endpoint_id and d.class = q.class and d.hold = 0
                          and d.next_attempt_at <= statement_timestamp()) as d
                     limit 10000) as s) as due,
           (select count(*)
              from (select
                      from queues as q
                     cross join lateral (
                       select from webhook._due d
                        where d.endpoint_id = q.endpoint_id and d.class = q.class and d.hold = 0
                          and d.next_attempt_at > statement_timestamp()) as d
                     limit 10000) as s) as waiting,
           (select min(q.first_at) from queues as q where q.first_at <= statement_timestamp()) as oldest)
  select g.metric, coalesce(g.labels, '{}'), g.value
    from worker as w
   cross join unread as u
   cross join parked as p
   cross join lateral (values
     ('webhook_build_info', jsonb_build_object('database', w.database, 'library', w.library_version, 'extension', w.extension_version), 1::double precision),
     ('webhook_leader_up', null, (w.state = 'running')::integer),
     ('webhook_in_recovery', null, pg_is_in_recovery()::integer),
     ('webhook_leader_start_time_seconds', null, coalesce(extract(epoch from w.started_at), 0)),
     ('webhook_leader_last_loop_time_seconds', null, coalesce(extract(epoch from w.last_loop_at), 0)),
     ('webhook_threads', null, w.threads),
     ('webhook_requests_in_flight', null, w.in_flight),
     ('webhook_pairs_queued', null, w.queued),
     ('webhook_batches_open', null, w.open_batches),
     ('webhook_events_unread', null, u.events),
     ('webhook_oldest_unread_age_seconds', null,
      coalesce(greatest(extract(epoch from clock_timestamp() - webhook._event_time(u.first_id)), 0), 0)),
     ('webhook_pairs_parked', '{"state": "due"}', p.due),
     ('webhook_pairs_parked', '{"state": "waiting"}', p.waiting),
     ('webhook_pairs_parked', '{"state": "held"}',
      (select count(*) from (select from webhook._due d where d.hold <> 0 limit 10000) as s)),
     ('webhook_oldest_due_age_seconds', null, coalesce(greatest(extract(epoch from clock_timestamp() - p.oldest), 0), 0)),
     ('webhook_open_deliveries', '{"state": "pending"}',
      (select count(*) from (select from webhook._delivery d where d.state = 'pending' limit 10000) as s)),
     ('webhook_open_deliveries', '{"state": "retrying"}',
      (select count(*) from (select from webhook._delivery d where d.state = 'retrying' limit 10000) as s)),
     ('webhook_open_deliveries', '{"state": "dead"}',
      (select count(*) from (select from webhook._delivery d where d.state = 'dead' limit 10000) as s)),
     ('webhook_requests_pending', null,
      (select count(*) from (select from webhook._request r where r.state = 'pending' limit 10000) as s)),
     ('webhook_events_fenced', null, (select count(*) from (select from webhook._fenced limit 10000) as s)),
     ('webhook_origins_foreign', null, (select count(*) from webhook._foreign_origin)),
     ('webhook_keys_in_clear', null, webhook._keys_in_clear()::integer),
     ('webhook_jobs_running', '{"kind": "replay"}',
      (select count(*)
         from webhook._replay r
         left join webhook._replay_progress g on g.request_id = r.request_id
        where r.origin = webhook._origin()
          and coalesce(g.state, 'running') = 'running')),
     ('webhook_jobs_running', '{"kind": "adopt"}',
      (select count(*)
         from webhook._adoption a
         left join webhook._adoption_progress g on g.request_id = a.request_id
        where a.adopter = webhook._origin()
          and g.state is distinct from 'done')),
     ('webhook_findings_open', null,
      (select count(*) from (select from webhook._finding f where f.repaired_at is null limit 10000) as s)),
     ('webhook_inbox_open', '{"state": "unfinished"}',
      (select count(*) from (select from webhook._inbox_run r where r.state in ('pending', 'claimed', 'retrying') limit 10000) as s)),
     ('webhook_inbox_open', '{"state": "dead"}',
      (select count(*) from (select from webhook._inbox_run r where r.state = 'dead' limit 10000) as s)))
     as g (metric, labels, value)
  union all
  select 'webhook_endpoints_registered', jsonb_build_object('health', k.health), count(e.health)
    from unnest('{healthy,failing,down,held,closed,unknown}'::text[]) as k (health)
    left join webhook.endpoint_health as e on e.health = k.health and e.state <> 'deleted'
   group by k.health
  union all
  select 'webhook_pauses_active', jsonb_build_object('scope', k.scope), count(p.scope)
    from unnest('{all,partner,event_type,endpoint}'::text[]) as k (scope)
    left join (select x.scope from webhook._pause x where x.paused
                union all
               select 'endpoint' from webhook._effective_endpoint e where e.state = 'paused') as p on p.scope = k.scope
   group by k.scope
  union all
  select 'webhook_inbox_events_today', jsonb_build_object('result', k.result), coalesce(sum(c.total), 0)
    from unnest('{accepted,duplicate,rejected,processed,failed,stale}'::text[]) as k (result)
    left join (select n.result, n.total
                 from webhook._inbox_source s
                 join webhook._inbox_count n on n.source_id = s.source_id
                where n.day = (clock_timestamp() at time zone 'UTC')::date) as c on c.result = k.result
   group by k.result
$$;

comment on function webhook._gauges() is
  'Numbers of this moment. Each count stops at 10000 rows; beside that the cost grows with the endpoints, not with what waits or was kept.';

create view webhook.stat_metrics as
select c.family,
       c.metric,
       case when c.family like '%\_seconds' then 'histogram' else 'counter' end as type,
       c.labels,
       c.value
  from webhook._counters() as c
union all
select g.metric,
       g.metric,
       'gauge',
       g.labels,
       g.value
  from webhook._gauges() as g;

comment on view webhook.stat_metrics is
  'The samples that metrics() writes, a row each, for exporters that run queries. With type = ''counter'' or type = ''histogram'' it reads shared memory only.';

comment on column webhook.stat_metrics.family is 'Name of the metric.';

comment on column webhook.stat_metrics.metric is 'Name of the sample; of a histogram with _bucket, _sum or _count.';

comment on column webhook.stat_metrics.type is 'counter or histogram: counted by the leader in shared memory since the server started; gauge: found out when it is read.';

comment on column webhook.stat_metrics.labels is 'Its labels.';

comment on column webhook.stat_metrics.value is 'Its value.';

create function webhook.metrics()
returns text -- Prometheus text exposition format 0.0.4
language sql volatile parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
  with sample as materialized (
    select row_number() over () as n, m.family, m.metric, m.labels, m.value
      from webhook.stat_metrics as m)
  select string_agg(
           format(E'# HELP %s %s\n# TYPE %s %s\n%s',
                  l.family, replace(replace(l.help, '\', '\\'), E'\n', '\n'), l.family, l.type, f.lines),
           '' order by l.place)
    from webhook._metric_list() as l
    join (select s.family,
                 string_agg(s.metric
                            || coalesce('{' || (select string_agg(
                                                         p.key || '="'
                                                         || replace(replace(replace(p.value, '\', '\\'), '"', '\"'), E'\n', '\n')
                                                         || '"', ',' order by p.key)
                                                  from jsonb_each_text(s.labels) as p
                                                 where p.value is not null) || '}', '')
                            || ' '
                            || case s.value when 'Infinity' then '+Inf' when '-Infinity' then '-Inf' else s.value::text end,
                            E'\n' order by s.n) || E'\n' as lines
            from sample as s
           group by s.family) as f on f.family = l.family
$$;

comment on function webhook.metrics() is
  'Metrics of this database in the text format of Prometheus. Names no tenant, endpoint or event. Costs a bounded number of rows.';

-- How far long work has come, in the manner of pg_stat_progress_*: a row for each job that is not finished, none when
-- nothing runs. What was finished stands in replays, adoptions and erasures, from which these take what they show.

create view webhook.stat_progress_replay as
select r.request_id,
       r.partner_id,
       r.endpoint_id,
       r.state as phase,
       r.estimate as events_total,
       r.looked_at as events_done,
       least(round(100.0 * r.looked_at / nullif(r.estimate, 0), 1), 100) as percent,
       r.made + r.again as deliveries,
       r.under_way + r.unwanted + r.closed + r.expunged + r.expired + r.fenced as left_out,
       r.rate as rate_limit,
       r.per_second,
       r.reached_at,
       r.started_at
  from webhook.replays r
 where r.state in ('waiting', 'running');

comment on view webhook.stat_progress_replay is 'Replays of a range that are not finished. All of them, with what was left out and why: replays.';

comment on column webhook.stat_progress_replay.request_id is 'Id of the request: what cancel_replay takes.';

comment on column webhook.stat_progress_replay.partner_id is 'Tenant whose events are meant; null = every one.';

comment on column webhook.stat_progress_replay.endpoint_id is 'Endpoint that is meant; null = every one.';

comment on column webhook.stat_progress_replay.phase is 'waiting or running.';

comment on column webhook.stat_progress_replay.events_total is 'Events of the range when it was asked for; null = more than 20000.';

comment on column webhook.stat_progress_replay.events_done is 'Events that the leader has looked at.';

comment on column webhook.stat_progress_replay.percent is 'The latter of the former; null = unknown.';

comment on column webhook.stat_progress_replay.deliveries is 'Deliveries made or begun again.';

comment on column webhook.stat_progress_replay.left_out is 'Deliveries and events left out.';

comment on column webhook.stat_progress_replay.rate_limit is 'Deliveries per second at most.';

comment on column webhook.stat_progress_replay.per_second is 'Deliveries per second, on average.';

comment on column webhook.stat_progress_replay.reached_at is 'Publication of the last event looked at.';

comment on column webhook.stat_progress_replay.started_at is 'When the leader began; null = not yet.';

create view webhook.stat_progress_adopt as
select a.request_id,
       a.origin,
       a.mode,
       a.state as phase,
       a.events as events_done,
       a.published,
       a.made + a.resumed as deliveries,
       a.skipped,
       a.tampered,
       a.reached_at,
       a.started_at
  from webhook.adoptions a
 where a.state in ('waiting', 'running');

comment on view webhook.stat_progress_adopt is 'Adoptions that are not finished. All of them: adoptions; what is still fenced: stat_fenced.';

comment on column webhook.stat_progress_adopt.request_id is 'Id of the request.';

comment on column webhook.stat_progress_adopt.origin is 'Origin that is adopted.';

comment on column webhook.stat_progress_adopt.mode is 'send or skip.';

comment on column webhook.stat_progress_adopt.phase is 'waiting or running.';

comment on column webhook.stat_progress_adopt.events_done is 'Events that the leader has looked at.';

comment on column webhook.stat_progress_adopt.published is 'Events that the origin had not read, and that were given a place in the feed.';

comment on column webhook.stat_progress_adopt.deliveries is 'Deliveries made or resumed.';

comment on column webhook.stat_progress_adopt.skipped is 'Deliveries skipped.';

comment on column webhook.stat_progress_adopt.tampered is 'Events that stay fenced because their row does not match its seal.';

comment on column webhook.stat_progress_adopt.reached_at is 'Emit of the last event looked at.';

comment on column webhook.stat_progress_adopt.started_at is 'When the leader began; null = not yet.';

create function webhook._retention_progress()
returns table (
  phase text,            -- what the next step does
  steps_left integer,    -- steps of the pass to go
  steps_total integer,   -- steps that were planned when it began; a step that finds much is taken again
  started_at timestamptz -- when the pass began
)
language c volatile parallel restricted rows 1
as 'MODULE_PATHNAME', 'retention_progress_wrapper';

comment on function webhook._retention_progress() is 'The retention pass under way, from shared memory; no row between passes.';

create view webhook.stat_progress_retention as
select p.phase,
       greatest(p.steps_total - p.steps_left, 0) as steps_done,
       greatest(p.steps_total, p.steps_left) as steps_total,
       p.started_at
  from webhook._retention_progress() as p;

comment on view webhook.stat_progress_retention is
  'The pass over what is old that is under way: one row, or none between passes, which begin every minute. Read from shared memory.';

comment on column webhook.stat_progress_retention.phase is
  'expiring deliveries, closing dead letters, removing partitions, clearing default partitions, deleting rows, deleting idempotency keys or erasing payloads.';

comment on column webhook.stat_progress_retention.steps_done is 'Steps taken.';

comment on column webhook.stat_progress_retention.steps_total is 'Steps of the pass; one that finds much is taken more than once.';

comment on column webhook.stat_progress_retention.started_at is 'When it began.';

create view webhook.stat_progress_expunge as
select r.erasure_id,
       r.scope,
       case when t.unswept > 0 then 'sweeping' else 'to be confirmed' end as phase,
       t.events as events_total,
       t.events - t.unswept as events_done,
       round(100.0 * (t.events - t.unswept) / nullif(t.events, 0), 1) as percent,
       r.at as started_at
  from webhook._erasure r
 cross join lateral (
       select count(*) as events,
              count(*) filter (where not x.swept) as unswept
         from webhook._tombstone x
        where x.erasure_id = r.erasure_id) as t
 where r.confirmed_at is null;

comment on view webhook.stat_progress_expunge is
  'Calls of expunge that confirm_erasure has not found complete. The payloads are gone when the call commits; the leader then looks for answers that came meanwhile. Cost grows with the events of these erasures.';

comment on column webhook.stat_progress_expunge.erasure_id is 'As expunge returned it: what confirm_erasure takes.';

comment on column webhook.stat_progress_expunge.scope is 'event, subject or partner.';

comment on column webhook.stat_progress_expunge.phase is 'sweeping = the leader looks for late answers; to be confirmed = it is done, and confirm_erasure may be called.';

comment on column webhook.stat_progress_expunge.events_total is 'Events that it erased.';

comment on column webhook.stat_progress_expunge.events_done is 'Events that were looked at for late answers.';

comment on column webhook.stat_progress_expunge.percent is 'The latter of the former; null = it erased no event.';

comment on column webhook.stat_progress_expunge.started_at is 'When it was ordered.';

-- Fit for production? One row for each thing that is looked at, with what was found and what to do.
-- It says what is, in one statement, and writes nothing: that the whole chain works can only be seen by sending through
-- it, which takes several transactions and a receiver. examples/acceptance does that, and begins with this report.
-- Reads the public views with the rights of its caller; keeps nothing.

create function webhook.report()
returns table (
  area text,   -- what it belongs to: worker, queue, endpoints, catalogue, boundary, retention, server
  item text,   -- what was looked at
  result text, -- ok, note, warning or fault
  detail text, -- what was found
  hint text    -- what to do about it; null = nothing
)
language sql volatile parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
  with worker as materialized (select w.* from webhook.stat_worker w),
  queue as materialized (select q.* from webhook.stat_queue q),
  endpoint as materialized (
    select count(*) filter (where p.state = 'active' and not p.test) as live,
           count(*) filter (where p.state = 'active' and p.test) as test,
           count(*) filter (where p.state = 'active' and p.verified_by = 'none') as vouched,
           count(*) filter (where p.state in ('unverified', 'paused', 'disabled', 'expired')) as resting
      from webhook.endpoints p),
  health as materialized (
    select count(*) filter (where h.health in ('failing', 'down')) as ill,
           count(*) filter (where h.disable_at < clock_timestamp() + interval '2 days') as ending
      from webhook.endpoint_health h),
  alert as materialized (
    select count(*) filter (where a.severity = 'critical') as critical,
           count(*) filter (where a.severity = 'warning') as warning
      from webhook.alerts a
     -- By the id, which has an index and sorts by time.
     where a.alert_id >= webhook._pos_bound(clock_timestamp() - interval '1 day')),
  kept as materialized (
    select webhook._kept_for('webhook.event_retention', '90 days') as event,
           webhook._kept_for('webhook.inbox_retention', '120 days') as inbox,
           -- Partitions are named by their day.
           (select max(substr(c.relname, 8)) from pg_class c where c.relnamespace = 'webhook'::regnamespace and c.relname ~ '^_event_[0-9]{8}$') as last_day,
           (select webhook._event_time(e.event_id) from webhook.events e order by e.event_id desc limit 1) as newest),
  setting as materialized (
    select s.name, coalesce(current_setting(s.setting, true), '') as value
      from (values
        ('http', 'webhook.allow_http'), ('networks', 'webhook.allow_networks'), ('ports', 'webhook.allowed_ports'),
        ('schedule', 'webhook.retry_schedule'), ('validation', 'webhook.validation'), ('slots', 'webhook.max_in_flight'),
        ('fsync', 'fsync'), ('pages', 'full_page_writes')) as s (name, setting)),
  schedule as materialized (
    select count(*) as waits, coalesce(sum(w.wait::interval), '0') as over
      from setting s
     cross join lateral string_to_table(s.value, ',') as w (wait)
     where s.name = 'schedule' and w.wait <> ''),
  looked (n, area, item, result, detail, hint) as (
    select 1, 'worker', 'leader',
           case w.state when 'running' then 'ok' when 'standby' then 'note' else 'fault' end, w.detail, w.hint
      from worker w
     union all
    select 2, 'worker', 'loop',
           case when w.last_loop_at < clock_timestamp() - interval '1 minute' then 'fault' else 'ok' end,
           format('Its loop last came round %s s ago.', round(extract(epoch from clock_timestamp() - w.last_loop_at), 1)),
           case when w.last_loop_at < clock_timestamp() - interval '1 minute'
             then 'It hangs: end it with pg_terminate_backend, another one starts within a second.' end
      from worker w
     where w.state = 'running'
     union all
    select 3, 'worker', 'version',
           case when w.library_version = w.extension_version then 'ok' else 'fault' end,
           format('Library %s, extension %s.', w.library_version, w.extension_version),
           case when w.library_version <> w.extension_version
             then 'ALTER EXTENSION webhook_outbox UPDATE, or restart the server after installing the library.' end
      from worker w
     union all
    select 4, 'worker', 'errors', case when w.last_error is null then 'ok' else 'warning' end,
           coalesce('Last error of the leader: ' || w.last_error, 'The leader has had no error of its own.'),
           case when w.last_error is not null then 'See the server log.' end
      from worker w
     union all
    select 5, 'queue', 'outbox', case when q.oldest_unread_age > interval '1 minute' then 'fault' else 'ok' end,
           format('%s events are committed and not read.', q.unread_events),
           case when q.oldest_unread_age > interval '1 minute' then 'The leader is behind: see webhook.stat_worker and the server log.' end
      from queue q
     union all
    select 6, 'queue', 'due', case when q.due > 0 and q.next_due_at < clock_timestamp() - interval '5 minutes' then 'warning' else 'ok' end,
           format('%s deliveries may be sent now, %s wait for their time, %s are held.', q.due, q.waiting, q.held),
           case when q.due > 0 and q.next_due_at < clock_timestamp() - interval '5 minutes'
             then 'Some have waited for over five minutes: see webhook.stat_endpoint, and webhook.max_in_flight if all slots are taken.' end
      from queue q
     union all
    select 7, 'queue', 'slots', case when q.in_flight >= s.value::integer then 'warning' else 'ok' end,
           format('%s requests are on the wire; %s may be.', q.in_flight, s.value),
           case when q.in_flight >= s.value::integer then 'All are taken: raise webhook.max_in_flight, or find who is slow in webhook.stat_endpoint.' end
      from queue q
      join setting s on s.name = 'slots' and s.value <> ''
     union all
    select 8, 'queue', 'requests', case when r.old > 0 then 'warning' else 'ok' end,
           format('%s requests of operators wait for the leader.', r.pending),
           case when r.old > 0 then 'Some have waited for over a minute: see webhook.requests.' end
      from (select count(*) as pending, count(*) filter (where r.requested_at < clock_timestamp() - interval '1 minute') as old
              from webhook.requests r
             where r.state = 'pending') as r
     union all
    select 9, 'queue', 'dead letters', case when q.dead > 0 then 'warning' else 'ok' end,
           format('%s deliveries wait for a decision.', q.dead),
           case when q.dead > 0 then 'See webhook.dead_letters; mend the cause, then webhook.retry, webhook.skip or webhook.close.' end
      from queue q
     union all
    select 9, 'queue', 'inbox backlog', case when b.dead > 0 then 'warning' else 'ok' end,
           format('%s received events wait for handlers, %s were given up.', b.pending, b.dead),
           case when b.dead > 0 then 'See webhook.inbox; mend the handler, then webhook.retry_inbox or webhook.close_inbox.' end
      from webhook._inbox_backlog() as b
     union all
    select 10, 'queue', 'pauses', case when p.paused > 0 then 'warning' else 'ok' end,
           format('%s pauses are in force.', p.paused),
           case when p.paused > 0 then 'See webhook.pauses.' end
      from (select count(*) as paused from webhook.pauses p) as p
     union all
    select 11, 'queue', 'fenced', case when q.fenced > 0 then 'fault' else 'ok' end,
           format('%s events were changed after the emit and are not sent.', q.fenced),
           case when q.fenced > 0 then 'See webhook.events where fenced = ''seal'', and find out who did it.' end
      from queue q
     union all
    select 12, 'queue', 'copies', case when q.other_origins > 0 then 'warning' else 'ok' end,
           format('%s other databases have events here, %s of their endpoints do nothing.', q.other_origins, q.inert_endpoints),
           case when q.other_origins > 0 then 'See webhook.stat_fenced; if this database takes the other one''s place, webhook.adopt.' end
      from queue q
     union all
    select 13, 'endpoints', 'in service', case when p.live = 0 then 'note' else 'ok' end,
           format('%s for live events, %s for test events.', p.live, p.test),
           case when p.live = 0 then 'Nobody gets live events yet.' end
      from endpoint p
     union all
    select 14, 'endpoints', 'proof', case when p.vouched > 0 then 'note' else 'ok' end,
           format('%s are in service because somebody vouched for them.', p.vouched),
           case when p.vouched > 0 then 'webhook.verify_endpoint has them challenged.' end
      from endpoint p
     union all
    select 15, 'endpoints', 'out of service', case when p.resting > 0 then 'note' else 'ok' end,
           format('%s are unverified, paused, disabled or expired.', p.resting), null
      from endpoint p
     union all
    select 16, 'endpoints', 'health', case when h.ill > 0 then 'warning' else 'ok' end,
           format('%s fail or are only probed; %s are disabled within two days if that goes on.', h.ill, h.ending),
           case when h.ill > 0 then 'See webhook.endpoint_health, and ask their partners.' end
      from health h
     union all
    select 17, 'endpoints', 'alerts', case when a.critical + a.warning > 0 then 'warning' else 'ok' end,
           format('%s critical ones and %s warnings in the last day.', a.critical, a.warning),
           case when a.critical + a.warning > 0 then 'See webhook.alerts.' end
      from alert a
     union all
    select 18, 'catalogue', 'event types', case when t.incomplete > 0 then 'note' else 'ok' end,
           format('%s are registered, %s of them lack something.', t.registered, t.incomplete),
           case when t.incomplete > 0 then 'See the column missing of webhook.event_types.' end
      from (select count(*) as registered, count(*) filter (where cardinality(t.missing) > 0) as incomplete
              from webhook.event_types t) as t
     union all
    select 19, 'catalogue', 'validation', case when s.value = 'enforce' then 'ok' else 'note' end,
           format('webhook.validation is %s.', s.value),
           case when s.value <> 'enforce' then 'A payload that breaks its schema is sent, unless its version says mode = enforce.' end
      from setting s
     where s.name = 'validation' and s.value <> ''
     union all
    select 20, 'boundary', 'plain http', case when s.value = 'on' then 'warning' else 'ok' end,
           format('webhook.allow_http is %s.', s.value),
           case when s.value = 'on' then 'This is for tests: what is sent can be read on the way.' end
      from setting s
     where s.name = 'http' and s.value <> ''
     union all
    select 21, 'boundary', 'networks', case when s.value = '' then 'ok' else 'warning' end,
           case when s.value = '' then 'No network is excepted from the built-in list.' else format('webhook.allow_networks is %s.', s.value) end,
           case when s.value <> '' then 'Callbacks may lead there. Keep it as small as can be; loopback is for tests.' end
      from setting s
     where s.name = 'networks'
     union all
    select 22, 'boundary', 'ports', case when s.value = '*' then 'warning' else 'ok' end,
           format('webhook.allowed_ports is %s.', s.value),
           case when s.value = '*' then 'This is for tests: name the ports.' end
      from setting s
     where s.name = 'ports' and s.value <> ''
     union all
    select 23, 'boundary', 'keys at rest', case when webhook._keys_in_clear() then 'warning' else 'ok' end,
           case when webhook._keys_in_clear() then 'Keys are stored in clear.' else 'Every key is stored encrypted.' end,
           case when webhook._keys_in_clear() then 'Set webhook.master_key_file and call webhook.reencrypt_secrets().' end
     union all
    select 24, 'boundary', 'retries', case when s.over < interval '1 day' then 'warning' else 'ok' end,
           format('%s waits over %s.', s.waits, s.over),
           case when s.over < interval '1 day' then 'A receiver that is down for a night loses events to the dead letters: lengthen webhook.retry_schedule.' end
      from schedule s
     union all
    select 25, 'retention', 'partitions',
           case when k.last_day is null then 'note' when k.last_day >= to_char(clock_timestamp() + interval '2 days', 'YYYYMMDD') then 'ok' else 'warning' end,
           case when k.last_day is null then 'There are none before the first event.' else format('The last one made ahead is that of %s.', to_date(k.last_day, 'YYYYMMDD')) end,
           case when k.last_day < to_char(clock_timestamp() + interval '2 days', 'YYYYMMDD')
             then 'The leader makes them 30 days ahead: see webhook.stat_worker.' end
      from kept k
     union all
    select 26, 'retention', 'inbox', case when k.inbox <= k.event or k.event is null and k.inbox is not null then 'warning' else 'ok' end,
           format('Events are kept for %s, received ids for %s.', coalesce(k.event::text, 'ever'), coalesce(k.inbox::text, 'ever')),
           case when k.inbox <= k.event or k.event is null and k.inbox is not null then 'A sender like this one may repeat what the inbox has forgotten: lengthen webhook.inbox_retention.' end
      from kept k
     union all
    select 27, 'retention', 'reconciliation', case when f.open > 0 then 'warning' else 'ok' end,
           format('%s findings are open.', f.open),
           case when f.open > 0 then 'See webhook.reconciliation where repaired_at is null.' end
      from (select count(*) as open from webhook.reconciliation f where f.repaired_at is null) as f
     union all
    select 28, 'server', 'clock', case when k.newest > clock_timestamp() + interval '1 second' or w.last_loop_at > clock_timestamp() + interval '1 second' then 'fault' else 'ok' end,
           case when k.newest > clock_timestamp() + interval '1 second' or w.last_loop_at > clock_timestamp() + interval '1 second'
             then 'The clock was set back: there are events of the future.' else 'No event is of the future.' end,
           case when k.newest > clock_timestamp() + interval '1 second' or w.last_loop_at > clock_timestamp() + interval '1 second'
             then 'Find out why; receivers refuse timestamps that are far from their own clock.' end
      from kept k
     cross join worker w
     union all
    select 29, 'server', 'durability', case when s.unsafe is null then 'ok' else 'warning' end,
           coalesce(s.unsafe || ' is off.', 'fsync and full_page_writes are on.'),
           case when s.unsafe is not null then 'This is for tests: a crash of the machine loses what was committed.' end
      from (select string_agg(case s.name when 'pages' then 'full_page_writes' else s.name end, ', ' order by s.name) filter (where s.value = 'off') as unsafe
              from setting s
             where s.name in ('fsync', 'pages')) as s
     union all
    select 30, 'server', 'foreign code', case when c.names is null then 'ok' else 'warning' end,
           coalesce(c.names || '.', 'Nothing but the extension''s own hangs on its tables.'),
           case when c.names is not null then 'It runs in emit or is able to stop it: drop it unless you know why it is there.' end
      from (select nullif(array_to_string(webhook._foreign_code(), ', '), '') as names) as c)
  select l.area, l.item, l.result, l.detail, l.hint
    from looked l
   order by l.n, l.item
$$;

comment on function webhook.report() is
  'What an acceptance looks at, one row each, with what to do; no row with the result fault = fit. Says what is; that the chain works shows make acceptance. Costs what stat_queue, endpoint_health and a look at the alerts of a day cost.';

-- The page that shows how it is going. What it shows is read here, with the rights of whoever asks; how it looks is
-- drawn from that in src/rules/dashboard. No payload, no URL, no answer of a receiver comes into it.

create function webhook._history()
returns jsonb -- steps of five minutes, oldest first: counts, and median and 95th percentile of times in seconds
language c volatile parallel restricted
as 'MODULE_PATHNAME', 'history_wrapper';

comment on function webhook._history() is 'The last six hours of this database''s leader, from shared memory; they begin with the server.';

create function webhook._dashboard_page(
  data jsonb -- what is to be shown
) returns text -- HTML
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'dashboard_page_wrapper';

comment on function webhook._dashboard_page(jsonb) is 'Draws the page; every text in it is escaped.';

create function webhook._utc(
  at timestamptz -- a time
) returns text -- the same in UTC, to the second
language sql stable strict parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS')
$$;

comment on function webhook._utc(timestamptz) is 'A time as the page shows it.';

create function webhook.dashboard()
returns text -- an HTML page that needs nothing else
language plpgsql volatile parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  gauges jsonb;
  data jsonb;
  history constant jsonb := webhook._history();
  worker webhook.stat_worker;
  found_rows jsonb;
begin
  select w.* into worker from webhook.stat_worker as w;
  select jsonb_object_agg(g.metric || coalesce('.' || (select v.value from jsonb_each_text(g.labels) as v limit 1), ''), g.value)
    into gauges
    from webhook._gauges() as g
   where g.metric <> 'webhook_build_info';
  data := jsonb_build_object(
    'database', worker.database,
    'version', worker.library_version,
    'at', webhook._utc(clock_timestamp()),
    'worker', jsonb_build_object('state', worker.state),
    'advice', concat_ws(' ', worker.detail, worker.hint),
    'history', history,
    'success_rate', (
      select sum((s ->> 'delivered')::numeric) / nullif(sum((s ->> 'delivered')::numeric + (s ->> 'failed')::numeric), 0)
        from jsonb_array_elements(history) as s
       where (s ->> 'at')::bigint >= extract(epoch from clock_timestamp()) - 3600),
    'numbers', jsonb_build_object(
      'unread', gauges -> 'webhook_events_unread',
      'unread_age', gauges -> 'webhook_oldest_unread_age_seconds',
      'queued', gauges -> 'webhook_pairs_queued',
      'in_flight', gauges -> 'webhook_requests_in_flight',
      'due', gauges -> 'webhook_pairs_parked.due',
      'held', gauges -> 'webhook_pairs_parked.held',
      'pending', gauges -> 'webhook_open_deliveries.pending',
      'retrying', gauges -> 'webhook_open_deliveries.retrying',
      'dead', gauges -> 'webhook_open_deliveries.dead',
      'fenced', gauges -> 'webhook_events_fenced',
      'pauses', (select sum(p.value::numeric) from jsonb_each_text(gauges) as p where p.key like 'webhook\_pauses\_active.%')));

  select coalesce(jsonb_agg(to_jsonb(f) order by f.failures desc), '[]')
    into found_rows
    from (select h.endpoint_id::text,
                 h.partner_id,
                 h.health,
                 h.failures,
                 date_trunc('second', clock_timestamp() - h.failing_since)::text as failing_for,
                 h.last_status,
                 h.last_error_category,
                 webhook._utc(h.disable_at) as disable_at
            from webhook.endpoint_health h
           where h.health in ('failing', 'down')
           order by h.failures desc
           limit 20) as f;
  data := data || jsonb_build_object('endpoints', found_rows);

  -- Monitoring may see alerts and how endpoints do, and no single delivery.
  if has_table_privilege('webhook.dead_letters', 'select') then
    select coalesce(jsonb_agg(to_jsonb(d) order by d.event_id desc), '[]')
      into found_rows
      from (select l.delivery_id,
                   l.event_id,
                   l.partner_id,
                   l.type,
                   l.attempt_count,
                   l.last_status,
                   l.last_error_category,
                   l.reason,
                   webhook._utc(l.emitted_at) as emitted_at
              from webhook.dead_letters l
             order by l.event_id desc
             limit 20) as d;
    data := data || jsonb_build_object('dead_letters', found_rows);
  end if;

  select coalesce(jsonb_agg(to_jsonb(a) order by a.alert_id desc), '[]')
    into found_rows
    from (select l.alert_id,
                 webhook._utc(l.at) as at,
                 l.severity,
                 l.kind,
                 l.partner_id,
                 l.endpoint_id::text,
                 l.detail
            from webhook.alerts l
           order by l.alert_id desc
           limit 20) as a;
  data := data || jsonb_build_object('alerts', found_rows);
  return webhook._dashboard_page(data);
end
$$;

comment on function webhook.dashboard() is
  'One self-contained HTML page: queue, charts of the last six hours, failing endpoints, dead letters, alerts. No script, no request to anybody, no payload. Costs what metrics() costs and three short lists.';

-- New objects are the owner's of the extension, whoever updates it, and nobody else's: EXECUTE is PUBLIC's by default,
-- and ALTER DEFAULT PRIVILEGES of the updating role may have given more. What operators granted on older objects stays.
do $$
declare
  owner constant regrole := (select e.extowner from pg_catalog.pg_extension as e where e.extname = 'webhook_outbox');
  given record;
begin
  for given in
    select r as routine from unnest('{"webhook._is_signed(text, text)", "webhook._may_clear(text, date, text[])", "webhook._oldest_feed_day()", "webhook._clear_default(text, text, text, text[], text, integer)", "webhook._expire_rows(text, timestamptz, integer, timestamptz)", "webhook._expire_payloads(timestamptz, integer)", "webhook._missing_pairs(text, text, bigint)", "webhook._with_text(text, text, text, integer)", "webhook._end_sources(text)", "webhook.read_payload(text, text, text)", "webhook._tell_dead_inbox(text, text, text)", "webhook._inbox_backlog()", "webhook._inbox_run_of(text, text, text, text)", "webhook.retry_inbox(text, text, text, text, text)", "webhook.close_inbox(text, text, text, text, text)", "webhook._received_of(text, text, text, text)", "webhook._trim_inbox(timestamptz, integer)", "webhook._reconcile_query(bigint, text, text, timestamptz, timestamptz)", "webhook._note_query(bigint, text, timestamptz, text)", "webhook._unread(bigint)", "webhook.status()", "webhook._metric_list()", "webhook._counters()", "webhook._gauges()", "webhook.metrics()", "webhook._retention_progress()", "webhook.report()", "webhook._history()", "webhook._dashboard_page(jsonb)", "webhook._utc(timestamptz)", "webhook.dashboard()"}'::regprocedure[]) as r
  loop
    execute format('alter function %s owner to %s', given.routine, owner);
  end loop;
  for given in
    select c.oid::regclass as relation, c.relkind
      from unnest('{webhook._endpoint_seen, webhook.stat_queue, webhook.replays, webhook.inbox_sources, webhook.subscriptions, webhook.stat_metrics, webhook.stat_progress_replay, webhook.stat_progress_adopt, webhook.stat_progress_retention, webhook.stat_progress_expunge}'::regclass[]) as r
      join pg_catalog.pg_class as c on c.oid = r
  loop
    execute format('alter table %s owner to %s', given.relation, owner);
    perform webhook._close(given.relation);
  end loop;
  for given in
    select p.oid::regprocedure as routine, case a.grantee when 0 then 'public' else a.grantee::regrole::text end as grantee
      from pg_catalog.pg_proc as p
     cross join lateral pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) as a
     where p.oid = any ('{"webhook._is_signed(text, text)", "webhook._may_clear(text, date, text[])", "webhook._oldest_feed_day()", "webhook._clear_default(text, text, text, text[], text, integer)", "webhook._expire_rows(text, timestamptz, integer, timestamptz)", "webhook._expire_payloads(timestamptz, integer)", "webhook._missing_pairs(text, text, bigint)", "webhook._with_text(text, text, text, integer)", "webhook._end_sources(text)", "webhook.read_payload(text, text, text)", "webhook._tell_dead_inbox(text, text, text)", "webhook._inbox_backlog()", "webhook._inbox_run_of(text, text, text, text)", "webhook.retry_inbox(text, text, text, text, text)", "webhook.close_inbox(text, text, text, text, text)", "webhook._received_of(text, text, text, text)", "webhook._trim_inbox(timestamptz, integer)", "webhook._reconcile_query(bigint, text, text, timestamptz, timestamptz)", "webhook._note_query(bigint, text, timestamptz, text)", "webhook._unread(bigint)", "webhook.status()", "webhook._metric_list()", "webhook._counters()", "webhook._gauges()", "webhook.metrics()", "webhook._retention_progress()", "webhook.report()", "webhook._history()", "webhook._dashboard_page(jsonb)", "webhook._utc(timestamptz)", "webhook.dashboard()"}'::regprocedure[])
       and a.grantee <> p.proowner
  loop
    execute format('revoke all on function %s from %s', given.routine, given.grantee);
  end loop;
end
$$;

grant select on webhook.stat_queue to pg_monitor;

grant execute on function webhook._unread(bigint) to pg_monitor;

-- Metrics name nobody. The page shows of endpoints and alerts what the views above show.
grant select on webhook.stat_metrics to pg_monitor;

grant execute on function webhook.metrics() to pg_monitor;

grant execute on function webhook._metric_list() to pg_monitor;

grant execute on function webhook._counters() to pg_monitor;

grant execute on function webhook._gauges() to pg_monitor;

grant execute on function webhook.dashboard() to pg_monitor;

grant execute on function webhook._dashboard_page(jsonb) to pg_monitor;

grant execute on function webhook._history() to pg_monitor;

grant execute on function webhook._utc(timestamptz) to pg_monitor;

-- Progress names partners as stat_endpoint does, and no subject.
grant select on webhook.stat_progress_replay to pg_monitor;

grant select on webhook.stat_progress_adopt to pg_monitor;

grant select on webhook.stat_progress_retention to pg_monitor;

grant select on webhook.stat_progress_expunge to pg_monitor;

grant execute on function webhook._retention_progress() to pg_monitor;

-- Row-level tenancy: whoever reads a public view sees every partner, its own, or none. The views belong to
-- webhook_views (15_access.sql); that role may read exactly the columns that they use, and of the rows those that the
-- policy lets the reader see. PostgreSQL applies a policy before any condition of the query that could tell of a row
-- it hides, and still uses the indexes; a security_barrier view would lose the order and the joins of the look-ups.

do $$
declare
  target record;
begin
  -- Tables with the rows of a tenant. The owner is not bound by policies: the leader, emit and the verbs pay nothing.
  for target in
    select t.name, 'partner_id = any ((select webhook._own_partners())::text[])' as own
      from unnest('{_event,_feed,_endpoint,_alert,_request,_observation,_inbox,_tombstone,_replay,_event_version}'::text[]) as t (name)
     union all
    select t.name, 'endpoint_id = any ((select webhook._own_endpoints())::bigint[])'
      from unnest('{_endpoint_state,_endpoint_revision,_secret,_delivery,_attempt,_excerpt,_due,_verification}'::text[]) as t (name)
  loop
    execute format('alter table webhook.%I enable row level security', target.name);
    -- An update of the extension runs this again.
    execute format('drop policy if exists _tenant on webhook.%I', target.name);
    -- In sub-selects, so that each is asked once per statement, not once per row.
    execute format('create policy _tenant on webhook.%I for select to webhook_views using ((select webhook._sees_all()) or %s)',
                   target.name, target.own);
    execute format('comment on policy _tenant on webhook.%I is ''A reader''''s own rows; all of them for those who may see every partner.''',
                   target.name);
  end loop;

  for target in
    select c.oid::regclass as name
      from pg_catalog.pg_class as c
     where c.relnamespace = 'webhook'::regnamespace
       and c.relkind = 'v'
       -- Read by functions of the owner, for which it must hold all rows whoever calls them.
       and c.relname not in ('_effective_endpoint', '_admitted_origin', '_foreign_origin')
  loop
    execute format('alter view %s owner to webhook_views', target.name);
  end loop;

  for target in
    select c.oid::regclass as name
      from pg_catalog.pg_class as c
     where c.relnamespace = 'webhook'::regnamespace
       and c.relkind in ('r', 'p')
       and exists (select from pg_catalog.pg_attribute as a
                    where a.attrelid = c.oid and a.attacl is not null)
  loop
    execute format('revoke select on %s from webhook_views', target.name);
  end loop;

  -- The columns that stand in the views; of a table of which only rows are counted, the first one.
  for target in
    select t.oid::regclass as name,
           string_agg(distinct quote_ident(a.attname), ', ') as columns
      from pg_catalog.pg_class as v
      join pg_catalog.pg_rewrite as r on r.ev_class = v.oid
      join pg_catalog.pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_class'::regclass
      join pg_catalog.pg_class as t on t.oid = d.refobjid and t.relnamespace = 'webhook'::regnamespace and t.relkind in ('r', 'p')
      join pg_catalog.pg_attribute as a on a.attrelid = t.oid and a.attnum = greatest(d.refobjsubid, 1)
     where v.relowner = 'webhook_views'::regrole
     group by t.oid
  loop
    execute format('grant select (%s) on %s to webhook_views', target.columns, target.name);
  end loop;
end
$$;

-- Who has a kind of right that needs more now gets that by grant_access afterwards (docs/lifecycle.md): what a script
-- of the extension grants counts as the extension's own, which pg_dump leaves out and which keeps roles from being dropped.

-- The leader, which waited for this version, looks again when this transaction commits.
select webhook._wake();
