//! The vectors for `Retry-After`.
//!
//! Refuses to know the header's grammar: the file says what each value means.

use serde_json::{Value, json};

use super::{Tally, rows, text};
use crate::rules::retry_after::{RetryAfter, parse};

#[test]
fn every_retry_after_vector_is_read_as_documented() {
    let mut tally = Tally::new("retry_after.jsonl");
    for row in rows("retry_after.jsonl") {
        tally.count(text(&row, "id"), check(&row));
    }
    tally.finish();
}

fn check(row: &Value) -> Result<(), String> {
    let input = &row["input"];
    let lines: Vec<&str> = input["retry_after"]
        .as_array()
        .map(|lines| lines.iter().filter_map(Value::as_str).collect())
        .ok_or("row without lines")?;
    let now = input["now"].as_i64().ok_or("row without time")?;
    let found = match parse(&lines, now) {
        RetryAfter::Delay(seconds) => json!({"kind": "delay", "seconds": seconds}),
        RetryAfter::Ignored => json!({"kind": "ignored"}),
        RetryAfter::Saturate => json!({"kind": "saturate"}),
    };
    let also = row["also_acceptable"].as_array();
    if found == row["expected"] || also.is_some_and(|others| others.contains(&found)) {
        Ok(())
    } else {
        Err(format!("{lines:?} is read as {found}"))
    }
}
