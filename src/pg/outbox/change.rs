//! What became of pairs, as the leader hands it over to be written.

use std::sync::Arc;

use crate::rules::delivery::{Category, Phase};
use crate::rules::ids::Pair;

use super::alerts::Alert;
use super::conditions::ConditionRow;

/// Why a row of the due table may not be sent now, a bit each.
pub mod hold {
    /// The event's type is paused.
    pub const EVENT_TYPE: i32 = 1;
    /// An earlier event of the same subject is not settled.
    pub const ORDER: i32 = 2;
    /// The leader ended too often while the pair was in doubt.
    pub const QUARANTINE: i32 = 4;
    /// The endpoint's filter could not be asked, or could not say.
    pub const FILTER: i32 = 8;
    /// There is no payload of the schema version that the endpoint wants.
    pub const CONVERSION: i32 = 16;
    /// The event is of an origin that is not adopted.
    pub const ORIGIN: i32 = 32;
}

/// A bounded response body, made storable.
#[derive(Clone)]
pub struct Excerpt(pub String);

/// What became of one pair.
#[derive(Clone)]
pub struct Change {
    pub pair: Pair,
    /// The batch that waits for this row.
    pub batch: i64,
    pub revision: i32,
    pub class: i16,
    pub series_start: i32,
    /// State of the delivery from now on.
    pub state: &'static str,
    pub reason: Option<String>,
    /// Attempts made so far, this one counted.
    pub attempt_count: i32,
    /// The attempt that led here; none when the pair is parked or cancelled.
    pub attempt: Option<Attempted>,
    /// Why there is none any more, where no attempt says it.
    pub category: Option<Category>,
    /// When the next attempt is due, its stamp in the due table; none when there is none.
    pub next_attempt_at: Option<i64>,
    /// Why it may not be made even then: bits of [`hold`].
    pub hold: i32,
    /// Start of the first attempt of the series; none = not made yet.
    pub series_at: Option<i64>,
    /// Lives of the leader that ended while the pair was in doubt, in a row.
    pub deaths: i16,
    /// Subject whose order is kept.
    pub subject: Option<Arc<str>>,
    /// Where the pair came from: its row of the due table, or none for a first pass.
    pub due: Option<i64>,
    /// The request is under way: the time in the due table is a precaution, not a plan.
    pub on_wire: bool,
}

/// One attempt.
#[derive(Clone)]
pub struct Attempted {
    pub started_at: i64,
    pub latency_ms: Option<i32>,
    pub status: Option<i16>,
    pub category: Option<Category>,
    pub phase: Option<Phase>,
    pub detail: Option<String>,
    pub key_ids: Vec<i64>,
    pub body_sha256: Option<[u8; 32]>,
    pub response_bytes: i64,
    pub excerpt: Option<Excerpt>,
}

/// Everything one flush writes.
#[derive(Default)]
pub struct Outcomes {
    pub changes: Vec<Change>,
    /// Batches all of whose pairs have a row now.
    pub closed: Vec<i64>,
    /// Pairs that stay on the wire although their batch is closed: (pair, attempt) per new batch.
    pub claims: Vec<(i64, Vec<(Pair, i32)>)>,
    /// Events that were found altered when they were to be sent again.
    pub fenced: Vec<String>,
    /// Delivered pairs that are sent once more, with their class: tests of duplicates.
    pub again: Vec<(Pair, i16)>,
    /// What is known of endpoints by now.
    pub conditions: Vec<ConditionRow>,
    /// What operators and partners are told.
    pub alerts: Vec<Alert>,
}
