//! From an outcome to Envoy's message.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{self, ListValue, Struct};
use tidegate_core::Time;
use tidegate_engine::{Answer, Judgement, Outcome};
use tidegate_policy::Shown;

use super::unit::Unit;
use crate::headers;

/// The answer to a request of this many descriptors.
pub(super) fn response(outcome: &Outcome, descriptors: usize, now: Time, with_metadata: bool) -> RateLimitResponse {
    let code = if outcome.is_allowed() { Code::Ok } else { Code::OverLimit };
    let is_hidden = headers::is_hidden_denial(outcome);
    let mut headers: Vec<HeaderValue> =
        headers::headers(outcome, None, now).into_iter().map(|(key, value)| header(key, value)).collect();
    let body = if wants_problem(outcome) { headers::problem(outcome).and_then(|(_, body)| body) } else { None };
    if body.is_some() {
        headers.push(header("content-type", headers::PROBLEM_TYPE.to_owned()));
    }
    RateLimitResponse {
        overall_code: code as i32,
        statuses: (0..descriptors)
            .map(|number| status(outcome.strictest_by_itself(number).as_ref(), is_hidden, now))
            .collect(),
        response_headers_to_add: headers,
        raw_body: body.map_or_else(Vec::new, String::into_bytes),
        dynamic_metadata: if with_metadata { metadata(outcome) } else { None },
        ..Default::default()
    }
}

/// Whether a rule that denies says that there shall be a problem body. Without a word of it Envoy writes its own body.
fn wants_problem(outcome: &Outcome) -> bool {
    let is_denied = outcome.denial().is_some();
    is_denied && outcome.judgements().any(|one| one.denies() && headers::options(&one).problem == Some(true))
}

/// Envoy ignores `raw_value`.
fn header(key: &str, value: String) -> HeaderValue {
    HeaderValue { key: key.to_owned(), value, ..Default::default() }
}

/// What the strictest limit of a descriptor says of it. A spent quota is over its limit also where the request passes, as the
/// reference server has it.
fn status(judgement: Option<&Judgement<'_>>, is_hidden: bool, now: Time) -> DescriptorStatus {
    let ok = DescriptorStatus { code: Code::Ok as i32, ..Default::default() };
    let Some(judgement) = judgement else { return ok };
    let code = if judgement.is_over() { Code::OverLimit } else { Code::Ok } as i32;
    if is_hidden || headers::options(judgement).hidden {
        return DescriptorStatus { code, ..ok };
    }
    let limit_remaining = match &judgement.answer {
        Answer::Unlimited => return DescriptorStatus { code, limit_remaining: u32::MAX, ..ok },
        // Nothing is known of a limit whose store did not answer, or was not asked.
        Answer::Failed { allowed: true } | Answer::NotAsked => return ok,
        Answer::Decided(decision) if decision.is_allowed() => clamp(decision.remaining()),
        Answer::Decided(_)
        | Answer::Penalised(_)
        | Answer::Blocked
        | Answer::Failed { allowed: false }
        | Answer::CostFailed
        | Answer::Overloaded => 0,
    };
    DescriptorStatus {
        code,
        current_limit: judgement.shown.map(|shown| current_limit(judgement, shown)),
        limit_remaining,
        duration_until_reset: until_reset(judgement, now).map(whole_seconds),
        quota: None,
    }
}

fn name_to_envoy<'a>(judgement: &Judgement<'a>) -> Option<&'a str> {
    match judgement.limit {
        Some(limit) => limit.is_named_to_envoy.then_some(&limit.name),
        None => Some(&judgement.rule?.report_as.as_ref()?.name),
    }
}

fn current_limit(judgement: &Judgement<'_>, shown: Shown) -> RateLimit {
    RateLimit {
        name: name_to_envoy(judgement).unwrap_or_default().to_owned(),
        requests_per_unit: clamp(shown.units),
        unit: Unit::number_of(shown.period_ns),
    }
}

/// Until when the numbers hold: on a denial until the request would pass, else until the limit is as if never used.
fn until_reset(judgement: &Judgement<'_>, now: Time) -> Option<Duration> {
    match &judgement.answer {
        Answer::Decided(decision) => {
            let denies = !decision.is_allowed();
            Some(headers::wait(&headers::limit(judgement)?, judgement.phase, decision, denies, || now))
        }
        Answer::Penalised(left) => Some(*left),
        // No window lets a key pass that is too long for a limit.
        Answer::Blocked if headers::limit(judgement).is_some() => None,
        // A limit of no units has windows like any other.
        Answer::Blocked => {
            let period = judgement.shown?.period_ns.max(1);
            Some(Duration::from_nanos(period - now.as_nanos() % period))
        }
        Answer::Failed { .. } | Answer::Overloaded => judgement.answer.retry_after(),
        // The same request has the same cost.
        Answer::CostFailed | Answer::Unlimited | Answer::NotAsked => None,
    }
}

/// Envoy cuts off what is less than a second, so it is rounded up here.
fn whole_seconds(duration: Duration) -> protobuf::Duration {
    protobuf::Duration { seconds: i64::try_from(headers::seconds(duration)).unwrap_or(i64::MAX), nanos: 0 }
}

fn clamp(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// The metadata of all rules that judged, joined: of two rules that set the same field, the first one counts. What is no
/// map stands under the name of its rule.
fn metadata(outcome: &Outcome) -> Option<Struct> {
    let mut fields = std::collections::HashMap::new();
    for rule in outcome.judgements().filter_map(|judgement| judgement.rule) {
        match &rule.metadata {
            None => {}
            Some(serde_json::Value::Object(members)) => {
                for (name, member) in members {
                    fields.entry(name.clone()).or_insert_with(|| value(member));
                }
            }
            Some(other) => {
                fields.entry(rule.name.to_string()).or_insert_with(|| value(other));
            }
        }
    }
    (!fields.is_empty()).then_some(Struct { fields })
}

/// Files cannot nest deeply enough to make this recursion a danger: their reader has a bound.
fn value(json: &serde_json::Value) -> protobuf::Value {
    use serde_json::Value;
    let kind = match json {
        Value::Null => Kind::NullValue(0),
        Value::Bool(is_so) => Kind::BoolValue(*is_so),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => Kind::ListValue(ListValue { values: values.iter().map(value).collect() }),
        Value::Object(members) => {
            let fields = members.iter().map(|(name, member)| (name.clone(), value(member))).collect();
            Kind::StructValue(Struct { fields })
        }
    };
    protobuf::Value { kind: Some(kind) }
}
