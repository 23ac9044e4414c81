#!/usr/bin/env python3
"""A receiver of webhooks, as a partner could run it: `WEBHOOK_SECRET=whsec_... receiver.py PORT INBOX_FILE`.

It verifies each request with the public Standard Webhooks library (`pip install standardwebhooks`), stores the event
in an inbox under its id, and answers 2xx only when that is committed. The work itself happens afterwards, from the
inbox: "received" and "processed" are two things. It listens on loopback; put a TLS proxy in front of it.
"""

import json
import os
import sqlite3
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

MAX_BODY = 1 << 20
TABLES = """
create table if not exists inbox (id text primary key, body text not null, processed integer not null default 0);
create table if not exists subject (type text, id text, version integer not null, primary key (type, id));
"""

port, inbox_file = int(sys.argv[1]), sys.argv[2]
webhook = Webhook(os.environ["WEBHOOK_SECRET"])
arrived = threading.Event()


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > MAX_BODY:
            self.close_connection = True
            return self.answer(413)
        # The exact bytes: parsing and printing the JSON again would break the signature.
        body = self.rfile.read(length)
        try:
            # Checks the signature in constant time, and that the timestamp is within five minutes.
            webhook.verify(body, dict(self.headers.items()))
        except WebhookVerificationError:
            return self.answer(401)
        if self.headers.get_content_type() == "application/webhook-challenge+json":
            # Not an event: the sender asks whether this URL is ours.
            return self.answer(200, self.headers["webhook-challenge"])
        try:
            new = self.store(self.headers["webhook-id"], body.decode())
        except sqlite3.Error:
            # Our own trouble: the sender will try again.
            return self.answer(503)
        # A duplicate is a normal thing and as welcome as the first one.
        self.answer(204)
        print("accepted" if new else "duplicate", self.headers["webhook-id"], flush=True)
        arrived.set()

    def store(self, event_id, body):
        connection = sqlite3.connect(inbox_file)
        with connection:
            added = connection.execute("insert or ignore into inbox (id, body) values (?, ?)", (event_id, body)).rowcount
        connection.close()
        return added == 1

    def answer(self, status, text=""):
        self.send_response(status)
        if status != 204:
            self.send_header("content-type", "text/plain")
            self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def process():
    """Works through the inbox, one event and one transaction at a time."""
    connection = sqlite3.connect(inbox_file)
    while True:
        arrived.wait()
        arrived.clear()
        for event_id, body in connection.execute("select id, body from inbox where not processed order by id").fetchall():
            with connection:
                word = "processed" if is_news(connection, json.loads(body)) else "stale"
                # The real work goes here, in the same transaction as this mark.
                connection.execute("update inbox set processed = 1 where id = ?", (event_id,))
            print(word, event_id, flush=True)


def is_news(connection, event):
    """Events may come in any order: one about an older version of its subject than the one known changes nothing."""
    subject = event.get("subject", {})
    if "version" not in subject:
        return True
    newer = connection.execute(
        "insert into subject values (?, ?, ?) on conflict do update set version = excluded.version"
        " where excluded.version > subject.version",
        (subject["type"], subject["id"], subject["version"]),
    )
    return newer.rowcount == 1


with sqlite3.connect(inbox_file) as connection:
    connection.executescript(TABLES)
arrived.set()
threading.Thread(target=process, daemon=True).start()
server = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
