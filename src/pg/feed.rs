//! What reading the feed needs of Rust: that nothing it shows can be lost, event types by wildcards, and payloads
//! for those who have a right to them. The rest of the feed is SQL (sql/38_feed.sql, sql/70_feed.sql).

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::access;
use super::error::{Raise, null_argument};
use super::outbox;
use super::wal::Written;
use crate::rules::matching;

/// Returns when all that the snapshot in use can see is on disk. The leader commits without waiting for the disk: a
/// crash may take back feed rows that somebody has read, and give their positions to other events.
#[pg_extern(sql = false)]
fn make_durable() {
    // A standby gets nothing that the primary has not on disk, and has no log of its own to write.
    // SAFETY: plain read of the server's state.
    if !unsafe { pg_sys::RecoveryInProgress() } {
        Written::now().make_durable();
    }
}

/// Whether an event type is one of these types and wildcards.
#[pg_extern(sql = false)]
fn is_type_among(kind: &str, patterns: Vec<Option<String>>) -> bool {
    patterns
        .iter()
        .flatten()
        .any(|pattern| matching::type_matches(pattern, kind))
}

/// `data` of an event in the feed of a partner: judged for the current user, read as the owner. Without an event it
/// only judges. Null = expunged, or no event of that partner.
#[pg_extern(sql = false)]
fn feed_data(partner_id: Option<&str>, event_id: Option<&str>) -> Option<String> {
    let partner_id = partner_id.unwrap_or_else(|| null_argument("partner_id"));
    if !access::reads_feed(partner_id) {
        Raise::new(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            "permission denied to read the payloads of this feed",
        )
        .detail("The role has no right of kind \"feed\" for the partner.")
        .hint("See webhook.grant_access; without payloads the feed needs no such right.")
        .raise();
    }
    event_id.and_then(|event_id| outbox::feed_data(partner_id, event_id))
}
