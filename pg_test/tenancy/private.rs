//! What the views and lists need a reader to be able to execute, called by hand: the functions that are not meant to
//! be called tell of another tenant what they tell of none, and so does everything that a reader of a feed has.

use std::fmt::Write as _;

use postgres::SimpleQueryMessage;
use webhook_outbox_test::{outbox::Outbox, receiver::Receiver};

use crate::scene;

/// Private functions that take what names a row or a tenant, and look at more than their arguments.
const LOOK: [&str; 6] = [
    "_check_export",
    "_check_feed",
    "_feed_data",
    "_known_origin",
    "_publication",
    "_read_cursor",
];

#[test]
fn functions_behind_the_views_and_all_of_the_feed_tell_the_same_of_another_partner_and_of_none() {
    let receiver = Receiver::http();
    let (mut shop, mut partner, acme, rival) = scene("behind", &receiver);
    shop.run("create role behind_feed; select webhook.grant_access('behind_feed', 'feed', 'acme')");
    let mut reader = shop.another();
    reader.run("set session authorization behind_feed");

    // A cursor is no secret: everybody can make one that stands where a row of somebody else's stands, or beside it.
    let theirs = shop.text("select cursor from webhook.events_after('rival') limit 1");
    let mut made = |partner: &str, beside: i64| {
        shop.text(&format!(
            "select webhook._cursor('{partner}', c.pos + {beside}, c.tag, c.read_at)
               from webhook._read_cursor('rival', '{theirs}') as c"
        ))
    };
    let rows = [
        (
            "rival",
            &*rival.delivered,
            made("rival", 0),
            made("acme", 0),
        ),
        (
            "rival",
            &*rival.delivered,
            made("rival", 1),
            made("acme", 1),
        ),
        (
            "nobody",
            "evt_01KDWPVNG06E2YFC6A0M3DCW35",
            made("nobody", 0),
            made("acme", 0),
        ),
    ];
    assert_eq!(rows[0].2, theirs);
    for (session, kind, expected) in [
        (&mut partner, "partner", &LOOK[..]),
        (
            &mut reader,
            "feed",
            &[
                "_check_export",
                "_check_feed",
                "_feed_data",
                "_known_origin",
                "_read_cursor",
            ][..],
        ),
    ] {
        let look = session.column(
            "select p.proname from pg_proc p
              where p.pronamespace = 'webhook'::regnamespace and p.proname like '\\_%'
                and has_function_privilege(p.oid, 'execute') and p.provolatile <> 'i'
                and p.proargnames && '{partner_id,event_id,endpoint_id,delivery_id,request_id,alert_id,cursor,origin}'
                -- Made of their arguments alone.
                and p.proname not in ('_cursor', '_event_time')
              order by 1",
        );
        assert_eq!(look, expected, "{kind}");
        let mut calls = vec![
            "_check_export('?', null, null, null, false, true)",
            "_check_export('?', null, null, null, false, false)",
            "_check_feed('?', null, true)",
            "_feed_data('?', null)",
            "_feed_data('?', 'EVENT')",
            "_known_origin(7)",
            "_read_cursor('?', 'CURSOR')",
            "_read_cursor('acme', 'CURSOR')",
            "_read_cursor('acme', 'BETWEEN')",
            "events_after('acme', 'BETWEEN')",
            "events_after('?')",
            "events_after('?', 'CURSOR')",
            "events_after('acme', 'CURSOR')",
            "events_after('?', payload => true)",
            "export_events('?')",
            "export_events('?', payload => true)",
            "feed_status('?', 'CURSOR')",
        ];
        if kind == "partner" {
            calls.extend([
                "_publication('?', 'EVENT')",
                "_publication('acme', 'EVENT')",
            ]);
        }
        for call in calls {
            let answers = rows.each_ref().map(|(name, event, cursor, between)| {
                let query = call
                    .replace('?', name)
                    .replace("EVENT", event)
                    .replace("CURSOR", cursor)
                    .replace("BETWEEN", between);
                let said = answer(session, &query);
                same_for_all(&said.replace(name, "...").replace(event, "..."), between)
            });
            assert_eq!(answers[1], answers[0], "{kind}: {call}");
            assert_eq!(answers[2], answers[0], "{kind}: {call}");
        }
        // Its own are told.
        let own = format!(
            "event_id = '{}' from webhook.events_after('acme') limit 1",
            acme.delivered
        );
        assert!(session.is(&own), "{kind}");
    }
    // A reader of a feed has its payloads, and nobody else's.
    assert!(reader.is("count(*) = 3 and count(data) >= 2 from webhook.events_after('acme', payload => true) where type like 'order.%'"));
    let (code, _) = partner.refusal("select webhook.events_after('acme', payload => true)");
    assert_eq!(code, "42501");
    // And nothing else: no list, no endpoint, no delivery.
    for view in [
        "events",
        "deliveries",
        "endpoints",
        "attempts",
        "alerts",
        "dead_letters",
    ] {
        let (code, _) = reader.refusal(&format!("select * from webhook.{view}"));
        assert_eq!(code, "42501", "{view}");
    }
    for mark in rival.marks() {
        for view in ["_seen_feed", "_seen_event"] {
            let rows = reader.column(&format!("select v::text from webhook.{view} v"));
            assert!(
                !rows.is_empty() && rows.iter().all(|row| !row.contains(&mark)),
                "{view}"
            );
        }
    }
}

/// Rows, or the error, in one text.
fn answer(session: &mut Outbox, call: &str) -> String {
    let mut said = String::new();
    match session
        .sql
        .simple_query(&format!("select * from webhook.{call}"))
    {
        Ok(rows) => {
            for row in rows {
                if let SimpleQueryMessage::Row(row) = row {
                    let values: Vec<_> = (0..row.len()).map(|i| row.get(i)).collect();
                    let _ = writeln!(said, "{values:?}");
                }
            }
        }
        Err(error) => {
            let error = error.as_db_error().expect("an answer of the server");
            let (code, message) = (error.code().code(), error.message());
            let _ = write!(
                said,
                "{code} {message} {:?} {:?}",
                error.detail(),
                error.hint()
            );
        }
    }
    said
}

/// Without what was given or is of the partner that was asked about: cursors and positions, and the time of asking.
fn same_for_all(said: &str, given: &str) -> String {
    let place = i64::from_str_radix(&given[22..38], 16).expect("a position");
    let said = said.replace(&place.to_string(), "a position");
    let mut rest = &*said;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once("feed1_") {
        kept += before;
        rest = after.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    kept += rest;
    let words = kept.split_inclusive('"').map(|word| {
        let time = word.len() > 20 && word.starts_with("20") && word.contains("+00");
        if time { "a time\"" } else { word }
    });
    words.collect()
}
