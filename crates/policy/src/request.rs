//! Requests, independent of protocols: every front end decodes to them.

use std::borrow::Cow;
use std::net::IpAddr;

use tidegate_core::Limit;

use crate::path::{Forms, OddPath};

/// A request to be admitted or denied.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The domain of the rules.
    pub domain: &'a str,
    /// The descriptors. Each is matched and answered by itself, but either all are admitted or none.
    pub descriptors: &'a [Descriptor<'a>],
    /// The HTTP request, if the front end knows it.
    pub http: Option<&'a Http<'a>>,
    /// The cost in units, unless a descriptor or rule sets another one.
    pub cost: u64,
}

/// A list of entries that rules are matched with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor<'a> {
    /// The entries, in order.
    pub entries: &'a [Entry<'a>],
    /// The units to take or refund, instead of the `cost` of the request.
    pub ask: Option<Ask>,
    /// A limit in the request, which replaces those of rules.
    pub limit: Option<OwnLimit>,
}

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: &'a str,
}

/// The operation of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Takes units if they fit. With 0, takes none and is denied if more than the limit was used.
    Take(u64),
    /// Gives units back.
    Refund(u64),
}

/// A limit in a request.
#[derive(Clone, Copy, Debug)]
pub struct OwnLimit {
    /// The limit. `None` denies every request, like a limit of 0 units.
    pub limit: Option<Limit>,
    /// The units and the period that are reported for it.
    pub shown: Shown,
}

/// A limit as it is reported in responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Units per period.
    pub units: u64,
    /// The period in nanoseconds.
    pub period_ns: u64,
}

/// An HTTP request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Http<'a> {
    /// The method, like `GET`.
    pub method: &'a str,
    /// The requested host, without the port.
    pub host: &'a str,
    /// The path, without the query, in its [canonical form](crate::PathForms::canonical).
    pub path: &'a str,
    /// The [further forms](crate::PathForms::odd) of the path.
    pub odd_path: Option<&'a OddPath>,
    /// The query, without the question mark.
    pub query: &'a str,
    /// The headers: names in lower case, and values.
    pub headers: &'a [(&'a str, &'a str)],
    /// The address of the client, from [`Policy::client_address`](crate::Policy::client_address).
    pub address: Option<IpAddr>,
}

/// The response to an HTTP request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The size of the body in bytes.
    pub bytes: u64,
    /// The time until the response, in milliseconds.
    pub millis: u64,
}

impl<'a> Http<'a> {
    /// Returns all forms of the path.
    pub(crate) fn path_forms(&self) -> Forms<'a> {
        Forms::new(self.path, self.odd_path)
    }

    /// Returns the values of the headers with a name, which is in lower case.
    pub(crate) fn header(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// Returns the cookies with their values, in order.
    pub(crate) fn cookies(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.header("cookie").flat_map(cookies)
    }

    /// Returns the query parameters with their values, decoded, in order.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (Cow<'a, [u8]>, Cow<'a, [u8]>)> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
    }
}

/// Returns the cookies of a `Cookie` header with their values, in order, without quotes around values.
pub fn cookies(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let value = value.trim();
        let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        Some((name.trim(), bare.unwrap_or(value)))
    })
}

/// Returns a host without its port. An IPv6 address keeps its brackets.
#[must_use]
pub fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

/// Decodes `%41` and `+` in a part of a query. A percent sign without two hexadecimal digits is kept.
fn decode(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(bytes);
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match (first, tail) {
            (b'+', _) => decoded.push(b' '),
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    decoded.push(high << 4 | low);
                    rest = after;
                }
                _ => decoded.push(b'%'),
            },
            (byte, _) => decoded.push(*byte),
        }
    }
    Cow::Owned(decoded)
}

/// Returns the value of a hexadecimal digit.
pub(crate) fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let http = Http { query: "a=1&&b=%2Fx+y&%63&d=%zz%4", ..Http::default() };
        let parameters: Vec<_> = http.parameters().collect();
        let expected: [(&[u8], &[u8]); 4] = [(b"a", b"1"), (b"b", b"/x y"), (b"c", b""), (b"d", b"%zz%4")];
        let parameters: Vec<(&[u8], &[u8])> = parameters.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(parameters, expected);
    }

    #[test]
    fn cookies_of_several_headers() {
        let headers = [("cookie", "a=1; b=\"two\" ;c"), ("x", "a=9"), ("cookie", " d = 4=4 ")];
        let http = Http { headers: &headers, ..Http::default() };
        assert_eq!(http.cookies().collect::<Vec<_>>(), [("a", "1"), ("b", "two"), ("d", "4=4")]);
    }
}
