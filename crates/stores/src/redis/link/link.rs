//! One link to a node: the connection, if there is one, and the signals that its keeper listens to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tokio::sync::{Notify, watch};

use super::dial::Endpoint;
use super::error::Why;
use super::pipe::Pipe;

/// What callers see of a link.
#[derive(Clone)]
pub(super) enum State {
    /// Nobody keeps it: the next caller starts a keeper on its own runtime.
    Idle,
    /// The keeper connects for the first time, or for the first time since the connection was lost. It is waited for.
    First,
    /// That failed; the keeper goes on trying, and nobody waits for it.
    Down(Why),
    Up(Arc<Live>),
}

/// A connection that is up.
pub(super) struct Live {
    pub(super) pipe: Arc<Pipe>,
    pub(super) endpoint: Endpoint,
    late_in_row: AtomicU32,
    /// No further calls come: it ends when those that were sent are answered.
    pub(super) retired: Notify,
    /// It ends now.
    pub(super) cut: Notify,
}

impl Live {
    pub(super) fn new(pipe: Arc<Pipe>, endpoint: Endpoint) -> Arc<Live> {
        let (late_in_row, retired, cut) = (AtomicU32::new(0), Notify::new(), Notify::new());
        Arc::new(Live { pipe, endpoint, late_in_row, retired, cut })
    }

    /// Answers came.
    pub(super) fn answered(&self) {
        if self.late_in_row.load(Relaxed) != 0 {
            self.late_in_row.store(0, Relaxed);
        }
    }

    /// So many did not come in time. Says how many in a row.
    pub(super) fn late(&self, count: u32) -> u32 {
        self.late_in_row.fetch_add(count, Relaxed).saturating_add(count)
    }
}

pub(super) struct Link {
    pub(super) state: watch::Sender<State>,
    /// The breaker opened: the keeper probes.
    pub(super) probe: Notify,
    /// The keeper tries to connect now, whatever its backoff.
    pub(super) retry: Notify,
    /// The keeper ends.
    pub(super) stop: Notify,
}

impl Default for Link {
    fn default() -> Link {
        Link { state: watch::Sender::new(State::Idle), probe: Notify::new(), retry: Notify::new(), stop: Notify::new() }
    }
}

impl Link {
    pub(super) fn live(&self) -> Option<Arc<Live>> {
        match &*self.state.borrow() {
            State::Up(live) => Some(Arc::clone(live)),
            State::Idle | State::First | State::Down(_) => None,
        }
    }

    /// Takes this connection away from new callers; those of before still get their answers.
    pub(super) fn retire(&self, live: &Live) {
        if let Some(live) = self.take(|own| std::ptr::eq(own, live)) {
            live.retired.notify_one();
        }
    }

    /// Ends the connection at once unless it leads to this endpoint.
    pub(super) fn cut_unless(&self, endpoint: &Endpoint) {
        if let Some(live) = self.take(|live| live.endpoint != *endpoint) {
            live.cut.notify_one();
        }
    }

    fn take(&self, wanted: impl Fn(&Live) -> bool) -> Option<Arc<Live>> {
        let mut taken = None;
        self.state.send_if_modified(|state| match state {
            State::Up(live) if wanted(live) => {
                taken = Some(Arc::clone(live));
                *state = State::First;
                true
            }
            _ => false,
        });
        taken
    }
}
