//! Certificates for one test: an authority, and a server certificate that it signed.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// The paths of certificates in PEM.
pub struct Certificates {
    /// The certificate of the authority.
    pub authority: PathBuf,
    /// The certificate of the server.
    pub certificate: PathBuf,
    /// The private key of the server.
    pub key: PathBuf,
}

impl Certificates {
    /// Makes certificates for `localhost` and 127.0.0.1 and writes them to a directory.
    pub fn make(directory: &Path) -> Certificates {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate with the name of its issuer would pass for a self-signed one.
        authority.distinguished_name.push(DnType::CommonName, "authority");
        let authority_certificate = authority.self_signed(&authority_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let issuer = Issuer::from_params(&authority, &authority_key);
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let write = |name: &str, text: String| {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        Certificates {
            authority: write("authority.pem", authority_certificate.pem()),
            certificate: write("server.pem", certificate.pem()),
            key: write("server.key", key.serialize_pem()),
        }
    }
    /// Returns the settings of a server or Sentinel that listens with TLS on a port and speaks TLS to its peers. It requires
    /// no certificates of clients.
    pub fn settings(&self, port: u16) -> [(&'static str, String); 7] {
        [
            ("tls-port", port.to_string()),
            ("tls-cert-file", self.certificate.display().to_string()),
            ("tls-key-file", self.key.display().to_string()),
            ("tls-ca-cert-file", self.authority.display().to_string()),
            ("tls-auth-clients", "no".to_owned()),
            ("tls-replication", "yes".to_owned()),
            ("tls-cluster", "yes".to_owned()),
        ]
    }
}
