//! Fair queues among tenants: each gets its share of a bounded pool, however much the others send.
//!
//! | to find | look in |
//! |---|---|
//! | the layer and its permits | `mod.rs` |
//! | its builder | `builder.rs` |

mod builder;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tidegate_core::KeyBuf;
use tidegate_core::shed::{Judgement, Mode};
use tower_layer::Layer;

use crate::gate::{Entry, Gate, GatePermit, GateWait, Granted};
use crate::guard::{Doorkeeper, Entered, Guarded, Learns, Waiting, waited};
use crate::head::Head;
use crate::missing_key::{MissingKey, Named, named};
use crate::refusal::{Reason, Refusal};
use crate::refuser::Refuser;
use crate::switch::Switch;

pub use builder::FairBuilder;

/// Limits the requests in progress, and queues the others in a queue for each tenant. Free slots go to the tenants in
/// turn (deficit round robin), in proportion to their weights: a tenant that sends a hundred times as much waits in a
/// longer queue of its own and delays no other tenant.
///
/// The closure that returns the tenant is called only where it matters: when all slots are taken, when requests without
/// a tenant are skipped or denied, and in [`Mode::Shadow`].
///
/// Requests that find the queue full, or have waited too long, get 503 with Retry-After (UNAVAILABLE for gRPC). A slot
/// is free again when the body of the response has ended or the caller has gone away.
///
/// ```
/// use tidegate_tower::{FairLayer, Tenant};
///
/// let layer = FairLayer::builder(100, |head| Some(Tenant::new(head.header("x-tenant")?))).build()?;
/// # Ok::<(), tidegate_tower::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct FairLayer(Arc<Shared>);

struct Shared {
    gate: Arc<Gate>,
    tenant: TenantOf,
    missing: MissingKey,
    /// The queue key of requests without a tenant: bytes that nobody can guess.
    nameless: KeyBuf,
    refuser: Refuser,
}

type TenantOf = Box<dyn for<'a> Fn(&Head<'a>) -> Option<Tenant<'a>> + Send + Sync>;

/// The tenant of a request, and its weight.
#[derive(Clone, Debug)]
pub struct Tenant<'a> {
    key: Cow<'a, [u8]>,
    weight: u64,
}

impl<'a> Tenant<'a> {
    /// Creates a tenant of weight 1.
    pub fn new(key: impl Into<Cow<'a, [u8]>>) -> Tenant<'a> {
        Tenant { key: key.into(), weight: 1 }
    }

    /// Returns the tenant with another weight, from 1 to 10,000. Values outside that range are clamped.
    #[must_use]
    pub fn weight(self, weight: u64) -> Tenant<'a> {
        Tenant { weight: weight.clamp(1, tidegate_core::bounds::WEIGHT_MAX), ..self }
    }
}

impl FairLayer {
    /// Returns a builder of a layer that lets in `limit` requests at the same time, with tenants from the closure.
    #[must_use]
    pub fn builder<F>(limit: u64, tenant: F) -> FairBuilder
    where
        F: for<'a> Fn(Head<'a>) -> Option<Tenant<'a>> + Send + Sync + 'static,
    {
        FairBuilder::new(limit, Box::new(move |head| tenant(*head)))
    }

    /// Returns a handle with the layer's metrics and switch.
    #[must_use]
    pub fn handle(&self) -> FairHandle {
        FairHandle(Arc::clone(&self.0))
    }
}

impl Shared {
    fn refusal(&self, reason: Reason) -> Refusal {
        self.refuser.refuse(reason, false)
    }

    /// Lets a request in while there is room, whoever its tenant is.
    #[inline]
    fn enter_unnamed(&self) -> Option<GatePermit> {
        let all_count = self.missing == MissingKey::Share && self.refuser.switch.mode() == Mode::Enforce;
        if all_count { self.gate.try_enter() } else { None }
    }

    /// The path of requests whose tenant matters, and of modes other than [`Mode::Enforce`].
    #[inline(never)]
    fn enter(&self, head: &Head<'_>) -> Entered<FairPermit, GateWait> {
        let mode = self.refuser.switch.mode();
        if mode == Mode::Off {
            return Entered::Uncounted;
        }
        let tenant = (self.tenant)(head);
        let weight = tenant.as_ref().map_or(1, |tenant| tenant.weight);
        let (key, weight) = match named(tenant.as_ref().map(|tenant| &*tenant.key), self.missing) {
            Named::Key(key) => (key, weight),
            Named::Nobody => (self.nameless.as_key(), 1),
            Named::Skipped => return Entered::Uncounted,
            Named::Denied(_) if mode == Mode::Shadow => {
                self.refuser.switch.count(Judgement::WouldShed);
                return Entered::Uncounted;
            }
            Named::Denied(reason) => return Entered::refused(self.refusal(reason)),
        };
        match self.gate.enter(&self.refuser.switch, Some((key, weight))) {
            Entry::In(granted) => Entered::In(FairPermit::of(granted)),
            Entry::Wait(wait) => Entered::wait(wait),
            Entry::Refused(reason) => Entered::refused(self.refusal(reason)),
        }
    }
}

impl Doorkeeper for FairLayer {
    type Permit = FairPermit;
    type Held = FairPermit;
    type Wait = GateWait;

    #[inline]
    fn enter(&self, head: &Head<'_>) -> Entered<FairPermit, GateWait> {
        match self.0.enter_unnamed() {
            Some(permit) => Entered::In(FairPermit { _permit: permit }),
            None => self.0.enter(head),
        }
    }

    fn wait(self, wait: GateWait, parts: Parts) -> Waiting<FairPermit> {
        Box::pin(async move {
            let told = wait.await.map(FairPermit::of);
            waited(parts, told, &self.0.refuser.switch, |reason| self.0.refusal(reason))
        })
    }
}

impl<E> Learns<E> for FairLayer {}

impl<S> Layer<S> for FairLayer {
    type Service = Guarded<S, FairLayer>;

    fn layer(&self, inner: S) -> Guarded<S, FairLayer> {
        Guarded::new(inner, self.clone())
    }
}

/// Metrics and switch of a [`FairLayer`]. Clones belong to the same layer.
#[derive(Clone)]
pub struct FairHandle(Arc<Shared>);

impl FairHandle {
    /// Returns the switch, which sets the mode and counts refusals. In [`Mode::Shadow`] no request waits; those that
    /// would have had to are counted.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.refuser.switch
    }

    /// Returns the limit, in requests.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.gate.limit()
    }

    /// Returns the number of requests in progress.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.0.gate.in_flight()
    }

    /// Returns the number of requests in all queues.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.gate.waiting()
    }
}

/// A permit of the pool. Dropping it frees the slot.
#[derive(Debug)]
pub struct FairPermit {
    _permit: GatePermit,
}

impl FairPermit {
    fn of(granted: Granted) -> FairPermit {
        FairPermit { _permit: granted.into_permit() }
    }
}

impl fmt::Debug for FairLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FairLayer").field("switch", &self.0.refuser.switch).finish_non_exhaustive()
    }
}

impl fmt::Debug for FairHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("FairHandle");
        shown.field("in_flight", &self.in_flight()).field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}
