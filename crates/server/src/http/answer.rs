//! Answers: what every route replies with, and how it says that a request is at fault.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use tidegate_core::KeyError;
use tidegate_engine::bounds::FAILURE_RETRY;
use tidegate_engine::{PermitError, RequestError, ShapeError};
use tidegate_policy::json::FieldError;
pub(super) use tidegate_policy::json::quote;

use crate::bounds::SPARE_HEADERS_MAX;
use crate::headers::{self, Header, PROBLEM_TYPE};

/// An answer.
pub(super) type Reply = Response<Full<Bytes>>;

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// What each route gives: an answer, or what is wrong with the request.
pub(super) type Answered = Result<Reply, Failure>;

/// An answer with a body.
pub(super) fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    *reply.headers_mut() = SPARE.take().unwrap_or_default();
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = status;
    reply
}

/// An answer of JSON.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Reply {
    // What is told here are numbers and text, which always are JSON.
    reply(status, JSON, serde_json::to_vec(body).unwrap_or_default())
}

/// Forbids to keep an answer: it was true once, and asking again counts again.
pub(super) fn forbid_caching(reply: &mut Reply) {
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Adds what `headers.rs` made.
pub(super) fn add_headers(reply: &mut Reply, headers: Vec<Header>) {
    for (name, value) in headers {
        // They are made of printable ASCII; one that is not would be left out.
        if let Ok(value) = HeaderValue::try_from(value) {
            reply.headers_mut().insert(header_name(name), value);
        }
    }
}

pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The name of a header. Those of nearly every answer are made when this is compiled, since that takes reading them.
fn header_name(name: &'static str) -> HeaderName {
    match name {
        "ratelimit-policy" => RATELIMIT_POLICY,
        "ratelimit" => RATELIMIT,
        other => HeaderName::from_static(other),
    }
}

thread_local! {
    /// The headers of the last request on this thread, emptied: making a map takes longer than filling it.
    static SPARE: Cell<Option<HeaderMap>> = const { Cell::new(None) };
}

/// Empties the map of a request that was answered, and keeps it for the next answer. Values of one name beyond the first
/// are not in its capacity.
pub(super) fn keep_map(mut headers: HeaderMap) {
    if headers.len().max(headers.capacity()) <= SPARE_HEADERS_MAX {
        headers.clear();
        SPARE.set(Some(headers));
    }
}

/// What is wrong with a request.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    detail: String,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Failure {
    /// A request that cannot be understood: the field, what is wrong with it and what would do.
    pub(super) fn bad(field: impl fmt::Display, problem: impl fmt::Display, remedy: impl fmt::Display) -> Failure {
        Failure::from(FieldError::new(field, problem, remedy))
    }

    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Failure {
        Failure { status, detail: detail.into(), header: None }
    }

    /// Nobody can answer now; who waits that long may ask again.
    fn unavailable(detail: String, wait: Duration) -> Failure {
        let header = Some((RETRY_AFTER, HeaderValue::from(headers::seconds(wait).max(1))));
        Failure { header, ..Failure::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// The path is there, but not for this method.
    pub(super) fn method(allowed: &str) -> Failure {
        let detail = format!("method: not allowed for this path; use {allowed}");
        Failure {
            header: HeaderValue::from_str(allowed).ok().map(|value| (ALLOW, value)),
            ..Failure::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        }
    }

    /// The token is missing or wrong.
    pub(super) fn unauthorized(detail: impl Into<String>) -> Failure {
        let challenge = HeaderValue::from_static("Bearer realm=\"tidegate admin\"");
        Failure { header: Some((WWW_AUTHENTICATE, challenge)), ..Failure::new(StatusCode::UNAUTHORIZED, detail) }
    }

    /// The caller has tried too many wrong tokens, and may try again after this long.
    pub(super) fn too_many_guesses(wait: Duration) -> Failure {
        let seconds = headers::seconds(wait).max(1);
        let detail = format!("authorization: too many wrong tokens from this address; try again in {seconds} s");
        Failure {
            header: Some((RETRY_AFTER, HeaderValue::from(seconds))),
            ..Failure::new(StatusCode::TOO_MANY_REQUESTS, detail)
        }
    }

    /// The same, with what the request was refused for.
    pub(super) fn about(self, what: &str) -> Failure {
        Failure { detail: format!("{what}: {}", self.detail), ..self }
    }

    /// The same, and no further request is read from the connection.
    pub(super) fn closing(self) -> Failure {
        Failure { header: Some((CONNECTION, HeaderValue::from_static("close"))), ..self }
    }
}

impl From<FieldError> for Failure {
    fn from(error: FieldError) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Failure {
        match error {
            RequestError::Store(_) => Failure::unavailable(error.to_string(), FAILURE_RETRY),
            RequestError::NotForgotten { .. }
            | RequestError::NotGranted { .. }
            | RequestError::NotBlocked { .. }
            | RequestError::NotUnblocked { .. } => Failure::new(StatusCode::CONFLICT, error.to_string()),
            _ => Failure::new(StatusCode::BAD_REQUEST, error.to_string()),
        }
    }
}

impl From<ShapeError> for Failure {
    fn from(error: ShapeError) -> Failure {
        match error {
            ShapeError::Store(_) => Failure::unavailable(error.to_string(), FAILURE_RETRY),
            _ => Failure::new(StatusCode::BAD_REQUEST, error.to_string()),
        }
    }
}

impl From<PermitError> for Failure {
    fn from(error: PermitError) -> Failure {
        let Some(wait) = error.retry_after() else {
            return Failure::new(StatusCode::BAD_REQUEST, error.to_string());
        };
        let unavailable = Failure::unavailable(error.to_string(), wait);
        match error {
            // Only this caller is to wait: there is room for others.
            PermitError::OverShare { .. } => Failure { status: StatusCode::TOO_MANY_REQUESTS, ..unavailable },
            _ => unavailable,
        }
    }
}

/// RFC 9457.
#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Reply {
        let Failure { status, detail, header } = failure;
        let title = status.canonical_reason().unwrap_or("Error");
        let problem = Problem { kind: "about:blank", title, status: status.as_u16(), detail: &detail };
        let mut answer = reply(status, PROBLEM_TYPE, serde_json::to_vec(&problem).unwrap_or_default());
        forbid_caching(&mut answer);
        if let Some((name, value)) = header {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}
