-- What the verbs about schema versions and payload shapes share. A conversion runs with the rights of the role that owns
-- its function, in the session of whoever emits: that role must have agreed, and must not be able to do much.

create function webhook._function(
  function_name text -- the function, with the types of its arguments
) returns oid -- null when it does not exist
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_regprocedure(function_name)::oid
$$;
comment on function webhook._function(text) is 'A function by its name, as it was looked up when the conversion was registered.';

create function webhook._conversion_fault(
  function_name text,  -- the function, with the types of its arguments
  function_owner name  -- whose it is to be
) returns text -- why it cannot be used, as a sentence; null = it can
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select case
           when p.oid is null then 'The function does not exist.'
           when p.prokind <> 'f' or p.proretset or p.pronargs <> 1
                or p.proargtypes[0] not in ('jsonb'::regtype, 'json'::regtype) or p.prorettype <> p.proargtypes[0]
             then 'It must take one jsonb and return jsonb, or take one json and return json.'
           when p.provolatile <> 'i' then 'It is not declared IMMUTABLE.'
           when p.prosecdef then 'It is declared SECURITY DEFINER; a conversion has the rights of its owner anyway.'
           when pg_is_other_temp_schema(p.pronamespace) or p.pronamespace = pg_my_temp_schema() then 'It is a temporary function.'
           when r.rolname is distinct from function_owner then 'It belongs to another role than when it was registered.'
           when r.rolsuper or r.rolcreaterole or r.rolbypassrls or r.rolreplication
                or pg_has_role(r.oid, (select c.relowner from pg_class as c where c.oid = 'webhook._event'::regclass), 'member')
                or pg_has_role(r.oid, 'pg_execute_server_program'::name, 'member')
                or pg_has_role(r.oid, 'pg_read_server_files'::name, 'member')
                or pg_has_role(r.oid, 'pg_write_server_files'::name, 'member')
             then 'The role that owns it may do too much: superusers, roles with CREATEROLE, BYPASSRLS or REPLICATION, members of the extension''s owner, and roles that reach the server''s files cannot own a conversion.'
         end
    from (select to_regprocedure(function_name)) as f (id)
    left join pg_proc as p on p.oid = f.id
    left join pg_roles as r on r.oid = p.proowner
$$;
comment on function webhook._conversion_fault(text, name) is 'Why a function cannot convert payloads, or cannot any more.';

create function webhook._try_conversion(
  type text,            -- event type
  to_version text,      -- schema version that is made
  function oid,         -- the function
  example text          -- payload of the other version
) returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'try_conversion_wrapper';
comment on function webhook._try_conversion(text, text, oid, text) is
  'Converts an example as emit would, and refuses a function that fails or makes what the schema does not accept.';

create function webhook._check_fields(
  fields text[] -- paths of members
) returns text[] -- the same
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'check_fields_wrapper';
comment on function webhook._check_fields(text[]) is 'Refuses paths that name no member.';

create function webhook._check_data_shape(
  data_shape text -- how much of the data is sent
) returns text -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if data_shape not in ('full', 'fields', 'thin', 'delta') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('data shape "%s" does not exist', left(data_shape, 128)),
      hint = 'The shapes are full, fields, thin and delta.';
  end if;
  return data_shape;
end
$$;
comment on function webhook._check_data_shape(text) is 'Refuses a shape of the data that does not exist.';

create function webhook._check_schema_versions(
  schema_versions jsonb -- object of event types and versions
) returns jsonb -- the same
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  pin record;
begin
  if schema_versions is null then
    return null;
  end if;
  if jsonb_typeof(schema_versions) <> 'object'
     or exists (select from jsonb_each(schema_versions) as m where jsonb_typeof(m.value) <> 'string')
  then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'schema_versions is not an object of texts',
      hint = 'Write {"order.paid": "1"}; {} is every event as it was emitted.';
  end if;
  if (select count(*) from jsonb_object_keys(schema_versions)) > 100 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'too many schema versions',
      detail = 'The limit is 100 event types for each endpoint.';
  end if;
  select m.key as event_type, m.value as version
    into pin
    from jsonb_each_text(schema_versions) as m
   where not exists (select from webhook._event_schema s where s.event_type = m.key and s.version = m.value)
   order by m.key
   limit 1;
  if found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event type "%s" has no schema version "%s"', left(pin.event_type, 128), left(pin.version, 64)),
      hint = 'Each event type is named by itself, without wildcards; see webhook.event_schemas.';
  end if;
  return schema_versions;
end
$$;
comment on function webhook._check_schema_versions(jsonb) is 'Refuses schema versions that no event can have.';

create function webhook._make_revision(
  former webhook._endpoint_revision, -- the shape until now; of a new endpoint all null
  endpoint_id bigint,                -- the endpoint
  format text,                       -- form of the body; null = as it was, like all that follow
  data_shape text,                   -- how much of the data
  fields text[],                     -- of fields: which
  schema_versions jsonb              -- versions by event type; {} = none
) returns integer -- number of the shape from now on
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  latter webhook._endpoint_revision := former;
begin
  perform webhook._check_format(format);
  perform webhook._check_data_shape(data_shape);
  perform webhook._check_fields(fields);
  perform webhook._check_schema_versions(schema_versions);
  latter.endpoint_id := endpoint_id;
  latter.format := coalesce(format, former.format);
  latter.data_shape := coalesce(data_shape, former.data_shape);
  latter.fields := case when latter.data_shape = 'fields' then coalesce(fields, former.fields) end;
  latter.schema_versions := nullif(coalesce(schema_versions, former.schema_versions), '{}');
  if latter.data_shape = 'fields' and latter.fields is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'data shape "fields" needs fields',
      hint = 'Name them with fields => ''{order_id,customer.id}''.';
  end if;
  if fields is not null and latter.data_shape <> 'fields' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('data shape "%s" has no fields', latter.data_shape),
      hint = 'Use data_shape => ''fields'' with them.';
  end if;
  if (latter.format, latter.data_shape, latter.fields, latter.schema_versions)
     is not distinct from (former.format, former.data_shape, former.fields, former.schema_versions)
  then
    return former.revision;
  end if;
  -- Another revision, even where an earlier one was the same: what was sent before keeps its own.
  latter.revision := coalesce(former.revision, 0) + 1;
  insert into webhook._endpoint_revision (endpoint_id, revision, format, data_shape, fields, schema_versions)
  values (latter.endpoint_id, latter.revision, latter.format, latter.data_shape, latter.fields, latter.schema_versions);
  return latter.revision;
end
$$;
comment on function webhook._make_revision(webhook._endpoint_revision, bigint, text, text, text[], jsonb) is
  'Writes down another shape of an endpoint''s payload, where it is another. It counts for deliveries whose first attempt is still to be made.';
