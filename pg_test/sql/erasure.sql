-- Erasing payloads: what is refused, what goes, and what stays. Nothing is committed: no leader acts on it.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql
create function pg_temp.masked(message text) returns text language sql as $$ select regexp_replace(message, 'evt_[0-9A-Z]{26}', '<event>', 'g') $$;

-- What makes no sense.
select pg_temp.failure($$select webhook.expunge(null, event_id => 'evt_1')$$);
select pg_temp.failure($$select webhook.expunge('  ', event_id => 'evt_1')$$);
select pg_temp.failure($$select webhook.expunge('asked for')$$);
select pg_temp.failure($$select webhook.expunge('asked for', event_id => 'evt_1', subject_type => 'customer', subject_id => '7')$$);
select pg_temp.failure($$select webhook.expunge('asked for', event_id => 'evt_1', partner_id => 'acme')$$);
select pg_temp.failure($$select webhook.expunge('asked for', subject_type => 'customer')$$);
select pg_temp.failure($$select webhook.expunge('asked for', partner_id => 'acme', subject_id => '7')$$);
select pg_temp.failure($$select webhook.expunge('asked for', event_id => 'evt_1')$$);
select pg_temp.failure($$select webhook.expunge('asked for', partner_id => 'a b')$$);
select pg_temp.failure($$select webhook.confirm_erasure(null)$$);
select pg_temp.failure($$select webhook.confirm_erasure(4711)$$);
begin read only;
select pg_temp.failure($$select webhook.expunge('asked for', event_id => 'evt_1')$$);
select pg_temp.failure($$select webhook.confirm_erasure(4711)$$);
rollback;

begin;
select endpoint_id as hook from webhook.create_endpoint('regress.erasure', 'https://127.0.0.1/', verify => 'none') \gset
select webhook.emit('customer.updated', 'regress.erasure', '{"name": "Ada"}', subject_type => 'customer', subject_id => '7') as one,
       webhook.emit('customer.deleted', 'regress.erasure', '{"name": "Ada"}', subject_type => 'customer', subject_id => '7') as two,
       webhook.emit('customer.updated', 'regress.erasure', '{"name": "Bob"}', subject_type => 'customer', subject_id => '8') as three,
       webhook.emit('customer.updated', 'regress.other', '{"name": "Ada"}', subject_type => 'customer', subject_id => '7') as four \gset
insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision) values (:hook, :'one', 'delivered', 1, 0, 1);
insert into webhook._excerpt (endpoint_id, event_id, attempt_no, body) values (:hook, :'one', 1, 'Hello Ada');
create temp view state as
  select case e.event_id when :'one' then 1 when :'two' then 2 when :'three' then 3 when :'four' then 4 end as event, e.data_bytes, t.body_sha256, t.reason, t.erasure_id is not null as erasure
    from webhook.events e left join webhook.tombstones t using (event_id) where e.event_id in (:'one', :'two', :'three', :'four') order by 1;
savepoint healthy;
-- An event.
select webhook.expunge('asked for', event_id => :'one') as erasure \gset
select * from state;
select item, erased, remaining from webhook.confirm_erasure(:erasure);
select scope, event_id = :'one', partner_id, reason, erased, confirmed_at is null from webhook.erasures where erasure_id = :erasure;
-- The leader has looked.
update webhook._tombstone set swept = true;
select item, remaining from webhook.confirm_erasure(:erasure);
select confirmed_at is not null, confirmed_by = session_user, evidence from webhook.erasures where erasure_id = :erasure;
select count(*) from webhook._excerpt where event_id = :'one';
select state from webhook.deliveries where event_id = :'one';
select pg_temp.masked(pg_temp.failure(format('select webhook.replay(%L)', :'one')));
select verb, object_kind, object_id = :'one' as this_event, partner_id, after - 'erasure_id' as after, reason from webhook.audit_log where verb in ('expunge', 'confirm_erasure') order by audit_id;
-- Once more is no mistake.
select webhook.expunge('asked again', event_id => :'one') as again \gset
select erased from webhook.erasures where erasure_id = :again;
rollback to healthy;
-- A subject, wherever it is known.
insert into webhook._observation (partner_id, metric, subject_type, subject_id, value, observation) values ('regress.erasure', 'balance', 'customer', '7', 12, 1), ('regress.erasure', 'balance', 'customer', '8', 12, 1);
select webhook.expunge('asked for', subject_type => 'customer', subject_id => '7') as erasure \gset
select * from state;
select subject_id from webhook._observation where partner_id = 'regress.erasure';
select scope, subject_type, subject_id, erased from webhook.erasures where erasure_id = :erasure;
select object_kind, object_id from webhook.audit_log where verb = 'expunge';
rollback to healthy;
-- The same of one partner.
select webhook.expunge('asked for', partner_id => 'regress.erasure', subject_type => 'customer', subject_id => '7') > 0;
select event, data_bytes from state;
rollback to healthy;
-- A partner.
select webhook.expunge('asked for', partner_id => 'regress.erasure') as erasure \gset
select event, data_bytes from state;
-- What came after it is not part of it; what was missed is found.
select webhook.emit('customer.updated', 'regress.erasure', '{"name": "Ada"}') is not null;
update webhook._tombstone set swept = true;
select item, remaining from webhook.confirm_erasure(:erasure) where remaining > 0;
update webhook._event set body = '1' where event_id = :'one';
insert into webhook._excerpt (endpoint_id, event_id, attempt_no, body) values (:hook, :'one', 2, 'Hello Ada');
select item, remaining from webhook.confirm_erasure(:erasure) where remaining > 0;
rollback;

-- What others sent has ids of its own: it is found by whom it is about, and nobody else's goes with it.
begin;
insert into webhook._inbox_source (source_id, name, profile, partner_id, tolerance, validation, same_body, max_body, max_pending)
values (77, 'regress.erasure', 'v1', 'regress.erasure', '5 min', 'off', true, 1, 1);
insert into webhook._inbox (inbox_id, source_id, event_id, partner_id, subject_type, subject_id, bytes, body, received_at)
select n, 77, 'in-' || n, partner, kind, subject, 12, 'confidential', now() - interval '1 minute'
  from (values (1, 'regress.erasure', 'customer', '77'), (2, 'regress.erasure', 'customer', '78'), (3, 'regress.rival', 'customer', '77')) as v (n, partner, kind, subject);
select webhook.expunge('asked for', partner_id => 'regress.erasure', subject_type => 'customer', subject_id => '77') as erasure \gset
select event_id, body is null, expunged_at is not null, subject_id from webhook._inbox where source_id = 77 order by 1;
select item, erased, remaining from webhook.confirm_erasure(:erasure) where item = 'received';
select webhook.expunge('asked for', partner_id => 'regress.erasure') as erasure \gset
select event_id, body is null from webhook._inbox where source_id = 77 order by 1;
select item, erased, remaining from webhook.confirm_erasure(:erasure) where item = 'received';
rollback;

-- An event that was only received. Senders choose their ids: two tenants may have chosen the same.
begin;
insert into webhook._inbox_source (source_id, name, profile, partner_from, tolerance, validation, same_body, max_body, max_pending)
values (77, 'regress.erasure', 'v1', 'body:/tenant', '5 min', 'off', true, 1, 1);
insert into webhook._inbox (inbox_id, source_id, event_id, partner_id, bytes, body, received_at)
select n, 77, event, partner, 12, 'confidential', now() - interval '1 minute'
  from (values (1, 'in-1', 'regress.erasure'), (2, 'in-1', 'regress.rival'), (3, 'in-2', 'regress.erasure')) as v (n, event, partner);
select webhook.expunge('asked for', event_id => 'in-2') as erasure \gset
select inbox_id, body is null from webhook._inbox where source_id = 77 order by 1;
select item, erased, remaining from webhook.confirm_erasure(:erasure) where item = 'received';
select scope, partner_id, erased, evidence is not null from webhook.erasures where erasure_id = :erasure;
select object_kind, object_id, partner_id from webhook.audit_log where verb = 'expunge';
select pg_temp.failure($$select webhook.expunge('asked for', event_id => 'in-1')$$);
select pg_temp.failure($$select webhook.expunge('asked for', event_id => 'in-1', partner_id => 'regress.other')$$);
select webhook.expunge('asked for', event_id => 'in-1', partner_id => 'regress.rival') as erasure \gset
select inbox_id, body is null from webhook._inbox where source_id = 77 order by 1;
select item, erased, remaining from webhook.confirm_erasure(:erasure) where item = 'received';
-- What comes behind its back is found.
update webhook._inbox set body = 'confidential', expunged_at = null where inbox_id = 2;
select item, remaining from webhook.confirm_erasure(:erasure) where item = 'received';
rollback;

-- However much was received, it is found by indexes.
begin;
insert into webhook._inbox_source (source_id, name, profile, partner_from, tolerance, validation, same_body, max_body, max_pending)
values (77, 'regress.erasure', 'v1', 'body:/tenant', '5 min', 'off', true, 1, 1);
insert into webhook._inbox (inbox_id, source_id, event_id, partner_id, subject_type, subject_id, bytes, body, received_at)
select n, 77, 'in-' || n, 'p' || n % 1000, 'customer', n / 10, 1, 'x', now() - n * interval '1 second' from generate_series(1, 100000) as n;
analyze webhook._inbox;
create temp view walks as select pg_stat_get_xact_numscans('webhook._inbox'::regclass) as n, pg_stat_get_xact_tuples_returned('webhook._inbox'::regclass) as rows;
select n as walks, rows as rows from walks \gset
select cardinality(webhook._received_of('in-7', null, null, null)), cardinality(webhook._received_of(null, 'p7', null, null)),
       cardinality(webhook._received_of(null, null, 'customer', '7')), cardinality(webhook._received_of(null, 'p7', 'customer', '0'));
select n - :walks as walks, rows - :rows as rows from walks;
-- A walk through all of it would show.
select count(*) from webhook._inbox where bytes = 2;
select n > :walks as walks, rows > :rows as rows from walks;
rollback;
