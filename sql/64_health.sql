-- How endpoints do: what the leader found out about each, and what waits for it.
-- The leader writes its findings now and then, not with every attempt; seen_at says how old they are.

create view webhook.endpoint_health as
select e.endpoint_id,
       e.partner_id,
       e.state,
       case
         when e.state in ('disabled', 'expired', 'deleted') then 'closed'
         when e.state in ('paused', 'unverified') then 'held'
         when s.last_success_at is null and s.last_failure_at is null then 'unknown'
         when s.adaptive_window < 1 then 'down'
         when s.failures > 0 then 'failing'
         else 'healthy'
       end as health,
       s.adaptive_window,
       s.probe_at,
       s.failing_since,
       s.failures,
       s.warned_at,
       s.failing_since + coalesce(
         own.disable_after,
         (select d.disable_after from webhook._policy d where d.name = 'default'),
         current_setting('webhook.disable_after', true)::interval) as disable_at,
       s.last_success_at,
       s.last_failure_at,
       s.last_status,
       s.last_error_category,
       nullif(array_remove(array[
         case when exists (select from webhook._pause p where p.scope = 'partner' and p.target = e.partner_id and p.paused) then 'partner' end,
         case when exists (select from webhook._pause p where p.scope = 'all' and p.paused) then 'all' end], null), '{}') as paused_by_scope,
       s.seen_at
  from webhook._endpoint n
  join webhook._seen_endpoint e on e.endpoint_id = n.endpoint_id
  left join webhook._policy own on own.name = n.policy
  left join webhook._endpoint_state s on s.endpoint_id = n.endpoint_id and s.generation = n.generation;
comment on view webhook.endpoint_health is
  'How each endpoint answers. What was found before a new URL or a change of state does not count. Fast by endpoint_id.';
comment on column webhook.endpoint_health.endpoint_id is 'The endpoint.';
comment on column webhook.endpoint_health.partner_id is 'Tenant that owns it.';
comment on column webhook.endpoint_health.state is 'State in force.';
comment on column webhook.endpoint_health.health is
  'unknown (no attempt yet), healthy, failing (failures since the last success), down (nothing but probes is sent), held (paused or unverified), closed.';
comment on column webhook.endpoint_health.adaptive_window is 'Concurrent requests that it stands, as far as its answers tell; 0 = shut, only probes are sent.';
comment on column webhook.endpoint_health.probe_at is 'When the next probe of a shut endpoint may be sent.';
comment on column webhook.endpoint_health.failing_since is 'First failure since the last success; null = the last attempt succeeded.';
comment on column webhook.endpoint_health.failures is 'Failed attempts since the last success.';
comment on column webhook.endpoint_health.warned_at is 'When its owner was warned of them.';
comment on column webhook.endpoint_health.disable_at is 'When it will be disabled at the earliest, if nothing succeeds; null = it is not failing.';
comment on column webhook.endpoint_health.last_success_at is 'When the last 2xx arrived.';
comment on column webhook.endpoint_health.last_failure_at is 'When the last attempt failed.';
comment on column webhook.endpoint_health.last_status is 'HTTP status of the latest attempt; null when there was none.';
comment on column webhook.endpoint_health.last_error_category is 'Why the last failed attempt failed.';
comment on column webhook.endpoint_health.paused_by_scope is 'Pauses that hold it although it is active itself: partner, all; null = none.';
comment on column webhook.endpoint_health.seen_at is 'When the leader last wrote what it knows; null = never.';

create view webhook.stat_endpoint as
select e.endpoint_id,
       e.partner_id,
       coalesce(c.delivered, 0) as delivered,
       coalesce(c.failed, 0) as failed,
       round(c.delivered::numeric / nullif(c.delivered + c.failed, 0), 4) as success_rate,
       case when c.generation = e.generation then c.latency_ms end as latency_ms,
       q.due,
       q.waiting,
       (select count(*)
          from webhook._due w
         where w.endpoint_id = e.endpoint_id
           and w.hold <> 0) as held,
       q.oldest_due_at,
       (select count(*)
          from webhook._delivery d
         where d.endpoint_id = e.endpoint_id
           and d.state = 'dead') as dead,
       case when c.generation = e.generation then c.last_success_at end as last_success_at,
       case when c.generation = e.generation then c.last_failure_at end as last_failure_at
  from webhook._endpoint e
  left join webhook._endpoint_state c on c.endpoint_id = e.endpoint_id
 cross join lateral
       (select count(*) filter (where w.next_attempt_at <= clock_timestamp()) as due,
               count(*) filter (where w.next_attempt_at > clock_timestamp()) as waiting,
               min(w.next_attempt_at) filter (where w.next_attempt_at <= clock_timestamp()) as oldest_due_at
          from webhook._due w
         where w.endpoint_id = e.endpoint_id
           and w.hold = 0) as q;
comment on view webhook.stat_endpoint is
  'Counters of each endpoint. Cost grows with what waits for the endpoints and with their dead letters, and with endpoints times partitions; fast by endpoint_id.';
comment on column webhook.stat_endpoint.endpoint_id is 'The endpoint.';
comment on column webhook.stat_endpoint.partner_id is 'Tenant that owns it.';
comment on column webhook.stat_endpoint.delivered is 'Attempts answered with 2xx since the endpoint exists.';
comment on column webhook.stat_endpoint.failed is 'Attempts that failed since the endpoint exists.';
comment on column webhook.stat_endpoint.success_rate is 'Share of attempts that succeeded, 0 to 1; null before the first one.';
comment on column webhook.stat_endpoint.latency_ms is 'Smoothed milliseconds of an attempt.';
comment on column webhook.stat_endpoint.due is 'Parked pairs that may be sent now.';
comment on column webhook.stat_endpoint.waiting is 'Parked pairs whose time has not come.';
comment on column webhook.stat_endpoint.held is 'Parked pairs that may not be sent for now, whatever their time.';
comment on column webhook.stat_endpoint.oldest_due_at is 'Since when the oldest of those that may be sent has been due.';
comment on column webhook.stat_endpoint.dead is 'Deliveries that were given up and wait for a decision.';
comment on column webhook.stat_endpoint.last_success_at is 'When the last 2xx arrived.';
comment on column webhook.stat_endpoint.last_failure_at is 'When the last attempt failed.';
