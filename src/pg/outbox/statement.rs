//! Prepared statements that live as long as the process.
//!
//! Planning a join over many partitions costs milliseconds, so every hot statement is planned once
//! and kept (SPI_keepplan); PostgreSQL replans it by itself when a table changes.

use std::cell::OnceCell;
use std::mem::ManuallyDrop;
use std::thread::LocalKey;

use pgrx::datum::DatumWithOid;
use pgrx::pg_sys::PgOid;
use pgrx::prelude::*;
use pgrx::spi::{OwnedPreparedStatement, SpiClient, SpiTupleTable};

/// One statement: its text, the types of its parameters and, once used, its plan.
pub struct Statement {
    text: &'static str,
    types: fn() -> Vec<PgOid>,
    /// Never freed: a thread-local destructor would free it after PostgreSQL has shut down around it.
    plan: OnceCell<ManuallyDrop<OwnedPreparedStatement>>,
}

impl Statement {
    pub const fn new(text: &'static str, types: fn() -> Vec<PgOid>) -> Statement {
        Statement {
            text,
            types,
            plan: OnceCell::new(),
        }
    }

    fn plan(&self, client: &SpiClient<'_>, writes: bool) -> &OwnedPreparedStatement {
        self.plan.get_or_init(|| {
            let types = (self.types)();
            let plan = if writes {
                client.prepare_mut(self.text, &types)
            } else {
                client.prepare(self.text, &types)
            };
            match plan {
                Ok(plan) => ManuallyDrop::new(plan.keep()),
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
            let plan = statement.plan(client, true);
            match client.update(plan, None, arguments) {
                Ok(table) => read(table),
                Err(error) => error!("could not execute a statement: {error}"),
            }
        })
    })
}

/// Executes a statement that only reads. Unlike [`run`] it takes no transaction id, so that a poll that
/// finds nothing writes no WAL and leaves the snapshot as it was.
pub fn select<R>(
    statement: &'static LocalKey<Statement>,
    arguments: &[DatumWithOid<'_>],
    read: impl FnOnce(SpiTupleTable<'_>) -> R,
) -> R {
    Spi::connect(|client| {
        statement.with(|statement| {
            let plan = statement.plan(client, false);
            match client.select(plan, None, arguments) {
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
