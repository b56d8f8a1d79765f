//! What is told to those who are not let in.

use std::time::Duration;

use http::StatusCode;
use tidegate_core::shed::Criticality;
use tidegate_engine::Denial;
use tidegate_engine::http_headers::Problem;

use crate::answer::Denied;
use crate::grpc::code;
use crate::guard::Answer;

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// As many are in as may be and there is no queue, or there is no room for another key.
    #[error("as many requests are in progress as may be")]
    Busy,
    /// As many are in as may be, and as many wait as may.
    #[error("as many requests wait as may")]
    QueueFull,
    /// It has waited for as long as it may.
    #[error("the request has waited for as long as it may")]
    WaitedTooLong,
    /// The queue has stood for too long.
    #[error("the queue has stood for too long")]
    QueueStands,
    /// As many of this client's are in as may be.
    #[error("as many requests of this client are in progress as may be")]
    ClientBusy,
    /// It does not tell what it is counted by.
    #[error("the request lacks what it is counted by")]
    NoKey,
    /// What it is counted by has more bytes than a key may have.
    #[error("what tells who the request is from is too long: use at most {max} bytes")]
    KeyTooLong {
        /// The most bytes.
        max: usize,
    },
    /// The store that counts does not answer.
    #[error("the store that counts requests does not answer")]
    NoStore,
    /// This process is overloaded and could not ask the store that counts in time. The store may be healthy.
    #[error("the rate limiter is overloaded")]
    Overloaded,
    /// Requests of its class are shed.
    #[error("the service is overloaded, and {} requests are shed", .0.name())]
    Shed(Criticality),
}

/// A request that is not let in. Responses of the layers carry it in their extensions, but for denials of a rate, for
/// those who want to count them or to answer in their own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    reason: Reason,
    status: StatusCode,
    retry_after: Option<Duration>,
}

impl Refusal {
    /// A service that is too busy: 503. The caller did nothing wrong.
    pub(crate) fn unavailable(reason: Reason, retry_after: Duration) -> Refusal {
        Refusal { reason, status: StatusCode::SERVICE_UNAVAILABLE, retry_after: Some(retry_after) }
    }

    /// A client above its own limit: 429.
    pub(crate) fn too_many(reason: Reason, retry_after: Duration) -> Refusal {
        Refusal { reason, status: StatusCode::TOO_MANY_REQUESTS, retry_after: Some(retry_after) }
    }

    /// A request that nobody can be found for: 400. To send it again would not help.
    pub(crate) fn without_key(reason: Reason) -> Refusal {
        Refusal { reason, status: StatusCode::BAD_REQUEST, retry_after: None }
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The status it is answered with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// When it may be sent again; nothing if never.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The number of its gRPC status. UNAVAILABLE for 503: clients and balancers of gRPC take it for a state of this
    /// server that passes, and try again, or another one. RESOURCE_EXHAUSTED for 429: another server would say the same.
    pub(crate) fn grpc_code(self) -> u32 {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => code::RESOURCE_EXHAUSTED,
            StatusCode::BAD_REQUEST => code::INVALID_ARGUMENT,
            _ => code::UNAVAILABLE,
        }
    }

    /// What kind of problem it is: the same that limits on rates have for their status.
    pub(crate) fn problem(self) -> Problem<'static> {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => Problem::of(Denial::OverLimit, false),
            StatusCode::BAD_REQUEST => Problem::of_status(400, "Bad Request"),
            _ => Problem::of(Denial::StoreFailure, false),
        }
    }

    /// The response to an HTTP request, or to a call of gRPC.
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

    /// A little more than a second: what is told is rounded up.
    const AFTER: Duration = Duration::from_micros(1_000_001);

    #[test]
    fn http_hears_why_and_when_to_come_back() {
        for (reason, detail) in [
            (Reason::Busy, "as many requests are in progress as may be"),
            (Reason::QueueFull, "as many requests wait as may"),
            (Reason::WaitedTooLong, "the request has waited for as long as it may"),
            (Reason::QueueStands, "the queue has stood for too long"),
            (Reason::NoStore, "the store that counts requests does not answer"),
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
                r#""detail":"as many requests of this client are in progress as may be"}"#
            ),
        );
        let detail = r#""detail":"the request lacks what it is counted by""#;
        let body = format!(r#"{{"type":"about:blank","title":"Bad Request","status":400,{detail}}}"#);
        check(Refusal::without_key(Reason::NoKey), 400, None, &body);
        let detail = r#""detail":"what tells who the request is from is too long: use at most 4096 bytes""#;
        let body = format!(r#"{{"type":"about:blank","title":"Bad Request","status":400,{detail}}}"#);
        check(Refusal::without_key(Reason::KeyTooLong { max: 4096 }), 400, None, &body);
    }

    #[test]
    fn grpc_hears_of_it_in_its_own_words() {
        let shed = Refusal::unavailable(Reason::Shed(Criticality::Test), AFTER);
        check_grpc(shed, tonic::Code::Unavailable, "the service is overloaded, and test requests are shed");
        let client = Refusal::too_many(Reason::ClientBusy, AFTER);
        let message = "as many requests of this client are in progress as may be";
        check_grpc(client, tonic::Code::ResourceExhausted, message);
        let keyless = Refusal::without_key(Reason::NoKey);
        check_grpc(keyless, tonic::Code::InvalidArgument, "the request lacks what it is counted by");
    }
}
