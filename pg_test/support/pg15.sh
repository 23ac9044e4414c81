#!/usr/bin/env bash
# A private copy of Debian's PostgreSQL 15 in build/pg15. PostgreSQL finds its folders relative to its own program,
# so a copy that keeps the layout works, and what is installed into it stays out of the machine's server.
set -euo pipefail
. "$(dirname "$0")/places.sh"

tree=$BUILD/pg15
version=$(dpkg-query -W -f='${Version}' postgresql-15)
[ "$(cat "$tree/version" 2>/dev/null)" = "$version" ] && exit 0
echo "copying PostgreSQL 15 ($version)"
rm -rf "$tree"
mkdir -p "$tree/lib/postgresql" "$tree/share/postgresql"
cp -a /usr/lib/postgresql/15 "$tree/lib/postgresql/"
cp -a /usr/share/postgresql/15 "$tree/share/postgresql/"
ln -s /usr/include "$tree/include"
"$(server_pg_config 15)" --version
echo "$version" >"$tree/version"
