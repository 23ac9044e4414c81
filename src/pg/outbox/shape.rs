//! Which shape a pair has: written down with its first attempt, and the shapes that endpoints have had, for events of
//! windows that are older than the last change.

use std::collections::HashMap;
use std::sync::Arc;

use super::configuration::texts;
use super::due::Claimed;
use super::statement::{run, select, statement};
use crate::rules::ids::{EndpointId, Pair};
use crate::rules::revision::Revision;

statement!(FIX, [Vec<&str>, Vec<i64>, Vec<i32>],
    "update webhook._delivery as d
        set revision = r.revision
       from unnest($1, $2, $3) as r (event, endpoint, revision)
      where d.event_id = r.event
        and d.endpoint_id = r.endpoint");

// The last ones: no window is so old that an earlier one counts for it, unless somebody changes shapes by the second.
statement!(
    REVISIONS,
    [Vec<i64>],
    "select v.endpoint_id, v.revision, v.created_xid::text, v.format, v.data_shape, v.fields, v.schema_versions::text
       from unnest($1) as p (endpoint)
      cross join lateral (
        select r.*
          from webhook._endpoint_revision as r
         where r.endpoint_id = p.endpoint
         order by r.revision desc
         limit 20) as v
      order by v.endpoint_id, v.revision"
);

statement!(OF_PAIRS, [Vec<&str>, Vec<i64>, Vec<i32>],
    "select p.event, p.endpoint, r.format, r.data_shape, r.fields, r.schema_versions::text
       from unnest($1, $2, $3) as p (event, endpoint, revision)
       join webhook._endpoint_revision as r on r.endpoint_id = p.endpoint and r.revision = p.revision
      where r.schema_versions is not null");

/// A shape that an endpoint has, or had.
#[derive(Clone)]
pub struct RevisionRow {
    pub number: i32,
    /// Transaction that chose it.
    pub xid: u64,
    pub shape: Arc<Revision>,
}

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

/// The shapes of pairs by their numbers, of those that want a schema version.
pub fn shapes_with_versions(pairs: impl Iterator<Item = (Pair, i32)>) -> HashMap<Pair, Revision> {
    let pairs: Vec<(Pair, i32)> = pairs.collect();
    let ids: Vec<String> = pairs
        .iter()
        .map(|(pair, _)| pair.event.to_string())
        .collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let endpoints: Vec<i64> = pairs.iter().map(|(pair, _)| pair.endpoint.0).collect();
    let numbers: Vec<i32> = pairs.iter().map(|(_, number)| *number).collect();
    let arguments = [ids.into(), endpoints.into(), numbers.into()];
    select(&OF_PAIRS, &arguments, |rows| {
        rows.filter_map(|row| {
            let pair = Pair {
                event: row.get::<String>(1).ok().flatten()?.parse().ok()?,
                endpoint: EndpointId(row.get::<i64>(2).ok().flatten()?),
            };
            Some((pair, read_shape(&row, [3, 4, 5, 6])))
        })
        .collect()
    })
}

/// The shapes that these endpoints have had, the one in force last.
pub fn revisions(endpoints: Vec<i64>) -> HashMap<i64, Vec<RevisionRow>> {
    let mut revisions: HashMap<i64, Vec<RevisionRow>> = HashMap::new();
    if endpoints.is_empty() {
        return revisions;
    }
    select(&REVISIONS, &[endpoints.into()], |rows| {
        for row in rows {
            let read = || {
                let endpoint = row.get::<i64>(1).ok().flatten()?;
                let revision = RevisionRow {
                    number: row.get::<i32>(2).ok().flatten()?,
                    xid: row.get::<String>(3).ok().flatten()?.parse().ok()?,
                    shape: Arc::new(read_shape(&row, [4, 5, 6, 7])),
                };
                Some((endpoint, revision))
            };
            if let Some((endpoint, revision)) = read() {
                revisions.entry(endpoint).or_default().push(revision);
            }
        }
    });
    revisions
}
