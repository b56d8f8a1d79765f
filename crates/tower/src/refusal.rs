//! Refusals and their responses.

use std::time::Duration;

use http::StatusCode;
use tidegate_core::shed::Criticality;
use tidegate_engine::Denial;
use tidegate_engine::http_headers::Problem;

use crate::answer::Denied;
use crate::grpc::code;
use crate::guard::Answer;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The concurrency limit is reached and there is no queue, or there is no room for another key.
    #[error("the concurrency limit is reached")]
    Busy,
    /// The concurrency limit is reached and the queue is full.
    #[error("the request queue is full")]
    QueueFull,
    /// The request has waited for the longest time allowed.
    #[error("the request waited too long in the queue")]
    WaitedTooLong,
    /// Requests wait in the queue for too long, as CoDel measures it.
    #[error("queueing delay is too high")]
    QueueStands,
    /// The concurrency limit of this client is reached.
    #[error("the client's concurrency limit is reached")]
    ClientBusy,
    /// The request has no key, and the layer counts requests by key.
    #[error("the request has no client key")]
    NoKey,
    /// The key of the request is longer than allowed.
    #[error("the client key is too long; use at most {max} bytes")]
    KeyTooLong {
        /// The longest key, in bytes.
        max: usize,
    },
    /// The shared store that counts requests does not answer.
    #[error("the shared store does not answer")]
    NoStore,
    /// This process is overloaded and could not ask the shared store in time. The store may be healthy.
    #[error("the rate limiter is overloaded")]
    Overloaded,
    /// Requests of this class are shed.
    #[error("the service is overloaded, and {} requests are shed", .0.name())]
    Shed(Criticality),
}

/// A request that is refused. Responses of the layers carry it in their extensions, except for denials of a rate limit,
/// for code that counts refusals or answers in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    reason: Reason,
    status: StatusCode,
    retry_after: Option<Duration>,
}

impl Refusal {
    /// A service that is too busy: 503. The client is not at fault.
    pub(crate) fn unavailable(reason: Reason, retry_after: Duration) -> Refusal {
        Refusal { reason, status: StatusCode::SERVICE_UNAVAILABLE, retry_after: Some(retry_after) }
    }

    /// A client above its own limit: 429.
    pub(crate) fn too_many(reason: Reason, retry_after: Duration) -> Refusal {
        Refusal { reason, status: StatusCode::TOO_MANY_REQUESTS, retry_after: Some(retry_after) }
    }

    /// A request without a usable key: 400. A retry would not help.
    pub(crate) fn without_key(reason: Reason) -> Refusal {
        Refusal { reason, status: StatusCode::BAD_REQUEST, retry_after: None }
    }

    /// Returns the reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the HTTP status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the time after which the request may be sent again, or `None` if a retry does not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The gRPC status code. UNAVAILABLE for 503: gRPC clients and balancers retry, also on another server.
    /// RESOURCE_EXHAUSTED for 429: another server would answer the same.
    pub(crate) fn grpc_code(self) -> u32 {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => code::RESOURCE_EXHAUSTED,
            StatusCode::BAD_REQUEST => code::INVALID_ARGUMENT,
            _ => code::UNAVAILABLE,
        }
    }

    /// The problem type: the one that rate limits use for the same status.
    pub(crate) fn problem(self) -> Problem<'static> {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => Problem::of(Denial::OverLimit, false),
            StatusCode::BAD_REQUEST => Problem::of_status(400, "Bad Request"),
            _ => Problem::of(Denial::StoreFailure, false),
        }
    }

    /// The response to an HTTP request, or to a gRPC call.
    pub(crate) fn answer(self, is_grpc: bool) -> Answer {
        Box::new(Denied::refused(self).respond(is_grpc))
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt;

    use super::*;

    fn check(refusal: Refusal, status: u16, retry_after: Option<&str>, body: &str) {
        let response = refusal.answer(false);
        assert_eq!((response.status().as_u16(), refusal.status().as_u16()), (status, status));
        let mut headers = vec![("cache-control", "no-store"), ("content-type", "application/problem+json")];
        headers.extend(retry_after.map(|seconds| ("retry-after", seconds)));
        let mut told: Vec<_> =
            response.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        told.sort_unstable();
        assert_eq!((told, &response.body()[..]), (headers, body.as_bytes()));
        assert_eq!(response.extensions().get::<Refusal>(), Some(&refusal));
    }

    fn check_grpc(refusal: Refusal, code: tonic::Code, message: &str) {
        let response = refusal.answer(true);
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        assert!(response.body().is_empty(), "a status alone, without a message before it");
        let read = tonic::Status::from_header_map(response.headers()).unwrap();
        assert_eq!((read.code(), read.message()), (code, message));
        let delay = read.get_details_retry_info().and_then(|info| info.retry_delay);
        assert_eq!(delay, refusal.retry_after());
        let millis = response.headers().get("grpc-retry-pushback-ms").map(|millis| millis.to_str().unwrap());
        let expected = refusal.retry_after().map(|after| after.as_nanos().div_ceil(1_000_000).to_string());
        assert_eq!(millis, expected.as_deref());
        assert_eq!(response.extensions().get::<Refusal>(), Some(&refusal));
    }

    /// A little more than a second: the response rounds it up.
    const AFTER: Duration = Duration::from_micros(1_000_001);

    #[test]
    fn http_hears_why_and_when_to_come_back() {
        for (reason, detail) in [
            (Reason::Busy, "the concurrency limit is reached"),
            (Reason::QueueFull, "the request queue is full"),
            (Reason::WaitedTooLong, "the request waited too long in the queue"),
            (Reason::QueueStands, "queueing delay is too high"),
            (Reason::NoStore, "the shared store does not answer"),
            (Reason::Overloaded, "the rate limiter is overloaded"),
            (Reason::Shed(Criticality::Test), "the service is overloaded, and test requests are shed"),
        ] {
            let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
            let rest = format!(r#""title":"Capacity is temporarily reduced","status":503,"detail":"{detail}""#);
            let body = format!(r#"{{"type":"{kind}",{rest}}}"#);
            check(Refusal::unavailable(reason, AFTER), 503, Some("2"), &body);
        }
        check(
            Refusal::too_many(Reason::ClientBusy, Duration::from_secs(1)),
            429,
            Some("1"),
            concat!(
                r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
                r#""title":"The quota is used up","status":429,"#,
                r#""detail":"the client's concurrency limit is reached"}"#
            ),
        );
        let detail = r#""detail":"the request has no client key""#;
        let body = format!(r#"{{"type":"about:blank","title":"Bad Request","status":400,{detail}}}"#);
        check(Refusal::without_key(Reason::NoKey), 400, None, &body);
        let detail = r#""detail":"the client key is too long; use at most 4096 bytes""#;
        let body = format!(r#"{{"type":"about:blank","title":"Bad Request","status":400,{detail}}}"#);
        check(Refusal::without_key(Reason::KeyTooLong { max: 4096 }), 400, None, &body);
    }

    #[test]
    fn grpc_hears_of_it_in_its_own_words() {
        let shed = Refusal::unavailable(Reason::Shed(Criticality::Test), AFTER);
        check_grpc(shed, tonic::Code::Unavailable, "the service is overloaded, and test requests are shed");
        let client = Refusal::too_many(Reason::ClientBusy, AFTER);
        let message = "the client's concurrency limit is reached";
        check_grpc(client, tonic::Code::ResourceExhausted, message);
        let keyless = Refusal::without_key(Reason::NoKey);
        check_grpc(keyless, tonic::Code::InvalidArgument, "the request has no client key");
    }
}
