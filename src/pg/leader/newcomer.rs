//! Catching up for endpoints that appear in a window: events that were read before, although the
//! endpoint's creating transaction could not see them, are the endpoint's all the same.

use std::collections::HashMap;
use std::sync::Arc;

use super::Leader;
use super::configuration::TEST;
use crate::pg::outbox::{self, Belated, EndpointRow, MissedEvent, hold};
use crate::rules::ids::Pair;
use crate::rules::matching::type_matches;
use crate::rules::snapshot::Snapshot;

/// An event that endpoints missed, with their indices.
pub type Missed = (Vec<usize>, MissedEvent);

/// What endpoints made since `prev` missed: events that `prev` saw and their transactions could not. Endpoints of one
/// transaction, which may make any number, are looked after at once.
pub fn missed(origin: i64, endpoints: &[EndpointRow], prev: &Snapshot) -> Vec<Missed> {
    let mut made: HashMap<&Snapshot, HashMap<&str, Vec<usize>>> = HashMap::new();
    for (index, endpoint) in endpoints.iter().enumerate() {
        let open = matches!(endpoint.state.as_str(), "active" | "paused" | "unverified");
        if !open || endpoint.origin != origin || prev.sees(endpoint.created_xid) {
            continue;
        }
        let partners = made.entry(&endpoint.created_snapshot).or_default();
        let of_partner = partners.entry(&endpoint.partner_id).or_default();
        of_partner.push(index);
    }
    let mut missed = Vec::new();
    for (created, partners) in made {
        let names = partners.keys().copied().collect();
        for event in outbox::missed_events(origin, names, created, prev) {
            let of_partner = partners
                .get(event.partner_id.as_str())
                .into_iter()
                .flatten();
            let alike = |index: &usize| {
                let endpoint = endpoints.get(*index);
                endpoint.is_some_and(|endpoint| endpoint.test == event.test)
            };
            missed.push((of_partner.copied().filter(alike).collect(), event));
        }
    }
    missed
}

impl Leader {
    /// Pairs of events that were read before their endpoint was there.
    pub fn belated(
        &self,
        endpoints: &[EndpointRow],
        missed: &[Missed],
        types: &[(String, i16)],
    ) -> Vec<Belated> {
        let pairs = missed.iter().flat_map(|(indices, missed)| {
            let endpoints = indices.iter().filter_map(|index| endpoints.get(*index));
            endpoints.map(move |endpoint| (endpoint, missed))
        });
        pairs
            .filter_map(|(endpoint, missed)| self.belated_pair(endpoint, missed, types))
            .collect()
    }

    fn belated_pair(
        &self,
        endpoint: &EndpointRow,
        missed: &MissedEvent,
        types: &[(String, i16)],
    ) -> Option<Belated> {
        let kind = &missed.kind;
        // A test is of the endpoint that it names.
        let wanted = kind != TEST
            && endpoint
                .event_types
                .iter()
                .any(|pattern| type_matches(pattern, kind));
        let class = types
            .iter()
            .find(|(name, _)| name == kind)
            .map_or_else(|| self.configuration.class(kind), |(_, class)| *class);
        let subject = missed
            .subject
            .as_deref()
            .filter(|_| endpoint.ordered)
            .map(Arc::from);
        let mut bits = 0;
        if subject.is_some() {
            bits |= hold::ORDER;
        }
        // A type that is paused by the same window is found out when the pair is claimed.
        if self.configuration.type_paused(kind) {
            bits |= hold::EVENT_TYPE;
        }
        wanted.then_some(Belated {
            pair: Pair {
                event: missed.event,
                endpoint: endpoint.id,
            },
            revision: endpoint.revision,
            class,
            hold: bits,
            subject,
        })
    }
}
