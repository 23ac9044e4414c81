//! Which waiting pair is sent next: round robin over partners and their endpoints, within ceilings per
//! endpoint, partner and database, the endpoint's adaptive window and its rate.
//!
//! Holds what is in memory only: pairs of open batches and pairs claimed from the due table. It knows
//! no clock (time is an argument) and decides nothing about outcomes. One slow endpoint takes its own
//! cap and nothing of the others': requests that outlast the first pass hold half of the database's
//! cap at most.
//!
//! No operation looks at all endpoints. A line that may not run leaves the rings when its turn comes, and
//! the event that may free it lists it again: an ended request, an answer, other limits, a timer, fewer
//! overdue requests. So each look at a line is paid for by one event; timers and ages cost a logarithm.

mod advance;
mod line;
mod listing;
mod outlook;
pub mod rate;
mod turns;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use self::line::{Line, smoothed};
use self::rate::Rate;
use self::turns::{Rings, Turns};
use super::adaptive::{AdaptiveWindow, Push};
use super::id_hash::IdMap;
use super::ids::EndpointId;

/// Ceilings of concurrent requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// In the database.
    pub total: usize,
    /// Per partner.
    pub per_partner: usize,
    /// Per endpoint, unless the endpoint has its own.
    pub per_endpoint: usize,
}

/// Limits of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Its own ceiling of concurrent requests.
    pub cap: Option<usize>,
    /// How often a request may start.
    pub rate: Option<Rate>,
}

/// What a pair waits as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting<T> {
    /// The pair, as its owner knows it.
    pub item: T,
    /// When it began to wait (any monotonic microseconds).
    pub since: i64,
    /// Its priority: 0 (and below) before 1 (and above).
    pub class: i16,
}

/// A pair whose turn has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken<T> {
    /// Where it goes.
    pub endpoint: EndpointId,
    /// The pair.
    pub waiting: Waiting<T>,
    /// The endpoint's window is shut: this request finds out whether it is back.
    pub probe: bool,
}

#[derive(Debug)]
struct Partner {
    /// Its endpoints that are known; without any it is forgotten.
    lines: usize,
    in_flight: usize,
    /// Endpoints that wait and may run, as far as is known.
    rings: Rings<EndpointId>,
    turns: Turns,
    /// Stands in the scheduler's ring of that class.
    listed: [bool; 2],
}

/// Waiting pairs and running requests of one database.
#[derive(Debug)]
pub struct Scheduler<T> {
    caps: Caps,
    /// In boxes: a map that grows would have two of everything for a moment.
    lines: IdMap<EndpointId, Box<Line<T>>>,
    partners: HashMap<Arc<str>, Partner>,
    /// Partners that have endpoints in their rings and may run more, as far as is known.
    rings: Rings<Arc<str>>,
    turns: Turns,
    /// Lines that wait for fewer overdue requests, in the order of their turns.
    held_back: VecDeque<EndpointId>,
    /// Lines that wait for nothing but this time, for a token or a probe.
    timers: BTreeSet<(i64, EndpointId)>,
    /// Lines with waiting pairs, by the time the oldest began to wait.
    ages: BTreeSet<(i64, EndpointId)>,
    waiting: usize,
    in_flight: usize,
    overdue: usize,
    /// Lines that may have something handed over beyond what may run, as far as is known.
    ahead: VecDeque<EndpointId>,
    /// Whether anything is handed over in advance.
    goes_ahead: bool,
    /// Smoothed time of a request, microseconds; 0 = none has ended.
    pace: i64,
    /// Requests that have still to end before places are given away in advance again.
    calm: u32,
    /// Lines that were looked at: what a take costs.
    #[cfg(test)]
    looks: usize,
}

impl<T> Scheduler<T> {
    /// An empty scheduler.
    pub fn new(caps: Caps) -> Self {
        Scheduler {
            caps,
            lines: IdMap::default(),
            partners: HashMap::new(),
            rings: Rings::new(),
            turns: Turns::default(),
            held_back: VecDeque::new(),
            timers: BTreeSet::new(),
            ages: BTreeSet::new(),
            waiting: 0,
            in_flight: 0,
            overdue: 0,
            ahead: VecDeque::new(),
            goes_ahead: false,
            pace: 0,
            calm: 0,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// The ceilings in force.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// Other ceilings from now on.
    pub fn set_caps(&mut self, caps: Caps) {
        if caps == self.caps {
            return;
        }
        self.caps = caps;
        // Whatever waits may be free now.
        let waiting: Vec<EndpointId> = self.ages.iter().map(|(_, id)| *id).collect();
        for id in waiting {
            self.list(id);
        }
    }

    /// Makes the line of an endpoint or changes its partner and limits.
    pub fn set_endpoint(&mut self, endpoint: EndpointId, partner: &str, limits: Limits) {
        match self.lines.get_mut(&endpoint) {
            None => {
                let partner = self.enter_partner(partner, 0);
                let line = Box::new(Line::new(partner, limits));
                self.lines.insert(endpoint, line);
            }
            Some(line) => {
                line.set_limits(limits);
                if *line.partner != *partner {
                    self.change_partner(endpoint, partner);
                }
                self.list(endpoint);
            }
        }
    }

    /// Forgets a closed endpoint. One for which pairs wait or run stays.
    pub fn forget(&mut self, endpoint: EndpointId) {
        let Some(line) = self.lines.get(&endpoint) else {
            return;
        };
        if line.in_flight > 0 || line.waiting() > 0 {
            return;
        }
        if let Some(line) = self.lines.remove(&endpoint) {
            self.leave_partner(endpoint, &line.partner, 0);
        }
    }

    /// What has been learnt about an endpoint's capacity.
    pub fn window(&self, endpoint: EndpointId) -> Option<&AdaptiveWindow> {
        self.lines.get(&endpoint).map(|line| &line.window)
    }

    /// Puts another window in place, such as one that was written down.
    pub fn set_window(&mut self, endpoint: EndpointId, window: AdaptiveWindow) {
        if let Some(line) = self.lines.get_mut(&endpoint) {
            line.window = window;
            self.list(endpoint);
        }
    }

    /// Learns from the answer to a request that began at `began`. True when the window shut or opened.
    pub fn answered(
        &mut self,
        endpoint: EndpointId,
        push: Push,
        began: i64,
        now: i64,
        retry_after: Duration,
        dice: f64,
    ) -> bool {
        let Some(line) = self.lines.get_mut(&endpoint) else {
            return false;
        };
        line.well = push == Push::Up;
        let cap = line.cap(self.caps);
        let turned = line.window.moved(push, began, now, cap, retry_after, dice);
        self.list(endpoint);
        turned
    }

    /// A pair waits for its turn. An endpoint nobody told of has no partner and no limits.
    pub fn push(&mut self, endpoint: EndpointId, class: i16, item: T, now: i64) {
        if !self.lines.contains_key(&endpoint) {
            self.set_endpoint(endpoint, "", Limits::default());
        }
        if let Some(line) = self.lines.get_mut(&endpoint) {
            line.push(Waiting {
                item,
                since: now,
                class,
            });
            self.waiting += 1;
            self.note_age(endpoint);
            self.list(endpoint);
        }
    }

    /// The next pair to send; the caller says [`Scheduler::finished`] when its request ended, or
    /// [`Scheduler::not_sent`].
    pub fn take_next(&mut self, now: i64) -> Option<Taken<T>> {
        // First, so that no timer in the past is left when nothing can be taken.
        while let Some((at, endpoint)) = self.timers.first().copied() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            self.list(endpoint);
        }
        if self.in_flight >= self.caps.total + self.spare() {
            return None;
        }
        // One per call: all at once would be a walk over all of them each time the crowd thins out.
        self.let_go_one();
        loop {
            let preferred = self.turns.preferred();
            for class in [preferred, 1 - preferred] {
                while let Some(partner) = self.rings.next(class) {
                    if let Some(taken) = self.take_of(&partner, class, now) {
                        return Some(taken);
                    }
                }
            }
            if !self.let_go_one() {
                return None;
            }
        }
    }

    /// The pair that was taken is not sent after all: its place is free, its token comes back, and
    /// nothing is learnt.
    pub fn not_sent(&mut self, endpoint: EndpointId) {
        self.leave_flight(endpoint, |line| {
            if let Some(bucket) = &mut line.bucket {
                bucket.give_back();
            }
        });
    }

    /// A request outlasted the first pass; said once per request.
    pub fn outlasted(&mut self, endpoint: EndpointId) {
        if let Some(line) = self.lines.get_mut(&endpoint) {
            line.overdue += 1;
            self.overdue += 1;
        }
    }

    /// A request ended after `took` microseconds; `overdue` = it had outlasted the first pass.
    pub fn finished(&mut self, endpoint: EndpointId, took: i64, overdue: bool) {
        let mut ended = 0;
        self.leave_flight(endpoint, |line| {
            line.last_overdue = overdue;
            if overdue && line.overdue > 0 {
                line.overdue -= 1;
                ended = 1;
            }
            line.pace = smoothed(line.pace, took);
            line.calm = line.calm.saturating_sub(1);
        });
        self.pace = smoothed(self.pace, took);
        self.calm = self.calm.saturating_sub(1);
        self.overdue -= ended;
    }

    /// Takes out everything that has waited since before `since`, oldest first per endpoint.
    pub fn take_older(&mut self, since: i64) -> Vec<(EndpointId, T)> {
        let mut taken = Vec::new();
        while let Some((oldest, endpoint)) = self.ages.first().copied() {
            if oldest >= since {
                break;
            }
            let Some(line) = self.lines.get_mut(&endpoint) else {
                break;
            };
            while let Some((_, class)) = line.front().filter(|(front, _)| *front < since) {
                taken.extend(line.pop(class).map(|waiting| (endpoint, waiting.item)));
            }
            self.note_age(endpoint);
        }
        self.waiting -= taken.len();
        taken
    }

    /// Takes out everything that waits for an endpoint, oldest first.
    pub fn take_all(&mut self, endpoint: EndpointId) -> Vec<T> {
        let Some(line) = self.lines.get_mut(&endpoint) else {
            return Vec::new();
        };
        let mut taken = Vec::with_capacity(line.waiting());
        while let Some((_, class)) = line.front() {
            taken.extend(line.pop(class).map(|waiting| waiting.item));
        }
        self.waiting -= taken.len();
        self.note_age(endpoint);
        taken
    }
}

#[cfg(test)]
mod tests;
