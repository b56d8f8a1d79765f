//! Connections to a server, in the clear or with TLS.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::Problem;

/// The files for TLS, each with the flag that names it.
pub(super) struct Files<'a> {
    pub(super) authorities: Option<&'a Path>,
    /// The certificate of this client, and its private key.
    pub(super) client: Option<(&'a Path, &'a Path)>,
}

/// A connection that HTTP can be spoken on.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why there is no connection.
pub(super) enum ConnectError {
    /// Nothing accepts connections there.
    Refused(io::Error),
    /// TLS failed.
    Tls(io::Error),
}

/// Connects to a host, which is a name or an address.
pub(super) async fn connect(
    host: &str,
    port: u16,
    tls: Option<&TlsConnector>,
) -> Result<Box<dyn Stream>, ConnectError> {
    let stream = TcpStream::connect((host, port)).await.map_err(ConnectError::Refused)?;
    // A request is one small write.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| ConnectError::Tls(io::Error::other(error)))?;
    Ok(Box::new(tls.connect(name, stream).await.map_err(ConnectError::Tls)?))
}

/// Reads the files for TLS.
pub(super) fn tls(files: &Files<'_>) -> Result<TlsConnector, Problem> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Problem::Failed(format!("TLS: {error}")))?
        .with_root_certificates(authorities(files.authorities)?);
    let mut config = match files.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates("--client-cert", certificate)?;
            let private = PrivateKeyDer::from_pem_file(key).map_err(|error| refused("--client-key", key, &error))?;
            let config = builder.with_client_auth_cert(chain, private);
            config.map_err(|error| refused("--client-cert", certificate, &error))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Returns the authorities of a file, or those that this machine trusts.
fn authorities(file: Option<&Path>) -> Result<RootCertStore, Problem> {
    let mut authorities = RootCertStore::empty();
    let Some(file) = file else {
        // Machines may have certificates that cannot be read; those that can are enough.
        authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(authorities);
    };
    for certificate in certificates("--ca", file)? {
        authorities.add(certificate).map_err(|error| refused("--ca", file, &error))?;
    }
    Ok(authorities)
}

fn certificates(flag: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(all) if all.is_empty() => Err(refused(flag, file, &"there is no certificate in it; give one in PEM")),
        Ok(all) => Ok(all),
        Err(error) => Err(refused(flag, file, &error)),
    }
}

fn refused(flag: &str, file: &Path, reason: &dyn std::fmt::Display) -> Problem {
    Problem::Arguments(format!("{flag} {}: {reason}", file.display()))
}
