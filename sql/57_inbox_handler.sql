-- Handlers: what processes received events, its versions and its pauses. SECURITY DEFINER: EXECUTE is the whole right.

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
