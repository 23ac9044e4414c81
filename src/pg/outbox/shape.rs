//! Which shape a pair has: written down with its first attempt, and found again where nobody knows whether that one
//! was made.

use std::collections::HashMap;

use super::configuration::texts;
use super::due::Claimed;
use super::statement::{run, select, statement};
use crate::rules::ids::EndpointId;
use crate::rules::revision::Revision;
use crate::rules::snapshot::Snapshot;

statement!(FIX, [Vec<&str>, Vec<i64>, Vec<i32>],
    "update webhook._delivery as d
        set revision = r.revision
       from unnest($1, $2, $3) as r (event, endpoint, revision)
      where d.event_id = r.event
        and d.endpoint_id = r.endpoint");

statement!(
    AS_OF,
    [Vec<i64>, &str],
    "select r.endpoint_id, pg_catalog.max(r.revision)
       from webhook._endpoint_revision as r
      where r.endpoint_id = any ($1)
        and pg_catalog.pg_visible_in_snapshot(r.created_xid, $2::pg_snapshot)
      group by r.endpoint_id"
);

/// A shape from the columns format, data_shape, fields and schema_versions.
pub fn read_shape(row: &pgrx::spi::SpiHeapTupleData<'_>, columns: [usize; 4]) -> Revision {
    let [format, data_shape, fields, pins] = columns;
    let text = |column: usize| row.get::<String>(column).ok().flatten();
    let fields = texts(row, fields);
    Revision::read(
        text(format).as_deref(),
        text(data_shape).as_deref(),
        fields.as_deref(),
        text(pins).as_deref(),
    )
}

/// Writes down the shape of those whose first attempt is about to be made, where it is not the one that they were
/// made with.
pub fn fix_revisions(claimed: &[Claimed]) {
    let changed: Vec<&Claimed> = claimed
        .iter()
        .filter(|row| {
            row.recorded
                .is_some_and(|recorded| recorded != row.revision)
        })
        .collect();
    if changed.is_empty() {
        return;
    }
    let ids: Vec<String> = changed
        .iter()
        .map(|row| row.pair.event.to_string())
        .collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let endpoints: Vec<i64> = changed.iter().map(|row| row.pair.endpoint.0).collect();
    let revisions: Vec<i32> = changed.iter().map(|row| row.revision).collect();
    run(
        &FIX,
        &[ids.into(), endpoints.into(), revisions.into()],
        |_| (),
    );
}

/// The revisions that endpoints had as of a snapshot; those of another cluster's transactions are not known.
pub fn revisions_as_of(
    endpoints: impl Iterator<Item = EndpointId>,
    snapshot: &Snapshot,
) -> HashMap<EndpointId, i32> {
    let mut ids: Vec<i64> = endpoints.map(|id| id.0).collect();
    ids.sort_unstable();
    ids.dedup();
    let snapshot = snapshot.to_string();
    select(&AS_OF, &[ids.into(), snapshot.as_str().into()], |rows| {
        rows.filter_map(|row| {
            Some((
                EndpointId(row.get::<i64>(1).ok().flatten()?),
                row.get::<i32>(2).ok().flatten()?,
            ))
        })
        .collect()
    })
}
