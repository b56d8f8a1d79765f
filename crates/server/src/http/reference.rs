//! What envoyproxy/ratelimit has over HTTP: its health, and its service in JSON.

use http::StatusCode;

use super::answer::{Answered, Failure, JSON, Reply, TEXT, forbid_caching, reply};
use super::body::utf8;
use crate::protocol::Via;
use crate::rls;
use crate::service::Service;

/// The process answers.
pub(super) fn alive() -> Reply {
    reply(StatusCode::OK, TEXT, "alive\n")
}

/// Whether load balancers may send requests here.
pub(super) fn ready(service: &Service, yes: &'static str, no: &'static str) -> Reply {
    match service.is_ready() {
        true => reply(StatusCode::OK, TEXT, yes),
        false => reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, no),
    }
}

/// The service in JSON.
pub(super) async fn json(service: &Service, via: Via<'_>, body: &[u8]) -> Answered {
    let answer = rls::json::answer(service, via, utf8(body)?).await;
    let answer = answer.map_err(|error| Failure::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let status = if answer.is_over_limit { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
    let mut reply = reply(status, JSON, answer.body);
    forbid_caching(&mut reply);
    Ok(reply)
}
