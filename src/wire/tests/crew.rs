//! The threads: growth, waking, panics, replacement of the client.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;

use super::server::{OK, Server};
use super::*;
use crate::rules::ids::{EndpointId, EventId, Pair};
use crate::rules::profile::Profile;
use crate::rules::signing::{Secret, SigningKey};
use crate::wire::crew::Crew;
use crate::wire::job::{Done, Job};
use crate::wire::{classify, send};

const PATIENCE: Duration = Duration::from_secs(10);

pub fn job(ticket: u64, target: Arc<Target>) -> Job {
    Job {
        ticket,
        target: Ok(target),
        pair: Pair {
            event: EventId::new(1_700_000_000_000, u128::from(ticket)),
            endpoint: EndpointId(1),
        },
        attempt: 1,
        headers: Arc::default(),
        extra: Arc::default(),
        profile: Profile::V1,
        body: "{}".into(),
        keys: Arc::new(vec![SigningKey {
            id: 1,
            key: Secret::from_bytes(&[7; 32]).unwrap().into(),
        }]),
        fault: None,
        room: usize::MAX,
        looked_through: 0,
    }
}

fn idle_job(ticket: u64) -> Job {
    job(ticket, arc(target("http://127.0.0.1:4444/")))
}

fn nothing() -> Outcome {
    send::without_request(NOW, classify::internal("nothing was done"))
}

fn crew_doing(
    threads: usize,
    work: impl Fn(&Client, &Job) -> Outcome + Send + Sync + 'static,
) -> Crew {
    Crew::with_work(threads, arc(client()), Box::new(|_| true), Box::new(work)).unwrap()
}

/// Waits on the event, as the leader does, until so many are done.
pub fn wait_for(crew: &Crew, count: usize) -> Vec<Done> {
    let mut done = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while done.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} done", done.len());
        if readable(crew) {
            crew.clear_event();
            crew.take_done(&mut done, &mut Vec::new());
        } else {
            thread::sleep(Duration::from_millis(1));
        }
    }
    done
}

/// Whether the event is readable, without clearing it: its counter is in the fdinfo of /proc.
fn readable(crew: &Crew) -> bool {
    use std::os::fd::AsRawFd;
    let fd = crew.event_fd().as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
    info.lines()
        .filter_map(|line| line.strip_prefix("eventfd-count:"))
        .any(|count| u64::from_str_radix(count.trim(), 16).unwrap() > 0)
}

#[test]
fn jobs_run_side_by_side_and_each_wakes_its_ticket() {
    // Every job waits until all of them run.
    let together = arc(Barrier::new(8));
    let mut crew = crew_doing(8, move |_, _| {
        together.wait();
        nothing()
    });
    for ticket in 0..8 {
        crew.submit([idle_job(ticket)]);
    }
    let tickets: HashSet<u64> = wait_for(&crew, 8).iter().map(|done| done.ticket).collect();
    assert_eq!(tickets, (0..8).collect());
    assert_eq!(crew.threads(), 8);
    assert!(!readable(&crew));
}

#[test]
fn crew_grows_with_need_and_not_beyond_its_limit() {
    let mut crew = crew_doing(3, |_, _| {
        thread::sleep(Duration::from_millis(20));
        nothing()
    });
    assert_eq!(crew.threads(), 0);
    crew.submit([idle_job(0)]);
    assert_eq!(crew.threads(), 1);
    for ticket in 1..30 {
        crew.submit([idle_job(ticket)]);
    }
    assert_eq!(crew.threads(), 3);
    assert!(crew.in_flight() > 3);
    assert_eq!(wait_for(&crew, 30).len(), 30);
    let deadline = Instant::now() + PATIENCE;
    while crew.in_flight() > 0 {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

#[test]
fn idle_thread_is_used_before_another_is_started() {
    let mut crew = crew_doing(8, |_, _| nothing());
    for ticket in 0..20 {
        crew.submit([idle_job(ticket)]);
        wait_for(&crew, 1);
        let deadline = Instant::now() + PATIENCE;
        while crew.in_flight() > 0 {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
    }
    assert_eq!(crew.threads(), 1);
}

#[test]
fn lowered_limit_ends_threads_and_raised_limit_starts_them() {
    let together = arc(Barrier::new(4));
    let mut crew = crew_doing(4, move |_, job| {
        if job.ticket < 4 {
            together.wait();
        } else {
            thread::sleep(Duration::from_millis(50));
        }
        nothing()
    });
    for ticket in 0..4 {
        crew.submit([idle_job(ticket)]);
    }
    wait_for(&crew, 4);
    crew.set_max_threads(1);
    let deadline = Instant::now() + PATIENCE;
    while crew.threads() > 1 {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
    for ticket in 4..10 {
        crew.submit([idle_job(ticket)]);
    }
    assert_eq!(crew.threads(), 1);
    crew.set_max_threads(3);
    assert_eq!(crew.threads(), 3);
    assert_eq!(wait_for(&crew, 6).len(), 6);
}

#[test]
fn panic_is_an_outcome_and_the_thread_goes_on() {
    let mut crew = crew_doing(1, |_, job| {
        assert!(job.ticket != 1, "injected");
        nothing()
    });
    for ticket in 0..3 {
        crew.submit([idle_job(ticket)]);
    }
    let done = wait_for(&crew, 3);
    let broken = done.iter().find(|done| done.ticket == 1).unwrap();
    assert_eq!(broken.outcome.answer, classify::internal("sender panicked"));
    assert_eq!(crew.threads(), 1);
}

#[test]
fn signals_are_blocked_in_threads_and_not_in_ours() {
    let before = SigSet::thread_get_mask().unwrap();
    let masks = arc(Mutex::new(Vec::new()));
    let log = Arc::clone(&masks);
    let mut crew = crew_doing(1, move |_, _| {
        log.lock().unwrap().push(SigSet::thread_get_mask().unwrap());
        nothing()
    });
    crew.submit([idle_job(0)]);
    wait_for(&crew, 1);
    use nix::sys::signal::Signal;
    for signal in [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGALRM,
    ] {
        assert!(masks.lock().unwrap()[0].contains(signal));
    }
    assert_eq!(SigSet::thread_get_mask().unwrap(), before);
}

#[test]
fn replaced_client_serves_the_next_job_while_the_old_one_still_sends() {
    let release = arc(Barrier::new(2));
    let gate = Arc::clone(&release);
    let first = arc(client());
    let second = arc(client());
    let seen = arc(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let work = move |client: &Client, job: &Job| {
        log.lock()
            .unwrap()
            .push((job.ticket, std::ptr::from_ref(client) as usize));
        if job.ticket == 0 {
            gate.wait();
        }
        nothing()
    };
    let mut crew =
        Crew::with_work(2, Arc::clone(&first), Box::new(|_| true), Box::new(work)).unwrap();
    crew.submit([idle_job(0)]);
    let deadline = Instant::now() + PATIENCE;
    while seen.lock().unwrap().is_empty() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
    crew.replace_client(Arc::clone(&second));
    crew.submit([idle_job(1)]);
    wait_for(&crew, 1);
    release.wait();
    wait_for(&crew, 1);
    let address = |client: &Arc<Client>| Arc::as_ptr(client) as usize;
    assert_eq!(
        *seen.lock().unwrap(),
        [(0, address(&first)), (1, address(&second))]
    );
}

#[test]
fn dropped_crew_drops_what_is_queued() {
    let started = arc(AtomicUsize::new(0));
    let counter = Arc::clone(&started);
    let mut crew = crew_doing(1, move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(200));
        nothing()
    });
    for ticket in 0..5 {
        crew.submit([idle_job(ticket)]);
    }
    drop(crew);
    thread::sleep(Duration::from_millis(500));
    assert!(started.load(Ordering::SeqCst) <= 1);
}

#[test]
fn crew_delivers() {
    let server = Server::answering(OK);
    let mut crew = Crew::new(4, arc(client()), |_| true).unwrap();
    for ticket in 0..200 {
        crew.submit([job(ticket, arc(http(server.address)))]);
    }
    let done = wait_for(&crew, 200);
    for done in &done {
        assert_status(&done.outcome, 200);
        assert_eq!(done.outcome.key_ids, [1]);
    }
    assert_eq!(server.requests().len(), 200);
    assert!(server.connections() <= 4);
}
