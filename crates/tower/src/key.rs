//! The key that a request is counted by.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::header::AUTHORIZATION;
use tidegate_core::{KeyBuf, KeyError};
use tidegate_policy::PathForms;

use crate::address::Address;
use crate::bounds::KEY_PARTS_MAX;
use crate::error::shortened;
use crate::{ClientAddress, ConfigError, Head};

/// The key that a request is counted by; see [`MissingKey`](crate::MissingKey) for requests without one.
///
/// ```
/// use tidegate_tower::KeyBy;
///
/// // Each user on each path.
/// let key = KeyBy::header("x-user").and(KeyBy::path());
/// // A value that an outer layer has found.
/// # #[derive(Clone)] struct User { id: u64 }
/// let key = KeyBy::from_fn(|request| {
///     let user = request.extensions().get::<User>()?;
///     Some(user.id.to_string().into_bytes().into())
/// });
/// # drop(key);
/// ```
#[derive(Clone)]
pub struct KeyBy(Vec<Result<Part, ConfigError>>);

type Custom = dyn for<'a> Fn(&Head<'a>) -> Option<Cow<'a, [u8]>> + Send + Sync;

#[derive(Clone)]
enum Part {
    Everyone,
    Address(Address),
    Header(HeaderName),
    Cookie(Box<str>),
    ApiKey,
    Path,
    Custom(Arc<Custom>),
}

impl KeyBy {
    /// Counts all requests together.
    #[must_use]
    pub fn everyone() -> KeyBy {
        KeyBy::part(Part::Everyone)
    }

    /// Counts each client address.
    #[must_use]
    pub fn client_address(address: ClientAddress) -> KeyBy {
        KeyBy(vec![address.compile().map(Part::Address)])
    }

    /// Counts each value of a header; of several, the first.
    #[must_use]
    pub fn header(name: &str) -> KeyBy {
        let part = name.parse().map(Part::Header);
        KeyBy(vec![part.map_err(|_| ConfigError::Header { name: shortened(name) })])
    }

    /// Counts each value of a cookie; of several with this name, the first.
    #[must_use]
    pub fn cookie(name: impl Into<Box<str>>) -> KeyBy {
        let name = name.into();
        // Browsers accept names that RFC 6265 forbids, such as `a[b]`. Only names that no cookie can have are refused
        // here.
        let is_name = !name.is_empty() && name.trim() == &*name && !name.contains([';', '=']);
        KeyBy(vec![match is_name {
            true => Ok(Part::Cookie(name)),
            false => Err(ConfigError::Cookie { name: shortened(&name) }),
        }])
    }

    /// Counts each API key: the header `X-Api-Key`, or the token of `Authorization: Bearer`.
    #[must_use]
    pub fn api_key() -> KeyBy {
        KeyBy::part(Part::ApiKey)
    }

    /// Counts each path, without the query. It is decoded, and dots and slashes are resolved, so that all spellings
    /// count together.
    #[must_use]
    pub fn path() -> KeyBy {
        KeyBy::part(Part::Path)
    }

    /// Counts each value that a closure returns; `None` means that the request has no key.
    ///
    /// ```
    /// use std::borrow::Cow;
    /// use tidegate_tower::KeyBy;
    ///
    /// let tenant = KeyBy::from_fn(|request| {
    ///     request.uri().path().split('/').nth(1).map(|tenant| Cow::Borrowed(tenant.as_bytes()))
    /// });
    /// # drop(tenant);
    /// ```
    #[must_use]
    pub fn from_fn<F>(key: F) -> KeyBy
    where
        F: for<'a> Fn(Head<'a>) -> Option<Cow<'a, [u8]>> + Send + Sync + 'static,
    {
        KeyBy::part(Part::Custom(Arc::new(move |head: &Head<'_>| key(*head))))
    }

    /// Counts each pair of both keys.
    #[must_use]
    pub fn and(mut self, other: KeyBy) -> KeyBy {
        self.0.extend(other.0);
        self
    }

    fn part(part: Part) -> KeyBy {
        KeyBy(vec![Ok(part)])
    }

    pub(crate) fn compile(self) -> Result<Extractor, ConfigError> {
        let parts: Box<[Part]> = self.0.into_iter().collect::<Result<_, _>>()?;
        match parts.len() {
            1..=KEY_PARTS_MAX => Ok(Extractor(parts)),
            count => Err(ConfigError::KeyParts { count }),
        }
    }

    /// Compiles the one value of an entry.
    pub(crate) fn compile_entry(self, name: &str) -> Result<Extractor, ConfigError> {
        match self.0.len() {
            1 => self.compile(),
            count => Err(ConfigError::EntryParts { name: shortened(name), count }),
        }
    }
}

impl fmt::Debug for KeyBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(&self.0).finish()
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Everyone => formatter.write_str("Everyone"),
            Part::Address(address) => formatter.debug_tuple("Address").field(address).finish(),
            Part::Header(name) => formatter.debug_tuple("Header").field(name).finish(),
            Part::Cookie(name) => formatter.debug_tuple("Cookie").field(name).finish(),
            Part::ApiKey => formatter.write_str("ApiKey"),
            Part::Path => formatter.write_str("Path"),
            Part::Custom(_) => formatter.write_str("Custom"),
        }
    }
}

/// Makes the keys of requests, from checked settings.
#[derive(Clone, Debug)]
pub(crate) struct Extractor(Box<[Part]>);

/// Room for the bytes of a key that are not part of the request. The caller owns it, so that nothing is moved.
#[derive(Default)]
pub(crate) struct KeyRoom {
    octets: [u8; 16],
    owned: Vec<u8>,
    joined: Option<KeyBuf>,
}

/// Why a request has no key. A part that is too long is found when the key is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoKey {
    Missing,
    TooLong,
}

impl Extractor {
    /// The key of a request: the bytes of a single part, or of several parts each with its length before it.
    #[inline]
    pub(crate) fn key<'a>(&self, head: &Head<'a>, room: &'a mut KeyRoom) -> Result<&'a [u8], NoKey> {
        match &*self.0 {
            [part] => part.bytes(head, room).ok_or(NoKey::Missing),
            parts => joined(parts, head, room),
        }
    }

    /// The value of an entry, or `None` if it is missing or is not text.
    pub(crate) fn entry(&self, head: &Head<'_>) -> Option<String> {
        match self.0.first()? {
            Part::Address(address) => address.find(head).map(|address| address.to_string()),
            part => String::from_utf8(part.bytes(head, &mut KeyRoom::default())?.to_vec()).ok(),
        }
    }
}

#[cold]
fn joined<'a>(parts: &[Part], head: &Head<'_>, room: &'a mut KeyRoom) -> Result<&'a [u8], NoKey> {
    let mut rooms = Vec::new();
    rooms.resize_with(parts.len(), KeyRoom::default);
    let values = parts.iter().zip(&mut rooms).map(|(part, room)| part.bytes(head, room).ok_or(NoKey::Missing));
    match KeyBuf::from_parts(values.collect::<Result<Vec<_>, _>>()?) {
        Ok(key) => Ok(room.joined.insert(key).as_key().as_bytes()),
        Err(KeyError::TooLong { .. }) => Err(NoKey::TooLong),
        Err(_) => Err(NoKey::Missing),
    }
}

impl Part {
    /// The bytes of a part, or `None` if they are missing or empty.
    #[inline]
    fn bytes<'a>(&self, head: &Head<'a>, room: &'a mut KeyRoom) -> Option<&'a [u8]> {
        let bytes = match self {
            Part::Address(address) => address.bytes(head, &mut room.octets)?,
            Part::Header(name) => head.headers().get(name)?.as_bytes(),
            Part::Everyone => b"everyone",
            Part::Cookie(name) => head.cookie(name)?.as_bytes(),
            Part::ApiKey => api_key(head)?,
            Part::Path => room.path(head),
            Part::Custom(custom) => room.keep(custom(head)?),
        };
        (!bytes.is_empty()).then_some(bytes)
    }
}

impl KeyRoom {
    fn path<'a>(&'a mut self, head: &Head<'a>) -> &'a [u8] {
        self.keep(PathForms::new(head.uri().path()).into_key())
    }

    /// Keeps bytes that are not part of the request.
    fn keep<'a>(&'a mut self, bytes: Cow<'a, [u8]>) -> &'a [u8] {
        match bytes {
            Cow::Borrowed(bytes) => bytes,
            Cow::Owned(bytes) => {
                self.owned = bytes;
                &self.owned
            }
        }
    }
}

fn api_key<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    const BEARER: &[u8] = b"bearer ";
    if let Some(key) = head.headers().get("x-api-key") {
        return Some(key.as_bytes());
    }
    let (scheme, token) = head.headers().get(AUTHORIZATION)?.as_bytes().split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then(|| token.trim_ascii())
}
