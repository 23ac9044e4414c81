-- Processing what was received: handlers, claims and results. Everything here is the handler's own transaction: what
-- finish_inbox writes commits, or does not, with the side effect beside it.

create function webhook.create_inbox_handler(
  name text,                                                   -- name, as claim_inbox is given it
  version text default '1',                                    -- version of its code; an event is processed once by each
  event_types text[] default '{*}',                            -- event types and wildcards that it wants
  sources text[] default null,                                 -- inbox sources that it wants events of; null = all
  retry_schedule text default '5s,1m,10m,1h,6h,1d',            -- waits between attempts
  subject_versions boolean default true,                       -- whether an event about an older version of its subject is stale
  description text default null                                -- what it does
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_writable('create an inbox handler');
  perform webhook._check_inbox_name('name', name);
  perform webhook._check_inbox_name('version', version);
  event_types := webhook._check_event_types(event_types);
  perform webhook._check_argument('retry_schedule', retry_schedule is null);
  perform webhook._check_argument('subject_versions', subject_versions is null);
  perform webhook._check_schedule(retry_schedule);
  perform webhook._check_inbox_sources(sources);
  description := webhook._check_text('description', description, 4000);
  insert into webhook._inbox_handler (name, origin, version, event_types, sources, retry_schedule, subject_versions, description)
  values (create_inbox_handler.name, webhook._origin(), create_inbox_handler.version, create_inbox_handler.event_types, create_inbox_handler.sources,
          create_inbox_handler.retry_schedule, create_inbox_handler.subject_versions, create_inbox_handler.description)
  on conflict on constraint _inbox_handler_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('inbox handler "%s" already exists', name),
      hint = 'Use webhook.update_inbox_handler.';
  end if;
  perform webhook._log('create_inbox_handler', 'inbox_handler', name, after => (
    select jsonb_strip_nulls(webhook._inbox_handler_facts(h))
      from webhook._inbox_handler h
     where h.name = create_inbox_handler.name));
end
$$;
comment on function webhook.create_inbox_handler(text, text, text[], text[], text, boolean, text) is
  'Registers what processes received events. It gets those that are received from now on; earlier ones with replay_inbox.';

create function webhook._check_inbox_sources(
  sources text[] -- names of inbox sources
) returns void
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  missing text;
begin
  select u.name
    into missing
    from unnest(sources) as u (name)
   where not exists (select from webhook._inbox_source s where s.name = u.name)
   limit 1;
  if found then
    raise exception using
      errcode = 'undefined_object',
      message = format('inbox source "%s" does not exist', left(missing, 128)),
      hint = 'See webhook.inbox_sources.';
  end if;
end
$$;
comment on function webhook._check_inbox_sources(text[]) is 'Refuses inbox sources that do not exist.';

create function webhook._inbox_handler_facts(
  handler webhook._inbox_handler -- a handler
) returns jsonb -- what of it can be changed
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_jsonb(handler) - '{name,origin,created_at,changed_at,paused_by}'::text[]
$$;
comment on function webhook._inbox_handler_facts(webhook._inbox_handler) is 'What the audit log compares of a handler.';

create function webhook.update_inbox_handler(
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
  if description is not null then
    latter.description := webhook._check_text('description', description, 4000);
  end if;
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
comment on function webhook.update_inbox_handler(text, text, text[], text[], text, boolean, text) is
  'Changes a handler. With a new version what is not finished goes to that version; what an earlier one processed comes again only by replay_inbox.';

create function webhook.delete_inbox_handler(
  name text,   -- the handler
  reason text  -- why
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._inbox_handler;
  closed bigint;
begin
  perform webhook._check_writable('delete an inbox handler');
  former := webhook._inbox_handler_named(name);
  reason := webhook._check_reason(reason);
  update webhook._inbox_run r
     set state = 'closed',
         claim_id = null,
         finished_at = clock_timestamp(),
         note = delete_inbox_handler.reason
   where r.handler = former.name
     and r.state in ('pending', 'claimed', 'retrying');
  get diagnostics closed = row_count;
  delete from webhook._inbox_handler h where h.name = former.name;
  perform webhook._log(
    'delete_inbox_handler', 'inbox_handler', name,
    before => jsonb_strip_nulls(webhook._inbox_handler_facts(former)), after => jsonb_build_object('closed', closed), reason => reason);
end
$$;
comment on function webhook.delete_inbox_handler(text, text) is 'Removes a handler and closes what it has not finished. What it processed stays in the inbox.';

create function webhook.pause_inbox(
  handler text, -- the handler
  reason text   -- why
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._inbox_handler;
begin
  perform webhook._check_writable('pause an inbox handler');
  former := webhook._inbox_handler_named(handler);
  reason := webhook._check_reason(reason);
  update webhook._inbox_handler h
     set paused_at = coalesce(h.paused_at, clock_timestamp()),
         paused_by = session_user,
         pause_reason = pause_inbox.reason
   where h.name = former.name;
  perform webhook._log('pause_inbox', 'inbox_handler', handler, reason => reason);
end
$$;
comment on function webhook.pause_inbox(text, text) is
  'Lets claim_inbox give a handler nothing until resume_inbox. Events are received and wait; what is claimed may be finished.';

create function webhook.resume_inbox(
  handler text -- the handler
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._inbox_handler;
begin
  perform webhook._check_writable('resume an inbox handler');
  former := webhook._inbox_handler_named(handler);
  if former.paused_at is null and former.origin = webhook._origin() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('inbox handler "%s" is not paused', handler);
  end if;
  update webhook._inbox_handler h
     set paused_at = null,
         paused_by = null,
         pause_reason = null,
         origin = webhook._origin()
   where h.name = former.name;
  perform webhook._log(
    'resume_inbox', 'inbox_handler', handler,
    before => jsonb_strip_nulls(jsonb_build_object('reason', former.pause_reason)));
end
$$;
comment on function webhook.resume_inbox(text) is 'Ends the pause of a handler. In a copy of a database it also says that the handler is to work here.';

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
      if ended = 'stale' then
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
         i.partner_id, i.subject_type, i.subject_id, i.subject_version
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
  perform webhook._count_inbox(held.source_id, case result when 'rejected' then 'failed' else result end, held.handler);
  return outcome;
end
$$;
comment on function webhook.finish_inbox(bigint, text, text) is
  'Says what came of a claimed event, in the transaction of the side effect: both commit or neither. An error when the claim is no longer held, so that the side effect rolls back.';
