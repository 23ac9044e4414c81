//! One request as it goes out: what is checked before it may, and its bytes. A header map iterates in the order of
//! insertion, so Host goes first; ureq adds nothing, for everything it would add is here.

use ureq::http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderName, TRANSFER_ENCODING,
    USER_AGENT,
};
use ureq::http::{HeaderMap, HeaderValue, Uri};

use crate::rules::target::Target;

/// Where to, and every header.
pub(super) struct Request {
    pub uri: Uri,
    pub headers: HeaderMap,
}

impl Request {
    /// Checks and puts together what is sent before a body of this length. `headers` come after Host, Content-Type
    /// (application/json unless they hold one), User-Agent and Content-Length.
    pub(super) fn new(
        uri: Uri,
        target: &Target,
        user_agent: &HeaderValue,
        headers: &[(String, String)],
        length: usize,
    ) -> Result<Request, &'static str> {
        let host = header_value(&target.authority()).ok_or("host cannot be sent")?;
        let mut map = HeaderMap::with_capacity(headers.len() + 4);
        map.insert(HOST, host);
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        map.insert(USER_AGENT, user_agent.clone());
        map.insert(CONTENT_LENGTH, HeaderValue::from(length));
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| "header name contains a character that it cannot hold")?;
            let value = header_value(value)
                .ok_or("header value contains a character that it cannot hold")?;
            if is_reserved(&name) || (name != CONTENT_TYPE && map.contains_key(&name)) {
                return Err("header is set twice");
            }
            map.insert(name, value);
        }
        Ok(Request { uri, headers: map })
    }

    /// Appends the request with its body, in HTTP/1.1 (RFC 9112 section 3), the same bytes that ureq writes.
    pub(super) fn write(&self, body: &[u8], into: &mut Vec<u8>) {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        into.extend_from_slice(b"POST ");
        if !path.starts_with('/') {
            into.push(b'/');
        }
        into.extend_from_slice(path.as_bytes());
        into.extend_from_slice(b" HTTP/1.1\r\n");
        for (name, value) in &self.headers {
            into.extend_from_slice(name.as_str().as_bytes());
            into.extend_from_slice(b": ");
            into.extend_from_slice(value.as_bytes());
            into.extend_from_slice(b"\r\n");
        }
        into.extend_from_slice(b"\r\n");
        into.extend_from_slice(body);
    }
}

/// Where a target is, in the words of ureq.
pub(super) fn uri(target: &Target) -> Result<Uri, &'static str> {
    Uri::try_from(target.url()).map_err(|_| "URL cannot be sent")
}

/// A header value of visible ASCII, spaces and tabs: no CR, LF or NUL that could start another
/// header, and nothing that receivers read in different ways.
pub(super) fn header_value(text: &str) -> Option<HeaderValue> {
    text.is_ascii()
        .then(|| HeaderValue::from_str(text).ok())
        .flatten()
}

/// Headers that only this file sets.
fn is_reserved(name: &HeaderName) -> bool {
    [
        HOST,
        USER_AGENT,
        CONTENT_LENGTH,
        TRANSFER_ENCODING,
        CONNECTION,
        EXPECT,
    ]
    .contains(name)
}
