//! What reconciliation found broken and the leader can mend: a delivery and its row in the due table that do not go
//! together.

use pgrx::prelude::*;

use super::newcomer::Belated;
use super::statement::{run, statement};
use super::timestamp;
use crate::rules::ids::EndpointId;

// Waits for nothing any more.
statement!(DROP_SETTLED, [Vec<&str>, Vec<i64>],
    "delete from webhook._due as w
      using unnest($1, $2) as r (event, endpoint), webhook._delivery as d
      where w.event_id = r.event and w.endpoint_id = r.endpoint
        and d.event_id = r.event and d.endpoint_id = r.endpoint
        and d.state not in ('pending', 'retrying')
     returning w.endpoint_id");

statement!(TELL_WAITING, [Vec<&str>, Vec<i64>],
    "insert into webhook._delivery (event_id, endpoint_id, state, attempt_count, series_start, revision, next_attempt_at)
     select w.event_id, w.endpoint_id, case when w.series_at is null then 'pending' else 'retrying' end,
            w.attempt_count, w.series_start, p.revision, w.next_attempt_at
       from unnest($1, $2) as r (event, endpoint)
       join webhook._due as w on w.event_id = r.event and w.endpoint_id = r.endpoint
       join webhook._endpoint as p on p.endpoint_id = r.endpoint
     on conflict do nothing
     returning endpoint_id");

statement!(MAKE_DUE, [Vec<&str>, Vec<i64>, Vec<i16>, TimestampWithTimeZone, Vec<i32>, Vec<Option<&str>>],
    "insert into webhook._due (event_id, endpoint_id, class, next_attempt_at, attempt_count, series_start, hold, subject_key)
     select d.event_id, d.endpoint_id, r.class, $4, d.attempt_count, d.series_start, r.hold, r.subject
       from unnest($1, $2, $3, $5, $6) as r (event, endpoint, class, hold, subject)
       join webhook._delivery as d on d.event_id = r.event and d.endpoint_id = r.endpoint
      where d.state in ('pending', 'retrying')
     on conflict do nothing
     returning endpoint_id, class");

/// What was mended.
pub struct Mended {
    /// Rows of the due table that nothing waited for.
    pub dropped: usize,
    /// Deliveries that a row of the due table was about.
    pub told: usize,
    /// Queues of deliveries that nobody would have sent.
    pub due: Vec<(EndpointId, i16)>,
}

/// Mends these pairs; what waits without being due is due at `at`, or held as they say.
pub fn mend_pairs(pairs: &[Belated], at: i64) -> Mended {
    let ids: Vec<String> = pairs.iter().map(|p| p.pair.event.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let endpoints: Vec<i64> = pairs.iter().map(|p| p.pair.endpoint.0).collect();
    let classes: Vec<i16> = pairs.iter().map(|p| p.class).collect();
    let holds: Vec<i32> = pairs.iter().map(|p| p.hold).collect();
    let subjects: Vec<Option<&str>> = pairs.iter().map(|p| p.subject.as_deref()).collect();
    let keys = [ids.clone().into(), endpoints.clone().into()];
    Mended {
        dropped: run(&DROP_SETTLED, &keys, |rows| rows.len()),
        told: run(&TELL_WAITING, &keys, |rows| rows.len()),
        due: run(
            &MAKE_DUE,
            &[
                ids.into(),
                endpoints.into(),
                classes.into(),
                timestamp(at).into(),
                holds.into(),
                subjects.into(),
            ],
            |rows| {
                rows.filter_map(|row| {
                    Some((
                        EndpointId(row.get::<i64>(1).ok().flatten()?),
                        row.get::<i16>(2).ok().flatten()?,
                    ))
                })
                .collect()
            },
        ),
    }
}
