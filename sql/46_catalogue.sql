-- Schemas and sources: what payloads must look like, and who may say that he is whom. Emitting sessions keep compiled
-- schemas; a change tells them, and counts for its own transaction at once.

create function webhook._forget_catalogue()
returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'forget_catalogue_wrapper';
comment on function webhook._forget_catalogue() is
  'Has every session read the catalogue again, once this transaction has committed; its own at the next statement.';

create function webhook._catalogue_changed()
returns trigger
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._forget_catalogue();
  return null;
end
$$;
comment on function webhook._catalogue_changed() is 'Tells the sessions that the catalogue has changed.';

-- ENABLE ALWAYS: a restore under session_replication_role = replica changes the catalogue as well.
do $$
declare
  target text;
begin
  foreach target in array '{_event_type,_event_schema,_source}'::text[] loop
    execute format(
      'create trigger _catalogue_changed after insert or update or delete or truncate on webhook.%I
         for each statement execute function webhook._catalogue_changed()', target);
    execute format('comment on trigger _catalogue_changed on webhook.%I is ''The next emit goes by the new catalogue.''', target);
    execute format('alter table webhook.%I enable always trigger _catalogue_changed', target);
  end loop;
end
$$;

create function webhook._check_schema(
  schema text,  -- JSON Schema
  former text,  -- schema of the same version until now; null = there is none
  example text  -- a payload
) returns void
language c stable parallel safe
as 'MODULE_PATHNAME', 'check_schema_wrapper';
comment on function webhook._check_schema(text, text, text) is
  'Refuses a schema that is none, whose fields do not say what they must, that breaks receivers of the former one, or that does not accept the example.';

create function webhook._schema_fields(
  schema text,          -- JSON Schema
  out path text,        -- JSON pointer of the field, [] for every element of an array
  out kind text,        -- types
  out required boolean, -- whether it is always there
  out purpose text,     -- what it is there for
  out sensitivity text, -- its x-sensitivity
  out money text        -- its x-money, JSON
) returns setof record
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'schema_fields_wrapper';
comment on function webhook._schema_fields(text) is 'The fields that a schema describes; behind event_fields.';

create function webhook._check_mode(
  mode text -- off, warn or enforce; empty or null = webhook.validation
) returns text -- the same, null for empty
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if mode not in ('', 'off', 'warn', 'enforce') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('mode "%s" is not valid', left(mode, 64)),
      hint = 'A mode is off, warn or enforce; leave it out for what webhook.validation says.';
  end if;
  return nullif(mode, '');
end
$$;
comment on function webhook._check_mode(text) is 'Refuses a mode of validation that does not exist.';

create function webhook._check_uri(
  uri text -- where something is documented
) returns text -- the same, null for empty
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  uri := webhook._check_text('uri', uri, 1000);
  if uri !~ '^[A-Za-z][A-Za-z0-9+.-]*:[^\s<>"{}|\\^`]+$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'uri is not valid',
      detail = 'It is absolute: it begins with a scheme, like "https:" or "urn:".';
  end if;
  return uri;
end
$$;
comment on function webhook._check_uri(text) is 'Refuses a text that is no absolute URI.';

create function webhook.add_schema(
  type text,                      -- event type, registered
  version text,                   -- version of the payload's schema
  schema jsonb,                   -- JSON Schema, draft 7 or 2020-12
  example jsonb,                  -- a payload that it accepts
  mode text default null,         -- off, warn or enforce; null = webhook.validation
  change_note text default null,  -- what is different from the version before
  uri text default null,          -- where the version is documented
  current boolean default null    -- whether it is the version of events that name none; null = if it is the first one
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._event_schema;
  becomes_current boolean;
begin
  perform webhook._check_writable('add a schema');
  perform webhook._check_argument('type', type is null);
  perform webhook._check_argument('version', version is null);
  perform webhook._check_argument('schema', schema is null);
  perform webhook._check_argument('example', example is null);
  if version !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'schema version is not valid',
      detail = 'It has 1 to 64 characters of A-Z, a-z, 0-9, ".", "_" and "-", and begins with a letter or digit.';
  end if;
  mode := webhook._check_mode(mode);
  change_note := webhook._check_text('change_note', change_note, 4000);
  uri := webhook._check_uri(uri);
  if octet_length(schema::text) > 262144 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'schema is too large',
      detail = format('It has %s bytes; the limit is 262144.', octet_length(schema::text));
  end if;
  perform webhook._lock_event_type(type);
  select s.*
    into former
    from webhook._event_schema s
   where s.event_type = type
     and s.version = add_schema.version;
  perform webhook._check_schema(schema::text, former.schema::text, example::text);
  if former.deprecated_at is not null and current then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('version "%s" of event type "%s" is deprecated', version, type),
      detail = 'It cannot be the current one.';
  end if;
  becomes_current := coalesce(
    current,
    former.current,
    not exists (select from webhook._event_schema s where s.event_type = type));
  if becomes_current then
    update webhook._event_schema s
       set current = false
     where s.event_type = type
       and s.version <> add_schema.version
       and s.current;
  end if;
  insert into webhook._event_schema as s (event_type, version, current, mode, schema, example, change_note, uri)
  values (type, version, becomes_current, mode, schema, example, change_note, uri)
  on conflict on constraint _event_schema_pkey do update
     set current = excluded.current,
         mode = coalesce(excluded.mode, s.mode),
         schema = excluded.schema,
         example = excluded.example,
         change_note = coalesce(excluded.change_note, s.change_note),
         uri = coalesce(excluded.uri, s.uri),
         changed_at = clock_timestamp();
  -- Which schema it was is told by its hash: an example may hold what is nobody's business in a log.
  perform webhook._log(
    'add_schema', 'event_schema', type || ' ' || version,
    before => case when former.version is not null then jsonb_build_object(
      'schema_sha256', encode(sha256(convert_to(former.schema::text, 'UTF8')), 'hex'), 'mode', former.mode, 'current', former.current) end,
    after => jsonb_build_object(
      'schema_sha256', encode(sha256(convert_to(schema::text, 'UTF8')), 'hex'), 'mode', mode, 'current', becomes_current,
      'change_note', change_note, 'uri', uri));
end
$$;
comment on function webhook.add_schema(text, text, jsonb, jsonb, text, text, text, boolean) is
  'Adds the schema of a version of an event type, with an example that it accepts; or changes it, where that cannot break a receiver.';

create function webhook.update_schema(
  type text,                        -- event type
  version text,                     -- version of the payload's schema
  mode text default null,           -- off, warn or enforce; empty = webhook.validation; null = keep
  current boolean default null,     -- true = the version of events that name none; false = it is no longer; null = keep
  deprecated boolean default null,  -- whether receivers should move on; null = keep
  change_note text default null,    -- null = keep; empty = remove
  uri text default null             -- null = keep; empty = remove
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._event_schema;
  latter webhook._event_schema;
  facts constant text[] := '{schema,example,added_at,added_by,changed_at,event_type,version}';
begin
  perform webhook._check_writable('change a schema');
  perform webhook._check_argument('type', type is null);
  perform webhook._check_argument('version', version is null);
  perform webhook._lock_event_type(type);
  select s.*
    into former
    from webhook._event_schema s
   where s.event_type = type
     and s.version = update_schema.version;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event type "%s" has no schema version "%s"', type, left(version, 64)),
      hint = 'Use webhook.add_schema.';
  end if;
  latter := former;
  if mode is not null then
    latter.mode := webhook._check_mode(mode);
  end if;
  if change_note is not null then
    latter.change_note := webhook._check_text('change_note', change_note, 4000);
  end if;
  if uri is not null then
    latter.uri := webhook._check_uri(uri);
  end if;
  latter.current := coalesce(current, former.current);
  if deprecated is not null then
    latter.deprecated_at := case when deprecated then coalesce(former.deprecated_at, clock_timestamp()) end;
  end if;
  if latter.current and latter.deprecated_at is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('version "%s" of event type "%s" cannot be current and deprecated', version, type),
      hint = 'Make another version the current one first.';
  end if;
  if latter.current and not former.current then
    update webhook._event_schema s
       set current = false
     where s.event_type = type
       and s.current;
  end if;
  update webhook._event_schema s
     set current = latter.current,
         mode = latter.mode,
         change_note = latter.change_note,
         uri = latter.uri,
         deprecated_at = latter.deprecated_at,
         changed_at = clock_timestamp()
   where s.event_type = type
     and s.version = update_schema.version;
  perform webhook._log(
    'update_schema', 'event_schema', type || ' ' || version,
    before => webhook._changed(to_jsonb(former) - facts, to_jsonb(latter) - facts),
    after => webhook._changed(to_jsonb(latter) - facts, to_jsonb(former) - facts));
end
$$;
comment on function webhook.update_schema(text, text, text, boolean, boolean, text, text) is
  'Changes how a version is validated, whether it is the current one, whether it is deprecated, and what is said about it.';

create function webhook._check_source(
  role name,           -- role whose members alone may name the source
  event_types text[],  -- event types and wildcards
  partners text[]      -- partners
) returns void
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if role is not null and not exists (select from pg_roles as r where r.rolname = role) then
    raise exception using
      errcode = 'undefined_object',
      message = format('role "%s" does not exist', role);
  end if;
  if event_types is not null then
    perform webhook._check_event_types(event_types);
  end if;
  if partners is not null then
    perform webhook._check_partner(p)
       from unnest(partners) as p;
  end if;
end
$$;
comment on function webhook._check_source(name, text[], text[]) is 'Refuses what a source cannot be limited to.';

create function webhook.create_source(
  name text,                           -- name, as events carry it in source
  owner text default null,             -- who answers for it
  contact text default null,           -- how to reach the owner
  description text default null,       -- what it is, and how it is switched off on its own side
  role name default null,              -- role whose members alone may name it; null = whoever may emit
  event_types text[] default '{*}',    -- event types and wildcards that it may emit
  partners text[] default null         -- partners that it may emit for; null = all
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_writable('create a source');
  perform webhook._check_argument('name', name is null);
  perform webhook._check_argument('event_types', event_types is null);
  if name = '' or octet_length(name) > 512 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'argument "name" is too long or empty',
      detail = format('It has %s bytes; 1 to 512 are accepted.', octet_length(name));
  end if;
  perform webhook._check_source(role, event_types, partners);
  insert into webhook._source (name, owner, contact, description, role_name, event_types, partners)
  values (create_source.name, webhook._check_text('owner', create_source.owner, 200), webhook._check_text('contact', create_source.contact, 200),
          webhook._check_text('description', create_source.description, 4000), create_source.role, create_source.event_types, create_source.partners)
  on conflict on constraint _source_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('source "%s" already exists', name),
      hint = 'Use webhook.update_source.';
  end if;
  perform webhook._log('create_source', 'source', name, after => (
    select jsonb_strip_nulls(to_jsonb(s) - '{name,created_at,changed_at}'::text[])
      from webhook._source s
     where s.name = create_source.name));
end
$$;
comment on function webhook.create_source(text, text, text, text, name, text[], text[]) is
  'Registers a producer of events. From then on events may name it only within its limits.';

create function webhook.update_source(
  name text,                         -- the source
  enabled boolean default null,      -- false = events that name it are refused; null = keep, like all that follow
  owner text default null,           -- '' removes it, like contact and description
  contact text default null,
  description text default null,
  role name default null,            -- '' removes it
  event_types text[] default null,
  partners text[] default null,      -- '{}' removes the limit
  reason text default null           -- why
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._source;
  latter webhook._source;
  facts constant text[] := '{name,created_at,changed_at}';
begin
  perform webhook._check_writable('change a source');
  perform webhook._check_argument('name', name is null);
  if reason is not null then
    reason := webhook._check_reason(reason);
  end if;
  perform webhook._check_source(nullif(role, ''), event_types, nullif(partners, '{}'));
  select s.*
    into former
    from webhook._source s
   where s.name = update_source.name
     for update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('source "%s" does not exist', left(name, 128)),
      hint = 'Use webhook.create_source.';
  end if;
  latter := former;
  latter.enabled := coalesce(enabled, former.enabled);
  latter.owner := webhook._with_text('owner', owner, former.owner, 200);
  latter.contact := webhook._with_text('contact', contact, former.contact, 200);
  latter.description := webhook._with_text('description', description, former.description, 4000);
  latter.role_name := case when role is null then former.role_name else nullif(role, '') end;
  latter.event_types := coalesce(event_types, former.event_types);
  latter.partners := case when partners is null then former.partners else nullif(partners, '{}') end;
  update webhook._source s
     set enabled = latter.enabled,
         owner = latter.owner,
         contact = latter.contact,
         description = latter.description,
         role_name = latter.role_name,
         event_types = latter.event_types,
         partners = latter.partners,
         changed_at = clock_timestamp()
   where s.name = latter.name;
  perform webhook._log(
    'update_source', 'source', name,
    before => webhook._changed(to_jsonb(former) - facts, to_jsonb(latter) - facts),
    after => webhook._changed(to_jsonb(latter) - facts, to_jsonb(former) - facts),
    reason => reason);
end
$$;
comment on function webhook.update_source(text, boolean, text, text, text, name, text[], text[], text) is
  'Changes a source, or switches it off and on: events that name a source that is off are refused.';
