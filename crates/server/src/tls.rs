//! Certificates: read from files, and read again when they were renewed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// The files, all in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of clients' certificates. If they are given, a client must have one.
    pub client_authorities: Option<PathBuf>,
}

/// TLS for HTTP/2, with certificates that can be renewed while it runs.
pub struct Tls {
    files: TlsFiles,
    current: ArcSwap<ServerConfig>,
}

/// Why there is no TLS: the file, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct TlsError {
    file: PathBuf,
    reason: String,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be read or used.
    pub fn load(files: TlsFiles) -> Result<Tls, TlsError> {
        let current = ArcSwap::from_pointee(configure(&files)?);
        Ok(Tls { files, current })
    }

    /// Reads the files again. New connections get what they say now; others stay as they are.
    ///
    /// # Errors
    /// If one cannot be read or used: then all stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current.store(Arc::new(configure(&self.files)?));
        Ok(())
    }

    /// Greets a client.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        TlsAcceptor::from(self.current.load_full()).accept(stream).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

fn configure(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.certificate)?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable(&files.key, &error, "a private key"))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&files.certificate, error))?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut authorities = RootCertStore::empty();
            for certificate in certificates(file)? {
                authorities.add(certificate).map_err(|error| wrong(file, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider)
                .build()
                .map_err(|error| wrong(file, error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| mismatch(files, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error: pem::Error| unreadable(file, &error, "a certificate");
    let all: Vec<_> =
        CertificateDer::pem_file_iter(file).map_err(unreadable)?.collect::<Result<_, _>>().map_err(unreadable)?;
    if all.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound));
    }
    Ok(all)
}

fn unreadable(file: &Path, error: &pem::Error, wanted: &str) -> TlsError {
    let reason = match error {
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        pem::Error::NoItemsFound => format!("holds no {}; give {wanted} in PEM", wanted.trim_start_matches("a ")),
        error => format!("is not PEM: {error}"),
    };
    TlsError { file: file.to_owned(), reason }
}

fn wrong(file: &Path, error: impl fmt::Display) -> TlsError {
    TlsError { file: file.to_owned(), reason: format!("cannot be used: {error}") }
}

/// The certificate and the key are looked at together, so both are named.
fn mismatch(files: &TlsFiles, error: &tokio_rustls::rustls::Error) -> TlsError {
    use tokio_rustls::rustls::Error::InconsistentKeys;
    let certificate = files.certificate.display();
    let reason = match error {
        InconsistentKeys(_) => format!("is not the key of the certificate in {certificate}"),
        error => format!("cannot be used with the certificate in {certificate}: {error}"),
    };
    TlsError { file: files.key.clone(), reason }
}
