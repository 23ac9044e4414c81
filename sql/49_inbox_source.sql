-- Where events may come from: inbox sources and their keys. SECURITY DEFINER: EXECUTE is the whole right to these.

create function webhook._inbox_source_facts(
  source webhook._inbox_source -- an inbox source
) returns jsonb -- what of it can be changed
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_jsonb(source) - '{source_id,name,created_at,changed_at}'::text[]
$$;
comment on function webhook._inbox_source_facts(webhook._inbox_source) is 'What the audit log compares of an inbox source; keys are no part of it.';

create function webhook.create_inbox_source(
  name text,                               -- name, as receive is given it
  profile text,                            -- signature profile of the sender
  partner_id text default null,            -- tenant of all its events; or else:
  partner_from text default null,          -- where the tenant stands, in what is signed: body:/pointer, or header:name under RFC 9421
  partners text[] default null,            -- tenants that partner_from may name; null = all
  id_from text default null,               -- where the event id stands: header:name, body:/pointer or digest; null = as the profile has it
  type_from text default null,             -- where the event type stands; null = as the profile has it
  tolerance interval default '5 minutes',  -- how far the time of signing may be from the clock
  validation text default 'off',           -- off, or enforce: payloads must match the catalogue
  same_body boolean default true,          -- whether an event that comes again with another body is a conflict
  max_body integer default 1048576,        -- largest body, bytes
  max_pending integer default 10000,       -- unfinished events above which new ones get a 503
  max_per_minute integer default 6000,     -- events accepted in a minute above which new ones get a 429; null = no limit
  description text default null            -- what it is
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  given record;
begin
  perform webhook._check_writable('create an inbox source');
  perform webhook._check_inbox_name('name', name);
  for given in
    select v.name
      from (values ('profile', profile is null), ('tolerance', tolerance is null), ('validation', validation is null),
                   ('same_body', same_body is null), ('max_body', max_body is null), ('max_pending', max_pending is null)) as v (name, missing)
     where v.missing
  loop
    perform webhook._check_argument(given.name, true);
  end loop;
  -- Refuses an unknown profile as well.
  perform webhook._check_locator('id_from', profile, 'digest');
  id_from := webhook._check_locator('id_from', profile, id_from);
  type_from := webhook._check_locator('type_from', profile, type_from);
  partner_from := webhook._check_locator('partner_from', profile, partner_from);
  if (partner_id is null) = (partner_from is null) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'an inbox source needs either partner_id or partner_from',
      detail = 'Every event belongs to a tenant: always the same one, or the one that its signed part names.';
  end if;
  if partner_id is not null then
    perform webhook._check_partner(partner_id);
    -- As create_endpoint: a partner that is just being offboarded would keep this one.
    perform pg_advisory_xact_lock(hashtextextended('webhook.create_endpoint ' || partner_id, 0));
  end if;
  if partners is not null then
    perform webhook._check_partner(p)
       from unnest(partners) as p;
  end if;
  perform webhook._check_inbox_limits(tolerance, validation, max_body, max_pending, max_per_minute);
  description := webhook._check_text('description', description, 4000);
  insert into webhook._inbox_source
    (source_id, name, profile, partner_id, partner_from, partners, id_from, type_from, tolerance, validation, same_body,
     max_body, max_pending, max_per_minute, description)
  values
    (webhook._new_id(), create_inbox_source.name, create_inbox_source.profile, create_inbox_source.partner_id, create_inbox_source.partner_from,
     create_inbox_source.partners, create_inbox_source.id_from, create_inbox_source.type_from, create_inbox_source.tolerance,
     create_inbox_source.validation, create_inbox_source.same_body, create_inbox_source.max_body, create_inbox_source.max_pending,
     create_inbox_source.max_per_minute, create_inbox_source.description)
  on conflict on constraint _inbox_source_name do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('inbox source "%s" already exists', name),
      hint = 'Use webhook.update_inbox_source.';
  end if;
  if not webhook._is_signed(profile, id_from) then
    raise warning using
      message = format('event ids of inbox source "%s" are not signed', name),
      detail = format('Under profile "%s" no signature covers the header: whoever has seen a request can send its body again under another id, and it counts as another event.', profile),
      hint = 'Leave id_from out: then the id is the digest of the body.';
  end if;
  perform webhook._log('create_inbox_source', 'inbox_source', name, partner_id, after => (
    select jsonb_strip_nulls(webhook._inbox_source_facts(s))
      from webhook._inbox_source s
     where s.name = create_inbox_source.name));
end
$$;
comment on function webhook.create_inbox_source(text, text, text, text, text[], text, text, interval, text, boolean, integer, integer, integer, text) is
  'Registers a sender whose events receive() accepts. It needs a key as well: add_inbox_key.';

create function webhook.update_inbox_source(
  name text,                            -- the source
  enabled boolean default null,         -- false = everything gets a 503; null = keep, like all that follow
  partners text[] default null,         -- '{}' removes the limit
  tolerance interval default null,
  validation text default null,
  same_body boolean default null,
  max_body integer default null,
  max_pending integer default null,
  max_per_minute integer default null,  -- 0 removes the limit
  description text default null         -- '' removes it
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._inbox_source;
  latter webhook._inbox_source;
begin
  perform webhook._check_writable('change an inbox source');
  former := webhook._inbox_source_named(name);
  latter := former;
  latter.enabled := coalesce(enabled, former.enabled);
  latter.partners := coalesce(partners, former.partners);
  latter.tolerance := coalesce(tolerance, former.tolerance);
  latter.validation := coalesce(validation, former.validation);
  latter.same_body := coalesce(same_body, former.same_body);
  latter.max_body := coalesce(max_body, former.max_body);
  latter.max_pending := coalesce(max_pending, former.max_pending);
  latter.max_per_minute := nullif(coalesce(max_per_minute, former.max_per_minute), 0);
  latter.description := webhook._with_text('description', description, former.description, 4000);
  perform webhook._check_partner(p)
     from unnest(partners) as p;
  latter.partners := nullif(latter.partners, '{}');
  perform webhook._check_inbox_limits(latter.tolerance, latter.validation, latter.max_body, latter.max_pending, latter.max_per_minute);
  update webhook._inbox_source s
     set enabled = latter.enabled,
         partners = latter.partners,
         tolerance = latter.tolerance,
         validation = latter.validation,
         same_body = latter.same_body,
         max_body = latter.max_body,
         max_pending = latter.max_pending,
         max_per_minute = latter.max_per_minute,
         description = latter.description,
         changed_at = clock_timestamp()
   where s.source_id = former.source_id;
  perform webhook._log(
    'update_inbox_source', 'inbox_source', name, former.partner_id,
    before => webhook._changed(webhook._inbox_source_facts(former), webhook._inbox_source_facts(latter)),
    after => webhook._changed(webhook._inbox_source_facts(latter), webhook._inbox_source_facts(former)));
end
$$;
comment on function webhook.update_inbox_source(text, boolean, text[], interval, text, boolean, integer, integer, integer, text) is
  'Changes the limits of an inbox source, or switches it off and on. Profile and tenant stay: make another source.';

create function webhook.add_inbox_key(
  source text,            -- the source
  key text default null,  -- the key, as the sender has or shows it; null = one is made
  out key_id bigint,      -- its id
  out new_key text        -- the key that was made, to be handed to the sender; null when it was given
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  known webhook._inbox_source;
  kind text;
begin
  perform webhook._check_writable('add a key');
  known := webhook._inbox_source_named(source);
  key_id := webhook._new_id();
  -- By an assignment, not a statement, which could be logged with its parameters.
  kind := webhook._hold_inbox_key(key_id, known.profile, key);
  if (select count(*) from webhook._inbox_key k
       where k.source_id = known.source_id and k.kept and (k.valid_until is null or k.valid_until > clock_timestamp())) >= 10
  then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = format('inbox source "%s" has too many keys', source),
      detail = 'The limit is 10.',
      hint = 'Revoke one that is no longer used with webhook.revoke_inbox_key.';
  end if;
  insert into webhook._inbox_key (key_id, source_id, kind, key)
  values (key_id, known.source_id, kind, webhook._held_inbox_key(key_id, known.source_id));
  if key is null then
    new_key := webhook._take_secret(key_id);
  end if;
  perform webhook._log(
    'add_inbox_key', 'inbox_source', source, known.partner_id,
    after => jsonb_build_object('key_id', key_id::text, 'kind', kind, 'made_here', key is null));
end
$$;
comment on function webhook.add_inbox_key(text, text) is
  'Adds a key to an inbox source: from the commit on a signature of any of its keys is accepted. Stored encrypted like the keys of endpoints, and never shown.';

create function webhook.revoke_inbox_key(
  key_id bigint,                        -- the key, see inbox_keys
  reason text,                          -- why
  valid_until timestamptz default null  -- end of its validity; null = now, and its material is destroyed
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former record;
begin
  perform webhook._check_writable('revoke a key');
  perform webhook._check_argument('key_id', key_id is null);
  reason := webhook._check_reason(reason);
  select k.source_id, k.valid_until, k.kept, s.name, s.partner_id
    into former
    from webhook._inbox_key k
    join webhook._inbox_source s on s.source_id = k.source_id
   where k.key_id = revoke_inbox_key.key_id
     for no key update of k;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('key %s of an inbox source does not exist', key_id),
      hint = 'See webhook.inbox_keys.';
  end if;
  if not former.kept then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('key %s is destroyed already', key_id);
  end if;
  update webhook._inbox_key k
     set valid_until = coalesce(revoke_inbox_key.valid_until, clock_timestamp()),
         key = case when revoke_inbox_key.valid_until > clock_timestamp() then k.key end
   where k.key_id = revoke_inbox_key.key_id;
  perform webhook._log(
    'revoke_inbox_key', 'inbox_source', former.name, former.partner_id,
    before => jsonb_strip_nulls(jsonb_build_object('valid_until', webhook._rfc3339(former.valid_until))),
    after => jsonb_strip_nulls(jsonb_build_object('key_id', key_id::text, 'valid_until', webhook._rfc3339(valid_until))),
    reason => reason);
end
$$;
comment on function webhook.revoke_inbox_key(bigint, text, timestamptz) is 'Ends a key of an inbox source, at once or at a time: the second half of a rotation.';

create function webhook._end_sources(
  partner_id text -- a partner that leaves
) returns jsonb -- names of its inbox sources, and of those that it shared
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  own text[];
  shared text[];
begin
  with ended as (
    update webhook._inbox_source s
       set enabled = false,
           changed_at = clock_timestamp()
     where s.partner_id = _end_sources.partner_id
    returning s.source_id, s.name),
  destroyed as (
    update webhook._inbox_key k
       set key = null,
           valid_until = least(k.valid_until, clock_timestamp())
      from ended
     where k.source_id = ended.source_id
       and k.kept)
  select array_agg(e.name order by e.name) into own from ended e;
  -- Of a source that speaks for several, only this one goes. An empty list would stand for everybody.
  with ended as (
    update webhook._inbox_source s
       set partners = case when cardinality(s.partners) > 1 then array_remove(s.partners, _end_sources.partner_id) else s.partners end,
           enabled = s.enabled and cardinality(s.partners) > 1,
           changed_at = clock_timestamp()
     where _end_sources.partner_id = any (s.partners)
    returning s.name)
  select array_agg(e.name order by e.name) into shared from ended e;
  return jsonb_strip_nulls(jsonb_build_object('inbox_sources', own, 'shared_inbox_sources', shared));
end
$$;
comment on function webhook._end_sources(text) is
  'Switches the inbox sources of a partner off, destroys their keys, and takes the partner out of sources that name it among others.';
