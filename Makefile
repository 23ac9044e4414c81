# webhook_outbox: `make help` lists what there is. PG names the PostgreSQL major version: 15 (default), 16, 17 or 18.
#
# The private servers, and all else that tests and demo need, live in build/. Only `make install` puts anything
# into a server of the machine: the one PG_CONFIG belongs to.

PG ?= 15
MAJORS ?= 15
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: help setup server build install install-files stage demo acceptance reference test test-all package readme peers campaign bench bench-full lint check-old clean

# Written down once, in Cargo.toml.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
PLACES := . pg_test/support/places.sh

# A PG_CONFIG of the caller's own needs none of what `server` installs.
ifeq ($(origin PG_CONFIG),undefined)
PREPARE := server
PG_CONFIG = $(shell $(PLACES) && header_pg_config $(PG))
endif
# Whose folders `install` copies into: those of the server built for, unless told otherwise.
INTO ?= $(PG_CONFIG)

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## installs what is missing (Debian packages as root, a Python environment, private servers)
	@pg_test/support/setup.sh $(PG)

server: ## the same without what tests alone need
	@pg_test/support/setup.sh server $(PG)

build: $(PREPARE) ## compiles the extension for PG
	PGRX_PG_CONFIG_PATH="$(PG_CONFIG)" CARGO_TARGET_DIR=target/pg$(PG) \
	  cargo build --locked --release --no-default-features --features pg$(PG)

install: build ## builds, and copies the extension into the server of PG_CONFIG (INTO=other to copy elsewhere)
	@$(MAKE) --no-print-directory install-files PG=$(PG) INTO="$(INTO)"

# What is built already; packaging/deb calls it as well.
install-files:
	umask 022; library="$$($(INTO) --pkglibdir)"; extension="$$($(INTO) --sharedir)/extension"; \
	install -d "$(DESTDIR)$$library" "$(DESTDIR)$$extension"; \
	install -m 755 target/pg$(PG)/release/libwebhook_outbox.so "$(DESTDIR)$$library/webhook_outbox.so.new"; \
	mv -f "$(DESTDIR)$$library/webhook_outbox.so.new" "$(DESTDIR)$$library/webhook_outbox.so"; \
	sed "s/^default_version = .*/default_version = '$(VERSION)'/" webhook_outbox.control \
	  >"$(DESTDIR)$$extension/webhook_outbox.control"; \
	LC_ALL=C; export LC_ALL; cat sql/[0-9][0-9]_*.sql >"$(DESTDIR)$$extension/webhook_outbox--$(VERSION).sql"; \
	for upgrade in sql/webhook_outbox--*.sql; do \
	  if [ -e "$$upgrade" ]; then install -m 644 "$$upgrade" "$(DESTDIR)$$extension/"; fi; \
	done

stage: server ## builds, and installs into the private server of tests and demo
	@$(PLACES) && $(MAKE) --no-print-directory install PG=$(PG) INTO="$$(server_pg_config $(PG))"

demo: ## shows a signed, a retried and a replayed delivery on a private server
	@examples/demo/run $(PG)

acceptance: ## proves the whole chain on a private server, or on yours: DATABASE="host=... dbname=..."
	@examples/acceptance/run $(PG)

reference: stage ## writes docs/reference.md anew, from the comments in sql/ and the settings
	@docs/generate $(PG)

test: ## everything: lint, the pure rooms, the oldest and the newest PostgreSQL
	@pg_test/all

test-all: ## the same with every PostgreSQL, the packages, and the README in a bare Debian (hours)
	@MAJORS="15 16 17 18" pg_test/all
	@$(MAKE) --no-print-directory package MAJORS="15 16 17 18"
	@packaging/readme

package: ## a Debian package for each PostgreSQL in MAJORS (15), checked, installed in a clean Debian and tried there
	@for major in $(MAJORS); do \
	  $(MAKE) --no-print-directory build PG=$$major; packaging/deb $$major; packaging/smoke $$major; \
	done

readme: ## follows the README in a system that has nothing but Debian 12 and Rust, to a delivery; then the demo there
	@packaging/readme

peers: setup stage ## public receivers judge many events in every format and profile (the suite has them judge a few)
	@$(PLACES) && export WEBHOOK_PG_CONFIG="$$(server_pg_config $(PG))" CARGO_TARGET_DIR=target/pure; \
	  WEBHOOK_PEER_EVENTS=300 cargo test --locked --quiet -p webhook_outbox_test --test peers -- --nocapture

campaign: stage ## the long forms: 200 kills under load, a soak, an outage and look-ups with a million rows, a replay, fuzzing (2 h)
	@$(PLACES) && export WEBHOOK_PG_CONFIG="$$(server_pg_config $(PG))" CARGO_TARGET_DIR=target/pure; \
	  WEBHOOK_KILLS=200 WEBHOOK_EVENTS=50000 cargo test --locked --quiet -p webhook_outbox_test --test campaign -- --nocapture && \
	  WEBHOOK_SOAK_SECONDS=900 cargo test --locked --quiet -p webhook_outbox_test --test soak -- --nocapture && \
	  WEBHOOK_ROWS=1000000 WEBHOOK_JUDGE=1 cargo run --locked --quiet --release -p webhook_outbox_bench -- outage views range
	@fuzz/run

bench: stage ## every measurement beside bare clients, table and bench/out/results.json (PART=... for one of them)
	@$(PLACES) && export WEBHOOK_PG_CONFIG="$$(server_pg_config $(PG))" CARGO_TARGET_DIR=target/pure; \
	  WEBHOOK_ROWS="$${WEBHOOK_ROWS:-200000}" cargo run --locked --quiet --release -p webhook_outbox_bench -- $(PART); \
	  if [ -z "$(PART)" ]; then cargo bench --locked --quiet -p webhook_outbox_bench; fi

bench-full: stage ## the same with ten million deliveries (hours)
	@$(PLACES) && export WEBHOOK_PG_CONFIG="$$(server_pg_config $(PG))" CARGO_TARGET_DIR=target/pure; \
	  WEBHOOK_ROWS=10000000 WEBHOOK_ROUNDS=5 cargo run --locked --quiet --release -p webhook_outbox_bench

lint: setup ## formatting, clippy, licences, no unsafe code outside src/pg
	@pg_test/support/lint.sh

check-old: ## type-checks with the headers of PostgreSQL 13 and 14, which are not supported
	@pg_test/support/check_old.sh

clean: ## removes all that was built
	rm -rf target pg_test/out "$$(readlink -m build)" build
