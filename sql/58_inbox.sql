-- Processing what was received: claims and results. Everything here is the handler's own transaction: what finish_inbox
-- writes commits, or does not, with the side effect beside it.

create function webhook.claim_inbox(
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
comment on function webhook.claim_inbox(text, integer, interval, text) is
  'Gives a handler the events that it is to process, oldest first, and to nobody else until the lease ends. In one transaction with finish_inbox, or in one of its own. Nothing while the handler is paused.';

create function webhook.finish_inbox(
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
comment on function webhook.finish_inbox(bigint, text, text) is
  'Says what came of a claimed event, in the transaction of the side effect: both commit or neither. An error when the claim is no longer held, so that the side effect rolls back.';

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
