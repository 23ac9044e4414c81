//! What the leader counts for monitoring: counters and distributions since the server started, and the last hours in
//! steps of five minutes.
//!
//! It lives in the database's slot of the shared memory (wake.rs) and is all atomics; zero bytes are its beginning. The
//! leader alone writes, after the transaction that holds what is counted has committed, so that a result that could not
//! be written is not counted; any session may read. It outlives the leader and not the server, as counters may. Nothing
//! here knows a tenant, an endpoint or an event: labels are the closed lists below.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::outbox::{Change, Outcomes};
use crate::rules::delivery::Category;
use crate::rules::histogram::{DURATION, LAG, bucket, quantile, seconds};

/// Seconds of a step of the history, and how many are kept: six hours.
pub const STEP: i64 = 300;
const STEPS: usize = 72;

/// Classes of priority below this one; the one of replays of a range is above them.
const REPLAYED: i16 = 2;

/// Kinds of alerts that the leader raises; the last one counts whatever is not in the list.
pub const ALERTS: [&str; 15] = [
    "endpoint.warning",
    "endpoint.disabled",
    "endpoint.recovered",
    "endpoint.blocked",
    "endpoint.expiring",
    "endpoint.expired",
    "endpoint.unconfirmed",
    "delivery.quarantined",
    "delivery.unrecorded",
    "delivery.expired",
    "delivery.closed",
    "delivery.filter",
    "delivery.unconverted",
    "event.fenced",
    "other",
];

/// How deliveries end, as far as the leader ends them.
pub const ENDS: [&str; 3] = ["delivered", "dead", "cancelled"];

/// Zero bytes are its beginning.
#[repr(C)]
pub struct Counters {
    /// Events read and published in the feed.
    events: AtomicU64,
    /// Pairs of event and endpoint made of them.
    pairs: AtomicU64,
    /// Deliveries that ended, as in [`ENDS`].
    ends: [AtomicU64; ENDS.len()],
    /// Attempts: delivered, then by category as in [`Category::ALL`].
    attempts: [AtomicU64; Category::ALL.len() + 1],
    /// Alerts as in [`ALERTS`].
    alerts: [AtomicU64; ALERTS.len()],
    /// Transactions that wrote results.
    flushes: AtomicU64,
    lag: Distribution<{ LAG.len() + 1 }>,
    duration: Distribution<{ DURATION.len() + 1 }>,
    history: [Point; STEPS],
    /// What retention is at, as [`Counters::keeps`] was told.
    keeping: [AtomicU32; 3],
    keeping_since: AtomicI64,
}

#[repr(C)]
struct Distribution<const N: usize> {
    counts: [AtomicU64; N],
    micros: AtomicU64,
}

/// One step of the history.
#[repr(C)]
struct Point {
    /// Beginning, unix seconds; anything but a step that is asked for = its values mean nothing.
    at: AtomicI64,
    events: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
    /// Most pairs in memory at once, waiting or on the wire.
    queued: AtomicU32,
    lag: Distribution<{ LAG.len() + 1 }>,
    duration: Distribution<{ DURATION.len() + 1 }>,
}

/// A sample: family, name, labels, value.
pub type Sample = (
    &'static str,
    &'static str,
    Option<(&'static str, String)>,
    f64,
);

/// A step of the history as it is shown.
pub struct Step {
    /// Beginning, unix seconds.
    pub at: i64,
    pub events: u64,
    pub delivered: u64,
    pub failed: u64,
    pub queued: u32,
    /// Median and 95th percentile, seconds: from emit to delivery, and of an attempt.
    pub lag: [Option<f64>; 2],
    pub duration: [Option<f64>; 2],
}

impl<const N: usize> Distribution<N> {
    fn add(&self, bounds: &[u64], micros: u64) {
        if let Some(count) = self.counts.get(bucket(bounds, micros)) {
            count.fetch_add(1, Relaxed);
        }
        self.micros.fetch_add(micros, Relaxed);
    }

    fn reset(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
        self.micros.store(0, Relaxed);
    }

    fn counts(&self) -> [u64; N] {
        std::array::from_fn(|index| self.counts[index].load(Relaxed))
    }

    fn quantiles(&self, bounds: &[u64]) -> [Option<f64>; 2] {
        let counts = self.counts();
        [0.5, 0.95].map(|share| quantile(bounds, &counts, share))
    }

    /// The samples of a family; names are those of its buckets, sum and count. The count is that of the buckets, so
    /// that they agree whatever the leader adds meanwhile.
    #[allow(clippy::cast_precision_loss)]
    fn samples(
        &self,
        bounds: &[u64],
        [family, bucket, sum, count]: [&'static str; 4],
        into: &mut Vec<Sample>,
    ) {
        let mut total = 0;
        for (index, here) in self.counts().into_iter().enumerate() {
            total += here;
            let bound = bounds
                .get(index)
                .map_or("+Inf".to_owned(), |bound| seconds(*bound).to_string());
            into.push((family, bucket, Some(("le", bound)), total as f64));
        }
        into.push((family, sum, None, seconds(self.micros.load(Relaxed))));
        into.push((family, count, None, total as f64));
    }
}

impl Counters {
    /// Events were read and published.
    pub fn fanned_out(&self, events: usize, now: i64) {
        let events = u64::try_from(events).unwrap_or(0);
        self.events.fetch_add(events, Relaxed);
        self.point(now).events.fetch_add(events, Relaxed);
    }

    /// A pair was made of one of them.
    pub fn paired(&self) {
        self.pairs.fetch_add(1, Relaxed);
    }

    /// Results were written.
    pub fn written(&self, outcomes: &Outcomes, now: i64) {
        self.flushes.fetch_add(1, Relaxed);
        let point = self.point(now);
        for change in &outcomes.changes {
            self.count(change, point);
        }
        for alert in &outcomes.alerts {
            let kind = ALERTS.iter().position(|kind| *kind == alert.kind);
            self.alerts[kind.unwrap_or(ALERTS.len() - 1)].fetch_add(1, Relaxed);
        }
    }

    /// Deliveries were cancelled in the tables, with their endpoint.
    pub fn cancelled(&self, deliveries: usize) {
        self.ends[2].fetch_add(u64::try_from(deliveries).unwrap_or(0), Relaxed);
    }

    /// So many pairs are in memory.
    pub fn queued(&self, pairs: u32, now: i64) {
        // Nothing to be told, and no step to be begun for it.
        if pairs > 0 {
            self.point(now).queued.fetch_max(pairs, Relaxed);
        }
    }

    /// What retention is at: a kind of step, how many are left of how many, and since when; zeros = nothing.
    pub fn keeps(&self, kind: u32, left: u32, of: u32, since: i64) {
        for (cell, value) in self.keeping.iter().zip([kind, left, of]) {
            cell.store(value, Relaxed);
        }
        self.keeping_since.store(since, Relaxed);
    }

    /// What [`Counters::keeps`] was told last.
    pub fn keeping(&self) -> ([u32; 3], i64) {
        (
            std::array::from_fn(|index| self.keeping[index].load(Relaxed)),
            self.keeping_since.load(Relaxed),
        )
    }

    /// For another database: its numbers begin anew.
    pub fn reset(&self) {
        for counter in [&self.events, &self.pairs, &self.flushes] {
            counter.store(0, Relaxed);
        }
        let lists = self.ends.iter().chain(&self.attempts).chain(&self.alerts);
        lists.for_each(|counter| counter.store(0, Relaxed));
        self.lag.reset();
        self.duration.reset();
        self.history.iter().for_each(|point| point.begin(0));
        self.keeps(0, 0, 0, 0);
    }

    /// Every counter, with all of its labels; three of them are the slot's own.
    #[allow(clippy::cast_precision_loss)]
    pub fn samples(&self, [lost, fenced, restarts]: [u64; 3]) -> Vec<Sample> {
        let mut all: Vec<Sample> = Vec::with_capacity(100);
        let value = |counter: &AtomicU64| counter.load(Relaxed) as f64;
        for (name, counter) in [
            ("webhook_events_fanned_out_total", &self.events),
            ("webhook_pairs_made_total", &self.pairs),
            ("webhook_result_flushes_total", &self.flushes),
        ] {
            all.push((name, name, None, value(counter)));
        }
        for (name, count) in [
            ("webhook_events_fenced_total", fenced),
            ("webhook_leader_restarts_total", restarts),
        ] {
            all.push((name, name, None, count as f64));
        }
        let name = "webhook_deliveries_total";
        for (end, counter) in ENDS.iter().zip(&self.ends) {
            let label = Some(("outcome", (*end).to_owned()));
            all.push((name, name, label, value(counter)));
        }
        let name = "webhook_attempts_total";
        for (index, counter) in self.attempts.iter().enumerate() {
            let category = index.checked_sub(1).and_then(|i| Category::ALL.get(i));
            // What no attempt can meet: they keep a pair from being tried, or end it without a try.
            if let Some(Category::Filter | Category::Conversion | Category::Expired) = category {
                continue;
            }
            let count = match category {
                Some(Category::Lost) => lost as f64,
                _ => value(counter),
            };
            let outcome = category.map_or("delivered", |category| category.as_str());
            let label = Some(("outcome", outcome.to_owned()));
            all.push((name, name, label, count));
        }
        let name = "webhook_alerts_total";
        for (kind, counter) in ALERTS.iter().zip(&self.alerts) {
            let label = Some(("kind", (*kind).to_owned()));
            all.push((name, name, label, value(counter)));
        }
        self.lag.samples(
            &LAG,
            [
                "webhook_delivery_lag_seconds",
                "webhook_delivery_lag_seconds_bucket",
                "webhook_delivery_lag_seconds_sum",
                "webhook_delivery_lag_seconds_count",
            ],
            &mut all,
        );
        self.duration.samples(
            &DURATION,
            [
                "webhook_attempt_duration_seconds",
                "webhook_attempt_duration_seconds_bucket",
                "webhook_attempt_duration_seconds_sum",
                "webhook_attempt_duration_seconds_count",
            ],
            &mut all,
        );
        all
    }

    /// The last hours, oldest first, without a gap; `now` in microseconds.
    pub fn history(&self, now: i64) -> Vec<Step> {
        let last = step(now);
        let steps = i64::try_from(STEPS).unwrap_or(0);
        (0..steps)
            .rev()
            .map(|ago| {
                let at = last - ago * STEP;
                match self.history.get(index(at)) {
                    Some(point) if point.at.load(Relaxed) == at => point.step(at),
                    _ => Step {
                        at,
                        events: 0,
                        delivered: 0,
                        failed: 0,
                        queued: 0,
                        lag: [None; 2],
                        duration: [None; 2],
                    },
                }
            })
            .collect()
    }

    fn count(&self, change: &Change, point: &Point) {
        let end = ENDS.iter().position(|end| *end == change.state);
        if let Some(end) = end {
            self.ends[end].fetch_add(1, Relaxed);
        }
        let Some(attempt) = &change.attempt else {
            return;
        };
        let category = attempt.category.and_then(|category| {
            let known = Category::ALL.iter().position(|known| *known == category);
            known.map(|index| index + 1)
        });
        self.attempts[category.unwrap_or(0)].fetch_add(1, Relaxed);
        let side = match category {
            None => &point.delivered,
            Some(_) => &point.failed,
        };
        side.fetch_add(1, Relaxed);
        let Some(took) = attempt.latency_ms else {
            return;
        };
        let took = u64::try_from(took).unwrap_or(0).saturating_mul(1_000);
        self.duration.add(&DURATION, took);
        point.duration.add(&DURATION, took);
        // How late a replay is says nothing about how it goes now.
        if end == Some(0) && change.series_start == 0 && change.class < REPLAYED {
            let emitted = change.pair.event.unix_ms().saturating_mul(1_000);
            let arrived = u64::try_from(attempt.started_at)
                .unwrap_or(0)
                .saturating_add(took);
            let lag = arrived.saturating_sub(emitted);
            self.lag.add(&LAG, lag);
            point.lag.add(&LAG, lag);
        }
    }

    /// The step of the history of a moment; one of six hours ago gives way to it.
    fn point(&self, now: i64) -> &Point {
        let at = step(now);
        let point = &self.history[index(at)];
        if point.at.load(Relaxed) != at {
            point.begin(at);
        }
        point
    }
}

impl Point {
    fn begin(&self, at: i64) {
        // Whoever reads meanwhile takes it for a step without values.
        self.at.store(-1, Relaxed);
        for counter in [&self.events, &self.delivered, &self.failed] {
            counter.store(0, Relaxed);
        }
        self.queued.store(0, Relaxed);
        self.lag.reset();
        self.duration.reset();
        self.at.store(at, Relaxed);
    }

    fn step(&self, at: i64) -> Step {
        Step {
            at,
            events: self.events.load(Relaxed),
            delivered: self.delivered.load(Relaxed),
            failed: self.failed.load(Relaxed),
            queued: self.queued.load(Relaxed),
            lag: self.lag.quantiles(&LAG),
            duration: self.duration.quantiles(&DURATION),
        }
    }
}

/// Beginning of the step of a moment, unix seconds, from microseconds.
fn step(now: i64) -> i64 {
    now.div_euclid(1_000_000).div_euclid(STEP) * STEP
}

fn index(at: i64) -> usize {
    usize::try_from(at.div_euclid(STEP)).unwrap_or(0) % STEPS
}
