//! `/metrics`: what was counted, as Prometheus reads it (text format 0.0.4).
//!
//! The names of the reference server stand beside our own, so that its dashboards and alerts go on working. The number
//! of series is bounded: by the rules of the configuration and by the engine's bound on values of entries.

use std::collections::BTreeMap;

use tidegate_engine::exposition::{self, Page};
use tidegate_engine::{CALL_TIME_BOUNDS, CallTimes, Counts, RuleView, StoreView, Totals};
use tidegate_policy::{Action, Mode};

use crate::decision_log::DecisionLog;
use crate::protocol::Protocol;
use crate::service::Service;
use crate::traffic::{TIME_BOUNDS, TimesTold};

pub(super) const KIND: &str = exposition::CONTENT_TYPE;

/// Our own names.
pub(super) const DECISIONS: &str = "tidegate_decisions_total";
pub(super) const STORE_FAILURES: &str = "tidegate_store_failures_total";
pub(super) const OVERLOADED: &str = "tidegate_overloaded_total";
pub(super) const REPORTED_UNITS: &str = "tidegate_reported_units_total";
pub(super) const RULE_MODE: &str = "tidegate_rule_mode";
pub(super) const REQUESTS: &str = "tidegate_requests_total";
pub(super) const HTTP_RESPONSES: &str = "tidegate_http_responses_total";
pub(super) const RESPONSE_TIME: &str = "tidegate_response_time_seconds";
pub(super) const UNKNOWN_DOMAINS: &str = "tidegate_unknown_domain_total";
pub(super) const UNMATCHED: &str = "tidegate_unmatched_total";
pub(super) const CONNECTIONS: &str = "tidegate_connections";
pub(super) const REFUSED: &str = "tidegate_connections_refused_total";
pub(super) const EVICTED: &str = "tidegate_connections_evicted_total";
pub(super) const TLS_FAILURES: &str = "tidegate_tls_failures_total";
pub(super) const AUTH_FAILURES: &str = "tidegate_auth_failures_total";
pub(super) const CONFIG_LOADS: &str = "tidegate_config_loads_total";
pub(super) const POLICY: &str = "tidegate_policy_info";
pub(super) const POLICY_LOADED: &str = "tidegate_policy_loaded_seconds";
pub(super) const CERTIFICATE_LOADS: &str = "tidegate_certificate_loads_total";
pub(super) const CERTIFICATE_END: &str = "tidegate_certificate_end_seconds";
pub(super) const EXPRESSION_ERRORS: &str = "tidegate_expression_errors_total";
const NO_LOG_ROOM: &str = "tidegate_log_entries_without_room_total";
const UNDECIDED: &str = "tidegate_undecided_total";
const FALLBACKS: &str = "tidegate_fallbacks_total";
const CALLERS_OVERLOADED: &str = "tidegate_overloaded_callers_total";
const STORE: &str = "tidegate_store_info";
const STORE_BREAKER: &str = "tidegate_store_breaker";
const STORE_CONNECTIONS: &str = "tidegate_store_connections";
const STORE_CALLS: &str = "tidegate_store_calls_total";
const STORE_JOINED: &str = "tidegate_store_joined_calls_total";
const STORE_SPARED: &str = "tidegate_store_spared_total";
const STORE_AWAY: &str = "tidegate_store_away_charges_total";
const STORE_NODES: &str = "tidegate_store_nodes";
const STORE_EVENTS: &str = "tidegate_store_events_total";
const STORE_TIME: &str = "tidegate_store_call_time_seconds";
const STORE_WAIT: &str = "tidegate_store_wait_time_seconds";
const PERMITS: &str = "tidegate_permits_total";
const PERMITS_HELD: &str = "tidegate_permits_in_memory";
pub(super) const LINES_DROPPED: &str = "tidegate_log_dropped_total";
pub(super) const LOG_DROPPED: &str = "tidegate_decision_log_dropped_total";
pub(super) const READY: &str = "tidegate_ready";
pub(super) const BUILD: &str = "tidegate_build_info";

/// A name, what it means, and where its count is.
type OfRule = (&'static str, &'static str, fn(&Counts) -> u64);

/// Those of the reference server.
const REFERENCE_RULES: [OfRule; 6] = [
    ("ratelimit_service_rate_limit_total_hits", "Units requested.", |counts| counts.hits),
    ("ratelimit_service_rate_limit_over_limit", "Units requested beyond the limit.", |counts| counts.over_limit),
    ("ratelimit_service_rate_limit_near_limit", "Units taken above 80 % of the limit.", |counts| counts.near_limit),
    ("ratelimit_service_rate_limit_within_limit", "Units taken.", |counts| counts.within_limit),
    ("ratelimit_service_rate_limit_shadow_mode", "Units beyond the limit that passed in shadow mode.", |counts| {
        counts.shadow
    }),
    ("ratelimit_service_rate_limit_over_limit_with_local_cache", "Always 0: there is no local cache.", |_| 0),
];
pub(super) const REFERENCE_REQUESTS: &str = "ratelimit_service_total_requests";
pub(super) const REFERENCE_TIME: &str = "ratelimit_service_response_time_seconds";
pub(super) const REFERENCE_ERRORS: &str = "ratelimit_service_should_rate_limit_error";
pub(super) const REFERENCE_LOADS: &str = "ratelimit_service_config_load_success";
pub(super) const REFERENCE_LOAD_ERRORS: &str = "ratelimit_service_config_load_error";

/// The label of what concerns calls of Envoy.
const METHOD: (&str, &str) = ("grpc_method", "ShouldRateLimit");

/// Everything that was counted.
pub(super) fn page(service: &Service) -> String {
    let mut page = Page::default();
    let views = service.engine.rules();
    rules(&mut page, &views);
    stores(&mut page, service);
    permits(&mut page, service);
    traffic(&mut page, service);
    connections(&mut page, service);
    configuration(&mut page, service);
    process(&mut page, service);
    reference(&mut page, service, &views);
    page.into_text()
}

fn rules(page: &mut Page, views: &[RuleView]) {
    page.head(DECISIONS, "counter", "Requests decided by a rule, by verdict.");
    for view in views {
        for (verdict, count) in [
            ("allowed", view.counts.allowed),
            ("denied", view.counts.denied),
            ("shadow_denied", view.counts.shadow_denied),
        ] {
            page.line(DECISIONS, &[("domain", &view.domain), ("rule", &view.name), ("verdict", verdict)], count);
        }
    }
    page.head(STORE_FAILURES, "counter", "Requests decided by a rule without its store, which did not answer.");
    for view in views {
        page.line(STORE_FAILURES, &[("domain", &view.domain), ("rule", &view.name)], view.counts.failed);
    }
    page.head(OVERLOADED, "counter", "Requests that a rule could not decide because this node was overloaded.");
    for view in views {
        page.line(OVERLOADED, &[("domain", &view.domain), ("rule", &view.name)], view.counts.overloaded);
    }
    page.head(REPORTED_UNITS, "counter", "Units that a rule counted from responses.");
    for view in views {
        page.line(REPORTED_UNITS, &[("domain", &view.domain), ("rule", &view.name)], view.counts.reported);
    }
    page.head(RULE_MODE, "gauge", "The current mode of a rule: the one with the value 1.");
    for view in views {
        let action = match view.action {
            Action::Limit => "limit",
            Action::Block => "block",
            Action::Unlimited => "unlimited",
        };
        for (name, mode) in [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)] {
            let labels = [("domain", &*view.domain), ("rule", &*view.name), ("mode", name), ("action", action)];
            page.line(RULE_MODE, &labels, u64::from(view.mode == mode));
        }
    }
}

/// Stores that several processes share. Without any, the names stand there without lines.
fn stores(page: &mut Page, service: &Service) {
    let stores = service.engine.shared_stores();
    page.head(STORE, "gauge", "A store shared by several processes, with its URL.");
    for store in &stores {
        page.line(STORE, &[("store", &store.name), ("url", &store.health.store)], 1_u64);
    }
    let nodes = || stores.iter().flat_map(|store| store.health.nodes.iter().map(|node| (&*store.name, node)));
    page.head(STORE_BREAKER, "gauge", "The circuit breaker of a node: 0 closed, 1 probing, 2 open or not connected.");
    for (store, node) in nodes() {
        page.line(STORE_BREAKER, &[("store", store), ("node", &node.name)], node.breaker.number());
    }
    page.head(STORE_CONNECTIONS, "gauge", "Open connections to a node.");
    for (store, node) in nodes() {
        page.line(STORE_CONNECTIONS, &[("store", store), ("node", &node.name)], node.connections as u64);
    }
    page.head(STORE_CALLS, "counter", "Calls to the store, by result.");
    totals(page, &stores, STORE_CALLS, "result", |totals| {
        [
            ("answered", totals.answered),
            ("not_sent", totals.not_sent),
            ("unknown", totals.unknown),
            ("refused", totals.refused),
            ("overloaded", totals.overloaded),
        ]
    });
    page.head(STORE_JOINED, "counter", "Answered calls that shared the command of an equal call.");
    for store in &stores {
        page.line(STORE_JOINED, &[("store", &store.name)], store.health.totals.joined);
    }
    page.head(STORE_SPARED, "counter", "Charges decided without waiting for the store, by reason.");
    for store in &stores {
        for (by, count) in
            [("denial", store.from_denials), ("lease", store.from_leases), ("replica", store.from_replicas)]
        {
            page.line(STORE_SPARED, &[("store", &store.name), ("by", by)], count);
        }
    }
    page.head(
        STORE_AWAY,
        "counter",
        "Charges that this node decided because the store did not answer, by whether it knew the last state of the key.",
    );
    for store in &stores {
        let known = store.from_last_states.saturating_sub(store.unknown);
        for (state, count) in [("known", known), ("unknown", store.unknown)] {
            page.line(STORE_AWAY, &[("store", &store.name), ("last_state", state)], count);
        }
    }
    page.head(STORE_NODES, "gauge", "Nodes that use the store; 0 if no rule needs their number.");
    for store in &stores {
        page.line(STORE_NODES, &[("store", &store.name)], store.nodes);
    }
    page.head(STORE_EVENTS, "counter", "Events of connections and calls.");
    totals(page, &stores, STORE_EVENTS, "event", |totals| {
        [
            ("connected", totals.connected),
            ("connection_lost", totals.lost),
            ("breaker_opened", totals.opened),
            ("script_loaded", totals.reloaded),
            ("redirected", totals.redirected),
            ("retried", totals.retried),
        ]
    });
    page.head(STORE_TIME, "histogram", "Time from sending a call to its answer or timeout.");
    for store in &stores {
        let CallTimes { within, nanos, .. } = &store.health.times;
        page.histogram(STORE_TIME, ("store", &store.name), &CALL_TIME_BOUNDS, within, *nanos);
    }
    page.head(STORE_WAIT, "histogram", "Time that calls wait in this node before they are sent or given up.");
    for store in &stores {
        let CallTimes { within, nanos, .. } = &store.health.waits;
        page.histogram(STORE_WAIT, ("store", &store.name), &CALL_TIME_BOUNDS, within, *nanos);
    }
}

/// Over all keys: callers choose those, and nobody bounds how many.
fn permits(page: &mut Page, service: &Service) {
    let counts = service.engine.permit_counts();
    page.head(PERMITS, "counter", "Events of permits, over all keys.");
    for (event, count) in [
        ("acquired", counts.acquired),
        ("denied", counts.denied),
        ("renewed", counts.renewed),
        ("released", counts.released),
        ("gone", counts.gone),
    ] {
        page.line(PERMITS, &[("event", event)], count);
    }
    page.head(PERMITS_HELD, "gauge", "Permits held in the memory of this process, over all keys.");
    page.line(PERMITS_HELD, &[], counts.held_here);
}

fn traffic(page: &mut Page, service: &Service) {
    let traffic = &service.traffic;
    page.head(REQUESTS, "counter", "Requests by protocol.");
    for &protocol in Protocol::ALL {
        page.line(REQUESTS, &[("protocol", protocol.name())], traffic.requests(protocol));
    }
    page.head(HTTP_RESPONSES, "counter", "HTTP responses by status.");
    for (status, count) in traffic.statuses(Protocol::Http) {
        let code = if status == 0 { "other".to_owned() } else { status.to_string() };
        page.line(HTTP_RESPONSES, &[("code", &code)], count);
    }
    page.head(RESPONSE_TIME, "histogram", "Time from the last byte of a request to its response.");
    for &protocol in Protocol::ALL {
        let TimesTold { within, nanos } = traffic.times(protocol);
        page.histogram(RESPONSE_TIME, ("protocol", protocol.name()), &TIME_BOUNDS, &within, nanos);
    }
    page.head(UNKNOWN_DOMAINS, "counter", "Requests of any protocol for a domain that has no rules.");
    page.line(UNKNOWN_DOMAINS, &[], traffic.unknown_domains());
    page.head(UNMATCHED, "counter", "Requests that no rule of their domain matched. They pass.");
    for (domain, count) in service.engine.unmatched() {
        page.line(UNMATCHED, &[("domain", &domain)], count);
    }
}

fn connections(page: &mut Page, service: &Service) {
    let connections = service.traffic.connections();
    page.head(CONNECTIONS, "gauge", "Open connections.");
    for one in &connections {
        page.line(CONNECTIONS, &[("listener", one.listener)], one.open as u64);
    }
    page.head(REFUSED, "counter", "Connections closed at once because there were too many.");
    for one in &connections {
        page.line(REFUSED, &[("listener", one.listener)], one.refused as u64);
    }
    page.head(EVICTED, "counter", "Idle connections closed to make room for others.");
    for one in &connections {
        page.line(EVICTED, &[("listener", one.listener)], one.evicted as u64);
    }
    page.head(TLS_FAILURES, "counter", "Failed TLS handshakes; the log has the reasons.");
    for one in &connections {
        page.line(TLS_FAILURES, &[("listener", one.listener)], one.tls_failures);
    }
    page.head(AUTH_FAILURES, "counter", "Wrong passwords of Redis clients; the log has the addresses.");
    page.line(AUTH_FAILURES, &[], service.auth_failures.total());
}

fn configuration(page: &mut Page, service: &Service) {
    let (loads, errors) = service.config_loads();
    page.head(CONFIG_LOADS, "counter", "Configurations loaded or refused.");
    page.line(CONFIG_LOADS, &[("result", "success")], loads);
    page.line(CONFIG_LOADS, &[("result", "error")], errors);
    page.head(
        POLICY,
        "gauge",
        "The hash of the configuration in force: the same on nodes with the same configuration.",
    );
    page.line(POLICY, &[("hash", service.engine.policy().hash())], 1_u64);
    page.head(POLICY_LOADED, "gauge", "When the configuration in force was loaded, in seconds since 1970.");
    page.line(POLICY_LOADED, &[], service.config_loaded_seconds());
    page.head(CERTIFICATE_LOADS, "counter", "Certificates loaded or refused.");
    let connections = service.traffic.connections();
    for one in &connections {
        let (loads, errors) = one.tls.as_ref().map_or((0, 0), |tls| tls.counts());
        page.line(CERTIFICATE_LOADS, &[("listener", one.listener), ("result", "success")], loads);
        page.line(CERTIFICATE_LOADS, &[("listener", one.listener), ("result", "error")], errors);
    }
    page.head(CERTIFICATE_END, "gauge", "When the certificate in use expires, in seconds since 1970.");
    for one in &connections {
        if let Some(end) = one.tls.as_ref().and_then(|tls| tls.end()) {
            page.line(CERTIFICATE_END, &[("listener", one.listener)], end.seconds());
        }
    }
}

fn process(page: &mut Page, service: &Service) {
    page.head(EXPRESSION_ERRORS, "counter", "Expressions that failed since the last reload.");
    page.line(EXPRESSION_ERRORS, &[], service.engine.policy().expression_errors());
    page.head(
        UNDECIDED,
        "counter",
        "Keys and requests answered without a decision, outside of any rule, because of a bug.",
    );
    page.line(UNDECIDED, &[], service.engine.undecided());
    page.head(
        FALLBACKS,
        "counter",
        "Charges under callers' limits that were decided in memory because the store did not answer.",
    );
    page.line(FALLBACKS, &[], service.engine.fell_back());
    page.head(
        CALLERS_OVERLOADED,
        "counter",
        "Requests under callers' limits that were not decided because this node was overloaded.",
    );
    page.line(CALLERS_OVERLOADED, &[], service.engine.overloaded_callers());
    page.head(NO_LOG_ROOM, "counter", "Charges without room for a log entry of their own in a store in memory.");
    for store in service.engine.memory_stores() {
        page.line(NO_LOG_ROOM, &[("store", &store.name)], store.log_entries_without_room);
    }
    page.head(LINES_DROPPED, "counter", "Log lines dropped because they were not read in time.");
    page.line(LINES_DROPPED, &[], service.log.dropped());
    page.head(LOG_DROPPED, "counter", "Decisions missing from the decision log because its queue was full.");
    page.line(LOG_DROPPED, &[], service.decision_log.as_ref().map_or(0, DecisionLog::dropped));
    page.head(READY, "gauge", "Whether load balancers may send requests here.");
    page.line(READY, &[], u64::from(service.is_ready()));
    page.head(BUILD, "gauge", "The version of this server.");
    page.line(BUILD, &[("version", env!("CARGO_PKG_VERSION"))], 1_u64);
}

fn reference(page: &mut Page, service: &Service, views: &[RuleView]) {
    // Label sets must not stand twice, whatever rules are called.
    let mut series: BTreeMap<(&str, Vec<String>), Vec<Counts>> = BTreeMap::new();
    for view in views {
        let mut add = |path: Vec<String>, counts: Counts| series.entry((&view.domain, path)).or_default().push(counts);
        if view.metric_entries.is_empty() {
            add(view.metric_path.iter().map(|key| key.to_string()).collect(), view.counts);
        }
        for one in &view.series {
            add(path_of(view, one.values.as_deref()), one.counts);
        }
    }
    for (name, help, count) in REFERENCE_RULES {
        page.head(name, "counter", help);
        for ((domain, path), counts) in &series {
            let keys: Vec<String> = (1..=path.len()).map(|number| format!("key{number}")).collect();
            let mut labels = vec![("domain", *domain)];
            labels.extend(keys.iter().map(String::as_str).zip(path.iter().map(String::as_str)));
            page.line(name, &labels, counts.iter().map(count).fold(0, u64::wrapping_add));
        }
    }
    page.head(REFERENCE_REQUESTS, "counter", "Calls from Envoy.");
    page.line(REFERENCE_REQUESTS, &[METHOD], service.traffic.requests(Protocol::Grpc));
    page.head(REFERENCE_TIME, "histogram", "Time to answer calls from Envoy.");
    let TimesTold { within, nanos } = service.traffic.times(Protocol::Grpc);
    page.histogram(REFERENCE_TIME, METHOD, &TIME_BOUNDS, &within, nanos);
    page.head(REFERENCE_ERRORS, "counter", "Invalid calls from Envoy.");
    page.line(REFERENCE_ERRORS, &[("err_type", "service_error")], service.traffic.errors(Protocol::Grpc));
    let (loads, errors) = service.config_loads();
    page.head(REFERENCE_LOADS, "counter", "Configurations loaded.");
    page.line(REFERENCE_LOADS, &[], loads);
    page.head(REFERENCE_LOAD_ERRORS, "counter", "Configurations refused.");
    page.line(REFERENCE_LOAD_ERRORS, &[], errors);
}

/// The path of a series: entries that have series of their own are told with their values.
fn path_of(view: &RuleView, values: Option<&[Box<str>]>) -> Vec<String> {
    let told = |entry: &str| {
        let number = view.metric_entries.iter().position(|other| **other == *entry)?;
        let value = values?.get(number).filter(|value| !value.is_empty())?;
        Some(format!("{entry}_{value}"))
    };
    // A level is the key of an entry, or its key and the value that it must have.
    let required = |level: &str, entry: &str| Some(level.strip_prefix(entry)?.strip_prefix('_')?.contains('*'));
    let level = |level: &str| {
        let entry = view.metric_entries.iter().find(|entry| required(level, entry) == Some(true));
        told(entry.map_or(level, |entry| entry)).unwrap_or_else(|| level.to_owned())
    };
    // The path of a rule need not name the entries, as when it is the rule's name alone.
    let names = |level: &str, entry: &str| level == entry || required(level, entry).is_some();
    let others = view.metric_entries.iter().filter(|entry| !view.metric_path.iter().any(|level| names(level, entry)));
    let others = others.map(|entry| told(entry).unwrap_or_else(|| entry.to_string()));
    view.metric_path.iter().map(|one| level(one)).chain(others).collect()
}

/// Some totals of each store, under one label.
fn totals<const N: usize>(
    page: &mut Page,
    stores: &[StoreView],
    name: &str,
    label: &str,
    of: fn(&Totals) -> [(&'static str, u64); N],
) {
    for store in stores {
        for (value, count) in of(&store.health.totals) {
            page.line(name, &[("store", &store.name), (label, value)], count);
        }
    }
}
