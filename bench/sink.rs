//! The receiver, seen from the process that measures: well above what any client reaches, and a process of its own, as
//! receivers are.

use std::{
    cell::RefCell,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use crate::receiver::{self, ask};

/// The name of the part that is the receiver.
pub const RECEIVER: &str = "receiver";

/// The receiver; it ends with this value.
pub struct Sink {
    address: SocketAddr,
    questions: RefCell<Questions>,
}

struct Questions {
    child: Child,
    /// None = it has been asked to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Sink {
    /// Starts listening on a free port of the loopback interface.
    pub fn start() -> Sink {
        let program = std::env::current_exe().expect("the path of this program");
        let mut child = Command::new(program)
            .arg(RECEIVER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a receiver");
        let input = child.stdin.take();
        let output = child.stdout.take().expect("its standard output");
        let mut questions = Questions {
            child,
            input,
            output: BufReader::new(output),
        };
        let port = questions.line().parse().expect("its port");
        Sink {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            questions: RefCell::new(questions),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL of it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests since the last `forget`.
    pub fn requests(&self) -> u64 {
        self.number(ask::REQUESTS)
    }

    /// Bytes of bodies since the last `forget`.
    pub fn bytes(&self) -> u64 {
        self.number(ask::BYTES)
    }

    /// When the first request since the last `forget` came.
    pub fn first(&self) -> Option<Instant> {
        let at = self.number(ask::FIRST);
        (at > 0).then(|| instant(at))
    }

    /// Begins to count anew.
    pub fn forget(&self) {
        self.number(ask::FORGET);
    }

    /// Whether ids and times are written down.
    pub fn record(&self, on: bool) {
        self.number(if on { ask::RECORD } else { ask::REST });
    }

    /// Event ids and when they came, in the order of arrival.
    pub fn take_arrivals(&self) -> Vec<(String, Instant)> {
        let mut questions = self.questions.borrow_mut();
        questions.ask(ask::ARRIVALS);
        let mut arrivals = Vec::new();
        loop {
            let line = questions.line();
            let Some((id, at)) = line.split_once(' ') else {
                return arrivals;
            };
            arrivals.push((id.to_owned(), instant(at.parse().expect("a time"))));
        }
    }

    fn number(&self, question: &str) -> u64 {
        let mut questions = self.questions.borrow_mut();
        questions.ask(question);
        questions.line().parse().expect("a number")
    }
}

impl Questions {
    fn ask(&mut self, question: &str) {
        let input = self.input.as_mut().expect("a receiver that goes on");
        writeln!(input, "{question}").expect("a receiver that listens");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let amount = self.output.read_line(&mut line);
        assert!(amount.is_ok_and(|amount| amount > 0), "the receiver ended");
        line.trim_end().to_owned()
    }
}

impl Drop for Questions {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// A time of the clock that both processes have.
fn instant(at: u64) -> Instant {
    Instant::now() - Duration::from_nanos(receiver::now().saturating_sub(at))
}
