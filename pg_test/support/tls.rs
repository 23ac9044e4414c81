//! A certificate authority of a test's own, and receivers' certificates under it: good ones, expired ones, ones for
//! other names. Keys live in memory; only the authority's certificate is written to a file.

use std::{fs, path::Path, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// An authority that nobody trusts unless told to.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// A new authority.
    pub fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters
            .distinguished_name
            .push(rcgen::DnType::CommonName, "test authority");
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

    fn configuration(&self, parameters: CertificateParams) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters
            .signed_by(&key, &self.issuer)
            .expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS 1.2 and 1.3")
            .with_no_client_auth()
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

fn parameters(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).expect("names of a certificate")
}
