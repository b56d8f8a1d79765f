//! The client's address, also behind proxies. Headers are parsed by the code that rules use.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_engine::http_request::counted_address;
use tidegate_policy::schema::{self, AddressHeader};
use tidegate_policy::{Clients, Diagnostics, Location, compile_clients};

use crate::{ConfigError, Head};

/// How to find a client's address, and which of its bits identify a client. By default the peer is the client, no
/// header is trusted, and an IPv6 address counts by its first 64 bits.
///
/// ```
/// use std::net::SocketAddr;
/// use axum::extract::ConnectInfo;
/// use tidegate_tower::{ClientAddress, KeyBy};
///
/// // One proxy of our own is in front; axum leaves the peer's address in the request.
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
    /// Takes the peer as the client. The peer's address is read from the request's extensions, as a [`SocketAddr`] or
    /// an [`IpAddr`]; see [`ClientAddress::peer_from`] for other types.
    #[must_use]
    pub fn new() -> ClientAddress {
        ClientAddress::default()
    }

    /// Reads the peer's address from an extension of another type, such as axum's `ConnectInfo<SocketAddr>` or tonic's
    /// `TcpConnectInfo`. A request without that extension has no address; [`MissingKey`](crate::MissingKey) decides how
    /// it is treated.
    #[must_use]
    pub fn peer_from<T: Send + Sync + 'static>(
        mut self,
        address: impl Fn(&T) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.peer = Peer::from_extension(address);
        self
    }

    /// Sets the number of your own proxies in front: the client's address is the one at that position from the right of
    /// the header.
    #[must_use]
    pub fn trusted_hops(mut self, hops: u32) -> Self {
        self.written.trusted_hops = hops;
        self
    }

    /// Sets the networks of your own proxies, such as `10.0.0.0/8`: the client's address is the first one from the
    /// right of the header that is outside them.
    #[must_use]
    pub fn trusted_networks(mut self, networks: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.written.trusted_networks = networks.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the header that your proxies write. Default: `X-Forwarded-For`.
    #[must_use]
    pub fn header(mut self, header: AddressHeader) -> Self {
        self.written.header = header;
        self
    }

    /// Sets how many leading bits of an IPv6 address identify a client. Default: 64.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.written.ipv6_prefix = Some(bits);
        self
    }

    /// Sets how many leading bits of an IPv4 address identify a client. Default: 32.
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

/// Finds the address that a client is counted by.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    clients: Arc<Clients>,
    peer: Peer,
    /// Set if the peer is always the client: then no header is read, and the bits are all that is needed.
    masks: Option<Masks>,
    missed: Arc<AddressMissed>,
}

/// Whether the warning was logged that a request has no address although clients are identified by it. Without
/// `peer_from` no request has one, and nothing else shows it.
#[derive(Debug, Default)]
pub(crate) struct AddressMissed(AtomicBool);

impl AddressMissed {
    /// Logs once that a request has no address, and how such requests are treated.
    #[cold]
    pub(crate) fn tell(&self, domain: Option<&str>, consequence: &str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                domain,
                "clients are identified by their address, and a request has none: {consequence}; set its extension with \
                 peer_from, and serve axum with into_make_service_with_connect_info"
            );
        }
    }
}

/// The bits of addresses that identify a client.
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
    /// Writes the bytes of the address that [`Address::find`] finds into `place`.
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
            self.missed.tell(None, "unless missing_key is set, all such requests count together");
        }
        peer
    }
}

/// An address as one number, IPv4 mapped into IPv6: an [`IpAddr`] takes longer to move.
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

/// The prefix of an IPv4 address that is mapped into IPv6.
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

/// Reads the peer's address from a request.
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

    /// The fast path finds the same bytes as the path that rules take, for each prefix length.
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
