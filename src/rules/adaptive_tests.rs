//! Tests of the adaptive window: its tables row by row, then what holds for every course of answers.

use proptest::prelude::*;

use super::*;

const SECOND: i64 = 1_000_000;
const NONE: Duration = Duration::ZERO;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A window of this size that is past its slow start.
fn open(size: f64) -> AdaptiveWindow {
    AdaptiveWindow::restored(size, None, NONE)
}

/// A window that shut at this time.
fn shut_at(now: i64) -> AdaptiveWindow {
    let mut window = open(1.0);
    assert!(window.moved(Push::Down, now, now, 8, NONE, 0.0));
    window
}

#[test]
fn every_category_pushes_the_window_as_the_table_says() {
    use Category::*;
    let rows = [
        (Some(Dns), None, Push::Down),
        (Some(ConnectRefused), None, Push::Down),
        (Some(ConnectTimeout), None, Push::Down),
        (Some(ConnectFailed), None, Push::Down),
        (Some(Tls), None, Push::Down),
        (Some(Timeout), None, Push::Down),
        (Some(RateLimited), Some(429), Push::Down),
        (Some(ServerError), Some(500), Push::Neutral),
        (Some(ServerError), Some(501), Push::Neutral),
        (Some(ServerError), Some(502), Push::Down),
        (Some(ServerError), Some(503), Push::Down),
        (Some(ServerError), Some(504), Push::Down),
        (Some(ServerError), Some(505), Push::Neutral),
        (Some(RequestTimeout), Some(408), Push::Neutral),
        (Some(TooEarly), Some(425), Push::Neutral),
        (Some(ClientError), Some(404), Push::Neutral),
        (Some(Redirect), Some(302), Push::Neutral),
        (Some(Protocol), None, Push::Neutral),
        (Some(Blocked), None, Push::Nothing),
        (Some(Internal), None, Push::Nothing),
        (Some(Gone), Some(410), Push::Nothing),
        (Some(Lost), None, Push::Nothing),
        (Some(Filter), None, Push::Nothing),
        (Some(Conversion), None, Push::Nothing),
        (Some(Expired), None, Push::Nothing),
        (None, Some(200), Push::Up),
    ];
    for (category, status, expected) in rows {
        let pushed = push(category, status, seconds(1), seconds(1));
        assert_eq!(pushed, expected, "{category:?} {status:?}");
    }
    for category in Category::ALL {
        assert!(
            rows.iter().any(|row| row.0 == Some(*category)),
            "{category}"
        );
    }
    let late = |category, status| push(category, status, Duration::from_millis(1001), seconds(1));
    assert_eq!(late(None, Some(200)), Push::Slow);
    assert_eq!(late(Some(Category::ClientError), Some(404)), Push::Neutral);
}

#[test]
fn a_new_window_doubles_per_round_until_the_first_decrease() {
    let mut window = AdaptiveWindow::new();
    let mut rooms = Vec::new();
    for round in 0..5 {
        rooms.push(window.room(12, round));
        for _ in 0..window.room(12, round) {
            assert!(!window.moved(Push::Up, round, round + 1, 12, NONE, 0.0));
        }
    }
    assert_eq!(rooms, [1, 2, 4, 8, 12]);
    window.moved(Push::Down, 9, 10, 12, NONE, 0.0);
    assert_eq!(window.room(12, 10), 6);
    for _ in 0..6 {
        window.moved(Push::Up, 10, 11, 12, NONE, 0.0);
    }
    assert!(
        window.size() > 6.8 && window.size() <= 7.0,
        "one more per window of successes"
    );
}

#[test]
fn a_decrease_counts_once_per_round_trip() {
    let mut window = open(16.0);
    window.moved(Push::Down, 100, 200, 16, NONE, 0.0);
    assert_eq!(window.size(), 8.0);
    for began in [100, 150, 199] {
        window.moved(Push::Down, began, 250, 16, NONE, 0.0);
        window.moved(Push::Slow, began, 250, 16, NONE, 0.0);
    }
    assert_eq!(window.size(), 8.0);
    window.moved(Push::Slow, 200, 300, 16, NONE, 0.0);
    assert_eq!(window.size(), 4.0);
    window.moved(Push::Down, 300, 400, 16, NONE, 0.0);
    assert_eq!(window.size(), 2.0);
}

#[test]
fn slow_answers_shrink_a_window_to_one_and_never_shut_it() {
    let mut window = open(3.0);
    for now in 1..20 {
        assert!(!window.moved(Push::Slow, now, now, 8, NONE, 0.0));
    }
    assert_eq!(window.size(), 1.0);
    // No decrease happened since: an older request still shuts it.
    assert!(window.moved(Push::Down, 3, 20, 8, NONE, 0.0));
}

#[test]
fn neutral_answers_and_none_leave_an_open_window_alone() {
    let mut window = open(3.5);
    for push in [Push::Neutral, Push::Nothing] {
        assert!(!window.moved(push, 1, 2, 8, seconds(9), 0.5));
    }
    assert_eq!(window.size(), 3.5);
    assert_eq!(window.probe_at(), None);
}

#[test]
fn below_one_a_window_shuts_and_is_probed_after_a_second() {
    let mut window = open(1.9);
    assert!(window.moved(Push::Down, 0, 10 * SECOND, 8, NONE, 0.0));
    assert!(window.is_shut());
    assert_eq!(window.size(), 0.0);
    assert_eq!(window.probe_at(), Some(11 * SECOND));
    assert_eq!(window.room(8, 11 * SECOND - 1), 0);
    assert_eq!(window.room(8, 11 * SECOND), 1);
    assert_eq!(window.room(0, 11 * SECOND), 0);
}

#[test]
fn the_wait_for_a_probe_doubles_to_a_minute_with_jitter_that_only_adds() {
    let mut window = shut_at(0);
    let mut waits = Vec::new();
    for now in 1..8 {
        let push = if now % 2 == 0 {
            Push::Down
        } else {
            Push::Nothing
        };
        assert!(!window.moved(push, now, now, 8, NONE, 0.0));
        assert_eq!(window.probe_at(), Some(now + waits_micros(&window)));
        waits.push(window.probe_wait().as_secs());
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60]);
    for (dice, at) in [(0.5, 66), (1.0, 72), (f64::NAN, 60), (-3.0, 60), (9.0, 72)] {
        window.moved(Push::Down, 9, 0, 8, NONE, dice);
        assert_eq!(window.probe_at(), Some(at * SECOND), "{dice}");
    }
}

fn waits_micros(window: &AdaptiveWindow) -> i64 {
    i64::try_from(window.probe_wait().as_micros()).unwrap()
}

#[test]
fn a_probe_waits_for_what_the_receiver_asked_for() {
    let mut window = open(1.0);
    assert!(window.moved(Push::Down, 0, 0, 8, seconds(300), 1.0));
    assert_eq!(window.probe_at(), Some(300 * SECOND));
    window.moved(Push::Down, 300 * SECOND, 300 * SECOND, 8, seconds(1), 0.0);
    assert_eq!(window.probe_at(), Some(302 * SECOND));
    window.moved(Push::Down, 1, 5, 8, Duration::MAX, 0.0);
    assert_eq!(window.probe_at(), Some(i64::MAX));
}

#[test]
fn an_answer_opens_a_shut_window_to_one() {
    for (push, began, opens) in [
        (Push::Up, 50, true),
        (Push::Slow, 50, true),
        (Push::Neutral, 50, true),
        (Push::Down, 50, false),
        (Push::Nothing, 50, false),
        // Stragglers: the window shut at 40.
        (Push::Up, 39, true),
        (Push::Slow, 39, true),
        (Push::Neutral, 39, false),
        (Push::Down, 39, false),
        (Push::Nothing, 39, false),
    ] {
        let mut window = shut_at(40);
        let before = window.probe_at();
        assert_eq!(
            window.moved(push, began, 60, 8, NONE, 0.0),
            opens,
            "{push:?} {began}"
        );
        assert_eq!(window.is_shut(), !opens);
        if opens {
            assert_eq!((window.size(), window.probe_at()), (1.0, None));
            assert!(!window.moved(Push::Up, 60, 61, 8, NONE, 0.0));
            assert!(!window.moved(Push::Up, 60, 61, 8, NONE, 0.0));
            assert_eq!(window.size(), 2.5, "it does not double any more");
        } else {
            assert_eq!(
                window.probe_at() != before,
                began == 50,
                "stragglers change nothing"
            );
        }
    }
}

#[test]
fn stragglers_of_the_time_before_do_not_shut_a_reopened_window() {
    let mut window = shut_at(40);
    assert!(window.moved(Push::Up, 50, 60, 8, NONE, 0.0));
    assert!(!window.moved(Push::Down, 39, 70, 8, NONE, 0.0));
    assert!(!window.is_shut());
    assert!(window.moved(Push::Down, 60, 80, 8, NONE, 0.0));
    assert_eq!(window.probe_wait(), PROBE_FIRST, "it begins anew");
}

#[test]
fn a_window_shrinks_to_a_smaller_cap() {
    let mut window = open(50.0);
    assert_eq!(window.room(8, 0), 8);
    window.moved(Push::Neutral, 0, 1, 8, NONE, 0.0);
    assert_eq!(window.size(), 8.0);
    window.moved(Push::Up, 0, 1, 4, NONE, 0.0);
    assert_eq!(window.size(), 4.0);
    window.moved(Push::Up, 0, 1, 0, NONE, 0.0);
    assert_eq!((window.size(), window.room(0, 1)), (1.0, 0));
}

#[test]
fn whatever_was_written_down_is_restored_to_something_sane() {
    for (size, probe_at, shut, restored, probe) in [
        (3.5, None, false, 3.5, None),
        (3.5, Some(7), false, 3.5, None),
        (1.0, None, false, 1.0, None),
        (0.99, Some(7), true, 0.0, Some(7)),
        (0.0, None, true, 0.0, Some(0)),
        (-1.0, None, true, 0.0, Some(0)),
        (f64::NAN, None, true, 0.0, Some(0)),
        (f64::NEG_INFINITY, Some(9), true, 0.0, Some(9)),
        (f64::INFINITY, None, false, 1e6, None),
        (1e300, None, false, 1e6, None),
    ] {
        let window = AdaptiveWindow::restored(size, probe_at, seconds(4));
        assert_eq!(window.is_shut(), shut, "{size}");
        assert_eq!(window.size(), restored, "{size}");
        assert_eq!(window.probe_at(), probe, "{size}");
        assert_eq!(
            window.room(8, 1_000),
            usize::from(shut).max(window.room(8, 0))
        );
    }
    let wait = |wait| AdaptiveWindow::restored(0.0, None, wait).probe_wait();
    assert_eq!(wait(NONE), PROBE_FIRST);
    assert_eq!(wait(seconds(4)), seconds(4));
    assert_eq!(wait(Duration::MAX), PROBE_LONGEST);
    let mut window = AdaptiveWindow::restored(0.0, Some(5), seconds(4));
    window.moved(Push::Down, 0, 10, 8, NONE, 0.0);
    assert_eq!(
        window.probe_wait(),
        seconds(8),
        "a restored wait goes on doubling"
    );
}

fn any_push() -> impl Strategy<Value = Push> {
    proptest::sample::select(
        &[
            Push::Up,
            Push::Slow,
            Push::Down,
            Push::Neutral,
            Push::Nothing,
        ][..],
    )
}

proptest! {
    #[test]
    fn a_window_stays_within_its_bounds_and_moves_only_one_way_per_answer(
        steps in proptest::collection::vec(
            (any_push(), 0_i64..5_000_000, 0_i64..2_000_000, 0_usize..20, 0_u64..100, any::<f64>()), 1..200),
        fresh: bool,
    ) {
        let mut window = if fresh { AdaptiveWindow::new() } else { open(7.3) };
        let mut now = 0_i64;
        for (push, ago, step, cap, asked, dice) in steps {
            now += step;
            let before = window.clone();
            let turned = window.moved(push, now - ago, now, cap, seconds(asked), dice);
            prop_assert_eq!(turned, before.is_shut() != window.is_shut());
            prop_assert_eq!(window.is_shut(), window.size() == 0.0);
            prop_assert_eq!(window.is_shut(), window.probe_at().is_some());
            prop_assert!(window.probe_wait() >= PROBE_FIRST && window.probe_wait() <= PROBE_LONGEST);
            prop_assert!(window.room(cap, now) <= cap);
            if !window.is_shut() {
                prop_assert!(window.size() >= 1.0);
                prop_assert!(before.is_shut() || window.size() <= (cap.max(1)) as f64);
                prop_assert!(cap == 0 || window.room(cap, now) >= 1);
                prop_assert!(push == Push::Up || before.is_shut() || window.size() <= before.size());
                prop_assert!(window.size() <= before.size() + 1.0);
                prop_assert!(window.size() * 2.0 >= before.size().min(cap.max(1) as f64));
            } else if before.is_shut() {
                prop_assert!(window.probe_wait() >= before.probe_wait());
            } else {
                prop_assert_eq!(push, Push::Down);
                prop_assert!(before.size().min(cap.max(1) as f64) < 2.0);
            }
            // A probe that is put off waits at least its wait and what was asked for, from now on.
            if window.is_shut() && window.probe_at() != before.probe_at() {
                let wait = window.probe_wait().max(seconds(asked));
                let most = (window.probe_wait() * 6 / 5).max(seconds(asked));
                let at = window.probe_at().unwrap();
                prop_assert!(at >= now + i64::try_from(wait.as_micros()).unwrap());
                prop_assert!(at <= now + i64::try_from(most.as_micros()).unwrap());
            }
        }
    }

    #[test]
    fn no_time_and_no_wait_makes_a_window_overflow(
        steps in proptest::collection::vec((any_push(), any::<i64>(), any::<i64>(), any::<usize>(), any::<Duration>()), 1..20),
        size: f64, probe_at: Option<i64>, wait: Duration,
    ) {
        let mut window = AdaptiveWindow::restored(size, probe_at, wait);
        for (push, began, now, cap, asked) in steps {
            window.moved(push, began, now, cap, asked, 0.9);
            prop_assert!(window.size().is_finite());
        }
    }
}
