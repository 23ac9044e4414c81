//! Updates of the extension: one that came from an older version is in nothing different from a new one, has lost no
//! row, and goes on; and as long as library and objects are of different versions nothing is sent and nothing lost.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use serde_json::{Map, Value};
use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::Receiver,
    wait::wait_for,
};

const CATALOGUE: &str = include_str!("upgrade/catalogue.sql");

/// Rows that are there before each update: what is not there cannot be lost.
const KINDS: [&str; 11] = [
    "event", "delivery", "attempt", "excerpt", "endpoint", "secret", "policy", "schema", "inbox",
    "audit", "key",
];

/// Several polls of the leader: sleeping proves a non-event.
const POLLS: Duration = Duration::from_millis(2_500);

/// Versions whose install script is kept in `upgrade`.
fn versions() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("upgrade");
    let mut versions: Vec<String> = fs::read_dir(folder)
        .expect("the older versions")
        .filter_map(|entry| {
            let name = entry.expect("a file").file_name();
            let name = name.to_str()?.strip_prefix("webhook_outbox--")?;
            Some(name.strip_suffix(".sql")?.to_owned())
        })
        .collect();
    versions.sort();
    versions
}

#[test]
fn every_older_version_becomes_the_present_one_and_goes_on() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut fresh = Outbox::create(&cluster, "fresh");
    let expected = catalogue(&mut fresh);
    assert!(
        expected.len() > 500,
        "the catalogue has {} objects",
        expected.len()
    );

    let versions = versions();
    assert!(!versions.is_empty());
    for version in versions {
        install_script(&cluster, &version);
        let database = format!("from_{}", version.replace('.', "_"));
        cluster.create_database(&database);
        let mut shop = Outbox::join(&cluster, &database);
        shop.run(&format!(
            "create extension webhook_outbox version '{version}'"
        ));
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        let open = shop.emit("order.paid", "a", "{}");
        // What was long ago, in partitions of its own.
        shop.old_day(2);
        for state in ["delivered", "dead"] {
            let old = shop.old_event(&open, 2);
            shop.old_delivery(&old, &endpoint, state);
        }
        shop.run(
            "select webhook.create_policy('patient', retry_schedule => '1h,2h', max_in_flight => 3);
             select webhook.create_event_type('order.paid', description => 'paid');
             select webhook.add_schema('order.paid', '1', '{\"type\": \"object\"}', '{\"total\": 1}');
             select webhook.create_inbox_source('bank', 'v1', partner_id => 'a');
             insert into webhook._inbox (inbox_id, source_id, event_id, partner_id, type, subject_version, bytes, body_hash, body)
             select 1, source_id, 'evt_bank', 'a', 'money.came', 7, 2, '\\x01', '{}' from webhook._inbox_source",
        );
        shop.run(
            "create role reader; create role agent;
             select webhook.grant_access('reader', 'read');
             grant select on webhook.events to agent;
             revoke select on webhook.stat_worker from pg_monitor",
        );
        shop.wait_for_worker("idle: other version");
        let before = rows(&mut shop);
        for kind in KINDS {
            assert!(
                before
                    .keys()
                    .any(|row| row.starts_with(&format!("{kind} "))),
                "{version}: no {kind} to lose"
            );
        }

        shop.run("alter extension webhook_outbox update");
        shop.wait_for_worker("running");
        let after = rows(&mut shop);
        for (row, values) in &before {
            let Some(kept) = after.get(row) else {
                panic!("{version}: {row} is gone")
            };
            for (column, value) in values {
                assert_eq!(
                    kept.get(column),
                    Some(value),
                    "{version}: {column} of {row} has changed"
                );
            }
        }
        shop.wait_for_state(&open, &endpoint, "delivered");
        let next = shop.emit("order.paid", "a", "{}");
        shop.wait_for_state(&next, &endpoint, "delivered");
        assert!(shop.is("count(*) = 1 from webhook.dead_letters"));
        // What operators gave and took stays; who has a kind of right gets all that belongs to it now, as the manual says.
        shop.run(
            "select webhook.grant_access(role, kind, partner_id, event_types, valid_until)
               from webhook.access_rights where valid_until is null or valid_until > now()",
        );
        assert!(shop.is("has_table_privilege('agent', 'webhook.events', 'select')"));
        assert!(shop.is("not has_table_privilege('pg_monitor', 'webhook.stat_worker', 'select')"));
        shop.run("set search_path = pg_catalog, webhook");
        let missing = shop.column(
            "select p from webhook._access_privileges('{read}') p
              where not case when p like 'select on %' then has_table_privilege('reader', substr(p, 11), 'select')
                             else has_function_privilege('reader', substr(p, 21), 'execute') end",
        );
        assert_eq!(missing, [""; 0], "{version}");

        shop.run(
            "reset search_path;
             select webhook.revoke_access('reader', 'read');
             drop owned by agent;
             grant select on webhook.stat_worker to pg_monitor",
        );
        let found = catalogue(&mut shop);
        let mut differences = Vec::new();
        for name in expected.keys().chain(found.keys()) {
            let (old, new) = (found.get(name), expected.get(name));
            if old != new {
                differences.push(format!("{name}\n  updated: {old:?}\n  new:     {new:?}"));
            }
        }
        differences.dedup();
        assert!(
            differences.is_empty(),
            "{} differences of {version} updated and new:\n{}",
            differences.len(),
            differences.join("\n")
        );
        shop.run("drop role reader; drop role agent");
    }
}

#[test]
fn while_library_and_extension_have_different_versions_nothing_is_sent_and_nothing_lost() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let first = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&first, &endpoint, "delivered");
    let own = shop.text("select extversion from pg_extension where extname = 'webhook_outbox'");

    // Objects of a version that this library does not know, and back: a restart with the right library is the same.
    let other = "99.0.0";
    for (from, to) in [(&*own, other), (other, &*own)] {
        fs::write(
            cluster
                .scripts()
                .join(format!("webhook_outbox--{from}--{to}.sql")),
            "select webhook._wake();\n",
        )
        .expect("a script");
    }
    shop.run(&format!(
        "alter extension webhook_outbox update to '{other}'"
    ));
    shop.wait_for_worker("idle: other version");
    assert!(shop.is("hint ~ 'ALTER EXTENSION' from webhook.stat_worker"));
    assert!(shop.is("advice ~ 'ALTER EXTENSION' from webhook.status()"));
    let waiting = shop.emit("order.paid", "a", "{}");
    std::thread::sleep(POLLS);
    assert_eq!(receiver.count(), 1);
    assert!(shop.is(&format!(
        "published_at is null from webhook.events where event_id = '{waiting}'"
    )));
    wait_for("the log says so", PATIENCE, || {
        cluster.log().contains(&format!(
            "the library has version {own}, the extension {other}"
        ))
    });

    shop.run(&format!("alter extension webhook_outbox update to '{own}'"));
    shop.wait_for_worker("running");
    shop.wait_for_state(&waiting, &endpoint, "delivered");
    assert_eq!(receiver.count(), 2);
    for (from, to) in [(&*own, other), (other, &*own)] {
        let _ = fs::remove_file(
            cluster
                .scripts()
                .join(format!("webhook_outbox--{from}--{to}.sql")),
        );
    }
}

/// Gives the private server the install script of an older version. Nothing else is ever named like it.
fn install_script(cluster: &Cluster, version: &str) {
    let name = format!("webhook_outbox--{version}.sql");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("upgrade")
        .join(&name);
    fs::copy(kept, cluster.scripts().join(&name)).expect("the older script");
}

/// What the catalogue says, by object.
fn catalogue(outbox: &mut Outbox) -> BTreeMap<String, String> {
    let mut objects = BTreeMap::new();
    for row in outbox.rows(CATALOGUE) {
        let [object, definition] = &row[..] else {
            panic!("{row:?}")
        };
        let object = object.clone().expect("an object");
        let before = objects.insert(object.clone(), definition.clone().unwrap_or_default());
        assert_eq!(before, None, "{object} is there twice");
    }
    objects
}

/// Evidence and configuration, row by row: what it is, and the values of its columns.
fn rows(outbox: &mut Outbox) -> BTreeMap<String, Map<String, Value>> {
    let rows = outbox.rows(
        "select format('event %s', event_id), to_jsonb(t) from webhook._event as t
          union all select format('feed %s', pos), to_jsonb(t) from webhook._feed as t
          union all select format('delivery %s %s', event_id, endpoint_id), to_jsonb(t) from webhook._delivery as t
          union all select format('attempt %s %s %s', event_id, endpoint_id, attempt_no), to_jsonb(t) from webhook._attempt as t
          union all select format('excerpt %s %s %s', event_id, endpoint_id, attempt_no), to_jsonb(t) from webhook._excerpt as t
          union all select format('endpoint %s', endpoint_id), to_jsonb(t) from webhook._endpoint as t
          union all select format('secret %s', key_id), to_jsonb(t) from webhook._secret as t
          union all select format('policy %s', name), to_jsonb(t) from webhook._policy as t
          union all select format('type %s', name), to_jsonb(t) from webhook._event_type as t
          union all select format('schema %s %s', event_type, version), to_jsonb(t) from webhook._event_schema as t
          union all select format('source %s', name), to_jsonb(t) from webhook._inbox_source as t
          union all select format('inbox %s', inbox_id), to_jsonb(t) from webhook._inbox as t
          union all select format('audit %s', audit_id), to_jsonb(t) from webhook._audit as t
          union all select format('key %s', key_id), to_jsonb(t) from webhook._seal_key as t",
    );
    rows.into_iter()
        .map(|row| {
            let values = row[1].as_deref().expect("a row");
            (
                row[0].clone().expect("a key"),
                serde_json::from_str(values).expect("an object"),
            )
        })
        .collect()
}
