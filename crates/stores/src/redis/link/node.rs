//! One node: its breaker, and a few links to it.
//!
//! A thread always takes the same link, so that on a server with one runtime a core each core has a connection of its
//! own, whose task runs beside its callers. Only while that one is not up it takes another one's.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::bounds::FAILURES_IN_ROW_MAX;
use super::circuit::Circuit;
use super::command::Packed;
use super::dial::{Dialer, Endpoint};
use super::error::Why;
use super::journal::Journal;
use super::keeper;
use super::link::{Link, Live, State};
use super::pipe::{Answer, Kind, Outcome, Tally, Trouble};
use super::sentinel::Sentinels;
use super::term::Term;
use crate::health::{Breaker, Counters, Stopwatch};

/// What all nodes of a store share.
pub(super) struct Shared {
    /// The URL, without the password.
    pub(super) store: Arc<str>,
    pub(super) dialer: Dialer,
    pub(super) counters: Counters,
    pub(super) stopwatch: Stopwatch,
    /// How long calls waited for their turn, also those that were given up before it came.
    pub(super) waits: Stopwatch,
    /// What an answer may take.
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
    Answered(Answer, Arc<Live>),
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

    /// Sends a request once, and waits for the answer.
    ///
    /// A request that still waits for its turn when its caller goes is never sent.
    pub(super) async fn send(self: &Arc<Self>, request: Packed, term: &Term) -> Sending {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        if !self.circuit.is_closed() {
            // Somebody must probe, also if the runtimes of those who did are gone.
            let _ = keeper::start(self, self.index());
            return Sending::NotSent(Why::BreakerOpen);
        }
        let live = match self.live(term).await {
            Ok(live) => live,
            Err(why) => return Sending::NotSent(why),
        };
        let outcome = match live.pipe.call(request, Kind::Call, &term.patience()) {
            Ok(pending) => pending.await,
            Err(trouble) => Outcome::NotSent(trouble),
        };
        match outcome {
            Outcome::Answered(answer) => Sending::Answered(answer, live),
            Outcome::NotSent(trouble) => Sending::NotSent(self.why(trouble)),
            Outcome::Unknown(Trouble::Away) => Sending::Unknown(Why::TimedOut(self.shared.budget)),
            Outcome::Unknown(trouble) => Sending::Unknown(self.why(trouble)),
        }
    }

    fn why(&self, trouble: Trouble) -> Why {
        match trouble {
            Trouble::Broken(reason) => Why::Broken(reason),
            Trouble::Away => Why::Away(self.shared.budget),
            Trouble::QueueFull => Why::QueueFull,
            Trouble::TurnTooLate => Why::TurnTooLate,
            Trouble::CallerLeft => Why::CallerLeft,
        }
    }

    /// Counts what came of a look at a connection.
    pub(super) fn note(self: &Arc<Self>, live: &Live, tally: Tally) {
        if tally.answered > 0 {
            self.circuit.succeeded(self.age(), tally.answered);
            live.answered();
        }
        if tally.late + tally.not_ready > 0 {
            self.failed(tally.late + tally.not_ready);
        }
        // While other links answer, the breaker stays closed: then it is this connection that hangs.
        if tally.late > 0 && live.late(tally.late) >= FAILURES_IN_ROW_MAX && self.circuit.is_closed() {
            self.retire(live);
        }
    }

    /// The connection of this thread. A first attempt to make it is waited for, until it has taken a budget; later ones are
    /// not.
    async fn live(self: &Arc<Self>, term: &Term) -> Result<Arc<Live>, Why> {
        let index = self.index();
        let Some(link) = self.links.get(index) else { return Err(Why::NoConnection("it has no links".into())) };
        if let Some(live) = link.live() {
            return Ok(live);
        }
        let any = || self.links.iter().find_map(Link::live);
        // A thread that serves nobody leaves connections to those that do.
        if let (true, Some(live)) = (BORROWS.get(), any()) {
            return Ok(live);
        }
        // Once more if the keeper goes with its runtime while we wait for it.
        for _ in 0..2 {
            keeper::start(self, index)?;
            // Keepers that found nobody try again at times of their own. As soon as one of them succeeds, all threads have
            // answers.
            if let Some(live) = any() {
                return Ok(live);
            }
            let mut watch = link.state.subscribe();
            let state = timeout_at(term.patience().end(), watch.wait_for(|state| !matches!(state, State::First))).await;
            // The keeper says when it is the server that takes its time. Until then this node is late.
            let Ok(Ok(state)) = state else { break };
            if let Some(decided) = decided(&state) {
                return decided;
            }
        }
        Err(Why::ConnectingTooLate)
    }

    /// Which link this thread takes.
    fn index(&self) -> usize {
        thread_number() % self.links.len().max(1)
    }

    /// Counts failures; the one that opens the breaker sets off the probes.
    fn failed(self: &Arc<Self>, count: u32) {
        if self.circuit.failed(self.age(), count) {
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
        State::Idle | State::First => None,
    }
}

thread_local! {
    static BORROWS: Cell<bool> = const { Cell::new(false) };
}

/// Lets this thread use connections of other threads, rather than make its own: what it asks is rare, and its runtime may
/// be busy with something else.
pub(crate) fn borrow_connections() {
    BORROWS.set(true);
}

/// Numbers threads from zero in the order in which they first ask.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            if BORROWS.get() {
                return 0;
            }
            let next = NEXT.fetch_add(1, Relaxed);
            number.set(Some(next));
            next
        })
    })
}
