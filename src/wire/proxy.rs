//! Tunnels through the operator's proxy: CONNECT (RFC 9110 section 9.3.6) to the address that was vetted,
//! never to a name, so that the proxy looks nothing up. TLS to the receiver is spoken inside, by `dial`.
//! What goes wrong up to the proxy's answer is our own affair and no fault of the receiver.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ureq::Error;
use zeroize::Zeroizing;

use crate::rules::proxy::Proxy;
use crate::wire::classify::{self, Fault, ProxyFault};
use crate::wire::dial;
use crate::wire::lookup::Lookups;

/// The most that a proxy may answer, informational responses included.
const MAX_ANSWER: usize = 16 * 1024;
const MAX_LINES: usize = 100;

/// A way through the proxy.
pub(super) struct Tunnel {
    proxy: Proxy,
    lookups: Arc<Lookups>,
}

impl Tunnel {
    pub(super) fn new(proxy: Proxy, lookups: Arc<Lookups>) -> Tunnel {
        Tunnel { proxy, lookups }
    }

    /// A connection to one of the target's vetted addresses, and which. The proxy is asked for the next
    /// address when it could not reach one.
    pub(super) fn connect(
        &self,
        targets: &[SocketAddr],
        deadline: Instant,
    ) -> Result<(TcpStream, SocketAddr), Error> {
        let mut failure = fault(ProxyFault::Late);
        for (index, target) in targets.iter().enumerate() {
            let Some(share) = dial::share(deadline, index + 1 < targets.len()) else {
                break;
            };
            match self.open(*target, Instant::now() + share) {
                Ok(stream) => return Ok((stream, *target)),
                Err(Trouble::WithTarget(error)) => failure = error,
                Err(Trouble::WithProxy(error)) => return Err(error),
            }
        }
        Err(failure)
    }

    fn open(&self, target: SocketAddr, deadline: Instant) -> Result<TcpStream, Trouble> {
        let addresses = self.addresses(deadline)?;
        let (mut stream, _) = dial::connect(&addresses, deadline).map_err(of_connecting)?;
        self.ask(&mut stream, target, deadline)?;
        match answer(&mut stream, deadline)? {
            200..=299 => Ok(stream),
            status @ 502..=504 => Err(Trouble::WithTarget(fault(ProxyFault::Status(status)))),
            status => Err(Trouble::WithProxy(fault(ProxyFault::Status(status)))),
        }
    }

    fn addresses(&self, deadline: Instant) -> Result<Vec<SocketAddr>, Trouble> {
        let Proxy { host, port, .. } = &self.proxy;
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, *port)]);
        }
        match self.lookups.find(host, deadline) {
            Ok(addresses) => Ok(addresses
                .iter()
                .map(|address| SocketAddr::new(*address, *port))
                .collect()),
            Err(_) => Err(Trouble::WithProxy(fault(ProxyFault::Unresolved))),
        }
    }

    fn ask(
        &self,
        stream: &mut TcpStream,
        target: SocketAddr,
        deadline: Instant,
    ) -> Result<(), Trouble> {
        // As it was judged: an IPv4-mapped address is an IPv4 address, also to the rules of the proxy. Without
        // a zone, which means nothing to another machine.
        let target = SocketAddr::new(target.ip().to_canonical(), target.port());
        let mut request =
            Zeroizing::new(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"));
        if let Some(credentials) = &self.proxy.credentials {
            request.push_str("Proxy-Authorization: ");
            request.push_str(&credentials.basic());
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        stream
            .set_write_timeout(Some(left(deadline)?))
            .and_then(|()| stream.write_all(request.as_bytes()))
            .map_err(of_io)
    }
}

/// Whether another address of the target is worth a try.
enum Trouble {
    WithTarget(Error),
    WithProxy(Error),
}

/// The status of the proxy's answer. Nothing may come after it: the receiver does not speak first, neither
/// in TLS nor in HTTP, so what is there is not from it.
fn answer(stream: &mut TcpStream, deadline: Instant) -> Result<u16, Trouble> {
    let not_http = || Trouble::WithProxy(fault(ProxyFault::NotHttp));
    let mut input = Vec::new();
    let mut buffer = [0; 1024];
    let mut heard = 0;
    loop {
        stream
            .set_read_timeout(Some(left(deadline)?))
            .map_err(of_io)?;
        let amount = match stream.read(&mut buffer) {
            Ok(0) => return Err(Trouble::WithProxy(fault(ProxyFault::Closed))),
            Ok(amount) => amount,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(of_io(error)),
        };
        input.extend_from_slice(buffer.get(..amount).unwrap_or_default());
        heard += amount;
        if heard > MAX_ANSWER {
            return Err(not_http());
        }
        while let Some((length, status)) = head(&input).map_err(|()| not_http())? {
            let rest = input.split_off(length.min(input.len()));
            match status {
                100..=199 => input = rest,
                200..=299 if !rest.is_empty() => return Err(not_http()),
                status => return Ok(status),
            }
        }
    }
}

/// The status of an answer, without the reasons of a failure.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn status(stream: &mut TcpStream, deadline: Instant) -> Result<u16, ()> {
    answer(stream, deadline).map_err(|_| ())
}

/// Length and status of the head that the input starts with, once it is whole.
fn head(input: &[u8]) -> Result<Option<(usize, u16)>, ()> {
    let mut lines = [httparse::EMPTY_HEADER; MAX_LINES];
    let mut head = httparse::Response::new(&mut lines);
    match head.parse(input) {
        Ok(httparse::Status::Complete(length)) => match head.code {
            Some(status @ 100..) => Ok(Some((length, status))),
            _ => Err(()),
        },
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => Err(()),
    }
}

fn left(deadline: Instant) -> Result<Duration, Trouble> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(late());
    }
    // A socket timeout is rounded down to microseconds, and zero would mean "wait for ever".
    Ok(left.max(Duration::from_millis(1)))
}

/// Most often the proxy waits for the target.
fn late() -> Trouble {
    Trouble::WithTarget(fault(ProxyFault::Late))
}

fn of_connecting(error: Error) -> Trouble {
    let kind = match error {
        Error::Io(error) if classify::is_ours(&error) => {
            return Trouble::WithProxy(error.into());
        }
        Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => ProxyFault::Refused,
        Error::Io(error) if error.kind() != ErrorKind::TimedOut => ProxyFault::Unreachable,
        _ => ProxyFault::Late,
    };
    Trouble::WithProxy(fault(kind))
}

fn of_io(error: std::io::Error) -> Trouble {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => late(),
        _ => Trouble::WithProxy(fault(ProxyFault::Closed)),
    }
}

fn fault(kind: ProxyFault) -> Error {
    Error::Other(Box::new(Fault::Proxy(kind)))
}
