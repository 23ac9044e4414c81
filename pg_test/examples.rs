//! The examples run: receivers in Python, Node and Rust with the public Standard Webhooks libraries, senders in Python and
//! Rust (`postgres` and sqlx) whose event commits with their change, a partner that catches up from the feed. Each is started as its own heading
//! says. The inbox example is run by receiving.rs, the acceptance by acceptance.rs, the demo by `make demo`.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use serde_json::Value;
use webhook_outbox_test::{
    cluster::Cluster,
    example::{Example, node_modules, python},
    outbox::{Outbox, PATIENCE, quoted},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start_usual);

#[test]
fn receiver_in_python_takes_each_event_once_and_refuses_what_is_not_signed_for_it() {
    take_in("python", |secret, port, inbox| {
        let mut command = Command::new(python());
        command
            .arg(Example::path("receiver/receiver.py"))
            .arg(port)
            .arg(inbox)
            .env("WEBHOOK_SECRET", secret);
        command
    });
}

#[test]
fn receiver_in_node_takes_each_event_once_and_refuses_what_is_not_signed_for_it() {
    take_in("node", |secret, port, inbox| {
        // Node looks for the library beside the program.
        let folder = inbox.with_extension("d");
        if !folder.exists() {
            fs::create_dir(&folder).expect("a folder");
            symlink(node_modules(), folder.join("node_modules")).expect("the modules");
            fs::copy(
                Example::path("receiver/receiver.mjs"),
                folder.join("receiver.mjs"),
            )
            .expect("the example");
        }
        let mut command = Command::new("node");
        command
            .arg(folder.join("receiver.mjs"))
            .arg(port)
            .arg(inbox)
            .env("WEBHOOK_SECRET", secret);
        command
    });
}

#[test]
fn receiver_in_rust_takes_each_event_once_and_refuses_what_is_not_signed_for_it() {
    // Built before anybody is challenged.
    let program = rust_example("receiver");
    take_in("rust", |secret, port, inbox| {
        let mut command = Command::new(&program);
        command.arg(port).arg(inbox).env("WEBHOOK_SECRET", secret);
        command
    });
}

#[test]
fn senders_in_python_and_rust_tell_of_an_order_if_and_only_if_it_is_paid() {
    let mut shop = Outbox::create(&CLUSTER, "senders");
    shop.run(
        "create table shop_order (id bigint primary key, status text not null, version bigint not null default 1);
         create role shop_application login;
         grant select, insert, update on shop_order to shop_application;
         select webhook.grant_access('shop_application', 'emit', 'acme', '{order.*}')",
    );
    let database = format!(
        "host={} dbname=senders user=shop_application",
        CLUSTER.folder().display()
    );
    // sqlx takes a URL; a folder of sockets goes into its query.
    let url = format!(
        "postgres:///senders?host={}&user=shop_application",
        CLUSTER.folder().display()
    );
    let send = |language: &str, order: &str| {
        let mut command = match language {
            "python" => {
                let mut command = Command::new(python());
                command.arg(Example::path("sender/sender.py"));
                command
            }
            "sqlx" => Command::new(sqlx_example()),
            _ => Command::new(rust_example("sender")),
        };
        let database = if language == "sqlx" { &url } else { &database };
        command
            .args([database, "acme", order])
            .output()
            .expect("the sender")
    };
    for (language, order) in [("python", "1"), ("rust", "2"), ("sqlx", "3")] {
        let said = send(language, order);
        assert!(said.status.success(), "{said:?}");
        let said = String::from_utf8(said.stdout).expect("text");
        let event = said.trim().rsplit(' ').next().expect("an event id");
        assert!(
            shop.is(&format!(
                "exists (select from webhook.events
                          where event_id = {} and type = 'order.paid' and subject_id = '{order}' and subject_version = 1)
                 and exists (select from shop_order where id = {order} and status = 'paid')",
                quoted(event)
            )),
            "{language}: {said}"
        );
        // The same request again: nothing changes, nobody is told.
        let again = send(language, order);
        assert_eq!(
            String::from_utf8_lossy(&again.stdout),
            format!("order {order}: paid already\n"),
            "{language}"
        );
        // Emit is refused: the order is not paid either.
        shop.run("select webhook.revoke_access('shop_application', 'emit', 'acme')");
        let refused = send(language, "99");
        assert!(!refused.status.success(), "{language}");
        assert!(shop.is("not exists (select from shop_order where id = 99)"));
        shop.run("select webhook.grant_access('shop_application', 'emit', 'acme', '{order.*}')");
    }
    assert!(shop.is("count(*) = 3 from webhook.events"));
}

#[test]
fn partner_that_restored_last_weeks_inbox_catches_up_from_its_cursor() {
    let mut shop = Outbox::create(&CLUSTER, "catching_up");
    shop.run(
        "create role partner_acme login;
         select webhook.grant_access('partner_acme', 'feed', 'acme')",
    );
    let database = format!(
        "host={} dbname=catching_up user=partner_acme",
        CLUSTER.folder().display()
    );
    let inbox = CLUSTER.folder().join("acme.sqlite");
    let catch_up = || {
        let said = Command::new(python())
            .arg(Example::path("catch_up/catch_up.py"))
            .args([&database, "acme"])
            .arg(&inbox)
            .output()
            .expect("the example");
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).expect("text")
    };
    let emit = |shop: &mut Outbox<'_>, count: usize| {
        shop.run(&format!(
            "select webhook.emit('order.paid', p, jsonb_build_object('n', n))
               from generate_series(1, {count}) as n, unnest('{{acme,rival}}'::text[]) as p"
        ));
        shop.wait_until("not exists (select from webhook.events where published_at is null)");
    };
    emit(&mut shop, 1200);
    assert_eq!(catch_up(), "caught up: 1200 new, 0 known\n");
    let backup = inbox.with_extension("backup");
    fs::copy(&inbox, &backup).expect("a backup");
    emit(&mut shop, 700);
    assert_eq!(catch_up(), "caught up: 700 new, 0 known\n");
    assert_eq!(catch_up(), "caught up: 0 new, 0 known\n");

    // The inbox is lost; the backup is a week old. Webhooks have brought one of the week's events since.
    fs::copy(&backup, &inbox).expect("the backup");
    let brought = shop.text("select event_id from webhook.events where partner_id = 'acme' order by event_id desc limit 1");
    let stored = Command::new(python())
        .args([
            "-c",
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('insert into inbox (id) values (?)', (sys.argv[2],)); c.commit()",
        ])
        .arg(&inbox)
        .arg(&brought)
        .status()
        .expect("python");
    assert!(stored.success());
    assert_eq!(catch_up(), "caught up: 699 new, 1 known\n");
    assert_eq!(catch_up(), "caught up: 0 new, 0 known\n");
}

/// What every receiver example has to do, started by `start` with a secret, a port and an inbox file: it answers the
/// challenge, takes each event once, through a restart as well, and refuses another secret.
fn take_in(language: &str, start: impl Fn(&str, &str, &Path) -> Command) {
    let mut shop = Outbox::create(&CLUSTER, &format!("in_{language}"));
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/hooks");
    let inbox = CLUSTER.folder().join(format!("inbox.{language}"));
    let secret = shop.text(&format!(
        "select secret from webhook.create_endpoint('acme', {})",
        quoted(&url)
    ));
    let listening = format!("listening on http://127.0.0.1:{port}/");
    let run = || {
        let receiver = Example::run(start(&secret, &port.to_string(), &inbox));
        receiver.says(&listening);
        receiver
    };
    let receiver = run();
    shop.wait_until(
        "(select state = 'active' and verified_by = 'challenge' from webhook.endpoints)",
    );

    // jsonb that a program which parses and prints it again would change.
    let event = shop.emit(
        "order.paid",
        "acme",
        r#"{"total": 1.10, "name": "Ünï\u2028"}"#,
    );
    receiver.says(&format!("accepted {event}"));
    let replayed = |shop: &mut Outbox<'_>, attempts: usize| {
        shop.run(&format!("select webhook.replay({})", quoted(&event)));
        shop.wait_until(&format!(
            "(select attempt_count = {attempts} and last_status between 200 and 299 from webhook.deliveries)"
        ));
    };
    replayed(&mut shop, 2);
    receiver.says(&format!("duplicate {event}"));
    drop(receiver);
    let receiver = run();
    replayed(&mut shop, 3);
    receiver.says(&format!("duplicate {event}"));
    assert!(!receiver.said().contains(&format!("accepted {event}")));

    // Another endpoint's secret: refused, and the sender is told.
    shop.run(&format!(
        "select webhook.create_endpoint('rival', {}, verify => 'none');
         select webhook.emit('order.paid', 'rival', '{{}}')",
        quoted(&url)
    ));
    wait_for("the receiver refuses it", PATIENCE, || {
        shop.is(
            "exists (select from webhook.deliveries where state = 'dead' and last_status = 401)",
        )
    });
    assert!(
        receiver
            .said()
            .iter()
            .all(|line| !line.contains("accepted"))
    );
}

/// The path of a program of examples/rust, built beside what the tests are built from.
fn rust_example(name: &str) -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        // With the features that the tests' own dependencies were built with: nothing is compiled twice.
        let program = built(&[
            "-p",
            "webhook_outbox_test",
            "-p",
            "webhook_outbox_examples",
            "--bins",
        ]);
        program.parent().expect("a folder").to_owned()
    });
    BUILT.join(name)
}

/// The sender with sqlx, which nothing else is built with.
fn sqlx_example() -> &'static Path {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        built(&[
            "-p",
            "webhook_outbox_examples",
            "--features",
            "sqlx",
            "--bin",
            "sender_sqlx",
        ])
    });
    &BUILT
}

/// A program that `cargo build` makes of these.
fn built(what: &[&str]) -> PathBuf {
    let said = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--quiet", "--message-format=json"])
        .args(what)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .expect("cargo");
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let text = String::from_utf8(said.stdout).expect("text");
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("a program")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}
