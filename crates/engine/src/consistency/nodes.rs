//! The number of nodes that use a store: each holds a permit there while it lives, and the store reports how many are
//! held.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_core::{Key, Namespace, PermitOp, Purpose};
use tidegate_stores::{Call, PermitCharge};

use super::Inner;
use crate::bounds::{NODE_LEASE, NODE_PAUSE, PERMIT_LIMIT_MAX};

/// What nodes announce themselves under.
static NODES: Namespace = Namespace::of(Purpose::Nodes);

/// How long it is until a node announces itself that does not do so.
const NEVER: Duration = Duration::from_secs(3_600);

impl Inner {
    /// Announces this node if it is time, and counts those that did. Returns how long it is until the next time. While the
    /// store is away the last number holds.
    pub(super) async fn announce(self: &Arc<Self>) -> Duration {
        if !self.counts_nodes.load(Relaxed) || self.closed.load(Relaxed) {
            return NEVER;
        }
        let now = self.clock.now();
        let due = self.announce_at.load(Relaxed);
        if now.as_nanos() < due {
            return Duration::from_nanos(due - now.as_nanos());
        }
        self.announce_at.store(now.plus(NODE_PAUSE).as_nanos(), Relaxed);
        let op = PermitOp::Acquire { limit: PERMIT_LIMIT_MAX, lease: NODE_LEASE };
        if let Some(node) = self.node(op)
            && let Ok(permits) = self.store.permit(&Call::default(), &node).await
        {
            self.nodes.store(permits.in_use, Relaxed);
        }
        NODE_PAUSE
    }

    /// Takes leave, so that the others need not wait until the announcement is over.
    pub(super) async fn leave(&self) {
        if let (1.., Some(node)) = (self.nodes.load(Relaxed), self.node(PermitOp::Release)) {
            let _ = self.store.permit(&Call::default(), &node).await;
        }
    }

    /// What this node does under its own name. Without random bits from the system it has none, and is not counted.
    fn node(&self, op: PermitOp) -> Option<PermitCharge<'_>> {
        let permit = Key::new(self.node_name.as_deref()?.as_bytes()).ok()?;
        Some(PermitCharge { namespace: &NODES, key: Key::ALL, permit, op })
    }
}
