//! What administrators do to keys: look, reset, give back, block, unblock.

use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use tidegate_core::{Op, Snapshot, Time};
use tidegate_engine::bounds::{COST_MAX, PENALTY_SECONDS_MAX};
use tidegate_engine::{Inspected, InspectedLimit, Unblocked};
use tidegate_policy::{Request, read_duration, refused_name};

use super::answer::{Answered, Failure, json, quote};
use super::asked::{self, Asked, Inline, Subject};
use super::body::{Fields, text, utf8};
use super::check::unknown_domain;
use super::guard::Admin;
use super::told::nanos;
use crate::service::Service;
use tidegate_policy::json::shortened;

const EXAMPLE: &str = r#"{"domain":"api","descriptors":[{"user":"42"}]} or {"key":"user:42","limit":"100/minute"}"#;

/// Nothing was changed because there was nothing to change, and who asked for it must not think otherwise.
fn some(limits: usize) -> Result<usize, Failure> {
    let detail = "descriptors: no rule counts this request, so nothing was changed; name the entries and the request \
                  that a limit of the domain counts by (GET /v1/rules lists them)";
    if limits == 0 { Err(Failure::new(StatusCode::NOT_FOUND, detail)) } else { Ok(limits) }
}

/// Makes a request of a subject and does something with it, if there are rules under its domain.
macro_rules! on_rules {
    ($service:expr, $subject:expr, |$request:ident| $work:expr) => {{
        let entries = $subject.entries();
        let descriptors = $subject.descriptors(&entries);
        let described = $subject.http();
        let http = described.as_ref().map(|(http, address)| http.http(*address));
        let $request = known($service, $subject.request(&descriptors, http.as_ref()))?;
        $work
    }};
}

/// How many limits something was done to.
#[derive(Serialize)]
struct Done {
    limits: usize,
}

/// How many limits apply to a request, and how many of them had a block or penalty.
#[derive(Serialize)]
struct Lifted {
    limits: usize,
    lifted: usize,
}

#[derive(Serialize)]
struct Inspection {
    now: String,
    now_ns: u64,
    rules: Vec<ToldRule>,
}

#[derive(Serialize)]
struct ToldRule {
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<Box<str>>,
    penalised_ns: Option<u64>,
    limits: Vec<ToldLimit>,
}

#[derive(Serialize)]
struct ToldLimit {
    name: Box<str>,
    limit: u64,
    remaining: u64,
    reset_after_ns: u64,
    /// What a log remembers, oldest first.
    entries: Vec<ToldEntry>,
}

#[derive(Serialize)]
struct ToldEntry {
    at: String,
    at_ns: u64,
    units: u64,
}

/// What is known of keys, with the entries of their logs.
pub(super) async fn inspect(service: &Service, body: &[u8]) -> Answered {
    let mut fields = Fields::parse("body", utf8(body)?, EXAMPLE)?;
    let asked = Asked::take_for("inspect", "leave it out", &mut fields, service)?;
    fields.finish("inspect")?;
    let now = service.engine.clock().now();
    let rules = match asked {
        Asked::Inline(inline) => {
            let snapshot = service.engine.inspect_key(inline.key.as_bytes(), &inline.limit).await?;
            let limits = vec![told_limit(InspectedLimit { name: (*inline.name).into(), snapshot })];
            vec![ToldRule { rule: None, penalised_ns: None, limits }]
        }
        Asked::Rules(subject) => {
            let found = on_rules!(service, subject, |request| service.engine.inspect(&request).await?);
            found.into_iter().map(told_rule).collect()
        }
    };
    Ok(json(StatusCode::OK, &Inspection { now: rfc3339(now), now_ns: now.as_nanos(), rules }))
}

/// Forgets keys, and their penalties.
pub(super) async fn reset(admin: &Admin, service: &Service, body: &[u8]) -> Answered {
    let mut fields = Fields::parse("body", utf8(body)?, EXAMPLE)?;
    let asked = Asked::take_for("reset", "leave it out", &mut fields, service)?;
    fields.finish("reset")?;
    let limits = match &asked {
        Asked::Inline(inline) => on_key(service, "reset", inline, Op::Reset).await?,
        Asked::Rules(subject) => on_rules!(service, subject, |request| some(service.engine.reset(&request).await?)?),
    };
    log(admin, "reset", &asked, limits);
    Ok(json(StatusCode::OK, &Done { limits }))
}

/// Gives units back.
pub(super) async fn grant(admin: &Admin, service: &Service, body: &[u8]) -> Answered {
    let mut fields = Fields::parse("body", utf8(body)?, EXAMPLE)?;
    let asked = Asked::take_for("grant", "set units instead", &mut fields, service)?;
    let units = units(&mut fields)?;
    fields.finish("grant")?;
    let limits = match &asked {
        Asked::Inline(inline) => on_key(service, "grant", inline, Op::Refund(units, None)).await?,
        Asked::Rules(subject) => {
            on_rules!(service, subject, |request| some(service.engine.grant(&request, units).await?)?)
        }
    };
    log(admin, "grant", &asked, limits);
    Ok(json(StatusCode::OK, &Done { limits }))
}

/// Denies keys for a time, whatever their count.
pub(super) async fn block(admin: &Admin, service: &Service, body: &[u8]) -> Answered {
    let mut fields = Fields::parse("body", utf8(body)?, EXAMPLE)?;
    let asked = Asked::take_for("block", "leave it out", &mut fields, service)?;
    let duration = duration(&mut fields)?;
    fields.finish("block")?;
    let subject = of_rules(&asked)?;
    let limits = on_rules!(service, subject, |request| some(service.engine.block(&request, duration).await?)?);
    log(admin, "block", &asked, limits);
    Ok(json(StatusCode::OK, &Done { limits }))
}

/// Lifts blocks and penalties of keys, and leaves their counts as they are.
pub(super) async fn unblock(admin: &Admin, service: &Service, body: &[u8]) -> Answered {
    let mut fields = Fields::parse("body", utf8(body)?, EXAMPLE)?;
    let asked = Asked::take_for("unblock", "leave it out", &mut fields, service)?;
    fields.finish("unblock")?;
    let subject = of_rules(&asked)?;
    let Unblocked { limits, lifted } = on_rules!(service, subject, |request| service.engine.unblock(&request).await?);
    log(admin, "unblock", &asked, some(limits)?);
    Ok(json(StatusCode::OK, &Lifted { limits, lifted }))
}

/// Returns the entries of a request; an error if it brings a limit of its own, which has no blocks.
fn of_rules<'s, 'a>(asked: &'s Asked<'a>) -> Result<&'s Subject<'a>, Failure> {
    match asked {
        Asked::Rules(subject) => Ok(subject),
        Asked::Inline(_) => {
            Err(Failure::bad("key", "only keys of rules can be blocked", "send domain and descriptors instead"))
        }
    }
}

fn known<'a>(service: &Service, request: Request<'a>) -> Result<Request<'a>, Failure> {
    match service.engine.policy().domain(request.domain) {
        Some(_) => Ok(request),
        None => Err(unknown_domain(request.domain)),
    }
}

async fn on_key(service: &Service, call: &str, inline: &Inline<'_>, op: Op) -> Result<usize, Failure> {
    if inline.is_named {
        return Err(refused_name("limit.name", &inline.name, call).into());
    }
    service.engine.administer(inline.key.as_bytes(), &inline.limit, op).await?;
    Ok(1)
}

fn units(fields: &mut Fields<'_>) -> Result<u64, Failure> {
    let remedy = format_args!("use 1 to {COST_MAX} units");
    match fields.whole("units", remedy)? {
        Some(units @ 1..=COST_MAX) => Ok(units),
        Some(units) => Err(Failure::bad("units", format_args!("{units} is out of bounds"), remedy)),
        None => Err(Failure::bad("units", "missing", remedy)),
    }
}

/// Reads `"duration": "10m"`, or seconds as a number.
fn duration(fields: &mut Fields<'_>) -> Result<Duration, Failure> {
    let remedy = r#"write "10m" or seconds as a number, up to 100 years"#;
    if fields.has("for") {
        return Err(Failure::bad("for", "unknown field", r#"write "duration" instead, like "duration":"10m""#));
    }
    let value = fields.need("duration", remedy)?;
    let duration = match value.get().starts_with('"') {
        true => read_duration(&text("duration", value, remedy)?),
        false => Some(Duration::from_secs(super::query::whole("duration", value.get(), remedy)?)),
    };
    match duration {
        Some(duration) if !duration.is_zero() && duration <= Duration::from_secs(PENALTY_SECONDS_MAX) => Ok(duration),
        _ => Err(Failure::bad("duration", format_args!("{} is not a valid duration", quote(value.get())), remedy)),
    }
}

fn log(admin: &Admin, action: &'static str, asked: &Asked<'_>, limits: usize) {
    let (domain, what, request) = match asked {
        Asked::Inline(Inline { key, .. }) => (String::new(), shortened(key), None),
        Asked::Rules(Subject { domain, descriptors, http, .. }) => (
            shortened(domain),
            shortened(&format!("{descriptors:?}")),
            http.as_ref().map(asked::DescribedHttp::in_brief),
        ),
    };
    // Debug escapes what could break a line.
    let request = request.map(tracing::field::debug);
    tracing::info!(target: "tidegate::admin", client = %admin.who, action, domain, key = ?what, request, limits, "keys changed");
}

fn told_rule(inspected: Inspected) -> ToldRule {
    ToldRule {
        rule: Some(inspected.rule),
        penalised_ns: inspected.penalised.map(nanos),
        limits: inspected.limits.into_iter().map(told_limit).collect(),
    }
}

fn told_limit(inspected: InspectedLimit) -> ToldLimit {
    let Snapshot { decision, entries } = inspected.snapshot;
    let told = |at: Time, units| ToldEntry { at: rfc3339(at), at_ns: at.as_nanos(), units };
    ToldLimit {
        name: inspected.name,
        limit: decision.limit(),
        remaining: decision.remaining(),
        reset_after_ns: nanos(decision.reset_after()),
        entries: entries.into_iter().map(|entry| told(entry.at, entry.units)).collect(),
    }
}

/// An instant as RFC 3339 has it, in UTC.
pub(super) fn rfc3339(time: Time) -> String {
    const NANOS_PER_SECOND: u64 = tidegate_core::bounds::NANOS_PER_SECOND;
    let (seconds, nanos) = (time.as_nanos() / NANOS_PER_SECOND, time.as_nanos() % NANOS_PER_SECOND);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years are counted from March on, so that a leap day is the last of its year; 719,468 days lie between
    // 0000-03-01 and the epoch, and the calendar repeats every 146,097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants() {
        let cases = [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (951_868_799, "2000-02-29T23:59:59.000000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000000Z"),
            (1_700_000_000, "2023-11-14T22:13:20.000000000Z"),
            (1_704_067_199, "2023-12-31T23:59:59.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(rfc3339(Time::from_nanos(seconds * 1_000_000_000)), expected);
        }
        assert!(rfc3339(Time::MAX).starts_with("2262-04-11T23:47:16."));
    }
}
