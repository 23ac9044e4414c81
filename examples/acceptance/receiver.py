"""The receiver of the acceptance: it listens, verifies every request with the public Standard Webhooks library, and
answers what the check under way wants. It knows nothing of the database.
"""

import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


@dataclass
class Request:
    """One event that arrived."""

    hook: str  # last part of the path: which endpoint it was sent to
    headers: dict
    body: bytes
    verified: bool  # by one of the secrets that the receiver was given
    at: float
    status: int  # what was answered

    @property
    def event_id(self):
        return self.headers["webhook-id"]

    @property
    def attempt(self):
        return int(self.headers["webhook-attempt"])


@dataclass
class Hook:
    """What the receiver knows about one endpoint."""

    secrets: list = field(default_factory=list)
    answers: list = field(default_factory=list)  # statuses for the next requests; afterwards 204


class Receiver:
    """A server on 127.0.0.1 in threads of its own."""

    def __init__(self, port=0):
        self.hooks, self.requests, self.challenges = {}, [], 0
        self.changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status, text = receiver.take(self.path.rsplit("/", 1)[-1], dict(self.headers.items()), body)
                self.send_response(status)
                if status != 204:
                    self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, name, headers, body):
        headers = {key.lower(): value for key, value in headers.items()}
        with self.changed:
            hook = self.hooks.setdefault(name, Hook())
            if headers.get("content-type") == "application/webhook-challenge+json":
                # The secret comes from the transaction that made the endpoint, so it can be late: asked again then.
                if not verifies(hook.secrets, headers, body):
                    return 503, ""
                self.challenges += 1
                self.changed.notify_all()
                return 200, headers["webhook-challenge"]
            verified = verifies(hook.secrets, headers, body)
            status = (hook.answers.pop(0) if hook.answers else 204) if verified else 401
            self.requests.append(Request(name, headers, body, verified, time.monotonic(), status))
            self.changed.notify_all()
            return status, ""

    def hook(self, name, *secrets):
        """Makes the receiver know an endpoint, or its secrets anew."""
        with self.changed:
            self.hooks.setdefault(name, Hook()).secrets = list(secrets)

    def answer(self, name, *statuses):
        """What the next requests to an endpoint are answered with."""
        with self.changed:
            self.hooks[name].answers = list(statuses)

    def of(self, event_id, name=None):
        """The requests of an event, in the order of arrival."""
        with self.changed:
            return [r for r in self.requests if r.event_id == event_id and name in (None, r.hook)]

    def wait_for(self, what, condition, seconds):
        """Waits until the condition holds of what has arrived; says what did not happen otherwise."""
        with self.changed:
            if not self.changed.wait_for(condition, seconds):
                raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def verifies(secrets, headers, body):
    for secret in secrets:
        try:
            Webhook(secret).verify(body, headers)
            return True
        except WebhookVerificationError:
            pass
    return False
