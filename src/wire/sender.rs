//! The life of a thread that sends, and what stands for a job in its hands.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use crate::rules::delivery::Outcome;
use crate::rules::ids::EndpointId;
use crate::wire::challenge;
use crate::wire::crew::{Left, Proof, Shared, not_sent};
use crate::wire::queue::{Task, ended_well};
use crate::wire::threads::{self, IDLE, lock};

/// What a thread does next.
pub(super) enum Next {
    Task(Task),
    Left(Left),
}

/// Starts a thread. The caller counts it.
pub(super) fn start(shared: Arc<Shared>) -> io::Result<()> {
    threads::spawn("webhook sender", move || serve(&shared))
}

/// It outlives a panic, which `Sending` has turned into an outcome.
fn serve(shared: &Arc<Shared>) {
    let at_work = Cell::new(false);
    let send_all = || {
        let mut ended = None;
        while let Some(next) = take(shared, &at_work, ended.take()) {
            ended = match next {
                Next::Task(task) => begin(shared, &task),
                Next::Left(left) => {
                    let client = shared.client();
                    let outcome = client.go_on(*left.begun, left.job.body.as_bytes());
                    Some(left.sending.end(outcome, None))
                }
            };
        }
    };
    while catch_unwind(AssertUnwindSafe(send_all)).is_err() {}
}

fn begin(shared: &Arc<Shared>, task: &Task) -> Option<Finished> {
    let sending = Sending::new(shared, task);
    if let Task::Event(job) = task
        && !(shared.gate)(job)
    {
        sending.send_back();
        return None;
    }
    let client = shared.client();
    Some(match task {
        Task::Event(job) => sending.end((shared.work)(&client, job), None),
        Task::Challenge(job) => {
            let (outcome, proof) = challenge::send(&client, job);
            sending.end(outcome, Some(proof))
        }
    })
}

/// What there is to do after a job that has ended; `None` ends the thread.
fn take(shared: &Arc<Shared>, at_work: &Cell<bool>, ended: Option<Finished>) -> Option<Next> {
    let mut state = lock(&shared.state);
    if at_work.take() {
        state.working -= 1;
    }
    if let Some(ended) = ended {
        state = shared.leave(state, ended);
    }
    loop {
        if state.threads > state.max_threads || (state.closed && state.left.is_empty()) {
            break;
        }
        if let Some(next) = state.next() {
            state.working += 1;
            at_work.set(true);
            return Some(next);
        }
        state.idle += 1;
        let (woken, waited) = shared
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
        if waited.timed_out() && state.needed() == 0 {
            break;
        }
    }
    state.threads -= 1;
    None
}

/// A job that has ended.
pub(super) struct Finished {
    /// None = a challenge.
    pub endpoint: Option<EndpointId>,
    pub well: bool,
}

/// A job that has begun: it ends with an outcome, even if whoever does it panics.
pub(super) struct Sending {
    shared: Arc<Shared>,
    ticket: u64,
    endpoint: Option<EndpointId>,
    proof: Option<Proof>,
    over: bool,
}

impl Sending {
    pub(super) fn new(shared: &Arc<Shared>, task: &Task) -> Sending {
        let endpoint = match task {
            Task::Event(job) => Some(job.pair.endpoint),
            Task::Challenge(_) => None,
        };
        Sending {
            shared: Arc::clone(shared),
            ticket: task.ticket(),
            endpoint,
            proof: endpoint.is_none().then_some(Err("nothing was sent")),
            over: false,
        }
    }

    /// Tells the outcome; what is returned is said with the next look at the queue, which saves one.
    pub(super) fn end(mut self, outcome: Outcome, proof: Option<Proof>) -> Finished {
        self.over = true;
        let finished = Finished {
            endpoint: self.endpoint,
            well: ended_well(&outcome),
        };
        self.shared.tell(self.ticket, outcome, proof);
        finished
    }

    /// It has not begun, and does not.
    pub(super) fn send_back(mut self) {
        self.over = true;
        self.shared.give_back(vec![self.ticket]);
        self.leave();
    }

    /// It has not begun, and is somebody else's from now on.
    pub(super) fn let_go(mut self) {
        self.over = true;
    }

    fn leave(&self) {
        let ended = Finished {
            endpoint: self.endpoint,
            well: false,
        };
        let state = self.shared.leave(lock(&self.shared.state), ended);
        self.shared.staff(state);
    }
}

/// Not over: whoever did it panicked.
impl Drop for Sending {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.shared
            .tell(self.ticket, not_sent("sender panicked"), self.proof);
        self.leave();
    }
}
