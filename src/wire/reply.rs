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

#[cfg(test)]
mod tests {
    use super::{MAX_REPLY, Reply, read};

    #[test]
    fn an_easy_response_is_told_from_its_beginning_and_from_everything_else() {
        let more = |body| Reply::More { body };
        let whole = |code, body| Reply::Whole { code, body };
        for (input, expected) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", whole(204, 27..27)),
            (
                "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
                whole(200, 35..37),
            ),
            (
                "HTTP/1.1 299 ?\r\ncontent-length:0\r\nconnection: Keep-Alive\r\n\r\n",
                whole(299, 60..60),
            ),
            // Not whole yet.
            ("", more(None)),
            ("HTTP/1.1 2", more(None)),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n", more(None)),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
                more(Some(38)),
            ),
            // Something else.
            ("HTTP/1.1 204 No Content\r\n\r\nx", Reply::Other),
            (
                "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n",
                Reply::Other,
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", Reply::Other),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokay",
                Reply::Other,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok",
                Reply::Other,
            ),
            ("HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\n", Reply::Other),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok",
                Reply::Other,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok",
                Reply::Other,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
                Reply::Other,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                Reply::Other,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ntransfer-encoding: x\r\n\r\n",
                Reply::Other,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                Reply::Other,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n",
                Reply::Other,
            ),
            ("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", Reply::Other),
            ("HTTP/1.1 100 Continue\r\n\r\n", Reply::Other),
            ("HTTP/1.1 300 ?\r\ncontent-length: 0\r\n\r\n", Reply::Other),
            ("HTTP/1.1 500 ?\r\ncontent-length: 0\r\n\r\n", Reply::Other),
            ("HTTP/1.1 200 OK\r\nno header line\r\n\r\n", Reply::Other),
            ("HTTP/2 200\r\n\r\n", Reply::Other),
            ("SSH-2.0", Reply::Other),
        ] {
            assert_eq!(read(input.as_bytes()), expected, "{input}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_REPLY));
        assert_eq!(read(endless.as_bytes()), Reply::Other);
        let long = format!("HTTP/1.1 200 OK\r\ncontent-length: {MAX_REPLY}\r\n\r\n");
        assert_eq!(read(long.as_bytes()), Reply::Other);
    }
}
