-- Taking over the events and endpoints that came with a copy of another database. Endpoints change hands here, in
-- the caller's transaction; what they are owed is the leader's work, at its own pace.

create function webhook.adopt(
  origin bigint, -- the other database, see stat_fenced
  mode text,     -- send = what was still to be sent is sent from here; skip = only new events are
  reason text    -- why
) returns bigint -- request_id, see the views requests and adoptions
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  own constant bigint := webhook._origin();
  -- One snapshot for all of it: it divides own events into those that the leader's scan gives to the endpoints
  -- and those that its window does.
  taken_in constant pg_snapshot := pg_current_snapshot();
  request bigint;
  running record;
  taken integer;
begin
  perform webhook._check_writable('adopt an origin');
  perform webhook._check_argument('origin', origin is null);
  perform webhook._check_argument('mode', mode is null);
  reason := webhook._check_reason(reason);
  if mode not in ('send', 'skip') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('mode "%s" is not valid', left(mode, 64)),
      detail = 'A mode is "send" (what was still to be sent is sent from here) or "skip" (only new events are).';
  end if;
  if origin = own then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('origin %s is this database itself', origin),
      hint = 'The view stat_fenced shows the origins that can be adopted.';
  end if;
  if not exists (select from webhook._seal_key k where k.origin = adopt.origin)
     and not exists (select from webhook._endpoint e where e.origin = adopt.origin) then
    raise exception using
      errcode = 'undefined_object',
      message = format('origin %s does not exist', origin),
      hint = 'The view stat_fenced shows the origins that can be adopted.';
  end if;
  -- One after the other: the second of two that adopt at once sees what the first one did.
  lock table webhook._adoption in share row exclusive mode;
  select a.request_id, a.mode
    into running
    from webhook._adoption a
    left join webhook._adoption_progress p on p.request_id = a.request_id
   where a.origin = adopt.origin
     and a.adopter = own
     and p.state is distinct from 'done'
   limit 1;
  if found then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('origin %s is being adopted already', origin),
      detail = format('Request %s with mode "%s" is not finished.', running.request_id, running.mode),
      hint = 'The view adoptions shows how far it has come. It can be adopted again afterwards, which concerns what came here since.';
  end if;

  -- Since when each endpoint is there, by the transactions of the database that it comes from.
  insert into webhook._adopted_endpoint as m (endpoint_id, origin, created_xid, created_snapshot)
  select e.endpoint_id, e.origin, e.created_xid, e.created_snapshot
    from webhook._endpoint e
   where e.origin = adopt.origin
  on conflict on constraint _adopted_endpoint_pkey do nothing;
  -- What the leader found out holds on as the user's word: a disabled endpoint stays disabled. How it fared is
  -- void: it is another network that requests leave from.
  update webhook._endpoint e
     set origin = own,
         state = f.state,
         state_reason = f.state_reason,
         state_changed_at = f.state_changed_at,
         generation = e.generation + 1,
         -- Challenges that another network sent, or did not send, are nobody's fault here: the time to prove begins anew.
         proof_generation = e.proof_generation + case when e.proof_asked_at is null then 0 else 1 end,
         proof_asked_at = case when e.proof_asked_at is not null then clock_timestamp() end,
         created_xid = pg_current_xact_id(),
         created_snapshot = taken_in,
         changed_xid = pg_current_xact_id()
    from webhook._effective_endpoint f
   where f.endpoint_id = e.endpoint_id
     and e.origin = adopt.origin;
  get diagnostics taken = row_count;
  -- What their filters were in the other database's past, none of its transactions can tell here.
  update webhook._filter f
     set created_xid = pg_current_xact_id()
    from webhook._endpoint e
   where e.endpoint_id = f.endpoint_id
     and e.created_xid = pg_current_xact_id();
  -- The same of their shapes: an event of this database has the shape of its window.
  update webhook._endpoint_revision r
     set created_xid = pg_current_xact_id()
    from webhook._endpoint e
   where e.endpoint_id = r.endpoint_id
     and e.created_xid = pg_current_xact_id();
  -- Policies, pauses and priorities came with the copy as well. A leader that ran already while they were restored has
  -- not seen them: their transactions are those of the other database.
  update webhook._policy set changed_xid = pg_current_xact_id();
  update webhook._pause set changed_xid = pg_current_xact_id();
  update webhook._event_type set changed_xid = pg_current_xact_id();

  request := webhook._ask(
    'adopt', 'origin', origin::text,
    target => origin::text,
    reason => reason,
    after => jsonb_build_object('mode', mode, 'endpoints', taken));
  insert into webhook._adoption (request_id, origin, adopter, mode, reason, endpoints, snapshot)
  values (request, adopt.origin, own, adopt.mode, adopt.reason, taken, taken_in);
  return request;
end
$$;
comment on function webhook.adopt(bigint, text, text) is
  'Takes over the events and endpoints of another database, of which this one is a copy. With "send" the leader sends what was still to be sent there, and what the endpoints missed here; with "skip" only new events are sent. Returns the request.';
