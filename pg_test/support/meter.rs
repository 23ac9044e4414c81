//! What benchmarks measure with: a client without any of the product, and the CPU time of a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// One connection that posts and waits for the answer, nothing more.
pub struct Bare {
    stream: BufReader<TcpStream>,
    host: String,
}

impl Bare {
    /// Connects to a receiver.
    pub fn connect(address: SocketAddr) -> Bare {
        let stream = TcpStream::connect(address).expect("the receiver listens");
        stream.set_nodelay(true).expect("a TCP socket");
        Bare {
            stream: BufReader::new(stream),
            host: address.to_string(),
        }
    }

    /// Posts a body to `/bare` and reads the whole answer.
    pub fn post(&mut self, id: &str, body: &str) {
        let request = format!(
            "POST /bare HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\nwebhook-id: {id}\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.stream
            .get_mut()
            .write_all(request.as_bytes())
            .expect("the receiver reads");
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.stream
                .read_line(&mut line)
                .expect("the receiver answers");
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line.is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        self.stream
            .read_exact(&mut answer)
            .expect("the whole answer");
    }
}

/// User and system time of a process in seconds, by ticks of 10 ms.
pub fn cpu_seconds(pid: i32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process exists");
    // The name of the process stands in parentheses and may hold spaces.
    let after = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}
