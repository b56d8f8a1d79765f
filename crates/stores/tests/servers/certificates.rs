//! Certificates for one run: an authority, and a server that it vouches for.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

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
}
