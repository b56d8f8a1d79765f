//! From a denial to the response that a client gets.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use tidegate_core::Time;
use tidegate_engine::Denial;
use tidegate_engine::http_headers::{self, Header, PROBLEM_TYPE, Problem, retry_seconds};

use crate::grpc;
use crate::refusal::Refusal;

/// The protocol in which a layer answers denied requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speaks {
    /// gRPC if the request's content type is `application/grpc`, else HTTP.
    #[default]
    ByContentType,
    /// HTTP: a status, headers and a JSON problem body.
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

/// Why the layer itself answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A rate limit denies it.
    Denial(Denial),
    /// Another layer refuses it.
    Refused(Refusal),
}

/// A denial, ready to be sent.
#[derive(Debug)]
pub(crate) struct Denied {
    pub(crate) why: Why,
    /// Whether the reason is hidden from clients.
    pub(crate) is_hidden: bool,
    pub(crate) status: u16,
    pub(crate) headers: Vec<Header>,
    /// The problem body, unless the reason is hidden.
    pub(crate) body: Option<String>,
    /// The time to wait, if waiting helps and the reason is not hidden.
    pub(crate) wait: Option<Duration>,
}

impl Denied {
    /// A denial without numbers: the request was not counted.
    pub(crate) fn plain(denial: Denial) -> Denied {
        Denied::of(Why::Denial(denial), Problem::of(denial, false), None)
    }

    /// A refusal for another reason than the rate.
    pub(crate) fn refused(refusal: Refusal) -> Denied {
        let detail = refusal.to_string();
        let problem = Problem { detail: Some(&detail), ..refusal.problem() };
        Denied::of(Why::Refused(refusal), problem, refusal.retry_after())
    }

    fn of(why: Why, problem: Problem<'_>, wait: Option<Duration>) -> Denied {
        // No limit is shown, so the instant does not matter.
        let headers = http_headers::serialize(&[], wait.map(retry_seconds), true, Time::from_nanos(0));
        Denied { why, is_hidden: false, status: problem.status, headers, body: Some(problem.to_json()), wait }
    }

    pub(crate) fn respond(self, is_grpc: bool) -> Response<Bytes> {
        let mut response = match is_grpc {
            true => grpc::denied(self.why, self.is_hidden, self.wait),
            false => problem(self.status, self.body),
        };
        for (name, value) in self.headers {
            // The values are printable ASCII; a value that is not would be left out.
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
    // The response is for this request alone.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A constant, since a name given as text is checked each time.
pub(crate) static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(crate) static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Adds a header beside those of the same name: each of several nested layers reports its own limits.
pub(crate) fn add(headers: &mut HeaderMap, name: &'static str, value: HeaderValue) {
    match name {
        "ratelimit" => headers.append(&RATELIMIT, value),
        "ratelimit-policy" => headers.append(&RATELIMIT_POLICY, value),
        other => headers.append(HeaderName::from_static(other), value),
    };
}
