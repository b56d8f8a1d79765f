//! What is told to those who are not let in.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use tidegate_core::shed::Criticality;

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// As many are in as may be, and there is no queue.
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
    #[error("the request does not tell who it is from")]
    NoKey,
    /// The store that counts does not answer.
    #[error("the store that counts requests does not answer")]
    NoStore,
    /// Requests of its class are shed.
    #[error("the service is overloaded, and {} requests are shed", .0.name())]
    Shed(Criticality),
}

/// A request that is not let in. Responses of the layers carry it in their extensions, for those who want to give them
/// a body or to count them.
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
    pub(crate) fn without_key() -> Refusal {
        Refusal { reason: Reason::NoKey, status: StatusCode::BAD_REQUEST, retry_after: None }
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
    fn grpc_status(&self) -> HeaderValue {
        HeaderValue::from_static(match self.status {
            StatusCode::TOO_MANY_REQUESTS => "8",
            StatusCode::BAD_REQUEST => "3",
            _ => "14",
        })
    }

    /// The response to an HTTP request, or to a call of gRPC.
    pub(crate) fn response<B: Default>(self, is_grpc: bool) -> Response<B> {
        let mut response = Response::new(B::default());
        let headers = response.headers_mut();
        if is_grpc {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert("grpc-status", self.grpc_status());
            if let Ok(message) = HeaderValue::try_from(self.reason.to_string()) {
                headers.insert("grpc-message", message);
            }
            if let Some(after) = self.retry_after {
                let millis = after.as_nanos().div_ceil(1_000_000);
                headers.insert("grpc-retry-pushback-ms", HeaderValue::from(u64::try_from(millis).unwrap_or(u64::MAX)));
            }
        } else {
            if let Some(after) = self.retry_after {
                let seconds = after.as_nanos().div_ceil(1_000_000_000);
                headers.insert(RETRY_AFTER, HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX)));
            }
            *response.status_mut() = self.status;
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(refusal: Refusal, is_grpc: bool, status: u16, headers: &[(&str, &str)]) {
        let response: Response<()> = refusal.response(is_grpc);
        assert_eq!(response.status(), status);
        assert_eq!(response.headers().len(), headers.len(), "{:?}", response.headers());
        for (name, value) in headers {
            assert_eq!(response.headers().get(*name).unwrap(), value);
        }
        assert_eq!(response.extensions().get::<Refusal>(), Some(&refusal));
    }

    #[test]
    fn tells_when_to_come_back_rounded_up() {
        let busy = Refusal::unavailable(Reason::Busy, Duration::from_micros(1_000_001));
        check(busy, false, 503, &[("retry-after", "2")]);
        check(Refusal::too_many(Reason::ClientBusy, Duration::from_secs(1)), false, 429, &[("retry-after", "1")]);
        check(Refusal::without_key(), false, 400, &[]);
    }

    #[test]
    fn grpc_hears_of_it_in_its_own_words() {
        let kind = ("content-type", "application/grpc");
        let shed = Refusal::unavailable(Reason::Shed(Criticality::Test), Duration::from_micros(1_000_001));
        let message = ("grpc-message", "the service is overloaded, and test requests are shed");
        check(shed, true, 200, &[kind, ("grpc-status", "14"), message, ("grpc-retry-pushback-ms", "1001")]);
        let client = Refusal::too_many(Reason::ClientBusy, Duration::from_secs(1));
        let message = ("grpc-message", "as many requests of this client are in progress as may be");
        check(client, true, 200, &[kind, ("grpc-status", "8"), message, ("grpc-retry-pushback-ms", "1000")]);
        let message = ("grpc-message", "the request does not tell who it is from");
        check(Refusal::without_key(), true, 200, &[kind, ("grpc-status", "3"), message]);
    }
}
