//! The contract between stores and those who ask them.

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
    /// Returns the options of a call with this deadline.
    #[must_use]
    pub fn until(deadline: Option<Instant>) -> Call {
        Call { deadline }
    }
}

/// Properties of a store that callers rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nature {
    /// Whether an answer may have to be awaited. If not, every future of the store is ready at once.
    pub awaits: bool,
    /// Whether other nodes see what is counted here.
    pub is_shared: bool,
    /// Whether its states survive a restart of this process.
    pub survives_restart: bool,
    /// The longest time of a call, with its wait for a turn in this process; `None` if it does not wait.
    pub call_time_max: Option<Duration>,
    /// The algorithms it knows.
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

    /// Whether something that was imposed here may be in force though this process knows nothing of it: another node did
    /// it, or this one before it was started again.
    #[must_use]
    pub const fn outlives_process(&self) -> bool {
        self.is_shared || self.survives_restart
    }
}

/// A store of states.
pub trait Store: Send + Sync {
    /// Decides charges at one instant: takes all that fit if no vetoing charge is denied, else none.
    ///
    /// # Errors
    /// If the store does not answer, or the charges cannot be decided together.
    fn charge(&self, call: &Call, charges: &[Charge<'_>])
    -> impl Future<Output = Result<Decisions, StoreError>> + Send;

    /// Looks at the key of a charge, with the entries of its log where the limit keeps one, and changes nothing.
    ///
    /// # Errors
    /// If the store does not answer.
    fn inspect(&self, call: &Call, charge: &Charge<'_>) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// What callers may rely on. It never changes.
    fn nature(&self) -> Nature;

    /// Returns its health.
    fn health(&self) -> Health;

    /// Stops what it does in the background.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Units to be taken in advance.
#[derive(Clone, Copy, Debug)]
pub struct Lease<'a> {
    /// The namespace to lease from.
    pub namespace: &'a Namespace,
    /// The key to lease from.
    pub key: Key<'a>,
    /// The limit to lease from.
    pub limit: &'a Limit,
    /// The hash tag of the key; none if empty.
    pub tag: &'a [u8],
    /// How many units: the first of these that fits.
    pub sizes: &'a [u64],
    /// How long they may be spent, from before the call on. Those of a fixed window are void when it ends, too.
    pub length: Duration,
}

impl Lease<'_> {
    /// Returns the charge that takes `units` at once.
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
    /// How many: one of the sizes that were asked for, or none.
    pub units: u64,
    /// The answer, with the receipt to give back what is not spent. If no size fits it is that of the last one.
    pub decision: Decision,
    /// What the store reports of the key; nothing if it does not report states.
    pub report: Option<Report>,
}

impl Leased {
    /// Returns what a store leased: how many units, 0 if no size fits, and the answer to them. `report` is the state of the
    /// key, from stores that report it.
    #[must_use]
    pub fn new(units: u64, decision: Decision, report: Option<Report>) -> Leased {
        Leased { units, decision, report }
    }
}

/// A store that lets nodes take units in advance and spend them by themselves.
pub trait Leasing: Store {
    /// Takes units in advance.
    ///
    /// # Errors
    /// If the store does not answer, or the limit has no leases ([`Limit::can_lease`]).
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
    /// What to do.
    pub op: PermitOp,
}

/// A store that keeps permits with leases, for holders that may die.
///
/// A permit whose lease ends later than the longest lease of its key from now was given before the store's clock was set
/// back, and is cut to that: a holder that died keeps nobody out for longer than that lease.
pub trait PermitStore: Store {
    /// Acquires, renews or releases a permit. Acquiring a held permit again renews its lease.
    ///
    /// # Errors
    /// If the store does not answer, or has no room for another permit.
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
