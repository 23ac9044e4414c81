-- What the verbs and the leader share about filters: checks at registration, and the evaluation itself. _try_filters is
-- the one place where a payload meets a filter: the leader, test_filter, preview_filter, explain and dry_run all ask it.
-- Which jsonpath may be a filter, and what it costs, is decided in Rust (rules/filter.rs).

create function webhook._check_filter_form(
  filter text -- a jsonpath as PostgreSQL spells it
) returns void
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'check_filter_form_wrapper';
comment on function webhook._check_filter_form(text) is 'Refuses a jsonpath that is no predicate, or whose evaluation could take long.';

create function webhook._filter_fits(
  filter text, -- a filter as it is stored
  data text    -- a payload
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'filter_fits_wrapper';
comment on function webhook._filter_fits(text, text) is 'Whether deciding about a payload of this size stays within bounds.';

create function webhook._type_matches(
  event_types text[], -- event types and wildcards of an endpoint
  type text           -- event type
) returns boolean
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'type_matches_wrapper';
comment on function webhook._type_matches(text[], text) is 'Whether one of the patterns matches the event type.';

create function webhook._check_filter(
  filter text -- jsonpath as the user wrote it; null and '' = none
) returns text -- the same as PostgreSQL spells it; null = none
language plpgsql immutable parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  spelt text;
  why text;
begin
  filter := nullif(btrim(filter, E' \t\r\n'), '');
  if octet_length(filter) > 1000 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'filter is too long',
      detail = format('It has %s bytes; the limit is 1000.', octet_length(filter));
  end if;
  begin
    spelt := filter::jsonpath::text;
  exception when syntax_error or data_exception or feature_not_supported or program_limit_exceeded then
    get stacked diagnostics why = message_text;
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'filter is not a jsonpath',
      detail = format('PostgreSQL says: %s.', left(why, 300)),
      hint = 'Write for example $.amount > 100 && $.currency == "EUR".';
  end;
  perform webhook._check_filter_form(spelt);
  return spelt;
end
$$;
comment on function webhook._check_filter(text) is 'Refuses a filter that is not a bounded jsonpath predicate.';

create function webhook._check_subject_types(
  subject_types text[] -- kinds of subjects; null and {} = all
) returns text[] -- the same without duplicates, in order of first mention; null = all
language plpgsql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  types text[];
begin
  perform webhook._check_argument('subject_types', array_position(subject_types, null) is not null);
  select array_agg(t.type order by t.first_mention)
    into types
    from (select u.type, min(u.place) as first_mention
            from unnest(subject_types) with ordinality as u (type, place)
           group by u.type) as t;
  if cardinality(types) > 100 then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'too many subject types',
      detail = format('There are %s; the limit is 100 for each endpoint.', cardinality(types));
  end if;
  if exists (select from unnest(types) as u (type) where octet_length(u.type) not between 1 and 512) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'subject type is too long or empty',
      detail = 'A subject type has 1 to 512 bytes.',
      hint = 'Names are exact: there are no wildcards.';
  end if;
  return types;
end
$$;
comment on function webhook._check_subject_types(text[]) is 'Refuses subject types that no event can have; removes duplicates.';

create function webhook._try_filters(
  body text,     -- payload of an event
  filters text[] -- filters as they are stored
) returns table (
  place integer,   -- which of the filters, from 1
  matched boolean, -- null = it could not be decided
  why text         -- why it could not; holds nothing of the payload
)
language plpgsql immutable parallel unsafe rows 1
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  data jsonb;
begin
  begin
    data := body::jsonb;
  -- A text of type json may hold what jsonb cannot (\u0000, half a surrogate pair, a number beyond numeric). Nothing
  -- else is caught, a cancelled statement least of all. The errors' own texts repeat the payload, and are not kept.
  exception when data_exception or program_limit_exceeded then
    why := format('the payload cannot be read as jsonb (%s)', sqlstate);
  end;
  for n in 1 .. cardinality(filters) loop
    place := n;
    matched := null;
    if data is not null then
      why := null;
      if not webhook._filter_fits(filters[n], body) then
        why := 'the payload has too many values for the filter';
      else
        begin
          matched := jsonb_path_match(data, filters[n]::jsonpath);
          if matched is null then
            why := 'the filter yields unknown: it compares values of different kinds, or looks strictly for what is not there';
          end if;
        exception when syntax_error or data_exception or program_limit_exceeded then
          why := format('the filter failed (%s)', sqlstate);
        end;
      end if;
    end if;
    return next;
  end loop;
end
$$;
comment on function webhook._try_filters(text, text[]) is
  'What filters say about a payload. Never raises for a payload; which way it is decided depends on the payload and the filter alone.';

create function webhook._change_filter(
  endpoint webhook._endpoint, -- an endpoint, locked
  subject_types text[],       -- new subject types, {} = all; null = unchanged
  filter text                 -- new filter, '' = none; null = unchanged
) returns webhook._endpoint -- the same, changed
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  types constant text[] := case when subject_types is null then endpoint.subject_types else webhook._check_subject_types(subject_types) end;
  spelt constant text := case when filter is null then endpoint.filter else webhook._check_filter(filter) end;
begin
  if types is distinct from endpoint.subject_types or spelt is distinct from endpoint.filter then
    endpoint.subject_types := types;
    endpoint.filter := spelt;
    endpoint.filter_version := endpoint.filter_version + 1;
    perform webhook._keep_filter(endpoint);
  end if;
  return endpoint;
end
$$;
comment on function webhook._change_filter(webhook._endpoint, text[], text) is 'Gives an endpoint another filter, as a new version.';

create function webhook._keep_filter(
  endpoint webhook._endpoint -- an endpoint with a new filter
) returns void
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  insert into webhook._filter (endpoint_id, version, subject_types, filter)
  select endpoint.endpoint_id, endpoint.filter_version, endpoint.subject_types, endpoint.filter
   where endpoint.filter_version > 0
$$;
comment on function webhook._keep_filter(webhook._endpoint) is 'Writes down a version of an endpoint''s filter.';
