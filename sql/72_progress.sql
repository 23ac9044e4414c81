-- How far long work has come, in the manner of pg_stat_progress_*: a row for each job that is not finished, none when
-- nothing runs. What was finished stands in replays, adoptions and erasures, from which these take what they show.

create view webhook.stat_progress_replay as
select r.request_id,
       r.partner_id,
       r.endpoint_id,
       r.state as phase,
       r.estimate as events_total,
       r.looked_at as events_done,
       least(round(100.0 * r.looked_at / nullif(r.estimate, 0), 1), 100) as percent,
       r.made + r.again as deliveries,
       r.under_way + r.unwanted + r.closed + r.expunged + r.expired + r.fenced as left_out,
       r.rate as rate_limit,
       r.per_second,
       r.reached_at,
       r.started_at
  from webhook.replays r
 where r.state in ('waiting', 'running');
comment on view webhook.stat_progress_replay is 'Replays of a range that are not finished. All of them, with what was left out and why: replays.';
comment on column webhook.stat_progress_replay.request_id is 'Id of the request: what cancel_replay takes.';
comment on column webhook.stat_progress_replay.partner_id is 'Tenant whose events are meant; null = every one.';
comment on column webhook.stat_progress_replay.endpoint_id is 'Endpoint that is meant; null = every one.';
comment on column webhook.stat_progress_replay.phase is 'waiting or running.';
comment on column webhook.stat_progress_replay.events_total is 'Events of the range when it was asked for; null = more than 20000.';
comment on column webhook.stat_progress_replay.events_done is 'Events that the leader has looked at.';
comment on column webhook.stat_progress_replay.percent is 'The latter of the former; null = unknown.';
comment on column webhook.stat_progress_replay.deliveries is 'Deliveries made or begun again.';
comment on column webhook.stat_progress_replay.left_out is 'Deliveries and events left out.';
comment on column webhook.stat_progress_replay.rate_limit is 'Deliveries per second at most.';
comment on column webhook.stat_progress_replay.per_second is 'Deliveries per second, on average.';
comment on column webhook.stat_progress_replay.reached_at is 'Publication of the last event looked at.';
comment on column webhook.stat_progress_replay.started_at is 'When the leader began; null = not yet.';

create view webhook.stat_progress_adopt as
select a.request_id,
       a.origin,
       a.mode,
       a.state as phase,
       a.events as events_done,
       a.published,
       a.made + a.resumed as deliveries,
       a.skipped,
       a.tampered,
       a.reached_at,
       a.started_at
  from webhook.adoptions a
 where a.state in ('waiting', 'running');
comment on view webhook.stat_progress_adopt is 'Adoptions that are not finished. All of them: adoptions; what is still fenced: stat_fenced.';
comment on column webhook.stat_progress_adopt.request_id is 'Id of the request.';
comment on column webhook.stat_progress_adopt.origin is 'Origin that is adopted.';
comment on column webhook.stat_progress_adopt.mode is 'send or skip.';
comment on column webhook.stat_progress_adopt.phase is 'waiting or running.';
comment on column webhook.stat_progress_adopt.events_done is 'Events that the leader has looked at.';
comment on column webhook.stat_progress_adopt.published is 'Events that the origin had not read, and that were given a place in the feed.';
comment on column webhook.stat_progress_adopt.deliveries is 'Deliveries made or resumed.';
comment on column webhook.stat_progress_adopt.skipped is 'Deliveries skipped.';
comment on column webhook.stat_progress_adopt.tampered is 'Events that stay fenced because their row does not match its seal.';
comment on column webhook.stat_progress_adopt.reached_at is 'Emit of the last event looked at.';
comment on column webhook.stat_progress_adopt.started_at is 'When the leader began; null = not yet.';

create function webhook._retention_progress()
returns table (
  phase text,            -- what the next step does
  steps_left integer,    -- steps of the pass to go
  steps_total integer,   -- steps that were planned when it began; a step that finds much is taken again
  started_at timestamptz -- when the pass began
)
language c volatile parallel restricted rows 1
as 'MODULE_PATHNAME', 'retention_progress_wrapper';
comment on function webhook._retention_progress() is 'The retention pass under way, from shared memory; no row between passes.';

create view webhook.stat_progress_retention as
select p.phase,
       greatest(p.steps_total - p.steps_left, 0) as steps_done,
       greatest(p.steps_total, p.steps_left) as steps_total,
       p.started_at
  from webhook._retention_progress() as p;
comment on view webhook.stat_progress_retention is
  'The pass over what is old that is under way: one row, or none between passes, which begin every minute. Read from shared memory.';
comment on column webhook.stat_progress_retention.phase is
  'expiring deliveries, closing dead letters, removing partitions, clearing default partitions, deleting rows, deleting idempotency keys or erasing payloads.';
comment on column webhook.stat_progress_retention.steps_done is 'Steps taken.';
comment on column webhook.stat_progress_retention.steps_total is 'Steps of the pass; one that finds much is taken more than once.';
comment on column webhook.stat_progress_retention.started_at is 'When it began.';

create view webhook.stat_progress_expunge as
select r.erasure_id,
       r.scope,
       case when t.unswept > 0 then 'sweeping' else 'to be confirmed' end as phase,
       t.events as events_total,
       t.events - t.unswept as events_done,
       round(100.0 * (t.events - t.unswept) / nullif(t.events, 0), 1) as percent,
       r.at as started_at
  from webhook._erasure r
 cross join lateral (
       select count(*) as events,
              count(*) filter (where not x.swept) as unswept
         from webhook._tombstone x
        where x.erasure_id = r.erasure_id) as t
 where r.confirmed_at is null;
comment on view webhook.stat_progress_expunge is
  'Calls of expunge that confirm_erasure has not found complete. The payloads are gone when the call commits; the leader then looks for answers that came meanwhile. Cost grows with the events of these erasures.';
comment on column webhook.stat_progress_expunge.erasure_id is 'As expunge returned it: what confirm_erasure takes.';
comment on column webhook.stat_progress_expunge.scope is 'event, subject or partner.';
comment on column webhook.stat_progress_expunge.phase is 'sweeping = the leader looks for late answers; to be confirmed = it is done, and confirm_erasure may be called.';
comment on column webhook.stat_progress_expunge.events_total is 'Events that it erased.';
comment on column webhook.stat_progress_expunge.events_done is 'Events that were looked at for late answers.';
comment on column webhook.stat_progress_expunge.percent is 'The latter of the former; null = it erased no event.';
comment on column webhook.stat_progress_expunge.started_at is 'When it was ordered.';
