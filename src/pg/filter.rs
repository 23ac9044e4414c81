//! SQL functions about filters, declared in sql/38_filter.sql: which jsonpath may be one, and what it may cost.

use pgrx::Array;
use pgrx::prelude::*;

use super::error::{Raise, bad_argument};
use crate::rules::filter::{Fault, Filter, values};
use crate::rules::matching::type_matches as pattern_matches;

/// Refuses a jsonpath that cannot be a filter.
#[pg_extern(sql = false)]
fn check_filter_form(filter: &str) {
    if let Err(fault) = Filter::parse(filter) {
        refuse(&fault);
    }
}

/// Whether a filter decides about a payload within bounds. One that only a hand in the tables can have written does not.
#[pg_extern(sql = false)]
fn filter_fits(filter: &str, data: &str) -> bool {
    Filter::parse(filter).is_ok_and(|filter| filter.fits(values(data)))
}

/// Whether one of the patterns matches the event type.
#[pg_extern(sql = false)]
fn type_matches(event_types: Array<'_, &str>, kind: &str) -> bool {
    event_types
        .iter()
        .flatten()
        .any(|pattern| pattern_matches(pattern, kind))
}

fn refuse(fault: &Fault) -> ! {
    let unsafe_form = |what: &str| bad_argument(format!("filter uses {what}"));
    match fault {
        Fault::NotPredicate => bad_argument("filter is not a predicate")
            .detail("It yields values of the payload, not one true or false.")
            .hint("Compare, as in $.status == \"paid\", or ask with exists($.status ? (@ == \"paid\"))."),
        Fault::Regex => unsafe_form("a regular expression")
            .detail("How long one takes depends on the payload without a bound.")
            .hint("Use ==, starts with, or another event type."),
        Fault::Recursion => unsafe_form("\"**\"")
            .detail("How long it takes depends on the payload without a useful bound.")
            .hint("Name the members on the way: $.order.items[*].price."),
        Fault::Arithmetic => unsafe_form("arithmetic")
            .hint("Compare with a number: $.amount > 100. Put what must be computed into the payload."),
        Fault::Method(name) => unsafe_form(&format!("the method {}()", name.chars().take(32).collect::<String>()))
            .hint("type() and size() are the only ones."),
        Fault::Variable => unsafe_form("a variable").hint("Write the value itself."),
        Fault::Subscript => bad_argument("filter has a subscript that is not one number or one range")
            .detail("Subscripts are [*], [0], [last], [last - 1] and [0 to 9].")
            .hint("Write $.a[0] == 1 || $.a[1] == 1 in place of $.a[0, 1] == 1."),
        Fault::Root => bad_argument("filter uses \"$\" inside of a condition")
            .detail("It would look through the whole payload once for each value.")
            .hint("Inside of ? ( ) use @, the value that is being looked at."),
        Fault::Large => Raise::new(
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            "filter is too long or too deep",
        )
        .detail("The limits are 4000 bytes as PostgreSQL spells it, and 40 parentheses within each other."),
        Fault::Unsupported => bad_argument("filter has a form that is not supported")
            .detail("A filter compares paths with values, joined by &&, ||, !, exists and is unknown."),
    }
    .raise()
}
