//! What a session knows of the catalogue: event types, compiled schemas and sources, read when they are first needed and
//! forgotten when anything of the catalogue changes, here or elsewhere.
//!
//! A change in the own transaction counts from its next statement on, and no longer when it is rolled back: PostgreSQL
//! sends the invalidation of a table at each of these moments. Another session's counts once it is committed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::conversion;
use super::error::Raise;
use super::outbox::{self, ConversionRow, Source};
use super::settings::{self, Mode};
use crate::rules::compatibility::breaking_change;
use crate::rules::fields::fields;
use crate::rules::json::{parse, path_at};
use crate::rules::schema::Schema;

/// A registered event type, ready for use.
pub struct EventType {
    pub sources: Option<Vec<String>>,
    pub deprecated: bool,
    pub replaced_by: Option<String>,
    /// Microseconds since 1970.
    pub sunset_at: Option<i64>,
    pub versions: Vec<Version>,
    /// How payloads become those of other versions.
    pub conversions: Vec<ConversionRow>,
}

/// One version of its payload's schema.
pub struct Version {
    pub name: String,
    pub current: bool,
    /// None = what the setting says.
    pub mode: Option<Mode>,
    text: String,
    /// Compiled at the first event.
    compiled: RefCell<Option<Rc<Schema>>>,
}

impl Version {
    /// The compiled schema. It compiled when it was added; should it not any more, its text is not the one that was.
    pub fn schema(&self) -> Result<Rc<Schema>, String> {
        if let Some(schema) = &*self.compiled.borrow() {
            return Ok(Rc::clone(schema));
        }
        let value = parse(&self.text).map_err(|_| String::from("It is not JSON."))?;
        let schema = Rc::new(Schema::compile(&value)?);
        self.compiled.replace(Some(Rc::clone(&schema)));
        Ok(schema)
    }
}

#[derive(Default)]
struct Known {
    types: HashMap<String, Option<Rc<EventType>>>,
    sources: HashMap<String, Option<Rc<Source>>>,
    /// The transaction whose snapshot it was read with, where that does not move: it may be too old for the next one.
    only_in: Option<u64>,
}

/// Most names that are remembered, registered or not: they are the caller's.
const MAX_NAMES: usize = 10_000;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
    static STALE: Cell<bool> = const { Cell::new(true) };
    static LISTENS: Cell<bool> = const { Cell::new(false) };
    /// The table whose invalidation counts.
    static TABLE: Cell<pg_sys::Oid> = const { Cell::new(pg_sys::InvalidOid) };
}

/// The event type, if it is registered.
pub fn event_type(name: &str) -> Option<Rc<EventType>> {
    refresh();
    if let Some(found) = KNOWN.with_borrow(|known| known.types.get(name).cloned()) {
        return found;
    }
    let found = outbox::event_type(name).map(|found| {
        let version = |row: outbox::SchemaRow| Version {
            name: row.version,
            current: row.current,
            mode: row.mode.as_deref().map(Mode::of),
            text: row.schema,
            compiled: RefCell::new(None),
        };
        Rc::new(EventType {
            sources: found.sources,
            deprecated: found.deprecated,
            replaced_by: found.replaced_by,
            sunset_at: found.sunset_at,
            conversions: if found.schemas.is_empty() {
                Vec::new()
            } else {
                conversion::conversions(name)
            },
            versions: found.schemas.into_iter().map(version).collect(),
        })
    });
    KNOWN.with_borrow_mut(|known| {
        bound(&mut known.types);
        known.types.insert(name.to_owned(), found.clone());
    });
    found
}

/// The source, if it is registered.
pub fn source(name: &str) -> Option<Rc<Source>> {
    refresh();
    if let Some(found) = KNOWN.with_borrow(|known| known.sources.get(name).cloned()) {
        return found;
    }
    let found = outbox::source(name).map(Rc::new);
    KNOWN.with_borrow_mut(|known| {
        bound(&mut known.sources);
        known.sources.insert(name.to_owned(), found.clone());
    });
    found
}

fn bound<T>(names: &mut HashMap<String, T>) {
    if names.len() >= MAX_NAMES {
        names.clear();
    }
}

/// What is known may not hold any more: it is read again at the next question.
pub fn doubt() {
    STALE.set(true);
}

/// Forgets what is no longer known to hold.
fn refresh() {
    listen();
    // SAFETY: reads what other sessions have told, as PostgreSQL does wherever it takes a lock.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    // SAFETY: plain reads of this transaction's state.
    let (moves, transaction) = unsafe {
        (
            pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32,
            pg_sys::GetTopFullTransactionIdIfAny().value,
        )
    };
    let foreign = KNOWN.with_borrow(|known| {
        known
            .only_in
            .is_some_and(|only_in| transaction == 0 || only_in != transaction)
    });
    if !STALE.get() && !foreign {
        return;
    }
    // Lowered first: what changes while it is read makes it stale again.
    STALE.set(false);
    TABLE.set(outbox::catalogue_table());
    let only_in = if moves {
        None
    } else {
        // SAFETY: emit is about to write, so the transaction gets an id anyway.
        Some(unsafe { pg_sys::GetTopFullTransactionId() }.value)
    };
    KNOWN.set(Known {
        only_in,
        ..Known::default()
    });
}

/// Has PostgreSQL tell this session when the catalogue or a role changes.
fn listen() {
    if LISTENS.replace(true) {
        return;
    }
    // SAFETY: both callbacks live as long as the process, touch a flag only, and never unwind.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(table_changed), pg_sys::Datum::from(0));
        pg_sys::CacheRegisterSyscacheCallback(
            pg_sys::SysCacheIdentifier::AUTHOID as i32,
            Some(role_changed),
            pg_sys::Datum::from(0),
        );
    }
}

unsafe extern "C-unwind" fn table_changed(_arg: pg_sys::Datum, table: pg_sys::Oid) {
    if table == pg_sys::InvalidOid || table == TABLE.get() {
        STALE.set(true);
    }
}

unsafe extern "C-unwind" fn role_changed(_arg: pg_sys::Datum, _cache: i32, _hash: u32) {
    STALE.set(true);
}

#[pg_extern(sql = false)]
fn forget_catalogue() {
    outbox::invalidate_catalogue();
}

/// Refuses a schema that cannot be used, or that may not take the place of the former one.
#[pg_extern(sql = false)]
fn check_schema(schema: &str, former: Option<&str>, example: &str) {
    let refuse = |message: &str, detail: String| -> ! {
        Raise::new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message)
            .detail(detail)
            .hint("See docs/catalogue.md.")
            .raise()
    };
    let value = match parse(schema) {
        Ok(value) => value,
        Err(fault) => refuse(
            "schema is not valid",
            format!("\"{}\" {}.", path_at(schema, fault.at), fault.reason),
        ),
    };
    let compiled = match Schema::compile(&value) {
        Ok(compiled) => compiled,
        Err(why) => refuse("schema is not valid", why),
    };
    if let Err(why) = fields(&value) {
        refuse("schema does not say what it must", why);
    }
    if let Some(former) = former
        && let Ok(former) = parse(former)
        && let Some(change) = breaking_change(&former, &value)
    {
        Raise::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "schema would break receivers of the same version",
        )
        .detail(change)
        .hint("Add it as a new version, or as a new event type when the meaning is another one.")
        .raise();
    }
    if let Err(violation) = compiled.check_text(example) {
        refuse("example does not match the schema", violation.sentence());
    }
    let limit = settings::max_payload();
    if example.len() > limit {
        Raise::new(
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            "example is too large",
        )
        .detail(format!(
            "It has {} bytes; \"webhook.max_payload\" allows {limit}.",
            example.len()
        ))
        .raise();
    }
}

/// The fields of a schema that was added; of any other, those that it describes well.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn schema_fields(
    schema: &str,
) -> TableIterator<
    'static,
    (
        name!(path, String),
        name!(kind, String),
        name!(required, bool),
        name!(purpose, String),
        name!(sensitivity, Option<String>),
        name!(money, Option<String>),
    ),
> {
    let found = parse(schema)
        .ok()
        .and_then(|schema| fields(&schema).ok())
        .unwrap_or_default();
    TableIterator::new(found.into_iter().map(|field| {
        (
            field.path,
            field.kind,
            field.required,
            field.purpose,
            field.sensitivity,
            field.money,
        )
    }))
}
