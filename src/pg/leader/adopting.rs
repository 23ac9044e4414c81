//! Carrying out adoptions: the events of an origin that was taken over, oldest first, a bounded number in one
//! transaction that also writes how far it has come. A life that ends in the middle leaves nothing half done and
//! nothing to be done twice.
//!
//! What is to be sent enters through the due table, behind the adaptive window like any backlog; nothing goes
//! to memory here. The window never reads events of another origin: their transaction ids mean nothing here.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use pgrx::prelude::*;

use super::Leader;
use super::adopted::{Plan, find};
use super::memory::Lane;
use super::transaction::{Trouble, transaction};
use super::window::Window;
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, AdoptionRow, Reached, Row, hold};
use crate::pg::wal::Written;
use crate::rules::ids::EndpointId;
use crate::rules::snapshot::Snapshot;

/// Bits of a feed position below the milliseconds.
const POS_BITS: u32 = 22;
/// What the origin published in the last minute before the copy may have been in its memory, without a row: a
/// pair gets one within the first pass, which takes some seconds.
const TAIL: i64 = 60_000 << POS_BITS;
/// How long after passing trouble an adoption is left alone.
const REST: Duration = Duration::from_secs(2);

/// Which origins this database has adopted, and the adoption under way.
pub struct Adoptions {
    /// Their events may be sent.
    admitted: HashSet<i64>,
    /// There may be one that is not finished.
    waiting: bool,
    current: Option<Adopting>,
    /// After passing trouble it is left alone until then.
    rest_until: Option<Instant>,
    /// What was said of that last, so that it is not said over and over.
    said: Option<String>,
}

impl Adoptions {
    /// At the beginning of a life.
    pub fn unknown() -> Adoptions {
        Adoptions {
            admitted: HashSet::new(),
            waiting: true,
            current: None,
            rest_until: None,
            said: None,
        }
    }

    pub fn admit(&mut self, origins: HashSet<i64>) {
        self.admitted = origins;
    }
}

/// The adoption under way.
pub struct Adopting {
    pub row: AdoptionRow,
    pub reached: Reached,
    /// Endpoints that came from the origin, by partner.
    pub endpoints: HashMap<String, Vec<EndpointId>>,
    /// Since when an endpoint is there, by the transactions of an origin that it belonged to.
    pub since: HashMap<(EndpointId, i64), (u64, Snapshot)>,
}

impl Leader {
    /// Whether events of this origin may be sent from here.
    pub fn admits_origin(&self, origin: i64) -> bool {
        origin == self.origin || self.adoptions.admitted.contains(&origin)
    }

    /// The origins whose events may be sent from here.
    pub fn sending_origins(&self) -> Vec<i64> {
        let admitted = self.adoptions.admitted.iter().copied();
        admitted.chain([self.origin]).collect()
    }

    /// Whether an event is another database's that is not adopted: sound, as far as can be told without its key.
    pub fn is_foreign(&self, row: &Row) -> bool {
        !self.admits_origin(row.origin)
            && (self.sealed(row) || !self.seal_keys.contains_key(&row.seal_key))
    }

    /// Somebody asked for an adoption.
    pub fn note_adoption(&mut self) -> Result<(), Trouble> {
        let own = self.origin;
        let admitted = transaction(
            self.owner,
            false,
            c"webhook leader: reading adoptions",
            || outbox::admitted_origins(own),
        )?;
        self.adoptions.admit(admitted);
        self.adoptions.waiting = true;
        Ok(())
    }

    /// Whether an adoption can go on at once.
    pub fn adoption_left(&self) -> bool {
        self.adoptions.current.is_some()
            && !self.adoption_rests()
            && self.window.cur.is_none()
            && self.memory.has_room(Lane::Fresh)
    }

    /// Whether an adoption has begun and is not finished.
    pub fn is_adopting(&self) -> bool {
        self.adoptions.current.is_some()
    }

    fn adoption_rests(&self) -> bool {
        let until = self.adoptions.rest_until;
        until.is_some_and(|until| Instant::now() < until)
    }

    /// One round of the adoption under way. New events go first: a window that is open is read before.
    pub fn adopt(&mut self) -> Result<(), Trouble> {
        if self.window.cur.is_some()
            || self.reopening()
            || self.adoption_rests()
            || !self.memory.has_room(Lane::Fresh)
        {
            return Ok(());
        }
        match self.adopt_next() {
            // A seal key that cannot be decrypted may last: what is due to others must not wait for it.
            Err(Trouble::Passing(text)) => {
                self.adoptions.rest_until = Some(Instant::now() + REST);
                if self.adoptions.said.as_ref() != Some(&text) {
                    self.complain("waits with an adoption", &text);
                    self.adoptions.said = Some(text);
                }
                Ok(())
            }
            other => other,
        }
    }

    fn adopt_next(&mut self) -> Result<(), Trouble> {
        if self.adoptions.current.is_none() && self.adoptions.waiting {
            self.begin_adoption()?;
        }
        let Some(mut adopting) = self.adoptions.current.take() else {
            return Ok(());
        };
        let reached = adopting.reached.event.clone();
        match self.adopt_some(&mut adopting) {
            Ok(false) => self.adoptions.current = Some(adopting),
            // Another one may wait.
            Ok(true) => self.note_adoption()?,
            Err(trouble) => {
                // What could not be written was not adopted: it is looked at again.
                adopting.reached.event = reached;
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
        // Its endpoints are not in force here before the window that sees it. What a stream that was set aside has
        // still to read of the events before would look as if nobody ever read it.
        let seen = |window: &Window| window.prev.as_ref().is_some_and(|prev| prev.sees(row.xid));
        if !seen(&self.window) || !self.asides.iter().all(|aside| seen(&aside.window)) {
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
        let known = &self.seal_keys;
        let (found, flush) = transaction(
            self.owner,
            true,
            c"webhook leader: reading adopted events",
            || {
                let found = find(adopting, &origins, own, known);
                // Whatever is visible here was inserted into the WAL before this.
                (found, Written::now())
            },
        )?;
        // Nothing is sent before it is durable.
        flush.make_durable();
        self.seal_keys
            .extend(found.seal_keys.iter().map(|(id, key)| (*id, key.clone())));
        let done = found.rows.is_empty();
        if let Some(last) = found.rows.last() {
            adopting.reached.event.clone_from(&last.place.1);
        }
        let mut plan = self.plan_adoption(adopting, &found);
        self.filter_adopted(&mut plan, &found)?;
        self.carry_out_adoption(adopting, plan, done)?;
        Ok(done)
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
            self.tell_fenced(Some(event));
        }
        Ok(())
    }
}

/// Smallest feed position of a millisecond.
pub fn position(unix_ms: u64) -> i64 {
    EndpointId::new(unix_ms, 0).0
}
