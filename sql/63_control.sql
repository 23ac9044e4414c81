-- What waits for a decision, and what was decided: dead letters, policies, pauses.

create view webhook.dead_letters as
select webhook._delivery_id(d.event_id, d.endpoint_id) as delivery_id,
       d.event_id,
       d.endpoint_id,
       p.partner_id,
       (select e.type from webhook._event e where e.event_id = d.event_id) as type,
       (select e.subject_type from webhook._event e where e.event_id = d.event_id) as subject_type,
       (select e.subject_id from webhook._event e where e.event_id = d.event_id) as subject_id,
       d.reason,
       d.attempt_count,
       d.last_attempt_at,
       d.last_status,
       d.last_error_category,
       (select case
                 when a.error_category = 'blocked' and not (select webhook._sees_all()) then 'address, port or URL is refused by the boundary'
                 else a.detail
               end
          from webhook._attempt a
         where a.event_id = d.event_id
           and a.endpoint_id = d.endpoint_id
           and a.attempt_no = d.attempt_count) as last_detail,
       (select a.worker_version
          from webhook._attempt a
         where a.event_id = d.event_id
           and a.endpoint_id = d.endpoint_id
           and a.attempt_no = d.attempt_count) as worker_version,
       p.created_by as owner,
       webhook._event_time(d.event_id) as emitted_at
  from webhook._delivery d
  join webhook._endpoint p on p.endpoint_id = d.endpoint_id
 where d.state = 'dead';
comment on view webhook.dead_letters is
  'Deliveries that were given up and wait for retry, skip, close or correct. Fast by endpoint_id newest first (order by event_id desc), by event_id, and over all.';
comment on column webhook.dead_letters.delivery_id is 'Id of the delivery: what retry, skip, close and correct take.';
comment on column webhook.dead_letters.event_id is 'The event.';
comment on column webhook.dead_letters.endpoint_id is 'The endpoint.';
comment on column webhook.dead_letters.partner_id is 'Tenant that owns the endpoint and the event.';
comment on column webhook.dead_letters.type is 'Event type; looked up for each row.';
comment on column webhook.dead_letters.subject_type is 'Kind of the object that changed.';
comment on column webhook.dead_letters.subject_id is 'Identity of the object that changed.';
comment on column webhook.dead_letters.reason is 'Why it was given up.';
comment on column webhook.dead_letters.attempt_count is 'Attempts that were made.';
comment on column webhook.dead_letters.last_attempt_at is 'Start of the latest attempt.';
comment on column webhook.dead_letters.last_status is 'HTTP status of the latest attempt; null when there was none.';
comment on column webhook.dead_letters.last_error_category is 'Why the latest attempt failed, or why there was no further one.';
comment on column webhook.dead_letters.last_detail is 'What happened in the latest attempt, in the sender''s own words.';
comment on column webhook.dead_letters.worker_version is 'Version of the library that made the latest attempt.';
comment on column webhook.dead_letters.owner is 'Session user who made the endpoint.';
comment on column webhook.dead_letters.emitted_at is 'When the event was emitted.';

create view webhook.policies as
select p.name,
       p.retry_schedule,
       p.client_error_attempts,
       p.retry_after_max,
       p.max_in_flight,
       p.rate,
       p.burst,
       p.max_age,
       p.disable_after,
       p.disable_failures,
       p.description,
       p.created_at,
       p.changed_at,
       p.changed_by
  from webhook._policy p;
comment on view webhook.policies is
  'Policies. A null is the value of the policy "default", and there the server''s setting (rate and max_age: none; disable_failures: 20).';
comment on column webhook.policies.name is 'Name of the policy.';
comment on column webhook.policies.retry_schedule is 'Waits between attempts; empty = no retry.';
comment on column webhook.policies.client_error_attempts is 'Attempts for 3xx and 4xx answers that have no rule of their own.';
comment on column webhook.policies.retry_after_max is 'Longest wait that a receiver''s Retry-After may ask for.';
comment on column webhook.policies.max_in_flight is 'Concurrent requests to an endpoint.';
comment on column webhook.policies.rate is 'Requests per second to an endpoint.';
comment on column webhook.policies.burst is 'Requests at once after a rest.';
comment on column webhook.policies.max_age is 'Older events are not sent any more.';
comment on column webhook.policies.disable_after is 'An endpoint without a success for so long is disabled.';
comment on column webhook.policies.disable_failures is 'But not before so many failures in a row.';
comment on column webhook.policies.description is 'Free text of the operator.';
comment on column webhook.policies.created_at is 'When it was made.';
comment on column webhook.policies.changed_at is 'When it was last changed.';
comment on column webhook.policies.changed_by is 'Session user who changed it.';

create view webhook.pauses as
select p.scope,
       nullif(p.target, '') as target,
       p.reason,
       p.paused_by,
       p.paused_at
  from webhook._pause p
 where p.paused
union all
select 'endpoint',
       e.endpoint_id::text,
       e.state_reason,
       (select a.actor
          from webhook._audit a
         where a.object_kind = 'endpoint'
           and a.object_id = e.endpoint_id::text
           and a.verb = 'pause'
         order by a.audit_id desc
         limit 1),
       e.state_changed_at
  from webhook._seen_endpoint e
 where e.state = 'paused';
comment on view webhook.pauses is 'What is paused now: everything, partners, event types, endpoints.';
comment on column webhook.pauses.scope is 'all, partner, event_type or endpoint.';
comment on column webhook.pauses.target is 'The partner, the event type, or the endpoint''s id; null for all.';
comment on column webhook.pauses.reason is 'Why.';
comment on column webhook.pauses.paused_by is 'Session user who paused it; of an endpoint null once the audit log no longer has it.';
comment on column webhook.pauses.paused_at is 'Since when it was asked for; the request says from when on it holds.';
