//! A certificate authority of a test's own, and receivers' certificates under it: good ones, expired ones, ones for
//! other names. Keys live in memory; only the authority's certificate is written to a file.

use std::{fs, path::Path, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::{
    ALL_VERSIONS, ConfigBuilder, RootCertStore, ServerConfig, SupportedProtocolVersion,
    WantsVerifier,
    crypto::CryptoProvider,
    server::{WantsServerCert, WebPkiClientVerifier},
    version::TLS12,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};

/// An authority that nobody trusts unless told to.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// A new authority. All of them bear the same name, so that only its signature tells one from another.
    pub fn new() -> Authority {
        Self::named("test authority")
    }

    /// A new authority of another name.
    pub fn named(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let pem = parameters.self_signed(&key).expect("a certificate").pem();
        Authority {
            issuer: Issuer::new(parameters, key),
            pem,
        }
    }

    /// The authority's certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Writes the authority's certificate to a file that everybody may read.
    pub fn write_pem(&self, path: &Path) {
        fs::write(path, &self.pem)
            .unwrap_or_else(|error| panic!("could not write {}: {error}", path.display()));
    }

    /// A receiver's configuration with a good certificate for these names and addresses.
    pub fn receiver(&self, names: &[&str]) -> Arc<ServerConfig> {
        self.configuration(parameters(names))
    }

    /// The same with a certificate that expired long ago.
    pub fn expired_receiver(&self, names: &[&str]) -> Arc<ServerConfig> {
        let mut parameters = parameters(names);
        parameters.not_before = date_time_ymd(2019, 1, 1);
        parameters.not_after = date_time_ymd(2020, 1, 1);
        self.configuration(parameters)
    }

    /// The same with a certificate of a far future.
    pub fn early_receiver(&self, names: &[&str]) -> Arc<ServerConfig> {
        let mut parameters = parameters(names);
        parameters.not_before = date_time_ymd(2120, 1, 1);
        parameters.not_after = date_time_ymd(2121, 1, 1);
        self.configuration(parameters)
    }

    /// A good certificate, and no newer TLS than 1.2.
    pub fn old_receiver(&self, names: &[&str]) -> Arc<ServerConfig> {
        self.serving(parameters(names), &[&TLS12], |builder| {
            builder.with_no_client_auth()
        })
    }

    /// A good certificate; the sender is asked for one of its own under this authority. TLS 1.2 only: in 1.3 the
    /// sender is through with the handshake when it is refused, and a reset may overtake the refusal.
    pub fn demanding_receiver(&self, names: &[&str]) -> Arc<ServerConfig> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("a certificate");
        roots.add(root).expect("a root");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .expect("a verifier");
        self.serving(parameters(names), &[&TLS12], |builder| {
            builder.with_client_cert_verifier(verifier)
        })
    }

    fn configuration(&self, parameters: CertificateParams) -> Arc<ServerConfig> {
        self.serving(parameters, ALL_VERSIONS, |builder| {
            builder.with_no_client_auth()
        })
    }

    fn serving(
        &self,
        parameters: CertificateParams,
        versions: &[&'static SupportedProtocolVersion],
        of_clients: impl FnOnce(
            ConfigBuilder<ServerConfig, WantsVerifier>,
        ) -> ConfigBuilder<ServerConfig, WantsServerCert>,
    ) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters
            .signed_by(&key, &self.issuer)
            .expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("TLS 1.2 or 1.3");
        let config = of_clients(builder)
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("key and certificate that fit");
        Arc::new(config)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn parameters(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).expect("names of a certificate")
}
