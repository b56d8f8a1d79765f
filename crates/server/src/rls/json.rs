//! Envoy's rate limit service in JSON, by the mapping of proto3, for those who ask over plain HTTP.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use serde::Serialize;
use tidegate_policy::json::{FieldError, Fields, Raw, flag, list, quote, text, whole};
use tonic::Status;

use super::calls::decide;
use crate::protocol::Via;
use crate::service::Service;

const EXAMPLE: &str = r#"{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"42"}]}]}"#;

/// The answer to a message in JSON.
pub(crate) struct JsonAnswer {
    pub(crate) is_over_limit: bool,
    pub(crate) body: Vec<u8>,
}

/// Answers a message, in JSON. Whether the client may give units back is up to the caller.
pub(crate) async fn answer(service: &Service, via: Via<'_>, message: &RateLimitRequest) -> Result<JsonAnswer, Status> {
    let response = decide(service, via, message, false, None).await?;
    Ok(JsonAnswer {
        is_over_limit: response.overall_code == Code::OverLimit as i32,
        // Numbers and text always are JSON.
        body: serde_json::to_vec(&JsonResponse::of(&response)).unwrap_or_default(),
    })
}

/// Reads a message in JSON.
pub(crate) fn message(body: &str) -> Result<RateLimitRequest, FieldError> {
    let mut fields = Fields::parse("body", body, EXAMPLE)?;
    let domain = fields.text("domain", "use text")?.unwrap_or_default().into_owned();
    let descriptors = match fields.take("descriptors") {
        None => Vec::new(),
        Some(value) => {
            let items = list("descriptors", value.get(), r#"[{"entries":[{"key":"user","value":"42"}]}]"#)?;
            items.into_iter().map(descriptor).collect::<Result<_, _>>()?
        }
    };
    let hits_addend = match fields.take_either("hits_addend", "hitsAddend")? {
        None => 0,
        Some(value) => small("hitsAddend", value)?,
    };
    fields.finish("a RateLimitRequest")?;
    Ok(RateLimitRequest { domain, descriptors, hits_addend })
}

fn descriptor(value: Raw<'_>) -> Result<RateLimitDescriptor, FieldError> {
    let example = r#"{"entries":[{"key":"user","value":"42"}]}"#;
    let mut fields = Fields::parse("descriptors", value.get(), example)?;
    let entries = fields.take("entries").map(entries).transpose()?.unwrap_or_default();
    let limit = fields.take("limit").map(own_limit).transpose()?;
    let hits = fields.take_either("hits_addend", "hitsAddend")?;
    let hits_addend =
        hits.map(|value| Ok::<_, FieldError>(UInt64Value { value: large("hitsAddend", value)? })).transpose()?;
    let negative = fields.take_either("is_negative_hits", "isNegativeHits")?;
    let is_negative_hits = negative.map_or(Ok(false), |value| flag("isNegativeHits", value))?;
    fields.finish("a descriptor")?;
    Ok(RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits })
}

/// Reads the list of entries of a descriptor.
pub(crate) fn entries(value: Raw<'_>) -> Result<Vec<Entry>, FieldError> {
    let items = list("entries", value.get(), r#"[{"key":"user","value":"42"}]"#)?;
    items.into_iter().map(entry).collect()
}

fn entry(value: Raw<'_>) -> Result<Entry, FieldError> {
    let mut fields = Fields::parse("entries", value.get(), r#"{"key":"user","value":"42"}"#)?;
    let key = fields.text("key", "use text")?.unwrap_or_default().into_owned();
    let value = fields.text("value", "use text")?.unwrap_or_default().into_owned();
    fields.finish("an entry")?;
    Ok(Entry { key, value })
}

fn own_limit(value: Raw<'_>) -> Result<RateLimitOverride, FieldError> {
    let mut fields = Fields::parse("limit", value.get(), r#"{"requestsPerUnit":10,"unit":"MINUTE"}"#)?;
    let requests = fields.take_either("requests_per_unit", "requestsPerUnit")?;
    let requests_per_unit = requests.map_or(Ok(0), |value| small("requestsPerUnit", value))?;
    let remedy = "use SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR";
    let unit = match fields.take("unit") {
        None => 0,
        Some(value) if value.get().starts_with('"') => {
            let name = text("unit", value, remedy)?;
            let unit = RateLimitUnit::from_str_name(&name);
            unit.ok_or_else(|| FieldError::new("unit", format_args!("{} is unknown", quote(&name)), remedy))? as i32
        }
        Some(value) => i32::try_from(small("unit", value)?).unwrap_or(i32::MAX),
    };
    fields.finish("a limit")?;
    Ok(RateLimitOverride { requests_per_unit, unit })
}

fn small(name: &str, value: Raw<'_>) -> Result<u32, FieldError> {
    let number = large(name, value)?;
    let remedy = format_args!("use at most {}", u32::MAX);
    u32::try_from(number).map_err(|_| FieldError::new(name, format_args!("{number} is too large"), remedy))
}

/// A number, which protojson also writes as text.
fn large(name: &str, value: Raw<'_>) -> Result<u64, FieldError> {
    match value.get().starts_with('"') {
        true => whole(name, &text(name, value, "use a number")?, "use a number"),
        false => whole(name, value.get(), "use a number"),
    }
}

/// The answer; as protojson has it, fields that are zero are left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonResponse<'a> {
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<JsonStatus<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<JsonHeader<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonStatus<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<JsonLimit<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonLimit<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    unit: &'static str,
}

#[derive(Serialize)]
struct JsonHeader<'a> {
    key: &'a str,
    value: &'a str,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl<'a> JsonResponse<'a> {
    fn of(answer: &'a RateLimitResponse) -> JsonResponse<'a> {
        let headers = answer.response_headers_to_add.iter();
        JsonResponse {
            overall_code: code(answer.overall_code),
            statuses: answer.statuses.iter().map(json_status).collect(),
            response_headers_to_add: headers.map(|one| JsonHeader { key: &one.key, value: &one.value }).collect(),
        }
    }
}

fn json_status(status: &DescriptorStatus) -> JsonStatus<'_> {
    let limit = status.current_limit.as_ref().map(|limit| JsonLimit {
        name: &limit.name,
        requests_per_unit: limit.requests_per_unit,
        unit: Unit::try_from(limit.unit).unwrap_or(Unit::Unknown).as_str_name(),
    });
    JsonStatus {
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
