//! Looks names up with getaddrinfo, which knows no deadline: in a few threads of its own, shared by
//! the whole process, so that the asking thread can give up in time. One name is looked up once,
//! however many ask. Judges no address and remembers none; see `resolver`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::wire::classify;
use crate::wire::threads::{self, IDLE, lock};

/// More threads than this never look names up at the same time, even if every one of them hangs.
const MAX_THREADS: usize = 16;
/// Of them, those kept for names that resolved lately. A tenant whose names hang (getaddrinfo knows no
/// deadline and takes up to half a minute) would otherwise hold them all, and with them everybody.
const RESERVED: usize = 4;
/// A look-up that takes longer than this is no proof of a name that resolves.
const QUICK: Duration = Duration::from_secs(1);
/// More names than this are not remembered as resolving.
const MAX_GOOD: usize = 4096;

/// Turns an absolute name into addresses.
pub(super) type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// The name does not exist, has no address, or its servers fail.
    NotFound,
    /// No answer before the deadline.
    Late,
    /// Our own fault: no thread, no file descriptor, no memory.
    Ours,
}

type Answer = Result<Arc<[IpAddr]>, NoAnswer>;

/// The look-up threads and what they have to do.
pub(super) struct Lookups {
    lookup: Box<Lookup>,
    desk: Mutex<Desk>,
    work: Condvar,
}

#[derive(Default)]
struct Desk {
    /// Every look-up in the queue or in a thread, by name.
    open: HashMap<String, Arc<Search>>,
    queue: VecDeque<Arc<Search>>,
    threads: usize,
    idle: usize,
    /// Names whose last look-up was answered quickly.
    good: HashSet<String>,
    /// Look-ups under way of other names.
    doubtful: usize,
}

impl Desk {
    /// Takes the first look-up out of the queue that somebody waits for and that may run now, and says
    /// whether its name is in doubt.
    fn take(&mut self) -> Option<(Arc<Search>, bool)> {
        let mut index = 0;
        while let Some(search) = self.queue.get(index) {
            let doubtful = !self.good.contains(&search.name);
            if search.waiting.load(Ordering::Relaxed) == 0 {
                if let Some(search) = self.queue.remove(index) {
                    self.open.remove(&search.name);
                }
            } else if doubtful && self.doubtful >= MAX_THREADS - RESERVED {
                index += 1;
            } else {
                self.doubtful += usize::from(doubtful);
                return self.queue.remove(index).map(|search| (search, doubtful));
            }
        }
        None
    }

    /// Remembers how a look-up went.
    fn learn(&mut self, name: &str, good: bool) {
        if !good {
            self.good.remove(name);
        } else if self.good.len() < MAX_GOOD {
            self.good.insert(name.to_owned());
        }
    }
}

struct Search {
    name: String,
    waiting: AtomicUsize,
    answer: Mutex<Option<Answer>>,
    answered: Condvar,
}

impl Lookups {
    /// The look-ups of this process, by the resolver of the system.
    pub(super) fn of_the_system() -> Arc<Lookups> {
        static SHARED: OnceLock<Arc<Lookups>> = OnceLock::new();
        Arc::clone(SHARED.get_or_init(|| Lookups::new(Box::new(ask_the_system))))
    }

    pub(super) fn new(lookup: Box<Lookup>) -> Arc<Lookups> {
        Arc::new(Lookups {
            lookup,
            desk: Mutex::default(),
            work: Condvar::new(),
        })
    }

    /// The addresses of an absolute name, or why there are none by the deadline.
    pub(super) fn find(self: &Arc<Lookups>, name: &str, deadline: Instant) -> Answer {
        let search = self.join(name)?;
        let answer = search.wait(deadline);
        search.waiting.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Joins the look-up of this name that is under way, or opens one.
    fn join(self: &Arc<Lookups>, name: &str) -> Result<Arc<Search>, NoAnswer> {
        let mut desk = lock(&self.desk);
        if let Some(search) = desk.open.get(name) {
            search.waiting.fetch_add(1, Ordering::Relaxed);
            return Ok(Arc::clone(search));
        }
        if desk.idle <= desk.queue.len() && desk.threads < MAX_THREADS {
            let lookups = Arc::clone(self);
            match threads::spawn("webhook lookup", move || lookups.serve()) {
                Ok(()) => desk.threads += 1,
                // The threads there are will come to it.
                Err(_) if desk.threads > 0 => {}
                Err(_) => return Err(NoAnswer::Ours),
            }
        }
        let search = Arc::new(Search {
            name: name.to_owned(),
            waiting: AtomicUsize::new(1),
            answer: Mutex::new(None),
            answered: Condvar::new(),
        });
        desk.open.insert(name.to_owned(), Arc::clone(&search));
        desk.queue.push_back(Arc::clone(&search));
        self.work.notify_one();
        Ok(search)
    }

    fn serve(&self) {
        while let Some((search, doubtful)) = self.next() {
            let begun = Instant::now();
            let answer = catch_unwind(AssertUnwindSafe(|| (self.lookup)(&search.name)));
            let answer = match answer {
                Ok(Ok(addresses)) if addresses.is_empty() => Err(NoAnswer::NotFound),
                Ok(Ok(addresses)) => Ok(addresses.into()),
                Ok(Err(error)) if classify::is_ours(&error) => Err(NoAnswer::Ours),
                Ok(Err(_)) => Err(NoAnswer::NotFound),
                Err(_) => Err(NoAnswer::Ours),
            };
            let mut desk = lock(&self.desk);
            desk.open.remove(&search.name);
            desk.doubtful -= usize::from(doubtful);
            desk.learn(&search.name, answer.is_ok() && begun.elapsed() < QUICK);
            drop(desk);
            *lock(&search.answer) = Some(answer);
            search.answered.notify_all();
        }
    }

    /// The next name somebody still waits for; `None` ends the thread.
    fn next(&self) -> Option<(Arc<Search>, bool)> {
        let mut desk = lock(&self.desk);
        loop {
            if let Some(next) = desk.take() {
                return Some(next);
            }
            desk.idle += 1;
            let (woken, waited) = self
                .work
                .wait_timeout(desk, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            desk = woken;
            desk.idle -= 1;
            if waited.timed_out() && desk.queue.is_empty() {
                desk.threads -= 1;
                return None;
            }
        }
    }
}

impl Search {
    fn wait(&self, deadline: Instant) -> Answer {
        let mut answer = lock(&self.answer);
        loop {
            if let Some(answer) = answer.as_ref() {
                return answer.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NoAnswer::Late);
            }
            answer = self
                .answered
                .wait_timeout(answer, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

fn ask_the_system(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0)
        .to_socket_addrs()?
        .map(|address| address.ip())
        .collect())
}
