-- Registering the functions that make one schema version of a payload of another.

create function webhook.create_conversion(
  type text,                -- event type
  from_version text,        -- schema version that the function takes
  to_version text,          -- schema version that it makes
  function regprocedure,    -- jsonb to jsonb, or json to json for exact bytes; IMMUTABLE, and yours
  reason text               -- why
) returns void
language plpgsql volatile parallel unsafe
-- SECURITY DEFINER: EXECUTE is the whole right to it; the tables belong to the owner alone.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  called constant text := function::text;
  owned_by constant name := (
    select r.rolname
      from pg_proc as p
      join pg_roles as r on r.oid = p.proowner
     where p.oid = function::oid);
  fault text;
  example jsonb;
  missing text;
begin
  perform webhook._check_writable('create a conversion');
  perform webhook._check_argument('type', type is null);
  perform webhook._check_argument('from_version', from_version is null);
  perform webhook._check_argument('to_version', to_version is null);
  perform webhook._check_argument('function', function is null);
  reason := webhook._check_reason(reason);
  perform webhook._lock_event_type(type);
  select v.version
    into missing
    from (values (from_version, 1), (to_version, 2)) as v (version, place)
   where not exists (select from webhook._event_schema s where s.event_type = type and s.version = v.version)
   order by v.place
   limit 1;
  if found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event type "%s" has no schema version "%s"', type, left(missing, 64)),
      hint = 'Use webhook.add_schema.';
  end if;
  if from_version = to_version then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'a conversion needs two schema versions';
  end if;
  fault := webhook._conversion_fault(called, owned_by);
  if fault is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('function %s cannot be a conversion', called),
      detail = fault;
  end if;
  -- It is going to run with its owner's rights on whatever others emit: the owner has to want that.
  if not pg_has_role(session_user, owned_by, 'member') then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('permission denied for function %s', called),
      detail = 'A conversion runs with the rights of the role that owns it.',
      hint = 'Register it in a session of that role or of one of its members.';
  end if;
  if (select count(*) from webhook._conversion c where c.event_type = type) >= 50 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = format('event type "%s" has too many conversions', type),
      detail = 'The limit is 50 for each event type.';
  end if;
  select s.example
    into example
    from webhook._event_schema s
   where s.event_type = type
     and s.version = from_version;
  perform webhook._try_conversion(type, to_version, function::oid, example::text);
  insert into webhook._conversion (event_type, from_version, to_version, function_name, function_owner, reason)
  values (type, create_conversion.from_version, create_conversion.to_version, called, owned_by, create_conversion.reason)
  on conflict on constraint _conversion_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('conversion of event type "%s" from version "%s" to "%s" already exists', type, from_version, to_version),
      hint = 'Use webhook.delete_conversion first, in the same transaction.';
  end if;
  perform webhook._log(
    'create_conversion', 'conversion', format('%s %s %s', type, from_version, to_version),
    after => jsonb_build_object('function', called, 'owner', owned_by), reason => reason);
end
$$;
comment on function webhook.create_conversion(text, text, text, regprocedure, text) is
  'Registers a function that makes one schema version of an event type''s payload of another. From then on every emit stores the payload in each version that conversions lead to, for the endpoints that want it so.';

create function webhook.delete_conversion(
  type text,         -- event type
  from_version text, -- schema version that the function takes
  to_version text,   -- schema version that it makes
  reason text        -- why
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._conversion;
begin
  perform webhook._check_writable('delete a conversion');
  perform webhook._check_argument('type', type is null);
  perform webhook._check_argument('from_version', from_version is null);
  perform webhook._check_argument('to_version', to_version is null);
  reason := webhook._check_reason(reason);
  delete from webhook._conversion c
   where c.event_type = type
     and c.from_version = delete_conversion.from_version
     and c.to_version = delete_conversion.to_version
  returning c.*
       into former;
  if former.event_type is null then
    raise exception using
      errcode = 'undefined_object',
      message = format('conversion of event type "%s" from version "%s" to "%s" does not exist',
                       left(type, 128), left(from_version, 64), left(to_version, 64)),
      hint = 'See webhook.conversions.';
  end if;
  perform webhook._log(
    'delete_conversion', 'conversion', format('%s %s %s', type, from_version, to_version),
    before => jsonb_build_object('function', former.function_name, 'owner', former.function_owner), reason => reason);
end
$$;
comment on function webhook.delete_conversion(text, text, text, text) is
  'Takes a conversion back: later events are not stored in the versions that only it led to. What is stored stays.';

create trigger _catalogue_changed after insert or update or delete or truncate on webhook._conversion
  for each statement execute function webhook._catalogue_changed();
comment on trigger _catalogue_changed on webhook._conversion is 'The next emit goes by the new conversions.';
-- ENABLE ALWAYS: a restore under session_replication_role = replica changes them as well.
alter table webhook._conversion enable always trigger _catalogue_changed;
