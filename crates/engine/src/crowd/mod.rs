//! Keys in the eyes of an operator: the heaviest keys of each rule, the blocks in force, and the exchange of both between the
//! nodes of a shared store.
//!
//! | to find | look in |
//! |---|---|
//! | the heaviest keys of a rule on this node | `top.rs`, `generations.rs`, `memory.rs` |
//! | blocks and penalties that this node set | `blocks.rs` |
//! | the exchange between nodes, and its format | `exchange.rs`, `wire.rs` |
//! | answers about the heaviest keys, over all nodes | `top_answer.rs` |
//! | answers about blocks, over all nodes | `blocks_answer.rs` |

mod blocks;
mod blocks_answer;
mod exchange;
mod generations;
mod memory;
mod top;
mod top_answer;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::{Clock, KeyHasher, agreed_hash};
use tidegate_policy::{Policy, Rule};

use crate::permits::new_permit_id;
use memory::Room;

pub(crate) use blocks::{Block, BlockId, Blocks};
pub use blocks::{BlockKind, Operator};
pub use blocks_answer::{BlockView, BlocksAnswer};
pub(crate) use exchange::{Exchange, start};
pub use exchange::{NodeView, Others};
pub(crate) use top::Top;
pub use top::TopWindow;
pub use top_answer::{TopAnswer, TopKey, TopQuery, TopRule};

/// What is known of keys, for all rules of an engine.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// The name of this node among those that share a store.
    pub(crate) node: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) blocks: Blocks,
    hasher: KeyHasher,
    room: Arc<Room>,
    tops: Mutex<HashMap<RuleName, (Shape, Arc<Top>)>>,
}

/// A domain and the name of a rule in it.
type RuleName = (Box<str>, Box<str>);

/// A hash of the names of the parts of a rule's key. Only keys of the same parts can be read by a rule, and counted together.
pub(crate) type Shape = u64;

/// The shape of the keys of a rule.
pub(crate) fn shape(rule: &Rule) -> Shape {
    let names = rule.key_part_names();
    let mut bytes = Vec::new();
    for name in &names {
        bytes.extend_from_slice(&name.len().to_be_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }
    agreed_hash(&bytes)
}

impl Crowd {
    pub(crate) fn new(clock: Clock) -> Crowd {
        // Without random bits from the system there is no name that no other node has.
        let node = new_permit_id().map_or_else(|_| "unnamed".into(), |id| id.get(..NODE_DIGITS).unwrap_or(&id).into());
        let hasher = KeyHasher::random();
        let blocks = Blocks::new(hasher.clone());
        Crowd { node, clock, blocks, hasher, room: Arc::default(), tops: Mutex::default() }
    }

    /// The heaviest keys of the rules of a policy, in their order. Those of rules that the last policy had too, with keys of the
    /// same parts, go on; others are forgotten.
    pub(crate) fn tops(&self, policy: &Policy) -> Vec<Arc<Top>> {
        let mut known = self.tops.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *known);
        let mut tops = Vec::with_capacity(policy.rules().len());
        for rule in policy.rules() {
            let (name, shape) = ((rule.domain.clone(), rule.name.clone()), shape(rule));
            let top = match before.remove(&name) {
                Some((same, top)) if same == shape => top,
                _ => Arc::new(Top::new(&self.room, &self.hasher, rule.key_part_names().is_empty())),
            };
            tops.push(Arc::clone(&top));
            known.insert(name, (shape, top));
        }
        tops
    }
}

/// Hexadecimal digits of the name of a node.
const NODE_DIGITS: usize = 16;
