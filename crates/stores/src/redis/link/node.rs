//! One node: its breaker, and a few links to it.
//!
//! A thread always takes the same link, so that on a server with one runtime a core each core has a connection of its
//! own, whose task runs beside its callers. Only while that one is not up it takes another one's.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use redis::{RedisError, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::bounds::{CALLS_IN_FLIGHT_MAX, FAILURES_IN_ROW_MAX};
use super::circuit::Circuit;
use super::command::Request;
use super::dial::{Dialer, Endpoint, said};
use super::error::Why;
use super::journal::Journal;
use super::keeper;
use super::link::{Link, Live, State};
use super::sentinel::Sentinels;
use crate::health::Breaker;
use crate::health::{Counters, Stopwatch};

/// What all nodes of a store share.
pub(super) struct Shared {
    /// The URL, without the password.
    pub(super) store: Arc<str>,
    pub(super) dialer: Dialer,
    pub(super) counters: Counters,
    pub(super) stopwatch: Stopwatch,
    /// What an answer may take, to count as one when a node is probed.
    pub(super) budget: Duration,
    pub(super) links: usize,
    /// Told when a node could not be reached, so that the map of a Cluster is looked at again.
    pub(super) trouble: Notify,
}

/// How a node is found.
#[derive(Clone)]
pub(super) enum Whereabouts {
    Fixed(Endpoint),
    /// The primary, wherever the Sentinels say it is.
    Asked(Arc<Sentinels>),
}

pub(super) struct Node {
    pub(super) name: String,
    pub(super) whereabouts: Whereabouts,
    pub(super) shared: Arc<Shared>,
    pub(super) circuit: Circuit,
    pub(super) links: Box<[Link]>,
    pub(super) closed: AtomicBool,
    pub(super) journal: Journal,
    born: Instant,
    used: AtomicBool,
}

/// What became of one sending.
pub(super) enum Sending {
    Answered(Value, Arc<Live>),
    /// Nothing of it reached the server or will.
    NotSent(Why),
    /// It may have.
    Unknown(Why),
}

impl Node {
    pub(super) fn new(name: String, whereabouts: Whereabouts, shared: &Arc<Shared>) -> Arc<Node> {
        Arc::new(Node {
            name,
            whereabouts,
            shared: Arc::clone(shared),
            circuit: Circuit::default(),
            links: (0..shared.links).map(|_| Link::default()).collect(),
            closed: AtomicBool::new(false),
            journal: Journal::default(),
            born: Instant::now(),
            used: AtomicBool::new(false),
        })
    }

    /// Sends a request once, and waits for the answer until the deadline at most.
    ///
    /// A request that still waits in the queue of the connection when the deadline comes is not sent later: its caller
    /// is gone, and the queue skips it. One that is in the buffer of the socket may be, which is why it is unknown.
    pub(super) async fn send(self: &Arc<Self>, request: &Request<'_>, deadline: Instant, budget: Duration) -> Sending {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        if !self.circuit.is_closed() {
            // Somebody must probe, also if the runtimes of those who did are gone.
            let _ = keeper::start(self, self.index());
            return Sending::NotSent(Why::BreakerOpen);
        }
        let live = match self.live(deadline, budget).await {
            Ok(live) => live,
            Err(why) => return Sending::NotSent(why),
        };
        let Some(place) = InFlight::take(&live.in_flight) else { return Sending::NotSent(Why::Busy) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Sending::NotSent(Why::TimedOut(budget));
        }
        let written = live.written.load(Relaxed);
        match timeout_at(deadline, exchange(&live, request)).await {
            Ok(Ok(value)) => {
                self.circuit.succeeded(self.age());
                live.answered();
                drop(place);
                Sending::Answered(value, live)
            }
            Ok(Err(error)) => {
                let why = Why::Broken(said(&error).into());
                // The connection is over. If nothing was written since before the request was queued, then it was not.
                if live.written.load(Relaxed) == written {
                    return Sending::NotSent(why);
                }
                self.failed();
                Sending::Unknown(why)
            }
            // Who came with little time left, because other nodes took it, says nothing about this one.
            Err(_) if left < budget / 2 => Sending::Unknown(Why::TimedOut(budget)),
            Err(_) => {
                self.failed();
                // While other links answer, the breaker stays closed: then it is this connection that hangs.
                if live.late() >= FAILURES_IN_ROW_MAX && self.circuit.is_closed() {
                    self.retire(&live);
                }
                Sending::Unknown(Why::TimedOut(budget))
            }
        }
    }

    /// The connection of this thread. A first attempt to make it is waited for, for one budget; later ones are not.
    async fn live(self: &Arc<Self>, deadline: Instant, budget: Duration) -> Result<Arc<Live>, Why> {
        let index = self.index();
        let Some(link) = self.links.get(index) else { return Err(Why::NoConnection("it has no links".into())) };
        if let Some(live) = link.live() {
            return Ok(live);
        }
        keeper::start(self, index)?;
        // Keepers that found nobody try again at times of their own. As soon as one of them succeeds, all threads have
        // answers.
        if let Some(live) = self.links.iter().find_map(Link::live) {
            return Ok(live);
        }
        let mut watch = link.state.subscribe();
        // An attempt that takes longer than a budget is not waited for by those who come later.
        let deadline = match *watch.borrow() {
            State::First(since) => deadline.min(since + budget),
            State::Idle | State::Down(_) | State::Up(_) => deadline,
        };
        let state = timeout_at(deadline, watch.wait_for(|state| decided(state).is_some())).await;
        let late = || Err(Why::Connecting);
        state.ok().and_then(Result::ok).and_then(|state| decided(&state)).unwrap_or_else(late)
    }

    /// Which link this thread takes.
    fn index(&self) -> usize {
        thread_number() % self.links.len().max(1)
    }

    /// Counts a failure; the one that opens the breaker sets off the probes.
    pub(super) fn failed(self: &Arc<Self>) {
        if self.circuit.failed(self.age()) {
            self.shared.counters.opened.fetch_add(1, Relaxed);
            self.journal.breaker_opened(self);
            for link in &self.links {
                link.probe.notify_one();
            }
            self.shared.trouble.notify_one();
        }
    }

    pub(super) fn age(&self) -> Duration {
        self.born.elapsed()
    }

    /// This connection does not lead to where calls should go: it gets no further ones.
    pub(super) fn retire(&self, live: &Live) {
        for link in &self.links {
            link.retire(live);
        }
    }

    /// Ends every connection at once unless it leads to this endpoint.
    pub(super) fn cut_all_but(&self, endpoint: &Endpoint) {
        for link in &self.links {
            link.cut_unless(endpoint);
        }
    }

    /// Lets keepers connect now, whatever their backoff.
    pub(super) fn retry_now(&self) {
        for link in &self.links {
            link.retry.notify_one();
        }
    }

    /// Ends every link for good.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
        for link in &self.links {
            link.stop.notify_one();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// A connection that answers, if there is one.
    pub(super) fn any_live(&self) -> Option<Arc<Live>> {
        self.links.iter().filter(|_| self.circuit.is_closed()).find_map(Link::live)
    }

    pub(super) fn breaker(&self) -> Breaker {
        if self.circuit.is_closed() && self.links_down() > 0 && self.links_up() == 0 {
            return Breaker::Open;
        }
        self.circuit.state()
    }

    pub(super) fn links_up(&self) -> usize {
        self.links.iter().filter(|link| matches!(*link.state.borrow(), State::Up(_))).count()
    }

    fn links_down(&self) -> usize {
        self.links.iter().filter(|link| matches!(*link.state.borrow(), State::Down(_))).count()
    }

    pub(super) fn is_troubled(&self) -> bool {
        !self.circuit.is_closed() || self.links_down() > 0
    }

    /// Whether calls were sent here since this was last asked.
    pub(super) fn take_used(&self) -> bool {
        self.used.swap(false, Relaxed)
    }
}

/// What a link has come to, if its keeper has come to anything.
fn decided(state: &State) -> Option<Result<Arc<Live>, Why>> {
    match state {
        State::Up(live) => Some(Ok(Arc::clone(live))),
        State::Down(why) => Some(Err(why.clone())),
        State::Idle | State::First(_) => None,
    }
}

async fn exchange(live: &Live, request: &Request<'_>) -> Result<Value, RedisError> {
    let mut connection = live.connection.clone();
    match request {
        Request::One(command) => connection.send_packed_command(command).await,
        Request::Several(pipeline) => {
            let mut replies = connection.send_packed_commands(pipeline, 0, pipeline.len()).await?;
            let answer = replies.pop().unwrap_or(Value::Nil);
            match (&answer, replies.into_iter().next()) {
                // It does not know the script because it would not be told: that is what the caller must hear.
                (Value::ServerError(error), Some(refusal @ Value::ServerError(_))) if error.code() == "NOSCRIPT" => {
                    Ok(refusal)
                }
                _ => Ok(answer),
            }
        }
    }
}

/// A place among the calls under way on a connection.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn take(count: &'a AtomicUsize) -> Option<InFlight<'a>> {
        if count.fetch_add(1, Relaxed) >= CALLS_IN_FLIGHT_MAX {
            count.fetch_sub(1, Relaxed);
            return None;
        }
        Some(InFlight(count))
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Numbers threads from zero in the order in which they first ask.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let next = NEXT.fetch_add(1, Relaxed);
            number.set(Some(next));
            next
        })
    })
}
