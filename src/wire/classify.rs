//! Turns what ureq, rustls and the sockets report into a category and a phase. It looks at types and
//! error numbers, never at a message, and its details are words of our own: nothing that a receiver
//! sent can get into them.

use std::io::{self, ErrorKind};
use std::net::IpAddr;

use nix::errno::Errno;
use rustls::{CertificateError, Error as TlsError};
use ureq::Error;

use crate::rules::address::Denied;
use crate::rules::delivery::{Answer, Category, Phase};
use crate::wire::exchange::Progress;

/// Failures that ureq has no word for; they travel inside `ureq::Error::Other`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// An address of the host is outside the boundary.
    Blocked { address: IpAddr, denied: Denied },
    /// The name has no address.
    NotFound,
    /// No answer to the look-up in time.
    LookupLate,
    /// The look-up failed for want of something of our own.
    LookupOurs,
    /// The host is no name that TLS can check.
    ServerName,
    /// The connection leads to another address than the one that was vetted.
    Strayed,
    /// The operator's proxy did not make the connection.
    Proxy(ProxyFault),
}

/// Why there is no way through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxyFault {
    /// Its name has no address.
    Unresolved,
    /// It refused the TCP connection.
    Refused,
    /// It cannot be reached.
    Unreachable,
    /// No connection, or no answer, in time.
    Late,
    /// It closed the connection.
    Closed,
    /// It answered something else than HTTP.
    NotHttp,
    /// It answered with this status.
    Status(u16),
}

impl std::fmt::Display for ProxyFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProxyFault::Unresolved => f.write_str("could not resolve the name of the proxy"),
            ProxyFault::Refused => f.write_str("proxy refused the connection"),
            ProxyFault::Unreachable => f.write_str("could not connect to the proxy"),
            ProxyFault::Late => f.write_str("proxy did not connect in time"),
            ProxyFault::Closed => f.write_str("proxy closed the connection"),
            ProxyFault::NotHttp => f.write_str("proxy did not answer in HTTP"),
            ProxyFault::Status(403) => f.write_str("proxy does not permit the target (403)"),
            ProxyFault::Status(407) => f.write_str("proxy does not accept the credentials (407)"),
            ProxyFault::Status(status) => write!(f, "proxy could not connect ({status})"),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Blocked { address, denied } => {
                write!(f, "host resolves to {address}, which is in {denied}")
            }
            Fault::NotFound => f.write_str("could not resolve the host name"),
            Fault::LookupLate => f.write_str("could not resolve the host name in time"),
            Fault::LookupOurs => f.write_str("could not start a look-up of the host name"),
            Fault::ServerName => f.write_str("host is not a name that a certificate can hold"),
            Fault::Strayed => {
                f.write_str("connection leads to another address than the vetted one")
            }
            Fault::Proxy(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

/// Whether an I/O error is for want of something on this machine, so that no receiver is to blame.
pub(super) fn is_ours(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS)
    )
}

/// Whether the peer had closed the connection.
pub(super) fn is_closed(error: &Error) -> bool {
    matches!(
        error,
        Error::Io(error) if matches!(
            error.kind(),
            ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::NotConnected
        )
    )
}

/// The answer that stands for a failed exchange.
pub(super) fn failure(error: &Error, progress: Progress) -> Answer {
    let phase = progress.phase;
    match error {
        Error::Other(inner) => match inner.downcast_ref::<Fault>() {
            Some(fault) => of_fault(fault),
            None => internal("HTTP client failed"),
        },
        Error::Timeout(_) => of_timeout(phase),
        Error::Io(error) => of_io(error, phase),
        Error::Protocol(_) | Error::BodyStalled => match phase {
            Some(Phase::Headers) => not_http(phase, "response is not HTTP"),
            Some(Phase::Body) => not_http(phase, "response body is not HTTP"),
            _ => internal("request could not be built"),
        },
        Error::LargeResponseHeader(..) => not_http(phase, "response headers are too large"),
        Error::Rustls(error) => of_tls(error, phase),
        Error::Http(_) | Error::BadUri(_) => internal("request could not be built"),
        _ => internal("HTTP client failed"),
    }
}

/// An answer that is our own fault.
pub(super) fn internal(detail: &str) -> Answer {
    fail(Category::Internal, None, detail)
}

fn fail(category: Category, phase: Option<Phase>, detail: &str) -> Answer {
    Answer::Failure {
        category,
        phase,
        detail: detail.to_owned(),
    }
}

fn not_http(phase: Option<Phase>, detail: &str) -> Answer {
    fail(Category::Protocol, phase, detail)
}

fn of_fault(fault: &Fault) -> Answer {
    let (category, phase) = match fault {
        Fault::Blocked { .. } => (Category::Blocked, Some(Phase::Resolve)),
        Fault::NotFound | Fault::LookupLate => (Category::Dns, Some(Phase::Resolve)),
        Fault::LookupOurs => (Category::Internal, Some(Phase::Resolve)),
        Fault::ServerName => (Category::Tls, Some(Phase::Tls)),
        Fault::Strayed => (Category::Blocked, Some(Phase::Connect)),
        Fault::Proxy(_) => (Category::Internal, Some(Phase::Connect)),
    };
    fail(category, phase, &fault.to_string())
}

fn of_timeout(phase: Option<Phase>) -> Answer {
    let (category, detail) = match phase {
        None => (Category::Internal, "no time was left to start the request"),
        Some(Phase::Resolve) => (Category::Dns, "could not resolve the host name in time"),
        Some(Phase::Connect) => (Category::ConnectTimeout, "could not connect in time"),
        Some(Phase::Tls) => (Category::Timeout, "TLS handshake was not done in time"),
        Some(Phase::Send) => (Category::Timeout, "request was not taken in time"),
        Some(Phase::Headers) => (Category::Timeout, "response headers did not come in time"),
        Some(Phase::Body) => (Category::Timeout, "response body did not end in time"),
    };
    fail(category, phase, detail)
}

fn of_io(error: &io::Error, phase: Option<Phase>) -> Answer {
    if is_ours(error) {
        return fail(
            Category::Internal,
            phase,
            "out of file descriptors or memory",
        );
    }
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<TlsError>());
    if let Some(error) = tls {
        return of_tls(error, phase);
    }
    match phase {
        None | Some(Phase::Resolve) => internal("HTTP client failed"),
        Some(Phase::Connect) => match error.kind() {
            ErrorKind::ConnectionRefused => {
                fail(Category::ConnectRefused, phase, "connection refused")
            }
            ErrorKind::TimedOut | ErrorKind::WouldBlock => of_timeout(phase),
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                fail(Category::ConnectFailed, phase, "host is unreachable")
            }
            _ => fail(Category::ConnectFailed, phase, "could not connect"),
        },
        Some(Phase::Tls) => fail(
            Category::Tls,
            phase,
            "connection was closed during the TLS handshake",
        ),
        Some(Phase::Send) => not_http(phase, "connection was closed while the request was sent"),
        Some(Phase::Headers) => {
            not_http(phase, "connection was closed before the response headers")
        }
        Some(Phase::Body) => not_http(phase, "connection was closed within the response body"),
    }
}

fn of_tls(error: &TlsError, phase: Option<Phase>) -> Answer {
    let detail = match error {
        TlsError::InvalidCertificate(reason) => match reason {
            CertificateError::UnknownIssuer => "certificate is not from a trusted issuer",
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "certificate is not for the name of the host"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "certificate is not valid yet"
            }
            CertificateError::Revoked => "certificate is revoked",
            _ => "certificate is not valid",
        },
        TlsError::NoCertificatesPresented => "no certificate was presented",
        TlsError::InvalidMessage(_) => "peer does not speak TLS",
        TlsError::PeerIncompatible(_) => "peer has no TLS version or cipher in common with us",
        TlsError::AlertReceived(_) => "peer refused the TLS connection",
        _ => "TLS failed",
    };
    fail(Category::Tls, phase, detail)
}
