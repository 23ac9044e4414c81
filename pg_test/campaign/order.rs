//! Order per subject, by the receiver's own log: nothing of a subject is sent to an ordered endpoint before all that
//! was emitted earlier is delivered, dead or skipped. What is sent again because its outcome was lost, or because
//! somebody asked for it, comes when it comes.

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use webhook_outbox_test::{
    scene::{Event, delivery_id},
    witness::Arrival,
};

/// Deliveries, and since when.
pub type Since = BTreeMap<String, Instant>;

/// What the log of an ordered endpoint shows.
pub struct Order<'a> {
    endpoint: i64,
    /// Requests by delivery.
    log: HashMap<&'a str, Vec<&'a Arrival>>,
    /// Events by subject, in the order of their ids, which is that of their commits: see `Storm::subjects`.
    subjects: BTreeMap<&'a str, Vec<&'a Event>>,
}

/// What was found of it.
pub struct Found {
    /// Requests that came too early.
    pub wrong: Vec<String>,
    /// Deliveries that were sent and had another one before them.
    pub compared: usize,
}

impl<'a> Order<'a> {
    /// `events` are those that the endpoint gets.
    pub fn of(
        events: impl Iterator<Item = &'a Event>,
        endpoint: i64,
        arrivals: &'a [Arrival],
    ) -> Order<'a> {
        let mut log: HashMap<&str, Vec<&Arrival>> = HashMap::new();
        for arrival in arrivals {
            log.entry(&arrival.delivery).or_default().push(arrival);
        }
        let mut subjects: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in events.filter(|event| !event.subject.is_empty()) {
            subjects.entry(&event.subject).or_default().push(event);
        }
        for events in subjects.values_mut() {
            events.sort_by(|a, b| a.id.cmp(&b.id));
        }
        Order {
            endpoint,
            log,
            subjects,
        }
    }

    /// Beside what the receiver answered, a delivery is `settled` by being skipped or dead by schedule; what was
    /// `asked` for before its first request may come out of order.
    pub fn overtaken(&self, settled: &Since, asked: &Since) -> Found {
        let mut found = Found {
            wrong: Vec::new(),
            compared: 0,
        };
        for (subject, events) in &self.subjects {
            // When the last of those before was settled, and which one that was.
            let mut before: Option<(Instant, &Event)> = None;
            for event in events {
                let id = delivery_id(&event.id, self.endpoint);
                let requests = self.log.get(id.as_str()).map_or(&[][..], Vec::as_slice);
                let first = requests.iter().map(|request| request.at).min();
                if let (Some(first), Some((since, blocker))) = (first, before) {
                    found.compared += 1;
                    if first < since && asked.get(&id).is_none_or(|asked| *asked > first) {
                        found.wrong.push(format!(
                            "overtaken: {id} of {subject} was sent {:?} before {} was settled",
                            since - first,
                            blocker.id
                        ));
                    }
                }
                let since = settled_at(requests, settled.get(&id).copied());
                // One that was never settled is found by the reckoning.
                if let Some(since) = since
                    && before.is_none_or(|(latest, _)| since > latest)
                {
                    before = Some((since, event));
                }
            }
        }
        found
    }
}

/// The first moment at which the next one may leave.
fn settled_at(requests: &[&Arrival], otherwise: Option<Instant>) -> Option<Instant> {
    let settles = |request: &&&Arrival| request.accepted() || request.status == Some(400);
    let answered = requests.iter().filter(settles).map(|r| r.answered).min();
    [answered, otherwise].into_iter().flatten().min()
}
