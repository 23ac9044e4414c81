//! Starts the threads of this room: with every signal blocked, so that the signals of the process
//! reach its main thread and nobody else, and with a small stack. Never joins one.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};

/// Enough for a TLS handshake, certificate checks and `getaddrinfo`, with room to spare; 256 threads
/// of the usual 8 MB would reserve 2 GB.
const STACK: usize = 512 * 1024;

/// A thread without work for this long ends.
pub(super) const IDLE: Duration = Duration::from_secs(30);

/// Starts a detached thread that inherits a mask with every signal blocked.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let spawned = thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK)
        .spawn(work);
    mask.thread_set_mask()?;
    spawned.map(drop)
}

/// Locks, whatever happened to another holder: what our locks guard is consistent at every point
/// where a panic could leave it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
