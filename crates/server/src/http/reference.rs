//! What envoyproxy/ratelimit has over HTTP: its health, and its service in JSON.

use http::StatusCode;

use super::answer::{Answered, Failure, JSON, Reply, TEXT, forbid_caching, reply};
use super::body::utf8;
use super::guard::Admin;
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

/// The service in JSON. Units are given back only to those whom `admit` lets in.
pub(super) async fn json(
    service: &Service,
    via: Via<'_>,
    body: &[u8],
    admit: impl FnOnce() -> Result<Admin, Failure>,
) -> Answered {
    let message = rls::json::message(utf8(body)?)?;
    if rls::gives_back(&message).is_some() {
        admit().map_err(|failure| failure.about("isNegativeHits: only administrators may give units back"))?;
    }
    let answer = rls::json::answer(service, via, &message).await;
    let answer = answer.map_err(|status| Failure::new(StatusCode::BAD_REQUEST, status.message()))?;
    let status = if answer.is_over_limit { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
    let mut reply = reply(status, JSON, answer.body);
    forbid_caching(&mut reply);
    Ok(reply)
}
