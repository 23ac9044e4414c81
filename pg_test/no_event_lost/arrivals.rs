//! What the receiver saw: the one witness of duplicates.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use webhook_outbox_test::receiver::Request;

/// A request as it arrived, and when it was answered.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub delivery: String,
    pub event: String,
    pub attempt: i32,
    /// Answered with 2xx.
    pub accepted: bool,
    pub at: Instant,
    pub answered: Instant,
    /// Hash of the body.
    pub body: u64,
    /// The event's correlation_id.
    pub mark: String,
    /// Where it arrived.
    pub path: String,
}

impl Arrival {
    /// A request that will be answered after `delay`.
    pub fn new(request: &Request, accepted: bool, delay: Duration) -> Arrival {
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
            accepted,
            at: request.at,
            answered: request.at + delay,
            body: hasher.finish(),
            mark: envelope["correlation_id"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            path: request.target.clone(),
        }
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
        let accepted = all.iter().filter(|arrival| arrival.accepted);
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
