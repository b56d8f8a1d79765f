//! The date of answers, which hyper caches for each thread.

use std::convert::Infallible;

use http::Response;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

/// Has hyper write the present date on this thread, by a connection that ends at once. From then on it writes one only when
/// the clock has gone ahead, so that a clock that jumps to before 1970, which has no date in HTTP, never makes it panic.
pub(crate) async fn cache() {
    let (gone, stream) = tokio::io::duplex(1);
    drop(gone);
    let answer = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}
