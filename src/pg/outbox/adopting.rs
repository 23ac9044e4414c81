//! Adoptions: which origins are taken over, the events and deliveries that came with them, and what becomes
//! of those. All that one round does is written together with how far it has come.

use std::collections::HashSet;

use pgrx::prelude::*;

use super::change::hold;
use super::due::{NextDue, read_next_row};
use super::newcomer::Belated;
use super::reading::{Seen, columns, read_places};
use super::statement::{run, select, statement};
use super::timestamp;
use crate::rules::ids::{EndpointId, EventId, Pair};
use crate::rules::snapshot::Snapshot;

/// An adoption that is not finished.
pub struct AdoptionRow {
    pub request: i64,
    pub origin: i64,
    /// What was still to be sent is sent; otherwise it is skipped.
    pub send: bool,
    pub reason: String,
    pub xid: u64,
    /// Own events visible in it were missed by the endpoints.
    pub snapshot: Snapshot,
    /// None = it has not begun.
    pub reached: Option<Reached>,
}

/// How far an adoption has come.
#[derive(Clone)]
pub struct Reached {
    /// Last event looked at.
    pub event: String,
    /// Ends of the feed as it was when the adoption began, and of what may have been in a memory then.
    pub feed_to: i64,
    pub feed_tail: i64,
}

/// An origin that an endpoint belonged to, and since when by that origin's transactions.
pub struct Membership {
    pub endpoint: EndpointId,
    pub origin: i64,
    pub created_xid: u64,
    pub created_snapshot: Snapshot,
}

/// A delivery of an old event.
pub struct OldDelivery {
    pub pair: Pair,
    /// Pending or retrying.
    pub open: bool,
    /// It has a row in the due table that says when it is sent.
    pub queued: bool,
}

/// What one round adds to the counts.
#[derive(Default)]
pub struct Counts {
    pub events: usize,
    pub published: usize,
    pub made: usize,
    pub resumed: usize,
    pub skipped: usize,
    pub tampered: usize,
}

// What is skipped is settled before anything of the origin may be sent.
statement!(
    ADMITTED,
    [i64],
    "select a.origin
       from webhook._adoption as a
       left join webhook._adoption_progress as p on p.request_id = a.request_id
      where a.adopter = $1
        and (a.mode = 'send' or p.state = 'done')"
);

statement!(
    LAST_POS,
    [],
    "select pg_catalog.max(p.last_pos) from webhook._adoption_progress as p"
);

statement!(
    UNFINISHED,
    [i64],
    "select a.request_id, a.origin, a.mode = 'send', a.reason, a.xid::text, a.snapshot::text,
            p.reached, p.feed_to, p.feed_tail
       from webhook._adoption as a
       left join webhook._adoption_progress as p on p.request_id = a.request_id
      where a.adopter = $1
        and p.state is distinct from 'done'
      order by a.request_id
      limit 1"
);

statement!(
    MEMBERSHIPS,
    [i64],
    "select m.endpoint_id, m.origin, m.created_xid::text, m.created_snapshot::text
       from webhook._adopted_endpoint as m
      where m.endpoint_id in (select o.endpoint_id from webhook._adopted_endpoint as o where o.origin = $1)"
);

// Own events that the endpoints' transaction did not see are the window's.
statement!(EVENTS, [Vec<i64>, i64, &str, &str, &str, i32, i64], concat!(
    "select ", columns!(), "
       from (select e.*,
                    pg_catalog.sum(coalesce(pg_catalog.octet_length(e.body), 0)) over (order by e.event_id rows unbounded preceding)
                      - coalesce(pg_catalog.octet_length(e.body), 0) as bytes_before
               from (select * from webhook._event as e
                      where e.event_id > $5
                        and (e.origin = any ($1)
                             or (e.origin = $2
                                 and e.xid <> $4::xid8
                                 and pg_catalog.pg_visible_in_snapshot(e.xid, $3::pg_snapshot)))
                      order by e.event_id
                      limit $6) as e) as w
      where w.bytes_before < $7
      order by w.event_id"));

statement!(DELIVERIES, [Vec<&str>, i32],
    "select d.event_id, d.endpoint_id, d.state in ('pending', 'retrying'), coalesce((w.hold & $2) = 0, false)
       from webhook._delivery as d
       left join webhook._due as w on w.event_id = d.event_id and w.endpoint_id = d.endpoint_id
      where d.event_id = any ($1)");

statement!(
    FENCED,
    [Vec<&str>],
    "select f.event_id from webhook._fenced as f where f.event_id = any ($1)"
);

statement!(PUBLISHED, [Vec<&str>, Vec<&str>, i64, i64],
    "select f.event_id
       from unnest($1) as r (partner)
       join webhook._feed as f on f.partner_id = r.partner and f.pos >= $3 and f.pos <= $4
      where f.event_id = any ($2)");

statement!(NEWEST, [Vec<&str>, i64, i64],
    "select pg_catalog.max(l.pos)
       from unnest($1) as r (partner)
      cross join lateral (
        select f.pos
          from webhook._feed as f
          join webhook._event as e on e.event_id = f.event_id
         where f.partner_id = r.partner
           and f.pos <= $3
           and e.origin = $2
         order by f.pos desc
         limit 1) as l");

// A pair that is there already keeps its state: only new ones become due.
statement!(MAKE, [Vec<&str>, Vec<i64>, Vec<i32>, Vec<i16>, TimestampWithTimeZone, Vec<i32>, Vec<Option<&str>>],
    "with made as (
       insert into webhook._delivery (event_id, endpoint_id, state, attempt_count, series_start, revision, next_attempt_at, last_error_category)
       select r.event, r.endpoint, 'pending', 0, 0, r.revision, case when r.hold = 0 then $5 end,
              case when (r.hold & 8) <> 0 then 'filter' end
         from unnest($1, $2, $3, $6) as r (event, endpoint, revision, hold)
       on conflict do nothing
       returning event_id, endpoint_id)
     insert into webhook._due (
       event_id, endpoint_id, class, next_attempt_at, attempt_count, series_start, hold, subject_key)
     select m.event_id, m.endpoint_id, r.class, $5, 0, 0, r.hold, r.subject
       from made as m
       join unnest($1, $2, $4, $6, $7) as r (event, endpoint, class, hold, subject)
         on r.event = m.event_id and r.endpoint = m.endpoint_id
     returning endpoint_id, class, next_attempt_at, hold");

// The schedule goes on where it was, but not before now: a claim must not have passed the row.
statement!(RESUME, [Vec<&str>, Vec<i64>, Vec<i16>, TimestampWithTimeZone, Vec<i32>, Vec<Option<&str>>, i32],
    "insert into webhook._due as w (
       event_id, endpoint_id, class, next_attempt_at, attempt_count, series_start, hold, subject_key, series_at)
     select d.event_id, d.endpoint_id, r.class, greatest(d.next_attempt_at, $4), d.attempt_count, d.series_start,
            r.hold, r.subject,
            case when d.state = 'retrying' then
              coalesce((select a.started_at
                          from webhook._attempt as a
                         where a.event_id = d.event_id
                           and a.endpoint_id = d.endpoint_id
                           and a.attempt_no = d.series_start + 1), d.last_attempt_at)
            end
       from unnest($1, $2, $3, $5, $6) as r (event, endpoint, class, hold, subject)
       join webhook._delivery as d on d.event_id = r.event and d.endpoint_id = r.endpoint
      where d.state in ('pending', 'retrying')
     on conflict (event_id, endpoint_id) do update
        set hold = excluded.hold,
            subject_key = excluded.subject_key,
            next_attempt_at = greatest(w.next_attempt_at, excluded.next_attempt_at)
      where (w.hold & $7) <> 0
     returning w.endpoint_id, w.class, w.next_attempt_at, w.hold");

statement!(BEGIN, [i64, i64, i64],
    "insert into webhook._adoption_progress (request_id, state, reached, feed_to, feed_tail, last_pos)
     values ($1, 'running', '', $2, $3, 0)
     on conflict do nothing");

statement!(ADVANCE, [i64, &str, i64, Vec<i64>, bool],
    "update webhook._adoption_progress as p
        set reached = $2,
            last_pos = greatest(p.last_pos, $3),
            events = p.events + ($4)[1],
            published = p.published + ($4)[2],
            made = p.made + ($4)[3],
            resumed = p.resumed + ($4)[4],
            skipped = p.skipped + ($4)[5],
            tampered = p.tampered + ($4)[6],
            state = case when $5 then 'done' else p.state end,
            finished_at = case when $5 then pg_catalog.clock_timestamp() end
      where p.request_id = $1
     returning p.made, p.resumed, p.skipped, p.tampered");

/// Origins whose events may be sent beside the own ones.
pub fn admitted_origins(own: i64) -> HashSet<i64> {
    select(&ADMITTED, &[own.into()], |rows| {
        rows.filter_map(|row| row.get::<i64>(1).ok().flatten())
            .collect()
    })
}

/// Last feed position that an adoption used.
pub fn last_adopted_pos() -> i64 {
    select(&LAST_POS, &[], |rows| {
        rows.first().get_one::<i64>().ok().flatten().unwrap_or(0)
    })
}

/// The oldest adoption by this database that is not finished.
pub fn unfinished_adoption(own: i64) -> Option<AdoptionRow> {
    select(&UNFINISHED, &[own.into()], |mut rows| {
        rows.next().and_then(|row| {
            let text = |index: usize| row.get::<String>(index).ok().flatten();
            let number = |index: usize| row.get::<i64>(index).ok().flatten();
            Some(AdoptionRow {
                request: number(1)?,
                origin: number(2)?,
                send: row.get::<bool>(3).ok().flatten()?,
                reason: text(4)?,
                xid: text(5)?.parse().ok()?,
                snapshot: text(6)?.parse().ok()?,
                reached: match (text(7), number(8), number(9)) {
                    (Some(event), Some(feed_to), Some(feed_tail)) => Some(Reached {
                        event,
                        feed_to,
                        feed_tail,
                    }),
                    _ => None,
                },
            })
        })
    })
}

/// Every origin that the endpoints of this origin belonged to.
pub fn memberships(origin: i64) -> Vec<Membership> {
    select(&MEMBERSHIPS, &[origin.into()], |rows| {
        rows.filter_map(|row| {
            let text = |index: usize| row.get::<String>(index).ok().flatten();
            Some(Membership {
                endpoint: EndpointId(row.get::<i64>(1).ok().flatten()?),
                origin: row.get::<i64>(2).ok().flatten()?,
                created_xid: text(3)?.parse().ok()?,
                created_snapshot: text(4)?.parse().ok()?,
            })
        })
        .collect()
    })
}

/// Events after `after` in the order of their ids: those of `origins`, and own ones that the adoption's
/// transaction saw.
pub fn old_events(
    origins: &[i64],
    own: i64,
    adoption: (&Snapshot, u64),
    after: &str,
    limit: i32,
    bytes: i64,
) -> Vec<Seen> {
    select(
        &EVENTS,
        &[
            origins.to_vec().into(),
            own.into(),
            adoption.0.to_string().as_str().into(),
            adoption.1.to_string().as_str().into(),
            after.into(),
            limit.into(),
            bytes.into(),
        ],
        read_places,
    )
}

/// Every delivery of these events.
pub fn old_deliveries(events: &[&str]) -> Vec<OldDelivery> {
    select(
        &DELIVERIES,
        &[events.to_vec().into(), hold::ORIGIN.into()],
        |rows| {
            rows.filter_map(|row| {
                let event: EventId = row.get::<String>(1).ok().flatten()?.parse().ok()?;
                Some(OldDelivery {
                    pair: Pair {
                        event,
                        endpoint: EndpointId(row.get::<i64>(2).ok().flatten()?),
                    },
                    open: row.get::<bool>(3).ok().flatten()?,
                    queued: row.get::<bool>(4).ok().flatten()?,
                })
            })
            .collect()
        },
    )
}

/// Those of these events that are fenced already.
pub fn fenced_of(events: &[&str]) -> HashSet<String> {
    select(&FENCED, &[events.to_vec().into()], |rows| {
        rows.filter_map(|row| row.get::<String>(1).ok().flatten())
            .collect()
    })
}

/// Those of these events that stand in the feed of their partners between two positions.
pub fn published_of(partners: &[&str], events: &[&str], from: i64, to: i64) -> HashSet<String> {
    if events.is_empty() || from > to {
        return HashSet::new();
    }
    select(
        &PUBLISHED,
        &[
            partners.to_vec().into(),
            events.to_vec().into(),
            from.into(),
            to.into(),
        ],
        |rows| {
            rows.filter_map(|row| row.get::<String>(1).ok().flatten())
                .collect()
        },
    )
}

/// Newest position up to `to` of an event of this origin in the feeds of these partners; 0 = none.
pub fn newest_published(partners: &[&str], origin: i64, to: i64) -> i64 {
    select(
        &NEWEST,
        &[partners.to_vec().into(), origin.into(), to.into()],
        |rows| rows.first().get_one::<i64>().ok().flatten().unwrap_or(0),
    )
}

/// Makes these pairs, due at `at`, unless they exist; returns those that may be sent, and how many there are.
pub fn make_pairs(pairs: &[Belated], at: i64) -> (Vec<NextDue>, usize) {
    if pairs.is_empty() {
        return (Vec::new(), 0);
    }
    let ids: Vec<String> = pairs.iter().map(|p| p.pair.event.to_string()).collect();
    run(
        &MAKE,
        &[
            ids.iter().map(String::as_str).collect::<Vec<_>>().into(),
            endpoints(pairs).into(),
            pairs.iter().map(|p| p.revision).collect::<Vec<_>>().into(),
            pairs.iter().map(|p| p.class).collect::<Vec<_>>().into(),
            timestamp(at).into(),
            pairs.iter().map(|p| p.hold).collect::<Vec<_>>().into(),
            subjects(pairs).into(),
        ],
        free_and_all,
    )
}

/// Puts open deliveries back into the due table, not before `at`.
pub fn resume_pairs(pairs: &[Belated], at: i64) -> (Vec<NextDue>, usize) {
    if pairs.is_empty() {
        return (Vec::new(), 0);
    }
    let ids: Vec<String> = pairs.iter().map(|p| p.pair.event.to_string()).collect();
    run(
        &RESUME,
        &[
            ids.iter().map(String::as_str).collect::<Vec<_>>().into(),
            endpoints(pairs).into(),
            pairs.iter().map(|p| p.class).collect::<Vec<_>>().into(),
            timestamp(at).into(),
            pairs.iter().map(|p| p.hold).collect::<Vec<_>>().into(),
            subjects(pairs).into(),
            hold::ORIGIN.into(),
        ],
        free_and_all,
    )
}

fn endpoints(pairs: &[Belated]) -> Vec<i64> {
    pairs.iter().map(|p| p.pair.endpoint.0).collect()
}

fn subjects(pairs: &[Belated]) -> Vec<Option<&str>> {
    pairs.iter().map(|p| p.subject.as_deref()).collect()
}

fn free_and_all(rows: pgrx::spi::SpiTupleTable<'_>) -> (Vec<NextDue>, usize) {
    let all = rows.len();
    let free = rows
        .filter_map(|row| {
            (row.get::<i32>(4).ok().flatten()? == 0).then_some(())?;
            read_next_row(&row)
        })
        .collect();
    (free, all)
}

/// Begins an adoption: nothing was looked at yet.
pub fn begin_adoption(request: i64, feed_to: i64, feed_tail: i64) {
    run(
        &BEGIN,
        &[request.into(), feed_to.into(), feed_tail.into()],
        |_| (),
    );
}

/// Writes how far an adoption has come; returns deliveries made, resumed, skipped, and tampered events, of the
/// whole adoption.
pub fn advance_adoption(
    request: i64,
    reached: &str,
    last_pos: i64,
    counts: &Counts,
    done: bool,
) -> [i64; 4] {
    let numbers: Vec<i64> = [
        counts.events,
        counts.published,
        counts.made,
        counts.resumed,
        counts.skipped,
        counts.tampered,
    ]
    .into_iter()
    .map(|n| i64::try_from(n).unwrap_or(i64::MAX))
    .collect();
    run(
        &ADVANCE,
        &[
            request.into(),
            reached.into(),
            last_pos.into(),
            numbers.into(),
            done.into(),
        ],
        |mut rows| {
            let mut sums = [0; 4];
            if let Some(row) = rows.next() {
                for (index, sum) in sums.iter_mut().enumerate() {
                    *sum = row.get::<i64>(index + 1).ok().flatten().unwrap_or(0);
                }
            }
            sums
        },
    )
}
