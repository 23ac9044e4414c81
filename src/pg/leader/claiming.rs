//! From the due table into memory, and what keeps a claimed pair from being sent. What is claimed: see `claims`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::claims::{advance, place, within};
use super::control::{UNWANTED, unwanted_type};
use super::dispatch::held_by;
use super::memory::Lane;
use super::pair::Waiting;
use super::recovery::SUSPECT_AFTER;
use super::transaction::{Trouble, transaction};
use super::versions::{Made, wanted_versions};
use super::{Batch, Leader, Queue};
use crate::pg::outbox::{self, Change, Claimed, Row, Versions, hold};
use crate::rules::delivery::Category;
use crate::rules::ids::{EventId, Pair};
use crate::rules::policy::expired;
use crate::rules::revision::Wanted;

/// How long a suspect waits while another one is being sent.
const PUT_OFF: i64 = 1_000_000;

/// What becomes of a claimed pair instead of being sent.
enum Refusal {
    Dead(&'static str, Option<Category>),
    Cancelled(&'static str),
    Held(i32, Option<String>),
}

impl Leader {
    /// Claims due pairs for endpoints that have room, and lets them wait for their turn.
    pub fn claim(&mut self) -> Result<(), Trouble> {
        let now = self.clock.now();
        let may = self.claimable_now();
        let claims = self.claims(now, may);
        if claims.is_empty() || may.bytes == 0 || self.is_finding_its_way() {
            return Ok(());
        }
        // A result on its way may change the very rows: written first, they are read as they are.
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        self.last_claim = now;
        let (n, batch, incarnation) = (self.last_n + 1, self.last_batch + 1, self.incarnation);
        let later = now + PUT_OFF;
        let memory = &self.memory;
        let suspected = self.suspect.is_some();
        let known = &self.seal_keys;
        let origin = self.origin;
        let admitted = self.sending_origins();
        let (claimed, put_off, (events, versions), next, (seal_keys, discarded)) = transaction(
            self.owner,
            true,
            c"webhook leader: claiming due work",
            || {
                let (claimed, discarded) = outbox::claim(&claims, now);
                let claimed = within(claimed, memory, may);
                let drained = advance(&claims, &claimed);
                let last: Vec<(Queue, (i64, String))> = claimed.iter().map(place).collect();
                // What is in memory already is being sent; its row stays as it is.
                let fresh = claimed
                    .into_iter()
                    .filter(|row| !memory.contains(row.pair))
                    .collect();
                let (claimed, mut put_off) = one_suspect(fresh, suspected);
                let mut ids: Vec<EventId> = claimed.iter().map(|row| row.pair.event).collect();
                ids.sort_unstable();
                ids.dedup();
                let events = if ids.is_empty() {
                    Vec::new()
                } else {
                    outbox::events_by_id(&ids)
                };
                let next = outbox::next_due(&drained);
                let needed = events.iter().map(|row| row.seal_key);
                let seal_keys = outbox::seal_keys(&[origin], needed, known);
                // A key that came with a copy and cannot be decrypted keeps nothing else waiting.
                let locked = locked(&events, origin, &admitted, |key| {
                    known.contains_key(&key) || seal_keys.contains_key(&key)
                });
                let (locked, claimed): (Vec<Claimed>, Vec<Claimed>) = claimed
                    .into_iter()
                    .partition(|row| locked.contains(&row.pair.event));
                put_off.extend(locked);
                if !put_off.is_empty() {
                    let pairs: Vec<Pair> = put_off.iter().map(|row| row.pair).collect();
                    outbox::put_off(&pairs, later);
                }
                let pairs: Vec<_> = claimed
                    .iter()
                    .map(|row| (row.pair, row.attempt_count + 1))
                    .collect();
                // The first attempt fixes the shape: one that waited for it takes that of today.
                outbox::fix_revisions(&claimed);
                if !pairs.is_empty() {
                    outbox::open_claim(n, incarnation, batch, &pairs);
                }
                let versions = outbox::event_versions(&wanted_versions(&claimed, &events));
                (
                    claimed,
                    (put_off, last),
                    (events, versions),
                    next,
                    (seal_keys, discarded),
                )
            },
        )?;
        self.seal_keys.extend(seal_keys);
        if discarded > 0 {
            self.complain(
                "removed what it had not written",
                &format!("{discarded} rows of webhook._due named no event"),
            );
        }
        self.move_on(&claims, put_off.1, &next);
        for row in put_off.0 {
            self.note_due((row.pair.endpoint, row.class), later);
        }
        if !claimed.is_empty() {
            self.be_cautious();
            (self.last_n, self.last_batch) = (n, batch);
            self.batches.insert(batch, Batch { n, left: 1 });
            let events: HashMap<EventId, Row> =
                events.into_iter().map(|row| (row.event.id, row)).collect();
            let mut messages = HashMap::new();
            for row in claimed {
                let endpoint = row.pair.endpoint;
                self.take_claimed(row, (&events, &versions), &mut messages, batch);
                self.relist(endpoint);
            }
            self.settle(batch);
        }
        Ok(())
    }

    fn take_claimed(
        &mut self,
        row: Claimed,
        (events, versions): (&HashMap<EventId, Row>, &Versions),
        messages: &mut HashMap<(EventId, i16, Wanted), Made>,
        batch: i64,
    ) {
        if self.memory.contains(row.pair)
            || self.configuration.endpoint(row.pair.endpoint).is_none()
        {
            return;
        }
        if let Some(batch) = self.batches.get_mut(&batch) {
            batch.left += 1;
        }
        let event = events.get(&row.pair.event);
        if event.is_some_and(|event| !self.is_foreign(event) && !self.sealed(event)) {
            self.outcomes.fenced.push(row.pair.event.to_string());
            self.slot.fenced.fetch_add(1, Ordering::Relaxed);
            self.tell_fenced(Some(row.pair.event));
        }
        let (event, refusal) = match (event, self.refusal(&row, event)) {
            (Some(event), None) => (event, None),
            (Some(event), Some(refusal)) => (event, Some(refusal)),
            (None, _) => {
                self.refuse(&row, batch, &Refusal::Dead("the event is gone", None));
                return;
            }
        };
        if let Some(refusal) = refusal {
            self.refuse(&row, batch, &refusal);
            return;
        }
        // The priority of a type may have changed between the rows of one event.
        let wanted = row.shape.wanted(&event.event.kind);
        let key = (row.pair.event, row.class, wanted);
        let made = match messages.get(&key) {
            Some(made) => made.clone(),
            None => {
                let made = self.message(event, row.class, &key.2, versions);
                messages.insert(key, made.clone());
                made
            }
        };
        let message = match made {
            Ok(message) => message,
            Err(unmade) => {
                self.note_unconverted(row.pair, &event.event.kind, &unmade.why);
                self.refuse(
                    &row,
                    batch,
                    &Refusal::Held(hold::CONVERSION, Some(unmade.why)),
                );
                return;
            }
        };
        let waiting = Waiting {
            pair: row.pair,
            message,
            revision: row.revision,
            attempt_count: row.attempt_count,
            series_start: row.series_start,
            series_at: row.series_at,
            deaths: row.deaths,
            subject: row.subject.map(Arc::from),
            asked: row.asked,
            batch,
            due: Some(row.next_attempt_at),
        };
        if row.deaths >= SUSPECT_AFTER {
            self.suspect = Some(row.pair);
        }
        self.memory
            .enter(row.pair, Lane::Claimed, waiting.message.body.len());
        self.scheduler
            .push(row.pair.endpoint, row.class, waiting, self.clock.now());
    }

    /// What keeps a claimed pair from being sent. Everything is checked again whenever something is sent.
    fn refusal(&self, row: &Claimed, event: Option<&Row>) -> Option<Refusal> {
        let event = event?;
        let endpoint = self.configuration.endpoint(row.pair.endpoint)?;
        let dead = |why| Some(Refusal::Dead(why, None));
        // Until its origin is adopted, or for good.
        if self.is_foreign(event) {
            return Some(Refusal::Held(hold::ORIGIN, None));
        }
        if !self.sealed(event) {
            return dead("the event is fenced: its row does not match its seal");
        }
        if event.withheld() {
            return Some(Refusal::Cancelled("the payload was expunged"));
        }
        if event.event.partner_id != endpoint.partner_id {
            return dead("the endpoint belongs to another partner");
        }
        let emitted_at = i64::try_from(row.pair.event.unix_ms()).unwrap_or(0) * 1_000;
        if expired(emitted_at, self.clock.now(), endpoint.policy.max_age) {
            return Some(Refusal::Dead(
                "older than the maximum age of the policy",
                Some(Category::Expired),
            ));
        }
        if !row.asked && unwanted_type(endpoint, &event.event.kind) {
            return Some(Refusal::Cancelled(UNWANTED));
        }
        self.configuration
            .type_paused(&event.event.kind)
            .then_some(Refusal::Held(hold::EVENT_TYPE, None))
    }

    fn refuse(&mut self, row: &Claimed, batch: i64, refusal: &Refusal) {
        let waits = if row.series_at.is_some() {
            "retrying"
        } else {
            "pending"
        };
        let (state, reason, category, next, bits) = match refusal {
            Refusal::Dead(reason, category) => {
                ("dead", Some((*reason).to_owned()), *category, None, 0)
            }
            Refusal::Cancelled(reason) => ("cancelled", Some((*reason).to_owned()), None, None, 0),
            Refusal::Held(bits, reason) => (
                waits,
                reason.clone(),
                held_by(*bits),
                Some(row.next_attempt_at),
                *bits,
            ),
        };
        self.record(Change {
            pair: row.pair,
            batch,
            revision: row.revision,
            class: row.class,
            series_start: row.series_start,
            state,
            reason,
            attempt_count: row.attempt_count,
            attempt: None,
            category,
            next_attempt_at: next,
            hold: bits,
            series_at: row.series_at,
            deaths: row.deaths,
            subject: row.subject.clone().map(Arc::from),
            due: Some(row.next_attempt_at),
            on_wire: false,
        });
        self.settle(batch);
    }
}

/// Events of adopted origins whose seal key is there and cannot be had, so that nobody can tell yet whether they
/// are sound.
fn locked(
    events: &[Row],
    own: i64,
    admitted: &[i64],
    is_known: impl Fn(i64) -> bool,
) -> HashSet<EventId> {
    let doubtful: Vec<&Row> = events
        .iter()
        .filter(|row| row.origin != own && admitted.contains(&row.origin))
        .filter(|row| !is_known(row.seal_key))
        .collect();
    if doubtful.is_empty() {
        return HashSet::new();
    }
    let there = outbox::stored_seal_keys(doubtful.iter().map(|row| row.seal_key).collect());
    doubtful
        .into_iter()
        .filter(|row| there.contains(&row.seal_key))
        .map(|row| row.event.id)
        .collect()
}

/// Leaves at most one pair among the claimed ones that may be what ends the leader: the others wait, so
/// that the next end names the one.
fn one_suspect(claimed: Vec<Claimed>, mut suspected: bool) -> (Vec<Claimed>, Vec<Claimed>) {
    claimed.into_iter().partition(|row| {
        let suspicious = row.deaths >= SUSPECT_AFTER;
        let goes = !(suspicious && suspected);
        suspected |= suspicious;
        goes
    })
}
