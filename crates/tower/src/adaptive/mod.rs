//! Concurrency limits that adapt to response times and drops.
//!
//! | to find | look in |
//! |---|---|
//! | the layer and its handle | `mod.rs` |
//! | its permits, and how they feed the limit | `permit.rs` |
//! | its builder | `builder.rs` |
//! | what counts as a drop | `lesson.rs` |

mod builder;
mod lesson;
mod permit;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Response;
use http::request::Parts;
use tidegate_core::Time;
use tidegate_core::adaptive::{AdaptiveLimit, Sample};
use tidegate_core::shed::{Judgement, Mode};
use tower_layer::Layer;

use crate::ended::Ended;
use crate::gate::{DividedEntry, DividedGate, DividedPermit, DividedWait, Entry, Gate, GateWait, Granted, Learner};
use crate::guard::{Doorkeeper, Entered, Guarded, Learns, Waiting, waited};
use crate::head::Head;
use crate::lock::lock;
use crate::refusal::{Reason, Refusal};
use crate::refuser::Refuser;
use crate::stopwatch::Stopwatch;
use crate::switch::Switch;

pub use builder::AdaptiveBuilder;
pub use lesson::Lesson;
pub use permit::AdaptivePermit;

/// Limits the requests in progress to the number that the service behind can handle, found from its response times.
/// Further requests wait in a bounded queue, if there is one, or get 503 with Retry-After (UNAVAILABLE for gRPC).
///
/// Each request gives a sample when its response is there, and windows of samples move the limit. The time of the body
/// is not part of the sample: it depends on the client's connection more than on the load. The slot is held until the
/// body has ended or is dropped. In [`Mode::Shadow`] the layer learns and refuses nothing.
///
/// ```
/// use tidegate_core::adaptive::{Gradient2, Gradient2Config};
/// use tidegate_tower::AdaptiveLayer;
///
/// let limit = Gradient2::new(Gradient2Config { long_window: 100, drop_backoff: 0.5, ..Gradient2Config::default() })?;
/// let layer = AdaptiveLayer::builder(limit).build()?;
/// assert_eq!(layer.handle().limit(), 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AdaptiveLayer(Arc<Shared>);

struct Shared {
    places: Places,
    /// The user's judgement of requests. `None` stands for [`lesson::by_default`], which is not boxed so that it can be
    /// inlined.
    judge: Option<Judge>,
    clock: Stopwatch,
    refuser: Refuser,
}

enum Places {
    /// One gate, which updates its limit itself.
    One(Arc<Gate>),
    Divided {
        gate: Arc<DividedGate>,
        partition: PartitionOf,
        /// Boxed, since a window with its histogram is large and few layers are divided.
        learner: Mutex<Box<Learner>>,
    },
}

type PartitionOf = Box<dyn Fn(&Head<'_>) -> Option<usize> + Send + Sync>;
type Judge = Box<dyn Fn(Ended<'_>) -> Lesson + Send + Sync>;

impl AdaptiveLayer {
    /// Returns a builder of a layer for one of the limits in `tidegate::adaptive`.
    #[must_use]
    pub fn builder(limit: impl Into<AdaptiveLimit>) -> AdaptiveBuilder {
        AdaptiveBuilder::new(limit.into())
    }

    /// Returns a handle with the layer's metrics, switch and permits.
    #[must_use]
    pub fn handle(&self) -> AdaptiveHandle {
        AdaptiveHandle(Arc::clone(&self.0))
    }
}

impl Shared {
    fn refusal(&self, reason: Reason) -> Refusal {
        self.refuser.refuse(reason, false)
    }

    fn permit_at_gate(self: &Arc<Shared>, granted: Granted) -> AdaptivePermit {
        let (place, in_flight) = granted.into_permit_counted();
        AdaptivePermit::at_gate(self, self.clock.now(), place, in_flight)
    }

    fn enter_gate(self: &Arc<Shared>, gate: &Arc<Gate>) -> Entered<AdaptivePermit, AdaptiveWait> {
        match gate.enter(&self.refuser.switch, None) {
            Entry::In(granted) => Entered::In(self.permit_at_gate(granted)),
            Entry::Wait(wait) => Entered::wait(AdaptiveWait::One(wait)),
            Entry::Refused(reason) => Entered::refused(self.refusal(reason)),
        }
    }

    fn permit_of_part(self: &Arc<Shared>, permit: DividedPermit) -> AdaptivePermit {
        let (part, in_flight) = permit.into_place();
        AdaptivePermit::of_part(self, part, in_flight)
    }

    fn enter_part(
        self: &Arc<Shared>,
        gate: &Arc<DividedGate>,
        part: Option<usize>,
        mode: Mode,
    ) -> Entered<AdaptivePermit, AdaptiveWait> {
        if mode == Mode::Shadow {
            return Entered::In(match gate.try_enter(part) {
                Ok(permit) => self.permit_of_part(permit),
                Err(in_flight) => {
                    self.refuser.switch.count(Judgement::WouldShed);
                    AdaptivePermit::uncounted(self, in_flight.saturating_add(1))
                }
            });
        }
        match gate.enter(part) {
            DividedEntry::In(permit) => Entered::In(self.permit_of_part(permit)),
            DividedEntry::Wait(wait) => Entered::wait(AdaptiveWait::Part(wait)),
            DividedEntry::Refused(reason) => Entered::refused(self.refusal(reason)),
        }
    }

    /// The path of requests without a free slot, of partitions, and of modes other than [`Mode::Enforce`].
    #[inline(never)]
    fn enter(self: &Arc<Shared>, head: &Head<'_>) -> Entered<AdaptivePermit, AdaptiveWait> {
        match (self.refuser.switch.mode(), &self.places) {
            (Mode::Off, _) => Entered::Uncounted,
            (_, Places::One(gate)) => self.enter_gate(gate),
            (mode, Places::Divided { gate, partition, .. }) => self.enter_part(gate, partition(head), mode),
        }
    }

    /// Learns from a request that has just been answered, if slots are divided: a single gate learns itself.
    fn learn(&self, now: Time, sample: Sample) {
        let Places::Divided { gate, learner, .. } = &self.places else { return };
        let mut learner = lock(learner);
        if let Some(limit) = learner.learn(now, sample) {
            gate.set_limit(limit, || drop(learner));
        }
    }

    /// Releases a slot of a partition.
    fn release(&self, part: Option<usize>) {
        if let Places::Divided { gate, .. } = &self.places {
            gate.release(part);
        }
    }
}

impl Doorkeeper for AdaptiveLayer {
    type Permit = AdaptivePermit;
    type Held = AdaptivePermit;
    type Wait = AdaptiveWait;

    #[inline]
    fn enter(&self, head: &Head<'_>) -> Entered<AdaptivePermit, AdaptiveWait> {
        let shared = &self.0;
        if let (Places::One(gate), Mode::Enforce) = (&shared.places, shared.refuser.switch.mode()) {
            // Read before a place is taken: right behind an atomic operation that takes twice as long.
            let now = shared.clock.now();
            if let Some((place, in_flight)) = gate.try_enter_counted() {
                return Entered::In(AdaptivePermit::at_gate(shared, now, place, in_flight));
            }
        }
        shared.enter(head)
    }

    fn wait(self, wait: AdaptiveWait, parts: Parts) -> Waiting<AdaptivePermit> {
        Box::pin(async move {
            let told = match wait {
                AdaptiveWait::One(wait) => wait.await.map(|granted| self.0.permit_at_gate(granted)),
                AdaptiveWait::Part(wait) => wait.await.map(|permit| self.0.permit_of_part(permit)),
            };
            waited(parts, told, &self.0.refuser.switch, |reason| self.0.refusal(reason))
        })
    }
}

impl<E: 'static> Learns<E> for AdaptiveLayer {
    const LEARNS: bool = true;

    #[inline]
    fn answered<B>(permit: &AdaptivePermit, result: &Result<Response<B>, E>) {
        let end = Ended::of(result);
        permit.learn(match permit.judge() {
            Some(judge) => judge(end),
            None => lesson::by_default(end),
        });
    }
}

/// The wait of a queued request.
pub enum AdaptiveWait {
    One(GateWait),
    Part(DividedWait),
}

impl<S> Layer<S> for AdaptiveLayer {
    type Service = Guarded<S, AdaptiveLayer>;

    fn layer(&self, inner: S) -> Guarded<S, AdaptiveLayer> {
        Guarded::new(inner, self.clone())
    }
}

impl fmt::Debug for AdaptiveLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handle = self.handle();
        let mut shown = formatter.debug_struct("AdaptiveLayer");
        shown.field("limit", &handle.limit()).field("in_flight", &handle.in_flight()).finish_non_exhaustive()
    }
}

/// Metrics, switch and permits of an [`AdaptiveLayer`]. Clones belong to the same layer.
#[derive(Clone)]
pub struct AdaptiveHandle(Arc<Shared>);

impl AdaptiveHandle {
    /// Returns the switch, which sets the mode and counts refusals.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.refuser.switch
    }

    /// Returns the current limit, in requests.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match &self.0.places {
            Places::One(gate) => gate.limit(),
            Places::Divided { learner, .. } => lock(learner).limit(),
        }
    }

    /// Returns the number of requests in progress.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        match &self.0.places {
            Places::One(gate) => gate.in_flight(),
            Places::Divided { gate, .. } => gate.in_flight(),
        }
    }

    /// Returns the number of requests in the queue.
    #[must_use]
    pub fn waiting(&self) -> usize {
        match &self.0.places {
            Places::One(gate) => gate.waiting(),
            Places::Divided { gate, .. } => gate.waiting(),
        }
    }

    /// Returns how long the first request in the queue has been waiting, as a measure for a shedder in front of this
    /// layer.
    #[must_use]
    pub fn queue_delay(&self) -> Duration {
        match &self.0.places {
            Places::One(gate) => gate.queue_delay(),
            Places::Divided { gate, .. } => gate.queue_delay(),
        }
    }

    /// Acquires a permit for work that is not a request, waiting if there is a queue. Dropping the future leaves the
    /// queue. The mode does not matter: the permit is counted in every mode. If the limit is divided, the permit is one
    /// without a guarantee.
    ///
    /// # Errors
    /// Returns a refusal if no permit becomes free in time.
    pub async fn acquire(&self) -> Result<AdaptivePermit, Refusal> {
        let told = match &self.0.places {
            Places::One(gate) => gate.acquire().await.map(|granted| self.0.permit_at_gate(granted)),
            Places::Divided { gate, .. } => {
                let told = match gate.enter(None) {
                    DividedEntry::In(permit) => Ok(permit),
                    DividedEntry::Wait(wait) => wait.await,
                    DividedEntry::Refused(reason) => Err(reason),
                };
                told.map(|permit| self.0.permit_of_part(permit))
            }
        };
        told.map_err(|reason| self.0.refusal(reason))
    }
}

impl fmt::Debug for AdaptiveHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("AdaptiveHandle");
        shown.field("limit", &self.limit()).field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}
