//! Errors of SQL functions: one way to raise them, in PostgreSQL's style.
//!
//! The primary message is lower case without a period, detail states facts, hint gives advice, and
//! every error has a deliberate SQLSTATE. No message carries a payload or a secret.

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::PgLogLevel;

/// An error to raise; built with a message, then detail and hint where they help.
pub struct Raise(ErrorReport);

impl Raise {
    /// Starts an error with its SQLSTATE and primary message.
    pub fn new(code: PgSqlErrorCode, message: impl Into<String>) -> Raise {
        Raise(ErrorReport::new(code, message.into(), "webhook_outbox"))
    }

    /// Adds a fact, as a whole sentence.
    pub fn detail(self, detail: impl Into<String>) -> Raise {
        Raise(self.0.set_detail(detail))
    }

    /// Adds advice, as a whole sentence.
    pub fn hint(self, hint: impl Into<String>) -> Raise {
        Raise(self.0.set_hint(hint))
    }

    /// Raises it: the statement ends here.
    pub fn raise(self) -> ! {
        self.0.report(PgLogLevel::ERROR);
        unreachable!("an error report of level ERROR does not return")
    }

    /// Reports it as a WARNING and goes on.
    pub fn warn(self) {
        self.0.report(PgLogLevel::WARNING);
    }
}

/// NULL where it makes no sense (22004).
pub fn null_argument(name: &str) -> ! {
    Raise::new(
        PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
        format!("argument \"{name}\" must not be null"),
    )
    .raise()
}

/// A bad argument (22023).
pub fn bad_argument(message: impl Into<String>) -> Raise {
    Raise::new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message)
}
