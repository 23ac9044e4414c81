//! TLS of a connection: rustls with ring, TLS 1.2 and 1.3, the name checked is the one in the URL.
//! There is no switch that turns verification off, no early data (a POST must not be replayable) and
//! no client certificate.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, LazyBuffers, NextTimeout, Transport, time,
};

use crate::wire::classify::Fault;
use crate::wire::socket::{INPUT_BUFFER, Now, OUTPUT_BUFFER, Socket, Until};

/// The TLS configuration of a client. `ca_pem` replaces all other roots. Without it the roots are the
/// system's; a machine that has none (a slim container) gets Mozilla's.
pub(super) fn config(ca_pem: Option<&[u8]>) -> Result<Arc<ClientConfig>, String> {
    let roots = match ca_pem {
        Some(pem) => given_roots(pem)?,
        None => common_roots(),
    };
    // The provider is named: the process-wide default may belong to another library.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("could not set up TLS: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn given_roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate =
            certificate.map_err(|_| "CA certificates are not valid PEM".to_owned())?;
        roots
            .add(certificate)
            .map_err(|_| "CA certificates contain one that cannot be used".to_owned())?;
    }
    if roots.is_empty() {
        return Err("CA certificates contain no certificate".to_owned());
    }
    Ok(roots)
}

fn common_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

/// Makes a TLS connection out of an open socket.
pub(super) fn shake_hands(
    config: &Arc<ClientConfig>,
    details: &ConnectionDetails,
    socket: Socket,
    deadline: Instant,
) -> Result<TlsSocket, Error> {
    let host = details.uri.host().unwrap_or_default();
    let name = ServerName::try_from(bare(host).to_owned())
        .map_err(|_| Error::Other(Box::new(Fault::ServerName)))?;
    let mut connection = ClientConnection::new(Arc::clone(config), name)?;
    let until = Until::from(NextTimeout {
        after: time::Duration::Exact(deadline.saturating_duration_since(Instant::now())),
        ..details.timeout
    });
    let mut timed = Timed { socket, until };
    connection.complete_io(&mut timed)?;
    Ok(TlsSocket {
        buffers: LazyBuffers::new(INPUT_BUFFER, OUTPUT_BUFFER),
        stream: StreamOwned::new(connection, timed),
    })
}

/// The host of a URL without the brackets around an IPv6 address.
pub(super) fn bare(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

/// A TLS connection over a `Socket`, with the buffers of the plain text.
pub(super) struct TlsSocket {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, Timed>,
}

/// The socket below, for a stream that knows no deadline.
struct Timed {
    socket: Socket,
    until: Until,
}

impl Read for Timed {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.socket
            .receive(room, self.until)
            .map_err(Error::into_io)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket
            .send(bytes, self.until)
            .map(|()| bytes.len())
            .map_err(Error::into_io)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsSocket {
    /// The socket below.
    pub(super) fn socket(&self) -> &Socket {
        &self.stream.sock.socket
    }

    /// Takes all of it, and writes what goes out at once. False = some is left, which goes out with the next read that
    /// waits.
    pub(super) fn send_now(&mut self, bytes: &[u8]) -> io::Result<bool> {
        self.stream.conn.writer().write_all(bytes)?;
        self.write_now()
    }

    fn write_now(&mut self) -> io::Result<bool> {
        let mut socket = Now(&self.stream.sock.socket);
        while self.stream.conn.wants_write() {
            match self.stream.conn.write_tls(&mut socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads what is there; `WouldBlock` when nothing is, 0 when the peer has closed in order.
    pub(super) fn read_now(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.conn.reader().read(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            let amount = self
                .stream
                .conn
                .read_tls(&mut Now(&self.stream.sock.socket))?;
            self.stream
                .conn
                .process_new_packets()
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            self.write_now()?;
            if amount == 0 {
                return self.stream.conn.reader().read(room);
            }
        }
    }
    /// Writes all of it before the deadline.
    pub(super) fn send(&mut self, bytes: &[u8], until: Until) -> Result<(), Error> {
        self.stream.sock.until = until;
        self.stream.write_all(bytes)?;
        Ok(())
    }
}

impl Transport for TlsSocket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let output = self.buffers.output();
        let output = output.get(..amount).unwrap_or(output).to_vec();
        self.send(&output, timeout.into())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.until = timeout.into();
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // As with the socket: there may be decrypted bytes that nobody has read yet.
        let quiet = match self.stream.conn.process_new_packets() {
            Ok(state) => state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed(),
            Err(_) => false,
        };
        quiet && self.stream.sock.socket.is_quiet()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSocket").finish_non_exhaustive()
    }
}
