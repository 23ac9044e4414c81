-- Leaving a trace: the audit row of a verb, and the request that a verb leaves for the leader.
-- _save_endpoint and _ask log, so that a verb that changes an endpoint or asks for something cannot forget to.
-- What is logged holds neither secrets nor payloads.

create function webhook._log(
  verb text,                          -- function that was called
  object_kind text,                   -- endpoint, policy, event_type, event, delivery, partner, role or all
  object_id text,                     -- which one; null = several
  partner_id text default null,       -- tenant concerned
  before jsonb default null,          -- what was changed, as it was
  after jsonb default null,           -- as it is now
  reason text default null,           -- why, in the user's words
  request_id bigint default null      -- the request to the leader
) returns void
language sql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
  insert into webhook._audit
    (audit_id, application, client, verb, object_kind, object_id, partner_id, before, after, reason, request_id)
  values
    (webhook._new_id(), nullif(current_setting('application_name'), ''), inet_client_addr(), verb, object_kind, object_id, partner_id,
     nullif(before, '{}'), nullif(after, '{}'), reason, request_id)
$$;
comment on function webhook._log(text, text, text, text, jsonb, jsonb, text, bigint) is 'Writes the audit row of a verb.';

create function webhook._changed(
  one jsonb,  -- members of an object
  other jsonb -- members of the same object at another time
) returns jsonb -- the members of "one" that differ; null members are left out
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select coalesce(jsonb_object_agg(m.key, m.value), '{}')
    from jsonb_each(jsonb_strip_nulls(one)) as m
   where m.value is distinct from other -> m.key
$$;
comment on function webhook._changed(jsonb, jsonb) is 'What is different about an object: for the audit log.';

create function webhook._without_path(
  facts jsonb -- members of an endpoint
) returns jsonb -- the same, with no more of the URL than the host
language sql immutable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  -- Many receivers take a token in the path or the query.
  select coalesce(
           facts || (select jsonb_object_agg(m.key, regexp_replace(m.value, '^([a-z]+://[^/?#]*).*$', '\1/…'))
                       from jsonb_each_text(facts) as m
                      where m.key in ('url', 'pending_url')
                        and m.value is not null),
           facts)
$$;
comment on function webhook._without_path(jsonb) is 'Cuts the path of a URL, which may hold a token, before it is logged.';

create function webhook._data_shape_facts(
  endpoint webhook._endpoint -- an endpoint
) returns jsonb -- shape of its data, as far as it is not the usual one
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select jsonb_build_object('data_shape', nullif(r.data_shape, 'full'), 'fields', r.fields, 'schema_versions', r.schema_versions)
    from webhook._endpoint_revision r
   where r.endpoint_id = endpoint.endpoint_id
     and r.revision = endpoint.revision
$$;
comment on function webhook._data_shape_facts(webhook._endpoint) is 'What the audit log compares of the shape of an endpoint''s data.';

create function webhook._endpoint_facts(
  endpoint webhook._endpoint -- an endpoint
) returns jsonb -- what of it can be changed and may be logged; the URL still as it is
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select jsonb_build_object(
           'url', endpoint.url,
           'event_types', endpoint.event_types,
           'test', endpoint.test,
           'state', endpoint.state,
           'state_reason', endpoint.state_reason,
           'verify', endpoint.verify,
           'description', endpoint.description,
           'max_in_flight', endpoint.max_in_flight,
           'policy', endpoint.policy,
           'ordered', endpoint.ordered,
           'subject_types', endpoint.subject_types,
           'filter', endpoint.filter,
           'pending_url', endpoint.pending_url,
           'verified_by', endpoint.verified_by,
           'expires_at', webhook._rfc3339(endpoint.expires_at),
           'format', (select r.format
                        from webhook._endpoint_revision r
                       where r.endpoint_id = endpoint.endpoint_id
                         and r.revision = endpoint.revision),
           'data_shape', webhook._data_shape_facts(endpoint) -> 'data_shape',
           'fields', webhook._data_shape_facts(endpoint) -> 'fields',
           'schema_versions', webhook._data_shape_facts(endpoint) -> 'schema_versions',
           'signature', endpoint.signature,
           'headers', webhook._header_names(endpoint.headers),
           'headers_changed_at', webhook._rfc3339(endpoint.headers_changed_at))
$$;
comment on function webhook._endpoint_facts(webhook._endpoint) is 'What the audit log compares of an endpoint.';

create function webhook._ask(
  verb text,                           -- what the leader is to do
  object_kind text,                    -- what it is asked for: event, delivery, partner, event_type, endpoint, origin or all
  object_id text,                      -- which one; null = several
  partner_id text default null,        -- tenant concerned
  event_id text default null,          -- the event, where there is one
  endpoint_id bigint default null,     -- the endpoint, where there is one
  scope text default null,             -- of a pause
  target text default null,            -- of a pause
  reason text default null,            -- why, for the leader to write beside the deliveries
  event_ids text[] default null,       -- pairs: the events
  endpoint_ids bigint[] default null,  -- pairs: the endpoints
  before jsonb default null,           -- for the audit log
  after jsonb default null,            -- for the audit log
  called text default null,            -- function that was called, where it is not named like the verb
  told text default null               -- the user's own reason, where the other one says more
) returns bigint -- request_id
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  request_id constant bigint := webhook._new_id();
begin
  insert into webhook._request
    (request_id, verb, event_id, endpoint_id, origin, scope, target, reason, event_ids, endpoint_ids, partner_id)
  values
    (request_id, verb, event_id, endpoint_id, webhook._origin(), scope, target, reason, event_ids, endpoint_ids, partner_id);
  -- A paused endpoint is a changed endpoint: _save_endpoint logs it.
  if scope is distinct from 'endpoint' then
    perform webhook._log(coalesce(called, verb), object_kind, object_id, partner_id, before, after, coalesce(told, reason), request_id);
  end if;
  perform webhook._wake();
  return request_id;
end
$$;
comment on function webhook._ask(text, text, text, text, text, bigint, text, text, text, text[], bigint[], jsonb, jsonb, text, text) is
  'Leaves a request for the leader, logs it and wakes the leader: the one place that makes requests.';
