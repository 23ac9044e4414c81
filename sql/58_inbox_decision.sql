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
