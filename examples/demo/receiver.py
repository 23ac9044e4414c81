#!/usr/bin/env python3
"""A webhook receiver in plain Python, as a partner could write it: `receiver.py PORT_FILE SECRET_FILE`.

It verifies every signature (Standard Webhooks), refuses what does not verify, and is unwell once: the first order.paid
gets 503. An event that it has accepted already is welcome again and changes nothing. What it accepts is kept in memory,
which is enough for a demo: see examples/receiver for one that may be restarted.
"""

import base64
import hashlib
import hmac
import json
import pathlib
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE = 5 * 60
port_file, secret_file = map(pathlib.Path, sys.argv[1:3])
accepted = {}
unwell = True


def verify(headers, body: bytes) -> bool:
    """Whether one of the signatures is ours and fresh."""
    key = base64.b64decode(secret_file.read_text().strip().removeprefix("whsec_"))
    if abs(time.time() - int(headers["webhook-timestamp"])) > TOLERANCE:
        return False
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    ours = b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    return any(hmac.compare_digest(ours, theirs.encode()) for theirs in headers["webhook-signature"].split())


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global unwell
        body = self.rfile.read(int(self.headers["content-length"]))
        event, answer = self.headers["webhook-id"], ""
        if not secret_file.read_text().strip():
            status, word = 503, "I was not given the secret yet"
        elif not verify(self.headers, body):
            status, word = 401, "signature refused"
        elif self.headers["content-type"] == "application/webhook-challenge+json":
            answer = self.headers["webhook-challenge"]
            status, word = 200, "signature verified, challenge answered"
        elif unwell and json.loads(body)["type"] == "order.paid":
            unwell, status, word = False, 503, "signature verified, but I am unwell"
        elif event in accepted:
            same = "the same bytes" if accepted[event] == body else "OTHER BYTES"
            status, word = 200, f"signature verified, known already, {same}"
        else:
            accepted[event] = body
            status, word = 200, f"signature verified, {json.loads(body)['type']} accepted"
        attempt = self.headers.get("webhook-attempt", "-")
        print(f"receiver: attempt {attempt} of {event}: {status}, {word}", flush=True)
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
port_file.write_text(str(server.server_port))
server.serve_forever()
