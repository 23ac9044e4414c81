//! The line of one endpoint: what waits for it, what runs, and whether it may run more.
//!
//! Knows nothing of other endpoints: turns, partners and the database's ceilings are the scheduler's.

use std::collections::VecDeque;
use std::sync::Arc;

use super::rate::Bucket;
use super::turns::{CLASSES, Turns, queue_of};
use super::{Caps, Limits, Waiting};
use crate::rules::adaptive::AdaptiveWindow;

#[derive(Debug)]
pub(super) struct Line<T> {
    pub(super) partner: Arc<str>,
    pub(super) limits: Limits,
    pub(super) window: AdaptiveWindow,
    pub(super) bucket: Option<Bucket>,
    /// By class, each in the order of arrival.
    queues: [VecDeque<Waiting<T>>; 2],
    pub(super) turns: Turns,
    pub(super) in_flight: usize,
    /// Handed over beyond that: each begins when one of its own has ended, in its place.
    pub(super) ahead: usize,
    /// Requests that have still to end before anything more is handed over beyond.
    pub(super) calm: u32,
    /// The last answer said that it does well.
    pub(super) well: bool,
    /// Stands among those that may have something handed over beyond.
    pub(super) may_go_ahead: bool,
    /// Of those in flight, those that outlasted the first pass.
    pub(super) overdue: usize,
    /// So did the last one that ended.
    pub(super) last_overdue: bool,
    /// Stands in its partner's ring of that class.
    pub(super) listed: [bool; 2],
    /// Stands among those that wait for fewer overdue requests.
    pub(super) held_back: bool,
    /// Its entry among the timers.
    pub(super) timer: Option<i64>,
    /// Its entry among the lines by age: since when its oldest pair has waited.
    pub(super) oldest: Option<i64>,
    /// Smoothed time of a request, microseconds; 0 = none has ended.
    pub(super) pace: i64,
}

/// Whether a line may run one more request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Free,
    /// Not before one of its own requests ended, or its window or limits changed.
    Full,
    /// Not while overdue requests hold half of the database's cap.
    HeldBack,
    /// Not before this time.
    At(i64),
}

impl<T> Line<T> {
    pub(super) fn new(partner: Arc<str>, limits: Limits) -> Self {
        Line {
            partner,
            limits,
            window: AdaptiveWindow::new(),
            bucket: limits.rate.map(Bucket::new),
            queues: [VecDeque::new(), VecDeque::new()],
            turns: Turns::default(),
            in_flight: 0,
            ahead: 0,
            calm: 0,
            well: false,
            may_go_ahead: false,
            overdue: 0,
            last_overdue: false,
            listed: [false; 2],
            held_back: false,
            timer: None,
            oldest: None,
            pace: 0,
        }
    }

    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        match (&mut self.bucket, limits.rate) {
            (Some(bucket), Some(rate)) => bucket.set_rate(rate),
            (bucket, rate) => *bucket = rate.map(Bucket::new),
        }
    }

    /// The ceiling of its requests, its window left out.
    pub(super) fn cap(&self, caps: Caps) -> usize {
        self.limits.cap.unwrap_or(caps.per_endpoint).min(caps.total)
    }

    /// How many requests it may run at once.
    pub(super) fn room(&self, caps: Caps, now: i64) -> usize {
        self.window.room(self.cap(caps), now)
    }

    /// How many it may run before long.
    pub(super) fn prospect(&self, caps: Caps, now: i64) -> usize {
        self.window.prospect(self.cap(caps), now)
    }

    pub(super) fn standing(&self, caps: Caps, crowded: bool, now: i64) -> Standing {
        let probe_at = self.window.probe_at();
        let room = self.room(caps, probe_at.unwrap_or(now).max(now));
        if self.in_flight >= room {
            return Standing::Full;
        }
        if crowded && (self.overdue > 0 || self.last_overdue) {
            return Standing::HeldBack;
        }
        let token_at = self.bucket.as_ref().map(|bucket| bucket.ready_at(now));
        match probe_at.max(token_at) {
            Some(at) if at > now => Standing::At(at),
            _ => Standing::Free,
        }
    }

    /// How many may be handed over beyond those in flight: as many as it would finish while nobody hands over. None
    /// of what is slow or fails, and none where each start has its time.
    pub(super) fn depth(&self, caps: Caps, now: i64) -> usize {
        if self.in_flight == 0
            || self.pace == 0
            || self.calm > 0
            || !self.well
            || self.overdue > 0
            || self.bucket.is_some()
            || self.window.is_shut()
        {
            return 0;
        }
        let room = self.room(caps, now);
        if self.in_flight < room {
            return 0;
        }
        finishes(room, self.pace, AHEAD).min(MOST_AHEAD)
    }

    pub(super) fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    pub(super) fn waits_in(&self, class: usize) -> bool {
        !self.queues[class].is_empty()
    }

    pub(super) fn push(&mut self, waiting: Waiting<T>) {
        self.queues[queue_of(waiting.class)].push_back(waiting);
    }

    pub(super) fn push_front(&mut self, waiting: Waiting<T>) {
        self.queues[queue_of(waiting.class)].push_front(waiting);
    }

    pub(super) fn pop(&mut self, class: usize) -> Option<Waiting<T>> {
        self.queues[class].pop_front()
    }

    /// Since when the first pair of a queue has waited, and which queue that is.
    pub(super) fn front(&self) -> Option<(i64, usize)> {
        CLASSES
            .into_iter()
            .filter_map(|class| Some((self.queues[class].front()?.since, class)))
            .min()
    }
}

/// What a smoothed time becomes with one more; 0 = there is none yet.
pub(super) fn smoothed(pace: i64, took: i64) -> i64 {
    let took = took.max(0);
    if pace == 0 {
        took
    } else {
        pace + (took - pace) / 8
    }
}

/// For how long a line is given work in advance, microseconds: longer than the main thread is about its tables.
const AHEAD: i64 = 30_000;
/// What is handed over in advance to one line at most.
const MOST_AHEAD: usize = 512;

/// How many requests end within `time` when so many run at once and each takes `pace`.
pub(super) fn finishes(room: usize, pace: i64, time: i64) -> usize {
    let rounds = time / pace.max(1);
    let part = time % pace.max(1);
    let at_once = i64::try_from(room).unwrap_or(i64::MAX);
    let ended = at_once
        .saturating_mul(rounds)
        .saturating_add(at_once.saturating_mul(part) / pace.max(1));
    usize::try_from(ended).unwrap_or(usize::MAX)
}
