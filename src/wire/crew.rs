//! The threads that send. Jobs go in, outcomes come out, an eventfd says when. Threads are started as
//! the work needs them, never joined, and end when idle: fewer threads carry more (at 16 threads the
//! client does half as much again as at 64). A job that panics is an outcome like any other.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::rules::delivery::Outcome;
use crate::wire::challenge::{self, ChallengeJob};
use crate::wire::classify;
use crate::wire::client::Client;
use crate::wire::job::{Done, Job};
use crate::wire::send;
use crate::wire::threads::{self, IDLE, lock};

/// The threads and what they share. Dropping it lets them finish what they are sending, drops what
/// is queued, and waits for nobody.
pub struct Crew {
    shared: Arc<Shared>,
}

/// What a thread is given.
enum Task {
    Event(Job),
    Challenge(Box<ChallengeJob>),
}

impl Task {
    fn ticket(&self) -> u64 {
        match self {
            Task::Event(job) => job.ticket,
            Task::Challenge(job) => job.ticket,
        }
    }
}

type Proof = Result<(), &'static str>;
type Work = dyn Fn(&Client, &Job) -> Outcome + Send + Sync;

struct Shared {
    work: Box<Work>,
    client: RwLock<Arc<Client>>,
    queue: Mutex<Queue>,
    wanted: Condvar,
    done: Mutex<Vec<Done>>,
    wake: EventFd,
}

struct Queue {
    jobs: VecDeque<Task>,
    max_threads: usize,
    /// All threads: those that send and those that wait.
    threads: usize,
    sending: usize,
    closed: bool,
}

impl Crew {
    /// A crew of at most so many threads; it starts with none.
    pub fn new(max_threads: usize, client: Arc<Client>) -> io::Result<Crew> {
        Crew::with_work(max_threads, client, Box::new(send::send))
    }

    pub(super) fn with_work(
        max_threads: usize,
        client: Arc<Client>,
        work: Box<Work>,
    ) -> io::Result<Crew> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Crew {
            shared: Arc::new(Shared {
                work,
                client: RwLock::new(client),
                queue: Mutex::new(Queue {
                    jobs: VecDeque::new(),
                    max_threads: max_threads.max(1),
                    threads: 0,
                    sending: 0,
                    closed: false,
                }),
                wanted: Condvar::new(),
                done: Mutex::default(),
                wake,
            }),
        })
    }

    /// Queues a job. Starts a thread when none is idle and there may be more.
    pub fn submit(&mut self, job: Job) {
        self.queue(Task::Event(job));
    }

    /// The same for a challenge.
    pub fn submit_challenge(&mut self, job: ChallengeJob) {
        self.queue(Task::Challenge(Box::new(job)));
    }

    fn queue(&self, task: Task) {
        lock(&self.shared.queue).jobs.push_back(task);
        self.shared.staff();
        self.shared.wanted.notify_one();
    }

    /// Moves what is done to `into`. To miss nothing, clear the event first.
    pub fn take_done(&self, into: &mut Vec<Done>) {
        into.append(&mut lock(&self.shared.done));
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
        lock(&self.shared.queue).max_threads = max_threads.max(1);
        self.shared.staff();
        self.shared.wanted.notify_all();
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        lock(&self.shared.queue).threads
    }

    /// How many jobs are queued or being sent.
    pub fn in_flight(&self) -> usize {
        let queue = lock(&self.shared.queue);
        queue.jobs.len() + queue.sending
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.jobs.clear();
        self.shared.wanted.notify_all();
    }
}

impl Shared {
    /// Starts the threads the queue needs. When there is none and none can be started, nobody would
    /// ever come to the queued jobs: they fail at once.
    fn staff(self: &Arc<Shared>) {
        let mut queue = lock(&self.queue);
        while queue.jobs.len() > queue.threads - queue.sending && queue.threads < queue.max_threads
        {
            let shared = Arc::clone(self);
            if threads::spawn("webhook sender", move || shared.serve()).is_ok() {
                queue.threads += 1;
                continue;
            }
            if queue.threads == 0 {
                let stranded: Vec<Task> = queue.jobs.drain(..).collect();
                drop(queue);
                for task in stranded {
                    self.finish(task.ticket(), not_sent("could not start a thread"), None);
                }
            }
            return;
        }
    }

    /// The life of a thread. It outlives a panic, which `Sending` has turned into an outcome.
    fn serve(self: Arc<Shared>) {
        let send_all = || {
            while let Some(task) = self.next() {
                let sending = Sending {
                    shared: &self,
                    ticket: task.ticket(),
                    outcome: None,
                    proof: matches!(task, Task::Challenge(_)).then_some(Err("nothing was sent")),
                };
                // Cloned, so that the lock is not held while the job is sent.
                let client =
                    Arc::clone(&self.client.read().unwrap_or_else(PoisonError::into_inner));
                match &task {
                    Task::Event(job) => sending.end((self.work)(&client, job), None),
                    Task::Challenge(job) => {
                        let (outcome, proof) = challenge::send(&client, job);
                        sending.end(outcome, Some(proof));
                    }
                }
            }
        };
        while catch_unwind(AssertUnwindSafe(send_all)).is_err() {}
    }

    /// The next job; `None` ends the thread.
    fn next(&self) -> Option<Task> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.closed || queue.threads > queue.max_threads {
                break;
            }
            if let Some(job) = queue.jobs.pop_front() {
                queue.sending += 1;
                return Some(job);
            }
            let (woken, waited) = self
                .wanted
                .wait_timeout(queue, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            if waited.timed_out() && queue.jobs.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
        None
    }

    fn finish(&self, ticket: u64, outcome: Outcome, proof: Option<Proof>) {
        let mut done = lock(&self.done);
        done.push(Done {
            ticket,
            outcome,
            proof,
        });
        let first = done.len() == 1;
        drop(done);
        // Who takes the list takes all of it, so the first entry is the only one that must wake.
        if first {
            // It can only fail when it is readable already.
            let _ = self.wake.write(1);
        }
    }
}

/// A job in the hands of a thread: it ends with an outcome, even if the thread panics.
struct Sending<'a> {
    shared: &'a Shared,
    ticket: u64,
    outcome: Option<Outcome>,
    proof: Option<Proof>,
}

impl Sending<'_> {
    fn end(mut self, outcome: Outcome, proof: Option<Proof>) {
        self.outcome = Some(outcome);
        self.proof = proof;
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or_else(|| not_sent("sender panicked"));
        self.shared.finish(self.ticket, outcome, self.proof);
        lock(&self.shared.queue).sending -= 1;
    }
}

fn not_sent(detail: &str) -> Outcome {
    send::without_request(send::wall_clock(), classify::internal(detail))
}
