//! SQL functions that check how an endpoint's requests are to look, declared in sql/37_shape.sql.
//!
//! Values of headers may be credentials: no message repeats one.

use pgrx::JsonB;
use pgrx::prelude::*;

use super::error::{Raise, bad_argument};
use crate::rules::headers::{self, Fault, LONGEST_NAME, LONGEST_VALUE, MOST};
use crate::rules::shape::Format;

/// Whether there is a format of this name.
#[pg_extern(sql = false)]
fn valid_format(format: &str) -> bool {
    Format::parse(format).is_some()
}

/// Refuses headers that cannot be sent or may not be; good ones come back as they are.
#[pg_extern(sql = false)]
fn check_headers(headers: JsonB) -> JsonB {
    let members = headers.0.as_object();
    let pairs: Option<Vec<(&str, &str)>> = members.and_then(|members| {
        members
            .iter()
            .map(|(name, value)| Some((name.as_str(), value.as_str()?)))
            .collect()
    });
    let Some(pairs) = pairs else {
        bad_argument("headers are not an object of texts")
            .hint("Write {\"X-Name\": \"value\"}; {} removes all of them.")
            .raise()
    };
    if let Err(fault) = headers::check(pairs) {
        refuse(&fault);
    }
    headers
}

fn refuse(fault: &Fault) -> ! {
    match fault {
        Fault::Many => Raise::new(
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            "too many headers",
        )
        .detail(format!("The limit is {MOST} for each endpoint.")),
        Fault::Name(name) => bad_argument(format!("header name \"{name}\" is not valid")).detail(format!(
            "A header name has 1 to {LONGEST_NAME} characters of A-Z, a-z, 0-9 and !#$%&'*+-.^_`|~."
        )),
        Fault::Reserved(name) => bad_argument(format!("header \"{name}\" is reserved"))
            .detail("What belongs to the connection, the body, the signature or the event is set by webhook_outbox alone."),
        Fault::Twice(name) => bad_argument(format!("header \"{name}\" is given twice"))
            .detail("Names of headers are the same in upper and lower case."),
        Fault::Value(name) => bad_argument(format!("value of header \"{name}\" is not valid")).detail(format!(
            "A value has 1 to {LONGEST_VALUE} visible ASCII characters, with blanks between them only."
        )),
    }
    .raise()
}
