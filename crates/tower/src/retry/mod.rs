//! Client retries that honour `Retry-After`, within a budget.
//!
//! | to find | look in |
//! |---|---|
//! | the builder | `builder.rs` |
//! | when a request is retried | `mod.rs` |
//! | parsing of `Retry-After` | `after.rs` |
//! | parsing of refused gRPC calls | `call.rs` |
//! | the bound on all retries | `budget.rs` |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response, StatusCode};
use tidegate_core::{Clock, Dice};
use tokio::time::Sleep;
use tower::retry::Policy;

mod after;
mod budget;
mod builder;
mod call;

pub use after::retry_after;
use budget::Budget;
pub use builder::RetryBuilder;

/// Retries refused requests, for [`tower::retry`]: when the server asks, with jitter, and within a budget.
///
/// - 429 is retried whatever the method, since the server did nothing. 503 is retried only if the method is idempotent.
/// - A gRPC call is retried if it was refused before its first message, with RESOURCE_EXHAUSTED or UNAVAILABLE, and the
///   server states a time: in `grpc-retry-pushback-ms`, in a `RetryInfo` or in `Retry-After`.
/// - A retry waits as long as `Retry-After` states (seconds or a date), never less, and up to a quarter more, so that
///   clients do not come back all at once. Without that header it waits 100 ms, and twice as long each time.
/// - A request that would have to wait for more than 30 s is not retried: the caller gets the refusal at once.
/// - At most a tenth of all requests is retried, and ten a second besides: a server that is down must not get much more
///   load than one that is up.
///
/// All of these can be changed with [`RetryPolicy::builder`]. Clones share the budget.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tidegate_tower::RetryPolicy;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut refusals = 1;
/// let server = service_fn(move |_: Request<String>| {
///     let mut response = Response::new("done");
///     if refusals > 0 {
///         refusals -= 1;
///         *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
///         response.headers_mut().insert("retry-after", 3.into());
///     }
///     async { Ok::<_, std::convert::Infallible>(response) }
/// });
/// # #[derive(Clone)] struct Server<S>(std::sync::Arc<std::sync::Mutex<S>>);
/// # impl<S: Service<R>, R> Service<R> for Server<S> {
/// #     type Response = S::Response; type Error = S::Error; type Future = S::Future;
/// #     fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
/// #         self.0.lock().unwrap().poll_ready(cx)
/// #     }
/// #     fn call(&mut self, request: R) -> S::Future { self.0.lock().unwrap().call(request) }
/// # }
/// # let server = Server(std::sync::Arc::new(std::sync::Mutex::new(server)));
/// let client = ServiceBuilder::new().retry(RetryPolicy::default()).service(server);
/// let response = client.oneshot(Request::new("question".to_owned())).await?;
/// assert_eq!(response.status(), StatusCode::OK);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    shared: Arc<Shared>,
    /// How often the request of this clone was retried.
    retried: u32,
}

#[derive(Debug)]
struct Shared {
    retries_max: u32,
    wait_max: Duration,
    backoff: Duration,
    jitter: f64,
    budget: Budget,
    clock: Clock,
    /// The state of the random numbers.
    seed: AtomicU64,
}

impl RetryPolicy {
    /// Returns the time to wait before a request with this response is retried, or `None` if it must not be. It takes
    /// nothing from the budget, and assumes the first retry: for clients that are not tower services.
    ///
    /// ```
    /// use http::{HeaderMap, Method, StatusCode};
    /// use std::time::Duration;
    /// use tidegate_tower::RetryPolicy;
    ///
    /// let policy = RetryPolicy::default();
    /// let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, 8.into())]);
    /// let wait = policy.wait(&Method::POST, StatusCode::TOO_MANY_REQUESTS, &headers).unwrap();
    /// assert!((8..=10).contains(&wait.as_secs()));
    /// assert_eq!(policy.wait(&Method::POST, StatusCode::INTERNAL_SERVER_ERROR, &headers), None);
    /// ```
    #[must_use]
    pub fn wait(&self, method: &Method, status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
        let now = || self.shared.clock.now();
        let told = match status {
            StatusCode::TOO_MANY_REQUESTS => retry_after(headers, now()).unwrap_or_default(),
            StatusCode::SERVICE_UNAVAILABLE if method.is_idempotent() => {
                retry_after(headers, now()).unwrap_or_default()
            }
            // All calls of gRPC are answered so.
            StatusCode::OK => call::wait(headers, now)?,
            _ => return None,
        };
        if told > self.shared.wait_max || self.retried >= self.shared.retries_max {
            return None;
        }
        let backoff = self.shared.backoff.saturating_mul(1 << self.retried.min(30));
        let least = told.max(backoff).min(self.shared.wait_max);
        // Never earlier than told, and never beyond the longest wait.
        Some(least.saturating_add(least.mul_f64(self.shared.roll() * self.shared.jitter)).min(self.shared.wait_max))
    }
}

impl Shared {
    fn roll(&self) -> f64 {
        Dice::new(self.seed.fetch_add(1, Ordering::Relaxed)).fraction()
    }
}

impl<B: Clone, R, E> Policy<Request<B>, Response<R>, E> for RetryPolicy {
    type Future = Sleep;

    fn retry(&mut self, request: &mut Request<B>, result: &mut Result<Response<R>, E>) -> Option<Sleep> {
        if self.retried == 0 {
            self.shared.budget.note_request();
        }
        let response = result.as_ref().ok()?;
        let wait = self.wait(request.method(), response.status(), response.headers())?;
        if !self.shared.budget.take() {
            return None;
        }
        self.retried += 1;
        Some(tokio::time::sleep(wait))
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}

#[cfg(test)]
mod tests;
