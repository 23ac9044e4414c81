//! An endpoint in memory: what its state means for pairs, what it gets and in which shape, and its keys.

use std::sync::Arc;

use super::filtering::filter_in;
use crate::pg::outbox::{FilterRow, KeyRow, ProofRow, RevisionRow};
use crate::rules::envelope::Event;
use crate::rules::ids::EndpointId;
use crate::rules::keyring::{HeldKey, Keyring};
use crate::rules::matching::type_matches;
use crate::rules::policy::EndpointPolicy;
use crate::rules::profile::Profile;
use crate::rules::revision::Revision;
use crate::rules::scheduler::Limits;
use crate::rules::signing::SigningKey;
use crate::rules::snapshot::Snapshot;
use crate::rules::target::{Refusal, Target};

/// What lifecycle events, and a test, are about: they name an endpoint as their subject.
pub const TEST: &str = "webhook.test";
pub const LIFECYCLE: &str = "webhook.endpoint.";

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
    pub(super) url: String,
    pub(super) event_types: Vec<String>,
    pub test: bool,
    /// By its own state alone, and with the pauses of its partner and of everything.
    pub(super) own: Standing,
    pub standing: Standing,
    pub state: String,
    pub state_reason: Option<String>,
    pub generation: i64,
    pub revision: i32,
    /// What that revision says.
    pub shape: Arc<Revision>,
    /// Its revisions, where it has had several.
    pub(super) revisions: Vec<RevisionRow>,
    /// How its requests are signed, and what the operator adds to them: as they are now, whatever the revision.
    pub profile: Profile,
    pub extra: Arc<Vec<(String, String)>>,
    pub(super) cap: Option<usize>,
    pub(super) policy_name: Option<String>,
    pub policy: Arc<EndpointPolicy>,
    pub ordered: bool,
    pub(super) filter_version: i32,
    pub(super) filters: Vec<FilterRow>,
    pub(super) created_xid: u64,
    pub(super) created_snapshot: Snapshot,
    /// Transaction of its last change, and when the leader found it closed, as of when it was read.
    pub(super) changed_xid: u64,
    pub(super) found_at: Option<i64>,
    pub target: Result<Arc<Target>, Refusal>,
    pub keys: Keyring,
    /// What it has to do with proofs of control and expiry.
    pub proof: ProofRow,
}

impl Endpoint {
    /// How much it may get at a time.
    pub fn limits(&self) -> Limits {
        Limits {
            cap: self.cap.or(self.policy.max_in_flight),
            rate: self.policy.rate,
        }
    }

    /// The filter that decides about events of a window; without one, the filter in force.
    pub fn filter_at(&self, cur: Option<&Snapshot>) -> Option<&FilterRow> {
        filter_in(&self.filters, self.created_xid, cur)
    }

    /// The shape of what is sent of the events of a window, and its number; without a window, the shape in force. Like
    /// a filter: whoever reads the window, and whenever, the bytes are the same.
    pub fn shape_at(&self, cur: Option<&Snapshot>) -> (i32, &Arc<Revision>) {
        let seen = cur.and_then(|cur| {
            let mut newest = self.revisions.iter().rev();
            newest
                .clone()
                .find(|revision| cur.sees(revision.xid))
                // The window does not see the endpoint yet: it has what it was made with.
                .or_else(|| newest.find(|revision| revision.xid == self.created_xid))
                .or(self.revisions.first())
        });
        match seen {
            Some(revision) => (revision.number, &revision.shape),
            None => (self.revision, &self.shape),
        }
    }

    /// Whether it was closed when events of a window were read that were emitted at this time. Only known of how it
    /// was when a life began.
    pub fn was_closed(&self, cur: &Snapshot, emitted_at: i64) -> bool {
        let known = match self.found_at {
            Some(at) => at < emitted_at,
            None => cur.sees(self.changed_xid),
        };
        self.standing == Standing::Closed && known
    }

    /// Whether it was paused or not proven when events of a window were read: nothing was sent to it.
    pub fn was_held(&self, cur: &Snapshot) -> bool {
        self.own == Standing::Holds && cur.sees(self.changed_xid)
    }

    /// Its callback URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether it subscribes to an event type.
    pub fn subscribes(&self, kind: &str) -> bool {
        self.event_types
            .iter()
            .any(|pattern| type_matches(pattern, kind))
    }
}

/// The keys of an endpoint, and why one of them cannot be had: one that is known already is kept, with its new end.
pub fn keyring(rows: Vec<KeyRow>, known: Option<&Keyring>) -> (Keyring, Option<String>) {
    let mut why = None;
    let mut keys = Vec::new();
    for row in rows {
        let key = match row.key {
            Ok(key) => key,
            Err(locked) => match known.and_then(|known| known.key(row.id)) {
                Some(key) => key.clone(),
                None => {
                    why = Some(format!(
                        "could not decrypt signing key {}: {locked}",
                        row.id
                    ));
                    continue;
                }
            },
        };
        keys.push(HeldKey {
            key: SigningKey { id: row.id, key },
            valid_until: row.valid_until,
        });
    }
    (Keyring::new(&keys), why)
}

/// With the pauses of its partner and of everything.
pub fn standing(own: Standing, held: bool) -> Standing {
    match own {
        Standing::Sends if held => Standing::Holds,
        other => other,
    }
}

/// Whether an endpoint of the event's partner gets it. A test goes to the endpoint it names and to no
/// other; a lifecycle event never goes to the endpoint it is about.
pub fn wants(id: EndpointId, endpoint: &Endpoint, event: &Event) -> bool {
    let named = || {
        let subject = event.subject_id.as_ref();
        subject.is_some_and(|subject| *subject == id.0.to_string())
    };
    if event.kind == TEST {
        return named();
    }
    endpoint.test == event.test
        && !(event.kind.starts_with(LIFECYCLE) && named())
        && endpoint.subscribes(&event.kind)
}
