//! Reading endpoints and event types as of a window: all at the start, then only what changed.

use pgrx::prelude::*;

use super::filtering::{FilterRow, filter_versions};
use super::keys::{KeyRow, signing_keys};
use super::proving::ProofRow;
use super::shape::{RevisionRow, read_shape, revisions};
use super::statement::{select, statement};
use super::unix_micros;
use crate::rules::ids::EndpointId;
use crate::rules::profile::Profile;
use crate::rules::revision::Revision;
use crate::rules::snapshot::Snapshot;

/// An endpoint as of the snapshot of the transaction under way.
pub struct EndpointRow {
    pub id: EndpointId,
    pub partner_id: String,
    pub url: String,
    pub event_types: Vec<String>,
    pub test: bool,
    /// What the user set, or what the leader found out since.
    pub state: String,
    pub state_reason: Option<String>,
    pub generation: i64,
    pub revision: i32,
    /// What that revision says.
    pub shape: Revision,
    /// Its revisions, where it has had several, the one in force last.
    pub revisions: Vec<RevisionRow>,
    /// How its requests are signed.
    pub profile: Profile,
    /// What the operator adds to them.
    pub extra: Vec<(String, String)>,
    pub max_in_flight: Option<i32>,
    /// Name of its policy; none = the default one.
    pub policy: Option<String>,
    /// Whether it keeps the order of each subject.
    pub ordered: bool,
    /// Number of the filter in force; 0 = it never had one.
    pub filter_version: i32,
    /// Its filters, the one in force last; none = it never had one.
    pub filters: Vec<FilterRow>,
    pub origin: i64,
    pub created_xid: u64,
    pub created_snapshot: Snapshot,
    /// Transaction of the last change.
    pub changed_xid: u64,
    /// When the leader found out that it is in another state than the user set; none = it is not.
    pub found_at: Option<i64>,
    /// Valid keys, newest first.
    pub keys: Vec<KeyRow>,
    /// What it has to do with proofs of control and expiry.
    pub proof: ProofRow,
}

macro_rules! endpoint_columns {
    () => {
        "select p.endpoint_id, p.partner_id, p.url, p.event_types, p.test,
                coalesce(s.state, p.state), coalesce(s.reason, p.state_reason), p.generation, p.revision,
                p.max_in_flight, p.origin, p.created_xid::text, p.created_snapshot::text, p.policy, p.ordered,
                p.verify, p.pending_url, p.proof_generation, p.proof_asked_at, p.expires_at, p.renewed_at,
                r.format, p.signature, p.headers::text, r.data_shape, r.fields, r.schema_versions::text,
                p.filter_version, p.subject_types, p.filter::text,
                p.changed_xid::text, case when s.state is not null then s.changed_at end
           from webhook._endpoint as p
           left join webhook._endpoint_revision as r
             on r.endpoint_id = p.endpoint_id and r.revision = p.revision
           left join webhook._endpoint_state as s
             on s.endpoint_id = p.endpoint_id and s.generation = p.generation"
    };
}

statement!(ALL_ENDPOINTS, [], endpoint_columns!());

statement!(
    CHANGED_ENDPOINTS,
    [&str, &str],
    concat!(
        endpoint_columns!(),
        " where p.changed_xid >= $1::xid8 or p.changed_xid = any ($2::xid8[])"
    )
);

statement!(
    PARTNER_ENDPOINTS,
    [&str],
    concat!(endpoint_columns!(), " where p.partner_id = $1")
);

statement!(
    ALL_TYPES,
    [],
    "select t.name, t.priority from webhook._event_type as t"
);

statement!(
    CHANGED_TYPES,
    [&str, &str],
    "select t.name, t.priority
       from webhook._event_type as t
      where t.changed_xid >= $1::xid8 or t.changed_xid = any ($2::xid8[])"
);

/// Endpoints that changed since `prev`; all of them when there is no `prev`.
pub fn changed_endpoints(prev: Option<&Snapshot>) -> Vec<EndpointRow> {
    read_endpoints(prev, None)
}

/// The endpoints of a partner.
pub fn endpoints_of_partner(partner: &str) -> Vec<EndpointRow> {
    read_endpoints(None, Some(partner))
}

fn read_endpoints(prev: Option<&Snapshot>, partner: Option<&str>) -> Vec<EndpointRow> {
    let read = |rows: pgrx::spi::SpiTupleTable<'_>| {
        rows.filter_map(|row| {
            let text = |index: usize| row.get::<String>(index).ok().flatten();
            let time = |index: usize| {
                row.get::<TimestampWithTimeZone>(index)
                    .ok()
                    .flatten()
                    .map(unix_micros)
            };
            Some(EndpointRow {
                id: EndpointId(row.get::<i64>(1).ok().flatten()?),
                partner_id: text(2)?,
                url: text(3)?,
                event_types: texts(&row, 4)?,
                test: row.get::<bool>(5).ok().flatten()?,
                state: text(6)?,
                state_reason: text(7),
                generation: row.get::<i64>(8).ok().flatten()?,
                revision: row.get::<i32>(9).ok().flatten()?,
                shape: read_shape(&row, [22, 25, 26, 27]),
                revisions: Vec::new(),
                // The tables allow no other names.
                profile: text(23)
                    .and_then(|name| Profile::parse(&name))
                    .unwrap_or_default(),
                extra: text(24).map(|json| headers(&json)).unwrap_or_default(),
                max_in_flight: row.get::<i32>(10).ok().flatten(),
                origin: row.get::<i64>(11).ok().flatten()?,
                created_xid: text(12)?.parse().ok()?,
                created_snapshot: text(13)?.parse().ok()?,
                changed_xid: text(31)?.parse().ok()?,
                found_at: time(32),
                policy: text(14),
                ordered: row.get::<bool>(15).ok().flatten()?,
                filter_version: row.get::<i32>(28).ok().flatten()?,
                // What is chosen now, for a copy that came without the versions: an endpoint with a filter never does
                // without one. They take its place below.
                filters: {
                    let chosen = (texts(&row, 29), text(30));
                    let none = chosen.0.is_none() && chosen.1.is_none();
                    let xid = text(12)?.parse().ok()?;
                    let chosen = (!none).then(|| FilterRow::new(xid, chosen.0, chosen.1));
                    chosen.into_iter().collect()
                },
                keys: Vec::new(),
                proof: ProofRow {
                    method: text(16).unwrap_or_default(),
                    pending_url: text(17),
                    generation: row.get::<i64>(18).ok().flatten()?,
                    asked_at: time(19),
                    expires_at: time(20),
                    renewed_at: time(21).unwrap_or_default(),
                },
            })
        })
        .collect::<Vec<_>>()
    };
    let mut endpoints = match (prev, partner) {
        (None, None) => select(&ALL_ENDPOINTS, &[], read),
        (None, Some(partner)) => select(&PARTNER_ENDPOINTS, &[partner.into()], read),
        (Some(prev), _) => {
            let (xmax, running) = since(prev);
            select(
                &CHANGED_ENDPOINTS,
                &[xmax.as_str().into(), running.as_str().into()],
                read,
            )
        }
    };
    if endpoints.is_empty() {
        return endpoints;
    }
    let mut keys = signing_keys(endpoints.iter().map(|endpoint| endpoint.id.0).collect());
    for endpoint in &mut endpoints {
        endpoint.keys = keys.remove(&endpoint.id.0).unwrap_or_default();
    }
    let filtered = endpoints
        .iter()
        .filter(|endpoint| endpoint.filter_version > 0);
    let mut filters = filter_versions(filtered.map(|endpoint| endpoint.id.0).collect());
    for endpoint in &mut endpoints {
        if let Some(versions) = filters.remove(&endpoint.id.0) {
            endpoint.filters = versions;
        }
    }
    let reshaped = endpoints.iter().filter(|endpoint| endpoint.revision > 1);
    let mut shapes = revisions(reshaped.map(|endpoint| endpoint.id.0).collect());
    for endpoint in &mut endpoints {
        endpoint.revisions = shapes.remove(&endpoint.id.0).unwrap_or_default();
    }
    endpoints
}

/// Event types that changed since `prev` with their priority class; all when there is no `prev`.
pub fn changed_event_types(prev: Option<&Snapshot>) -> Vec<(String, i16)> {
    let read = |rows: pgrx::spi::SpiTupleTable<'_>| {
        rows.filter_map(|row| {
            Some((
                row.get::<String>(1).ok().flatten()?,
                row.get::<i16>(2).ok().flatten()?,
            ))
        })
        .collect::<Vec<_>>()
    };
    match prev {
        None => select(&ALL_TYPES, &[], read),
        Some(prev) => {
            let (xmax, running) = since(prev);
            select(
                &CHANGED_TYPES,
                &[xmax.as_str().into(), running.as_str().into()],
                read,
            )
        }
    }
}

/// What is not visible in a snapshot, as parameters: first transaction after it, those that ran.
pub fn since(prev: &Snapshot) -> (String, String) {
    let running = prev
        .running()
        .iter()
        .map(u64::to_string)
        .collect::<Vec<_>>()
        .join(",");
    (prev.xmax().to_string(), format!("{{{running}}}"))
}

/// Headers as they are stored; what is none, which only a hand in the tables can have written, is left out.
fn headers(json: &str) -> Vec<(String, String)> {
    let Ok(serde_json::Value::Object(members)) = serde_json::from_str(json) else {
        return Vec::new();
    };
    members
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
        .collect()
}

/// An array of texts; elements that are null, which only a hand in the tables can have written, are left
/// out.
pub fn texts(row: &pgrx::spi::SpiHeapTupleData<'_>, column: usize) -> Option<Vec<String>> {
    let texts = row.get::<Vec<Option<String>>>(column).ok().flatten()?;
    Some(texts.into_iter().flatten().collect())
}
