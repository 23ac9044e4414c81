#!/usr/bin/env python3
"""Proves an installation: `acceptance.py "host=... dbname=..."` sends through the whole chain and prints what passed.

It makes a throw-away partner with endpoints of its own, listens itself, and goes through every step that a delivery can
take. The database is seen as an operator sees it: by SQL, with the rights `emit` and `operate`. The receiving end is seen as a
partner sees it: each request is verified by the public Standard Webhooks library (`pip install standardwebhooks
"psycopg[binary]"`).

By default it listens on 127.0.0.1 and is called by plain HTTP, which the boundary of a test installation has to allow. In
production put it behind the TLS proxy that your receivers have: `--port 8099 --url https://hooks.example.com/acceptance`.

At its end the partner is offboarded, its keys are destroyed and its payloads erased. What stays is what always stays: ids, times
and the audit log, for as long as they are kept, and the event type acceptance.kept, whose payloads are kept for a second. The exit status is 1 when anything failed.
"""

import argparse
import secrets
import sys
import time

import psycopg

from checks import CHECKS
from receiver import Receiver


class Failed(Exception):
    """A check found something else than it should."""


class Acceptance:
    """What the checks share: a session, a receiver, the partner, and what was emitted."""

    def __init__(self, options):
        self.options = options
        self.session = psycopg.connect(options.database, autocommit=True, application_name="webhook acceptance")
        self.partner = f"acceptance-{secrets.token_hex(4)}"
        self.receiver = Receiver(options.port)
        self.url = options.url or f"http://127.0.0.1:{self.receiver.port}"
        self.patience = options.patience
        self.endpoints, self.emitted, self.warnings = {}, [], []
        self.began = self.value("select clock_timestamp()")

    def rows(self, query, *arguments):
        return self.session.execute(query, arguments or None).fetchall()

    def value(self, query, *arguments):
        return self.rows(query, *arguments)[0][0]

    def expect(self, true, what):
        if not true:
            raise Failed(what)

    def until(self, what, query, *arguments, more=0):
        """Waits until the one value of a query is true, some seconds more than for anything else."""
        patience = self.patience + more
        end = time.monotonic() + patience
        while not self.value(query, *arguments):
            if time.monotonic() > end:
                raise Failed(f"waited {patience:.0f} s in vain: {what}")
            time.sleep(0.02)

    def endpoint(self, name, types="{acceptance.*}", test=True, more=""):
        """The id of an endpoint of the partner, made when it is first asked for, in service after a challenge."""
        if name not in self.endpoints:
            with self.session.transaction():
                endpoint, secret = self.rows(
                    "select endpoint_id, secret from webhook.create_endpoint(%s, %s, %s, test => %s, policy => %s)",
                    self.partner, f"{self.url}/{name}", types, test, self.partner)[0]
                # Before the commit: the challenge comes right after it.
                self.receiver.hook(name, secret)
            self.endpoints[name] = endpoint
            self.until(f"endpoint {name} is proven",
                       "select state = 'active' and verified_by = 'challenge' from webhook.endpoints where endpoint_id = %s", endpoint)
        return self.endpoints[name]

    def emit(self, kind="acceptance.run", data='{"amount": "1.10"}', test=True, **more):
        named = "".join(f", {name} => %s" for name in more)
        event = self.value(f"select webhook.emit(%s, %s, %s, test => %s{named})", kind, self.partner, data, test, *more.values())
        if test and event not in self.emitted:
            self.emitted.append(event)
        return event

    def arrival(self, event, name="main", times=1):
        """Waits until an event has arrived so often at an endpoint, and returns the requests."""
        self.receiver.wait_for(f"{event} arrives {times} times", lambda: len(self.receiver.of(event, name)) >= times, self.patience)
        return self.receiver.of(event, name)

    def state(self, event, name="main"):
        rows = self.rows("select state from webhook.deliveries where event_id = %s and endpoint_id = %s", event, self.endpoints[name])
        return rows[0][0] if rows else None

    def reaches(self, event, state, name="main"):
        self.until(f"the delivery is {state}",
                   "select exists (select from webhook.deliveries where event_id = %s and endpoint_id = %s and state = %s)",
                   event, self.endpoint(name), state)

    def done(self, request):
        """Waits until the leader has carried a request out."""
        self.until("the request is done", "select state <> 'pending' from webhook.requests where request_id = %s", request)
        state, result = self.rows("select state, result from webhook.requests where request_id = %s", request)[0]
        self.expect(state == "done", f"the request was refused: {result}")

    def run(self):
        failures = 0
        for name, check in CHECKS:
            if self.options.only and name not in self.options.only.split(","):
                continue
            began = time.monotonic()
            try:
                word, seen = "passed", check(self)
                word = "left out" if seen is None else word
            except (Failed, AssertionError, psycopg.Error) as error:
                word, seen, failures = "FAILED", " ".join(str(error).split()), failures + 1
            print(f"{name:16} {word:8} {time.monotonic() - began:7.2f} s  {seen or 'not asked for'}", flush=True)
        for area, item, result, detail, hint in self.warnings:
            print(f"{result:8} {area}, {item}: {detail} {hint or ''}")
        return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("database", help="how to connect, as libpq takes it")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (any)")
    parser.add_argument("--url", help="how the database reaches it (http://127.0.0.1:PORT)")
    parser.add_argument("--events", type=int, default=500, help="events for the capacity check (500)")
    parser.add_argument("--rate", type=float, default=50, help="deliveries per second that it has to reach (50)")
    parser.add_argument("--patience", type=float, default=30, help="seconds to wait for anything (30)")
    parser.add_argument("--end-leader", action="store_true", help="also end the leader while it sends; another one starts at once")
    parser.add_argument("--reload", action="store_true", help="have the configuration read again, upon which the leader looks at once "
                        "for what is old, instead of within a minute; takes the right to call pg_reload_conf()")
    parser.add_argument("--only", help="these checks alone, separated by commas")
    acceptance = Acceptance(parser.parse_args())
    try:
        failures = acceptance.run()
    finally:
        acceptance.receiver.close()
    print(f"{failures} of the checks failed" if failures else "accepted: the whole chain works")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
