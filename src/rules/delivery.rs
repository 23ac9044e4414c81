//! The words of a delivery: what may come back from an attempt, and the states a delivery passes through.
//!
//! Glossary, used everywhere and with no synonyms:
//!
//! - **event**: the fact. It has an id, a type, a partner and a body, and never changes.
//! - **endpoint**: a subscription of one partner: a URL, event types, keys.
//! - **delivery**: one event for one endpoint, whatever it takes.
//! - **attempt**: one HTTP request of a delivery, numbered from 1.
//! - **outcome**: what came back from an attempt. It is data, never an error.
//! - **verdict**: what follows from an outcome. [`crate::rules::policy`] decides it, nobody else.
//!
//! This file only names things: it decides nothing and does nothing. The words are stored and shown, so a
//! spelling, once released, is never changed.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// Defines an enum whose members have a fixed spelling, so that the spelling is written down once.
macro_rules! words {
    (
        $(#[$of_enum:meta])*
        $name:ident, $what:literal { $( $(#[$of_member:meta])* $member:ident = $text:literal, )+ }
    ) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( $(#[$of_member])* $member, )+ }

        impl $name {
            /// Every member, in the order of definition.
            pub const ALL: &'static [Self] = &[ $( Self::$member, )+ ];

            /// The spelling in tables, views and logs.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$member => $text, )+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = WordError;

            fn from_str(text: &str) -> Result<Self, WordError> {
                match text { $( $text => Ok(Self::$member), )+ _ => Err(WordError($what)) }
            }
        }
    };
}

words! {
    /// What kind of trouble an attempt met. An outcome without a category is a delivered one.
    ///
    /// What follows from each ([`crate::rules::policy`]), and how it moves the endpoint's adaptive window
    /// ([`crate::rules::adaptive`]; – is nothing, and while the window is shut a probe that failed):
    ///
    /// | category | when | verdict | window |
    /// |---|---|---|---|
    /// | `dns`, `connect_refused`, `connect_timeout`, `connect_failed`, `tls`, `timeout` | no usable answer | retry by schedule | down |
    /// | `protocol` | not HTTP, or a status that is not a final one | retry by schedule | neutral |
    /// | `server_error` (5xx), `rate_limited` (429), `request_timeout` (408), `too_early` (425) | | retry by schedule, Retry-After honoured | 429, 502, 503, 504 down; else neutral |
    /// | `client_error` (other 4xx) | persistent receiver error | dead after `client_error_attempts` | neutral |
    /// | `redirect` (3xx) | never followed | as `client_error` | neutral |
    /// | `gone` (410) | | dead; endpoint disabled | – |
    /// | `blocked` | address, port or URL refused by the boundary | retry by schedule (DNS may be mended), alert at once | – |
    /// | `filter`, `conversion` | content rule failed | hold, alert | – |
    /// | `lost` | the worker died, the request may have been sent | retry at once, numbered | – |
    /// | `expired` | older than the maximum age or the retention | dead | – |
    /// | `internal` | our own fault | retry by schedule, not charged to the endpoint | – |
    /// | none (2xx) | | delivered | up; a slow one down, never below 1 |
    Category, "error category" {
        /// The host name could not be resolved.
        Dns = "dns",
        /// The receiver refused the connection.
        ConnectRefused = "connect_refused",
        /// No connection within the time allowed for it.
        ConnectTimeout = "connect_timeout",
        /// The connection failed in another way (unreachable, reset).
        ConnectFailed = "connect_failed",
        /// The TLS handshake failed, the certificate included.
        Tls = "tls",
        /// The whole exchange took longer than allowed; the phase says where it stood.
        Timeout = "timeout",
        /// What came back was not HTTP, or not a final answer; the phase says where it broke.
        Protocol = "protocol",
        /// Status 5xx.
        ServerError = "server_error",
        /// Status 429.
        RateLimited = "rate_limited",
        /// Status 408.
        RequestTimeout = "request_timeout",
        /// Status 425.
        TooEarly = "too_early",
        /// A status 4xx without a category of its own.
        ClientError = "client_error",
        /// Status 3xx: recorded, never followed.
        Redirect = "redirect",
        /// Status 410: the receiver wants nothing more.
        Gone = "gone",
        /// The boundary refused the address, the port or the URL.
        Blocked = "blocked",
        /// The endpoint's filter failed on this event.
        Filter = "filter",
        /// The event could not be brought into the shape the endpoint wants.
        Conversion = "conversion",
        /// The worker died while the request may have been on its way.
        Lost = "lost",
        /// Older than the maximum age or the retention.
        Expired = "expired",
        /// Our own fault, not the receiver's.
        Internal = "internal",
    }
}

words! {
    /// How far an exchange had come when it failed.
    Phase, "phase" {
        /// Looking up the host name.
        Resolve = "resolve",
        /// Opening the connection.
        Connect = "connect",
        /// The TLS handshake.
        Tls = "tls",
        /// Sending the request.
        Send = "send",
        /// Waiting for and reading status and headers.
        Headers = "headers",
        /// Reading the response body.
        Body = "body",
    }
}

words! {
    /// Where a delivery stands.
    State, "delivery state" {
        /// Not attempted yet.
        Pending = "pending",
        /// Attempted, and to be attempted again.
        Retrying = "retrying",
        /// The receiver answered 2xx.
        Delivered = "delivered",
        /// Given up; a dead letter, until someone decides.
        Dead = "dead",
        /// The endpoint was disabled, expired or deleted meanwhile.
        Cancelled = "cancelled",
        /// An operator chose not to send it.
        Skipped = "skipped",
        /// An operator settled a dead letter.
        Closed = "closed",
    }
}

/// What an attempt met: an HTTP status, whichever, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The receiver answered.
    Status {
        /// The status code as received.
        code: u16,
        /// The field lines of `Retry-After`, raw and in order.
        retry_after: Vec<String>,
    },
    /// There was no answer, or the exchange was not finished.
    Failure {
        /// What kind of trouble.
        category: Category,
        /// How far the exchange had come, where that is known.
        phase: Option<Phase>,
        /// One bounded line in our own words: never a payload, a secret or text of the receiver.
        detail: String,
    },
}

/// Everything that is kept of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When the attempt began, by the wall clock, in Unix microseconds.
    pub started_at: i64,
    /// How long it took, by the monotonic clock, in microseconds.
    pub latency_us: u64,
    /// What came back.
    pub answer: Answer,
    /// A bounded raw prefix of the response body.
    pub excerpt: Vec<u8>,
    /// How many bytes of the response body were read.
    pub response_bytes: u64,
    /// The ids of the keys that signed, in the order of the signatures.
    pub key_ids: Vec<i64>,
}

/// A text is none of the words it should be one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordError(&'static str);

impl fmt::Display for WordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid {}", self.0)
    }
}

impl Error for WordError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_as_itself() {
        for &category in Category::ALL {
            assert_eq!(category.as_str().parse(), Ok(category));
        }
        for &phase in Phase::ALL {
            assert_eq!(phase.as_str().parse(), Ok(phase));
        }
        for &state in State::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
    }

    #[test]
    fn words_keep_their_released_spelling() {
        let spelling = |words: Vec<&str>| words.join(" ");
        assert_eq!(
            spelling(Category::ALL.iter().map(|c| c.as_str()).collect()),
            "dns connect_refused connect_timeout connect_failed tls timeout protocol server_error \
             rate_limited request_timeout too_early client_error redirect gone blocked filter \
             conversion lost expired internal"
        );
        assert_eq!(
            spelling(Phase::ALL.iter().map(|p| p.as_str()).collect()),
            "resolve connect tls send headers body"
        );
        assert_eq!(
            spelling(State::ALL.iter().map(|s| s.as_str()).collect()),
            "pending retrying delivered dead cancelled skipped closed"
        );
    }

    #[test]
    fn another_spelling_is_no_word() {
        assert!("DNS".parse::<Category>().is_err());
        assert!("".parse::<State>().is_err());
        assert!("pending ".parse::<State>().is_err());
        assert_eq!(
            "sent".parse::<State>().unwrap_err().to_string(),
            "invalid delivery state"
        );
    }
}
