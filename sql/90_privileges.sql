-- Who may do what, in one place. Nothing is granted to PUBLIC; roles get what they need one by one.

-- EXECUTE on every new function is PUBLIC's by default: it would let any user of the database emit, make
-- endpoints and read the lists.
revoke all on all routines in schema webhook from public;
-- ALTER DEFAULT PRIVILEGES of the installing role may have given tables, or the schema, to everybody.
revoke all on all tables in schema webhook from public;
revoke all on all sequences in schema webhook from public;
revoke all on schema webhook from public;
-- They may have named roles, too.
do $$
declare
  given record;
begin
  perform webhook._close(c.oid::regclass)
     from pg_catalog.pg_class as c
    where c.relnamespace = 'webhook'::regnamespace
      and c.relkind in ('r', 'p', 'v', 'S');
  for given in
    select p.oid::regprocedure as routine, a.grantee::regrole as grantee
      from pg_catalog.pg_proc as p
     cross join lateral pg_catalog.aclexplode(p.proacl) as a
     where p.pronamespace = 'webhook'::regnamespace
       and a.grantee <> p.proowner
       and a.grantee <> 0
  loop
    execute format('revoke all on function %s from %s', given.routine, given.grantee);
  end loop;
end
$$;

-- Monitoring agents read how it is going, by endpoint too, and what alerts there are: no payload, no URL, no
-- evidence of single deliveries. Functions that a view calls run with the rights of whoever reads it, so they
-- need EXECUTE as well: what they tell is an origin, a time and counters.
grant usage on schema webhook to pg_monitor;
grant select on webhook.stat_queue to pg_monitor;
grant select on webhook.stat_worker to pg_monitor;
grant select on webhook.stat_fenced to pg_monitor;
grant select on webhook.stat_endpoint to pg_monitor;
grant select on webhook.endpoint_health to pg_monitor;
grant select on webhook.alerts to pg_monitor;
grant select on webhook.stat_inbox to pg_monitor;
grant select on webhook.inbox_rejections to pg_monitor;
grant execute on function webhook._origin() to pg_monitor;
grant execute on function webhook._event_time(text) to pg_monitor;
grant execute on function webhook._unread(bigint) to pg_monitor;
-- Metrics name nobody. The page shows of endpoints and alerts what the views above show.
grant select on webhook.stat_metrics to pg_monitor;
grant execute on function webhook.metrics() to pg_monitor;
grant execute on function webhook._metric_list() to pg_monitor;
grant execute on function webhook._counters() to pg_monitor;
grant execute on function webhook._gauges() to pg_monitor;
grant execute on function webhook.dashboard() to pg_monitor;
grant execute on function webhook._dashboard_page(jsonb) to pg_monitor;
grant execute on function webhook._history() to pg_monitor;
grant execute on function webhook._utc(timestamptz) to pg_monitor;
-- Progress names partners as stat_endpoint does, and no subject.
grant select on webhook.stat_progress_replay to pg_monitor;
grant select on webhook.stat_progress_adopt to pg_monitor;
grant select on webhook.stat_progress_retention to pg_monitor;
grant select on webhook.stat_progress_expunge to pg_monitor;
grant execute on function webhook._retention_progress() to pg_monitor;
grant execute on function webhook._worker() to pg_monitor;
