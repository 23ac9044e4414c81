-- The private tables as whoever reads them may see them: what the public views and lists are built on.
-- Like the public views these belong to webhook_views, so that the policies of 91_access.sql hold below them. The lists
-- run with the rights of their caller and read nothing else, so what they show cannot exceed what the views show.

create view webhook._seen_endpoint as
select e.endpoint_id,
       e.partner_id,
       e.test,
       e.origin,
       coalesce(s.state, e.state) as state,
       case when s.state is null then e.state_reason else s.reason end as state_reason,
       case when s.state is null then e.state_changed_at else s.changed_at end as state_changed_at
  from webhook._endpoint e
  left join webhook._endpoint_state s
         on s.endpoint_id = e.endpoint_id
        and s.generation = e.generation;
comment on view webhook._seen_endpoint is '_effective_endpoint as the reader may see it.';
comment on column webhook._seen_endpoint.endpoint_id is 'The endpoint.';
comment on column webhook._seen_endpoint.partner_id is 'Tenant that owns it.';
comment on column webhook._seen_endpoint.test is 'Test endpoint.';
comment on column webhook._seen_endpoint.origin is 'Which database made it.';
comment on column webhook._seen_endpoint.state is 'State in force.';
comment on column webhook._seen_endpoint.state_reason is 'Why.';
comment on column webhook._seen_endpoint.state_changed_at is 'Since when.';

create view webhook._seen_feed as
select f.pos,
       f.published_at,
       f.partner_id,
       f.event_id,
       f.type,
       f.test
  from webhook._feed f;
comment on view webhook._seen_feed is 'The feed as the reader may see it.';
comment on column webhook._seen_feed.pos is 'Position.';
comment on column webhook._seen_feed.published_at is 'When the leader read the event.';
comment on column webhook._seen_feed.partner_id is 'Tenant that the event belongs to.';
comment on column webhook._seen_feed.event_id is 'The event.';
comment on column webhook._seen_feed.type is 'Event type.';
comment on column webhook._seen_feed.test is 'Test event.';

create view webhook._seen_delivery as
select d.event_id,
       d.endpoint_id,
       d.state,
       d.attempt_count
  from webhook._delivery d;
comment on view webhook._seen_delivery is 'Deliveries as the reader may see them, as much as the lists need.';
comment on column webhook._seen_delivery.event_id is 'The event.';
comment on column webhook._seen_delivery.endpoint_id is 'The endpoint.';
comment on column webhook._seen_delivery.state is 'State of the delivery.';
comment on column webhook._seen_delivery.attempt_count is 'Attempts so far.';

create view webhook._seen_excerpt as
select x.event_id,
       x.endpoint_id,
       x.attempt_no,
       -- Redacted when it was stored, and again: what a later version or a new setting hides is hidden in old rows, too.
       webhook._redact(x.body) as body
  from webhook._excerpt x;
comment on view webhook._seen_excerpt is 'Excerpts of responses as the reader may see them.';
comment on column webhook._seen_excerpt.event_id is 'The event.';
comment on column webhook._seen_excerpt.endpoint_id is 'The endpoint.';
comment on column webhook._seen_excerpt.attempt_no is 'Number of the attempt.';
comment on column webhook._seen_excerpt.body is 'Beginning of the response body, redacted.';
