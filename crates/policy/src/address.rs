//! The address of the client behind proxies. Only addresses that trusted proxies added to a header are used: proxies append on
//! the right, so addresses are read from the right, and those that a client wrote are never reached.

use std::net::{IpAddr, SocketAddr};

use crate::bounds::FORWARDED_ADDRESSES_MAX;
use crate::network::truncate;
use crate::networks::Networks;
use crate::schema::AddressHeader;

/// How to find the address of the client.
#[derive(Debug, Default)]
pub(crate) struct ClientAddress {
    pub(crate) trust: Trust,
    pub(crate) header: AddressHeader,
}

/// The proxies whose headers are trusted.
#[derive(Debug, Default)]
pub(crate) enum Trust {
    /// None: the peer is the client.
    #[default]
    Nobody,
    /// A number of proxies in front.
    Hops(usize),
    /// Proxies in these networks.
    Networks(Networks),
}

impl ClientAddress {
    /// Returns the address of the client, or that of the peer if the header has none.
    pub(crate) fn find(&self, peer: IpAddr, headers: &[(&str, &str)]) -> IpAddr {
        let name = self.header_name();
        self.find_in(peer, headers.iter().rev().filter(|(key, _)| *key == name).map(|(_, line)| *line))
    }

    /// Returns the address of the client from the lines of the header, the last one first.
    fn find_in<'a>(&self, peer: IpAddr, lines: impl Iterator<Item = &'a str>) -> IpAddr {
        let peer = peer.to_canonical();
        let found = match &self.trust {
            Trust::Nobody => None,
            Trust::Hops(hops) => hops.checked_sub(1).and_then(|before| self.walk(lines).nth(before)).flatten(),
            Trust::Networks(networks) if networks.contain(peer) => self
                .walk(lines)
                .take(FORWARDED_ADDRESSES_MAX)
                // The search ends at an invalid address: it may be that of a proxy or not.
                .find(|address| address.is_none_or(|address| !networks.contain(address)))
                .flatten(),
            Trust::Networks(_) => None,
        };
        found.unwrap_or(peer)
    }

    /// Whether any header is trusted.
    pub(crate) fn reads_headers(&self) -> bool {
        !matches!(self.trust, Trust::Nobody)
    }

    fn header_name(&self) -> &'static str {
        match self.header {
            AddressHeader::XForwardedFor => "x-forwarded-for",
            AddressHeader::Forwarded => "forwarded",
        }
    }

    /// Returns the addresses of the header from right to left, with `None` for an invalid one.
    fn walk<'a, L: Iterator<Item = &'a str>>(&self, lines: L) -> impl Iterator<Item = Option<IpAddr>> + use<'a, L> {
        let header = self.header;
        let elements = lines.flat_map(|line| Backwards { rest: Some(line), separator: b',' });
        elements.map(str::trim).filter(|element| !element.is_empty()).map(move |element| match header {
            AddressHeader::XForwardedFor => read_node(element),
            AddressHeader::Forwarded => read_node(forwarded_for(element)?),
        })
    }
}

/// Finds client addresses, for callers that count clients without a policy.
#[derive(Debug)]
pub struct Clients {
    address: ClientAddress,
    /// Prefix lengths that IPv4 and IPv6 addresses are cut to.
    lengths: (u8, u8),
}

impl Clients {
    pub(crate) fn new(address: ClientAddress, lengths: (u8, u8)) -> Clients {
        Clients { address, lengths }
    }

    /// Returns the name of the header with addresses, in lower case.
    #[must_use]
    pub fn header_name(&self) -> &'static str {
        self.address.header_name()
    }

    /// Returns the prefix lengths that IPv4 and IPv6 addresses are cut to, if the peer always is the client; else `None`.
    #[must_use]
    pub fn peer_lengths(&self) -> Option<(u8, u8)> {
        matches!(self.address.trust, Trust::Nobody).then_some(self.lengths)
    }

    /// Returns the address of a client, cut to its prefix length. `lines` are the values of the header, the last one first.
    pub fn address<'a>(&self, peer: IpAddr, lines: impl Iterator<Item = &'a str>) -> IpAddr {
        truncate(self.address.find_in(peer, lines), self.lengths.0, self.lengths.1)
    }
}

/// Returns the `for` of an element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<&str> {
    let pairs = Backwards { rest: Some(element), separator: b';' };
    pairs
        .filter_map(|pair| pair.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))
        .map(|pair| pair.1)
}

/// Reads an address, which may have quotes, brackets and a port. `unknown` and obfuscated names give `None`.
fn read_node(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()));
    address.map(|address| address.to_canonical())
}

/// Splits text at a separator outside of quotes, from right to left: text that a client wrote on the left, even an unclosed
/// quote, does not change the parts on the right.
struct Backwards<'a> {
    rest: Option<&'a str>,
    separator: u8,
}

impl<'a> Iterator for Backwards<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest.take()?;
        let bytes = rest.as_bytes();
        let mut quoted = false;
        for (place, byte) in bytes.iter().enumerate().rev() {
            if *byte == b'"' && !(quoted && is_escaped(bytes, place)) {
                quoted = !quoted;
            } else if *byte == self.separator && !quoted {
                self.rest = rest.get(..place);
                return rest.get(place + 1..);
            }
        }
        Some(rest)
    }
}

/// Whether an odd number of backslashes precedes an index.
fn is_escaped(bytes: &[u8], place: usize) -> bool {
    let before = bytes.get(..place).unwrap_or_default();
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use proptest::prelude::*;

    fn hops(hops: usize, header: AddressHeader) -> ClientAddress {
        ClientAddress { trust: Trust::Hops(hops), header }
    }

    fn networks(texts: &[&str], header: AddressHeader) -> ClientAddress {
        let networks: Vec<Network> = texts.iter().map(|text| Network::read(text).unwrap()).collect();
        ClientAddress { trust: Trust::Networks(Networks::plain(&networks)), header }
    }

    fn check(client: &ClientAddress, peer: &str, lines: &[&str], expected: &str) {
        let name = match client.header {
            AddressHeader::XForwardedFor => "x-forwarded-for",
            AddressHeader::Forwarded => "forwarded",
        };
        let mut headers = vec![("host", "a"), ("x-real-ip", "6.6.6.6")];
        headers.extend(lines.iter().map(|line| (name, *line)));
        let found = client.find(peer.parse().unwrap(), &headers);
        assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{client:?} {peer} {lines:?}");
    }

    #[test]
    fn nobody_is_believed_unless_said() {
        let nobody = ClientAddress::default();
        check(&nobody, "10.0.0.1", &["1.2.3.4"], "10.0.0.1");
        check(&nobody, "::ffff:10.0.0.1", &[], "10.0.0.1");
    }

    #[test]
    fn so_many_hops_from_the_right() {
        let one = hops(1, AddressHeader::XForwardedFor);
        check(&one, "10.0.0.1", &[], "10.0.0.1");
        check(&one, "10.0.0.1", &["1.2.3.4"], "1.2.3.4");
        check(&one, "10.0.0.1", &["6.6.6.6, 1.2.3.4"], "1.2.3.4");
        check(&one, "10.0.0.1", &["6.6.6.6,,1.2.3.4 ,"], "1.2.3.4");
        check(&one, "10.0.0.1", &["6.6.6.6", "1.2.3.4"], "1.2.3.4");
        check(&one, "10.0.0.1", &["1.2.3.4:5678"], "1.2.3.4");
        check(&one, "10.0.0.1", &["2001:db8::1"], "2001:db8::1");
        check(&one, "10.0.0.1", &["[2001:db8::1]:80"], "2001:db8::1");
        check(&one, "10.0.0.1", &["::ffff:1.2.3.4"], "1.2.3.4");
        check(&one, "10.0.0.1", &["1.2.3.4, nonsense"], "10.0.0.1");
        let two = hops(2, AddressHeader::XForwardedFor);
        check(&two, "10.0.0.1", &["6.6.6.6, 1.2.3.4, 10.0.0.2"], "1.2.3.4");
        check(&two, "10.0.0.1", &["6.6.6.6, 1.2.3.4", "10.0.0.2"], "1.2.3.4");
        check(&two, "10.0.0.1", &["1.2.3.4"], "10.0.0.1");
    }

    #[test]
    fn past_trusted_networks() {
        let client = networks(&["10.0.0.0/8", "2001:db8::/32"], AddressHeader::XForwardedFor);
        check(&client, "10.0.0.1", &["6.6.6.6, 1.2.3.4, 10.0.0.2"], "1.2.3.4");
        check(&client, "10.0.0.1", &["1.2.3.4, 2001:db8::7, 10.0.0.2"], "1.2.3.4");
        check(&client, "10.0.0.1", &["1.2.3.4, ::ffff:10.0.0.9"], "1.2.3.4");
        check(&client, "10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.1");
        check(&client, "10.0.0.1", &["1.2.3.4, unknown, 10.0.0.2"], "10.0.0.1");
        check(&client, "10.0.0.1", &[], "10.0.0.1");
        // Headers of other peers are ignored.
        check(&client, "5.5.5.5", &["1.2.3.4"], "5.5.5.5");
        let long = vec!["10.0.0.2"; FORWARDED_ADDRESSES_MAX].join(",");
        check(&client, "10.0.0.1", &["1.2.3.4", &long], "10.0.0.1");
    }

    #[test]
    fn the_header_of_rfc_7239() {
        let one = hops(1, AddressHeader::Forwarded);
        check(&one, "10.0.0.1", &["for=1.2.3.4"], "1.2.3.4");
        check(&one, "10.0.0.1", &["For=\"[2001:db8::1]:4711\";proto=https;by=203.0.113.43"], "2001:db8::1");
        check(&one, "10.0.0.1", &["for=6.6.6.6, proto=http; for = \"1.2.3.4:80\""], "1.2.3.4");
        check(&one, "10.0.0.1", &["for=6.6.6.6", "for=\"[2001:db8::1]\""], "2001:db8::1");
        check(&one, "10.0.0.1", &["for=1.2.3.4;by=\"a,for=6.6.6.6\""], "1.2.3.4");
        check(&one, "10.0.0.1", &["for=1.2.3.4;by=\"a\\\",for=6.6.6.6\""], "1.2.3.4");
        check(&one, "10.0.0.1", &["for=unknown"], "10.0.0.1");
        check(&one, "10.0.0.1", &["for=_hidden"], "10.0.0.1");
        check(&one, "10.0.0.1", &["by=1.2.3.4"], "10.0.0.1");
        // An unclosed quote does not hide what the proxy appended.
        check(&one, "10.0.0.1", &["for=\", for=1.2.3.4"], "1.2.3.4");
        check(&one, "10.0.0.1", &["for=\"\\, for=1.2.3.4"], "1.2.3.4");
        let past = networks(&["10.0.0.0/8"], AddressHeader::Forwarded);
        check(&past, "10.0.0.1", &["for=6.6.6.6, for=1.2.3.4;proto=http, for=\"10.0.0.2:8080\""], "1.2.3.4");
        // The other header is ignored.
        assert_eq!(
            one.find(IpAddr::from([10, 0, 0, 1]), &[("x-forwarded-for", "1.2.3.4")]),
            IpAddr::from([10, 0, 0, 1])
        );
    }

    proptest! {
        #[test]
        fn a_client_cannot_choose_its_address(spoofed in "[ -~]{0,60}", quoted in any::<bool>()) {
            let appended = if quoted { "for=\"1.2.3.4:80\"" } else { "for=1.2.3.4" };
            for (header, appended) in [(AddressHeader::XForwardedFor, "1.2.3.4"), (AddressHeader::Forwarded, appended)] {
                let line = format!("{spoofed}, {appended}");
                check(&hops(1, header), "10.0.0.1", &[&line], "1.2.3.4");
                check(&networks(&["10.0.0.0/8"], header), "10.0.0.1", &[&line], "1.2.3.4");
            }
        }
    }
}
