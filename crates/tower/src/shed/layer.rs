//! The layer that sheds requests by class.

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::request::Parts;
use tidegate_core::Dice;
use tidegate_core::shed::{Criticality, FleetShedder, Judgement, Mode, QueueRejection};
use tower_layer::Layer;

use super::builder::ShedBuilder;
use super::tally::{Place, Tally};
use super::worker::Worker;
use crate::guard::{Doorkeeper, Entered, Guarded, Learns, Waiting};
use crate::head::Head;
use crate::lock::lock;
use crate::refusal::{Reason, Refusal};
use crate::refuser::Refuser;
use crate::stopwatch::Stopwatch;
use crate::switch::Switch;

/// Sheds requests by class under overload, with 503 and Retry-After (UNAVAILABLE for gRPC), never with 429: the client
/// is not at fault.
///
/// There are three kinds, each a layer of its own, and a service may have several: [`ShedLayer::fleet`] reserves a
/// share of the capacity for critical requests, [`ShedLayer::worker`] sheds one class after another as the service gets
/// busy, and [`ShedLayer::queue`] does so at once as a queue grows. A request is in progress until the body of its
/// response has ended or is dropped.
///
/// ```
/// use tidegate_core::shed::{Criticality, Mode, WorkerShedderConfig};
/// use tidegate_tower::{Measure, ShedLayer};
///
/// let layer = ShedLayer::worker(WorkerShedderConfig::default(), Measure::Busy { workers: 200 })
///     .class(|head| match head.uri().path() {
///         "/pay" => Criticality::Critical,
///         _ => Criticality::Get,
///     })
///     .mode(Mode::Shadow)
///     .build()?;
/// let switch = layer.handle().switch().clone();
/// switch.set_mode(Mode::Enforce); // At any time.
/// # Ok::<(), tidegate_tower::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct ShedLayer(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) kind: Kind,
    pub(super) class: ClassOf,
    pub(super) tally: &'static Tally,
    pub(super) shed: [AtomicU64; 4],
    pub(super) clock: Stopwatch,
    pub(super) refuser: Refuser,
}

pub(super) enum Kind {
    Fleet(FleetShedder),
    Worker { worker: Worker, measure: Measure },
    Queue { ramp: QueueRejection, dice: Mutex<Dice>, backlog: BacklogOf },
}

pub(super) type ClassOf = Box<dyn Fn(&Head<'_>) -> Criticality + Send + Sync>;

pub(super) type BacklogOf = Box<dyn Fn() -> Backlog + Send + Sync>;

/// The length of a limit's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// The number of waiting requests.
    pub waiting: u64,
    /// The most requests that may be in progress.
    pub limit: u64,
}

/// How busy a service is.
///
/// The closures are called for each request, so they should only read values that are kept up to date elsewhere.
#[non_exhaustive]
pub enum Measure {
    /// The requests in progress behind this layer, as a share of the workers.
    Busy {
        /// The number of requests that can be processed at the same time.
        workers: u64,
    },
    /// The result of a closure, from 0 to 1: the utilisation of processors, memory, or anything else that can be full.
    /// NaN counts as 0.
    Utilisation(Box<dyn Fn() -> f64 + Send + Sync>),
    /// How long the first request in a queue has been waiting, as a share of the longest acceptable time.
    QueueDelay {
        /// Returns the delay, such as [`ConcurrencyHandle::queue_delay`](crate::ConcurrencyHandle::queue_delay).
        delay: Box<dyn Fn() -> Duration + Send + Sync>,
        /// The longest acceptable delay: from there on the queue counts as full.
        acceptable: Duration,
    },
}

impl Measure {
    /// Returns a [`Measure::Utilisation`] of a closure.
    pub fn utilisation(measure: impl Fn() -> f64 + Send + Sync + 'static) -> Measure {
        Measure::Utilisation(Box::new(measure))
    }

    /// Returns a [`Measure::QueueDelay`] of a closure.
    pub fn queue_delay(delay: impl Fn() -> Duration + Send + Sync + 'static, acceptable: Duration) -> Measure {
        Measure::QueueDelay { delay: Box::new(delay), acceptable }
    }

    fn utilisation_now(&self, in_flight: u64) -> f64 {
        match self {
            Measure::Busy { workers } => in_flight as f64 / *workers as f64,
            Measure::Utilisation(told) => told(),
            Measure::QueueDelay { delay, acceptable } => delay().as_secs_f64() / acceptable.as_secs_f64(),
        }
    }
}

impl fmt::Debug for Measure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Measure::Busy { workers } => formatter.debug_struct("Busy").field("workers", workers).finish(),
            Measure::Utilisation(_) => formatter.write_str("Utilisation"),
            Measure::QueueDelay { acceptable, .. } => {
                formatter.debug_struct("QueueDelay").field("acceptable", acceptable).finish_non_exhaustive()
            }
        }
    }
}

impl ShedLayer {
    /// Starts a layer that reserves the share `reserved` (0 to 1; 0.2 is common) for critical requests, in a service
    /// that can handle `capacity` requests at the same time. Other requests are shed when they would use the reserve;
    /// critical ones never are.
    #[must_use]
    pub fn fleet(capacity: u64, reserved: f64) -> ShedBuilder {
        ShedBuilder::fleet(capacity, reserved)
    }

    /// Starts a layer that sheds one class after another, slowly, as the service gets busy: test requests, reads,
    /// writes, and never critical requests.
    #[must_use]
    pub fn worker(config: tidegate_core::shed::WorkerShedderConfig, measure: Measure) -> ShedBuilder {
        ShedBuilder::worker(config, measure)
    }

    /// Starts a layer that sheds one class after another as the queue behind grows from twice to three times its limit,
    /// or as `config` sets: test requests, reads, writes, and in the end critical requests too. It reacts at once, and
    /// to the length of the queue alone. The closure is called for each request.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::shed::QueueRejectionConfig;
    /// use tidegate_tower::{Backlog, ConcurrencyLayer, Queue, ShedLayer};
    ///
    /// let limit = ConcurrencyLayer::builder(100).queue(Queue::new(300, Duration::from_secs(1))).build()?;
    /// let handle = limit.handle();
    /// let backlog = move || Backlog { waiting: handle.waiting() as u64, limit: handle.limit() };
    /// let shed = ShedLayer::queue(QueueRejectionConfig::default(), backlog).build()?;
    /// # Ok::<(), tidegate_tower::ConfigError>(())
    /// ```
    #[must_use]
    pub fn queue<F>(config: tidegate_core::shed::QueueRejectionConfig, backlog: F) -> ShedBuilder
    where
        F: Fn() -> Backlog + Send + Sync + 'static,
    {
        ShedBuilder::queue(config, Box::new(backlog))
    }

    /// Returns a handle with the layer's metrics and switch.
    #[must_use]
    pub fn handle(&self) -> ShedHandle {
        ShedHandle(Arc::clone(&self.0))
    }
}

impl Shared {
    /// Lets a request in or not, as the kind of shedder decides.
    #[inline]
    fn try_enter(&self, class: Criticality) -> Option<Place> {
        let sheds = match &self.kind {
            Kind::Fleet(fleet) if class != Criticality::Critical => {
                return self.tally.enter_fleet_if(|others| !fleet.sheds(class, others));
            }
            // Critical ones are never shed here, and take nothing of the others' room.
            Kind::Fleet(_) => false,
            Kind::Worker { worker, measure } => {
                let utilisation = measure.utilisation_now(self.tally.in_flight());
                worker.sheds(class, utilisation, || self.clock.now())
            }
            Kind::Queue { ramp, dice, backlog } => {
                let Backlog { waiting, limit } = backlog();
                ramp.sheds(class, waiting, limit, lock(dice).roll())
            }
        };
        (!sheds).then(|| self.tally.enter())
    }

    /// Handles a request that is to be shed.
    #[cold]
    #[inline(never)]
    fn shed(&self, mode: Mode, class: Criticality) -> Entered<ShedPermit, Infallible> {
        let judgement = mode.judge(|| true);
        self.refuser.switch.count(judgement);
        if let Some(count) = self.shed.get(class as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        match judgement {
            Judgement::Shed => Entered::refused(Refusal::unavailable(Reason::Shed(class), self.refuser.retry_after)),
            Judgement::Pass | Judgement::WouldShed => Entered::In(ShedPermit { _place: self.tally.enter() }),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.tally.close();
    }
}

impl Doorkeeper for ShedLayer {
    type Permit = ShedPermit;
    type Held = ShedPermit;
    /// No request waits here.
    type Wait = Infallible;

    #[inline]
    fn enter(&self, head: &Head<'_>) -> Entered<ShedPermit, Infallible> {
        let shared = &*self.0;
        let mode = shared.refuser.switch.mode();
        if mode == Mode::Off {
            return Entered::Uncounted;
        }
        let class = (shared.class)(head);
        match shared.try_enter(class) {
            Some(place) => Entered::In(ShedPermit { _place: place }),
            None => shared.shed(mode, class),
        }
    }

    fn wait(self, never: Infallible, _: Parts) -> Waiting<ShedPermit> {
        match never {}
    }
}

impl<E> Learns<E> for ShedLayer {}

impl<S> Layer<S> for ShedLayer {
    type Service = Guarded<S, ShedLayer>;

    fn layer(&self, inner: S) -> Guarded<S, ShedLayer> {
        Guarded::new(inner, self.clone())
    }
}

impl fmt::Debug for ShedLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ShedLayer").field("switch", &self.0.refuser.switch).finish_non_exhaustive()
    }
}

/// Metrics and switch of a [`ShedLayer`]. Clones belong to the same layer.
#[derive(Clone)]
pub struct ShedHandle(Arc<Shared>);

impl ShedHandle {
    /// Returns the switch, which sets the mode and counts refusals.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.refuser.switch
    }

    /// Returns how many requests of a class were shed, or would have been in [`Mode::Shadow`].
    #[must_use]
    pub fn shed(&self, class: Criticality) -> u64 {
        self.0.shed.get(class as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Returns the number of requests in progress behind this layer.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.0.tally.in_flight()
    }

    /// Returns the level of a worker's shedder, from 0 (nothing is shed) to 3 (all but critical requests are), or
    /// `None` for other kinds. It changes only when requests come.
    #[must_use]
    pub fn level(&self) -> Option<f64> {
        match &self.0.kind {
            Kind::Fleet(_) | Kind::Queue { .. } => None,
            Kind::Worker { worker, .. } => Some(worker.level()),
        }
    }

    /// Returns the most requests besides critical ones that may be in progress, or `None` unless this is a fleet's
    /// shedder.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        match &self.0.kind {
            Kind::Fleet(fleet) => Some(fleet.room()),
            Kind::Worker { .. } | Kind::Queue { .. } => None,
        }
    }

    /// Sets the capacity of a fleet's shedder, when the fleet has grown or shrunk. Requests in progress stay.
    pub fn set_capacity(&self, capacity: u64) {
        if let Kind::Fleet(fleet) = &self.0.kind {
            fleet.set_capacity(capacity);
        }
    }
}

impl fmt::Debug for ShedHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("ShedHandle");
        shown.field("switch", &self.0.refuser.switch).field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// A request that was not shed. It counts as in progress until this is dropped.
pub struct ShedPermit {
    _place: Place,
}

impl fmt::Debug for ShedPermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ShedPermit").finish_non_exhaustive()
    }
}
