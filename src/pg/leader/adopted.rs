//! What becomes of adopted events: what is known of the next ones, and what follows for their deliveries.
//! Decides only; `adopting` reads in one transaction and writes in another.

use std::collections::{HashMap, HashSet};

use super::Leader;
use super::adopting::{Adopting, position};
use super::configuration::Standing;
use super::pair::subject_of;
use crate::pg::outbox::{self, Belated, Counts, OldDelivery, Row, SealKeys, Seen};
use crate::rules::ids::{EndpointId, EventId, Pair};

/// Events and bytes looked at in one transaction at most.
const ROUND_EVENTS: i32 = 250;
const ROUND_BYTES: i64 = 8 << 20;
/// Nearly all events are read within the first of these times after they were emitted, in milliseconds, and of the
/// others nearly all within the second: looked for there first, and then everywhere.
const SOON_MS: [Option<u64>; 3] = [Some(5_000), Some(600_000), None];

/// What one round reads.
pub struct Found {
    pub rows: Vec<Seen>,
    pub deliveries: Vec<OldDelivery>,
    /// Fenced already.
    pub fenced: HashSet<String>,
    /// Events without a delivery that stand in the feed.
    pub published: HashSet<String>,
    /// Events that may have been in the origin's memory.
    pub in_doubt: HashSet<String>,
    pub seal_keys: SealKeys,
}

/// What one round does.
#[derive(Default)]
pub struct Plan<'a> {
    pub publish: Vec<&'a Row>,
    pub fence: Vec<String>,
    pub make: Vec<Belated>,
    pub resume: Vec<Belated>,
    /// Deliveries that end, with the state they get and the reason.
    pub end: HashMap<(&'static str, String), Vec<Pair>>,
    pub counts: Counts,
}

impl Leader {
    /// Decides about the events that were found.
    pub fn plan_adoption<'a>(&mut self, adopting: &Adopting, found: &'a Found) -> Plan<'a> {
        let mut plan = Plan::default();
        let mut of_event: HashMap<EventId, Vec<&OldDelivery>> = HashMap::new();
        for delivery in &found.deliveries {
            of_event
                .entry(delivery.pair.event)
                .or_default()
                .push(delivery);
        }
        let skip = format!(
            "skipped when its origin was adopted: {}",
            adopting.row.reason
        );
        for seen in &found.rows {
            plan.counts.events += 1;
            let id = &seen.place.1;
            let deliveries = id
                .parse()
                .ok()
                .and_then(|id: EventId| of_event.get(&id))
                .map_or(&[][..], Vec::as_slice);
            let sound = seen.row.as_ref().filter(|row| self.sealed(row));
            if sound.is_none() {
                plan.counts.tampered += 1;
                if !found.fenced.contains(id) {
                    plan.fence.push(id.clone());
                }
            }
            let published = !deliveries.is_empty() || found.published.contains(id);
            let of_origin = seen
                .row
                .as_ref()
                .is_none_or(|row| row.origin == adopting.row.origin);
            if let Some(row) = sound
                && !published
                && (of_origin || (adopting.row.send && row.origin == self.origin))
            {
                plan.publish.push(row);
            }
            if !adopting.row.send {
                self.skip_old(&mut plan, adopting, deliveries, of_origin, &skip);
                continue;
            }
            let Some(row) = sound else {
                let why = "the event is fenced: its row does not match its seal";
                end_open(&mut plan, self.ours(deliveries), "dead", why);
                continue;
            };
            if row.withheld() {
                let why = "the payload was expunged";
                end_open(&mut plan, self.ours(deliveries), "dead", why);
                continue;
            }
            self.resume_old(&mut plan, row, deliveries);
            let wanted = published && found.in_doubt.contains(id);
            let pairs = if of_origin && (!published || wanted) {
                self.heirs(adopting, row, false)
            } else if row.origin == self.origin {
                let mut pairs = self.heirs(adopting, row, true);
                if !published {
                    // Emitted before the name of the node changed for a while, and never read since.
                    pairs.extend(self.configuration.matches(&row.event, row.xid));
                    pairs.sort_unstable();
                    pairs.dedup();
                }
                pairs
            } else {
                Vec::new()
            };
            for endpoint in pairs {
                let pair = Pair {
                    event: row.event.id,
                    endpoint,
                };
                if !deliveries.iter().any(|old| old.pair == pair) && !self.memory.contains(pair) {
                    plan.make.push(self.waits_for_turn(pair, row));
                }
            }
        }
        plan
    }

    /// Adopted endpoints that get an event: those that were there by the transactions of its origin. An
    /// endpoint that never belonged to the own origin missed all own events.
    fn heirs(&self, adopting: &Adopting, row: &Row, always: bool) -> Vec<EndpointId> {
        let Some(endpoints) = adopting.endpoints.get(&row.event.partner_id) else {
            return Vec::new();
        };
        endpoints
            .iter()
            .copied()
            .filter(|id| self.configuration.wants(&row.event, *id))
            .filter(|id| match adopting.since.get(&(*id, row.origin)) {
                Some((xid, snapshot)) => *xid == row.xid || !snapshot.sees(row.xid),
                None => always,
            })
            .collect()
    }

    /// A pair as it enters the due table.
    pub fn waits_for_turn(&self, pair: Pair, row: &Row) -> Belated {
        let subject = subject_of(&row.event);
        let (bits, subject) = self.holds(pair.endpoint, &row.event.kind, subject.as_ref());
        Belated {
            pair,
            revision: self
                .configuration
                .endpoint(pair.endpoint)
                .map_or(1, |endpoint| endpoint.revision),
            class: self.configuration.class(&row.event.kind),
            hold: bits,
            subject,
        }
    }

    /// Open deliveries that nothing in the due table stands for.
    fn ours<'d>(&self, deliveries: &[&'d OldDelivery]) -> Vec<&'d OldDelivery> {
        deliveries
            .iter()
            .copied()
            .filter(|old| {
                old.open
                    && !old.queued
                    && !self.memory.contains(old.pair)
                    && self.configuration.endpoint(old.pair.endpoint).is_some()
            })
            .collect()
    }

    fn resume_old(&self, plan: &mut Plan<'_>, row: &Row, deliveries: &[&OldDelivery]) {
        for old in self.ours(deliveries) {
            if self.standing(old.pair.endpoint) == Some(Standing::Closed) {
                let why = self.closing_reason(old.pair.endpoint);
                end_open(plan, vec![old], "cancelled", &why);
            } else {
                plan.resume.push(self.waits_for_turn(old.pair, row));
            }
        }
    }

    /// What is still open of an old event, or waits for an endpoint that came from its origin, is not sent.
    fn skip_old(
        &mut self,
        plan: &mut Plan<'_>,
        adopting: &Adopting,
        deliveries: &[&OldDelivery],
        of_origin: bool,
        reason: &str,
    ) {
        for old in deliveries.iter().copied().filter(|old| old.open) {
            let came_along = || {
                adopting
                    .since
                    .contains_key(&(old.pair.endpoint, adopting.row.origin))
            };
            if !of_origin && !came_along() {
                continue;
            }
            if self.memory.contains(old.pair) {
                self.settle_in_memory(old.pair, "skipped", reason);
            } else {
                end_open(plan, vec![old], "skipped", reason);
            }
        }
    }
}

/// Reads the next events and what is known of them.
pub fn find(adopting: &Adopting, origins: &[i64], own: i64, known: &SealKeys) -> Found {
    let (row, reached) = (&adopting.row, &adopting.reached);
    let rows = outbox::old_events(
        origins,
        own,
        (&row.snapshot, row.xid),
        &reached.event,
        ROUND_EVENTS,
        ROUND_BYTES,
    );
    let ids: Vec<&str> = rows.iter().map(|seen| seen.place.1.as_str()).collect();
    let mut found = Found {
        deliveries: Vec::new(),
        fenced: HashSet::new(),
        published: HashSet::new(),
        in_doubt: HashSet::new(),
        seal_keys: SealKeys::new(),
        rows: Vec::new(),
    };
    if ids.is_empty() {
        return found;
    }
    found.deliveries = outbox::old_deliveries(&ids);
    found.fenced = outbox::fenced_of(&ids);
    // One that cannot be decrypted is waited for: without it a sound event would be taken for a changed one.
    let needed = rows.iter().filter_map(|seen| seen.row.as_ref());
    let must: Vec<i64> = origins.iter().copied().chain([own]).collect();
    found.seal_keys = outbox::seal_keys(&must, needed.map(|row| row.seal_key), known);
    let readable: Vec<&Row> = rows.iter().filter_map(|seen| seen.row.as_ref()).collect();
    let partners = partners_of(&readable);
    found.in_doubt = outbox::published_of(&partners, &ids, reached.feed_tail, reached.feed_to);
    // An event with a delivery was read. For the others the feed is searched from their time on.
    let delivered: HashSet<EventId> = found.deliveries.iter().map(|old| old.pair.event).collect();
    let mut bare: Vec<&Row> = rows
        .iter()
        .filter_map(|seen| seen.row.as_ref())
        .filter(|row| !delivered.contains(&row.event.id))
        .collect();
    let mut from = bare
        .iter()
        .map(|row| position(row.event.id.unix_ms()))
        .min()
        .unwrap_or(i64::MAX);
    for soon in SOON_MS {
        let Some(newest) = bare.iter().map(|row| row.event.id.unix_ms()).max() else {
            break;
        };
        let to = soon.map_or(reached.feed_to, |soon| {
            reached.feed_to.min(position(newest.saturating_add(soon)))
        });
        let ids: Vec<String> = bare.iter().map(|row| row.event.id.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let partners = partners_of(&bare);
        let published = outbox::published_of(&partners, &ids, from, to);
        bare.retain(|row| !published.contains(&row.event.id.to_string()));
        found.published.extend(published);
        from = to.saturating_add(1);
    }
    found.rows = rows;
    found
}

fn partners_of<'r>(rows: &[&'r Row]) -> Vec<&'r str> {
    let mut partners: Vec<&str> = rows
        .iter()
        .map(|row| row.event.partner_id.as_str())
        .collect();
    partners.sort_unstable();
    partners.dedup();
    partners
}

fn end_open(plan: &mut Plan<'_>, deliveries: Vec<&OldDelivery>, state: &'static str, why: &str) {
    if deliveries.is_empty() {
        return;
    }
    plan.end
        .entry((state, why.to_owned()))
        .or_default()
        .extend(deliveries.iter().map(|old| old.pair));
}
