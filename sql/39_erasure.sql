-- How a payload goes: the event keeps its envelope, its digest and so its seal, and gets a tombstone. Every copy of the
-- payload that the extension keeps is listed in _erase_copies, and nowhere else.

create function webhook._note_expunged()
returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'note_expunged_wrapper';
comment on function webhook._note_expunged() is
  'Tells the leader, when the transaction commits, that payloads are gone: before the next request starts it drops those it holds in memory.';

create function webhook._erase_copies(
  event_ids text[], -- events whose payload goes
  received boolean  -- also what this database received itself
) returns jsonb -- rows by table
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  erased jsonb := '{}';
  n bigint;
begin
  -- What receivers answered may repeat what they were sent.
  delete from webhook._excerpt x where x.event_id = any (event_ids);
  get diagnostics n = row_count;
  erased := erased || jsonb_build_object('excerpts', n);
  -- What receive() keeps of the same events has a retention of its own, but no leave to outlive an erasure.
  if received then
    n := webhook._expunge_inbox(event_ids);
    erased := erased || jsonb_build_object('received', n);
  end if;
  -- Bodies in other versions of the schema.
  update webhook._event_version v set body = null where v.event_id = any (event_ids) and v.body is not null;
  get diagnostics n = row_count;
  erased := erased || jsonb_build_object('versions', n);
  return erased;
end
$$;
comment on function webhook._erase_copies(text[], boolean) is 'Deletes every copy of payloads that is kept beside the events: the one list of them.';

create function webhook._count_copies(
  event_ids text[] -- events whose payload is gone
) returns jsonb -- rows by table that are left
language plpgsql stable
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  remaining jsonb;
begin
  select jsonb_build_object('excerpts', count(*),
           -- By way of the sources, as the index has them.
           'received', (select count(*)
                          from webhook._inbox_source s
                          join webhook._inbox i on i.source_id = s.source_id
                         where i.event_id = any (event_ids)
                           and i.body is not null),
           'versions', (select count(*)
                          from webhook._event_version v
                         where v.event_id = any (event_ids)
                           and v.body is not null))
    into remaining
    from webhook._excerpt x
   where x.event_id = any (event_ids);
  return remaining;
end
$$;
comment on function webhook._count_copies(text[]) is 'Counts what _erase_copies would delete: the evidence that nothing is left.';

create function webhook._bury(
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
comment on function webhook._bury(text[], bigint, text) is 'Takes the payloads of events with all their copies, and leaves a tombstone for each.';

create function webhook._erasure_condition(
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
comment on function webhook._erasure_condition(text, boolean) is 'Which events an erasure is about.';
