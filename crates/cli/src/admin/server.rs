//! A running server: its URL, the admin token, and requests to it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;

use super::connect::{ConnectError, Files, Stream, connect, tls};
use super::text::escaped;
use super::{Format, Problem};
use crate::bounds::{ANSWER_BYTES_MAX, TOKEN_BYTES_MAX};

/// The longest time until a connection is there, and until an answer is read.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

const TOKEN: &str = "TIDEGATE_ADMIN_TOKEN";

/// The server to call, and the form of the output.
#[derive(clap::Args)]
pub(super) struct ServerArgs {
    /// URL of the server's HTTP listener; https:// for TLS
    #[arg(
        long,
        value_name = "URL",
        env = "TIDEGATE_SERVER",
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080"
    )]
    server: String,
    /// File with the admin token of the server [default: the value of TIDEGATE_ADMIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authorities (PEM) that sign the certificate of the server [default: those that this machine trusts]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Client certificate (PEM), for servers that require one
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// Output format; json prints the answer of the server
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
}

/// A server that can be called.
pub(super) struct Server {
    url: Url,
    tls: Option<TlsConnector>,
    token: Option<Token>,
    runtime: Runtime,
}

/// Where a server is.
struct Url {
    /// As messages show it.
    shown: String,
    is_encrypted: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    authority: HeaderValue,
    /// Comes before each path: empty, or like `/tidegate`.
    prefix: String,
}

/// The admin token, and where it is from.
struct Token {
    header: HeaderValue,
    source: String,
}

/// An answer of any status.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: String,
}

/// A problem as in RFC 9457.
#[derive(Deserialize)]
struct Refusal {
    status: u16,
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
}

impl Refusal {
    fn read(status: StatusCode, body: &str) -> Option<Refusal> {
        serde_json::from_str::<Refusal>(body).ok().filter(|refusal| refusal.status == status.as_u16())
    }

    /// Whether the server has no such call.
    fn is_unsupported(&self) -> bool {
        matches!(self.status, 404 | 405) && ["path: ", "method: "].iter().any(|start| self.detail.starts_with(start))
    }
}

impl Answer {
    /// Whether the server has no such call.
    pub(super) fn is_unsupported(&self) -> bool {
        Refusal::read(self.status, &self.body).is_some_and(|refusal| refusal.is_unsupported())
    }
}

impl Server {
    /// Reads the arguments. Nothing is sent yet.
    pub(super) fn new(args: &ServerArgs) -> Result<Server, Problem> {
        let url = Url::parse(&args.server)?;
        let client = args.client_cert.as_deref().zip(args.client_key.as_deref());
        let files = Files { authorities: args.ca.as_deref(), client };
        let has_files = files.authorities.is_some() || files.client.is_some();
        let tls = match url.is_encrypted {
            true => Some(tls(&files)?),
            false if has_files => {
                let problem = "--ca and --client-cert need TLS; use an https:// URL as --server";
                return Err(Problem::Arguments(problem.to_owned()));
            }
            false => None,
        };
        let token = Token::read(args.token_file.as_deref())?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Server { url, tls, token, runtime })
    }

    /// Returns the URL of the server, as messages show it.
    pub(super) fn shown(&self) -> &str {
        &self.url.shown
    }

    /// Reads what a GET request returns, and its JSON.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<(T, String), Problem> {
        let answer = self.ask(&Method::GET, path, None)?;
        self.read(&Method::GET, path, answer)
    }

    /// Sends JSON, and reads what is returned, and its JSON.
    pub(super) fn send<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<(T, String), Problem> {
        let answer = self.ask(method, path, Some(body.to_string()))?;
        self.read(method, path, answer)
    }

    /// Sends a request and returns the answer, whatever its status.
    pub(super) fn ask(&self, method: &Method, path: &str, body: Option<String>) -> Result<Answer, Problem> {
        self.runtime.block_on(self.exchange(method, path, body))
    }

    /// Reads an answer; one that is not a success is a problem.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        Answer { status, body }: Answer,
    ) -> Result<(T, String), Problem> {
        if !status.is_success() {
            return Err(self.refused(method, path, status, &body));
        }
        match serde_json::from_str(&body) {
            Ok(value) => Ok((value, body)),
            // It may be of another version.
            Err(error) if serde_json::from_str::<IgnoredAny>(&body).is_ok() => Err(self.problem(&format!(
                "{method} {path} returns unexpected JSON: {error}; use the `tidegate` of its version"
            ))),
            Err(_) => Err(self.not_tidegate(status)),
        }
    }

    async fn exchange(&self, method: &Method, path: &str, body: Option<String>) -> Result<Answer, Problem> {
        let Url { host, port, .. } = &self.url;
        let connected = within(CONNECT_TIMEOUT, connect(host, *port, self.tls.as_ref())).await;
        let stream = match connected {
            Some(Ok(stream)) => stream,
            Some(Err(error)) => return Err(self.unreachable(&error)),
            None => {
                let problem = format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
                return Err(self.problem(&format!("{problem}; check the address and firewalls on the way")));
            }
        };
        match within(ANSWER_TIMEOUT, self.converse(stream, method, path, body)).await {
            Some(answer) => answer,
            None => Err(self.problem(&format!("no answer to {method} {path} within {} s", ANSWER_TIMEOUT.as_secs()))),
        }
    }

    async fn converse(
        &self,
        stream: Box<dyn Stream>,
        method: &Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Answer, Problem> {
        let request = self.request(method, path, body)?;
        let unread = |error: hyper::Error| self.unread(&error);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(unread)?;
        // It ends with the connection, and errors reach the request too.
        let connection = tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(unread)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        connection.abort();
        let bytes =
            body.map_err(|error| self.problem(&format!("the answer to {method} {path} cannot be read: {error}")))?;
        let body = String::from_utf8(bytes.to_bytes().into()).map_err(|_| self.not_tidegate(status))?;
        Ok(Answer { status, body })
    }

    fn request(&self, method: &Method, path: &str, body: Option<String>) -> Result<Request<Full<Bytes>>, Problem> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url.prefix));
        request = request.header(HOST, &self.url.authority);
        // Only admin calls need the token.
        if let Some(token) = self.token.as_ref().filter(|_| path.starts_with("/v1/")) {
            request = request.header(AUTHORIZATION, &token.header);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let request = request.body(Full::from(body.unwrap_or_default()));
        request.map_err(|error| self.problem(&format!("{method} {path}: {error}")))
    }

    /// The problem of an answer that is not a success.
    fn refused(&self, method: &Method, path: &str, status: StatusCode, body: &str) -> Problem {
        let Some(refusal) = Refusal::read(status, body) else { return self.not_tidegate(status) };
        if refusal.is_unsupported() {
            let path = path.split('?').next().unwrap_or(path);
            return self
                .problem(&format!("the server has no {method} {path}; upgrade it to the version of this command"));
        }
        if status == StatusCode::UNAUTHORIZED {
            return self.problem(&match &self.token {
                None => format!("the server needs its admin token; set {TOKEN} or use --token-file"),
                Some(token) => format!("the server refuses the admin token; check {}", token.source),
            });
        }
        let detail = if refusal.detail.is_empty() { refusal.title } else { refusal.detail };
        self.problem(&escaped(&detail.replace("GET /v1/rules lists", "`tidegate rules` lists")))
    }

    fn unreachable(&self, error: &ConnectError) -> Problem {
        self.problem(&match error {
            ConnectError::Refused(error) => {
                format!("cannot connect: {error}; is `tidegate serve` running there? set --server or TIDEGATE_SERVER")
            }
            ConnectError::Tls(error) => {
                let error = error.to_string();
                let remedy = match () {
                    () if error.contains("UnknownIssuer") => "; name its authority with --ca",
                    () if error.contains("InvalidContentType") => "; does the server use TLS? if not, use http://",
                    () => "",
                };
                format!("TLS failed: {error}{remedy}")
            }
        })
    }

    /// The problem of a connection on which there is no answer.
    fn unread(&self, error: &hyper::Error) -> Problem {
        let cause = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
        let remedy = match () {
            () if cause.contains("CertificateRequired") => "; the server requires --client-cert and --client-key",
            () if !self.url.is_encrypted => "; if the server uses TLS, use https://",
            () => "",
        };
        self.problem(&format!("no answer: {error}{cause}{remedy}"))
    }

    pub(super) fn not_tidegate(&self, status: StatusCode) -> Problem {
        let problem = format!("the answer ({}) is not one of Tidegate; check the URL", status.as_u16());
        self.problem(&problem)
    }

    fn problem(&self, text: &str) -> Problem {
        Problem::Failed(format!("{}: {text}", self.url.shown))
    }
}

impl Url {
    fn parse(text: &str) -> Result<Url, Problem> {
        let refused = |problem: &str| {
            let remedy = "use a URL like http://127.0.0.1:8080 or https://tidegate.internal";
            Problem::Arguments(format!("--server or TIDEGATE_SERVER: {problem}; {remedy}"))
        };
        let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| refused("it is not a URL"))?;
        let is_encrypted = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(refused("it does not begin with http:// or https://")),
        };
        let Some(authority) = uri.authority() else { return Err(refused("it has no host")) };
        // It may be a password, so it is not repeated.
        if authority.as_str().contains('@') {
            return Err(refused("it contains a user; the admin token has its own variable"));
        }
        if uri.query().is_some() {
            return Err(refused("it contains a query"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let shown = text.trim_end_matches('/').to_owned();
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let authority = HeaderValue::from_str(authority.as_str()).map_err(|_| refused("it is not a URL"))?;
        Ok(Url { shown, is_encrypted, host, port, authority, prefix })
    }
}

impl Token {
    /// Reads the token from a file, or else from the environment.
    fn read(file: Option<&Path>) -> Result<Option<Token>, Problem> {
        let (source, token) = match file {
            Some(file) => {
                let source = format!("--token-file {}", file.display());
                let text = std::fs::read_to_string(file).map_err(|error| {
                    Problem::Arguments(format!("{source}: {error}; check the path and its permissions"))
                })?;
                (source, text.trim_end_matches(['\r', '\n']).to_owned())
            }
            None => match std::env::var(TOKEN) {
                Ok(token) => (TOKEN.to_owned(), token),
                Err(std::env::VarError::NotPresent) => return Ok(None),
                Err(std::env::VarError::NotUnicode(_)) => (TOKEN.to_owned(), String::new()),
            },
        };
        let is_header = |token: &String| !token.is_empty() && token.len() <= TOKEN_BYTES_MAX;
        let header =
            Some(token).filter(is_header).and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        let Some(mut header) = header else {
            let problem = "not a token: use text in one line, or unset it for a server without one";
            return Err(Problem::Arguments(format!("{source}: {problem}")));
        };
        header.set_sensitive(true);
        Ok(Some(Token { header, source }))
    }
}

/// Waits for something for a time; `None` if it is over before.
async fn within<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, future).await.ok()
}

/// Encodes a name as a segment of a path or a value of a query.
pub(super) fn encoded(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}
