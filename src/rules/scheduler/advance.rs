//! Work handed over in advance. Whoever hands over is about its tables for some milliseconds at a time; without this
//! the threads would stand idle meanwhile.
//!
//! Two ways, both for what is fast only, and neither takes anything from anybody. A line that runs all it may is
//! given more, each of which begins in the place of one that has ended. And as many places beyond the database's cap
//! are given away as would come free anyhow: the threads are as many as the cap says, so that these wait for one.

use super::line::finishes;
use super::{Scheduler, Taken};
use crate::rules::ids::EndpointId;

/// For how long places are given away in advance, microseconds: no longer, for whoever is served next is decided by
/// this much earlier.
const SPARE: i64 = 10_000;
/// Places given away in advance at most.
const MOST_SPARE: usize = 256;
/// Requests that end before anything is given in advance again after something that was did not begin.
const CALM: u32 = 32;

impl<T> Scheduler<T> {
    /// Lets places be given away in advance. Only where what is handed over waits for a thread of its own accord.
    pub fn go_ahead(&mut self) {
        self.goes_ahead = true;
    }

    /// Places beyond the cap of the database.
    pub(super) fn spare(&self) -> usize {
        if !self.goes_ahead || self.pace == 0 || self.calm > 0 {
            return 0;
        }
        finishes(self.caps.total, self.pace, SPARE).min(MOST_SPARE)
    }

    /// The next pair for a line that runs all it may, to begin when one of its own has ended; said after
    /// [`Scheduler::take_next`] found nothing. Nothing while others wait for a place of the database or of the
    /// partner: they would wait for ever.
    pub fn take_ahead(&mut self, now: i64) -> Option<Taken<T>> {
        if !self.goes_ahead {
            return None;
        }
        loop {
            let endpoint = self.ahead.front().copied()?;
            if self.rings.all_empty()
                && let Some(taken) = self.take_ahead_of(endpoint, now)
            {
                return Some(taken);
            }
            self.ahead.pop_front();
            if let Some(line) = self.lines.get_mut(&endpoint) {
                line.may_go_ahead = false;
            }
        }
    }

    fn take_ahead_of(&mut self, endpoint: EndpointId, now: i64) -> Option<Taken<T>> {
        let line = self.lines.get_mut(&endpoint)?;
        if line.ahead >= line.depth(self.caps, now) {
            return None;
        }
        let alone = self
            .partners
            .get(&line.partner)
            .is_some_and(|partner| partner.rings.only(&endpoint));
        if !alone {
            return None;
        }
        let preferred = line.turns.preferred();
        let class = [preferred, 1 - preferred]
            .into_iter()
            .find(|class| line.waits_in(*class))?;
        let waiting = line.pop(class)?;
        line.turns.took(class);
        line.ahead += 1;
        self.turns.took(class);
        self.waiting -= 1;
        self.note_age(endpoint);
        Some(Taken {
            endpoint,
            waiting,
            probe: false,
        })
    }

    /// What was handed over came back without having begun; it waits again, before the others.
    pub fn came_back(&mut self, endpoint: EndpointId, class: i16, item: T, since: i64) {
        self.not_sent(endpoint);
        if let Some(line) = self.lines.get_mut(&endpoint) {
            line.push_front(super::Waiting { item, since, class });
            self.waiting += 1;
            self.note_age(endpoint);
            self.list(endpoint);
        }
    }

    /// A request that was said to have outlasted the first pass had not begun.
    pub fn not_overdue(&mut self, endpoint: EndpointId) {
        if let Some(line) = self.lines.get_mut(&endpoint)
            && line.overdue > 0
        {
            line.overdue -= 1;
            self.overdue -= 1;
        }
    }

    /// Something that was handed over to this line in advance has not begun for long: nothing more is until it is
    /// seen to be fast again.
    pub fn stalled(&mut self, endpoint: EndpointId) {
        if let Some(line) = self.lines.get_mut(&endpoint) {
            line.calm = CALM;
        }
    }

    /// The same for places beyond the cap.
    pub fn crowd_stalled(&mut self) {
        self.calm = CALM;
    }

    /// How much of a line was handed over beyond what may run.
    pub fn ahead_of(&self, endpoint: EndpointId) -> usize {
        self.lines.get(&endpoint).map_or(0, |line| line.ahead)
    }
}
