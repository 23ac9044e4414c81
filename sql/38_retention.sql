-- What goes when it is old. The leader calls this between its rounds, one small piece at a time and with its short
-- lock time-out: a partition that somebody reads goes later, and nobody who emits waits longer than that time-out.
-- An old day goes in two steps. TRUNCATE gives the disk back and locks the leaf alone; DROP of the empty leaf must
-- lock the parent, which every open transaction that has emitted holds, and waits for a quiet moment.
-- DETACH is no way: it takes the same lock, and CONCURRENTLY leaves a leaf half attached when it is interrupted.
-- Nothing here decides by the wall clock of the caller's transaction: what is old is told by the leader.

create function webhook._age(
  what text -- event, delivery, attempt or audit
) returns interval
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- A session that has not loaded the library knows no setting of it.
  select coalesce(current_setting(format('webhook.%s_retention', what), true),
                  case what when 'event' then '90d' when 'delivery' then '60d' when 'attempt' then '30d' else '365d' end)::interval
$$;
comment on function webhook._age(text) is 'How long something is kept, as it is set.';

create function webhook._retention_list()
returns table (
  place integer, -- order in which tables of a day are cleared: what refers to something goes before it
  parent text,   -- partitioned table
  age text       -- whose age: attempt, delivery or event
)
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  values
    (1, '_excerpt', 'attempt'),
    (2, '_attempt', 'attempt'),
    (3, '_delivery', 'delivery'),
    (4, '_feed', 'event'),
    (5, '_event_version', 'event'),
    (6, '_event', 'event')
$$;
comment on function webhook._retention_list() is 'Which tables have daily partitions that go when they are old: the one place that says so.';

create function webhook._old_partitions(
  attempt_before date,  -- attempts of days before this one are old
  delivery_before date, -- deliveries
  event_before date     -- events and the feed
) returns table (
  parent text, -- partitioned table
  day date     -- UTC day of a partition of it
)
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select t.parent, t.day
    from (select l.parent, l.place, l.age, to_date(right(c.relname, 8), 'YYYYMMDD') as day
            from webhook._retention_list() as l
            join pg_class as p on p.relname = l.parent and p.relnamespace = 'webhook'::regnamespace
            join pg_inherits as i on i.inhparent = p.oid
            join pg_class as c on c.oid = i.inhrelid
           where c.relname ~ ('^' || l.parent || '_[0-9]{4}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])$')) as t
   where t.day < case t.age when 'attempt' then attempt_before when 'delivery' then delivery_before else event_before end
   order by t.day, t.place
$$;
comment on function webhook._old_partitions(date, date, date) is 'Partitions whose day is old, in the order in which they are cleared.';

create function webhook._is_open(
  low text, -- first event id
  high text -- event id behind the last one
) returns boolean
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select exists (select from webhook._due as w where w.event_id >= low and w.event_id < high)
      or exists (select
                   from webhook._delivery as d
                  where d.event_id >= low
                    and d.event_id < high
                    and d.state in ('pending', 'retrying', 'dead'))
$$;
comment on function webhook._is_open(text, text) is 'Whether deliveries of a range of events are still to be made, or dead letters of it still to be looked at.';

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

create function webhook._clear_partition(
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
comment on function webhook._clear_partition(text, date, text[], boolean) is
  'Empties the partition of an old day, or drops it when it is empty; the latter fails with 55P03 when somebody holds the parent longer than the lock time-out.';

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

create function webhook._expire_keys(
  before timestamptz, -- keys of events from before this moment stand for nothing any more
  page integer,       -- first page of the table that is looked at
  pages integer       -- how many
) returns integer -- page to go on from; null = the end of the table
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  oldest constant text := webhook._event_bound(before);
begin
  -- The key is a hash: there is no order of time to read by, so the table is walked page by page. A row that an emit
  -- is about to take over is left to it.
  delete from webhook._idempotency i
   where i.ctid in (select o.ctid
                      from webhook._idempotency o
                     where o.ctid >= format('(%s,0)', page)::tid
                       and o.ctid < format('(%s,0)', page + pages)::tid
                       and o.event_id < oldest
                       for update skip locked);
  if (page + pages)::bigint * current_setting('block_size')::bigint >= pg_relation_size('webhook._idempotency') then
    return null;
  end if;
  return page + pages;
end
$$;
comment on function webhook._expire_keys(timestamptz, integer, integer) is 'Deletes idempotency keys whose window is over, some pages of the table at a time.';

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
