//! Sorted networks: all networks that contain an address are found in a few steps, however many networks and prefix lengths
//! there are.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::network::Network;

/// Networks, which may contain each other, with the numbers of their rules.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    nodes: Box<[Node]>,
}

#[derive(Debug)]
struct Node {
    network: Network,
    /// The index of the smallest network that contains it.
    around: Option<u32>,
    rules: Box<[u32]>,
}

impl Networks {
    pub(crate) fn new(networks: BTreeMap<Network, Vec<u32>>) -> Networks {
        let mut nodes: Vec<Node> = Vec::with_capacity(networks.len());
        // Networks that may contain the next ones, the smallest last: a network sorts before those inside.
        let mut open: Vec<u32> = Vec::new();
        for (network, rules) in networks {
            while let Some(last) = open.last() {
                if nodes.get(*last as usize).is_some_and(|node| node.network.encloses(&network)) {
                    break;
                }
                open.pop();
            }
            let around = open.last().copied();
            open.push(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
            nodes.push(Node { network, around, rules: rules.into() });
        }
        Networks { nodes: nodes.into() }
    }

    /// Makes networks without rules.
    pub(crate) fn plain(networks: &[Network]) -> Networks {
        Networks::new(networks.iter().map(|network| (*network, Vec::new())).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Calls `found` with the rules of all networks that contain an address.
    #[inline]
    pub(crate) fn around(&self, address: IpAddr, found: &mut impl FnMut(&[u32])) {
        // Each network that contains the address is the last one that does not sort after it, or contains that one.
        let after = self.nodes.partition_point(|node| node.network.is_not_after(address));
        let mut next = after.checked_sub(1).and_then(|last| self.nodes.get(last));
        while let Some(node) = next {
            if node.network.holds(address) {
                found(&node.rules);
            }
            next = node.around.and_then(|around| self.nodes.get(around as usize));
        }
    }

    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        let mut any = false;
        self.around(address, &mut |_| any = true);
        any
    }
}
