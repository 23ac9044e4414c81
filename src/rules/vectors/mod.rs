//! Reads the vector files (one JSON object a line) and keeps score over them.
//!
//! Refuses to judge: each file's own module compares, this one only reads, counts and reports.

use std::io::Write;
use std::path::PathBuf;

use serde_json::Value;

mod boundary;
mod formats;
mod retry_after;
mod signing;
mod ssrf;

/// The rows of `<vectors>/<file>`, where the folder is `WEBHOOK_VECTORS` or the repository's own.
pub(super) fn rows(file: &str) -> Vec<Value> {
    let folder = std::env::var_os("WEBHOOK_VECTORS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("pg_test/vectors"),
        PathBuf::from,
    );
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("could not read {}: {error}", path.display()));
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{file} line {}: {error}", number + 1))
        })
        .collect()
}

/// A text member of a row; a row without it is a broken file, and the test says so.
pub(super) fn text<'a>(row: &'a Value, member: &str) -> &'a str {
    row[member]
        .as_str()
        .unwrap_or_else(|| panic!("row without text \"{member}\": {row}"))
}

/// The score over one file.
pub(super) struct Tally {
    file: &'static str,
    passed: usize,
    failed: usize,
}

impl Tally {
    /// A fresh score for `file`.
    pub(super) fn new(file: &'static str) -> Self {
        Self {
            file,
            passed: 0,
            failed: 0,
        }
    }

    /// Counts one row; a mismatch is printed at once, so that all of them are seen in one run.
    pub(super) fn count(&mut self, id: &str, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(mismatch) => {
                self.failed += 1;
                say(&format!("{} {id}: {mismatch}", self.file));
            }
        }
    }

    /// Prints the score, and fails the test when a row failed or the file was empty.
    pub(super) fn finish(self) {
        say(&format!(
            "{}: passed {}, failed {}",
            self.file, self.passed, self.failed
        ));
        assert_eq!(self.failed, 0, "{}: see the mismatches above", self.file);
        assert!(self.passed > 0, "{}: no rows", self.file);
    }
}

/// Prints past the test runner, which keeps to itself what `println!` of a passing test says.
pub(super) fn say(line: &str) {
    // Nobody to tell is no reason to fail.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
