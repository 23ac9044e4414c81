//! How endpoints fare: what each outcome says about its endpoint, when its window shuts and opens, when
//! its owner is warned and when it is disabled; and how that is kept across lives.
//!
//! What moves the window and how is `rules::adaptive`, what is too long a failure is `rules::health`.

use std::time::{Duration, Instant};

use super::Leader;
use crate::pg::emit::now_micros;
use crate::pg::outbox::ConditionRow;
use crate::rules::adaptive::{AdaptiveWindow, PROBE_LONGEST, Push};
use crate::rules::delivery::{Answer, Category, Outcome};
use crate::rules::health::{Health, News};
use crate::rules::id_hash::{IdMap, IdSet};
use crate::rules::ids::EndpointId;
use crate::rules::policy::Verdict;

/// How long counters may wait to be written, and of how many endpoints at a time.
const WRITE_EVERY: Duration = Duration::from_secs(5);
const WRITE_ROWS: usize = 1_000;

/// What is known of all endpoints, and what of it is not written yet.
#[derive(Default)]
pub struct Conditions {
    known: IdMap<EndpointId, ConditionRow>,
    changed: IdSet<EndpointId>,
    /// Since when something waits to be written.
    since: Option<Instant>,
}

impl Conditions {
    /// How long what changed may still wait; none = nothing did.
    pub fn pause(&self) -> Option<Duration> {
        self.since
            .map(|since| WRITE_EVERY.saturating_sub(since.elapsed()))
    }

    /// The condition of an endpoint under this generation.
    fn of(&mut self, id: EndpointId, generation: i64) -> &mut ConditionRow {
        let known = self.known.entry(id).or_insert_with(|| ConditionRow {
            endpoint: id.0,
            generation,
            window: 1.0,
            ..ConditionRow::default()
        });
        if known.generation < generation {
            // A changed URL or an enabling hand: what went wrong before says nothing now.
            *known = ConditionRow {
                endpoint: id.0,
                generation,
                window: 1.0,
                delivered: known.delivered,
                failed: known.failed,
                last_success_at: known.last_success_at,
                ..ConditionRow::default()
            };
        }
        known
    }

    fn note(&mut self, id: EndpointId) {
        self.changed.insert(id);
        self.since.get_or_insert_with(Instant::now);
    }
}

impl Leader {
    /// Reads what the lives before knew.
    pub fn restore_conditions(&mut self, rows: Vec<ConditionRow>) {
        // A clock that was wrong must not keep an endpoint shut for years.
        let longest = PROBE_LONGEST.max(self.settings.retry.retry_after_max) * 2;
        let latest = self.clock.now() + i64::try_from(longest.as_micros()).unwrap_or(0);
        for row in rows {
            let id = EndpointId(row.endpoint);
            let current = self
                .configuration
                .endpoint(id)
                .is_some_and(|endpoint| endpoint.generation == row.generation);
            if current {
                let wait = Duration::from_millis(u64::from(row.probe_wait_ms.unsigned_abs()));
                self.scheduler.set_window(
                    id,
                    AdaptiveWindow::restored(
                        row.window,
                        row.probe_at.map(|at| at.min(latest)),
                        wait,
                    ),
                );
            }
            self.conditions.known.insert(id, row);
        }
    }

    /// An endpoint begins anew: nothing of what was found out about it counts.
    pub fn renew_condition(&mut self, id: EndpointId) {
        let Some(endpoint) = self.configuration.endpoint(id) else {
            return;
        };
        self.conditions.of(id, endpoint.generation);
        self.scheduler.set_window(id, AdaptiveWindow::reopened());
        // It may have been listed for the time of a probe.
        self.relist(id);
    }

    /// Takes one outcome into account. `counts` = it says something about the endpoint's health.
    pub fn note_outcome(
        &mut self,
        id: EndpointId,
        generation: i64,
        outcome: &Outcome,
        verdict: &Verdict,
        counts: bool,
    ) {
        let Some(endpoint) = self.configuration.endpoint(id) else {
            return;
        };
        // It is about an endpoint that was another one.
        if endpoint.generation != generation {
            return;
        }
        let patience = endpoint.policy.patience;
        let ended = outcome
            .started_at
            .saturating_add(i64::try_from(outcome.latency_us).unwrap_or(0));
        let condition = self.conditions.of(id, generation);
        let mut health = Health {
            failing_since: condition.failing_since,
            failures: u32::try_from(condition.failures).unwrap_or(0),
            warned: condition.warned_at.is_some(),
        };
        condition.last_status = match &outcome.answer {
            Answer::Status { code, .. } => i16::try_from(*code).ok(),
            Answer::Failure { .. } => None,
        };
        let was_blocked = condition.last_category.as_deref() == Some(Category::Blocked.as_str());
        condition.last_category = verdict.category.map(|c| c.as_str().to_owned());
        let news = match verdict.category {
            None => {
                condition.delivered += 1;
                condition.last_success_at = Some(ended);
                let took = i32::try_from(outcome.latency_us / 1000).unwrap_or(i32::MAX);
                condition.latency_ms = Some(
                    condition
                        .latency_ms
                        .map_or(took, |known| known + (took - known) / 8),
                );
                if counts { health.succeeded() } else { None }
            }
            // Our own fault: the endpoint is not charged.
            Some(Category::Internal) => None,
            Some(_) => {
                condition.failed += 1;
                condition.last_failure_at = Some(ended);
                if counts {
                    health.failed(ended, patience)
                } else {
                    None
                }
            }
        };
        condition.failing_since = health.failing_since;
        condition.failures = i32::try_from(health.failures).unwrap_or(i32::MAX);
        condition.warned_at = match (health.warned, condition.warned_at) {
            (true, None) => Some(now_micros()),
            (true, known) => known,
            (false, _) => None,
        };
        let failures = condition.failures;
        self.conditions.note(id);
        if counts && verdict.category == Some(Category::Blocked) && !was_blocked {
            self.tell_blocked(id);
        }
        match news {
            None => {}
            Some(News::Warning { disable_at }) => {
                self.write_condition(id, None);
                self.tell_warning(id, failures, health.failing_since, disable_at);
            }
            Some(News::Recovered { failing_since }) => {
                self.write_condition(id, None);
                self.tell_recovered(id, failing_since);
            }
            Some(News::Disabled) => {
                self.disable_now(id, generation, "it failed for too long without one success");
            }
        }
    }

    /// Moves the endpoint's window. When it shuts, what waits in memory goes back to wait in the due table.
    pub fn move_window(
        &mut self,
        id: EndpointId,
        push: Push,
        began: i64,
        retry_after: Duration,
        dice: f64,
    ) {
        let now = self.clock.now();
        if !self
            .scheduler
            .answered(id, push, began, now, retry_after, dice)
        {
            return;
        }
        if self.scheduler.opens_at(id).is_some() {
            self.put_all_back(id);
        }
        // Other lives must know of it, or they would hammer.
        self.write_condition(id, None);
    }

    /// A finding counts for the generation it was made under: an old 410 cannot undo a new `enable`.
    pub fn disable_now(&mut self, id: EndpointId, generation: i64, reason: &str) {
        if self.close_now(id, generation, "disabled", reason) {
            self.tell_disabled(id, reason);
        }
    }

    /// The same for one whose time is over.
    pub fn expire_now(&mut self, id: EndpointId, generation: i64, reason: &str) {
        if self.close_now(id, generation, "expired", reason) {
            self.tell_expired(id, reason);
        }
    }

    fn close_now(
        &mut self,
        id: EndpointId,
        generation: i64,
        state: &'static str,
        reason: &str,
    ) -> bool {
        let current = self
            .configuration
            .endpoint(id)
            .is_some_and(|endpoint| endpoint.generation == generation);
        if !current || self.closed(id) {
            return false;
        }
        self.take_back();
        self.configuration.close(id, state, reason);
        self.write_condition(id, Some((state, reason.to_owned())));
        self.follow_standing(vec![id]);
        true
    }

    /// Puts the condition of an endpoint among what is written next.
    fn write_condition(&mut self, id: EndpointId, closed: Option<(&'static str, String)>) {
        let Some(generation) = self
            .configuration
            .endpoint(id)
            .map(|endpoint| endpoint.generation)
        else {
            return;
        };
        self.conditions.changed.remove(&id);
        let window = self.scheduler.window(id).cloned();
        let condition = self.conditions.of(id, generation);
        if let Some(window) = window {
            condition.window = window.size();
            condition.probe_at = window.probe_at();
            condition.probe_wait_ms =
                i32::try_from(window.probe_wait().as_millis()).unwrap_or(i32::MAX);
        }
        let row = ConditionRow {
            closed,
            ..condition.clone()
        };
        // One statement writes an endpoint once; a finding that it is disabled must not be lost to a
        // later counter.
        match self
            .outcomes
            .conditions
            .iter_mut()
            .find(|known| known.endpoint == row.endpoint)
        {
            Some(known) if known.generation == row.generation => {
                *known = ConditionRow {
                    closed: row.closed.or_else(|| known.closed.take()),
                    ..row
                };
            }
            Some(known) => *known = row,
            None => self.outcomes.conditions.push(row),
        }
        self.unwritten_since.get_or_insert_with(Instant::now);
    }

    /// Puts conditions that changed among what is written next, when they have waited long enough.
    pub fn collect_conditions(&mut self, all: bool) {
        if !all && self.conditions.pause() != Some(Duration::ZERO) {
            return;
        }
        let ids: Vec<EndpointId> = self
            .conditions
            .changed
            .iter()
            .copied()
            .take(if all { usize::MAX } else { WRITE_ROWS })
            .collect();
        for id in ids {
            self.conditions.changed.remove(&id);
            self.write_condition(id, None);
        }
        self.conditions.since = (!self.conditions.changed.is_empty()).then(Instant::now);
    }
}
