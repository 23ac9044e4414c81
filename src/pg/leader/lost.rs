//! Attempts that may have been made and whose outcome nobody knows: what is written of them, and the end of their batch.
//! Which those are is decided in `doubt`.

use std::sync::atomic::Ordering;

use super::Leader;
use super::telling::raise;
use super::transaction::{Trouble, transaction};
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Attempted, Change, Outcomes};
use crate::rules::delivery::Category;
use crate::rules::ids::Pair;

impl Leader {
    /// The attempt of a pair that may have been made.
    pub fn lost(
        &self,
        pair: Pair,
        class: i16,
        attempt: i32,
        series_start: i32,
        at: i64,
        due: Option<i64>,
    ) -> Change {
        Change {
            pair,
            batch: 0,
            // A claim has written down which it is.
            revision: 0,
            class,
            // Nobody knows what the receiver did: the schedule does not count the attempt.
            series_start: series_start + 1,
            state: "retrying",
            reason: None,
            attempt_count: attempt,
            attempt: Some(lost_attempt()),
            category: None,
            next_attempt_at: Some(at),
            hold: 0,
            series_at: Some(at),
            deaths: self.deaths,
            subject: None,
            due,
            on_wire: false,
        }
    }

    /// Writes what became of doubtful pairs.
    pub fn lose(&mut self, changes: Vec<Change>, at: i64) -> Result<(), Trouble> {
        let queues: Vec<_> = changes
            .iter()
            .filter(|change| change.next_attempt_at.is_some() && change.hold == 0)
            .map(|change| (change.pair.endpoint, change.class))
            .collect();
        let outcomes = Outcomes {
            changes,
            alerts: std::mem::take(&mut self.outcomes.alerts),
            ..Outcomes::default()
        };
        let (n, incarnation) = (self.last_n, self.incarnation);
        let recorded = transaction(
            self.owner,
            false,
            c"webhook leader: recording lost attempts",
            || {
                let recorded = outbox::record(&outcomes, incarnation, n, at, false, |_| false);
                raise(&outcomes.alerts);
                recorded
            },
        )?;
        self.slot
            .counters
            .written(&outcomes, crate::pg::emit::now_micros());
        self.note_released(&recorded.released);
        let lost = outcomes
            .changes
            .iter()
            .filter(|change| change.attempt.is_some())
            .count();
        self.slot
            .lost
            .fetch_add(u64::try_from(lost).unwrap_or(0), Ordering::Relaxed);
        for queue in queues {
            self.queue_behind(queue);
            self.note_due(queue, at);
        }
        Ok(())
    }

    /// A batch is in doubt no more.
    pub fn close(&mut self, batch: i64) -> Result<(), Trouble> {
        let outcomes = Outcomes {
            closed: vec![batch],
            ..Outcomes::default()
        };
        let (n, incarnation) = (self.last_n, self.incarnation);
        self.last_n = transaction(
            self.owner,
            false,
            c"webhook leader: closing a batch",
            || outbox::record(&outcomes, incarnation, n, 0, false, |_| false).n,
        )?;
        Ok(())
    }
}

fn lost_attempt() -> Attempted {
    Attempted {
        started_at: now_micros(),
        latency_ms: None,
        status: None,
        category: Some(Category::Lost),
        phase: None,
        detail: Some(
            "the leader ended before the outcome was known; the request may have been sent"
                .to_owned(),
        ),
        key_ids: Vec::new(),
        body_sha256: None,
        response_bytes: 0,
        excerpt: None,
    }
}
