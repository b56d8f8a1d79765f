//! The layer for clients: who is refused much asks less, before it costs the server anything.

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
use super::sent::{Counts, InProgress, SentCounter};
use crate::ended::Ended;
use crate::error::ConfigError;
use crate::grpc::code;
use crate::lock::lock;
use crate::stopwatch::Stopwatch;
use crate::switch::Switch;

/// Holds a client's requests back when the server refuses many of them: as many more pass as the server accepts, and
/// the rest fails here at once, with [`Throttled::HeldBack`]. One layer is for one server.
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
    config: ClientThrottleConfig,
    sent: &'static SentCounter,
    dice: Mutex<Dice>,
    accepted: Option<Accepted>,
    clock: Stopwatch,
    switch: Switch,
}

/// What the user takes for accepted.
type Accepted = Arc<dyn Fn(Ended<'_>) -> bool + Send + Sync>;

impl ThrottleLayer {
    /// A layer to be set up.
    #[must_use]
    pub fn builder(config: ClientThrottleConfig) -> ThrottleBuilder {
        ThrottleBuilder { config, accepted: None, mode: Mode::Enforce, seed: None }
    }

    /// Whether it acts, and what it has held back.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.switch
    }

    /// How probably the next request is held back.
    #[must_use]
    pub fn probability(&self) -> f64 {
        let Counts { requests, accepts } = self.0.sent.catch_up(|| self.0.clock.now());
        self.0.config.probability(requests, accepts)
    }
}

/// Sets a [`ThrottleLayer`] up.
pub struct ThrottleBuilder {
    config: ClientThrottleConfig,
    accepted: Option<Accepted>,
    mode: Mode,
    seed: Option<u64>,
}

impl ThrottleBuilder {
    /// Whether the server has accepted a request, which is not whether it went well. If nothing is said: it has unless
    /// it answered 429 or 503, or UNAVAILABLE or RESOURCE_EXHAUSTED for gRPC, or there was an error instead of an
    /// answer. It is not asked about what was sent while the layer was off.
    #[must_use]
    pub fn accepted<F>(self, accepted: F) -> ThrottleBuilder
    where
        F: Fn(Ended<'_>) -> bool + Send + Sync + 'static,
    {
        ThrottleBuilder { accepted: Some(Arc::new(accepted)), ..self }
    }

    /// Whether it acts at first.
    #[must_use]
    pub fn mode(self, mode: Mode) -> ThrottleBuilder {
        ThrottleBuilder { mode, ..self }
    }

    /// What chance follows from, for tests. If nothing is said, it is another in each process.
    #[must_use]
    pub fn seed(self, seed: u64) -> ThrottleBuilder {
        ThrottleBuilder { seed: Some(seed), ..self }
    }

    /// The layer.
    ///
    /// # Errors
    /// If a number is out of its range.
    pub fn build(self) -> Result<ThrottleLayer, ConfigError> {
        let sent = SentCounter::of(ClientThrottle::new(self.config)?);
        let dice = Mutex::new(Dice::new(self.seed.unwrap_or_else(seed)));
        let (switch, clock) = (Switch::in_mode(self.mode), Stopwatch::shared());
        Ok(ThrottleLayer(Arc::new(Shared { config: self.config, sent, dice, accepted: self.accepted, clock, switch })))
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

impl Shared {
    /// The place of a request that is sent; nothing if it is held back.
    #[inline]
    fn send(&self) -> Option<InProgress> {
        let mode = self.switch.mode();
        if mode == Mode::Off {
            // Neither it nor its answer is counted.
            return Some(self.sent.enter());
        }
        let (Counts { requests, accepts }, place) = self.sent.request(|| self.clock.now());
        let judgement = mode.judge(|| self.config.probability(requests, accepts) > 0.0 && self.holds_back());
        self.switch.count(judgement);
        (judgement != Judgement::Shed).then_some(place)
    }

    /// Whether a request that has been counted is held back: nobody is by numbers that may not belong together.
    #[cold]
    fn holds_back(&self) -> bool {
        let Counts { requests, accepts } = self.sent.catch_up(|| self.clock.now());
        // The request itself comes after those.
        self.config.sheds(requests.saturating_sub(1), accepts, || lock(&self.dice).roll())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.sent.close();
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

/// Why a request of a client has failed.
#[derive(Debug, thiserror::Error)]
pub enum Throttled<E> {
    /// It was held back here: the server refuses too much. Nothing was sent.
    #[error("held back: the server refuses too many requests; try again later")]
    HeldBack,
    /// The client behind has failed.
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
        let state = match self.shared.send() {
            None => Sent::HeldBack,
            Some(place) => Sent::On {
                future: self.inner.call(request),
                place: Some(place),
                accepted: self.shared.accepted.clone(),
                clock: self.shared.clock,
            },
        };
        ThrottleFuture { state }
    }
}

pin_project! {
    /// The response of a [`Throttle`].
    pub struct ThrottleFuture<F> {
        #[pin]
        state: Sent<F>,
    }
}

pin_project! {
    #[project = SentProjection]
    enum Sent<F> {
        On { #[pin] future: F, place: Option<InProgress>, accepted: Option<Accepted>, clock: Stopwatch },
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
            SentProjection::On { future, place, accepted, clock } => {
                let result = ready!(future.poll(context));
                if let Some(place) = place.take() {
                    let end = Ended::of(&result);
                    let is_accepted = || accepted.as_ref().map_or_else(|| by_default(end), |accepted| accepted(end));
                    place.answered(is_accepted, || clock.now());
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
    use super::super::sent::tests::{ALONE, mistake};
    use super::*;

    fn layer() -> ThrottleLayer {
        ThrottleLayer::builder(ClientThrottleConfig::default()).seed(3).build().unwrap()
    }

    /// Has a request of this layer answered.
    fn accept(layer: &ThrottleLayer, place: InProgress) {
        place.answered(|| true, || layer.0.clock.now());
    }

    fn counts(layer: &ThrottleLayer) -> Counts {
        layer.0.sent.catch_up(|| layer.0.clock.now())
    }

    #[test]
    fn nobody_is_held_back_by_numbers_that_do_not_belong_together() {
        let _alone = lock(&ALONE);
        let layer = layer();
        (0..100).for_each(|_| accept(&layer, layer.0.send().unwrap()));
        for step in 0..100 {
            mistake(layer.0.sent);
            assert!(layer.0.send().is_some(), "step {step}");
        }
        assert_eq!(counts(&layer), Counts { requests: 200, accepts: 100 });
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
        let _alone = lock(&ALONE);
        let layer = ThrottleLayer::builder(ClientThrottleConfig::default()).mode(Mode::Off).build().unwrap();
        accept(&layer, layer.0.send().unwrap());
        drop(layer.0.send());
        assert_eq!(counts(&layer), Counts::default());
    }

    #[test]
    fn a_layer_that_is_gone_leaves_its_counter_to_the_next() {
        let _alone = lock(&ALONE);
        let first = layer().0.sent;
        assert!(std::ptr::eq(first, layer().0.sent));
    }

    #[test]
    fn holds_back_as_the_throttle_of_the_core_does() {
        let _alone = lock(&ALONE);
        let layer = layer();
        let (config, mut dice) = (ClientThrottleConfig::default(), Dice::new(3));
        let (mut requests, mut accepts, mut chance) = (0, 0, Dice::new(9));
        for step in 0..20_000 {
            let expected = config.sheds(requests, accepts, || dice.roll());
            let sent = layer.0.send();
            assert_eq!(sent.is_none(), expected, "step {step}");
            requests += 1;
            // A third is accepted of what is sent.
            if let Some(place) = sent
                && chance.roll().is_multiple_of(3)
            {
                accept(&layer, place);
                accepts += 1;
            }
        }
        assert!(layer.switch().refused() > 1000, "{}", layer.switch().refused());
    }
}
