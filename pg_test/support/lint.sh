#!/usr/bin/env bash
# What can be said about the code without running it.
set -euo pipefail
. "$(dirname "$0")/places.sh"
cd "$ROOT"

cargo fmt --all --check
cargo fmt --manifest-path fuzz/Cargo.toml --check

# `pure` is the target folder of all that is built without PostgreSQL; `pg15` that of the extension, whose release
# profile is the one installed and tested: both share their build scripts with the builds that follow.
CARGO_TARGET_DIR=target/pure cargo clippy --locked --quiet --workspace --all-targets --no-default-features -- -D warnings
CARGO_TARGET_DIR=target/pure cargo clippy --locked --quiet -p webhook_outbox_examples --features sqlx --bins -- -D warnings
CARGO_TARGET_DIR=target/pure cargo clippy --locked --quiet --manifest-path fuzz/Cargo.toml --bins -- -D warnings
PGRX_PG_CONFIG_PATH=$(header_pg_config 15) CARGO_TARGET_DIR=target/pg15 \
  cargo clippy --locked --quiet --release --all-targets --no-default-features --features pg15 -- -D warnings

"$BUILD/venv/bin/python" "$here/licences.py"
"$BUILD/venv/bin/python" "$here/install_script.py"

# The compiler refuses unsafe code where this stands; that it stands there is checked here.
for room in rules wire; do
  if ! grep -q '^#!\[forbid(unsafe_code)\]' "src/$room/mod.rs"; then
    echo "src/$room/mod.rs does not forbid unsafe code" >&2
    exit 1
  fi
done

for script in .ci/run fuzz/run examples/demo/run examples/acceptance/run docs/generate packaging/* pg_test/all pg_test/run pg_test/support/*.sh \
  pg_test/upgrade/compare; do
  bash -n "$script"
done
echo "lint: nothing to complain about"
