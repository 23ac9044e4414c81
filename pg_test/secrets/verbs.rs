//! Every public function, each at the loudest log level: none of them says a key. What there is to call is read from
//! the catalogue, so that none is forgotten. Keys that a caller hands in are his to keep out of the log, by a parameter
//! that is not logged; they are searched everywhere else, and in every error.

use base64::{Engine, engine::general_purpose::STANDARD};
use webhook_outbox_test::{cluster::Shutdown, master_key::line, outbox::Outbox};

use crate::hunt::{files, found_in, kept, loud};

const CALLS: &str = include_str!("verbs.sql");

/// What the calls need to find: a function that converts, a query, another origin, a received event.
const SCENE: &str = "
create role verbs_reader;
create schema verbs; grant usage, create on schema verbs to verbs_reader;
create function verbs.same(jsonb) returns jsonb language sql immutable as 'select $1';
alter function verbs.same(jsonb) owner to verbs_reader;
create function public.verbs_changes(timestamptz, timestamptz) returns table (subject_id text, changed_at timestamptz)
  language sql security definer set search_path = pg_catalog as 'select ''1'', now() where false';
insert into webhook._seal_key (key_id, origin, key) values (1, 4711, '\\x00');
insert into webhook._inbox_source (source_id, name, profile, partner_id, tolerance, validation, same_body, max_body, max_pending)
values (1, 'verbs.made', 'v1', 'verbs', '5 min', 'off', true, 1, 1);
insert into webhook._inbox_handler (name, origin, version, event_types, retry_schedule, subject_versions)
select h, webhook._origin(), '1', '{*}', '', true from unnest('{verbs.made,verbs.two}'::text[]) as h;
insert into webhook._inbox (inbox_id, source_id, event_id, partner_id, bytes, body) values (1, 1, 'evt_in', 'verbs', 1, 'x');
insert into webhook._inbox_run (inbox_id, source_id, handler, version, state, next_attempt_at) values (1, 1, 'verbs.made', '1', 'dead', now()), (1, 1, 'verbs.two', '1', 'pending', now());
";

#[test]
fn no_function_says_a_key_at_any_log_level() {
    // No leader: what is called here is called in one transaction, and nobody acts on it.
    let (mut cluster, _file) = loud(true, &[("webhook.databases", "nobody")]);
    let mut shop = Outbox::join(&cluster, "shop");
    for name in shop.column(
        "select distinct proname from pg_proc
          where pronamespace = 'webhook'::regnamespace and proname not like '\\_%'",
    ) {
        let called = CALLS.contains(&format!("webhook.{name}("));
        assert!(
            called || ["verify", "explain_signature"].contains(&&*name),
            "nobody calls {name}"
        );
    }

    shop.run("begin");
    shop.run(SCENE);
    let first = shop.endpoint("verbs", "https://127.0.0.1/first");
    let mut secrets = vec![first.secret.clone(), format!("whsec_{}", line(1))];
    let event = shop.emit("order.paid", "verbs", "{}");
    let dead = shop.text(&format!(
        "insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision)
         values ({0}, '{event}', 'dead', 1, 0, 1) returning webhook._delivery_id(event_id, endpoint_id)",
        first.id
    ));
    let calls: Vec<String> = CALLS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("--"))
        .map(|line| {
            line.replace("{hook}", &first.id.to_string())
                .replace("{event}", &event)
                .replace("{dead}", &dead)
        })
        .collect();
    for call in &calls {
        for row in shop.rows(call) {
            if call.contains("secret from") || call.contains("new_key from") {
                secrets.push(row[1].clone().expect("a secret"));
            }
        }
    }
    // One that the caller has: handed in, used, refused.
    let given = STANDARD.encode(std::array::from_fn::<u8, 32, _>(|n| (n * 73 + 41) as u8));
    let key = format!("whsec_{given}");
    for profile in ["v1", "github", "stripe", "slack", "shopify"] {
        shop.run(&format!(
            "select webhook.create_inbox_source('given.{profile}', '{profile}', 'other')"
        ));
        shop.sql
            .execute(
                "select webhook.add_inbox_key($1, $2)",
                &[&format!("given.{profile}"), &key],
            )
            .expect("a key");
        shop.sql
            .execute(
                "select webhook.verify($1, array[$2], '{}', ''), webhook.explain_signature($1, array[$2], '{}', '')",
                &[&profile, &key],
            )
            .expect("a verdict");
    }
    shop.run("commit");
    let mut refused = 0;
    for wrong in [
        format!("{key}="),
        format!(" {key}"),
        format!("whsk_{given}"),
        format!("whpk_{given}\n"),
        format!("whsec_{given}{given}{given}"),
    ] {
        for statement in [
            "select webhook.add_inbox_key('given.v1', $1)",
            "select webhook.verify('v1', array[$1], '{\"webhook-id\": \"1\", \"webhook-timestamp\": \"1\", \"webhook-signature\": \"v1,AAAA\"}', '')",
        ] {
            if let Err(error) = shop.sql.execute(statement, &[&wrong]) {
                let error = error.as_db_error().expect("an answer of the server");
                let said = format!(
                    "{} {:?} {:?}",
                    error.message(),
                    error.detail(),
                    error.hint()
                );
                assert!(!said.contains(&given[12..32]), "{statement}: {said}");
                refused += 1;
            }
        }
    }
    assert!(refused >= 4, "{refused}");
    shop.run("analyze; checkpoint");

    assert!(secrets.len() >= 7, "{}", secrets.len());
    let log = cluster.log().into_bytes();
    assert_eq!(
        found_in(&key, &log),
        ["base64"],
        "what a caller hands in is in the log that he asked for, as he wrote it"
    );
    let mut places = kept(&mut shop, true);
    drop(shop);
    cluster.stop(Shutdown::Fast);
    files(&cluster.data_folder(), &mut places);
    for (place, bytes) in &places {
        assert_eq!(found_in(&key, bytes), Vec::<String>::new(), "in {place}");
    }
    places.push(("the log".to_owned(), log));
    for secret in &secrets {
        for (place, bytes) in &places {
            assert_eq!(found_in(secret, bytes), Vec::<String>::new(), "in {place}");
        }
    }
}
