//! What envoyproxy/ratelimit has over HTTP: health, the dump of its limits, and its service in JSON.

use std::borrow::Cow;
use std::fmt::Write;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_policy::{Action, Mode, Shown};

use super::answer::{Answered, Failure, Reply, TEXT, forbid_caching, json as json_reply, quote, reply};
use super::body::{Fields, list, text, utf8};
use super::query::whole;
use crate::rls;
use crate::service::{Protocol, Service};

const EXAMPLE: &str = r#"{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"42"}]}]}"#;

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

/// One line for each limit.
pub(super) fn config(service: &Service) -> Reply {
    let mut lines = String::new();
    let policy = service.engine.policy();
    for (rule, view) in policy.rules().iter().zip(service.engine.rules()) {
        let path = rule.metric_path.join(".");
        let limits = rule.limits.iter().map(|limit| limit.shown).chain(rule.told_as.iter().map(|told_as| told_as.shown));
        // What has no limit is told as one without a unit.
        let none = (rule.action == Action::Unlimited).then_some((Cow::Borrowed("UNKNOWN"), 0));
        for (unit, units) in limits.map(|shown| (unit(shown), shown.units)).chain(none) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                lines,
                "{}.{path}: unit={unit} requests_per_unit={units}, shadow_mode: {}, quota_mode: {}",
                rule.domain,
                view.mode == Mode::Shadow,
                rule.quota,
            );
        }
    }
    reply(StatusCode::OK, TEXT, lines)
}

/// The name of a period, or its length where Envoy has no name for it.
fn unit(shown: Shown) -> Cow<'static, str> {
    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * SECOND;
    let name = [
        (SECOND, "SECOND"),
        (60 * SECOND, "MINUTE"),
        (3_600 * SECOND, "HOUR"),
        (DAY, "DAY"),
        (7 * DAY, "WEEK"),
        (30 * DAY, "MONTH"),
        (365 * DAY, "YEAR"),
    ];
    match name.iter().find(|(nanos, _)| *nanos == shown.period_ns) {
        Some((_, name)) => Cow::Borrowed(name),
        None if shown.period_ns.is_multiple_of(SECOND) => Cow::Owned(format!("{}s", shown.period_ns / SECOND)),
        None => Cow::Owned(format!("{}ns", shown.period_ns)),
    }
}

/// The service in JSON, by the mapping of proto3.
pub(super) async fn json(service: &Service, body: &[u8]) -> Answered {
    let message = message(utf8(body)?)?;
    let answer = rls::decide(service, Protocol::Http, &message, false).await;
    let answer = answer.map_err(|status| Failure::new(StatusCode::BAD_REQUEST, status.message()))?;
    let status = match answer.overall_code == Code::OverLimit as i32 {
        true => StatusCode::TOO_MANY_REQUESTS,
        false => StatusCode::OK,
    };
    let mut reply = json_reply(status, &Told::of(&answer));
    forbid_caching(&mut reply);
    Ok(reply)
}

fn message(body: &str) -> Result<RateLimitRequest, Failure> {
    let mut fields = Fields::parse("body", body, EXAMPLE)?;
    let domain = fields.text("domain", "use text")?.unwrap_or_default().into_owned();
    let descriptors = match fields.take("descriptors") {
        None => Vec::new(),
        Some(value) => {
            let items = list("descriptors", value.get(), r#"[{"entries":[{"key":"user","value":"42"}]}]"#)?;
            items.into_iter().map(descriptor).collect::<Result<_, _>>()?
        }
    };
    let hits_addend = match fields.take_either("hits_addend", "hitsAddend") {
        None => 0,
        Some(value) => small("hitsAddend", value)?,
    };
    fields.finish("a RateLimitRequest")?;
    Ok(RateLimitRequest { domain, descriptors, hits_addend })
}

fn descriptor(value: &RawValue) -> Result<RateLimitDescriptor, Failure> {
    let example = r#"{"entries":[{"key":"user","value":"42"}]}"#;
    let mut fields = Fields::parse("descriptors", value.get(), example)?;
    let entries = match fields.take("entries") {
        None => Vec::new(),
        Some(value) => {
            let items = list("entries", value.get(), r#"[{"key":"user","value":"42"}]"#)?;
            items.into_iter().map(entry).collect::<Result<_, _>>()?
        }
    };
    let limit = fields.take("limit").map(own_limit).transpose()?;
    let hits = fields.take_either("hits_addend", "hitsAddend");
    let hits_addend =
        hits.map(|value| Ok::<_, Failure>(UInt64Value { value: large("hitsAddend", value)? })).transpose()?;
    let is_negative_hits = match fields.take_either("is_negative_hits", "isNegativeHits").map(RawValue::get) {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            let problem = format_args!("{} is not true or false", quote(other));
            return Err(Failure::bad("isNegativeHits", problem, "use one of them"));
        }
    };
    fields.finish("a descriptor")?;
    Ok(RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits })
}

fn entry(value: &RawValue) -> Result<Entry, Failure> {
    let mut fields = Fields::parse("entries", value.get(), r#"{"key":"user","value":"42"}"#)?;
    let key = fields.text("key", "use text")?.unwrap_or_default().into_owned();
    let value = fields.text("value", "use text")?.unwrap_or_default().into_owned();
    fields.finish("an entry")?;
    Ok(Entry { key, value })
}

fn own_limit(value: &RawValue) -> Result<RateLimitOverride, Failure> {
    let mut fields = Fields::parse("limit", value.get(), r#"{"requestsPerUnit":10,"unit":"MINUTE"}"#)?;
    let requests = fields.take_either("requests_per_unit", "requestsPerUnit");
    let requests_per_unit = requests.map_or(Ok(0), |value| small("requestsPerUnit", value))?;
    let remedy = "use SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR";
    let unit = match fields.take("unit") {
        None => 0,
        Some(value) if value.get().starts_with('"') => {
            let name = text("unit", value, remedy)?;
            let unit = RateLimitUnit::from_str_name(&name);
            unit.ok_or_else(|| Failure::bad("unit", format_args!("{} is unknown", quote(&name)), remedy))? as i32
        }
        Some(value) => i32::try_from(small("unit", value)?).unwrap_or(i32::MAX),
    };
    fields.finish("a limit")?;
    Ok(RateLimitOverride { requests_per_unit, unit })
}

fn small(name: &str, value: &RawValue) -> Result<u32, Failure> {
    let number = large(name, value)?;
    let remedy = format_args!("use at most {}", u32::MAX);
    u32::try_from(number).map_err(|_| Failure::bad(name, format_args!("{number} is too large"), remedy))
}

/// A number, which protojson also writes as text.
fn large(name: &str, value: &RawValue) -> Result<u64, Failure> {
    match value.get().starts_with('"') {
        true => whole(name, &text(name, value, "use a number")?, "use a number"),
        false => whole(name, value.get(), "use a number"),
    }
}

/// The answer; as protojson has it, fields that are zero are left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<ToldStatus<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<ToldHeader<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToldStatus<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<ToldLimit<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToldLimit<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    unit: &'static str,
}

#[derive(Serialize)]
struct ToldHeader<'a> {
    key: &'a str,
    value: &'a str,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl<'a> Told<'a> {
    fn of(answer: &'a RateLimitResponse) -> Told<'a> {
        let headers = answer.response_headers_to_add.iter();
        Told {
            overall_code: code(answer.overall_code),
            statuses: answer.statuses.iter().map(told_status).collect(),
            response_headers_to_add: headers.map(|one| ToldHeader { key: &one.key, value: &one.value }).collect(),
        }
    }
}

fn told_status(status: &DescriptorStatus) -> ToldStatus<'_> {
    let limit = status.current_limit.as_ref().map(|limit| ToldLimit {
        name: &limit.name,
        requests_per_unit: limit.requests_per_unit,
        unit: Unit::try_from(limit.unit).unwrap_or(Unit::Unknown).as_str_name(),
    });
    ToldStatus {
        code: code(status.code),
        current_limit: limit,
        limit_remaining: status.limit_remaining,
        // Whole seconds are all that there ever is.
        duration_until_reset: status.duration_until_reset.as_ref().map(|reset| format!("{}s", reset.seconds)),
    }
}

fn code(number: i32) -> &'static str {
    Code::try_from(number).unwrap_or(Code::Unknown).as_str_name()
}
