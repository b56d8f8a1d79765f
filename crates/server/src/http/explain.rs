//! `/v1/explain`: why was a request denied, and what would become of one?

use http::StatusCode;
use serde::Serialize;
use tidegate_core::Time;
use tidegate_engine::{BadDecisionId, DecisionId, Explained, Unexplained};
use tidegate_policy::json::escape_unseen;

use super::admin::rfc3339;
use super::answer::{Answered, Failure, JSON, Reply, quote, reply};
use super::asked::Asked;
use super::body::utf8;
use super::check::{once, unknown_domain};
use super::query::decode;
use super::routes::Parameters;
use crate::service::Service;

/// A denial, with its instant for people.
#[derive(Serialize)]
struct Told {
    at: String,
    #[serde(flatten)]
    explained: Explained,
}

/// Explains a denial by its id.
pub(super) fn denial(service: &Service, [id, _]: Parameters<'_>) -> Answered {
    let text = decode(id, false)?;
    let id: DecisionId = text.parse().map_err(|error: BadDecisionId| not_found(&text, &error.to_string()))?;
    match service.engine.explain(&id) {
        Ok(explained) => {
            let at = rfc3339(Time::from_nanos(explained.at_ns));
            Ok(escaped(&Told { at, explained }))
        }
        Err(error) => Err(unexplained(service, &text, &error)),
    }
}

fn unexplained(service: &Service, id: &str, error: &Unexplained) -> Failure {
    let own = service.engine.node_name().unwrap_or_default();
    match error {
        Unexplained::Off => not_found(id, "this server keeps no denials; start it with --explain-memory 64"),
        Unexplained::Foreign { .. } => {
            not_found(id, &format!("{error}; this is node {own}: ask the node whose name begins with these digits"))
        }
        Unexplained::Expired => {
            not_found(id, "expired, newer denials took its place; to keep more, set --explain-memory")
        }
        _ => {
            not_found(id, &format!("unknown; node {own} never sent it, so copy it again from the response or the log"))
        }
    }
}

fn not_found(id: &str, why: &str) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, format!("decision: `{}` is {why}", quote(id)))
}

/// Explains what would become of a request that is described as for a check.
pub(super) async fn request(service: &Service, body: &[u8]) -> Answered {
    let Asked::Rules(subject) = Asked::parse(utf8(body)?)? else {
        let remedy = "send domain and descriptors instead; the answer to a check of a key has all that is known of it";
        return Err(Failure::bad("key", "only requests for rules can be explained", remedy));
    };
    let entries = subject.entries();
    let descriptors = subject.descriptors(&entries);
    let described = subject.http();
    let http = described.as_ref().map(|(http, address)| http.http(*address));
    let explained = service.engine.explain_request(&subject.request(&descriptors, http.as_ref())).await?;
    Ok(escaped(&explained.ok_or_else(|| unknown_domain(&subject.domain))?))
}

/// An answer with text from clients, in which nothing is left that a terminal would not show.
fn escaped(body: &impl Serialize) -> Reply {
    let body = escape_unseen(serde_json::to_string(body).unwrap_or_default());
    once(reply(StatusCode::OK, JSON, body))
}
