//! Rights over time: given, narrowed, taken away, renamed, rolled back, dumped and restored.

use webhook_outbox_test::{cluster::Cluster, outbox::Outbox};

#[test]
fn a_right_that_is_taken_away_or_narrowed_counts_at_the_next_statement_of_every_session() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "taken");
    shop.run("create role taken_app; create role taken_acme; select webhook.grant_access('taken_app', 'emit')");
    let mut app = shop.another();
    app.run("set session authorization taken_app");
    app.emit("order.paid", "acme", "{}");
    app.emit("order.paid", "rival", "{}");
    shop.run("select webhook.revoke_access('taken_app', 'emit'); select webhook.grant_access('taken_app', 'emit', 'acme', '{order.*}')");
    app.emit("order.paid", "acme", "{}");
    for (partner, kind) in [("rival", "order.paid"), ("acme", "invoice.paid")] {
        let (code, said) = app.refusal(&format!(
            "select webhook.emit('{kind}', '{partner}', '{{}}')"
        ));
        assert_eq!(code, "42501");
        for mark in ["acme", "rival", "order", "invoice"] {
            assert!(!said.contains(mark), "{said}");
        }
    }
    // A transaction that began before, at whatever isolation, is bound as well.
    app.run(
        "begin isolation level repeatable read; select webhook.emit('order.paid', 'acme', '{}')",
    );
    shop.run("select webhook.revoke_access('taken_app', 'emit', 'acme'); select webhook.grant_access('taken_app', 'emit', 'rival')");
    let (code, _) = app.refusal("select webhook.emit('order.paid', 'acme', '{}')");
    assert_eq!(code, "42501");
    app.run("rollback");
    // What is rolled back counts for nobody, and within its transaction at once.
    shop.run(
        "begin; select webhook.grant_access('taken_app', 'emit', 'acme'); set local role taken_app",
    );
    shop.emit("order.paid", "acme", "{}");
    shop.run("rollback; set role taken_app");
    let (code, _) = shop.refusal("select webhook.emit('order.paid', 'acme', '{}')");
    assert_eq!(code, "42501");
    shop.run("reset role");
    // A renamed role keeps its limits.
    shop.run("alter role taken_app rename to taken_other");
    let (code, _) = app.refusal("select webhook.emit('order.paid', 'acme', '{}')");
    assert_eq!(code, "42501");
    app.emit("order.paid", "rival", "{}");
    // A SECURITY DEFINER function emits with the rights of its owner.
    shop.run(
        "create function public.emit_for_all() returns text language sql security definer set search_path = pg_catalog
           begin atomic select webhook.emit('order.paid', 'acme', '{}'); end",
    );
    app.run("select public.emit_for_all()");
}

#[test]
fn a_dump_keeps_rights_and_their_limits_by_the_names_of_the_roles() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    shop.run("create role app; create role acme; select webhook.grant_access('app', 'emit', 'acme'); select webhook.grant_access('acme', 'partner', 'acme')");
    let dump = cluster
        .program("pg_dump")
        .args(["-d", "shop"])
        .output()
        .expect("pg_dump");
    assert!(
        dump.status.success(),
        "{}",
        String::from_utf8_lossy(&dump.stderr)
    );
    let other = Cluster::start_usual();
    // Other oids than in the first cluster.
    let mut copy = other.create_database("copy");
    copy.batch_execute("create role filler; create role acme; create role app")
        .expect("roles");
    let path = other.folder().join("dump.sql");
    std::fs::write(&path, &dump.stdout).expect("the dump");
    let restore = other
        .program("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "copy", "-f"])
        .arg(&path)
        .output()
        .expect("psql");
    assert!(
        restore.status.success(),
        "{}",
        String::from_utf8_lossy(&restore.stderr)
    );
    let mut copy = Outbox::join(&other, "copy");
    assert_eq!(
        copy.column("select role || ' ' || kind from webhook.access_rights order by 1"),
        ["acme partner", "app emit"]
    );
    copy.run("set role app");
    copy.emit("order.paid", "acme", "{}");
    let (code, _) = copy.refusal("select webhook.emit('order.paid', 'rival', '{}')");
    assert_eq!(code, "42501");
    copy.run("reset role; set role acme");
    assert_eq!(copy.number("select count(*) from webhook.events"), 1);
    copy.run("reset role; select webhook.revoke_access('app', 'emit', 'acme'); set role app");
    let (code, _) = copy.refusal("select webhook.emit('order.paid', 'acme', '{}')");
    assert_eq!(code, "42501");
    copy.run("reset role");
    assert_eq!(
        copy.column("select role || ' ' || kind from webhook.access_rights"),
        ["acme partner"]
    );
}
