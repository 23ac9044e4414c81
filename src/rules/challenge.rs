//! Challenges: what is sent to prove that somebody controls a callback URL, and which answers prove it.
//!
//! Responsible for the forms only (ours, Microsoft Graph's query echo, Slack's JSON). Refuses to send, to look
//! at a clock and to make up the value: it must be random, of one try only, and known to nobody else.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// Content type of our own form: no event has it.
pub const CONTENT_TYPE: &str = "application/webhook-challenge+json";
/// Header of our own form; it holds the value, so that a receiver need not parse the body.
pub const HEADER: &str = "webhook-challenge";
/// The longest answer that is looked at.
pub const MAX_ANSWER: usize = 4096;

/// How control of a URL is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Our own form: a signed POST of a content type of its own.
    Challenge,
    /// As Microsoft Graph does it: the value in the query, to be answered as plain text.
    Graph,
    /// As Slack does it: a JSON body of type `url_verification`.
    Slack,
}

impl Method {
    /// The method of a name; none for "none" and for what nobody knows.
    pub fn parse(name: &str) -> Option<Method> {
        match name {
            "challenge" => Some(Method::Challenge),
            "graph" => Some(Method::Graph),
            "slack" => Some(Method::Slack),
            _ => None,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Challenge => "challenge",
            Method::Graph => "graph",
            Method::Slack => "slack",
        }
    }

    /// How long the whole exchange may take: what the two others allow, and as much for ours.
    pub fn patience(self) -> Duration {
        match self {
            Method::Challenge | Method::Graph => Duration::from_secs(10),
            Method::Slack => Duration::from_secs(3),
        }
    }

    /// The URL to send to. A value is made of unreserved characters, so it needs no encoding.
    pub fn url(self, url: &str, value: &str) -> String {
        match self {
            Method::Challenge | Method::Slack => url.to_owned(),
            Method::Graph => {
                let sign = if url.contains('?') { '&' } else { '?' };
                format!("{url}{sign}validationToken={value}")
            }
        }
    }
}

/// One challenge: good for one try.
#[derive(Clone)]
pub struct Challenge {
    /// In which form.
    pub method: Method,
    /// The value to be echoed: unreserved characters of a URL only.
    pub value: String,
    /// The endpoint, as text.
    pub endpoint: String,
}

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Challenge({})", self.method.as_str())
    }
}

impl Challenge {
    /// The body.
    pub fn body(&self) -> String {
        match self.method {
            Method::Challenge => {
                serde_json::json!({ "challenge": self.value, "endpoint_id": self.endpoint })
                    .to_string()
            }
            Method::Graph => String::new(),
            // Slack's token tells the receiver which application asks; ours is the endpoint.
            Method::Slack => serde_json::json!({
                "challenge": self.value, "token": self.endpoint, "type": "url_verification"
            })
            .to_string(),
        }
    }

    /// The headers of the form, content type included.
    pub fn headers(&self) -> Vec<(String, String)> {
        let kind = match self.method {
            Method::Challenge => CONTENT_TYPE,
            Method::Graph => "text/plain; charset=utf-8",
            Method::Slack => "application/json",
        };
        let mut headers = vec![("content-type".to_owned(), kind.to_owned())];
        if self.method == Method::Challenge {
            headers.push((HEADER.to_owned(), self.value.clone()));
        }
        headers
    }

    /// Whether an answer proves control; if not, what is wrong with it. `body` is at most one byte longer
    /// than [`MAX_ANSWER`]: that much is known to be too long.
    pub fn judge(&self, status: u16, kind: Option<&str>, body: &[u8]) -> Result<(), &'static str> {
        match (self.method, status) {
            (Method::Graph, 200) | (Method::Challenge | Method::Slack, 200..=299) => {}
            (_, 300..=399) => return Err("redirects are not followed"),
            (Method::Graph, 201..=299) => return Err("the status is not 200"),
            _ => return Err("the status is not a success"),
        }
        if body.len() > MAX_ANSWER {
            return Err("the answer is longer than 4 kB");
        }
        let text = body.trim_ascii();
        if text.is_empty() {
            return Err("the answer is empty");
        }
        let echoed = match self.method {
            Method::Graph if media_type(kind) != "text/plain" => {
                return Err("the answer is not text/plain");
            }
            Method::Graph => same(text, self.value.as_bytes()),
            Method::Challenge => self.is_value(text) || self.is_json(text)?,
            Method::Slack => self.is_value(text) || self.is_form(text) || self.is_json(text)?,
        };
        if echoed {
            Ok(())
        } else {
            Err("the answer is not the value of this challenge")
        }
    }

    fn is_value(&self, text: &[u8]) -> bool {
        same(text, self.value.as_bytes())
    }

    fn is_form(&self, text: &[u8]) -> bool {
        text.strip_prefix(b"challenge=")
            .is_some_and(|value| same(value, self.value.as_bytes()))
    }

    fn is_json(&self, text: &[u8]) -> Result<bool, &'static str> {
        let Ok(Value::Object(answer)) = serde_json::from_slice::<Value>(text) else {
            return Ok(false);
        };
        let echoed = answer
            .get("challenge")
            .and_then(Value::as_str)
            .is_some_and(|value| same(value.as_bytes(), self.value.as_bytes()));
        // A server that returns whatever it is sent has agreed to nothing.
        if echoed && serde_json::from_str::<Value>(&self.body()).ok() == Some(Value::Object(answer))
        {
            return Err("the answer is the request itself");
        }
        Ok(echoed)
    }
}

/// The type without its parameters, in lower case.
fn media_type(kind: Option<&str>) -> String {
    kind.unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Compares in a time that does not depend on where the texts differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .fold(0_u8, |differ, (a, b)| differ | (a ^ b))
            == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "pv_m0Z8Hh2c6y3CkqJp1Xo-Tq9wNcE5vJ0bS7dUa4Rg";

    fn challenge(method: Method) -> Challenge {
        Challenge {
            method,
            value: VALUE.to_owned(),
            endpoint: "42".to_owned(),
        }
    }

    fn judge(method: Method, body: &str) -> Result<(), &'static str> {
        challenge(method).judge(200, Some("text/plain; charset=utf-8"), body.as_bytes())
    }

    #[test]
    fn the_value_alone_or_in_json_proves_control() {
        let json = format!("{{\"challenge\": \"{VALUE}\"}}");
        assert_eq!(judge(Method::Challenge, VALUE), Ok(()));
        assert_eq!(judge(Method::Challenge, &format!("{VALUE}\r\n")), Ok(()));
        assert_eq!(judge(Method::Challenge, &json), Ok(()));
        assert_eq!(judge(Method::Slack, VALUE), Ok(()));
        assert_eq!(judge(Method::Slack, &json), Ok(()));
        assert_eq!(judge(Method::Slack, &format!("challenge={VALUE}")), Ok(()));
        assert_eq!(judge(Method::Graph, VALUE), Ok(()));
    }

    #[test]
    fn nothing_else_does() {
        let json = format!("{{\"challenge\": \"{VALUE}\"}}");
        let nested = format!("{{\"body\": {json}}}");
        let page = format!("<html>{VALUE}</html>");
        let shorter = &VALUE[1..];
        for method in [Method::Challenge, Method::Slack, Method::Graph] {
            for answer in [shorter, "OK", "", "{}", "[]", "null", &nested, &page] {
                assert!(judge(method, answer).is_err(), "{method:?} {answer}");
            }
            assert!(
                challenge(method)
                    .judge(302, Some("text/plain"), VALUE.as_bytes())
                    .is_err()
            );
            assert!(
                challenge(method)
                    .judge(500, Some("text/plain"), VALUE.as_bytes())
                    .is_err()
            );
            let long = format!("{VALUE}{}", " ".repeat(MAX_ANSWER));
            assert_eq!(judge(method, &long), Err("the answer is longer than 4 kB"));
        }
        assert!(judge(Method::Graph, &json).is_err());
        assert!(judge(Method::Challenge, &format!("challenge={VALUE}")).is_err());
    }

    #[test]
    fn a_server_that_returns_the_request_proves_nothing() {
        for method in [Method::Challenge, Method::Slack] {
            let body = challenge(method).body();
            assert_eq!(
                judge(method, &body),
                Err("the answer is the request itself")
            );
        }
    }

    #[test]
    fn graph_wants_200_and_plain_text() {
        let graph = challenge(Method::Graph);
        let answer = |status, kind| graph.judge(status, kind, VALUE.as_bytes());
        assert_eq!(answer(200, Some("Text/Plain")), Ok(()));
        assert_eq!(
            answer(202, Some("text/plain")),
            Err("the status is not 200")
        );
        assert!(answer(200, Some("application/json")).is_err());
        assert!(answer(200, None).is_err());
    }

    #[test]
    fn the_query_of_graph_goes_behind_what_is_there() {
        let url = |url| Method::Graph.url(url, "v");
        assert_eq!(
            url("https://a.example/x"),
            "https://a.example/x?validationToken=v"
        );
        assert_eq!(
            url("https://a.example/x?tenant=7"),
            "https://a.example/x?tenant=7&validationToken=v"
        );
        assert_eq!(
            Method::Slack.url("https://a.example/x", "v"),
            "https://a.example/x"
        );
    }

    #[test]
    fn every_method_is_read_back_as_itself_and_none_is_no_method() {
        for method in [Method::Challenge, Method::Graph, Method::Slack] {
            assert_eq!(Method::parse(method.as_str()), Some(method));
        }
        assert_eq!(Method::parse("none"), None);
    }
}
