//! The words in which a test orders how a receiver answers. Data only: the receiver carries it out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// What answers wait behind until a test lets them out, so that a request is on the wire for as long as the test has
/// something to do meanwhile, whatever the pace of the machine.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// One that is shut.
    pub fn shut() -> Gate {
        Gate::default()
    }

    /// Opens it for good.
    pub fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// One answer to one request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The wait before anything is sent.
    pub before: Duration,
    /// What has to be open before anything is sent.
    pub gate: Option<Gate>,
    /// What is sent.
    pub what: What,
    /// Whether the connection is closed after it.
    pub close: bool,
}

/// What an answer consists of.
#[derive(Clone, Debug)]
pub enum What {
    /// An HTTP response.
    Respond {
        /// The status.
        status: u16,
        /// Header lines; the length of the body is added.
        headers: Vec<(String, String)>,
        /// The body and how it is sent.
        body: Body,
    },
    /// These bytes, whatever they are, and the end of the connection.
    Raw(Vec<u8>),
    /// These bytes, each part of them when the one before has certainly been read, and the end of the connection.
    Parts {
        /// The parts.
        parts: Vec<Vec<u8>>,
        /// Whether the end is a reset.
        reset: bool,
    },
    /// `first`, and then `again` without an end, `every` so often.
    Repeat {
        /// What is sent once.
        first: Vec<u8>,
        /// What is sent again and again.
        again: Vec<u8>,
        /// The wait after each piece.
        every: Duration,
    },
    /// The connection is reset.
    Reset,
    /// The connection is closed without a word.
    Close,
    /// Nothing, until the sender gives up.
    Hang,
}

/// The body of a response.
#[derive(Clone, Debug)]
pub enum Body {
    /// At once.
    Whole(Vec<u8>),
    /// In pieces of `size` bytes, each after `wait`.
    Slow {
        /// All of it.
        bytes: Vec<u8>,
        /// Bytes in a piece.
        size: usize,
        /// The wait before each piece.
        wait: Duration,
    },
    /// In pieces of `size` bytes with `wait` between them, without an end.
    Endless {
        /// Bytes in a piece.
        size: usize,
        /// The wait after each piece.
        wait: Duration,
    },
}

impl Answer {
    /// A response without a body.
    pub fn status(status: u16) -> Answer {
        Self::new(What::Respond {
            status,
            headers: Vec::new(),
            body: Body::Whole(Vec::new()),
        })
    }

    /// A redirect to `location`.
    pub fn redirect(status: u16, location: &str) -> Answer {
        Self::status(status).header("location", location)
    }

    /// Bytes of the test's own, then the end of the connection.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Answer {
        Self::new(What::Raw(bytes.into()))
    }

    /// Bytes of the test's own, and a reset connection in the middle of the answer.
    pub fn broken(bytes: impl Into<Vec<u8>>) -> Answer {
        Self::new(What::Parts {
            parts: vec![bytes.into()],
            reset: true,
        })
    }

    /// Bytes of the test's own that come one part after the other, then the end of the connection.
    pub fn parts<const N: usize>(parts: [&str; N]) -> Answer {
        Self::new(What::Parts {
            parts: parts.map(|part| part.as_bytes().to_vec()).to_vec(),
            reset: false,
        })
    }

    /// Bytes of the test's own, the second part of them again and again until the sender leaves.
    pub fn repeating(
        first: impl Into<Vec<u8>>,
        again: impl Into<Vec<u8>>,
        every: Duration,
    ) -> Answer {
        Self::new(What::Repeat {
            first: first.into(),
            again: again.into(),
            every,
        })
    }

    /// A reset connection.
    pub fn reset() -> Answer {
        Self::new(What::Reset)
    }

    /// A closed connection.
    pub fn close() -> Answer {
        Self::new(What::Close)
    }

    /// Silence.
    pub fn hang() -> Answer {
        Self::new(What::Hang)
    }

    /// Adds a header line.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Answer {
        if let What::Respond { headers, .. } = &mut self.what {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(self, bytes: impl Into<Vec<u8>>) -> Answer {
        self.with(Body::Whole(bytes.into()))
    }

    /// Sets a body that comes in pieces of `size` bytes, each after `wait`.
    #[must_use]
    pub fn slow_body(self, bytes: impl Into<Vec<u8>>, size: usize, wait: Duration) -> Answer {
        self.with(Body::Slow {
            bytes: bytes.into(),
            size,
            wait,
        })
    }

    /// Sets a body that never ends.
    #[must_use]
    pub fn endless_body(self, size: usize, wait: Duration) -> Answer {
        self.with(Body::Endless { size, wait })
    }

    /// Waits before the first byte.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Answer {
        self.before = wait;
        self
    }

    /// Waits until the gate is open, or the receiver ends.
    #[must_use]
    pub fn held(mut self, gate: &Gate) -> Answer {
        self.gate = Some(gate.clone());
        self
    }

    /// Closes the connection after the response, and says so.
    #[must_use]
    pub fn and_close(mut self) -> Answer {
        self.close = true;
        self.header("connection", "close")
    }

    fn new(what: What) -> Answer {
        Answer {
            before: Duration::ZERO,
            gate: None,
            what,
            close: false,
        }
    }

    fn with(mut self, new: Body) -> Answer {
        if let What::Respond { body, .. } = &mut self.what {
            *body = new;
        }
        self
    }
}

/// The reason phrase, for those who read a capture.
pub(crate) fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        404 => "Not Found",
        410 => "Gone",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Unnamed",
    }
}
