-- Erasing payloads: what somebody has the right to have deleted. All of it happens in the caller's transaction; the
-- event stays as ids, digest and seal, and so does the evidence that it was delivered.

create function webhook.expunge(
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

create function webhook.confirm_erasure(
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
comment on function webhook.confirm_erasure(bigint) is
  'Looks again for what an erasure was to erase, and keeps the first result that finds nothing as evidence. "unswept" are events whose late answers the leader has still to look for.';
