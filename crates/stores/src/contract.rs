//! The contract between stores and their callers.

use std::time::{Duration, Instant};

use tidegate_core::{
    Algorithm, Charge, Decision, Decisions, Key, Limit, Namespace, PermitOp, Permits, Placement, Report, Snapshot,
};

use crate::{Health, StoreError};

/// Options of one call to a store.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Call {
    /// The deadline of the caller; `None` if it has none. A store that awaits answers or fails by then.
    pub deadline: Option<Instant>,
}

impl Call {
    /// Creates the options of a call with this deadline.
    #[must_use]
    pub fn until(deadline: Option<Instant>) -> Call {
        Call { deadline }
    }
}

/// Properties of a store that callers rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nature {
    /// Whether decisions may have to be awaited. If not, every future of the store is ready at once.
    pub awaits: bool,
    /// Whether other nodes see the states of this store.
    pub is_shared: bool,
    /// Whether its states survive a restart of this process.
    pub survives_restart: bool,
    /// The longest time of a call, with its wait for a turn in this process; `None` if it does not wait.
    pub call_time_max: Option<Duration>,
    /// The algorithms that it supports.
    pub algorithms: &'static [Algorithm],
}

impl Nature {
    /// The properties of the memory of this process.
    pub const MEMORY: Nature = Nature {
        awaits: false,
        is_shared: false,
        survives_restart: false,
        call_time_max: None,
        algorithms: &Algorithm::ALL,
    };

    /// Returns the properties of a store that nodes share over a network, whose calls take at most this long.
    #[must_use]
    pub const fn shared(call_time_max: Duration) -> Nature {
        Nature {
            awaits: true,
            is_shared: true,
            survives_restart: true,
            call_time_max: Some(call_time_max),
            algorithms: &Algorithm::ALL,
        }
    }

    /// Returns whether a penalty or block may be in force that this process does not know of: another node imposed it,
    /// or this one did before a restart.
    #[must_use]
    pub const fn outlives_process(&self) -> bool {
        self.is_shared || self.survives_restart
    }
}

/// A store of states.
pub trait Store: Send + Sync {
    /// Decides charges at one instant: takes all that fit if no charge with a veto is denied, else none.
    ///
    /// # Errors
    /// Fails if the store does not answer, or the charges cannot be decided together.
    fn charge(&self, call: &Call, charges: &[Charge<'_>])
    -> impl Future<Output = Result<Decisions, StoreError>> + Send;

    /// Returns the details of a charge's key, with the entries of its log if the limit keeps one. Changes nothing.
    ///
    /// # Errors
    /// Fails if the store does not answer.
    fn inspect(&self, call: &Call, charge: &Charge<'_>) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// Returns the properties that callers rely on. They never change.
    fn nature(&self) -> Nature;

    /// Returns its health.
    fn health(&self) -> Health;

    /// Stops the store's work in the background.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// A request for units to be taken in advance.
#[derive(Clone, Copy, Debug)]
pub struct Lease<'a> {
    /// The namespace to lease from.
    pub namespace: &'a Namespace,
    /// The key to lease from.
    pub key: Key<'a>,
    /// The limit to lease from.
    pub limit: &'a Limit,
    /// The hash tag of the key; no tag if empty.
    pub tag: &'a [u8],
    /// The numbers of units to try: the first that fits is taken.
    pub sizes: &'a [u64],
    /// How long the units may be spent, from before the call on. Units of a fixed window are also void when it ends.
    pub length: Duration,
}

impl Lease<'_> {
    /// Returns the charge that takes `units` without a lease.
    #[must_use]
    pub fn charge(&self, units: u64) -> Charge<'_> {
        let placement = Placement { tag: self.tag, ..Placement::default() };
        Charge::take(self.key, self.limit, units).within(self.namespace).placed(placement)
    }
}

/// Units that were taken in advance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leased {
    /// The number of units: one of the requested sizes, or 0.
    pub units: u64,
    /// The decision, with the receipt to refund units that are not spent. If no size fits, it is the decision about the
    /// last one.
    pub decision: Decision,
    /// The state of the key, or `None` if the store reports no states.
    pub report: Option<Report>,
}

impl Leased {
    /// Creates the result of a lease: `units` is 0 if no size fits. `report` is the state of the key, from stores that
    /// report it.
    #[must_use]
    pub fn new(units: u64, decision: Decision, report: Option<Report>) -> Leased {
        Leased { units, decision, report }
    }
}

/// A store that lets nodes take units in advance and spend them locally.
pub trait Leasing: Store {
    /// Takes units in advance.
    ///
    /// # Errors
    /// Fails if the store does not answer, or the limit cannot be leased ([`Limit::can_lease`]).
    fn lease(&self, call: &Call, lease: &Lease<'_>) -> impl Future<Output = Result<Leased, StoreError>> + Send;
}

/// One operation on a permit.
#[derive(Clone, Copy, Debug)]
pub struct PermitCharge<'a> {
    /// The namespace of the permit.
    pub namespace: &'a Namespace,
    /// The key under which permits are counted.
    pub key: Key<'a>,
    /// The name of the permit.
    pub permit: Key<'a>,
    /// The operation.
    pub op: PermitOp,
}

/// A store that keeps leased permits, for holders that may die.
///
/// A permit whose lease ends later than the longest lease of its key from now was granted before the store's clock was
/// set back, and is shortened to that: a dead holder blocks others for no longer than that lease.
pub trait PermitStore: Store {
    /// Acquires, renews or releases a permit. Acquiring a held permit again renews its lease.
    ///
    /// # Errors
    /// Fails if the store does not answer, or has no room for another permit.
    fn permit(
        &self,
        call: &Call,
        charge: &PermitCharge<'_>,
    ) -> impl Future<Output = Result<Permits, StoreError>> + Send;
}

/// A short text that a node publishes for the other nodes of a store.
#[derive(Clone, Copy, Debug)]
pub struct Notice<'a> {
    /// The name of the node. Under each topic it has one notice.
    pub node: &'a str,
    /// What the notice is about.
    pub topic: &'a str,
    /// Its content, at most [`NOTICE_BYTES_MAX`] bytes.
    pub bytes: &'a [u8],
    /// How long others can read it; zero takes it down.
    pub ttl: Duration,
}

/// A notice that others can read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Posted {
    /// The node that published it.
    pub node: Box<str>,
    /// Changes with each publication of that node.
    pub version: u64,
}

impl Posted {
    /// Returns what is known of a notice of a node.
    #[must_use]
    pub fn new(node: impl Into<Box<str>>, version: u64) -> Posted {
        Posted { node: node.into(), version }
    }
}

/// The content of a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Posting {
    /// Changes with each publication of the node.
    pub version: u64,
    /// How long ago it was published, by the clock of the store.
    pub age: Duration,
    /// What was published.
    pub bytes: Vec<u8>,
}

impl Posting {
    /// Returns a notice that was published this long ago.
    #[must_use]
    pub fn new(version: u64, age: Duration, bytes: Vec<u8>) -> Posting {
        Posting { version, age, bytes }
    }
}

/// A store that keeps notices: short texts that expire, each under a topic and the name of its node. No limit depends on them.
pub trait Bulletin: Store {
    /// Publishes a notice in place of the one that the node had under this topic.
    ///
    /// # Errors
    /// If the store does not answer, or the notice is too long.
    fn publish(&self, call: &Call, notice: &Notice<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns which nodes have a notice under a topic, at most [`NOTICES_MAX`].
    ///
    /// # Errors
    /// If the store does not answer.
    fn posted(&self, call: &Call, topic: &str) -> impl Future<Output = Result<Vec<Posted>, StoreError>> + Send;

    /// Reads the notice of a node under a topic; `None` if it has none.
    ///
    /// # Errors
    /// If the store does not answer.
    fn read(
        &self,
        call: &Call,
        topic: &str,
        node: &str,
    ) -> impl Future<Output = Result<Option<Posting>, StoreError>> + Send;
}

/// Most bytes of a notice. Requests on the same connection wait for half a millisecond behind it, at a gigabit a second.
pub const NOTICE_BYTES_MAX: usize = 64 << 10;

/// Most notices under a topic. Beyond it, the one that expires first makes room.
pub const NOTICES_MAX: usize = 256;
