//! A request's way through the parts of a stack.
//!
//! It is one function and not one layer behind another: so a request is read where it lies, and all parts share one
//! future, one response and one permit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Response;
use http::request::Parts as RequestParts;

use super::{Part, Parts, StackLayer};
use crate::RateLimitLayer;
use crate::concurrency::ConcurrencyPermit;
use crate::fair::FairPermit;
use crate::gate::GateWait;
use crate::guard::{Answer, Blind, Closing, Doorkeeper, Entered, Learns, Out, Waited, Waiting};
use crate::head::Head;
use crate::rate::{Owed, StoreAsked};
use crate::shed::ShedPermit;

/// Requests that went on, of all that came. None ever decreases: sums of them are counters as well.
#[derive(Default)]
pub(super) struct Counts {
    /// Past all parts at once, as nearly all requests: one counter instead of one for each part.
    at_once: AtomicU64,
    /// Behind each part, for requests that some part did not let in at once.
    late: [AtomicU64; Part::ALL.len()],
}

impl Counts {
    /// Requests that went on behind a part, in any mode. A request whose closure panicked is not counted.
    pub(super) fn allowed(&self, part: Part) -> u64 {
        let late = self.late.get(part as usize).map_or(0, |late| late.load(Ordering::Relaxed));
        self.at_once.load(Ordering::Relaxed) + late
    }

    fn went_on(&self, part: Part) {
        if let Some(late) = self.late.get(part as usize) {
            late.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The permits that a request holds of each part, innermost first: fields are dropped in this order, so that a request
/// let in by an outer part finds room at the inner ones.
#[derive(Default)]
pub struct StackPermit {
    concurrency: Option<ConcurrencyPermit>,
    fair: Option<FairPermit>,
    /// Boxed: most requests have none, and for the others making headers or counting again takes longer than a box.
    rate: Option<Box<Owed>>,
    shed: Option<ShedPermit>,
}

/// The part of the permit that is held until the body of the response has ended.
#[derive(Debug)]
pub struct StackHeld {
    _concurrency: Option<ConcurrencyPermit>,
    _fair: Option<FairPermit>,
    _shed: Option<ShedPermit>,
}

impl From<StackPermit> for StackHeld {
    #[inline]
    fn from(permit: StackPermit) -> StackHeld {
        StackHeld { _concurrency: permit.concurrency, _fair: permit.fair, _shed: permit.shed }
    }
}

/// The wait of a queued request, and the permits it holds of the parts before.
pub struct StackWait {
    // Before the permit: who comes next, with what is given back, finds this line left.
    place: Place,
    permit: StackPermit,
}

enum Place {
    Rate(StoreAsked),
    Fair(GateWait),
    Concurrency(GateWait),
    /// The request is refused, and the rate limit still adds its headers.
    Refused(Answer),
}

impl Doorkeeper for StackLayer {
    type Permit = StackPermit;
    type Held = StackHeld;
    type Wait = StackWait;

    const TELLS: bool = true;

    #[inline]
    fn enter(&self, head: &Head<'_>) -> Entered<StackPermit, StackWait> {
        let parts = &*self.0;
        let mut permit = StackPermit::default();
        if let Some(shed) = &parts.shed {
            match shed.enter(head) {
                Entered::In(held) => permit.shed = Some(held),
                Entered::Uncounted => {}
                Entered::Out(out) => return parts.kept_out(head, Part::Shed, permit, out, |never| match never {}),
            }
        }
        if let Some(rate) = &parts.rate {
            match rate.enter(head) {
                Entered::In(owed) => permit.rate = Some(Box::new(owed)),
                Entered::Uncounted => {}
                Entered::Out(out) => return parts.kept_out(head, Part::Rate, permit, out, Place::Rate),
            }
        }
        if let Some(fair) = &parts.fair {
            match fair.enter(head) {
                Entered::In(held) => permit.fair = Some(held),
                Entered::Uncounted => {}
                Entered::Out(out) => return parts.kept_out(head, Part::Fair, permit, out, Place::Fair),
            }
        }
        if let Some(concurrency) = &parts.concurrency {
            match concurrency.enter_unseen() {
                Entered::In(held) => permit.concurrency = Some(held),
                Entered::Uncounted => {}
                Entered::Out(out) => return parts.kept_out(head, Part::Concurrency, permit, out, Place::Concurrency),
            }
        }
        parts.counts.at_once.fetch_add(1, Ordering::Relaxed);
        Entered::In(permit)
    }

    fn wait(self, wait: StackWait, request: RequestParts) -> Waiting<StackPermit> {
        Box::pin(go_on(self.0, wait, request))
    }

    #[inline]
    fn tells(permit: &StackPermit) -> bool {
        permit.rate.is_some()
    }

    fn tell<B>(permit: &mut StackPermit, body_bytes: Option<u64>, response: &mut Response<B>) -> Option<Closing> {
        RateLimitLayer::tell(&mut *permit.rate.take()?, body_bytes, response)
    }
}

impl<E> Learns<E> for StackLayer {}

impl Parts {
    /// A request that a part does not let in at once. The parts before it did.
    #[cold]
    #[inline(never)]
    fn kept_out<W>(
        &self,
        head: &Head<'_>,
        part: Part,
        permit: StackPermit,
        out: Out<W>,
        place: impl FnOnce(W) -> Place,
    ) -> Entered<StackPermit, StackWait> {
        Part::ALL.into_iter().take_while(|before| *before != part).for_each(|before| self.counts.went_on(before));
        match out.wait_or_answer(head.headers()) {
            Ok(wait) => Entered::wait(StackWait { permit, place: place(*wait) }),
            Err(answer) if permit.rate.is_some() => Entered::wait(StackWait { permit, place: Place::Refused(answer) }),
            Err(answer) => Entered::Out(Out::Answered(answer)),
        }
    }
}

/// Waits where a request waits, and then passes the parts behind. A request refused behind the rate limit may get back
/// what it took there.
async fn go_on(parts: Arc<Parts>, wait: StackWait, request: RequestParts) -> Waited<StackPermit> {
    let StackWait { mut permit, place } = wait;
    let (request, told) = pass(&parts, &mut permit, place, request).await;
    let mut answer = match told {
        Ok(()) => return (request, Ok(Some(permit))),
        Err(answer) => answer,
    };
    let body_bytes = answer.body().len() as u64;
    let owed = permit.rate.take();
    // It has no place any more, however long it takes to tell.
    drop(permit);
    let closing = owed.and_then(|mut owed| RateLimitLayer::tell(&mut owed, Some(body_bytes), &mut answer));
    if let Some(closing) = closing {
        closing.await;
    }
    (request, Err(answer))
}

/// Passes the parts from where a request waits.
async fn pass(
    parts: &Parts,
    permit: &mut StackPermit,
    place: Place,
    mut request: RequestParts,
) -> (RequestParts, Result<(), Answer>) {
    let (asked, in_turn, in_line) = match place {
        Place::Rate(asked) => (Some(asked), None, None),
        Place::Fair(wait) => (None, Some(wait), None),
        Place::Concurrency(wait) => (None, None, Some(wait)),
        Place::Refused(answer) => return (request, Err(answer)),
    };
    if let (Some(rate), Some(asked)) = (&parts.rate, asked) {
        let told;
        (request, told) = rate.clone().wait(asked, request).await;
        match told {
            Ok(owed) => permit.rate = owed.map(Box::new),
            Err(answer) => return (request, Err(answer)),
        }
        parts.counts.went_on(Part::Rate);
    }
    if in_line.is_none() {
        if let Some(fair) = &parts.fair {
            let entered = in_turn.map_or_else(|| fair.enter(&Head::of_parts(&request)), Entered::wait);
            let told;
            (request, told) = through(fair, entered, request).await;
            match told {
                Ok(held) => permit.fair = held,
                Err(answer) => return (request, Err(answer)),
            }
        }
        parts.counts.went_on(Part::Fair);
    }
    if let Some(concurrency) = &parts.concurrency {
        let entered = in_line.map_or_else(|| concurrency.enter_unseen(), Entered::wait);
        let told;
        (request, told) = through(concurrency, entered, request).await;
        match told {
            Ok(held) => permit.concurrency = held,
            Err(answer) => return (request, Err(answer)),
        }
    }
    parts.counts.went_on(Part::Concurrency);
    (request, Ok(()))
}

/// The result of a part, after a wait if it queues the request.
async fn through<D: Doorkeeper>(
    part: &D,
    entered: Entered<D::Permit, D::Wait>,
    request: RequestParts,
) -> Waited<D::Permit> {
    let out = match entered {
        Entered::In(permit) => return (request, Ok(Some(permit))),
        Entered::Uncounted => return (request, Ok(None)),
        Entered::Out(out) => out,
    };
    match out.wait_or_answer(&request.headers) {
        Ok(wait) => part.clone().wait(*wait, request).await,
        Err(answer) => (request, Err(answer)),
    }
}
