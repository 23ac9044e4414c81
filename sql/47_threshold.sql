-- Thresholds: an event when a value crosses, once, and not for each record beyond.

create function webhook.crossed(
  old numeric,                   -- value before; null = there was none, and nothing was crossed
  new numeric,                   -- value now
  threshold numeric,             -- value to cross
  direction text default 'up'    -- up = reached or exceeded, coming from below; down = the reverse
) returns boolean
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_argument('new', new is null);
  perform webhook._check_argument('threshold', threshold is null);
  perform webhook._check_argument('direction', direction is null);
  if 'NaN' in (old, new, threshold) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'NaN crosses nothing',
      hint = 'Give numbers.';
  end if;
  case direction
    when 'up' then
      return coalesce(old < threshold and new >= threshold, false);
    when 'down' then
      return coalesce(old > threshold and new <= threshold, false);
    else
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('direction "%s" does not exist', left(direction, 64)),
        hint = 'It is up or down.';
  end case;
end
$$;
comment on function webhook.crossed(numeric, numeric, numeric, text) is
  'Whether a change of a value crosses a threshold in a direction. A value that stays beyond, or comes to the threshold from beyond, does not.';

create function webhook.create_threshold(
  metric text,                               -- what is observed
  name text,                                 -- name of the threshold within the metric
  threshold numeric,                         -- the value, in the unit of the metric
  event_type text,                           -- type of the event that a crossing emits
  direction text default 'up',               -- up or down
  rearm text default 'reversal',             -- reversal, margin or never
  rearm_at numeric default null,             -- of margin: value that arms it again
  adjustments_cross boolean default true,    -- whether an adjustment can cross
  first_crosses boolean default false        -- whether the first value of a subject crosses when it is beyond already
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  given record;
begin
  perform webhook._check_writable('create a threshold');
  perform webhook._check_argument('threshold', threshold is null);
  perform webhook._check_argument('adjustments_cross', adjustments_cross is null);
  perform webhook._check_argument('first_crosses', first_crosses is null);
  for given in
    select * from (values ('metric', metric), ('name', name), ('event_type', event_type), ('direction', direction), ('rearm', rearm)) as v (name, value)
  loop
    perform webhook._check_argument(given.name, given.value is null);
  end loop;
  for given in
    select * from (values ('metric', metric), ('name', name)) as v (name, value)
  loop
    if not webhook._valid_type(given.value) then
      raise exception using
        errcode = 'invalid_parameter_value',
        message = format('%s "%s" is not valid', given.name, left(given.value, 128)),
        detail = 'It has 1 to 128 characters of A-Z, a-z, 0-9, "_" and "-", in parts separated by dots.';
    end if;
  end loop;
  perform webhook._check_type(event_type);
  if event_type like 'webhook.%' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'event types that begin with "webhook." are reserved';
  end if;
  -- Refuses NaN and an unknown direction.
  perform webhook.crossed(0, 0, threshold, direction);
  if rearm not in ('reversal', 'margin', 'never') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('rule "%s" for arming again does not exist', left(rearm, 64)),
      hint = 'It is reversal, margin or never.';
  end if;
  if (rearm = 'margin') <> (rearm_at is not null) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'rearm_at goes with the rule "margin", and the rule with it';
  end if;
  if rearm_at is not null
     and (rearm_at = 'NaN' or case direction when 'up' then rearm_at >= threshold else rearm_at <= threshold end)
  then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'rearm_at is on the wrong side of the threshold',
      detail = 'Below it for the direction up, above it for down.';
  end if;
  insert into webhook._threshold
    (metric, name, threshold, direction, event_type, rearm, rearm_at, adjustments_cross, first_crosses)
  values
    (create_threshold.metric, create_threshold.name, create_threshold.threshold, create_threshold.direction, create_threshold.event_type,
     create_threshold.rearm, create_threshold.rearm_at, create_threshold.adjustments_cross, create_threshold.first_crosses)
  on conflict on constraint _threshold_pkey do nothing;
  if not found then
    raise exception using
      errcode = 'duplicate_object',
      message = format('threshold "%s" of metric "%s" already exists', name, metric),
      hint = 'Delete it first.';
  end if;
  perform webhook._log('create_threshold', 'threshold', metric || ' ' || name, after => jsonb_strip_nulls(jsonb_build_object(
    'threshold', threshold, 'direction', direction, 'event_type', event_type, 'rearm', rearm, 'rearm_at', rearm_at,
    'adjustments_cross', adjustments_cross, 'first_crosses', first_crosses)));
end
$$;
comment on function webhook.create_threshold(text, text, numeric, text, text, text, numeric, boolean, boolean) is
  'Makes an event of a metric''s crossing a value, in one direction. observe applies it from the next value on.';

create function webhook.delete_threshold(
  metric text, -- the metric
  name text    -- name of the threshold within it
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  perform webhook._check_writable('delete a threshold');
  perform webhook._check_argument('metric', metric is null);
  perform webhook._check_argument('name', name is null);
  delete from webhook._threshold t
   where t.metric = delete_threshold.metric
     and t.name = delete_threshold.name;
  if not found then
    raise exception using
      errcode = 'undefined_object',
      message = format('threshold "%s" of metric "%s" does not exist', left(name, 128), left(metric, 128));
  end if;
  perform webhook._log('delete_threshold', 'threshold', metric || ' ' || name);
end
$$;
comment on function webhook.delete_threshold(text, text) is
  'Deletes a threshold. The last values stay; one that is made anew under the same name goes on where this one was.';

create function webhook._observe(
  partner_id text,      -- tenant
  subject_type text,    -- kind of the subject
  subject_id text,      -- identity of the subject
  metric text,          -- what is observed
  value numeric,        -- the value
  adjustment boolean,   -- whether it corrects what was observed before
  data jsonb,           -- members for the payload
  out observation bigint, -- number of the value
  out event_type text,    -- event to emit; null in the first row, which gives the number
  out payload text        -- its payload
) returns setof record
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
#variable_conflict use_column
declare
  last webhook._observation;
  rule webhook._threshold;
  beyond boolean;
  told boolean;
begin
  if jsonb_typeof(_observe.data) <> 'object' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'data is not an object',
      detail = 'The value, the threshold and the rest of the facts are added to its members.';
  end if;
  if _observe.value in ('NaN', 'Infinity', '-Infinity') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'value is not a finite number';
  end if;
  insert into webhook._observation as o (partner_id, metric, subject_type, subject_id, value, observation)
  values (_observe.partner_id, _observe.metric, _observe.subject_type, _observe.subject_id, _observe.value, 0)
  on conflict on constraint _observation_pkey do nothing;
  -- One value after the other: the next one waits here until this transaction has ended. Under REPEATABLE READ it
  -- fails with 40001 where it would go by a value that is not the last.
  select o.*
    into last
    from webhook._observation o
   where o.partner_id = _observe.partner_id
     and o.metric = _observe.metric
     and o.subject_type = _observe.subject_type
     and o.subject_id = _observe.subject_id
     for update;
  if last.observation = 0 then
    last.value := null;
  end if;
  observation := last.observation + 1;
  event_type := null;
  payload := null;
  return next;
  for rule in
    select t.*
      from webhook._threshold t
     where t.metric = _observe.metric
     order by t.threshold * case t.direction when 'up' then 1 else -1 end, t.name
  loop
    beyond := case rule.direction when 'up' then _observe.value >= rule.threshold else _observe.value <= rule.threshold end;
    told := rule.name = any (last.disarmed);
    if told
       and (case rule.rearm
              when 'reversal' then not beyond
              when 'margin' then case rule.direction when 'up' then _observe.value <= rule.rearm_at else _observe.value >= rule.rearm_at end
              else false
            end)
    then
      last.disarmed := array_remove(last.disarmed, rule.name);
    elsif not told
       and (rule.adjustments_cross or not _observe.adjustment)
       and (case
              when last.value is null then rule.first_crosses and beyond
              else webhook.crossed(last.value, _observe.value, rule.threshold, rule.direction)
            end)
    then
      last.disarmed := array_append(last.disarmed, rule.name);
      event_type := rule.event_type;
      -- Texts: a number would be read as a float by many receivers.
      payload := (_observe.data || jsonb_strip_nulls(jsonb_build_object(
        'metric', rule.metric,
        'threshold_name', rule.name,
        'threshold', rule.threshold::text,
        'direction', rule.direction,
        'value', _observe.value::text,
        'previous_value', last.value::text,
        'observation', observation)))::text;
      return next;
    end if;
  end loop;
  update webhook._observation o
     set value = _observe.value,
         observation = last.observation + 1,
         observed_at = clock_timestamp(),
         disarmed = last.disarmed
   where o.partner_id = _observe.partner_id
     and o.metric = _observe.metric
     and o.subject_type = _observe.subject_type
     and o.subject_id = _observe.subject_id;
end
$$;
comment on function webhook._observe(text, text, text, text, numeric, boolean, jsonb) is
  'Keeps a value and says which events it makes. Called by observe, as the owner, after the caller''s right to emit them was judged.';

-- SECURITY INVOKER, both: it is the caller's right to emit that is judged; the value is kept as the owner.
create function webhook._observe_as_caller(
  partner_id text,                        -- as for observe, like all that follow
  subject_type text,
  subject_id text,
  metric text,
  value numeric,
  adjustment boolean,
  data text,
  subject_version bigint,
  source text,
  scope text,
  occurred_at timestamptz,
  schema_version text,
  correlation_id text,
  causation text,
  traceparent text,
  test boolean,
  out observation bigint,
  out event_ids text[]
) returns setof record -- one row
language c volatile parallel unsafe rows 1
as 'MODULE_PATHNAME', 'observe_as_caller_wrapper';
comment on function webhook._observe_as_caller(text, text, text, text, numeric, boolean, text, bigint, text, text, timestamptz, text, text, text, text, boolean) is
  'What observe does, with the payload as text.';

create function webhook.observe(
  partner_id text,                        -- tenant that the subject belongs to
  subject_type text,                      -- kind of the subject
  subject_id text,                        -- identity of the subject
  metric text,                            -- what is observed; has a threshold at least
  value numeric,                          -- the value now
  adjustment boolean default false,       -- whether it corrects what was observed before
  data jsonb default '{}',                -- further members for the payloads, an object
  subject_version bigint default null,    -- as for emit, like all that follow
  source text default null,
  scope text default null,
  occurred_at timestamptz default null,
  schema_version text default null,
  correlation_id text default null,
  causation text default null,
  traceparent text default null,
  test boolean default false,
  out observation bigint,                 -- number of the value among those of the subject
  out event_ids text[]                    -- events of the thresholds that it crossed
) returns record
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select o.observation, o.event_ids
    from webhook._observe_as_caller(
           partner_id, subject_type, subject_id, metric, value, adjustment, data::text, subject_version, source, scope,
           occurred_at, schema_version, correlation_id, causation, traceparent, test) as o
$$;
comment on function webhook.observe(text, text, text, text, numeric, boolean, jsonb, bigint, text, text, timestamptz, text, text, text, text, boolean) is
  'Keeps the value of a metric of a subject, and emits an event for each threshold that it crosses since the last one, exactly once.';
