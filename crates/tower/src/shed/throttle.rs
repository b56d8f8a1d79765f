//! The layer for clients: it holds requests back when the server refuses many, before they cost the server anything.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use http::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tidegate_core::Dice;
use tidegate_core::shed::{ClientThrottle, ClientThrottleConfig, Judgement, Mode};
use tower_layer::Layer;
use tower_service::Service;

use super::seed;
use crate::ended::Ended;
use crate::error::ConfigError;
use crate::grpc::code;
use crate::lock::lock;
use crate::stopwatch::Stopwatch;
use crate::switch::Switch;

/// Holds a client's requests back when the server refuses many of them: about [`k`](ClientThrottleConfig::k) times as
/// many pass as the server accepts, and the others fail at once, with [`Throttled::HeldBack`]. Use one layer for each
/// server.
///
/// ```
/// use tidegate_core::shed::ClientThrottleConfig;
/// use tidegate_tower::ThrottleLayer;
///
/// let layer = ThrottleLayer::builder(ClientThrottleConfig::default()).build()?;
/// # Ok::<(), tidegate_tower::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct ThrottleLayer(Arc<Shared>);

struct Shared {
    counts: Mutex<Counts>,
    accepted: Option<Accepted>,
    clock: Stopwatch,
    switch: Switch,
}

/// The client's counts, and the dice that decide. Throttled requests cross a network, so a lock is cheap enough.
struct Counts {
    throttle: ClientThrottle,
    dice: Dice,
}

/// The user's judgement whether a request was accepted.
type Accepted = Arc<dyn Fn(Ended<'_>) -> bool + Send + Sync>;

impl ThrottleLayer {
    /// Returns a builder of a layer.
    #[must_use]
    pub fn builder(config: ClientThrottleConfig) -> ThrottleBuilder {
        ThrottleBuilder { config, accepted: None, mode: Mode::Enforce, seed: None }
    }

    /// Returns the switch, which sets the mode and counts the requests held back.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.switch
    }

    /// Returns the probability that the next request is held back, from 0 to 1.
    #[must_use]
    pub fn probability(&self) -> f64 {
        let mut counts = lock(&self.0.counts);
        counts.throttle.probability(self.0.clock.now())
    }
}

/// Builds a [`ThrottleLayer`].
pub struct ThrottleBuilder {
    config: ClientThrottleConfig,
    accepted: Option<Accepted>,
    mode: Mode,
    seed: Option<u64>,
}

impl ThrottleBuilder {
    /// Sets whether the server accepted a request, which is not whether the request succeeded. By default it did unless
    /// it answered 429 or 503, or UNAVAILABLE or RESOURCE_EXHAUSTED for gRPC, or there was an error instead of a
    /// response. The closure is not called for requests sent while the layer was off.
    #[must_use]
    pub fn accepted<F>(self, accepted: F) -> ThrottleBuilder
    where
        F: Fn(Ended<'_>) -> bool + Send + Sync + 'static,
    {
        ThrottleBuilder { accepted: Some(Arc::new(accepted)), ..self }
    }

    /// Sets the initial mode. Default: [`Mode::Enforce`].
    #[must_use]
    pub fn mode(self, mode: Mode) -> ThrottleBuilder {
        ThrottleBuilder { mode, ..self }
    }

    /// Sets the seed of the random numbers, for tests. By default it is different in each process.
    #[must_use]
    pub fn seed(self, seed: u64) -> ThrottleBuilder {
        ThrottleBuilder { seed: Some(seed), ..self }
    }

    /// Builds the layer.
    ///
    /// # Errors
    /// Fails if a number is out of range.
    pub fn build(self) -> Result<ThrottleLayer, ConfigError> {
        let throttle = ClientThrottle::new(self.config)?;
        let counts = Mutex::new(Counts { throttle, dice: Dice::new(self.seed.unwrap_or_else(seed)) });
        let (switch, clock) = (Switch::in_mode(self.mode), Stopwatch::shared());
        Ok(ThrottleLayer(Arc::new(Shared { counts, accepted: self.accepted, clock, switch })))
    }
}

fn by_default(end: Ended<'_>) -> bool {
    match end {
        Ended::Response { status, .. } => {
            status != StatusCode::TOO_MANY_REQUESTS
                && status != StatusCode::SERVICE_UNAVAILABLE
                && !matches!(end.grpc_status(), Some(code::RESOURCE_EXHAUSTED | code::UNAVAILABLE))
        }
        Ended::Error(_) => false,
    }
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    HeldBack,
    Counted,
    /// The layer is off: neither the request nor its response counts.
    Uncounted,
}

impl Shared {
    /// Counts a request, and decides whether it is sent.
    fn send(&self) -> Sending {
        let mode = self.switch.mode();
        if mode == Mode::Off {
            return Sending::Uncounted;
        }
        let judgement = mode.judge(|| self.sheds());
        self.switch.count(judgement);
        if judgement == Judgement::Shed { Sending::HeldBack } else { Sending::Counted }
    }

    fn sheds(&self) -> bool {
        let Counts { throttle, dice } = &mut *lock(&self.counts);
        // Read under the lock: a thread that was suspended before it would take the throttle's window for one of a clock that
        // was set back, and all would be forgotten.
        let now = self.clock.now();
        // A number is rolled only if it matters.
        let roll = if throttle.probability(now) > 0.0 { dice.roll() } else { 0 };
        throttle.sheds(now, roll)
    }

    /// Counts the response to a counted request, if the server accepted it.
    fn answered(&self, end: Ended<'_>) {
        // The user's own code runs outside of the lock.
        if self.accepted.as_ref().map_or_else(|| by_default(end), |accepted| accepted(end)) {
            let mut counts = lock(&self.counts);
            counts.throttle.accepted(self.clock.now());
        }
    }
}

impl<S> Layer<S> for ThrottleLayer {
    type Service = Throttle<S>;

    fn layer(&self, inner: S) -> Throttle<S> {
        Throttle { inner, shared: Arc::clone(&self.0) }
    }
}

/// A client behind a [`ThrottleLayer`].
#[derive(Clone)]
pub struct Throttle<S> {
    inner: S,
    shared: Arc<Shared>,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Throttled<E> {
    /// The request was held back: the server refuses too many. It was not sent.
    #[error("held back: the server refuses too many requests; try again later")]
    HeldBack,
    /// The client behind failed.
    #[error(transparent)]
    Inner(E),
}

impl<S, A, B> Service<Request<A>> for Throttle<S>
where
    S: Service<Request<A>, Response = Response<B>, Error: 'static>,
{
    type Response = Response<B>;
    type Error = Throttled<S::Error>;
    type Future = ThrottleFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Throttled<S::Error>>> {
        self.inner.poll_ready(context).map_err(Throttled::Inner)
    }

    fn call(&mut self, request: Request<A>) -> ThrottleFuture<S::Future> {
        let counted = match self.shared.send() {
            Sending::HeldBack => return ThrottleFuture { state: Sent::HeldBack },
            Sending::Counted => Some(Arc::clone(&self.shared)),
            Sending::Uncounted => None,
        };
        let state = Sent::On { future: self.inner.call(request), counted };
        ThrottleFuture { state }
    }
}

pin_project! {
    /// The future of a [`Throttle`].
    pub struct ThrottleFuture<F> {
        #[pin]
        state: Sent<F>,
    }
}

pin_project! {
    #[project = SentProjection]
    enum Sent<F> {
        On { #[pin] future: F, counted: Option<Arc<Shared>> },
        HeldBack,
    }
}

impl<F, B, E: 'static> Future for ThrottleFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<B>, Throttled<E>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            SentProjection::On { future, counted } => {
                let result = ready!(future.poll(context));
                if let Some(shared) = counted.take() {
                    shared.answered(Ended::of(&result));
                }
                Poll::Ready(result.map_err(Throttled::Inner))
            }
            SentProjection::HeldBack => Poll::Ready(Err(Throttled::HeldBack)),
        }
    }
}

impl fmt::Debug for ThrottleLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ThrottleLayer").field("switch", &self.0.switch).finish_non_exhaustive()
    }
}

impl fmt::Debug for ThrottleBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ThrottleBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<S: fmt::Debug> fmt::Debug for Throttle<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Throttle").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer() -> ThrottleLayer {
        ThrottleLayer::builder(ClientThrottleConfig::default()).seed(3).mode(Mode::Shadow).build().unwrap()
    }

    /// Makes the server accept a request of this layer.
    fn accept(layer: &ThrottleLayer) {
        layer.0.answered(Ended::of(&Ok::<_, String>(Response::new(()))));
    }

    /// Counts stay below a hundred thousand here, so that different ones have different probabilities.
    fn check_counts(layer: &ThrottleLayer, requests: u64, accepts: u64) {
        let expected = ClientThrottleConfig::default().probability(requests, accepts);
        assert_eq!(layer.probability(), expected, "{requests} requests, {accepts} accepts");
    }

    #[test]
    fn what_is_accepted_if_nobody_says_otherwise() {
        for (status, grpc_status, expected) in [
            (200, None, true),
            (500, None, true),
            (429, None, false),
            (503, None, false),
            (200, Some("0"), true),
            (200, Some("13"), true),
            (200, Some("8"), false),
            (200, Some("14"), false),
        ] {
            let mut response = Response::builder().status(status);
            if let Some(grpc_status) = grpc_status {
                response = response.header("grpc-status", grpc_status);
            }
            let answer: Result<_, String> = Ok(response.body(()).unwrap());
            assert_eq!(by_default(Ended::of(&answer)), expected, "{status} {grpc_status:?}");
        }
        assert!(!by_default(Ended::of(&Err::<Response<()>, _>("gone"))));
    }

    #[test]
    fn what_is_sent_while_it_is_off_does_not_count() {
        let layer = layer();
        layer.switch().set_mode(Mode::Off);
        assert_eq!(layer.0.send(), Sending::Uncounted);
        check_counts(&layer, 0, 0);
    }

    #[test]
    fn many_at_once_are_all_counted() {
        let (layer, each) = (layer(), 10_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..each {
                        assert_eq!(layer.0.send(), Sending::Counted);
                        if number % 4 == 0 {
                            accept(&layer);
                        }
                    }
                });
            }
        });
        check_counts(&layer, 4 * each, each);
    }

    #[test]
    fn requests_and_answers_that_come_all_together_are_all_counted() {
        let (layer, many) = (layer(), 100_000);
        (0..many).for_each(|_| assert_eq!(layer.0.send(), Sending::Counted));
        check_counts(&layer, many, 0);
        (0..many / 4).for_each(|_| accept(&layer));
        check_counts(&layer, many, many / 4);
    }

    #[test]
    fn holds_back_as_the_throttle_of_the_core_does() {
        let layer = layer();
        layer.switch().set_mode(Mode::Enforce);
        let (config, mut dice) = (ClientThrottleConfig::default(), Dice::new(3));
        let (mut requests, mut accepts, mut chance) = (0, 0, Dice::new(9));
        for step in 0..20_000 {
            let expected = config.sheds(requests, accepts, || dice.roll());
            let sent = layer.0.send();
            assert_eq!(sent == Sending::HeldBack, expected, "step {step}");
            requests += 1;
            // A third is accepted of what is sent.
            if sent == Sending::Counted && chance.roll().is_multiple_of(3) {
                accept(&layer);
                accepts += 1;
            }
        }
        assert!(layer.switch().refused() > 1000, "{}", layer.switch().refused());
    }
}
