//! `/v1/report`: what became of a request.

use http::StatusCode;
use serde::Serialize;
use tidegate_policy::Response;

use super::answer::{Answered, Failure, json};
use super::asked::Asked;
use super::body::{Fields, utf8};
use super::check::unknown_domain;
use crate::service::Service;

const EXAMPLE: &str = r#"{"domain":"api","descriptors":[{"user":"42"}],"response":{"status":401}}"#;

#[derive(Serialize)]
struct Reported {
    /// How many limits counted it.
    counted: usize,
}

/// This server takes no reports.
pub(super) fn switched_off() -> Failure {
    let detail = "path: reports are switched off; start the server without --no-reports to send them";
    Failure::new(StatusCode::NOT_FOUND, detail)
}

/// Counts what became of a request, for the rules that count responses.
pub(super) async fn post(service: &Service, body: &[u8]) -> Answered {
    let mut fields = Fields::parse("body", utf8(body)?, EXAMPLE)?;
    let asked = Asked::take(&mut fields)?;
    let given = fields.need("response", format_args!("write {EXAMPLE}"))?;
    fields.finish("a report")?;
    let mut fields = Fields::parse("response", given.get(), r#"{"status":401,"bytes":1234,"millis":12}"#)?;
    let status = fields.whole("status", "use 100 to 599")?.unwrap_or(200);
    let bytes = fields.whole("bytes", "use the length of the body")?.unwrap_or(0);
    let millis = fields.whole("millis", "use milliseconds")?.unwrap_or(0);
    fields.finish("response")?;
    let status = u16::try_from(status)
        .ok()
        .filter(|status| (100..600).contains(status))
        .ok_or_else(|| Failure::bad("status", format_args!("{status} is not an HTTP status"), "use 100 to 599"))?;
    let Asked::Rules(subject) = asked else {
        return Err(Failure::bad(
            "key",
            "not allowed in a report",
            "send domain and descriptors: only rules count responses",
        ));
    };
    let entries = subject.entries();
    let descriptors = subject.descriptors(&entries);
    let described = subject.http();
    let http = described.as_ref().map(|(http, address)| http.http(*address));
    let request = subject.request(&descriptors, http.as_ref());
    if service.engine.policy().domain(request.domain).is_none() {
        return Err(unknown_domain(request.domain));
    }
    let counted = service.engine.report(&request, &Response { status, bytes, millis }).await?;
    Ok(json(StatusCode::OK, &Reported { counted }))
}
