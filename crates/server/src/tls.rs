//! Certificates: read from files, and read again when they were renewed.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tidegate_core::{Clock, Time};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::bounds::{CERTIFICATE_WARNING, TLS_FILE_BYTES_MAX};
use crate::file_marks::FileMark;
use crate::protocol::Protocol;
use crate::validity::End;

/// A file in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFile {
    /// The flag that names it, for errors.
    pub flag: &'static str,
    /// Where it is.
    pub path: PathBuf,
}

/// The files that a listener speaks TLS with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and its authority.
    pub certificate: TlsFile,
    /// Its private key.
    pub key: TlsFile,
    /// Authorities of clients' certificates. If they are given, a client must have one.
    pub client_authorities: Option<TlsFile>,
}

impl TlsFiles {
    /// Looks at all of them.
    fn marks(&self) -> Vec<FileMark> {
        let all = [&self.certificate, &self.key].into_iter().chain(&self.client_authorities);
        all.filter_map(|file| FileMark::of(&file.path)).collect()
    }
}

/// TLS for a listener, with certificates that can be renewed while it runs.
pub struct Tls {
    files: TlsFiles,
    protocol: Protocol,
    current: ArcSwap<Current>,
    /// The files as they were before they were read for the first time.
    first_marks: Vec<FileMark>,
    loads: AtomicU64,
    errors: AtomicU64,
}

struct Current {
    config: Arc<ServerConfig>,
    /// When the first certificate of the chain runs out, if that can be read.
    end: Option<End>,
}

/// Why there is no TLS: the flag, the file, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: {reason}", file.display())]
pub struct TlsError {
    flag: &'static str,
    file: PathBuf,
    reason: String,
}

impl TlsFile {
    fn refused(&self, reason: String) -> TlsError {
        TlsError { flag: self.flag, file: self.path.clone(), reason }
    }
}

impl Tls {
    /// Reads the files, for a listener that speaks `protocol` within TLS.
    ///
    /// # Errors
    /// If one cannot be read or used.
    pub fn load(files: TlsFiles, protocol: Protocol) -> Result<Tls, TlsError> {
        let first_marks = files.marks();
        let current = ArcSwap::from_pointee(Current::read(&files, protocol)?);
        Ok(Tls { files, protocol, current, first_marks, loads: AtomicU64::new(1), errors: AtomicU64::new(0) })
    }

    /// Reads the files again. New connections get what they say now; others stay as they are.
    ///
    /// # Errors
    /// If one cannot be read or used: then all stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let read = Current::read(&self.files, self.protocol);
        let counter = if read.is_ok() { &self.loads } else { &self.errors };
        counter.fetch_add(1, Ordering::Relaxed);
        self.current.store(Arc::new(read?));
        Ok(())
    }

    /// The files as they were before they were read for the first time.
    pub(crate) fn first_marks(&self) -> &[FileMark] {
        &self.first_marks
    }

    /// Looks at the files.
    pub(crate) fn marks(&self) -> Vec<FileMark> {
        self.files.marks()
    }

    /// How often certificates were loaded, and how often they were refused.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.loads.load(Ordering::Relaxed), self.errors.load(Ordering::Relaxed))
    }

    /// The listener that it is for.
    pub(crate) fn listener(&self) -> &'static str {
        self.protocol.name()
    }

    /// When the certificate runs out, if that can be read.
    pub(crate) fn end(&self) -> Option<End> {
        self.current.load().end
    }

    /// Logs what is in force, and warns of what is not for long any more.
    pub(crate) fn tell(&self, now: Time) {
        let (listener, file) = (self.protocol.name(), self.files.certificate.path.display());
        let Some(end) = self.end() else {
            return tracing::info!(listener, %file, "certificates loaded, but their expiry date cannot be read");
        };
        tracing::info!(listener, %file, %end, "certificates loaded");
        if let Some(doubt) = doubt(end, now) {
            tracing::warn!(listener, %file, %end, "{doubt}; renew it");
        }
    }

    /// Greets a client.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        TlsAcceptor::from(Arc::clone(&self.current.load().config)).accept(stream).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Current {
    fn read(files: &TlsFiles, protocol: Protocol) -> Result<Current, TlsError> {
        let chain = certificates(&files.certificate)?;
        let end = chain.iter().filter_map(|certificate| End::of_certificate(certificate)).min();
        Ok(Current { config: Arc::new(configure(files, chain, protocol)?), end })
    }
}

fn configure(
    files: &TlsFiles,
    chain: Vec<CertificateDer<'static>>,
    protocol: Protocol,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|error| unreadable(&files.key, &error, "a private key"))?;
    let time = Arc::new(HandshakeTime(Clock::system()));
    let builder = ServerConfig::builder_with_details(Arc::clone(&provider), time)
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
    config.alpn_protocols = inside(protocol).into_iter().map(<[u8]>::to_vec).collect();
    Ok(config)
}

/// The time that certificates of clients are checked at. That of the standard library panics before 1970, where a clock may
/// have jumped since the start.
#[derive(Debug)]
struct HandshakeTime(Clock);

impl TimeProvider for HandshakeTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(self.0.now().as_nanos())))
    }
}

/// What clients that ask are told is spoken within TLS. Those of Redis do not ask.
fn inside(protocol: Protocol) -> Option<&'static [u8]> {
    match protocol {
        Protocol::Http => Some(b"http/1.1"),
        Protocol::Grpc => Some(b"h2"),
        Protocol::Resp => None,
    }
}

/// What is to be warned of.
fn doubt(end: End, now: Time) -> Option<&'static str> {
    match end.seconds_left(now) {
        None => Some("the certificate has expired, and clients refuse it"),
        Some(left) if left < CERTIFICATE_WARNING.as_secs() => Some("the certificate expires soon"),
        Some(_) => None,
    }
}

fn certificates(file: &TlsFile) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error: pem::Error| unreadable(file, &error, "a certificate");
    let all: Vec<_> = CertificateDer::pem_slice_iter(&read(file)?).collect::<Result<_, _>>().map_err(unreadable)?;
    if all.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound));
    }
    Ok(all)
}

/// All bytes of a file, which are not too many.
fn read(given: &TlsFile) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let read = File::open(&given.path).and_then(|open| open.take(TLS_FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Ok(count) if count as u64 > TLS_FILE_BYTES_MAX => {
            let reason = format!("has more than {TLS_FILE_BYTES_MAX} bytes; keep only what is needed in it");
            Err(given.refused(reason))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(unreadable(given, &pem::Error::Io(error), "")),
    }
}

fn unreadable(given: &TlsFile, error: &pem::Error, wanted: &str) -> TlsError {
    let reason = match error {
        pem::Error::Io(error) => format!("cannot be read: {error}; check the path and its permissions"),
        pem::Error::NoItemsFound => format!("holds no {}; give {wanted} in PEM", wanted.trim_start_matches("a ")),
        error => format!("is not PEM: {error}"),
    };
    given.refused(reason)
}

fn wrong(given: &TlsFile, error: impl fmt::Display) -> TlsError {
    given.refused(format!("cannot be used: {error}"))
}

/// The certificate and the key are looked at together, so both are named.
fn mismatch(files: &TlsFiles, error: &tokio_rustls::rustls::Error) -> TlsError {
    use tokio_rustls::rustls::Error::InconsistentKeys;
    let certificate = files.certificate.path.display();
    let reason = match error {
        InconsistentKeys(_) => format!("is not the key of the certificate in {certificate}"),
        error => format!("cannot be used with the certificate in {certificate}: {error}"),
    };
    files.key.refused(reason)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn large_files_are_refused_before_they_are_read() {
        // An endless one, and one of a byte too many.
        let directory = tempfile::tempdir().unwrap();
        let large = directory.path().join("large.pem");
        File::create(&large).unwrap().set_len(TLS_FILE_BYTES_MAX + 1).unwrap();
        let given = |path: &Path| TlsFile { flag: "--tls-cert", path: path.to_owned() };
        for file in [Path::new("/dev/zero"), &large] {
            let told = read(&given(file)).unwrap_err().to_string();
            assert_eq!(
                told,
                format!("--tls-cert {}: has more than 1048576 bytes; keep only what is needed in it", file.display())
            );
        }
        File::create(&large).unwrap().set_len(TLS_FILE_BYTES_MAX).unwrap();
        assert_eq!(read(&given(&large)).unwrap().len() as u64, TLS_FILE_BYTES_MAX);
        assert!(certificates(&given(&large)).unwrap_err().to_string().contains("holds no certificate"));
    }

    #[test]
    fn the_last_week_of_a_certificate_is_warned_of() {
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.not_after = rcgen::date_time_ymd(2025, 1, 1);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let end = End::of_certificate(certificate.der()).unwrap();
        let at = |seconds: u64| doubt(end, Time::from_nanos(seconds * 1_000_000_000)).unwrap_or_default();
        let (end, week) = (1_735_689_600, 7 * 86_400);
        assert_eq!(at(end - week), "");
        assert!(at(end - week + 1).contains("soon"));
        assert!(at(end).contains("soon"));
        assert!(at(end + 1).contains("has expired"));
    }
}
