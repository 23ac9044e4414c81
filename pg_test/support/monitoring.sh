#!/usr/bin/env bash
# Prometheus, its exporter for PostgreSQL, and a browser without a window, from Debian, unpacked into build/monitoring:
# tests run what users would install, and the machine gets no service, no user and no package of them.
set -euo pipefail
. "$(dirname "$0")/places.sh"

into=$BUILD/monitoring
wanted=(prometheus prometheus-postgres-exporter chromium-headless-shell fonts-dejavu-core)

main() {
  [ "$(cat "$into/installed" 2>/dev/null)" != "${wanted[*]}" ] || return 0
  echo "unpacking ${wanted[*]}"
  rm -rf "$into"
  mkdir -p "$into/packages" "$into/root"
  fetch || { apt-get update >/dev/null 2>&1 && fetch; } || {
    echo "could not fetch ${wanted[*]} from Debian" >&2
    exit 1
  }
  for package in "$into"/packages/*.deb; do
    dpkg-deb -x "$package" "$into/root"
  done
  rm -rf "$into/packages"
  # The letters of the tests' names, whatever fonts the machine has.
  cat >"$into/fonts.conf" <<END
<?xml version="1.0"?>
<fontconfig><dir>$into/root/usr/share/fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
END
  echo "${wanted[*]}" >"$into/installed"
}

# With the libraries that the browser needs and this machine does not have.
fetch() {
  local packages
  packages=$(apt-get -s install --no-install-recommends chromium-headless-shell 2>/dev/null | awk '/^Inst/ { print $2 }')
  # The machine may have it: it is fetched all the same.
  (cd "$into/packages" && apt-get download $(printf '%s\n' "${wanted[@]}" $packages | sort -u)) >/dev/null 2>&1
}

main "$@"
