-- Schema versions, conversions and data shapes of endpoints: what is accepted, what the views and the log show, and every
-- refusal. What goes over the wire is proven elsewhere (versions.rs, torture.rs).
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never
\set VERBOSITY terse

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Nothing is committed below: no leader acts on it.
begin;
create role regress_webhook_converter;
create role regress_webhook_strong createrole;
create schema regress_conversions;
grant create, usage on schema regress_conversions to regress_webhook_converter;
grant usage on schema regress_conversions to public;
select webhook.create_event_type('order.paid');
select webhook.add_schema('order.paid', '1', '{"type": "object", "required": ["order"], "properties": {"order": {"type": "string", "description": "which"}}}', '{"order": "o-1"}');
select webhook.add_schema('order.paid', '2', '{"type": "object", "required": ["id"], "properties": {"id": {"type": "string", "description": "which"}}}', '{"id": "o-1"}', current => true);
select webhook.add_schema('order.paid', '3', '{"type": "object", "required": ["ids"], "properties": {"ids": {"type": "array", "description": "which"}}}', '{"ids": ["o-1"]}');

set local role regress_webhook_converter;
create function regress_conversions.down(jsonb) returns jsonb language sql immutable as $$select jsonb_build_object('order', $1 ->> 'id')$$;
create function regress_conversions.up(jsonb) returns jsonb language sql immutable as $$select jsonb_build_object('id', $1 ->> 'order')$$;
create function regress_conversions.list(jsonb) returns jsonb language plpgsql immutable as $$
begin
  if $1 ->> 'id' = 'secret' then
    raise exception 'what stays inside: %', $1;
  elsif $1 ->> 'id' = 'nothing' then
    return null;
  elsif $1 ->> 'id' = 'wrong' then
    return '{"ids": "secret"}';
  elsif $1 ->> 'id' = 'long' then
    return jsonb_build_object('ids', jsonb_build_array(repeat('x', 300000)));
  end if;
  return jsonb_build_object('ids', jsonb_build_array($1 ->> 'id'));
end
$$;
create function regress_conversions.exact(json) returns json language sql immutable as $$select $1$$;
create function regress_conversions.mixed(json) returns jsonb language sql immutable as $$select $1::jsonb$$;
create function regress_conversions.two(jsonb, jsonb) returns jsonb language sql immutable as $$select $1$$;
create function regress_conversions.many(jsonb) returns setof jsonb language sql immutable as $$select $1$$;
create function regress_conversions.moody(jsonb) returns jsonb language sql stable as $$select $1$$;
create function regress_conversions.definer(jsonb) returns jsonb language sql immutable security definer as $$select $1$$;
reset role;
create function regress_conversions.of_superuser(jsonb) returns jsonb language sql immutable as $$select $1$$;
create function regress_conversions.of_strong(jsonb) returns jsonb language sql immutable as $$select $1$$;
alter function regress_conversions.of_strong(jsonb) owner to regress_webhook_strong;
create function pg_temp.brief(jsonb) returns jsonb language sql immutable as $$select $1$$;

-- Down, and further by a chain.
select webhook.create_conversion('order.paid', '2', '1', 'regress_conversions.down(jsonb)', 'old receivers');
select webhook.create_conversion('order.paid', '2', '3', 'regress_conversions.list(jsonb)', 'new receivers');
select webhook.create_conversion('order.paid', '1', '2', 'regress_conversions.up(jsonb)', 'old producers');
select type, from_version, to_version, function, owner, fault, reason, created_by = session_user from webhook.conversions order by from_version, to_version;

select webhook.emit('order.paid', 'regress.conversion', '{"id": "o-2"}') as event \gset
select webhook.emit('order.paid', 'regress.conversion', '{"order": "o-3"}', schema_version => '1') as older \gset
select version, data_bytes, failure, partner_id from webhook.event_versions where event_id = :'event' order by version;
select version, data_bytes, failure from webhook.event_versions where event_id = :'older' order by version;
select version, body from webhook._event_version where event_id in (:'event', :'older') order by event_id, version;
-- What is repeated under its key is not converted again.
select webhook.emit('order.paid', 'regress.conversion', '{"id": "o-4"}', idempotency_key => 'once') = webhook.emit('order.paid', 'regress.conversion', '{"id": "o-4"}', idempotency_key => 'once');
-- A version that nothing leads from, and a type that has none.
select count(*) from webhook.event_versions where event_id = webhook.emit('order.paid', 'regress.conversion', '{"ids": []}', schema_version => '3');
select count(*) from webhook.event_versions where event_id = webhook.emit('order.other', 'regress.conversion', '{}');

-- A failure is stored without what it was about; the event is recorded, and its other versions are.
\set VERBOSITY default
select webhook.emit('order.paid', 'regress.conversion', '{"id": "secret"}') as secret \gset
select webhook.emit('order.paid', 'regress.conversion', '{"id": "nothing"}') as nothing \gset
select webhook.emit('order.paid', 'regress.conversion', '{"id": "wrong"}') as wrong \gset
select webhook.emit('order.paid', 'regress.conversion', '{"id": "long"}') as long \gset
select webhook.emit_json('order.paid', 'regress.conversion', '{"id": "twice", "id": "twice"}') as twice \gset
select webhook.emit_json('order.paid', 'regress.conversion', '{"id": "\ud800"}') as lone \gset
select version, data_bytes, failure from webhook.event_versions where event_id in (:'secret', :'nothing', :'wrong', :'long', :'twice', :'lone') order by event_id, version;
select webhook.emit('order.paid', 'regress.conversion', '{"order": "secret"}', schema_version => '1') as chained \gset
select version, data_bytes, failure from webhook.event_versions where event_id = :'chained' order by version;
\set VERBOSITY terse

-- What can no longer be run is not.
savepoint before;
alter function regress_conversions.list(jsonb) stable;
select fault from webhook.conversions where to_version = '3';
select webhook.emit('order.paid', 'regress.conversion', '{"id": "o-5"}') as event \gset
select version, failure from webhook.event_versions where event_id = :'event' order by version;
rollback to before;
alter function regress_conversions.list(jsonb) owner to regress_webhook_strong;
select fault from webhook.conversions where to_version = '3';
rollback to before;
alter role regress_webhook_converter bypassrls;
select distinct fault from webhook.conversions;
rollback to before;
grant pg_read_server_files to regress_webhook_converter;
select webhook.emit('order.paid', 'regress.conversion', '{"id": "o-6"}') as event \gset
select version, failure is not null from webhook.event_versions where event_id = :'event' order by version;
rollback to before;
drop function regress_conversions.list(jsonb);
select webhook.emit('order.paid', 'regress.conversion', '{"id": "o-7"}') as event \gset
select version, failure from webhook.event_versions where event_id = :'event' order by version;
set local role regress_webhook_converter;
create function regress_conversions.list(jsonb) returns jsonb language sql immutable as $$select '{"ids": ["made anew"]}'::jsonb$$;
reset role;
select webhook.emit('order.paid', 'regress.conversion', '{"id": "o-8"}') as event \gset
select version, failure, data_bytes from webhook.event_versions where event_id = :'event' order by version;
rollback to before;

-- Changing one is taking it back and registering it.
select webhook.delete_conversion('order.paid', '2', '3', 'over');
select webhook.emit('order.paid', 'regress.conversion', '{"id": "o-9"}') as event \gset
select version from webhook.event_versions where event_id = :'event' order by version;
select concat_ws(' ', verb, object_id, reason), before, after from webhook.audit_log where object_kind = 'conversion' order by at;

-- Refusals.
select pg_temp.failure($$select webhook.create_conversion(null, '2', '1', 'regress_conversions.down(jsonb)', 'x')$$);
select pg_temp.failure($$select webhook.create_conversion('order.paid', null, '1', 'regress_conversions.down(jsonb)', 'x')$$);
select pg_temp.failure($$select webhook.create_conversion('order.paid', '2', null, 'regress_conversions.down(jsonb)', 'x')$$);
select pg_temp.failure($$select webhook.create_conversion('order.paid', '2', '1', null, 'x')$$);
select pg_temp.failure($$select webhook.create_conversion('order.paid', '2', '1', 'regress_conversions.down(jsonb)', null)$$);
select pg_temp.failure($$select webhook.create_conversion('order.paid', '2', '1', 'regress_conversions.down(jsonb)', ' ')$$);
select pg_temp.failure($$select webhook.create_conversion('no.such', '2', '1', 'regress_conversions.down(jsonb)', 'x')$$);
select pg_temp.failure($$select webhook.create_conversion('order.paid', '9', '1', 'regress_conversions.down(jsonb)', 'x')$$);
select pg_temp.failure($$select webhook.create_conversion('order.paid', '2', '9', 'regress_conversions.down(jsonb)', 'x')$$);
select pg_temp.failure($$select webhook.create_conversion('order.paid', '2', '2', 'regress_conversions.down(jsonb)', 'x')$$);
select pg_temp.failure($$select webhook.create_conversion('order.paid', '2', '1', 'regress_conversions.down(jsonb)', 'x')$$);
select pg_temp.failure($$select webhook.create_conversion('order.paid', '2', '3', 'regress_conversions.none(jsonb)', 'x')$$);
select pg_temp.failure(format('select webhook.create_conversion(''order.paid'', ''2'', ''3'', %L, ''x'')', f))
  from unnest('{"regress_conversions.mixed(json)","regress_conversions.two(jsonb,jsonb)","regress_conversions.many(jsonb)","regress_conversions.moody(jsonb)",
    "regress_conversions.definer(jsonb)","regress_conversions.of_superuser(jsonb)","regress_conversions.of_strong(jsonb)"}'::text[]) as f;
-- Of a name that no other session knows.
select regexp_replace(pg_temp.failure($$select webhook.create_conversion('order.paid', '2', '3', 'pg_temp.brief(jsonb)', 'x')$$), 'pg_temp_\d+', 'pg_temp');
-- One that fails on the example, and one that makes something else.
select pg_temp.failure($$select webhook.create_conversion('order.paid', '3', '1', 'regress_conversions.down(jsonb)', 'x')$$);
select pg_temp.failure($$select webhook.create_conversion('order.paid', '2', '3', 'regress_conversions.exact(json)', 'x')$$);
select pg_temp.failure($$select webhook.delete_conversion(null, '2', '1', 'x')$$);
select pg_temp.failure($$select webhook.delete_conversion('order.paid', '2', '1', null)$$);
select pg_temp.failure($$select webhook.delete_conversion('order.paid', '2', '3', 'x')$$);

-- Data shapes and versions of endpoints: another revision each time they change.
select endpoint_id as hook from webhook.create_endpoint('regress.conversion', 'https://127.0.0.1/in', verify => 'none') \gset
select data_shape, fields, schema_versions, revision from webhook.endpoints where endpoint_id = :hook;
select webhook.update_endpoint(:hook, data_shape => 'fields', fields => '{id,customer.id}', schema_versions => '{"order.paid": "1"}');
select data_shape, fields, schema_versions, revision from webhook.endpoints where endpoint_id = :hook;
select webhook.update_endpoint(:hook, data_shape => 'fields', fields => '{id,customer.id}');
select webhook.update_endpoint(:hook, fields => '{id}');
select webhook.update_endpoint(:hook, format => 'cloudevents-binary');
select webhook.update_endpoint(:hook, data_shape => 'thin');
select webhook.update_endpoint(:hook, data_shape => 'full', schema_versions => '{}');
select revision, format, data_shape, fields, schema_versions from webhook._endpoint_revision where endpoint_id = :hook order by revision;
select before, after from webhook.audit_log where verb = 'update_endpoint' and object_id = :'hook' order by at;
select endpoint_id as other from webhook.create_endpoint('regress.conversion', 'https://127.0.0.1/in', verify => 'none', data_shape => 'fields', fields => '{a}', schema_versions => '{"order.paid": "3"}') \gset
select data_shape, fields, schema_versions, revision from webhook.endpoints where endpoint_id = :other;

create function pg_temp.refused(more text) returns text
language sql as $$
  select pg_temp.failure(format('select webhook.create_endpoint(''regress.conversion'', ''https://127.0.0.1/in'', verify => ''none'', %s)', more))
$$;
select pg_temp.refused($$data_shape => null$$);
select pg_temp.refused($$data_shape => 'half'$$);
select pg_temp.refused($$data_shape => 'fields'$$);
select pg_temp.refused($$fields => '{a}'$$);
select pg_temp.refused($$data_shape => 'thin', fields => '{a}'$$);
select pg_temp.refused($$data_shape => 'fields', fields => '{}'$$);
select pg_temp.refused($$data_shape => 'fields', fields => '{a,null}'$$);
select pg_temp.refused($$data_shape => 'fields', fields => '{a..b}'$$);
select pg_temp.refused($$data_shape => 'fields', fields => array_fill('a'::text, '{101}')$$);
select pg_temp.refused($$schema_versions => null$$);
select pg_temp.refused($$schema_versions => '[]'$$);
select pg_temp.refused($$schema_versions => '{"order.paid": 1}'$$);
select pg_temp.refused($$schema_versions => '{"order.paid": null}'$$);
select pg_temp.refused($$schema_versions => '{"order.paid": "9"}'$$);
select pg_temp.refused($$schema_versions => '{"order.*": "1"}'$$);
select pg_temp.refused($$schema_versions => (select jsonb_object_agg('a.b' || n, '1') from generate_series(1, 101) as n)$$);
select pg_temp.failure(format('select webhook.update_endpoint(%s, fields => ''{a}'')', :hook));
select pg_temp.failure(format('select webhook.update_endpoint(%s, data_shape => ''fields'')', :hook));

-- Only whom the function belongs to, or one of its members, makes a conversion of it.
create role regress_webhook_registrar;
select webhook.grant_access('regress_webhook_registrar', 'operate');
set local session authorization regress_webhook_registrar;
select pg_temp.failure($$select webhook.create_conversion('order.paid', '2', '3', 'regress_conversions.list(jsonb)', 'x')$$);
reset session authorization;
grant regress_webhook_converter to regress_webhook_registrar;
set local session authorization regress_webhook_registrar;
select webhook.create_conversion('order.paid', '2', '3', 'regress_conversions.list(jsonb)', 'x');
reset session authorization;
rollback;
