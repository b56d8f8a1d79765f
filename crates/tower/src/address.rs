//! The client's address, behind proxies. What headers say is read by the code that reads it for rules.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_engine::http_request::counted_address;
use tidegate_policy::schema::{self, AddressHeader};
use tidegate_policy::{Clients, Diagnostics, Location, compile_clients};

use crate::{ConfigError, Head};

/// How the address of a client is found, and which of its bits tell clients apart. Unless told otherwise the peer is the
/// client, no header is believed, and IPv6 addresses count by their first 64 bits.
///
/// ```
/// use std::net::SocketAddr;
/// use axum::extract::ConnectInfo;
/// use tidegate_tower::{ClientAddress, KeyBy};
///
/// // One proxy of our own stands in front; axum leaves the peer's address in the request.
/// let address = ClientAddress::new()
///     .peer_from(|info: &ConnectInfo<SocketAddr>| Some(info.0.ip()))
///     .trusted_hops(1);
/// let key = KeyBy::client_address(address);
/// # drop(key);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClientAddress {
    written: schema::ClientAddress,
    peer: Peer,
}

impl ClientAddress {
    /// The peer is the client. Its address is looked for in the request's extensions, as a [`SocketAddr`] or an
    /// [`IpAddr`]; see [`ClientAddress::peer_from`] for other types.
    #[must_use]
    pub fn new() -> ClientAddress {
        ClientAddress::default()
    }

    /// Which extension of requests has the peer's address: axum's `ConnectInfo<SocketAddr>`, tonic's `TcpConnectInfo`.
    /// A request without it has no address, and [`MissingKey`](crate::MissingKey) says what becomes of it.
    #[must_use]
    pub fn peer_from<T: Send + Sync + 'static>(
        mut self,
        address: impl Fn(&T) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.peer = Peer::from_extension(address);
        self
    }

    /// So many proxies of your own stand in front: the address is that many from the right in the header.
    #[must_use]
    pub fn trusted_hops(mut self, hops: u32) -> Self {
        self.written.trusted_hops = hops;
        self
    }

    /// Networks of your own proxies, like `10.0.0.0/8`: the address is the first from the right outside of them.
    #[must_use]
    pub fn trusted_networks(mut self, networks: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.written.trusted_networks = networks.into_iter().map(Into::into).collect();
        self
    }

    /// The header that your proxies write: `X-Forwarded-For` unless told otherwise.
    #[must_use]
    pub fn header(mut self, header: AddressHeader) -> Self {
        self.written.header = header;
        self
    }

    /// Bits of an IPv6 address that tell clients apart: 64 unless told otherwise.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.written.ipv6_prefix = Some(bits);
        self
    }

    /// Bits of an IPv4 address that tell clients apart: 32 unless told otherwise.
    #[must_use]
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        self.written.ipv4_prefix = Some(bits);
        self
    }

    pub(crate) fn compile(&self) -> Result<Address, ConfigError> {
        let nowhere = |_: &str| Location { file: "".into(), line: 0, column: 0 };
        let mut diagnostics = Diagnostics::new(&nowhere);
        let clients = compile_clients(&self.written, &mut diagnostics);
        match diagnostics.finish().into_iter().next() {
            Some(problem) => Err(ConfigError::ClientAddress(format!("{}; {}", problem.message, problem.hint))),
            None => Ok(Address {
                masks: clients.peer_lengths().map(Masks::new),
                clients: Arc::new(clients),
                peer: self.peer.clone(),
                missed: Arc::default(),
            }),
        }
    }
}

/// Finds the address that a client is counted on.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    clients: Arc<Clients>,
    peer: Peer,
    /// If the peer always is the client: then no header is looked at, and its bits are all that is needed.
    masks: Option<Masks>,
    missed: Arc<AddressMissed>,
}

/// Whether it was said already that clients are told apart by address and a request has none. Without `peer_from` no request
/// has one, and nothing looks wrong.
#[derive(Debug, Default)]
pub(crate) struct AddressMissed(AtomicBool);

impl AddressMissed {
    /// Tells it, once, and what becomes of such a request.
    #[cold]
    pub(crate) fn tell(&self, domain: Option<&str>, consequence: &str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                domain,
                "clients are told apart by their address, and a request has none: {consequence}; say where it stands by \
                 peer_from, and serve axum with into_make_service_with_connect_info"
            );
        }
    }
}

/// The bits of addresses that tell clients apart.
#[derive(Clone, Copy, Debug)]
struct Masks {
    v4: u32,
    v6: u128,
}

impl Masks {
    fn new((v4_length, v6_length): (u8, u8)) -> Masks {
        let v4 = u32::MAX.checked_shl(32_u32.saturating_sub(v4_length.into())).unwrap_or(0);
        let v6 = u128::MAX.checked_shl(128_u32.saturating_sub(v6_length.into())).unwrap_or(0);
        Masks { v4, v6 }
    }
}

impl Address {
    /// The bytes of what [`Address::find`] finds, in a place for them.
    #[inline]
    pub(crate) fn bytes<'a>(&self, head: &Head<'_>, place: &'a mut [u8; 16]) -> Option<&'a [u8]> {
        let Some(masks) = self.masks else { return Some(octets(self.find(head)?, place)) };
        let Mapped(bits) = self.known((self.peer.0)(head))?;
        Some(match v4_of(bits) {
            Some(v4) => octets(IpAddr::V4((v4 & masks.v4).into()), place),
            None => octets(IpAddr::V6((bits & masks.v6).into()), place),
        })
    }

    pub(crate) fn find(&self, head: &Head<'_>) -> Option<IpAddr> {
        let peer = self.known(self.peer.find(head))?;
        Some(counted_address(&self.clients, peer, head.headers()))
    }

    #[inline]
    fn known<T>(&self, peer: Option<T>) -> Option<T> {
        if peer.is_none() {
            self.missed.tell(None, "unless missing_key says otherwise all without one count together");
        }
        peer
    }
}

/// An address as one number, IPv4 as IPv6 writes it: an [`IpAddr`] is handed about more slowly.
struct Mapped(u128);

impl From<IpAddr> for Mapped {
    #[inline]
    fn from(address: IpAddr) -> Mapped {
        Mapped(match address {
            IpAddr::V4(address) => V4_MAPPED << 32 | u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        })
    }
}

/// What stands before an IPv4 address.
const V4_MAPPED: u128 = 0xffff;

#[inline]
fn v4_of(bits: u128) -> Option<u32> {
    #[allow(clippy::cast_possible_truncation, reason = "what stands before is looked at")]
    (bits >> 32 == V4_MAPPED).then_some(bits as u32)
}

#[inline]
fn octets(address: IpAddr, place: &mut [u8; 16]) -> &[u8] {
    match address {
        IpAddr::V4(address) => {
            let (first, _) = place.split_at_mut(4);
            first.copy_from_slice(&address.octets());
            first
        }
        IpAddr::V6(address) => {
            *place = address.octets();
            place
        }
    }
}

/// Where the peer's address stands in a request.
#[derive(Clone)]
pub(crate) struct Peer(Arc<PeerOf>);

type PeerOf = dyn Fn(&Head<'_>) -> Option<Mapped> + Send + Sync;

impl Peer {
    pub(crate) fn from_extension<T: Send + Sync + 'static>(
        address: impl Fn(&T) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Peer {
        Peer(Arc::new(move |head: &Head<'_>| address(head.extensions().get::<T>()?).map(Mapped::from)))
    }

    pub(crate) fn find(&self, head: &Head<'_>) -> Option<IpAddr> {
        (self.0)(head).map(|Mapped(bits)| IpAddr::V6(bits.into()).to_canonical())
    }
}

impl Default for Peer {
    fn default() -> Peer {
        Peer(Arc::new(|head: &Head<'_>| {
            let socket = head.extensions().get::<SocketAddr>().map(SocketAddr::ip);
            socket.or_else(|| head.extensions().get::<IpAddr>().copied()).map(Mapped::from)
        }))
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Peer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quick way to the bytes of an address tells the same as the way that rules go, for each length of a prefix.
    #[test]
    fn both_ways_tell_clients_apart_by_the_same_bits() {
        let addresses = ["203.0.113.77", "255.255.255.255", "::ffff:203.0.113.77", "::1", "2001:db8:a:b:c:d:e:f"];
        let mut request = http::Request::new(());
        for address in addresses.map(|text| text.parse::<IpAddr>().unwrap()) {
            request.extensions_mut().insert(address);
            for (v4, v6) in (0..=128).map(|bits: u8| (bits.min(32), bits)) {
                let written = ClientAddress::new().ipv4_prefix(v4).ipv6_prefix(v6);
                let Ok(compiled) = written.compile() else { continue };
                let (head, mut place, mut other) = (&Head::of(&request), [0; 16], [0; 16]);
                assert!(compiled.masks.is_some());
                let quick = compiled.bytes(head, &mut place).unwrap();
                let told = octets(compiled.find(head).unwrap(), &mut other);
                assert_eq!(quick, told, "{address} by {v4} and {v6} bits");
            }
        }
        let behind_a_proxy = ClientAddress::new().trusted_hops(1).compile().unwrap();
        assert!(behind_a_proxy.masks.is_none(), "there the peer is not the client");
    }
}
