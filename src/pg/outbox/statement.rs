//! Prepared statements that live as long as the process.
//!
//! Planning a join over many partitions costs milliseconds, so every hot statement is planned once
//! and kept (SPI_keepplan); PostgreSQL replans it by itself when a table changes.

use std::cell::OnceCell;
use std::thread::LocalKey;

use pgrx::datum::DatumWithOid;
use pgrx::pg_sys::PgOid;
use pgrx::prelude::*;
use pgrx::spi::{OwnedPreparedStatement, SpiClient, SpiTupleTable};

/// One statement: its text, the types of its parameters and, once used, its plan.
pub struct Statement {
    text: &'static str,
    types: fn() -> Vec<PgOid>,
    plan: OnceCell<OwnedPreparedStatement>,
}

impl Statement {
    pub const fn new(text: &'static str, types: fn() -> Vec<PgOid>) -> Statement {
        Statement {
            text,
            types,
            plan: OnceCell::new(),
        }
    }

    fn plan(&self, client: &SpiClient<'_>) -> &OwnedPreparedStatement {
        self.plan.get_or_init(|| {
            match client.prepare_mut(self.text, &(self.types)()) {
                Ok(plan) => plan.keep(),
                // Unreachable but for a programming error: PostgreSQL's own errors unwind earlier.
                Err(error) => error!("could not prepare a statement: {error}"),
            }
        })
    }
}

/// Executes a statement that changes data or must see what this transaction just wrote.
pub fn run<R>(
    statement: &'static LocalKey<Statement>,
    arguments: &[DatumWithOid<'_>],
    read: impl FnOnce(SpiTupleTable<'_>) -> R,
) -> R {
    Spi::connect_mut(|client| {
        statement.with(|statement| {
            let plan = statement.plan(client);
            match client.update(plan, None, arguments) {
                Ok(table) => read(table),
                Err(error) => error!("could not execute a statement: {error}"),
            }
        })
    })
}

/// Declares a kept statement: its name, its parameter types and its text.
macro_rules! statement {
    ($name:ident, [$($kind:ty),*], $text:expr) => {
        thread_local! {
            static $name: $crate::pg::outbox::statement::Statement =
                const { $crate::pg::outbox::statement::Statement::new($text, || {
                    #[allow(unused_imports)]
                    use pgrx::datum::IntoDatum;
                    vec![$(pgrx::pg_sys::PgOid::from(<$kind>::type_oid())),*]
                }) };
        }
    };
}
pub(crate) use statement;
