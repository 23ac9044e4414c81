//! The leader's sense of time.

use std::time::{Duration, Instant};

use crate::pg::emit::now_micros;

/// Scheduling time: the wall clock at the start plus monotonic time since, so that a step of the
/// clock neither stalls nor rushes what waits.
pub struct Clock {
    wall: i64,
    begun: Instant,
}

impl Clock {
    /// At the beginning of a life.
    pub fn new() -> Clock {
        Clock {
            wall: now_micros(),
            begun: Instant::now(),
        }
    }

    /// How old this life is.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Microseconds since 1970.
    pub fn now(&self) -> i64 {
        self.wall
            .saturating_add(i64::try_from(self.begun.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}
