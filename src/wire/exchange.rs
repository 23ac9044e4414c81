//! How far the exchange of the calling thread has come: its phase, whether it reused a connection,
//! how much it heard. ureq's errors do not say which of these it was, and it hands no value of the
//! request to the connector or the transport; but it runs a whole exchange in the thread that asked
//! for it, so a thread-local tells. Nothing here outlives an exchange.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

use ureq::Error;

use crate::rules::delivery::Phase;
use crate::wire::interim::MAX_INTERIM;
use crate::wire::pool::Connection;

/// All response heads of one exchange, informational ones included, may take this many bytes.
/// Without a limit a flood of informational ones would keep a thread busy until the deadline.
const MAX_HEADS: usize = 64 * 1024;

/// How far an exchange has come.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    /// `None` until the resolver is asked: a failure before that is our own fault.
    pub phase: Option<Phase>,
    /// The connection came from the pool.
    pub reused: bool,
    /// Response bytes that came in, after TLS.
    pub heard: usize,
    /// Informational responses that came before the response.
    interim: usize,
    /// The pool is not asked: this is the retry after a stale connection.
    pub only_new: bool,
}

impl Progress {
    /// An exchange over a connection that was kept, in this phase.
    pub(super) fn kept(phase: Phase, heard: usize) -> Progress {
        Progress {
            phase: Some(phase),
            reused: true,
            heard,
            ..Progress::START
        }
    }

    const START: Progress = Progress {
        phase: None,
        reused: false,
        heard: 0,
        interim: 0,
        only_new: false,
    };
}

/// A connection on which the request was sent already, and what has come back so far.
pub(super) struct Handed {
    pub connection: Connection,
    pub input: Vec<u8>,
}

thread_local! {
    static PROGRESS: Cell<Progress> = const { Cell::new(Progress::START) };
    static HANDED: RefCell<Option<Handed>> = const { RefCell::new(None) };
}

/// Starts a new exchange in this thread.
pub(super) fn begin(only_new: bool) {
    PROGRESS.set(Progress {
        only_new,
        ..Progress::START
    });
    drop(take_handed());
}

/// The exchange of this thread goes on where another one left off.
pub(super) fn hand(handed: Handed) {
    HANDED.set(Some(handed));
    // Whatever fails from here on fails after the request began to leave.
    reach(Phase::Send);
}

/// Where the connection leads on which the exchange of this thread goes on.
pub(super) fn handed_peer() -> Option<SocketAddr> {
    HANDED.with_borrow(|handed| handed.as_ref().map(|handed| handed.connection.peer))
}

/// The connection on which the exchange of this thread goes on.
pub(super) fn take_handed() -> Option<Handed> {
    HANDED.take()
}

/// How far the exchange of this thread has come.
pub(super) fn progress() -> Progress {
    PROGRESS.get()
}

/// The exchange of this thread enters a phase.
pub(super) fn reach(phase: Phase) {
    PROGRESS.set(Progress {
        phase: Some(phase),
        ..PROGRESS.get()
    });
}

/// The exchange of this thread uses a pooled connection.
pub(super) fn reuse() {
    PROGRESS.set(Progress {
        reused: true,
        ..PROGRESS.get()
    });
}

/// The exchange of this thread waits for bytes: of the headers, unless the body was reached.
pub(super) fn listen() -> Result<(), Error> {
    let now = PROGRESS.get();
    if matches!(now.phase, Some(Phase::Body)) {
        return Ok(());
    }
    reach(Phase::Headers);
    if now.heard >= MAX_HEADS {
        return Err(Error::LargeResponseHeader(now.heard, MAX_HEADS));
    }
    Ok(())
}

/// The exchange of this thread takes an informational response for one.
pub(super) fn pass_interim() -> Result<(), Error> {
    let now = PROGRESS.get();
    if now.interim >= MAX_INTERIM {
        return Err(Error::LargeResponseHeader(now.heard, MAX_HEADS));
    }
    PROGRESS.set(Progress {
        interim: now.interim + 1,
        ..now
    });
    Ok(())
}

/// Response bytes came in.
pub(super) fn hear(bytes: usize) {
    let now = PROGRESS.get();
    PROGRESS.set(Progress {
        heard: now.heard.saturating_add(bytes),
        ..now
    });
}
