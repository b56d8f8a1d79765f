//! The flags of `tidegate serve` that name certificates: for all listeners, and for one of them.

use std::path::PathBuf;

use clap::ArgGroup;
use tidegate_server::{ListenersTls, TlsFile, TlsFiles};

/// Certificates of listeners. Flags for one listener override those for all.
#[derive(clap::Args)]
#[command(
    group = certificates("http_certificate", &["tls_cert", "http_tls_cert"]),
    group = certificates("grpc_certificate", &["tls_cert", "grpc_tls_cert"]),
    group = certificates("resp_certificate", &["tls_cert", "resp_tls_cert"]),
)]
pub(crate) struct TlsArgs {
    /// Serve TLS on all listeners with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Require client certificates signed by these authorities (PEM)
    // It applies to all listeners, so each of them needs a certificate.
    #[arg(
        long,
        value_name = "FILE",
        requires = "http_certificate",
        requires = "grpc_certificate",
        requires = "resp_certificate"
    )]
    tls_client_ca: Option<PathBuf>,
    /// Serve TLS on the HTTP listener with this certificate chain; overrides --tls-cert
    #[arg(long, value_name = "FILE", requires = "http_tls_key")]
    http_tls_cert: Option<PathBuf>,
    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "http_tls_cert")]
    http_tls_key: Option<PathBuf>,
    /// Require client certificates signed by these authorities on the HTTP listener; overrides --tls-client-ca
    #[arg(long, value_name = "FILE", requires = "http_certificate")]
    http_tls_client_ca: Option<PathBuf>,
    /// Serve TLS on the gRPC listener with this certificate chain; overrides --tls-cert
    #[arg(long, value_name = "FILE", requires = "grpc_tls_key")]
    grpc_tls_cert: Option<PathBuf>,
    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "grpc_tls_cert")]
    grpc_tls_key: Option<PathBuf>,
    /// Require client certificates signed by these authorities on the gRPC listener; overrides --tls-client-ca
    #[arg(long, value_name = "FILE", requires = "grpc_certificate")]
    grpc_tls_client_ca: Option<PathBuf>,
    /// Serve TLS on the listener for Redis clients with this certificate chain; overrides --tls-cert
    #[arg(long, value_name = "FILE", requires = "resp_tls_key")]
    resp_tls_cert: Option<PathBuf>,
    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "resp_tls_cert")]
    resp_tls_key: Option<PathBuf>,
    /// Require client certificates signed by these authorities on the listener for Redis clients; overrides --tls-client-ca
    #[arg(long, value_name = "FILE", requires = "resp_certificate")]
    resp_tls_client_ca: Option<PathBuf>,
}

/// Flags of which one must be set, since only a listener with TLS can ask for client certificates.
fn certificates(name: &'static str, flags: &[&'static str]) -> ArgGroup {
    ArgGroup::new(name).args(flags).multiple(true)
}

/// A file, and the flag that names it.
type Flag<'a> = (&'static str, &'a Option<PathBuf>);

impl TlsArgs {
    /// Returns the files of each listener.
    pub(crate) fn of_listeners(&self) -> ListenersTls {
        ListenersTls {
            http: self.files([
                ("--http-tls-cert", &self.http_tls_cert),
                ("--http-tls-key", &self.http_tls_key),
                ("--http-tls-client-ca", &self.http_tls_client_ca),
            ]),
            grpc: self.files([
                ("--grpc-tls-cert", &self.grpc_tls_cert),
                ("--grpc-tls-key", &self.grpc_tls_key),
                ("--grpc-tls-client-ca", &self.grpc_tls_client_ca),
            ]),
            resp: self.files([
                ("--resp-tls-cert", &self.resp_tls_cert),
                ("--resp-tls-key", &self.resp_tls_key),
                ("--resp-tls-client-ca", &self.resp_tls_client_ca),
            ]),
        }
    }

    /// Returns the files of a listener: its own ones, or else those for all listeners.
    fn files(&self, [certificate, key, client_authorities]: [Flag<'_>; 3]) -> Option<TlsFiles> {
        let file = |own: Flag<'_>, of_all: Flag<'_>| {
            let (flag, path) = if own.1.is_some() { own } else { of_all };
            path.clone().map(|path| TlsFile { flag, path })
        };
        // The flags for a certificate and its key require each other, so both are the listener's own or neither is.
        Some(TlsFiles {
            certificate: file(certificate, ("--tls-cert", &self.tls_cert))?,
            key: file(key, ("--tls-key", &self.tls_key))?,
            client_authorities: file(client_authorities, ("--tls-client-ca", &self.tls_client_ca)),
        })
    }
}
