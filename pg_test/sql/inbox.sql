-- The receiving side: sources, keys, receive, handlers, claims, decisions; every refusal. Sessions at once: inbox.spec
-- and receiving.rs.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never
set timezone = 'UTC';

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql
\i :here/support/hmac.sql

begin;
-- Sources and keys.
select webhook.create_inbox_source('shop', 'v1', partner_id => 'acme', max_body => 200, description => ' the shop ');
select name, profile, partner_id, partner_from, tolerance, validation, same_body, max_body, max_pending, max_per_minute, enabled, keys, description
  from webhook.inbox_sources where name = 'shop';
-- Nothing is taken before there is a key: our trouble, not the sender's.
select * from webhook.receive('shop', '{}', '{}');
select key_id as key, new_key as secret from webhook.add_inbox_key('shop') \gset
select :'secret' ~ '^whsec_[A-Za-z0-9+/]{43}=$', kind, in_force, encrypted, valid_until from webhook.inbox_keys where key_id = :key;
select new_key, kind from webhook.add_inbox_key('shop', 'whsec_' || encode(sha256('given'), 'base64')) as a join webhook.inbox_keys k using (key_id);
select keys from webhook.inbox_sources where name = 'shop';

-- Handlers.
select webhook.create_inbox_handler('books', event_types => '{order.*}', retry_schedule => '1s,1s');
select webhook.create_inbox_handler('mail', sources => '{shop}', subject_versions => false);
select name, version, event_types, sources, retry_schedule, subject_versions, paused_at, rests, description from webhook.inbox_handlers order by name;

-- Received once, whatever comes again.
create function pg_temp.take(id text, body text, age integer default 0, source text default 'shop') returns text
language sql as $$
  select concat_ws(' ', r.result, r.event_id, r.http_status, r.reason, r.answer)
    from webhook.receive(source, pg_temp.signed(current_setting('regress.secret'), id, body, age), convert_to(body, 'UTF8')) as r
$$;
select set_config('regress.secret', :'secret', true) is not null;
select pg_temp.take('evt_1', '{"type":"order.paid","subject":{"type":"order","id":"7","version":2}}');
select pg_temp.take('evt_1', '{"type":"order.paid","subject":{"type":"order","id":"7","version":2}}');
select pg_temp.take('evt_1', '{"type":"order.paid","subject":{"type":"order","id":"7","version":2}}', 200);
select pg_temp.take('evt_1', '{"type":"order.paid","amount":1000000}');
select pg_temp.take('evt_2', 'no JSON');
select pg_temp.take('evt_3', '{"type":"order.made","subject":{"type":"order","id":"7","version":1}}');
select pg_temp.take('evt_4', '{"type":"webhook.test"}');
select pg_temp.take('e vt', '{}');
select pg_temp.take('evt_5', repeat('x', 201));
select pg_temp.take('evt_5', '{}', 400);
select pg_temp.take('evt_5', '{}', -400);
select pg_temp.take('evt_5', '{}', source => 'nowhere');
select concat_ws(' ', result, http_status, reason) from webhook.receive('shop', pg_temp.signed('whsec_' || encode(sha256('x'), 'base64'), 'evt_5', '{}'), '{}');
select concat_ws(' ', result, http_status, reason) from webhook.receive('shop', '{}', '{}');
-- The sender asks whether the URL is ours.
select concat_ws(' ', result, http_status, reason, answer)
  from webhook.receive('shop', pg_temp.signed(:'secret', 'chl_1', '{}') || '{"Content-Type": "application/webhook-challenge+json", "Webhook-Challenge": "pv_x"}', '{}');
select event_id, source, partner_id, type, subject_type, subject_id, subject_version, bytes, signed_at is not null, handler, handler_version, state, attempts
  from webhook.inbox order by event_id, handler;
select reason, total from webhook.inbox_rejections where source = 'shop' order by reason;
select source, handler, accepted, duplicates, conflicts, rejected, processed, failures, stale, open, dead from webhook.stat_inbox order by handler nulls first;

-- Rotation: both keys count until the former one is revoked.
select concat_ws(' ', result, http_status) from webhook.receive('shop', pg_temp.signed('whsec_' || encode(sha256('given'), 'base64'), 'evt_1', '{"type":"order.paid","subject":{"type":"order","id":"7","version":2}}'), '{"type":"order.paid","subject":{"type":"order","id":"7","version":2}}');
select webhook.revoke_inbox_key(key_id, 'rotated') from webhook.inbox_keys where key_id <> :key and source = 'shop';
select concat_ws(' ', result, http_status, reason) from webhook.receive('shop', pg_temp.signed('whsec_' || encode(sha256('given'), 'base64'), 'evt_1', '{}'), '{}');
select webhook.revoke_inbox_key(:key, 'ends tomorrow', clock_timestamp() + interval '1 day');
select in_force, encrypted is null, valid_until is not null from webhook.inbox_keys where source = 'shop' order by key_id;

-- Limits.
select webhook.update_inbox_source('shop', max_per_minute => 3);
select pg_temp.take('evt_6', '{}');
select pg_temp.take('evt_2', 'no JSON');
select webhook.update_inbox_source('shop', max_per_minute => 0, max_pending => 3);
select pg_temp.take('evt_6', '{}');
select webhook.update_inbox_source('shop', max_pending => 100, enabled => false);
select pg_temp.take('evt_6', '{}');
select webhook.update_inbox_source('shop', enabled => true, same_body => false);
select pg_temp.take('evt_2', 'another body');

-- The catalogue.
select webhook.create_event_type('order.checked');
select webhook.add_schema('order.checked', '1', '{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "description": "a number"}}}', '{"n": 1}');
select webhook.update_inbox_source('shop', validation => 'enforce');
select pg_temp.take('evt_7', '{"type":"order.checked","data":{"n":"x"}}');
select pg_temp.take('evt_7', '{"type":"order.checked","schema_version":"2","data":{"n":1}}');
select pg_temp.take('evt_7', '{"type":"order.unheard","data":{}}');
select pg_temp.take('evt_7', 'no JSON');
select pg_temp.take('evt_7', '{"type":"order.checked","data":{"n":1},"data":{"n":"x"}}');
select pg_temp.take('evt_7', '{"type":"order.checked","data":{"n":1}}');
select webhook.update_inbox_source('shop', validation => 'off');

-- Tenants from what is signed.
select webhook.create_inbox_source('many', 'stripe', partner_from => 'body:/account', partners => '{acme,globex}', type_from => 'body:/kind');
select count(key_id), count(new_key) from webhook.add_inbox_key('many', 'shh');
select concat_ws(' ', r.result, r.event_id, r.http_status, r.reason)
  from (select extract(epoch from clock_timestamp())::bigint as at) as t
 cross join (values ('{"id":"evt_a","kind":"invoice.paid","account":"globex"}'), ('{"id":"evt_b","account":"initech"}'), ('{"id":"evt_c"}'), ('{"account":"acme"}')) as b (body)
 cross join lateral webhook.receive('many', jsonb_build_object('Stripe-Signature',
   format('t=%s,v1=%s', t.at, encode(pg_temp.hmac('shh', convert_to(t.at || '.' || b.body, 'UTF8')), 'hex'))), convert_to(b.body, 'UTF8')) as r;
select event_id, source, partner_id, type, handler from webhook.inbox where source = 'many';

-- Each tenant has its ids for itself: none can take another's first, or find out by trying whether it is there.
create function pg_temp.charged(id text, account text) returns text language sql as $$
  select concat_ws(' ', r.result, r.event_id, r.http_status, r.reason)
    from (select extract(epoch from clock_timestamp())::bigint as at, format('{"id":"%s","kind":"invoice.sent","account":"%s"}', id, account) as body) as b
   cross join lateral webhook.receive('many', jsonb_build_object('Stripe-Signature',
     format('t=%s,v1=%s', b.at, encode(pg_temp.hmac('shh', convert_to(b.at || '.' || b.body, 'UTF8')), 'hex'))), convert_to(b.body, 'UTF8')) as r
$$;
select pg_temp.charged('evt_1', 'acme'), pg_temp.charged('evt_1', 'globex'), pg_temp.charged('evt_1', 'globex');
select partner_id, type from webhook.inbox where source = 'many' and event_id = 'evt_1' order by 1;
select pg_temp.failure($$select webhook.close_inbox('evt_1', 'nobody', 'x', 'many')$$);
select webhook.create_inbox_handler('bills', event_types => '{invoice.*}', sources => '{many}');
select webhook.replay_inbox('bills', 'made later') > 0;
select pg_temp.failure($$select webhook.close_inbox('evt_1', 'bills', 'x', 'many')$$);
select webhook.close_inbox('evt_1', 'bills', 'x', 'many', 'globex');
select partner_id, state from webhook.inbox where source = 'many' and event_id = 'evt_1' order by 1;
select webhook.delete_inbox_handler('bills', 'done');
delete from webhook._inbox where event_id = 'evt_1' and partner_id = 'globex' or event_id = 'evt_1' and source_id = (select source_id from webhook._inbox_source where name = 'many');

-- Where nobody signs the id, the body is it: sent again under another id it is the same event. Whoever wants the id says so,
-- and is told.
select webhook.create_inbox_source('hub', 'github', 'acme'), webhook.create_inbox_source('kiosk', 'shopify', 'acme');
select webhook.create_inbox_source('trusting', 'github', 'acme', id_from => 'header:X-GitHub-Delivery');
select name, id_from, id_signed, type_signed from webhook.inbox_sources where name in ('hub', 'kiosk', 'trusting', 'shop', 'many') order by 1;
select count(webhook.add_inbox_key(name, 'shh')) from (values ('hub'), ('trusting')) as v (name);
create function pg_temp.pushed(source text, id text, body text) returns text language sql as $$
  select concat_ws(' ', r.result, left(r.event_id, 8), r.http_status, r.reason)
    from webhook.receive(source, jsonb_build_object('X-GitHub-Delivery', id, 'X-GitHub-Event', 'push',
      'X-Hub-Signature-256', 'sha256=' || encode(pg_temp.hmac('shh', convert_to(body, 'UTF8')), 'hex')), convert_to(body, 'UTF8')) as r
$$;
select pg_temp.pushed('hub', 'guid-1', '{"n":1}'), pg_temp.pushed('hub', 'guid-1', '{"n":1}'), pg_temp.pushed('hub', 'guid-2', '{"n":1}'), pg_temp.pushed('hub', 'guid-2', '{"n":2}');
select correlation_id, type from webhook.inbox where source = 'hub' order by 1;
select pg_temp.pushed('trusting', 'guid-1', '{"n":1}'), pg_temp.pushed('trusting', 'guid-2', '{"n":1}');
delete from webhook._inbox where source_id in (select source_id from webhook._inbox_source where name in ('hub', 'trusting'));

-- Claimed in order of arrival, by one at a time.
select claim_id as claim, event_id, source, partner_id, type, subject_id, subject_version, attempt, convert_from(body, 'UTF8') from webhook.claim_inbox('books') \gset
\echo :event_id :source :partner_id :type :subject_id :subject_version :attempt
select state, attempts, next_attempt_at > clock_timestamp() from webhook.inbox where event_id = 'evt_1' and handler = 'books';
select webhook.finish_inbox(:claim, note => 'booked as 17');
select state, attempts, note, finished_at is not null from webhook.inbox where event_id = 'evt_1' and handler = 'books';
-- Finished is finished.
select regexp_replace(pg_temp.failure(format('select webhook.finish_inbox(%s)', :claim)), '\d{6,}', 'N');
-- evt_3 tells an older version of order 7: never handed out. The next one is evt_7.
select claim_id as claim, event_id from webhook.claim_inbox('books', lease => '1 second') \gset
\echo :event_id
select event_id, state, note from webhook.inbox where handler = 'books' and event_id in ('evt_3', 'evt_7') order by event_id;
-- A failure is tried again, as often as the schedule has waits and once more.
select webhook.finish_inbox(:claim, 'failed', 'the books are closed');
select state, attempts, note, next_attempt_at > clock_timestamp() from webhook.inbox where handler = 'books' and event_id = 'evt_7';
select count(*) from webhook.claim_inbox('books');
update webhook._inbox_run set next_attempt_at = clock_timestamp() where handler = 'books' and state = 'retrying';
select claim_id as claim, attempt from webhook.claim_inbox('books') \gset
select :attempt, webhook.finish_inbox(:claim, 'failed');
update webhook._inbox_run set next_attempt_at = clock_timestamp() where handler = 'books' and state = 'retrying';
select claim_id as claim, attempt from webhook.claim_inbox('books') \gset
select :attempt, webhook.finish_inbox(:claim, 'failed', 'for the last time');
select state, attempts, note from webhook.inbox where handler = 'books' and event_id = 'evt_7';
-- Somebody is told, once an hour.
select kind, severity, event_id, detail from webhook.alerts where kind = 'inbox.dead';
select inbox_pending > 0, inbox_dead, advice ~ 'Some received events are dead' from webhook.status();
select webhook.retry_inbox('evt_7', 'books', 'the books are open');
select state, attempts, note from webhook.inbox where handler = 'books' and event_id = 'evt_7';
-- A lease that ends without a word counts as an attempt; the last one is a dead letter.
select attempt from webhook.claim_inbox('books');
update webhook._inbox_run set next_attempt_at = clock_timestamp() where handler = 'books' and state = 'claimed';
select state from webhook.inbox where handler = 'books' and event_id = 'evt_7';
select attempt from webhook.claim_inbox('books');
update webhook._inbox_run set next_attempt_at = clock_timestamp() where handler = 'books' and state = 'claimed';
select attempt, claim_id as lost from webhook.claim_inbox('books') \gset
update webhook._inbox_run set next_attempt_at = clock_timestamp() where handler = 'books' and state = 'claimed';
select attempt from webhook.claim_inbox('books');
select state, attempts, note from webhook.inbox where handler = 'books' and event_id = 'evt_7';
select regexp_replace(pg_temp.failure(format('select webhook.finish_inbox(%s)', :lost)), '\d{6,}', 'N');
select count(*) from webhook.alerts where kind = 'inbox.dead';
select webhook.close_inbox('evt_7', 'books', 'settled by hand');
select state, note from webhook.inbox where handler = 'books' and event_id = 'evt_7';
select regexp_replace(pg_temp.failure($$select webhook.close_inbox('evt_7', 'books', 'again')$$), '\d{6,}', 'N');
select pg_temp.failure($$select webhook.retry_inbox('evt_1', 'books', 'once more')$$);

-- A pause keeps the handler's work and nothing else.
select webhook.pause_inbox('mail', 'the provider is down');
select count(*) from webhook.claim_inbox('mail', 10);
select paused_at is not null, pause_reason from webhook.inbox_handlers where name = 'mail';
select webhook.resume_inbox('mail');
select pg_temp.failure($$select webhook.resume_inbox('mail')$$);
select string_agg(event_id, ' ' order by event_id) from webhook.claim_inbox('mail', 10);
-- It asked for no versions of subjects: the older one came as well.

-- A new version gets what is not finished; what was processed comes again when somebody asks, and once.
select webhook.update_inbox_handler('books', version => '2');
select pg_temp.failure($$select webhook.claim_inbox('books', version => '1')$$);
select webhook.replay_inbox('books', 'version 2 books taxes'), webhook.replay_inbox('books', 'twice gives nothing twice');
select event_id, handler_version, state from webhook.inbox where handler = 'books' order by event_id, handler_version;
select event_id, webhook.finish_inbox(claim_id, 'processed') from webhook.claim_inbox('books', 10, version => '2');
select event_id, handler_version, state from webhook.inbox where handler = 'books' order by event_id, handler_version;
-- Back at version 1: what it has had, it does not get again.
select webhook.update_inbox_handler('books', version => '1');
select webhook.replay_inbox('books', 'back again');

-- The inbox of a copy of a database rests.
update webhook._inbox_handler set origin = 1 where name = 'mail';
select rests from webhook.inbox_handlers where name = 'mail';
update webhook._inbox_run set next_attempt_at = clock_timestamp() where handler = 'mail';
select count(*) from webhook.claim_inbox('mail', 10);
select webhook.resume_inbox('mail');
select count(*) > 0 from webhook.claim_inbox('mail', 10);

-- Erased: the id stays, and with it the knowledge that it was here.
select webhook._expunge_inbox('{evt_1,evt_2,evt_x}'), webhook._expunge_inbox('{evt_1}');
select event_id, subject_id, expunged_at is not null, handler, state, note from webhook.inbox where event_id in ('evt_1', 'evt_2') order by event_id, handler, handler_version;
select count(*) from webhook._inbox_subject;
select pg_temp.take('evt_1', '{"type":"order.paid","subject":{"type":"order","id":"7","version":2}}');
select pg_temp.failure($$select webhook.retry_inbox('evt_2', 'mail', 'again')$$);

-- Forgotten after the retention, but never before it is done.
update webhook._inbox set received_at = received_at - interval '121 days';
select webhook._trim_inbox(now() - interval '120 days', 1), webhook._trim_inbox(now() - interval '120 days', 100) > 0;
select count(*) filter (where state not in ('claimed', 'pending', 'retrying')) from webhook.inbox;
select webhook.delete_inbox_handler('mail', 'no longer needed');
select webhook._trim_inbox(now() - interval '120 days', 100) > 0;
select count(*) from webhook.inbox;

-- The audit log has every verb, and no key.
select verb, object_kind, object_id, partner_id, reason from webhook.audit_log where verb like '%inbox%' order by at;
select count(*) from webhook.audit_log where before::text || after::text ~ 'whsec_|shh';
rollback;

-- Refusals.
begin;
select webhook.create_inbox_source('there', 'v1', 'acme');
select webhook.create_inbox_handler('there');
select statement || E'\n' || regexp_replace(pg_temp.failure('select ' || statement), '\d{6,}', 'N')
  from (values
    ($$webhook.create_inbox_source('a b', 'v1', 'acme')$$),
    ($$webhook.create_inbox_source(null, 'v1', 'acme')$$),
    ($$webhook.create_inbox_source('a', null, 'acme')$$),
    ($$webhook.create_inbox_source('a', 'v7', 'acme')$$),
    ($$webhook.create_inbox_source('a', 'v1')$$),
    ($$webhook.create_inbox_source('a', 'v1', 'acme', 'body:/tenant')$$),
    ($$webhook.create_inbox_source('a', 'v1', '_x')$$),
    ($$webhook.create_inbox_source('a', 'github', partner_from => 'header:x-tenant')$$),
    ($$webhook.create_inbox_source('a', 'v1', partner_from => 'tenant')$$),
    ($$webhook.create_inbox_source('a', 'v1', partner_from => 'digest')$$),
    ($$webhook.create_inbox_source('a', 'v1', 'acme', id_from => 'body:')$$),
    ($$webhook.create_inbox_source('a', 'v1', 'acme', tolerance => '2 days')$$),
    ($$webhook.create_inbox_source('a', 'v1', 'acme', tolerance => '-1 s')$$),
    ($$webhook.create_inbox_source('a', 'v1', 'acme', validation => 'warn')$$),
    ($$webhook.create_inbox_source('a', 'v1', 'acme', max_body => 0)$$),
    ($$webhook.create_inbox_source('there', 'v1', 'acme')$$),
    ($$webhook.update_inbox_source('nowhere')$$),
    ($$webhook.update_inbox_source('there', max_pending => 0)$$),
    ($$webhook.add_inbox_key('nowhere')$$),
    ($$webhook.add_inbox_key('there', 'shh-do-not-say')$$),
    ($$webhook.revoke_inbox_key(1, 'why')$$),
    ($$webhook.create_inbox_handler('there')$$),
    ($$webhook.create_inbox_handler('a', retry_schedule => 'soon')$$),
    ($$webhook.create_inbox_handler('a', sources => '{nowhere}')$$),
    ($$webhook.create_inbox_handler('a', version => '')$$),
    ($$webhook.create_inbox_handler('a', event_types => '{}')$$),
    ($$webhook.update_inbox_handler('nowhere')$$),
    ($$webhook.pause_inbox('there', '')$$),
    ($$webhook.delete_inbox_handler('nowhere', 'why')$$),
    ($$webhook.claim_inbox('nowhere')$$),
    ($$webhook.claim_inbox('there', 0)$$),
    ($$webhook.claim_inbox('there', lease => '0')$$),
    ($$webhook.finish_inbox(1)$$),
    ($$webhook.finish_inbox(1, 'done')$$),
    ($$webhook.finish_inbox(null)$$),
    ($$webhook.retry_inbox('evt_x', 'there', 'why')$$),
    ($$webhook.retry_inbox('evt_x', 'there', '')$$),
    ($$webhook.receive('there', null, '')$$),
    ($$webhook.receive('there', '{"a": 1}', '')$$),
    ($$webhook.receive(null, '{}', '')$$)) as v (statement);
select webhook.create_inbox_source('public', 'v1a', 'acme');
select pg_temp.failure($$select webhook.add_inbox_key('public')$$);
set transaction read only;
select pg_temp.failure($$select webhook.receive('there', '{}', '')$$);
select pg_temp.failure($$select webhook.claim_inbox('there')$$);
rollback;

-- Whoever answers senders has no more than that.
begin;
create role regress_webhook_front;
create role regress_webhook_hand;
select webhook.grant_access('regress_webhook_front', 'receive');
select webhook.grant_access('regress_webhook_hand', 'handle');
select webhook.create_inbox_source('shop', 'github', 'acme', id_from => 'digest');
select count(*) from webhook.add_inbox_key('shop', 'shh');
select webhook.create_inbox_handler('books');
set local role regress_webhook_front;
select result, http_status from webhook.receive('shop', jsonb_build_object('X-Hub-Signature-256', 'sha256=' || encode(pg_temp.hmac('shh', '{}'), 'hex')), '{}');
select pg_temp.failure($$select webhook.claim_inbox('books')$$);
select pg_temp.failure($$select * from webhook.inbox$$);
select pg_temp.failure($$select * from webhook._inbox_key$$);
set local role regress_webhook_hand;
select event_id, convert_from(body, 'UTF8'), webhook.finish_inbox(claim_id) from webhook.claim_inbox('books');
select pg_temp.failure($$select webhook.receive('shop', '{}', '{}')$$);
select pg_temp.failure($$select webhook.add_inbox_key('shop')$$);
rollback;
