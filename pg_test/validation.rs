//! What emit does with payloads, types and sources that the catalogue does not allow: nothing, a warning or an error, as
//! it is set; and what it costs. No error, warning or log line shows a value.

use std::sync::{Arc, Mutex};

use postgres::NoTls;
use webhook_outbox_test::{
    cluster::Cluster,
    meter::cpu_seconds,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    say,
};

const SCHEMA: &str = r#"'{"type": "object", "required": ["order"], "additionalProperties": false, "properties": {
    "order": {"type": "string", "description": "which"}, "note": {"type": "string", "maxLength": 3, "description": "free text"}}}', '{"order": "o"}'"#;
const GOOD: &str = r#"select webhook.emit('order.paid', 'acme', '{"order": "o-1"}')"#;
const BAD: &str =
    r#"select webhook.emit('order.paid', 'acme', '{"order": "o-1", "note": "confidential"}')"#;

/// What a session is told beside its results.
struct Listener {
    client: postgres::Client,
    said: Arc<Mutex<Vec<String>>>,
}

impl Listener {
    fn join(cluster: &Cluster, database: &str) -> Listener {
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let mut config = cluster.connection(database);
        config.notice_callback(move |notice| {
            let text = format!(
                "{} {} {}",
                notice.message(),
                notice.detail().unwrap_or_default(),
                notice.hint().unwrap_or_default()
            );
            heard.lock().unwrap().push(text);
        });
        let client = config.connect(NoTls).expect("a session");
        Listener { client, said }
    }

    /// Runs a statement: what it warned of, or SQLSTATE and text of its error.
    fn run(&mut self, statement: &str) -> String {
        self.said.lock().unwrap().clear();
        match self.client.batch_execute(statement) {
            Ok(()) => self.said.lock().unwrap().join("\n"),
            Err(error) => {
                let error = error.as_db_error().expect("an error of the server");
                format!(
                    "{} {} {}",
                    error.code().code(),
                    error.message(),
                    error.detail().unwrap_or_default()
                )
            }
        }
    }
}

#[test]
fn a_payload_that_breaks_its_schema_is_let_pass_warned_about_or_refused() {
    let mut cluster = Cluster::start_usual();
    let mut admin = Outbox::create(&cluster, "shop");
    admin.run("select webhook.create_event_type('order.paid')");
    admin.run(&format!(
        "select webhook.add_schema('order.paid', '1', {SCHEMA})"
    ));
    drop(admin);
    let told = "payload of event type \"order.paid\" does not match schema version \"1\" \"/note\" breaks the rule \"maxLength\" of the schema.";

    // The default is a warning; the event is there.
    let mut session = Listener::join(&cluster, "shop");
    assert_eq!(session.run(GOOD), "");
    assert!(session.run(BAD).starts_with(told), "{}", session.run(BAD));
    for (setting, wanted) in [("off", String::new()), ("enforce", format!("23514 {told}"))] {
        cluster.reload(&[("webhook.validation", setting)]);
        let mut session = Listener::join(&cluster, "shop");
        assert_eq!(session.run(BAD), wanted);
        assert_eq!(session.run(GOOD), "");
    }
    // What the version says wins, either way.
    let mut admin = Outbox::join(&cluster, "shop");
    let mut session = Listener::join(&cluster, "shop");
    admin.run("select webhook.update_schema('order.paid', '1', mode => 'off')");
    assert_eq!(session.run(BAD), "");
    admin.run("select webhook.update_schema('order.paid', '1', mode => 'warn')");
    assert!(session.run(BAD).starts_with(told));
    admin.run("select webhook.update_schema('order.paid', '1', mode => '')");
    assert!(session.run(BAD).starts_with("23514"));
    // A version that does not exist is no way around it.
    let elsewhere = session.run(&BAD.replace(")", ", schema_version => '9')"));
    assert_eq!(
        elsewhere,
        "42704 event type \"order.paid\" has no schema version \"9\" The payload cannot be validated."
    );
    // What it lacks, and what it must not have.
    assert!(
        session
            .run("select webhook.emit('order.paid', 'acme', '{}')")
            .ends_with("The payload lacks the required member \"order\".")
    );
    assert!(
        session
            .run(r#"select webhook.emit('order.paid', 'acme', '{"order": "o", "more": "confidential"}')"#)
            .ends_with("The payload has the member \"more\", which the schema does not know.")
    );
    // A member that stands there twice is one that two receivers read differently.
    assert!(
        session
            .run(r#"select webhook.emit_json('order.paid', 'acme', '{"order": "confidential", "order": "o"}')"#)
            .ends_with("\"/order\" stands there twice.")
    );
    // Test events are held to it as well.
    assert!(
        session
            .run(&BAD.replace(")", ", test => true)"))
            .starts_with("23514")
    );
    drop((admin, session));
    // PostgreSQL itself logs the statements that fail; what the extension says is the rest.
    let log = cluster.log();
    assert!(log.contains("does not match schema"));
    assert!(!log.lines().any(|line| line.contains("confidential")
        && !line.contains("STATEMENT:")
        && !line.contains("webhook.emit")));
}

#[test]
fn a_correction_of_a_dead_letter_is_held_to_the_schema() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    receiver.script("/in", vec![Answer::status(404), Answer::status(200)]);
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("acme", &receiver.url("/in"));
    shop.run("select webhook.create_event_type('order.paid')");
    shop.run(&format!(
        "select webhook.add_schema('order.paid', '1', {SCHEMA}, mode => 'enforce')"
    ));
    let event = shop.text(GOOD);
    let dead = shop.wait_for_state(&event, &endpoint, "dead");
    let correct = |data: &str| {
        format!(
            "select webhook.correct('{}', '{data}', 'the note was wrong')",
            dead.id
        )
    };
    let (code, text) = shop.refusal(&correct(r#"{"order": "o-1", "note": "confidential"}"#));
    assert_eq!(code, "23514");
    assert!(
        text.contains("does not match schema version") && text.contains("/note"),
        "{text}"
    );
    assert!(!text.contains("confidential"), "{text}");
    // Nothing has happened: neither a new event nor a request to close the old one.
    assert_eq!(shop.delivery(&event, &endpoint), Some(dead.clone()));
    assert!(shop.is("count(*) = 1 from webhook.events"));
    assert!(shop.is("count(*) = 0 from webhook.requests"));
    let right = shop.text(&correct(r#"{"order": "o-1", "note": "ok"}"#));
    shop.wait_for_state(&right, &endpoint, "delivered");
    shop.wait_for_state(&event, &endpoint, "closed");
}

#[test]
fn types_that_are_not_registered_are_accepted_warned_about_or_refused() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut admin = Outbox::create(&cluster, "shop");
    let endpoint = admin.endpoint_with(
        "acme",
        &receiver.url("/in"),
        ", event_types => '{webhook.test}'",
    );
    drop(admin);
    let emit = "select webhook.emit('order.new', 'acme', '{}')";
    assert_eq!(Listener::join(&cluster, "shop").run(emit), "");
    cluster.reload(&[("webhook.unknown_types", "warn")]);
    assert!(
        Listener::join(&cluster, "shop")
            .run(emit)
            .starts_with("event type \"order.new\" does not exist")
    );
    cluster.reload(&[("webhook.unknown_types", "refuse")]);
    let mut session = Listener::join(&cluster, "shop");
    assert!(
        session
            .run(emit)
            .starts_with("42704 event type \"order.new\" does not exist")
    );
    assert_eq!(
        session.run(&format!(
            "begin; select webhook.create_event_type('order.new'); {emit}; commit"
        )),
        ""
    );
    assert_eq!(session.run(emit), "");
    // The extension's own events need no registration.
    session.run(&format!("select webhook.send_test({})", endpoint.id));
    receiver.wait_for(1, PATIENCE);
}

#[test]
fn keys_of_what_must_stay_inside_are_let_pass_warned_about_or_refused() {
    let mut cluster = Cluster::start_usual();
    Outbox::create(&cluster, "shop");
    let emit = r#"select webhook.emit('a.b', 'acme', '{"user": [{"Pass-Word": "confidential"}]}')"#;
    let told = "payload of event type \"a.b\" has a forbidden key \"/user/0/Pass-Word\" is the name of something that stays inside.";
    assert!(Listener::join(&cluster, "shop").run(emit).starts_with(told));
    cluster.reload(&[("webhook.forbidden_keys_mode", "refuse")]);
    let mut session = Listener::join(&cluster, "shop");
    assert_eq!(session.run(emit), format!("23514 {told}"));
    assert!(
        session
            .run(&emit.replace("emit(", "emit_json("))
            .starts_with("23514")
    );
    assert_eq!(
        session.run(
            r#"select webhook.emit('a.b', 'acme', '{"password_changed": true, "x": "password"}')"#
        ),
        ""
    );
    cluster.reload(&[("webhook.forbidden_keys", "iban, *diagnos*")]);
    let mut session = Listener::join(&cluster, "shop");
    assert_eq!(session.run(emit), "");
    assert!(
        session
            .run(r#"select webhook.emit('a.b', 'acme', '{"a": {"firstDiagnosis": 1}}')"#)
            .starts_with("23514")
    );
    cluster.reload(&[("webhook.forbidden_keys_mode", "off")]);
    assert_eq!(
        Listener::join(&cluster, "shop")
            .run(r#"select webhook.emit('a.b', 'acme', '{"iban": 1}')"#),
        ""
    );
}

#[test]
fn a_source_is_kept_to_its_role_its_types_and_its_partners() {
    let cluster = Cluster::start_usual();
    let mut admin = Outbox::create(&cluster, "shop");
    admin.run(
        "create role billing; create role clerk login; create role biller login in role billing;
         select webhook.grant_access('clerk', 'emit'); select webhook.grant_access('biller', 'emit');
         select webhook.create_source('billing', role => 'billing', event_types => '{invoice.*}', partners => '{acme}');
         select webhook.create_event_type('invoice.sent', sources => '{billing}')",
    );
    let emit = |kind: &str, partner: &str, source: &str| {
        format!("select webhook.emit('{kind}', '{partner}', '{{}}'{source})")
    };
    let named = ", source => 'billing'";
    let as_role = |role: &str| {
        let mut session = Listener::join(&cluster, "shop");
        session.run(&format!("set session authorization {role}"));
        session
    };
    let (mut clerk, mut biller) = (as_role("clerk"), as_role("biller"));
    assert_eq!(biller.run(&emit("invoice.sent", "acme", named)), "");
    for (kind, partner, source) in [
        ("invoice.sent", "acme", named),
        ("invoice.sent", "acme", ""),
        ("invoice.sent", "acme", ", source => 'crm'"),
        ("invoice.other", "acme", named),
    ] {
        assert!(
            clerk.run(&emit(kind, partner, source)).starts_with("42501"),
            "{kind} {source}"
        );
    }
    for (kind, partner) in [("order.paid", "acme"), ("invoice.sent", "rival")] {
        assert!(
            biller.run(&emit(kind, partner, named)).starts_with("42501"),
            "{kind} {partner}"
        );
    }
    // Who names no source, or one that nobody registered, is bound by his own right alone.
    assert_eq!(clerk.run(&emit("order.paid", "acme", "")), "");
    assert_eq!(
        clerk.run(&emit("order.paid", "acme", ", source => 'crm'")),
        ""
    );
    // Switched off, and on again; the role is taken away while the session goes on.
    admin.run("select webhook.update_source('billing', enabled => false)");
    assert!(
        biller
            .run(&emit("invoice.sent", "acme", named))
            .starts_with("55000 source \"billing\" is switched off")
    );
    admin.run("select webhook.update_source('billing', enabled => true)");
    assert_eq!(biller.run(&emit("invoice.sent", "acme", named)), "");
    admin.run("revoke billing from biller");
    assert!(
        biller
            .run(&emit("invoice.sent", "acme", named))
            .starts_with("42501")
    );
    // Observing is emitting.
    admin.run("select webhook.create_threshold('debt', 'high', 10, 'invoice.sent'); select webhook.revoke_access('clerk', 'emit');
               select webhook.grant_access('clerk', 'emit', 'acme', '{order.*}')");
    assert!(
        clerk
            .run("select webhook.observe('acme', 'customer', 'c', 'debt', 1)")
            .starts_with("42501")
    );
    assert!(admin.is("count(*) = 0 from webhook.observations"));
}

#[test]
fn a_deprecated_type_warns_and_is_refused_after_its_sunset() {
    let cluster = Cluster::start_usual();
    let mut admin = Outbox::create(&cluster, "shop");
    admin.run("select webhook.create_event_type('order.paid'); select webhook.create_event_type('order.settled')");
    let mut session = Listener::join(&cluster, "shop");
    assert_eq!(session.run(GOOD), "");
    admin.run("select webhook.deprecate_event_type('order.paid', 'old', 'order.settled', now() + interval '1 day')");
    assert!(session.run(GOOD).starts_with(
        "event type \"order.paid\" is deprecated Event type \"order.settled\" is to be used in its place."
    ));
    admin.run("select webhook.deprecate_event_type('order.paid', 'old', sunset_at => now())");
    assert!(
        session
            .run(GOOD)
            .starts_with("55000 event type \"order.paid\" is deprecated")
    );
}

#[test]
fn a_key_that_comes_back_with_other_content_is_told() {
    let mut cluster = Cluster::start_usual();
    Outbox::create(&cluster, "shop");
    let emit = |kind: &str, data: &str, more: &str| {
        format!("select webhook.emit('{kind}', 'acme', '{data}', idempotency_key => 'k'{more})")
    };
    let first = emit(
        "a.b",
        "{\"a\": 1}",
        ", subject_type => 's', subject_id => '1'",
    );
    // What may differ in a repeated call: times and traces.
    let again = emit(
        "a.b",
        "{ \"a\" :1}",
        ", subject_type => 's', subject_id => '1', occurred_at => '2026-01-01', correlation_id => 'other'",
    );
    let others = [
        (
            emit(
                "a.c",
                "{\"a\": 1}",
                ", subject_type => 's', subject_id => '1'",
            ),
            "type",
        ),
        (
            emit(
                "a.b",
                "{\"a\": 2}",
                ", subject_type => 's', subject_id => '1'",
            ),
            "payload",
        ),
        (
            emit(
                "a.b",
                "{\"a\": 1}",
                ", subject_type => 's', subject_id => '2'",
            ),
            "subject",
        ),
        (emit("a.b", "{\"a\": 1}", ""), "subject"),
        (
            emit(
                "a.b",
                "{\"a\": 1}",
                ", subject_type => 's', subject_id => '1', test => true",
            ),
            "test mode",
        ),
        (
            emit(
                "a.b",
                "{\"a\": 1}",
                ", subject_type => 's', subject_id => '1', source => 'x'",
            ),
            "source",
        ),
        (
            emit(
                "a.b",
                "{\"a\": 1}",
                ", subject_type => 's', subject_id => '1', scope => 'x'",
            ),
            "scope",
        ),
    ];
    let mut session = Listener::join(&cluster, "shop");
    assert_eq!(session.run(&first), "");
    assert_eq!(session.run(&again), "");
    for (other, what) in &others {
        let said = session.run(other);
        assert!(
            said.starts_with("idempotency key was used with other content"),
            "{said}"
        );
        assert!(
            said.contains(&format!("has another {what}. Nothing was written")),
            "{said}"
        );
    }
    cluster.reload(&[("webhook.idempotency_conflict", "error")]);
    let mut session = Listener::join(&cluster, "shop");
    assert_eq!(session.run(&again), "");
    for (other, what) in &others {
        let said = session.run(other);
        assert!(
            said.starts_with("23505 idempotency key") && said.contains(&format!("another {what}.")),
            "{said}"
        );
    }
    cluster.reload(&[("webhook.idempotency_conflict", "first")]);
    let mut session = Listener::join(&cluster, "shop");
    for (other, _) in &others {
        assert_eq!(session.run(other), "");
    }
    assert_eq!(
        Outbox::join(&cluster, "shop").number("select count(*) from webhook.events"),
        1
    );
}

#[test]
fn a_snapshot_that_cannot_see_the_first_event_of_a_key_fails_with_40001_and_a_retry_returns_it() {
    let cluster = Cluster::start_usual();
    let mut one = Outbox::create(&cluster, "shop");
    let mut other = one.another();
    for level in ["repeatable read", "serializable"] {
        let emit = format!("select webhook.emit('a.b', 'acme', '1', idempotency_key => '{level}')");
        other.run(&format!("begin isolation level {level}; select 1"));
        let first = one.text(&emit);
        assert_eq!(other.refusal(&emit).0, "40001", "{level}");
        other.run(&format!("rollback; begin isolation level {level}"));
        assert_eq!(other.text(&emit), first, "{level}");
        other.run("commit");
    }
    assert_eq!(one.number("select count(*) from webhook.events"), 2);
}

#[test]
fn validating_by_a_schema_of_thirty_lines_costs_little() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let fields: Vec<String> = (0..10)
        .map(|n| {
            format!(
                "\"text_{n}\": {{\"type\": \"string\", \"maxLength\": 40, \"description\": \"a text\"}},
                 \"number_{n}\": {{\"type\": \"integer\", \"minimum\": 0, \"description\": \"a number\"}},
                 \"kind_{n}\": {{\"enum\": [\"a\", \"b\", \"c\"], \"description\": \"a kind\"}}"
            )
        })
        .collect();
    let values: Vec<String> = (0..10)
        .map(|n| format!("\"text_{n}\": \"some text\", \"number_{n}\": {n}, \"kind_{n}\": \"b\""))
        .collect();
    let example = format!("{{{}}}", values.join(", "));
    shop.run(&format!(
        "select webhook.create_event_type('order.paid');
         select webhook.add_schema('order.paid', '1', '{{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"text_0\"],
           \"properties\": {{{}}}}}', '{example}', mode => 'enforce')",
        fields.join(",\n")
    ));
    let emits = 5_000;
    let backend = i32::try_from(shop.number("select pg_backend_pid()")).expect("a process id");
    let mut measure = |mode: &str| {
        shop.run(&format!(
            "select webhook.update_schema('order.paid', '1', mode => '{mode}'); begin"
        ));
        let run = format!(
            "select count(webhook.emit('order.paid', 'acme', '{example}')) from generate_series(1, {emits})"
        );
        shop.run(&run);
        // Time of the processor, not of the clock: the machine may be busy with something else.
        let begun = cpu_seconds(backend);
        shop.run(&run);
        let took = (cpu_seconds(backend) - begun) * 1e6 / f64::from(emits);
        shop.run("rollback");
        took
    };
    // The least of several.
    let (mut off, mut on) = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        off = off.min(measure("off"));
        on = on.min(measure("enforce"));
    }
    say!(
        "emit without validation {off:.1} us, with it {on:.1} us: {:.1} us per event",
        on - off
    );
    assert!(on - off < 25.0, "{:.1} us per event", on - off);
}
