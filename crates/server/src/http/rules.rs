//! Rules as they stand, and the switch that takes one out of force.

use http::StatusCode;
use serde::Serialize;
use tidegate_engine::{Counts, RuleView};
use tidegate_policy::{Action, Mode, Rule};

use super::answer::{Answered, Failure, json, quote};
use super::body::{Fields, utf8};
use super::guard::Admin;
use super::query::decode;
use super::routes::Parameters;
use crate::service::Service;

const MODES: &str = "use enforce, shadow, off or configured";

#[derive(Serialize)]
struct List<'a> {
    hash: &'a str,
    rules: Vec<Listed<'a>>,
}

#[derive(Serialize)]
struct Listed<'a> {
    domain: &'a str,
    name: &'a str,
    action: Action,
    mode: Mode,
    configured_mode: Mode,
    limits: Vec<ListedLimit<'a>>,
    counts: ListedCounts,
}

#[derive(Serialize)]
struct ListedLimit<'a> {
    name: &'a str,
    algorithm: &'static str,
    units: u64,
    period_ns: u64,
    burst: u64,
}

/// Requests first, then units.
#[derive(Serialize)]
struct ListedCounts {
    allowed: u64,
    denied: u64,
    shadow_denied: u64,
    store_failed: u64,
    hits: u64,
    over_limit: u64,
    near_limit: u64,
    within_limit: u64,
    shadow: u64,
    reported: u64,
}

impl From<Counts> for ListedCounts {
    fn from(counts: Counts) -> ListedCounts {
        ListedCounts {
            allowed: counts.allowed,
            denied: counts.denied,
            shadow_denied: counts.shadow_denied,
            store_failed: counts.failed,
            hits: counts.hits,
            over_limit: counts.over_limit,
            near_limit: counts.near_limit,
            within_limit: counts.within_limit,
            shadow: counts.shadow,
            reported: counts.reported,
        }
    }
}

/// All rules with what they counted.
pub(super) fn page(service: &Service) -> Vec<u8> {
    let policy = service.engine.policy();
    let rules = policy.views().map(|(rule, view)| listed(rule, &view)).collect();
    // Numbers and text always are JSON.
    serde_json::to_vec(&List { hash: policy.hash(), rules }).unwrap_or_default()
}

fn listed<'a>(rule: &'a Rule, view: &RuleView) -> Listed<'a> {
    let limits = rule.limits.iter().map(|limit| ListedLimit {
        name: &limit.name,
        algorithm: limit.limit.algorithm().name(),
        units: limit.shown.units,
        period_ns: limit.shown.period_ns,
        burst: limit.limit.units(),
    });
    Listed {
        domain: &rule.domain,
        name: &rule.name,
        action: rule.action,
        mode: view.mode,
        configured_mode: view.configured.unwrap_or(view.mode),
        limits: limits.collect(),
        counts: view.counts.into(),
    }
}

#[derive(Serialize)]
struct Switched<'a> {
    domain: &'a str,
    rule: &'a str,
    mode: Mode,
}

/// Switches a rule: the parameters are its domain and its name, still encoded.
pub(super) fn set_mode(admin: &Admin, service: &Service, [domain, rule]: Parameters<'_>, body: &[u8]) -> Answered {
    let (domain, rule) = (decode(domain, false)?, decode(rule, false)?);
    let mut fields = Fields::parse("body", utf8(body)?, r#"{"mode":"shadow"}"#)?;
    let name = fields.text("mode", MODES)?.ok_or_else(|| Failure::bad("mode", "missing", MODES))?;
    fields.finish("this call")?;
    let mode = match &*name {
        "enforce" => Some(Mode::Enforce),
        "shadow" => Some(Mode::Shadow),
        "off" => Some(Mode::Off),
        "configured" => None,
        other => return Err(Failure::bad("mode", format_args!("{} is unknown", quote(other)), MODES)),
    };
    let set = service.engine.set_mode(&domain, &rule, mode);
    let unknown = |error| Failure::new(StatusCode::NOT_FOUND, format!("{error}; GET /v1/rules lists them"));
    let mode = set.map_err(unknown)?;
    let (who, asked) = (admin.who, &*name);
    tracing::info!(target: "tidegate::admin", client = %who, ?domain, ?rule, requested = asked, ?mode, "rule mode changed");
    Ok(json(StatusCode::OK, &Switched { domain: &domain, rule: &rule, mode }))
}
