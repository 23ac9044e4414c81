//! What failed for good, the evidence of it, and what can be done about it: retry, skip, correct, close. Each asks for
//! a reason, is carried out by the leader, and is refused where it makes no sense.

use std::{sync::LazyLock, thread::sleep, time::Duration};

use webhook_outbox_test::{
    arrivals::json,
    cluster::Cluster,
    outbox::{Delivery, Endpoint, Outbox, PATIENCE},
    receiver::{Answer, ClosedPort, Gate, Receiver},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        // Requests are held for as long as a test has something to do meanwhile.
        .setting("webhook.request_timeout", "5min")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn a_dead_letter_keeps_the_evidence_and_leaves_the_list_when_it_is_dealt_with() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(404), Answer::status(200)]);
    let closed = ClosedPort::take();
    shop.run("select webhook.create_policy('once', retry_schedule => '')");
    let refused = shop.endpoint("letters", &receiver.url("/hook"));
    let away = format!("http://{}/", closed.address());
    let unreached = shop.endpoint_with("letters", &away, ", policy => 'once'");
    let event = shop.emit_with(
        "order.paid",
        "letters",
        "{}",
        ", subject_type => 'order', subject_id => '7'",
    );
    let dead = shop.wait_for_state(&event, &refused, "dead");
    shop.wait_for_state(&event, &unreached, "dead");
    assert!(shop.is(&format!(
        "(delivery_id, event_id, partner_id, type, subject_type, subject_id, attempt_count, last_status,
          last_error_category, reason, owner)
         = ('{}', '{event}', 'letters', 'order.paid', 'order', '7', 1, 404,
            'client_error', 'the receiver refuses the request', 'postgres')
           from webhook.dead_letters where endpoint_id = {}",
        dead.id, refused.id
    )));
    assert!(shop.is(&format!(
        "last_error_category = 'connect_refused' and last_status is null and last_detail <> ''
         and emitted_at <= last_attempt_at and last_attempt_at <= clock_timestamp()
         and worker_version = (select library_version from webhook.stat_worker)
           from webhook.dead_letters where endpoint_id = {}",
        unreached.id
    )));
    assert!(shop.is("advice ~ 'dead_letters' and advice ~ 'retry' from webhook.status()"));
    shop.have_done(&format!("retry('{}', 'mended')", dead.id));
    shop.wait_for_state(&event, &refused, "delivered");
    assert_eq!(
        shop.column(&format!(
            "select endpoint_id from webhook.dead_letters where event_id = '{event}'"
        )),
        [unreached.id.to_string()]
    );
}

#[test]
fn a_retry_sends_the_same_event_again_and_starts_the_schedule_anew() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let answers = [404, 500, 200].map(Answer::status);
    receiver.script("/hook", answers.to_vec());
    let endpoint = shop.endpoint("retried", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "retried", "{\"n\": 1}");
    let dead = shop.wait_for_state(&event, &endpoint, "dead");
    let reply = shop.have_done(&format!("retry('{}', 'they say it is mended')", dead.id));
    assert_eq!(reply.deliveries, 1);
    let waiting = shop.wait_for_attempts(&event, &endpoint, 2);
    assert_eq!((waiting.state.as_str(), waiting.reason), ("retrying", None));
    assert!(shop.is(&format!(
        "verb = 'retry' and reason = 'they say it is mended' from webhook.requests where request_id = {}",
        reply.id
    )));
    // What waits for its time can be brought forward.
    shop.have_done(&format!("retry('{}', 'now it is')", dead.id));
    let delivered = shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(
        (delivered.id.as_str(), delivered.attempts),
        (dead.id.as_str(), 3)
    );
    let requests = receiver.requests();
    for (position, request) in requests.iter().enumerate() {
        assert_eq!(request.header("webhook-id"), Some(&*event));
        assert_eq!(request.header("webhook-delivery"), Some(&*dead.id));
        assert_eq!(request.body, requests[0].body);
        let number = (position + 1).to_string();
        assert_eq!(request.header("webhook-attempt"), Some(&*number));
    }
}

#[test]
fn skipping_and_closing_end_a_delivery_with_their_reason() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(404), Answer::status(500)]);
    let endpoint = shop.endpoint("ended", &receiver.url("/hook"));
    let first = shop.emit("order.paid", "ended", "{}");
    let dead = shop.wait_for_state(&first, &endpoint, "dead");
    let second = shop.emit("order.paid", "ended", "{}");
    let waiting = shop.wait_for_state(&second, &endpoint, "retrying");
    shop.have_done(&format!("close('{}', 'settled by telephone')", dead.id));
    shop.have_done(&format!("skip('{}', 'no longer of interest')", waiting.id));
    let closed = shop.wait_for_state(&first, &endpoint, "closed");
    assert_eq!(closed.reason.as_deref(), Some("settled by telephone"));
    let skipped = shop.wait_for_state(&second, &endpoint, "skipped");
    assert_eq!(skipped.reason.as_deref(), Some("no longer of interest"));
    assert_eq!((skipped.attempts, skipped.next_attempt_at), (1, None));
    assert!(shop.is(&format!(
        "(due, waiting, held) = (0, 0, 0) from webhook.stat_endpoint where endpoint_id = {}",
        endpoint.id
    )));
    // A dead one can be skipped, too, and a skipped one closed.
    receiver.script("/hook", vec![Answer::status(404)]);
    let third = shop.emit("order.paid", "ended", "{}");
    let dead = shop.wait_for_state(&third, &endpoint, "dead");
    shop.have_done(&format!("skip('{}', 'old')", dead.id));
    shop.wait_for_state(&third, &endpoint, "skipped");
    shop.have_done(&format!("close('{}', 'and done')", dead.id));
    let closed = shop.wait_for_state(&third, &endpoint, "closed");
    assert_eq!(closed.reason.as_deref(), Some("and done"));
    sleep(Duration::from_millis(300));
    assert_eq!(receiver.count(), 3);
}

#[test]
fn what_makes_no_sense_is_refused_at_once() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let answers = [200, 404, 500].map(Answer::status);
    receiver.script("/hook", answers.to_vec());
    let endpoint = shop.endpoint("refused", &receiver.url("/hook"));
    let mut ids = Vec::new();
    for state in ["delivered", "dead", "retrying"] {
        let event = shop.emit("order.paid", "refused", "{}");
        ids.push(shop.wait_for_state(&event, &endpoint, state).id);
    }
    let [delivered, dead, waiting] = [0, 1, 2].map(|n| ids[n].clone());
    let other = shop.emit("order.paid", "refused.nobody", "{}");
    let absent = format!("dlv_{}_{}", &other[4..], endpoint.id);
    for (statement, code) in [
        (format!("retry('{delivered}', 'why')"), "55000"),
        (format!("skip('{delivered}', 'why')"), "55000"),
        (format!("close('{delivered}', 'why')"), "55000"),
        (format!("close('{waiting}', 'why')"), "55000"),
        (format!("correct('{waiting}', '{{}}', 'why')"), "55000"),
        (format!("correct('{delivered}', '{{}}', 'why')"), "55000"),
        (format!("retry('{absent}', 'why')"), "42704"),
        (format!("skip('{absent}', 'why')"), "42704"),
        ("close('dlv_1', 'why')".to_owned(), "22023"),
        ("retry('', 'why')".to_owned(), "22023"),
        (format!("retry('{dead}', null)"), "22004"),
        (format!("skip('{dead}', ' ')"), "22023"),
        ("close(null::text, 'why')".to_owned(), "22004"),
        ("retry('{}'::text[], 'why')".to_owned(), "22023"),
        (
            format!("skip(array['{waiting}', '{delivered}'], 'why')"),
            "55000",
        ),
        (
            "retry(array(select 'dlv_' || n from generate_series(1, 10001) n), 'why')".to_owned(),
            "54000",
        ),
    ] {
        let (found, message) = shop.refusal(&format!("select webhook.{statement}"));
        assert_eq!(found, code, "{statement}: {message}");
    }
    let (_, message) = shop.refusal(&format!("select webhook.retry('{delivered}', 'why')"));
    assert!(message.contains("replay"), "{message}");
    let of =
        |event: &str| format!("select state from webhook.deliveries where delivery_id = '{event}'");
    assert_eq!(shop.text(&of(&dead)), "dead");
    assert_eq!(shop.text(&of(&waiting)), "retrying");
}

#[test]
fn a_verb_that_is_rolled_back_does_nothing() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(404), Answer::status(200)]);
    let endpoint = shop.endpoint("rolled", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "rolled", "{}");
    let dead = shop.wait_for_state(&event, &endpoint, "dead");
    shop.run("begin");
    let id = shop.number(&format!("select webhook.retry('{}', 'or not')", dead.id));
    shop.run("rollback");
    let next = shop.emit("order.paid", "rolled", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
    sleep(Duration::from_millis(300));
    assert_eq!(shop.delivery(&event, &endpoint), Some(dead));
    assert!(!shop.is(&format!(
        "exists (select from webhook.requests where request_id = {id})"
    )));
    assert_eq!(receiver.count(), 2);
}

#[test]
fn a_correction_is_a_new_event_that_names_the_old_one_which_is_closed() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |request| {
        let right = json(request)["data"]["total"] == "19.90";
        Answer::status(if right { 200 } else { 422 })
    });
    let endpoint = shop.endpoint("corrected", &receiver.url("/hook"));
    let old = shop.emit_with(
        "order.paid",
        "corrected",
        r#"{"total": "-1"}"#,
        ", subject_type => 'order', subject_id => '7', source => 'shop', scope => 'eu', schema_version => '2',
           correlation_id => 'c-1', occurred_at => '2026-01-02T03:04:05Z'",
    );
    let dead = shop.wait_for_state(&old, &endpoint, "dead");
    let new = shop.text(&format!(
        r#"select webhook.correct('{}', '{{"total": "19.90"}}', 'a minus too much')"#,
        dead.id
    ));
    assert_ne!(new, old);
    shop.wait_for_state(&new, &endpoint, "delivered");
    let closed = shop.wait_for_state(&old, &endpoint, "closed");
    assert_eq!(
        closed.reason,
        Some(format!("corrected by {new}: a minus too much"))
    );
    let what =
        "type, partner_id, subject_type, subject_id, source, scope, schema_version, correlation_id,
                occurred_at, test";
    assert!(shop.is(&format!(
        "(select row({what}) from webhook.events where event_id = '{new}')
         = (select row({what}) from webhook.events where event_id = '{old}')"
    )));
    assert_eq!(
        shop.text(&format!(
            "select causation from webhook.events where event_id = '{new}'"
        )),
        old
    );
    let requests = receiver.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(json(&requests[1])["data"]["total"], "19.90");
    // It is closed, and no dead letter any more.
    let (code, _) = shop.refusal(&format!(
        "select webhook.correct('{}', '{{}}', 'again')",
        dead.id
    ));
    assert_eq!(code, "55000");
}

#[test]
fn many_deliveries_are_dealt_with_by_one_request() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(404));
    let endpoint = shop.endpoint("many", &receiver.url("/hook"));
    shop.run(
        "select webhook.emit('order.paid', 'many', to_jsonb(n)) from generate_series(1, 300) n",
    );
    shop.wait_for_deliveries(&endpoint, "dead", 300);
    receiver.behave("/hook", |_| Answer::status(200));
    let part = |offset: usize| {
        format!(
            "array(select delivery_id from webhook.dead_letters where endpoint_id = {}
                    order by event_id offset {offset} limit 100)",
            endpoint.id
        )
    };
    let ids = [0, 100, 200].map(|offset| shop.text(&format!("select {}", part(offset))));
    for ((verb, state), ids) in [
        ("retry", "delivered"),
        ("skip", "skipped"),
        ("close", "closed"),
    ]
    .iter()
    .zip(&ids)
    {
        let reply = shop.have_done(&format!("{verb}('{ids}'::text[], 'all of them')"));
        assert_eq!(reply.deliveries, 100, "{verb}");
        shop.wait_for_deliveries(&endpoint, state, 100);
    }
    shop.wait_for_deliveries(&endpoint, "dead", 0);
    assert_eq!(receiver.count(), 400);
}

#[test]
fn a_retry_at_an_endpoint_that_is_closed_is_refused_by_the_answer_to_the_request() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(404));
    let endpoint = shop.endpoint("disabled", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "disabled", "{}");
    let dead = shop.wait_for_state(&event, &endpoint, "dead");
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'moved away')",
        endpoint.id
    ));
    let reply = shop.ask(&format!("retry('{}', 'try')", dead.id));
    assert_eq!(reply.deliveries, 0, "{reply:?}");
    assert!(
        reply.result.contains("closed") || reply.result.contains("disabled"),
        "{reply:?}"
    );
    assert_eq!(shop.delivery(&event, &endpoint), Some(dead));
    assert_eq!(receiver.count(), 1);
}

#[test]
fn a_delivery_that_is_skipped_on_the_wire_is_skipped_unless_it_is_accepted() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    for (status, state) in [(500, "skipped"), (200, "delivered")] {
        let receiver = Receiver::http();
        let gate = Gate::shut();
        let late = Answer::status(status).held(&gate);
        receiver.script("/hook", vec![Answer::status(500), late]);
        let endpoint = shop.endpoint("wire", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "wire", "{}");
        let waiting = shop.wait_for_state(&event, &endpoint, "retrying");
        shop.have_done(&format!("retry('{}', 'now')", waiting.id));
        wait_for("the second attempt is on the wire", PATIENCE, || {
            receiver.count() == 2 && receiver.in_flight() == 1
        });
        // The leader answers when it knows what became of the request.
        let skip = shop.number(&format!(
            "select webhook.skip('{}', 'not any more')",
            waiting.id
        ));
        shop.wait_for_a_round();
        gate.open();
        assert_eq!(shop.reply(skip).state, "done");
        let settled = settled(&mut shop, &event, &endpoint);
        assert_eq!(settled.state, state, "{settled:?}");
        let reason = (state == "skipped").then_some("not any more");
        assert_eq!(settled.reason.as_deref(), reason);
        sleep(Duration::from_millis(300));
        assert_eq!(shop.delivery(&event, &endpoint), Some(settled));
        assert_eq!(receiver.count(), 2);
        shop.run(&format!(
            "select webhook.delete_endpoint({}, 'over')",
            endpoint.id
        ));
    }
}

/// The delivery once its second attempt is recorded.
#[track_caller]
fn settled(shop: &mut Outbox, event: &str, endpoint: &Endpoint) -> Delivery {
    let delivery = shop.wait_for_attempts(event, endpoint, 2);
    assert_eq!(shop.attempts(event, endpoint).len(), 2);
    delivery
}

#[test]
fn a_skip_of_a_request_on_the_wire_survives_the_end_of_the_leader() {
    // A leader of its own: what others have on the wire is not to end with it.
    let mut shop = Outbox::create(&CLUSTER, "hung");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::hang());
    let endpoint = shop.endpoint("hung", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "hung", "{}");
    receiver.wait_for(1, PATIENCE);
    // It outlasts the first pass, and has its row.
    let waiting = shop.wait_for_state(&event, &endpoint, "pending");
    let request = shop.number(&format!(
        "select webhook.skip('{}', 'nobody wants it')",
        waiting.id
    ));
    shop.restart_leader();
    let reply = shop.reply(request);
    assert_eq!((reply.state.as_str(), reply.deliveries), ("done", 1));
    let skipped = shop.wait_for_state(&event, &endpoint, "skipped");
    assert_eq!(skipped.reason.as_deref(), Some("nobody wants it"));
}
