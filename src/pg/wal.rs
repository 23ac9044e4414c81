//! The write-ahead log as the leader needs it: how far it is written now, and that it is on disk up to there. Nothing
//! is sent before it is durable, and an emitter may have committed asynchronously.

use pgrx::pg_sys;

/// A place in the write-ahead log up to which records are complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written(pg_sys::XLogRecPtr);

impl Written {
    /// Where the log ends now: everything that a snapshot taken before can see is in front of it.
    pub fn now() -> Written {
        // SAFETY: plain read of shared state.
        let next = unsafe { pg_sys::GetXLogInsertRecPtr() };
        // SAFETY: a plain read; set once, before any process of the server can be here.
        let segment = unsafe { pg_sys::wal_segment_size };
        Written(end_before(next, u64::from(segment.unsigned_abs())))
    }

    /// Returns when the log is on disk up to here: at once when it already is. In the main thread of a process.
    pub fn make_durable(self) {
        // SAFETY: no critical section is open and no lock of the log is held; the place is not beyond its end.
        unsafe { pg_sys::XLogFlush(self.0) };
    }
}

/// Returns when the last commit of this process is on disk. Outside any transaction, in the main thread.
pub fn make_last_commit_durable() {
    // SAFETY: the leader's main thread is the only caller; the end of a record that this process has written.
    unsafe { pg_sys::XLogFlush(pg_sys::XactLastCommitEnd) };
}

/// The end of the last record, when the next one would begin at `next`. They differ where a page of the log is full:
/// the next record begins behind the header of a page that does not exist yet, and to wait until that header is on disk
/// is an error.
fn end_before(next: pg_sys::XLogRecPtr, segment: u64) -> pg_sys::XLogRecPtr {
    let page = next % u64::from(pg_sys::XLOG_BLCKSZ);
    let header = if segment != 0 && next % segment == page {
        size_of::<pg_sys::XLogLongPageHeaderData>()
    } else {
        size_of::<pg_sys::XLogPageHeaderData>()
    };
    if page == header as u64 {
        next - page
    } else {
        next
    }
}
