-- What the business says: registered queries that find changes, compared with the events of a type. A query is a user's
-- code: it runs with the rights of its owner (src/pg/reconciling.rs), each in a savepoint of its own.

create function webhook.create_reconciliation(
  name text,                              -- name of the check
  event_type text,                        -- event type that reports the changes
  subject_type text,                      -- kind of the subject that changes
  query regprocedure,                     -- function (since timestamptz, until timestamptz): rows with subject_id, changed_at and, where there is one, partner_id and subject_version
  tolerance interval default '5 minutes', -- how far the time of the event may be from that of the change
  description text default null           -- free text
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: as expunge.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  called text;
begin
  perform webhook._check_writable('register a query');
  perform webhook._check_argument('name', name is null);
  perform webhook._check_argument('event_type', event_type is null);
  perform webhook._check_argument('subject_type', subject_type is null);
  perform webhook._check_argument('query', query is null);
  perform webhook._check_argument('tolerance', tolerance is null);
  if name !~ '^[A-Za-z0-9_.-]{1,128}$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'name is not valid',
      detail = 'A name has 1 to 128 characters of A-Z, a-z, 0-9, "_", "." and "-".';
  end if;
  perform webhook._check_type(event_type);
  if tolerance < interval '0' or tolerance > interval '7 days' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'tolerance is outside the valid range',
      detail = 'It is at most 7 days.';
  end if;
  select format('%I.%I', n.nspname, p.proname)
    into called
    from pg_proc as p
    join pg_namespace as n on n.oid = p.pronamespace
   where p.oid = query
     and p.pronargs = 2
     and p.proargtypes[0] = 'timestamptz'::regtype
     and p.proargtypes[1] = 'timestamptz'::regtype;
  perform webhook._check_query(coalesce(called, query::regproc::text));
  -- It runs with the rights of its owner, who must have agreed.
  if not exists (select from pg_proc as p where p.oid = query and pg_has_role(session_user, p.proowner, 'member')) then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('permission denied for function %s', called),
      detail = 'A query is registered by its owner, or a member of that role: it runs with the owner''s rights.';
  end if;
  insert into webhook._reconciliation as r (name, event_type, subject_type, query, tolerance, description)
  values (create_reconciliation.name, create_reconciliation.event_type, create_reconciliation.subject_type, called,
          create_reconciliation.tolerance, create_reconciliation.description)
  on conflict on constraint _reconciliation_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('query "%s" already exists', name),
      hint = 'See webhook.reconciliations.';
  end if;
  perform webhook._log('create_reconciliation', 'reconciliation', name,
                       after => jsonb_build_object('event_type', event_type, 'subject_type', subject_type, 'query', called));
end
$$;
comment on function webhook.create_reconciliation(text, text, text, regprocedure, interval, text) is
  'Registers a query that finds changes of the business: reconcile compares them with the events of a type. It must be SECURITY DEFINER.';

create function webhook.delete_reconciliation(
  name text -- name of the check
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: as expunge.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_writable('delete a query');
  perform webhook._check_argument('name', name is null);
  delete from webhook._reconciliation as r where r.name = delete_reconciliation.name;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('query "%s" does not exist', left(name, 128)),
      hint = 'See webhook.reconciliations.';
  end if;
  -- Nobody will look at them again.
  update webhook._finding as f
     set repaired_at = clock_timestamp(),
         how = 'the query was deleted'
   where f.check_name = delete_reconciliation.name
     and f.repaired_at is null;
  perform webhook._log('delete_reconciliation', 'reconciliation', name);
end
$$;
comment on function webhook.delete_reconciliation(text) is 'Forgets a registered query; its findings stay.';

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

create function webhook._check_query(
  query text -- schema-qualified name of a function
) returns void
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  definer boolean;
begin
  select p.prosecdef
    into definer
    from pg_proc as p
   where p.oid = to_regprocedure(query || '(timestamptz, timestamptz)')
     and p.prokind = 'f';
  if not found then
    raise exception using
      errcode = 'undefined_function',
      message = format('function %s(timestamptz, timestamptz) does not exist', left(query, 200)),
      hint = 'A query is a function of the two ends of a range that returns rows with subject_id and changed_at.';
  end if;
  -- Whoever reconciles must not lend his rights to whoever wrote the query.
  if not definer then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('function %s runs with the rights of whoever calls it', query),
      hint = 'Make it SECURITY DEFINER, with a search_path of its own: then it can do what its owner can and no more.';
  end if;
end
$$;
comment on function webhook._check_query(text) is 'Refuses a query that would run with the rights of whoever reconciles.';

create function webhook._judge_changes(
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
comment on function webhook._judge_changes(bigint, text, jsonb, timestamptz, timestamptz) is 'Compares changes of the business with the events that should report them.';

create function webhook._ask_query(
  query text,         -- schema-qualified name of a function
  since timestamptz,  -- the range that it is asked for
  until timestamptz
) returns text -- its rows, as a JSON array
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  changes text;
begin
  execute format('select coalesce(pg_catalog.jsonb_agg(pg_catalog.to_jsonb(c)), ''[]'')::text from (select r.* from %s($1, $2) as r limit 10001) as c', query)
     into changes
    using since, until;
  return changes;
end
$$;
comment on function webhook._ask_query(text, timestamptz, timestamptz) is 'What a registered query returns. Called by _changes alone, as the owner of the query.';

create function webhook._changes(
  helper oid,         -- _ask_query
  query text,         -- schema-qualified name of a function
  since timestamptz,  -- the range that it is asked for
  until timestamptz
) returns text -- its rows, as a JSON array
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'changes_of_wrapper';
comment on function webhook._changes(oid, text, timestamptz, timestamptz) is
  'Asks a registered query with the rights of its owner and no others: in a savepoint, as a security-restricted operation that writes nothing.';
