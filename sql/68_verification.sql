-- Proofs of control, as users see them.

create view webhook.verifications as
select v.verification_id,
       v.endpoint_id,
       (select e.partner_id from webhook._endpoint e where e.endpoint_id = v.endpoint_id) as partner_id,
       v.method,
       v.host,
       v.started_at,
       v.latency_ms,
       v.result,
       v.status,
       v.error_category,
       case
         -- Which address it was would tell of the inside of the network.
         when v.error_category = 'blocked' and not (select webhook._sees_all()) then 'address, port or URL is refused by the boundary'
         else v.detail
       end as detail,
       v.overridden_by
  from webhook._verification v;
comment on view webhook.verifications is
  'Every challenge that was sent, and every time that an operator did without one. Fast by endpoint_id, and in the order of verification_id, which sorts by time.';
comment on column webhook.verifications.verification_id is 'Id of the try; the challenge carried it as webhook-id, after chl_.';
comment on column webhook.verifications.endpoint_id is 'The endpoint.';
comment on column webhook.verifications.partner_id is 'Tenant that owns it.';
comment on column webhook.verifications.method is 'challenge, graph or slack; none where an operator did without.';
comment on column webhook.verifications.host is 'Host of the URL that was to be proven.';
comment on column webhook.verifications.started_at is 'When the challenge was sent, or the proof was spared.';
comment on column webhook.verifications.latency_ms is 'Milliseconds from connecting to the end of the answer; null when nothing was sent.';
comment on column webhook.verifications.result is
  'proven, failed, void (answered rightly, but the endpoint had changed meanwhile) or overridden (an operator did without a proof).';
comment on column webhook.verifications.status is 'HTTP status of the answer; null when there was none.';
comment on column webhook.verifications.error_category is 'Error category of a failed exchange; null when the answer was 2xx.';
comment on column webhook.verifications.detail is 'What was wrong with the answer, in the sender''s own words; a partner''s role is not told which address was blocked.';
comment on column webhook.verifications.overridden_by is 'Session user who did without a proof.';
