//! Blocks and penalties in force, with their origin and end. The store alone decides; this list is for operators, and for the
//! other nodes, which hold the blocks while the store is away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_core::{KeyHasher, Time};

use super::Shape;
use crate::bounds::{BLOCKS_LISTED_MAX, LIFTED_MAX};

/// Locks that keys are spread over.
const SHARDS: usize = 16;

/// How long it is remembered that a block was lifted. Nodes that the store did not answer for longer than that go on showing
/// it, and do not deny.
const LIFTED_TIME: Duration = Duration::from_secs(600);

/// What denies a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// An operator.
    Operator,
    /// The penalty of the rule.
    Penalty,
}

/// The operator that asked for a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// The protocol it came by.
    pub via: Box<str>,
    /// The address that it came from.
    pub address: Box<str>,
}

/// A key that stays denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) id: BlockId,
    /// That of the keys of its rule.
    pub(crate) shape: Shape,
    /// The operator that asked for it, if known.
    pub(crate) operator: Option<Operator>,
    /// The node that set it; `None` if it was found in the store.
    pub(crate) node: Option<Arc<str>>,
    /// When it was set, by the clock of its store.
    pub(crate) since: Time,
    /// When it ends, by the clock of this process.
    pub(crate) until: Time,
}

/// What a block denies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockId {
    pub(crate) domain: Box<str>,
    pub(crate) rule: Box<str>,
    pub(crate) key: Box<[u8]>,
    pub(crate) kind: BlockKind,
}

/// A key of a rule, by its domain and name.
pub(crate) type RuleKey = (Box<str>, Box<str>, Box<[u8]>);

/// When the blocks of a key were lifted.
#[derive(Clone, Copy, Debug)]
struct Lifted {
    /// By the clock of its store. What was set later holds.
    at: Time,
    /// When this is forgotten, by the clock of this process.
    until: Time,
}

/// The blocks that this node set, or took over.
#[derive(Debug)]
pub(crate) struct Blocks {
    shards: Box<[Mutex<HashMap<BlockId, Block>>]>,
    hasher: KeyHasher,
    lifted: Mutex<HashMap<RuleKey, Lifted>>,
    /// How often anything was changed here, and how often by an operator.
    changes: AtomicU64,
    by_operators: AtomicU64,
    /// Those that found no room.
    unlisted: AtomicU64,
}

impl Blocks {
    pub(super) fn new(hasher: KeyHasher) -> Blocks {
        Blocks {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher,
            lifted: Mutex::default(),
            changes: AtomicU64::new(0),
            by_operators: AtomicU64::new(0),
            unlisted: AtomicU64::new(0),
        }
    }

    /// Remembers a block in place of an earlier one of the same key.
    pub(crate) fn set(&self, block: Block, now: Time) {
        let is_of_operator = block.id.kind == BlockKind::Operator;
        let mut shard = self.shard(&block.id);
        if !shard.contains_key(&block.id) && !make_room(&mut shard, &block, now) {
            self.unlisted.fetch_add(1, Relaxed);
            return;
        }
        shard.insert(block.id.clone(), block);
        drop(shard);
        self.changed(is_of_operator);
    }

    /// Remembers a block unless something is known of its key already.
    pub(crate) fn learn(&self, block: Block, now: Time) {
        let mut shard = self.shard(&block.id);
        let is_news = shard.get(&block.id).is_none_or(|known| known.until <= now);
        if is_news && make_room(&mut shard, &block, now) {
            shard.insert(block.id.clone(), block);
        }
    }

    /// Takes over a block whose node is gone, and publishes it from now on.
    pub(super) fn take_over(&self, block: Block, now: Time) {
        self.learn(block, now);
        self.changed(false);
    }

    /// Forgets what denies a key, and remembers that it was lifted.
    pub(crate) fn lift(&self, key: RuleKey, at: Time, now: Time) {
        self.learn_lifted(key, at, now);
        self.changed(true);
    }

    /// Forgets what another node says was lifted.
    pub(crate) fn learn_lifted(&self, (domain, rule, key): RuleKey, at: Time, now: Time) {
        for kind in [BlockKind::Operator, BlockKind::Penalty] {
            let id = BlockId { domain: domain.clone(), rule: rule.clone(), key: key.clone(), kind };
            let mut shard = self.shard(&id);
            if shard.get(&id).is_some_and(|block| block.since <= at) {
                shard.remove(&id);
            }
        }
        let mut all = lock(&self.lifted);
        all.retain(|_, lifted| lifted.until > now);
        if all.len() < LIFTED_MAX {
            let lifted = all.entry((domain, rule, key)).or_insert(Lifted { at, until: now.plus(LIFTED_TIME) });
            lifted.at = lifted.at.max(at);
        }
    }

    /// The blocks in force, in no order.
    pub(crate) fn in_force(&self, now: Time) -> Vec<Block> {
        let of_shard = |shard: &Mutex<HashMap<BlockId, Block>>| {
            let mut shard = lock(shard);
            shard.retain(|_, block| block.until > now);
            shard.values().cloned().collect::<Vec<Block>>()
        };
        self.shards.iter().flat_map(of_shard).collect()
    }

    /// The keys whose blocks were lifted in the last minutes, each with when, by the clock of its store.
    pub(crate) fn lifted(&self, now: Time) -> Vec<(RuleKey, Time)> {
        let mut lifted = lock(&self.lifted);
        lifted.retain(|_, lifted| lifted.until > now);
        lifted.iter().map(|(key, lifted)| (key.clone(), lifted.at)).collect()
    }

    /// Whether a block was lifted.
    pub(crate) fn is_lifted(&self, block: &Block) -> bool {
        let BlockId { domain, rule, key, .. } = block.id.clone();
        lock(&self.lifted).get(&(domain, rule, key)).is_some_and(|lifted| block.since <= lifted.at)
    }

    /// Blocks that found no room to be listed.
    pub(crate) fn unlisted(&self) -> u64 {
        self.unlisted.load(Relaxed)
    }

    /// How often anything was changed here, and how often by an operator.
    pub(super) fn changes(&self) -> (u64, u64) {
        (self.changes.load(Relaxed), self.by_operators.load(Relaxed))
    }

    fn changed(&self, by_operator: bool) {
        self.changes.fetch_add(1, Relaxed);
        self.by_operators.fetch_add(u64::from(by_operator), Relaxed);
    }

    fn shard(&self, id: &BlockId) -> MutexGuard<'_, HashMap<BlockId, Block>> {
        let number = usize::try_from(self.hasher.hash(&id.key) % SHARDS as u64).unwrap_or(0);
        #[expect(clippy::indexing_slicing, reason = "the remainder is below the length")]
        lock(&self.shards[number])
    }
}

/// Makes room for a block. Returns whether there is any: penalties make room for what ends later, and for operators.
fn make_room(shard: &mut HashMap<BlockId, Block>, block: &Block, now: Time) -> bool {
    if shard.len() < BLOCKS_LISTED_MAX / SHARDS {
        return true;
    }
    shard.retain(|_, block| block.until > now);
    if shard.len() < BLOCKS_LISTED_MAX / SHARDS {
        return true;
    }
    let penalties = shard.values().filter(|other| other.id.kind == BlockKind::Penalty);
    let Some(first) = penalties.min_by_key(|other| other.until) else { return false };
    let yields = block.id.kind == BlockKind::Operator || first.until < block.until;
    if yields {
        let id = first.id.clone();
        shard.remove(&id);
    }
    yields
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;
