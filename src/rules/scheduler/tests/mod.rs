//! Tests of the scheduler, rule by rule: turns, ceilings, and what comes and goes. Windows, rates and what is
//! foretold stand in `pace`, what holds for every course of events in `model` and `streams`.

mod advance;
mod model;
mod pace;
mod streams;

use super::*;

const CAPS: Caps = Caps {
    total: 8,
    per_partner: 5,
    per_endpoint: 3,
};
const WIDE: Caps = Caps {
    total: 4,
    per_partner: 4,
    per_endpoint: 4,
};
const SECOND: i64 = 1_000_000;
const NONE: Duration = Duration::ZERO;

fn id(endpoint: i64) -> EndpointId {
    EndpointId(endpoint)
}

fn capped(cap: usize) -> Limits {
    Limits {
        cap: Some(cap),
        rate: None,
    }
}

fn rated(per_second: f64, burst: f64) -> Limits {
    Limits {
        cap: None,
        rate: Some(Rate { per_second, burst }),
    }
}

/// An endpoint whose window is far wider than its cap.
fn add(scheduler: &mut Scheduler<u32>, endpoint: i64, partner: &str, limits: Limits) {
    scheduler.set_endpoint(id(endpoint), partner, limits);
    scheduler.set_window(id(endpoint), AdaptiveWindow::restored(100.0, None, NONE));
}

fn push(scheduler: &mut Scheduler<u32>, endpoint: i64, class: i16, items: std::ops::Range<u32>) {
    for item in items {
        scheduler.push(id(endpoint), class, item, 0);
    }
}

fn take(scheduler: &mut Scheduler<u32>, now: i64) -> Option<(i64, u32)> {
    let taken = scheduler.take_next(now)?;
    Some((taken.endpoint.0, taken.waiting.item))
}

/// The endpoints of everything that can be taken.
fn drain(scheduler: &mut Scheduler<u32>) -> Vec<i64> {
    std::iter::from_fn(|| take(scheduler, 0).map(|(endpoint, _)| endpoint)).collect()
}

fn shut(scheduler: &mut Scheduler<u32>, endpoint: i64, now: i64) {
    scheduler.set_window(id(endpoint), AdaptiveWindow::reopened());
    assert!(scheduler.answered(id(endpoint), Push::Down, now, now, NONE, 0.0));
}

#[test]
fn partners_and_their_endpoints_take_turns_and_keep_to_their_caps() {
    let mut scheduler = Scheduler::new(CAPS);
    add(&mut scheduler, 1, "a", Limits::default());
    add(&mut scheduler, 2, "b", Limits::default());
    add(&mut scheduler, 3, "b", capped(1));
    push(&mut scheduler, 1, 0, 0..10);
    push(&mut scheduler, 2, 0, 0..1);
    push(&mut scheduler, 3, 0, 0..2);
    assert_eq!(drain(&mut scheduler), [1, 2, 1, 3, 1]);
    scheduler.finished(id(3), 10, false);
    assert_eq!(drain(&mut scheduler), [3]);
    assert_eq!(scheduler.in_flight(), 5);
    assert_eq!((scheduler.waiting(), scheduler.waiting_for(id(1))), (7, 7));
}

#[test]
fn a_partner_with_many_endpoints_keeps_to_its_own_cap() {
    let mut scheduler = Scheduler::new(CAPS);
    for endpoint in 0..6 {
        add(&mut scheduler, endpoint, "a", Limits::default());
        push(&mut scheduler, endpoint, 0, 0..3);
    }
    add(&mut scheduler, 9, "b", Limits::default());
    push(&mut scheduler, 9, 0, 0..1);
    assert_eq!(drain(&mut scheduler), [0, 9, 1, 2, 3, 4]);
    scheduler.finished(id(2), 10, false);
    assert_eq!(drain(&mut scheduler), [5]);
}

#[test]
fn a_partner_of_one_endpoint_has_every_second_turn_beside_one_of_a_thousand() {
    let mut scheduler = Scheduler::new(Caps { total: 1, ..CAPS });
    for endpoint in 0..1_000 {
        add(&mut scheduler, endpoint, "big", Limits::default());
        push(&mut scheduler, endpoint, 0, 0..10);
    }
    add(&mut scheduler, 1_000, "small", Limits::default());
    push(&mut scheduler, 1_000, 0, 0..50);
    for _ in 0..50 {
        let mut two = [0; 2];
        for endpoint in &mut two {
            *endpoint = take(&mut scheduler, 0).unwrap().0;
            scheduler.finished(id(*endpoint), 1, false);
        }
        assert!(two[0] < 1_000 && two[1] == 1_000, "{two:?}");
    }
}

#[test]
fn of_five_takes_one_goes_to_the_second_class() {
    let mut scheduler = Scheduler::new(CAPS);
    add(&mut scheduler, 1, "a", capped(1));
    push(&mut scheduler, 1, 1, 100..110);
    push(&mut scheduler, 1, 0, 0..10);
    let mut items = Vec::new();
    while let Some((_, item)) = take(&mut scheduler, 0) {
        items.push(item);
        scheduler.finished(id(1), 1, false);
    }
    let expected = [
        0, 1, 2, 3, 100, 4, 5, 6, 7, 101, 8, 9, 102, 103, 104, 105, 106, 107, 108, 109,
    ];
    assert_eq!(items, expected);
}

#[test]
fn a_second_class_does_not_starve_when_its_endpoint_is_busy_at_its_turns() {
    // Endpoint 2 takes every turn of the second class, its partner's included, while endpoint 1 is busy.
    let mut scheduler = Scheduler::new(CAPS);
    add(&mut scheduler, 1, "a", capped(1));
    add(&mut scheduler, 2, "a", capped(1));
    push(&mut scheduler, 1, 0, 0..100);
    push(&mut scheduler, 1, 1, 100..101);
    push(&mut scheduler, 2, 1, 200..300);
    let mut first = Vec::new();
    for _ in 0..6 {
        first.push(take(&mut scheduler, 0).unwrap().1);
        assert_eq!(
            take(&mut scheduler, 0).map(|(endpoint, _)| endpoint),
            Some(2)
        );
        assert_eq!(take(&mut scheduler, 0), None);
        scheduler.finished(id(1), 1, false);
        scheduler.finished(id(2), 1, false);
    }
    assert_eq!(first, [0, 1, 2, 3, 100, 4]);
}

#[test]
fn a_second_class_does_not_starve_beside_another_endpoint_of_its_partner() {
    let mut scheduler = Scheduler::new(Caps {
        per_partner: 1,
        ..CAPS
    });
    for (endpoint, partner) in [(1, "a"), (2, "a"), (3, "b")] {
        add(&mut scheduler, endpoint, partner, Limits::default());
    }
    push(&mut scheduler, 1, 0, 0..100);
    push(&mut scheduler, 2, 1, 100..101);
    push(&mut scheduler, 3, 1, 200..300);
    let mut ran = Vec::new();
    for _ in 0..5 {
        let (endpoint, _) = take(&mut scheduler, 0).unwrap();
        ran.push(endpoint);
        assert_eq!(
            take(&mut scheduler, 0).map(|(endpoint, _)| endpoint),
            Some(3)
        );
        scheduler.finished(id(endpoint), 1, false);
        scheduler.finished(id(3), 1, false);
    }
    assert_eq!(ran, [1, 1, 1, 1, 2]);
}

#[test]
fn requests_that_outlast_the_first_pass_hold_at_most_half() {
    let mut scheduler = Scheduler::new(WIDE);
    add(&mut scheduler, 1, "a", Limits::default());
    add(&mut scheduler, 2, "b", Limits::default());
    push(&mut scheduler, 1, 0, 0..4);
    assert!(take(&mut scheduler, 0).is_some());
    assert!(take(&mut scheduler, 0).is_some());
    scheduler.outlasted(id(1));
    scheduler.outlasted(id(1));
    assert_eq!(
        take(&mut scheduler, 0),
        None,
        "the slow endpoint starts nothing new"
    );
    assert_eq!(scheduler.next_timer(), None);
    push(&mut scheduler, 2, 0, 9..10);
    assert_eq!(drain(&mut scheduler), [2]);
    scheduler.finished(id(2), 10, false);
    scheduler.finished(id(1), 10, true);
    assert_eq!(drain(&mut scheduler), [1, 1], "below half again");
}

#[test]
fn an_endpoint_whose_last_request_outlasted_the_first_pass_waits_while_half_is_held() {
    let mut scheduler = Scheduler::new(WIDE);
    for endpoint in [1, 2, 3] {
        add(&mut scheduler, endpoint, "a", Limits::default());
        push(&mut scheduler, endpoint, 0, 0..2);
    }
    assert_eq!(
        drain(&mut scheduler),
        [1, 2, 3, 1],
        "all four places are taken"
    );
    for endpoint in [1, 2, 3] {
        scheduler.outlasted(id(endpoint));
    }
    scheduler.finished(id(3), 10, true);
    assert_eq!(take(&mut scheduler, 0), None, "3 would hang again");
    scheduler.finished(id(2), 10, true);
    assert_eq!(drain(&mut scheduler), [2, 3]);
}

#[test]
fn a_slow_endpoint_with_nothing_to_send_keeps_no_other_one_waiting() {
    let mut scheduler = Scheduler::new(Caps { total: 6, ..CAPS });
    for endpoint in [1, 2, 3] {
        add(&mut scheduler, endpoint, "a", Limits::default());
        push(&mut scheduler, endpoint, 0, 0..1);
    }
    assert_eq!(drain(&mut scheduler), [1, 2, 3]);
    for endpoint in [1, 2, 3] {
        scheduler.outlasted(id(endpoint));
    }
    push(&mut scheduler, 1, 0, 1..2);
    push(&mut scheduler, 2, 0, 1..2);
    assert_eq!(take(&mut scheduler, 0), None, "both are held back");
    scheduler.finished(id(3), 1, true);
    scheduler.take_all(id(1));
    assert_eq!(take(&mut scheduler, 0), Some((2, 1)));
}

#[test]
fn other_caps_hold_at_once() {
    let mut scheduler = Scheduler::new(Caps {
        total: 2,
        per_partner: 1,
        per_endpoint: 1,
    });
    for (endpoint, partner) in [(1, "a"), (2, "a"), (3, "b"), (4, "c")] {
        add(&mut scheduler, endpoint, partner, Limits::default());
        push(&mut scheduler, endpoint, 0, 0..2);
    }
    assert_eq!(drain(&mut scheduler), [1, 3]);
    scheduler.set_caps(CAPS);
    assert_eq!(scheduler.caps(), CAPS);
    assert_eq!(drain(&mut scheduler).len(), 6);
    scheduler.set_caps(WIDE);
    push(&mut scheduler, 4, 0, 0..1);
    for left in (4..8).rev() {
        assert_eq!(take(&mut scheduler, 0), None, "{left}");
        scheduler.finished(id([3, 3, 1, 1][7 - left]), 1, false);
    }
    assert_eq!(take(&mut scheduler, 0), None);
    scheduler.finished(id(2), 1, false);
    assert_eq!(drain(&mut scheduler), [4]);
}

#[test]
fn what_waited_too_long_is_handed_back_oldest_first() {
    let mut scheduler = Scheduler::new(CAPS);
    for (class, item, since) in [(0, 1, 10), (1, 2, 15), (0, 3, 20), (1, 4, 30), (0, 5, 40)] {
        scheduler.push(id(1), class, item, since);
    }
    scheduler.push(id(2), 1, 6, 24);
    assert_eq!(
        scheduler.take_older(25),
        [(id(1), 1), (id(1), 2), (id(1), 3), (id(2), 6)]
    );
    assert_eq!(scheduler.waiting(), 2);
    assert_eq!(scheduler.take_all(id(1)), [4, 5]);
    assert_eq!(scheduler.waiting(), 0);
    assert_eq!(scheduler.take_older(i64::MAX), []);
    assert_eq!(take(&mut scheduler, 50), None);
}

#[test]
fn a_closed_endpoint_is_forgotten_when_nothing_of_it_waits_or_runs() {
    let mut scheduler = Scheduler::new(CAPS);
    add(&mut scheduler, 1, "a", Limits::default());
    push(&mut scheduler, 1, 0, 0..2);
    scheduler.forget(id(1));
    assert_eq!(take(&mut scheduler, 0), Some((1, 0)));
    assert_eq!(scheduler.take_all(id(1)), [1]);
    scheduler.forget(id(1));
    assert_eq!(scheduler.in_flight_to(id(1)), 1);
    scheduler.finished(id(1), 1, false);
    scheduler.forget(id(1));
    assert!(scheduler.window(id(1)).is_none());
    assert!(scheduler.lines.is_empty() && scheduler.partners.is_empty());
    assert!(scheduler.rings.is_empty(0) && scheduler.rings.is_empty(1));
    assert!(!scheduler.answered(id(1), Push::Down, 0, 0, NONE, 0.0));
}

#[test]
fn an_endpoint_that_changes_its_partner_takes_its_requests_along() {
    let mut scheduler = Scheduler::new(Caps {
        per_partner: 2,
        ..CAPS
    });
    add(&mut scheduler, 1, "", Limits::default());
    add(&mut scheduler, 2, "", Limits::default());
    push(&mut scheduler, 1, 0, 0..4);
    push(&mut scheduler, 2, 0, 0..1);
    scheduler.push(id(3), 0, 7, 0);
    assert_eq!(drain(&mut scheduler), [1, 2]);
    scheduler.set_endpoint(id(1), "a", Limits::default());
    assert_eq!(drain(&mut scheduler), [3, 1]);
    scheduler.finished(id(1), 1, false);
    scheduler.finished(id(1), 1, false);
    assert_eq!(drain(&mut scheduler), [1, 1]);
}
