-- Registering event types, for the sake of their priority. Types that are not registered are accepted by emit.

create function webhook._check_priority(
  priority integer -- class: 0 is served before 1
) returns smallint -- the same
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('priority', priority is null);
  if priority not between 0 and 1 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'priority is outside the valid range',
      detail = format('It is %s; the classes are 0 and 1, and 0 is served first.', priority);
  end if;
  return priority;
end
$$;
comment on function webhook._check_priority(integer) is 'Refuses a priority class that does not exist.';

create function webhook.create_event_type(
  name text,                  -- event type, object.change
  priority integer default 1  -- class: 0 is served before 1
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_writable('create an event type');
  perform webhook._check_argument('name', name is null);
  perform webhook._check_type(name);
  perform webhook._check_priority(priority);
  if name like 'webhook.%' then
    -- The words of emit.
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'event types that begin with "webhook." are reserved';
  end if;
  insert into webhook._event_type (name, priority)
  values (create_event_type.name, create_event_type.priority)
  on conflict on constraint _event_type_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('event type "%s" already exists', name),
      hint = 'Use webhook.update_event_type.';
  end if;
  perform webhook._log('create_event_type', 'event_type', name, after => jsonb_build_object('priority', priority));
  perform webhook._wake();
end
$$;
comment on function webhook.create_event_type(text, integer) is
  'Registers an event type with its priority class: deliveries of class 0 are served before those of class 1.';

create function webhook.update_event_type(
  name text,        -- event type
  priority integer  -- new class: 0 is served before 1
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former smallint;
begin
  perform webhook._check_writable('change an event type');
  perform webhook._check_argument('name', name is null);
  perform webhook._check_priority(priority);
  select t.priority
    into former
    from webhook._event_type t
   where t.name = update_event_type.name
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event type "%s" does not exist', left(name, 128)),
      hint = 'Use webhook.create_event_type.';
  end if;
  update webhook._event_type t
     set priority = update_event_type.priority,
         changed_xid = pg_current_xact_id()
   where t.name = update_event_type.name;
  perform webhook._log(
    'update_event_type', 'event_type', name,
    before => jsonb_build_object('priority', former), after => jsonb_build_object('priority', priority));
  perform webhook._wake();
end
$$;
comment on function webhook.update_event_type(text, integer) is
  'Changes the priority class of an event type. What is queued already keeps the class it was queued with.';
