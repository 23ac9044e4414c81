-- Deciding about received events by hand, processing them again, erasing them and forgetting them.

create function webhook._inbox_run_of(
  event_id text, -- the event
  handler text,  -- the handler
  source text    -- inbox source; null = there is only one that has the event
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
     and (_inbox_run_of.source is null or s.name = _inbox_run_of.source);
  if cardinality(events) > 1 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('event "%s" came from several sources', left(event_id, 256)),
      hint = 'Name the source.';
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
comment on function webhook._inbox_run_of(text, text, text) is 'The row that a decision about an event and a handler is about.';

create function webhook.retry_inbox(
  event_id text,              -- the event
  handler text,               -- the handler
  reason text,                -- why
  source text default null    -- inbox source; needed when several have an event of this id
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
  run := webhook._inbox_run_of(event_id, handler, source);
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
comment on function webhook.retry_inbox(text, text, text, text) is
  'Gives a received event that is dead, stale, closed or waiting back to its handler, at once and with all its attempts.';

create function webhook.close_inbox(
  event_id text,              -- the event
  handler text,               -- the handler
  reason text,                -- why
  source text default null    -- inbox source; needed when several have an event of this id
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
  run := webhook._inbox_run_of(event_id, handler, source);
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
comment on function webhook.close_inbox(text, text, text, text) is 'Decides that a handler will not process a received event.';

create function webhook.replay_inbox(
  handler text,                       -- the handler
  reason text,                        -- why
  since timestamptz default null,     -- events received from then on; null = all that are kept
  until timestamptz default null      -- and before then; null = up to now
) returns bigint -- events that the handler is given
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_handler;
  given bigint;
begin
  perform webhook._check_writable('process events again');
  known := webhook._inbox_handler_named(handler);
  reason := webhook._check_reason(reason);
  insert into webhook._inbox_run (inbox_id, source_id, handler, version, next_attempt_at)
  select i.inbox_id, i.source_id, known.name, known.version, clock_timestamp()
    from webhook._inbox i
    join webhook._inbox_source s on s.source_id = i.source_id
   where (since is null or i.received_at >= since)
     and (until is null or i.received_at < until)
     and i.body is not null
     and webhook._handles(known, s.name, i.type)
     and not exists (
           select from webhook._inbox_run r
            where r.inbox_id = i.inbox_id
              and r.handler = known.name
              and r.state in ('pending', 'claimed', 'retrying'))
  -- What this version has had, whatever came of it, it does not get again.
  on conflict on constraint _inbox_run_pkey do nothing;
  get diagnostics given = row_count;
  perform webhook._log(
    'replay_inbox', 'inbox_handler', handler,
    after => jsonb_strip_nulls(jsonb_build_object(
      'version', known.version, 'since', webhook._rfc3339(since), 'until', webhook._rfc3339(until), 'events', given)),
    reason => reason);
  return given;
end
$$;
comment on function webhook.replay_inbox(text, text, timestamptz, timestamptz) is
  'Gives a handler the events in the inbox that its version in force has not had: those from before it was created, or all of them for a new version. Calling it twice gives nothing twice.';

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

create function webhook._received_of(
  partner_id text,   -- a partner; null = of all
  subject_type text, -- kind of a subject; null = whatever it is about
  subject_id text    -- its identity
) returns bigint[] -- rows of _inbox whose payload is there
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select coalesce(array_agg(i.inbox_id), '{}')
    from webhook._inbox i
   where i.expunged_at is null
     and (_received_of.partner_id is null or i.partner_id = _received_of.partner_id)
     and (_received_of.subject_type is null
          or (i.subject_type = _received_of.subject_type and i.subject_id = _received_of.subject_id))
$$;
comment on function webhook._received_of(text, text, text) is
  'What others sent about a partner or a subject: their events have ids of their own, so these are found by what they say.';

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
  max_rows integer -- most events to delete
) returns bigint -- events that were deleted; fewer than max_rows = there is nothing more to do
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  -- The setting is not there in a session that has not loaded the library.
  cutoff constant timestamptz := clock_timestamp() - coalesce(current_setting('webhook.inbox_retention', true), '120d')::interval;
  trimmed bigint;
begin
  delete from webhook._inbox i
   where i.inbox_id in (
           select o.inbox_id
             from webhook._inbox_source s
            cross join lateral (
                  select n.inbox_id
                    from webhook._inbox n
                   where n.source_id = s.source_id
                     and n.received_at < cutoff
                     -- What a handler still owes is not forgotten; dead letters are, when their time is over.
                     and not exists (
                           select from webhook._inbox_run r
                            where r.inbox_id = n.inbox_id
                              and r.state in ('pending', 'claimed', 'retrying'))
                   order by n.received_at
                   limit max_rows) as o
            limit max_rows);
  get diagnostics trimmed = row_count;
  if trimmed < max_rows then
    delete from webhook._inbox_subject b where b.changed_at < cutoff;
    delete from webhook._inbox_count c where c.day < (cutoff at time zone 'UTC')::date;
    -- Rows of one counter that many sessions made are put together once their day is over.
    with former as (
      delete from webhook._inbox_count c
       where c.day < (clock_timestamp() at time zone 'UTC')::date - 1
         and exists (select from webhook._inbox_count o
                      where (o.source_id, o.day, o.result, o.reason) = (c.source_id, c.day, c.result, c.reason)
                        and o.slot <> c.slot)
      returning c.*)
    insert into webhook._inbox_count (source_id, day, result, reason, slot, total, last_at)
    select f.source_id, f.day, f.result, f.reason, 0, sum(f.total), max(f.last_at)
      from former f
     group by f.source_id, f.day, f.result, f.reason
    on conflict on constraint _inbox_count_pkey do nothing;
  end if;
  return trimmed;
end
$$;
comment on function webhook._trim_inbox(integer) is
  'Deletes received events that are older than webhook.inbox_retention and have no unfinished work, with all that belongs to them; a bounded number at a time.';
