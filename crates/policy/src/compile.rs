//! From a configuration to a [`Policy`], with all problems reported.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tidegate_core::{Limit, Namespace, Purpose as CountedFor, Rate};

use crate::address::{ClientAddress, Clients, Trust};
use crate::bounds::{
    DOMAINS_MAX, FORWARDED_ADDRESSES_MAX, KEY_PARTS_MAX, LIMITS_MAX, METADATA_BYTES_MAX, NAME_BYTES_MAX, NAMES_MAX,
    PENALTY_MAX, RETRY_JITTER_MAX, RULES_MAX, SHARE_PARTS_MAX,
};
use crate::diagnostic::Diagnostics;
use crate::digest::Digest;
use crate::duration::{duration_problem, read_duration, without_unit, write_one_of};
use crate::expression::Purpose;
use crate::json::quote;
use crate::key::Part;
use crate::limit::read_limit_of;
use crate::networks::Networks;
use crate::pattern::Set;
use crate::policy::{DomainId, Guide, Policy, StoreSpec};
use crate::request::Shown;
use crate::rule::{Local, OnStoreFailure, ReportAs, ResponseOptions, Rule, RuleLimit, Share};
use crate::schema::{self, Action, CountedBy};
use crate::stores::Outside;

/// Compiles a configuration and adds all problems to `diagnostics`. If there are errors, the policy is incomplete and must
/// not be used.
pub fn compile(config: &schema::Config, outside: &Outside, diagnostics: &mut Diagnostics<'_>) -> Policy {
    let mut policy = Compiler::new(outside, diagnostics).config(config);
    if !diagnostics.has_errors() {
        policy.digest = Digest::of(config);
        crate::lint::lint(config, &policy, outside, diagnostics);
    }
    policy
}

/// Compiles how client addresses are found and cut, for callers that count clients without a policy. Adds all problems to
/// `diagnostics`; if there are errors, the result must not be used.
pub fn compile_clients(written: &schema::ClientAddress, diagnostics: &mut Diagnostics<'_>) -> Clients {
    let mut compiler = Compiler::new(&Outside::default(), diagnostics);
    let address = compiler.client_address(written);
    Clients::new(address, compiler.lengths)
}

/// State of the compiler.
pub(crate) struct Compiler<'d, 'l> {
    pub(crate) diagnostics: &'d mut Diagnostics<'l>,
    pub(crate) expression_errors: Arc<AtomicU64>,
    /// Lists of exceptions, by their address in memory.
    pub(crate) excepts: HashMap<(usize, usize, u8), Arc<Set>>,
    /// The number of values and patterns so far.
    pub(crate) values: usize,
    pub(crate) stores: Vec<StoreSpec>,
    /// Prefix lengths that addresses are cut to: IPv4, IPv6.
    lengths: (u8, u8),
    pub(crate) outside: Outside,
}

impl<'d, 'l> Compiler<'d, 'l> {
    fn new(outside: &Outside, diagnostics: &'d mut Diagnostics<'l>) -> Compiler<'d, 'l> {
        Compiler {
            diagnostics,
            expression_errors: Arc::default(),
            excepts: HashMap::new(),
            values: 0,
            stores: Vec::new(),
            lengths: (32, 64),
            outside: *outside,
        }
    }
}

impl Compiler<'_, '_> {
    fn config(&mut self, config: &schema::Config) -> Policy {
        self.stores = self.stores(config);
        let client_address = self.client_address(&config.client_address);
        let mut policy = Policy { client_address, ..Policy::default() };
        let rules: usize = config.domains.values().map(|domain| domain.rules.len()).sum();
        if rules > RULES_MAX || config.domains.len() > DOMAINS_MAX {
            let message = format!("too many rules or domains: {rules} rules in {} domains", config.domains.len());
            let hint = format!("use at most {RULES_MAX} rules in at most {DOMAINS_MAX} domains");
            self.diagnostics.error("/domains", message, hint);
            return policy;
        }
        for (name, domain) in &config.domains {
            let id = DomainId(u32::try_from(policy.guides.len()).unwrap_or(u32::MAX));
            let first = policy.rules.len();
            self.domain(name, domain, &mut policy.rules);
            let of_envoy = domain.rules.iter().any(|rule| rule.counted_by.is_some());
            policy.guides.push(Guide::new((0..).zip(&policy.rules).skip(first), of_envoy));
            policy.domains.insert(name.as_str().into(), id);
        }
        policy.stores = std::mem::take(&mut self.stores);
        policy.expression_errors = Arc::clone(&self.expression_errors);
        policy
    }

    fn client_address(&mut self, written: &schema::ClientAddress) -> ClientAddress {
        let pointer = "/client_address";
        let networks = self.networks(&written.trusted_networks, &child(pointer, "trusted_networks"));
        let hops = written.trusted_hops as usize;
        if hops > 0 && !written.trusted_networks.is_empty() {
            let message = "trusted_hops: cannot be combined with trusted_networks";
            self.diagnostics.error(&child(pointer, "trusted_hops"), message, "remove one of them");
        }
        if hops > FORWARDED_ADDRESSES_MAX {
            let message = format!("trusted_hops: {hops} is too large");
            let hint = format!("use at most {FORWARDED_ADDRESSES_MAX}");
            self.diagnostics.error(&child(pointer, "trusted_hops"), message, hint);
        }
        for (field, length, max) in
            [("ipv4_prefix", written.ipv4_prefix, 32), ("ipv6_prefix", written.ipv6_prefix, 128)]
        {
            if length.is_some_and(|length| !(1..=max).contains(&length)) {
                let message = format!("{field}: {} is out of bounds", length.unwrap_or_default());
                self.diagnostics.error(&child(pointer, field), message, format!("use 1 to {max}"));
            }
        }
        self.lengths = (written.ipv4_prefix.unwrap_or(32), written.ipv6_prefix.unwrap_or(64));
        let trust = match (hops, networks.is_empty()) {
            (0, true) => Trust::Nobody,
            (0, false) => Trust::Networks(Networks::plain(&networks)),
            (hops, _) => Trust::Hops(hops),
        };
        ClientAddress { trust, header: written.header }
    }

    fn domain(&mut self, name: &str, domain: &schema::Domain, rules: &mut Vec<Rule>) {
        let pointer = child("/domains", name);
        self.check_name("domain name", name, &pointer);
        let response = self.response(&domain.response, ResponseOptions::default(), &child(&pointer, "response"));
        let mut names: HashSet<&str> = HashSet::with_capacity(domain.rules.len());
        let pointer = child(&pointer, "rules");
        for (place, rule) in domain.rules.iter().enumerate() {
            let pointer = child(&pointer, &place.to_string());
            if !names.insert(&rule.name) {
                let message = format!("name: another rule of this domain is named `{}`", quote(&rule.name));
                self.diagnostics.error(&child(&pointer, "name"), message, "give each rule a unique name");
            }
            let rule = self.rule(name, rule, response, &pointer);
            rules.push(rule);
        }
    }

    fn rule(&mut self, domain: &str, rule: &schema::Rule, response: ResponseOptions, pointer: &str) -> Rule {
        let at = |name: &str| child(pointer, name);
        self.check_name("name", &rule.name, &at("name"));
        let limits = self.limits(domain, rule, pointer);
        self.check_lists(rule, &limits, pointer);
        let own = rule.limits.first().or(rule.limit.as_ref()).and_then(schema::Limit::name);
        let of_first = |purpose| namespace(purpose, domain, rule, own);
        Rule {
            domain: domain.into(),
            name: rule.name.as_str().into(),
            action: rule.action,
            mode: rule.mode,
            missing: rule.missing.unwrap_or_default(),
            show: rule.show,
            limits: limits.into(),
            count_denied: rule.count_denied,
            penalty: self.duration("penalty", rule.penalty.as_deref(), PENALTY_MAX, &at("penalty")),
            on_store_failure: self.on_store_failure(rule.on_store_failure.as_ref(), &at("on_store_failure")),
            penalties: of_first(CountedFor::Penalty),
            blocks: of_first(CountedFor::Block),
            response: self.response(&rule.response, response, &at("response")),
            report_as: self.report_as(rule, &at("report_as")),
            quota: rule.quota,
            consistency: rule.consistency.into(),
            hash_tag: self.hash_tag(rule.hash_tag.as_deref(), &at("hash_tag")),
            replaces: rule.replaces.iter().map(|name| name.as_str().into()).collect(),
            metric_entries: rule.metrics.by_entries.iter().map(|name| name.as_str().into()).collect(),
            metadata: rule.metadata.clone(),
            metric_path: metric_path(rule),
            matching: self.matching(&rule.matching, &at("match")),
            key: match &rule.counted_by {
                Some(counted_by) => counted_parts(counted_by),
                None => self.key(rule, &at("key")),
            },
            cost: rule.cost.as_ref().and_then(|source| self.expression(source, Purpose::Cost, &at("cost"))),
            count: rule.count.as_ref().and_then(|source| self.expression(source, Purpose::Count, &at("count"))),
        }
    }

    fn limits(&mut self, domain: &str, rule: &schema::Rule, pointer: &str) -> Vec<RuleLimit> {
        let at = |name: &str| child(pointer, name);
        let several =
            rule.limits.iter().enumerate().map(|(place, limit)| (child(&at("limits"), &place.to_string()), limit));
        let written: Vec<(String, &schema::Limit)> =
            rule.limit.iter().map(|limit| (at("limit"), limit)).chain(several).collect();
        let may_have_none = ["action", "limit", "limits"].iter().any(|name| self.diagnostics.is_left_out(&at(name)));
        match (rule.action, rule.limit.is_some(), written.len()) {
            (Action::Limit, _, 0) if may_have_none => (),
            (Action::Limit, _, 0) => {
                self.diagnostics.error(pointer, "limit: missing", "add one, like limit: 100/minute")
            }
            (Action::Limit, true, 2..) => {
                self.diagnostics.error(
                    &at("limits"),
                    "limits: cannot be combined with limit",
                    "write all limits under limits",
                );
            }
            (Action::Limit, _, count) if count > LIMITS_MAX => {
                let message = format!("limits: {count} limits are too many");
                self.diagnostics.error(&at("limits"), message, format!("use at most {LIMITS_MAX}"));
            }
            (Action::Block | Action::Unlimited, is_one, 1..) => {
                let field = if is_one { "limit" } else { "limits" };
                let message = format!("{field}: not allowed with action: {}", action_name(rule.action));
                self.diagnostics.error(&at(field), message, format!("remove {field} or action"));
            }
            _ => (),
        }
        let mut names = HashSet::new();
        let mut limits = Vec::with_capacity(written.len());
        for (pointer, limit) in written {
            let (own, store) = (limit.name(), limit.store());
            let store = match store {
                Some(store) => self.store_of(Some(store), &child(&pointer, "store")),
                None => self.store_of(rule.store.as_deref(), &at("store")),
            };
            let name = own.unwrap_or(&rule.name);
            if let Some(own) = own {
                self.check_name("name", own, &child(&pointer, "name"));
            }
            if !names.insert(name) {
                let message = format!("name: another limit of this rule is named `{}`", quote(name));
                let hint = "give each limit a unique name, like name: daily; the default is the name of the rule";
                self.diagnostics.error(&pointer, message, hint);
            }
            if let Some((limit, shown)) = self.limit("limit", limit, "action: block without a limit", &pointer) {
                let namespace = namespace(CountedFor::Rule, domain, rule, own);
                let is_named_to_envoy = own.is_some() || !has_exact_entries(rule);
                self.check_consistency(rule, &limit, &at("consistency"));
                limits.push(RuleLimit { name: name.into(), is_named_to_envoy, limit, shown, namespace, store });
            }
        }
        limits
    }

    /// Reads the limit in the field `whole`. `none` is the remedy for a limit that admits nothing.
    fn limit(&mut self, whole: &str, written: &schema::Limit, none: &str, pointer: &str) -> Option<(Limit, Shown)> {
        let diagnostics = &*self.diagnostics;
        match read_limit_of(written, &|field| !diagnostics.is_left_out(&child(pointer, field))) {
            Ok(read) => Some(read),
            Err(problems) => {
                for problem in problems {
                    let pointer = problem.field.map_or_else(|| pointer.to_owned(), |field| child(pointer, field));
                    let message = problem.message(whole);
                    let hint = match problem.lets_none_pass {
                        true => format!("{}, or write {none} if nothing may pass", problem.hint),
                        false => problem.hint,
                    };
                    self.diagnostics.error(&pointer, message, hint);
                }
                None
            }
        }
    }

    fn report_as(&mut self, rule: &schema::Rule, pointer: &str) -> Option<ReportAs> {
        let written = rule.report_as.as_ref()?;
        let action = child(pointer.strip_suffix("/report_as").unwrap_or(pointer), "action");
        if rule.action != Action::Block && !self.diagnostics.is_left_out(&action) {
            let message = "report_as: only allowed with action: block";
            self.diagnostics.error(pointer, message, "remove report_as, or set action: block");
        }
        if let Some(name) = &written.name {
            self.check_name("name", name, &child(pointer, "name"));
        }
        // Periods have the same form as in rates.
        let Ok(rate) = format!("1/{}", written.per).parse::<Rate>() else {
            let (problem, hint) = match without_unit(&written.per) {
                Some(all) => (format!("{} has no unit", quote(&written.per)), write_one_of(all)),
                None => {
                    let hint = "write second, minute, hour, day, week, month, year or a length like 10s";
                    (format!("unknown period `{}`", quote(&written.per)), hint.to_owned())
                }
            };
            self.diagnostics.error(&child(pointer, "per"), format!("per: {problem}"), hint);
            return None;
        };
        let period_ns = u64::try_from(rate.period().as_nanos()).unwrap_or(u64::MAX);
        Some(ReportAs {
            name: written.name.as_deref().unwrap_or_default().into(),
            shown: Shown { units: 0, period_ns },
        })
    }

    fn key(&mut self, rule: &schema::Rule, pointer: &str) -> Box<[Part]> {
        let parts = rule.key.as_slice();
        if parts.len() > KEY_PARTS_MAX {
            let message = format!("key: {} parts are too many", parts.len());
            self.diagnostics.error(pointer, message, format!("use at most {KEY_PARTS_MAX}"));
        }
        let mut compiled = Vec::with_capacity(parts.len());
        for (place, part) in parts.iter().enumerate() {
            let pointer = child(pointer, &place.to_string());
            compiled.extend(self.key_part(part, rule.matching.path_case, &pointer));
        }
        compiled.into()
    }

    fn key_part(&mut self, part: &schema::KeyPart, path_case: schema::PathCase, pointer: &str) -> Option<Part> {
        use schema::KeyPart;
        if let KeyPart::Entry(name) | KeyPart::Header(name) | KeyPart::Cookie(name) | KeyPart::Query(name) = part {
            self.check_name("key", name, pointer);
        }
        if let KeyPart::Header(name) = part {
            self.check_header(name, pointer);
        }
        Some(match part {
            KeyPart::Address => Part::Address { v4_length: self.lengths.0, v6_length: self.lengths.1 },
            KeyPart::Method => Part::Method,
            KeyPart::Host => Part::Host,
            KeyPart::Path => Part::Path(path_case),
            KeyPart::Entry(name) => Part::Entry(name.as_str().into()),
            KeyPart::EntryAt(place) => Part::EntryAt(*place as usize),
            KeyPart::Header(name) => Part::Header(name.to_ascii_lowercase().into()),
            KeyPart::Cookie(name) => Part::Cookie(name.as_str().into()),
            KeyPart::Query(name) => Part::Query(name.as_str().into()),
            KeyPart::Expression(source) => Part::Expression(self.expression(source, Purpose::Key, pointer)?),
        })
    }

    fn on_store_failure(&mut self, written: Option<&schema::OnStoreFailure>, pointer: &str) -> Option<OnStoreFailure> {
        Some(match written? {
            schema::OnStoreFailure::Allow => OnStoreFailure::Allow,
            schema::OnStoreFailure::Deny => OnStoreFailure::Deny,
            schema::OnStoreFailure::Local(schema::Local::Share(written)) => {
                let share = self.share(written, &child(&child(pointer, "local"), "share"));
                OnStoreFailure::Local(Local::Share(share.unwrap_or(Share::Whole)))
            }
            schema::OnStoreFailure::Local(schema::Local::Limit(limit)) => {
                match self.limit("local", limit, "on_store_failure: deny", &child(pointer, "local")) {
                    Some((limit, _)) => OnStoreFailure::Local(Local::Limit(limit)),
                    None => OnStoreFailure::Deny,
                }
            }
        })
    }

    fn share(&mut self, written: &schema::Share, pointer: &str) -> Option<Share> {
        let text = &*written.share;
        let parts = || {
            // A number may be parsed with a sign, which is not allowed here.
            let digits = text.strip_prefix("1/").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
            digits.parse().ok().filter(|parts| (2..=SHARE_PARTS_MAX).contains(parts))
        };
        if text == "auto" {
            return Some(Share::Auto);
        }
        let share = parts().and_then(NonZeroU64::new).map(Share::OneOf);
        if share.is_none() {
            let message = format!("share: cannot read `{}`", quote(text));
            self.diagnostics.error(pointer, message, format!("write auto, or 1/2 to 1/{SHARE_PARTS_MAX}"));
        }
        share
    }

    fn response(&mut self, written: &schema::Response, above: ResponseOptions, pointer: &str) -> ResponseOptions {
        let at = child(pointer, "retry_jitter");
        let jitter = match written.retry_jitter.as_deref() {
            // Zero switches off the jitter of the domain.
            Some("0" | "0s" | "0ms") => Some(Duration::ZERO),
            jitter => self.duration("retry_jitter", jitter, RETRY_JITTER_MAX, &at),
        };
        ResponseOptions {
            headers: written.headers.or(above.headers),
            hidden: written.hidden.unwrap_or(above.hidden),
            problem: written.problem.or(above.problem),
            retry_jitter: jitter.unwrap_or(above.retry_jitter),
        }
    }

    fn duration(&mut self, field: &str, text: Option<&str>, max: Duration, pointer: &str) -> Option<Duration> {
        let text = text?;
        match read_duration(text) {
            Some(duration) if !duration.is_zero() && duration <= max => Some(duration),
            _ => {
                let (problem, hint) = duration_problem(text, max);
                self.diagnostics.error(pointer, format!("{field}: {problem}"), hint);
                None
            }
        }
    }

    /// Checks lists of names, and the length of metadata.
    fn check_lists(&mut self, rule: &schema::Rule, limits: &[RuleLimit], pointer: &str) {
        let lists = [("replaces", &rule.replaces), ("metrics/by_entries", &rule.metrics.by_entries)];
        for (field, list) in lists {
            let pointer = format!("{pointer}/{field}");
            if list.len() > NAMES_MAX {
                let message = format!("{field}: {} names are too many", list.len());
                self.diagnostics.error(&pointer, message, format!("use at most {NAMES_MAX}"));
            }
            for (place, name) in list.iter().enumerate() {
                let pointer = child(&pointer, &place.to_string());
                self.check_name(field, name, &pointer);
                if field == "replaces" && limits.iter().any(|limit| *limit.name == **name) {
                    let message = format!("replaces: `{}` is a limit of the same rule", quote(name));
                    self.diagnostics.error(&pointer, message, "name a limit of another rule");
                }
            }
        }
        let length = rule.metadata.as_ref().map_or(0, |metadata| metadata.to_string().len());
        if length > METADATA_BYTES_MAX {
            let message = format!("metadata: {length} bytes of JSON are too long");
            self.diagnostics.error(
                &child(pointer, "metadata"),
                message,
                format!("use at most {METADATA_BYTES_MAX} bytes"),
            );
        }
    }

    pub(crate) fn check_name(&mut self, field: &str, name: &str, pointer: &str) {
        let (message, hint) = if name.is_empty() {
            (format!("{field}: empty"), "give it a name".to_owned())
        } else if name.len() > NAME_BYTES_MAX {
            let message = format!("{field}: `{}` has {} bytes", quote(name), name.len());
            (message, format!("use at most {NAME_BYTES_MAX}"))
        } else if name.contains(char::is_control) {
            (format!("{field}: `{}` contains control characters", quote(name)), "remove them".to_owned())
        } else {
            return;
        };
        self.diagnostics.error(pointer, message, hint);
    }
}

/// Returns the JSON pointer to the field or item `name` of the value at `pointer`.
pub(crate) fn child(pointer: &str, name: &str) -> String {
    match name.contains(['~', '/']) {
        true => format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")),
        false => format!("{pointer}/{name}"),
    }
}

/// Returns the namespace of states of a rule: its domain and name, and the name of the limit. Rules from files of
/// envoyproxy/ratelimit share one namespace for each domain, which no rule with a name has.
fn namespace(purpose: CountedFor, domain: &str, rule: &schema::Rule, limit: Option<&str>) -> Namespace {
    match rule.counted_by {
        Some(_) => Namespace::named(purpose, &[domain, ""]),
        None => Namespace::named(purpose, &[domain, &rule.name, limit.unwrap_or_default()]),
    }
}

/// Returns the key of a rule from a file of envoyproxy/ratelimit: the unit, then each entry: its key with its length, `p` or
/// `v`, and the pattern or value with its length. Distinct entries give distinct bytes.
fn counted_parts(counted_by: &CountedBy) -> Box<[Part]> {
    let mut parts = Vec::new();
    let mut fixed = Vec::new();
    push_text(&mut fixed, counted_by.unit);
    for entry in &counted_by.entries {
        push_text(&mut fixed, &entry.key);
        if let Some(pattern) = &entry.pattern {
            fixed.push(b'p');
            push_text(&mut fixed, pattern);
            continue;
        }
        fixed.push(b'v');
        parts.push(Part::Fixed(std::mem::take(&mut fixed).into()));
        parts.push(match entry.place {
            Some(place) => Part::EntryAt(place as usize),
            None => Part::Entry(entry.key.as_str().into()),
        });
    }
    if !fixed.is_empty() {
        parts.push(Part::Fixed(fixed.into()));
    }
    parts.into()
}

/// Appends a text after its length in two bytes. Longer names are refused elsewhere.
fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// Returns an action as it is written in a configuration.
fn action_name(action: Action) -> &'static str {
    match action {
        Action::Limit => "limit",
        Action::Block => "block",
        Action::Unlimited => "unlimited",
    }
}

/// Whether a rule matches a list of entries, as rules from files of envoyproxy/ratelimit do.
fn has_exact_entries(rule: &schema::Rule) -> bool {
    matches!(&rule.matching.entries, schema::Entries::Exactly(all) if !all.is_empty())
}

/// Returns `key` or `key_value` for each entry of a list, as envoyproxy/ratelimit names its metrics.
fn metric_path(rule: &schema::Rule) -> Box<[Box<str>]> {
    if !rule.metrics.path.is_empty() {
        return rule.metrics.path.iter().map(|level| level.as_str().into()).collect();
    }
    let schema::Entries::Exactly(all) = &rule.matching.entries else { return [rule.name.as_str().into()].into() };
    let level = |(key, value): (&String, &schema::Value)| -> Box<str> {
        match value {
            schema::Value::Is(value) | schema::Value::But(schema::But { is: value, .. }) if value != "*" => {
                format!("{key}_{value}").into()
            }
            _ => key.as_str().into(),
        }
    };
    match all.is_empty() {
        true => [rule.name.as_str().into()].into(),
        false => all.iter().flatten().map(level).collect(),
    }
}
