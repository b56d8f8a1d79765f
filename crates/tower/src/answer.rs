//! From a denial to the answer that a client gets.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use tidegate_core::Time;
use tidegate_engine::Denial;
use tidegate_engine::http_headers::{self, Header, PROBLEM_TYPE, Problem, retry_seconds};

use crate::grpc;
use crate::refusal::Refusal;

/// What clients are answered in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
    /// A limit on rates denies it.
    Denial(Denial),
    /// It is not let in.
    Refused(Refusal),
}

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
    pub(crate) fn plain(denial: Denial) -> Denied {
        Denied::of(Why::Denial(denial), Problem::of(denial, false), None)
    }

    /// One that is not let in, whatever its rate.
    pub(crate) fn refused(refusal: Refusal) -> Denied {
        let detail = refusal.to_string();
        let problem = Problem { detail: Some(&detail), ..refusal.problem() };
        Denied::of(Why::Refused(refusal), problem, refusal.retry_after())
    }

    fn of(why: Why, problem: Problem<'_>, wait: Option<Duration>) -> Denied {
        // No limit is told of, so that the instant plays no part.
        let headers = http_headers::serialize(&[], wait.map(retry_seconds), true, Time::from_nanos(0));
        Denied { why, is_hidden: false, status: problem.status, headers, body: Some(problem.to_json()), wait }
    }

    pub(crate) fn respond(self, is_grpc: bool) -> Response<Bytes> {
        let mut response = match is_grpc {
            true => grpc::denied(self.why, self.is_hidden, self.wait),
            false => problem(self.status, self.body),
        };
        for (name, value) in self.headers {
            // They are made of printable ASCII; one that is not would be left out.
            if let Ok(value) = HeaderValue::try_from(value) {
                add(response.headers_mut(), name, value);
            }
        }
        if let Why::Refused(refusal) = self.why {
            response.extensions_mut().insert(refusal);
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

/// Made once: a name that is given as text is checked each time.
pub(crate) static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(crate) static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Adds a header beside those of the same name: layers in each other each tell of their own limits.
pub(crate) fn add(headers: &mut HeaderMap, name: &'static str, value: HeaderValue) {
    match name {
        "ratelimit" => headers.append(&RATELIMIT, value),
        "ratelimit-policy" => headers.append(&RATELIMIT_POLICY, value),
        other => headers.append(HeaderName::from_static(other), value),
    };
}
