-- The catalogue of event types: what each is about, and its priority. Whether emit takes types that are not registered
-- is a setting, webhook.unknown_types. Schemas: 46_catalogue.sql.

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

create function webhook._check_text(
  name text,          -- name of the argument
  value text,         -- its value
  max_length integer  -- characters
) returns text -- the same without surrounding blanks; null when there is nothing else
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  value := nullif(btrim(value, E' \t\r\n'), '');
  if length(value) > max_length then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = format('argument "%s" is too long', name),
      detail = format('It has %s characters; the limit is %s.', length(value), max_length);
  end if;
  return value;
end
$$;
comment on function webhook._check_text(text, text, integer) is 'Refuses overlong free texts.';

create function webhook._with_text(
  name text,          -- name of the argument of an update
  given text,         -- its value: null keeps what there is, '' removes it
  former text,        -- what there is
  max_length integer  -- characters
) returns text -- what there will be
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  if given is null then
    return former;
  end if;
  return webhook._check_text(name, given, max_length);
end
$$;
comment on function webhook._with_text(text, text, text, integer) is 'A free text after an update, checked.';

create function webhook._event_type_facts(
  event_type webhook._event_type -- an event type
) returns jsonb -- what of it can be changed
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_jsonb(event_type) - '{name,created_at,changed_xid,deprecated_at}'::text[]
$$;
comment on function webhook._event_type_facts(webhook._event_type) is 'What the audit log compares of an event type.';

create function webhook._lock_event_type(
  name text -- event type
) returns webhook._event_type -- as it is
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  found_type webhook._event_type;
begin
  select t.*
    into found_type
    from webhook._event_type t
   where t.name = _lock_event_type.name
     for no key update;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('event type "%s" does not exist', left(name, 128)),
      hint = 'Use webhook.create_event_type.';
  end if;
  return found_type;
end
$$;
comment on function webhook._lock_event_type(text) is 'The event type, kept from changing until the transaction ends; one change of it and of its schemas at a time.';

create function webhook._save_event_type(
  verb text,                  -- function that was called
  former webhook._event_type, -- as it was; null = it is new
  latter webhook._event_type, -- as it is to be
  reason text default null    -- why
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  facts constant jsonb := webhook._event_type_facts(latter);
  before constant jsonb := case when former.name is not null then webhook._event_type_facts(former) end;
begin
  update webhook._event_type t
     set priority = latter.priority,
         changed_xid = pg_current_xact_id(),
         description = latter.description,
         emitted_when = latter.emitted_when,
         not_emitted_when = latter.not_emitted_when,
         receiver_action = latter.receiver_action,
         authoritative_state = latter.authoritative_state,
         owner = latter.owner,
         contact = latter.contact,
         sensitivity = latter.sensitivity,
         payload_retention = latter.payload_retention,
         sources = latter.sources,
         deprecated_at = latter.deprecated_at,
         deprecation_reason = latter.deprecation_reason,
         replaced_by = latter.replaced_by,
         sunset_at = latter.sunset_at
   where t.name = latter.name;
  perform webhook._log(
    verb, 'event_type', latter.name,
    before => webhook._changed(before, facts),
    after => webhook._changed(facts, coalesce(before, '{}')),
    reason => reason);
  perform webhook._wake();
end
$$;
comment on function webhook._save_event_type(text, webhook._event_type, webhook._event_type, text) is
  'Writes an event type, logs what is different and wakes the leader.';

create function webhook._with_event_type_arguments(
  event_type webhook._event_type, -- as it is
  priority integer,               -- as for create_event_type, like all that follow; null = keep
  description text,
  emitted_when text,
  not_emitted_when text,
  receiver_action text,
  authoritative_state text,
  owner text,
  contact text,
  sensitivity text,
  payload_retention interval,
  sources text[]
) returns webhook._event_type -- as it is to be; an empty text, interval or array removes what was there
language plpgsql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  given text;
begin
  if priority is not null then
    event_type.priority := webhook._check_priority(priority);
  end if;
  event_type.description := webhook._with_text('description', description, event_type.description, 4000);
  event_type.emitted_when := webhook._with_text('emitted_when', emitted_when, event_type.emitted_when, 4000);
  event_type.not_emitted_when := webhook._with_text('not_emitted_when', not_emitted_when, event_type.not_emitted_when, 4000);
  event_type.receiver_action := webhook._with_text('receiver_action', receiver_action, event_type.receiver_action, 4000);
  event_type.authoritative_state := webhook._with_text('authoritative_state', authoritative_state, event_type.authoritative_state, 4000);
  event_type.owner := webhook._with_text('owner', owner, event_type.owner, 200);
  event_type.contact := webhook._with_text('contact', contact, event_type.contact, 200);
  if sensitivity is not null then
    given := nullif(sensitivity, '');
    if given not in ('public', 'internal', 'confidential', 'personal') then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('sensitivity "%s" does not exist', left(given, 64)),
        hint = 'It is public, internal, confidential or personal.';
    end if;
    event_type.sensitivity := given;
  end if;
  if payload_retention is not null then
    if payload_retention < interval '0' or payload_retention > interval '3660 days' then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = 'payload retention is outside the valid range',
        detail = 'Payloads are kept for up to 3660 days; 0 removes the limit of the event type.';
    end if;
    event_type.payload_retention := nullif(payload_retention, interval '0');
  end if;
  if sources is not null then
    foreach given in array sources loop
      if given is null or not exists (select from webhook._source s where s.name = given) then
        raise exception using
          errcode = 'undefined_object',
          message = format('source "%s" does not exist', left(given, 128)),
          hint = 'Use webhook.create_source.';
      end if;
    end loop;
    event_type.sources := nullif(sources, '{}');
  end if;
  return event_type;
end
$$;
comment on function webhook._with_event_type_arguments(webhook._event_type, integer, text, text, text, text, text, text, text, text, interval, text[]) is
  'An event type with what is given, checked.';

create function webhook.create_event_type(
  name text,                                -- event type, object.change
  priority integer default 1,               -- class: 0 is served before 1
  description text default null,            -- what the event tells
  emitted_when text default null,           -- when it is emitted
  not_emitted_when text default null,       -- when it is not, although one might think so
  receiver_action text default null,        -- what a receiver typically does
  authoritative_state text default null,    -- where the state is read that counts
  owner text default null,                  -- who answers for it
  contact text default null,                -- how to reach the owner
  sensitivity text default null,            -- public, internal, confidential or personal
  payload_retention interval default null,  -- how long payloads are kept; null = as long as events
  sources text[] default null               -- registered sources that may emit it; null = whoever may emit
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  made webhook._event_type;
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
  made.name := name;
  made := webhook._with_event_type_arguments(
    made, priority, description, emitted_when, not_emitted_when, receiver_action, authoritative_state, owner, contact,
    sensitivity, payload_retention, sources);
  insert into webhook._event_type (name)
  values (create_event_type.name)
  on conflict on constraint _event_type_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('event type "%s" already exists', name),
      hint = 'Use webhook.update_event_type.';
  end if;
  perform webhook._save_event_type('create_event_type', null, made);
end
$$;
comment on function webhook.create_event_type(text, integer, text, text, text, text, text, text, text, text, interval, text[]) is
  'Registers an event type: what it is about, and its priority class. Deliveries of class 0 are served before those of class 1.';

create function webhook.update_event_type(
  name text,                                -- event type
  priority integer default null,            -- as for create_event_type, like all that follow; null = keep
  description text default null,
  emitted_when text default null,
  not_emitted_when text default null,
  receiver_action text default null,
  authoritative_state text default null,
  owner text default null,
  contact text default null,
  sensitivity text default null,
  payload_retention interval default null,
  sources text[] default null
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._event_type;
begin
  perform webhook._check_writable('change an event type');
  perform webhook._check_argument('name', name is null);
  former := webhook._lock_event_type(name);
  perform webhook._save_event_type(
    'update_event_type', former,
    webhook._with_event_type_arguments(
      former, priority, description, emitted_when, not_emitted_when, receiver_action, authoritative_state, owner, contact,
      sensitivity, payload_retention, sources));
end
$$;
comment on function webhook.update_event_type(text, integer, text, text, text, text, text, text, text, text, interval, text[]) is
  'Changes what is given of an event type; an empty text, array or interval removes it. What is queued already keeps the class it was queued with.';

create function webhook.deprecate_event_type(
  name text,                            -- event type
  reason text,                          -- why; emit tells it
  replaced_by text default null,        -- event type to use in its place
  sunset_at timestamptz default null    -- from when on emit refuses it; null = it goes on with a warning
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  former webhook._event_type;
  latter webhook._event_type;
begin
  perform webhook._check_writable('deprecate an event type');
  perform webhook._check_argument('name', name is null);
  reason := webhook._check_reason(reason);
  former := webhook._lock_event_type(name);
  if replaced_by is not null then
    if replaced_by = name or not exists (select from webhook._event_type t where t.name = deprecate_event_type.replaced_by) then
      raise exception using
        errcode = 'undefined_object',
        message = format('event type "%s" cannot be used in its place', left(replaced_by, 128)),
        detail = 'It must be registered, and another one.';
    end if;
  end if;
  if not isfinite(sunset_at) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'sunset_at is out of range',
      hint = 'Leave it out when the event type is to go on.';
  end if;
  latter := former;
  latter.deprecated_at := coalesce(former.deprecated_at, clock_timestamp());
  latter.deprecation_reason := reason;
  latter.replaced_by := replaced_by;
  latter.sunset_at := sunset_at;
  perform webhook._save_event_type('deprecate_event_type', former, latter, reason);
end
$$;
comment on function webhook.deprecate_event_type(text, text, text, timestamptz) is
  'Tells producers, and readers of the catalogue, that an event type is going: emit warns, and refuses it from sunset_at on.';
