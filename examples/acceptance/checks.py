"""The checks of the acceptance, in order. Each goes one step of the chain for real and returns what it saw; what is not as it
should be is raised. They build on the endpoint `main`, and otherwise on nothing of each other.
"""

import hashlib
import json
import time

import psycopg

from receiver import verifies

CHECKS = []


def check(name):
    def register(function):
        CHECKS.append((name, function))
        return function

    return register


@check("report")
def report(a):
    rows = a.rows("select area, item, result, detail, hint from webhook.report()")
    a.warnings = [row for row in rows if row[2] in ("warning", "note")]
    faults = [f"{row[1]}: {row[3]} {row[4] or ''}" for row in rows if row[2] == "fault"]
    a.expect(not faults, "; ".join(faults))
    return f"{len(rows)} things looked at, {len(a.warnings)} notes and warnings below, no fault"


@check("boundary")
def boundary(a):
    refused = 0
    for url in ("https://169.254.169.254/latest/meta-data", "https://10.0.0.1/", "ftp://hooks.example.com/"):
        try:
            with a.session.transaction(force_rollback=True):
                a.rows("select webhook.create_endpoint(%s, %s, verify => 'none')", a.partner, url)
        except psycopg.errors.InvalidParameterValue:
            refused += 1
    a.expect(refused == 3, f"only {refused} of 3 URLs that lead inside were refused")
    return "URLs that lead inside are refused"


@check("challenge")
def challenge(a):
    a.rows("select webhook.create_policy(%s, retry_schedule => '1s,1s,1s', client_error_attempts => 1, description => 'acceptance')", a.partner)
    a.endpoint("main")
    a.expect(a.receiver.challenges >= 1, "the endpoint is in service, and nobody was asked")
    return "the URL was proven before anything was sent to it"


@check("emit")
def emit(a):
    lost = None
    with a.session.transaction(force_rollback=True):
        lost = a.value("select webhook.emit('acceptance.run', %s, '{}', test => true)", a.partner)
    event = a.emit(data='{"amount": "1.10"}', subject_type="order", subject_id="7", subject_version=3)
    began = time.monotonic()
    request = a.arrival(event)[0]
    a.reaches(event, "delivered")
    body = json.loads(request.body)
    a.expect(body["event_id"] == event and body["data"] == {"amount": "1.10"} and body["test"] is True, "the body is another one")
    a.expect(body["subject"] == {"type": "order", "id": "7", "version": 3}, "the subject is another one")
    a.expect(not a.rows("select from webhook.events where event_id = %s", lost), "what was rolled back is there")
    a.expect(not a.receiver.of(lost), "what was rolled back was sent")
    return f"committed: arrived after {max(0, request.at - began) * 1000:.0f} ms; rolled back: never"


@check("fan-out")
def fan_out(a):
    a.endpoint("second", "{acceptance.both}")
    both, one = a.emit("acceptance.both"), a.emit("acceptance.one")
    for event, names in ((both, ("main", "second")), (one, ("main",))):
        for name in names:
            a.arrival(event, name)
            a.reaches(event, "delivered", name)
        pairs = a.value("select count(*) from webhook.deliveries where event_id = %s", event)
        a.expect(pairs == len(names), f"{pairs} deliveries, not {len(names)}")
    return "one delivery for each endpoint that subscribes, none for the others"


@check("test and live")
def test_and_live(a):
    a.endpoint("live", test=False)
    events = {"main": a.emit(), "live": a.emit(test=False)}
    for name, event in events.items():
        a.arrival(event, name)
        a.reaches(event, "delivered", name)
        to = a.rows("select endpoint_id from webhook.deliveries where event_id = %s", event)
        a.expect(to == [(a.endpoints[name],)], f"the {name} event went to {to}")
        a.expect(("test" in json.loads(a.receiver.of(event)[0].body)) == (name == "main"), "the body does not say whether it is a test")
    return "a test event went to the test endpoint only, a live one to the live one"


@check("signature")
def signature(a):
    event = a.emit()
    request = a.arrival(event)[0]
    secret = a.receiver.hooks["main"].secrets[-1]
    a.expect(all(r.verified for r in a.receiver.requests), "the public library refuses a request")
    forged = request.body.replace(b"1.10", b"9.10")
    a.expect(forged != request.body and not verifies([secret], request.headers, forged), "a changed body verifies")
    said = a.value("select webhook.verify('v1', %s, %s, %s)", [secret], json.dumps(request.headers), request.body)
    a.expect(said, "webhook.verify() does not agree with the public library")
    count = len(a.receiver.requests)
    bad = a.value("select event_id from webhook.send_test(%s, 'bad_signature')", a.endpoint("main"))
    refused = a.arrival(bad)[0]
    a.expect(not refused.verified and refused.status == 401, "a bad signature was accepted")
    a.reaches(bad, "dead")
    delivery = a.value("select delivery_id from webhook.deliveries where event_id = %s", bad)
    a.done(a.value("select webhook.close(%s, 'acceptance')", delivery))
    return f"{count} requests verified by the public library; a changed body and a bad signature refused"


@check("idempotency")
def idempotency(a):
    key = f"{a.partner}-once"
    first, second = (a.emit(idempotency_key=key) for _ in range(2))
    a.expect(first == second, "two events for one key")
    a.arrival(first)
    a.reaches(first, "delivered")
    a.expect(len(a.receiver.of(first)) == 1, "it arrived twice")
    return "two emits with one key are one event"


@check("retry")
def retry(a):
    a.endpoint("main")
    a.receiver.answer("main", 503)
    event = a.emit()
    requests = a.arrival(event, times=2)
    a.reaches(event, "delivered")
    a.expect([r.attempt for r in requests] == [1, 2], f"attempts {[r.attempt for r in requests]}")
    a.expect(requests[0].body == requests[1].body, "the retry has other bytes")
    shown = a.rows("select attempt_no, status, error_category from webhook.attempts where event_id = %s order by attempt_no", event)
    a.expect(shown == [(1, 503, "server_error"), (2, 204, None)], f"the attempts are shown as {shown}")
    return f"503, then delivered {requests[1].at - requests[0].at:.1f} s later with the same id and bytes"


@check("rotation")
def rotation(a):
    endpoint = a.endpoint("main")
    old = a.receiver.hooks["main"].secrets[-1]
    new = a.value("select secret from webhook.rotate_secret(%s, '1 hour')", endpoint)
    a.receiver.hook("main", new)
    during = a.arrival(a.emit())[0]
    a.expect(during.verified and verifies([old], during.headers, during.body), "one of the two secrets does not fit during the overlap")
    a.rows("select webhook.confirm_rotation(%s)", endpoint)
    # The leader learns of it when it commits; what it signs after this event was read is signed anew.
    end = time.monotonic() + a.patience
    while True:
        after = a.arrival(a.emit())[0]
        a.expect(after.verified, "the new secret does not fit")
        if not verifies([old], after.headers, after.body):
            return "both secrets fit during the overlap, the new one alone after it"
        a.expect(time.monotonic() < end, "the former secret still fits after the overlap was ended")


@check("replay")
def replay(a):
    event = a.emit()
    a.arrival(event)
    a.reaches(event, "delivered")
    a.done(a.value("select request_id from webhook.replay(%s, %s)", event, a.endpoint("main")))
    first, again = a.arrival(event, times=2)[:2]
    a.expect(first.body == again.body and again.attempt == first.attempt + 1, "the replay is another event")
    return "the same id and bytes, the next attempt"


@check("dead letter")
def dead_letter(a):
    a.endpoint("main")
    a.receiver.answer("main", 422, 422)
    mended, given_up = a.emit(), a.emit()
    dead = {}
    for event in (mended, given_up):
        a.reaches(event, "dead")
        dead[event] = a.value("select delivery_id from webhook.dead_letters where event_id = %s", event)
    a.done(a.value("select webhook.retry(%s, 'acceptance')", dead[mended]))
    a.done(a.value("select webhook.close(%s, 'acceptance')", dead[given_up]))
    a.reaches(mended, "delivered")
    a.expect(a.state(given_up) == "closed", "the one that was closed is not")
    return "422 twice: one was retried and delivered, one closed"


@check("pause")
def pause(a):
    endpoint = str(a.endpoint("main"))
    a.done(a.value("select webhook.pause('endpoint', %s, 'acceptance')", endpoint))
    event = a.emit()
    a.reaches(event, "pending")
    a.expect(not a.receiver.of(event), "it was sent in spite of the pause")
    a.done(a.value("select webhook.resume('endpoint', %s)", endpoint))
    a.arrival(event)
    return "held while paused, sent when resumed"


@check("feed")
def feed(a):
    last = a.emit()
    a.until("the leader has published it", "select published_at is not null from webhook.events where event_id = %s", last)
    read, cursor = [], None
    while page := a.rows("select cursor, event_id from webhook.events_after(%s, %s, max_events => 3, types => '{acceptance.*}', test => true)", a.partner, cursor):
        cursor = page[-1][0]
        read += [event for _, event in page if event]
    a.expect(len(read) == len(set(read)), "an event is in the feed twice")
    a.expect(set(read) == set(a.emitted), f"the feed has {len(read)} events, emitted were {len(a.emitted)}")
    return f"{len(read)} events, each once, none missing"


@check("recovery")
def recovery(a):
    endpoint = a.endpoint("second", "{acceptance.both}")
    since = a.value("select clock_timestamp()")
    a.rows("select webhook.disable_endpoint(%s, 'acceptance')", endpoint)
    missed = [a.emit("acceptance.both") for _ in range(3)]
    for event in missed:
        a.until("the leader has read it", "select published_at is not null from webhook.events where event_id = %s", event)
    a.rows("select webhook.enable_endpoint(%s)", endpoint)
    a.rows("select request_id from webhook.replay_range(%s, %s, clock_timestamp(), 'acceptance', endpoint_id => %s, which => 'missing', test => true)",
           a.partner, since, endpoint)
    for event in missed:
        a.arrival(event, "second")
        a.reaches(event, "delivered", "second")
    return "what a receiver missed while it was disabled was sent by replay_range"


@check("leader")
def leader(a):
    if not a.options.end_leader:
        return None
    old = a.value("select pid from webhook.stat_worker")
    events = [a.emit() for _ in range(50)]
    a.rows("select pg_terminate_backend(%s)", old)
    events += [a.emit() for _ in range(50)]
    for event in events:
        a.arrival(event)
        a.reaches(event, "delivered")
    a.expect(a.value("select pid from webhook.stat_worker") != old, "it is still the same leader")
    again = sum(len(a.receiver.of(event)) - 1 for event in events)
    return f"ended while it was sending: {len(events)} events delivered, {again} sent twice"


@check("capacity")
def capacity(a):
    a.endpoint("main")
    count = a.options.events
    began = time.monotonic()
    events = [row[0] for row in a.rows(
        "select webhook.emit('acceptance.load', %s, jsonb_build_object('n', n), test => true) from generate_series(1, %s) as n", a.partner, count)]
    a.emitted += events
    wanted = set(events)
    a.receiver.wait_for(f"{count} events arrive", lambda: wanted <= {r.event_id for r in a.receiver.requests if r.hook == "main"},
                        max(a.patience, count / a.options.rate))
    over = max(a.receiver.of(events[0])[0].at, max(r.at for r in a.receiver.requests if r.event_id in wanted)) - began
    arrived = sum(1 for r in a.receiver.requests if r.event_id in wanted and r.hook == "main")
    a.expect(count / over >= a.options.rate, f"{count / over:.0f} events per second, wanted were {a.options.rate:.0f}")
    return f"{count} events at once in {over:.2f} s, {count / over:.0f} per second, {arrived - count} sent twice"


@check("alert")
def alert(a):
    endpoint = a.endpoint("gone", "{acceptance.gone}")
    listener = psycopg.connect(a.options.database, autocommit=True)
    try:
        listener.execute("listen webhook_alerts")
        a.receiver.answer("gone", 410)
        event = a.emit("acceptance.gone")
        a.reaches(event, "dead", "gone")
        a.until("an alert says so", "select exists (select from webhook.alerts where endpoint_id = %s and kind = 'endpoint.disabled')", endpoint)
        told = [json.loads(n.payload)["alert_id"] for n in listener.notifies(timeout=a.patience, stop_after=1)]
        a.expect(told, "nobody was notified")
    finally:
        listener.close()
    a.expect(a.value("select state from webhook.endpoints where endpoint_id = %s", endpoint) == "disabled", "the endpoint is still in service")
    return "410: the endpoint was disabled, with an alert and a notification"


@check("reconciliation")
def reconciliation(a):
    a.until("nothing is under way", "select not exists (select from webhook.deliveries where partner_id = %s and state in ('pending', 'retrying'))", a.partner)
    # What was answered a moment ago may not be recorded yet: it is given the time, as in any reconciliation.
    a.rows("select pg_sleep(2.5)")
    a.rows("select kind from webhook.reconcile(since => %s, repair => false, settle => '2 seconds')", a.began)
    found = a.rows("select kind, detail from webhook.reconciliation where partner_id = %s and repaired_at is null", a.partner)
    a.expect(not found, f"gaps were found: {found}")
    return "events, feed, deliveries, attempts and queue agree"


@check("retention")
def retention(a):
    # An event type outlives whoever made it; this one is there from the second acceptance on.
    kept = a.rows("select payload_retention = '1 second' from webhook.event_types where name = 'acceptance.kept'")
    if kept != [(True,)]:
        verb = "update_event_type" if kept else "create_event_type"
        a.rows(f"select webhook.{verb}('acceptance.kept', payload_retention => '1 second', description => 'Of acceptances.')")
    data = '{"name": "Grace"}'
    other, event = a.emit(data=data), a.emit("acceptance.kept", data)
    for one in (other, event):
        a.arrival(one)
        a.reaches(one, "delivered")
    a.rows("select pg_sleep(1.1)")
    began = time.monotonic()
    if a.options.reload:
        a.rows("select pg_reload_conf()")
    # The leader looks once a minute, and takes some seconds when it is busy.
    a.until("the payload goes at its age", "select exists (select from webhook.tombstones where event_id = %s)", event,
            more=0 if a.options.reload else 75)
    over = time.monotonic() - began
    digest, erasure = a.rows("select body_sha256, erasure_id from webhook.tombstones where event_id = %s", event)[0]
    a.expect(digest == hashlib.sha256(data.encode()).hexdigest() and erasure is None, "the tombstone tells of something else")
    a.expect(a.state(event) == "delivered", "the evidence of the delivery went with the payload")
    a.expect(not a.rows("select from webhook.tombstones where event_id = %s", other), "a payload went that has no age")
    try:
        a.rows("select webhook.replay(%s)", event)
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return f"a payload that is kept for a second went {over:.1f} s later; its delivery and its digest are still there"
    raise AssertionError("an event without its payload was replayed")


@check("erasure")
def erasure(a):
    event = a.emit(data='{"name": "Ada"}')
    a.arrival(event)
    a.reaches(event, "delivered")
    erasure = a.value("select webhook.expunge('acceptance', event_id => %s)", event)
    a.until("nothing of it is left", "select bool_and(remaining = 0) from webhook.confirm_erasure(%s)", erasure)
    a.expect(a.rows("select from webhook.tombstones where event_id = %s", event), "there is no tombstone")
    try:
        a.rows("select webhook.replay(%s)", event)
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return "the payload is gone, and cannot be sent again"
    raise AssertionError("an erased event was replayed")


@check("nothing left")
def nothing_left(a):
    open_ones = [row[0] for row in a.rows("select delivery_id from webhook.list_deliveries(%s, state => 'dead', max_rows => 1000)", a.partner)]
    if open_ones:
        a.done(a.value("select webhook.close(%s::text[], 'acceptance')", open_ones))
    if a.endpoints:
        a.rows("select webhook.offboard(%s, 'the acceptance is over')", a.partner)
    if a.rows("select from webhook.policies where name = %s", a.partner):
        a.rows("select webhook.delete_policy(%s)", a.partner)
    if a.emitted:
        erased = a.value("select webhook.expunge('the acceptance is over', partner_id => %s)", a.partner)
        a.until("nothing of it is left", "select bool_and(remaining = 0) from webhook.confirm_erasure(%s)", erased)
    a.until("no delivery is open", "select not exists (select from webhook.deliveries where partner_id = %s and state in ('pending', 'retrying', 'dead'))", a.partner)
    left = a.value("""select (select count(*) from webhook.endpoints where partner_id = %s and state <> 'deleted')
                           + (select count(*) from webhook.signing_keys where partner_id = %s and signs)""", a.partner, a.partner)
    a.expect(left == 0, f"{left} endpoints and keys are left")
    return f"partner {a.partner}: no endpoint, key, open delivery or payload; ids and audit stay for their time"
