//! What is asked, with the wire left behind: every front end decodes to this.

use std::borrow::Cow;
use std::net::IpAddr;

use tidegate_core::Limit;

use crate::path::{Forms, OddPath};

/// A request that asks whether it may pass.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The domain whose rules are asked.
    pub domain: &'a str,
    /// What it is about. Each descriptor is matched and answered by itself; all of them pass together or none.
    pub descriptors: &'a [Descriptor<'a>],
    /// The HTTP request it is about, where the front end knows it.
    pub http: Option<&'a Http<'a>>,
    /// Units it takes where neither a descriptor nor a rule says otherwise.
    pub cost: u64,
}

/// One set of entries that rules are looked up for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor<'a> {
    /// Its entries, in order.
    pub entries: &'a [Entry<'a>],
    /// What it asks for instead of the request's `cost`.
    pub ask: Option<Ask>,
    /// A limit that the request brings with it, instead of those of rules.
    pub limit: Option<OwnLimit>,
}

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it is.
    pub key: &'a str,
    /// Its value.
    pub value: &'a str,
}

/// What a descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To take units if they fit; 0 asks whether more than the limit was used, and takes none.
    Take(u64),
    /// To give units back.
    Refund(u64),
}

/// A limit that a request brings with it.
#[derive(Clone, Copy, Debug)]
pub struct OwnLimit {
    /// The limit; none denies all, as a limit of no units would.
    pub limit: Option<Limit>,
    /// How it is told of.
    pub shown: Shown,
}

/// A limit as answers tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Units in each period.
    pub units: u64,
    /// The period in nanoseconds.
    pub period_ns: u64,
}

/// An HTTP request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Http<'a> {
    /// `GET` and so on.
    pub method: &'a str,
    /// The host that was asked, without its port.
    pub host: &'a str,
    /// The path, without the query, in its [canonical form](crate::PathForms::canonical).
    pub path: &'a str,
    /// The [further forms](crate::PathForms::odd) of the path.
    pub odd_path: Option<&'a OddPath>,
    /// What follows the question mark.
    pub query: &'a str,
    /// Header names in lower case, and their values.
    pub headers: &'a [(&'a str, &'a str)],
    /// The client's address, as `Policy::client_address` found it.
    pub address: Option<IpAddr>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Bytes of its body.
    pub bytes: u64,
    /// How long it took, in milliseconds.
    pub millis: u64,
}

impl<'a> Http<'a> {
    /// The path in all of its forms.
    pub(crate) fn path_forms(&self) -> Forms<'a> {
        Forms::new(self.path, self.odd_path)
    }

    /// The values of a header, whose name is in lower case. A header may stand there several times.
    pub(crate) fn header(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// The cookies with their values, in order.
    pub(crate) fn cookies(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.header("cookie").flat_map(cookies)
    }

    /// The parameters of the query with their values, decoded, in order.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (Cow<'a, [u8]>, Cow<'a, [u8]>)> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
    }
}

/// The cookies of one line of the header `cookie` with their values, in order.
pub fn cookies(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let value = value.trim();
        let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        Some((name.trim(), bare.unwrap_or(value)))
    })
}

/// A host without its port; an IPv6 address keeps its brackets.
#[must_use]
pub fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

/// Text of a query without its `%41` and `+`. A percent sign that starts no code stands for itself.
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

/// The value of a hexadecimal digit.
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
