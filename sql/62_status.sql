-- How it is going: the leader, the queue, and one row that says what to do.
-- Everything here is counted when it is read and nothing is kept for it; the comments say what that costs.
-- All of it works on a standby, where the leader's part is empty.

create view webhook.stat_worker as
select w.database,
       w.state,
       w.detail,
       w.hint,
       w.pid,
       w.started_at,
       w.incarnation,
       w.last_loop_at,
       w.restarts,
       w.threads,
       w.in_flight,
       w.queued,
       w.open_batches,
       w.delivered,
       w.failed,
       w.lost,
       w.fenced,
       w.last_error,
       w.library_version,
       w.extension_version
  from webhook._worker() as w;
comment on view webhook.stat_worker is
  'The leader of this database, one row, read from shared memory. Counters begin with the server and survive a leader that ends.';
comment on column webhook.stat_worker.database is 'This database.';
comment on column webhook.stat_worker.state is
  'running; or why nothing is sent: not preloaded, standby, not served, off, starting, no worker slot, idle: other version, stopped.';
comment on column webhook.stat_worker.detail is 'The state in a sentence.';
comment on column webhook.stat_worker.hint is 'What to do about it; null = nothing.';
comment on column webhook.stat_worker.pid is 'Process id of the leader.';
comment on column webhook.stat_worker.started_at is 'When it started.';
comment on column webhook.stat_worker.incarnation is 'Which life of the leader this is.';
comment on column webhook.stat_worker.last_loop_at is 'When its loop last came round; far behind = it hangs.';
comment on column webhook.stat_worker.restarts is 'Starts after the first one.';
comment on column webhook.stat_worker.threads is 'HTTP threads.';
comment on column webhook.stat_worker.in_flight is 'Requests on the wire.';
comment on column webhook.stat_worker.queued is 'Pairs of event and endpoint in memory that are not sent yet.';
comment on column webhook.stat_worker.open_batches is 'Batches whose pairs do not all have a row yet.';
comment on column webhook.stat_worker.delivered is 'Attempts answered with 2xx.';
comment on column webhook.stat_worker.failed is 'Attempts that failed.';
comment on column webhook.stat_worker.lost is 'Attempts found in doubt when the leader started.';
comment on column webhook.stat_worker.fenced is 'Events it refused to send.';
comment on column webhook.stat_worker.last_error is 'Last error of the leader itself; endpoints'' errors are in attempts.';
comment on column webhook.stat_worker.library_version is 'Version of the loaded library.';
comment on column webhook.stat_worker.extension_version is 'Version of the installed extension.';

create function webhook._unread(
  most bigint default null, -- so many of each stream are counted at most; null = all
  out events bigint, -- events of this origin that are committed and that the leader has not read
  out first_id text  -- the oldest of them
) returns record
language plpgsql volatile parallel safe
-- SECURITY DEFINER: called by the view stat_queue, whose readers have no right to the events.
security definer
set search_path = pg_catalog, webhook, pg_temp
-- The planner takes a range of xid for a ninth of the table and would compile the plan: 0.25 s for nothing.
set jit = off
as $$
declare
  place record;
  late xid8[];
  more_events bigint;
  more_id text;
  late_events bigint;
  late_id text;
begin
  events := 0;
  -- One place of everybody's stream, and one of each that was set aside and has not joined it again.
  for place in
    with stream as (
      select distinct on (l.stream) l.stream, l.partners, l.prev, l.cur, l.to_xid, l.to_id
        from webhook._ledger l
       where l.kind in ('start', 'window', 'aside', 'place')
         and l.cur is not null
         and not exists (select from webhook._ledger j where j.stream = l.stream and j.kind = 'joined')
       order by l.stream, l.n desc)
    select s.prev,
           s.cur,
           coalesce(s.to_xid, '0'::xid8) as to_xid,
           coalesce(s.to_id, '') as to_id,
           greatest(pg_snapshot_xmax(s.prev), s.to_xid) as low_xid,
           pg_snapshot_xmax(pg_current_snapshot()) as high_xid,
           s.stream <> 0 as only_these,
           case
             when s.stream <> 0 then s.partners
             else array(select unnest(a.partners) from stream a where a.stream <> 0)
           end as partners
      from stream s
  loop
    -- Behind the leader's place, in its order. The upper bound spares the rows of a restored copy, whose
    -- transaction ids may lie in this cluster's future.
    select count(*), min(s.event_id)
      into more_events, more_id
      from (select e.event_id, e.partner_id
              from webhook._event e
             where e.xid >= place.low_xid
               and e.xid < place.high_xid
               and (e.xid, e.event_id) > (place.to_xid, place.to_id)
               and e.origin = webhook._origin()
             limit most) as s
     where (s.partner_id = any (place.partners)) = place.only_these;
    -- Transactions that were open when a snapshot of the leader was taken, and have committed since.
    late := array(select pg_snapshot_xip(place.prev) union select pg_snapshot_xip(place.cur));
    if cardinality(late) > 0 then
      select count(*), min(s.event_id)
        into late_events, late_id
        from (select e.event_id, e.partner_id
                from webhook._event e
               where e.xid = any (late)
                 and e.origin = webhook._origin()
                 and (((e.xid, e.event_id) > (place.to_xid, place.to_id) and e.xid < pg_snapshot_xmax(place.prev))
                      or ((e.xid, e.event_id) <= (place.to_xid, place.to_id) and not pg_visible_in_snapshot(e.xid, place.cur)))
               limit most) as s
       where (s.partner_id = any (place.partners)) = place.only_these;
      more_events := more_events + late_events;
      more_id := least(more_id, late_id);
    end if;
    events := events + more_events;
    first_id := least(first_id, more_id);
  end loop;
end
$$;
comment on function webhook._unread(bigint) is 'What the leader has still to read; with an argument, of so many events looked at in each stream.';

create view webhook.stat_queue as
select u.events as unread_events,
       webhook._event_time(u.first_id) as oldest_unread_at,
       clock_timestamp() - webhook._event_time(u.first_id) as oldest_unread_age,
       w.queued,
       w.in_flight,
       d.pending,
       d.retrying,
       d.dead,
       q.due,
       q.waiting,
       q.held,
       q.next_due_at,
       (select count(*) from webhook._request r where r.state = 'pending') as pending_requests,
       (select count(*) from webhook._fenced) as fenced,
       (select count(*) from webhook._foreign_origin) as other_origins,
       -- No index finds them, and without a copy nobody pays for it.
       case when exists (select from webhook._foreign_origin)
         then (select count(*) from webhook._event e where e.origin in (select o.origin from webhook._foreign_origin o))
         else 0
       end as foreign_events,
       (select count(*) from webhook._endpoint p where p.origin <> (select webhook._origin())) as inert_endpoints,
       (select count(*)
          from webhook._adoption a
          left join webhook._adoption_progress p on p.request_id = a.request_id
         where a.adopter = (select webhook._origin())
           and p.state is distinct from 'done') as running_adoptions
  from webhook._worker() as w
 cross join webhook._unread() as u
 cross join (select count(*) filter (where v.state = 'pending') as pending,
                    count(*) filter (where v.state = 'retrying') as retrying,
                    count(*) filter (where v.state = 'dead') as dead
               from webhook._delivery v
              where v.state <> 'delivered') as d
 cross join (select count(*) filter (where s.hold = 0 and s.next_attempt_at <= clock_timestamp()) as due,
                    count(*) filter (where s.hold = 0 and s.next_attempt_at > clock_timestamp()) as waiting,
                    count(*) filter (where s.hold <> 0) as held,
                    min(s.next_attempt_at) filter (where s.hold = 0) as next_due_at
               from webhook._due s) as q;
comment on view webhook.stat_queue is
  'What waits, one row. Cost grows with the events not read, the deliveries that are not delivered, and the rows that are due; not with the history, unless there is an origin that nobody adopted.';
comment on column webhook.stat_queue.unread_events is 'Events committed and not read by the leader yet.';
comment on column webhook.stat_queue.oldest_unread_at is 'When the oldest of them was emitted.';
comment on column webhook.stat_queue.oldest_unread_age is 'How long ago that was: the age of the outbox.';
comment on column webhook.stat_queue.queued is 'Pairs of event and endpoint in the leader''s memory, read and not sent; they have no delivery row yet.';
comment on column webhook.stat_queue.in_flight is 'Requests on the wire.';
comment on column webhook.stat_queue.pending is 'Deliveries that wait for the first attempt of their series.';
comment on column webhook.stat_queue.retrying is 'Deliveries that failed and will be tried again.';
comment on column webhook.stat_queue.dead is 'Deliveries that failed for good and wait for a decision.';
comment on column webhook.stat_queue.due is 'Pairs that may be sent now.';
comment on column webhook.stat_queue.waiting is 'Pairs whose time has not come.';
comment on column webhook.stat_queue.held is 'Pairs that may not be sent for now, whatever their time.';
comment on column webhook.stat_queue.next_due_at is 'When the next pair is due, or since when the oldest one has been.';
comment on column webhook.stat_queue.pending_requests is 'Requests that the leader has not carried out.';
comment on column webhook.stat_queue.fenced is 'Events that the leader refused to send because their row was changed after the emit.';
comment on column webhook.stat_queue.other_origins is
  'Other databases whose events came here by a copy, or earlier values of webhook.node_name, that were not adopted; their events are never sent.';
comment on column webhook.stat_queue.foreign_events is 'Events of those origins.';
comment on column webhook.stat_queue.inert_endpoints is 'Endpoints of other origins: nothing is sent to them. What is fenced by origin and reason: stat_fenced.';
comment on column webhook.stat_queue.running_adoptions is 'Adoptions that the leader has not finished.';

create function webhook.status()
returns table (
  worker text,                 -- state of the leader, see stat_worker
  detail text,                 -- the same in a sentence
  unread_events bigint,        -- events not read by the leader yet
  oldest_unread_age interval,  -- age of the oldest of them
  queued bigint,               -- pairs in memory, not sent yet
  in_flight integer,           -- requests on the wire
  pending bigint,              -- deliveries that wait for the first attempt of their series
  retrying bigint,             -- deliveries that will be tried again
  dead bigint,                 -- deliveries that wait for a decision
  fenced bigint,               -- events refused because their row was changed
  foreign_events bigint,       -- events of other databases, of which this one is a copy
  inbox_pending bigint,        -- received events that handlers have not finished
  inbox_dead bigint,           -- received events that handlers have given up
  last_error text,             -- last error of the leader itself
  advice text                  -- what to do
)
language sql volatile parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
  select w.state,
         w.detail,
         q.unread_events,
         q.oldest_unread_age,
         q.queued,
         q.in_flight,
         q.pending,
         q.retrying,
         q.dead,
         q.fenced,
         q.foreign_events,
         i.pending,
         i.dead,
         w.last_error,
         coalesce(nullif(concat_ws(' ',
           w.hint,
           case when w.state = 'running' and q.oldest_unread_age > interval '1 minute'
             then 'The leader is behind: see webhook.stat_worker and the server log.' end,
           case when q.dead > 0
             then 'Some deliveries are dead: see webhook.dead_letters, mend the cause, then use webhook.retry.' end,
           case when i.dead > 0
             then 'Some received events are dead: see webhook.inbox where state = ''dead'', mend the handler, then use webhook.retry_inbox.' end,
           case when exists (select from webhook.pauses p)
             then 'Deliveries are paused: see webhook.pauses.' end,
           case when webhook._keys_in_clear()
             then 'Keys are stored unencrypted: set webhook.master_key_file and call webhook.reencrypt_secrets().' end,
           case when q.fenced > 0
             then 'Rows of webhook._event were changed after the emit and are not sent: see webhook.events where fenced = ''seal'' and find out who did it.' end,
           'Not the extension''s own, and able to stop it: ' || array_to_string(webhook._foreign_code(), ', ') || '.',
           case when q.running_adoptions > 0
             then 'An origin is being adopted: see webhook.adoptions.' end,
           case when q.other_origins > 0
             then 'This database is a copy of another one, whose events and endpoints do nothing here: see webhook.stat_fenced. If it takes the other one''s place, use webhook.adopt; never while the other one still sends.' end),
           ''), 'Nothing to do.')
    from webhook.stat_worker w
   cross join webhook.stat_queue q
   cross join webhook._inbox_backlog() as i
$$;
comment on function webhook.status() is 'State of the outbox in one row, with advice. Costs what stat_queue costs.';
