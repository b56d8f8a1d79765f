//! A permit of a shared limit: a task of its own acquires, renews and releases it.
//!
//! The task outlives the caller. So a caller that leaves while the store is being asked leaves no permit behind: the
//! task gets the answer, finds that nobody waits for it, and releases the permit. Dropping a permit waits for nothing.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tidegate_core::shed::Judgement;
use tidegate_core::{Busy, KeyBuf, Permit, PermitOp};
use tidegate_engine::{PermitError, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::handle::Counter;
use super::{Choice, Shared};
use crate::bounds::{RELEASE_PAUSE, RENEWALS_PER_LEASE};
use crate::refusal::Reason;

/// A permit of a shared limit. Dropping it makes its task release it.
#[must_use = "a permit that is dropped at once holds nothing"]
pub struct SharedPermit {
    /// Never sends: the task notices when it is dropped.
    _held: oneshot::Sender<Infallible>,
}

impl fmt::Debug for SharedPermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedPermit").finish_non_exhaustive()
    }
}

/// Waits for the store's answer.
pub struct Asked {
    told: oneshot::Receiver<Result<(), Reason>>,
    /// `None` without a runtime: no task could ask.
    permit: Option<SharedPermit>,
}

impl Future for Asked {
    type Output = Result<SharedPermit, Reason>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.told).poll(context).map(|told| {
            told.unwrap_or(Err(Reason::NoStore))?;
            self.permit.take().ok_or(Reason::NoStore)
        })
    }
}

/// Asks for a permit.
pub(super) fn ask(shared: &Arc<Shared>, key: KeyBuf) -> Asked {
    let (tell, told) = oneshot::channel();
    Asked { told, permit: start(shared, key, Hears::Caller(tell)) }
}

/// Asks for a permit beside a request that is served meanwhile, and counts if there is none. Does nothing if the store
/// is being asked about too many such requests already.
pub(super) fn watch(shared: &Arc<Shared>, key: KeyBuf) -> Option<SharedPermit> {
    let watcher = Arc::clone(&shared.watchers).try_acquire_owned().ok()?;
    start(shared, key, Hears::Nobody(watcher))
}

/// The receiver of the store's answer.
enum Hears {
    /// The caller, who waits for it.
    Caller(oneshot::Sender<Result<(), Reason>>),
    /// Nobody, in shadow mode: the answer is counted, and the number under way falls by one.
    Nobody(OwnedSemaphorePermit),
}

/// Starts the task that holds a permit. Without a runtime there is none, and the caller gets an error.
fn start(shared: &Arc<Shared>, key: KeyBuf, hears: Hears) -> Option<SharedPermit> {
    let Ok(runtime) = Handle::try_current() else {
        shared.counters.add(Counter::StoreFailures);
        return None;
    };
    let (held, left) = oneshot::channel();
    let holder = Holder { shared: Arc::clone(shared), id: shared.new_id(), key };
    runtime.spawn(holder.run(hears, left));
    Some(SharedPermit { _held: held })
}

/// The state of the task.
struct Holder {
    shared: Arc<Shared>,
    key: KeyBuf,
    id: String,
}

/// A request in progress.
struct Place {
    /// Whether the store has confirmed the permit.
    is_known: bool,
    _here: Option<Permit>,
    _in_flight: InFlight,
}

/// One of the requests in progress in this process.
struct InFlight(Arc<Shared>);

impl InFlight {
    fn new(shared: &Arc<Shared>) -> InFlight {
        shared.counters.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(shared))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Holder {
    async fn run(self, hears: Hears, left: oneshot::Receiver<Infallible>) {
        let mut may_be_held = false;
        let told = match self.put(self.acquiring()).await {
            Ok(true) => Ok(self.acquired()),
            Ok(false) => Err(self.shared.busy()),
            // The store has answered: it is full, which is not the client's fault.
            Err(PermitError::NoRoom(_)) => Err(Reason::Busy),
            Err(error) => {
                // An overloaded process did not send it, so there is nothing to release.
                may_be_held = !is_overload(&error);
                self.on_store_failure(&error)
            }
        };
        let mut asking = None;
        match (hears, &told) {
            // Who has left is noticed by what it no longer holds.
            (Hears::Caller(caller), told) => drop(caller.send(told.as_ref().map(|_| ()).map_err(|reason| *reason))),
            // Those in progress are bounded by the service, and not by the store.
            (Hears::Nobody(watcher), Ok(_)) => drop(watcher),
            (Hears::Nobody(watcher), Err(_)) => {
                self.shared.refuser.switch.count(Judgement::WouldShed);
                asking = Some(watcher);
            }
        }
        match told {
            Ok(place) => self.hold(place, left).await,
            Err(_) if may_be_held => self.release(false).await,
            Err(_) => {}
        }
        drop(asking);
    }

    fn acquired(&self) -> Place {
        self.shared.counters.add(Counter::Acquired);
        self.place(true, self.shared.on_store_failure.note(&self.key))
    }

    /// Decides while the store does not answer. In an overloaded process no local limit replaces a store that may be
    /// healthy.
    fn on_store_failure(&self, error: &PermitError) -> Result<Place, Reason> {
        self.shared.counters.add(Counter::StoreFailures);
        match &self.shared.on_store_failure {
            Choice::Allow => Ok(self.place(false, None)),
            Choice::Deny | Choice::Local { .. } if is_overload(error) => Err(Reason::Overloaded),
            Choice::Deny => Err(Reason::NoStore),
            Choice::Local { here, most } => match here.try_acquire_within(self.key.as_key(), *most) {
                Ok(permit) => Ok(self.place(false, Some(permit))),
                Err(Busy::InUse { .. }) => Err(self.shared.busy()),
                // That there are so many others is not the client's fault.
                Err(Busy::NoRoom { .. }) => Err(Reason::Busy),
            },
        }
    }

    fn place(&self, is_known: bool, here: Option<Permit>) -> Place {
        Place { is_known, _here: here, _in_flight: InFlight::new(&self.shared) }
    }

    /// Keeps a permit until its holder drops it.
    async fn hold(&self, place: Place, mut left: oneshot::Receiver<Infallible>) {
        let pause = self.shared.lease / RENEWALS_PER_LEASE;
        let mut is_known = place.is_known;
        let mut place = Some(place);
        while place.is_some() && timeout(pause, &mut left).await.is_err() {
            let mut renewal = pin!(self.renew(is_known));
            let renewed_or_left = poll_fn(|context| match renewal.as_mut().poll(context) {
                Poll::Ready(is_known) => Poll::Ready(Some(is_known)),
                Poll::Pending => Pin::new(&mut left).poll(context).map(|_| None),
            });
            is_known = match renewed_or_left.await {
                Some(is_known) => is_known,
                None => {
                    // What is free here need not wait for the store. There the release must not come before the renewal.
                    drop(place.take());
                    renewal.await
                }
            };
        }
        drop(place);
        self.release(is_known).await;
    }

    /// Renews a lease, or acquires a permit in the store for a request that has none there: it was let in while the
    /// store did not answer, or its lease has ended. Returns whether the store has it now.
    async fn renew(&self, is_known: bool) -> bool {
        let (counters, lease) = (&self.shared.counters, self.shared.lease);
        if is_known {
            match self.put(PermitOp::Renew { lease }).await {
                Ok(true) => {
                    counters.add(Counter::Renewed);
                    return true;
                }
                Ok(false) => counters.add(Counter::Lost),
                Err(_) => {
                    counters.add(Counter::RenewFailures);
                    return true;
                }
            }
        }
        // Beyond the limit it goes on: to break off what was begun would help nobody.
        self.put(self.acquiring()).await.unwrap_or(false)
    }

    /// Releases the permit. Even if the store has not confirmed it, a call without an answer may have reached the
    /// store. An overloaded process retries until the lease has ended: nobody waits for this.
    async fn release(&self, is_known: bool) {
        let ends = Instant::now() + self.shared.lease;
        let mut released = self.put(PermitOp::Release).await;
        while released.as_ref().is_err_and(is_overload) && Instant::now() < ends {
            sleep(RELEASE_PAUSE).await;
            released = self.put(PermitOp::Release).await;
        }
        match released {
            Err(_) if is_known => self.shared.counters.add(Counter::ReleaseFailures),
            Ok(false) if is_known => self.shared.counters.add(Counter::Lost),
            Ok(_) | Err(_) => {}
        }
    }

    fn acquiring(&self) -> PermitOp {
        PermitOp::Acquire { limit: self.shared.limit, lease: self.shared.lease }
    }

    async fn put(&self, op: PermitOp) -> Result<bool, PermitError> {
        let told = self.shared.engine.ask_permit(self.key.as_key().as_bytes(), self.id.as_bytes(), op).await;
        told.map(|permits| permits.done)
    }
}

fn is_overload(error: &PermitError) -> bool {
    matches!(error, PermitError::Store(StoreError::Overloaded))
}

impl Shared {
    fn new_id(&self) -> String {
        format!("{}-{:x}", self.ids, self.next_id.fetch_add(1, Ordering::Relaxed))
    }
}
