//! Rate limits as a layer.
//!
//! | to find | look in |
//! |---|---|
//! | the builder | `builder.rs` |
//! | the layer, and a request's way through it | `mod.rs` |
//! | decisions by one limit, in memory | `limit.rs` |
//! | decisions by the rules of an engine, whose stores may be shared | `policy.rs` |
//! | shadow mode that waits for no store | `watch.rs` |

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response};
use tidegate_core::shed::Judgement;
use tower_layer::Layer;

use crate::answer::{Denied, add};
use crate::guard::{Answer, Closing, Doorkeeper, Entered, Guarded, Learns, Out, Waiting};
use crate::{Head, Mode, ResponseHead, Speaks, Switch};

mod builder;
mod limit;
mod policy;
mod watch;

pub use builder::{ByLimit, ByPolicy, RateLimitBuilder};
use limit::LimitJudge;
pub use limit::Settle;
use policy::{PolicyJudge, Report};
use watch::{Watch, Watchers};

/// Limits how often a service is called. Create it with [`RateLimitLayer::limit`] or [`RateLimitLayer::policy`]. All
/// services made by one layer count together, and so do their clones.
///
/// A request over a limit gets 429 with `Retry-After`, `RateLimit`, `RateLimit-Policy` and a JSON problem body (RFC
/// 9457), or RESOURCE_EXHAUSTED with the wait in its details over gRPC; the service behind is not called.
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
    /// Returns the switch, which sets the mode at run time and counts denials.
    ///
    /// ```
    /// use tidegate_tower::{KeyBy, Mode, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::limit("100/minute".parse()?, KeyBy::api_key()).mode(Mode::Shadow).build()?;
    /// let switch = layer.switch().clone();
    /// // Later, from a route for administrators, once the number looks right.
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
    type Service = Guarded<S, RateLimitLayer>;

    fn layer(&self, inner: S) -> Guarded<S, RateLimitLayer> {
        Guarded::new(inner, self.clone())
    }
}

impl Doorkeeper for RateLimitLayer {
    type Permit = Owed;
    type Held = ();
    type Wait = StoreAsked;

    const TELLS: bool = true;

    #[inline]
    fn enter(&self, head: &Head<'_>) -> Entered<Owed, StoreAsked> {
        let shared = &self.shared;
        if shared.switch.mode() == Mode::Off {
            return Entered::Uncounted;
        }
        match shared.judge_at_once(head) {
            Some(Verdict::Pass(None)) => Entered::Uncounted,
            Some(Verdict::Pass(Some(ticket))) => Entered::In(shared.owed(ticket)),
            verdict => shared.go_on(head, verdict),
        }
    }

    fn wait(self, _: StoreAsked, parts: Parts) -> Waiting<Owed> {
        Box::pin(async move {
            let verdict = self.shared.judge(&parts).await;
            let settled = self.shared.settle_on(verdict, &parts.headers);
            (parts, settled)
        })
    }

    fn tell<B>(owed: &mut Owed, body_bytes: Option<u64>, response: &mut Response<B>) -> Option<Closing> {
        owed.shared.finish(owed.ticket.take()?, body_bytes, response)
    }
}

impl<E> Learns<E> for RateLimitLayer {}

/// The remaining work for the response of a request that passed.
pub struct Owed {
    shared: Arc<Shared>,
    ticket: Option<Ticket>,
}

/// Nothing is held while a body is sent.
impl From<Owed> for () {
    fn from(_: Owed) {}
}

/// A shared store must be asked.
pub struct StoreAsked;

/// The state that all services of a layer share.
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

/// The decision about a request.
enum Verdict {
    /// It passes; the ticket, if any, is for its response.
    Pass(Option<Ticket>),
    Deny(Box<Denied>),
}

/// The remaining work for a response. It moves with each request, so large parts are boxed.
#[derive(Debug)]
enum Ticket {
    /// One limit is shown, as in nearly all responses that show any.
    One {
        remaining: u64,
        wait: Duration,
    },
    /// Limits of rules are shown.
    All(Vec<(&'static str, HeaderValue)>),
    More(Box<(Told, Later)>),
}

impl Ticket {
    /// Returns `None` if nothing remains to be done.
    fn new(told: Told, later: Later) -> Option<Ticket> {
        match (told, later) {
            (Told::Nothing, Later::Nothing) => None,
            (Told::One { remaining, wait }, Later::Nothing) => Some(Ticket::One { remaining, wait }),
            (Told::All(all), Later::Nothing) => Some(Ticket::All(all)),
            more => Some(Ticket::More(Box::new(more))),
        }
    }

    fn into_parts(self) -> (Told, Later) {
        match self {
            Ticket::One { remaining, wait } => (Told::One { remaining, wait }, Later::Nothing),
            Ticket::All(all) => (Told::All(all), Later::Nothing),
            Ticket::More(more) => *more,
        }
    }
}

/// The limits that a response shows.
#[derive(Debug)]
enum Told {
    Nothing,
    One { remaining: u64, wait: Duration },
    All(Vec<(&'static str, HeaderValue)>),
}

/// The counts to be made when the response is there.
#[derive(Debug)]
enum Later {
    Nothing,
    Settle(Box<limit::Taken>),
    Report(Box<Report>),
    Watch(Box<Watch>),
}

impl Shared {
    /// Decides without awaiting. Returns `None` if a shared store must be asked.
    fn judge_at_once(&self, head: &Head<'_>) -> Option<Verdict> {
        match &self.judge {
            Judge::Limit(judge) => Some(judge.judge(head)),
            Judge::Policy(judge) => judge.judge_at_once(head),
        }
    }

    /// Decides by a store that may have to be awaited.
    async fn judge(&self, parts: &Parts) -> Verdict {
        let head = &Head::of_parts(parts);
        match &self.judge {
            Judge::Limit(judge) => judge.judge(head),
            Judge::Policy(judge) => judge.judge(head).await,
        }
    }

    /// Handles a request that is denied, needs a shared store, or is only watched: apart from the path of requests that
    /// pass at once.
    #[cold]
    #[inline(never)]
    fn go_on(self: &Arc<Shared>, head: &Head<'_>, verdict: Option<Verdict>) -> Entered<Owed, StoreAsked> {
        match verdict {
            Some(verdict) => match self.settle_on(verdict, head.headers()) {
                Ok(owed) => Entered::with(owed),
                Err(answer) => Entered::Out(Out::Answered(answer)),
            },
            None if self.switch.mode() == Mode::Shadow => {
                let ticket = self.watch(head.to_parts());
                Entered::with(ticket.map(|ticket| self.owed(ticket)))
            }
            None => Entered::wait(StoreAsked),
        }
    }

    /// The remaining work for the response. A layer in shadow mode shows nothing.
    #[inline]
    fn owed(self: &Arc<Shared>, ticket: Ticket) -> Owed {
        let is_felt = self.switch.mode() == Mode::Enforce;
        let ticket = if is_felt { Some(ticket) } else { Ticket::new(Told::Nothing, ticket.into_parts().1) };
        Owed { shared: Arc::clone(self), ticket }
    }

    /// Applies a verdict in the current mode: returns what remains for the response of a request that passes, or the
    /// answer.
    fn settle_on(self: &Arc<Shared>, verdict: Verdict, headers: &HeaderMap) -> Result<Option<Owed>, Answer> {
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

    /// Adds headers and counts when the response is there. Returns what must be awaited.
    fn finish<B>(
        self: &Arc<Shared>,
        ticket: Ticket,
        body_bytes: Option<u64>,
        response: &mut Response<B>,
    ) -> Option<Closing> {
        let head = ResponseHead::with_body_of(body_bytes, response);
        let (told, later) = ticket.into_parts();
        let reported = match (later, &self.judge) {
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
        match (told, &self.judge) {
            (Told::One { remaining, wait }, Judge::Limit(judge)) => judge.tell(remaining, wait, response.headers_mut()),
            (Told::All(all), _) => {
                all.into_iter().for_each(|(name, value)| add(response.headers_mut(), name, value));
            }
            _ => {}
        }
        reported.map(|(report, told)| -> Closing {
            let shared = Arc::clone(self);
            Box::pin(async move {
                if let Judge::Policy(judge) = &shared.judge {
                    judge.report(&report, &told).await;
                }
            })
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Shared");
        match &self.judge {
            Judge::Limit(judge) => shown.field("limit", judge.limit()),
            Judge::Policy(judge) => shown.field("domain", &judge.domain()),
        };
        shown.field("switch", &self.switch).field("speaks", &self.speaks).finish()
    }
}
