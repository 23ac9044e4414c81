//! Endpoints, policies, pauses and event types in memory, as of the window, and which endpoints an event
//! goes to.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

pub use super::endpoint::{Endpoint, LIFECYCLE, Standing, TEST};
use super::endpoint::{keyring, standing, wants};
use crate::pg::outbox::{EndpointRow, KeyRow, PauseRow};
use crate::pg::settings::Settings;
use crate::rules::address::Boundary;
use crate::rules::envelope::Event;
use crate::rules::id_hash::IdMap;
use crate::rules::ids::EndpointId;
use crate::rules::policy::{EndpointPolicy, PolicyRow, RetryPolicy};
use crate::rules::revision::Revision;
use crate::rules::snapshot::Snapshot;
use crate::rules::target::{Refusal, Target};

/// Priority class of event types nobody registered.
const DEFAULT_CLASS: i16 = 1;
/// The policy of endpoints that name none.
const DEFAULT_POLICY: &str = "default";

/// What followed from changed endpoints.
#[derive(Default)]
pub struct Applied {
    /// Their standing changed.
    pub moved: Vec<EndpointId>,
    /// All that were taken over.
    pub changed: Vec<EndpointId>,
    /// They are of another generation: what was known of them is void.
    pub renewed: Vec<EndpointId>,
    /// Their event types changed.
    pub narrowed: Vec<EndpointId>,
    /// Their filter changed.
    pub refiltered: Vec<EndpointId>,
    /// They keep no order any more.
    pub unordered: Vec<EndpointId>,
    /// One of their keys cannot be had, and why.
    pub locked: Vec<(EndpointId, String)>,
}

/// Everything the leader knows about where events go.
pub struct Configuration {
    origin: i64,
    boundary: Boundary,
    /// In boxes: a map that grows would have two of everything for a moment.
    endpoints: IdMap<EndpointId, Box<Endpoint>>,
    by_partner: HashMap<String, Vec<EndpointId>>,
    classes: HashMap<String, i16>,
    retry: RetryPolicy,
    disable_after: Duration,
    policies: HashMap<String, PolicyRow>,
    all_paused: bool,
    paused_partners: HashSet<String>,
    paused_types: HashSet<String>,
    /// What most endpoints have, once for all of them.
    usual: (Arc<Revision>, Arc<Vec<(String, String)>>),
    /// Some endpoint wants a schema version: events may need more than their own row.
    pins: bool,
}

impl Configuration {
    pub fn new(origin: i64, settings: &Settings) -> Configuration {
        Configuration {
            origin,
            boundary: settings.boundary.clone(),
            endpoints: IdMap::default(),
            by_partner: HashMap::new(),
            classes: HashMap::new(),
            retry: settings.retry.clone(),
            disable_after: settings.disable_after,
            policies: HashMap::new(),
            all_paused: false,
            paused_partners: HashSet::new(),
            paused_types: HashSet::new(),
            usual: (Arc::default(), Arc::default()),
            pins: false,
        }
    }

    /// An endpoint by its id; those of another origin are unknown here.
    pub fn endpoint(&self, id: EndpointId) -> Option<&Endpoint> {
        self.endpoints.get(&id).map(Box::as_ref)
    }

    /// A URL as the boundary sees it.
    pub fn target(&self, url: &str) -> Result<Target, Refusal> {
        self.boundary.target(url)
    }

    /// Every endpoint of this origin.
    pub fn endpoints(&self) -> impl Iterator<Item = (EndpointId, &Endpoint)> {
        self.endpoints
            .iter()
            .map(|(id, endpoint)| (*id, endpoint.as_ref()))
    }

    /// Endpoints of a partner.
    pub fn endpoints_of(&self, partner: &str) -> impl Iterator<Item = EndpointId> + '_ {
        self.by_partner.get(partner).into_iter().flatten().copied()
    }

    /// Priority class of an event type.
    pub fn class(&self, kind: &str) -> i16 {
        self.classes.get(kind).copied().unwrap_or(DEFAULT_CLASS)
    }

    /// Whether an endpoint of the partner has, or had, a filter.
    pub fn filters(&self, partner: &str) -> bool {
        self.by_partner.get(partner).is_some_and(|ids| {
            let mut endpoints = ids.iter().filter_map(|id| self.endpoints.get(id));
            endpoints.any(|endpoint| !endpoint.filters.is_empty())
        })
    }

    /// Whether events of a type are held.
    pub fn type_paused(&self, kind: &str) -> bool {
        self.paused_types.contains(kind)
    }

    /// Other settings from now on.
    pub fn set(&mut self, settings: &Settings) {
        for endpoint in self.endpoints.values_mut() {
            endpoint.target = settings.boundary.target(&endpoint.url).map(Arc::new);
        }
        self.boundary = settings.boundary.clone();
        self.retry = settings.retry.clone();
        self.disable_after = settings.disable_after;
        self.resolve_policies();
    }

    /// Takes over event types that are new or changed.
    pub fn apply_types(&mut self, types: Vec<(String, i16)>) {
        self.classes.extend(types);
    }

    /// Takes over policies that are new or changed.
    pub fn apply_policies(&mut self, policies: Vec<(String, PolicyRow)>) {
        self.policies.extend(policies);
        self.resolve_policies();
    }

    fn resolve_policies(&mut self) {
        let mut made: HashMap<Option<String>, Arc<EndpointPolicy>> = HashMap::new();
        let mut endpoints = std::mem::take(&mut self.endpoints);
        for endpoint in endpoints.values_mut() {
            endpoint.policy = Arc::clone(
                made.entry(endpoint.policy_name.clone())
                    .or_insert_with(|| self.resolve(endpoint.policy_name.as_deref())),
            );
        }
        self.endpoints = endpoints;
    }

    fn resolve(&self, name: Option<&str>) -> Arc<EndpointPolicy> {
        let nothing = PolicyRow::default();
        let default = self.policies.get(DEFAULT_POLICY).unwrap_or(&nothing);
        let own = name
            .filter(|name| *name != DEFAULT_POLICY)
            .and_then(|name| self.policies.get(name));
        Arc::new(EndpointPolicy::resolve(
            &self.retry,
            self.disable_after,
            default,
            own,
        ))
    }

    /// Takes over pauses; returns the endpoints whose standing changed and the event types that are not
    /// paused any more.
    pub fn apply_pauses(&mut self, pauses: Vec<PauseRow>) -> (Vec<EndpointId>, Vec<String>) {
        if pauses.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let mut resumed = Vec::new();
        for pause in pauses {
            match pause.scope.as_str() {
                "all" => self.all_paused = pause.paused,
                "partner" if pause.paused => {
                    self.paused_partners.insert(pause.target);
                }
                "partner" => {
                    self.paused_partners.remove(&pause.target);
                }
                "event_type" if pause.paused => {
                    self.paused_types.insert(pause.target);
                }
                "event_type" => {
                    self.paused_types.remove(&pause.target);
                    resumed.push(pause.target);
                }
                _ => {}
            }
        }
        let mut moved = Vec::new();
        for (id, endpoint) in &mut self.endpoints {
            let held = self.all_paused || self.paused_partners.contains(&endpoint.partner_id);
            let standing = standing(endpoint.own, held);
            if standing != endpoint.standing {
                endpoint.standing = standing;
                moved.push(*id);
            }
        }
        (moved, resumed)
    }

    /// Takes over endpoints that are new or changed.
    pub fn apply(&mut self, rows: Vec<EndpointRow>) -> Applied {
        let mut applied = Applied::default();
        for row in rows {
            // An endpoint of another origin came with a copy of the database: it is inert here.
            if row.origin != self.origin {
                continue;
            }
            let mut row = row;
            // The leader's own finding may not be written yet.
            if let Some(known) = self.endpoints.get(&row.id)
                && known.generation == row.generation
                && matches!(known.state.as_str(), "disabled" | "expired")
            {
                row.state.clone_from(&known.state);
                row.state_reason.clone_from(&known.state_reason);
            }
            self.pins |=
                row.shape.pins_any() || row.revisions.iter().any(|known| known.shape.pins_any());
            let own = match row.state.as_str() {
                "active" => Standing::Sends,
                "paused" | "unverified" => Standing::Holds,
                _ => Standing::Closed,
            };
            let held = self.all_paused || self.paused_partners.contains(&row.partner_id);
            let standing = standing(own, held);
            applied.changed.push(row.id);
            match self.endpoints.get(&row.id) {
                Some(known) => {
                    if known.standing != standing {
                        applied.moved.push(row.id);
                    }
                    if known.generation != row.generation {
                        applied.renewed.push(row.id);
                    }
                    if known.event_types != row.event_types {
                        applied.narrowed.push(row.id);
                    }
                    if known.filter_version != row.filter_version {
                        applied.refiltered.push(row.id);
                    }
                    if known.ordered && !row.ordered {
                        applied.unordered.push(row.id);
                    }
                }
                None => {
                    applied.moved.push(row.id);
                    self.by_partner
                        .entry(row.partner_id.clone())
                        .or_default()
                        .push(row.id);
                }
            }
            let known = self.endpoints.get(&row.id).map(|known| &known.keys);
            let (keys, why) = keyring(row.keys, known);
            applied.locked.extend(why.map(|why| (row.id, why)));
            let policy = self.resolve(row.policy.as_deref());
            self.endpoints.insert(
                row.id,
                Box::new(Endpoint {
                    target: self.boundary.target(&row.url).map(Arc::new),
                    partner_id: row.partner_id,
                    url: row.url,
                    event_types: row.event_types,
                    test: row.test,
                    own,
                    standing,
                    state: row.state,
                    state_reason: row.state_reason,
                    generation: row.generation,
                    revision: row.revision,
                    shape: shared(row.shape, &self.usual.0),
                    revisions: row.revisions,
                    profile: row.profile,
                    extra: shared(row.extra, &self.usual.1),
                    cap: row.max_in_flight.and_then(|cap| usize::try_from(cap).ok()),
                    policy_name: row.policy,
                    policy,
                    ordered: row.ordered,
                    filter_version: row.filter_version,
                    filters: row.filters,
                    created_xid: row.created_xid,
                    created_snapshot: row.created_snapshot,
                    changed_xid: row.changed_xid,
                    found_at: row.found_at,
                    keys,
                    proof: row.proof,
                }),
            );
        }
        applied
    }

    /// Takes over the keys of an endpoint; says why one of them cannot be had.
    pub fn set_keys(&mut self, id: EndpointId, rows: Vec<KeyRow>) -> Option<String> {
        let endpoint = self.endpoints.get_mut(&id)?;
        let (keys, why) = keyring(rows, Some(&endpoint.keys));
        endpoint.keys = keys;
        why
    }

    /// The leader's own finding about an endpoint, before the next window would show it.
    pub fn close(&mut self, id: EndpointId, state: &str, reason: &str) {
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            endpoint.own = Standing::Closed;
            endpoint.standing = Standing::Closed;
            endpoint.state = state.to_owned();
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
                    wants(*id, endpoint, event)
                        && (xid == endpoint.created_xid || !endpoint.created_snapshot.sees(xid))
                })
            })
            .collect()
    }

    /// Other schema versions of an event of a window that its endpoints want, those that are closed by now included.
    pub fn other_versions(&self, event: &Event, xid: u64, cur: Option<&Snapshot>) -> Vec<String> {
        if !self.pins {
            return Vec::new();
        }
        let mut versions: Vec<String> = self
            .matches_any(event, xid)
            .into_iter()
            .filter_map(|id| {
                let (_, shape) = self.endpoints.get(&id)?.shape_at(cur);
                let wanted = shape.wanted(&event.kind);
                wanted
                    .other_version(event)
                    .map(|version| version.to_string())
            })
            .collect();
        versions.sort_unstable();
        versions.dedup();
        versions
    }

    /// Whether an open endpoint subscribes to an event of its partner, however old either is.
    pub fn wants(&self, event: &Event, id: EndpointId) -> bool {
        self.endpoints.get(&id).is_some_and(|endpoint| {
            endpoint.partner_id == event.partner_id
                && endpoint.standing != Standing::Closed
                && wants(id, endpoint, event)
        })
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

/// A value behind the same pointer as the usual one, where it is the same.
fn shared<T: PartialEq>(value: T, usual: &Arc<T>) -> Arc<T> {
    if value == **usual {
        Arc::clone(usual)
    } else {
        Arc::new(value)
    }
}
