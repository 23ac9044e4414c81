//! Informational responses (1xx, RFC 9110 section 15.2), of which any number may come before the
//! response. Finds them, so that the connection takes them out of the way: ureq takes a `100` with header
//! lines for no HTTP. What is no complete informational head is left to ureq to judge.

/// More informational responses than this are no way to answer. Their bytes are limited as well, with
/// those of all heads; see `exchange`.
pub(super) const MAX_INTERIM: usize = 100;
/// The most header lines of one head, as many as ureq reads in any.
const MAX_LINES: usize = 100;

/// How long the informational head is that the input starts with. `101` is none: it is an answer, to a
/// question that was not asked.
pub(super) fn length(input: &[u8]) -> Option<usize> {
    let mut lines = [httparse::EMPTY_HEADER; MAX_LINES];
    let mut head = httparse::Response::new(&mut lines);
    match head.parse(input) {
        Ok(httparse::Status::Complete(length)) => head
            .code
            .filter(|code| (100..200).contains(code) && *code != 101)
            .map(|_| length),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::length;

    #[test]
    fn an_informational_head_is_told_from_everything_else() {
        for (input, expected) in [
            ("HTTP/1.1 100 Continue\r\n\r\n", Some(25)),
            (
                "HTTP/1.1 100\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
                Some(22),
            ),
            ("HTTP/1.0 199 ?\r\na:\r\nb: \u{e4}\r\n\r\nx", Some(29)),
            // Not whole yet.
            ("", None),
            ("HTTP/1.1 1", None),
            ("HTTP/1.1 100 Continue\r\na: b\r\n", None),
            // Something else, or nothing at all.
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\n\r\n", None),
            ("HTTP/1.1 099 ?\r\n\r\n", None),
            ("HTTP/1.1 1000 ?\r\n\r\n", None),
            ("HTTP/1.1 100 Continue\r\nno header line\r\n\r\n", None),
            ("HTTP/2 100 Continue\r\n\r\n", None),
        ] {
            assert_eq!(length(input.as_bytes()), expected, "{input}");
        }
    }
}
