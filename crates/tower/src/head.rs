//! A request as closures see it.

use std::borrow::Cow;

use http::header::{AsHeaderName, COOKIE};
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Uri};
use tidegate_policy::cookies;

/// A request without its body: the argument of closures that return its key, class or partition.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// Borrows the head of a request.
    pub fn of<B>(request: &'a Request<B>) -> Head<'a> {
        Head {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// Returns the method.
    #[must_use]
    pub fn method(self) -> &'a Method {
        self.method
    }

    /// Returns the request target.
    #[must_use]
    pub fn uri(self) -> &'a Uri {
        self.uri
    }

    /// Returns the headers.
    #[must_use]
    pub fn headers(self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions, such as the peer's address or the values of outer layers.
    #[must_use]
    pub fn extensions(self) -> &'a Extensions {
        self.extensions
    }

    /// Returns the value of a header as a key, or `None` if it is missing or empty.
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

    /// Copies everything but the HTTP version.
    pub(crate) fn to_parts(self) -> Parts {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = self.method.clone();
        parts.uri = self.uri.clone();
        parts.headers = self.headers.clone();
        parts.extensions = self.extensions.clone();
        parts
    }

    /// Returns the value of the first cookie with this name, without quotes.
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
