//! What goes because it is old: a pass over everything every minute, in small steps between the rounds of the loop. A
//! step that meets somebody's lock gives up at once and is taken again in the next pass.
//!
//! What is still due becomes a dead letter first, what is still dead is closed and told, and only then a day goes: the
//! rows that refer to something before what they refer to. Pairs in memory and events that nobody has read keep
//! their day. What somebody asked for is as old as the asking.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::Leader;
use super::dispatch::REPLAYS;
use super::transaction::{Trouble, terminating, transaction};
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Change};
use crate::pg::settings;
use crate::rules::delivery::Category;
use crate::rules::ids::{EndpointId, EventId};

/// Between passes, and before the first one.
const EVERY: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(5);
/// Between steps, while requests wait or are under way and while not.
const BUSY: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_millis(10);
/// After a partition could not be dropped: whoever emits meanwhile has waited for the lock time-out.
const DROP_AGAIN: Duration = Duration::from_secs(600);
/// Rows looked at in one step.
const ROWS: i32 = 1_000;
/// Events whose payload is taken in one step.
const PAYLOADS: i32 = 200;
/// Pages of the idempotency keys walked in one pass.
const PAGES: i32 = 256;
const MICROS_PER_DAY: i64 = 86_400_000_000;
const MS_PER_DAY: i64 = 86_400_000;

/// Partitioned tables in the order in which their DEFAULT partition is cleared.
const DEFAULTS: [&str; 6] = [
    "_excerpt",
    "_attempt",
    "_delivery",
    "_feed",
    "_event_version",
    "_event",
];

/// What a pass goes by: the time when it began, and the days before which things are old.
#[derive(Clone, Copy, Default)]
struct Pass {
    now: i64,
    attempts: i32,
    deliveries: i32,
    events: i32,
}

/// A small piece of a pass.
enum Step {
    /// Pairs that still wait although deliveries of their events are not kept any more become dead letters.
    Expire((String, i64)),
    /// Dead letters of events before this day are closed.
    Close(i32),
    /// The partition of a day is emptied, and dropped when it is empty.
    Clear(String, i32),
    /// Rows before this day in a DEFAULT partition, from where on.
    Default(&'static str, i32, Option<String>),
    /// Rows of a table without partitions, from before this moment.
    Rows(&'static str, i64),
    /// Some pages of the idempotency keys.
    Keys,
    /// Payloads that have reached the age of their type.
    Payloads,
}

/// What retention remembers.
pub struct Keeping {
    pass: Pass,
    steps: VecDeque<Step>,
    next_pass: Instant,
    not_before: Instant,
    drop_after: Instant,
    key_page: i32,
    /// Deliveries by partner that became dead letters, or were closed, in this pass.
    told: HashMap<(&'static str, Option<String>), usize>,
    /// When the pass under way began, and of how many steps it was.
    pass_begun: (i64, usize),
}

impl Keeping {
    pub fn new() -> Keeping {
        let now = Instant::now();
        Keeping {
            pass: Pass::default(),
            steps: VecDeque::new(),
            next_pass: now + SOON,
            not_before: now,
            drop_after: now,
            key_page: 0,
            told: HashMap::new(),
            pass_begun: (0, 0),
        }
    }

    /// For the view `stat_progress_retention`: the kind of the next step, how many are left of how many, and since
    /// when; zeros between passes.
    pub fn progress(&self) -> (u32, usize, usize, i64) {
        let kind = match self.steps.front() {
            None => return (0, 0, 0, 0),
            Some(Step::Expire(..)) => 1,
            Some(Step::Close(_)) => 2,
            Some(Step::Clear(..)) => 3,
            Some(Step::Default(..)) => 4,
            Some(Step::Rows(..)) => 5,
            Some(Step::Keys) => 6,
            Some(Step::Payloads) => 7,
        };
        let (since, of) = self.pass_begun;
        (kind, self.steps.len(), of, since)
    }

    /// Settings may have changed.
    pub fn soon(&mut self) {
        self.next_pass = Instant::now();
        self.drop_after = Instant::now();
    }
}

impl Leader {
    /// One small step of retention.
    pub fn keep(&mut self) -> Result<(), Trouble> {
        if self.keeping_pause() != Some(Duration::ZERO) {
            return Ok(());
        }
        // What is on its way to the tables may be of those very days. When it cannot be written, that is no trouble of
        // retention's, and must not be taken for it.
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        let idle = self.flights.is_empty() && self.scheduler.waiting() == 0;
        self.keeping.not_before = Instant::now() + if idle { IDLE } else { BUSY };
        let done = match self.keeping.steps.pop_front() {
            None => self.begin_pass(),
            Some(step) => self.take_step(step),
        };
        match done {
            Ok(()) => Ok(()),
            Err(trouble) if terminating() => Err(trouble),
            // Somebody holds the rows; the next pass finds them.
            Err(Trouble::Passing(_)) => Ok(()),
            // Whatever it is, it keeps nothing from being delivered.
            Err(Trouble::Lasting(text)) => {
                self.complain("could not remove what is old", &text);
                Ok(())
            }
        }
    }

    /// How long until the next step; none = not now.
    pub fn keeping_pause(&self) -> Option<Duration> {
        // Until an event of this database was read it may be a copy that is still being restored. An adoption reads
        // old events, and looks in the feed for what was published.
        if self.last_pos == 0 || self.is_adopting() {
            return None;
        }
        let at = if self.keeping.steps.is_empty() {
            self.keeping.next_pass
        } else {
            self.keeping.not_before
        };
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// What a pass that begins now goes by.
    fn pass(&self) -> Pass {
        // A wall clock that was set ahead by mistake makes nothing old in this life.
        let now = now_micros().min(self.clock.now());
        let ages = self.settings.ages;
        // A day is old when all of it is.
        let day = |age| i32::try_from(before(now, age).div_euclid(MICROS_PER_DAY)).unwrap_or(0);
        Pass {
            now,
            attempts: day(ages.attempt),
            deliveries: day(ages.delivery),
            events: day(ages.event),
        }
    }

    /// The first event whose deliveries are kept: of one before it nobody can tell whether it was delivered.
    pub fn first_with_deliveries(&self) -> EventId {
        first_event(self.pass().deliveries)
    }

    /// Lists what is to be done in a pass.
    fn begin_pass(&mut self) -> Result<(), Trouble> {
        self.keeping.next_pass = Instant::now() + EVERY;
        // Alerts that came another way are found before long.
        self.notifying.soon();
        let pass = self.pass();
        self.keeping.pass = pass;
        let Pass {
            now,
            attempts,
            deliveries,
            events,
        } = pass;
        let ages = self.settings.ages;
        let days = transaction(
            self.owner,
            false,
            c"webhook leader: looking for old partitions",
            || outbox::old_partitions([attempts, deliveries, events]),
        )?;
        let steps = &mut self.keeping.steps;
        steps.push_back(Step::Expire((String::new(), 0)));
        steps.push_back(Step::Close(events));
        // The feed goes from its old end, which may have no partition.
        steps.push_back(Step::Default("_feed", events, None));
        steps.extend(
            days.into_iter()
                .map(|(parent, day)| Step::Clear(parent, day)),
        );
        for parent in DEFAULTS {
            let day = match parent {
                "_excerpt" | "_attempt" => attempts,
                "_delivery" => deliveries,
                _ => events,
            };
            steps.push_back(Step::Default(parent, day, None));
        }
        for (name, age) in [
            ("_audit", ages.audit),
            ("_alert", ages.alert),
            ("_request", ages.alert),
            ("_fenced", ages.event),
            ("_tombstone", ages.event),
            ("_finding", ages.alert),
            ("_day_count", ages.event),
            ("_inbox", ages.inbox),
        ] {
            steps.push_back(Step::Rows(name, before(now, age)));
        }
        steps.push_back(Step::Keys);
        steps.push_back(Step::Payloads);
        self.keeping.pass_begun = (now_micros(), self.keeping.steps.len());
        Ok(())
    }

    fn take_step(&mut self, step: Step) -> Result<(), Trouble> {
        match step {
            Step::Expire(after) => self.expire_deliveries(&after),
            Step::Close(day) => self.close_dead_letters(day),
            Step::Clear(parent, day) => self.clear_partition(parent, day),
            Step::Default(parent, day, after) => self.clear_default(parent, day, after.as_deref()),
            Step::Rows(name, moment) => {
                let evidence = before(self.keeping.pass.now, self.settings.ages.audit);
                let removed = transaction(
                    self.owner,
                    false,
                    c"webhook leader: deleting old rows",
                    || outbox::expire_rows(name, moment, evidence, ROWS),
                )?;
                if removed >= i64::from(ROWS) {
                    self.keeping.steps.push_front(Step::Rows(name, moment));
                }
                Ok(())
            }
            Step::Keys => self.expire_keys(),
            Step::Payloads => {
                let now = self.keeping.pass.now;
                let more = transaction(
                    self.owner,
                    false,
                    c"webhook leader: erasing old payloads",
                    || outbox::expire_payloads(now, PAYLOADS),
                )?;
                if more {
                    self.keeping.steps.push_front(Step::Payloads);
                }
                Ok(())
            }
        }
    }

    /// Nothing that is due vanishes: it becomes a dead letter, for which its day waits.
    fn expire_deliveries(&mut self, after: &(String, i64)) -> Result<(), Trouble> {
        let pass = self.keeping.pass;
        let which = outbox::Overage {
            deliveries: first_event(pass.deliveries).to_string(),
            asked: REPLAYS,
            asked_before: before(pass.now, self.settings.ages.delivery),
            events: first_event(pass.events).to_string(),
        };
        let rows = transaction(
            self.owner,
            false,
            c"webhook leader: looking for overdue deliveries",
            || outbox::overdue(&which, after, ROWS),
        )?;
        let last = rows
            .last()
            .map(|row| (row.pair.event.to_string(), row.pair.endpoint.0));
        let full = rows.len() >= usize::try_from(ROWS).unwrap_or(0);
        for row in rows {
            // It has its turn, and is looked at again afterwards.
            if self.memory.contains(row.pair) {
                continue;
            }
            self.count("delivery.expired", row.pair.endpoint);
            self.record(Change {
                pair: row.pair,
                batch: 0,
                revision: 0,
                class: row.class,
                series_start: row.series_start,
                state: "dead",
                reason: Some("older than the retention of deliveries".to_owned()),
                attempt_count: row.attempt_count,
                attempt: None,
                category: Some(Category::Expired),
                next_attempt_at: None,
                hold: 0,
                series_at: None,
                deaths: 0,
                subject: row.subject.map(std::sync::Arc::from),
                due: Some(row.at),
                on_wire: false,
            });
        }
        match last {
            Some(last) if full => self.keeping.steps.push_front(Step::Expire(last)),
            _ => self.tell_counts(
                "delivery.expired",
                "were still to be made at the end of their retention; they are dead letters now, and are closed at the end of that of their events",
            ),
        }
        Ok(())
    }

    fn close_dead_letters(&mut self, day: i32) -> Result<(), Trouble> {
        let before = first_event(day).to_string();
        let closed = transaction(
            self.owner,
            false,
            c"webhook leader: closing old dead letters",
            || outbox::close_old(&before, ROWS),
        )?;
        let full = closed.len() >= usize::try_from(ROWS).unwrap_or(0);
        for endpoint in closed {
            self.count("delivery.closed", endpoint);
        }
        if full {
            self.keeping.steps.push_front(Step::Close(day));
        } else {
            self.tell_counts(
                "delivery.closed",
                "were not delivered before the retention of their events ended; they are closed, and go with their day",
            );
        }
        Ok(())
    }

    fn clear_partition(&mut self, parent: String, day: i32) -> Result<(), Trouble> {
        let in_memory = self.memory.pairs().any(|pair| day_of(pair.event) == day);
        let Some(reads) = self.reads().filter(|_| !in_memory) else {
            return Ok(());
        };
        let may_drop = Instant::now() >= self.keeping.drop_after;
        let done = transaction(
            self.owner,
            false,
            c"webhook leader: removing an old partition",
            || outbox::clear_partition(&parent, day, &reads, may_drop),
        );
        match done {
            Ok(what) => {
                if what == "truncated" {
                    self.keeping.steps.push_front(Step::Clear(parent, day));
                }
                Ok(())
            }
            Err(trouble) => {
                // It may have been the parent's lock, for which everybody who emits has waited.
                self.keeping.drop_after = Instant::now() + DROP_AGAIN;
                Err(trouble)
            }
        }
    }

    fn clear_default(
        &mut self,
        parent: &'static str,
        day: i32,
        after: Option<&str>,
    ) -> Result<(), Trouble> {
        let Some(reads) = self.reads() else {
            return Ok(());
        };
        let before = if parent == "_feed" {
            let ms = u64::try_from(i64::from(day) * MS_PER_DAY).unwrap_or(0);
            EndpointId::new(ms, 0).0.to_string()
        } else {
            let oldest = self.memory.pairs().map(|pair| pair.event).min();
            oldest
                .into_iter()
                .fold(first_event(day), EventId::min)
                .to_string()
        };
        let kept = first_event(self.keeping.pass.events).to_string();
        let last = transaction(
            self.owner,
            false,
            c"webhook leader: deleting old rows",
            || outbox::clear_default(parent, &before, after, &reads, &kept, ROWS),
        )?;
        if last.is_some() {
            let next = Step::Default(parent, day, last);
            self.keeping.steps.push_front(next);
        }
        Ok(())
    }

    fn expire_keys(&mut self) -> Result<(), Trouble> {
        let before = before(self.keeping.pass.now, settings::idempotency_window());
        let page = self.keeping.key_page;
        let next = transaction(
            self.owner,
            false,
            c"webhook leader: deleting old keys",
            || outbox::expire_keys(before, page, PAGES),
        )?;
        self.keeping.key_page = next.unwrap_or(0);
        Ok(())
    }

    /// What has been read, by every stream: an event that is not visible in all of it is not old.
    fn reads(&self) -> Option<Vec<String>> {
        let asides = self.asides.iter().map(|aside| &aside.window);
        asides
            .chain([&self.window])
            .map(|window| window.prev.as_ref().map(ToString::to_string))
            .collect()
    }

    fn count(&mut self, kind: &'static str, endpoint: EndpointId) {
        let partner = self
            .configuration
            .endpoint(endpoint)
            .map(|endpoint| endpoint.partner_id.clone());
        *self.keeping.told.entry((kind, partner)).or_default() += 1;
    }

    fn tell_counts(&mut self, kind: &'static str, what: &str) {
        let told = std::mem::take(&mut self.keeping.told);
        let (now, later) = told.into_iter().partition(|((of, _), _)| *of == kind);
        self.keeping.told = later;
        let now: HashMap<(&'static str, Option<String>), usize> = now;
        for ((kind, partner), count) in now {
            self.tell_retention(kind, partner, format!("{count} deliveries {what}"));
        }
    }
}

/// The moment that lies so long before another one.
fn before(moment: i64, age: Duration) -> i64 {
    moment - i64::try_from(age.as_micros()).unwrap_or(i64::MAX / 2)
}

/// Smallest event id of a day.
fn first_event(day: i32) -> EventId {
    let ms = u64::try_from(i64::from(day) * MS_PER_DAY).unwrap_or(0);
    EventId::first_of(ms)
}

fn day_of(event: EventId) -> i32 {
    let ms = i64::try_from(event.unix_ms()).unwrap_or(i64::MAX);
    i32::try_from(ms / MS_PER_DAY).unwrap_or(i32::MAX)
}
