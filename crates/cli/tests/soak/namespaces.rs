//! Two networks on one machine, with a link between them that can be cut. They need root.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tidegate_testkit::process::{command, printed};

/// Two networks with one address each, which are removed when the value is dropped.
pub(crate) struct Networks {
    names: [String; 2],
}

/// Their addresses, from a range that is not routed.
pub(crate) const ADDRESSES: [&str; 2] = ["198.18.77.1", "198.18.77.2"];

impl Networks {
    pub(crate) fn make() -> Networks {
        assert!(
            rustix::process::geteuid().is_root(),
            "network namespaces need root: run this as root, or leave it out"
        );
        let id = std::process::id();
        let networks = Networks { names: [format!("tide-a-{id}"), format!("tide-b-{id}")] };
        for name in &networks.names {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        let [here, there] = &networks.names;
        ip(&["-n", here, "link", "add", "line", "type", "veth", "peer", "name", "line", "netns", there]);
        for (name, address) in networks.names.iter().zip(ADDRESSES) {
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", "line"]);
            ip(&["-n", name, "link", "set", "line", "up"]);
        }
        networks
    }

    /// Cuts or restores the link. Each network keeps working by itself.
    pub(crate) fn cut(&self, cut: bool) {
        ip(&["-n", &self.names[1], "link", "set", "line", if cut { "down" } else { "up" }]);
    }

    /// Returns a command that runs in one of the networks.
    pub(crate) fn command(&self, network: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[network], program]);
        command
    }

    /// Runs a function on a thread in one of the networks.
    pub(crate) fn inside<T: Send>(&self, network: usize, something: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.names[network])).unwrap();
        std::thread::scope(|scope| {
            let inside = || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                something()
            };
            scope.spawn(inside).join().unwrap()
        })
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

fn ip(arguments: &[&str]) {
    printed(&mut command("ip", arguments));
}
