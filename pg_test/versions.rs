//! Schema versions and shapes of the data at endpoints: who gets what, what a change of it means for what was sent before,
//! what becomes of an event that has no such version, and what a conversion cannot do.

use std::sync::LazyLock;

use webhook_outbox_test::{
    arrivals::json,
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver, Request},
    verifier,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    Cluster::plan()
        .setting("webhook.retry_schedule", "1s,200ms")
        .start()
});

/// Three versions of a payload, and a role whose functions lead from the second to the others.
const CATALOGUE: &str = r#"
    select webhook.create_event_type('order.paid');
    select webhook.add_schema('order.paid', '1', '{"type": "object", "required": ["order"], "properties": {"order": {"description": "which"}}}', '{"order": "o-1"}');
    select webhook.add_schema('order.paid', '2', '{"type": "object", "required": ["id"], "properties": {"id": {"description": "which"}}}', '{"id": "o-1"}', current => true);
    select webhook.add_schema('order.paid', '3', '{"type": "object", "required": ["ids"], "properties": {"ids": {"description": "which"}}}', '{"ids": ["o-1"]}');
    do $$ begin create role converter; exception when duplicate_object or unique_violation then null; end $$;
    create schema conversions authorization converter;
    set role converter;
    create function conversions.down(jsonb) returns jsonb language sql immutable as $$select ($1 - 'id') || jsonb_build_object('order', $1 -> 'id')$$;
    create function conversions.list(jsonb) returns jsonb language plpgsql immutable as $$
    begin
      if $1 ->> 'id' = 'bad' then
        raise exception 'this holds what stays inside: %', $1;
      end if;
      return jsonb_build_object('ids', jsonb_build_array($1 -> 'id'));
    end $$;
    reset role;
    select webhook.create_conversion('order.paid', '2', '1', 'conversions.down(jsonb)', 'old receivers');
    select webhook.create_conversion('order.paid', '2', '3', 'conversions.list(jsonb)', 'new receivers');
"#;

fn shop(database: &str) -> Outbox<'static> {
    let mut shop = Outbox::create(&CLUSTER, database);
    shop.run(CATALOGUE);
    shop
}

/// What stands behind `"data":` in an envelope.
fn data(request: &Request) -> String {
    let text = request.text();
    let (_, data) = text.split_once("\"data\":").unwrap_or(("", "}"));
    data.strip_suffix('}').unwrap_or_default().to_owned()
}

#[test]
fn endpoints_of_one_event_get_it_each_in_its_own_version_and_format() {
    let mut shop = shop("each");
    let receiver = Receiver::http();
    let mut endpoints = Vec::new();
    for version in ["1", "2", "3"] {
        for format in ["native", "cloudevents-structured", "cloudevents-binary"] {
            let path = format!("/{version}/{format}");
            let more = format!(
                ", format => '{format}', schema_versions => '{{\"order.paid\": \"{version}\"}}'"
            );
            let endpoint = shop.endpoint_with("acme", &receiver.url(&path), &more);
            endpoints.push((path, endpoint, version));
        }
    }
    shop.endpoint("acme", &receiver.url("/unpinned"));
    shop.emit(
        "order.paid",
        "acme",
        r#"{"id": 1.10, "big": 12345678901234567890}"#,
    );
    receiver.wait_for(10, PATIENCE);
    for (path, endpoint, version) in endpoints {
        let request = receiver.requests_for(&path).remove(0);
        let wanted = match version {
            "1" => r#"{"big": 12345678901234567890, "order": 1.10}"#,
            "2" => r#"{"id": 1.10, "big": 12345678901234567890}"#,
            _ => r#"{"ids": [1.10]}"#,
        };
        if path.ends_with("binary") {
            assert_eq!(request.text(), wanted);
            assert_eq!(request.header("ce-schemaversion"), Some(version));
        } else {
            assert_eq!(data(&request), wanted);
            let name = if path.ends_with("native") {
                "schema_version"
            } else {
                "schemaversion"
            };
            assert_eq!(json(&request)[name], version);
        }
        assert_eq!(
            verifier::objections(&endpoint.secret, &[request]),
            Vec::<String>::new()
        );
    }
    let unpinned = receiver.requests_for("/unpinned").remove(0);
    assert_eq!(json(&unpinned)["schema_version"], "2");
    // Other types are not concerned.
    shop.emit("order.other", "acme", "{}");
    receiver.wait_for(20, PATIENCE);
    assert!(shop.is("count(*) = 2 from webhook.event_versions"));
}

#[test]
fn a_retry_and_a_replay_after_format_fields_or_version_were_changed_send_the_first_bytes() {
    let mut shop = shop("kept");
    let changes = [
        "format => 'cloudevents-structured'",
        "data_shape => 'fields', fields => '{order}'",
        "data_shape => 'thin'",
        "data_shape => 'delta'",
        "schema_versions => '{\"order.paid\": \"3\"}'",
        "schema_versions => '{}'",
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let receiver = Receiver::http();
        receiver.script("/hook", vec![Answer::status(503), Answer::status(200)]);
        let partner = format!("kept-{n}");
        let pinned = ", schema_versions => '{\"order.paid\": \"1\"}'";
        let endpoint = shop.endpoint_with(&partner, &receiver.url("/hook"), pinned);
        let event = shop.emit("order.paid", &partner, r#"{"id": "o-1", "more": 1.10}"#);
        shop.wait_for_attempts(&event, &endpoint, 1);
        update(&mut shop, &endpoint, change);
        shop.wait_for_state(&event, &endpoint, "delivered");
        // A conversion that is gone, or is another one, changes nothing of what is stored.
        shop.run(
            "begin; select webhook.delete_conversion('order.paid', '2', '1', 'gone');
             select webhook.replay(event_id) from webhook.deliveries where last_status = 200 and attempt_count = 2; commit",
        );
        shop.wait_for_attempts(&event, &endpoint, 3);
        shop.run(
            "select webhook.create_conversion('order.paid', '2', '1', 'conversions.down(jsonb)', 'back')",
        );
        let requests = receiver.wait_for(3, PATIENCE);
        assert_eq!(
            data(&requests[0]),
            r#"{"more": 1.10, "order": "o-1"}"#,
            "{change}"
        );
        for request in &requests {
            assert_eq!(request.body, requests[0].body, "{change}");
            assert_eq!(request.header("content-type"), Some("application/json"));
        }
        // What is emitted from now on has the shape of today.
        let next = shop.emit("order.paid", &partner, r#"{"id": "o-1", "more": 1.10}"#);
        shop.wait_for_state(&next, &endpoint, "delivered");
        let last = receiver.wait_for(4, PATIENCE).remove(3);
        assert_ne!(
            last.text().replace(&next, &event),
            requests[0].text(),
            "{change}"
        );
    }
}

#[test]
fn what_may_have_been_sent_before_a_crash_is_sent_again_in_the_same_version_and_shape() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::hang(), Answer::status(200)]);
    let (endpoint, event) = {
        let mut shop = Outbox::create(&cluster, "shop");
        shop.run(CATALOGUE);
        let more = ", schema_versions => '{\"order.paid\": \"1\"}', data_shape => 'fields', fields => '{order}'";
        let endpoint = shop.endpoint_with("crash", &receiver.url("/hook"), more);
        let event = shop.emit("order.paid", "crash", r#"{"id": "o-1", "more": 1}"#);
        receiver.wait_for(1, PATIENCE);
        update(
            &mut shop,
            &endpoint,
            "schema_versions => '{\"order.paid\": \"3\"}', data_shape => 'thin'",
        );
        (endpoint, event)
    };
    cluster.crash();
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let requests = receiver.wait_for(2, PATIENCE);
    assert_eq!(data(&requests[0]), r#"{"order": "o-1"}"#);
    assert_eq!(requests[0].body, requests[1].body);
}

#[test]
fn an_event_that_cannot_be_converted_waits_with_an_alert_and_goes_to_everybody_else() {
    let mut shop = shop("waits");
    let receiver = Receiver::http();
    let old = shop.endpoint_with(
        "acme",
        &receiver.url("/old"),
        ", schema_versions => '{\"order.paid\": \"1\"}'",
    );
    let new = shop.endpoint_with(
        "acme",
        &receiver.url("/new"),
        ", schema_versions => '{\"order.paid\": \"3\"}'",
    );
    let event = shop.emit("order.paid", "acme", r#"{"id": "bad"}"#);
    let second = shop.emit("order.paid", "acme", r#"{"id": "bad"}"#);
    shop.wait_for_state(&event, &old, "delivered");
    let waits = shop.wait_for_state(&event, &new, "pending");
    assert_eq!(
        waits.reason.as_deref(),
        Some(r#"The conversion from version "2" to "3" failed: It ended with SQLSTATE P0001."#)
    );
    assert_eq!(waits.attempts, 0);
    let held = |event: &str| {
        format!(
            "(select held_by = '{{conversion}}' from webhook.deliveries where event_id = '{event}' and endpoint_id = {})",
            new.id
        )
    };
    shop.wait_until(&held(&event));
    shop.wait_until(&held(&second));
    // One alert for all of them, that tells no payload.
    shop.wait_until("(select count(*) = 1 from webhook.alerts where kind = 'delivery.unconverted' and severity = 'critical')");
    assert!(shop.is("not exists (select from webhook.alerts a where a::text ~ 'stays inside')"));
    // Asked for as it is, it waits again; in a version that there is, it is sent.
    let retry = |delivery: &str| format!("select webhook.retry('{delivery}', 'try')");
    shop.run(&retry(&waits.id));
    shop.wait_until("(select bool_and(state = 'done') from webhook.requests)");
    shop.wait_until(&held(&event));
    assert_eq!(receiver.requests_for("/new").len(), 0);
    update(
        &mut shop,
        &new,
        "schema_versions => '{\"order.paid\": \"2\"}'",
    );
    shop.run(&retry(&waits.id));
    let delivered = shop.wait_for_state(&event, &new, "delivered");
    assert_eq!(delivered.reason, None);
    assert_eq!(data(&receiver.requests_for("/new")[0]), r#"{"id": "bad"}"#);
    // The other one is given up.
    let second = shop.wait_for_state(&second, &new, "pending");
    shop.run(&format!(
        "select webhook.skip('{}', 'of no use')",
        second.id
    ));
    shop.wait_until("(select count(*) = 1 from webhook.deliveries where state = 'skipped')");
    assert_eq!(receiver.requests_for("/new").len(), 1);
}

#[test]
fn a_version_that_is_not_stored_is_waited_for_in_a_new_pair_too() {
    let mut shop = shop("missing");
    let receiver = Receiver::http();
    let old = shop.endpoint_with(
        "acme",
        &receiver.url("/old"),
        ", schema_versions => '{\"order.paid\": \"1\"}'",
    );
    // Nothing leads from the third version anywhere.
    let event = shop.emit_with(
        "order.paid",
        "acme",
        r#"{"ids": []}"#,
        ", schema_version => '3'",
    );
    let waits = shop.wait_for_state(&event, &old, "pending");
    let reason = r#"The event is not stored in schema version "1", which the endpoint wants."#;
    assert_eq!(waits.reason.as_deref(), Some(reason));
    // An event from before the conversion, replayed to an endpoint that is new.
    let plain = shop.emit("order.paid", "acme", r#"{"id": "o-1"}"#);
    shop.wait_for_state(&plain, &old, "delivered");
    let new = shop.endpoint_with(
        "acme",
        &receiver.url("/new"),
        ", schema_versions => '{\"order.paid\": \"3\"}'",
    );
    for (event, sent) in [(&event, true), (&plain, true)] {
        shop.run(&format!("select webhook.replay('{event}', {})", new.id));
        shop.wait_for_state(event, &new, "delivered");
        assert!(sent);
    }
    let bodies: Vec<String> = receiver.requests_for("/new").iter().map(data).collect();
    assert_eq!(bodies, [r#"{"ids": []}"#, r#"{"ids": ["o-1"]}"#]);
    let third = shop.endpoint_with(
        "acme",
        &receiver.url("/third"),
        ", schema_versions => '{\"order.paid\": \"2\"}'",
    );
    shop.run(&format!("select webhook.replay('{event}', {})", third.id));
    shop.wait_until(&format!(
        "(select held_by = '{{conversion}}' and reason ~ 'not stored in schema version \"2\"' from webhook.deliveries where event_id = '{event}' and endpoint_id = {})",
        third.id
    ));
    assert_eq!(receiver.requests_for("/third").len(), 0);
}

#[test]
fn a_stored_version_that_was_tampered_with_is_never_sent() {
    let mut shop = shop("tampered");
    let receiver = Receiver::http();
    let pinned = ", schema_versions => '{\"order.paid\": \"1\"}'";
    let endpoint = shop.endpoint_with("acme", &receiver.url("/in"), pinned);
    shop.have_done(&format!("pause('endpoint', '{}', 'wait')", endpoint.id));
    let changes = [
        "set body = '{\"order\": \"mine\"}'",
        "set body = '{\"order\": \"mine\"}', body_sha256 = sha256('{\"order\": \"mine\"}')",
        "set failure = 'it is broken', body = null",
        "set body = '{}', failure = null, body_sha256 = sha256('{}'), seal = (select seal from webhook._event e where e.event_id = v.event_id)",
        "set version = '3'",
        "set event_id = 'evt_01J00000000000000000000000'",
    ];
    let mut events = Vec::new();
    for change in changes {
        let event = shop.emit("order.paid", "acme", r#"{"id": "o-1"}"#);
        shop.wait_for_state(&event, &endpoint, "pending");
        shop.run(&format!(
            "delete from webhook._event_version where version = '3' and event_id = '{event}'"
        ));
        shop.run(&format!(
            "update webhook._event_version v {change} where event_id = '{event}'"
        ));
        events.push(event);
    }
    let sound = shop.emit("order.paid", "acme", r#"{"id": "o-2"}"#);
    shop.run(&format!(
        "select webhook.resume('endpoint', '{}')",
        endpoint.id
    ));
    shop.wait_for_state(&sound, &endpoint, "delivered");
    for event in events {
        shop.wait_until(&format!(
            "(select held_by = '{{conversion}}' and reason ~ '(does not match its seal|is not stored)' from webhook.deliveries where event_id = '{event}')"
        ));
    }
    assert_eq!(receiver.count(), 1);
}

#[test]
fn each_shape_of_the_data_is_sent_in_each_format_and_says_which_it_is() {
    let mut shop = shop("shapes");
    let receiver = Receiver::http();
    let payload = r#"{"id": "o-1", "base_version": 6, "before": {"total": 1.10, "gone": 1}, "after": {"total": 12345678901234567890.10}, "lines": [{"sku": "a", "price": 1e2}]}"#;
    let shapes = [
        ("full", "", Some(payload.to_owned()), None),
        ("thin", "", None, Some("thin")),
        (
            "fields",
            ", fields => '{id,lines.price}'",
            Some(r#"{"id": "o-1","lines": [{"price": 1e2}]}"#.to_owned()),
            Some("fields"),
        ),
        (
            "delta",
            "",
            Some(r#"{"id": "o-1","base_version": 6,"changed":{"total": 12345678901234567890.10},"removed":["gone"],"lines": [{"sku": "a", "price": 1e2}]}"#.to_owned()),
            Some("delta"),
        ),
    ];
    let mut secrets = Vec::new();
    for (shape, more, ..) in &shapes {
        for format in ["native", "cloudevents-structured", "cloudevents-binary"] {
            let url = receiver.url(&format!("/{shape}/{format}"));
            let more = format!(", format => '{format}', data_shape => '{shape}'{more}");
            secrets.push((
                format!("/{shape}/{format}"),
                shop.endpoint_with("acme", &url, &more).secret,
            ));
        }
    }
    shop.run(&format!(
        "select webhook.emit_json('order.paid', 'acme', '{payload}')"
    ));
    receiver.wait_for(12, PATIENCE);
    for (shape, _, wanted, name) in &shapes {
        let native = receiver.requests_for(&format!("/{shape}/native")).remove(0);
        let structured = receiver
            .requests_for(&format!("/{shape}/cloudevents-structured"))
            .remove(0);
        let binary = receiver
            .requests_for(&format!("/{shape}/cloudevents-binary"))
            .remove(0);
        for (request, member) in [(&native, "data_shape"), (&structured, "datashape")] {
            assert_eq!(json(request)[member].as_str(), *name, "{shape}");
            match wanted {
                Some(wanted) => assert_eq!(&data(request), wanted),
                None => assert!(json(request).get("data").is_none()),
            }
        }
        assert_eq!(binary.header("ce-datashape"), *name);
        assert_eq!(binary.text(), wanted.clone().unwrap_or_default());
    }
    for (path, secret) in secrets {
        let mut objections = verifier::objections(&secret, &receiver.requests_for(&path));
        if path == "/thin/cloudevents-binary" {
            // The signature holds; one of the libraries wants a body all the same.
            objections.retain(|objection| !objection.contains("verified, but not JSON"));
        }
        assert_eq!(objections, Vec::<String>::new(), "{path}");
    }
    // Without a base a delta is all of it, and says so.
    shop.emit("order.paid", "acme", r#"{"id": "o-2"}"#);
    receiver.wait_for(24, PATIENCE);
    let second = receiver.requests_for("/delta/native").remove(1);
    assert_eq!(json(&second)["data_shape"], "full");
    assert_eq!(data(&second), r#"{"id": "o-2"}"#);
}

#[test]
fn conversions_endpoints_and_events_of_one_transaction_are_seen_together_or_not_at_all() {
    let mut admin = shop("together");
    let mut other = admin.another();
    let receiver = Receiver::http();
    let pinned = ", schema_versions => '{\"order.paid\": \"1\"}'";
    let emit = "select webhook.emit('order.paid', 'acme', '{\"id\": \"o-1\"}')";
    // The other session has looked before, and goes by what it knows.
    other.run(emit);
    let change = |admin: &mut Outbox| {
        admin.run(
            "begin;
             set local role converter;
             create or replace function conversions.other(jsonb) returns jsonb language sql immutable as $$select '{\"order\": \"other\"}'::jsonb$$;
             reset role;
             select webhook.delete_conversion('order.paid', '2', '1', 'another one');
             select webhook.create_conversion('order.paid', '2', '1', 'conversions.other(jsonb)', 'another one')",
        );
        admin.endpoint_with("acme", &receiver.url("/in"), pinned);
        admin.text(emit)
    };
    let stored = |shop: &mut Outbox, event: &str| {
        shop.text(&format!(
            "select body from webhook._event_version where version = '1' and event_id = '{event}'"
        ))
    };
    let inside = change(&mut admin);
    assert_eq!(stored(&mut admin, &inside), r#"{"order": "other"}"#);
    let meanwhile = other.text(emit);
    assert_eq!(stored(&mut other, &meanwhile), r#"{"order": "o-1"}"#);
    admin.run("rollback");
    let after = admin.text(emit);
    assert_eq!(stored(&mut admin, &after), r#"{"order": "o-1"}"#);
    assert_eq!(receiver.count(), 0);

    change(&mut admin);
    admin.run("commit");
    let request = receiver.wait_for(1, PATIENCE).remove(0);
    assert_eq!(data(&request), r#"{"order": "other"}"#);
    let last = other.text(emit);
    assert_eq!(stored(&mut other, &last), r#"{"order": "other"}"#);
    assert_eq!(
        data(&receiver.wait_for(2, PATIENCE)[1]),
        r#"{"order": "other"}"#
    );
    // A pin, and an event after it in one transaction.
    let endpoint = Endpoint {
        id: admin.number("select endpoint_id from webhook.endpoints"),
        secret: String::new(),
    };
    admin.run("begin");
    update(
        &mut admin,
        &endpoint,
        "schema_versions => '{\"order.paid\": \"3\"}'",
    );
    admin.run(emit);
    admin.run("commit");
    assert_eq!(
        data(&receiver.wait_for(3, PATIENCE)[2]),
        r#"{"ids": ["o-1"]}"#
    );
}

#[test]
fn a_conversion_has_the_rights_of_its_owner_and_leaves_nothing_behind() {
    let mut shop = shop("escalation");
    shop.run(
        "create role victim superuser; create role converted_emitter login;
         select webhook.grant_access('converted_emitter', 'emit');
         grant create, usage on schema public to converted_emitter, converter;
         create table public.kept (note text); grant all on public.kept to converter;
         create sequence public.counted; grant all on sequence public.counted to converter;
         select webhook.grant_access('converter', 'emit');
         create table public.emitters_own (secret text); insert into public.emitters_own values ('x');
         grant all on public.emitters_own to converted_emitter;
         -- Deferred work that would run with the rights of whoever commits.
         create function public.escalate() returns trigger language plpgsql as $$begin execute 'grant victim to converter'; return null; end$$;
         create constraint trigger late after insert on public.kept deferrable initially deferred for each row execute function public.escalate()",
    );
    // Volatile bodies, called by an immutable function: what PostgreSQL does not look into.
    let attempts = [
        ("set role victim", "42501"),
        ("set role none", "42501"),
        ("set session authorization victim", "42501"),
        ("reset session authorization", "42501"),
        ("select set_config('role', 'victim', false)", "42501"),
        (
            "select set_config('session_authorization', 'victim', false)",
            "42501",
        ),
        ("select * from webhook._secret", "42501"),
        ("select * from webhook._event", "42501"),
        (
            "select webhook.create_endpoint('acme', 'https://example.com/')",
            "42501",
        ),
        ("select * from public.emitters_own", "42501"),
        ("create temp table left_over (x int)", "25006"),
        ("create table public.left_over (x int)", "25006"),
        ("insert into public.kept values ('here')", "25006"),
        ("select nextval('public.counted')", "25006"),
        (
            "select webhook.emit('order.paid', 'acme', '{\"id\": 1}')",
            "25006",
        ),
        ("set transaction read write", "25001"),
        (
            "select set_config('transaction_read_only', 'off', false)",
            "25001",
        ),
        ("alter role converter superuser", "25006"),
        ("select helper(1)", "42883"),
        ("declare c cursor with hold for select 1", "42501"),
        ("listen webhook_alerts", "42501"),
        ("select pg_read_file('/etc/passwd')", "42501"),
        ("lock table webhook._endpoint", "42501"),
        ("select 1/0", "22012"),
    ];
    shop.run("select webhook.delete_conversion('order.paid', '2', '1', 'other ones'); select webhook.delete_conversion('order.paid', '2', '3', 'other ones')");
    shop.run(
        "set role converter;
         create table conversions.attempt (id int, statement text);
         create function conversions.act(statement text) returns void language plpgsql as $$begin execute statement; end$$;
         create function conversions.try(jsonb) returns jsonb language plpgsql immutable as $$
         begin
           if $1 ->> 'id' <> 'o-1' then
             perform conversions.act((select a.statement from conversions.attempt a where a.id = ($1 ->> 'id')::int));
             perform set_config('webhook_test.left', 'here', false), set_config('search_path', 'public', false);
           end if;
           return jsonb_build_object('order', current_user, 'session', session_user, 'path', current_setting('search_path'));
         end $$;
         reset role;
         select webhook.create_conversion('order.paid', '2', '1', 'conversions.try(jsonb)', 'to see')",
    );
    for (n, (statement, _)) in attempts.iter().enumerate() {
        let statement = statement.replace('\'', "''");
        shop.run(&format!(
            "insert into conversions.attempt values ({n}, '{statement}')"
        ));
    }
    shop.run("insert into conversions.attempt values (1000, 'select 1')");
    let mut emitter = shop.another();
    // A function of the emitter's in a place where the conversion might look.
    emitter.run(
        "set session authorization converted_emitter;
         create function public.helper(integer) returns text language sql as $$select 'planted'$$;
         set search_path = public, pg_temp",
    );
    for (n, (statement, code)) in attempts.iter().enumerate() {
        let event = emitter.text(&format!(
            "select webhook.emit('order.paid', 'acme', '{{\"id\": \"{n}\"}}')"
        ));
        assert_eq!(
            shop.text(&format!("select coalesce(failure, body) from webhook._event_version where event_id = '{event}'")),
            format!("The conversion from version \"2\" to \"1\" failed: It ended with SQLSTATE {code}."),
            "{statement}"
        );
        assert!(
            emitter.is("current_user = 'converted_emitter' and session_user = 'converted_emitter' and current_setting('search_path') = 'public, pg_temp' and current_setting('transaction_read_only') = 'off'"),
            "{statement}"
        );
    }
    let event = emitter.text("select webhook.emit('order.paid', 'acme', '{\"id\": \"1000\"}')");
    assert_eq!(
        shop.text(&format!(
            "select body from webhook._event_version where event_id = '{event}'"
        )),
        r#"{"path": "public", "order": "converter", "session": "converted_emitter"}"#
    );
    // The same within a block that catches what goes wrong, and in a transaction that goes on.
    emitter.run(
        "begin;
         do $$ begin perform webhook.emit('order.paid', 'acme', '{\"id\": \"0\"}'); raise exception 'caught'; exception when raise_exception then null; end $$;
         select webhook.emit('order.paid', 'acme', '{\"id\": \"0\"}')",
    );
    assert!(emitter.is("current_user = 'converted_emitter' and current_setting('webhook_test.left', true) is distinct from 'here'"));
    emitter.run("commit");
    assert!(shop.is(
        "(select count(*) from public.kept) = 0 and (select not is_called from public.counted)"
    ));
    assert!(shop.is("not exists (select from pg_roles where rolname = 'converter' and rolsuper)"));
    // A cancel or a time-out of the emitter is the emitter's: the event is not recorded.
    let events = shop.number("select count(*) from webhook.events");
    shop.run("insert into conversions.attempt values (2000, 'do $do$ begin loop perform 1; end loop; end $do$')");
    emitter.run("set statement_timeout = '300ms'");
    let (code, _) =
        emitter.refusal("select webhook.emit('order.paid', 'acme', '{\"id\": \"2000\"}')");
    assert_eq!(code, "57014");
    assert_eq!(shop.number("select count(*) from webhook.events"), events);
    assert!(emitter.is("current_user = 'converted_emitter'"));
    emitter.run("select webhook.emit('order.paid', 'acme', '{\"id\": \"1000\"}')");
}

fn update(shop: &mut Outbox, endpoint: &Endpoint, changes: &str) {
    shop.run(&format!(
        "select webhook.update_endpoint({}, {changes})",
        endpoint.id
    ));
}
