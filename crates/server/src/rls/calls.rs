//! The calls of a connection: to whom each goes, and how long it may take.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use http::HeaderMap;
use hyper::body::Incoming;
use tidegate_engine::{Denial, RequestError, StoreError};
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tower_service::Service as _;

use super::health::HealthService;
use super::unary::{self, Answer};
use super::{decode, encode};
use crate::bounds::{GRPC_HEALTH_BYTES_MAX, STALL};
use crate::budget::Account;
use crate::drain::Drain;
use crate::protocol::{Peer, Protocol, Via};
use crate::service::Service;

/// The one method of Envoy's rate limit service.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Those who answer calls.
pub(super) struct Calls {
    limits: Arc<Limits>,
    health: HealthServer<HealthService>,
    reflection: Option<Routes>,
    peer: Peer,
    /// For calls that have not come whole.
    account: Account,
}

impl Calls {
    pub(super) fn new(
        limits: Arc<Limits>,
        reflection: Option<Routes>,
        peer: Peer,
        account: Account,
        drain: Drain,
    ) -> Calls {
        let health = HealthServer::new(HealthService::new(Arc::clone(&limits.service), drain));
        Calls { limits, health, reflection, peer, account }
    }

    /// Answers a call. A client that does not send its message, or whose deadline passed, gets no answer but that.
    pub(super) async fn answer(&self, request: http::Request<Incoming>) -> http::Response<Answer> {
        let patience = patience(request.headers());
        if patience.is_zero() {
            return too_late();
        }
        let deadline = Instant::now() + patience;
        let path = request.uri().path();
        if path == SHOULD_RATE_LIMIT {
            return within(deadline, pin!(self.limits.answer(request, self, deadline))).await;
        }
        let (is_health, is_reflection) = (path.starts_with("/grpc.health."), path.starts_with("/grpc.reflection."));
        let answered = async {
            match &self.reflection {
                _ if is_health => match unary::whole(request, GRPC_HEALTH_BYTES_MAX, &self.account).await {
                    Ok(request) => self.health.clone().call(request).await,
                    Err(status) => Ok(status.into_http()),
                },
                Some(reflection) if is_reflection => reflection.clone().call(request).await,
                _ => Ok(Status::unimplemented(format!("only {SHOULD_RATE_LIMIT} and health are served")).into_http()),
            }
        };
        let answered = async { answered.await.unwrap_or_else(|never| match never {}).map(Answer::Tonic) };
        within(deadline, Box::pin(answered)).await
    }
}

async fn within(
    deadline: Instant,
    answer: impl Future<Output = http::Response<Answer>> + Unpin,
) -> http::Response<Answer> {
    timeout_at(deadline, answer).await.unwrap_or_else(|_| too_late())
}

fn too_late() -> http::Response<Answer> {
    unary::refused(&Status::deadline_exceeded("the deadline passed before the call could be answered"))
}

/// How long a call may take: as long as the client says, at most [`STALL`].
fn patience(headers: &HeaderMap) -> Duration {
    headers.get("grpc-timeout").and_then(|value| timeout(value.as_bytes())).map_or(STALL, |time| time.min(STALL))
}

/// A timeout as gRPC writes it: at most eight digits and a unit. What is not one is ignored.
fn timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(count * 3_600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Why there is no outcome. Envoy takes any error for a failure of this service, and does what it was told to do then.
fn refusal(error: &RequestError) -> Status {
    match error {
        // No request is at fault for how long a rule denies.
        RequestError::Penalty(_) | RequestError::Store(_) => Status::unavailable(error.to_string()),
        _ => Status::invalid_argument(error.to_string()),
    }
}

/// Envoy's rate limit service.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) service: Arc<Service>,
    pub(super) dynamic_metadata: bool,
    /// Whether every client may give units back.
    pub(super) refunds: bool,
}

impl Limits {
    /// Refuses to let strangers give units back: nothing would limit them any more.
    fn authorise(&self, message: &RateLimitRequest, peer: &Peer) -> Result<(), Status> {
        match decode::gives_back(message) {
            Some(number) if !(self.refunds || peer.is_certified || peer.address.is_loopback()) => {
                Err(Status::permission_denied(format!(
                    "descriptors[{number}].is_negative_hits: this client may not give units back; use a client \
                     certificate, connect from this machine, or start the server with --grpc-refunds"
                )))
            }
            _ => Ok(()),
        }
    }

    async fn answer(
        &self,
        request: http::Request<Incoming>,
        calls: &Calls,
        deadline: Instant,
    ) -> http::Response<Answer> {
        self.service.traffic.count(Protocol::Grpc);
        let decided = async {
            let (parts, body) = request.into_parts();
            let via = Via::from_peer(Protocol::Grpc, &calls.peer).with_headers(&parts.headers);
            let message: RateLimitRequest = unary::read(&parts.headers, body, &calls.account).await?;
            self.authorise(&message, &calls.peer)?;
            let deadline = Some(deadline.into_std());
            let answer = pin!(decide(&self.service, via, &message, self.dynamic_metadata, deadline));
            self.service.timed(Protocol::Grpc, answer).await
        };
        match decided.await {
            Ok(response) => unary::ok(&response),
            Err(status) => {
                self.service.traffic.count_error(Protocol::Grpc);
                unary::refused(&status)
            }
        }
    }
}

/// Answers a message of Envoy, whatever carried it. No store is waited for after the deadline.
pub(super) async fn decide(
    service: &Service,
    via: Via<'_>,
    message: &RateLimitRequest,
    with_metadata: bool,
    deadline: Option<std::time::Instant>,
) -> Result<RateLimitResponse, Status> {
    let entries = decode::entries(message);
    let descriptors = decode::descriptors(message, &entries)?;
    let request = decode::request(message, &descriptors)?;
    // Envoy lets pass what it gets an error for, unless it was told otherwise.
    let outcome = service.check_or_deny(via, &request, deadline).await.map_err(|error| refusal(&error))?;
    if outcome.denial() == Some(Denial::Overloaded) {
        return Err(refusal(&StoreError::Overloaded.into()));
    }
    let now = service.engine.clock().now();
    Ok(encode::response(&outcome, descriptors.len(), now, with_metadata))
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
    use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
    use tidegate_engine::{Engine, Options};
    use tidegate_policy::{LoadOptions, load_text};

    use super::*;
    use crate::decision_log::DecisionLog;

    /// Answer, metrics and decision log to a key that is too long.
    async fn too_long(shadow: bool) -> (i32, (u64, u64), serde_json::Value) {
        let rules = "domains: {edge: {rules: [{name: user, match: {entries: {user: '*'}}, key: {expression: entries.user}, limit: 1/s}]}}";
        let engine = Engine::new(Options { shadow, ..Options::default() }).unwrap();
        engine.install(load_text("test.yaml", rules, &LoadOptions::default()).policy.unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("decisions.jsonl");
        let mut service = Service::new(engine);
        service.decision_log = Some(DecisionLog::open(&path, 1).unwrap());
        let entries = vec![Entry { key: "user".to_owned(), value: "x".repeat(8_193) }];
        let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
        let message = RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 };
        let answer = decide(&service, Protocol::Grpc.into(), &message, false, None).await.unwrap();
        let counts = service.engine.rules()[0].counts;
        drop(service);
        let line = std::fs::read(&path).unwrap();
        (answer.overall_code, (counts.denied, counts.shadow_denied), serde_json::from_slice(&line).unwrap())
    }

    #[tokio::test]
    async fn who_sends_a_key_that_is_too_long_is_denied_and_everybody_is_told_so() {
        for (shadow, code, counts) in [(false, Code::OverLimit, (1, 0)), (true, Code::Ok, (0, 1))] {
            let (answered, counted, line) = too_long(shadow).await;
            assert_eq!((answered, counted), (code as i32, counts), "shadow: {shadow}");
            assert_eq!(line["allowed"], shadow, "{line}");
            assert_eq!(line["denial"].as_str(), (!shadow).then_some("blocked"), "{line}");
            assert_eq!(line["rules"][0]["allowed"], false, "{line}");
            assert!(line.get("error").is_none(), "{line}");
        }
    }

    #[test]
    fn timeouts() {
        let ms = Duration::from_millis;
        for (text, expected) in [
            ("20m", Some(ms(20))),
            ("1S", Some(ms(1_000))),
            ("2M", Some(ms(120_000))),
            ("1H", Some(ms(3_600_000))),
            ("1500u", Some(Duration::from_micros(1_500))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("0m", Some(Duration::ZERO)),
            ("100000000m", None),
            ("m", None),
            ("", None),
            ("1", None),
            ("-1m", None),
            ("1.5S", None),
            ("1s", None),
        ] {
            assert_eq!(timeout(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn patience_has_an_end() {
        let mut headers = HeaderMap::new();
        assert_eq!(patience(&headers), STALL);
        headers.insert("grpc-timeout", http::HeaderValue::from_static("1H"));
        assert_eq!(patience(&headers), STALL);
        headers.insert("grpc-timeout", http::HeaderValue::from_static("20m"));
        assert_eq!(patience(&headers), Duration::from_millis(20));
    }
}
