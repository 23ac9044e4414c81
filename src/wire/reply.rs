//! Reads the one kind of response that nearly all receivers give to nearly all events: a 2xx in HTTP/1.1 with a short
//! body of a known length, on a connection that stays. Everything else is left to ureq, byte for byte as it came; so
//! nothing here decides what a strange response means.

use std::ops::Range;

/// A response that is longer is not read here.
pub(super) const MAX_REPLY: usize = 16 * 1024;
/// The most header lines of one head, as many as ureq reads in any.
const MAX_LINES: usize = 100;

/// What the input holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The beginning of a response that may become an easy one.
    More {
        /// Where the body begins, once the head is whole.
        body: Option<usize>,
    },
    /// An easy response, and not a byte more.
    Whole { code: u16, body: Range<usize> },
    /// Something else.
    Other,
}

/// Looks at what came in so far.
pub(super) fn read(input: &[u8]) -> Reply {
    let mut lines = [httparse::EMPTY_HEADER; MAX_LINES];
    let mut head = httparse::Response::new(&mut lines);
    let length = match head.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() < MAX_REPLY => {
            return Reply::More { body: None };
        }
        _ => return Reply::Other,
    };
    let (Some(1), Some(code @ 200..=299)) = (head.version, head.code) else {
        return Reply::Other;
    };
    let mut announced = None;
    for line in head.headers.iter() {
        let is = |name: &str| line.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let Some(amount) = number(line.value) else {
                return Reply::Other;
            };
            if announced.replace(amount).is_some() {
                return Reply::Other;
            }
        } else if is("connection") {
            if !line.value.eq_ignore_ascii_case(b"keep-alive") {
                return Reply::Other;
            }
        } else if is("transfer-encoding") || is("upgrade") || is("retry-after") {
            return Reply::Other;
        }
    }
    let body = match (code, announced) {
        (204, None) => 0,
        (204, Some(_)) | (_, None) => return Reply::Other,
        (_, Some(amount)) => amount,
    };
    let end = length + body;
    if end > MAX_REPLY || input.len() > end {
        return Reply::Other;
    }
    if input.len() < end {
        return Reply::More { body: Some(length) };
    }
    Reply::Whole {
        code,
        body: length..end,
    }
}

/// A Content-Length of digits alone (RFC 9110 section 8.6), if it is a short one.
fn number(value: &[u8]) -> Option<usize> {
    let digits = !value.is_empty() && value.len() <= 6 && value.iter().all(u8::is_ascii_digit);
    digits
        .then(|| std::str::from_utf8(value).ok()?.parse().ok())
        .flatten()
}
