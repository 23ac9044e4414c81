-- The page that shows how it is going. What it shows is read here, with the rights of whoever asks; how it looks is
-- drawn from that in src/rules/dashboard. No payload, no URL, no answer of a receiver comes into it.

create function webhook._history()
returns jsonb -- steps of five minutes, oldest first: counts, and median and 95th percentile of times in seconds
language c volatile parallel restricted
as 'MODULE_PATHNAME', 'history_wrapper';
comment on function webhook._history() is 'The last six hours of this database''s leader, from shared memory; they begin with the server.';

create function webhook._dashboard_page(
  data jsonb -- what is to be shown
) returns text -- HTML
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'dashboard_page_wrapper';
comment on function webhook._dashboard_page(jsonb) is 'Draws the page; every text in it is escaped.';

create function webhook._utc(
  at timestamptz -- a time
) returns text -- the same in UTC, to the second
language sql stable strict parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS')
$$;
comment on function webhook._utc(timestamptz) is 'A time as the page shows it.';

create function webhook.dashboard()
returns text -- an HTML page that needs nothing else
language plpgsql volatile parallel restricted
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  gauges jsonb;
  data jsonb;
  history constant jsonb := webhook._history();
  worker webhook.stat_worker;
  found_rows jsonb;
begin
  select w.* into worker from webhook.stat_worker as w;
  select jsonb_object_agg(g.metric || coalesce('.' || (select v.value from jsonb_each_text(g.labels) as v limit 1), ''), g.value)
    into gauges
    from webhook._gauges() as g
   where g.metric <> 'webhook_build_info';
  data := jsonb_build_object(
    'database', worker.database,
    'version', worker.library_version,
    'at', webhook._utc(clock_timestamp()),
    'worker', jsonb_build_object('state', worker.state),
    'advice', concat_ws(' ', worker.detail, worker.hint),
    'history', history,
    'success_rate', (
      select sum((s ->> 'delivered')::numeric) / nullif(sum((s ->> 'delivered')::numeric + (s ->> 'failed')::numeric), 0)
        from jsonb_array_elements(history) as s
       where (s ->> 'at')::bigint >= extract(epoch from clock_timestamp()) - 3600),
    'numbers', jsonb_build_object(
      'unread', gauges -> 'webhook_events_unread',
      'unread_age', gauges -> 'webhook_oldest_unread_age_seconds',
      'queued', gauges -> 'webhook_pairs_queued',
      'in_flight', gauges -> 'webhook_requests_in_flight',
      'due', gauges -> 'webhook_pairs_parked.due',
      'held', gauges -> 'webhook_pairs_parked.held',
      'pending', gauges -> 'webhook_open_deliveries.pending',
      'retrying', gauges -> 'webhook_open_deliveries.retrying',
      'dead', gauges -> 'webhook_open_deliveries.dead',
      'fenced', gauges -> 'webhook_events_fenced',
      'pauses', (select sum(p.value::numeric) from jsonb_each_text(gauges) as p where p.key like 'webhook\_pauses\_active.%')));

  select coalesce(jsonb_agg(to_jsonb(f) order by f.failures desc), '[]')
    into found_rows
    from (select h.endpoint_id::text,
                 h.partner_id,
                 h.health,
                 h.failures,
                 date_trunc('second', clock_timestamp() - h.failing_since)::text as failing_for,
                 h.last_status,
                 h.last_error_category,
                 webhook._utc(h.disable_at) as disable_at
            from webhook.endpoint_health h
           where h.health in ('failing', 'down')
           order by h.failures desc
           limit 20) as f;
  data := data || jsonb_build_object('endpoints', found_rows);

  -- Monitoring may see alerts and how endpoints do, and no single delivery.
  if has_table_privilege('webhook.dead_letters', 'select') then
    select coalesce(jsonb_agg(to_jsonb(d) order by d.event_id desc), '[]')
      into found_rows
      from (select l.delivery_id,
                   l.event_id,
                   l.partner_id,
                   l.type,
                   l.attempt_count,
                   l.last_status,
                   l.last_error_category,
                   l.reason,
                   webhook._utc(l.emitted_at) as emitted_at
              from webhook.dead_letters l
             order by l.event_id desc
             limit 20) as d;
    data := data || jsonb_build_object('dead_letters', found_rows);
  end if;

  select coalesce(jsonb_agg(to_jsonb(a) order by a.alert_id desc), '[]')
    into found_rows
    from (select l.alert_id,
                 webhook._utc(l.at) as at,
                 l.severity,
                 l.kind,
                 l.partner_id,
                 l.endpoint_id::text,
                 l.detail
            from webhook.alerts l
           order by l.alert_id desc
           limit 20) as a;
  data := data || jsonb_build_object('alerts', found_rows);
  return webhook._dashboard_page(data);
end
$$;
comment on function webhook.dashboard() is
  'One self-contained HTML page: queue, charts of the last six hours, failing endpoints, dead letters, alerts. No script, no request to anybody, no payload. Costs what metrics() costs and three short lists.';
