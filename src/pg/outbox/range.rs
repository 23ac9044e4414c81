//! Replays of a range: what was asked, the rows of the feed in it with what is known of their events, and how far a
//! replay has come. All that one round does is written together with that.

use std::collections::HashMap;

use super::reading::{Seen, columns, read_places};
use super::statement::{run, select, statement};
use crate::rules::ids::{EndpointId, EventId, Pair};

/// Which deliveries are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Every one, and what is missing.
    All,
    /// What is dead or cancelled.
    Failed,
    /// What was never made.
    Missing,
}

/// A replay that is not finished.
pub struct ReplayRow {
    pub request: i64,
    pub partner: Option<String>,
    pub endpoint: Option<EndpointId>,
    /// Positions: the first one that is meant, and the first one behind the range.
    pub range: (i64, i64),
    pub types: Option<Vec<String>>,
    pub test: bool,
    pub only: Only,
    /// Deliveries per second.
    pub rate: i32,
    /// Keyset of the last row looked at; none = it has not begun.
    pub reached: Option<(String, i64)>,
}

/// A row of the feed.
pub struct FeedRow {
    pub place: (String, i64),
    pub event: String,
    pub kind: String,
    pub test: bool,
}

/// What one round adds to the counts, in the order of the columns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub looked_at: i64,
    pub made: i64,
    pub again: i64,
    pub under_way: i64,
    pub unwanted: i64,
    pub closed: i64,
    pub expunged: i64,
    pub fenced: i64,
    pub expired: i64,
}

/// After every partner id in the order of bytes.
const BEHIND_ALL: &str = "~";

statement!(
    REPLAY,
    [i64, i64],
    "select r.request_id, r.partner_id, r.endpoint_id, r.pos_from, r.pos_to, r.event_types, r.test, r.which,
            r.rate, p.partner_id, p.pos
       from webhook._replay as r
       left join webhook._replay_progress as p on p.request_id = r.request_id
      where r.request_id = $1
        and r.origin = $2
        and coalesce(p.state, 'running') = 'running'"
);

// The upper bound of the partner keeps the end of a walk from passing over everybody else's rows.
statement!(
    WALK,
    [&str, i64, &str, i64, i64, i64],
    "select f.partner_id, f.pos, f.event_id, f.type, f.test
       from webhook._feed as f
      where (f.partner_id, f.pos) > ($1, $2)
        and f.partner_id <= $3
        and f.pos >= $4
        and f.pos < $5
      order by f.partner_id, f.pos
      limit $6"
);

// The payload is not needed to decide: whether it is there is.
statement!(FACTS, [Vec<&str>], concat!(
    "select ", columns!(), "
       from (select e.xid, e.event_id, e.partner_id, e.type, e.source, e.occurred_at, e.subject_type, e.subject_id,
                    e.subject_version, e.scope, e.schema_version, e.correlation_id, e.causation, e.traceparent, e.test,
                    case when e.body is not null then '' end as body, e.seal_key, e.seal, e.body_sha256, e.origin
               from webhook._event as e
              where e.event_id = any ($1)) as w"));

statement!(
    STATES,
    [Vec<&str>, &str],
    "select d.event_id, d.endpoint_id, case when d.state = 'cancelled' and d.reason = $2 then 'unmatched' else d.state end
       from webhook._delivery as d
      where d.event_id = any ($1)"
);

statement!(
    BEGIN,
    [i64, &str, i64],
    "insert into webhook._replay_progress (request_id, state, partner_id, pos)
     values ($1, 'running', $2, $3)
     on conflict do nothing"
);

statement!(ADVANCE, [i64, &str, i64, Vec<i64>, bool],
    "update webhook._replay_progress as p
        set partner_id = $2,
            pos = $3,
            looked_at = p.looked_at + ($4)[1],
            made = p.made + ($4)[2],
            again = p.again + ($4)[3],
            under_way = p.under_way + ($4)[4],
            unwanted = p.unwanted + ($4)[5],
            closed = p.closed + ($4)[6],
            expunged = p.expunged + ($4)[7],
            fenced = p.fenced + ($4)[8],
            expired = p.expired + ($4)[9],
            state = case when $5 then 'done' else p.state end,
            finished_at = case when $5 then pg_catalog.clock_timestamp() end
      where p.request_id = $1
        and p.state = 'running'
     returning p.looked_at, p.made, p.again, p.under_way, p.unwanted, p.closed, p.expunged, p.fenced, p.expired");

statement!(CANCEL, [i64],
    "insert into webhook._replay_progress as p (request_id, state, partner_id, pos, finished_at)
     values ($1, 'cancelled', '', 0, pg_catalog.clock_timestamp())
     on conflict (request_id) do update
        set state = 'cancelled', finished_at = excluded.finished_at
      where p.state = 'running'
     returning p.looked_at, p.made, p.again, p.under_way, p.unwanted, p.closed, p.expunged, p.fenced, p.expired");

/// A replay of this database that is not finished.
pub fn unfinished_replay(request: i64, own: i64) -> Option<ReplayRow> {
    select(&REPLAY, &[request.into(), own.into()], |mut rows| {
        rows.next().and_then(|row| {
            let text = |index: usize| row.get::<String>(index).ok().flatten();
            let number = |index: usize| row.get::<i64>(index).ok().flatten();
            Some(ReplayRow {
                request: number(1)?,
                partner: text(2),
                endpoint: number(3).map(EndpointId),
                range: (number(4)?, number(5)?),
                types: row
                    .get::<Vec<Option<String>>>(6)
                    .ok()
                    .flatten()
                    .map(|types| types.into_iter().flatten().collect()),
                test: row.get::<bool>(7).ok().flatten()?,
                only: match text(8)?.as_str() {
                    "failed" => Only::Failed,
                    "missing" => Only::Missing,
                    _ => Only::All,
                },
                rate: row.get::<i32>(9).ok().flatten()?,
                reached: text(10).zip(number(11)),
            })
        })
    })
}

/// Writes that a replay has begun; returns the keyset that its first row is behind.
pub fn begin_replay(replay: &ReplayRow) -> (String, i64) {
    let first = match &replay.partner {
        Some(partner) => (partner.clone(), replay.range.0.saturating_sub(1)),
        None => (String::new(), 0),
    };
    run(
        &BEGIN,
        &[
            replay.request.into(),
            first.0.as_str().into(),
            first.1.into(),
        ],
        |_| (),
    );
    first
}

/// The next rows of the feed that are in the range, whatever their type.
pub fn walk_feed(replay: &ReplayRow, after: &(String, i64), limit: usize) -> Vec<FeedRow> {
    let last = replay.partner.as_deref().unwrap_or(BEHIND_ALL);
    select(
        &WALK,
        &[
            after.0.as_str().into(),
            after.1.into(),
            last.into(),
            replay.range.0.into(),
            replay.range.1.into(),
            i64::try_from(limit).unwrap_or(i64::MAX).into(),
        ],
        |rows| {
            rows.filter_map(|row| {
                let text = |index: usize| row.get::<String>(index).ok().flatten();
                Some(FeedRow {
                    place: (text(1)?, row.get::<i64>(2).ok().flatten()?),
                    event: text(3)?,
                    kind: text(4)?,
                    test: row.get::<bool>(5).ok().flatten()?,
                })
            })
            .collect()
        },
    )
}

/// These events without their payload; an empty one stands for one that is there.
pub fn facts_of(events: &[&str]) -> HashMap<String, Seen> {
    if events.is_empty() {
        return HashMap::new();
    }
    let seen = select(&FACTS, &[events.to_vec().into()], read_places);
    seen.into_iter()
        .map(|seen| (seen.place.1.clone(), seen))
        .collect()
}

/// Every delivery of these events, with its state.
pub fn states_of(events: &[&str], unmatched: &str) -> HashMap<EventId, Vec<(EndpointId, String)>> {
    let mut states: HashMap<EventId, Vec<(EndpointId, String)>> = HashMap::new();
    if events.is_empty() {
        return states;
    }
    let found: Vec<(Pair, String)> = select(
        &STATES,
        &[events.to_vec().into(), unmatched.into()],
        |rows| {
            rows.filter_map(|row| {
                let pair = Pair {
                    event: row.get::<String>(1).ok().flatten()?.parse().ok()?,
                    endpoint: EndpointId(row.get::<i64>(2).ok().flatten()?),
                };
                Some((pair, row.get::<String>(3).ok().flatten()?))
            })
            .collect()
        },
    );
    for (pair, state) in found {
        states
            .entry(pair.event)
            .or_default()
            .push((pair.endpoint, state));
    }
    states
}

/// Writes how far a replay has come; returns the counts of the whole replay. None = it is not running any more.
pub fn advance_replay(
    request: i64,
    reached: &(String, i64),
    progress: &Progress,
    done: bool,
) -> Option<Progress> {
    let counts = vec![
        progress.looked_at,
        progress.made,
        progress.again,
        progress.under_way,
        progress.unwanted,
        progress.closed,
        progress.expunged,
        progress.fenced,
        progress.expired,
    ];
    run(
        &ADVANCE,
        &[
            request.into(),
            reached.0.as_str().into(),
            reached.1.into(),
            counts.into(),
            done.into(),
        ],
        read_progress,
    )
}

/// Ends a replay, begun or not; returns what it has done. None = it was finished already.
pub fn end_replay(request: i64) -> Option<Progress> {
    run(&CANCEL, &[request.into()], read_progress)
}

fn read_progress(mut rows: pgrx::spi::SpiTupleTable<'_>) -> Option<Progress> {
    let row = rows.next()?;
    let number = |index: usize| row.get::<i64>(index).ok().flatten();
    Some(Progress {
        looked_at: number(1)?,
        made: number(2)?,
        again: number(3)?,
        under_way: number(4)?,
        unwanted: number(5)?,
        closed: number(6)?,
        expunged: number(7)?,
        fenced: number(8)?,
        expired: number(9)?,
    })
}
