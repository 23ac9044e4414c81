//! Keys at rest: encrypted under a master key outside the database, encrypted anew under another one, and in no place
//! where they should not be. And what happens while the file of the master key cannot be used.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use postgres::NoTls;
use webhook_outbox_test::{
    cluster::{Cluster, Shutdown},
    master_key::{MasterKeyFile, line},
    outbox::{Endpoint, Outbox, PATIENCE, quoted},
    receiver::Receiver,
    verifier,
    wait::wait_for,
};

use hunt::{found_in, hex};

#[path = "secrets/hunt.rs"]
mod hunt;
#[path = "secrets/verbs.rs"]
mod verbs;

#[test]
fn without_a_master_key_every_session_is_warned_once() {
    let mut cluster = Cluster::start_usual();
    let warned = |database: &str, statements: &str| {
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let mut config = cluster.connection(database);
        config
            .notice_callback(move |notice| heard.lock().unwrap().push(notice.message().to_owned()));
        let mut client = config.connect(NoTls).expect("a session");
        client.batch_execute(statements).expect("statements");
        drop(client);
        let mut said = said.lock().unwrap().clone();
        said.retain(|message| message.contains("unencrypted"));
        said.len()
    };
    let make = "select webhook.create_endpoint('a', 'http://127.0.0.1/in', verify => 'none');";
    let rotate = "select webhook.rotate_secret(endpoint_id) from webhook.endpoints;";
    assert_eq!(warned("postgres", "create database shop"), 0);
    assert_eq!(warned("shop", "create extension webhook_outbox"), 1);
    assert_eq!(warned("shop", &format!("{make} {make} {rotate}")), 1);
    assert_eq!(warned("shop", rotate), 1);
    // An emit makes no key.
    assert_eq!(warned("shop", "select webhook.emit('a.b', 'a', '{}')"), 0);
    let advised = "advice ~ 'unencrypted' from webhook.status()";
    assert!(Outbox::join(&cluster, "shop").is(advised));
    let (code, text) = Outbox::join(&cluster, "shop").refusal("select webhook.reencrypt_secrets()");
    assert_eq!(
        (&*code, text.contains("there is no master key")),
        ("55000", true)
    );

    let _file = MasterKeyFile::set(&mut cluster, 1);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.run("select webhook.reencrypt_secrets()");
    assert!(!shop.is(advised));
    shop.run(rotate);
    assert!(shop.is("bool_and(encrypted) from webhook.signing_keys"));
}

#[test]
fn keys_are_encrypted_later_and_anew_and_sign_as_before() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let endpoint = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        shop.run(&format!("select webhook.rotate_secret({})", endpoint.id));
        endpoint
    };
    let raw = secret_bytes(&endpoint);
    assert!(
        stored(&mut Outbox::join(&cluster, "shop")).contains(&hex(&raw)),
        "it lies in clear"
    );

    let file = MasterKeyFile::set(&mut cluster, 1);
    assert_eq!(reencrypt(&cluster), "(2,1,0)");
    assert_eq!(reencrypt(&cluster), "(0,0,0)");
    assert!(!stored(&mut Outbox::join(&cluster, "shop")).contains(&hex(&raw)));
    deliver(&cluster, &receiver, &endpoint);

    // Another master key: first beside the old one, then alone. No reload is needed for the file itself.
    file.write(&[2, 1]);
    deliver(&cluster, &receiver, &endpoint);
    assert_eq!(reencrypt(&cluster), "(2,1,0)");
    file.write(&[2]);
    assert_eq!(reencrypt(&cluster), "(0,0,0)");
    assert!(
        Outbox::join(&cluster, "shop")
            .is("count(distinct master_key_id) = 1 from webhook.signing_keys")
    );
    deliver(&cluster, &receiver, &endpoint);
    cluster.restart(Shutdown::Fast);
    deliver(&cluster, &receiver, &endpoint);
    assert!(Outbox::join(&cluster, "shop").is(
        "count(*) = 2 and bool_and(after ? 'master_key_id') from webhook.audit_log
          where verb = 'reencrypt_secrets' and (after ->> 'secrets')::integer > 0"
    ));
}

#[test]
fn a_master_key_that_was_removed_too_early_is_missed_and_not_fatal() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let file = MasterKeyFile::set(&mut cluster, 1);
    let endpoint = Outbox::create(&cluster, "shop").endpoint("a", &receiver.url("/hook"));
    file.write(&[2]);
    assert_eq!(reencrypt(&cluster), "(0,0,2)");
    // The leader has its keys; a new session has none to seal with.
    let (code, text) =
        Outbox::join(&cluster, "shop").refusal("select webhook.emit('a.b', 'a', '{}')");
    assert_eq!(code, "55000");
    assert!(
        text.contains("cannot be decrypted") && text.contains("not in the file"),
        "{text}"
    );
    // New endpoints can be made: it is their own key that counts.
    let mut shop = Outbox::join(&cluster, "shop");
    let new = shop.endpoint("b", &receiver.url("/new"));
    assert_eq!(
        shop.number("select count(distinct master_key_id) from webhook.signing_keys"),
        2
    );
    drop(shop);
    file.write(&[2, 1]);
    assert_eq!(reencrypt(&cluster), "(1,1,0)");
    deliver(&cluster, &receiver, &endpoint);
    let mut shop = Outbox::join(&cluster, "shop");
    let event = shop.emit("a.b", "b", "{}");
    shop.wait_for_state(&event, &new, "delivered");
}

#[test]
fn a_file_that_cannot_be_used_refuses_new_keys_and_stops_nobody_who_has_his() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let file = MasterKeyFile::set(&mut cluster, 1);
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    // This session has its seal key from now on.
    let event = shop.emit("a.b", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");

    let good = line(1);
    let nobody = |mode| {
        file.write(&[1]);
        file.set_mode(mode);
    };
    let text = |text: &str| file.write_text(text);
    let faults: [(&str, &str, &dyn Fn()); 10] = [
        ("58P01", "does not exist", &|| file.remove()),
        ("55000", "mode 0640", &|| nobody(0o640)),
        ("55000", "mode 0604", &|| nobody(0o604)),
        ("58030", "could not be read", &|| nobody(0o000)),
        ("55000", "not a regular file", &|| file.write_folder()),
        ("55000", "is empty", &|| text("")),
        ("55000", "line 1 that is not", &|| text(&good[..40])),
        ("55000", "line 2 that is not", &|| {
            text(&format!("{good}\nold\n"))
        }),
        ("55000", "line 1 that is not", &|| {
            text(&format!("{good}\r\n"))
        }),
        ("55000", "line 1 that is not", &|| {
            text(&STANDARD.encode([1; 16]))
        }),
    ];
    for (code, why, spoil) in faults {
        spoil();
        let make = "select webhook.create_endpoint('a', 'http://127.0.0.1/in', verify => 'none')";
        let rotate = format!("select webhook.rotate_secret({})", endpoint.id);
        for statement in [
            make,
            &rotate,
            "select webhook.reencrypt_secrets()",
            "select webhook.rotate_seal_key()",
        ] {
            let (found, text) = shop.refusal(statement);
            assert_eq!(found, code, "{why}: {text}");
            assert!(
                text.starts_with("could not use the master key file") && text.contains(why),
                "{text}"
            );
            assert!(
                !text.contains(&good[..12]) && !text.contains("master.key "),
                "{text}"
            );
        }
        let (found, text) = shop
            .another()
            .refusal("select webhook.emit('a.b', 'a', '{}')");
        assert!(found == code && text.contains(why), "{text}");
        // Who has his keys goes on: this session, and the leader.
        let event = shop.emit("a.b", "a", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
    }
    assert_eq!(
        verifier::objections(&endpoint.secret, &receiver.requests()),
        Vec::<String>::new()
    );
    file.write(&[1]);
    shop.another().emit("a.b", "a", "{}");
    shop.endpoint("a", &receiver.url("/new"));
}

#[test]
fn a_file_inside_the_data_folder_is_refused() {
    let mut cluster = Cluster::start_usual();
    let file = MasterKeyFile::set(&mut cluster, 1);
    let inside = cluster.data_folder().join("master.key");
    // A link is followed, and what it leads to is what counts.
    std::os::unix::fs::symlink(file.path(), &inside).expect("a link");
    cluster.reload(&[("webhook.master_key_file", &inside.to_string_lossy())]);
    let client = &mut cluster.create_database("shop");
    client
        .batch_execute("create extension webhook_outbox")
        .expect("the extension");
    fs::remove_file(&inside).expect("the link");
    fs::rename(file.path(), &inside).expect("the file");
    let error = client
        .batch_execute("select webhook.rotate_seal_key()")
        .expect_err("a refusal");
    let detail = error
        .as_db_error()
        .and_then(|error| error.detail())
        .unwrap_or_default()
        .to_owned();
    assert!(detail.contains("data folder"), "{detail}");
    // A path that depends on where the server stands is none.
    cluster.set("webhook.master_key_file", "master.key");
    cluster
        .connect("shop")
        .batch_execute("select pg_reload_conf()")
        .expect("reload");
    wait_for("the log tells of it", PATIENCE, || {
        cluster.log().contains("The path is absolute.")
    });
}

#[test]
fn a_leader_without_its_keys_waits_and_loses_nothing() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let file = MasterKeyFile::set(&mut cluster, 1);
    let mut shop = Outbox::create(&cluster, "shop");
    let known = shop.endpoint("a", &receiver.url("/known"));
    let event = shop.emit("a.b", "a", "{}");
    shop.wait_for_state(&event, &known, "delivered");

    // A key that the leader has not seen yet: the file vanishes in the transaction that makes it. It goes on
    // with the others, says what it misses, and takes the key when the file is back.
    shop.run("begin");
    let new = shop.endpoint("b", &receiver.url("/new"));
    file.remove();
    shop.run("commit");
    shop.wait_until(
        "(select last_error ~ 'could not decrypt signing key' from webhook.stat_worker)",
    );
    let sent = shop.emit("a.b", "a", "{}");
    shop.wait_for_state(&sent, &known, "delivered");
    let waits = shop.emit("a.b", "b", "{}");
    shop.wait_for_state(&waits, &new, "retrying");
    assert_eq!(receiver.requests_for("/new").len(), 0);
    file.write(&[1]);
    shop.wait_for_state(&waits, &new, "delivered");
    assert_eq!(
        verifier::objections(&new.secret, &receiver.requests_for("/new")),
        Vec::<String>::new()
    );

    // A life that begins without the file ends at once; what was emitted waits.
    let late = shop.emit("a.b", "a", "{}");
    shop.wait_for_state(&late, &known, "delivered");
    drop(shop);
    file.remove();
    cluster.restart(Shutdown::Fast);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_until("(select last_error ~ 'does not exist' from webhook.stat_worker)");
    file.write(&[1]);
    let event = shop.emit("a.b", "a", "{}");
    shop.wait_for_state(&event, &known, "delivered");
    assert_eq!(
        shop.number("select count(*) from webhook.events where fenced is not null"),
        0
    );
}

#[test]
fn a_ciphertext_moved_to_another_row_signs_nothing() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let _file = MasterKeyFile::set(&mut cluster, 1);
    let mut shop = Outbox::create(&cluster, "shop");
    let (one, two) = (
        shop.endpoint("a", &receiver.url("/one")),
        shop.endpoint("a", &receiver.url("/two")),
    );
    shop.run(&format!(
        "update webhook._secret s set secret = o.secret from webhook._secret o where o.endpoint_id = {} and s.endpoint_id = {};
         update webhook._endpoint set changed_xid = pg_current_xact_id()",
        one.id, two.id
    ));
    drop(shop);
    // Another life, which remembers no key.
    cluster.restart(Shutdown::Fast);
    let mut shop = Outbox::join(&cluster, "shop");
    let event = shop.emit("a.b", "a", "{}");
    shop.wait_for_state(&event, &one, "delivered");
    shop.wait_for_state(&event, &two, "retrying");
    assert_eq!(receiver.requests_for("/two").len(), 0);
    shop.wait_until(
        "(select last_error ~ 'was changed, or belongs to another row' from webhook.stat_worker)",
    );
}

#[test]
fn another_seal_key_is_used_by_every_session_and_the_former_one_still_counts() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let _file = MasterKeyFile::set(&mut cluster, 1);
    let (endpoint, before, after) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        shop.run("select webhook.pause('all', null, 'later')");
        let before = shop.emit("a.b", "a", "{}");
        let key: i64 = shop.another().number("select webhook.rotate_seal_key()");
        let after = shop.emit("a.b", "a", "{}");
        let sealed = |event: &str| {
            format!(
                "select seal_key from webhook._event where event_id = {}",
                quoted(event)
            )
        };
        assert_eq!(shop.number(&sealed(&after)), key);
        assert_ne!(shop.number(&sealed(&before)), key);
        // Taken back: the former key goes on.
        shop.run("begin; select webhook.rotate_seal_key(); rollback");
        let again = shop.emit("a.b", "a", "{}");
        assert_eq!(shop.number(&sealed(&again)), key);
        shop.run("select webhook.resume('all')");
        (endpoint, before, after)
    };
    let mut shop = Outbox::join(&cluster, "shop");
    for event in [before, after] {
        shop.wait_for_state(&event, &endpoint, "delivered");
    }
    assert_eq!(shop.number("select count(*) from webhook.seal_keys"), 2);
}

#[test]
fn a_dump_holds_no_key_in_clear_and_is_worth_its_master_key() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let file = MasterKeyFile::set(&mut cluster, 1);
    let secrets = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        let rotated = shop.text(&format!(
            "select secret from webhook.rotate_secret({})",
            endpoint.id
        ));
        vec![endpoint.secret, rotated]
    };
    let dump = cluster.folder().join("dump.sql");
    let output = cluster
        .program("pg_dump")
        .args(["-d", "shop"])
        .output()
        .expect("pg_dump");
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("_secret"));
    for secret in &secrets {
        assert_eq!(found_in(secret, text.as_bytes()), Vec::<String>::new());
    }
    fs::write(&dump, &output.stdout).expect("the dump");

    // With the file the copy's keys can be read, without it they cannot.
    cluster.create_database("copy");
    let restored = cluster
        .program("psql")
        .args(["-X", "-q", "-d", "copy", "-v", "ON_ERROR_STOP=1", "-f"])
        .arg(&dump)
        .output()
        .expect("psql");
    assert!(
        restored.status.success(),
        "{}",
        String::from_utf8_lossy(&restored.stderr)
    );
    let mut copy = Outbox::join(&cluster, "copy");
    file.write(&[2]);
    assert_eq!(
        copy.text("select webhook.reencrypt_secrets()::text"),
        "(0,0,4)"
    );
    file.write(&[2, 1]);
    assert_eq!(
        copy.text("select webhook.reencrypt_secrets()::text"),
        "(2,2,0)"
    );
    assert!(copy.is("count(*) = 2 and bool_and(encrypted) from webhook.signing_keys where signs"));
}

fn reencrypt(cluster: &Cluster) -> String {
    Outbox::join(cluster, "shop").text("select webhook.reencrypt_secrets()::text")
}

/// Has an event delivered, emitted in a session that has no key yet, and judges its signature by the first secret.
fn deliver(cluster: &Cluster, receiver: &Receiver, endpoint: &Endpoint) {
    let mut shop = Outbox::join(cluster, "shop");
    receiver.forget();
    let event = shop.emit("a.b", "a", "{}");
    shop.wait_for_state(&event, endpoint, "delivered");
    assert_eq!(
        verifier::objections(&endpoint.secret, &receiver.requests()),
        Vec::<String>::new()
    );
}

/// What the table holds, in hexadecimal.
fn stored(shop: &mut Outbox<'_>) -> String {
    shop.column("select secret::text from webhook._secret")
        .join("\n")
}

fn secret_bytes(endpoint: &Endpoint) -> Vec<u8> {
    STANDARD
        .decode(&endpoint.secret["whsec_".len()..])
        .expect("a secret")
}
