//! Waiting for a described condition. Refuses to wait without a deadline, and never sleeps in place of a condition.

use std::time::{Duration, Instant};

/// Asks `condition` until it answers, and returns the answer.
///
/// # Panics
/// When `deadline` has passed, with the `description` of what did not happen.
#[track_caller]
pub fn wait_until<T>(
    description: &str,
    deadline: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(answer) = condition() {
            return answer;
        }
        assert!(
            start.elapsed() < deadline,
            "waited {deadline:?} in vain: {description}"
        );
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// [`wait_until`] for a condition that has nothing to hand back.
///
/// # Panics
/// When `deadline` has passed, with the `description` of what did not happen.
#[track_caller]
pub fn wait_for(description: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    wait_until(description, deadline, || condition().then_some(()));
}
