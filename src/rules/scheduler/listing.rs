//! Who stands in which ring: the book-keeping behind turns, and the one place that takes a pair out.
//!
//! Decides nothing about limits: whether a line may run is said by [`Line::standing`].

use std::sync::Arc;

use super::line::{Line, Standing};
use super::turns::{CLASSES, Rings, Turns};
use super::{Partner, Scheduler, Taken, Waiting};
use crate::rules::ids::EndpointId;

impl Partner {
    /// Stands in the ring of each class one of its endpoints waits in.
    fn join(&mut self, name: &Arc<str>, rings: &mut Rings<Arc<str>>) {
        for class in CLASSES {
            if !self.rings.is_empty(class) && !self.listed[class] {
                self.listed[class] = true;
                rings.join(class, Arc::clone(name));
            }
        }
    }
}

impl<T> Scheduler<T> {
    /// Something may have freed a line or its partner: whatever waits stands in the rings again.
    pub(super) fn list(&mut self, endpoint: EndpointId) {
        let Some(line) = self.lines.get_mut(&endpoint) else {
            return;
        };
        if let Some(at) = line.timer.take() {
            self.timers.remove(&(at, endpoint));
        }
        let Some(partner) = self.partners.get_mut(&line.partner) else {
            return;
        };
        for class in CLASSES {
            if line.waits_in(class) && !line.listed[class] {
                line.listed[class] = true;
                partner.rings.join(class, endpoint);
            }
        }
        partner.join(&line.partner, &mut self.rings);
        if self.goes_ahead && line.in_flight > 0 && line.waiting() > 0 && !line.may_go_ahead {
            line.may_go_ahead = true;
            self.ahead.push_back(endpoint);
        }
    }

    /// The partner's turn in the ring of this class: takes one pair, if one of its lines may run.
    pub(super) fn take_of(&mut self, name: &Arc<str>, class: usize, now: i64) -> Option<Taken<T>> {
        let partner = self.partners.get_mut(name)?;
        partner.listed[class] = false;
        if partner.in_flight >= self.caps.per_partner {
            return None;
        }
        let preferred = partner.turns.preferred().max(class);
        for class in [preferred, class] {
            while let Some(endpoint) = self.partners.get_mut(name)?.rings.next(class) {
                if let Some(taken) = self.take_from(endpoint, class, now) {
                    return Some(taken);
                }
            }
        }
        None
    }

    /// The line's turn in its partner's ring of this class. When it may not run it is left out until the
    /// event that may free it.
    fn take_from(&mut self, endpoint: EndpointId, class: usize, now: i64) -> Option<Taken<T>> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let crowded = self.crowded();
        let line = self.lines.get_mut(&endpoint)?;
        line.listed[class] = false;
        if !line.waits_in(class) {
            return None;
        }
        match line.standing(self.caps, crowded, now) {
            Standing::Free => {}
            Standing::Full => return None,
            Standing::HeldBack => {
                if !line.held_back {
                    line.held_back = true;
                    self.held_back.push_back(endpoint);
                }
                return None;
            }
            Standing::At(at) => {
                if let Some(old) = line.timer.replace(at) {
                    self.timers.remove(&(old, endpoint));
                }
                self.timers.insert((at, endpoint));
                return None;
            }
        }
        let preferred = line.turns.preferred().max(class);
        let class = if line.waits_in(preferred) {
            preferred
        } else {
            class
        };
        let waiting = line.pop(class)?;
        Some(self.enter_flight(endpoint, class, waiting, now))
    }

    fn enter_flight(
        &mut self,
        endpoint: EndpointId,
        class: usize,
        waiting: Waiting<T>,
        now: i64,
    ) -> Taken<T> {
        self.waiting -= 1;
        self.in_flight += 1;
        self.turns.took(class);
        let mut probe = false;
        if let Some(line) = self.lines.get_mut(&endpoint) {
            probe = line.window.is_shut();
            line.in_flight += 1;
            line.turns.took(class);
            if let Some(bucket) = &mut line.bucket {
                bucket.take(now);
            }
            if let Some(partner) = self.partners.get_mut(&line.partner) {
                partner.in_flight += 1;
                partner.turns.took(class);
            }
        }
        self.note_age(endpoint);
        self.list(endpoint);
        Taken {
            endpoint,
            waiting,
            probe,
        }
    }

    /// A request is no longer under way; `then` tells its line how it ended.
    pub(super) fn leave_flight(&mut self, endpoint: EndpointId, then: impl FnOnce(&mut Line<T>)) {
        let Some(line) = self.lines.get_mut(&endpoint) else {
            return;
        };
        if line.in_flight == 0 {
            return;
        }
        then(line);
        if line.ahead > 0 {
            // The next one has begun in its place.
            line.ahead -= 1;
        } else {
            line.in_flight -= 1;
            self.in_flight -= 1;
            if let Some(partner) = self.partners.get_mut(&line.partner) {
                partner.in_flight -= 1;
            }
        }
        self.list(endpoint);
    }

    /// Overdue requests hold half of the database's cap: those that are known to be slow wait.
    fn crowded(&self) -> bool {
        self.overdue.saturating_mul(2) >= self.caps.total
    }

    /// Lists one of the lines that were held back, if they need not be. False = there is none.
    pub(super) fn let_go_one(&mut self) -> bool {
        if self.crowded() {
            return false;
        }
        let Some(endpoint) = self.held_back.pop_front() else {
            return false;
        };
        if let Some(line) = self.lines.get_mut(&endpoint) {
            line.held_back = false;
            self.list(endpoint);
        }
        true
    }

    /// Keeps the order of ages when the oldest pair of a line may be another one.
    pub(super) fn note_age(&mut self, endpoint: EndpointId) {
        let Some(line) = self.lines.get_mut(&endpoint) else {
            return;
        };
        let oldest = line.front().map(|(since, _)| since);
        if oldest.is_none()
            && let Some(at) = line.timer.take()
        {
            self.timers.remove(&(at, endpoint));
        }
        if oldest == line.oldest {
            return;
        }
        if let Some(old) = line.oldest {
            self.ages.remove(&(old, endpoint));
        }
        if let Some(new) = oldest {
            self.ages.insert((new, endpoint));
        }
        line.oldest = oldest;
    }

    /// One more endpoint of this partner, with so many requests under way.
    pub(super) fn enter_partner(&mut self, name: &str, in_flight: usize) -> Arc<str> {
        let name = match self.partners.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(name),
        };
        let partner = self
            .partners
            .entry(Arc::clone(&name))
            .or_insert_with(|| Partner {
                lines: 0,
                in_flight: 0,
                rings: Rings::new(),
                turns: Turns::default(),
                listed: [false; 2],
            });
        partner.lines += 1;
        partner.in_flight += in_flight;
        name
    }

    /// One endpoint less of this partner.
    pub(super) fn leave_partner(
        &mut self,
        endpoint: EndpointId,
        name: &Arc<str>,
        in_flight: usize,
    ) {
        let Some(partner) = self.partners.get_mut(name) else {
            return;
        };
        partner.lines -= 1;
        partner.in_flight -= in_flight;
        partner.rings.leave(&endpoint);
        if partner.lines > 0 {
            // Requests that went with the endpoint make room for the others.
            partner.join(name, &mut self.rings);
        } else {
            self.partners.remove(name);
            self.rings.leave(name);
        }
    }

    pub(super) fn change_partner(&mut self, endpoint: EndpointId, name: &str) {
        let Some(line) = self.lines.get_mut(&endpoint) else {
            return;
        };
        let (old, in_flight) = (Arc::clone(&line.partner), line.in_flight);
        line.listed = [false; 2];
        self.leave_partner(endpoint, &old, in_flight);
        let new = self.enter_partner(name, in_flight);
        if let Some(line) = self.lines.get_mut(&endpoint) {
            line.partner = new;
        }
    }
}
