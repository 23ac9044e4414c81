//! One exchange over a connection that was kept, in steps that never wait: the request is written in one go, the
//! response read as it comes. It knows the usual response only (see `reply`); whatever else happens is handed to a
//! thread with all that came in, which goes on where this stopped, by ureq. So there is one place that says what a
//! strange response means, and it is not this one.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use ureq::unversioned::transport::Either;
use ureq::{Error, Timeout};

use crate::rules::delivery::{Answer, Outcome, Phase};
use crate::wire::classify;
use crate::wire::client::{Begun, Client, since};
use crate::wire::exchange::{Handed, Progress};
use crate::wire::job::Job;
use crate::wire::pool::{Connection, Easy, Key};
use crate::wire::reply::{self, MAX_REPLY, Reply};
use crate::wire::request::{self, Request};
use crate::wire::send;

/// A longer body is not written in one go: what a socket takes at once is not much more.
const MAX_BODY: usize = 16 * 1024;

/// So many exchanges are left to threads after one that was not easy: a receiver that answers in pieces shall not cost
/// a hand-over each time, and one that failed once shall come back.
pub(super) const BY_THREAD: u8 = 32;

/// An exchange under way.
pub(super) struct Flight {
    client: Arc<Client>,
    connection: Connection,
    key: Key,
    request: Request,
    key_ids: Vec<i64>,
    now: i64,
    started: Instant,
    /// What came in of a response that is not whole yet.
    input: Vec<u8>,
}

/// What became of a job that the lane looked at.
pub(super) enum Start {
    /// Its request is out.
    Away(Box<Flight>),
    /// A thread has to do it. `whole_line` = and the others of its endpoint.
    ByThread { whole_line: bool },
    /// It has begun, and a thread has to go on; true = on a new connection.
    GoOn(Box<Flight>, bool),
    /// It is over, without a request.
    Over(Outcome),
}

/// What became of a flight after its connection moved.
pub(super) enum Step {
    /// There is more to come.
    Wait,
    /// It is over; `whole` = its connection may be used again.
    Over { outcome: Outcome, whole: bool },
    /// A thread has to go on; `fresh` = on a new connection.
    GoOn { fresh: bool },
}

/// Takes a job up, if there is a kept connection for it.
pub(super) fn start(client: &Arc<Client>, job: &Job, output: &mut Vec<u8>) -> Start {
    let by_thread = Start::ByThread { whole_line: false };
    let Ok(target) = &job.target else {
        return by_thread;
    };
    if job.body.len() > MAX_BODY {
        return by_thread;
    }
    let Some(vetted) = client.resolver().known(target) else {
        return by_thread;
    };
    let Ok(uri) = request::uri(target) else {
        return by_thread;
    };
    let Some(authority) = uri.authority().cloned() else {
        return by_thread;
    };
    let key = Key {
        https: target.https(),
        authority,
    };
    let mut connection = match client.pool().take_easy(&key, &vetted) {
        Easy::Connection(connection) => *connection,
        Easy::ByThread => return Start::ByThread { whole_line: true },
        Easy::None => return by_thread,
    };
    let now = send::wall_clock();
    let started = Instant::now();
    let made = send::headers(job, target, now).and_then(|(headers, key_ids)| {
        Ok((
            client.request(uri, target, &headers, job.body.len())?,
            key_ids,
        ))
    });
    let (request, key_ids) = match made {
        Ok(made) => made,
        Err(detail) => {
            client.pool().put(key, connection);
            return Start::Over(send::without_request(now, classify::internal(detail)));
        }
    };
    output.clear();
    request.write(job.body.as_bytes(), output);
    let sent = send_now(&mut connection, output);
    let flight = Flight {
        client: Arc::clone(client),
        connection,
        key,
        request,
        key_ids,
        now,
        started,
        input: Vec::new(),
    };
    match sent {
        Ok(true) => Start::Away(Box::new(flight)),
        Ok(false) => Start::GoOn(Box::new(flight), false),
        Err(error) if is_stale(&error) => Start::GoOn(Box::new(flight), true),
        Err(error) => Start::Over(flight.failure(Error::from(error), Phase::Send)),
    }
}

/// Writes what goes out at once; false = some is left, and stands where the next one who waits sends it from.
fn send_now(connection: &mut Connection, bytes: &[u8]) -> io::Result<bool> {
    match &mut connection.transport {
        Either::A(socket) => {
            let sent = match socket.send_now(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                other => other?,
            };
            let rest = bytes.get(sent..).unwrap_or_default();
            connection.head.clear();
            connection.head.extend_from_slice(rest);
            Ok(rest.is_empty())
        }
        Either::B(socket) => socket.send_now(bytes),
    }
}

/// Whether the peer had closed, so that the request may be sent again on a new connection.
fn is_stale(error: &io::Error) -> bool {
    classify::is_closed(&Error::Io(error.kind().into()))
}

impl Flight {
    /// Until when the response has to be whole.
    pub(super) fn deadline(&self) -> Instant {
        self.started + self.client.settings().request_timeout
    }

    /// Lets the lane hear of this connection, under the number that it has had or this one.
    pub(super) fn watch(&mut self, lane: u64, epoll: &Epoll, next: &mut u64) -> io::Result<u64> {
        if let Some((by, number)) = self.connection.watched
            && by == lane
        {
            return Ok(number);
        }
        *next += 1;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        epoll.add(self.connection.stream(), EpollEvent::new(flags, *next))?;
        self.connection.watched = Some((lane, *next));
        Ok(*next)
    }

    /// Reads what came in.
    pub(super) fn advance(&mut self, room: &mut [u8]) -> Step {
        loop {
            let read = match &mut self.connection.transport {
                Either::A(socket) => socket.read_now(room),
                Either::B(socket) => socket.read_now(room),
            };
            let amount = match read {
                Ok(0) => {
                    return Step::GoOn {
                        fresh: self.input.is_empty(),
                    };
                }
                Ok(amount) => amount,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Step::Wait,
                Err(error) if self.input.is_empty() && is_stale(&error) => {
                    return Step::GoOn { fresh: true };
                }
                Err(error) => {
                    return Step::Over {
                        outcome: self.broken(Error::from(error)),
                        whole: false,
                    };
                }
            };
            let came = room.get(..amount).unwrap_or_default();
            let reply = if self.input.is_empty() {
                match reply::read(came) {
                    Reply::Whole { code, body } => {
                        let body = came.get(body).unwrap_or_default();
                        return Step::Over {
                            outcome: self.outcome(status(code), body),
                            whole: true,
                        };
                    }
                    other => {
                        self.input.extend_from_slice(came);
                        other
                    }
                }
            } else {
                self.input.extend_from_slice(came);
                reply::read(&self.input)
            };
            match reply {
                Reply::More { .. } if self.input.len() < MAX_REPLY => {}
                Reply::Whole { code, body } => {
                    let body = self.input.get(body).unwrap_or_default();
                    return Step::Over {
                        outcome: self.outcome(status(code), body),
                        whole: true,
                    };
                }
                _ => return Step::GoOn { fresh: false },
            }
        }
    }

    /// Ends in order: the connection is kept.
    pub(super) fn keep(self) {
        self.client.pool().put(self.key, self.connection);
    }

    /// For a thread that goes on; `fresh` = on a new connection.
    pub(super) fn begun(self, fresh: bool) -> Begun {
        let mut connection = self.connection;
        connection.by_thread = BY_THREAD;
        Begun {
            request: self.request,
            key_ids: self.key_ids,
            now: self.now,
            started: self.started,
            handed: (!fresh).then(|| {
                Box::new(Handed {
                    connection,
                    input: self.input,
                })
            }),
        }
    }

    /// Lets the lane hear no more of this connection.
    pub(super) fn unwatch(&mut self, epoll: &Epoll) {
        if self.connection.watched.take().is_some() {
            // It can only fail when it is not watched any more.
            let _ = epoll.delete(self.connection.stream());
        }
    }

    /// The outcome when the time is over.
    pub(super) fn late(&mut self) -> Outcome {
        self.broken(Error::Timeout(Timeout::Global))
    }

    /// The outcome when something goes wrong in the middle of the response.
    fn broken(&mut self, error: Error) -> Outcome {
        match reply::read(&self.input) {
            Reply::More { body: Some(begin) } => {
                let answer =
                    classify::failure(&error, Progress::kept(Phase::Body, self.input.len()));
                self.outcome(answer, self.input.get(begin..).unwrap_or_default())
            }
            _ => self.failure(error, Phase::Headers),
        }
    }

    fn failure(&self, error: Error, phase: Phase) -> Outcome {
        let answer = classify::failure(&error, Progress::kept(phase, self.input.len()));
        self.outcome(answer, &[])
    }

    fn outcome(&self, answer: Answer, body: &[u8]) -> Outcome {
        let kept = body.len().min(self.client.settings().max_excerpt);
        Outcome {
            started_at: self.now,
            latency_us: since(self.started),
            answer,
            excerpt: body.get(..kept).unwrap_or_default().to_vec(),
            response_bytes: body.len() as u64,
            key_ids: self.key_ids.clone(),
        }
    }
}

fn status(code: u16) -> Answer {
    Answer::Status {
        code,
        retry_after: Vec::new(),
    }
}

/// How long until this moment, for a wait.
pub(super) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
