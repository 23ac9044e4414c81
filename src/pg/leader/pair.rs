//! A pair in memory: an event's bytes for one endpoint, waiting or on the wire.

use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::configuration::{LIFECYCLE, TEST};
use crate::pg::outbox::Change;
use crate::rules::envelope::Event;
use crate::rules::ids::Pair;
use crate::rules::revision::Wanted;
use crate::rules::shape::{Shape, shape_of};
use crate::wire::job::Fault;

/// What is sent of an event in one shape: made once, shared by all of its pairs.
pub struct Message {
    pub body: Arc<str>,
    pub digest: [u8; 32],
    /// Content type, attributes and tracing.
    pub headers: Arc<Vec<(String, String)>>,
    pub class: i16,
    pub kind: String,
    /// Kind and identity of the event's subject, joined.
    pub subject: Option<Arc<str>>,
    /// What is wrong with it on purpose, in a test.
    pub fault: Option<Fault>,
}

impl Message {
    /// Builds the bytes of an event, whose data is of the version that is wanted. The same event in the same shape always
    /// gives the same bytes.
    pub fn new(event: &Event, class: i16, wanted: &Wanted) -> Arc<Message> {
        let fault = (event.kind == TEST).then(|| fault(&event.data)).flatten();
        let Shape { headers, mut body } = shape_of(event, wanted.format, &wanted.data);
        if fault == Some(Fault::Malformed) {
            // Signed as it is: the signature holds, and what it signs is no JSON.
            body.truncate(body.len().saturating_sub(1));
        }
        Arc::new(Message {
            digest: Sha256::digest(body.as_bytes()).into(),
            body: Arc::from(body),
            headers: Arc::new(headers),
            class,
            kind: event.kind.clone(),
            subject: subject_of(event),
            fault,
        })
    }

    /// What a pair has that is held at once: no bytes.
    pub fn unsent(event: &Event, class: i16) -> Arc<Message> {
        Arc::new(Message {
            digest: [0; 32],
            body: Arc::from(""),
            headers: Arc::default(),
            class,
            kind: event.kind.clone(),
            subject: subject_of(event),
            fault: None,
        })
    }

    /// Whether the outcome says something about an endpoint: what goes wrong with a test was meant to, and
    /// a lifecycle event that fails must raise no further one.
    pub fn counts(&self) -> bool {
        self.kind != TEST && !self.kind.starts_with(LIFECYCLE)
    }
}

/// Kind and identity of an event's subject, joined: what `_due.subject_key` holds.
pub fn subject_of(event: &Event) -> Option<Arc<str>> {
    let (kind, id) = event.subject_type.as_ref().zip(event.subject_id.as_ref())?;
    Some(Arc::from(format!("{kind}:{id}")))
}

/// The kind of a test, from the payload that `send_test` wrote.
fn fault(data: &str) -> Option<Fault> {
    let data: serde_json::Value = serde_json::from_str(data).ok()?;
    match data.get("kind")?.as_str()? {
        "duplicate" => Some(Fault::Duplicate),
        "stale" => Some(Fault::Stale),
        "bad_signature" => Some(Fault::BadSignature),
        "malformed" => Some(Fault::Malformed),
        _ => None,
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
    /// Start of the first attempt of the series.
    pub series_at: Option<i64>,
    /// Lives of the leader that ended while the pair was in doubt, in a row.
    pub deaths: i16,
    /// Subject whose order is kept.
    pub subject: Option<Arc<str>>,
    /// Somebody asked for this attempt: it is made whatever the endpoint subscribes to.
    pub asked: bool,
    /// Batch that stays open until the pair has a row.
    pub batch: i64,
    /// Its row in the due table; none in a first pass.
    pub due: Option<i64>,
}

impl Waiting {
    /// State of the delivery while it waits.
    pub fn waiting_state(&self) -> &'static str {
        if self.series_at.is_some() {
            "retrying"
        } else {
            "pending"
        }
    }

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
            category: None,
            next_attempt_at: None,
            hold: 0,
            series_at: self.series_at,
            deaths: self.deaths,
            subject: self.subject.clone(),
            due: self.due,
            on_wire: false,
        }
    }
}

/// How a pair ends that somebody settled while it was in memory.
#[derive(Clone)]
pub struct Settled {
    /// State it gets unless it is delivered first.
    pub state: &'static str,
    pub reason: String,
}

/// A pair whose request is under way.
pub struct Flight {
    pub waiting: Waiting,
    pub begun: Instant,
    /// The same by the scheduling clock.
    pub began: i64,
    /// Since when its pair had been waiting.
    pub since: i64,
    /// Generation of the endpoint when it was sent.
    pub generation: i64,
    /// The endpoint's window was shut: whether it stands a request is being tried out.
    pub probe: bool,
    /// Has outlasted the first pass.
    pub overdue: bool,
    /// It was settled meanwhile, and is not tried again.
    pub settled: Option<Settled>,
}
