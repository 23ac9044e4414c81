//! Tests of what slows an endpoint down (its window, its rate), of what is foretold about it, and of what
//! it costs while it may not run.

use super::*;

#[test]
fn the_window_bounds_an_endpoint_below_its_cap() {
    let mut scheduler = Scheduler::new(CAPS);
    scheduler.set_endpoint(id(1), "a", Limits::default());
    push(&mut scheduler, 1, 0, 0..9);
    assert_eq!(drain(&mut scheduler), [1], "a new endpoint is sent one");
    assert!(!scheduler.answered(id(1), Push::Up, 0, 1, NONE, 0.0));
    assert_eq!(drain(&mut scheduler), [1]);
    scheduler.finished(id(1), 1, false);
    scheduler.answered(id(1), Push::Up, 0, 1, NONE, 0.0);
    scheduler.answered(id(1), Push::Up, 0, 1, NONE, 0.0);
    assert_eq!(drain(&mut scheduler), [1, 1]);
    assert_eq!(scheduler.window(id(1)).unwrap().size(), 3.0, "its cap");
}

#[test]
fn a_shut_endpoint_is_sent_one_probe_at_a_time() {
    let mut scheduler = Scheduler::new(CAPS);
    add(&mut scheduler, 1, "a", Limits::default());
    push(&mut scheduler, 1, 0, 0..9);
    assert_eq!(drain(&mut scheduler), [1, 1, 1]);
    shut(&mut scheduler, 1, 5);
    let at = SECOND + 5;
    assert_eq!(scheduler.opens_at(id(1)), Some(at));
    for _ in 0..3 {
        assert_eq!(take(&mut scheduler, at), None, "stragglers come first");
        assert_eq!(scheduler.next_timer(), None);
        scheduler.finished(id(1), 1, false);
    }
    assert_eq!(take(&mut scheduler, at - 1), None);
    assert_eq!(scheduler.next_timer(), Some(at));
    let taken = scheduler.take_next(at).unwrap();
    assert!(taken.probe);
    assert_eq!(take(&mut scheduler, at), None);
    assert_eq!(scheduler.next_timer(), None);
    assert!(!scheduler.answered(id(1), Push::Down, at, at + 7, NONE, 0.0));
    scheduler.finished(id(1), 7, false);
    assert_eq!(take(&mut scheduler, at + 7), None);
    let at = at + 7 + 2 * SECOND;
    assert_eq!(scheduler.next_timer(), Some(at));
    assert!(scheduler.take_next(at).unwrap().probe);
    scheduler.finished(id(1), 7, false);
    assert!(scheduler.answered(id(1), Push::Up, at, at, NONE, 0.0));
    assert_eq!(scheduler.opens_at(id(1)), None);
    let taken = scheduler.take_next(at).unwrap();
    assert!(!taken.probe);
    assert_eq!(take(&mut scheduler, at), None, "it reopens at one");
}

#[test]
fn a_rate_spreads_requests_and_says_when_the_next_may_start() {
    let mut scheduler = Scheduler::new(CAPS);
    add(&mut scheduler, 1, "a", rated(2.0, 2.0));
    push(&mut scheduler, 1, 0, 0..9);
    assert_eq!(drain(&mut scheduler), [1, 1]);
    scheduler.finished(id(1), 1, false);
    assert_eq!(take(&mut scheduler, 0), None);
    assert_eq!(scheduler.next_timer(), Some(SECOND / 2));
    assert_eq!(take(&mut scheduler, SECOND / 2 - 1), None);
    assert_eq!(scheduler.next_timer(), Some(SECOND / 2));
    assert_eq!(take(&mut scheduler, SECOND / 2), Some((1, 2)));
    // Its window is full, too: another event comes first.
    scheduler.set_endpoint(
        id(1),
        "a",
        Limits {
            cap: Some(2),
            ..rated(2.0, 2.0)
        },
    );
    assert_eq!(take(&mut scheduler, SECOND / 2), None);
    assert_eq!(scheduler.next_timer(), None);
    scheduler.set_endpoint(id(1), "a", Limits::default());
    assert_eq!(
        take(&mut scheduler, SECOND / 2),
        Some((1, 3)),
        "no rate any more"
    );
}

#[test]
fn a_pair_that_is_not_sent_gives_its_place_and_its_token_back() {
    let mut scheduler = Scheduler::new(CAPS);
    add(&mut scheduler, 1, "a", rated(1.0, 1.0));
    push(&mut scheduler, 1, 0, 0..3);
    assert_eq!(take(&mut scheduler, 0), Some((1, 0)));
    assert_eq!(take(&mut scheduler, 0), None);
    scheduler.not_sent(id(1));
    assert_eq!(scheduler.in_flight(), 0);
    assert_eq!(take(&mut scheduler, 0), Some((1, 1)));
    assert_eq!(take(&mut scheduler, 0), None);
    assert_eq!(
        scheduler.expected_wait(id(1), 0),
        2 * SECOND,
        "no pace was learnt"
    );
    scheduler.not_sent(id(1));
    scheduler.not_sent(id(1));
    assert_eq!(scheduler.in_flight(), 0, "said too often");
}

#[test]
fn the_expected_wait_grows_with_the_queue_and_the_pace() {
    let mut scheduler = Scheduler::new(CAPS);
    add(&mut scheduler, 1, "a", Limits::default());
    push(&mut scheduler, 1, 0, 0..1);
    assert!(take(&mut scheduler, 0).is_some());
    scheduler.finished(id(1), 1_500_000, false);
    push(&mut scheduler, 1, 0, 0..6);
    assert_eq!(scheduler.expected_wait(id(1), 0), 3_000_000);
    scheduler.set_window(id(1), AdaptiveWindow::restored(2.9, None, NONE));
    assert_eq!(scheduler.expected_wait(id(1), 0), 4_500_000);
    assert_eq!(scheduler.expected_wait(id(2), 0), 0);
    add(&mut scheduler, 3, "a", rated(2.0, 3.0));
    assert_eq!(scheduler.expected_wait(id(3), 7), 0);
    push(&mut scheduler, 3, 0, 0..7);
    assert_eq!(
        scheduler.expected_wait(id(3), 7),
        5 * SECOND / 2,
        "five tokens more"
    );
    add(&mut scheduler, 4, "a", capped(0));
    assert_eq!(scheduler.expected_wait(id(4), 0), i64::MAX);
}

#[test]
fn nobody_waits_for_a_shut_endpoint_but_its_next_probe() {
    let mut scheduler = Scheduler::new(CAPS);
    add(&mut scheduler, 1, "a", Limits::default());
    shut(&mut scheduler, 1, 0);
    let of = |scheduler: &Scheduler<u32>, now| {
        (
            scheduler.expected_wait(id(1), now),
            scheduler.room_for(id(1), now),
        )
    };
    assert_eq!(of(&scheduler, SECOND - 1), (i64::MAX, 0));
    assert_eq!(of(&scheduler, SECOND), (0, 1));
    push(&mut scheduler, 1, 0, 0..1);
    assert_eq!(of(&scheduler, SECOND), (i64::MAX, 0));
    assert!(scheduler.take_next(SECOND).is_some());
    assert_eq!(of(&scheduler, SECOND), (i64::MAX, 0));
}

#[test]
fn memory_has_room_for_twice_what_may_run_and_a_second_of_the_rate() {
    let mut scheduler = Scheduler::new(CAPS);
    assert_eq!(scheduler.room_for(id(1), 0), 2, "nothing is known of it");
    add(&mut scheduler, 1, "a", Limits::default());
    assert_eq!(scheduler.room_for(id(1), 0), 6);
    push(&mut scheduler, 1, 0, 0..4);
    assert_eq!(scheduler.room_for(id(1), 0), 2);
    assert_eq!(drain(&mut scheduler).len(), 3);
    assert_eq!(scheduler.room_for(id(1), 0), 2);
    scheduler.set_window(id(1), AdaptiveWindow::restored(1.0, None, NONE));
    assert_eq!(scheduler.room_for(id(1), 0), 0);
    add(&mut scheduler, 2, "a", capped(100));
    assert_eq!(
        scheduler.room_for(id(2), 0),
        16,
        "the database's cap is the last"
    );
    for (rate, room) in [
        (rated(0.1, 1.0), 1),
        (rated(2.0, 1.0), 3),
        (rated(2.0, 2.0), 4),
        (rated(50.0, 1.0), 6),
    ] {
        add(&mut scheduler, 3, "a", Limits::default());
        add(&mut scheduler, 3, "a", rate);
        assert_eq!(scheduler.room_for(id(3), 0), room, "{rate:?}");
    }
    add(&mut scheduler, 3, "a", rated(2.0, 1.0));
    push(&mut scheduler, 3, 0, 0..2);
    assert_eq!(scheduler.room_for(id(3), 0), 1);
}

#[test]
fn endpoints_that_may_not_run_cost_nothing() {
    let mut scheduler = Scheduler::new(WIDE);
    for endpoint in 1..=5_000 {
        let limits = if endpoint % 2 == 0 {
            capped(0)
        } else {
            rated(1e-9, 1.0)
        };
        add(&mut scheduler, endpoint, "a", limits);
        push(&mut scheduler, endpoint, 0, 0..3);
    }
    for endpoint in 1..=2_500 {
        assert!(take(&mut scheduler, 0).is_some(), "each rate allows one");
        scheduler.finished(id(2 * endpoint - 1), 1, false);
    }
    assert_eq!(take(&mut scheduler, 0), None);
    add(&mut scheduler, 0, "b", Limits::default());
    let before = scheduler.looks;
    for item in 0..1_000 {
        push(&mut scheduler, 0, 0, item..item + 1);
        assert_eq!(take(&mut scheduler, 0), Some((0, item)));
        assert_eq!(take(&mut scheduler, 0), None);
        scheduler.finished(id(0), 1, false);
    }
    assert_eq!(scheduler.looks - before, 1_000);
}

#[test]
fn slow_endpoints_are_not_all_looked_at_each_time_the_crowd_thins_out() {
    let mut scheduler = Scheduler::new(Caps {
        total: 4,
        per_partner: 4,
        per_endpoint: 1,
    });
    let slow = 2_000;
    for endpoint in 0..slow {
        add(&mut scheduler, endpoint, "a", Limits::default());
        push(&mut scheduler, endpoint, 0, 0..1_000);
    }
    // Every request outlasts the first pass; each round the crowd of two loses and gains one.
    let mut running = VecDeque::new();
    let mut ran = vec![0_u32; 2_000];
    for _ in 0..10_000 {
        while let Some((endpoint, _)) = take(&mut scheduler, 0) {
            ran[usize::try_from(endpoint).unwrap()] += 1;
            scheduler.outlasted(id(endpoint));
            running.push_back(endpoint);
        }
        scheduler.finished(id(running.pop_front().unwrap()), 1, true);
    }
    assert!(scheduler.looks < 50_000, "{}", scheduler.looks);
    assert!(ran.iter().all(|ran| *ran > 0), "and each has its turn");
}
