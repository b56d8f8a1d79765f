//! What can be seen from outside: states, counts, and messages when something changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::bounds::MESSAGE_PAUSE;
use super::circuit::Breaker;
use super::dial::Endpoint;
use super::node::Node;

/// How a store does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The store, without its password.
    pub store: Arc<str>,
    /// The worst of the nodes.
    pub breaker: Breaker,
    /// Each node that is known.
    pub nodes: Vec<NodeHealth>,
    /// What happened since the store was opened.
    pub totals: Totals,
}

/// How a node does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHealth {
    /// Its address, or what the Sentinels call it.
    pub name: String,
    /// Whether calls are sent to it.
    pub breaker: Breaker,
    /// Connections that are up.
    pub connections: usize,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the store was opened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn totals(&self) -> Totals {
                Totals { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Calls that were answered.
    answered,
    /// Calls that were not applied.
    not_sent,
    /// Calls that may have been applied.
    unknown,
    /// Calls that the server answered with an error.
    refused,
    /// Scripts that a server had forgotten and was told again.
    reloaded,
    /// Redirections to another node.
    redirected,
    /// Calls that were sent again because the server was not ready for them.
    retried,
    /// Connections made.
    connected,
    /// Connections lost.
    lost,
    /// Times that a breaker opened.
    opened,
}

/// Says what changed about a node, each kind of message once in a while at most.
#[derive(Debug, Default)]
pub(super) struct Journal {
    connected: Pace,
    lost: Pace,
    unreachable: Pace,
    opened: Pace,
    closed: Pace,
    refused: Pace,
}

/// When a message was last written, in milliseconds of the node's age, and how many were not since.
#[derive(Debug, Default)]
struct Pace {
    next_millis: AtomicU64,
    left_out: AtomicU64,
}

impl Pace {
    /// Says whether a message may be written now, and if so how many were left out before it.
    fn turn(&self, age_millis: u64) -> Option<u64> {
        let next = self.next_millis.load(Relaxed);
        let pause = u64::try_from(MESSAGE_PAUSE.as_millis()).unwrap_or(u64::MAX);
        let ours = age_millis >= next
            && self.next_millis.compare_exchange(next, age_millis.saturating_add(pause), Relaxed, Relaxed).is_ok();
        if ours {
            return Some(self.left_out.swap(0, Relaxed));
        }
        self.left_out.fetch_add(1, Relaxed);
        None
    }
}

macro_rules! message {
    ($level:ident, $pace:expr, $node:expr, $($rest:tt)*) => {
        let age_millis = u64::try_from($node.age().as_millis()).unwrap_or(u64::MAX);
        if let Some(left_out) = $pace.turn(age_millis) {
            tracing::$level!(store = %$node.shared.store, node = %$node.name, left_out, $($rest)*);
        }
    };
}

impl Journal {
    pub(super) fn connected(&self, node: &Node, endpoint: &Endpoint) {
        message!(info, self.connected, node, %endpoint, "connected to the store");
    }

    pub(super) fn lost(&self, node: &Node, endpoint: &Endpoint) {
        message!(warn, self.lost, node, %endpoint, "lost a connection to the store");
    }

    pub(super) fn unreachable(&self, node: &Node, why: &str) {
        message!(warn, self.unreachable, node, why, "cannot connect to the store");
    }

    pub(super) fn breaker_opened(&self, node: &Node) {
        message!(
            warn,
            self.opened,
            node,
            "the store does not answer in time: calls are held back until a probe succeeds"
        );
    }

    /// The server answered with an error that no retry mends.
    pub(super) fn refused(&self, node: &Node, error: &str) {
        message!(warn, self.refused, node, error, "the store refuses a call: rules do what they chose for its failure");
    }

    pub(super) fn breaker_closed(&self, node: &Node) {
        message!(info, self.closed, node, "the store answers in time again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_rare_and_say_how_many_were_left_out() {
        let pace = Pace::default();
        assert_eq!(pace.turn(0), Some(0));
        assert_eq!(pace.turn(10), None);
        assert_eq!(pace.turn(4_999), None);
        assert_eq!(pace.turn(5_000), Some(2));
        assert_eq!(pace.turn(9_999), None);
    }
}
