//! Turns among tenants: each gets its share of a bounded pool, whatever the others ask for.
//!
//! | to find | look in |
//! |---|---|
//! | the layer and what it lets in | `mod.rs` |
//! | how it is set up | `builder.rs` |

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

/// Lets so many requests in at once and has the others wait, in a line for each tenant. What becomes free goes to the
/// tenants in turn (deficit round robin), in proportion to their weights: who asks for a hundred times as much waits
/// in a longer line of its own, and nobody else does.
///
/// Who a request is from is asked only where it makes a difference: when all places are taken, when those without a
/// tenant are skipped or denied, and in [`Mode::Shadow`].
///
/// Those who find no room to wait, or have waited for too long, are answered 503 with Retry-After (UNAVAILABLE for
/// gRPC). A place is free again when the body of the response has ended, or when the caller has gone away.
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
    /// What those without a key wait as: bytes that nobody can guess.
    nameless: KeyBuf,
    refuser: Refuser,
}

type TenantOf = Box<dyn for<'a> Fn(&Head<'a>) -> Option<Tenant<'a>> + Send + Sync>;

/// Who a request is from, and how much it counts beside the others.
#[derive(Clone, Debug)]
pub struct Tenant<'a> {
    key: Cow<'a, [u8]>,
    weight: u64,
}

impl<'a> Tenant<'a> {
    /// A tenant of weight 1.
    pub fn new(key: impl Into<Cow<'a, [u8]>>) -> Tenant<'a> {
        Tenant { key: key.into(), weight: 1 }
    }

    /// The same tenant with another weight, 1 to 10,000. What is beyond counts as the nearest of them.
    #[must_use]
    pub fn weight(self, weight: u64) -> Tenant<'a> {
        Tenant { weight: weight.clamp(1, tidegate_core::bounds::WEIGHT_MAX), ..self }
    }
}

impl FairLayer {
    /// A layer to be set up: how many may be in at once, and who a request is from.
    #[must_use]
    pub fn builder<F>(limit: u64, tenant: F) -> FairBuilder
    where
        F: for<'a> Fn(Head<'a>) -> Option<Tenant<'a>> + Send + Sync + 'static,
    {
        FairBuilder::new(limit, Box::new(move |head| tenant(*head)))
    }

    /// What this layer is asked and told from outside.
    #[must_use]
    pub fn handle(&self) -> FairHandle {
        FairHandle(Arc::clone(&self.0))
    }
}

impl Shared {
    fn refusal(&self, reason: Reason) -> Refusal {
        self.refuser.refuse(reason, false)
    }

    /// While there is room, all who count are alike.
    #[inline]
    fn enter_unnamed(&self) -> Option<GatePermit> {
        let all_count = self.missing == MissingKey::Share && self.refuser.switch.mode() == Mode::Enforce;
        if all_count { self.gate.try_enter() } else { None }
    }

    /// For those whose tenant makes a difference, and for other modes than [`Mode::Enforce`].
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

/// What a [`FairLayer`] is asked and told from outside. Clones are of the same layer.
#[derive(Clone)]
pub struct FairHandle(Arc<Shared>);

impl FairHandle {
    /// Whether it acts, and what it has refused. In [`Mode::Shadow`] nobody waits; who would have had to is counted.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.refuser.switch
    }

    /// How many may be in progress.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.gate.limit()
    }

    /// How many are in progress.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.0.gate.in_flight()
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.gate.waiting()
    }
}

/// A place in the pool. It is free again when this is dropped.
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
