//! Schema versions at emit: the payload in every version that conversions lead to, stored beside the event.
//!
//! A conversion is somebody's function. It runs here, in the emitting session, never in the worker: with the rights of
//! the role that owns it, as a security-restricted operation that reads only, with a search_path that the emitter has no
//! say in. What it sets is undone. When it fails, the emit does not: the failure is stored, and endpoints that want this
//! version wait. What the emitter's time-out, a lock or a crash ends, ends the emit as well.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::catalogue::{self, EventType};
use super::error::Raise;
use super::outbox::{self, ConversionRow};
use super::restricted::{Fault, call_as};
use super::{settings, validation};
use crate::rules::envelope::Event;
use crate::rules::json::{parse, path_at};
use crate::rules::selection::{Fields, LONGEST_PATH, MOST_FIELDS, MOST_STEPS, PathFault};

/// A payload in another version, or why there is none, as a sentence without payload.
pub struct Converted {
    pub version: String,
    pub result: Result<Rc<str>, String>,
}

/// The payload in every version that conversions lead to from that of the event. A chain is followed where it is the
/// shortest way; of two of a length, that of the lesser version.
pub fn convert(event: &Event) -> Vec<Converted> {
    let Some(from) = &event.schema_version else {
        return Vec::new();
    };
    let Some(kind) = catalogue::event_type(&event.kind) else {
        return Vec::new();
    };
    if kind.conversions.is_empty() {
        return Vec::new();
    }
    let mut made: Vec<Converted> = Vec::new();
    let mut reached: HashSet<&str> = HashSet::from([from.as_str()]);
    let mut next = VecDeque::from([(from.as_str(), Ok(Rc::from(event.data.as_str())))]);
    while let Some((version, text)) = next.pop_front() {
        for conversion in kind.conversions.iter().filter(|row| row.from == version) {
            if !reached.insert(&conversion.to) {
                continue;
            }
            let result = match &text {
                Ok(text) => step(&kind, conversion, text)
                    .map_err(|(why, _)| told(&event.kind, conversion, why)),
                Err(why) => Err(String::clone(why)),
            };
            next.push_back((&conversion.to, result.clone()));
            made.push(Converted {
                version: conversion.to.clone(),
                result,
            });
        }
    }
    made
}

/// Says what failed, to the emitter as well.
fn told(kind: &str, conversion: &ConversionRow, why: String) -> String {
    let (from, to) = (&conversion.from, &conversion.to);
    Raise::new(
        PgSqlErrorCode::ERRCODE_WARNING,
        format!("could not convert the payload of event type \"{kind}\" from version \"{from}\" to \"{to}\""),
    )
    .detail(why.clone())
    .hint("The event is recorded; endpoints that want this version wait. See webhook.event_versions.")
    .warn();
    format!("The conversion from version \"{from}\" to \"{to}\" failed: {why}")
}

/// One conversion; of a failure what may be stored, and what the function said.
fn step(
    kind: &EventType,
    conversion: &ConversionRow,
    text: &str,
) -> Result<Rc<str>, (String, Option<String>)> {
    let silent = |why: String| (why, None);
    if let Some(fault) = &conversion.fault {
        return Err(silent(fault.clone()));
    }
    if !conversion.exact
        && let Err(fault) = parse(text)
    {
        // jsonb would take one of two members, and say nothing.
        let path = path_at(text, fault.at);
        return Err(silent(format!("\"{path}\" {}.", fault.reason)));
    }
    let made = match call(conversion, text) {
        Ok(Some(made)) => made,
        Ok(None) => return Err(silent("It returned null.".to_owned())),
        Err(fault) => {
            return Err((
                format!("It ended with SQLSTATE {}.", fault.sqlstate),
                Some(fault.message),
            ));
        }
    };
    let limit = settings::max_payload();
    if made.len() > limit {
        return Err(silent(format!(
            "It made {} bytes; \"webhook.max_payload\" allows {limit}.",
            made.len()
        )));
    }
    let Some(version) = kind
        .versions
        .iter()
        .find(|version| version.name == conversion.to)
    else {
        return Err(silent(
            "The version that it makes does not exist.".to_owned(),
        ));
    };
    // Whatever the mode of validation: that it is of this version is what we say.
    match version.schema().map(|schema| schema.check_text(&made)) {
        Ok(Ok(())) => {}
        Ok(Err(violation)) => {
            return Err(silent(format!(
                "It made what the schema does not accept: {}",
                violation.sentence()
            )));
        }
        Err(_) => {
            return Err(silent(
                "The schema of the version cannot be used any more.".to_owned(),
            ));
        }
    }
    if let Some(path) = validation::refused_key(&made) {
        return Err(silent(format!(
            "\"{path}\" is the name of something that stays inside."
        )));
    }
    Ok(Rc::from(made))
}

/// Runs the function as its owner.
fn call(conversion: &ConversionRow, text: &str) -> Result<Option<String>, Fault> {
    call_as(conversion.owner, || {
        // SAFETY: one argument of the type that the function takes, checked when the conversion was read.
        unsafe { apply(conversion, text) }
    })
}

/// # Safety
/// The function takes one json, or one jsonb, and returns the same.
unsafe fn apply(conversion: &ConversionRow, text: &str) -> Option<String> {
    let input = std::ffi::CString::new(text).ok()?;
    // SAFETY: input functions of the two types take a C string, output functions a value of the type; the call has room
    // for its one argument, and what PostgreSQL allocates lives in the context of the statement.
    unsafe {
        let argument = if conversion.exact {
            text.into_datum()?
        } else {
            let input = pg_sys::Datum::from(input.as_ptr());
            pgrx::direct_function_call_as_datum(pg_sys::jsonb_in, &[Some(input)])?
        };
        let mut function: pg_sys::FmgrInfo = std::mem::zeroed();
        pg_sys::fmgr_info(conversion.function, &raw mut function);
        let size =
            size_of::<pg_sys::FunctionCallInfoBaseData>() + size_of::<pg_sys::NullableDatum>();
        let call = pg_sys::palloc0(size).cast::<pg_sys::FunctionCallInfoBaseData>();
        (*call).flinfo = &raw mut function;
        (*call).nargs = 1;
        let arguments = (*call).args.as_mut_ptr();
        (*arguments).value = argument;
        (*arguments).isnull = false;
        let entry = function.fn_addr?;
        let made = pg_sys::ffi::pg_guard_ffi_boundary(|| entry(call));
        if (*call).isnull {
            return None;
        }
        if conversion.exact {
            String::from_datum(made, false)
        } else {
            pgrx::direct_function_call::<&std::ffi::CStr>(pg_sys::jsonb_out, &[Some(made)])
                .map(|text| text.to_string_lossy().into_owned())
        }
    }
}

thread_local! {
    /// Hashes of the functions that are known, as PostgreSQL's messages name them.
    static FUNCTIONS: RefCell<HashSet<u32>> = RefCell::default();
    /// One of them was not there: the next one that is made may be it.
    static MISSES: Cell<bool> = const { Cell::new(false) };
    static LISTENS: Cell<bool> = const { Cell::new(false) };
}

/// The conversions of an event type. The catalogue is read again when one of their functions, or the membership of a role,
/// changes: what may run then is looked at anew.
pub fn conversions(kind: &str) -> Vec<ConversionRow> {
    let rows = outbox::conversions(kind);
    if rows.is_empty() {
        return rows;
    }
    if !LISTENS.replace(true) {
        // SAFETY: both callbacks live as long as the process, touch flags only, and never unwind.
        unsafe {
            let nothing = pg_sys::Datum::from(0);
            let (function, member) = (
                pg_sys::SysCacheIdentifier::PROCOID as i32,
                pg_sys::SysCacheIdentifier::AUTHMEMROLEMEM as i32,
            );
            pg_sys::CacheRegisterSyscacheCallback(function, Some(function_changed), nothing);
            pg_sys::CacheRegisterSyscacheCallback(member, Some(member_changed), nothing);
        }
    }
    FUNCTIONS.with_borrow_mut(|functions| {
        for row in &rows {
            if row.function == pg_sys::InvalidOid {
                MISSES.set(true);
            }
            // SAFETY: hashes the key of an existing cache.
            let hash = unsafe {
                pg_sys::GetSysCacheHashValue(
                    pg_sys::SysCacheIdentifier::PROCOID as i32,
                    pg_sys::Datum::from(row.function),
                    pg_sys::Datum::from(0),
                    pg_sys::Datum::from(0),
                    pg_sys::Datum::from(0),
                )
            };
            functions.insert(hash);
        }
    });
    rows
}

unsafe extern "C-unwind" fn function_changed(_arg: pg_sys::Datum, _cache: i32, hash: u32) {
    let concerns = FUNCTIONS.with(|functions| {
        functions
            .try_borrow()
            .map_or(true, |functions| functions.contains(&hash))
    });
    if hash == 0 || concerns || MISSES.get() {
        catalogue::doubt();
    }
}

unsafe extern "C-unwind" fn member_changed(_arg: pg_sys::Datum, _cache: i32, _hash: u32) {
    catalogue::doubt();
}

/// Refuses a function that fails on an example, or makes what the schema does not accept.
#[pg_extern(sql = false)]
fn try_conversion(kind: &str, to: &str, function: pg_sys::Oid, example: &str) {
    let Some(known) = catalogue::event_type(kind) else {
        return;
    };
    let Some((owner, exact)) = outbox::function(function) else {
        return;
    };
    let conversion = ConversionRow {
        from: String::new(),
        to: to.to_owned(),
        function,
        owner,
        exact,
        fault: None,
    };
    if let Err((why, said)) = step(&known, &conversion, example) {
        // The example stands in the catalogue: what the function says of it is no secret.
        let detail = match said {
            Some(said) => format!("{why} It said: {said}"),
            None => why,
        };
        Raise::new(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("conversion does not make version \"{to}\" of the example"),
        )
        .detail(detail)
        .hint("A conversion reads only, with the rights of its owner and a search_path of pg_catalog; see docs/versions.md.")
        .raise();
    }
}

/// Refuses paths that name no member.
#[pg_extern(sql = false)]
fn check_fields(fields: Vec<Option<String>>) -> Vec<Option<String>> {
    let paths: Option<Vec<&str>> = fields.iter().map(Option::as_deref).collect();
    let Some(paths) = paths else {
        super::error::null_argument("fields");
    };
    match Fields::parse(paths) {
        Ok(_) => fields,
        Err(PathFault::Count) => Raise::new(
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            "too many fields, or none",
        )
        .detail(format!("1 to {MOST_FIELDS} are accepted."))
        .raise(),
        Err(PathFault::Path(path)) => super::error::bad_argument(format!(
            "field \"{}\" is not valid",
            path.chars().take(128).collect::<String>()
        ))
        .detail(format!(
            "It has 1 to {MOST_STEPS} names joined by dots, and at most {LONGEST_PATH} bytes; \"\\.\" is a dot within a name, \"\\\\\" a backslash."
        ))
        .raise(),
    }
}
