"""Judges recorded requests with public Python libraries, which know nothing of this project.

Reads lines of JSON and answers each with one line: "ok", "not mine", or the library's objection. What is expected
of an event stands in "event": what emit was given.
"""

import base64
import datetime
import json
import sys
import urllib.parse

import nacl.exceptions
import nacl.signing
import requests
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.v1.http import from_http as from_http_v1
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, InvalidSignature, algorithms


class Refused(Exception):
    """What a library has to say."""


def expect(name, found, wanted):
    if found != wanted:
        raise Refused(f"{name} is {found!r}, not {wanted!r}")


def cloudevent(request, headers, body):
    event = request["event"]
    read = from_http_event(HTTPMessage(headers=headers, body=body))
    expect("id", read.get_id(), event["id"])
    expect("type", read.get_type(), event["type"])
    expect("source", read.get_source(), event["source"])
    expect("subject", read.get_subject(), event["subject"])
    expect("specversion", read.get_specversion(), "1.0")
    if request["format"] == "cloudevents-structured":
        expect("a member data", "data" in json.loads(body), "data" in event)
    # No data and an empty body are the same in binary mode.
    data = read.get_data()
    expect("data", data if "data" in event else data or None, event.get("data"))
    at = datetime.datetime.fromisoformat(event["occurred_at"].replace("Z", "+00:00"))
    expect("time", read.get_time(), at)
    for name, value in event["extensions"].items():
        expect(name, read.get_extension(name), value)
    # The older interface of the same project; it leaves percent-encoding to its user.
    older = from_http_v1(headers, body)
    for name in ("id", "type", "source", "specversion"):
        expect(f"v1 {name}", older[name], {"specversion": "1.0"}.get(name, event.get(name)))
    expect("v1 data", older.data if "data" in event else older.data or None, event.get("data"))


class Keys(HTTPSignatureKeyResolver):
    def __init__(self, keys):
        self.keys = keys

    def resolve_public_key(self, key_id):
        return self.keys[key_id]


def http_signature(request, headers, body):
    if request["profile"] == "rfc9421-ed25519":
        algorithm = algorithms.ED25519
        raw = base64.b64decode(request["secret"].removeprefix("whpk_"))
        key = Ed25519PublicKey.from_public_bytes(raw).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    else:
        algorithm = algorithms.HMAC_SHA256
        key = base64.b64decode(request["secret"].removeprefix("whsec_"))
    verifier = HTTPMessageVerifier(signature_algorithm=algorithm, key_resolver=Keys({request["key_id"]: key}))
    message = requests.Request(request["method"], request["url"], headers=headers, data=body).prepare()
    covered = ["@method", "@authority", "@path", "@query", "content-type", "content-digest", "webhook-id", "webhook-timestamp"]
    try:
        results = verifier.verify(
            message, max_age=datetime.timedelta(minutes=5), require_components=covered, body=body
        )
    except InvalidSignature as objection:
        raise Refused(str(objection)) from objection
    expect("number of signatures", len(results), 1)


def v1a(request, headers, body):
    key = nacl.signing.VerifyKey(base64.b64decode(request["secret"].removeprefix("whpk_")))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    for signature in headers["webhook-signature"].split(" "):
        scheme, _, encoded = signature.partition(",")
        if scheme == "v1a":
            try:
                key.verify(signed, base64.b64decode(encoded))
                return
            except nacl.exceptions.BadSignatureError as objection:
                raise Refused(str(objection)) from objection
    raise Refused("no v1a signature")


def judge(request):
    headers = {name.lower(): value for name, value in request["headers"]}
    body = base64.b64decode(request["body"])
    url = urllib.parse.urlsplit(request["url"])
    expect("host", headers["host"], url.netloc)
    judged = False
    if request["profile"] == "v1a":
        v1a(request, headers, body)
        judged = True
    if request["profile"].startswith("rfc9421"):
        http_signature(request, headers, body)
        judged = True
    if request["format"].startswith("cloudevents") and "event" in request:
        cloudevent(request, headers, body)
        judged = True
    return "ok" if judged else "not mine"


for line in sys.stdin:
    try:
        print(judge(json.loads(line)))
    except Exception as objection:  # whatever a library raises is its objection
        print(f"refused: {type(objection).__name__}: {objection}".replace("\n", " "))
