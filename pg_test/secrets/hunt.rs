//! The hunt: each secret is searched, in every form, wherever a server keeps or says something.

use std::{fs, path::Path};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use webhook_outbox_test::{
    cluster::{Cluster, Shutdown},
    master_key::{MasterKeyFile, line},
    outbox::{Outbox, quoted},
    receiver::Receiver,
};

/// With everything logged that can be, every verb that touches a secret is called by either protocol, and failed,
/// and rolled back; then each secret is searched in every form.
#[test]
fn no_secret_is_found_anywhere_but_in_the_answer_to_its_caller() {
    for encrypted in [true, false] {
        hunt(encrypted);
    }
}

/// A server that logs and counts whatever it can, and its master key.
pub fn loud(encrypted: bool, settings: &[(&str, &str)]) -> (Cluster, Option<MasterKeyFile>) {
    let mut plan = Cluster::plan()
        .setting(
            "shared_preload_libraries",
            "webhook_outbox,pg_stat_statements,auto_explain",
        )
        .setting("pg_stat_statements.track", "all")
        .setting("auto_explain.log_min_duration", "0")
        .setting("auto_explain.log_nested_statements", "on")
        .setting("auto_explain.log_verbose", "on")
        .setting("track_activity_query_size", "16384");
    for (name, value) in settings {
        plan = plan.setting(name, value);
    }
    let mut cluster = plan.start();
    let file = encrypted.then(|| MasterKeyFile::set(&mut cluster, 1));
    cluster.create_database("shop");
    Outbox::join(&cluster, "shop")
        .run("create extension webhook_outbox; create extension pg_stat_statements");
    cluster.reload(&[
        ("log_min_messages", "debug5"),
        ("log_min_error_statement", "debug5"),
        ("log_error_verbosity", "verbose"),
        ("log_statement", "all"),
        ("log_duration", "on"),
        ("log_parameter_max_length", "-1"),
        ("log_parameter_max_length_on_error", "-1"),
        ("debug_print_parse", "on"),
        ("debug_print_rewritten", "on"),
        ("debug_print_plan", "on"),
    ]);
    (cluster, file)
}

fn hunt(encrypted: bool) {
    let (mut cluster, file) = loud(encrypted, &[("webhook.poll_interval", "60s")]);
    let receiver = Receiver::http();
    let mut shop = Outbox::join(&cluster, "shop");
    let mut secrets = Vec::new();
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    secrets.push(endpoint.secret.clone());
    let control = STANDARD.encode([7; 32]);
    shop.run(&format!("select {} as control", quoted(&control)));
    for overlap in ["", ", '0'", ", '1 hour'"] {
        secrets.push(shop.text(&format!(
            "select secret from webhook.rotate_secret({}{overlap})",
            endpoint.id
        )));
    }
    for _ in 0..6 {
        // Often enough for a generic plan.
        let row = shop
            .sql
            .query_one(
                "select * from webhook.rotate_secret($1, '0')",
                &[&endpoint.id],
            )
            .expect("rotate");
        secrets.push(row.get("secret"));
        let row = shop
            .sql
            .query_one(
                "select * from webhook.revoke_secret($1, $2)",
                &[&endpoint.id, &"leaked"],
            )
            .expect("revoke");
        secrets.push(row.get("secret"));
    }
    let row = shop
        .sql
        .query_one(
            "select * from webhook.create_endpoint($1, $2, verify => 'none')",
            &[&"b", &receiver.url("/b")],
        )
        .expect("create");
    secrets.push(row.get("secret"));
    shop.run("begin");
    secrets.push(shop.text(&format!(
        "select secret from webhook.rotate_secret({})",
        endpoint.id
    )));
    shop.run("rollback");
    shop.run(&format!("select webhook.confirm_rotation(endpoint_id) from webhook.rotate_secret({0}) r cross join (values ({0}::bigint)) v (endpoint_id)", endpoint.id));
    // A statement that fails after the secret was made.
    shop.refusal(&format!(
        "select 1 / (length(secret) - length(secret)) from webhook.rotate_secret({})",
        endpoint.id
    ));
    shop.run("select webhook.rotate_seal_key()");
    shop.refusal("select webhook.rotate_secret(1)");
    if encrypted {
        shop.run("select webhook.reencrypt_secrets()");
    } else {
        shop.refusal("select webhook.reencrypt_secrets()");
    }
    let event = shop.emit("a.b", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    // The value of a challenge proves control as long as it is good, and is kept nowhere.
    shop.endpoint_with("p", &receiver.url("/prove"), ", verify => 'challenge'");
    shop.wait_until(
        "exists (select from webhook.verifications where method = 'challenge' and status = 200)",
    );
    let challenge = receiver.requests_for("/prove")[0]
        .header("webhook-challenge")
        .expect("the value")
        .to_owned();
    assert!(challenge.len() >= 32);
    shop.run("analyze; checkpoint");

    if encrypted {
        secrets.push(format!("whsec_{}", line(1)));
    } else {
        // Without a master key the seal keys can be known, too, and the private half of a pair.
        shop.run(&format!(
            "select webhook.create_endpoint('c', '{}', signature => 'v1a', verify => 'none')",
            receiver.url("/c")
        ));
        secrets.extend(shop.column(
            "select 'whsec_' || encode(substring(secret from 2), 'base64') from webhook._secret where kind = 'ed25519'",
        ));
        secrets.extend(shop.column(
            "select 'whsec_' || encode(substring(key from 2), 'base64') from webhook._seal_key",
        ));
    }
    assert!(secrets.len() >= 18);

    let log = cluster.log();
    assert!(log.len() > 1_000_000, "everything is logged");
    assert!(
        log.contains("_add_secret") && log.contains("parameters: $1"),
        "statements and parameters are"
    );
    assert!(
        !found_in(&format!("whsec_{control}"), log.as_bytes()).is_empty(),
        "the search finds what is there"
    );
    let mut places = kept(&mut shop, encrypted);
    places.push(("the log".to_owned(), log.into_bytes()));
    let statements = shop.column("select query from pg_stat_statements");
    assert!(statements.iter().any(|text| text.contains("rotate_secret")));
    if encrypted {
        drop(shop);
        cluster.stop(Shutdown::Fast);
        files(&cluster.data_folder(), &mut places);
        assert!(places.len() > 1000, "the data folder and its WAL");
    }
    for secret in &secrets {
        for (place, bytes) in &places {
            assert_eq!(found_in(secret, bytes), Vec::<String>::new(), "in {place}");
        }
    }
    for (place, bytes) in &places {
        assert!(
            memchr::memmem::find(bytes, challenge.as_bytes()).is_none(),
            "a challenge in {place}"
        );
    }
    drop(file);
}

/// What every relation holds that a superuser can read, statistics and statements included.
pub fn kept(shop: &mut Outbox, encrypted: bool) -> Vec<(String, Vec<u8>)> {
    let clear = "webhook._secret,webhook._seal_key";
    let relations = shop.column(
        "select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
          where n.nspname in ('webhook', 'pg_catalog', 'public') and c.relkind in ('r', 'v', 'm', 'p')
            -- Needs a machine that has it.
            and c.relname <> 'pg_shmem_allocations_numa'",
    );
    assert!(relations.len() > 150);
    assert!(relations.contains(&"public.pg_stat_statements".to_owned()));
    relations
        .into_iter()
        // In clear the keys lie in their tables, and in what was gathered about these.
        .filter(|relation| {
            encrypted
                || !(clear.contains(&**relation) || relation.starts_with("pg_catalog.pg_stat"))
        })
        .map(|relation| {
            let rows = shop.column(&format!("select t::text from {relation} t"));
            (relation, rows.join("\n").into_bytes())
        })
        .collect()
}

pub fn files(folder: &Path, places: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&path, places),
            Ok(kind) if kind.is_file() => {
                places.push((path.display().to_string(), fs::read(&path).expect("a file")))
            }
            _ => {}
        }
    }
}

/// The forms of a secret that a text holds: a middle part of it raw, in hexadecimal, in base64, or as a list of
/// numbers, which is how plans show bytes.
pub fn found_in(secret: &str, text: &[u8]) -> Vec<String> {
    let raw = STANDARD
        .decode(secret.trim_start_matches("whsec_").trim())
        .expect("a secret");
    let part = &raw[9..24];
    let numbers = |signed: bool| {
        let each = part.iter().map(|byte| {
            if signed {
                byte.cast_signed().to_string()
            } else {
                byte.to_string()
            }
        });
        each.collect::<Vec<_>>().join(" ")
    };
    let forms = [
        ("raw", part.to_vec()),
        ("hexadecimal", hex(part).into_bytes()),
        ("HEXADECIMAL", hex(part).to_uppercase().into_bytes()),
        ("base64", STANDARD_NO_PAD.encode(part).into_bytes()),
        ("numbers", numbers(false).into_bytes()),
        ("signed numbers", numbers(true).into_bytes()),
    ];
    forms
        .iter()
        .filter(|(_, form)| memchr::memmem::find(text, form).is_some())
        .map(|(name, _)| (*name).to_owned())
        .collect()
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
