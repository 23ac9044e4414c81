//! Payloads in other schema versions: which functions make them, what emit stores, and what the leader reads of it.

use std::collections::HashMap;

use pgrx::pg_sys;

use super::access::installed_owner;
use super::as_owner;
use super::emitting::Sealing;
use super::statement::{run, select, statement};
use crate::rules::ids::EventId;

/// A conversion as it is registered, and the function as it is now.
pub struct ConversionRow {
    pub from: String,
    pub to: String,
    pub function: pg_sys::Oid,
    pub owner: pg_sys::Oid,
    /// It takes json, which keeps the bytes, not jsonb.
    pub exact: bool,
    /// Why it cannot be run.
    pub fault: Option<String>,
}

/// What became of an event's payload in another version.
pub struct Stored {
    pub failure: Option<String>,
    pub seal: Vec<u8>,
    pub digest: Vec<u8>,
    pub body: Option<String>,
}

/// The versions that were asked for, by event and version.
pub type Versions = HashMap<(EventId, String), Stored>;

statement!(
    CONVERSIONS,
    [&str],
    "select c.from_version, c.to_version, p.oid, p.proowner,
            p.proargtypes[0] operator(pg_catalog.=) 'pg_catalog.json'::pg_catalog.regtype,
            webhook._conversion_fault(c.function_name, c.function_owner)
       from webhook._conversion as c
       left join pg_catalog.pg_proc as p on p.oid operator(pg_catalog.=) webhook._function(c.function_name)
      where c.event_type operator(pg_catalog.=) $1
      order by c.from_version, c.to_version"
);

statement!(
    FUNCTION,
    [pg_sys::Oid],
    "select p.proowner, p.proargtypes[0] operator(pg_catalog.=) 'pg_catalog.json'::pg_catalog.regtype
       from pg_catalog.pg_proc as p
      where p.oid operator(pg_catalog.=) $1"
);

statement!(
    INSERT_VERSION,
    [&str, &str, &str, Option<&str>, Vec<u8>, Vec<u8>, Option<&str>],
    "insert into webhook._event_version (event_id, version, partner_id, failure, seal, body_sha256, body)
     values ($1, $2, $3, $4, $5, $6, $7)"
);

statement!(READ, [Vec<&str>, Vec<&str>],
    "select v.event_id, v.version, v.failure, v.seal, v.body_sha256, v.body
       from unnest($1, $2) as r (event, version)
       join webhook._event_version as v on v.event_id = r.event and v.version = r.version");

/// The conversions of an event type.
pub fn conversions(kind: &str) -> Vec<ConversionRow> {
    as_owner(installed_owner(), || {
        run(&CONVERSIONS, &[kind.into()], |rows| {
            rows.filter_map(|row| {
                let oid = |column: usize| {
                    row.get::<pg_sys::Oid>(column)
                        .ok()
                        .flatten()
                        .unwrap_or(pg_sys::InvalidOid)
                };
                Some(ConversionRow {
                    from: row.get::<String>(1).ok()??,
                    to: row.get::<String>(2).ok()??,
                    function: oid(3),
                    owner: oid(4),
                    exact: row.get::<bool>(5).ok().flatten().unwrap_or(false),
                    fault: row.get::<String>(6).ok()?,
                })
            })
            .collect()
        })
    })
}

/// Owner of a function, and whether it takes json.
pub fn function(oid: pg_sys::Oid) -> Option<(pg_sys::Oid, bool)> {
    as_owner(installed_owner(), || {
        run(&FUNCTION, &[oid.into()], |rows| {
            if rows.is_empty() {
                return None;
            }
            let row = rows.first();
            Some((row.get::<pg_sys::Oid>(1).ok()??, row.get::<bool>(2).ok()??))
        })
    })
}

/// Stores one version of an event, or why there is none.
pub fn insert_version(
    sealing: &Sealing,
    event: EventId,
    partner: &str,
    version: &str,
    result: Result<&str, &str>,
    seal: (&[u8; 32], &[u8; 16]),
) {
    let id = event.to_string();
    as_owner(sealing.owner(), || {
        run(
            &INSERT_VERSION,
            &[
                id.as_str().into(),
                version.into(),
                partner.into(),
                result.err().into(),
                seal.1.to_vec().into(),
                seal.0.to_vec().into(),
                result.ok().into(),
            ],
            |_| (),
        );
    });
}

/// The versions of events that are there.
pub fn event_versions(wanted: &[(EventId, String)]) -> Versions {
    if wanted.is_empty() {
        return Versions::new();
    }
    let ids: Vec<String> = wanted.iter().map(|(event, _)| event.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let versions: Vec<&str> = wanted.iter().map(|(_, version)| version.as_str()).collect();
    select(&READ, &[ids.into(), versions.into()], |rows| {
        rows.filter_map(|row| {
            let event: EventId = row.get::<String>(1).ok().flatten()?.parse().ok()?;
            Some((
                (event, row.get::<String>(2).ok().flatten()?),
                Stored {
                    failure: row.get::<String>(3).ok().flatten(),
                    seal: row.get::<Vec<u8>>(4).ok().flatten()?,
                    digest: row.get::<Vec<u8>>(5).ok().flatten()?,
                    body: row.get::<String>(6).ok().flatten(),
                },
            ))
        })
        .collect()
    })
}
