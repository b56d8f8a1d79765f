//! Limits on rates, as a layer.
//!
//! | to find | look in |
//! |---|---|
//! | what users set up | `builder.rs` |
//! | the layer and its service | `mod.rs` |
//! | one request's way through it | `future.rs` |
//! | deciding by one limit, in memory | `limit.rs` |
//! | deciding by the rules of an engine, whose stores may be shared | `policy.rs` |
//! | shadow mode that waits for no store | `watch.rs` |

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tidegate_core::shed::Judgement;
use tidegate_engine::http_headers::Header;
use tower_layer::Layer;
use tower_service::Service;

use crate::answer::{Denied, add};
use crate::{Head, LayerBody, Mode, ResponseHead, Speaks, Switch};

mod builder;
mod future;
mod limit;
mod policy;
mod watch;

pub use builder::{ByLimit, ByPolicy, RateLimitBuilder};
pub use future::RateLimitFuture;
use future::{Owed, Rare, Rest};
use limit::LimitJudge;
pub use limit::Settle;
use policy::{PolicyJudge, Report};
use watch::{Watch, Watchers};

/// Limits how often a service is called. Make it with [`RateLimitLayer::limit`] or [`RateLimitLayer::policy`]; all
/// services that one layer makes count together, and so do their clones.
///
/// What is over a limit gets 429 with `Retry-After`, `RateLimit`, `RateLimit-Policy` and a problem as JSON (RFC 9457), or
/// over gRPC RESOURCE_EXHAUSTED with the wait in its details; the service behind is not called.
///
/// ```
/// use axum::{Router, routing::get};
/// use tidegate_tower::{KeyBy, RateLimitLayer};
///
/// let layer = RateLimitLayer::limit("100/minute".parse()?, KeyBy::header("x-user")).build()?;
/// let app: Router = Router::new().route("/", get(async || "hello")).layer(layer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    shared: Arc<Shared>,
}

impl RateLimitLayer {
    /// Switches the layer while it runs, and tells how many it denied.
    ///
    /// ```
    /// use tidegate_tower::{KeyBy, Mode, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::limit("100/minute".parse()?, KeyBy::api_key()).mode(Mode::Shadow).build()?;
    /// let switch = layer.switch().clone();
    /// // Later, from a route for administrators: what would have been denied looks right.
    /// println!("{} would have been denied", switch.would_refuse());
    /// switch.set_mode(Mode::Enforce);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.shared.switch
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::optional(inner, Some(self))
    }
}

/// A service behind a [`RateLimitLayer`].
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    /// Nothing if all pass.
    shared: Option<Arc<Shared>>,
}

impl<S> RateLimit<S> {
    /// A service behind a layer, or behind none: stacks need not have one.
    pub(crate) fn optional(inner: S, layer: Option<&RateLimitLayer>) -> RateLimit<S> {
        RateLimit { inner, shared: layer.map(|layer| Arc::clone(&layer.shared)) }
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body,
{
    type Response = Response<LayerBody<R>>;
    type Error = S::Error;
    type Future = RateLimitFuture<S, B, S::Future, R>;

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service is called in one place: of two futures that are made, the compiler would copy one to the other.
        let rest = match self.shared.as_ref().filter(|shared| shared.switch.mode() != Mode::Off) {
            None => Rest::Nothing,
            Some(shared) => match shared.judge_at_once(Head::of(&request)) {
                Some(Verdict::Pass(None)) => Rest::Nothing,
                Some(Verdict::Pass(Some(ticket))) => Rest::of(Some(shared.owed(ticket))),
                verdict => return RateLimitFuture::rare(go_on(shared, &mut self.inner, request, verdict)),
            },
        };
        RateLimitFuture::calling(self.inner.call(request), rest)
    }
}

/// What is done with a request that is denied, that a store has to be asked about, or that is only watched: out of the way
/// of those that pass at once.
#[cold]
#[inline(never)]
fn go_on<S: Clone, B, R>(
    shared: &Arc<Shared>,
    inner: &mut S,
    request: Request<B>,
    verdict: Option<Verdict>,
) -> Box<Rare<S, B, R>> {
    // The one that is ready is called later; the next caller gets the other one ready.
    let mut ready = || {
        let next = inner.clone();
        std::mem::replace(inner, next)
    };
    if let Some(verdict) = verdict {
        return Box::new(match shared.settle_on(verdict, request.headers()) {
            Ok(owed) => Rare::Passing { call: Some(Box::new((ready(), request, owed))) },
            Err(answer) => Rare::Denied { answer: Some(answer) },
        });
    }
    let (parts, body) = request.into_parts();
    if shared.switch.mode() == Mode::Shadow {
        let owed = shared.watch(parts.clone()).map(|ticket| (Arc::clone(shared), ticket));
        return Box::new(Rare::Passing { call: Some(Box::new((ready(), Request::from_parts(parts, body), owed))) });
    }
    let judged = Shared::judge(Arc::clone(shared), parts);
    Box::new(Rare::Asking { judged, waiting: Some((ready(), body)) })
}

/// What all services of a layer share.
struct Shared {
    judge: Judge,
    switch: Switch,
    speaks: Speaks,
    watchers: Watchers,
}

#[allow(clippy::large_enum_variant, reason = "there is one for each layer, and a box would cost each request a look")]
enum Judge {
    Limit(LimitJudge),
    Policy(PolicyJudge),
}

/// What is decided of a request.
enum Verdict {
    /// It passes. What is left to do with its response, if anything.
    Pass(Option<Ticket>),
    Deny(Box<Denied>),
}

/// What is left to do when the response is there.
#[derive(Debug, Default)]
struct Ticket {
    told: Told,
    later: Later,
}

/// What a response that passed tells of limits.
#[derive(Debug, Default)]
enum Told {
    #[default]
    Nothing,
    One {
        remaining: u64,
        wait: Duration,
    },
    All(Vec<Header>),
}

/// What is counted when the response is there.
#[derive(Debug, Default)]
enum Later {
    #[default]
    Nothing,
    Settle(Box<limit::Taken>),
    Report(Box<Report>),
    Watch(Box<Watch>),
}

/// What the layer answers itself.
type Answer = Box<Response<Bytes>>;
type Judged = Pin<Box<dyn Future<Output = (Parts, Arc<Shared>, Verdict)> + Send>>;
type Reported = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Shared {
    /// The verdict, if no store has to be waited for.
    fn judge_at_once(&self, head: Head<'_>) -> Option<Verdict> {
        match &self.judge {
            Judge::Limit(judge) => Some(judge.judge(head)),
            Judge::Policy(judge) => judge.judge_at_once(head),
        }
    }

    /// The verdict of a store that may have to be waited for. Only this is boxed.
    fn judge(shared: Arc<Shared>, parts: Parts) -> Judged {
        Box::pin(async move {
            let head = Head::of_parts(&parts);
            let verdict = match &shared.judge {
                Judge::Limit(judge) => judge.judge(head),
                Judge::Policy(judge) => judge.judge(head).await,
            };
            (parts, shared, verdict)
        })
    }

    /// What is owed to the response of a request that passed. What only watches must not be felt.
    #[inline]
    fn owed(self: &Arc<Shared>, mut ticket: Ticket) -> (Arc<Shared>, Ticket) {
        if self.switch.mode() != Mode::Enforce {
            ticket.told = Told::Nothing;
        }
        (Arc::clone(self), ticket)
    }

    /// What a verdict comes to in the present mode: what is left to do when the request has passed, or the answer.
    fn settle_on(self: &Arc<Shared>, verdict: Verdict, headers: &HeaderMap) -> Result<Owed, Answer> {
        match verdict {
            Verdict::Pass(ticket) => Ok(ticket.map(|ticket| self.owed(ticket))),
            Verdict::Deny(_) if self.switch.mode() != Mode::Enforce => {
                self.switch.count(Judgement::WouldShed);
                Ok(None)
            }
            Verdict::Deny(denied) => {
                self.switch.count(Judgement::Shed);
                Err(Box::new(denied.respond(self.speaks.is_grpc(headers))))
            }
        }
    }

    /// Tells and counts what is left when the response is there. What has to be waited for is returned.
    fn finish<R: Body>(self: Arc<Self>, ticket: Ticket, response: &mut Response<R>) -> Option<Reported> {
        let head = ResponseHead::of(response);
        let reported = match (ticket.later, &self.judge) {
            (Later::Settle(taken), Judge::Limit(judge)) => {
                judge.settle(&taken, head);
                None
            }
            (Later::Report(report), Judge::Policy(judge)) => judge.report_at_once(report, head),
            (Later::Watch(watch), Judge::Policy(judge)) => {
                watch.answered(judge, head);
                None
            }
            _ => None,
        };
        match (ticket.told, &self.judge) {
            (Told::One { remaining, wait }, Judge::Limit(judge)) => judge.tell(remaining, wait, response.headers_mut()),
            (Told::All(all), _) => {
                all.into_iter().for_each(|(name, value)| add(response.headers_mut(), name, value));
            }
            _ => {}
        }
        reported.map(|(report, told)| -> Reported {
            Box::pin(async move {
                if let Judge::Policy(judge) = &self.judge {
                    judge.report(&report, &told).await;
                }
            })
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("RateLimit");
        match &self.judge {
            Judge::Limit(judge) => shown.field("limit", judge.limit()),
            Judge::Policy(judge) => shown.field("domain", &judge.domain()),
        };
        shown.field("switch", &self.switch).field("speaks", &self.speaks).finish()
    }
}
