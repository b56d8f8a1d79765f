//! Making a connection: socket, TLS, login, and a look at who is there.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, ServerError, Value};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::url::{Address, Login};
use super::bounds::CALLS_IN_FLIGHT_MAX;
use super::error::{Why, is_of_access};

/// Where to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    Tcp(Address),
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => address.fmt(formatter),
            Endpoint::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// How to connect: the same for all nodes of a store.
pub(super) struct Dialer {
    tls: Option<TlsConnector>,
    login: Login,
    database: u32,
}

/// What a node must be, to be of use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    Anything,
    Primary,
}

/// A connection whose task runs on the runtime that made it, and ends with this value.
pub(super) struct Dialled {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: Driver,
    /// Bytes that went to the socket so far.
    pub(super) written: Arc<AtomicU64>,
}

/// A task that ends when its handle goes.
pub(super) struct Driver(pub(super) JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DialError {
    pub(super) reason: String,
    /// Whether the server does not let us in: then trying again is of no use.
    pub(super) is_access_denied: bool,
}

/// What a server's error to a question means.
type Refused = fn(&ServerError) -> DialError;

impl From<String> for DialError {
    fn from(reason: String) -> DialError {
        DialError { reason, is_access_denied: false }
    }
}

impl DialError {
    /// A server answered with an error.
    pub(super) fn refused(error: &ServerError) -> DialError {
        DialError { reason: in_words(error), is_access_denied: is_of_access(error.code()) }
    }

    /// A server answered a login with an error.
    fn login(error: &ServerError) -> DialError {
        let refused = DialError::refused(error);
        // Before there were codes for it, servers said of a wrong password what they say of anything. Full ones say so too.
        let is_of_old = error.code() == "ERR" && !refused.reason.contains("max number of clients");
        DialError { is_access_denied: is_of_old || refused.is_access_denied, ..refused }
    }

    /// The same with a name before it: of the server, or of what it refused.
    pub(super) fn named(self, name: &impl fmt::Display) -> DialError {
        DialError { reason: format!("{name}: {}", self.reason), ..self }
    }

    /// What a caller hears.
    pub(super) fn into_why(self) -> Why {
        let reason = self.reason.into();
        if self.is_access_denied { Why::AccessDenied(reason) } else { Why::NoConnection(reason) }
    }
}

impl Dialer {
    pub(super) fn new(tls: Option<TlsConnector>, login: &Login, database: u32) -> Dialer {
        Dialer { tls, login: login.clone(), database }
    }

    pub(super) fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Connects, logs in, gives the connection a name and looks whether the node is what is expected.
    pub(super) async fn dial(&self, endpoint: &Endpoint, expect: Expect) -> Result<Dialled, DialError> {
        let stream = self.stream(endpoint).await.map_err(|error| format!("{endpoint}: {error}"))?;
        let written = Arc::new(AtomicU64::new(0));
        let stream = Metered { stream, written: Arc::clone(&written) };
        // The budget of each call is kept by its caller; a queue as long as the calls are many never makes one wait.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(CALLS_IN_FLIGHT_MAX);
        // Login and database are ours to send, so that a refusal is told in the words of the server.
        let nothing = RedisConnectionInfo::default().set_skip_set_lib_name();
        let (connection, driver) = MultiplexedConnection::new_with_config(&nothing, stream, config)
            .await
            .map_err(|error| format!("{endpoint}: {}", said(&error)))?;
        let driver = Driver(tokio::spawn(driver));
        let mut dialled = Dialled { connection, driver, written };
        self.greet(&mut dialled.connection, expect).await.map_err(|error| error.named(endpoint))?;
        Ok(dialled)
    }

    async fn stream(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Io>> {
        let address = match endpoint {
            Endpoint::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
            Endpoint::Tcp(address) => address,
        };
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
        let stream =
            tls.connect(name, stream).await.map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))?;
        Ok(Box::new(stream))
    }

    async fn greet(&self, connection: &mut MultiplexedConnection, expect: Expect) -> Result<(), DialError> {
        let mut pipeline = redis::pipe();
        let mut refusals: Vec<(&str, Refused)> = Vec::new();
        if let Some(password) = &self.login.password {
            refusals.push(("login refused", DialError::login));
            pipeline.cmd("AUTH");
            if let Some(user) = &self.login.user {
                pipeline.arg(user);
            }
            pipeline.arg(password.reveal());
        }
        if self.database != 0 {
            refusals.push(("database refused", DialError::refused));
            pipeline.cmd("SELECT").arg(self.database);
        }
        pipeline.cmd("CLIENT").arg("SETNAME").arg("tidegate");
        pipeline.cmd(if expect == Expect::Primary { "ROLE" } else { "PING" });
        let asked = connection.send_packed_commands(&pipeline, 0, pipeline.len()).await;
        let replies = asked.map_err(|error| said(&error))?;
        for (reply, (name, refused)) in replies.iter().zip(&refusals) {
            if let Value::ServerError(error) = reply {
                return Err(refused(error).named(name));
            }
        }
        // The name is a courtesy: a server or user without that command is as good.
        check(replies.last(), expect)
    }
}

/// Whether the reply to the last question is that of a node which is expected.
fn check(reply: Option<&Value>, expect: Expect) -> Result<(), DialError> {
    match (reply, expect) {
        (Some(Value::ServerError(error)), Expect::Primary) if error.code() == "NOPERM" => {
            let reason = "the user may not ask for its role: grant it +role".to_owned();
            Err(DialError { reason, is_access_denied: true })
        }
        // It is there and we are let in: what it cannot do now, or may not do for us, each call learns by itself.
        (Some(Value::ServerError(error)), Expect::Anything)
            if matches!(error.code(), "LOADING" | "BUSY" | "MASTERDOWN" | "NOPERM") =>
        {
            Ok(())
        }
        (Some(Value::ServerError(error)), _) => Err(DialError::refused(error)),
        (Some(Value::Array(role)), Expect::Primary) => match role.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(()),
            role => Err(format!("it is to be the primary, but its role is {}", text(role)).into()),
        },
        (Some(_), Expect::Anything) => Ok(()),
        _ => Err("it does not answer like Redis".to_owned().into()),
    }
}

/// What a server said, its code first.
pub(super) fn in_words(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// What a server or the network said, in its own words.
pub(super) fn said(error: &redis::RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (None, Some(detail)) => detail.to_owned(),
        _ => error.to_string(),
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::BulkString(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Some(other) => format!("{other:?}"),
        None => "none".to_owned(),
    }
}

/// TLS with the given authorities, or with those of the system.
pub(super) fn tls(authorities: Option<&Path>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = authorities {
        let unusable = |error: &dyn fmt::Display| format!("ca {}: {error}: give certificates in PEM", path.display());
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))? {
            roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
        }
        if roots.is_empty() {
            return Err(unusable(&"there is no certificate"));
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("this system has no authorities of certificates: name a file with ?ca=/path".to_owned());
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for S {}

/// A stream that counts what is written to it, so that a call on a connection that broke can tell that it was not sent.
struct Metered {
    stream: Box<dyn Io>,
    written: Arc<AtomicU64>,
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = polled {
            self.written.fetch_add(count as u64, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
