//! The runbook as it is needed: each of its first five incidents is made to happen, and the commands of its section, as
//! they stand in docs/runbook.md, are typed into one session of psql when their turn comes. What they are to achieve is
//! then seen from outside: at the receiver and in the public views. (`docs` runs the same commands where all is well.)

use std::{fs, path::Path, thread::sleep, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    copying::{drop_original, dump_and_restore},
    outbox::{Endpoint, Outbox, PATIENCE},
    psql::Psql,
    receiver::{Answer, Receiver, Request},
    verifier::{by_python, by_rust, objections},
    wait::wait_for,
};

/// Several polls of the leader: sleeping proves a non-event.
const POLLS: Duration = Duration::from_millis(2_500);

#[test]
fn every_incident_of_the_runbook_is_known() {
    // Whoever adds an incident makes it happen here, or says why not: a disk that is full is made by `disk_full`, and a leader
    // that does not run by `lifecycle` and `worker`.
    let headings: Vec<String> = runbook()
        .lines()
        .filter_map(|line| line.strip_prefix("## ").map(str::to_owned))
        .collect();
    assert_eq!(
        headings,
        [
            "An endpoint is down",
            "A secret leaked",
            "A wrong payload was sent",
            "A receiver lost data",
            "The database was restored",
            "The disk is full",
            "The leader does not run",
        ]
    );
}

#[test]
fn an_endpoint_that_was_down_gets_what_died_what_was_cancelled_and_what_it_missed() {
    let [
        why,
        patience,
        hold,
        go_on,
        retry,
        switch_off,
        switch_on,
        how_far,
    ] = blocks("An endpoint is down");
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1s,2s")
        .start();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("acme", &receiver.url("/hook"));
    receiver.script("/hook", vec![Answer::status(503)]);
    let died = emit(&mut shop);
    let mut psql = operator(&cluster, "shop", &endpoint, &died);

    // How long, and why?
    shop.wait_for_state(&died, &endpoint, "dead");
    // The leader writes down how an endpoint fares a moment after the deliveries.
    shop.wait_until(
        "(select count(*) = 1 from webhook.endpoint_health where health in ('failing', 'down'))",
    );
    let said = psql.types(&why);
    assert!(
        said.contains(&format!("{}|failing|", endpoint.id))
            || said.contains(&format!("{}|down|", endpoint.id)),
        "{said}"
    );
    assert!(said.contains("|503|"), "{said}");
    let always = first_look();
    let said = psql.types(&always);
    assert!(
        said.starts_with("running|") && said.contains("dead_letters"),
        "the first look tells of the dead letter: {said}"
    );

    psql.types(&patience);
    shop.wait_until(&format!(
        "(select disable_at = failing_since + interval '14 days' from webhook.endpoint_health where endpoint_id = {})",
        endpoint.id
    ));

    // Held: nothing leaves, though the receiver is well again.
    psql.types(&hold);
    requests_done(&mut shop);
    wait_for("nothing is on the wire", PATIENCE, || {
        receiver.in_flight() == 0
    });
    receiver.forget();
    receiver.script("/hook", vec![Answer::status(200)]);
    let held = emit(&mut shop);
    sleep(POLLS);
    assert_eq!(receiver.count(), 0, "it is on hold");
    psql.types(&go_on);
    shop.wait_for_state(&held, &endpoint, "delivered");

    // What died does not leave by itself, and does when it is asked for.
    assert_eq!(state(&mut shop, &died, &endpoint), "dead");
    psql.types(&retry);
    shop.wait_for_state(&died, &endpoint, "delivered");
    assert_eq!(ids(&receiver.requests()), [&*held, &*died]);

    // Away again, and switched off: what waits is cancelled, what is new is not made.
    receiver.script("/hook", vec![Answer::status(503)]);
    let waiting = emit(&mut shop);
    shop.wait_for_attempts(&waiting, &endpoint, 1);
    psql.types(&switch_off);
    shop.wait_for_state(&waiting, &endpoint, "cancelled");
    let missed = emit(&mut shop);
    shop.wait_until("(select unread_events = 0 from webhook.stat_queue)");
    assert_eq!(shop.delivery(&missed, &endpoint), None);
    receiver.script("/hook", vec![Answer::status(200)]);
    receiver.forget();
    psql.types(&switch_on);
    for event in [&waiting, &missed] {
        shop.wait_for_state(event, &endpoint, "delivered");
    }
    shop.wait_until("(select bool_and(state = 'done') from webhook.replays)");
    let said = psql.types(&how_far);
    let counts: Vec<String> = said
        .lines()
        .map(|line| {
            let column: Vec<&str> = line.split('|').collect();
            format!("{} again {} made {}", column[0], column[3], column[4])
        })
        .collect();
    assert_eq!(
        counts,
        ["missing again 0 made 1", "failed again 1 made 0"],
        "{said}"
    );
    sleep(POLLS);
    let mut arrived = ids(&receiver.requests());
    arrived.sort_unstable();
    assert_eq!(arrived, [&*waiting, &*missed], "each of them once");
}

#[test]
fn a_secret_that_leaked_signs_nothing_more_and_the_new_one_does() {
    let [revoke, resume] = blocks("A secret leaked");
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("acme", &receiver.url("/hook"));
    let before = emit(&mut shop);
    shop.wait_for_state(&before, &endpoint, "delivered");
    assert!(objections(&endpoint.secret, &receiver.requests()).is_empty());
    let mut psql = operator(&cluster, "shop", &endpoint, &before);
    receiver.forget();

    // The operator sees the new secret, and nothing leaves before the partner has it.
    let said = psql.types(&revoke);
    let new = said
        .split(['|', '\n'])
        .find(|word| word.starts_with("whsec_"))
        .unwrap_or_else(|| panic!("no secret is shown: {said}"));
    assert_ne!(new, endpoint.secret);
    requests_done(&mut shop);
    let after = emit(&mut shop);
    sleep(POLLS);
    assert_eq!(receiver.count(), 0, "it is on hold");
    assert_eq!(state(&mut shop, &after, &endpoint), "pending");

    let said = psql.types(&resume);
    shop.wait_for_state(&after, &endpoint, "delivered");
    let requests = receiver.requests();
    assert_eq!(ids(&requests), [&*after]);
    assert_eq!(objections(new, &requests), [""; 0]);
    let old = &endpoint.secret;
    assert!(by_rust(old, &requests)[0].is_err());
    assert!(by_python(old, &requests)[0].is_err());
    assert!(
        said.contains("revoke_secret|leaked, ticket 4712"),
        "the audit log says who and why: {said}"
    );
    assert!(!said.contains(new), "and no secret");
}

#[test]
fn a_wrong_payload_is_skipped_where_it_waits_and_followed_by_the_right_one() {
    let [stop, who, correct, resume, expunge, confirm] = blocks("A wrong payload was sent");
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .start();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let reached = shop.endpoint("acme", &receiver.url("/reached"));
    let spared = shop.endpoint("acme", &receiver.url("/spared"));
    // It has refused one attempt, and would take the next.
    receiver.script("/spared", vec![Answer::status(500), Answer::status(200)]);
    let wrong = shop.emit_with(
        "order.paid",
        "acme",
        r#"{"order": "7", "total": "19.90"}"#,
        ", subject_type => 'order', subject_id => '7', subject_version => 1",
    );
    shop.wait_for_state(&wrong, &reached, "delivered");
    shop.wait_for_state(&wrong, &spared, "retrying");
    let mut psql = operator(&cluster, "shop", &reached, &wrong);

    psql.types(&stop);
    requests_done(&mut shop);
    receiver.forget();
    let unaware = shop.emit("order.paid", "acme", r#"{"order": "8"}"#);
    let said = psql.types(&who);
    assert!(
        said.contains(&format!("{}|acme|delivered|", reached.id)),
        "{said}"
    );
    assert!(
        said.contains(&format!("{}|acme|retrying|", spared.id)),
        "{said}"
    );
    psql.types(&correct);
    shop.wait_for_state(&wrong, &spared, "skipped");
    let right = shop.text(&format!(
        "select event_id from webhook.events where causation = '{wrong}'"
    ));
    sleep(POLLS);
    assert_eq!(receiver.count(), 0, "the type is on hold");

    // In the order of the page, and nobody waits in between.
    psql.types(&resume);
    for endpoint in [&reached, &spared] {
        shop.wait_for_state(&right, endpoint, "delivered");
        shop.wait_for_state(&unaware, endpoint, "delivered");
    }
    assert_eq!(state(&mut shop, &wrong, &reached), "delivered");
    assert_eq!(state(&mut shop, &wrong, &spared), "skipped");
    for path in ["/reached", "/spared"] {
        let requests = receiver.requests_for(path);
        let mut arrived = ids(&requests);
        arrived.sort_unstable();
        let mut wanted = vec![&*unaware, &*right];
        wanted.sort_unstable();
        assert_eq!(arrived, wanted, "{path}");
        let right = requests
            .iter()
            .find(|request| request.header("webhook-id") == Some(&*right))
            .expect("the right one");
        assert_eq!(right.header("webhook-causation-id"), Some(&*wrong));
        assert!(right.text().contains("18.90"), "{}", right.text());
    }

    // It is there no more, and the leader has looked for answers that came late.
    psql.types(&expunge);
    wait_for("nothing of it remains", PATIENCE, || {
        let said = psql.types(&confirm);
        assert!(said.contains('|'), "{said}");
        said.lines().all(|line| line.ends_with("|0"))
    });
    let (code, _) = shop.refusal(&format!("select webhook.replay('{wrong}', {})", reached.id));
    assert_eq!(code, "55000", "what is erased cannot be sent again");
}

#[test]
fn a_receiver_that_lost_data_gets_every_event_again_under_the_same_id() {
    const EVENTS: usize = 20;
    let [send, how_far, export] = blocks("A receiver lost data");
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("acme", &receiver.url("/hook"));
    let beside = shop.endpoint("acme", &receiver.url("/beside"));
    let events = shop.column(&format!(
        "select webhook.emit('order.paid', 'acme', to_jsonb(n)) from generate_series(1, {EVENTS}) n"
    ));
    for event in &events {
        shop.wait_for_state(event, &endpoint, "delivered");
        shop.wait_for_state(event, &beside, "delivered");
    }
    let first = bodies(&receiver.requests_for("/hook"));
    receiver.forget();

    let mut psql = operator(&cluster, "shop", &endpoint, &events[0]);
    let said = psql.types(&send);
    assert!(
        said.contains(&format!("{}|{EVENTS}|{EVENTS}\n", endpoint.id)),
        "the dry run: {said}"
    );
    shop.wait_until("(select bool_and(state = 'done') from webhook.replays)");
    receiver.wait_for(EVENTS, PATIENCE);
    let said = psql.types(&how_far);
    assert!(
        said.starts_with(&format!("done|{EVENTS}|{EVENTS}|")),
        "{said}"
    );
    sleep(POLLS);
    assert_eq!(bodies(&receiver.requests_for("/hook")), first);
    assert_eq!(
        receiver.count(),
        EVENTS,
        "once each, and nobody else gets any"
    );
    // The same in a file, for one who would rather read it there.
    let said = psql.types(&export);
    for event in &events {
        assert!(said.contains(event.as_str()), "{event} in {said}");
    }
    assert_eq!(said.lines().count(), EVENTS + 1);
}

#[test]
fn a_database_that_was_restored_sends_what_was_to_be_sent_once_adopted_and_has_no_gap() {
    let [look, adopt, progress, gaps] = blocks("The database was restored");
    let mut cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "2s,2s,2s,2s,2s,2s,2s,2s,2s,2s")
        .start();
    let receiver = Receiver::http();
    receiver.script("/late", vec![Answer::status(500)]);
    let (good, late, sent, retrying) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let good = shop.endpoint_with(
            "acme",
            &receiver.url("/good"),
            ", event_types => '{order.*}'",
        );
        let late = shop.endpoint_with(
            "acme",
            &receiver.url("/late"),
            ", event_types => '{bill.*}'",
        );
        let sent = shop.emit("order.paid", "acme", "{}");
        let retrying = shop.emit("bill.sent", "acme", "{}");
        shop.wait_for_state(&sent, &good, "delivered");
        shop.wait_for_state(&retrying, &late, "retrying");
        (good, late, sent, retrying)
    };
    // Committed, and not read before the original ended.
    cluster.reload(&[("webhook.enabled", "off")]);
    let unread = {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("off");
        shop.wait_until("(select in_flight = 0 from webhook.stat_queue)");
        shop.emit("order.paid", "acme", "{}")
    };
    dump_and_restore(&cluster, "shop", "restored");
    drop_original(&cluster, "shop");
    cluster.reload(&[("webhook.enabled", "on")]);
    receiver.script("/late", vec![Answer::status(200)]);
    receiver.forget();

    let mut shop = Outbox::join(&cluster, "restored");
    shop.wait_for_worker("running");
    let mut psql = operator(&cluster, "restored", &good, &sent);
    let said = psql.types(&look);
    assert!(said.contains("|origin|3|2|"), "{said}");
    sleep(POLLS);
    assert_eq!(receiver.count(), 0, "nothing leaves before the adoption");

    psql.types(&adopt);
    wait_for("the adoption is done", PATIENCE, || {
        let said = psql.types(&progress);
        said.contains("|done|")
    });
    shop.wait_for_state(&unread, &good, "delivered");
    shop.wait_for_state(&retrying, &late, "delivered");
    assert_eq!(
        psql.types(&gaps),
        "",
        "a kind of gap has a row when there is one"
    );
    // And when everything is judged, however young.
    shop.wait_until(
        "(select (unread_events, queued, in_flight) = (0, 0, 0) from webhook.stat_queue)",
    );
    assert!(shop.is("coalesce(sum(found), 0) = 0 from webhook.reconcile(since => now() - interval '2 days', settle => '0')"));
    assert!(shop.is("count(*) = 0 from webhook.reconciliation where repaired_at is null"));
    sleep(POLLS);
    let mut arrived = ids(&receiver.requests());
    arrived.sort_unstable();
    assert_eq!(
        arrived,
        [&*retrying, &*unread],
        "each once, and {sent} not again"
    );
}

/// A session of psql that knows the endpoint and the event, as the page says that it does.
fn operator(cluster: &Cluster, database: &str, endpoint: &Endpoint, event: &str) -> Psql {
    let endpoint = endpoint.id.to_string();
    Psql::open(
        cluster,
        database,
        &[("endpoint_id", &endpoint), ("event_id", event)],
    )
}

/// The blocks of SQL below a heading of the runbook, which are as many as the test knows what to do with.
#[track_caller]
fn blocks<const N: usize>(heading: &str) -> [String; N] {
    let text = runbook();
    let begin = text
        .find(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no section \"{heading}\""));
    let rest = &text[begin + 1..];
    let section = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
    let blocks = sql_of(section);
    blocks
        .try_into()
        .unwrap_or_else(|blocks| panic!("\"{heading}\" has other blocks: {blocks:#?}"))
}

/// What is always looked at first: the last block before the first incident.
fn first_look() -> String {
    let text = runbook();
    let end = text.find("\n## ").expect("an incident");
    sql_of(&text[..end]).pop().expect("a block")
}

fn sql_of(section: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in section.lines() {
        let bare = line.trim();
        match open.take() {
            None if bare == "```sql" => open = Some(String::new()),
            None => {}
            Some(block) if bare == "```" => blocks.push(block),
            Some(block) => open = Some(format!("{block}{line}\n")),
        }
    }
    blocks
}

fn runbook() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbook.md");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn emit(shop: &mut Outbox) -> String {
    shop.emit("order.paid", "acme", "{}")
}

fn state(shop: &mut Outbox, event: &str, endpoint: &Endpoint) -> String {
    shop.wait_until(&format!(
        "exists (select from webhook.deliveries where event_id = '{event}' and endpoint_id = {})",
        endpoint.id
    ));
    shop.delivery(event, endpoint).expect("a delivery").state
}

/// Waits until the leader has carried out what it was asked for.
fn requests_done(shop: &mut Outbox) {
    shop.wait_until("(select bool_and(state = 'done') from webhook.requests)");
}

/// The ids of the events in their order of arrival.
fn ids(requests: &[Request]) -> Vec<String> {
    requests
        .iter()
        .map(|request| request.header("webhook-id").expect("an id").to_owned())
        .collect()
}

/// (event, body) of each request, sorted.
fn bodies(requests: &[Request]) -> Vec<(String, Vec<u8>)> {
    let mut bodies: Vec<_> = ids(requests)
        .into_iter()
        .zip(requests.iter().map(|request| request.body.clone()))
        .collect();
    bodies.sort_unstable();
    bodies
}
