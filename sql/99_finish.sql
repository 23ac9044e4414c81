-- What a dump keeps, and the first wake. Rows of an extension's tables are dumped only when it says so.
-- Not dumped: _due, _ledger, _request, _day_count, _endpoint_seen and _payload_progress. A copy has nothing to carry out; its leader begins its own ledger,
-- and what waited is in _delivery.

-- Daily partitions are no members of the extension: pg_dump writes them as plain tables and attaches them.
select pg_catalog.pg_extension_config_dump('webhook._event_default', '');
select pg_catalog.pg_extension_config_dump('webhook._event_version_default', '');
select pg_catalog.pg_extension_config_dump('webhook._feed_default', '');
select pg_catalog.pg_extension_config_dump('webhook._delivery_default', '');
select pg_catalog.pg_extension_config_dump('webhook._attempt_default', '');
select pg_catalog.pg_extension_config_dump('webhook._excerpt_default', '');
select pg_catalog.pg_extension_config_dump('webhook._idempotency', '');
select pg_catalog.pg_extension_config_dump('webhook._fenced', '');
select pg_catalog.pg_extension_config_dump('webhook._erasure', '');
select pg_catalog.pg_extension_config_dump('webhook._tombstone', '');
select pg_catalog.pg_extension_config_dump('webhook._finding', '');
select pg_catalog.pg_extension_config_dump('webhook._reconciliation', '');
select pg_catalog.pg_extension_config_dump('webhook._endpoint', '');
select pg_catalog.pg_extension_config_dump('webhook._endpoint_state', '');
select pg_catalog.pg_extension_config_dump('webhook._endpoint_revision', '');
select pg_catalog.pg_extension_config_dump('webhook._filter', '');
select pg_catalog.pg_extension_config_dump('webhook._verification', '');
select pg_catalog.pg_extension_config_dump('webhook._secret', '');
select pg_catalog.pg_extension_config_dump('webhook._event_type', '');
select pg_catalog.pg_extension_config_dump('webhook._event_schema', '');
select pg_catalog.pg_extension_config_dump('webhook._conversion', '');
select pg_catalog.pg_extension_config_dump('webhook._source', '');
select pg_catalog.pg_extension_config_dump('webhook._threshold', '');
select pg_catalog.pg_extension_config_dump('webhook._observation', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_source', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_key', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_handler', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_run', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_subject', '');
select pg_catalog.pg_extension_config_dump('webhook._inbox_count', '');
-- The row "default" that CREATE EXTENSION made gives way to the restored one, see 12_endpoint.sql.
select pg_catalog.pg_extension_config_dump('webhook._policy', '');
select pg_catalog.pg_extension_config_dump('webhook._pause', '');
select pg_catalog.pg_extension_config_dump('webhook._access', '');
select pg_catalog.pg_extension_config_dump('webhook._alert', '');
select pg_catalog.pg_extension_config_dump('webhook._audit', '');
-- Evidence, and where endpoints come from. A copy trusts none of it: each row names the database that adopted.
select pg_catalog.pg_extension_config_dump('webhook._adoption', '');
select pg_catalog.pg_extension_config_dump('webhook._adopted_endpoint', '');
select pg_catalog.pg_extension_config_dump('webhook._adoption_progress', '');
-- Evidence as well: each row names the database that asked, and another one carries out none of them.
select pg_catalog.pg_extension_config_dump('webhook._replay', '');
select pg_catalog.pg_extension_config_dump('webhook._replay_progress', '');
-- The row that CREATE EXTENSION made before the restore has a random id of its own.
select pg_catalog.pg_extension_config_dump('webhook._seal_key', '');

-- Without the launcher everything works but the sending: said now, rather than found out later.
do $$
declare
  worker record;
begin
  select w.state, w.detail, w.hint
    into worker
    from webhook._worker() as w;
  if worker.state operator(pg_catalog.=) 'not preloaded' then
    raise warning using
      message = 'webhooks will not be sent',
      detail = worker.detail,
      hint = worker.hint;
  end if;
end
$$;

-- The launcher looks for the extension when this transaction commits.
select webhook._wake();
