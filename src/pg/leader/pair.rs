//! A pair in memory: an event's bytes for one endpoint, waiting or on the wire.

use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::pg::outbox::Change;
use crate::rules::envelope::{self, Event};
use crate::rules::ids::Pair;

/// What is sent of an event: made once, shared by all of its pairs.
pub struct Message {
    pub body: Arc<str>,
    pub digest: [u8; 32],
    pub traceparent: Option<String>,
    pub class: i16,
}

impl Message {
    /// Builds the bytes of an event. The same event always gives the same bytes.
    pub fn new(event: &Event, class: i16) -> Arc<Message> {
        let body = envelope::body(event);
        Arc::new(Message {
            digest: Sha256::digest(body.as_bytes()).into(),
            body: Arc::from(body),
            traceparent: event.traceparent.clone(),
            class,
        })
    }
}

/// A pair that waits for its turn.
pub struct Waiting {
    pub pair: Pair,
    pub message: Arc<Message>,
    pub revision: i32,
    /// Attempts made so far, and those before the current series.
    pub attempt_count: i32,
    pub series_start: i32,
    /// Batch that stays open until the pair has a row.
    pub batch: i64,
    /// Its row in the due table; none in a first pass.
    pub due: Option<i64>,
}

impl Waiting {
    /// What became of the pair, but for what the caller adds: nothing more than its new state.
    pub fn change(&self, state: &'static str) -> Change {
        Change {
            pair: self.pair,
            batch: self.batch,
            revision: self.revision,
            class: self.message.class,
            series_start: self.series_start,
            state,
            reason: None,
            attempt_count: self.attempt_count,
            attempt: None,
            next_attempt_at: None,
            due: self.due,
            on_wire: false,
        }
    }
}

/// A pair whose request is under way.
pub struct Flight {
    pub waiting: Waiting,
    pub begun: Instant,
    /// Generation of the endpoint when it was sent.
    pub generation: i64,
    /// Has outlasted the first pass.
    pub overdue: bool,
    /// Its endpoint closed meanwhile: why, and that it is not tried again.
    pub cancelled: Option<String>,
}
