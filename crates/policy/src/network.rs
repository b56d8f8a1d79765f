//! Networks of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A network, like `10.0.0.0/8`. A network of IPv4-mapped IPv6 addresses is treated as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Network {
    family: Family,
    /// The address, from the highest bit on.
    bits: u128,
    length: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Family {
    V4,
    V6,
}

/// The reason why a text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkError {
    Unreadable,
    /// It has bits set beyond its prefix length. Contains the network without them.
    Beyond(Network),
}

/// Returns the bits of an address, from the highest on.
fn bits(address: IpAddr) -> (Family, u128) {
    match address.to_canonical() {
        IpAddr::V4(address) => (Family::V4, u128::from(address.to_bits()) << 96),
        IpAddr::V6(address) => (Family::V6, address.to_bits()),
    }
}

/// Returns the first `length` bits.
fn cut(bits: u128, length: u8) -> u128 {
    match length {
        0 => 0,
        1..=128 => bits & u128::MAX << (128 - length),
        _ => bits,
    }
}

/// Returns an address cut to the prefix length of its family.
pub(crate) fn truncate(address: IpAddr, v4_length: u8, v6_length: u8) -> IpAddr {
    match bits(address) {
        (Family::V4, bits) => address_of(Family::V4, cut(bits, v4_length)),
        (Family::V6, bits) => address_of(Family::V6, cut(bits, v6_length)),
    }
}

fn address_of(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(u32::try_from(bits >> 96).unwrap_or_default().into()),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

impl Network {
    /// Reads `10.0.0.0/8`, `2001:db8::/32` or an address alone.
    pub(crate) fn read(text: &str) -> Result<Network, NetworkError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) if (1..=3).contains(&length.len()) && !length.starts_with('+') => {
                (address, Some(length.parse::<u8>().map_err(|_| NetworkError::Unreadable)?))
            }
            Some(_) => return Err(NetworkError::Unreadable),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Unreadable)?;
        let (family, bits) = bits(address);
        let all = if family == Family::V4 { 32 } else { 128 };
        let length = match (length, address) {
            (None, _) => all,
            // The first 96 bits of a mapped address are constant.
            (Some(length), IpAddr::V6(_)) if family == Family::V4 && length >= 96 => length - 96,
            (Some(_), IpAddr::V6(_)) if family == Family::V4 => return Err(NetworkError::Unreadable),
            (Some(length), _) => length,
        };
        let network = Network { family, bits: cut(bits, length), length };
        match length {
            length if length > all => Err(NetworkError::Unreadable),
            _ if network.bits != bits => Err(NetworkError::Beyond(network)),
            _ => Ok(network),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", address_of(self.family, self.bits), self.length)
    }
}

impl Network {
    /// Whether it is not sorted after an address.
    pub(crate) fn is_not_after(&self, address: IpAddr) -> bool {
        (self.family, self.bits) <= bits(address)
    }

    pub(crate) fn holds(&self, address: IpAddr) -> bool {
        let (family, bits) = bits(address);
        family == self.family && cut(bits, self.length) == self.bits
    }

    pub(crate) fn encloses(&self, other: &Network) -> bool {
        self.family == other.family && self.length <= other.length && cut(other.bits, self.length) == self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::Networks;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn networks_are_read() {
        let cases = [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("10.1.2.3", Some("10.1.2.3/32")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("::/0", Some("::/0")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("::1", Some("::1/128")),
            ("::ffff:10.0.0.0/104", Some("10.0.0.0/8")),
            ("::ffff:10.1.2.3", Some("10.1.2.3/32")),
            ("::ffff:0.0.0.0/64", None),
            ("10.0.0.0/33", None),
            ("10.0.0/8", None),
            ("10.0.0.0/", None),
            ("10.0.0.0/+8", None),
            ("10.0.0.0/-1", None),
            ("::/129", None),
            ("localhost", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Network::read(text).ok().map(|network| network.to_string()).as_deref(), expected, "{text}");
        }
        let Err(NetworkError::Beyond(network)) = Network::read("10.1.2.3/8") else { panic!("accepted") };
        assert_eq!(network.to_string(), "10.0.0.0/8");
    }

    #[test]
    fn addresses_are_cut() {
        let cut = |text: &str, v4, v6| truncate(text.parse().unwrap(), v4, v6).to_string();
        assert_eq!(cut("10.1.2.3", 32, 64), "10.1.2.3");
        assert_eq!(cut("10.1.2.3", 24, 64), "10.1.2.0");
        assert_eq!(cut("::ffff:10.1.2.3", 24, 64), "10.1.2.0");
        assert_eq!(cut("2001:db8:1:2:3::4", 32, 64), "2001:db8:1:2::");
        assert_eq!(cut("2001:db8:1:2:3::4", 32, 128), "2001:db8:1:2:3::4");
    }

    fn network() -> impl Strategy<Value = Network> {
        (any::<bool>(), any::<u8>(), 0..=32_u8).prop_map(|(v4, byte, length)| {
            // Few different bits, so that networks lie in each other.
            let (family, bits) =
                if v4 { (Family::V4, u128::from(byte & 0x83) << 120) } else { (Family::V6, u128::from(byte) << 96) };
            let length = if v4 { length } else { length * 4 };
            Network { family, bits: cut(bits, length), length }
        })
    }

    proptest! {
        #[test]
        fn all_networks_of_an_address_are_found(
            networks in prop::collection::vec(network(), 0..40),
            byte in any::<u8>(),
            v4 in any::<bool>(),
        ) {
            let address = if v4 { IpAddr::from([byte & 0x83, 0, 0, 0]) } else { address_of(Family::V6, u128::from(byte) << 96) };
            let mut map: BTreeMap<Network, Vec<u32>> = BTreeMap::new();
            for (number, network) in (0..).zip(&networks) {
                map.entry(*network).or_default().push(number);
            }
            let mut found = Vec::new();
            Networks::new(map).around(address, &mut |rules| found.extend_from_slice(rules));
            found.sort_unstable();
            let expected: Vec<u32> =
                (0..).zip(&networks).filter(|(_, network)| network.holds(address)).map(|(number, _)| number).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f:./+]{0,24}") {
            let _ = Network::read(&text);
        }
    }
}
