-- Receiving: verify, find the tenant, check the schema, store once, and say what to answer.
--
-- What a stranger sends leaves a counter, nothing else. The answer counts once the caller's transaction has committed.

create function webhook.receive(
  source text,                  -- inbox source
  headers jsonb,                -- headers of the request: {"name": "value"} or {"name": ["value", ...]}
  body bytea,                   -- its body, as it came
  method text default 'POST',   -- its method; of RFC 9421
  url text default null,        -- absolute URL that it was sent to; of RFC 9421, when a signature covers it
  out result text,              -- accepted, duplicate, challenge or rejected
  out event_id text,            -- the event; null before a signature was found good
  out http_status integer,      -- what to answer, after the commit
  out reason text,              -- why it was rejected; for operators, not for the answer
  out answer text               -- body of the answer to a challenge; null = none
) returns record
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; whoever answers senders sees no table.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_source;
  found_event record;
  former_hash bytea;
  taken bigint;
begin
  perform webhook._check_writable('receive an event');
  perform webhook._check_argument('source', source is null);
  perform webhook._check_argument('headers', headers is null);
  perform webhook._check_argument('body', body is null);
  perform webhook._check_argument('method', method is null);
  result := 'rejected';
  select s.*
    into known
    from webhook._inbox_source s
   where s.name = receive.source;
  if not found then
    -- Not counted: the name may be the stranger's, and there is no end of names.
    http_status := 404;
    reason := 'unknown_source';
    return;
  end if;
  if not known.enabled then
    http_status := 503;
    reason := 'disabled';
  elsif octet_length(body) > known.max_body then
    http_status := 413;
    reason := 'too_large';
  else
    select i.*
      into found_event
      from webhook._inspect_received(
             known.source_id, known.profile, extract(epoch from known.tolerance)::bigint, known.partner_id, known.partner_from,
             known.partners, known.id_from, known.type_from, known.validation = 'enforce', headers, body, method, url) as i;
    if found_event.refusal is not null then
      http_status := found_event.http_status;
      reason := found_event.refusal;
    elsif found_event.answer is not null then
      result := 'challenge';
      http_status := 200;
      answer := found_event.answer;
    else
      event_id := found_event.event_id;
      select i.inbox_id, i.body_hash
        into taken, former_hash
        from webhook._inbox i
       where i.source_id = known.source_id
         and i.event_id = found_event.event_id
         and i.partner_id = found_event.event_partner_id;
      -- A duplicate is welcome whatever the limits say: to refuse it would only bring it again.
      if not found then
        reason := webhook._inbox_full(known);
        if reason is null then
          taken := webhook._take_in(known, found_event.event_id, found_event.event_partner_id, found_event.event_type,
                                    found_event.subject_type, found_event.subject_id, found_event.subject_version,
                                    found_event.schema_version, found_event.correlation_id, found_event.signed_at, body);
          if taken is not null then
            result := 'accepted';
            http_status := 202;
          else
            -- Another session was faster; its row is visible now, or, under REPEATABLE READ, the insert has failed.
            select i.body_hash
              into former_hash
              from webhook._inbox i
             where i.source_id = known.source_id
               and i.event_id = found_event.event_id
               and i.partner_id = found_event.event_partner_id;
          end if;
        end if;
      end if;
      if reason is not null then
        http_status := case reason when 'rate_limited' then 429 else 503 end;
      elsif result <> 'accepted' then
        if known.same_body and former_hash <> sha256(body) then
          http_status := 409;
          reason := 'conflict';
        else
          result := 'duplicate';
          http_status := 200;
        end if;
      end if;
    end if;
  end if;
  perform webhook._count_inbox(known.source_id, result, coalesce(reason, ''));
end
$$;
comment on function webhook.receive(text, jsonb, bytea, text, text) is
  'Takes a webhook in: verifies it, finds its tenant, checks its schema and stores it under its id. Returns what to answer, which is to be sent after the commit. A duplicate is a normal result.';

create function webhook._inbox_full(
  source webhook._inbox_source -- an inbox source
) returns text -- rate_limited or too_many_pending; null = there is room
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  -- A variable: an index cannot be searched for what clock_timestamp() may yet return.
  since constant timestamptz := clock_timestamp() - interval '1 minute';
begin
  -- Counted no further than the limit. Sessions that receive at once may exceed it by as many as they are.
  if source.max_per_minute is not null
     and (select count(*)
            from (select
                    from webhook._inbox i
                   where i.source_id = source.source_id
                     and i.received_at > since
                   limit source.max_per_minute) as recent) >= source.max_per_minute
  then
    return 'rate_limited';
  end if;
  if (select count(*)
        from (select
                from webhook._inbox_run r
               where r.source_id = source.source_id
                 and r.state in ('pending', 'claimed', 'retrying')
               limit source.max_pending) as waiting) >= source.max_pending
  then
    return 'too_many_pending';
  end if;
  return null;
end
$$;
comment on function webhook._inbox_full(webhook._inbox_source) is 'Whether a source has reached one of its limits.';

create function webhook._take_in(
  source webhook._inbox_source, -- where the event came from
  event_id text,                -- the event, and what it says of itself
  partner_id text,
  type text,
  subject_type text,
  subject_id text,
  subject_version bigint,
  schema_version text,
  correlation_id text,
  signed_at bigint,             -- Unix seconds
  body bytea                    -- the body
) returns bigint -- inbox_id; null = it is there already
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  new_id bigint;
begin
  insert into webhook._inbox as i
    (inbox_id, source_id, event_id, partner_id, type, subject_type, subject_id, subject_version, schema_version, correlation_id,
     signed_at, bytes, body_hash, body)
  values
    (webhook._new_id(), source.source_id, _take_in.event_id, _take_in.partner_id, _take_in.type, _take_in.subject_type,
     _take_in.subject_id, _take_in.subject_version, _take_in.schema_version, _take_in.correlation_id,
     to_timestamp(_take_in.signed_at), octet_length(_take_in.body), sha256(_take_in.body), _take_in.body)
  -- Waits for another session that inserts the same event, and inserts when that one rolls back.
  on conflict on constraint _inbox_event do nothing
  returning i.inbox_id into new_id;
  if new_id is null then
    return null;
  end if;
  insert into webhook._inbox_run (inbox_id, source_id, handler, version, next_attempt_at)
  select new_id, source.source_id, h.name, h.version, clock_timestamp()
    from webhook._inbox_handler h
   where webhook._handles(h, source.name, _take_in.type);
  return new_id;
end
$$;
comment on function webhook._take_in(webhook._inbox_source, text, text, text, text, text, bigint, text, text, bigint, bytea) is
  'Stores an event that is not there yet, and what its handlers have to do.';
