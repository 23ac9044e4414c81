-- Pausing and resuming: what is shown, what the request says, every refusal.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- Nothing is committed below: no leader carries it out.
begin;
select endpoint_id as hook from webhook.create_endpoint('acme', 'https://127.0.0.1/a', verify => 'none') \gset
select endpoint_id as off from webhook.create_endpoint('acme', 'https://127.0.0.1/b', verify => 'none') \gset
select webhook.disable_endpoint(:off, 'moved away');
create function pg_temp.masked(answer text) returns text language sql as
$$ select regexp_replace(answer, '\d{10,}', '<endpoint>', 'g') $$;

select webhook.pause('all', null, 'migration') > 0;
select webhook.pause('partner', 'acme', '  they asked ') > 0;
select webhook.pause('event_type', 'order.paid', 'wrong totals') > 0;
select webhook.pause('endpoint', :'hook', 'deploying') > 0;
select webhook.pause('partner', '_operator', 'night') > 0;
-- It may be meant, or be misspelt.
select webhook.pause('partner', 'acmee', 'they asked') > 0;
select scope, pg_temp.masked(target), reason, paused_by = session_user, paused_at <= clock_timestamp() from webhook.pauses order by scope, target collate "C";
select state, state_reason from webhook.endpoints where endpoint_id = :hook;
select generation from webhook._endpoint where endpoint_id = :hook;
select paused_by_scope, health from webhook.endpoint_health where endpoint_id in (:hook, :off) order by health;
select advice ~ 'paused' from webhook.status();
select verb, scope, pg_temp.masked(target), reason, state, event_id, endpoint_id = :hook, requested_by = session_user, finished_at
  from webhook.requests where requested_at >= now() order by requested_at;
select bool_and(r.xid = pg_current_xact_id()) from webhook._request r where r.requested_at >= now();
select verb, object_kind, pg_temp.masked(object_id), partner_id, before, after, reason, request_id in (select r.request_id from webhook.requests r)
  from webhook.audit_log where verb = 'pause' order by at;

-- Twice.
select pg_temp.failure($$select webhook.pause('all', null, 'again')$$);
select pg_temp.failure($$select webhook.pause('partner', 'acme', 'again')$$);
select pg_temp.failure($$select webhook.pause('event_type', 'order.paid', 'again')$$);
select pg_temp.masked(pg_temp.failure(format($$select webhook.pause('endpoint', '%s', 'again')$$, :hook)));
select pg_temp.masked(pg_temp.failure(format($$select webhook.pause('endpoint', '%s', 'again')$$, :off)));

-- Going on; each pause ends by itself.
select webhook.resume('all') > 0;
select webhook.resume('partner', 'acme', 'they said so') > 0;
select webhook.resume('event_type', 'order.paid', reason => 'mended') > 0;
select webhook.resume('endpoint', :'hook', 'deployed') > 0;
select scope, target from webhook.pauses order by scope, target;
select state, state_reason from webhook.endpoints where endpoint_id = :hook;
select generation from webhook._endpoint where endpoint_id = :hook;
select scope, target, paused, reason from webhook._pause order by scope, target;
select verb, scope, pg_temp.masked(target), reason, state from webhook.requests where requested_at >= now() and verb = 'resume' order by requested_at;
select object_kind, pg_temp.masked(object_id), partner_id, before, after, reason from webhook.audit_log where verb = 'resume' order by at;
select pg_temp.failure($$select webhook.resume('all')$$);
select pg_temp.failure($$select webhook.resume('partner', 'acme')$$);
select pg_temp.failure($$select webhook.resume('event_type', 'order.lost')$$);
select pg_temp.masked(pg_temp.failure(format($$select webhook.resume('endpoint', '%s')$$, :hook)));
select pg_temp.masked(pg_temp.failure(format($$select webhook.resume('endpoint', '%s')$$, :off)));
-- And once more.
select webhook.pause('partner', 'acme', 'they asked again') > 0;
select reason from webhook.pauses where target = 'acme';

-- NULL where it makes no sense.
select pg_temp.failure($$select webhook.pause(null, null, 'x')$$);
select pg_temp.failure($$select webhook.pause('partner', null, 'x')$$);
select pg_temp.failure($$select webhook.pause('event_type', null, 'x')$$);
select pg_temp.failure($$select webhook.pause('endpoint', null, 'x')$$);
select pg_temp.failure($$select webhook.pause('all', null, null)$$);
select pg_temp.failure($$select webhook.resume(null)$$);
select pg_temp.failure($$select webhook.resume('partner')$$);

-- Arguments.
select pg_temp.failure($$select webhook.pause('universe', 'x', 'x')$$);
select pg_temp.failure($$select webhook.resume('universe')$$);
select pg_temp.failure($$select webhook.pause('all', 'acme', 'x')$$);
select pg_temp.failure($$select webhook.pause('partner', 'ac me', 'x')$$);
select pg_temp.failure($$select webhook.pause('partner', '_other', 'x')$$);
select pg_temp.failure($$select webhook.pause('event_type', 'order.*', 'x')$$);
select pg_temp.failure($$select webhook.pause('endpoint', 'one', 'x')$$);
select pg_temp.failure($$select webhook.pause('endpoint', '0', 'x')$$);
select pg_temp.failure($$select webhook.pause('endpoint', '9223372036854775808', 'x')$$);
select pg_temp.failure($$select webhook.pause('endpoint', '1', 'x')$$);
select pg_temp.failure($$select webhook.resume('endpoint', '1')$$);
select pg_temp.failure($$select webhook.pause('partner', 'rival', ' ')$$);
select pg_temp.failure($$select webhook.resume('partner', 'acme', '')$$);
select webhook.delete_endpoint(:off, 'over');
select pg_temp.masked(pg_temp.failure(format($$select webhook.pause('endpoint', '%s', 'x')$$, :off)));
rollback;

-- Sessions that cannot write.
begin read only;
select pg_temp.failure($$select webhook.pause('all', null, 'x')$$);
select pg_temp.failure($$select webhook.resume('all')$$);
rollback;
