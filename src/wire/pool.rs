//! Connections that wait to be used again. ureq's own pool is left empty, because it counts every
//! idle connection against every host under one lock, twice per request: with keep-alive to 1, 16, 64
//! and 250 hosts 16 threads did 27,700, 11,100, 2,500 and 360 requests a second. This one does not
//! notice the number of hosts. It opens nothing and knows nothing of HTTP.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ureq::Error;
use ureq::http::uri::Authority;
use ureq::unversioned::transport::{Buffers, Either, LazyBuffers, NextTimeout, Transport};

use crate::rules::delivery::Phase;
use crate::wire::exchange::{self, Handed};
use crate::wire::interim;
use crate::wire::socket::Socket;
use crate::wire::threads::lock;
use crate::wire::tls::TlsSocket;

/// A connection unused for this long is not used again.
const MAX_AGE: Duration = Duration::from_secs(15);
/// How often the aged ones of all hosts are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// What a connection may be used for: the same scheme, host and port. The way there, directly or through a
/// proxy, is the same for all connections of a pool: another proxy makes another client, with a pool of its own.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub https: bool,
    pub authority: Authority,
}

/// An open connection and the address it goes to.
pub(super) struct Connection {
    pub transport: Either<Socket, TlsSocket>,
    pub peer: SocketAddr,
    /// The head of a request, kept back to go out with the body.
    pub head: Vec<u8>,
    /// By which lane and under which number it is watched.
    pub watched: Option<(u64, u64)>,
    /// Its peer answers in a way that takes a thread to read: so many exchanges are left to threads before another look.
    pub by_thread: u8,
}

impl Connection {
    pub(super) fn new(transport: Either<Socket, TlsSocket>, peer: SocketAddr) -> Connection {
        Connection {
            transport,
            peer,
            head: Vec::new(),
            watched: None,
            by_thread: 0,
        }
    }

    /// The socket below, for whoever watches it.
    pub(super) fn stream(&self) -> &TcpStream {
        match &self.transport {
            Either::A(socket) => socket.stream(),
            Either::B(socket) => socket.socket().stream(),
        }
    }

    /// Sends the head that was kept back, and what is in the output buffer behind it.
    fn send(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let mut bytes = std::mem::take(&mut self.head);
        let output = self.transport.buffers().output();
        bytes.extend_from_slice(output.get(..amount).unwrap_or(output));
        let sent = match &mut self.transport {
            Either::A(socket) => socket.send(&bytes, timeout.into()),
            Either::B(socket) => socket.send(&bytes, timeout.into()),
        };
        // Its room is used again by the next request.
        bytes.clear();
        self.head = bytes;
        sent
    }
}

/// What there is for somebody who cannot wait.
pub(super) enum Easy {
    Connection(Box<Connection>),
    /// Its peer takes a thread.
    ByThread,
    None,
}

/// The idle connections of one client.
pub(super) struct Pool {
    max: usize,
    max_per_host: usize,
    shelf: Mutex<Shelf>,
}

struct Shelf {
    /// By key, the most recently used last. No list is empty.
    idle: HashMap<Key, VecDeque<Idle>>,
    count: usize,
    swept: Instant,
}

struct Idle {
    since: Instant,
    connection: Connection,
}

impl Pool {
    pub(super) fn new(max: usize, max_per_host: usize) -> Pool {
        Pool {
            max,
            max_per_host,
            shelf: Mutex::new(Shelf {
                idle: HashMap::new(),
                count: 0,
                swept: Instant::now(),
            }),
        }
    }

    /// A connection to one of these addresses that still seems open. The addresses are those just
    /// vetted: when the name has moved, the connections to the old place are not used any more.
    pub(super) fn take(&self, key: &Key, vetted: &[SocketAddr]) -> Option<Connection> {
        loop {
            let mut idle = lock(&self.shelf).pop(key)?;
            if idle.since.elapsed() < MAX_AGE
                && vetted.contains(&idle.connection.peer)
                && idle.connection.transport.is_open()
            {
                return Some(idle.connection);
            }
        }
    }

    /// The same for somebody who cannot wait, and reads only what is easy to read.
    pub(super) fn take_easy(&self, key: &Key, vetted: &[SocketAddr]) -> Easy {
        loop {
            let idle = {
                let mut shelf = lock(&self.shelf);
                match shelf.idle.get(key).and_then(VecDeque::back) {
                    Some(idle) if idle.connection.by_thread > 0 => return Easy::ByThread,
                    _ => shelf.pop(key),
                }
            };
            let Some(mut idle) = idle else {
                return Easy::None;
            };
            if idle.since.elapsed() < MAX_AGE
                && vetted.contains(&idle.connection.peer)
                && idle.connection.transport.is_open()
            {
                return Easy::Connection(Box::new(idle.connection));
            }
        }
    }

    /// Keeps a connection that has nothing under way.
    pub(super) fn put(&self, key: Key, connection: Connection) {
        let now = Instant::now();
        let mut shelf = lock(&self.shelf);
        let mut closed = Vec::new();
        if now.duration_since(shelf.swept) >= SWEEP {
            shelf.sweep(now, &mut closed);
        }
        let list = shelf.idle.entry(key).or_default();
        list.push_back(Idle {
            since: now,
            connection,
        });
        if list.len() > self.max_per_host {
            closed.extend(list.pop_front());
        } else {
            shelf.count += 1;
        }
        if shelf.count > self.max {
            closed.extend(shelf.pop_oldest());
        }
        // Sockets are closed without the lock.
        drop(shelf);
        drop(closed);
    }
}

impl Shelf {
    fn pop(&mut self, key: &Key) -> Option<Idle> {
        let list = self.idle.get_mut(key)?;
        let idle = list.pop_back();
        if list.is_empty() {
            self.idle.remove(key);
        }
        self.count -= usize::from(idle.is_some());
        idle
    }

    fn pop_oldest(&mut self) -> Option<Idle> {
        let oldest = self
            .idle
            .iter()
            .min_by_key(|(_, list)| list.front().map(|idle| idle.since))
            .map(|(key, _)| key.clone())?;
        let list = self.idle.get_mut(&oldest)?;
        let idle = list.pop_front();
        if list.is_empty() {
            self.idle.remove(&oldest);
        }
        self.count -= usize::from(idle.is_some());
        idle
    }

    fn sweep(&mut self, now: Instant, closed: &mut Vec<Idle>) {
        self.swept = now;
        for list in self.idle.values_mut() {
            let aged = list
                .iter()
                .take_while(|idle| now.duration_since(idle.since) >= MAX_AGE)
                .count();
            closed.extend(list.drain(..aged));
        }
        self.idle.retain(|_, list| !list.is_empty());
        self.count = self.idle.values().map(VecDeque::len).sum();
    }
}

/// A connection in the hands of one exchange, as ureq's transport. It notes the progress of the
/// exchange, and it goes back to its pool by itself.
pub(super) struct Lease {
    /// Empty when it has gone back to the pool.
    connection: Option<Connection>,
    key: Key,
    pool: Arc<Pool>,
    /// Shown when the connection is gone; ureq does not look any more by then.
    none: LazyBuffers,
    /// The head of the request was handed over. ureq hands over head and body apart; sent apart, they would be two
    /// system calls and two packets, and the receiver would wake twice.
    begun: bool,
    /// What came back before the exchange came into these hands; the request has been sent by then.
    going_on: Option<Vec<u8>>,
}

impl Lease {
    pub(super) fn new(connection: Connection, key: Key, pool: Arc<Pool>) -> Lease {
        Lease {
            connection: Some(connection),
            key,
            pool,
            none: LazyBuffers::new(1, 1),
            begun: false,
            going_on: None,
        }
    }

    /// For an exchange whose request went out already, but for what is left in the head of the connection. ureq says it
    /// once more, to nobody.
    pub(super) fn going_on(handed: Handed, key: Key, pool: Arc<Pool>) -> Lease {
        Lease {
            going_on: Some(handed.input),
            ..Lease::new(handed.connection, key, pool)
        }
    }

    /// Puts what came back before into the input; false when that is all there.
    fn go_on(&mut self) -> bool {
        let Some(input) = self.going_on.take().filter(|input| !input.is_empty()) else {
            return false;
        };
        let room = self.buffers().input_append_buf();
        let amount = room.len().min(input.len());
        if let (Some(room), Some(input)) = (room.get_mut(..amount), input.get(..amount)) {
            room.copy_from_slice(input);
        }
        self.buffers().input_appended(amount);
        self.going_on = input.get(amount..).map(<[u8]>::to_vec);
        true
    }

    fn transport(&mut self) -> Result<&mut Either<Socket, TlsSocket>, Error> {
        match &mut self.connection {
            Some(connection) => Ok(&mut connection.transport),
            None => Err(io::Error::from(ErrorKind::NotConnected).into()),
        }
    }

    /// Takes informational responses off the input, as ureq would do with most of them.
    fn skip_interim(&mut self) -> Result<(), Error> {
        while let Some(length) = interim::length(self.buffers().input()) {
            exchange::pass_interim()?;
            self.buffers().input_consume(length);
        }
        Ok(())
    }
}

fn in_body() -> bool {
    matches!(exchange::progress().phase, Some(Phase::Body))
}

/// A connection that breaks within a response body. ureq takes a reset and an end of TLS without
/// close_notify for the end of a body that has no length; RFC 9112 section 8 calls it incomplete. In these words
/// ureq hands it on.
fn incomplete(error: Error) -> Error {
    match error {
        Error::Io(error)
            if matches!(
                error.kind(),
                ErrorKind::UnexpectedEof
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::ConnectionReset
            ) =>
        {
            io::Error::from(ErrorKind::BrokenPipe).into()
        }
        error => error,
    }
}

impl Transport for Lease {
    fn buffers(&mut self) -> &mut dyn Buffers {
        match &mut self.connection {
            Some(connection) => connection.transport.buffers(),
            None => &mut self.none,
        }
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        exchange::reach(Phase::Send);
        if self.going_on.is_some() {
            return Ok(());
        }
        let begun = std::mem::replace(&mut self.begun, true);
        let Some(connection) = &mut self.connection else {
            return Err(io::Error::from(ErrorKind::NotConnected).into());
        };
        if begun {
            return connection.send(amount, timeout);
        }
        let output = connection.transport.buffers().output();
        let output = output.get(..amount).unwrap_or(output);
        connection.head.clear();
        connection.head.extend_from_slice(output);
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        if let Some(connection) = &mut self.connection
            && !connection.head.is_empty()
        {
            connection.send(0, timeout)?;
        }
        exchange::listen()?;
        let before = self.buffers().input().len();
        let went_on = self.go_on()
            || match self.transport()?.await_input(timeout) {
                Ok(went_on) => went_on,
                Err(error) if in_body() => return Err(incomplete(error)),
                Err(error) => return Err(error),
            };
        exchange::hear(self.buffers().input().len().saturating_sub(before));
        if !in_body() {
            self.skip_interim()?;
        }
        Ok(went_on)
    }

    /// ureq asks this at one moment only: when a response has been read to its end, no byte is left
    /// over and the peer did not ask to close, so that it wants to pool the connection. We pool it,
    /// and ureq drops what it holds. Whether the connection is open is found out by the next taker.
    fn is_open(&mut self) -> bool {
        if let Some(mut connection) = self.connection.take() {
            connection.by_thread = connection.by_thread.saturating_sub(1);
            self.pool.put(self.key.clone(), connection);
        }
        false
    }

    fn is_tls(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.transport.is_tls())
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}
