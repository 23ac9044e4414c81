//! A connection, with or without TLS, and the requests that are read from it.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::{Arc, atomic::Ordering},
    time::{Instant, SystemTime},
};

use rustls::{ServerConnection, StreamOwned};

use crate::receiver::{Request, Shared, TICK};

const LARGEST_HEAD: usize = 1 << 20;

/// A connection with or without TLS.
pub(super) enum Line {
    Plain(TcpStream),
    Secure(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Line {
    /// Begins to serve a connection that was accepted.
    pub(super) fn new(stream: TcpStream, shared: &Shared) -> io::Result<Line> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        let Some(config) = &shared.tls else {
            return Ok(Line::Plain(stream));
        };
        let tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        Ok(Line::Secure(Box::new(StreamOwned::new(tls, stream))))
    }

    /// The TCP connection below.
    pub(super) fn stream(&self) -> &TcpStream {
        match self {
            Line::Plain(stream) => stream,
            Line::Secure(secure) => &secure.sock,
        }
    }
}

impl Read for Line {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Line::Plain(stream) => stream.read(into),
            Line::Secure(secure) => secure.read(into),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Line::Plain(stream) => stream.write(bytes),
            Line::Secure(secure) => secure.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Line::Plain(stream) => stream.flush(),
            Line::Secure(secure) => secure.flush(),
        }
    }
}

/// The next request, or None when the sender has closed. What follows it stays in `buffer`.
pub(super) fn read_request(
    line: &mut Line,
    buffer: &mut Vec<u8>,
    connection: u64,
    shared: &Shared,
) -> io::Result<Option<Request>> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if buffer.len() > LARGEST_HEAD || !read_more(line, buffer, shared)? {
            return Ok(None);
        }
    };
    let head: Vec<u8> = buffer.drain(..end).collect();
    let text = String::from_utf8_lossy(&head);
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (
        first.next().unwrap_or_default().to_owned(),
        first.next().unwrap_or_default().to_owned(),
    );
    let headers: Vec<(String, String)> = lines
        .filter_map(|header| header.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0_usize);
    while buffer.len() < length {
        if !read_more(line, buffer, shared)? {
            return Ok(None);
        }
    }
    let body = buffer.drain(..length).collect();
    let (at, wall) = (Instant::now(), SystemTime::now());
    Ok(Some(Request {
        at,
        wall,
        connection,
        method,
        target,
        headers,
        head,
        body,
    }))
}

fn read_more(line: &mut Line, buffer: &mut Vec<u8>, shared: &Shared) -> io::Result<bool> {
    let mut piece = [0; 16 << 10];
    let size = read_some(line, &mut piece, shared)?;
    buffer.extend_from_slice(&piece[..size]);
    Ok(size > 0)
}

/// Reads at least one byte; 0 when the sender has closed or the receiver ends.
pub(super) fn read_some(line: &mut Line, into: &mut [u8], shared: &Shared) -> io::Result<usize> {
    while !shared.stopping.load(Ordering::SeqCst) {
        match line.read(into) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
    Ok(0)
}
