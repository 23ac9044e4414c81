"""Judges recorded requests with the public Python library of Standard Webhooks, which knows nothing of this project.

Reads lines of JSON {"secret", "headers", "body" (base64)} and answers each with one line: "ok" or the library's objection.
"""

import base64
import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

for line in sys.stdin:
    request = json.loads(line)
    headers = {name.lower(): value for name, value in request["headers"]}
    try:
        Webhook(request["secret"]).verify(base64.b64decode(request["body"]), headers)
        print("ok")
    except WebhookVerificationError as objection:
        print(f"refused: {objection}")
    except ValueError as objection:
        # The library parses the body as JSON after it has verified it.
        print(f"verified, but not JSON: {objection}")
