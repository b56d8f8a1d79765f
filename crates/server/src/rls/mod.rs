//! Envoy's rate limit service, version 3, over gRPC.
//!
//! | to find | look in |
//! |---|---|
//! | a connection, its bounds and its end | `mod.rs`, `preface.rs`, `frames.rs`; by what it does not take: `owed.rs` |
//! | to whom a call goes, and its deadline | `calls.rs` |
//! | a message in and a message out | `unary.rs` |
//! | from Envoy's message to a request, and from an outcome back | `decode.rs`, `encode.rs`, `unit.rs` |
//! | the same in JSON, and all limits as envoyproxy/ratelimit shows them, for `http/` | `json.rs`, `limits.rs` |
//! | whether the server is healthy | `health.rs` |
//! | what tools ask to learn the messages | `reflection.rs` |

mod calls;
mod decode;
mod encode;
mod frames;
mod health;
pub(crate) mod json;
pub(crate) mod limits;
mod owed;
mod preface;
mod reflection;
mod unary;
mod unit;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;
use tonic::service::Routes;

use self::calls::{Calls, Limits};
pub(crate) use self::decode::gives_back;
use self::owed::{Counted, Ledger};
use crate::accepted::Accepted;
use crate::bell;
use crate::bounds::{
    DAWDLED, DRAIN, GRPC_FRAME_BYTES_MAX, GRPC_HEADER_BYTES_MAX, GRPC_KEEP_ALIVE, GRPC_KEEP_ALIVE_ANSWER,
    GRPC_RESETS_MAX, GRPC_STREAMS_MAX, GRPC_WINDOW_BYTES, STALL,
};
use crate::drain::Drain;
use crate::listener::Door;
use crate::protocol::{Peer, Protocol};
use crate::service::Service;

/// How the door for Envoy is set up.
#[derive(Clone, Debug, Default)]
pub struct RlsOptions {
    /// Whether tools may ask which services and messages there are.
    pub reflection: bool,
    /// Whether answers carry the metadata of rules.
    pub dynamic_metadata: bool,
    /// Whether every client may give units back. Otherwise only those on this machine and those with a certificate may.
    pub refunds: bool,
}

/// The door for Envoy.
#[derive(Debug)]
pub struct RlsDoor {
    limits: Arc<Limits>,
    reflection: Option<Routes>,
    http2: http2::Builder<TokioExecutor>,
}

impl RlsDoor {
    /// A door to this service.
    #[must_use]
    pub fn new(service: Arc<Service>, options: RlsOptions) -> RlsDoor {
        let RlsOptions { reflection, dynamic_metadata, refunds } = options;
        RlsDoor {
            limits: Arc::new(Limits { service, dynamic_metadata, refunds }),
            reflection: if reflection { reflection::routes() } else { None },
            http2: http2_with_bounds(),
        }
    }

    /// Serves a connection until it ends.
    async fn converse(&self, accepted: Accepted, mut drain: Drain) {
        let is_certified = accepted.has_certificate();
        let Accepted { stream, address, account, activity } = accepted;
        let Ok(Ok(stream)) = timeout(STALL, preface::read(stream)).await else { return };
        let peer = Peer { is_certified, ..Peer::new(&self.limits.service.engine, address) };
        let calls = Arc::new(Calls::new(
            Arc::clone(&self.limits),
            self.reflection.clone(),
            peer,
            account.clone(),
            drain.clone(),
        ));
        // Each call is a task of its own: should one panic, the others and the connection go on.
        let ledger = Arc::new(Ledger::default());
        let counted = Arc::clone(&ledger);
        let answer = service_fn(move |request| {
            activity.note();
            let (calls, ledger) = (Arc::clone(&calls), Arc::clone(&counted));
            async move { Ok::<_, Infallible>(calls.answer(request).await.map(|answer| Counted { answer, ledger })) }
        });
        let mut connection = pin!(self.http2.serve_connection(stream, answer));
        // What is rare is not asked for whenever a call comes.
        let end = pin!(bell::when_woken(async {
            tokio::select! {
                () = ledger.overdue() => End::Now,
                () = account.dawdled() => End::Within(DAWDLED),
                () = drain.started() => End::Within(DRAIN),
            }
        }));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            end = end => match end {
                End::Now => {
                    let service = &self.limits.service;
                    return service.note_broken_connection(Self::NAME, &"the client does not read its responses");
                }
                End::Within(time) => {
                    connection.as_mut().graceful_shutdown();
                    timeout(time, connection).await.unwrap_or(Ok(()))
                }
            }
        };
        if let Err(error) = ended {
            self.limits.service.note_broken_connection(Self::NAME, &error);
        }
    }
}

/// How a connection ends that its client does not end.
enum End {
    Now,
    /// With an end to the calls that are under way.
    Within(Duration),
}

impl Door for RlsDoor {
    const NAME: &'static str = Protocol::Grpc.name();

    async fn serve(self: Arc<Self>, accepted: Accepted, drain: Drain) {
        self.converse(accepted, drain).await;
    }
}

/// HTTP/2 with a bound on everything that a client can make the server keep.
fn http2_with_bounds() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let (connection_window, stream_window) = GRPC_WINDOW_BYTES;
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(GRPC_KEEP_ALIVE)
        .keep_alive_timeout(GRPC_KEEP_ALIVE_ANSWER)
        .max_concurrent_streams(GRPC_STREAMS_MAX)
        .max_header_list_size(GRPC_HEADER_BYTES_MAX)
        .max_frame_size(GRPC_FRAME_BYTES_MAX)
        .max_pending_accept_reset_streams(GRPC_RESETS_MAX)
        .max_local_error_reset_streams(GRPC_RESETS_MAX)
        .initial_connection_window_size(connection_window)
        .initial_stream_window_size(stream_window)
        // gRPC has no use for it.
        .auto_date_header(false);
    builder
}
