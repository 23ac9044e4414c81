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

create function webhook._expunge_inbox(
  event_ids text[] -- events to erase, of whatever source
) returns bigint -- events that were erased
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select webhook._expunge_received(array(
    select i.inbox_id
      from webhook._inbox_source s
      join webhook._inbox i on i.source_id = s.source_id
     where i.event_id = any (event_ids)
       and i.expunged_at is null))
$$;
comment on function webhook._expunge_inbox(text[]) is 'Erases what was received of these events.';

create function webhook._expunge_received(
  inbox_ids bigint[] -- rows of _inbox
) returns bigint -- events that were erased
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  expunged bigint;
begin
  with target as (
    select i.inbox_id, i.source_id, i.partner_id, i.subject_type, i.subject_id, i.subject_version
      from webhook._inbox i
     where i.inbox_id = any (inbox_ids)
       and i.expunged_at is null
       for no key update of i),
  gone as (
    update webhook._inbox i
       set body = null,
           -- The hash of a short text tells the text.
           body_hash = null,
           subject_id = null,
           subject_type = null,
           subject_version = null,
           correlation_id = null,
           expunged_at = clock_timestamp()
      from target t
     where i.inbox_id = t.inbox_id
    returning i.inbox_id),
  subjects as (
    -- Who the subject is stays known only while a newer event about it is.
    delete from webhook._inbox_subject b
     using target t
     where b.source_id = t.source_id
       and b.partner_id = t.partner_id
       and b.subject_type = t.subject_type
       and b.subject_id = t.subject_id
       and b.version <= t.subject_version),
  runs as (
    update webhook._inbox_run r
       set note = null,
           claim_id = null,
           state = case when r.state in ('pending', 'claimed', 'retrying', 'dead') then 'closed' else r.state end,
           finished_at = coalesce(r.finished_at, clock_timestamp())
      from gone g
     where r.inbox_id = g.inbox_id)
  select count(*) into expunged from gone;
  return expunged;
end
$$;
comment on function webhook._expunge_received(bigint[]) is
  'Erases what received events say and what handlers noted. Ids, times and tenant stay, so that they are not received anew; what was not processed will not be.';

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
