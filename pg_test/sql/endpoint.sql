-- Endpoints: creating, changing, enabling, disabling, deleting; every refusal. The server is set to allow
-- 127.0.0.0/8, so that no test depends on a name server.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Nothing is committed below: no leader acts on it.
begin;
select * from webhook.create_endpoint('acme', 'https://127.0.0.1/in', description => 'first', verify => 'none') \gset
select :'secret' ~ '^whsec_[A-Za-z0-9+/]{43}=$', :endpoint_id > 0;
select partner_id, url, event_types, test, state, state_reason, verify, description, max_in_flight, array_length(key_ids, 1), format, revision, inert, created_by = session_user
  from webhook.endpoints where endpoint_id = :endpoint_id;
select generation, created_xid = pg_current_xact_id(), changed_xid = pg_current_xact_id(), created_snapshot is not null
  from webhook._endpoint where endpoint_id = :endpoint_id;
select revision, format from webhook._endpoint_revision where endpoint_id = :endpoint_id;
-- It is stored encrypted, and its text is handed out once.
select stored_under = webhook._master_key_id(), length(secret), valid_until, created_by = session_user, webhook._take_secret(key_id) from webhook._secret where endpoint_id = :endpoint_id;

-- Options; duplicates are dropped, the order of first mention stays.
select endpoint_id as other from webhook.create_endpoint(
  'acme', 'https://127.0.0.1:8443/in?x=1', '{customer.*,balance.low,customer.*,api_key.created,balance.low}',
  test => true, max_in_flight => 2, verify => 'none') \gset
select event_types, test, max_in_flight from webhook.endpoints where endpoint_id = :other;
select count(distinct secret) from webhook._secret where endpoint_id in (:endpoint_id, :other);

-- With a method of verification it is held until control of the URL is proven; see verification.sql.
select endpoint_id as proven from webhook.create_endpoint('acme', 'https://127.0.0.1/c', verify => 'challenge') \gset
select state, verify from webhook.endpoints where endpoint_id = :proven;

-- Changing: what is left out stays. A new URL makes the leader's findings void, which is a new generation; nothing else here does.
select webhook.update_endpoint(:other, description => 'second');
select webhook.update_endpoint(:other, url => 'https://127.0.0.1/new', event_types => '{*}', max_in_flight => 5);
select url, event_types, description, max_in_flight from webhook.endpoints where endpoint_id = :other;
select webhook.update_endpoint(:other, description => '', max_in_flight => 0);
select url, event_types, description, max_in_flight from webhook.endpoints where endpoint_id = :other;
select generation, changed_xid = pg_current_xact_id() from webhook._endpoint where endpoint_id = :other;
select webhook.create_policy('gentle', rate => 1);
select webhook.update_endpoint(:other, policy => 'gentle', ordered => true);
select policy, ordered from webhook.endpoints where endpoint_id = :other;
select webhook.update_endpoint(:other, description => 'as it was');
select policy, ordered from webhook.endpoints where endpoint_id = :other;
select webhook.update_endpoint(:other, policy => '', ordered => false, description => '');
select policy, ordered from webhook.endpoints where endpoint_id = :other;
select endpoint_id as strict from webhook.create_endpoint('acme', 'https://127.0.0.1/o', policy => 'gentle', ordered => true, verify => 'none') \gset
select policy, ordered from webhook.endpoints where endpoint_id = :strict;
-- The policy "default" by its name is the same as none.
select webhook.update_endpoint(:strict, policy => 'default');
select policy, ordered from webhook.endpoints where endpoint_id = :strict;
select generation from webhook._endpoint where endpoint_id = :other;

-- Disabling and enabling.
select webhook.disable_endpoint(:other, '  moved away ');
select state, state_reason, state_changed_at > created_at from webhook.endpoints where endpoint_id = :other;
-- Once more for another reason: the time that it misses still begins where it began, and nobody is told twice.
select state_changed_at as since from webhook.endpoints where endpoint_id = :other \gset
select webhook.disable_endpoint(:other, 'moved far away');
select state, state_reason, state_changed_at = :'since' from webhook.endpoints where endpoint_id = :other;
select webhook.enable_endpoint(:other, 'came back');
select state, state_reason from webhook.endpoints where endpoint_id = :other;
select webhook.enable_endpoint(:other);
select state, state_reason from webhook.endpoints where endpoint_id = :other;
select generation from webhook._endpoint where endpoint_id = :other;
-- Who is told: the partner's other endpoints and the operator's, by events for test endpoints as this one is; and whoever
-- reads the alerts.
select type, partner_id, test, subject_type, subject_id = :'other',
       replace(replace(regexp_replace(body, '\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z', '<time>', 'g'), :'other', '<id>'), session_user, '<user>')
  from webhook._event where subject_id = :'other' order by type, partner_id;
select kind, severity, partner_id, endpoint_id = :other, replace(regexp_replace(detail, '\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z', '<time>', 'g'), session_user, '<user>')
  from webhook.alerts where endpoint_id = :other order by at;

-- What the leader found out counts for its generation only, and survives a change that is no enabling.
insert into webhook._endpoint_state (endpoint_id, generation, state, reason, changed_at)
values (:other, 5, 'disabled', 'an old 410', now());
select state, state_reason from webhook.endpoints where endpoint_id = :other;
update webhook._endpoint_state set generation = 6, reason = 'the receiver answered 410 Gone', changed_at = '2026-01-01 00:00:00+00' where endpoint_id = :other;
select state, state_reason from webhook.endpoints where endpoint_id = :other;
select webhook.update_endpoint(:other, description => 'third');
select state, state_reason, state_changed_at = '2026-01-01 00:00:00+00' from webhook.endpoints where endpoint_id = :other;
select webhook.enable_endpoint(:other);
select state, state_reason from webhook.endpoints where endpoint_id = :other;
select state, reason, generation from webhook._endpoint_state where endpoint_id = :other;

-- Deleting: no key is left, the row stays.
select webhook.delete_endpoint(:other, 'contract ended');
select state, state_reason, key_ids from webhook.endpoints where endpoint_id = :other;
select count(*) from webhook._secret where endpoint_id = :other;
select replace(pg_temp.failure(format($$select webhook.update_endpoint(%s, description => 'x')$$, :other)), :'other', '<id>');
select replace(pg_temp.failure(format($$select webhook.enable_endpoint(%s)$$, :other)), :'other', '<id>');
select replace(pg_temp.failure(format($$select webhook.disable_endpoint(%s, 'x')$$, :other)), :'other', '<id>');
select replace(pg_temp.failure(format($$select webhook.delete_endpoint(%s, 'x')$$, :other)), :'other', '<id>');

-- A pause is not enabled away.
select webhook.pause('endpoint', :'endpoint_id', 'wait') > 0;
select replace(pg_temp.failure(format($$select webhook.enable_endpoint(%s)$$, :endpoint_id)), :'endpoint_id', '<id>');
rollback;

-- NULL where it makes no sense.
select pg_temp.failure($$select webhook.create_endpoint(null, 'https://127.0.0.1/', verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', null, verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', null, verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', '{a.b,null}', verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', test => null, verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', verify => null)$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', ordered => null, verify => 'none')$$);
select pg_temp.failure($$select webhook.update_endpoint(null)$$);
select pg_temp.failure($$select webhook.enable_endpoint(null)$$);
select pg_temp.failure($$select webhook.disable_endpoint(null, 'x')$$);
select pg_temp.failure($$select webhook.delete_endpoint(null, 'x')$$);

-- Arguments.
select pg_temp.failure($$select webhook.create_endpoint('ac me', 'https://127.0.0.1/', verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('', 'https://127.0.0.1/', verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('_operators', 'https://127.0.0.1/', verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', '{}', verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', '{customer*}', verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', '{a.b,"",c.d}', verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', array(select 'type.' || n from generate_series(1, 101) as n), verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', verify => 'carrier pigeon')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', max_in_flight => 0, verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', max_in_flight => 1001, verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', policy => 'nowhere', verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', policy => '', verify => 'none')$$);

-- Callback URLs.
select url || E'\n' || pg_temp.failure(format($$select webhook.create_endpoint('acme', %L, verify => 'none')$$, url))
  from (values ('ftp://hooks.example.com/'), ('hooks.example.com'), ('https://user:pw@hooks.example.com/'), ('https://hooks.example.com/#x'),
               ('https://localhost/'), ('https://10.0.0.1/'), ('https://[::ffff:10.0.0.1]/'), ('https://169.254.169.254/latest/meta-data/'), ('')) as bad (url);

-- Endpoints that do not exist, and reasons that say nothing.
select pg_temp.failure($$select webhook.update_endpoint(1, description => 'x')$$);
select pg_temp.failure($$select webhook.enable_endpoint(1)$$);
select pg_temp.failure($$select webhook.disable_endpoint(1, 'x')$$);
select pg_temp.failure($$select webhook.delete_endpoint(1, 'x')$$);
begin;
select endpoint_id from webhook.create_endpoint('acme', 'https://127.0.0.1/', verify => 'none') \gset
select pg_temp.failure(format($$select webhook.disable_endpoint(%s, null)$$, :endpoint_id));
select pg_temp.failure(format($$select webhook.disable_endpoint(%s, E' \n')$$, :endpoint_id));
select pg_temp.failure(format($$select webhook.delete_endpoint(%s, null)$$, :endpoint_id));
select pg_temp.failure(format($$select webhook.delete_endpoint(%s, repeat('x', 1001))$$, :endpoint_id));
select pg_temp.failure(format($$select webhook.enable_endpoint(%s, '')$$, :endpoint_id));
select pg_temp.failure(format($$select webhook.update_endpoint(%s, url => 'http://')$$, :endpoint_id)) like '22023 callback URL is refused%';
select pg_temp.failure(format($$select webhook.update_endpoint(%s, event_types => '{}')$$, :endpoint_id));
select pg_temp.failure(format($$select webhook.update_endpoint(%s, max_in_flight => -1)$$, :endpoint_id));
select pg_temp.failure(format($$select webhook.update_endpoint(%s, policy => 'nowhere')$$, :endpoint_id));
select state, url from webhook.endpoints where endpoint_id = :endpoint_id;
rollback;

-- The limit of endpoints per partner; deleted ones do not count.
begin;
select count(*) from generate_series(1, current_setting('webhook.max_endpoints_per_partner')::integer) as n
 cross join lateral webhook.create_endpoint('crowded', 'https://127.0.0.1/' || n, verify => 'none') as c;
select pg_temp.failure($$select webhook.create_endpoint('crowded', 'https://127.0.0.1/more', verify => 'none')$$);
select pg_temp.failure($$select webhook.create_endpoint('roomy', 'https://127.0.0.1/more', verify => 'none')$$);
select webhook.delete_endpoint(min(endpoint_id), 'make room') from webhook.endpoints where partner_id = 'crowded';
select pg_temp.failure($$select webhook.create_endpoint('crowded', 'https://127.0.0.1/more', verify => 'none')$$);
rollback;

-- Sessions that cannot write.
begin read only;
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', verify => 'none')$$);
select pg_temp.failure($$select webhook.update_endpoint(1)$$);
select pg_temp.failure($$select webhook.enable_endpoint(1)$$);
select pg_temp.failure($$select webhook.disable_endpoint(1, 'x')$$);
select pg_temp.failure($$select webhook.delete_endpoint(1, 'x')$$);
rollback;

-- EXECUTE is the whole right; the creator is the session's user.
create role regress_webhook_operator;
grant usage on schema webhook to regress_webhook_operator;
set role regress_webhook_operator;
select pg_temp.failure($$select webhook.create_endpoint('acme', 'https://127.0.0.1/', verify => 'none')$$);
reset role;
grant execute on function webhook.create_endpoint to regress_webhook_operator;
begin;
set local role regress_webhook_operator;
select endpoint_id from webhook.create_endpoint('acme', 'https://127.0.0.1/', verify => 'none') \gset
select pg_temp.failure($$select * from webhook._secret$$);
select pg_temp.failure($$select * from webhook.endpoints$$);
reset role;
select created_by = session_user from webhook.endpoints where endpoint_id = :endpoint_id;
rollback;
revoke all on schema webhook from regress_webhook_operator;
revoke all on function webhook.create_endpoint from regress_webhook_operator;
drop role regress_webhook_operator;
