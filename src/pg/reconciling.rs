//! What registered queries say of the business. Such a query is a user's code: it runs as its owner, see `restricted`, with
//! everything that its rows make PostgreSQL call.

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::error::Raise;
use super::outbox;
use super::restricted::call_as;

/// The rows of a query over a range, as a JSON array. `helper` is webhook._ask_query, which asks it.
#[pg_extern(sql = false)]
fn changes_of(
    helper: pg_sys::Oid,
    query: &str,
    since: TimestampWithTimeZone,
    until: TimestampWithTimeZone,
) -> Option<String> {
    let Some((function, _)) = outbox::query_function(query) else {
        gone(query);
    };
    // Nobody can drop it and put his own in its place now: the name leads to what was looked at.
    // SAFETY: a transaction is open; the lock is kept to its end.
    unsafe {
        pg_sys::LockDatabaseObject(
            pg_sys::ProcedureRelationId,
            function,
            0,
            pg_sys::AccessShareLock as pg_sys::LOCKMODE,
        );
    }
    let Some((_, owner)) = outbox::query_function(query).filter(|found| found.0 == function) else {
        gone(query);
    };
    let answer = call_as(owner, || {
        let arguments = (query.into_datum(), since.into_datum(), until.into_datum());
        let (Some(query), Some(since), Some(until)) = arguments else {
            return None;
        };
        // SAFETY: the helper takes a text and two timestamptz, and returns a text that is never null.
        unsafe {
            let text = pg_sys::OidFunctionCall3Coll(
                helper,
                pg_sys::DEFAULT_COLLATION_OID,
                query,
                since,
                until,
            );
            String::from_datum(text, false)
        }
    });
    match answer {
        Ok(text) => text,
        // Its message may hold what the owner alone may read.
        Err(fault) => Raise::new(
            PgSqlErrorCode::ERRCODE_EXTERNAL_ROUTINE_EXCEPTION,
            format!("query {query} failed"),
        )
        .detail(format!("It ended with SQLSTATE {}.", fault.sqlstate))
        .hint("Call it as its owner to see why.")
        .raise(),
    }
}

fn gone(query: &str) -> ! {
    Raise::new(
        PgSqlErrorCode::ERRCODE_UNDEFINED_FUNCTION,
        format!("function {query}(timestamptz, timestamptz) does not exist"),
    )
    .raise()
}
