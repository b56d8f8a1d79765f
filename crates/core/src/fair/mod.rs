//! Fair queueing: the order in which tenants that wait for the same pool are served.
//!
//! | to find | look in |
//! |---|---|
//! | deficit round robin | `mod.rs` |
//! | items and tenants in chains, found by a ticket | `chain.rs` |

mod chain;

use std::collections::HashMap;
use std::sync::Arc;

use crate::Key;
use crate::bounds::{FAIR_ITEMS_MAX, QUANTUM_MAX, WEIGHT_MAX};
use chain::{Chain, Slab};

/// The configuration of a [`DeficitRoundRobin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairConfig {
    /// The units that a tenant of weight 1 may spend in a turn, and the largest cost of an item. With 1, and items of
    /// cost 1, tenants alternate; a larger quantum allows different costs, and makes turns longer.
    pub quantum: u64,
    /// The most tenants with waiting items.
    pub tenants_max: usize,
    /// The most waiting items of one tenant.
    pub depth_max: usize,
    /// The most waiting items of all tenants. A tenant never has more than are still free, so that one alone cannot
    /// take more than half.
    pub total_max: usize,
}

impl Default for FairConfig {
    fn default() -> FairConfig {
        FairConfig { quantum: 1, tenants_max: 1000, depth_max: 100, total_max: 10_000 }
    }
}

/// Why an item cannot wait, or a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FairError {
    /// A number is zero or too large.
    #[error("{field}: {value} is out of range; use 1 to {max}")]
    OutOfRange {
        /// The name of the field.
        field: &'static str,
        /// The number.
        value: u64,
        /// The largest number allowed.
        max: u64,
    },
    /// The tenant's queue is full.
    #[error("tenant: its queue is full ({depth} items wait, at most {max} may); try again later")]
    TenantFull {
        /// The number of waiting items of the tenant.
        depth: usize,
        /// The most waiting items of the tenant: `depth_max`, or as many as are still free.
        max: usize,
    },
    /// The queue of all tenants is full.
    #[error("queue: full, with {max} items; try again later")]
    Full {
        /// The most waiting items.
        max: usize,
    },
    /// There are too many tenants with waiting items.
    #[error("queue: full, with items of {max} tenants; try again later")]
    TooManyTenants {
        /// The most tenants.
        max: usize,
    },
}

/// An item that cannot wait, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Refused<T> {
    /// The item.
    pub item: T,
    /// The reason.
    #[source]
    pub why: FairError,
}

/// Identifies a waiting item, to remove it. Once the item has left, it identifies nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    place: usize,
    generation: u64,
}

/// Serves tenants in turn, each in proportion to its weight, however many items they add. A tenant with a hundred times
/// as many items waits in a longer queue of its own and delays no other tenant.
///
/// In its turn a tenant may spend `quantum` times its weight: its items leave in the order of arrival while that lasts,
/// and the rest is kept for its next turn. A tenant without waiting items is forgotten.
///
/// Each operation takes constant time, however many items wait. Memory grows when tenants and items are added, and is
/// not given back when they leave.
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
    /// The units that it may still spend.
    deficit: u64,
    /// Whether it has received the units of this turn.
    in_turn: bool,
}

impl<T> DeficitRoundRobin<T> {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// Fails if a number is zero or too large.
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

    /// Adds an item to the end of its tenant's queue. The tenant gets the weight of its latest item.
    ///
    /// # Errors
    /// Returns the item if the weight or cost is zero or too large, or there is no room for it.
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

    /// Removes and returns the item whose turn it is.
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

    /// Removes an item, for example when its caller no longer waits. Returns `None` if it has left already.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        (self.items.generation(ticket.place) == ticket.generation).then(|| self.take(ticket.place))?
    }

    /// Returns the number of waiting items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether no item waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of tenants with waiting items.
    #[must_use]
    pub fn tenants(&self) -> usize {
        self.tenants.len()
    }

    /// Returns the number of a tenant's waiting items.
    #[must_use]
    pub fn depth(&self, tenant: Key<'_>) -> usize {
        let place = self.by_key.get(tenant.as_bytes());
        place.and_then(|place| self.tenants.get(*place)).map_or(0, |tenant| tenant.depth)
    }

    /// Checks the room for an item of this tenant, and returns the tenant's place, if it has one.
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

    /// Adds a tenant: its first turn is after those of all waiting tenants.
    fn enter(&mut self, tenant: Key<'_>) -> usize {
        let key: Arc<[u8]> = Arc::from(tenant.as_bytes());
        let items = Chain::default();
        let tenant = Tenant { key: Arc::clone(&key), weight: 1, items, depth: 0, deficit: 0, in_turn: false };
        let place = self.tenants.insert(tenant);
        self.tenants.link_back(&mut self.ring, place);
        self.by_key.insert(key, place);
        place
    }

    /// Removes an item from its place, and its tenant if it was the last.
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
