//! A Redis Cluster.

use super::{Certificates, Server, Setup, command};
use crate::ports::free_port;
use crate::wait::wait_until;

/// A Redis Cluster of three primaries with one replica each.
pub struct Cluster {
    /// The three primaries, then the replica of each, in the same order.
    pub nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a Cluster and waits until every node knows all others and every replica has its data.
    pub fn start(node_timeout_millis: u32) -> Cluster {
        Cluster::start_with(node_timeout_millis, None)
    }

    /// Starts a Cluster whose nodes speak TLS to each other, and to clients on a second port each.
    pub fn start_with(node_timeout_millis: u32, tls: Option<&Certificates>) -> Cluster {
        let nodes: Vec<(Server, u16)> = (0..6).map(|_| node(node_timeout_millis, tls)).collect();
        for (index, (node, _)) in nodes.iter().take(3).enumerate() {
            node.command(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            let (first, last) = [(0, 5460), (5461, 10922), (10923, 16383)][index];
            node.command(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        }
        for (from, _) in &nodes {
            // A node that meets itself can hear from itself, late, that it is still a primary, and believes it.
            for (to, bus) in nodes.iter().filter(|(to, _)| to.port != from.port) {
                from.command(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", to.peer_port()));
            }
        }
        let nodes: Vec<Server> = nodes.into_iter().map(|(node, _)| node).collect();
        for (index, node) in nodes.iter().enumerate().skip(3) {
            let primary = nodes[index - 3].command("CLUSTER MYID");
            let follow = format!("CLUSTER REPLICATE {primary}");
            wait_until("the replica knows its primary", || command(node.port, &follow).is_ok());
        }
        let cluster = Cluster { nodes };
        cluster.wait_until_whole();
        cluster
    }

    fn wait_until_whole(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            wait_until("a node knows the Cluster", || {
                let info = node.command("CLUSTER INFO");
                let roles = node.command("CLUSTER NODES");
                info.contains("cluster_state:ok")
                    && info.contains("cluster_known_nodes:6")
                    && roles.matches("slave").count() == 3
                    && !roles.contains("handshake")
                    && (index < 3 || node.command("INFO replication").contains("master_link_status:up"))
            });
        }
    }

    /// Returns the addresses of the nodes, separated by commas. The ports are those with TLS if the nodes have them.
    pub fn hosts(&self) -> String {
        self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.peer_port())).collect::<Vec<_>>().join(",")
    }

    /// Returns the number of the node that is the primary of a slot when the Cluster starts.
    pub fn primary_of(&self, slot: u16) -> usize {
        match slot {
            ..=5460 => 0,
            5461..=10922 => 1,
            _ => 2,
        }
    }
}

fn node(node_timeout_millis: u32, tls: Option<&Certificates>) -> (Server, u16) {
    let bus = free_port();
    let settings = [
        "--cluster-enabled yes",
        &format!("--cluster-port {bus}"),
        &format!("--cluster-node-timeout {node_timeout_millis}"),
        "--cluster-replica-validity-factor 0",
        "--repl-diskless-sync-delay 0",
    ];
    (Server::start(&Setup { settings: &settings, tls, ..Setup::default() }), bus)
}
