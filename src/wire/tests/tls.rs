//! TLS with certificates made for the test.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::crew::{job, wait_for};
use super::server::{OK, Server, hold, read_request};
use super::*;
use crate::wire::crew::Crew;

pub(super) struct Ca {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    pub(super) fn new() -> Ca {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Ca {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    pub(super) fn pem(&self) -> Vec<u8> {
        self.certificate.pem().into_bytes()
    }

    fn server_config(&self, name: &str) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Arc::new(
            ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap(),
        )
    }

    pub(super) fn server(&self, name: &str, response: &'static str) -> Server {
        let config = self.server_config(name);
        Server::start(move |stream, _| {
            let mut stream = accept(&config, stream);
            while read_request(&mut stream).is_some() {
                if stream.write_all(response.as_bytes()).is_err() {
                    return;
                }
                let _ = stream.flush();
            }
        })
    }
}

fn accept(
    config: &Arc<ServerConfig>,
    stream: TcpStream,
) -> StreamOwned<ServerConnection, TcpStream> {
    let connection = ServerConnection::new(Arc::clone(config)).unwrap();
    StreamOwned::new(connection, stream)
}

fn trusting(ca: &Ca) -> Client {
    client_with_names(ClientSettings {
        ca_pem: Some(ca.pem()),
        ..settings()
    })
}

fn https(host: &str, server: &Server) -> Target {
    target(&format!("https://{host}:{}/hook", server.address.port()))
}

#[test]
fn trusted_certificate_of_an_address_passes_and_the_connection_is_kept() {
    let ca = Ca::new();
    let server = ca.server("127.0.0.1", OK);
    let client = trusting(&ca);
    for _ in 0..3 {
        let outcome = post(&client, &https("127.0.0.1", &server));
        assert_status(&outcome, 200);
        assert_eq!(outcome.excerpt, b"ok");
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn trusted_certificate_of_a_name_passes() {
    let ca = Ca::new();
    let server = ca.server("hooks.example.com", OK);
    let outcome = post(&trusting(&ca), &https("hooks.example.com", &server));
    assert_status(&outcome, 200);
    let outcome = post(&trusting(&ca), &https("HOOKS.example.com.", &server));
    assert_status(&outcome, 200);
}

#[test]
fn certificate_of_an_unknown_issuer_is_refused() {
    let server = Ca::new().server("127.0.0.1", OK);
    let outcome = post(&trusting(&Ca::new()), &https("127.0.0.1", &server));
    assert_failure(&outcome, Category::Tls, Some(Phase::Tls));
    let outcome = post(&client(), &https("127.0.0.1", &server));
    assert_failure(&outcome, Category::Tls, Some(Phase::Tls));
}

#[test]
fn certificate_of_another_name_is_refused() {
    let ca = Ca::new();
    let server = ca.server("other.example.com", OK);
    let outcome = post(&trusting(&ca), &https("hooks.example.com", &server));
    assert_failure(&outcome, Category::Tls, Some(Phase::Tls));
    let Answer::Failure { detail, .. } = outcome.answer else {
        panic!("expected a failure");
    };
    assert_eq!(detail, "certificate is not for the name of the host");
}

#[test]
fn plain_text_on_the_tls_port_is_a_tls_failure() {
    let server = Server::start(|mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        hold(stream);
    });
    let outcome = post(&client(), &https("127.0.0.1", &server));
    assert_failure(&outcome, Category::Tls, Some(Phase::Tls));
}

#[test]
fn tls_on_the_plain_text_port_is_not_http() {
    let ca = Ca::new();
    let server = ca.server("127.0.0.1", OK);
    let outcome = post(&client(), &http(server.address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
}

#[test]
fn close_within_the_handshake_is_a_tls_failure() {
    let server = Server::start(|stream, _| drop(stream));
    let outcome = post(&client(), &https("127.0.0.1", &server));
    assert_failure(&outcome, Category::Tls, Some(Phase::Tls));
}

#[test]
fn silence_within_the_handshake_is_a_timeout_that_names_tls() {
    let server = Server::start(|stream, _| hold(stream));
    let client = Client::new(ClientSettings {
        connect_timeout: Duration::from_millis(300),
        ..settings()
    })
    .unwrap();
    let started = Instant::now();
    let outcome = post(&client, &https("127.0.0.1", &server));
    assert_failure(&outcome, Category::Timeout, Some(Phase::Tls));
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[test]
fn silence_after_the_handshake_is_a_timeout_of_the_headers() {
    let ca = Ca::new();
    let config = ca.server_config("127.0.0.1");
    let server = Server::start(move |stream, _| {
        let mut stream = accept(&config, stream);
        read_request(&mut stream);
        hold(stream.sock);
    });
    let client = Client::new(ClientSettings {
        ca_pem: Some(ca.pem()),
        ..impatient(Duration::from_millis(500))
    })
    .unwrap();
    let outcome = post(&client, &https("127.0.0.1", &server));
    assert_failure(&outcome, Category::Timeout, Some(Phase::Headers));
}

#[test]
fn stale_tls_connection_costs_no_attempt() {
    let ca = Ca::new();
    let config = ca.server_config("127.0.0.1");
    let server = Server::start(move |stream, number| {
        let mut stream = accept(&config, stream);
        read_request(&mut stream);
        let _ = stream.write_all(OK.as_bytes());
        if number == 0 {
            read_request(&mut stream);
            return;
        }
        while read_request(&mut stream).is_some() {
            let _ = stream.write_all(OK.as_bytes());
        }
    });
    let client = trusting(&ca);
    assert_status(&post(&client, &https("127.0.0.1", &server)), 200);
    assert_status(&post(&client, &https("127.0.0.1", &server)), 200);
    assert_eq!(server.connections(), 2);
}

#[test]
fn bytes_after_a_response_cost_the_tls_connection() {
    let ca = Ca::new();
    let config = ca.server_config("127.0.0.1");
    let server = Server::start(move |stream, _| {
        let mut stream = accept(&config, stream);
        while read_request(&mut stream).is_some() {
            // Two records in one write: the second lies decrypted or not in some buffer of ours.
            let mut writer = stream.conn.writer();
            let _ = writer.write_all(OK.as_bytes());
            let _ = writer.flush();
            let _ = writer.write_all(b"HTTP/1.1 500 Fake\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.flush();
        }
    });
    let client = trusting(&ca);
    for _ in 0..4 {
        assert_status(&post(&client, &https("127.0.0.1", &server)), 200);
    }
}

#[test]
fn crew_delivers_over_tls_from_its_small_stacks() {
    let ca = Ca::new();
    let server = ca.server("hooks.example.com", OK);
    let target = arc(https("hooks.example.com", &server));
    let mut crew = Crew::new(8, arc(trusting(&ca)), |_| true).unwrap();
    for ticket in 0..40 {
        crew.submit([job(ticket, Arc::clone(&target))]);
    }
    for done in wait_for(&crew, 40) {
        assert_status(&done.outcome, 200);
    }
}

#[test]
fn certificates_that_are_none_are_refused() {
    for pem in [
        &b""[..],
        b"hello",
        b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ] {
        let broken = ClientSettings {
            ca_pem: Some(pem.to_vec()),
            ..settings()
        };
        assert!(Client::new(broken).is_err());
    }
}
