//! Making a connection: socket, TLS, login, and a look at who is there.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::url::{Address, Login};
use super::command::Packed;
use super::error::{Why, is_of_access};
use super::reply::{Inbox, Reply, ServerError};

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

/// A connection that was made.
pub(super) struct Wire {
    pub(super) stream: Pin<Box<dyn Io>>,
    pub(super) inbox: Inbox,
}

impl Wire {
    /// Asks, and waits for all replies. Nothing else may be under way.
    pub(super) async fn ask(&mut self, question: &Packed) -> io::Result<Vec<Reply>> {
        self.stream.write_all(&question.bytes).await?;
        self.stream.flush().await?;
        let mut replies = Vec::new();
        while replies.len() < usize::from(question.replies) {
            if poll_fn(|context| self.inbox.poll_fill(self.stream.as_mut(), context)).await? == 0 {
                return Err(io::Error::other("the server closed it"));
            }
            self.inbox.take_all(&mut replies).map_err(|_| io::Error::other("it does not answer like Redis"))?;
        }
        Ok(replies)
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
        DialError { reason: error.to_string(), is_access_denied: is_of_access(error.code()) }
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
    pub(super) async fn dial(&self, endpoint: &Endpoint, expect: Expect) -> Result<Wire, DialError> {
        let stream = self.stream(endpoint).await.map_err(|error| format!("{endpoint}: {error}"))?;
        let mut wire = Wire { stream, inbox: Inbox::default() };
        self.greet(&mut wire, expect).await.map_err(|error| error.named(endpoint))?;
        Ok(wire)
    }

    async fn stream(&self, endpoint: &Endpoint) -> io::Result<Pin<Box<dyn Io>>> {
        let address = match endpoint {
            Endpoint::Unix(path) => return Ok(Box::pin(UnixStream::connect(path).await?)),
            Endpoint::Tcp(address) => address,
        };
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::pin(stream)) };
        let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
        let stream =
            tls.connect(name, stream).await.map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))?;
        Ok(Box::pin(stream))
    }

    async fn greet(&self, wire: &mut Wire, expect: Expect) -> Result<(), DialError> {
        let mut greeting = Packed::default();
        let mut refusals: Vec<(&str, Refused)> = Vec::new();
        if let Some(password) = &self.login.password {
            refusals.push(("login refused", DialError::login));
            let password = password.reveal().as_bytes();
            greeting = match &self.login.user {
                Some(user) => greeting.and(&[b"AUTH", user.as_bytes(), password]),
                None => greeting.and(&[b"AUTH", password]),
            };
        }
        if self.database != 0 {
            refusals.push(("database refused", DialError::refused));
            greeting = greeting.and(&[b"SELECT", self.database.to_string().as_bytes()]);
        }
        greeting = greeting.and(&[b"CLIENT", b"SETNAME", b"tidegate"]);
        greeting = greeting.and(&[if expect == Expect::Primary { b"ROLE" } else { b"PING" }]);
        let replies = wire.ask(&greeting).await.map_err(|error| error.to_string())?;
        for (reply, (name, refused)) in replies.iter().zip(&refusals) {
            if let Reply::Error(error) = reply {
                return Err(refused(error).named(name));
            }
        }
        // The name is a courtesy: a server or user without that command is as good.
        check(replies.last(), expect)
    }
}

/// Whether the reply to the last question is that of a node which is expected.
fn check(reply: Option<&Reply>, expect: Expect) -> Result<(), DialError> {
    match (reply, expect) {
        (Some(Reply::Error(error)), Expect::Primary) if error.code() == "NOPERM" => {
            let reason = "the user may not run ROLE: grant it +role".to_owned();
            Err(DialError { reason, is_access_denied: true })
        }
        // It is there and we are let in: what it cannot do now, or may not do for us, each call learns by itself.
        (Some(Reply::Error(error)), Expect::Anything)
            if matches!(error.code(), "LOADING" | "BUSY" | "MASTERDOWN" | "NOPERM") =>
        {
            Ok(())
        }
        (Some(Reply::Error(error)), _) => Err(DialError::refused(error)),
        (Some(Reply::Array(role)), Expect::Primary) => match role.first().and_then(Reply::text) {
            Some("master") => Ok(()),
            role => Err(format!("expected the primary, but its role is {}", role.unwrap_or("none")).into()),
        },
        (Some(_), Expect::Anything) => Ok(()),
        _ => Err("it does not answer like Redis".to_owned().into()),
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
            return Err("this system has no CA certificates: name a file with ?ca=/path".to_owned());
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A stream that connections are made of.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + 'static {
    /// Returns whether bytes have arrived, or the end, also where the runtime has not noticed that yet.
    fn has_input(&self) -> bool;
}

impl Io for TcpStream {
    fn has_input(&self) -> bool {
        has_input(self)
    }
}

impl Io for UnixStream {
    fn has_input(&self) -> bool {
        has_input(self)
    }
}

impl Io for TlsStream<TcpStream> {
    fn has_input(&self) -> bool {
        has_input(self.get_ref().0)
    }
}

fn has_input(socket: &impl AsFd) -> bool {
    SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]).is_ok()
}
