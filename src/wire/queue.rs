//! What the lane and the threads have still to do, and in what order. An endpoint may be given more jobs than may run at once: those
//! beyond wait in its line, and each that ended well lets the next one go, without the main thread, which is about its
//! tables meanwhile. One that did not end well sends back what waits behind it: what to do about a receiver that fails
//! is not decided here.
//!
//! Knows no thread, no lock and no clock.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::rules::delivery::{Answer, Outcome};
use crate::rules::id_hash::IdMap;
use crate::rules::ids::EndpointId;
use crate::wire::challenge::ChallengeJob;
use crate::wire::flight::BY_THREAD;
use crate::wire::job::Job;

/// An answer that took longer is not good enough to go on without asking.
const QUICK: Duration = Duration::from_millis(500);

/// What a thread is given.
pub(super) enum Task {
    Event(Box<Job>),
    Challenge(Box<ChallengeJob>),
}

impl Task {
    pub(super) fn ticket(&self) -> u64 {
        match self {
            Task::Event(job) => job.ticket,
            Task::Challenge(job) => job.ticket,
        }
    }

    fn endpoint(&self) -> Option<EndpointId> {
        match self {
            Task::Event(job) => Some(job.pair.endpoint),
            Task::Challenge(_) => None,
        }
    }
}

/// The jobs of one endpoint.
#[derive(Default)]
struct Line {
    /// Its receiver answers in a way that takes a thread: so many jobs of it go past the lane.
    by_thread: u8,
    /// Those that run, or that the next free thread may take.
    admitted: usize,
    /// How many may be that at once.
    room: usize,
    waiting: VecDeque<(Box<Job>, Instant)>,
}

/// Jobs that came back without having begun.
#[derive(Default)]
pub struct Returned {
    /// Those that a free thread could have taken.
    pub ready: Vec<u64>,
    /// Those that waited for others of their endpoint.
    pub waiting: Vec<u64>,
}

/// The jobs that nobody has taken.
#[derive(Default)]
pub(super) struct Queue {
    /// There is a lane: it looks at every job first.
    pub lane: bool,
    /// What the lane may take.
    quick: VecDeque<(Box<Job>, Instant)>,
    /// What a thread may take.
    ready: VecDeque<(Task, Instant)>,
    lines: IdMap<EndpointId, Line>,
    waiting: usize,
}

impl Queue {
    pub(super) fn push(&mut self, task: Task, now: Instant) {
        match task {
            Task::Event(job) => {
                let line = self.lines.entry(job.pair.endpoint).or_default();
                line.room = job.room.max(1);
                line.waiting.push_back((job, now));
                self.waiting += 1;
                let endpoint = line.waiting.back().map(|(job, _)| job.pair.endpoint);
                if let Some(endpoint) = endpoint {
                    self.admit(endpoint, now);
                }
            }
            challenge @ Task::Challenge(_) => self.ready.push_back((challenge, now)),
        }
    }

    /// The next job for a thread.
    pub(super) fn pop(&mut self) -> Option<Task> {
        self.ready.pop_front().map(|(task, _)| task)
    }

    /// The next job for the lane, and since when it has been here.
    pub(super) fn pop_quick(&mut self) -> Option<(Box<Job>, Instant)> {
        self.quick.pop_front()
    }

    /// The lane cannot do this one: a thread has to. `whole_line` = nor the others of its endpoint, for a while. It
    /// keeps its age, so that the lane does not pass on more than the threads come to.
    pub(super) fn pass(&mut self, job: Box<Job>, since: Instant, whole_line: bool) {
        let endpoint = job.pair.endpoint;
        let first = self.ready.front().is_none_or(|(_, front)| since <= *front);
        if first {
            self.ready.push_front((Task::Event(job), since));
        } else {
            self.ready.push_back((Task::Event(job), since));
        }
        if !whole_line {
            return;
        }
        if let Some(line) = self.lines.get_mut(&endpoint) {
            line.by_thread = BY_THREAD;
        }
        for (job, since) in std::mem::take(&mut self.quick) {
            if job.pair.endpoint == endpoint {
                self.ready.push_back((Task::Event(job), since));
            } else {
                self.quick.push_back((job, since));
            }
        }
    }

    /// There is no lane any more.
    pub(super) fn close_lane(&mut self) {
        self.lane = false;
        let quick = std::mem::take(&mut self.quick);
        self.ready.extend(
            quick
                .into_iter()
                .map(|(job, since)| (Task::Event(job), since)),
        );
    }

    /// Jobs that a free thread may take.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Jobs that the lane may take.
    pub(super) fn quick(&self) -> usize {
        self.quick.len()
    }

    /// Jobs for the lane whose turn comes before that of the first for a thread.
    pub(super) fn quick_before_ready(&self) -> usize {
        match (self.quick.front(), self.ready.front()) {
            (Some((_, quick)), Some((_, ready))) if ready < quick => 0,
            _ => self.quick.len(),
        }
    }

    /// The reverse.
    pub(super) fn ready_before_quick(&self) -> usize {
        match (self.quick.front(), self.ready.front()) {
            (Some((_, quick)), Some((_, ready))) if quick <= ready => 0,
            _ => self.ready.len(),
        }
    }

    /// Jobs that have not begun.
    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.quick.len() + self.waiting
    }

    /// A job of this endpoint has ended. What waits behind one that did not end well comes back.
    pub(super) fn ended(&mut self, endpoint: EndpointId, well: bool, now: Instant) -> Vec<u64> {
        let Some(line) = self.lines.get_mut(&endpoint) else {
            return Vec::new();
        };
        line.admitted = line.admitted.saturating_sub(1);
        let mut returned = Vec::new();
        if !well {
            returned.extend(line.waiting.drain(..).map(|(job, _)| job.ticket));
            self.waiting -= returned.len();
        }
        if line.admitted == 0 && line.waiting.is_empty() {
            self.lines.remove(&endpoint);
        } else {
            self.admit(endpoint, now);
        }
        returned
    }

    /// Everything that has not begun, challenges left out.
    pub(super) fn recall(&mut self) -> Returned {
        let ready = self.recall_ready();
        let mut waiting = Vec::with_capacity(self.waiting);
        for line in self.lines.values_mut() {
            waiting.extend(line.waiting.drain(..).map(|(job, _)| job.ticket));
        }
        self.waiting = 0;
        self.lines.retain(|_, line| line.admitted > 0);
        Returned { ready, waiting }
    }

    fn recall_ready(&mut self) -> Vec<u64> {
        let mut returned = Vec::new();
        let quick = std::mem::take(&mut self.quick)
            .into_iter()
            .map(|(job, since)| (Task::Event(job), since));
        for (task, since) in std::mem::take(&mut self.ready).into_iter().chain(quick) {
            match task.endpoint() {
                Some(endpoint) => {
                    returned.push(task.ticket());
                    if let Some(line) = self.lines.get_mut(&endpoint) {
                        line.admitted = line.admitted.saturating_sub(1);
                    }
                }
                None => self.ready.push_back((task, since)),
            }
        }
        // What waits behind nothing but these comes back with them: nobody would let it go on.
        for line in self.lines.values_mut().filter(|line| line.admitted == 0) {
            self.waiting -= line.waiting.len();
            returned.extend(line.waiting.drain(..).map(|(job, _)| job.ticket));
        }
        self.lines
            .retain(|_, line| line.admitted > 0 || !line.waiting.is_empty());
        returned
    }

    /// What has been here since before `since` and what stands behind it: everything that is ready where the first of
    /// that has, and the lines of the endpoints whose first one has.
    pub(super) fn recall_older(&mut self, since: Instant) -> Returned {
        let first = self
            .ready
            .iter()
            .find(|(task, _)| task.endpoint().is_some())
            .map(|(_, here)| *here);
        let quick = self.quick.front().map(|(_, here)| *here);
        let mut returned = Returned::default();
        if [first, quick]
            .into_iter()
            .flatten()
            .any(|here| here < since)
        {
            returned.ready = self.recall_ready();
        }
        for line in self.lines.values_mut() {
            if line.waiting.front().is_some_and(|(_, here)| *here < since) {
                returned
                    .waiting
                    .extend(line.waiting.drain(..).map(|(job, _)| job.ticket));
            }
        }
        self.waiting -= returned.waiting.len();
        self.lines
            .retain(|_, line| line.admitted > 0 || !line.waiting.is_empty());
        returned
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        *self = Queue {
            lane: self.lane,
            ..Queue::default()
        };
    }

    fn admit(&mut self, endpoint: EndpointId, now: Instant) {
        let Some(line) = self.lines.get_mut(&endpoint) else {
            return;
        };
        while line.admitted < line.room {
            let Some((job, _)) = line.waiting.pop_front() else {
                return;
            };
            self.waiting -= 1;
            line.admitted += 1;
            let past = line.by_thread > 0;
            line.by_thread = line.by_thread.saturating_sub(1);
            if self.lane && !past {
                self.quick.push_back((job, now));
            } else {
                self.ready.push_back((Task::Event(job), now));
            }
        }
    }
}

/// Whether the next request to the same endpoint may begin without further thought.
pub(super) fn ended_well(outcome: &Outcome) -> bool {
    matches!(
        outcome.answer,
        Answer::Status {
            code: 200..=299,
            ..
        }
    ) && Duration::from_micros(outcome.latency_us) < QUICK
}
