//! NOTIFY for alerts, the leader's own and those that verbs wrote, once they are committed. Which of them nobody was
//! told of stands in their table, and the leader alone writes it there. A notification is a help, the alert is the
//! row: where there is no room for one, it is passed over, and that is logged.

use std::time::{Duration, Instant};

use pgrx::prelude::*;

use super::Leader;
use super::transaction::{Trouble, terminating, transaction};
use crate::pg::outbox;

/// Alerts told of in one transaction.
const ROUND: i32 = 100;
/// After somebody held the table.
const AGAIN: Duration = Duration::from_secs(1);

/// What is known of alerts that nobody was told of.
pub struct Notifying {
    /// There may be some.
    waiting: bool,
    not_before: Instant,
}

impl Notifying {
    /// At the beginning of a life.
    pub fn new() -> Notifying {
        Notifying {
            waiting: true,
            not_before: Instant::now(),
        }
    }

    /// Somebody may have written an alert.
    pub fn soon(&mut self) {
        self.waiting = true;
    }

    /// How long until it is tried; none = there is nothing to tell.
    pub fn pause(&self) -> Option<Duration> {
        let left = self.not_before.saturating_duration_since(Instant::now());
        self.waiting.then_some(left)
    }
}

impl Leader {
    /// Tells whoever listens of some alerts.
    pub fn notify(&mut self) -> Result<(), Trouble> {
        if self.notifying.pause() != Some(Duration::ZERO) {
            return Ok(());
        }
        let told = transaction(
            self.owner,
            false,
            c"webhook leader: notifying of alerts",
            || outbox::notify_alerts(ROUND),
        );
        let done = match told {
            Err(Trouble::Lasting(text)) if !terminating() => {
                let passed = transaction(
                    self.owner,
                    false,
                    c"webhook leader: passing over alerts",
                    || outbox::pass_over_alerts(ROUND),
                );
                if let Ok(passed) = &passed {
                    log!("webhook leader could not notify of {passed} alerts: {text}");
                }
                passed
            }
            other => other,
        };
        match done {
            Ok(done) => {
                self.notifying.waiting = done >= usize::try_from(ROUND).unwrap_or(0);
                Ok(())
            }
            Err(Trouble::Passing(_)) if !terminating() => {
                self.notifying.not_before = Instant::now() + AGAIN;
                Ok(())
            }
            Err(trouble) => Err(trouble),
        }
    }
}
