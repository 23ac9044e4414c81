//! Carrying out what operators set: pauses, resumed event types, narrowed subscriptions, and the order of
//! subjects. What touches many rows is done a bounded number at a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Leader;
use super::configuration::Standing;
use super::pair::Settled;
use super::transaction::{Trouble, transaction};
use super::window::Window;
use crate::pg::outbox::{self, Change, PauseRow, Place, Queued, Subject, Walk, hold};
use crate::rules::ids::EndpointId;

/// Rows looked at in one transaction.
const ROWS: i32 = 1_000;
/// Subjects beyond which all of them are looked at instead.
const MAX_SUBJECTS: usize = 50_000;

/// Subjects of ordered endpoints that got events in the window under way: their turn is decided when it
/// is read to its end, for only then is it known which event is the first.
#[derive(Default)]
pub struct Turns {
    subjects: HashSet<Subject>,
    /// Too many to be kept, or a life that does not know them: whatever is held is looked at.
    all: bool,
    /// The same for these endpoints, from this subject on.
    whole: HashMap<EndpointId, Arc<str>>,
}

impl Turns {
    /// At the beginning of a life.
    pub fn unknown() -> Turns {
        Turns {
            all: true,
            ..Turns::default()
        }
    }

    pub fn add(&mut self, subject: Subject) {
        if self.all {
            return;
        }
        self.subjects.insert(subject);
        if self.subjects.len() > MAX_SUBJECTS {
            *self = Turns::unknown();
        }
    }

    /// Whether the turn of this subject is still to be decided.
    pub fn knows(&self, subject: &Subject) -> bool {
        self.all
            || self.subjects.contains(subject)
            || self
                .whole
                .get(&subject.0)
                .is_some_and(|after| *after < subject.1)
    }

    pub fn is_empty(&self) -> bool {
        !self.all && self.subjects.is_empty() && self.whole.is_empty()
    }
}

impl Leader {
    /// Takes over pauses as of a window.
    pub fn apply_pauses(&mut self, pauses: Vec<PauseRow>) {
        if !pauses.is_empty() {
            self.take_back();
        }
        let (moved, resumed) = self.configuration.apply_pauses(pauses);
        for id in &moved {
            let sends = self
                .configuration
                .endpoint(*id)
                .is_some_and(|endpoint| endpoint.standing == Standing::Sends);
            // What piled up meanwhile is not let loose at once.
            if sends
                && !self
                    .scheduler
                    .window(*id)
                    .is_some_and(|window| window.is_shut())
            {
                self.scheduler
                    .set_window(*id, crate::rules::adaptive::AdaptiveWindow::reopened());
            }
        }
        self.follow_standing(moved);
        for kind in resumed {
            self.to_release.retain(|(other, _)| *other != kind);
            self.to_release.push((kind, Place::default()));
        }
    }

    /// Why a new pair may not be sent now, and the subject whose order it keeps.
    pub fn holds(
        &self,
        endpoint: EndpointId,
        kind: &str,
        subject: Option<&Arc<str>>,
    ) -> (i32, Option<Arc<str>>) {
        let ordered = self
            .configuration
            .endpoint(endpoint)
            .is_some_and(|endpoint| endpoint.ordered);
        let subject = subject.filter(|_| ordered).cloned();
        let mut bits = 0;
        if subject.is_some() {
            bits |= hold::ORDER;
        }
        if self.configuration.type_paused(kind) {
            bits |= hold::EVENT_TYPE;
        }
        (bits, subject)
    }

    /// Lets the first event of each subject go that got events in a window, once that is read to its end.
    pub fn take_turns(&mut self) -> Result<(), Trouble> {
        if self.turns.is_empty() {
            return Ok(());
        }
        let (later, ready): (Vec<Subject>, Vec<Subject>) = self
            .turns
            .subjects
            .iter()
            .cloned()
            .partition(|subject| self.amid_window(subject.0));
        if self.turns.all {
            self.turns.whole = self
                .configuration
                .endpoints()
                .filter(|(_, endpoint)| endpoint.ordered)
                .map(|(id, _)| (id, Arc::from("")))
                .collect();
            self.turns.all = false;
        }
        // One endpoint after the other, a bounded number of its subjects at a time.
        let whole = self
            .turns
            .whole
            .iter()
            .find(|(id, _)| !self.amid_window(**id))
            .map(|(id, after)| (*id, Arc::clone(after)));
        if ready.is_empty() && whole.is_none() {
            return Ok(());
        }
        // The rows in question may be among the outcomes still.
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        let at = self.stamp(self.clock.now());
        let (released, last) = transaction(
            self.owner,
            false,
            c"webhook leader: keeping the order of subjects",
            || {
                let mut subjects = ready;
                let mut last = None;
                if let Some((id, after)) = &whole {
                    let held = outbox::held_subjects(*id, after, ROWS);
                    last = held.last().map(|(_, subject)| Arc::clone(subject));
                    subjects.extend(held);
                }
                (outbox::release_subjects(&subjects, at), last)
            },
        )?;
        self.note_released(&released);
        self.turns.subjects = later.into_iter().collect();
        match (whole, last) {
            (Some((id, _)), Some(last)) => {
                self.turns.whole.insert(id, last);
            }
            (Some((id, _)), None) => {
                self.turns.whole.remove(&id);
            }
            (None, _) => {}
        }
        Ok(())
    }

    /// An endpoint's event types changed: what it does not want any more is cancelled.
    pub fn narrow(&mut self, id: EndpointId) {
        let Some(endpoint) = self.configuration.endpoint(id) else {
            return;
        };
        let mut unwanted = Vec::new();
        let mut wanted = Vec::new();
        for waiting in self.scheduler.take_all(id) {
            if !waiting.asked && unwanted_type(endpoint, &waiting.message.kind) {
                unwanted.push(waiting);
            } else {
                wanted.push(waiting);
            }
        }
        for flight in self.flights.values_mut() {
            if flight.waiting.pair.endpoint == id
                && !flight.waiting.asked
                && unwanted_type(endpoint, &flight.waiting.message.kind)
            {
                flight.settled.get_or_insert(Settled {
                    state: "cancelled",
                    reason: UNWANTED.to_owned(),
                });
            }
        }
        let now = self.clock.now();
        for waiting in wanted {
            self.scheduler.push(id, waiting.message.class, waiting, now);
        }
        for waiting in unwanted {
            self.end(waiting, "cancelled", UNWANTED.to_owned());
        }
        self.to_narrow.retain(|(other, _)| *other != id);
        self.to_narrow.push((id, Walk::new()));
        self.relist(id);
    }

    /// What operators set for what waits in the due table, one piece of it at a time.
    pub fn carry_on_control(&mut self) -> Result<(), Trouble> {
        let between = |window: &Window| window.cur.is_none();
        let all_between =
            between(&self.window) && self.asides.iter().all(|aside| between(&aside.window));
        if all_between || self.control_left() {
            // Again, when it failed at the end of a window; and what is left of it.
            self.take_turns()?;
        }
        self.narrow_queues()?;
        self.release_types()?;
        self.free_orders()?;
        self.judge_held()
    }

    /// Whether something of that is left to do.
    pub fn control_left(&self) -> bool {
        let turns = self.turns.whole.keys().any(|id| !self.amid_window(*id));
        turns
            || !self.to_narrow.is_empty()
            || !self.to_release.is_empty()
            || !self.to_free.is_empty()
            || !self.to_judge.is_empty()
    }

    fn narrow_queues(&mut self) -> Result<(), Trouble> {
        let Some((id, walk)) = self.to_narrow.last().cloned() else {
            return Ok(());
        };
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        let (rows, next) = transaction(
            self.owner,
            false,
            c"webhook leader: reading a queue",
            || outbox::queued(id, &walk, ROWS),
        )?;
        let Some(endpoint) = self.configuration.endpoint(id) else {
            self.to_narrow.pop();
            return Ok(());
        };
        let unwanted: Vec<Queued> = rows
            .into_iter()
            .filter(|row| {
                !row.asked && unwanted_type(endpoint, &row.kind) && !self.memory.contains(row.pair)
            })
            .collect();
        for row in unwanted {
            self.record(Change {
                pair: row.pair,
                batch: 0,
                revision: 0,
                class: row.class,
                series_start: row.series_start,
                state: "cancelled",
                reason: Some(UNWANTED.to_owned()),
                attempt_count: row.attempt_count,
                attempt: None,
                category: None,
                next_attempt_at: None,
                hold: 0,
                series_at: None,
                deaths: 0,
                subject: row.subject.map(Arc::from),
                due: Some(row.at),
                on_wire: false,
            });
        }
        match next {
            Walk::Over => {
                self.to_narrow.pop();
            }
            next => {
                if let Some(last) = self.to_narrow.last_mut() {
                    last.1 = next;
                }
            }
        }
        Ok(())
    }

    fn release_types(&mut self) -> Result<(), Trouble> {
        let Some((kind, after)) = self.to_release.last().cloned() else {
            return Ok(());
        };
        if self.configuration.type_paused(&kind) {
            self.to_release.pop();
            return Ok(());
        }
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        let at = self.stamp(self.clock.now());
        let (released, touched, last) = transaction(
            self.owner,
            false,
            c"webhook leader: releasing an event type",
            || outbox::release_type(&kind, &after, at, ROWS),
        )?;
        self.note_released(&released);
        if touched < usize::try_from(ROWS).unwrap_or(0) {
            self.to_release.pop();
        } else if let Some(releasing) = self.to_release.last_mut() {
            releasing.1 = last;
        }
        Ok(())
    }

    fn free_orders(&mut self) -> Result<(), Trouble> {
        let Some((id, after)) = self.to_free.last().cloned() else {
            return Ok(());
        };
        let ordered = self
            .configuration
            .endpoint(id)
            .is_none_or(|endpoint| endpoint.ordered);
        if ordered {
            self.to_free.pop();
            return Ok(());
        }
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        let at = self.stamp(self.clock.now());
        let (released, last) = transaction(
            self.owner,
            false,
            c"webhook leader: ending the order of an endpoint",
            || outbox::free_order(id, &after, at, ROWS),
        )?;
        self.note_released(&released);
        match last {
            Some(last) => {
                if let Some(freeing) = self.to_free.last_mut() {
                    freeing.1 = last;
                }
            }
            None => {
                self.to_free.pop();
            }
        }
        Ok(())
    }
}

/// Why a delivery was cancelled that its endpoint does not want any more.
pub const UNWANTED: &str = "the endpoint does not subscribe to the event type any more";

/// Tests are addressed to the endpoint, whatever it subscribes to.
pub fn unwanted_type(endpoint: &super::configuration::Endpoint, kind: &str) -> bool {
    kind != super::configuration::TEST && !endpoint.subscribes(kind)
}
