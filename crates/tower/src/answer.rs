//! From a denial to the answer that a client gets.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use tidegate_engine::Denial;
use tidegate_engine::http_headers::{Header, PROBLEM_TYPE, problem_of};

use crate::grpc;

/// What clients are answered in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// gRPC where the request's content type is `application/grpc`, else HTTP.
    #[default]
    ByContentType,
    /// HTTP: a status, headers and a problem as JSON.
    Http,
    /// gRPC: a status with details.
    Grpc,
}

impl Speaks {
    pub(crate) fn is_grpc(self, headers: &HeaderMap) -> bool {
        match self {
            Speaks::ByContentType => grpc::is_call(headers),
            Speaks::Http => false,
            Speaks::Grpc => true,
        }
    }
}

/// Why a request is answered by the layer itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Denial(Denial),
    /// It lacks what it would count on, and that is to be refused.
    NoKey,
}

pub(crate) const NO_KEY: &str = "the request does not tell who it is from";

/// A denial that is to be told.
#[derive(Debug)]
pub(crate) struct Denied {
    pub(crate) why: Why,
    /// Whether clients must not learn why.
    pub(crate) is_hidden: bool,
    pub(crate) status: u16,
    pub(crate) headers: Vec<Header>,
    /// The problem, unless nothing may be told of it.
    pub(crate) body: Option<String>,
    /// How long to wait, where that helps and may be told.
    pub(crate) wait: Option<Duration>,
}

impl Denied {
    /// One without numbers: nobody counted the request.
    pub(crate) fn plain(why: Why) -> Box<Denied> {
        let (status, body) = match why {
            Why::Denial(denial) => problem_of(denial, &[], false),
            Why::NoKey => {
                let problem = r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":""#;
                (400, format!("{problem}{NO_KEY}\"}}"))
            }
        };
        Box::new(Denied { why, is_hidden: false, status, headers: Vec::new(), body: Some(body), wait: None })
    }

    pub(crate) fn respond(self, is_grpc: bool) -> Response<Bytes> {
        let mut response = match is_grpc {
            true => grpc::denied(self.why, self.is_hidden, self.wait),
            false => problem(self.status, self.body),
        };
        for (name, value) in self.headers {
            add(response.headers_mut(), name, value);
        }
        response
    }
}

fn problem(status: u16, body: Option<String>) -> Response<Bytes> {
    let has_body = body.is_some();
    let mut response = Response::new(Bytes::from(body.unwrap_or_default()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let headers = response.headers_mut();
    if has_body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
    }
    // It holds for this request alone.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Adds a header beside those of the same name: layers in each other each tell of their own limits.
pub(crate) fn add(headers: &mut HeaderMap, name: &'static str, value: String) {
    // They are made of printable ASCII; one that is not would be left out.
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.append(HeaderName::from_static(name), value);
    }
}
