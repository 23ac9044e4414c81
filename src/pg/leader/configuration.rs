//! Endpoints and event types in memory, as of the window, and which of them an event goes to.

use std::collections::HashMap;
use std::sync::Arc;

use crate::pg::outbox::EndpointRow;
use crate::rules::address::Boundary;
use crate::rules::envelope::Event;
use crate::rules::ids::EndpointId;
use crate::rules::matching::type_matches;
use crate::rules::signing::SigningKey;
use crate::rules::snapshot::Snapshot;
use crate::rules::target::{Refusal, Target};

/// Priority class of event types nobody registered.
const DEFAULT_CLASS: i16 = 1;

/// What an endpoint's state means for pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Pairs are made and sent.
    Sends,
    /// Pairs are made and wait.
    Holds,
    /// No pairs are made, queued ones are cancelled.
    Closed,
}

/// An endpoint, ready to be sent to.
pub struct Endpoint {
    pub partner_id: String,
    url: String,
    event_types: Vec<String>,
    test: bool,
    pub standing: Standing,
    pub state: String,
    pub state_reason: Option<String>,
    pub generation: i64,
    pub revision: i32,
    pub cap: Option<usize>,
    created_xid: u64,
    created_snapshot: Snapshot,
    pub target: Result<Arc<Target>, Refusal>,
    pub keys: Arc<Vec<SigningKey>>,
}

/// Everything the leader knows about where events go.
pub struct Configuration {
    origin: i64,
    boundary: Boundary,
    endpoints: HashMap<EndpointId, Endpoint>,
    by_partner: HashMap<String, Vec<EndpointId>>,
    classes: HashMap<String, i16>,
}

impl Configuration {
    pub fn new(origin: i64, boundary: Boundary) -> Configuration {
        Configuration {
            origin,
            boundary,
            endpoints: HashMap::new(),
            by_partner: HashMap::new(),
            classes: HashMap::new(),
        }
    }

    /// An endpoint by its id; those of another origin are unknown here.
    pub fn endpoint(&self, id: EndpointId) -> Option<&Endpoint> {
        self.endpoints.get(&id)
    }

    /// Priority class of an event type.
    pub fn class(&self, kind: &str) -> i16 {
        self.classes.get(kind).copied().unwrap_or(DEFAULT_CLASS)
    }

    /// Other rules for callback URLs from now on.
    pub fn set_boundary(&mut self, boundary: Boundary) {
        for endpoint in self.endpoints.values_mut() {
            endpoint.target = boundary.target(&endpoint.url).map(Arc::new);
        }
        self.boundary = boundary;
    }

    /// Takes over event types that are new or changed.
    pub fn apply_types(&mut self, types: Vec<(String, i16)>) {
        self.classes.extend(types);
    }

    /// Takes over endpoints that are new or changed; returns those whose standing changed.
    pub fn apply(&mut self, rows: Vec<EndpointRow>) -> Vec<EndpointId> {
        let mut moved = Vec::new();
        for row in rows {
            // An endpoint of another origin came with a copy of the database: it is inert here.
            if row.origin != self.origin {
                continue;
            }
            let standing = match row.state.as_str() {
                "active" => Standing::Sends,
                "paused" | "unverified" => Standing::Holds,
                _ => Standing::Closed,
            };
            let known = self.endpoints.get(&row.id);
            if known.is_none_or(|known| known.standing != standing) {
                moved.push(row.id);
            }
            if known.is_none() {
                self.by_partner
                    .entry(row.partner_id.clone())
                    .or_default()
                    .push(row.id);
            }
            self.endpoints.insert(
                row.id,
                Endpoint {
                    target: self.boundary.target(&row.url).map(Arc::new),
                    partner_id: row.partner_id,
                    url: row.url,
                    event_types: row.event_types,
                    test: row.test,
                    standing,
                    state: row.state,
                    state_reason: row.state_reason,
                    generation: row.generation,
                    revision: row.revision,
                    cap: row.max_in_flight.and_then(|cap| usize::try_from(cap).ok()),
                    created_xid: row.created_xid,
                    created_snapshot: row.created_snapshot,
                    keys: Arc::new(row.keys),
                },
            );
        }
        moved
    }

    /// The leader's own finding about an endpoint, before the next window would show it.
    pub fn disable(&mut self, id: EndpointId, reason: &str) {
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            endpoint.standing = Standing::Closed;
            endpoint.state = "disabled".to_owned();
            endpoint.state_reason = Some(reason.to_owned());
        }
    }

    /// Endpoints of the event's own partner that get it.
    pub fn matches(&self, event: &Event, xid: u64) -> Vec<EndpointId> {
        let mut matches = self.matches_any(event, xid);
        matches.retain(|id| {
            self.endpoints
                .get(id)
                .is_some_and(|endpoint| endpoint.standing != Standing::Closed)
        });
        matches
    }

    /// The same, those that are closed by now included. An endpoint gets what its own creating
    /// transaction emitted and whatever that transaction could not see yet, nothing older.
    pub fn matches_any(&self, event: &Event, xid: u64) -> Vec<EndpointId> {
        let Some(candidates) = self.by_partner.get(&event.partner_id) else {
            return Vec::new();
        };
        candidates
            .iter()
            .copied()
            .filter(|id| {
                self.endpoints.get(id).is_some_and(|endpoint| {
                    endpoint.test == event.test
                        && (xid == endpoint.created_xid || !endpoint.created_snapshot.sees(xid))
                        && endpoint
                            .event_types
                            .iter()
                            .any(|pattern| type_matches(pattern, &event.kind))
                })
            })
            .collect()
    }

    /// Whether a request may name this pair: same partner, open, same test mode.
    pub fn admits(&self, event: &Event, id: EndpointId) -> bool {
        self.endpoints.get(&id).is_some_and(|endpoint| {
            endpoint.partner_id == event.partner_id
                && endpoint.test == event.test
                && endpoint.standing != Standing::Closed
        })
    }
}
