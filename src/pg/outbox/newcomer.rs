//! Events that were read before an endpoint appeared, although its creating transaction could not see
//! them: they belong to it all the same.

use std::sync::Arc;

use pgrx::prelude::*;

use super::statement::{run, select, statement};
use super::timestamp;
use crate::rules::ids::{EventId, Pair};
use crate::rules::snapshot::Snapshot;

/// A pair that is made after its event was read.
pub struct Belated {
    pub pair: Pair,
    pub revision: i32,
    pub class: i16,
    pub hold: i32,
    /// Subject whose order is kept.
    pub subject: Option<Arc<str>>,
}

/// An event that endpoints of its partner missed.
pub struct MissedEvent {
    pub event: EventId,
    pub partner_id: String,
    pub test: bool,
    pub kind: String,
    /// Kind and identity of its subject, joined.
    pub subject: Option<String>,
}

// Split like the window itself: what ran when the endpoints were made, and what began later. A condition
// on the oldest of them alone would read everything since, for as long as somebody's transaction is old. No index leads
// from a partner to its events, so all partners are asked for at once.
statement!(
    MISSED,
    [i64, Vec<&str>, &str, &str, &str],
    "select e.event_id, e.partner_id, e.test, e.type, e.subject_type || ':' || e.subject_id
       from webhook._event as e
      where e.origin = $1
        and e.partner_id in (select wanted.partner_id from unnest($2) as wanted (partner_id))
        and e.xid = any (array(select pg_catalog.pg_snapshot_xip($3::pg_snapshot)))
        and pg_catalog.pg_visible_in_snapshot(e.xid, $4::pg_snapshot)
        and e.body is not null
     union all
     select e.event_id, e.partner_id, e.test, e.type, e.subject_type || ':' || e.subject_id
       from webhook._event as e
      where e.origin = $1
        and e.partner_id in (select wanted.partner_id from unnest($2) as wanted (partner_id))
        and e.xid >= pg_catalog.pg_snapshot_xmax($3::pg_snapshot)
        and e.xid < $5::xid8
        and pg_catalog.pg_visible_in_snapshot(e.xid, $4::pg_snapshot)
        and e.body is not null"
);

// A pair that is there already keeps its state: only new ones become due.
statement!(ADD, [Vec<&str>, Vec<i64>, Vec<i32>, Vec<i16>, TimestampWithTimeZone, Vec<i32>, Vec<Option<&str>>],
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
         on r.event = m.event_id and r.endpoint = m.endpoint_id");

/// Events of these partners that `read` saw and `created` did not, with their types.
pub fn missed_events(
    origin: i64,
    partners: Vec<&str>,
    created: &Snapshot,
    read: &Snapshot,
) -> Vec<MissedEvent> {
    select(
        &MISSED,
        &[
            origin.into(),
            partners.into(),
            created.to_string().as_str().into(),
            read.to_string().as_str().into(),
            read.xmax().to_string().as_str().into(),
        ],
        |rows| {
            rows.filter_map(|row| {
                Some(MissedEvent {
                    event: row.get::<String>(1).ok().flatten()?.parse().ok()?,
                    partner_id: row.get::<String>(2).ok().flatten()?,
                    test: row.get::<bool>(3).ok().flatten()?,
                    kind: row.get::<String>(4).ok().flatten()?,
                    subject: row.get::<String>(5).ok().flatten(),
                })
            })
            .collect()
        },
    )
}

/// Makes these pairs, due at `at`, unless they exist.
pub fn add_belated(belated: &[Belated], at: i64) {
    let ids: Vec<String> = belated.iter().map(|b| b.pair.event.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let endpoints: Vec<i64> = belated.iter().map(|b| b.pair.endpoint.0).collect();
    let revisions: Vec<i32> = belated.iter().map(|b| b.revision).collect();
    let classes: Vec<i16> = belated.iter().map(|b| b.class).collect();
    run(
        &ADD,
        &[
            ids.into(),
            endpoints.into(),
            revisions.into(),
            classes.into(),
            timestamp(at).into(),
            belated.iter().map(|b| b.hold).collect::<Vec<_>>().into(),
            belated
                .iter()
                .map(|b| b.subject.as_deref())
                .collect::<Vec<_>>()
                .into(),
        ],
        |_| (),
    );
}
