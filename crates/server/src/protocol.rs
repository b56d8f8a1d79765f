//! Front ends: which there are, and how a request came in by one.
//!
//! To add one, add a line to the list below. Its counters, its series in the metrics and its name in logs, traces and the
//! decision log follow from that.

use std::ops::Index;

use http::HeaderMap;

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

/// How a request came in.
#[derive(Clone, Copy, Debug)]
pub struct Via<'a> {
    /// The way.
    pub protocol: Protocol,
    /// What may name the caller's trace.
    headers: Option<&'a HeaderMap>,
}

impl From<Protocol> for Via<'_> {
    fn from(protocol: Protocol) -> Self {
        Via { protocol, headers: None }
    }
}

impl<'a> Via<'a> {
    /// With the trace of these headers, if they name one.
    pub(crate) fn with_headers(protocol: Protocol, headers: &'a HeaderMap) -> Via<'a> {
        Via { protocol, headers: Some(headers) }
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
