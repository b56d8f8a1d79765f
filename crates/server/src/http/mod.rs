//! HTTP: checks, forward-auth, reports, administration, metrics.
//!
//! | to find | look in |
//! |---|---|
//! | connections, and what answers each call | here |
//! | which request is which call | `routes.rs` |
//! | when a connection is silent for too long | `pulse.rs` |
//! | bodies, fields, queries | `body.rs`, `query.rs` |
//! | what a request is about | `asked.rs` |
//! | may it pass? | `check.rs`, `auth.rs`; answered by `told.rs` |
//! | so many at once | `permits.rs` |
//! | what became of it | `report.rs` |
//! | keys and rules in the hands of administrators | `admin.rs`, `rules.rs`, `guard.rs` |
//! | why a request was denied, or would be | `explain.rs` |
//! | what was counted | `metrics.rs` |
//! | the heaviest keys, and blocks in force | `top.rs`, `blocks.rs` |
//! | how pages about all rules are written and shared | `pages.rs` |
//! | what envoyproxy/ratelimit has | `reference.rs` |
//! | the description of all this | `openapi.json` |
//! | the date of answers | `date.rs` |

mod admin;
mod answer;
mod asked;
mod auth;
mod blocks;
mod body;
mod check;
mod date;
mod explain;
mod guard;
mod metrics;
mod pages;
mod permits;
mod pulse;
mod query;
mod reference;
mod report;
mod routes;
mod rules;
mod told;
mod top;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONNECTION;
use http::request::Parts;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use tokio::time::timeout;

use crate::accepted::Accepted;
use crate::bell;
use crate::bounds::{HTTP_BUFFER_BYTES_MAX, HTTP_HEAD_BYTES_MAX, HTTP_WATCH, SPARE_CONNECTIONS, SPARE_TIME};
use crate::budget::Account;
use crate::drain::Drain;
use crate::linger;
use crate::listener::Door;
use crate::protocol::{Peer, Protocol, Via};
use crate::service::Service;
use answer::{Answered, Failure, Reply};
pub(crate) use date::cache as cache_http_date;
use guard::Admin;
use pages::Kind;
pub(crate) use pages::Pages;
use pulse::{Io, Pulse, Silence};
use routes::{AdminCall, Call, Parameters};

/// Speaks HTTP/1.1 in front of a service.
#[derive(Debug)]
pub struct HttpDoor {
    service: Arc<Service>,
    http: http1::Builder,
    /// The same for a single request.
    brief: http1::Builder,
    address: Option<SocketAddr>,
    admin_token: Option<String>,
    takes_reports: bool,
}

/// What is known of a connection.
struct Caller {
    peer: Peer,
    /// Whether it came in by a listener that only this machine can reach.
    is_local: bool,
    /// What it does.
    pulse: Arc<Pulse>,
    /// Whether it shall end.
    drain: Drain,
    /// For its requests that have not come whole.
    account: Account,
}

impl HttpDoor {
    /// Speaks HTTP in front of `service`.
    #[must_use]
    pub fn new(service: Arc<Service>) -> HttpDoor {
        let mut http = http1::Builder::new();
        // Silence is watched for a whole connection at a time (see `pulse.rs`): a timer for each head costs more than
        // reading it.
        http.header_read_timeout(None).max_header_size(HTTP_HEAD_BYTES_MAX).max_buf_size(HTTP_BUFFER_BYTES_MAX);
        // Answers come soon, and `pulse.rs` bounds the rest: that a client left is noticed when it is answered. To look for
        // it meanwhile, hyper would make a new buffer for each request, since the last is still being read.
        http.half_close(true);
        let mut brief = http.clone();
        brief.keep_alive(false);
        HttpDoor { service, http, brief, address: None, admin_token: None, takes_reports: true }
    }

    /// The same behind a listener of this address. Without a token, administrators get in on loopback only.
    #[must_use]
    pub fn listening_on(self, address: SocketAddr) -> HttpDoor {
        HttpDoor { address: Some(address), ..self }
    }

    /// The same for administrators who say this token; without one they need not, on loopback.
    #[must_use]
    pub fn with_admin_token(self, admin_token: Option<String>) -> HttpDoor {
        HttpDoor { admin_token, ..self }
    }

    /// The same, or one that takes no reports of what became of requests.
    #[must_use]
    pub fn with_reports(self, takes_reports: bool) -> HttpDoor {
        HttpDoor { takes_reports, ..self }
    }

    /// Answers a request.
    async fn answer(&self, caller: &Caller, request: http::Request<Incoming>) -> Result<Reply, Infallible> {
        caller.pulse.asked();
        let (parts, mut body) = request.into_parts();
        let mut reply = self.route(caller, &parts, &mut body).await.unwrap_or_else(Reply::from);
        if caller.drain.has_started() || has_rest(&reply, &parts, &mut body).await {
            // The client learns that this was the last response before it can send another request.
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.service.traffic.count(Protocol::Http);
        self.service.traffic.count_status(Protocol::Http, reply.status());
        answer::keep_map(parts.headers);
        caller.pulse.answered();
        Ok(reply)
    }

    /// Answers what a request asks for, by the table in `routes.rs`. What is rare is boxed: it needs no room in every request.
    async fn route(&self, caller: &Caller, parts: &Parts, body: &mut Incoming) -> Answered {
        let (call, parameters) = routes::find(&parts.method, parts.uri.path())?;
        let service = &*self.service;
        let query = parts.uri.query();
        let via = Via::from_peer(Protocol::Http, &caller.peer).with_headers(&parts.headers);
        if call.trusts_the_caller() {
            guard::refuse_other_sites(caller, &parts.headers)?;
        }
        match call {
            Call::Check => {
                let body = body::read(body, &caller.account).await?;
                timed(service, pin!(check::post(service, via, &body))).await
            }
            Call::CheckInQuery => timed(service, pin!(check::get(service, via, query))).await,
            Call::Auth => timed(service, Box::pin(auth::any(service, via, caller, parts)).as_mut()).await,
            Call::Report if !self.takes_reports => Err(report::switched_off()),
            Call::Report => Box::pin(report::post(service, &body::read(body, &caller.account).await?)).await,
            Call::AcquirePermit => {
                let body = body::read(body, &caller.account).await?;
                timed(service, Box::pin(permits::acquire(service, via, &body)).as_mut()).await
            }
            Call::RenewPermit => {
                timed(service, Box::pin(permits::renew(service, via, parameters, query)).as_mut()).await
            }
            Call::ReleasePermit => {
                timed(service, Box::pin(permits::release(service, parameters, query)).as_mut()).await
            }
            Call::Alive => Ok(reference::alive()),
            Call::Ready => Ok(reference::ready(service, "ready\n", "not ready\n")),
            Call::Metrics => Box::pin(pages::get(&self.service, Kind::Metrics, &caller.pulse)).await,
            Call::Description => Ok(routes::openapi()),
            Call::EnvoyJson => {
                let body = body::read(body, &caller.account).await?;
                let admit = || self.admit(caller, parts);
                timed(service, Box::pin(reference::json(service, via, &body, admit)).as_mut()).await
            }
            Call::EnvoyHealth => Ok(reference::ready(service, "OK", "")),
            Call::Overview => Ok(routes::page(&parts.headers, self.address)),
            Call::Admin(call) => Box::pin(self.administer(call, caller, parts, parameters, body)).await,
        }
    }

    /// Answers what only administrators may ask for.
    async fn administer(
        &self,
        call: AdminCall,
        caller: &Caller,
        parts: &Parts,
        parameters: Parameters<'_>,
        body: &mut Incoming,
    ) -> Answered {
        let (service, query) = (&*self.service, parts.uri.query());
        let admin = self.admit(caller, parts)?;
        match call {
            AdminCall::Inspect => admin::inspect(service, &body::read(body, &caller.account).await?).await,
            AdminCall::Reset => admin::reset(&admin, service, &body::read(body, &caller.account).await?).await,
            AdminCall::Grant => admin::grant(&admin, service, &body::read(body, &caller.account).await?).await,
            AdminCall::Block => admin::block(&admin, service, &body::read(body, &caller.account).await?).await,
            AdminCall::Top => top::get(&self.service, query).await,
            AdminCall::Blocks => blocks::get(&self.service, query).await,
            AdminCall::Unblock => admin::unblock(&admin, service, &body::read(body, &caller.account).await?).await,
            AdminCall::ExplainDenial => explain::denial(service, parameters),
            AdminCall::ExplainRequest => explain::request(service, &body::read(body, &caller.account).await?).await,
            AdminCall::Rules => pages::get(&self.service, Kind::Rules, &caller.pulse).await,
            AdminCall::SetMode => {
                rules::set_mode(&admin, service, parameters, &body::read(body, &caller.account).await?)
            }
            AdminCall::EnvoyLimits => pages::get(&self.service, Kind::Limits, &caller.pulse).await,
        }
    }

    /// Lets administrators in.
    fn admit(&self, caller: &Caller, parts: &Parts) -> Result<Admin, Failure> {
        guard::admit(&self.service, self.admin_token.as_deref(), caller, parts)
    }

    /// Serves a connection until it ends.
    async fn converse(&self, http: &http1::Builder, accepted: Accepted, mut drain: Drain) {
        let Accepted { stream, address, account, activity } = accepted;
        let is_local = self.address.is_some_and(|address| address.ip().to_canonical().is_loopback());
        let pulse = Arc::new(Pulse::new(activity));
        let peer = Peer::new(&self.service.engine, address);
        let caller = Caller { peer, is_local, pulse: Arc::clone(&pulse), drain: drain.clone(), account };
        let service = service_fn(|request| self.answer(&caller, request));
        let mut connection = http.serve_connection(Io::new(stream, Arc::clone(&pulse)), service);
        let mut silence = Silence::default();
        let mut is_ending = false;
        loop {
            let starts_to_end = bell::when_woken(async {
                tokio::select! {
                    () = drain.started(), if !is_ending => true,
                    () = tokio::time::sleep(HTTP_WATCH) => false,
                }
            });
            let starts_to_end = tokio::select! {
                biased;
                // Errors are those of the client, who has been told or is gone.
                _ = &mut connection => break,
                starts_to_end = starts_to_end => starts_to_end,
            };
            if starts_to_end {
                // A request may be on its way: until the next look, the client is told to go with an answer.
                is_ending = true;
                continue;
            }
            match silence.look(&pulse) {
                // After a drain began, no client that is busy is quiet for that long.
                pulse::Next::Wait if is_ending && !pulse.is_busy() => Pin::new(&mut connection).graceful_shutdown(),
                pulse::Next::Wait => {}
                pulse::Next::Examine => match without_rest(http, connection) {
                    Some(quiet) => connection = quiet,
                    None => return,
                },
                pulse::Next::Finish => Pin::new(&mut connection).graceful_shutdown(),
                pulse::Next::Drop => return,
            }
        }
        linger::close(connection.into_parts().io.into_stream()).await;
    }
}

/// The same connection, which has answered and written everything, if no beginning of another request was read from it.
/// hyper does not show what it has read, except at a connection's end.
fn without_rest<S>(http: &http1::Builder, connection: http1::Connection<Io, S>) -> Option<http1::Connection<Io, S>>
where
    S: HttpService<Incoming, ResBody = Full<Bytes>>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let parts = connection.into_parts();
    // Empty lines between requests are none of either.
    let is_blank = parts.read_buf.iter().all(|byte| b"\r\n".contains(byte));
    is_blank.then(|| http.serve_connection(parts.io, parts.service))
}

/// Whether a part of the body was not read, so that no further request can be read from the connection.
async fn has_rest(reply: &Reply, parts: &Parts, body: &mut Incoming) -> bool {
    // Most bodies were read to their end. Only the others need room for a future.
    !body.is_end_stream()
        && (reply.headers().contains_key(CONNECTION) || !Box::pin(body::skip(body, &parts.headers)).await)
}

/// Answers whether something may pass, and counts how long that takes.
async fn timed(service: &Service, answer: Pin<&mut impl Future<Output = Answered>>) -> Answered {
    service.timed(Protocol::Http, answer).await
}

impl Door for HttpDoor {
    const NAME: &'static str = Protocol::Http.name();
    const SPARE: usize = SPARE_CONNECTIONS;

    async fn serve(self: Arc<Self>, accepted: Accepted, drain: Drain) {
        self.converse(&self.http, accepted, drain).await;
    }

    async fn serve_briefly(self: Arc<Self>, accepted: Accepted, drain: Drain) {
        // Who takes longer is cut off.
        let _ = timeout(SPARE_TIME, self.converse(&self.brief, accepted, drain)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Drainer;
    use crate::bounds::{SEND_BYTES, STALL};
    use std::io::{Read, Write};
    use std::time::Duration;
    use tidegate_engine::{Engine, Options};
    use tokio::net::TcpStream;

    /// A connection to a client with little room, and with so much on the way to it: both of its ends.
    pub(super) fn narrow(send_bytes: usize) -> (std::net::TcpStream, TcpStream, SocketAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        client.set_recv_buffer_size(4096).unwrap();
        client.connect(&listener.local_addr().unwrap().into()).unwrap();
        let (stream, peer) = listener.accept().unwrap();
        socket2::SockRef::from(&stream).set_send_buffer_size(send_bytes).unwrap();
        stream.set_nonblocking(true).unwrap();
        client.set_nonblocking(true).unwrap();
        (client.into(), TcpStream::from_std(stream).unwrap(), peer)
    }

    /// Asks as often as there is room for, and tells how often.
    fn ask_often(client: &mut std::net::TcpStream) -> usize {
        let mut sent = 0;
        while sent < 3_000 && client.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").is_ok() {
            sent += 1;
        }
        sent
    }

    /// The system has room for the next answers long before it says so.
    #[tokio::test(start_paused = true)]
    async fn who_reads_slowly_gets_all_answers() {
        let door = Arc::new(HttpDoor::new(Arc::new(Service::new(Engine::new(Options::default()).unwrap()))));
        let (mut client, stream, peer) = narrow(SEND_BYTES);
        let sent = ask_often(&mut client);
        let (_drainer, drain) = Drainer::new();
        let start = tokio::time::Instant::now();
        let mut answers = Vec::new();
        let read = async {
            while answers.windows(8).filter(|bytes| bytes == b"HTTP/1.1").count() < sent {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let mut piece = [0; 4096];
                match client.read(&mut piece) {
                    Ok(0) => return,
                    Ok(count) => answers.extend_from_slice(&piece[..count]),
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
        };
        tokio::select! {
            () = door.serve(Accepted::in_the_clear(stream, peer), drain) => {}
            () = read => {}
        }
        let count = answers.windows(8).filter(|bytes| bytes == b"HTTP/1.1").count();
        assert_eq!(count, sent, "after {:?}", start.elapsed());
        assert!(start.elapsed() > 3 * STALL, "that took long: {:?}", start.elapsed());
    }

    #[tokio::test]
    async fn who_asks_and_never_reads_is_dropped_in_time() {
        let door = Arc::new(HttpDoor::new(Arc::new(Service::new(Engine::new(Options::default()).unwrap()))));
        let (mut client, stream, peer) = narrow(4096);
        let sent = ask_often(&mut client);
        assert!(sent > 500, "more is asked than the answers have room for: {sent}");
        let (_drainer, drain) = Drainer::new();
        let start = tokio::time::Instant::now();
        let serving = tokio::spawn(async move { door.serve(Accepted::in_the_clear(stream, peer), drain).await });
        // A stopped clock jumps ahead of bytes that the system still moves, and each of them would be a sign of life.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!serving.is_finished(), "dropped within a second");
        tokio::time::pause();
        serving.await.unwrap();
        let took = start.elapsed();
        assert!(took > STALL && took < STALL + Duration::from_secs(5), "{took:?}");
    }

    /// Whoever asks for more than it reads has its last requests in the socket when all are told to finish.
    #[tokio::test]
    async fn what_was_answered_before_the_end_arrives() {
        let service = Arc::new(Service::new(Engine::new(Options::default()).unwrap()));
        let door = Arc::new(HttpDoor::new(Arc::clone(&service)));
        let (mut client, stream, peer) = narrow(SEND_BYTES);
        let sent = ask_often(&mut client);
        // More than a connection reads ahead.
        let _ = client.write(&[b'\n'; 2 * HTTP_BUFFER_BYTES_MAX]).unwrap();
        let (drainer, drain) = Drainer::new();
        let serving = tokio::spawn(async move { door.serve(Accepted::in_the_clear(stream, peer), drain).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        drainer.start();
        let mut answers = Vec::new();
        let end = loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let mut piece = [0; 4096];
            match client.read(&mut piece) {
                Ok(0) => break Ok(()),
                Ok(count) => answers.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => break Err(error.kind()),
            }
        };
        serving.await.unwrap();
        let count = answers.windows(8).filter(|bytes| bytes == b"HTTP/1.1").count();
        assert_eq!((end, count as u64), (Ok(()), service.traffic.requests(Protocol::Http)));
        assert!(count < sent, "more was asked than answered: {sent}");
    }

    /// As it comes from another thread when all are told to finish.
    #[tokio::test]
    async fn a_request_that_came_before_the_end_is_answered() {
        let door = Arc::new(HttpDoor::new(Arc::new(Service::new(Engine::new(Options::default()).unwrap()))));
        let (drainer, drain) = Drainer::new();
        drainer.start();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let (stream, peer) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        door.serve(Accepted::in_the_clear(TcpStream::from_std(stream).unwrap(), peer), drain).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
    }
}
