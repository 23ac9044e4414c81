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
        // A test that somebody asked for goes to live endpoints, too.
        "a delivery is that of an event to an endpoint of its own partner and mode",
        "select d.event_id, d.endpoint_id from webhook._delivery d
          where not exists (select from webhook._event e join webhook._endpoint p using (partner_id)
                             where e.event_id = d.event_id and p.endpoint_id = d.endpoint_id
                               and (e.test = p.test or e.type = 'webhook.test'))",
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
        // One that expired says so although no attempt did.
        "the delivery shows its latest attempt",
        "select d.event_id, d.endpoint_id, d.attempt_count, d.last_attempt_at, a.started_at
           from webhook._delivery d
           join webhook._attempt a
             on a.event_id = d.event_id and a.endpoint_id = d.endpoint_id and a.attempt_no = d.attempt_count
          where d.last_error_category is distinct from 'expired'
            and (d.last_attempt_at, d.last_status, d.last_error_category, d.last_latency_ms)
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
             -- A suspect waits for another one in the due table alone, a second at a time.
             or (d.next_attempt_at <> w.next_attempt_at and not (w.deaths >= 3 and w.next_attempt_at > d.next_attempt_at))",
    ),
    (
        "a row of the due table is held for known reasons, and served in a known class",
        "select event_id, endpoint_id, hold, class, deaths from webhook._due
          where hold not between 0 and 31 or class not in (0, 1, 2) or deaths < 0",
    ),
    (
        "only what has a subject is held for order",
        "select event_id, endpoint_id, hold from webhook._due where (hold & 2) <> 0 and subject_key is null",
    ),
    (
        "only what took down several lives of the leader is in quarantine",
        "select event_id, endpoint_id, hold, deaths from webhook._due where (hold & 4) <> 0 and deaths < 3",
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

/// Must hold as soon as nothing more is emitted or asked for and no request is on the wire, whatever still waits.
pub const SETTLED: &[(&str, &str)] = &[
    (
        "every event that is not fenced stands in the feed",
        "select e.event_id, e.xid from webhook._event e
          where e.origin = webhook._origin()
            and not exists (select from webhook._feed f where f.event_id = e.event_id)
            and not exists (select from webhook._fenced f where f.event_id = e.event_id)",
    ),
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
    (
        "nothing waits for an endpoint that is closed",
        "select d.event_id, d.endpoint_id, p.state
           from webhook._due d
           join webhook._effective_endpoint p using (endpoint_id)
          where p.state in ('disabled', 'expired', 'deleted')",
    ),
    (
        "nothing is held for a type that is not paused",
        "select d.event_id, d.endpoint_id, e.type
           from webhook._due d
           join webhook._event e using (event_id)
          where (d.hold & 1) <> 0
            and not exists (select from webhook._pause p
                             where p.scope = 'event_type' and p.target = e.type and p.paused)",
    ),
    (
        "what is held for order waits for another event of its subject",
        "select d.event_id, d.endpoint_id, d.subject_key
           from webhook._due d
          where (d.hold & 2) <> 0
            and not exists (select from webhook._due o
                             where o.endpoint_id = d.endpoint_id and o.subject_key = d.subject_key
                               and (o.hold & 2) = 0)",
    ),
];

/// Must hold when all that was emitted has been delivered and nothing more is emitted.
pub const AT_REST: &[(&str, &str)] = &[(
    "nothing is due",
    "select event_id, endpoint_id, next_attempt_at from webhook._due",
)];

/// Must hold as long as nobody replays.
pub const NEVER_REPLAYED: &[(&str, &str)] = &[
    (
        "a delivery is delivered once, by its last attempt",
        "select event_id, endpoint_id, min(attempt_no), max(attempt_no), d.state, d.attempt_count
           from webhook.attempts a
           join webhook._delivery d using (event_id, endpoint_id)
          where a.outcome = 'delivered'
          group by event_id, endpoint_id, d.state, d.attempt_count
         having count(*) > 1 or d.state <> 'delivered' or max(attempt_no) <> d.attempt_count",
    ),
    (
        "what is delivered was delivered by an attempt",
        "select d.event_id, d.endpoint_id, d.attempt_count from webhook._delivery d
          where d.state = 'delivered'
            and not exists (select from webhook.attempts a
                             where a.event_id = d.event_id and a.endpoint_id = d.endpoint_id
                               and a.outcome = 'delivered')",
    ),
];

/// Must hold of pauses that were resumed and pauses that were not: while one is in force nothing starts. A lost
/// attempt shows the time of its finding, not that of its start.
pub const PAUSES_HOLD: &[(&str, &str)] = &[(
    "nothing starts while it is paused",
    "with pause as materialized (
       select p.scope, coalesce(p.target, '') as target, p.finished_at as since,
              coalesce((select min(r.requested_at) from webhook._request r
                         where r.verb = 'resume' and r.state <> 'refused' and r.scope = p.scope
                           and r.target is not distinct from p.target and r.requested_at > p.requested_at),
                       'infinity') as until
         from webhook._request p
        where p.verb = 'pause' and p.state = 'done')
     select a.event_id, a.endpoint_id, a.attempt_no, a.started_at, w.scope, w.target, w.since, w.until
       from webhook.attempts a
       join webhook._event e using (event_id)
       join pause w
         -- What was handed to a thread just before may begin a moment later, on a busy machine a long one.
         on a.started_at > w.since + interval '1 second' and a.started_at < w.until
        and case w.scope
              when 'all' then true
              when 'partner' then e.partner_id = w.target
              when 'event_type' then e.type = w.target
              else a.endpoint_id::text = w.target
            end
      where a.error_category is distinct from 'lost'",
)];

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
