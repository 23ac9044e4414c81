-- Adopting: what is refused, what changes hands at once, what the audit log and the views say.
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
  return replace(concat_ws(E'\n', sqlstate || ' ' || message, nullif(detail, ''), nullif(hint, '')), webhook._origin()::text, '<own>');
end
$$;

-- Nothing to adopt, and nothing that is fenced.
select count(*) from webhook.adoptions;
select count(*) from webhook.stat_fenced;
select other_origins, foreign_events, inert_endpoints, running_adoptions from webhook.stat_queue;
select pg_temp.failure($$select webhook.adopt(null, 'send', 'x')$$);
select pg_temp.failure($$select webhook.adopt(4711, null, 'x')$$);
select pg_temp.failure($$select webhook.adopt(4711, 'send', null)$$);
select pg_temp.failure($$select webhook.adopt(4711, 'send', ' ')$$);
select pg_temp.failure($$select webhook.adopt(4711, 'sent', 'x')$$);
select pg_temp.failure($$select webhook.adopt(4711, 'send', 'x')$$);
select pg_temp.failure($$select webhook.adopt(webhook._origin(), 'send', 'x')$$);

-- As if it had come with a copy. Nothing is committed below: no leader carries it out.
begin;
insert into webhook._seal_key (key_id, origin, key) values (1, 4711, '\x00'), (2, 4712, '\x00');
select endpoint_id as hook from webhook.create_endpoint('acme', 'https://127.0.0.1/a', verify => 'none') \gset
select endpoint_id as other from webhook.create_endpoint('acme', 'https://127.0.0.1/b', verify => 'none') \gset
select webhook.emit('order.paid', 'acme', '{}') as event \gset
update webhook._endpoint set origin = 4711, created_xid = '77', created_snapshot = '77:78:' where endpoint_id = :hook;
update webhook._endpoint set origin = 4712 where endpoint_id = :other;
update webhook._event set origin = 4711 where event_id = :'event';
insert into webhook._endpoint_state (endpoint_id, generation, state, reason, changed_at)
select e.endpoint_id, e.generation, 'disabled', 'gone', now() from webhook._endpoint e where e.endpoint_id = :hook;
select origin, reason, events, endpoints, oldest_at = newest_at from webhook.stat_fenced order by origin;
select other_origins, foreign_events, inert_endpoints from webhook.stat_queue;
select advice ~ 'use webhook.adopt', foreign_events from webhook.status();
select inert, state from webhook.endpoints where endpoint_id = :hook;
select replace(pg_temp.failure(format('select webhook.replay(%L)', :'event')), :'event', '<event>');

select webhook.adopt(4711, 'skip', ' the old one burnt down ') as request \gset
-- What the leader had found stays in force, and what it was found by does not.
select inert, state, state_reason from webhook.endpoints where endpoint_id = :hook;
select generation, created_xid = pg_current_xact_id(), changed_xid = pg_current_xact_id(), created_snapshot::text <> '77:78:'
  from webhook._endpoint where endpoint_id = :hook;
select endpoint_id = :hook, origin, created_xid, created_snapshot from webhook._adopted_endpoint;
select inert from webhook.endpoints where endpoint_id = :other;
select request_id = :request, origin, mode, state, reason, endpoints, events, started_at, finished_at from webhook.adoptions;
select verb, state, target, reason from webhook.requests where request_id = :request;
select verb, object_kind, object_id, after, reason, request_id = :request from webhook.audit_log where verb = 'adopt';
select origin, reason, events, endpoints from webhook.stat_fenced;
select running_adoptions, other_origins from webhook.stat_queue;
select advice ~ 'being adopted' from webhook.status();
-- Until what was to be sent is settled, old events stay fenced.
select fenced from webhook.events where event_id = :'event';
select replace(pg_temp.failure($$select webhook.adopt(4711, 'send', 'x')$$), :'request', '<request>');
-- Another origin is another matter.
select webhook.adopt(4712, 'send', 'x') > :request;

-- Finished: old events may be asked for, and the origin may be adopted once more.
insert into webhook._adoption_progress (request_id, state, reached, feed_to, feed_tail, last_pos, events, finished_at)
values (:request, 'done', :'event', 0, 0, 0, 1, now());
select state, events, reached_at = webhook._event_time(:'event'), finished_at = now() from webhook.adoptions where request_id = :request;
select fenced from webhook.events where event_id = :'event';
select webhook.adopt(4711, 'send', 'what came since') > :request;
-- By another database: it means nothing here.
update webhook._adoption set adopter = 4712;
select origin, mode, state from webhook.adoptions order by request_id;
select fenced from webhook.events where event_id = :'event';
select origin, endpoints from webhook.stat_fenced;
rollback;

begin read only;
select pg_temp.failure($$select webhook.adopt(4711, 'send', 'x')$$);
rollback;
