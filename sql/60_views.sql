-- What users look at: events, deliveries, attempts, endpoints, event types and requests.
-- No view shows a payload, a response body or a secret. Look-ups that a view cannot answer from an index
-- are the functions of 61_list.sql.
-- A function that is named in a view runs with the rights of whoever reads the view: grant_access gives what they need.

create function webhook._publication(
  partner_id text,             -- tenant of the event
  event_id text,               -- the event
  out pos bigint,              -- its place in the feed; null when the leader has not read it
  out published_at timestamptz -- when the leader read it
) returns record
language plpgsql stable parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  emitted_at constant timestamptz := webhook._event_time(event_id);
  span interval := '1 minute';
  low bigint := webhook._pos_bound(emitted_at);
  high bigint;
begin
  -- The feed has no index by event: the partner's rows are walked from the moment of the emit on. The walk
  -- is cut into growing pieces, because one ORDER BY over all days merges them and reads every later row
  -- of the partner first (13,085 buffers instead of 5 for a month-old event of a busy partner).
  loop
    if emitted_at + span < clock_timestamp() then
      high := webhook._pos_bound(emitted_at + span);
    else
      high := 9223372036854775807;
    end if;
    select f.pos, f.published_at
      into pos, published_at
      from webhook._seen_feed f
     where f.partner_id = _publication.partner_id
       and f.event_id = _publication.event_id
       and f.pos >= low
       and f.pos < high
     order by f.pos
     limit 1;
    exit when found or high = 9223372036854775807;
    low := high;
    span := span * 8;
  end loop;
end
$$;
comment on function webhook._publication(text, text) is 'Where an event stands in its partner''s feed.';

create view webhook.events as
select e.event_id,
       e.partner_id,
       e.type,
       e.source,
       e.subject_type,
       e.subject_id,
       e.subject_version,
       e.scope,
       e.schema_version,
       e.correlation_id,
       e.causation,
       e.traceparent,
       e.test,
       e.occurred_at,
       webhook._event_time(e.event_id) as emitted_at,
       (select p.published_at from webhook._publication(e.partner_id, e.event_id) as p) as published_at,
       octet_length(e.body) as data_bytes,
       case
         when e.origin <> (select webhook._origin())
              and not exists (select from webhook._admitted_origin a where a.origin = e.origin) then 'origin'
         when exists (select from webhook._fenced f where f.event_id = e.event_id) then 'seal'
       end as fenced
  from webhook._event e;
comment on view webhook.events is
  'Events, without their payload. Fast by event_id, by subject_type with subject_id, and by correlation_id; by partner or type with time use list_events.';
comment on column webhook.events.event_id is 'Id of the event; sorts by the time of the emit.';
comment on column webhook.events.partner_id is 'Tenant that the event belongs to.';
comment on column webhook.events.type is 'Event type, object.change.';
comment on column webhook.events.source is 'Producer of the event.';
comment on column webhook.events.subject_type is 'Kind of the object that changed.';
comment on column webhook.events.subject_id is 'Identity of the object that changed.';
comment on column webhook.events.subject_version is 'Version of the object after the change.';
comment on column webhook.events.scope is 'Authorisation scope.';
comment on column webhook.events.schema_version is 'Version of the payload''s schema.';
comment on column webhook.events.correlation_id is 'Ties the event to the operation that caused it.';
comment on column webhook.events.causation is 'Event id of the parent event.';
comment on column webhook.events.traceparent is 'W3C trace context of the operation.';
comment on column webhook.events.test is 'Test event: goes to test endpoints only.';
comment on column webhook.events.occurred_at is 'When the business change happened.';
comment on column webhook.events.emitted_at is 'When the event was emitted.';
comment on column webhook.events.published_at is 'When the leader read the event, after its transaction had committed; null = not yet. Costs a short walk of the partner''s feed for each row.';
comment on column webhook.events.data_bytes is 'Size of the payload; null once it is expunged.';
comment on column webhook.events.fenced is
  'Why the event is never sent: origin = it came with a copy of another database and was not adopted, seal = its row was changed after the emit; null = it is not fenced.';

create view webhook.deliveries as
select webhook._delivery_id(d.event_id, d.endpoint_id) as delivery_id,
       d.event_id,
       d.endpoint_id,
       p.partner_id,
       (select e.type from webhook._event e where e.event_id = d.event_id) as type,
       d.state,
       d.reason,
       d.attempt_count,
       d.series_start,
       case
         when d.attempt_count = 1 then d.last_attempt_at
         when d.attempt_count > 1 then
           (select a.started_at
              from webhook._attempt a
             where a.event_id = d.event_id
               and a.endpoint_id = d.endpoint_id
               and a.attempt_no = 1)
       end as first_attempt_at,
       d.last_attempt_at,
       d.next_attempt_at,
       d.delivered_at,
       d.last_status,
       d.last_latency_ms,
       d.last_error_category,
       d.last_response_bytes,
       d.last_key_ids,
       d.last_body_sha256,
       d.revision,
       case when d.state in ('pending', 'retrying') then
         (select nullif(array_remove(array[
                   case when w.hold & 1 <> 0 then 'event_type' end,
                   case when w.hold & 2 <> 0 then 'order' end,
                   case when w.hold & 4 <> 0 then 'quarantine' end,
                   case when w.hold & 8 <> 0 then 'filter' end,
                   case when w.hold & 16 <> 0 then 'conversion' end], null), '{}')
            from webhook._due w
           where w.event_id = d.event_id
             and w.endpoint_id = d.endpoint_id)
       end as held_by
  from webhook._delivery d
  join webhook._endpoint p on p.endpoint_id = d.endpoint_id;
comment on view webhook.deliveries is
  'What became of each event at each endpoint, from its first outcome on. Fast by event_id, by endpoint_id newest first (order by event_id desc), and by a state other than delivered; by partner and time, or by delivery_id, use list_deliveries.';
comment on column webhook.deliveries.delivery_id is 'Id of the delivery, made of event_id and endpoint_id; sent as webhook-delivery.';
comment on column webhook.deliveries.event_id is 'The event.';
comment on column webhook.deliveries.endpoint_id is 'The endpoint.';
comment on column webhook.deliveries.partner_id is 'Tenant that owns the endpoint and the event.';
comment on column webhook.deliveries.type is 'Event type; looked up for each row.';
comment on column webhook.deliveries.state is 'pending, retrying, delivered, dead, cancelled, skipped or closed.';
comment on column webhook.deliveries.reason is 'Why it is dead, cancelled, skipped or closed.';
comment on column webhook.deliveries.attempt_count is 'Attempts so far; the number of the latest one.';
comment on column webhook.deliveries.series_start is 'Attempts made before the current series of the schedule; a replay starts a new one.';
comment on column webhook.deliveries.first_attempt_at is 'Start of the first attempt; null before it, and once it is older than the retention of attempts.';
comment on column webhook.deliveries.last_attempt_at is 'Start of the latest attempt.';
comment on column webhook.deliveries.next_attempt_at is 'When the next attempt is due; null when none is.';
comment on column webhook.deliveries.delivered_at is 'When the first 2xx arrived; later replays keep it.';
comment on column webhook.deliveries.last_status is 'HTTP status of the latest attempt; null when there was none.';
comment on column webhook.deliveries.last_latency_ms is 'Milliseconds that the latest attempt took.';
comment on column webhook.deliveries.last_error_category is 'Why the latest attempt failed; null after a success.';
comment on column webhook.deliveries.last_response_bytes is 'Bytes of response body read in the latest attempt.';
comment on column webhook.deliveries.last_key_ids is 'Ids of the keys that signed the latest attempt, in order.';
comment on column webhook.deliveries.last_body_sha256 is 'SHA-256 of the body sent in the latest attempt.';
comment on column webhook.deliveries.revision is 'Shape of the payload, fixed by the first attempt.';
comment on column webhook.deliveries.held_by is
  'Why a pending or retrying delivery is not sent when its time comes: event_type (paused), order, quarantine, filter, conversion; null = it is not held. Pauses of the endpoint, the partner or everything: see pauses.';

create view webhook.attempts as
select webhook._delivery_id(a.event_id, a.endpoint_id) as delivery_id,
       a.event_id,
       a.endpoint_id,
       a.attempt_no,
       a.started_at,
       a.outcome,
       a.status,
       a.latency_ms,
       a.error_category,
       a.phase,
       -- Where a name leads inside the network is not for tenants.
       case
         when a.error_category = 'blocked' and not (select webhook._sees_all()) then 'address, port or URL is refused by the boundary'
         else a.detail
       end as detail,
       a.next_attempt_at,
       a.response_bytes,
       a.key_ids,
       a.body_sha256,
       (select e.correlation_id from webhook._event e where e.event_id = a.event_id) as correlation_id,
       (select e.causation from webhook._event e where e.event_id = a.event_id) as causation,
       (select e.traceparent from webhook._event e where e.event_id = a.event_id) as traceparent
  from webhook._attempt a
union all
-- A first try that succeeded has no row in _attempt until there is a second one.
select webhook._delivery_id(d.event_id, d.endpoint_id),
       d.event_id,
       d.endpoint_id,
       1,
       d.last_attempt_at,
       d.state,
       d.last_status,
       d.last_latency_ms,
       null,
       null,
       null,
       null,
       d.last_response_bytes,
       d.last_key_ids,
       d.last_body_sha256,
       (select e.correlation_id from webhook._event e where e.event_id = d.event_id),
       (select e.causation from webhook._event e where e.event_id = d.event_id),
       (select e.traceparent from webhook._event e where e.event_id = d.event_id)
  from webhook._delivery d
 where d.state = 'delivered'
   and d.attempt_count = 1;
comment on view webhook.attempts is
  'Every HTTP request made or possibly made. Fast by event_id, with or without endpoint_id. What the receiver answered: read_excerpt.';
comment on column webhook.attempts.delivery_id is 'The delivery.';
comment on column webhook.attempts.event_id is 'The event.';
comment on column webhook.attempts.endpoint_id is 'The endpoint.';
comment on column webhook.attempts.attempt_no is 'Number within the delivery, from 1 without gaps; sent as webhook-attempt.';
comment on column webhook.attempts.started_at is 'When it began; its second is the signed timestamp.';
comment on column webhook.attempts.outcome is 'What followed: delivered, retry or dead.';
comment on column webhook.attempts.status is 'HTTP status; null when there was none.';
comment on column webhook.attempts.latency_ms is 'Milliseconds from connecting to the end of the answer; null for a lost attempt.';
comment on column webhook.attempts.error_category is 'Error category; null after a 2xx.';
comment on column webhook.attempts.phase is 'Where a time-out or protocol error struck.';
comment on column webhook.attempts.detail is 'What happened, in the sender''s own words; a partner''s role is not told which address was blocked.';
comment on column webhook.attempts.next_attempt_at is 'When the next attempt was planned; null when none was.';
comment on column webhook.attempts.response_bytes is 'Bytes of response body read.';
comment on column webhook.attempts.key_ids is 'Ids of the keys that signed, in order.';
comment on column webhook.attempts.body_sha256 is 'SHA-256 of the body sent.';
comment on column webhook.attempts.correlation_id is 'Ties the event to the operation that caused it; sent as webhook-correlation-id, percent-encoded. This and the two below are looked up for each row.';
comment on column webhook.attempts.causation is 'Event id of the parent event; sent as webhook-causation-id.';
comment on column webhook.attempts.traceparent is 'W3C trace context of the operation; sent as traceparent.';

create view webhook.endpoints as
select e.endpoint_id,
       e.partner_id,
       -- Many receivers take a token in the path or the query.
       case
         when (select webhook._manages()) or e.partner_id = any ((select webhook._own_partners())::text[]) then e.url
         else regexp_replace(e.url, '^([a-z]+://[^/?#]*).*$', '\1/…')
       end as url,
       e.event_types,
       e.test,
       f.state,
       f.state_reason,
       f.state_changed_at,
       e.verify,
       e.description,
       e.max_in_flight,
       (select array_agg(s.key_id order by s.key_id)
          from webhook._secret s
         where s.endpoint_id = e.endpoint_id
           and (s.valid_until is null or s.valid_until > clock_timestamp())) as key_ids,
       r.format,
       e.revision,
       e.origin <> (select webhook._origin()) as inert,
       e.created_at,
       e.created_by,
       e.policy,
       e.ordered,
       e.verified_at,
       e.verified_by,
       substring(e.pending_url from '^[a-z]+://([^/?#]*)') as pending_host,
       e.expires_at,
       e.signature,
       e.header_names,
       e.subject_types,
       e.filter,
       e.filter_version,
       r.data_shape,
       r.fields,
       r.schema_versions
  from webhook._endpoint e
  join webhook._seen_endpoint f on f.endpoint_id = e.endpoint_id
  left join webhook._endpoint_revision r on r.endpoint_id = e.endpoint_id and r.revision = e.revision;
comment on view webhook.endpoints is 'Endpoints with the state that is in force; deleted ones stay. Fast by endpoint_id and by partner_id.';
comment on column webhook.endpoints.endpoint_id is 'Id of the endpoint.';
comment on column webhook.endpoints.partner_id is 'Tenant that owns it.';
comment on column webhook.endpoints.url is 'Callback URL; for readers that neither operate nor own the endpoint, its host only.';
comment on column webhook.endpoints.event_types is 'Event types and wildcards that are sent here.';
comment on column webhook.endpoints.test is 'Test endpoint: receives test events only.';
comment on column webhook.endpoints.state is 'unverified, active, paused, disabled, expired or deleted.';
comment on column webhook.endpoints.state_reason is 'Why.';
comment on column webhook.endpoints.state_changed_at is 'Since when.';
comment on column webhook.endpoints.verify is 'How control of the URL is to be proven.';
comment on column webhook.endpoints.description is 'Free text of the operator.';
comment on column webhook.endpoints.max_in_flight is 'Concurrent requests; null = what the policy says.';
comment on column webhook.endpoints.key_ids is 'Ids of the keys that sign now; null when there is none.';
comment on column webhook.endpoints.format is 'Form of the body: native, cloudevents-structured or cloudevents-binary.';
comment on column webhook.endpoints.revision is 'Number of the current shape.';
comment on column webhook.endpoints.inert is 'True in a copy of the database that made the endpoint: nothing is sent to it.';
comment on column webhook.endpoints.created_at is 'When it was made.';
comment on column webhook.endpoints.created_by is 'Session user who made it.';
comment on column webhook.endpoints.policy is 'How deliveries are retried and limited; null = the policy "default".';
comment on column webhook.endpoints.ordered is 'Keeps the order of each subject.';
comment on column webhook.endpoints.verified_at is 'When control of the URL was proven, or the proof was spared; null = never.';
comment on column webhook.endpoints.verified_by is 'How: challenge, graph, slack, or none when an operator did without.';
comment on column webhook.endpoints.pending_host is 'Host of a new URL that is not proven yet; url stays in force until it is.';
comment on column webhook.endpoints.expires_at is 'When it expires unless it is renewed; null = never.';
comment on column webhook.endpoints.signature is 'Signature profile.';
comment on column webhook.endpoints.header_names is 'Names of the headers that the operator adds; null = none.';
comment on column webhook.endpoints.subject_types is 'Subject types whose events are sent here; null = all, and events without a subject.';
comment on column webhook.endpoints.filter is 'Condition on the payload, as PostgreSQL spells it; null = none.';
comment on column webhook.endpoints.filter_version is 'How often subject types or filter were set.';
comment on column webhook.endpoints.data_shape is 'How much of the data is sent: full, fields, thin or delta.';
comment on column webhook.endpoints.fields is 'Of fields: paths of the members that are kept.';
comment on column webhook.endpoints.schema_versions is 'Schema version by event type; null = every event as it was emitted.';

create view webhook.requests as
select r.request_id,
       r.verb,
       r.event_id,
       r.endpoint_id,
       r.state,
       r.result,
       r.deliveries,
       r.requested_by,
       r.requested_at,
       r.finished_at,
       r.scope,
       r.target,
       r.reason
  from webhook._request r;
comment on view webhook.requests is 'What was asked of the leader, and what came of it. Fast by request_id, which sorts by time.';
comment on column webhook.requests.request_id is 'Id of the request.';
comment on column webhook.requests.verb is 'What is asked: replay, retry, skip, close, pause, resume, verify_endpoint, adopt, replay_range, cancel_replay or repair.';
comment on column webhook.requests.event_id is 'The event concerned; null when there are several, or none.';
comment on column webhook.requests.endpoint_id is 'The endpoint concerned; null = several, and of a replay every delivery of the event.';
comment on column webhook.requests.state is 'pending, done or refused.';
comment on column webhook.requests.result is 'What came of it, in words.';
comment on column webhook.requests.deliveries is 'How many deliveries it concerned.';
comment on column webhook.requests.requested_by is 'Session user who asked.';
comment on column webhook.requests.requested_at is 'When it was asked.';
comment on column webhook.requests.finished_at is 'When the leader carried it out or refused it, and from when on a pause holds; null = not yet.';
comment on column webhook.requests.scope is 'Of a pause or its end: all, partner, event_type or endpoint.';
comment on column webhook.requests.target is 'The partner, event type or endpoint, of an adoption the origin, of cancel_replay the request; null for all.';
comment on column webhook.requests.reason is 'Why, in the user''s words.';
