-- Formats, signature profiles and headers of endpoints: what is accepted, what the views and the log show, and every
-- refusal. What goes over the wire is proven elsewhere (formats.rs, peers.rs).
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
  return regexp_replace(concat_ws(E'\n', sqlstate || ' ' || message, nullif(detail, ''), nullif(hint, '')), '\d{12,}', '<id>', 'g');
end
$$;
-- How an endpoint with these arguments is refused.
create function pg_temp.refused(more text) returns text
language sql as $$
  select pg_temp.failure(format('select webhook.create_endpoint(''regress.format'', ''https://127.0.0.1/in'', verify => ''none'', %s)', more))
$$;

-- Nothing is committed below: no leader acts on it.
begin;
-- The defaults.
select endpoint_id as hook from webhook.create_endpoint('regress.format', 'https://127.0.0.1/in', verify => 'none') \gset
select format, revision, signature, header_names from webhook.endpoints where endpoint_id = :hook;
select kind, public_key from webhook.signing_keys where endpoint_id = :hook;

-- A format is a new revision each time it changes, and none when it does not.
select webhook.update_endpoint(:hook, format => 'cloudevents-structured');
select webhook.update_endpoint(:hook, format => 'cloudevents-structured');
select webhook.update_endpoint(:hook, format => 'native', description => 'back again');
select format, revision from webhook.endpoints where endpoint_id = :hook;
select revision, format from webhook._endpoint_revision where endpoint_id = :hook order by revision;

-- Profiles of the same kind of key; of the other kind a rotation makes the key.
select webhook.update_endpoint(:hook, signature => 'stripe');
select pg_temp.failure(format('select webhook.update_endpoint(%s, signature => ''v1a'')', :hook));
select secret ~ '^whpk_[A-Za-z0-9+/]{43}=$' from webhook.rotate_secret(:hook, signature => 'rfc9421-ed25519');
select signature from webhook.endpoints where endpoint_id = :hook;
select kind, public_key ~ '^whpk_', signs from webhook.signing_keys where endpoint_id = :hook order by key_id;
select pg_temp.failure(format('select webhook.update_endpoint(%s, signature => ''v1'')', :hook));
select webhook.update_endpoint(:hook, signature => 'v1a');
-- Revoked: what takes its place is of the same kind.
select secret ~ '^whpk_' from webhook.revoke_secret(:hook, 'leaked');
select secret ~ '^whsec_' from webhook.rotate_secret(:hook, '0', 'github');
select kind, public_key from webhook.signing_keys where endpoint_id = :hook and signs;
-- Made with a pair.
select endpoint_id as pair, secret as public from webhook.create_endpoint('regress.format', 'https://127.0.0.1/in', verify => 'none', signature => 'v1a') \gset
select public_key = :'public', kind from webhook.signing_keys where endpoint_id = :pair;

-- Headers: names are shown, values are not; given anew they replace what was there.
select webhook.update_endpoint(:hook, headers => '{"X-Tenant": "7", "Authorization": "Bearer hush-hush"}');
select header_names from webhook.endpoints where endpoint_id = :hook;
select webhook.update_endpoint(:hook, headers => '{"X-Tenant": "8"}');
select webhook.update_endpoint(:hook, description => 'unchanged');
select header_names from webhook.endpoints where endpoint_id = :hook;
select webhook.update_endpoint(:hook, headers => '{"X-Tenant": "9"}');
select webhook.update_endpoint(:hook, headers => '{}');
select header_names, headers from webhook._endpoint where endpoint_id = :hook;
-- The log says what changed, and no value.
select verb, before - 'headers_changed_at' - 'key_ids', after - 'headers_changed_at' - 'key_ids' - 'valid_until', after ? 'headers_changed_at'
  from webhook.audit_log
 where object_id = :'hook' and verb in ('update_endpoint', 'rotate_secret')
 order by audit_id;
select count(*) from webhook.audit_log where concat(before, after) ~ 'hush-hush';

-- Refusals.
select pg_temp.refused($$format => 'Native'$$);
select pg_temp.refused($$format => null$$);
select pg_temp.refused($$signature => 'v2'$$);
select pg_temp.refused($$signature => null$$);
select pg_temp.refused($$headers => null$$);
select pg_temp.refused($$headers => '[]'$$);
select pg_temp.refused($$headers => 'null'$$);
select pg_temp.refused($$headers => '{"X-A": 1}'$$);
select pg_temp.refused($$headers => '{"X-A": null}'$$);
select pg_temp.refused($$headers => '{"X A": "1"}'$$);
select pg_temp.refused($$headers => '{"": "1"}'$$);
select pg_temp.refused($$headers => '{"X-A": "1", "x-a": "2"}'$$);
select pg_temp.refused($$headers => '{"Webhook-Id": "1"}'$$);
select pg_temp.refused($$headers => '{"webhook-tenant": "1"}'$$);
select pg_temp.refused($$headers => '{"Content-Type": "text/plain"}'$$);
select pg_temp.refused($$headers => '{"X-Hub-Signature-256": "1"}'$$);
select pg_temp.refused($$headers => '{"ce-id": "1"}'$$);
select pg_temp.refused($$headers => '{"X-A": "hush-hush\r\nX-B: 1"}'$$);
select pg_temp.refused($$headers => '{"X-A": ""}'$$);
select pg_temp.refused($$headers => (select jsonb_object_agg('x-' || n, 'v') from generate_series(1, 21) as n)$$);
select pg_temp.failure(format('select webhook.update_endpoint(%s, format => ''xml'')', :hook));
select pg_temp.failure(format('select webhook.update_endpoint(%s, signature => ''none'')', :hook));
select pg_temp.failure(format('select webhook.update_endpoint(%s, headers => ''{"host": "x"}'')', :hook));
select pg_temp.failure(format('select webhook.rotate_secret(%s, signature => ''none'')', :hook));
rollback;
-- The tables hold no other names: those of the functions and of the checks are the same.
select (select count(*) from unnest('{native,cloudevents-structured,cloudevents-binary}'::text[]) as f where webhook._valid_format(f)),
       (select string_agg(p.name || ' ' || webhook._key_kind(p.name), ', ')
          from pg_constraint as c
         cross join regexp_matches(pg_get_constraintdef(c.oid), '''([^'']+)''', 'g') as m (part)
         cross join lateral (select m.part[1]) as p (name)
         where c.conname = '_endpoint_signature_known');
