//! From Envoy's message to a request.

use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use tidegate_core::bounds::INTERVAL_NANOS_MIN;
use tidegate_core::{Limit, LimitError};
use tidegate_policy::{Ask, Descriptor, Entry, OwnLimit, Request, Shown};
use tonic::Status;

use super::unit::Unit;

/// Why a message is not a request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("domain: empty; set the domain of the rules")]
    NoDomain,
    #[error("descriptors: none; give at least one")]
    NoDescriptors,
    #[error("descriptors[{descriptor}].limit.unit: {unit} is not a unit; use SECOND (1) to WEEK (7)")]
    Unit { descriptor: usize, unit: i32 },
    #[error("descriptors[{descriptor}].limit.requests_per_unit: {error}")]
    Limit { descriptor: usize, error: LimitError },
}

impl From<DecodeError> for Status {
    fn from(error: DecodeError) -> Status {
        Status::invalid_argument(error.to_string())
    }
}

/// The entries of all descriptors, one after the other.
pub(super) fn entries(message: &RateLimitRequest) -> Vec<Entry<'_>> {
    let entries = message.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    entries.map(|entry| Entry { key: &entry.key, value: &entry.value }).collect()
}

/// The descriptors, over what [`entries`] gave.
pub(super) fn descriptors<'a>(
    message: &RateLimitRequest,
    mut entries: &'a [Entry<'a>],
) -> Result<Vec<Descriptor<'a>>, DecodeError> {
    let mut descriptors = Vec::with_capacity(message.descriptors.len());
    for (number, descriptor) in message.descriptors.iter().enumerate() {
        let (own, rest) = entries.split_at_checked(descriptor.entries.len()).unwrap_or_default();
        entries = rest;
        let limit = descriptor.limit.as_ref().map(|limit| own_limit(number, limit)).transpose()?;
        descriptors.push(Descriptor { entries: own, ask: ask(descriptor, cost(message)), limit });
    }
    Ok(descriptors)
}

/// The request, over what [`descriptors`] gave.
pub(super) fn request<'a>(
    message: &'a RateLimitRequest,
    descriptors: &'a [Descriptor<'a>],
) -> Result<Request<'a>, DecodeError> {
    if message.domain.is_empty() {
        return Err(DecodeError::NoDomain);
    }
    if descriptors.is_empty() {
        return Err(DecodeError::NoDescriptors);
    }
    Ok(Request { domain: &message.domain, descriptors, http: None, cost: cost(message) })
}

/// The number of the first descriptor that gives units back, if there is one.
pub(crate) fn gives_back(message: &RateLimitRequest) -> Option<usize> {
    message.descriptors.iter().position(|descriptor| descriptor.is_negative_hits)
}

/// Of the whole message 0 cannot be told from nothing, and counts 1.
fn cost(message: &RateLimitRequest) -> u64 {
    u64::from(message.hits_addend.max(1))
}

/// Of a descriptor 0 was written by intent, and looks without taking.
fn ask(descriptor: &RateLimitDescriptor, cost: u64) -> Option<Ask> {
    let hits = descriptor.hits_addend.as_ref().map(|hits| hits.value);
    if descriptor.is_negative_hits { Some(Ask::Refund(hits.unwrap_or(cost))) } else { hits.map(Ask::Take) }
}

fn own_limit(descriptor: usize, limit: &RateLimitOverride) -> Result<OwnLimit, DecodeError> {
    let unit = Unit::from_number(limit.unit).ok_or(DecodeError::Unit { descriptor, unit: limit.unit })?;
    // As in files of the reference server, more than can be counted in that time is as much as can.
    let units = u64::from(limit.requests_per_unit).min(unit.nanos() / INTERVAL_NANOS_MIN);
    let shown = Shown { units, period_ns: unit.nanos() };
    if units == 0 {
        return Ok(OwnLimit { limit: None, shown });
    }
    let limit = Limit::fixed_window(units, Duration::from_nanos(unit.nanos()))
        .map_err(|error| DecodeError::Limit { descriptor, error })?;
    Ok(OwnLimit { limit: Some(limit), shown })
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry as WireEntry;
    use envoy_types::pb::google::protobuf::UInt64Value;

    fn message(hits_addend: u32, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
        RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend }
    }

    fn descriptor(names: &[&str]) -> RateLimitDescriptor {
        let entries = names.iter().map(|name| WireEntry { key: (*name).to_owned(), value: format!("{name}-value") });
        RateLimitDescriptor { entries: entries.collect(), ..Default::default() }
    }

    /// What a message decodes to, as text.
    fn check(message: &RateLimitRequest) -> String {
        let entries = entries(message);
        let descriptors = match descriptors(message, &entries) {
            Ok(descriptors) => descriptors,
            Err(error) => return error.to_string(),
        };
        let request = match request(message, &descriptors) {
            Ok(request) => request,
            Err(error) => return error.to_string(),
        };
        let mut text = format!("cost {}", request.cost);
        for descriptor in request.descriptors {
            let names: Vec<&str> = descriptor.entries.iter().map(|entry| entry.key).collect();
            text += &format!("; {} {:?}", names.join("+"), descriptor.ask);
            if let Some(own) = descriptor.limit {
                let algorithm = own.limit.map(|limit| limit.algorithm());
                text += &format!(" {}/{}s {algorithm:?}", own.shown.units, own.shown.period_ns / 1_000_000_000);
            }
        }
        text
    }

    #[test]
    fn entries_go_to_their_descriptors() {
        let three = vec![descriptor(&["a", "b"]), descriptor(&[]), descriptor(&["c"])];
        assert_eq!(check(&message(0, three)), "cost 1; a+b None;  None; c None");
    }

    #[test]
    fn hits() {
        let with = |value: Option<u64>, is_negative_hits| RateLimitDescriptor {
            hits_addend: value.map(|value| UInt64Value { value }),
            is_negative_hits,
            ..descriptor(&["a"])
        };
        for (of_message, of_descriptor, is_negative, expected) in [
            (0, None, false, "cost 1; a None"),
            (7, None, false, "cost 7; a None"),
            (7, Some(0), false, "cost 7; a Some(Take(0))"),
            (0, Some(u64::MAX), false, "cost 1; a Some(Take(18446744073709551615))"),
            (7, Some(3), true, "cost 7; a Some(Refund(3))"),
            (7, None, true, "cost 7; a Some(Refund(7))"),
        ] {
            assert_eq!(check(&message(of_message, vec![with(of_descriptor, is_negative)])), expected);
        }
    }

    #[test]
    fn limits_that_requests_bring() {
        let mut table = String::new();
        for (requests_per_unit, unit) in
            [(5, 0), (5, 1), (5, 2), (5, 3), (5, 4), (5, 5), (5, 6), (5, 7), (5, 8), (5, -1), (0, 2), (u32::MAX, 1)]
        {
            let limit = Some(RateLimitOverride { requests_per_unit, unit });
            let with = RateLimitDescriptor { limit, ..descriptor(&["a"]) };
            table +=
                &format!("{requests_per_unit} in {unit}: {}\n", check(&message(0, vec![descriptor(&["z"]), with])));
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn what_lacks_is_named() {
        let nameless = RateLimitRequest { domain: String::new(), ..message(0, vec![descriptor(&["a"])]) };
        assert_eq!(check(&nameless), DecodeError::NoDomain.to_string());
        assert_eq!(check(&message(0, vec![])), DecodeError::NoDescriptors.to_string());
    }
}
