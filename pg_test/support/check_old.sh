#!/usr/bin/env bash
# Type-checks the extension with the headers of PostgreSQL 13 and 14: `make check-old`. Whether it runs there is not said: no
# test has seen it.
set -euo pipefail
. "$(dirname "$0")/places.sh"
cd "$ROOT"

"$here/setup.sh" server
for major in 13 14; do
  "$here/old_headers.sh" "$major"
  # Debian's pg_config names the folder that the package would be installed in.
  [ "$major" != 13 ] || export PGRX_INCLUDEDIR_SERVER_PG13=$BUILD/pg13/usr/include/postgresql/13/server
  PGRX_PG_CONFIG_PATH=$(header_pg_config "$major") CARGO_TARGET_DIR=target/old RUSTFLAGS="-D warnings" \
    cargo check --locked --quiet --no-default-features --features "pg$major"
  echo "PostgreSQL $major: type-checks"
done
