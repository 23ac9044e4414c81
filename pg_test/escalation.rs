//! The classic ways up: a user who may connect, create objects of his own and use what he was granted tries to run
//! code with other rights than his, or to read what is not his. Each fails.

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::Outbox,
    receiver::{Answer, Receiver},
};

/// A user with a schema of his own and CREATE on public, an operator's rights, and planted code in both schemas.
fn mallory(shop: &mut Outbox) {
    shop.run(
        "create role mallory login;
         grant create on schema public to mallory;
         create schema evil authorization mallory;
         select webhook.grant_access('mallory', 'operate');
         select webhook.grant_access('mallory', 'emit')",
    );
}

/// Everything that mallory can shadow. It tells who ran it, in a setting that survives the statement.
const PLANTED: &str = "
    create function SCHEMA.told(what text) returns void language plpgsql as $$
    begin
      perform pg_catalog.set_config('evil.ran', pg_catalog.concat(pg_catalog.current_setting('evil.ran', true), ' ', what, ' as ', current_user), false);
    end $$;
    create function SCHEMA.same(text, text) returns boolean language plpgsql as $$
    begin perform SCHEMA.told('operator'); return pg_catalog.texteq($1, $2); end $$;
    create operator SCHEMA.= (leftarg = text, rightarg = text, function = SCHEMA.same);
    create function SCHEMA.same(name, text) returns boolean language plpgsql as $$
    begin perform SCHEMA.told('operator'); return pg_catalog.nameeqtext($1, $2); end $$;
    create operator SCHEMA.= (leftarg = name, rightarg = text, function = SCHEMA.same);
    create function SCHEMA.same(bigint, integer) returns boolean language plpgsql as $$
    begin perform SCHEMA.told('operator'); return pg_catalog.int84eq($1, $2); end $$;
    create operator SCHEMA.= (leftarg = bigint, rightarg = integer, function = SCHEMA.same);
    create function SCHEMA.format(text, text) returns text language plpgsql as $$
    begin perform SCHEMA.told('format'); return $2; end $$;
    create function SCHEMA.length(text) returns integer language plpgsql as $$
    begin perform SCHEMA.told('length'); return 1; end $$;
    create function SCHEMA.clock_timestamp() returns timestamptz language plpgsql as $$
    begin perform SCHEMA.told('clock'); return pg_catalog.now(); end $$;
    create function SCHEMA.cardinality(text[]) returns integer language plpgsql as $$
    begin perform SCHEMA.told('cardinality'); return 1; end $$;
    create function SCHEMA._origin() returns bigint language plpgsql as $$
    begin perform SCHEMA.told('origin'); return 1; end $$;
    create function SCHEMA._log(text, text, text) returns void language plpgsql as $$
    begin perform SCHEMA.told('log'); end $$;";

/// Verbs and views, as mallory or anybody calls them.
const CALLS: &[&str] = &[
    "select webhook.emit('order.paid', 'acme', '{\"a\": 1}', subject_type => 'order', subject_id => '7')",
    "select webhook.emit_json('order.paid', 'acme', '{\"a\": 1}', idempotency_key => 'k')",
    "select webhook.create_endpoint('acme', 'http://127.0.0.1:8080/hook', verify => 'none')",
    "select webhook.update_endpoint(endpoint_id, description => 'mine') from webhook.endpoints limit 1",
    "select webhook.create_policy('calm', rate => 1)",
    "select webhook.pause('partner', 'acme', 'a reason')",
    "select webhook.resume('partner', 'acme')",
    "select webhook.replay(event_id) from webhook.events limit 1",
    "select count(*) from webhook.list_events('acme')",
    "select count(*) from webhook.list_deliveries('acme')",
    "select count(*) from webhook.events e where e.partner_id operator(pg_catalog.=) 'acme'",
    "select * from webhook.status()",
    "select count(*) from webhook.endpoint_health",
    "select webhook.delete_policy('calm')",
];

#[test]
fn operators_functions_and_casts_that_shadow_ours_are_never_run() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    mallory(&mut shop);
    let mut session = shop.another();
    session.run("set session authorization mallory");
    for schema in ["evil", "public"] {
        session.run(&PLANTED.replace("SCHEMA", schema));
    }
    // The planted code works: whoever asks for it gets it.
    session.run("select 'a'::text operator(evil.=) 'a', evil.length('abc')");
    assert!(session.is("current_setting('evil.ran') ~ 'operator as mallory length as mallory'"));
    for path in [
        "evil, pg_catalog",
        "evil, public, pg_catalog",
        "evil, pg_temp, pg_catalog, webhook",
    ] {
        session.run(&format!(
            "select set_config('evil.ran', '', false); set search_path = {path}"
        ));
        for call in CALLS {
            session.run(call);
            let ran = session.text("select pg_catalog.current_setting('evil.ran')");
            assert_eq!(ran, "", "{path}: {call}");
        }
    }
    // A superuser whose path has mallory's objects in it, and who installs the extension with them around.
    shop.run("set search_path = public, evil, pg_catalog; select pg_catalog.set_config('evil.ran', '', false)");
    for call in CALLS {
        shop.run(call);
    }
    shop.run("select webhook.grant_access('mallory', 'read'); select webhook.revoke_access('mallory', 'read'); select webhook._add_partition('_event', current_date + 20)");
    shop.run("drop extension webhook_outbox; create extension webhook_outbox");
    assert_eq!(
        shop.text("select pg_catalog.current_setting('evil.ran')"),
        ""
    );
    // A cast of his own to the type of an argument runs as himself, before the function is called.
    shop.run("reset search_path; select webhook.grant_access('mallory', 'emit')");
    session.run(
        "reset search_path; select set_config('evil.ran', '', false);
         create type evil.paper as (n integer);
         create function evil.as_json(evil.paper) returns jsonb language plpgsql as $$ begin perform evil.told('cast'); return '{}'; end $$;
         create cast (evil.paper as jsonb) with function evil.as_json(evil.paper) as implicit;
         select webhook.emit('order.paid', 'acme', row(1)::evil.paper)",
    );
    assert_eq!(
        session.text("select current_setting('evil.ran')"),
        " cast as mallory"
    );
}

#[test]
fn temporary_objects_do_not_stand_in_for_ours() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    mallory(&mut shop);
    let mut session = shop.another();
    session.run("set session authorization mallory");
    // Temporary tables with the names of ours, and a trigger that would run with the rights of whoever writes them.
    for table in [
        "_event",
        "_endpoint",
        "_audit",
        "_request",
        "_access",
        "events",
        "endpoints",
        "pg_class",
        "pg_roles",
        "pg_proc",
    ] {
        session.run(&format!("create temp table {table} (event_id text, endpoint_id bigint, partner_id text, state text)"));
    }
    session.run(&PLANTED.replace("SCHEMA", "pg_temp"));
    for path in ["pg_temp, pg_catalog, webhook", "pg_temp"] {
        session.run(&format!(
            "select pg_catalog.set_config('evil.ran', '', false); set search_path = {path}"
        ));
        for call in CALLS {
            session.run(call);
        }
        assert_eq!(
            session.text("select pg_catalog.current_setting('evil.ran')"),
            "",
            "{path}"
        );
    }
    assert_eq!(
        session.number("select pg_catalog.count(*) from pg_temp._event"),
        0
    );
    assert!(shop.number("select count(*) from webhook.events") >= 3);
}

#[test]
fn nobody_hangs_code_onto_a_private_table_or_reads_it() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    mallory(&mut shop);
    shop.run("select webhook.grant_access('mallory', 'audit'); select webhook.grant_access('mallory', 'payload')");
    let mut session = shop.another();
    session.run(
        "set session authorization mallory;
         create function evil.fire() returns trigger language plpgsql as $$ begin return new; end $$;
         create function evil.on_ddl() returns event_trigger language plpgsql as $$ begin end $$;
         create table evil.own (event_id text, endpoint_id bigint, name text)",
    );
    let relations = session.column(
        "select c.relname from pg_class c
          where c.relnamespace = 'webhook'::regnamespace and c.relkind in ('r', 'p') order by 1",
    );
    assert!(relations.len() > 20, "{relations:?}");
    for table in &relations {
        for statement in [
            "create trigger t before insert on T for each row execute function evil.fire()",
            "create rule r as on insert to T do also notify x",
            "create policy p on T using (true)",
            "alter table T add column x text",
            "alter table T disable row level security",
            "alter table evil.own add foreign key (event_id) references T",
            "create table evil.child () inherits (T)",
            "create index on T ((1))",
            "create statistics evil.s on xmin, ctid from T",
            "select * from T",
            "copy T to stdout",
            "insert into T default values",
            "delete from T",
            "truncate T",
            "do 'begin lock table T in access share mode; end'",
            "comment on table T is 'mine'",
            "grant select on T to mallory",
        ] {
            let statement = statement
                .replace('T', &format!("webhook.{table}"))
                .replace(&format!("webhook.{table}RUE"), "TRUE");
            let (code, said) = session.refusal(&statement);
            // Some are refused even before the right is looked at.
            let refused = match code.as_str() {
                "42501" => true,
                "42704" | "42830" => statement.contains("foreign key"),
                "0A000" | "42P16" | "42611" | "42P17" | "42809" => !statement.starts_with("select"),
                _ => false,
            };
            assert!(refused, "{statement}: {code} {said}");
            assert!(!session.is(&format!("has_any_column_privilege('webhook.{table}', 'select, insert, update, references')")), "{table}");
        }
    }
    for statement in [
        "create event trigger e on ddl_command_end execute function evil.on_ddl()",
        "create function webhook.planted() returns integer language sql as 'select 1'",
        "create table webhook.planted ()",
        "create operator webhook.= (leftarg = text, rightarg = text, function = pg_catalog.texteq)",
        "create or replace view webhook.events as select 1",
        "alter view webhook.events owner to mallory",
        "alter view webhook.events set (security_invoker = true)",
        "create rule r as on insert to webhook.events do instead nothing",
        "create trigger t instead of insert on webhook.events for each row execute function evil.fire()",
        "alter function webhook.emit security definer",
        "create or replace function webhook._log(text, text, text, text, jsonb, jsonb, text, bigint) returns void language sql as ''",
        "alter extension webhook_outbox add table evil.own",
        "drop extension webhook_outbox",
        "select webhook.grant_access('mallory', 'read')",
        "select webhook._emit_reserved('webhook.test', 'acme', '{}')",
        "select webhook._take_access('mallory'::regrole, 'emit', null)",
        "select webhook._add_secret(1)",
    ] {
        let (code, said) = session.refusal(statement);
        assert_eq!(code, "42501", "{statement}: {said}");
    }
}

#[test]
fn no_role_and_no_setting_is_a_way_up() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    mallory(&mut shop);
    // A real log-in: of a session that only changed its authorisation PostgreSQL remembers who it was.
    let mut config = cluster.connection("shop");
    config.user("mallory");
    let mut session = shop.another();
    session.sql = config.connect(postgres::NoTls).expect("mallory");
    for statement in [
        "set role postgres",
        "set role webhook_views",
        "set session authorization postgres",
        "set session authorization webhook_views",
        "grant webhook_views to mallory",
        "grant postgres to mallory",
        "alter role webhook_views login",
        "create role other superuser",
        "set session_replication_role = replica",
        "set webhook.allow_http = on",
        "set webhook.allow_networks = '0.0.0.0/0'",
        "set webhook.enabled = off",
        "set webhook.redact_keys = ''",
        "alter system set webhook.allow_http = on",
        "alter role mallory set webhook.allow_http = on",
        "load '$libdir/plugins/none'",
        "create function evil.c() returns bigint language c as '$libdir/webhook_outbox', 'new_id_wrapper'",
        "select pg_read_file('postgresql.conf')",
    ] {
        let (code, said) = session.refusal(statement);
        assert!(
            code == "42501"
                || (code == "58P01" && statement.starts_with("load"))
                || (code == "55P02" && statement.contains("set webhook.")),
            "{statement}: {code} {said}"
        );
    }
    // A function of his own with SECURITY DEFINER has his rights and no others.
    session.run(
        "create function evil.look() returns bigint language sql security definer as 'select count(*) from webhook._event'",
    );
    let (code, _) = session.refusal("select evil.look()");
    assert_eq!(code, "42501");
    // Policies are not turned off, they turn into an error.
    let (code, _) = session.refusal("set row_security = off; select count(*) from webhook.events");
    assert_eq!(code, "42501");
}

#[test]
fn whatever_stands_in_the_place_of_the_extension_before_it_comes_is_refused() {
    let cluster = Cluster::start_usual();
    let mut clean = cluster.connect("postgres");
    clean
        .batch_execute("create role mallory login createrole")
        .expect("mallory");
    for (name, planted, code) in [
        (
            "owner",
            "create schema webhook authorization mallory",
            "42501",
        ),
        (
            "grantee",
            "create schema webhook; grant create on schema webhook to mallory",
            "42501",
        ),
        (
            "public",
            "create schema webhook; grant create on schema webhook to public",
            "42501",
        ),
        (
            "table",
            "create schema webhook; create table webhook.events ()",
            "55000",
        ),
        (
            "function",
            "create schema webhook; create function webhook.emit() returns integer language sql as 'select 1'",
            "55000",
        ),
        (
            "type",
            "create schema webhook; create domain webhook.d as text",
            "55000",
        ),
        ("login", "create role webhook_views login", "42501"),
        (
            "member",
            "alter role webhook_views nologin; grant webhook_views to mallory",
            "42501",
        ),
        (
            "memberof",
            "revoke webhook_views from mallory; grant pg_read_all_data to webhook_views",
            "42501",
        ),
        (
            "bypass",
            "revoke pg_read_all_data from webhook_views; alter role webhook_views bypassrls",
            "42501",
        ),
    ] {
        cluster.create_database(name);
        let mut database = Outbox::join(&cluster, name);
        database.run(planted);
        let (told, said) = database.refusal("create extension webhook_outbox");
        assert_eq!(told, code, "{planted}: {said}");
        assert_eq!(
            database.number("select count(*) from pg_extension where extname = 'webhook_outbox'"),
            0
        );
    }
    // Mended, it installs; the next database finds the role.
    clean
        .batch_execute("alter role webhook_views nobypassrls")
        .expect("mended");
    for name in ["first", "second"] {
        Outbox::create(&cluster, name);
    }
}

#[test]
fn the_leader_runs_no_trigger_that_somebody_hung_onto_its_tables_and_status_tells_of_it() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(200));
    let mut shop = Outbox::create(&cluster, "shop");
    mallory(&mut shop);
    shop.run(
        "create table evil.ran (who text, what text); grant all on evil.ran to public; grant usage on schema evil to public;
         create function evil.fire() returns trigger language plpgsql as $$
         begin
           insert into evil.ran values (current_user, tg_table_name);
           return null;
         end $$;
         alter function evil.fire() owner to mallory;
         create function evil.on_ddl() returns event_trigger language plpgsql as $$
         begin insert into evil.ran values (current_user, tg_tag); end $$;
         create event trigger everything on ddl_command_end execute function evil.on_ddl();
         alter function evil.on_ddl() owner to mallory;
         truncate evil.ran",
    );
    let tables = [
        "_delivery_default",
        "_feed_default",
        "_ledger",
        "_endpoint_state",
        "_request",
    ];
    for table in tables {
        shop.run(&format!("create trigger planted after insert or update on webhook.{table} for each row execute function evil.fire()"));
    }
    shop.run("create rule planted as on insert to webhook._alert do also insert into evil.ran values (current_user, 'rule'); delete from evil.ran");
    let leader = "select count(*) from evil.ran where what <> '_request'";
    let endpoint = shop.endpoint("acme", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "acme", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    receiver.behave("/hook", |_| Answer::status(410));
    let event = shop.emit("order.paid", "acme", "{}");
    shop.wait_for_state(&event, &endpoint, "dead");
    shop.wait_until("exists (select from webhook.alerts)");
    // A leader that begins makes the days ahead, one of which is missing.
    let last = shop.text(
        "select max(relname) from pg_class where relname like '\\_event\\_2%' and relkind = 'r'",
    );
    shop.run(&format!("set session_replication_role = replica; drop table webhook.{last}; reset session_replication_role"));
    shop.restart_leader();
    shop.wait_until(&format!("to_regclass('webhook.{last}') is not null"));
    assert_eq!(
        shop.number(leader),
        0,
        "{:?}",
        shop.rows("select * from evil.ran")
    );
    // The trigger works: a user's own statement sets it off.
    shop.run("insert into webhook._ledger (n, incarnation, batch, kind) values (-1, 0, 0, 'close'); delete from webhook._ledger where n = -1");
    assert_eq!(shop.number(leader), 1);
    let advice = shop.text("select advice from webhook.status()");
    for table in tables {
        assert!(
            advice.contains(&format!("trigger planted on {table}")),
            "{advice}"
        );
    }
    assert!(advice.contains("rule planted on _alert"), "{advice}");
}
