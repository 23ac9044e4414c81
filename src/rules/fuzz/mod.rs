//! What a fuzzer calls: each function takes any bytes, hands them to a parser of the rules and fails an assertion
//! when a promise is broken. The crate in `fuzz/` finds new bytes; the tests replay those it kept.
//!
//! The checks know the answer from elsewhere (the standard library, a second reading in a few lines), not from the
//! function under test.

pub mod received;
pub mod secrets;
pub mod texts;
pub mod url_guard;

/// A text that must never come back in a message.
pub(crate) const CANARY: &str = "Kx7qZw9vKx7qZw9vKx7qZw9vKx7qZw9v";

/// Hands every file of `fuzz/corpus/<target>` to a target.
#[cfg(test)]
pub(crate) fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is part of the repository") {
        let path = entry.expect("a readable folder").path();
        let data = std::fs::read(&path).expect("a readable file");
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&data)));
        assert!(passed.is_ok(), "{} fails", path.display());
        count += 1;
    }
    assert!(count > 10, "{}: {count} files", folder.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_of_the_corpus_breaks_a_promise() {
        replay("received", received::run);
    }

    #[test]
    fn no_secret_of_the_corpus_breaks_a_promise() {
        replay("secrets", secrets::run);
    }

    #[test]
    fn no_text_of_the_corpus_breaks_a_promise() {
        replay("texts", texts::run);
    }
}
