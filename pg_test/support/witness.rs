//! What the receiver saw: the one witness of duplicates and of order. It keeps what a reckoning needs of each request
//! and of its answer, and judges nothing.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::receiver::{Answer, Request};

/// How one request is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// The status; none = the connection is reset.
    pub status: Option<u16>,
    /// The wait before it.
    pub delay: Duration,
}

impl Reaction {
    /// The same in the receiver's words.
    pub fn answer(&self) -> Answer {
        self.status
            .map_or_else(Answer::reset, Answer::status)
            .after(self.delay)
    }
}

/// A request as it arrived, and how it was answered.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The header webhook-delivery.
    pub delivery: String,
    /// The header webhook-id.
    pub event: String,
    /// The header webhook-attempt.
    pub attempt: i32,
    /// The status of the answer; none = the connection was reset.
    pub status: Option<u16>,
    /// When its last byte was read.
    pub at: Instant,
    /// When the answer was given, or a little later.
    pub answered: Instant,
    /// Hash of the body.
    pub body: u64,
    /// The event's correlation_id.
    pub mark: String,
    /// Where it arrived.
    pub path: String,
}

impl Arrival {
    /// A request that will be answered so.
    ///
    /// # Panics
    /// When it is not one of the product's.
    pub fn new(request: &Request, reaction: Reaction) -> Arrival {
        let header = |name: &str| request.header(name).unwrap_or_default().to_owned();
        let envelope: serde_json::Value =
            serde_json::from_slice(&request.body).expect("a body in JSON");
        let mut hasher = DefaultHasher::new();
        request.body.hash(&mut hasher);
        Arrival {
            delivery: header("webhook-delivery"),
            event: header("webhook-id"),
            attempt: header("webhook-attempt")
                .parse()
                .expect("a number of an attempt"),
            status: reaction.status,
            at: request.at,
            answered: request.at + reaction.delay,
            body: hasher.finish(),
            mark: envelope["correlation_id"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            path: request.target.clone(),
        }
    }

    /// Answered with 2xx.
    pub fn accepted(&self) -> bool {
        self.status
            .is_some_and(|status| (200..300).contains(&status))
    }
}

/// All of them, in the order of arrival.
#[derive(Clone, Default)]
pub struct Arrivals(Arc<Mutex<Vec<Arrival>>>);

impl Arrivals {
    /// A copy of what there is so far.
    pub fn all(&self) -> Vec<Arrival> {
        self.lock().clone()
    }

    /// One more.
    pub fn add(&self, arrival: Arrival) {
        self.lock().push(arrival);
    }

    /// How many deliveries were accepted so far, each counted once.
    pub fn accepted(&self) -> usize {
        let all = self.lock();
        let accepted = all.iter().filter(|arrival| arrival.accepted());
        accepted
            .map(|arrival| &arrival.delivery)
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// Whether an event whose mark begins so has arrived.
    pub fn have_mark(&self, prefix: &str) -> bool {
        self.lock()
            .iter()
            .any(|arrival| arrival.mark.starts_with(prefix))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
