//! Which waiting pair is sent next: round robin over endpoints, within caps per endpoint, partner and
//! database.
//!
//! Holds what is in memory only: pairs of open batches and pairs claimed from the due table. It knows
//! no clock (time is an argument) and decides nothing about outcomes. One slow endpoint takes its own
//! cap and nothing of the others': requests that outlast the first pass hold half of the database's
//! cap at most.

use std::collections::{HashMap, VecDeque};

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

/// What a pair waits as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting<T> {
    /// The pair, as its owner knows it.
    pub item: T,
    /// When it began to wait (any monotonic microseconds).
    pub since: i64,
}

#[derive(Debug)]
struct Line<T> {
    partner: String,
    cap: Option<usize>,
    waiting: VecDeque<Waiting<T>>,
    in_flight: usize,
    /// Of them, those that outlasted the first pass.
    overdue: usize,
    /// So did the last one that ended.
    last_overdue: bool,
    /// Stands in `ready`.
    ready: bool,
    /// Smoothed time of a request, microseconds.
    pace: i64,
}

/// Waiting pairs and running requests of one database.
#[derive(Debug)]
pub struct Scheduler<T> {
    caps: Caps,
    lines: HashMap<EndpointId, Line<T>>,
    partners: HashMap<String, usize>,
    /// Endpoints that have waiting pairs, in the order of their turns.
    ready: VecDeque<EndpointId>,
    waiting: usize,
    in_flight: usize,
    overdue: usize,
}

impl<T> Scheduler<T> {
    /// An empty scheduler.
    pub fn new(caps: Caps) -> Self {
        Scheduler {
            caps,
            lines: HashMap::new(),
            partners: HashMap::new(),
            ready: VecDeque::new(),
            waiting: 0,
            in_flight: 0,
            overdue: 0,
        }
    }

    /// Other ceilings from now on.
    pub fn set_caps(&mut self, caps: Caps) {
        self.caps = caps;
    }

    /// Pairs that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Requests under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Pairs of an endpoint that wait.
    pub fn waiting_for(&self, endpoint: EndpointId) -> usize {
        self.lines
            .get(&endpoint)
            .map_or(0, |line| line.waiting.len())
    }

    /// Requests of an endpoint under way.
    pub fn in_flight_to(&self, endpoint: EndpointId) -> usize {
        self.lines.get(&endpoint).map_or(0, |line| line.in_flight)
    }

    /// How many more requests an endpoint could run if nobody else wanted to, waiting pairs counted.
    pub fn room_for(&self, endpoint: EndpointId, cap: Option<usize>) -> usize {
        let cap = cap.unwrap_or(self.caps.per_endpoint).min(self.caps.total);
        cap.saturating_sub(self.in_flight_to(endpoint) + self.waiting_for(endpoint))
    }

    /// Microseconds until a pair that joined now would be sent, by the endpoint's pace so far.
    pub fn expected_wait(&self, endpoint: EndpointId) -> i64 {
        let Some(line) = self.lines.get(&endpoint) else {
            return 0;
        };
        let cap = line.cap.unwrap_or(self.caps.per_endpoint).max(1);
        let rounds = (line.waiting.len() + line.in_flight) / cap;
        line.pace
            .saturating_mul(i64::try_from(rounds).unwrap_or(i64::MAX))
    }

    /// A pair waits for its turn.
    pub fn push(
        &mut self,
        endpoint: EndpointId,
        partner: &str,
        cap: Option<usize>,
        item: T,
        now: i64,
    ) {
        let line = self.lines.entry(endpoint).or_insert_with(|| Line {
            partner: partner.to_owned(),
            cap,
            waiting: VecDeque::new(),
            in_flight: 0,
            overdue: 0,
            last_overdue: false,
            ready: false,
            pace: 0,
        });
        line.cap = cap;
        line.waiting.push_back(Waiting { item, since: now });
        self.waiting += 1;
        if !line.ready {
            line.ready = true;
            self.ready.push_back(endpoint);
        }
    }

    /// The next pair to send; the caller says [`Scheduler::finished`] when its request ended.
    pub fn take_next(&mut self) -> Option<(EndpointId, Waiting<T>)> {
        // Each endpoint that may not run keeps its place for the next round; one full round without
        // a taker ends the search.
        for _ in 0..self.ready.len() {
            if self.in_flight >= self.caps.total {
                return None;
            }
            let endpoint = self.ready.pop_front()?;
            let crowded = self.overdue * 2 >= self.caps.total;
            let Some(line) = self.lines.get_mut(&endpoint) else {
                continue;
            };
            if line.waiting.is_empty() {
                line.ready = false;
                continue;
            }
            let partner = self.partners.get(&line.partner).copied().unwrap_or(0);
            let free = line.in_flight < line.cap.unwrap_or(self.caps.per_endpoint)
                && partner < self.caps.per_partner
                && !(crowded && (line.overdue > 0 || line.last_overdue));
            if !free {
                self.ready.push_back(endpoint);
                continue;
            }
            let taken = line.waiting.pop_front();
            line.in_flight += 1;
            if line.waiting.is_empty() {
                line.ready = false;
            } else {
                self.ready.push_back(endpoint);
            }
            match self.partners.get_mut(&line.partner) {
                Some(count) => *count += 1,
                None => {
                    self.partners.insert(line.partner.clone(), 1);
                }
            }
            self.in_flight += 1;
            if let Some(waiting) = taken {
                self.waiting -= 1;
                return Some((endpoint, waiting));
            }
        }
        None
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
        let Some(line) = self.lines.get_mut(&endpoint) else {
            return;
        };
        line.in_flight = line.in_flight.saturating_sub(1);
        self.in_flight = self.in_flight.saturating_sub(1);
        line.last_overdue = overdue;
        if overdue {
            line.overdue = line.overdue.saturating_sub(1);
            self.overdue = self.overdue.saturating_sub(1);
        }
        line.pace = if line.pace == 0 {
            took
        } else {
            line.pace + (took - line.pace) / 8
        };
        if let Some(count) = self.partners.get_mut(&line.partner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                let partner = line.partner.clone();
                self.partners.remove(&partner);
            }
        }
    }

    /// Takes out everything that has waited since before `since`, oldest first per endpoint.
    pub fn take_older(&mut self, since: i64) -> Vec<(EndpointId, T)> {
        let mut taken = Vec::new();
        for (endpoint, line) in &mut self.lines {
            while line
                .waiting
                .front()
                .is_some_and(|waiting| waiting.since < since)
            {
                if let Some(waiting) = line.waiting.pop_front() {
                    taken.push((*endpoint, waiting.item));
                }
            }
        }
        self.waiting -= taken.len();
        taken
    }

    /// Takes out everything that waits for an endpoint.
    pub fn take_all(&mut self, endpoint: EndpointId) -> Vec<T> {
        let Some(line) = self.lines.get_mut(&endpoint) else {
            return Vec::new();
        };
        let taken: Vec<T> = line.waiting.drain(..).map(|waiting| waiting.item).collect();
        self.waiting -= taken.len();
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPS: Caps = Caps {
        total: 8,
        per_partner: 5,
        per_endpoint: 3,
    };

    fn drain(scheduler: &mut Scheduler<u32>) -> Vec<i64> {
        std::iter::from_fn(|| scheduler.take_next().map(|(endpoint, _)| endpoint.0)).collect()
    }

    #[test]
    fn endpoints_take_turns_and_keep_to_their_caps() {
        let mut scheduler = Scheduler::new(CAPS);
        for item in 0..10 {
            scheduler.push(EndpointId(1), "a", None, item, 0);
        }
        scheduler.push(EndpointId(2), "b", None, 100, 0);
        scheduler.push(EndpointId(3), "b", Some(1), 101, 0);
        scheduler.push(EndpointId(3), "b", Some(1), 102, 0);
        assert_eq!(drain(&mut scheduler), [1, 2, 3, 1, 1]);
        scheduler.finished(EndpointId(3), 10, false);
        assert_eq!(drain(&mut scheduler), [3]);
        assert_eq!(scheduler.in_flight(), 5 + 1 - 1);
    }

    #[test]
    fn a_partner_with_many_endpoints_keeps_to_its_own_cap() {
        let mut scheduler = Scheduler::new(CAPS);
        for endpoint in 0..6 {
            for item in 0..3 {
                scheduler.push(EndpointId(endpoint), "a", None, item, 0);
            }
        }
        scheduler.push(EndpointId(9), "b", None, 0, 0);
        let sent = drain(&mut scheduler);
        assert_eq!(sent.iter().filter(|endpoint| **endpoint != 9).count(), 5);
        assert!(sent.contains(&9));
    }

    #[test]
    fn requests_that_outlast_the_first_pass_hold_at_most_half() {
        let mut scheduler = Scheduler::new(Caps {
            total: 4,
            per_partner: 4,
            per_endpoint: 4,
        });
        for item in 0..4 {
            scheduler.push(EndpointId(1), "a", None, item, 0);
        }
        assert!(scheduler.take_next().is_some());
        assert!(scheduler.take_next().is_some());
        scheduler.outlasted(EndpointId(1));
        scheduler.outlasted(EndpointId(1));
        assert_eq!(
            scheduler.take_next(),
            None,
            "the slow endpoint starts nothing new"
        );
        scheduler.push(EndpointId(2), "b", None, 9, 0);
        assert_eq!(
            scheduler.take_next().map(|(endpoint, _)| endpoint.0),
            Some(2)
        );
        scheduler.finished(EndpointId(2), 10, false);
        scheduler.finished(EndpointId(1), 10, true);
        assert_eq!(
            scheduler.take_next().map(|(endpoint, _)| endpoint.0),
            Some(1),
            "below half again"
        );
    }

    #[test]
    fn an_endpoint_whose_last_request_outlasted_the_first_pass_waits_while_half_is_held() {
        let mut scheduler = Scheduler::new(Caps {
            total: 4,
            per_partner: 4,
            per_endpoint: 4,
        });
        for endpoint in [1, 2, 3] {
            scheduler.push(EndpointId(endpoint), "a", None, 0, 0);
            scheduler.push(EndpointId(endpoint), "a", None, 1, 0);
        }
        assert_eq!(
            drain(&mut scheduler),
            [1, 2, 3, 1],
            "all four places are taken"
        );
        for endpoint in [1, 2, 3] {
            scheduler.outlasted(EndpointId(endpoint));
        }
        scheduler.finished(EndpointId(3), 10, true);
        assert_eq!(scheduler.take_next(), None, "3 would hang again");
        scheduler.finished(EndpointId(2), 10, true);
        assert_eq!(
            scheduler.take_next().map(|(endpoint, _)| endpoint.0),
            Some(2)
        );
    }

    #[test]
    fn what_waited_too_long_is_handed_back_oldest_first() {
        let mut scheduler = Scheduler::new(CAPS);
        scheduler.push(EndpointId(1), "a", None, 1, 10);
        scheduler.push(EndpointId(1), "a", None, 2, 20);
        scheduler.push(EndpointId(1), "a", None, 3, 30);
        assert_eq!(
            scheduler.take_older(25),
            [(EndpointId(1), 1), (EndpointId(1), 2)]
        );
        assert_eq!(scheduler.waiting(), 1);
    }

    #[test]
    fn the_expected_wait_grows_with_the_queue_and_the_pace() {
        let mut scheduler = Scheduler::new(CAPS);
        scheduler.push(EndpointId(1), "a", None, 0, 0);
        assert!(scheduler.take_next().is_some());
        scheduler.finished(EndpointId(1), 1_500_000, false);
        for item in 0..6 {
            scheduler.push(EndpointId(1), "a", None, item, 0);
        }
        assert_eq!(scheduler.expected_wait(EndpointId(1)), 3_000_000);
        assert_eq!(scheduler.expected_wait(EndpointId(2)), 0);
    }

    proptest! {
        #[test]
        fn caps_hold_nothing_is_lost_and_nothing_starves(
            steps in proptest::collection::vec((0_u8..3, 0_i64..6, any::<bool>()), 1..400)
        ) {
            let partner = |endpoint: i64| if endpoint % 2 == 0 { "even" } else { "odd" };
            let mut scheduler = Scheduler::new(CAPS);
            let mut running: Vec<i64> = Vec::new();
            let (mut pushed, mut sent) = (0_usize, 0_usize);
            for (step, endpoint, _) in steps {
                match step {
                    0 => {
                        scheduler.push(EndpointId(endpoint), partner(endpoint), None, pushed as u32, 0);
                        pushed += 1;
                    }
                    1 => if let Some((endpoint, _)) = scheduler.take_next() {
                        running.push(endpoint.0);
                        sent += 1;
                    },
                    _ => if !running.is_empty() {
                        let ended = running.remove(0);
                        scheduler.finished(EndpointId(ended), 5, false);
                    },
                }
                prop_assert!(running.len() <= CAPS.total);
                for endpoint in 0..6 {
                    prop_assert!(running.iter().filter(|e| **e == endpoint).count() <= CAPS.per_endpoint);
                }
                for side in ["even", "odd"] {
                    prop_assert!(running.iter().filter(|e| partner(**e) == side).count() <= CAPS.per_partner);
                }
                prop_assert_eq!(pushed, sent + scheduler.waiting());
                prop_assert_eq!(running.len(), scheduler.in_flight());
            }
            // Whatever is left gets its turn as requests end.
            let mut rounds = 0;
            while scheduler.waiting() > 0 {
                rounds += 1;
                prop_assert!(rounds < 1000, "a pair starves");
                while let Some((endpoint, _)) = scheduler.take_next() {
                    running.push(endpoint.0);
                }
                if let Some(ended) = running.pop() {
                    scheduler.finished(EndpointId(ended), 5, false);
                }
            }
        }
    }
}
