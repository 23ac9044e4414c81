#!/usr/bin/env python3
"""A receiver that keeps its inbox in PostgreSQL: `receiver.py PORT "host=... dbname=..."`, POST to /hooks/SOURCE.

It hands each request to webhook.receive() as it came, commits, and only then answers what the function says. It reads no
table and decides nothing: the role it connects as needs the right "receive" and no other
(`select webhook.grant_access('front', 'receive')`). `pip install "psycopg[binary]"`.

With WEBHOOK_SECRET set it first asks the public Standard Webhooks library (`pip install standardwebhooks`), so that
strangers never reach the database; the two must agree, as the tests of the extension show. It listens on loopback; put
a TLS proxy in front of it.
"""

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
from psycopg.types.json import Jsonb
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

# As large as the largest max_body of a source.
MAX_BODY = 1 << 20
RECEIVE = "select result, event_id, http_status, reason, answer from webhook.receive(%s, %s, %s)"

port, database = int(sys.argv[1]), sys.argv[2]
library = Webhook(os.environ["WEBHOOK_SECRET"]) if os.environ.get("WEBHOOK_SECRET") else None
# One connection, one request at a time, is enough for an example; use a pool for more.
connection, lock = None, threading.Lock()


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not length.isdigit():
            return self.refuse(411)
        if int(length) > MAX_BODY:
            return self.refuse(413)
        # The exact bytes: they are signed, not what they mean.
        body = self.rfile.read(int(length))
        if library and not self.library_agrees(body):
            return self.answer(401)
        headers = {}
        for name, value in self.headers.items():
            headers.setdefault(name.lower(), []).append(value)
        try:
            result, event_id, status, reason, answer = receive(self.path.rsplit("/", 1)[-1], headers, body)
        except psycopg.DataError:
            # A header or a name that no text of PostgreSQL can hold.
            return self.answer(400)
        except psycopg.Error as error:
            # Our own trouble, a conflict of transactions (40001) included: the sender will try again.
            print("unavailable", error.sqlstate, flush=True)
            return self.answer(503)
        # The reason is for us. A sender who learns why a signature was refused learns how to mend it.
        self.answer(status, answer or "")
        print(*filter(None, (result, event_id or reason)), flush=True)

    def library_agrees(self, body):
        try:
            library.verify(body, dict(self.headers.items()))
        except WebhookVerificationError:
            return False
        except ValueError:
            # Verified, but the library could not read it as JSON; that is for the inbox to say.
            return True
        return True

    def refuse(self, status):
        self.close_connection = True
        self.answer(status)

    def answer(self, status, text=""):
        self.send_response(status)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(text)))
        if status == 503:
            self.send_header("retry-after", "30")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def receive(source, headers, body):
    global connection
    with lock:
        try:
            if connection is None or connection.closed:
                connection = psycopg.connect(database, connect_timeout=5)
            # Leaving the block commits. Nothing is answered before that.
            with connection.transaction():
                return connection.execute(RECEIVE, (source, Jsonb(headers), body)).fetchone()
        except psycopg.OperationalError:
            if connection is not None and connection.broken:
                connection = None
            raise


server = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
