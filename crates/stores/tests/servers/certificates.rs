//! Certificates for one run: an authority, and a server that it vouches for.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Files in PEM, below the directory given.
pub(crate) struct Certificates {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificates {
    /// Makes them for `localhost` and 127.0.0.1.
    pub(crate) fn make(directory: &Path) -> Certificates {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate that had the name of who vouches for it would pass for one that vouches for itself.
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
    /// The settings of a server or Sentinel that listens with TLS here, and speaks it to others of its kind. It asks nobody
    /// for a certificate.
    pub(crate) fn settings(&self, port: u16) -> [(&'static str, String); 7] {
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
