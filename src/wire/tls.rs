//! TLS of a connection: rustls with ring, TLS 1.2 and 1.3, the name checked is the one in the URL.
//! There is no switch that turns verification off, no early data (a POST must not be replayable) and
//! no client certificate.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Instant;

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, LazyBuffers, NextTimeout, Transport, TransportAdapter, time,
};

use crate::wire::classify::Fault;
use crate::wire::socket::{INPUT_BUFFER, OUTPUT_BUFFER, Socket};

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
    let mut adapter = TransportAdapter::new(socket, Arc::clone(&details.current_time));
    adapter.set_timeout(NextTimeout {
        after: time::Duration::Exact(deadline.saturating_duration_since(Instant::now())),
        ..details.timeout
    });
    connection.complete_io(&mut adapter)?;
    Ok(TlsSocket {
        buffers: LazyBuffers::new(INPUT_BUFFER, OUTPUT_BUFFER),
        stream: StreamOwned::new(connection, adapter),
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
    stream: StreamOwned<ClientConnection, TransportAdapter<Socket>>,
}

impl TlsSocket {
    /// Writes all of it before the deadline.
    pub(super) fn send(&mut self, bytes: &[u8], timeout: NextTimeout) -> Result<(), Error> {
        self.stream.get_mut().set_timeout(timeout);
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
        self.send(&output, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
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
        quiet && self.stream.get_mut().get_mut().is_open()
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
