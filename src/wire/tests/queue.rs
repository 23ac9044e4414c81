//! The queue of the threads: what runs side by side, what waits, and what comes back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Instant;

use super::crew::{job, wait_for};
use super::*;
use crate::rules::ids::EndpointId;
use crate::wire::crew::Crew;
use crate::wire::job::Job;
use crate::wire::queue::{Queue, Task};
use crate::wire::{classify, send};

fn of(endpoint: i64, ticket: u64, room: usize) -> Job {
    let mut job = job(ticket, arc(target("http://127.0.0.1:4444/")));
    job.pair.endpoint = EndpointId(endpoint);
    job.room = room;
    job
}

fn put(queue: &mut Queue, endpoint: i64, ticket: u64, room: usize) {
    queue.push(
        Task::Event(Box::new(of(endpoint, ticket, room))),
        Instant::now(),
    );
}

fn tickets(queue: &mut Queue) -> Vec<u64> {
    std::iter::from_fn(|| queue.pop().map(|task| task.ticket())).collect()
}

#[test]
fn an_endpoint_has_as_many_jobs_under_way_as_it_has_room() {
    let mut queue = Queue::default();
    for ticket in 0..5 {
        put(&mut queue, 1, ticket, 2);
    }
    put(&mut queue, 2, 10, 1);
    assert_eq!((queue.ready(), queue.len()), (3, 6));
    assert_eq!(tickets(&mut queue), [0, 1, 10]);
    assert!(queue.ended(EndpointId(1), true, Instant::now()).is_empty());
    assert_eq!(tickets(&mut queue), [2]);
    // More room: what waits goes first.
    put(&mut queue, 1, 5, 4);
    assert_eq!(tickets(&mut queue), [3, 4]);
    for _ in 0..4 {
        assert!(queue.ended(EndpointId(1), true, Instant::now()).is_empty());
    }
    assert_eq!(tickets(&mut queue), [5]);
    assert_eq!(queue.len(), 0);
}

#[test]
fn what_waits_behind_a_failure_comes_back_and_that_of_others_does_not() {
    let mut queue = Queue::default();
    for ticket in 0..3 {
        put(&mut queue, 1, ticket, 1);
        put(&mut queue, 2, 10 + ticket, 1);
    }
    assert_eq!(tickets(&mut queue), [0, 10]);
    assert_eq!(queue.ended(EndpointId(1), false, Instant::now()), [1, 2]);
    assert_eq!(queue.len(), 2);
    queue.ended(EndpointId(2), true, Instant::now());
    assert_eq!(tickets(&mut queue), [11]);
    put(&mut queue, 1, 3, 1);
    assert_eq!(tickets(&mut queue), [3], "its place is free again");
}

#[test]
fn a_recall_gives_back_everything_that_has_not_begun() {
    let mut queue = Queue::default();
    for ticket in 0..5 {
        put(&mut queue, 1, ticket, 2);
    }
    assert_eq!(queue.pop().map(|task| task.ticket()), Some(0));
    let back = queue.recall();
    assert_eq!((back.ready, back.waiting), (vec![1], vec![2, 3, 4]));
    assert_eq!(queue.len(), 0);
    // The one that has begun still counts.
    put(&mut queue, 1, 5, 2);
    put(&mut queue, 1, 6, 2);
    assert_eq!(tickets(&mut queue), [5]);
    queue.ended(EndpointId(1), true, Instant::now());
    assert_eq!(tickets(&mut queue), [6]);
}

#[test]
fn only_what_has_waited_for_long_is_recalled_and_what_stands_behind_it() {
    let (long, short) = (Instant::now(), Instant::now() + Duration::from_secs(10));
    let between = long + Duration::from_secs(5);
    let mut queue = Queue::default();
    let push = |queue: &mut Queue, endpoint, ticket, at| {
        queue.push(Task::Event(Box::new(of(endpoint, ticket, 1))), at);
    };
    push(&mut queue, 1, 0, long);
    push(&mut queue, 2, 10, long);
    assert_eq!(tickets(&mut queue), [0, 10], "both have begun");
    push(&mut queue, 1, 1, long);
    push(&mut queue, 1, 2, short);
    push(&mut queue, 2, 11, short);
    let back = queue.recall_older(between);
    assert_eq!((back.ready, back.waiting), (vec![], vec![1, 2]));
    assert_eq!(queue.len(), 1);
    // No thread takes what is ready: all of that comes back, and what would wait for it in vain.
    push(&mut queue, 3, 20, long);
    push(&mut queue, 3, 21, short);
    push(&mut queue, 4, 30, short);
    let back = queue.recall_older(between);
    assert_eq!((back.ready, back.waiting), (vec![20, 30, 21], vec![]));
    assert_eq!(queue.len(), 1);
    assert!(queue.ended(EndpointId(2), true, short).is_empty());
    assert_eq!(tickets(&mut queue), [11]);
}

#[test]
fn a_closed_gate_sends_jobs_back_and_an_open_one_lets_them_go() {
    let open = arc(AtomicBool::new(false));
    let asked = Arc::clone(&open);
    let gate = move |_: &Job| asked.load(Ordering::SeqCst);
    let nothing = |_: &Client, _: &Job| send::without_request(NOW, classify::internal("nothing"));
    let mut crew = Crew::with_work(2, arc(client()), Box::new(gate), Box::new(nothing)).unwrap();
    crew.submit((0..5).map(|ticket| of(1, ticket, 1)));
    let mut back = returned(&crew, 5);
    back.sort_unstable();
    assert_eq!(back, [0, 1, 2, 3, 4]);
    assert_eq!(crew.in_flight(), 0);
    open.store(true, Ordering::SeqCst);
    crew.submit([of(1, 9, 1)]);
    assert_eq!(wait_for(&crew, 1)[0].ticket, 9);
}

/// The tickets that come back, as soon as there are so many.
fn returned(crew: &Crew, count: usize) -> Vec<u64> {
    let mut back = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while back.len() < count || crew.in_flight() > 0 {
        assert!(Instant::now() < deadline, "{back:?} came back");
        crew.take_done(&mut Vec::new(), &mut back);
        thread::sleep(Duration::from_millis(1));
    }
    back
}

#[test]
fn a_job_goes_on_where_one_ended_well_without_being_told() {
    let ended = arc((Mutex::new(0), Condvar::new()));
    let seen = Arc::clone(&ended);
    let work = move |_: &Client, _: &Job| {
        *seen.0.lock().unwrap() += 1;
        seen.1.notify_all();
        Outcome {
            answer: Answer::Status {
                code: 204,
                retry_after: Vec::new(),
            },
            ..send::without_request(NOW, classify::internal(""))
        }
    };
    let mut crew = Crew::with_work(4, arc(client()), Box::new(|_| true), Box::new(work)).unwrap();
    crew.submit((0..50).map(|ticket| of(1, ticket, 1)));
    let all = ended.0.lock().unwrap();
    let patience = Duration::from_secs(10);
    let (all, late) = ended
        .1
        .wait_timeout_while(all, patience, |count| *count < 50)
        .unwrap();
    assert!(!late.timed_out(), "{} ended", *all);
}
