//! A response as closures see it.

use http::header::CONTENT_LENGTH;
use http::{Extensions, HeaderMap, Response, StatusCode};
use http_body::Body;

/// A response without its body: the argument of closures that settle a cost.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    /// The length of the body, if it is known.
    body_bytes: Option<u64>,
}

impl<'a> ResponseHead<'a> {
    /// Borrows the head of a response.
    pub fn of<B: Body>(response: &'a Response<B>) -> ResponseHead<'a> {
        ResponseHead::with_body_of(response.body().size_hint().exact(), response)
    }

    /// The head of a response with a body of `body_bytes`, if known.
    pub(crate) fn with_body_of<B>(body_bytes: Option<u64>, response: &'a Response<B>) -> ResponseHead<'a> {
        let (status, headers, extensions) = (response.status(), response.headers(), response.extensions());
        ResponseHead { status, headers, extensions, body_bytes }
    }

    /// Returns the status.
    #[must_use]
    pub fn status(self) -> StatusCode {
        self.status
    }

    /// Returns the headers.
    #[must_use]
    pub fn headers(self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions, such as the real cost of a request that the service has inserted.
    #[must_use]
    pub fn extensions(self) -> &'a Extensions {
        self.extensions
    }

    /// Returns the length of the body in bytes, from `Content-Length` or its size hint, or `None` for a streamed body.
    ///
    /// ```
    /// use http_body_util::Full;
    /// use tidegate_tower::ResponseHead;
    ///
    /// let response = http::Response::new(Full::<&[u8]>::from(&b"hello"[..]));
    /// assert_eq!(ResponseHead::of(&response).bytes(), Some(5));
    /// ```
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        let told = self.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        told.or(self.body_bytes)
    }
}
