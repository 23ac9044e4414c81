#!/usr/bin/env bash
# Headers and pg_config of PostgreSQL 13 and 14, for the type check alone: `old_headers.sh 13`. The extension runs on neither.
# 14 comes as 16 and 17 do; 13 is taken out of Debian 11's packages, which are unpacked in build/pg13 and not installed.
set -euo pipefail
. "$(dirname "$0")/places.sh"

major=$1
tree=$BUILD/pg$major
case "$major" in
  13) ;;
  14) exec "$here/pg_binaries.sh" 14 ;;
  *) echo "there are no old headers of PostgreSQL $major here" >&2; exit 1 ;;
esac
[ -e "$tree/ready" ] && exit 0
echo "fetching the headers of PostgreSQL 13 (Debian 11)"
rm -rf "$tree"
mkdir -p "$tree/apt/lists/partial" "$tree/apt/archives/partial"
# From the mirror that this machine uses, by lists of their own: what apt knows of this machine stays as it is.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bullseye main" >"$tree/apt/sources.list"
options=(-qq -o "Dir::Etc::sourcelist=$tree/apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$tree/apt/lists"
  -o "Dir::Cache=$tree/apt" -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
cd "$tree/apt"
apt-get "${options[@]}" download postgresql-server-dev-13 postgresql-client-13
for package in *.deb; do
  dpkg-deb -x "$package" "$tree"
done
cd "$ROOT"
rm -rf "$tree/apt"
"$(header_pg_config 13)" --version
touch "$tree/ready"
