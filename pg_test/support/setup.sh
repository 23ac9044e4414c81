#!/usr/bin/env bash
# Makes a fresh Debian 12 with a Rust toolchain ready: `setup.sh MAJOR...` for the tests, `setup.sh server MAJOR...` for
# what the demo and the acceptance need. Installs only what is missing, may be run any number of times, and never starts,
# changes or removes a PostgreSQL cluster of the machine.
set -euo pipefail
. "$(dirname "$0")/places.sh"

packages=(gcc make libc6-dev ca-certificates python3 python3-venv util-linux
  postgresql-15 postgresql-server-dev-15 clang libclang-dev libfaketime)

main() {
  local for_tests=yes
  if [ "${1:-}" = server ]; then
    for_tests=no
    shift
  fi
  install_packages
  open_build_folder
  make_venv
  if [ "$for_tests" = yes ]; then
    make_peers
    "$here/monitoring.sh"
  fi
  for major in "$@"; do
    make_server "$major"
  done
}

install_packages() {
  local missing=()
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "please install as root: ${missing[*]}" >&2
    exit 1
  fi
  echo "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  quietly apt-get update
  # Debian would create and start a cluster "main" with the server package: the house needs none.
  local config=/etc/postgresql-common/createcluster.conf kept=
  if [[ " ${missing[*]} " == *" postgresql-15 "* ]]; then
    quietly apt-get install -y --no-install-recommends postgresql-common
    kept=$(mktemp)
    cp -p "$config" "$kept"
    echo 'create_main_cluster = false' >>"$config"
  fi
  local status=0
  quietly apt-get install -y --no-install-recommends "${missing[@]}" || status=$?
  [ -z "$kept" ] || mv "$kept" "$config"
  return "$status"
}

# Shows what a command said only if it failed.
quietly() {
  local said
  said=$("$@" 2>&1 </dev/null) || { echo "$said" >&2; return 1; }
}

# The server's user must be able to reach the private servers below `build`.
open_build_folder() {
  mkdir -p "$BUILD"
  if ! as_server test -r "$BUILD" -a -x "$BUILD"; then
    local outside
    outside=$(mktemp -d /var/tmp/webhook_outbox.XXXXXX)
    chmod 755 "$outside"
    rm -rf "$ROOT/build"
    ln -s "$outside" "$ROOT/build"
    BUILD=$outside
  fi
}

make_venv() {
  local wanted="$here/requirements.txt"
  cmp -s "$wanted" "$BUILD/venv/installed" && return 0
  rm -rf "$BUILD/venv"
  # Debian's own interpreter, where there is one: it is the one whose venv module was installed above.
  local python=/usr/bin/python3
  [ -x "$python" ] || python=python3
  "$python" -m venv "$BUILD/venv"
  "$BUILD/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$BUILD/venv/installed"
}

# The public receivers that run in Node. Nothing of theirs is run while they are installed.
make_peers() {
  local wanted="$here/peers" into="$BUILD/peers"
  if ! command -v npm >/dev/null; then
    if [ "$(id -u)" != 0 ]; then
      echo "please install Node.js 20 or later, with npm" >&2
      exit 1
    fi
    quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends nodejs npm
  fi
  mkdir -p "$into"
  # Beside their modules, where Node looks for those.
  cp "$wanted"/judge.py "$wanted"/judge.mjs "$into/"
  cmp -s "$wanted/package-lock.json" "$into/installed" && return 0
  cp "$wanted"/package.json "$wanted"/package-lock.json "$into/"
  (cd "$into" && quietly npm ci --ignore-scripts --no-audit --no-fund)
  cp "$wanted/package-lock.json" "$into/installed"
}

# A private copy of the server, so that tests and demo put nothing into the machine's own PostgreSQL.
make_server() { # major
  case "$1" in
    15) "$here/pg15.sh" ;;
    16 | 17) "$here/pg_binaries.sh" "$1" ;;
    18) "$here/pg18.sh" ;;
    *) echo "PG must be 15, 16, 17 or 18, not \"$1\"" >&2; exit 1 ;;
  esac
}

main "$@"
