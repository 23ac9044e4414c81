//! What must hold of the private tables, whatever was killed when: a list of names, each with the SQL that returns
//! the rows that violate it. This is the one place of the house that looks behind the views.

use postgres::{Client, SimpleQueryMessage};

/// Must hold at any moment, in any snapshot.
pub const ALWAYS: &[(&str, &str)] = &[
    (
        "a pair of event and endpoint has one delivery row at most",
        "select event_id, endpoint_id, count(*) from webhook._delivery
          group by event_id, endpoint_id having count(*) > 1",
    ),
    (
        "an event has one row",
        "select event_id, count(*) from webhook._event group by event_id having count(*) > 1",
    ),
    (
        "an event stands in the feed once at most",
        "select event_id, count(*) from webhook._feed group by event_id having count(*) > 1",
    ),
    (
        "a feed position is used once",
        "select pos, count(*) from webhook._feed group by pos having count(*) > 1",
    ),
    (
        "a feed row is that of an event",
        "select f.* from webhook._feed f
          where not exists (select from webhook._event e
                             where e.event_id = f.event_id and e.partner_id = f.partner_id
                               and e.type = f.type and e.test = f.test)",
    ),
    (
        "a delivery is that of an event to an endpoint of its own partner and mode",
        "select d.event_id, d.endpoint_id from webhook._delivery d
          where not exists (select from webhook._event e join webhook._endpoint p using (partner_id, test)
                             where e.event_id = d.event_id and p.endpoint_id = d.endpoint_id)",
    ),
    (
        "only what the feed shows is delivered",
        "select d.event_id, d.endpoint_id from webhook._delivery d
          where not exists (select from webhook._feed f where f.event_id = d.event_id)",
    ),
    (
        "attempts are numbered from 1 without gaps, and counted",
        "select d.event_id, d.endpoint_id, d.state, d.attempt_count,
                array_agg(a.attempt_no order by a.attempt_no) as attempts
           from webhook._delivery d
           left join webhook.attempts a using (event_id, endpoint_id)
          group by d.event_id, d.endpoint_id, d.state, d.attempt_count
         having coalesce(array_agg(a.attempt_no order by a.attempt_no) filter (where a.attempt_no is not null), '{}')
                <> array(select generate_series(1, d.attempt_count))",
    ),
    (
        "an attempt belongs to a delivery",
        "select a.event_id, a.endpoint_id, a.attempt_no from webhook._attempt a
          where not exists (select from webhook._delivery d
                             where d.event_id = a.event_id and d.endpoint_id = a.endpoint_id)",
    ),
    (
        "the delivery shows its latest attempt",
        "select d.event_id, d.endpoint_id, d.attempt_count, d.last_attempt_at, a.started_at
           from webhook._delivery d
           join webhook._attempt a
             on a.event_id = d.event_id and a.endpoint_id = d.endpoint_id and a.attempt_no = d.attempt_count
          where (d.last_attempt_at, d.last_status, d.last_error_category, d.last_latency_ms)
                is distinct from (a.started_at, a.status, a.error_category, a.latency_ms)",
    ),
    (
        "a later attempt was made by the same life of the leader or a later one",
        "select a.event_id, a.endpoint_id, a.attempt_no, a.incarnation, b.incarnation
           from webhook._attempt a
           join webhook._attempt b
             on b.event_id = a.event_id and b.endpoint_id = a.endpoint_id and b.attempt_no = a.attempt_no + 1
          where b.incarnation < a.incarnation",
    ),
    (
        "an attempt was a success when it says so",
        "select event_id, endpoint_id, attempt_no, outcome, status, error_category from webhook._attempt
          where (outcome = 'delivered') <> (error_category is null)
             or (outcome = 'delivered') <> (status is not null and status between 200 and 299)
             or (error_category = 'lost' and status is not null)",
    ),
    (
        "what is delivered says when",
        "select event_id, endpoint_id from webhook._delivery where state = 'delivered' and delivered_at is null",
    ),
    (
        // What is on the wire shows no next attempt; its time in the due table is a precaution.
        "what waits, and nothing else, is in the due table, with the same numbers",
        "select event_id, endpoint_id, d.state, d.attempt_count, w.attempt_count, d.next_attempt_at, w.next_attempt_at
           from (select * from webhook._delivery where state in ('pending', 'retrying')) d
           full join webhook._due w using (event_id, endpoint_id)
          where (d.attempt_count, d.series_start) is distinct from (w.attempt_count, w.series_start)
             or d.next_attempt_at <> w.next_attempt_at",
    ),
    (
        "the ledger says where the leader stands",
        "select 'no position' where not exists (select from webhook._ledger where prev is not null and cur is not null)",
    ),
    (
        "the lives of the leader follow each other",
        "select * from (select n, incarnation, lag(incarnation) over (order by n) as before from webhook._ledger) l
          where l.incarnation < l.before",
    ),
];

/// Must hold when all that was emitted has been delivered and nothing more is emitted.
pub const AT_REST: &[(&str, &str)] = &[
    (
        "every event that is not fenced stands in the feed",
        "select e.event_id, e.xid from webhook._event e
          where e.origin = webhook._origin()
            and not exists (select from webhook._feed f where f.event_id = e.event_id)
            and not exists (select from webhook._fenced f where f.event_id = e.event_id)",
    ),
    ("nothing is due", "select event_id, endpoint_id, next_attempt_at from webhook._due"),
    (
        "every batch is closed",
        "select l.n, l.incarnation, l.batch, l.kind from webhook._ledger l
          where l.kind in ('window', 'claim')
            and not exists (select from webhook._ledger c where c.batch = l.batch and c.kind = 'close')",
    ),
    (
        "no request of a user waits",
        "select request_id, verb from webhook._request where state = 'pending'",
    ),
];

/// The violations of `invariants`, each with its first rows; empty when all hold.
///
/// # Panics
/// When a query itself fails.
pub fn violations(sql: &mut Client, invariants: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, query) in invariants {
        let messages = sql
            .simple_query(query)
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let rows: Vec<String> = messages
            .iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => {
                    let values = (0..row.len()).map(|i| row.get(i).unwrap_or("-"));
                    Some(values.collect::<Vec<_>>().join(" | "))
                }
                _ => None,
            })
            .collect();
        if !rows.is_empty() {
            let first: Vec<&str> = rows.iter().take(5).map(String::as_str).collect();
            found.push(format!(
                "{name}: {} rows, first {}",
                rows.len(),
                first.join("; ")
            ));
        }
    }
    found
}
