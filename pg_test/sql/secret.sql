-- Signing keys: rotation, its end, revocation, what the views show, and every refusal. What the keys do on the wire,
-- and where their material must not be, is proven elsewhere (rotation.rs, secrets.rs).
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
-- The keys of an endpoint, by the order in which they were made.
create function pg_temp.keys(endpoint bigint) returns table (n bigint, signs boolean, ends text, revoked boolean, encrypted boolean)
language sql as $$
  select row_number() over (order by created_at), signs,
         case when valid_until is null then 'never' when valid_until <= clock_timestamp() then 'past' else (valid_until - now() + interval '30 minutes')::text end,
         revoked_at is not null, encrypted
    from webhook.signing_keys where endpoint_id = endpoint order by created_at
$$;
create function pg_temp.rounded(n bigint, signs boolean, ends text, revoked boolean, encrypted boolean) returns text
language sql as $$ select concat_ws(' ', n, signs, regexp_replace(ends, '^@ (\d+ \w+) 30 mins.*$', '\1'), revoked, encrypted) $$;

-- Nothing is committed below: no leader acts on it.
begin;
select endpoint_id as hook, secret as first from webhook.create_endpoint('regress.secret', 'https://127.0.0.1/in', verify => 'none') \gset
select pg_temp.rounded(n, signs, ends, revoked, encrypted) from pg_temp.keys(:hook);

-- Rotating: another secret, the former key signs for a day.
select key_id as second_id, secret as second from webhook.rotate_secret(:hook) \gset
select :'second' ~ '^whsec_[A-Za-z0-9+/]{43}=$', :'first' <> :'second';
select pg_temp.rounded(n, signs, ends, revoked, encrypted) from pg_temp.keys(:hook);
select :second_id = any (key_ids), cardinality(key_ids) from webhook.endpoints where endpoint_id = :hook;
-- Once more, for an hour: an earlier overlap is shortened and never made longer.
select secret is not null from webhook.rotate_secret(:hook, '1 hour');
select pg_temp.rounded(n, signs, ends, revoked, encrypted) from pg_temp.keys(:hook);
select secret is not null from webhook.rotate_secret(:hook, overlap => '7 days');
select pg_temp.rounded(n, signs, ends, revoked, encrypted) from pg_temp.keys(:hook);
select secret is not null from webhook.rotate_secret(:hook, '1 day');
select pg_temp.failure(format('select webhook.rotate_secret(%s)', :hook));
-- Without an overlap all others end, and their material is gone.
select secret is not null from webhook.rotate_secret(:hook, '0');
select pg_temp.rounded(n, signs, ends, revoked, encrypted) from pg_temp.keys(:hook);
select count(*) from webhook._secret where endpoint_id = :hook and secret is not null;

-- Confirming ends the overlap.
select pg_temp.failure(format('select webhook.confirm_rotation(%s)', :hook));
select secret is not null from webhook.rotate_secret(:hook);
select webhook.confirm_rotation(:hook);
select cardinality(key_ids) from webhook.endpoints where endpoint_id = :hook;
select pg_temp.failure(format('select webhook.confirm_rotation(%s)', :hook));

-- Revoking the only key makes another one; revoking a former key does not.
select key_ids[1] as leaked from webhook.endpoints where endpoint_id = :hook \gset
select new_key_id as fresh, secret as third from webhook.revoke_secret(:hook, ' found on a web page ', :leaked) \gset
select :'third' ~ '^whsec_', :fresh <> :leaked;
select signs, revoked_at is not null, encrypted, master_key_id from webhook.signing_keys where key_id = :leaked;
select pg_temp.failure(format($$select webhook.revoke_secret(%s, 'again', %s)$$, :hook, :leaked));
select key_id as newest from webhook.rotate_secret(:hook) \gset
select new_key_id, secret from webhook.revoke_secret(:hook, 'leaked', :fresh);
select key_ids = array[:newest] from webhook.endpoints where endpoint_id = :hook;
-- The current key of a rotation: the former one signs on, and a new one is made.
select key_id as newest from webhook.rotate_secret(:hook) \gset
select new_key_id > 0, secret ~ '^whsec_' from webhook.revoke_secret(:hook, 'leaked', :newest);
select cardinality(key_ids), :newest = any (key_ids) from webhook.endpoints where endpoint_id = :hook;
-- All of them, and the endpoint is paused.
select new_key_id > 0, secret ~ '^whsec_' from webhook.revoke_secret(:hook, 'all leaked', pause => true);
select state, state_reason, cardinality(key_ids) from webhook.endpoints where endpoint_id = :hook;
-- It is paused already.
select secret ~ '^whsec_' from webhook.revoke_secret(:hook, 'once more', pause => true);
select state, state_reason from webhook.endpoints where endpoint_id = :hook;

-- The log names keys and no material; the generation, and with it what the leader has found out, stays.
select verb, reason, jsonb_array_length(before -> 'key_ids'), jsonb_array_length(after -> 'key_ids'), jsonb_array_length(after -> 'revoked'), after ? 'valid_until'
  from webhook.audit_log where object_id = :'hook' order by at;
select count(*) from webhook.audit_log a where a::text ~ 'whsec_';
select generation from webhook._endpoint where endpoint_id = :hook;

-- Every key is under the current master key; the text of a key is handed out once, to who made it.
select secrets, seal_keys, unreadable from webhook.reencrypt_secrets();
select bool_and(encrypted), count(distinct master_key_id) from webhook.signing_keys where signs;
select count(*), bool_and(encrypted), bool_and(seals) from webhook.seal_keys;
select webhook.rotate_seal_key() as seal_key \gset
select count(*), count(*) filter (where seals and key_id = :seal_key), bool_and(encrypted) from webhook.seal_keys;
select webhook.emit('a.b', 'regress.secret', '{}') as event \gset
select seal_key = :seal_key from webhook._event where event_id = :'event';

-- Refusals.
select pg_temp.failure('select webhook.rotate_secret(null)');
select pg_temp.failure('select webhook.rotate_secret(1)');
select pg_temp.failure(format($$select webhook.rotate_secret(%s, '-1 second')$$, :hook));
select pg_temp.failure(format($$select webhook.rotate_secret(%s, '7 days 1 second')$$, :hook));
select pg_temp.failure('select webhook.confirm_rotation(null)');
select pg_temp.failure('select webhook.confirm_rotation(1)');
select pg_temp.failure($$select webhook.revoke_secret(null, 'leaked')$$);
select pg_temp.failure($$select webhook.revoke_secret(1, 'leaked')$$);
select pg_temp.failure(format('select webhook.revoke_secret(%s, null)', :hook));
select pg_temp.failure(format($$select webhook.revoke_secret(%s, ' ')$$, :hook));
select pg_temp.failure(format($$select webhook.revoke_secret(%s, 'leaked', 1)$$, :hook));
select pg_temp.failure(format($$select webhook.revoke_secret(%s, 'leaked', pause => null)$$, :hook));
-- Of a copy.
update webhook._endpoint set origin = origin + 1 where endpoint_id = :hook;
select pg_temp.failure(format('select webhook.rotate_secret(%s)', :hook));
select pg_temp.failure(format('select webhook.confirm_rotation(%s)', :hook));
select pg_temp.failure(format($$select webhook.revoke_secret(%s, 'leaked')$$, :hook));
update webhook._endpoint set origin = origin - 1 where endpoint_id = :hook;
-- A disabled endpoint has keys to change, a deleted one has none.
select webhook.disable_endpoint(:hook, 'off');
select secret ~ '^whsec_' from webhook.rotate_secret(:hook);
select webhook.delete_endpoint(:hook, 'over');
select pg_temp.failure(format('select webhook.rotate_secret(%s)', :hook));
select count(*) from webhook.signing_keys where endpoint_id = :hook;
rollback;
begin read only;
select pg_temp.failure('select webhook.rotate_secret(1)');
select pg_temp.failure('select webhook.confirm_rotation(1)');
select pg_temp.failure($$select webhook.revoke_secret(1, 'leaked')$$);
select pg_temp.failure('select webhook.reencrypt_secrets()');
select pg_temp.failure('select webhook.rotate_seal_key()');
rollback;

-- What concerns every partner is for the owner: EXECUTE is not enough.
create role regress_webhook_keys;
grant usage on schema webhook to regress_webhook_keys;
grant execute on all functions in schema webhook to regress_webhook_keys;
grant select on webhook.signing_keys, webhook.seal_keys to regress_webhook_keys;
set role regress_webhook_keys;
select pg_temp.failure('select webhook.reencrypt_secrets()');
select pg_temp.failure('select webhook.rotate_seal_key()');
select pg_temp.failure('select * from webhook._secret');
select left(pg_temp.failure('show webhook.master_key_file'), 5);
select count(*) from webhook.seal_keys;
reset role;
drop owned by regress_webhook_keys;
drop role regress_webhook_keys;

-- Settings.
select pg_temp.failure($$set webhook.master_key_file = '/tmp/mine'$$);
