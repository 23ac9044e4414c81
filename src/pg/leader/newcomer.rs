//! Catching up for endpoints that appear in a window: events that were read before, although the
//! endpoint's creating transaction could not see them, are the endpoint's all the same.

use std::sync::Arc;

use super::Leader;
use super::configuration::TEST;
use crate::pg::outbox::{self, Belated, EndpointRow, MissedEvent, hold};
use crate::rules::ids::Pair;
use crate::rules::matching::type_matches;
use crate::rules::snapshot::Snapshot;

/// An event that an endpoint missed, with the index of the endpoint.
pub type Missed = (usize, MissedEvent);

/// What endpoints made since `prev` missed: events that `prev` saw and their transactions could not.
pub fn missed(origin: i64, endpoints: &[EndpointRow], prev: &Snapshot) -> Vec<Missed> {
    let mut missed = Vec::new();
    for (index, endpoint) in endpoints.iter().enumerate() {
        let open = matches!(endpoint.state.as_str(), "active" | "paused" | "unverified");
        if !open || endpoint.origin != origin || prev.sees(endpoint.created_xid) {
            continue;
        }
        let events = outbox::missed_events(
            origin,
            &endpoint.partner_id,
            endpoint.test,
            &endpoint.created_snapshot,
            prev,
        );
        missed.extend(events.into_iter().map(|event| (index, event)));
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
        missed
            .iter()
            .filter_map(|(index, missed)| {
                let endpoint = endpoints.get(*index)?;
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
            })
            .collect()
    }
}
