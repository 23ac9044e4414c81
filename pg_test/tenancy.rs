//! Tenants of one database: a partner's role reads its own rows and nothing else, through any view, function or error.
//! What there is to try is read from the catalogue, so that no object is forgotten.

use std::{fmt::Write as _, sync::LazyLock};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox},
    receiver::{Answer, Receiver},
};

#[path = "tenancy/private.rs"]
mod private;

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start_usual);

/// Everything that one partner has: one event delivered, one dead, with attempts, excerpts, alerts and requests.
struct Tenant {
    name: &'static str,
    endpoint: Endpoint,
    delivered: String,
    dead: String,
    erased: String,
}

impl Tenant {
    fn settle(shop: &mut Outbox, receiver: &Receiver, name: &'static str) -> Tenant {
        let path = format!("/{name}-hook");
        let refuse = format!("/{name}-dead");
        receiver.behave(&path, |_| Answer::status(200));
        receiver.behave(&refuse, |_| Answer::status(410));
        let endpoint = shop.endpoint_with(
            name,
            &receiver.url(&path),
            ", event_types => '{order.paid}'",
        );
        let closing = shop.endpoint_with(
            name,
            &receiver.url(&refuse),
            ", event_types => '{order.lost}'",
        );
        let subject = format!(
            ", subject_type => 'order', subject_id => '{name}-7', correlation_id => '{name}-c'"
        );
        let delivered = shop.emit_with("order.paid", name, "{}", &subject);
        let dead = shop.emit_with("order.lost", name, "{}", &subject);
        shop.wait_for_state(&delivered, &endpoint, "delivered");
        shop.wait_for_state(&dead, &closing, "dead");
        shop.wait_until(&format!(
            "exists (select from webhook.alerts where partner_id = '{name}')"
        ));
        // Another version of the payload, of which the view tells.
        shop.run(&format!(
            "insert into webhook._event_version (event_id, version, partner_id, seal, body_sha256, body)
             values ('{delivered}', '9', '{name}', '', '', '{{}}')"
        ));
        shop.run(&format!("select webhook.replay('{delivered}')"));
        shop.wait_for_attempts(&delivered, &endpoint, 2);
        let erased = shop.emit("order.erased", name, "{}");
        shop.run(&format!(
            "select webhook.expunge('asked for', event_id => '{erased}')"
        ));
        Tenant {
            name,
            endpoint,
            delivered,
            dead,
            erased,
        }
    }

    /// Texts that give the tenant away wherever they stand.
    fn marks(&self) -> Vec<String> {
        vec![
            self.name.to_owned(),
            self.endpoint.id.to_string(),
            self.delivered.clone(),
            self.dead.clone(),
            self.erased.clone(),
        ]
    }
}

/// A database with two tenants, and a session of the first one's role.
fn scene(
    database: &str,
    receiver: &Receiver,
) -> (Outbox<'static>, Outbox<'static>, Tenant, Tenant) {
    let mut shop = Outbox::create(&CLUSTER, database);
    let acme = Tenant::settle(&mut shop, receiver, "acme");
    let rival = Tenant::settle(&mut shop, receiver, "rival");
    // The leader makes thirty days of partitions; until it has, plans change.
    shop.wait_until(
        "(select count(*) = 6 from pg_class
           where relnamespace = 'webhook'::regnamespace and relkind = 'r' and relispartition
             and relname like '%' || to_char((now() at time zone 'UTC') + interval '30 days', 'YYYYMMDD'))",
    );
    shop.run(&format!(
        "create role {database}_acme; create role {database}_rival;
         select webhook.grant_access('{database}_acme', 'partner', 'acme');
         select webhook.grant_access('{database}_rival', 'partner', 'rival')"
    ));
    let mut session = shop.another();
    session.run(&format!("set session authorization {database}_acme"));
    (shop, session, acme, rival)
}

/// Every relation of the schema that the session may read, private ones included, with its columns.
fn readable(session: &mut Outbox) -> Vec<(String, Vec<String>)> {
    let rows = session.rows(
        "select c.relname, string_agg(a.attname, ' ' order by a.attnum)
           from pg_class c
           join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
          where c.relnamespace = 'webhook'::regnamespace
            and c.relkind in ('r', 'p', 'v')
            and (has_table_privilege(c.oid, 'select') or has_any_column_privilege(c.oid, 'select'))
          group by c.relname
          order by c.relname",
    );
    rows.into_iter()
        .map(|row| {
            let of = |i: usize| row[i].clone().unwrap_or_default();
            (of(0), of(1).split(' ').map(str::to_owned).collect())
        })
        .collect()
}

#[test]
fn a_partner_sees_its_own_rows_and_no_others_in_every_view() {
    let receiver = Receiver::http();
    let (mut shop, mut session, acme, rival) = scene("rows", &receiver);
    let mut seen = Vec::new();
    for (view, _) in readable(&mut session) {
        let rows = session.column(&format!("select v::text from webhook.{view} v"));
        assert!(
            !rows.is_empty() || matches!(view.as_str(), "_seen_excerpt" | "_seen_due"),
            "{view} shows nothing of its own"
        );
        for row in &rows {
            for mark in rival.marks() {
                assert!(!row.contains(&mark), "{view} shows {mark}: {row}");
            }
        }
        // The same rows as those of all that are its own.
        if !view.starts_with('_') {
            let all = shop.column(&format!("select v::text from webhook.{view} v"));
            assert!(
                all.len() >= 2 * rows.len(),
                "{view}: {} of {}",
                rows.len(),
                all.len()
            );
            seen.push(view);
        }
    }
    assert_eq!(
        seen,
        [
            "alerts",
            "attempts",
            "dead_letters",
            "deliveries",
            "endpoint_health",
            "endpoints",
            "event_versions",
            "events",
            "requests",
            "signing_keys",
            "stat_endpoint",
            "tombstones",
            "verifications"
        ]
    );
    assert_eq!(
        session.number("select count(*) from webhook.events where type like 'order.%'"),
        3
    );
    // The tenant's own URL in full, and published_at, which comes from the feed.
    let own = format!(
        "url like '%acme-hook' from webhook.endpoints where endpoint_id = {}",
        acme.endpoint.id
    );
    assert!(session.is(&own));
    assert!(session.is(&format!(
        "published_at is not null from webhook.events where event_id = '{}'",
        acme.delivered
    )));
    // Without a right nothing is seen, though the privileges are there.
    shop.run("delete from webhook._access where partner_id = 'acme'");
    for (view, _) in readable(&mut session) {
        assert_eq!(
            session.number(&format!("select count(*) from webhook.{view}")),
            0,
            "{view}"
        );
    }
}

#[test]
fn foreign_ids_and_absent_ids_get_the_same_answer_and_the_same_plan() {
    let receiver = Receiver::http();
    let (mut shop, mut session, _, rival) = scene("answers", &receiver);
    let foreign = |column: &str, shop: &mut Outbox| match column {
        "event_id" => rival.delivered.clone(),
        "endpoint_id" => rival.endpoint.id.to_string(),
        "partner_id" => "rival".to_owned(),
        "delivery_id" => shop
            .text("select delivery_id from webhook.deliveries where partner_id = 'rival' limit 1"),
        "request_id" => shop.text(&format!(
            "select request_id from webhook.requests where event_id = '{}'",
            rival.delivered
        )),
        "alert_id" => {
            shop.text("select alert_id from webhook.alerts where partner_id = 'rival' limit 1")
        }
        "subject_id" => "rival-7".to_owned(),
        "correlation_id" => "rival-c".to_owned(),
        other => panic!("no foreign value for {other}"),
    };
    // Of the same length and form.
    let absent = |column: &str| match column {
        "event_id" => "evt_01KDWPVNG06E2YFC6A0M3DCW35".to_owned(),
        "endpoint_id" | "request_id" | "alert_id" => "7777777777777777".to_owned(),
        "delivery_id" => "dlv_01KDWPVNG06E2YFC6A0M3DCW35_7777777777777777".to_owned(),
        _ => "nobody".to_owned(),
    };
    let keys = [
        "event_id",
        "endpoint_id",
        "partner_id",
        "delivery_id",
        "request_id",
        "alert_id",
        "subject_id",
        "correlation_id",
    ];
    let mut tried = 0;
    for (view, columns) in readable(&mut session) {
        for column in columns
            .iter()
            .filter(|column| keys.contains(&column.as_str()))
        {
            let mut plans = Vec::new();
            for value in [foreign(column, &mut shop), absent(column)] {
                let query = format!("select * from webhook.{view} where {column} = '{value}'");
                assert_eq!(session.rows(&query).len(), 0, "{query}");
                let plan = session
                    .column(&format!("explain (costs off) {query}"))
                    .join("\n");
                plans.push(plan.replace(&value, "..."));
            }
            assert_eq!(plans[0], plans[1], "{view}.{column}");
            tried += 1;
        }
    }
    assert!(tried >= 25, "{tried}");

    // Functions, from the catalogue: every one that the role may execute has its calls here.
    let functions = session.column(
        "select p.proname from pg_proc p
          where p.pronamespace = 'webhook'::regnamespace and p.proname not like '\\_%' and has_function_privilege(p.oid, 'execute')
          order by 1",
    );
    assert_eq!(
        functions,
        [
            "events_after",
            "explain",
            "export_events",
            "feed_status",
            // The same for everybody.
            "limits",
            "list_deliveries",
            "list_events",
            "partner_status",
            "read_excerpt",
            // Looks at its arguments only.
            "test_filter"
        ]
    );
    for (call, column) in [
        ("list_events(partner_id => '?')", "partner_id"),
        ("list_events('acme', before => '?')", "event_id"),
        (
            "list_events(type => 'order.paid', before => '?')",
            "event_id",
        ),
        ("list_deliveries(partner_id => '?')", "partner_id"),
        ("list_deliveries(endpoint_id => '?')", "endpoint_id"),
        ("list_deliveries(delivery_id => '?')", "delivery_id"),
        (
            "list_deliveries('acme', before => '?', since => '-infinity', until => '1999-01-01')",
            "delivery_id",
        ),
        ("read_excerpt('?', 1)", "delivery_id"),
        ("explain('?', 1)", "event_id"),
        (
            "explain((select min(event_id) from webhook.events), '?')",
            "endpoint_id",
        ),
        ("export_events('?', null, null)", "partner_id"),
        // Without cursors and the time of asking, which are of the partner that was asked about.
        (
            "select event_id, type, data from webhook.events_after('?')",
            "partner_id",
        ),
        (
            "select state, detail, unread, oldest_unread_at, last_published_at from webhook.feed_status('?')",
            "partner_id",
        ),
        (
            "select state, detail, last_published_at, last_delivered_at, endpoints, waiting, oldest_waiting_at, dead
               from webhook.partner_status('?')",
            "partner_id",
        ),
        ("_publication('rival', '?')", "event_id"),
        ("_publication('acme', '?')", "event_id"),
    ] {
        let mut answers = Vec::new();
        for value in [foreign(column, &mut shop), absent(column)] {
            let call = call.replace('?', &value);
            let query = if call.starts_with("select") {
                call
            } else {
                format!("select * from webhook.{call}")
            };
            let mut answer = String::new();
            match session.sql.simple_query(&query) {
                Ok(rows) => {
                    for row in rows {
                        if let postgres::SimpleQueryMessage::Row(row) = row {
                            let _ = writeln!(
                                answer,
                                "{:?}",
                                (0..row.len()).map(|i| row.get(i)).collect::<Vec<_>>()
                            );
                        }
                    }
                }
                Err(error) => {
                    let error = error.as_db_error().expect("an answer of the server");
                    let _ = write!(
                        answer,
                        "{} {} {:?} {:?}",
                        error.code().code(),
                        error.message(),
                        error.detail(),
                        error.hint()
                    );
                }
            }
            answer += &session
                .column(&format!("explain (costs off) {query}"))
                .join("\n");
            answers.push(answer.replace(&value, "..."));
        }
        assert_eq!(answers[0], answers[1], "{call}");
        assert!(!answers[0].contains("rival"), "{call}: {}", answers[0]);
    }
    // Of a type, the role gets its own events only.
    let own =
        session.column("select distinct partner_id from webhook.list_events(type => 'order.paid')");
    assert_eq!(own, ["acme"]);
}

#[test]
fn a_cheap_function_in_a_condition_is_never_shown_a_foreign_row() {
    let receiver = Receiver::http();
    let (_shop, mut session, acme, rival) = scene("leaks", &receiver);
    // Cheaper than any condition of ours, and labelled so that the planner may put it anywhere.
    session.run(
        "select set_config('leak.seen', '', false);
         create function pg_temp.leak(text) returns boolean language plpgsql immutable cost 0.0000001 as $$
         begin
           perform set_config('leak.seen', current_setting('leak.seen') || ' ' || coalesce($1, ''), false);
           return true;
         end $$",
    );
    let mut told = 0;
    for (view, columns) in readable(&mut session) {
        for column in &columns {
            for condition in [
                format!("pg_temp.leak(v.{column}::text)"),
                // By a join, and where the planner could turn it into a filter of a scan.
                format!(
                    "exists (select from (values (1)) x (n) where pg_temp.leak(v.{column}::text || x.n))"
                ),
            ] {
                session.run(&format!(
                    "select count(*) from webhook.{view} v where {condition}"
                ));
            }
        }
        let seen = session.text("select current_setting('leak.seen')");
        told += usize::from(seen.contains(acme.name));
        for mark in rival.marks() {
            assert!(
                !seen.contains(&mark),
                "{view}: the function was shown {mark}"
            );
        }
        // An error of PostgreSQL's own would show the value as well.
        for column in &columns {
            if let Err(error) = session.sql.batch_execute(&format!(
                "select count(*) from webhook.{view} v where v.{column}::text::json is not null"
            )) {
                let said = format!("{error:?}");
                for mark in rival.marks() {
                    assert!(!said.contains(&mark), "{view}.{column}: {said}");
                }
            }
        }
    }
    assert!(told > 5, "the function works: {told}");
    // What EXPLAIN and the statistics tell: tables with policies are hidden from pg_stats.
    assert_eq!(
        session.number("select count(*) from pg_stats where schemaname = 'webhook'"),
        0
    );
    // A session that turns policies off gets an error, not all rows.
    let (code, _) = session.refusal("set row_security = off; select * from webhook.events");
    assert_eq!(code, "42501");
}

#[test]
fn a_plan_that_was_made_for_an_operator_shows_a_partner_its_own_rows() {
    let receiver = Receiver::http();
    let (mut shop, _session, _, _) = scene("plans", &receiver);
    shop.run(
        "create role plans_operator; select webhook.grant_access('plans_operator', 'operate');
         set plan_cache_mode = force_generic_plan;
         prepare counted as select count(*), count(distinct partner_id) from webhook.deliveries;
         prepare listed as select count(*) from webhook.list_deliveries(state => 'dead')",
    );
    let counts = |shop: &mut Outbox, role: &str| {
        shop.run(&format!("set role {role}"));
        let counted = shop.rows("execute counted")[0].clone();
        let listed = shop.rows("execute listed")[0].clone();
        shop.run("reset role");
        (counted, listed)
    };
    let of = |n: &str, partners: &str, dead: &str| {
        (
            vec![Some(n.to_owned()), Some(partners.to_owned())],
            vec![Some(dead.to_owned())],
        )
    };
    for _ in 0..2 {
        assert_eq!(counts(&mut shop, "postgres"), of("4", "2", "2"));
        assert_eq!(counts(&mut shop, "plans_acme"), of("2", "1", "1"));
        assert_eq!(counts(&mut shop, "plans_operator"), of("4", "2", "2"));
        assert_eq!(counts(&mut shop, "plans_rival"), of("2", "1", "1"));
    }
    // A role that is a member of two partners' roles sees both.
    shop.run("create role plans_both; grant plans_acme, plans_rival to plans_both");
    assert_eq!(counts(&mut shop, "plans_both"), of("4", "2", "2"));
}
