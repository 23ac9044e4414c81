//! Tests of what is handed over in advance.

use super::*;

/// A scheduler that goes ahead, with an endpoint that takes a millisecond and runs all it may.
fn busy(caps: Caps) -> Scheduler<u32> {
    let mut scheduler = Scheduler::new(caps);
    scheduler.go_ahead();
    add(&mut scheduler, 1, "a", Limits::default());
    push(&mut scheduler, 1, 0, 0..1_000);
    take(&mut scheduler, 0).unwrap();
    scheduler.finished(id(1), 1_000, false);
    scheduler.answered(id(1), Push::Up, 0, 1, NONE, 0.0);
    drain(&mut scheduler);
    scheduler
}

fn ahead(scheduler: &mut Scheduler<u32>) -> Vec<u32> {
    std::iter::from_fn(|| scheduler.take_ahead(0).map(|taken| taken.waiting.item)).collect()
}

#[test]
fn what_is_fast_is_given_as_much_as_it_finishes_while_nobody_hands_over() {
    let mut scheduler = busy(CAPS);
    assert_eq!(scheduler.in_flight(), 3, "its cap");
    // 30 ms at 1 ms each, three at a time.
    assert_eq!(ahead(&mut scheduler), (4..94).collect::<Vec<_>>());
    assert_eq!((scheduler.in_flight(), scheduler.ahead_of(id(1))), (3, 90));
    // One ends: the next has its place already, and one more is handed over.
    scheduler.finished(id(1), 1_000, false);
    assert_eq!((scheduler.in_flight(), scheduler.ahead_of(id(1))), (3, 89));
    assert_eq!(take(&mut scheduler, 0), None);
    assert_eq!(ahead(&mut scheduler), [94]);
}

#[test]
fn nothing_is_given_in_advance_unless_somebody_said_so() {
    let mut scheduler = Scheduler::new(CAPS);
    add(&mut scheduler, 1, "a", Limits::default());
    push(&mut scheduler, 1, 0, 0..100);
    take(&mut scheduler, 0).unwrap();
    scheduler.finished(id(1), 1, false);
    scheduler.answered(id(1), Push::Up, 0, 1, NONE, 0.0);
    drain(&mut scheduler);
    assert_eq!(scheduler.in_flight(), 3);
    assert!(scheduler.take_ahead(0).is_none());
}

#[test]
fn what_is_slow_shut_rated_or_not_at_its_limit_is_given_nothing_in_advance() {
    let mut slow = busy(CAPS);
    for _ in 0..100 {
        slow.finished(id(1), SECOND, false);
        drain(&mut slow);
    }
    assert_eq!(ahead(&mut slow), [0; 0]);

    let mut shut_one = busy(CAPS);
    shut(&mut shut_one, 1, 5);
    assert_eq!(ahead(&mut shut_one), [0; 0]);

    let mut overdue = busy(CAPS);
    overdue.outlasted(id(1));
    assert_eq!(ahead(&mut overdue), [0; 0]);

    let mut failing = busy(CAPS);
    failing.answered(id(1), Push::Neutral, 0, 1, NONE, 0.0);
    assert_eq!(ahead(&mut failing), [0; 0]);

    let mut with_rate = busy(CAPS);
    with_rate.set_endpoint(id(1), "a", rated(1_000.0, 1_000.0));
    drain(&mut with_rate);
    assert_eq!(ahead(&mut with_rate), [0; 0]);

    let mut unknown = Scheduler::new(CAPS);
    unknown.go_ahead();
    add(&mut unknown, 1, "a", Limits::default());
    push(&mut unknown, 1, 0, 0..100);
    drain(&mut unknown);
    assert_eq!(ahead(&mut unknown), [0; 0], "nobody knows its pace yet");
}

#[test]
fn nothing_is_given_in_advance_while_others_wait_for_a_place() {
    // The partner has five places; its second endpoint waits for one.
    let mut scheduler = busy(CAPS);
    add(&mut scheduler, 2, "a", Limits::default());
    push(&mut scheduler, 2, 0, 0..9);
    assert_eq!(drain(&mut scheduler), [2, 2]);
    assert_eq!(ahead(&mut scheduler), [0; 0]);
    scheduler.finished(id(1), 1_000, false);
    assert_eq!(
        drain(&mut scheduler),
        [2],
        "it has the place that came free"
    );
}

#[test]
fn places_beyond_the_cap_are_those_that_come_free_before_long() {
    let caps = Caps {
        total: 2,
        per_partner: 100,
        per_endpoint: 1,
    };
    let mut scheduler = Scheduler::new(caps);
    scheduler.go_ahead();
    for endpoint in 1..=50 {
        add(&mut scheduler, endpoint, "a", Limits::default());
        push(&mut scheduler, endpoint, 0, 0..1);
    }
    assert_eq!(drain(&mut scheduler).len(), 2, "no pace is known yet");
    scheduler.finished(id(1), 1_000, false);
    // 10 ms at 1 ms each, two at a time.
    assert_eq!(drain(&mut scheduler).len(), 21);
    assert_eq!(scheduler.in_flight(), 22);
    scheduler.crowd_stalled();
    assert_eq!(drain(&mut scheduler).len(), 0, "places do not come free");
}

#[test]
fn what_came_back_waits_before_the_others_and_frees_its_place() {
    let mut scheduler = busy(CAPS);
    let handed: Vec<_> = std::iter::from_fn(|| scheduler.take_ahead(0)).collect();
    assert_eq!(handed.len(), 90);
    scheduler.stalled(id(1));
    for taken in handed.into_iter().rev() {
        scheduler.came_back(id(1), 0, taken.waiting.item, taken.waiting.since);
    }
    assert_eq!((scheduler.in_flight(), scheduler.ahead_of(id(1))), (3, 0));
    assert_eq!(ahead(&mut scheduler), [0; 0], "it is not fast any more");
    assert_eq!(take(&mut scheduler, 0), None);
    scheduler.finished(id(1), 1_000, false);
    assert_eq!(take(&mut scheduler, 0), Some((1, 4)), "the order is kept");
    assert_eq!(scheduler.waiting(), 1_000 - 5);
}
