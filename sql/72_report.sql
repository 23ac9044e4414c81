-- Fit for production? One row for each thing that is looked at, with what was found and what to do.
-- It says what is, in one statement, and writes nothing: that the whole chain works can only be seen by sending through
-- it, which takes several transactions and a receiver. examples/acceptance does that, and begins with this report.
-- Reads the public views with the rights of its caller; keeps nothing.

create function webhook.report()
returns table (
  area text,   -- what it belongs to: worker, queue, endpoints, catalogue, boundary, retention, server
  item text,   -- what was looked at
  result text, -- ok, note, warning or fault
  detail text, -- what was found
  hint text    -- what to do about it; null = nothing
)
language sql volatile parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
  with worker as materialized (select w.* from webhook.stat_worker w),
  queue as materialized (select q.* from webhook.stat_queue q),
  endpoint as materialized (
    select count(*) filter (where p.state = 'active' and not p.test) as live,
           count(*) filter (where p.state = 'active' and p.test) as test,
           count(*) filter (where p.state = 'active' and p.verified_by = 'none') as vouched,
           count(*) filter (where p.state in ('unverified', 'paused', 'disabled', 'expired')) as resting
      from webhook.endpoints p),
  health as materialized (
    select count(*) filter (where h.health in ('failing', 'down')) as ill,
           count(*) filter (where h.disable_at < clock_timestamp() + interval '2 days') as ending
      from webhook.endpoint_health h),
  alert as materialized (
    select count(*) filter (where a.severity = 'critical') as critical,
           count(*) filter (where a.severity = 'warning') as warning
      from webhook.alerts a
     -- By the id, which has an index and sorts by time.
     where a.alert_id >= webhook._pos_bound(clock_timestamp() - interval '1 day')),
  kept as materialized (
    select webhook._kept_for('webhook.event_retention', '90 days') as event,
           webhook._kept_for('webhook.inbox_retention', '120 days') as inbox,
           -- Partitions are named by their day.
           (select max(substr(c.relname, 8)) from pg_class c where c.relnamespace = 'webhook'::regnamespace and c.relname ~ '^_event_[0-9]{8}$') as last_day,
           (select webhook._event_time(e.event_id) from webhook.events e order by e.event_id desc limit 1) as newest),
  setting as materialized (
    select s.name, coalesce(current_setting(s.setting, true), '') as value
      from (values
        ('http', 'webhook.allow_http'), ('networks', 'webhook.allow_networks'), ('ports', 'webhook.allowed_ports'),
        ('schedule', 'webhook.retry_schedule'), ('validation', 'webhook.validation'), ('slots', 'webhook.max_in_flight'),
        ('fsync', 'fsync'), ('pages', 'full_page_writes')) as s (name, setting)),
  schedule as materialized (
    select count(*) as waits, coalesce(sum(w.wait::interval), '0') as over
      from setting s
     cross join lateral string_to_table(s.value, ',') as w (wait)
     where s.name = 'schedule' and w.wait <> ''),
  looked (n, area, item, result, detail, hint) as (
    select 1, 'worker', 'leader',
           case w.state when 'running' then 'ok' when 'standby' then 'note' else 'fault' end, w.detail, w.hint
      from worker w
     union all
    select 2, 'worker', 'loop',
           case when w.last_loop_at < clock_timestamp() - interval '1 minute' then 'fault' else 'ok' end,
           format('Its loop last came round %s s ago.', round(extract(epoch from clock_timestamp() - w.last_loop_at), 1)),
           case when w.last_loop_at < clock_timestamp() - interval '1 minute'
             then 'It hangs: end it with pg_terminate_backend, another one starts within a second.' end
      from worker w
     where w.state = 'running'
     union all
    select 3, 'worker', 'version',
           case when w.library_version = w.extension_version then 'ok' else 'fault' end,
           format('Library %s, extension %s.', w.library_version, w.extension_version),
           case when w.library_version <> w.extension_version
             then 'ALTER EXTENSION webhook_outbox UPDATE, or restart the server after installing the library.' end
      from worker w
     union all
    select 4, 'worker', 'errors', case when w.last_error is null then 'ok' else 'warning' end,
           coalesce('Last error of the leader: ' || w.last_error, 'The leader has had no error of its own.'),
           case when w.last_error is not null then 'See the server log.' end
      from worker w
     union all
    select 5, 'queue', 'outbox', case when q.oldest_unread_age > interval '1 minute' then 'fault' else 'ok' end,
           format('%s events are committed and not read.', q.unread_events),
           case when q.oldest_unread_age > interval '1 minute' then 'The leader is behind: see webhook.stat_worker and the server log.' end
      from queue q
     union all
    select 6, 'queue', 'due', case when q.due > 0 and q.next_due_at < clock_timestamp() - interval '5 minutes' then 'warning' else 'ok' end,
           format('%s deliveries may be sent now, %s wait for their time, %s are held.', q.due, q.waiting, q.held),
           case when q.due > 0 and q.next_due_at < clock_timestamp() - interval '5 minutes'
             then 'Some have waited for over five minutes: see webhook.stat_endpoint, and webhook.max_in_flight if all slots are taken.' end
      from queue q
     union all
    select 7, 'queue', 'slots', case when q.in_flight >= s.value::integer then 'warning' else 'ok' end,
           format('%s requests are on the wire; %s may be.', q.in_flight, s.value),
           case when q.in_flight >= s.value::integer then 'All are taken: raise webhook.max_in_flight, or find who is slow in webhook.stat_endpoint.' end
      from queue q
      join setting s on s.name = 'slots' and s.value <> ''
     union all
    select 8, 'queue', 'requests', case when r.old > 0 then 'warning' else 'ok' end,
           format('%s requests of operators wait for the leader.', r.pending),
           case when r.old > 0 then 'Some have waited for over a minute: see webhook.requests.' end
      from (select count(*) as pending, count(*) filter (where r.requested_at < clock_timestamp() - interval '1 minute') as old
              from webhook.requests r
             where r.state = 'pending') as r
     union all
    select 9, 'queue', 'dead letters', case when q.dead > 0 then 'warning' else 'ok' end,
           format('%s deliveries wait for a decision.', q.dead),
           case when q.dead > 0 then 'See webhook.dead_letters; mend the cause, then webhook.retry, webhook.skip or webhook.close.' end
      from queue q
     union all
    select 9, 'queue', 'inbox backlog', case when b.dead > 0 then 'warning' else 'ok' end,
           format('%s received events wait for handlers, %s were given up.', b.pending, b.dead),
           case when b.dead > 0 then 'See webhook.inbox; mend the handler, then webhook.retry_inbox or webhook.close_inbox.' end
      from webhook._inbox_backlog() as b
     union all
    select 10, 'queue', 'pauses', case when p.paused > 0 then 'warning' else 'ok' end,
           format('%s pauses are in force.', p.paused),
           case when p.paused > 0 then 'See webhook.pauses.' end
      from (select count(*) as paused from webhook.pauses p) as p
     union all
    select 11, 'queue', 'fenced', case when q.fenced > 0 then 'fault' else 'ok' end,
           format('%s events were changed after the emit and are not sent.', q.fenced),
           case when q.fenced > 0 then 'See webhook.events where fenced = ''seal'', and find out who did it.' end
      from queue q
     union all
    select 12, 'queue', 'copies', case when q.other_origins > 0 then 'warning' else 'ok' end,
           format('%s other databases have events here, %s of their endpoints do nothing.', q.other_origins, q.inert_endpoints),
           case when q.other_origins > 0 then 'See webhook.stat_fenced; if this database takes the other one''s place, webhook.adopt.' end
      from queue q
     union all
    select 13, 'endpoints', 'in service', case when p.live = 0 then 'note' else 'ok' end,
           format('%s for live events, %s for test events.', p.live, p.test),
           case when p.live = 0 then 'Nobody gets live events yet.' end
      from endpoint p
     union all
    select 14, 'endpoints', 'proof', case when p.vouched > 0 then 'note' else 'ok' end,
           format('%s are in service because somebody vouched for them.', p.vouched),
           case when p.vouched > 0 then 'webhook.verify_endpoint has them challenged.' end
      from endpoint p
     union all
    select 15, 'endpoints', 'out of service', case when p.resting > 0 then 'note' else 'ok' end,
           format('%s are unverified, paused, disabled or expired.', p.resting), null
      from endpoint p
     union all
    select 16, 'endpoints', 'health', case when h.ill > 0 then 'warning' else 'ok' end,
           format('%s fail or are only probed; %s are disabled within two days if that goes on.', h.ill, h.ending),
           case when h.ill > 0 then 'See webhook.endpoint_health, and ask their partners.' end
      from health h
     union all
    select 17, 'endpoints', 'alerts', case when a.critical + a.warning > 0 then 'warning' else 'ok' end,
           format('%s critical ones and %s warnings in the last day.', a.critical, a.warning),
           case when a.critical + a.warning > 0 then 'See webhook.alerts.' end
      from alert a
     union all
    select 18, 'catalogue', 'event types', case when t.incomplete > 0 then 'note' else 'ok' end,
           format('%s are registered, %s of them lack something.', t.registered, t.incomplete),
           case when t.incomplete > 0 then 'See the column missing of webhook.event_types.' end
      from (select count(*) as registered, count(*) filter (where cardinality(t.missing) > 0) as incomplete
              from webhook.event_types t) as t
     union all
    select 19, 'catalogue', 'validation', case when s.value = 'enforce' then 'ok' else 'note' end,
           format('webhook.validation is %s.', s.value),
           case when s.value <> 'enforce' then 'A payload that breaks its schema is sent, unless its version says mode = enforce.' end
      from setting s
     where s.name = 'validation' and s.value <> ''
     union all
    select 20, 'boundary', 'plain http', case when s.value = 'on' then 'warning' else 'ok' end,
           format('webhook.allow_http is %s.', s.value),
           case when s.value = 'on' then 'This is for tests: what is sent can be read on the way.' end
      from setting s
     where s.name = 'http' and s.value <> ''
     union all
    select 21, 'boundary', 'networks', case when s.value = '' then 'ok' else 'warning' end,
           case when s.value = '' then 'No network is excepted from the built-in list.' else format('webhook.allow_networks is %s.', s.value) end,
           case when s.value <> '' then 'Callbacks may lead there. Keep it as small as can be; loopback is for tests.' end
      from setting s
     where s.name = 'networks'
     union all
    select 22, 'boundary', 'ports', case when s.value = '*' then 'warning' else 'ok' end,
           format('webhook.allowed_ports is %s.', s.value),
           case when s.value = '*' then 'This is for tests: name the ports.' end
      from setting s
     where s.name = 'ports' and s.value <> ''
     union all
    select 23, 'boundary', 'keys at rest', case when webhook._keys_in_clear() then 'warning' else 'ok' end,
           case when webhook._keys_in_clear() then 'Keys are stored in clear.' else 'Every key is stored encrypted.' end,
           case when webhook._keys_in_clear() then 'Set webhook.master_key_file and call webhook.reencrypt_secrets().' end
     union all
    select 24, 'boundary', 'retries', case when s.over < interval '1 day' then 'warning' else 'ok' end,
           format('%s waits over %s.', s.waits, s.over),
           case when s.over < interval '1 day' then 'A receiver that is down for a night loses events to the dead letters: lengthen webhook.retry_schedule.' end
      from schedule s
     union all
    select 25, 'retention', 'partitions',
           case when k.last_day is null then 'note' when k.last_day >= to_char(clock_timestamp() + interval '2 days', 'YYYYMMDD') then 'ok' else 'warning' end,
           case when k.last_day is null then 'There are none before the first event.' else format('The last one made ahead is that of %s.', to_date(k.last_day, 'YYYYMMDD')) end,
           case when k.last_day < to_char(clock_timestamp() + interval '2 days', 'YYYYMMDD')
             then 'The leader makes them 30 days ahead: see webhook.stat_worker.' end
      from kept k
     union all
    select 26, 'retention', 'inbox', case when k.inbox <= k.event or k.event is null and k.inbox is not null then 'warning' else 'ok' end,
           format('Events are kept for %s, received ids for %s.', coalesce(k.event::text, 'ever'), coalesce(k.inbox::text, 'ever')),
           case when k.inbox <= k.event or k.event is null and k.inbox is not null then 'A sender like this one may repeat what the inbox has forgotten: lengthen webhook.inbox_retention.' end
      from kept k
     union all
    select 27, 'retention', 'reconciliation', case when f.open > 0 then 'warning' else 'ok' end,
           format('%s findings are open.', f.open),
           case when f.open > 0 then 'See webhook.reconciliation where repaired_at is null.' end
      from (select count(*) as open from webhook.reconciliation f where f.repaired_at is null) as f
     union all
    select 28, 'server', 'clock', case when k.newest > clock_timestamp() + interval '1 second' or w.last_loop_at > clock_timestamp() + interval '1 second' then 'fault' else 'ok' end,
           case when k.newest > clock_timestamp() + interval '1 second' or w.last_loop_at > clock_timestamp() + interval '1 second'
             then 'The clock was set back: there are events of the future.' else 'No event is of the future.' end,
           case when k.newest > clock_timestamp() + interval '1 second' or w.last_loop_at > clock_timestamp() + interval '1 second'
             then 'Find out why; receivers refuse timestamps that are far from their own clock.' end
      from kept k
     cross join worker w
     union all
    select 29, 'server', 'durability', case when s.unsafe is null then 'ok' else 'warning' end,
           coalesce(s.unsafe || ' is off.', 'fsync and full_page_writes are on.'),
           case when s.unsafe is not null then 'This is for tests: a crash of the machine loses what was committed.' end
      from (select string_agg(case s.name when 'pages' then 'full_page_writes' else s.name end, ', ' order by s.name) filter (where s.value = 'off') as unsafe
              from setting s
             where s.name in ('fsync', 'pages')) as s
     union all
    select 30, 'server', 'foreign code', case when c.names is null then 'ok' else 'warning' end,
           coalesce(c.names || '.', 'Nothing but the extension''s own hangs on its tables.'),
           case when c.names is not null then 'It runs in emit or is able to stop it: drop it unless you know why it is there.' end
      from (select nullif(array_to_string(webhook._foreign_code(), ', '), '') as names) as c)
  select l.area, l.item, l.result, l.detail, l.hint
    from looked l
   order by l.n, l.item
$$;
comment on function webhook.report() is
  'What an acceptance looks at, one row each, with what to do; no row with the result fault = fit. Says what is; that the chain works shows make acceptance. Costs what stat_queue, endpoint_health and a look at the alerts of a day cost.';
