//! The catalogue at work: the sample that ships runs and tells what it promises, tools of others can read it, and a
//! change of it is seen together with the events and endpoints of its transaction, or not at all.

use std::{fs, path::Path, process::Command, sync::LazyLock};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::Receiver,
    say,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start_usual);
const SAMPLE: &str = include_str!("../examples/catalogue.sql");
/// Headers that every request has, whatever it brings.
const TRANSPORT: [&str; 6] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "user-agent",
];
/// A schema that wants one text, enforced.
const STRICT: &str = r#"select webhook.add_schema('order.paid', '1',
    '{"type": "object", "required": ["order"], "properties": {"order": {"type": "string", "description": "which"}}}',
    '{"order": "o-1"}', mode => 'enforce')"#;
const BAD: &str = "select webhook.emit('order.paid', 'acme', '{\"order\": 4711}')";

#[test]
fn the_sample_catalogue_is_complete_and_each_of_its_examples_is_delivered() {
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&CLUSTER, "sample");
    shop.endpoint("acme", &receiver.url("/in"));
    shop.run(SAMPLE);
    let types = shop.column("select name from webhook.event_types order by name");
    assert_eq!(
        types,
        [
            "api_key.created",
            "api_key.revoked",
            "balance.low",
            "budget.threshold_crossed",
            "credit.adjustment_posted",
            "customer.created",
            "customer.frozen",
            "usage.finalized"
        ]
    );
    assert!(shop.is("bool_and(missing = '{}') from webhook.event_types"));
    assert!(shop.is("bool_and(purpose <> '') and count(*) > 30 from webhook.event_fields"));

    shop.run(
        "select webhook.emit(type, 'acme', example, source => case when type like 'api_key.%' then 'crm' end)
           from webhook.event_schemas",
    );
    let requests = receiver.wait_for(8, PATIENCE);
    assert!(
        requests
            .iter()
            .all(|request| request.text().contains(r#""schema_version":"1""#))
    );
    // Nobody but the producer that is registered for keys.
    let (code, text) = shop.refusal(
        "select webhook.emit('api_key.created', 'acme', (select example from webhook.event_schemas where type = 'api_key.created'))",
    );
    assert_eq!((&*code, text.contains("needs a source")), ("42501", true));

    receiver.forget();
    shop.run(
        "select webhook.observe('acme', 'customer', 'c-7', 'customer.balance', v)
           from unnest('{30.00,12.00,9.50,8.00,15.00,9.00,25.00,10.00}'::numeric[]) as v;
         select webhook.observe('acme', 'budget', 'b-1', 'budget.used_percent', v)
           from unnest('{10,49.9,50,81.5,79,90,120}'::numeric[]) as v;",
    );
    // The balance: 12.00 to 9.50, and 25.00 to 10.00. The budget: 50, 80, 80 again after 79, 100.
    receiver.wait_for(6, PATIENCE);
    assert_eq!(
        shop.number(
            "select count(*) from webhook.events where type = 'balance.low' and subject_id = 'c-7'"
        ),
        2
    );
    assert_eq!(
        shop.number("select count(*) from webhook.events where type = 'budget.threshold_crossed' and subject_id = 'b-1'"),
        4
    );
}

#[test]
fn the_openapi_document_is_valid_by_a_public_validator() {
    let mut shop = Outbox::create(&CLUSTER, "openapi");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let judge = |shop: &mut Outbox, name: &str| {
        let document = shop.text("select webhook.openapi('The shop''s webhooks', '2.0.0')");
        let file = CLUSTER.folder().join(name);
        fs::write(&file, document).expect("the document");
        let output = Command::new(root.join("build/venv/bin/python"))
            .arg(root.join("pg_test/support/openapi.py"))
            .arg(&file)
            .output()
            .expect("python");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        said
    };
    assert!(judge(&mut shop, "empty.json").starts_with("0 webhooks"));
    shop.run(SAMPLE);
    shop.run("select webhook.create_event_type('no.schema')");
    // A second version, a schema that refers to itself, one with an id of its own, and one that is only true.
    shop.run(
        r##"select webhook.add_schema('customer.created', '2.0-rc_1', '{"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
              "properties": {"more": {"$ref": "#/$defs/node", "description": "further"}}}}}', '{"more": {"more": {}}}', change_note => 'a tree');
            select webhook.add_schema('customer.created', '3', '{"$id": "https://example.com/three", "type": "object"}', '{"x": null}');
            select webhook.add_schema('customer.created', '4', 'true', '[1.10, 1e3]');
            select webhook.update_schema('customer.created', '1', current => false, deprecated => true);
            select webhook.deprecate_event_type('no.schema', 'nobody wants it', 'customer.created', '2100-01-01')"##,
    );
    let said = judge(&mut shop, "full.json");
    assert!(said.starts_with("9 webhooks, "), "{said}");
    say!("openapi: {}", said.trim());
    let narrowed = "array(select jsonb_object_keys(webhook.openapi(event_types => '{api_key.*,balance.low}') -> 'webhooks'))";
    assert!(shop.is(&format!(
        "{narrowed} <@ '{{api_key.created,api_key.revoked,balance.low}}' and cardinality({narrowed}) = 3"
    )));
    // Header parameters are those that are sent, when everything is given.
    let receiver = Receiver::http();
    shop.endpoint("given", &receiver.url("/in"));
    let parent = shop.emit("no.schema", "given", "{}");
    shop.emit_with(
        "no.schema",
        "given",
        "{}",
        &format!(
            ", subject_type => 'order', subject_id => '7', subject_version => 1, source => 'shop', scope => 'eu',
             occurred_at => now(), correlation_id => 'c 1', causation => '{parent}', schema_version => '1',
             traceparent => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'"
        ),
    );
    let requests = receiver.wait_for(2, PATIENCE);
    let headers_of = |event: &dyn Fn(&str) -> bool| -> Vec<String> {
        let request = requests
            .iter()
            .find(|request| event(request.header("webhook-id").unwrap_or_default()))
            .expect("the request");
        let mut names: Vec<String> = request
            .headers
            .iter()
            .map(|(name, _)| name.to_ascii_lowercase())
            .filter(|name| !TRANSPORT.contains(&name.as_str()))
            .collect();
        names.sort();
        names
    };
    let described = |shop: &mut Outbox, required: &str| {
        shop.column(&format!(
            "select p.key from jsonb_each(webhook.openapi() -> 'components' -> 'parameters') as p
              where (p.value ->> 'required')::boolean in ({required}) order by p.key collate \"C\""
        ))
    };
    assert_eq!(
        described(&mut shop, "true, false"),
        headers_of(&|id| id != parent)
    );
    assert_eq!(described(&mut shop, "true"), headers_of(&|id| id == parent));
    // And each type names them.
    assert!(shop.is(
        "bool_and(jsonb_array_length(w.value -> 'post' -> 'parameters')
                  = (select count(*) from jsonb_object_keys(webhook.openapi() -> 'components' -> 'parameters')))
           from jsonb_each(webhook.openapi() -> 'webhooks') as w"
    ));
}

#[test]
fn catalogue_endpoints_and_events_of_one_transaction_are_seen_together_or_not_at_all() {
    let receiver = Receiver::http();
    let mut admin = Outbox::create(&CLUSTER, "together");
    let mut other = admin.another();
    // The other session has looked before, and goes by what it knows.
    other.run(BAD);

    admin_changes(&mut admin, &receiver);
    // In the transaction all of it counts at once, for everybody else nothing does.
    admin.run("savepoint here");
    assert_eq!(admin.refusal(BAD).0, "23514");
    admin.run(
        "rollback to here; select webhook.emit('order.paid', 'acme', '{\"order\": \"inside\"}')",
    );
    other.run(BAD);
    assert!(other.is("count(*) = 0 from webhook.event_types"));
    admin.run("rollback");
    // Nothing is left of it, in that session neither.
    admin.run(BAD);
    assert!(admin.is("count(*) = 0 from webhook.event_types"));
    assert_eq!(receiver.count(), 0);

    admin_changes(&mut admin, &receiver);
    admin.run("select webhook.emit('order.paid', 'acme', '{\"order\": \"inside\"}'); commit");
    let requests = receiver.wait_for(1, PATIENCE);
    assert!(
        requests[0]
            .text()
            .contains(r#""schema_version":"1","data":{"order": "inside"}"#)
    );
    assert_eq!(other.refusal(BAD).0, "23514");
    // Nothing older went to the endpoint: three bad events were emitted before it was there.
    other.run("select webhook.emit('order.paid', 'acme', '{\"order\": \"after\"}')");
    assert!(receiver.wait_for(2, PATIENCE)[1].text().contains("after"));
    assert!(admin.is("count(*) = 5 from webhook.events"));
}

/// Opens a transaction with a type, an enforced schema and an endpoint.
fn admin_changes(admin: &mut Outbox, receiver: &Receiver) {
    admin.run("begin; select webhook.create_event_type('order.paid')");
    admin.run(STRICT);
    admin.endpoint("acme", &receiver.url("/in"));
}

#[test]
fn a_change_is_undone_with_its_savepoint_and_with_its_prepared_transaction() {
    let mut shop = Outbox::create(&CLUSTER, "undone");
    shop.run("begin; select webhook.create_event_type('order.paid'); savepoint one");
    shop.run(STRICT);
    shop.run("savepoint two");
    assert_eq!(shop.refusal(BAD).0, "23514");
    shop.run("rollback to one");
    shop.run(BAD);
    shop.run("commit");
    shop.run(BAD);
    shop.run("begin");
    shop.run(STRICT);
    shop.run("prepare transaction 'undone'");
    shop.run(BAD);
    shop.run("rollback prepared 'undone'");
    shop.run(BAD);
    shop.run("begin");
    shop.run(STRICT);
    shop.run("prepare transaction 'done'");
    shop.run(BAD);
    shop.run("commit prepared 'done'");
    assert_eq!(shop.refusal(BAD).0, "23514");
}

#[test]
fn a_transaction_that_keeps_its_snapshot_keeps_its_catalogue_and_the_next_one_has_the_new_one() {
    let mut admin = Outbox::create(&CLUSTER, "snapshots");
    admin.run("select webhook.create_event_type('order.paid')");
    let mut other = admin.another();
    for level in ["repeatable read", "serializable"] {
        other.run(&format!("begin isolation level {level}; select 1"));
        admin.run(STRICT);
        other.run(BAD);
        other.run("commit");
        assert_eq!(other.refusal(BAD).0, "23514", "{level}");
        admin.run("select webhook.update_schema('order.paid', '1', mode => 'off')");
        other.run(BAD);
        admin.run("delete from webhook._event_schema");
    }
    // A long transaction that takes new snapshots learns of it in the middle.
    other.run("begin");
    other.run(BAD);
    admin.run(STRICT);
    assert_eq!(other.refusal(BAD).0, "23514");
    other.run("rollback");
}
