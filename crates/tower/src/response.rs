//! What a closure sees of a response.

use http::header::CONTENT_LENGTH;
use http::{Extensions, HeaderMap, Response, StatusCode};
use http_body::Body;

/// A response without its body.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    /// The length of the body, where that knows it.
    body_bytes: Option<u64>,
}

impl<'a> ResponseHead<'a> {
    /// That of a response.
    pub fn of<B: Body>(response: &'a Response<B>) -> ResponseHead<'a> {
        ResponseHead::with_body_of(response.body().size_hint().exact(), response)
    }

    /// The same of one whose body is so long, if that is known.
    pub(crate) fn with_body_of<B>(body_bytes: Option<u64>, response: &'a Response<B>) -> ResponseHead<'a> {
        let (status, headers, extensions) = (response.status(), response.headers(), response.extensions());
        ResponseHead { status, headers, extensions, body_bytes }
    }

    /// The status.
    #[must_use]
    pub fn status(self) -> StatusCode {
        self.status
    }

    /// All headers.
    #[must_use]
    pub fn headers(self) -> &'a HeaderMap {
        self.headers
    }

    /// What the service put in, such as what a request really cost.
    #[must_use]
    pub fn extensions(self) -> &'a Extensions {
        self.extensions
    }

    /// Bytes of the body, by `Content-Length` or as the body itself knows; nothing for one that is made as it goes.
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
