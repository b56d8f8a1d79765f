//! How many requests may be in progress at once, learnt from how long they take and which are dropped.
//!
//! | to find | look in |
//! |---|---|
//! | the layer, and what it is asked from outside | `mod.rs` |
//! | its permits, and what they teach | `permit.rs` |
//! | how it is set up | `builder.rs` |
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

/// Lets as many requests in at once as the service behind can bear, which it finds out by itself. The others wait in a
/// bounded queue, if there is one, or are answered 503 with Retry-After (UNAVAILABLE for gRPC).
///
/// Each request is a sample when its response is there; windows of them move the limit. The body does not count into
/// its time, which would tell more of the client's line than of the load. The place is held until the body has ended or
/// is dropped. In [`Mode::Shadow`] it learns and refuses nothing.
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
    /// How the user judges a request. [`lesson::by_default`] is not boxed, so that it can be inlined.
    judge: Option<Judge>,
    clock: Stopwatch,
    refuser: Refuser,
}

enum Places {
    /// The gate learns.
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
    /// A layer to be set up, for one of the limits of `tidegate::adaptive`.
    #[must_use]
    pub fn builder(limit: impl Into<AdaptiveLimit>) -> AdaptiveBuilder {
        AdaptiveBuilder::new(limit.into())
    }

    /// What this layer is asked and told from outside.
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

    /// For those who find no place, for partitions, and for other modes than [`Mode::Enforce`].
    #[inline(never)]
    fn enter(self: &Arc<Shared>, head: &Head<'_>) -> Entered<AdaptivePermit, AdaptiveWait> {
        match (self.refuser.switch.mode(), &self.places) {
            (Mode::Off, _) => Entered::Uncounted,
            (_, Places::One(gate)) => self.enter_gate(gate),
            (mode, Places::Divided { gate, partition, .. }) => self.enter_part(gate, partition(head), mode),
        }
    }

    /// Learns from a request that was answered now, where places are divided: a gate learns by itself.
    fn learn(&self, now: Time, sample: Sample) {
        let Places::Divided { gate, learner, .. } = &self.places else { return };
        let mut learner = lock(learner);
        if let Some(limit) = learner.learn(now, sample) {
            gate.set_limit(limit, || drop(learner));
        }
    }

    /// Gives a place of a partition back.
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

/// What somebody waits for.
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

/// What an [`AdaptiveLayer`] is asked and told from outside. Clones are of the same layer.
#[derive(Clone)]
pub struct AdaptiveHandle(Arc<Shared>);

impl AdaptiveHandle {
    /// Whether it acts, and what it has refused.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.refuser.switch
    }

    /// How many may be in progress.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match &self.0.places {
            Places::One(gate) => gate.limit(),
            Places::Divided { learner, .. } => lock(learner).limit(),
        }
    }

    /// How many are in progress.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        match &self.0.places {
            Places::One(gate) => gate.in_flight(),
            Places::Divided { gate, .. } => gate.in_flight(),
        }
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        match &self.0.places {
            Places::One(gate) => gate.waiting(),
            Places::Divided { gate, .. } => gate.waiting(),
        }
    }

    /// For how long the first in line has been waiting: a measure for a shedder before this layer.
    #[must_use]
    pub fn queue_delay(&self) -> Duration {
        match &self.0.places {
            Places::One(gate) => gate.queue_delay(),
            Places::Divided { gate, .. } => gate.queue_delay(),
        }
    }

    /// Takes a place as a request would, waiting if there is a queue, for work that is no request. Whoever drops the
    /// future leaves the queue. The switch has no say: the place is counted in every mode.
    ///
    /// # Errors
    /// If there is no place, in time. Of a divided limit the place is one without a guarantee.
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
