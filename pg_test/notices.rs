//! The audit log: every administrative act leaves one row that says who did what to which object, when and why, what it
//! was before and after; no row shows a secret or a payload, and what is rolled back has not been.

use std::sync::LazyLock;

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox},
    receiver::{Answer, Receiver},
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .start();
    Outbox::create(&cluster, "shop").run("create role keeper superuser");
    cluster
});

/// A payload that must not be seen.
const PAYLOAD: &str = r#"{"note": "strictly-confidential"}"#;

#[test]
fn every_verb_leaves_one_row_with_who_what_and_why_and_no_secret() {
    let mut shop = Outbox::create(&CLUSTER, "audited");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(404));
    let url = receiver.url("/hook");
    shop.run("set session authorization keeper; set application_name = 'desk 4'");
    let endpoint = shop.endpoint("audited", &url);
    let spare = shop.endpoint("audited.spare", &url);
    let events: Vec<String> = (0..5)
        .map(|_| shop.emit("order.paid", "audited", PAYLOAD))
        .collect();
    let dead: Vec<String> = events
        .iter()
        .map(|event| shop.wait_for_state(event, &endpoint, "dead").id)
        .collect();
    let (id, other) = (endpoint.id, spare.id);
    let acts = [
        (
            "create_policy",
            "create_policy('p', rate => 5)".to_owned(),
            "",
        ),
        (
            "update_policy",
            "update_policy('p', rate => 6)".to_owned(),
            "",
        ),
        ("delete_policy", "delete_policy('p')".to_owned(), ""),
        (
            "create_event_type",
            "create_event_type('order.paid')".to_owned(),
            "",
        ),
        (
            "update_event_type",
            "update_event_type('order.paid', 0)".to_owned(),
            "",
        ),
        (
            "create_endpoint",
            format!("create_endpoint('audited', '{url}', verify => 'none')"),
            "",
        ),
        (
            "update_endpoint",
            format!("update_endpoint({other}, description => 'x')"),
            "",
        ),
        (
            "disable_endpoint",
            format!("disable_endpoint({other}, 'why 1')"),
            "why 1",
        ),
        (
            "enable_endpoint",
            format!("enable_endpoint({other}, 'why 2')"),
            "why 2",
        ),
        (
            "pause",
            format!("pause('endpoint', '{other}', 'why 3')"),
            "why 3",
        ),
        (
            "resume",
            format!("resume('endpoint', '{other}', 'why 4')"),
            "why 4",
        ),
        (
            "pause",
            "pause('partner', 'audited.spare', 'why 5')".to_owned(),
            "why 5",
        ),
        (
            "resume",
            "resume('partner', 'audited.spare')".to_owned(),
            "",
        ),
        (
            "pause",
            "pause('event_type', 'order.paid', 'why 6')".to_owned(),
            "why 6",
        ),
        (
            "resume",
            "resume('event_type', 'order.paid')".to_owned(),
            "",
        ),
        ("pause", "pause('all', null, 'why 7')".to_owned(), "why 7"),
        ("resume", "resume('all')".to_owned(), ""),
        ("send_test", format!("send_test({id})"), ""),
        ("replay", format!("replay('{}')", events[0]), ""),
        ("retry", format!("retry('{}', 'why 8')", dead[1]), "why 8"),
        ("skip", format!("skip('{}', 'why 9')", dead[2]), "why 9"),
        ("close", format!("close('{}', 'why 10')", dead[3]), "why 10"),
        (
            "correct",
            format!("correct('{}', '{PAYLOAD}', 'why 11')", dead[4]),
            "why 11",
        ),
        (
            "delete_endpoint",
            format!("delete_endpoint({other}, 'why 12')"),
            "why 12",
        ),
        (
            "offboard",
            "offboard('audited', 'why 13')".to_owned(),
            "why 13",
        ),
    ];
    for (verb, act, reason) in acts {
        let before = shop.number("select count(*) from webhook.audit_log");
        shop.run(&format!("select webhook.{act}"));
        let after = shop.number("select count(*) from webhook.audit_log");
        assert_eq!(after, before + 1, "{act}");
        let row = last(&mut shop);
        let [found, actor, application, object, why] = [0, 1, 2, 3, 4].map(|n| row[n].clone());
        assert_eq!(found, verb, "{act}");
        assert_eq!(
            (actor.as_str(), application.as_str()),
            ("keeper", "desk 4"),
            "{act}"
        );
        assert!(!object.is_empty(), "{act}");
        // The reason of a correction names the new event, too.
        assert!(
            if reason.is_empty() {
                why.is_empty()
            } else {
                why.contains(reason)
            },
            "{act}: {why}"
        );
    }
    let rows = shop
        .column("select a::text from webhook.audit_log a")
        .join("\n");
    for endpoint in [&endpoint, &spare] {
        assert_hidden(&rows, endpoint);
    }
    assert!(
        !rows.contains("whsec_") && !rows.contains("confidential"),
        "{rows}"
    );
    assert!(shop.is("bool_and(at <= clock_timestamp() and client is null) from webhook.audit_log"));
}

#[test]
fn an_entry_shows_the_object_before_and_after_and_the_request_that_was_made() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/new", |_| Answer::status(404));
    let endpoint = shop.endpoint("shown", &receiver.url("/old"));
    let about = format!("object_id = '{}'", endpoint.id);
    assert!(shop.is(&format!(
        "(verb, partner_id, before is null, after is not null) = ('create_endpoint', 'shown', true, true)
           from webhook.audit_log where {about}"
    )));
    shop.run(&format!(
        "select webhook.update_endpoint({}, url => '{}', event_types => '{{order.*}}')",
        endpoint.id,
        receiver.url("/new")
    ));
    // A path may hold a token of the receiver: of a URL the host is enough.
    assert!(shop.is(&format!(
        "before ? 'url' and before ? 'event_types' and after ->> 'url' like 'http://127.0.0.1:%'
         and after -> 'event_types' = '[\"order.*\"]' and concat(before, after) !~ '/(old|new)'
           from webhook.audit_log where {about} and verb = 'update_endpoint'"
    )));
    shop.run(&format!(
        "select webhook.disable_endpoint({id}, 'for now'); select webhook.enable_endpoint({id})",
        id = endpoint.id
    ));
    assert_eq!(
        shop.column(&format!(
            "select concat_ws(' ', before ->> 'state', after ->> 'state') from webhook.audit_log
              where {about} and verb in ('disable_endpoint', 'enable_endpoint') order by at"
        )),
        ["active disabled", "disabled active"]
    );
    let event = shop.emit("order.paid", "shown", "{}");
    let dead = shop.wait_for_state(&event, &endpoint, "dead");
    let reply = shop.have_done(&format!("retry('{}', 'once more')", dead.id));
    assert!(shop.is(&format!(
        "(verb, partner_id, reason) = ('retry', 'shown', 'once more')
           from webhook.audit_log where request_id = {}",
        reply.id
    )));
}

#[test]
fn an_act_that_fails_or_is_rolled_back_leaves_no_entry() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("nothing", &receiver.url("/hook"));
    let id = endpoint.id;
    shop.run(&format!(
        "begin; select webhook.disable_endpoint({id}, 'or not'); rollback"
    ));
    shop.refusal(&format!("select webhook.disable_endpoint({id}, '')"));
    shop.refusal(&format!("select webhook.pause('endpoint', '{id}', null)"));
    let entries = format!("select verb from webhook.audit_log where object_id = '{id}'");
    assert_eq!(shop.column(&entries), ["create_endpoint"]);
    assert!(shop.alerts(&endpoint).is_empty());
}

#[test]
fn nobody_can_write_or_unwrite_the_log_but_its_owner() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    shop.run("create role visitor; grant usage on schema webhook to visitor");
    for statement in [
        "select from webhook.audit_log",
        "select from webhook._audit",
        "insert into webhook._audit (audit_id, verb) values (1, 'x')",
        "delete from webhook._audit",
        "delete from webhook.audit_log",
        "insert into webhook._alert (alert_id, kind) values (1, 'x')",
    ] {
        let (code, _) = shop.refusal(&format!("set local role visitor; {statement}"));
        assert_eq!(code, "42501", "{statement}");
    }
}

/// The newest entry: verb, actor, application, kind of the object, reason.
#[track_caller]
fn last(shop: &mut Outbox) -> Vec<String> {
    let rows = shop.rows(
        "select verb, actor, application, object_kind, reason from webhook.audit_log order by at desc limit 1",
    );
    rows[0]
        .iter()
        .map(|value| value.clone().unwrap_or_default())
        .collect()
}

/// The endpoint's key is shown in no form.
#[track_caller]
fn assert_hidden(rows: &str, endpoint: &Endpoint) {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let text = endpoint.secret.trim_start_matches("whsec_");
    let bytes = STANDARD.decode(text).expect("a secret");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!rows.contains(text) && !rows.contains(&hex), "{rows}");
}
