//! The lane: one thread that has the exchanges of many kept connections under way at once, by epoll. It looks at every
//! job first. One for which a connection waits goes out from here; the others (a name to look up, a connection to open, a
//! long body) go on to the threads, which may wait, and so does an exchange that turns out unusual. With a thread for
//! each request most of the work was to switch between threads.
//!
//! It never waits but for its connections, its bell and the next deadline.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::wire::crew::{Left, Shared, not_sent};
use crate::wire::flight::{self, Flight, Start, Step};
use crate::wire::job::Job;
use crate::wire::queue::Task;
use crate::wire::sender::{Finished, Sending};
use crate::wire::threads::{self, lock};

/// The number of the bell among those of the connections.
const BELL: u64 = 0;
/// Events taken with one call.
const EVENTS: usize = 128;
/// Jobs taken with one look at the queue.
const JOBS: usize = 64;
/// What is read with one call.
const ROOM: usize = 16 * 1024;
/// How often deadlines are looked at while there is always something to do.
const WATCH: Duration = Duration::from_millis(5);

struct Lane {
    shared: Arc<Shared>,
    /// Tells its connections from those of other lanes.
    id: u64,
    epoll: Epoll,
    bell: Arc<EventFd>,
    under_way: HashMap<u64, UnderWay>,
    /// The number of the connection that was watched last.
    last: u64,
    /// What has ended and is not said yet.
    ended: Vec<Finished>,
    output: Vec<u8>,
    room: Vec<u8>,
}

struct UnderWay {
    sending: Sending,
    job: Box<Job>,
    flight: Box<Flight>,
    deadline: Instant,
}

/// Starts the lane of a crew; what comes back wakes it. It ends with its crew, when nothing is under way any more.
pub(super) fn start(shared: Arc<Shared>) -> io::Result<Arc<EventFd>> {
    static LANES: AtomicU64 = AtomicU64::new(0);
    let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&bell, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
    let bell = Arc::new(bell);
    let lane = Lane {
        shared,
        id: LANES.fetch_add(1, Ordering::Relaxed),
        epoll,
        bell: Arc::clone(&bell),
        under_way: HashMap::new(),
        last: BELL,
        ended: Vec::new(),
        output: Vec::new(),
        room: vec![0; ROOM],
    };
    threads::spawn("webhook lane", move || lane.serve())?;
    Ok(bell)
}

impl Lane {
    fn serve(mut self) {
        let mut events = [EpollEvent::empty(); EVENTS];
        let mut looked = Instant::now();
        while let Some(jobs) = self.take() {
            let idle = jobs.is_empty();
            for (job, since) in jobs {
                self.guarded(|lane| lane.begin(job, since));
            }
            let timeout = if idle && self.ended.is_empty() {
                self.until_deadline()
            } else {
                EpollTimeout::ZERO
            };
            // An interrupted wait is made again.
            let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
            for event in events.get(..count).unwrap_or_default() {
                match event.data() {
                    // An error means that it was clear already.
                    BELL => drop(self.bell.read()),
                    number => self.guarded(|lane| lane.advance(number)),
                }
            }
            if idle || looked.elapsed() >= WATCH {
                looked = Instant::now();
                self.end_late(looked);
            }
        }
    }

    /// A panic ends what it happened to, and nothing else.
    fn guarded(&mut self, step: impl FnOnce(&mut Lane)) {
        // Between two steps everything is as it should be; what was in hand has been dropped, and told so.
        let _ = catch_unwind(AssertUnwindSafe(|| step(self)));
    }

    /// Says what has ended, and takes the next jobs; `None` ends the lane. Nothing to take means that the bell rings for
    /// the next one.
    fn take(&mut self) -> Option<Vec<(Box<Job>, Instant)>> {
        let shared = Arc::clone(&self.shared);
        let mut state = lock(&shared.state);
        state.lane_waits = false;
        #[cfg(test)]
        {
            state.by_lane += self.ended.len();
        }
        for ended in self.ended.drain(..) {
            state = shared.leave(state, ended);
        }
        let mut jobs = Vec::new();
        while jobs.len() < JOBS && state.room_for_lane() > 0 {
            let Some(job) = state.queue.pop_quick() else {
                break;
            };
            state.sending += 1;
            jobs.push(job);
        }
        if jobs.is_empty() && self.under_way.is_empty() && state.closed {
            return None;
        }
        state.lane_waits = jobs.is_empty();
        if state.needed() > 0 {
            shared.staff(state);
        }
        Some(jobs)
    }

    fn until_deadline(&self) -> EpollTimeout {
        let Some(first) = self.under_way.values().map(|one| one.deadline).min() else {
            return EpollTimeout::NONE;
        };
        // Rounded up: a moment too early would make it look again and again.
        let left = flight::left(first) + Duration::from_millis(1);
        EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
    }

    fn begin(&mut self, job: Box<Job>, since: Instant) {
        let task = Task::Event(job);
        let sending = Sending::new(&self.shared, &task);
        let Task::Event(job) = task else {
            return;
        };
        if !(self.shared.gate)(&job) {
            sending.send_back();
            return;
        }
        let client = self.shared.client();
        match flight::start(&client, &job, &mut self.output) {
            Start::Away(mut flight) => {
                match flight.watch(self.id, &self.epoll, &mut self.last) {
                    Ok(number) => {
                        let deadline = flight.deadline();
                        let one = UnderWay {
                            sending,
                            job,
                            flight,
                            deadline,
                        };
                        self.under_way.insert(number, one);
                    }
                    // A thread waits for what the lane would not hear of.
                    Err(_) => self.leave(sending, job, *flight, false),
                }
            }
            Start::ByThread { whole_line } => {
                let mut state = lock(&self.shared.state);
                state.sending -= 1;
                sending.let_go();
                state.queue.pass(job, since, whole_line);
                self.shared.staff(state);
            }
            Start::GoOn(flight, fresh) => self.leave(sending, job, *flight, fresh),
            Start::Over(outcome) => self.ended.push(sending.end(outcome, None)),
        }
    }

    /// Something came in for a connection. It may be one that a thread uses, or one that waits in the pool: whoever takes
    /// that next will see it.
    fn advance(&mut self, number: u64) {
        // Taken out, so that a panic drops it.
        let Some(mut one) = self.under_way.remove(&number) else {
            return;
        };
        match one.flight.advance(&mut self.room) {
            Step::Wait => {
                self.under_way.insert(number, one);
            }
            Step::Over { outcome, whole } => {
                if whole {
                    one.flight.keep();
                }
                self.ended.push(one.sending.end(outcome, None));
            }
            Step::GoOn { fresh } => self.leave(one.sending, one.job, *one.flight, fresh),
        }
    }

    /// Leaves an exchange to a thread.
    fn leave(&mut self, sending: Sending, job: Box<Job>, mut flight: Flight, fresh: bool) {
        flight.unwatch(&self.epoll);
        let begun = Box::new(flight.begun(fresh));
        let mut state = lock(&self.shared.state);
        state.left.push_back(Left {
            sending,
            job,
            begun,
        });
        self.shared.staff(state);
    }

    fn end_late(&mut self, now: Instant) {
        let late: Vec<u64> = self
            .under_way
            .iter()
            .filter(|(_, one)| one.deadline <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            if let Some(mut one) = self.under_way.remove(&number) {
                let outcome = one.flight.late();
                self.ended.push(one.sending.end(outcome, None));
            }
        }
    }
}

/// Whatever ends the lane, threads do without it.
impl Drop for Lane {
    fn drop(&mut self) {
        for (_, one) in self.under_way.drain() {
            self.ended
                .push(one.sending.end(not_sent("sender panicked"), None));
        }
        let mut state = lock(&self.shared.state);
        for ended in self.ended.drain(..) {
            state = self.shared.leave(state, ended);
        }
        state.bell = None;
        state.lane_waits = false;
        state.queue.close_lane();
        self.shared.staff(state);
    }
}
