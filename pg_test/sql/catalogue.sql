-- The catalogue: schemas, sources, thresholds; every refusal. What emit does with it: validation.rs.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

-- Runs a statement and says how it failed: SQLSTATE and message, then detail and hint.
create function pg_temp.failure(statement text) returns text
language plpgsql as $$
declare
  message text;
  detail text;
  hint text;
begin
  execute statement;
  return 'no error';
exception when others then
  get stacked diagnostics message = message_text, detail = pg_exception_detail, hint = pg_exception_hint;
  return concat_ws(E'\n', sqlstate || ' ' || message, nullif(detail, ''), nullif(hint, ''));
end
$$;

-- Nothing is committed below: no leader acts on it.
begin;
select webhook.create_source('shop', owner => 'Sales', event_types => '{order.*}');
select webhook.create_event_type('order.paid', emitted_when => 'Money has come in.', owner => ' Sales ', sensitivity => 'internal',
                                 payload_retention => '30 days', sources => '{shop}');
select webhook.create_event_type('order.settled');
select name, owner, sensitivity, payload_retention, sources, missing from webhook.event_types where name like 'order.%' order by name;
select webhook.update_event_type('order.paid', description => 'An order is paid.', owner => '', sources => '{}', payload_retention => '0');
select name, priority, description, owner, sensitivity, payload_retention, sources from webhook.event_types where name = 'order.paid';
select webhook.deprecate_event_type('order.paid', 'settled says more', 'order.settled', '2100-01-01 00:00+00');
select deprecated_at is not null, deprecation_reason, replaced_by, sunset_at at time zone 'UTC' from webhook.event_types where name = 'order.paid';

-- Schemas.
select webhook.add_schema('order.paid', '1',
  '{"type": "object", "required": ["order"], "properties": {"order": {"type": "string", "maxLength": 10, "description": "which order"}}}',
  '{"order": "o-1"}', change_note => 'first', uri => 'https://example.com/order.paid/1');
select webhook.add_schema('order.paid', '2', 'true', '{"any": [null, 1.10]}', mode => 'enforce', current => true);
select type, version, current, mode, example, change_note, uri, deprecated_at from webhook.event_schemas where type = 'order.paid' order by version;
-- Additions pass.
select webhook.add_schema('order.paid', '1',
  '{"type": "object", "required": ["order", "at"], "properties": {"order": {"type": "string", "maxLength": 8, "description": "which order"},
    "at": {"type": "string", "description": "when", "x-sensitivity": "internal"},
    "amount": {"type": "integer", "description": "how much", "x-money": {"currency": "EUR", "precision": 2, "rounding": "none"}}}}',
  '{"order": "o-1", "at": "now"}');
select version, current, change_note from webhook.event_schemas where type = 'order.paid' order by version;
select version, path, kind, required, purpose, sensitivity, money from webhook.event_fields where type = 'order.paid' order by version, path;
select webhook.update_schema('order.paid', '1', mode => 'off', current => true);
select webhook.update_schema('order.paid', '2', mode => '', deprecated => true, change_note => 'a mistake');
select version, current, mode, change_note, deprecated_at is not null from webhook.event_schemas where type = 'order.paid' order by version;
select current_version, versions from webhook.event_types where name = 'order.paid';
select verb, object_id, before - 'schema_sha256', after - '{schema_sha256,deprecated_at}'::text[] from webhook.audit_log where object_kind in ('event_schema', 'source') order by at;

select pg_temp.failure($$select webhook.add_schema('no.such', '1', 'true', '1')$$);
select pg_temp.failure($$select webhook.add_schema(null, '1', 'true', '1')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', null, 'true', '1')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '1', null, '1')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '1', 'true', null)$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', 'ä', 'true', '1')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '', 'true', '1')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '3', 'true', '1', mode => 'strict')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '3', 'true', '1', uri => 'order.html')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '3', '{"type": "strin"}', '1')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '3', '{"$schema": "http://json-schema.org/draft-04/schema#"}', '1')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '3', '{"$ref": "https://example.com/x.json"}', '1')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '3', '{"properties": {"a": {"type": "string"}}}', '{}')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '3', '{"properties": {"price": {"type": "number", "description": "x"}}}', '{}')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '3', '{"properties": {"price": {"type": "number", "description": "x", "x-money": {"currency": "EUR", "precision": 2, "rounding": "none"}}}}', '{}')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '3', '{"type": "string"}', '4711')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '3', '{"properties": {"a": {"type": "string", "description": "x"}}}', '{"a": 4711}')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '1', 'true', '1')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '1', '{"type": "object", "required": ["order", "at"], "properties": {"order": {"type": ["string", "null"], "maxLength": 8, "description": "which order"}, "at": {"type": "string", "description": "when"}, "amount": {"type": "integer", "description": "how much", "x-money": {"currency": "EUR", "precision": 2, "rounding": "none"}}}}', '{"order": "o-1", "at": "now"}')$$);
select pg_temp.failure($$select webhook.add_schema('order.paid', '2', 'true', '1', current => true)$$);
select pg_temp.failure(format($$select webhook.add_schema('order.paid', '3', jsonb_build_object('title', %L), '1')$$, repeat('x', 262144)));
select pg_temp.failure($$select webhook.update_schema('order.paid', '9')$$);
select pg_temp.failure($$select webhook.update_schema('order.paid', '2', current => true)$$);
select pg_temp.failure($$select webhook.update_schema('order.paid', '1', deprecated => true)$$);
select pg_temp.failure($$select webhook.create_event_type('a.b', sensitivity => 'secret')$$);
select pg_temp.failure($$select webhook.create_event_type('a.b', sources => '{nobody}')$$);
select pg_temp.failure($$select webhook.create_event_type('a.b', payload_retention => '-1 day')$$);
select pg_temp.failure(format($$select webhook.create_event_type('a.b', owner => %L)$$, repeat('x', 201)));
select pg_temp.failure($$select webhook.deprecate_event_type('no.such', 'x')$$);
select pg_temp.failure($$select webhook.deprecate_event_type('order.paid', '')$$);
select pg_temp.failure($$select webhook.deprecate_event_type('order.paid', 'x', 'order.paid')$$);
select pg_temp.failure($$select webhook.deprecate_event_type('order.paid', 'x', sunset_at => 'infinity')$$);

-- Sources.
select webhook.update_source('shop', enabled => false, owner => '', partners => '{acme}', reason => 'being mended');
select name, enabled, owner, role, event_types, partners from webhook.sources;
select pg_temp.failure($$select webhook.create_source('shop')$$);
select pg_temp.failure($$select webhook.create_source('')$$);
select pg_temp.failure($$select webhook.create_source(null)$$);
select pg_temp.failure($$select webhook.create_source('x', role => 'nobody_at_all')$$);
select pg_temp.failure($$select webhook.create_source('x', event_types => '{a..b}')$$);
select pg_temp.failure($$select webhook.create_source('x', partners => '{"no partner"}')$$);
select pg_temp.failure($$select webhook.update_source('no.such')$$);
rollback;

-- Crossing.
select webhook.crossed(9, 10, 10), webhook.crossed(10, 11, 10), webhook.crossed(9, 9.99, 10), webhook.crossed(null, 11, 10), webhook.crossed(11, 9, 10);
select webhook.crossed(11, 10, 10, 'down'), webhook.crossed(10, 9, 10, 'down'), webhook.crossed(11, 10.01, 10, 'down'), webhook.crossed(9, 11, 10, 'down');
select webhook.crossed(0.1, 0.10000000000000000000000000000001, 0.10000000000000000000000000000001);
select pg_temp.failure($$select webhook.crossed(1, null, 2)$$);
select pg_temp.failure($$select webhook.crossed(1, 2, null)$$);
select pg_temp.failure($$select webhook.crossed(1, 2, 3, 'sideways')$$);
select pg_temp.failure($$select webhook.crossed(1, 'NaN', 3)$$);

-- Observing. The events are read from their payloads.
begin;
create function pg_temp.seen(metric text, value numeric, adjustment boolean default false) returns text
language plpgsql as $$
declare
  seen record;
begin
  seen := webhook.observe('acme', 'customer', 'c-7', metric, value, adjustment => adjustment);
  return concat_ws(' ', seen.observation, (
    select string_agg(format('%s %s>%s', e.type, e.body::jsonb ->> 'previous_value', e.body::jsonb ->> 'value'), ', ' order by event_id)
      from webhook._event e
     where e.event_id = any (seen.event_ids)));
end
$$;
select webhook.create_threshold('up', 'one', 10, 'value.high');
select webhook.create_threshold('up', 'two', 20, 'value.higher');
select v, pg_temp.seen('up', v) from unnest('{15,9.5,10,11,9,25,25,20,19,20}'::numeric[]) as v;
select webhook.create_threshold('down', 'low', 10.00, 'value.low', direction => 'down', rearm => 'margin', rearm_at => 20, first_crosses => true);
select v, pg_temp.seen('down', v) from unnest('{9,11,9,19.99,9,20,10,15}'::numeric[]) as v;
select webhook.create_threshold('once', 'ever', 10, 'value.once', rearm => 'never');
select v, pg_temp.seen('once', v) from unnest('{1,10,1,10}'::numeric[]) as v;
select webhook.create_threshold('adjusted', 'high', 10, 'value.high', adjustments_cross => false);
select v, a, pg_temp.seen('adjusted', v, a) from (values (1, false), (11, true), (12, false), (5, true), (11, false)) as t (v, a);
select metric, value, observation, disarmed from webhook.observations order by metric;
select metric, name, threshold, direction, event_type, rearm, rearm_at, adjustments_cross, first_crosses from webhook.thresholds order by metric, name;
-- The facts of the crossing win over members of the same name.
select event_ids[1] as told from webhook.observe('acme', 'order', 'o-1', 'down', 1.50, data => '{"direction": "x", "note": null}', correlation_id => 'r-1') \gset
select body, subject_type, subject_id, correlation_id from webhook._event where event_id = :'told';

select webhook.delete_threshold('once', 'ever');
select pg_temp.failure($$select webhook.observe('acme', 'customer', 'c-7', 'once', 1)$$);
select pg_temp.failure($$select webhook.observe(null, 'customer', 'c-7', 'up', 1)$$);
select pg_temp.failure($$select webhook.observe('acme', 'customer', 'c-7', 'up', null)$$);
select pg_temp.failure($$select webhook.observe('acme', '', 'c-7', 'up', 1)$$);
select pg_temp.failure($$select webhook.observe('_operator', 'customer', 'c-7', 'up', 1)$$);
select pg_temp.failure($$select webhook.observe('acme', 'customer', 'c-7', 'up', 'NaN')$$);
select pg_temp.failure($$select webhook.observe('acme', 'customer', 'c-7', 'up', 'infinity')$$);
select pg_temp.failure($$select webhook.observe('acme', 'customer', 'c-7', 'up', 1, data => '[]')$$);
select pg_temp.failure($$select webhook.create_threshold('up', 'one', 1, 'a.b')$$);
select pg_temp.failure($$select webhook.create_threshold(null, 'x', 1, 'a.b')$$);
select pg_temp.failure($$select webhook.create_threshold('no metric', 'x', 1, 'a.b')$$);
select pg_temp.failure($$select webhook.create_threshold('m', 'x', 'NaN', 'a.b')$$);
select pg_temp.failure($$select webhook.create_threshold('m', 'x', 1, 'webhook.x')$$);
select pg_temp.failure($$select webhook.create_threshold('m', 'x', 1, 'a.*')$$);
select pg_temp.failure($$select webhook.create_threshold('m', 'x', 1, 'a.b', rearm => 'later')$$);
select pg_temp.failure($$select webhook.create_threshold('m', 'x', 1, 'a.b', rearm => 'margin')$$);
select pg_temp.failure($$select webhook.create_threshold('m', 'x', 1, 'a.b', rearm => 'margin', rearm_at => 1)$$);
select pg_temp.failure($$select webhook.create_threshold('m', 'x', 1, 'a.b', direction => 'down', rearm => 'margin', rearm_at => 0)$$);
select pg_temp.failure($$select webhook.delete_threshold('up', 'three')$$);
rollback;

-- Sessions that cannot write.
begin read only;
select pg_temp.failure($$select webhook.deprecate_event_type('a.b', 'x')$$);
select pg_temp.failure($$select webhook.add_schema('a.b', '1', 'true', '1')$$);
select pg_temp.failure($$select webhook.update_schema('a.b', '1')$$);
select pg_temp.failure($$select webhook.create_source('x')$$);
select pg_temp.failure($$select webhook.update_source('x')$$);
select pg_temp.failure($$select webhook.create_threshold('m', 'x', 1, 'a.b')$$);
select pg_temp.failure($$select webhook.delete_threshold('m', 'x')$$);
select pg_temp.failure($$select webhook.observe('acme', 'customer', 'c-7', 'up', 1)$$);
rollback;

-- Who gets what.
begin;
select webhook.create_event_type('regress.paid', owner => 'billing', contact => 'billing@example.com', sensitivity => 'internal'), webhook.create_event_type('regress.made');
select endpoint_id as one from webhook.create_endpoint('regress.consumer', 'https://127.0.0.1/in', '{regress.*}', verify => 'none', data_shape => 'fields', fields => '{total}', description => 'the books') \gset
select endpoint_id as two from webhook.create_endpoint('regress.consumer', 'https://127.0.0.1/in', '{regress.paid}', verify => 'none', test => true, subject_types => '{order}', filter => '$.total > 1', expires_at => timestamptz '2100-01-01 00:00+00') \gset
select endpoint_id as gone from webhook.create_endpoint('regress.consumer', 'https://127.0.0.1/in', verify => 'none') \gset
select webhook.delete_endpoint(:gone, 'left');
select event_type, endpoint_id = :one as first, state, test, data_shape, fields, schema_version, description, subject_types, filter, created_by, created_at between now() and clock_timestamp() as created_now, expires_at, owner, contact, sensitivity, replace(switch_off, endpoint_id::text, '<id>')
  from webhook.subscriptions where partner_id = 'regress.consumer' order by endpoint_id, event_type;
rollback;
