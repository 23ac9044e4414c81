//! Which function a registered query is.

use pgrx::pg_sys;

use super::statement::{select, statement};

statement!(
    QUERY_FUNCTION,
    [&str],
    "select p.oid, p.proowner
       from pg_catalog.pg_proc as p
      where p.oid operator(pg_catalog.=)
            pg_catalog.to_regprocedure($1 operator(pg_catalog.||) '(timestamptz, timestamptz)')::pg_catalog.oid
        and p.prokind operator(pg_catalog.=) 'f'"
);

/// A function of two times by its qualified name, and its owner.
pub fn query_function(name: &str) -> Option<(pg_sys::Oid, pg_sys::Oid)> {
    select(&QUERY_FUNCTION, &[name.into()], |mut rows| {
        let row = rows.next()?;
        Some((
            row.get::<pg_sys::Oid>(1).ok()??,
            row.get::<pg_sys::Oid>(2).ok()??,
        ))
    })
}
