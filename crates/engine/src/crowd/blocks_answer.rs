//! Answers about blocks and penalties in force, over all nodes that share a store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Time;
use tidegate_policy::{Rule, ShownPart};

use super::blocks::{Block, BlockId, BlockKind, Operator};
use super::exchange::NodeView;
use super::shape;
use crate::bounds::BLOCKS_TOLD_MAX;
use crate::engine::Engine;

/// Blocks and penalties in force.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BlocksAnswer {
    /// Those of operators first, then those that last longest; at most [`BLOCKS_TOLD_MAX`].
    pub blocks: Vec<BlockView>,
    /// Those beyond that, as far as they are known.
    pub left_out: usize,
    /// Those that this node set and had no room to list.
    pub unlisted: u64,
    /// The nodes whose blocks are in the answer.
    pub nodes: Vec<NodeView>,
}

/// A key that stays denied.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BlockView {
    /// The domain of the rule.
    pub domain: Box<str>,
    /// The name of the rule.
    pub rule: Box<str>,
    /// Its parts; none if the rule counts all requests as one.
    pub key: Vec<ShownPart>,
    /// What set it.
    pub kind: BlockKind,
    /// The operator that asked for it, if known.
    pub operator: Option<Operator>,
    /// The node that set it; `None` if it was found in the store.
    pub node: Option<Arc<str>>,
    /// When it was set or first seen, by the clock of its store.
    pub since: Time,
    /// When it ends, by the clock of this process.
    pub until: Time,
    /// How long it lasts.
    pub left: Duration,
}

impl Engine {
    /// Returns the blocks and penalties in force: those that this node set or found, and those that the other nodes of its
    /// shared stores publish.
    #[must_use]
    pub fn blocks(&self, domain: Option<&str>, rule: Option<&str>) -> BlocksAnswer {
        let (active, now) = (self.active.load_full(), self.crowd.clock.now());
        let mut blocks: HashMap<BlockId, Block> = HashMap::new();
        let own = self.crowd.blocks.in_force(now);
        let this = NodeView { id: (*self.crowd.node).into(), age: Duration::ZERO, is_this: true };
        let mut nodes = vec![this];
        let exchanges = active.stores.iter().filter_map(|backend| backend.asked()?.exchange.as_ref());
        let mut all = own;
        for (node, at, blocks) in exchanges.flat_map(|exchange| exchange.blocks()) {
            nodes.push(NodeView::new(&node, at, now));
            let in_force = blocks.into_iter().filter(|block| block.until > now);
            all.extend(in_force.filter(|block| !self.crowd.blocks.is_lifted(block)));
        }
        let is_wanted = |block: &Block| {
            domain.is_none_or(|domain| *domain == *block.id.domain) && rule.is_none_or(|rule| *rule == *block.id.rule)
        };
        for block in all.into_iter().filter(is_wanted) {
            match blocks.get_mut(&block.id) {
                // The node that set it knows the operator, and the last one to set it knows the end.
                Some(known) if (known.node.is_some(), known.since) >= (block.node.is_some(), block.since) => {}
                Some(known) => *known = block,
                None => {
                    blocks.insert(block.id.clone(), block);
                }
            }
        }
        let mut blocks: Vec<Block> = blocks.into_values().collect();
        blocks.sort_by(|one, other| {
            let order = |block: &Block| (block.id.kind, std::cmp::Reverse(block.until));
            order(one).cmp(&order(other)).then_with(|| one.id.cmp(&other.id))
        });
        let left_out = blocks.len().saturating_sub(BLOCKS_TOLD_MAX);
        blocks.truncate(BLOCKS_TOLD_MAX);
        let rules: HashMap<(&str, &str), &Rule> =
            active.policy.rules().iter().map(|rule| ((&*rule.domain, &*rule.name), rule)).collect();
        let view = |block: Block| view(block, &rules, now);
        let unlisted = self.crowd.blocks.unlisted();
        BlocksAnswer { blocks: blocks.into_iter().map(view).collect(), left_out, unlisted, nodes }
    }
}

fn view(block: Block, rules: &HashMap<(&str, &str), &Rule>, now: Time) -> BlockView {
    let Block { id: BlockId { domain, rule, key, kind }, operator, node, since, until, .. } = block;
    let of_rule = rules.get(&(&*domain, &*rule)).filter(|rule| shape(rule) == block.shape);
    let key = match of_rule {
        Some(rule) => rule.shown_key(&key),
        None => vec![ShownPart::unreadable(&key)],
    };
    let left = Duration::from_nanos(until.as_nanos().saturating_sub(now.as_nanos()));
    BlockView { domain, rule, key, kind, operator, node, since, until, left }
}
