//! What emitting sessions read of the catalogue, and keep of observed values: everything as the owner of the extension.

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::access::installed_owner;
use super::statement::{run, statement};
use super::{as_owner, relation, unix_micros};

/// A registered event type.
pub struct EventType {
    pub sources: Option<Vec<String>>,
    pub deprecated: bool,
    pub replaced_by: Option<String>,
    /// Microseconds since 1970.
    pub sunset_at: Option<i64>,
    pub schemas: Vec<SchemaRow>,
}

/// A schema as it is stored.
pub struct SchemaRow {
    pub version: String,
    pub current: bool,
    pub mode: Option<String>,
    pub schema: String,
}

/// A registered source.
pub struct Source {
    pub enabled: bool,
    /// InvalidOid when the role that it names is gone.
    pub role: Option<pg_sys::Oid>,
    pub event_types: Vec<String>,
    pub partners: Option<Vec<String>>,
}

/// A value to be kept.
pub struct Observation<'o> {
    pub partner: &'o str,
    pub subject_type: &'o str,
    pub subject_id: &'o str,
    pub metric: &'o str,
    pub value: AnyNumeric,
    pub adjustment: bool,
    pub data: &'o str,
}

/// What came of it: the number of the value, and type and payload of the events to emit.
pub struct Observed {
    pub number: i64,
    pub events: Vec<(String, String)>,
}

statement!(
    EVENT_TYPE,
    [&str],
    "select t.sources, t.deprecated_at is not null, t.replaced_by, t.sunset_at
       from webhook._event_type as t
      where t.name operator(pg_catalog.=) $1"
);

statement!(
    SCHEMAS,
    [&str],
    "select s.version, s.current, s.mode, s.schema::pg_catalog.text
       from webhook._event_schema as s
      where s.event_type operator(pg_catalog.=) $1"
);

statement!(
    SOURCE,
    [&str],
    "select s.enabled, s.role_name is not null,
            (select r.oid from pg_catalog.pg_roles as r where r.rolname operator(pg_catalog.=) s.role_name),
            s.event_types, s.partners
       from webhook._source as s
      where s.name operator(pg_catalog.=) $1"
);

statement!(
    THRESHOLD_TYPES,
    [&str],
    "select distinct t.event_type
       from webhook._threshold as t
      where t.metric operator(pg_catalog.=) $1"
);

statement!(
    OBSERVE,
    [&str, &str, &str, &str, AnyNumeric, bool, &str],
    "select o.observation, o.event_type, o.payload
       from webhook._observe($1, $2, $3, $4, $5, $6, $7::pg_catalog.jsonb) as o"
);

/// The table whose invalidation stands for the whole catalogue; InvalidOid when it is not there.
pub fn catalogue_table() -> pg_sys::Oid {
    relation(c"_event_schema").unwrap_or(pg_sys::InvalidOid)
}

/// Tells every session, at commit, that the catalogue has changed; this one at its next command.
pub fn invalidate_catalogue() {
    let table = catalogue_table();
    if table != pg_sys::InvalidOid {
        // SAFETY: queues a message about an existing table in the transaction under way.
        unsafe { pg_sys::CacheInvalidateRelcacheByRelid(table) };
    }
}

/// An event type with its schemas, if it is registered. Read with a snapshot of its own where the isolation level lets it.
pub fn event_type(name: &str) -> Option<EventType> {
    as_owner(installed_owner(), || {
        let mut found = run(&EVENT_TYPE, &[name.into()], |rows| {
            if rows.is_empty() {
                return None;
            }
            let row = rows.first();
            Some(EventType {
                sources: row.get::<Vec<String>>(1).ok().flatten(),
                deprecated: row.get::<bool>(2).ok().flatten().unwrap_or(false),
                replaced_by: row.get::<String>(3).ok().flatten(),
                sunset_at: row
                    .get::<TimestampWithTimeZone>(4)
                    .ok()
                    .flatten()
                    .map(unix_micros),
                schemas: Vec::new(),
            })
        })?;
        found.schemas = run(&SCHEMAS, &[name.into()], |rows| {
            rows.filter_map(|row| {
                Some(SchemaRow {
                    version: row.get::<String>(1).ok()??,
                    current: row.get::<bool>(2).ok()??,
                    mode: row.get::<String>(3).ok()?,
                    schema: row.get::<String>(4).ok()??,
                })
            })
            .collect()
        });
        Some(found)
    })
}

/// A source, if it is registered.
pub fn source(name: &str) -> Option<Source> {
    as_owner(installed_owner(), || {
        run(&SOURCE, &[name.into()], |rows| {
            if rows.is_empty() {
                return None;
            }
            let row = rows.first();
            let limited = row.get::<bool>(2).ok()??;
            let role = row.get::<pg_sys::Oid>(3).ok()?;
            Some(Source {
                enabled: row.get::<bool>(1).ok()??,
                role: limited.then_some(role.unwrap_or(pg_sys::InvalidOid)),
                event_types: row.get::<Vec<String>>(4).ok()??,
                partners: row.get::<Vec<String>>(5).ok()?,
            })
        })
    })
}

/// The types of the events that a metric can make; none = it has no threshold.
pub fn threshold_types(metric: &str) -> Vec<String> {
    as_owner(installed_owner(), || {
        run(&THRESHOLD_TYPES, &[metric.into()], |rows| {
            rows.filter_map(|row| row.get::<String>(1).ok()?).collect()
        })
    })
}

/// Keeps a value. Waits for a transaction that keeps one of the same subject.
pub fn observe(observation: Observation<'_>) -> Observed {
    as_owner(installed_owner(), || {
        run(
            &OBSERVE,
            &[
                observation.partner.into(),
                observation.subject_type.into(),
                observation.subject_id.into(),
                observation.metric.into(),
                observation.value.into(),
                observation.adjustment.into(),
                observation.data.into(),
            ],
            |rows| {
                let mut observed = Observed {
                    number: 0,
                    events: Vec::new(),
                };
                for row in rows {
                    observed.number = row.get::<i64>(1).ok().flatten().unwrap_or(0);
                    let kind = row.get::<String>(2).ok().flatten();
                    let payload = row.get::<String>(3).ok().flatten();
                    observed.events.extend(kind.zip(payload));
                }
                observed
            },
        )
    })
}
