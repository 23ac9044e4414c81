//! The acceptance accepts what works and nothing else: `webhook.report()` tells what is wrong, and examples/acceptance goes
//! through the whole chain, leaves nothing behind, and fails when one step of it is broken.

use std::process::{Command, Output};

use webhook_outbox_test::{
    cluster::Cluster,
    example::{Example, python},
    outbox::Outbox,
    receiver::{Answer, Receiver},
    wait::wait_for,
};

const CHECKS: [&str; 22] = [
    "report",
    "boundary",
    "challenge",
    "emit",
    "fan-out",
    "test and live",
    "signature",
    "idempotency",
    "retry",
    "rotation",
    "replay",
    "dead letter",
    "pause",
    "feed",
    "recovery",
    "leader",
    "capacity",
    "alert",
    "reconciliation",
    "retention",
    "erasure",
    "nothing left",
];

/// A check, the function that it relies on with its arguments and result, and what that does when it is broken.
const BROKEN: [(&str, &str, &str, &str, &str); 10] = [
    (
        "signature",
        "verify",
        "profile text, keys text[], headers jsonb, body bytea",
        "boolean",
        "select false",
    ),
    (
        "rotation",
        "rotate_secret",
        "endpoint_id bigint, overlap interval, out key_id bigint, out secret text",
        "record",
        "select k.key_id, 'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=' from kept.rotate_secret(endpoint_id, overlap) k",
    ),
    (
        "replay",
        "replay",
        "event_id text, endpoint_id bigint, out request_id bigint, out delivery_id text",
        "setof record",
        "select r.request_id, null::text from webhook.requests r where r.state = 'done' limit 1",
    ),
    (
        "dead letter",
        "close",
        "delivery_id text, reason text",
        "bigint",
        "select r.request_id from webhook.requests r where r.state = 'done' limit 1",
    ),
    (
        "pause",
        "pause",
        "scope text, target text, reason text",
        "bigint",
        "select r.request_id from webhook.requests r where r.state = 'done' limit 1",
    ),
    (
        "feed",
        "events_after",
        "partner_id text, inout cursor text, max_events integer, types text[], test boolean, out event_id text",
        "setof record",
        "select e.cursor, e.event_id from kept.events_after(partner_id, cursor, max_events, types, test) e offset 1",
    ),
    (
        "reconciliation",
        "reconcile",
        "since timestamptz, repair boolean, settle interval, out kind text",
        "setof text",
        "delete from webhook._delivery where event_id = (select max(e.event_id) from webhook.events e where e.type = 'acceptance.run');
         select r.kind from kept.reconcile(since, null, repair, settle) r",
    ),
    (
        "retention",
        "_expire_payloads",
        "at timestamptz, most integer",
        "boolean",
        "select false",
    ),
    (
        "erasure",
        "confirm_erasure",
        "erasure_id bigint, out remaining bigint",
        "setof bigint",
        "select 1::bigint",
    ),
    (
        "nothing left",
        "offboard",
        "partner_id text, reason text",
        "integer",
        "select 0",
    ),
];

#[test]
fn acceptance_goes_through_the_whole_chain_and_leaves_nothing_behind() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let said = accept(&cluster, &["--end-leader", "--reload"]);
    for check in CHECKS {
        assert_eq!(word(&said, check), "passed", "{check}\n{}", text(&said));
    }
    assert!(said.status.success(), "{}", text(&said));
    // Twice, for what the first run left would be in the way of the second.
    let said = accept(&cluster, &["--reload"]);
    assert!(said.status.success(), "{}", text(&said));
    assert_eq!(word(&said, "leader"), "left");
    assert!(shop.is("count(*) = 0 from webhook.endpoints where state <> 'deleted'"));
    assert!(shop.is("count(*) = 0 from webhook.signing_keys where signs"));
    assert!(
        shop.is(
            "count(*) = 0 from webhook.deliveries where state in ('pending', 'retrying', 'dead')"
        )
    );
    assert!(shop.is("array_agg(name) = '{default}' from webhook.policies"));
    assert!(shop.is(
        "count(*) = 0 from webhook._event where type like 'acceptance.%' and body is not null"
    ));
    assert!(
        shop.is("count(*) > 0 from webhook.audit_log where application = 'webhook acceptance'")
    );
}

#[test]
fn acceptance_fails_where_a_step_of_the_chain_is_broken() {
    let mut cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    shop.run("create schema kept");
    for (check, function, arguments, result, body) in BROKEN {
        // There is another "close", for several deliveries.
        let of = if function == "close" {
            "(text, text)"
        } else {
            ""
        };
        shop.run(&format!(
            "alter function webhook.{function}{of} set schema kept;
             create function webhook.{function}({arguments}) returns {result} language sql as $${body}$$"
        ));
        let only = format!("challenge,signature,{check}");
        let said = accept(&cluster, &["--patience", "3", "--reload", "--only", &only]);
        assert_eq!(word(&said, check), "FAILED", "{check}\n{}", text(&said));
        assert_eq!(said.status.code(), Some(1), "{check}");
        shop.run(&format!(
            "drop function webhook.{function}{of};
             alter function kept.{function}{of} set schema webhook"
        ));
    }

    let said = accept(
        &cluster,
        &["--only", "challenge,capacity", "--rate", "1000000"],
    );
    assert_eq!(word(&said, "capacity"), "FAILED", "{}", text(&said));

    drop(shop);
    cluster.reload(&[("webhook.allow_networks", "0.0.0.0/0")]);
    let said = accept(&cluster, &["--only", "boundary"]);
    assert_eq!(word(&said, "boundary"), "FAILED", "{}", text(&said));

    // Nothing is sent at all: every check that waits for an arrival says so, and the report says why.
    cluster.reload(&[("webhook.enabled", "off")]);
    Outbox::join(&cluster, "shop").wait_for_worker("off");
    let said = accept(
        &cluster,
        &["--patience", "0.5", "--only", "report,challenge,emit,retry"],
    );
    for check in ["report", "challenge", "emit", "retry"] {
        assert_eq!(word(&said, check), "FAILED", "{check}\n{}", text(&said));
    }
    assert_eq!(said.status.code(), Some(1));
}

#[test]
fn report_says_what_is_wrong_and_what_to_do() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(400));
    {
        let mut shop = Outbox::create(&cluster, "shop");
        assert_eq!(finding(&mut shop, "partitions"), "note");
        shop.emit("order.paid", "nobody", "{}");
        shop.wait_until("(select result = 'ok' from webhook.report() where item = 'partitions')");
        assert!(shop.is(
            "count(*) >= 30 and count(*) = count(distinct area || item) from webhook.report()"
        ));
        assert!(shop.is("bool_and(result in ('ok', 'note', 'warning', 'fault') and detail > '') from webhook.report()"));
        assert!(shop.is("count(*) = 0 from webhook.report() where result = 'fault'"));
        // A server for tests, and told so.
        for item in [
            "plain http",
            "networks",
            "ports",
            "durability",
            "keys at rest",
        ] {
            assert_eq!(finding(&mut shop, item), "warning", "{item}");
        }
        for item in [
            "leader",
            "loop",
            "version",
            "outbox",
            "due",
            "slots",
            "requests",
            "dead letters",
            "pauses",
            "fenced",
            "copies",
            "health",
            "alerts",
            "retries",
            "inbox",
            "reconciliation",
            "clock",
            "foreign code",
        ] {
            assert_eq!(finding(&mut shop, item), "ok", "{item}");
        }

        let hook = shop.endpoint("acme", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "acme", "{}");
        shop.wait_for_state(&event, &hook, "dead");
        assert_eq!(finding(&mut shop, "dead letters"), "warning");
        assert_eq!(finding(&mut shop, "proof"), "note");
        shop.have_done("pause('all', null, 'a test')");
        assert_eq!(finding(&mut shop, "pauses"), "warning");
        shop.have_done("resume('all')");
        shop.run(
            "create function f() returns trigger language plpgsql as 'begin return null; end';
                  create trigger t after insert on webhook._event execute function f()",
        );
        assert_eq!(finding(&mut shop, "foreign code"), "warning");
        shop.run("drop trigger t on webhook._event");
        shop.run("insert into webhook._alert (alert_id, at, kind, severity, detail) values (webhook._new_id(), now(), 'event.fenced', 'critical', 'x')");
        assert_eq!(finding(&mut shop, "alerts"), "warning");
        shop.run(
            "create role reader; select webhook.grant_access('reader', 'read'); set role reader",
        );
        assert!(
            shop.is("count(*) >= 30 from webhook.report()"),
            "a reader may read it"
        );
        shop.run("reset role");
    }
    cluster.reload(&[
        ("webhook.enabled", "off"),
        ("webhook.retry_schedule", "5s,1m"),
        ("webhook.inbox_retention", "10d"),
    ]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_worker("off");
    for (item, result) in [
        ("leader", "fault"),
        ("retries", "warning"),
        ("inbox", "warning"),
    ] {
        assert_eq!(finding(&mut shop, item), result, "{item}");
    }
    wait_for(
        "every finding has its advice",
        std::time::Duration::from_secs(5),
        || {
            shop.is("count(*) = 0 from webhook.report() where result in ('warning', 'fault') and hint is null")
        },
    );
}

fn finding(shop: &mut Outbox<'_>, item: &str) -> String {
    shop.text(&format!(
        "select result from webhook.report() where item = '{item}'"
    ))
}

fn accept(cluster: &Cluster, options: &[&str]) -> Output {
    let database = format!(
        "host={} dbname=shop user=postgres",
        cluster.folder().display()
    );
    Command::new(python())
        .arg(Example::path("acceptance/acceptance.py"))
        .arg(database)
        .args(options)
        .output()
        .expect("the acceptance: run `make setup`")
}

fn text(said: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr)
    )
}

/// What the acceptance says about a check.
fn word(said: &Output, check: &str) -> String {
    let text = text(said);
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{check:16} ")))
        .unwrap_or_else(|| panic!("nothing about {check}:\n{text}"));
    line[17..].split(' ').next().unwrap_or_default().to_owned()
}
