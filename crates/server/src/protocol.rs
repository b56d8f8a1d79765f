//! Front ends: which there are, and how a request came in by one.
//!
//! To add one, add a line to the list below. Its counters, its series in the metrics and its name in logs, traces and the
//! decision log follow from that.

use std::net::{IpAddr, SocketAddr};
use std::ops::Index;

use http::HeaderMap;
use tidegate_engine::{Caller, Engine};

use crate::trace_parent;

macro_rules! protocols {
    ($($(#[$doc:meta])* $protocol:ident => $name:literal,)+) => {
        /// A way in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Protocol {
            $($(#[$doc])* $protocol,)+
        }

        impl Protocol {
            /// All of them, in the order in which metrics show them.
            pub const ALL: &'static [Protocol] = &[$(Protocol::$protocol),+];

            /// Its name in logs and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Protocol::$protocol => $name,)+
                }
            }
        }
    };
}

protocols! {
    /// The protocol of Redis.
    Resp => "resp",
    /// Envoy's rate limit service.
    Grpc => "grpc",
    /// HTTP.
    Http => "http",
}

/// One value for each front end.
#[derive(Debug, Default)]
pub(crate) struct PerProtocol<T>([T; Protocol::ALL.len()]);

impl<T> Index<Protocol> for PerProtocol<T> {
    type Output = T;

    fn index(&self, protocol: Protocol) -> &T {
        // There is a place for each of them.
        &self.0[protocol as usize]
    }
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its address; one of IPv4 is never written as one of IPv6.
    pub(crate) address: IpAddr,
    /// Who it is among those who bring limits.
    pub(crate) caller: Caller,
    /// Whether it has shown a certificate that is trusted here.
    pub(crate) is_certified: bool,
}

impl Peer {
    /// The other end of a connection to a service.
    pub(crate) fn new(engine: &Engine, address: SocketAddr) -> Peer {
        let address = address.ip().to_canonical();
        Peer { address, caller: engine.caller(address), is_certified: false }
    }
}

/// How a request came in.
#[derive(Clone, Copy, Debug)]
pub struct Via<'a> {
    /// The way.
    pub protocol: Protocol,
    /// Who sent it; nothing of what did not come over a connection.
    pub(crate) peer: Option<&'a Peer>,
    /// What may name the caller's trace.
    headers: Option<&'a HeaderMap>,
}

impl From<Protocol> for Via<'_> {
    fn from(protocol: Protocol) -> Self {
        Via { protocol, peer: None, headers: None }
    }
}

impl<'a> Via<'a> {
    /// From a peer.
    pub(crate) fn from_peer(protocol: Protocol, peer: &'a Peer) -> Via<'a> {
        Via { protocol, peer: Some(peer), headers: None }
    }

    /// With the trace of these headers, if they name one.
    pub(crate) fn with_headers(self, headers: &'a HeaderMap) -> Via<'a> {
        Via { headers: Some(headers), ..self }
    }

    /// The caller's `traceparent`, as it was sent. It is looked for only where something traces.
    pub(crate) fn traceparent(&self) -> Option<&'a [u8]> {
        let mut all = self.headers?.get_all(trace_parent::HEADER).iter();
        match (all.next(), all.next()) {
            (Some(only), None) => Some(only.as_bytes()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_has_a_place_and_a_name_of_its_own() {
        for (number, protocol) in Protocol::ALL.iter().enumerate() {
            assert_eq!(*protocol as usize, number);
            assert!(!Protocol::ALL[..number].iter().any(|other| other.name() == protocol.name()), "{protocol:?}");
        }
    }
}
