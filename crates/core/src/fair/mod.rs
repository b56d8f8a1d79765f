//! Fair queueing: whose turn it is when several tenants wait for the same pool.
//!
//! | to find | look in |
//! |---|---|
//! | the turns: deficit round robin | `mod.rs` |
//! | items and tenants in chains, found by a ticket | `chain.rs` |

mod chain;

use std::collections::HashMap;
use std::sync::Arc;

use crate::Key;
use crate::bounds::{FAIR_ITEMS_MAX, QUANTUM_MAX, WEIGHT_MAX};
use chain::{Chain, Slab};

/// The numbers of a [`DeficitRoundRobin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairConfig {
    /// Units that a tenant of weight 1 may spend in a turn, and the largest cost of an item. With 1, and items of cost
    /// 1, tenants alternate; a larger one lets costs differ, and makes turns longer.
    pub quantum: u64,
    /// Most tenants that wait at once.
    pub tenants_max: usize,
    /// Most items of one tenant.
    pub depth_max: usize,
    /// Most items of all. A tenant never has more than are still free, so that one alone cannot take more than half.
    pub total_max: usize,
}

impl Default for FairConfig {
    fn default() -> FairConfig {
        FairConfig { quantum: 1, tenants_max: 1000, depth_max: 100, total_max: 10_000 }
    }
}

/// Why an item cannot wait, or numbers are not a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FairError {
    /// A number is zero or beyond its bound.
    #[error("{field}: {value} is out of range; use 1 to {max}")]
    OutOfRange {
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The largest that would do.
        max: u64,
    },
    /// The tenant has as many items waiting as one may have.
    #[error("tenant: {depth} of its items wait, and {max} may; try again later")]
    TenantFull {
        /// How many wait.
        depth: usize,
        /// How many may: `depth_max`, or as many as are still free.
        max: usize,
    },
    /// As many items wait as may.
    #[error("queue: {max} items wait, as many as may; try again later")]
    Full {
        /// How many may.
        max: usize,
    },
    /// As many tenants wait as may.
    #[error("queue: {max} tenants wait, as many as may; try again later")]
    TooManyTenants {
        /// How many may.
        max: usize,
    },
}

/// An item that cannot wait, given back.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Refused<T> {
    /// The item.
    pub item: T,
    /// Why it cannot wait.
    #[source]
    pub why: FairError,
}

/// Finds a waiting item again, to take it out. It is good for one item: when that has left, it finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    place: usize,
    generation: u64,
}

/// Lets tenants take turns, each in proportion to its weight, whatever they put in. A tenant that asks for a hundred
/// times as much waits in a longer line of its own, and nobody else does.
///
/// In its turn a tenant gets `quantum` times its weight to spend, its items leave in the order in which they came while
/// that lasts, and what is left is kept for its next turn. A tenant with nothing waiting is forgotten.
///
/// Each operation takes the same time, however many wait. Room is made when tenants and items come, not when they go.
///
/// ```
/// use tidegate::Key;
/// use tidegate::fair::{DeficitRoundRobin, FairConfig};
///
/// let mut queue = DeficitRoundRobin::new(FairConfig::default())?;
/// let (ann, bob) = (Key::new("ann")?, Key::new("bob")?);
/// for item in ["ann 1", "ann 2", "ann 3"] {
///     queue.push(ann, 1, 1, item)?;
/// }
/// queue.push(bob, 1, 1, "bob 1")?;
/// let order: Vec<&str> = std::iter::from_fn(|| queue.pop()).collect();
/// assert_eq!(order, ["ann 1", "bob 1", "ann 2", "ann 3"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DeficitRoundRobin<T> {
    config: FairConfig,
    items: Slab<Item<T>>,
    tenants: Slab<Tenant>,
    by_key: HashMap<Arc<[u8]>, usize>,
    /// Tenants with items, the one whose turn it is first.
    ring: Chain,
}

#[derive(Debug)]
struct Item<T> {
    item: T,
    cost: u64,
    tenant: usize,
}

#[derive(Debug)]
struct Tenant {
    key: Arc<[u8]>,
    weight: u64,
    items: Chain,
    depth: usize,
    /// What it may still spend.
    deficit: u64,
    /// Whether it has been given what it may spend in this turn.
    in_turn: bool,
}

impl<T> DeficitRoundRobin<T> {
    /// An empty queue.
    ///
    /// # Errors
    /// If a number is zero or beyond its bound.
    pub fn new(config: FairConfig) -> Result<DeficitRoundRobin<T>, FairError> {
        check("quantum", config.quantum, QUANTUM_MAX)?;
        for (field, value) in
            [("tenants_max", config.tenants_max), ("depth_max", config.depth_max), ("total_max", config.total_max)]
        {
            check(field, value as u64, FAIR_ITEMS_MAX as u64)?;
        }
        let (items, tenants) = (Slab::new(), Slab::new());
        Ok(DeficitRoundRobin { config, items, tenants, by_key: HashMap::new(), ring: Chain::default() })
    }

    /// Puts an item in line behind those of its tenant. A tenant has the weight that came with its latest item.
    ///
    /// # Errors
    /// With the item, if the weight or cost is zero or too large, or there is no room for it.
    pub fn push(&mut self, tenant: Key<'_>, weight: u64, cost: u64, item: T) -> Result<Ticket, Refused<T>> {
        let place = match self.admit(tenant, weight, cost) {
            Ok(Some(place)) => place,
            Ok(None) => self.enter(tenant),
            Err(why) => return Err(Refused { item, why }),
        };
        let item = self.items.insert(Item { item, cost, tenant: place });
        if let Some(tenant) = self.tenants.get_mut(place) {
            tenant.weight = weight;
            tenant.depth += 1;
            self.items.link_back(&mut tenant.items, item);
        }
        Ok(Ticket { place: item, generation: self.items.generation(item) })
    }

    /// Takes the item whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        // The first tenant may have spent its turn. The next has not begun its own, and can then afford its first
        // item, since no cost is above the quantum: this goes round at most twice.
        loop {
            let place = self.ring.first()?;
            let tenant = self.tenants.get_mut(place)?;
            if !tenant.in_turn {
                tenant.in_turn = true;
                tenant.deficit = tenant.deficit.saturating_add(self.config.quantum.saturating_mul(tenant.weight));
            }
            let first = tenant.items.first()?;
            let cost = self.items.get(first)?.cost;
            if cost <= tenant.deficit {
                tenant.deficit -= cost;
                return self.take(first);
            }
            tenant.in_turn = false;
            self.tenants.unlink(&mut self.ring, place);
            self.tenants.link_back(&mut self.ring, place);
        }
    }

    /// Takes an item out of line, as when its caller no longer waits. Nothing if it has left already.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        (self.items.generation(ticket.place) == ticket.generation).then(|| self.take(ticket.place))?
    }

    /// How many items wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many tenants have items that wait.
    #[must_use]
    pub fn tenants(&self) -> usize {
        self.tenants.len()
    }

    /// How many items of a tenant wait.
    #[must_use]
    pub fn depth(&self, tenant: Key<'_>) -> usize {
        let place = self.by_key.get(tenant.as_bytes());
        place.and_then(|place| self.tenants.get(*place)).map_or(0, |tenant| tenant.depth)
    }

    /// Whether there is room for an item of this tenant; its place, if it has one.
    fn admit(&self, tenant: Key<'_>, weight: u64, cost: u64) -> Result<Option<usize>, FairError> {
        check("weight", weight, WEIGHT_MAX)?;
        check("cost", cost, self.config.quantum)?;
        let free = self.config.total_max.saturating_sub(self.items.len());
        if free == 0 {
            return Err(FairError::Full { max: self.config.total_max });
        }
        match self.by_key.get(tenant.as_bytes()) {
            Some(&place) => {
                let depth = self.tenants.get(place).map_or(0, |tenant| tenant.depth);
                let max = self.config.depth_max.min(free);
                if depth < max { Ok(Some(place)) } else { Err(FairError::TenantFull { depth, max }) }
            }
            None if self.tenants.len() < self.config.tenants_max => Ok(None),
            None => Err(FairError::TooManyTenants { max: self.config.tenants_max }),
        }
    }

    /// A tenant comes: its first turn is after those of all who wait.
    fn enter(&mut self, tenant: Key<'_>) -> usize {
        let key: Arc<[u8]> = Arc::from(tenant.as_bytes());
        let items = Chain::default();
        let tenant = Tenant { key: Arc::clone(&key), weight: 1, items, depth: 0, deficit: 0, in_turn: false };
        let place = self.tenants.insert(tenant);
        self.tenants.link_back(&mut self.ring, place);
        self.by_key.insert(key, place);
        place
    }

    /// Takes an item from its place, and forgets its tenant if it was the last.
    fn take(&mut self, place: usize) -> Option<T> {
        let owner = self.items.get(place)?.tenant;
        if let Some(tenant) = self.tenants.get_mut(owner) {
            self.items.unlink(&mut tenant.items, place);
            tenant.depth = tenant.depth.saturating_sub(1);
            if tenant.depth == 0 {
                self.tenants.unlink(&mut self.ring, owner);
                if let Some(tenant) = self.tenants.remove(owner) {
                    self.by_key.remove(&tenant.key);
                }
            }
        }
        self.items.remove(place).map(|item| item.item)
    }
}

fn check(field: &'static str, value: u64, max: u64) -> Result<(), FairError> {
    if (1..=max).contains(&value) { Ok(()) } else { Err(FairError::OutOfRange { field, value, max }) }
}
