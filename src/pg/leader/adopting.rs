//! Carrying out adoptions: the events of an origin that was taken over, oldest first, a bounded number in one
//! transaction that also writes how far it has come. A life that ends in the middle leaves nothing half done and
//! nothing to be done twice.
//!
//! What is to be sent enters through the due table, behind the adaptive window like any backlog; nothing goes
//! to memory here. The window never reads events of another origin: their transaction ids mean nothing here.

use std::collections::{HashMap, HashSet};

use pgrx::prelude::*;

use super::Leader;
use super::configuration::Standing;
use super::pair::subject_of;
use super::transaction::{Trouble, transaction};
use crate::pg::emit::now_micros;
use crate::pg::outbox::{
    self, AdoptionRow, Belated, Counts, OldDelivery, Reached, Row, Seen, hold,
};
use crate::rules::ids::{EndpointId, EventId, Pair};
use crate::rules::snapshot::Snapshot;

/// Events and bytes looked at in one transaction at most.
const ROUND_EVENTS: i32 = 250;
const ROUND_BYTES: i64 = 8 << 20;
/// Bits of a feed position below the milliseconds.
const POS_BITS: u32 = 22;
/// What the origin published in the last minute before the copy may have been in its memory, without a row: a
/// pair gets one within the first pass, which takes some seconds.
const TAIL: i64 = 60_000 << POS_BITS;
/// Nearly all events are read within the first of these times after they were emitted, in milliseconds, and of the
/// others nearly all within the second: looked for there first, and then everywhere.
const SOON_MS: [Option<u64>; 3] = [Some(5_000), Some(600_000), None];

/// Which origins this database has adopted, and the adoption under way.
pub struct Adoptions {
    /// Their events may be sent.
    admitted: HashSet<i64>,
    /// There may be one that is not finished.
    waiting: bool,
    current: Option<Adopting>,
}

impl Adoptions {
    /// At the beginning of a life.
    pub fn unknown() -> Adoptions {
        Adoptions {
            admitted: HashSet::new(),
            waiting: true,
            current: None,
        }
    }

    pub fn admit(&mut self, origins: HashSet<i64>) {
        self.admitted = origins;
    }
}

struct Adopting {
    row: AdoptionRow,
    reached: Reached,
    /// Endpoints that came from the origin, by partner.
    endpoints: HashMap<String, Vec<EndpointId>>,
    /// Since when an endpoint is there, by the transactions of an origin that it belonged to.
    since: HashMap<(EndpointId, i64), (u64, Snapshot)>,
}

/// What one round reads.
struct Found {
    rows: Vec<Seen>,
    deliveries: Vec<OldDelivery>,
    /// Fenced already.
    fenced: HashSet<String>,
    /// Events without a delivery that stand in the feed.
    published: HashSet<String>,
    /// Events that may have been in the origin's memory.
    in_doubt: HashSet<String>,
    seal_keys: Vec<(i64, Vec<u8>)>,
}

/// What one round does.
#[derive(Default)]
struct Plan<'a> {
    publish: Vec<&'a Row>,
    fence: Vec<String>,
    make: Vec<Belated>,
    resume: Vec<Belated>,
    /// Deliveries that end, with the state they get and the reason.
    end: HashMap<(&'static str, String), Vec<Pair>>,
    counts: Counts,
}

impl Leader {
    /// Whether events of this origin may be sent from here.
    pub fn admits_origin(&self, origin: i64) -> bool {
        origin == self.origin || self.adoptions.admitted.contains(&origin)
    }

    /// Somebody asked for an adoption.
    pub fn note_adoption(&mut self) -> Result<(), Trouble> {
        let admitted = transaction(
            self.owner,
            false,
            c"webhook leader: reading adoptions",
            outbox::admitted_origins,
        )?;
        self.adoptions.admit(admitted);
        self.adoptions.waiting = true;
        Ok(())
    }

    /// Whether an adoption can go on at once.
    pub fn adoption_left(&self) -> bool {
        self.adoptions.current.is_some() && self.window.cur.is_none() && self.memory.has_room()
    }

    /// One round of the adoption under way. New events go first: a window that is open is read before.
    pub fn adopt(&mut self) -> Result<(), Trouble> {
        if self.window.cur.is_some() || self.reopening() || !self.memory.has_room() {
            return Ok(());
        }
        if self.adoptions.current.is_none() && self.adoptions.waiting {
            self.begin_adoption()?;
        }
        let Some(mut adopting) = self.adoptions.current.take() else {
            return Ok(());
        };
        match self.adopt_some(&mut adopting) {
            Ok(false) => self.adoptions.current = Some(adopting),
            // Another one may wait.
            Ok(true) => self.note_adoption()?,
            Err(trouble) => {
                self.adoptions.current = Some(adopting);
                return Err(trouble);
            }
        }
        Ok(())
    }

    /// Takes up the oldest adoption that is not finished.
    fn begin_adoption(&mut self) -> Result<(), Trouble> {
        let own = self.origin;
        let (row, memberships) = transaction(
            self.owner,
            true,
            c"webhook leader: reading adoptions",
            || {
                let row = outbox::unfinished_adoption(own);
                let memberships = row
                    .as_ref()
                    .map(|row| outbox::memberships(row.origin))
                    .unwrap_or_default();
                (row, memberships)
            },
        )?;
        let Some(row) = row else {
            self.adoptions.waiting = false;
            return Ok(());
        };
        // Its endpoints are not in force here before the window that sees it.
        if !self
            .window
            .prev
            .as_ref()
            .is_some_and(|prev| prev.sees(row.xid))
        {
            return Ok(());
        }
        let mut endpoints: HashMap<String, Vec<EndpointId>> = HashMap::new();
        let mut since = HashMap::new();
        for member in memberships {
            if member.origin == row.origin
                && let Some(endpoint) = self.configuration.endpoint(member.endpoint)
            {
                endpoints
                    .entry(endpoint.partner_id.clone())
                    .or_default()
                    .push(member.endpoint);
            }
            since.insert(
                (member.endpoint, member.origin),
                (member.created_xid, member.created_snapshot),
            );
        }
        let reached = match row.reached.clone() {
            Some(reached) => reached,
            None => {
                let now = u64::try_from(now_micros() / 1000).unwrap_or(0);
                let feed_to = self.last_pos.max(position(now));
                let partners: Vec<&str> = endpoints.keys().map(String::as_str).collect();
                transaction(
                    self.owner,
                    false,
                    c"webhook leader: beginning an adoption",
                    || {
                        let newest = outbox::newest_published(&partners, row.origin, feed_to);
                        let feed_tail = if newest > 0 { newest - TAIL } else { i64::MAX };
                        outbox::begin_adoption(row.request, feed_to, feed_tail);
                        Reached {
                            event: String::new(),
                            feed_to,
                            feed_tail,
                        }
                    },
                )?
            }
        };
        self.adoptions.current = Some(Adopting {
            row,
            reached,
            endpoints,
            since,
        });
        Ok(())
    }

    /// Looks at the next events; says whether there are none any more.
    fn adopt_some(&mut self, adopting: &mut Adopting) -> Result<bool, Trouble> {
        // What is on its way to the tables may concern the very deliveries.
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        let mut origins: Vec<i64> = self.adoptions.admitted.iter().copied().collect();
        origins.push(adopting.row.origin);
        let own = self.origin;
        let (found, flush) = transaction(
            self.owner,
            true,
            c"webhook leader: reading adopted events",
            || {
                let found = find(adopting, &origins, own);
                // Whatever is visible here was inserted into the WAL before this.
                // SAFETY: plain read of shared state.
                (found, unsafe { pg_sys::GetXLogInsertRecPtr() })
            },
        )?;
        // Nothing is sent before it is durable.
        // SAFETY: the main thread, outside any transaction; returns at once when already on disk.
        unsafe { pg_sys::XLogFlush(flush) };
        self.seal_keys.extend(found.seal_keys.iter().cloned());
        let done = found.rows.is_empty();
        if let Some(last) = found.rows.last() {
            adopting.reached.event.clone_from(&last.place.1);
        }
        let plan = self.plan_adoption(adopting, &found);
        self.carry_out_adoption(adopting, plan, done)?;
        Ok(done)
    }

    fn plan_adoption<'a>(&mut self, adopting: &Adopting, found: &'a Found) -> Plan<'a> {
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
            if row.expunged {
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
    fn waits_for_turn(&self, pair: Pair, row: &Row) -> Belated {
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

    fn carry_out_adoption(
        &mut self,
        adopting: &Adopting,
        mut plan: Plan<'_>,
        done: bool,
    ) -> Result<(), Trouble> {
        let at = self.stamp(self.clock.now());
        let first = self.next_position(&plan.publish);
        let published: Vec<_> = plan.publish.iter().map(|row| &row.event).collect();
        let last_pos = first + i64::try_from(published.len()).unwrap_or(0);
        plan.counts.published = published.len();
        let incarnation = self.incarnation;
        let (row, reached) = (&adopting.row, &adopting.reached);
        let (counts, make, resume, fence) =
            (&mut plan.counts, &plan.make, &plan.resume, &plan.fence);
        let ended = &plan.end;
        let released = transaction(
            self.owner,
            false,
            c"webhook leader: adopting events",
            || {
                if outbox::highest_incarnation() != incarnation {
                    error!("another webhook leader has taken over");
                }
                outbox::publish(first, now_micros(), &published);
                outbox::fence(fence);
                let (mut free, made) = outbox::make_pairs(make, at);
                let (resumed_free, resumed) = outbox::resume_pairs(resume, at);
                free.extend(resumed_free);
                (counts.made, counts.resumed) = (made, resumed);
                for ((state, reason), pairs) in ended {
                    let from = ["pending", "retrying"];
                    let subjects = outbox::settle_pairs(pairs, state, reason, &from);
                    free.extend(outbox::release_subjects(&subjects, at));
                    if *state == "skipped" {
                        counts.skipped += pairs.len();
                    }
                }
                let sums =
                    outbox::advance_adoption(row.request, &reached.event, last_pos, counts, done);
                if done {
                    let [made, resumed, skipped, tampered] = sums;
                    let concerned = usize::try_from(made + resumed + skipped).unwrap_or(0);
                    let mut result = if row.send {
                        format!("{made} deliveries made, {resumed} resumed")
                    } else {
                        format!("{skipped} deliveries skipped")
                    };
                    if tampered > 0 {
                        result.push_str(&format!(
                            ", {tampered} events fenced: their row was changed"
                        ));
                    }
                    outbox::finish_request(row.request, "done", concerned, &result);
                }
                free
            },
        )?;
        if !published.is_empty() {
            self.last_pos = last_pos;
        }
        for belated in plan.make.iter().chain(&plan.resume) {
            if belated.hold & hold::ORDER != 0
                && let Some(subject) = &belated.subject
            {
                self.turns
                    .add((belated.pair.endpoint, std::sync::Arc::clone(subject)));
            }
        }
        self.note_released(&released);
        self.slot.fenced.fetch_add(
            u64::try_from(plan.fence.len()).unwrap_or(0),
            std::sync::atomic::Ordering::Relaxed,
        );
        for event in plan.fence.iter().filter_map(|id| id.parse().ok()) {
            self.tell_fenced(event);
        }
        Ok(())
    }
}

/// Reads the next events and what is known of them.
fn find(adopting: &Adopting, origins: &[i64], own: i64) -> Found {
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
        seal_keys: Vec::new(),
        rows: Vec::new(),
    };
    if ids.is_empty() {
        return found;
    }
    found.deliveries = outbox::old_deliveries(&ids);
    found.fenced = outbox::fenced_of(&ids);
    found.seal_keys = outbox::seal_keys();
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

/// Smallest feed position of a millisecond.
fn position(unix_ms: u64) -> i64 {
    EndpointId::new(unix_ms, 0).0
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
