//! What a closure sees of a request.

use std::borrow::Cow;

use http::header::{AsHeaderName, COOKIE};
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Uri};
use tidegate_policy::cookies;

/// A request without its body, as the closures see it that tell its key, its class or its partition.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// The head of a request.
    pub fn of<B>(request: &'a Request<B>) -> Head<'a> {
        Head {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// Its method.
    #[must_use]
    pub fn method(self) -> &'a Method {
        self.method
    }

    /// Its target.
    #[must_use]
    pub fn uri(self) -> &'a Uri {
        self.uri
    }

    /// Its headers.
    #[must_use]
    pub fn headers(self) -> &'a HeaderMap {
        self.headers
    }

    /// What layers before have put in, such as the address of the peer.
    #[must_use]
    pub fn extensions(self) -> &'a Extensions {
        self.extensions
    }

    /// The value of a header as a key. Nothing if it is not there or empty.
    #[must_use]
    pub fn header(self, name: impl AsHeaderName) -> Option<Cow<'a, [u8]>> {
        let value = self.headers.get(name)?.as_bytes();
        (!value.is_empty()).then_some(Cow::Borrowed(value))
    }
}

impl<'a> Head<'a> {
    pub(crate) fn of_parts(parts: &'a Parts) -> Head<'a> {
        Head { method: &parts.method, uri: &parts.uri, headers: &parts.headers, extensions: &parts.extensions }
    }

    /// The same in parts of its own, but for the version of HTTP.
    pub(crate) fn to_parts(self) -> Parts {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = self.method.clone();
        parts.uri = self.uri.clone();
        parts.headers = self.headers.clone();
        parts.extensions = self.extensions.clone();
        parts
    }

    /// The first cookie of this name.
    ///
    /// ```
    /// use tidegate_tower::Head;
    ///
    /// let request = http::Request::get("/").header("cookie", "theme=dark; session=\"abc\"").body(())?;
    /// assert_eq!(Head::of(&request).cookie("session"), Some("abc"));
    /// # Ok::<(), http::Error>(())
    /// ```
    #[must_use]
    pub fn cookie(self, name: &str) -> Option<&'a str> {
        let lines = self.headers.get_all(COOKIE).iter().filter_map(|line| str::from_utf8(line.as_bytes()).ok());
        lines.flat_map(cookies).find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}
