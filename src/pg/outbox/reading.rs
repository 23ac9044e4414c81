//! Events as they stand in their table, and events by their ids.

use pgrx::prelude::*;
use pgrx::spi::SpiHeapTupleData;

use super::statement::{select, statement};
use super::unix_micros;
use crate::rules::envelope::Event;
use crate::rules::erasure;
use crate::rules::ids::EventId;

/// An event as it stands in its table, with what is needed to check its seal.
pub struct Row {
    /// Database that wrote it.
    pub origin: i64,
    pub xid: u64,
    pub event: Event,
    /// The payload is gone.
    pub expunged: bool,
    pub seal_key: i64,
    /// None where what is stored cannot be one.
    pub seal: Option<[u8; 16]>,
    pub digest: Option<[u8; 32]>,
}

impl Row {
    /// The payload is gone, and the event says nothing without it: it is not sent. One about a deletion still leaves,
    /// as ids only.
    pub fn withheld(&self) -> bool {
        self.expunged && !erasure::is_deletion(&self.event.kind)
    }
}

/// A row of the window: its place and, unless somebody spoilt it beyond reading, what it holds.
pub struct Seen {
    pub place: (u64, String),
    /// Bytes of the body, as the bound of a batch counts them.
    pub bytes: i64,
    pub row: Option<Row>,
}

/// Columns in the order of [`read`].
macro_rules! columns {
    () => {
        "w.xid::text as xid_text, w.event_id, w.partner_id, w.type, w.source, w.occurred_at, w.subject_type,
         w.subject_id, w.subject_version, w.scope, w.schema_version, w.correlation_id, w.causation,
         w.traceparent, w.test, w.body, w.seal_key, w.seal,
         -- A payload that is gone without a tombstone: without the digest no seal holds.
         case when w.body is null and not exists (select from webhook._tombstone as t where t.event_id = w.event_id and t.body_sha256 = w.body_sha256)
              then ''::bytea else w.body_sha256 end as body_sha256, w.origin"
    };
}

pub(super) use columns;

statement!(
    READ_BY_ID,
    [Vec<&str>],
    concat!(
        "select ",
        columns!(),
        "
       from webhook._event as w
      where w.event_id = any ($1)"
    )
);

/// Every row has a place, so that one that cannot be read hides none of those behind it.
fn see(row: &SpiHeapTupleData<'_>) -> Option<Seen> {
    let text = |index: usize| row.get::<String>(index).ok().flatten();
    let event = read(row);
    let bytes = match &event {
        Some(row) => row.event.data.len(),
        None => text(16).map_or(0, |body| body.len()),
    };
    Some(Seen {
        place: (text(1)?.parse().ok()?, text(2)?),
        bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        row: event,
    })
}

/// The rows of a statement that selects the columns of an event.
pub fn read_places(rows: pgrx::spi::SpiTupleTable<'_>) -> Vec<Seen> {
    rows.filter_map(|row| see(&row)).collect()
}

/// Events by their ids, in no order, whatever their origin.
pub fn events_by_id(ids: &[EventId]) -> Vec<Row> {
    let ids: Vec<String> = ids.iter().map(EventId::to_string).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    select(&READ_BY_ID, &[ids.into()], |rows| {
        rows.filter_map(|row| read(&row)).collect()
    })
}

/// None for a row that emit cannot have written, an event id that is none for instance.
fn read(row: &SpiHeapTupleData<'_>) -> Option<Row> {
    let text = |index: usize| row.get::<String>(index).ok().flatten();
    let body = text(16);
    Some(Row {
        origin: row.get::<i64>(20).ok().flatten()?,
        xid: text(1)?.parse().ok()?,
        expunged: body.is_none(),
        event: Event {
            id: text(2)?.parse().ok()?,
            partner_id: text(3)?,
            kind: text(4)?,
            source: text(5),
            occurred_at: unix_micros(row.get::<TimestampWithTimeZone>(6).ok().flatten()?),
            subject_type: text(7),
            subject_id: text(8),
            subject_version: row.get::<i64>(9).ok().flatten(),
            scope: text(10),
            schema_version: text(11),
            correlation_id: text(12),
            causation: text(13),
            traceparent: text(14),
            test: row.get::<bool>(15).ok().flatten()?,
            data: body.unwrap_or_default(),
        },
        seal_key: row.get::<i64>(17).ok().flatten()?,
        seal: row.get::<Vec<u8>>(18).ok().flatten()?.try_into().ok(),
        digest: row.get::<Vec<u8>>(19).ok().flatten()?.try_into().ok(),
    })
}
