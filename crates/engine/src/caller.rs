//! Callers that bring limits with their keys.

use std::hash::BuildHasher;
use std::net::IpAddr;

use tidegate_core::Namespace;

use crate::engine::Engine;
use crate::keys::CALLERS;

/// A caller that brings limits with its keys. All callers count on the same keys; a full store keeps room for the keys
/// of each.
#[derive(Clone, Debug)]
pub struct Caller {
    namespace: Namespace,
    network: Option<u64>,
}

impl Caller {
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A number that stands for the caller's address; none for nobody in particular.
    pub(crate) fn network(&self) -> Option<u64> {
        self.network
    }
}

/// No caller in particular, such as the program itself.
impl Default for Caller {
    fn default() -> Caller {
        Caller { namespace: CALLERS.clone(), network: None }
    }
}

impl Engine {
    /// Returns the caller at an address. Hosts of one IPv6 network of 64 bits are one caller, since each has as many
    /// addresses as it likes.
    #[must_use]
    pub fn caller(&self, address: IpAddr) -> Caller {
        let network = match address.to_canonical() {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => u64::try_from(address.to_bits() >> 64).unwrap_or_default(),
        };
        let bits = self.sources.hash_one((address.to_canonical().is_ipv4(), network));
        // Zero is nobody in particular.
        let source = u32::try_from(bits >> 32).unwrap_or_default().max(1);
        Caller { namespace: CALLERS.asked_by(source), network: Some(bits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn an_address_is_a_caller_and_so_is_a_network_of_ipv6() {
        let engine = Engine::new(Options::default()).unwrap();
        let source = |text: &str| engine.caller(text.parse().unwrap()).namespace().source();
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert!(source("192.0.2.1") != source("192.0.2.2") && source("2001:db8::1") != source("2001:db8:0:1::1"));
        assert_ne!(source("192.0.2.1"), 0);
        assert_eq!((Caller::default().namespace().source(), Caller::default().network()), (0, None));
        let network = |text: &str| engine.caller(text.parse().unwrap()).network().unwrap();
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
