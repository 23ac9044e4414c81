# A private, throw-away PostgreSQL cluster for shell scripts: start_cluster, stop_cluster. It lives in a fresh
# temporary folder, listens on a Unix socket only, and is removed when it is stopped. Sourced after places.sh.

# Starts a cluster of MAJOR; every further argument is a line of postgresql.conf. Sets and exports PGHOST, PGPORT,
# PGUSER and PGDATABASE, and sets CLUSTER (its folder) and PG_BIN.
start_cluster() { # major [setting...]
  local major=$1 setting
  shift
  PG_BIN=$("$(server_pg_config "$major")" --bindir)
  CLUSTER=$(mktemp -d "${TMPDIR:-/tmp}/webhook.XXXXXX")
  chmod 700 "$CLUSTER"
  [ "$(id -u)" != 0 ] || chown postgres "$CLUSTER"
  # Without a master key the first key of each session comes with a WARNING.
  head -c 32 /dev/urandom | base64 >"$CLUSTER/master.key"
  chmod 600 "$CLUSTER/master.key"
  [ "$(id -u)" != 0 ] || chown postgres "$CLUSTER/master.key"
  in_cluster "$PG_BIN/initdb" -A trust -N -U postgres -E UTF8 --locale=C.UTF-8 -D data >/dev/null
  {
    echo "listen_addresses = ''"
    echo "unix_socket_directories = '$CLUSTER'"
    echo "fsync = off"
    echo "log_line_prefix = '%m [%p] %b %d '"
    echo "max_worker_processes = 16"
    echo "max_prepared_transactions = 20"
    echo "webhook.master_key_file = '$CLUSTER/master.key'"
    for setting in "$@"; do echo "$setting"; done
  } >>"$CLUSTER/data/postgresql.conf"
  export PGHOST=$CLUSTER PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
  if ! in_cluster "$PG_BIN/pg_ctl" -D data -l log -w -t 60 start >/dev/null; then
    tail -n 50 "$CLUSTER/log" >&2
    return 1
  fi
}

# Stops the cluster and removes it. Safe to call twice, and as the only action of an exit trap.
stop_cluster() {
  [ -n "${CLUSTER:-}" ] || return 0
  if [ -e "$CLUSTER/data/postmaster.pid" ]; then
    in_cluster "$PG_BIN/pg_ctl" -D data -m fast -w -t 30 stop >/dev/null ||
      in_cluster "$PG_BIN/pg_ctl" -D data -m immediate -w -t 30 stop >/dev/null || true
  fi
  rm -rf "$CLUSTER"
  CLUSTER=
}

# The current folder may be one that the server's user cannot enter.
in_cluster() {
  (cd "$CLUSTER" && as_server "$@")
}
