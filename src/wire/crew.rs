//! The threads that send. Jobs go in, outcomes come out, an eventfd says when. Threads are started as
//! the work needs them, never joined, and end when idle. A job that panics is an outcome like any other.
//!
//! A thread that ends a job takes the next one in the same breath; nobody is woken who is awake. With a system call
//! for each hand-over the threads spent more on waking one another than on requests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::rules::delivery::Outcome;
use crate::rules::ids::EndpointId;
use crate::wire::challenge::{self, ChallengeJob};
use crate::wire::classify;
use crate::wire::client::Client;
use crate::wire::job::{Done, Job};
use crate::wire::queue::{Queue, Returned, Task, ended_well};
use crate::wire::send;
use crate::wire::threads::{self, IDLE, lock};

/// The threads and what they share. Dropping it lets them finish what they are sending, drops what
/// is queued, and waits for nobody.
pub struct Crew {
    shared: Arc<Shared>,
}

type Proof = Result<(), &'static str>;
type Work = dyn Fn(&Client, &Job) -> Outcome + Send + Sync;
type Gate = dyn Fn(&Job) -> bool + Send + Sync;

struct Shared {
    work: Box<Work>,
    client: RwLock<Arc<Client>>,
    /// Asked before each job begins: false sends it back.
    gate: Box<Gate>,
    state: Mutex<State>,
    wanted: Condvar,
    ended: Mutex<Ended>,
    wake: EventFd,
}

struct State {
    queue: Queue,
    max_threads: usize,
    /// All threads: those that send and those that wait.
    threads: usize,
    /// Those that wait for a job and were not woken for one.
    idle: usize,
    /// Those that wait and were woken: one for each wake that nobody has answered yet.
    woken: usize,
    sending: usize,
    closed: bool,
}

/// What has come back.
#[derive(Default)]
struct Ended {
    done: Vec<Done>,
    returned: Vec<u64>,
}

impl Crew {
    /// A crew of at most so many threads; it starts with none. `gate` is asked before each job begins, by whoever
    /// begins it: while it says no, jobs come back.
    pub fn new(
        max_threads: usize,
        client: Arc<Client>,
        gate: impl Fn(&Job) -> bool + Send + Sync + 'static,
    ) -> io::Result<Crew> {
        Crew::with_work(max_threads, client, Box::new(gate), Box::new(send::send))
    }

    pub(super) fn with_work(
        max_threads: usize,
        client: Arc<Client>,
        gate: Box<Gate>,
        work: Box<Work>,
    ) -> io::Result<Crew> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Crew {
            shared: Arc::new(Shared {
                work,
                client: RwLock::new(client),
                gate,
                state: Mutex::new(State {
                    queue: Queue::default(),
                    max_threads: max_threads.max(1),
                    threads: 0,
                    idle: 0,
                    woken: 0,
                    sending: 0,
                    closed: false,
                }),
                wanted: Condvar::new(),
                ended: Mutex::default(),
                wake,
            }),
        })
    }

    /// Queues jobs, in this order. Starts threads when none is idle and there may be more.
    pub fn submit(&mut self, jobs: impl IntoIterator<Item = Job>) {
        let now = Instant::now();
        let mut state = lock(&self.shared.state);
        for job in jobs {
            state.queue.push(Task::Event(Box::new(job)), now);
        }
        self.shared.staff(state);
    }

    /// The same for a challenge.
    pub fn submit_challenge(&mut self, job: ChallengeJob) {
        let mut state = lock(&self.shared.state);
        state
            .queue
            .push(Task::Challenge(Box::new(job)), Instant::now());
        self.shared.staff(state);
    }

    /// Moves what is done to `into`, and the tickets of jobs that came back without having begun to `returned`. To miss
    /// nothing, clear the event first.
    pub fn take_done(&self, into: &mut Vec<Done>, returned: &mut Vec<u64>) {
        let mut ended = lock(&self.shared.ended);
        into.append(&mut ended.done);
        returned.append(&mut ended.returned);
    }

    /// Takes back every job that has not begun, challenges left out.
    pub fn recall(&self) -> Returned {
        lock(&self.shared.state).queue.recall()
    }

    /// Takes back jobs that have waited for so long, be it for a thread or for others of their endpoint, and what
    /// stands behind them.
    pub fn recall_older(&self, age: Duration) -> Returned {
        match Instant::now().checked_sub(age) {
            Some(since) => lock(&self.shared.state).queue.recall_older(since),
            None => Returned::default(),
        }
    }

    /// Readable when something is done.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Makes the event unreadable until something more is done.
    pub fn clear_event(&self) {
        // An error means that it was clear already.
        let _ = self.shared.wake.read();
    }

    /// Jobs that start from now on use this client. The pool of the old one goes with its last job.
    pub fn replace_client(&self, client: Arc<Client>) {
        *self
            .shared
            .client
            .write()
            .unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// Changes the limit. Threads above it end after their job.
    pub fn set_max_threads(&mut self, max_threads: usize) {
        let mut state = lock(&self.shared.state);
        state.max_threads = max_threads.max(1);
        self.shared.staff(state);
        self.shared.wanted.notify_all();
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        lock(&self.shared.state).threads
    }

    /// How many jobs are queued or being sent.
    pub fn in_flight(&self) -> usize {
        let state = lock(&self.shared.state);
        state.queue.len() + state.sending
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.closed = true;
        state.queue.clear();
        self.shared.wanted.notify_all();
    }
}

impl Shared {
    /// Wakes or starts the threads the queue needs. When there is none and none can be started, nobody would
    /// ever come to the queued jobs: they fail at once.
    fn staff(self: &Arc<Shared>, mut state: MutexGuard<'_, State>) {
        let mut needed = state.queue.ready();
        // Those that were woken and did not come yet will take theirs.
        let on_their_way = state.threads - state.sending - state.idle;
        needed = needed.saturating_sub(on_their_way);
        let woken = needed.min(state.idle);
        state.idle -= woken;
        state.woken += woken;
        needed -= woken;
        while needed > 0 && state.threads < state.max_threads {
            let shared = Arc::clone(self);
            if threads::spawn("webhook sender", move || shared.serve()).is_ok() {
                state.threads += 1;
                needed -= 1;
                continue;
            }
            if state.threads == 0 {
                let mut returned = Vec::new();
                let mut stranded = Vec::new();
                while let Some(task) = state.queue.pop() {
                    if let Task::Event(job) = &task {
                        let ended = state.queue.ended(job.pair.endpoint, false, Instant::now());
                        returned.extend(ended);
                    }
                    stranded.push(task.ticket());
                }
                drop(state);
                self.give_back(returned);
                for ticket in stranded {
                    self.tell(ticket, not_sent("could not start a thread"), None);
                }
                return;
            }
            break;
        }
        drop(state);
        for _ in 0..woken {
            self.wanted.notify_one();
        }
    }

    /// The life of a thread. It outlives a panic, which `Sending` has turned into an outcome.
    fn serve(self: Arc<Shared>) {
        let send_all = || {
            let mut ended = None;
            while let Some(task) = self.next(ended.take()) {
                let sending = Sending {
                    shared: &self,
                    ticket: task.ticket(),
                    endpoint: match &task {
                        Task::Event(job) => Some(job.pair.endpoint),
                        Task::Challenge(_) => None,
                    },
                    proof: matches!(task, Task::Challenge(_)).then_some(Err("nothing was sent")),
                };
                if let Task::Event(job) = &task
                    && !(self.gate)(job)
                {
                    sending.send_back();
                    continue;
                }
                // Cloned, so that the lock is not held while the job is sent.
                let client =
                    Arc::clone(&self.client.read().unwrap_or_else(PoisonError::into_inner));
                ended = Some(match &task {
                    Task::Event(job) => sending.end((self.work)(&client, job), None),
                    Task::Challenge(job) => {
                        let (outcome, proof) = challenge::send(&client, job);
                        sending.end(outcome, Some(proof))
                    }
                });
            }
        };
        while catch_unwind(AssertUnwindSafe(send_all)).is_err() {}
    }

    /// The next job after one that has ended; `None` ends the thread.
    fn next(self: &Arc<Shared>, ended: Option<Finished>) -> Option<Task> {
        let mut state = lock(&self.state);
        if let Some(ended) = ended {
            state = self.leave(state, ended);
        }
        loop {
            if state.closed || state.threads > state.max_threads {
                break;
            }
            if let Some(task) = state.queue.pop() {
                state.sending += 1;
                return Some(task);
            }
            state.idle += 1;
            let (woken, waited) = self
                .wanted
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            // Whoever comes first answers a wake, whichever of them was meant.
            if state.woken > 0 {
                state.woken -= 1;
            } else {
                state.idle -= 1;
            }
            if waited.timed_out() && state.queue.ready() == 0 {
                break;
            }
        }
        state.threads -= 1;
        None
    }

    /// A job has ended; what waited for it may go, or comes back.
    fn leave<'a>(
        self: &'a Arc<Shared>,
        mut state: MutexGuard<'a, State>,
        ended: Finished,
    ) -> MutexGuard<'a, State> {
        state.sending -= 1;
        let Some(endpoint) = ended.endpoint else {
            return state;
        };
        let returned = state.queue.ended(endpoint, ended.well, Instant::now());
        if returned.is_empty() {
            return state;
        }
        drop(state);
        self.give_back(returned);
        lock(&self.state)
    }

    fn give_back(&self, returned: Vec<u64>) {
        if returned.is_empty() {
            return;
        }
        let mut ended = lock(&self.ended);
        let first = ended.done.is_empty() && ended.returned.is_empty();
        ended.returned.extend(returned);
        drop(ended);
        if first {
            self.wake();
        }
    }

    fn tell(&self, ticket: u64, outcome: Outcome, proof: Option<Proof>) {
        let mut ended = lock(&self.ended);
        let first = ended.done.is_empty() && ended.returned.is_empty();
        ended.done.push(Done {
            ticket,
            outcome,
            proof,
        });
        drop(ended);
        // Who takes the list takes all of it, so the first entry is the only one that must wake.
        if first {
            self.wake();
        }
    }

    fn wake(&self) {
        // It can only fail when it is readable already.
        let _ = self.wake.write(1);
    }
}

/// A job that has ended.
struct Finished {
    /// None = a challenge.
    endpoint: Option<EndpointId>,
    well: bool,
}

/// A job in the hands of a thread: it ends with an outcome, even if the thread panics.
struct Sending<'a> {
    shared: &'a Arc<Shared>,
    ticket: u64,
    endpoint: Option<EndpointId>,
    proof: Option<Proof>,
}

impl Sending<'_> {
    /// Tells the outcome; what is returned is said with the next look at the queue, which saves one.
    fn end(self, outcome: Outcome, proof: Option<Proof>) -> Finished {
        let finished = Finished {
            endpoint: self.endpoint,
            well: ended_well(&outcome),
        };
        self.shared.tell(self.ticket, outcome, proof);
        std::mem::forget(self);
        finished
    }

    /// It has not begun, and does not.
    fn send_back(self) {
        self.shared.give_back(vec![self.ticket]);
        self.leave();
        std::mem::forget(self);
    }

    fn leave(&self) {
        let ended = Finished {
            endpoint: self.endpoint,
            well: false,
        };
        drop(self.shared.leave(lock(&self.shared.state), ended));
    }
}

/// Dropped by a panic.
impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.shared
            .tell(self.ticket, not_sent("sender panicked"), self.proof);
        self.leave();
    }
}

fn not_sent(detail: &str) -> Outcome {
    send::without_request(send::wall_clock(), classify::internal(detail))
}
