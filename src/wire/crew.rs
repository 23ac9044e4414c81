//! The lane and the threads, which send. Jobs go in, outcomes come out, an eventfd says when. The lane looks at every
//! job first; threads are started as the work needs them, never joined, and end when idle. A job that panics is an
//! outcome like any other.
//!
//! A thread that ends a job takes the next one in the same breath; nobody is woken who is awake. With a system call
//! for each hand-over the threads spent more on waking one another than on requests.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::rules::delivery::Outcome;
use crate::wire::challenge::ChallengeJob;
use crate::wire::classify;
use crate::wire::client::{Begun, Client};
use crate::wire::job::{Done, Job};
use crate::wire::lane;
use crate::wire::queue::{Queue, Returned, Task};
use crate::wire::send;
use crate::wire::sender::{self, Finished, Next, Sending};
use crate::wire::threads::lock;

/// The threads and what they share. Dropping it lets them finish what they are sending, drops what
/// is queued, and waits for nobody.
pub struct Crew {
    shared: Arc<Shared>,
}

pub(super) type Proof = Result<(), &'static str>;
type Work = dyn Fn(&Client, &Job) -> Outcome + Send + Sync;
type Gate = dyn Fn(&Job) -> bool + Send + Sync;

/// What the threads and the lane share.
pub(super) struct Shared {
    pub work: Box<Work>,
    client: RwLock<Arc<Client>>,
    /// Asked before each job begins: false sends it back.
    pub gate: Box<Gate>,
    pub state: Mutex<State>,
    pub wanted: Condvar,
    ended: Mutex<Ended>,
    wake: EventFd,
}

/// What has to be agreed on.
pub(super) struct State {
    pub queue: Queue,
    /// Exchanges that the lane left to a thread in their middle.
    pub left: VecDeque<Left>,
    pub max_threads: usize,
    /// All threads: those that send and those that wait.
    pub threads: usize,
    /// Those that have something to do.
    pub working: usize,
    /// Those that wait for a job and were not woken for one.
    pub idle: usize,
    /// Those that wait and were woken: one for each wake that nobody has answered yet.
    pub woken: usize,
    /// Jobs that have begun and not ended, in threads, in the lane, and between the two.
    pub sending: usize,
    pub closed: bool,
    /// There may be a lane.
    with_lane: bool,
    /// How to wake it, while there is one.
    pub bell: Option<Arc<EventFd>>,
    /// It waits for what its connections bring, and would not notice a job.
    pub lane_waits: bool,
    #[cfg(test)]
    pub by_lane: usize,
}

/// An exchange that the lane left to a thread in its middle.
pub(super) struct Left {
    pub sending: Sending,
    pub job: Box<Job>,
    pub begun: Box<Begun>,
}

impl State {
    /// How many jobs may still begin in threads.
    fn room_for_threads(&self) -> usize {
        let others = self.sending + self.queue.quick_before_ready();
        self.max_threads.saturating_sub(others)
    }

    /// How many jobs may still begin in the lane.
    pub(super) fn room_for_lane(&self) -> usize {
        let others = self.sending + self.queue.ready_before_quick();
        self.max_threads.saturating_sub(others)
    }

    /// What a thread does next.
    pub(super) fn next(&mut self) -> Option<Next> {
        if let Some(left) = self.left.pop_front() {
            return Some(Next::Left(left));
        }
        if self.room_for_threads() == 0 {
            return None;
        }
        let task = self.queue.pop()?;
        self.sending += 1;
        // What stood in the lane's way may have been this one.
        self.wake_lane();
        Some(Next::Task(task))
    }

    /// How many threads have something to do, or would have.
    pub(super) fn needed(&self) -> usize {
        self.left.len() + self.queue.ready().min(self.room_for_threads())
    }

    /// Says that there is something in its queue.
    pub(super) fn wake_lane(&mut self) {
        if self.lane_waits
            && self.queue.quick() > 0
            && let Some(bell) = &self.bell
        {
            self.lane_waits = false;
            // It can only fail when it rings already.
            let _ = bell.write(1);
        }
    }
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
        let crew = Crew::with_work(max_threads, client, Box::new(gate), Box::new(send::send))?;
        lock(&crew.shared.state).with_lane = true;
        Ok(crew)
    }

    /// A crew of threads alone, which do something else than to send.
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
                    left: VecDeque::new(),
                    max_threads: max_threads.max(1),
                    threads: 0,
                    working: 0,
                    idle: 0,
                    woken: 0,
                    sending: 0,
                    closed: false,
                    with_lane: false,
                    bell: None,
                    lane_waits: false,
                    #[cfg(test)]
                    by_lane: 0,
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
        self.shared.open_lane(&mut state);
        for job in jobs {
            state.queue.push(Task::Event(Box::new(job)), now);
        }
        state.wake_lane();
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
        state.wake_lane();
        self.shared.staff(state);
        self.shared.wanted.notify_all();
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        lock(&self.shared.state).threads
    }

    /// How many jobs the lane has done from beginning to end.
    #[cfg(test)]
    pub(super) fn by_lane(&self) -> usize {
        lock(&self.shared.state).by_lane
    }

    /// How many jobs are being sent.
    #[cfg(test)]
    pub(super) fn sending(&self) -> usize {
        lock(&self.shared.state).sending
    }

    /// Tells whether anybody is still there.
    #[cfg(test)]
    pub(super) fn watch(&self) -> std::sync::Weak<Shared> {
        Arc::downgrade(&self.shared)
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
        if let Some(bell) = &state.bell {
            // It can only fail when it rings already.
            let _ = bell.write(1);
        }
        self.shared.wanted.notify_all();
    }
}

impl Shared {
    /// Starts the lane if there shall be one and is none. Without it threads do everything.
    fn open_lane(self: &Arc<Shared>, state: &mut State) {
        if !state.with_lane || state.bell.is_some() {
            return;
        }
        if let Ok(bell) = lane::start(Arc::clone(self)) {
            state.bell = Some(bell);
            state.queue.lane = true;
        }
    }

    /// Wakes or starts the threads the queue needs. When there is none and none can be started, nobody would
    /// ever come to the queued jobs: they fail at once.
    pub(super) fn staff(self: &Arc<Shared>, mut state: MutexGuard<'_, State>) {
        let mut needed = state.needed();
        // Those that were woken and did not come yet will take theirs.
        let on_their_way = state.threads.saturating_sub(state.working + state.idle);
        needed = needed.saturating_sub(on_their_way);
        let woken = needed.min(state.idle);
        state.idle -= woken;
        state.woken += woken;
        needed -= woken;
        while needed > 0 && state.threads < state.max_threads {
            if sender::start(Arc::clone(self)).is_ok() {
                state.threads += 1;
                needed -= 1;
                continue;
            }
            if state.threads == 0 {
                self.strand(state);
                return;
            }
            break;
        }
        drop(state);
        for _ in 0..woken {
            self.wanted.notify_one();
        }
    }

    /// There is no thread, and there will be none.
    fn strand(self: &Arc<Shared>, mut state: MutexGuard<'_, State>) {
        let mut returned = Vec::new();
        let mut stranded = Vec::new();
        while let Some(task) = state.queue.pop() {
            if let Task::Event(job) = &task {
                let ended = state.queue.ended(job.pair.endpoint, false, Instant::now());
                returned.extend(ended);
            }
            stranded.push(task.ticket());
        }
        let left = std::mem::take(&mut state.left);
        drop(state);
        self.give_back(returned);
        for ticket in stranded {
            self.tell(ticket, not_sent("could not start a thread"), None);
        }
        for left in left {
            let ended = left.sending.end(not_sent("could not start a thread"), None);
            drop(self.leave(lock(&self.state), ended));
        }
    }

    /// A job has ended; what waited for it may go, or comes back.
    pub(super) fn leave<'a>(
        self: &'a Arc<Shared>,
        mut state: MutexGuard<'a, State>,
        ended: Finished,
    ) -> MutexGuard<'a, State> {
        state.sending -= 1;
        let returned = match ended.endpoint {
            Some(endpoint) => state.queue.ended(endpoint, ended.well, Instant::now()),
            None => Vec::new(),
        };
        state.wake_lane();
        if returned.is_empty() {
            return state;
        }
        drop(state);
        self.give_back(returned);
        lock(&self.state)
    }

    /// The client for a job that begins now. Cloned, so that the lock is not held while the job is sent.
    pub(super) fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn give_back(&self, returned: Vec<u64>) {
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

    pub(super) fn tell(&self, ticket: u64, outcome: Outcome, proof: Option<Proof>) {
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

pub(super) fn not_sent(detail: &str) -> Outcome {
    send::without_request(send::wall_clock(), classify::internal(detail))
}
