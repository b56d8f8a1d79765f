//! What is shown: rules with their rates, in an order, of which one is selected.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use tidegate::Time;

use super::By;
use super::source::{Counted, Top, TopKey};
use crate::admin::rules::{Counts, Rule};
use crate::admin::status::StoreNode;
use crate::admin::text::escaped;

/// The domain and the name of a rule.
pub(super) type RuleName = (String, String);

/// A rule with its rates.
pub(super) struct Row {
    pub(super) name: RuleName,
    pub(super) title: String,
    pub(super) mode: String,
    /// Requests a second; `None` until there are two looks.
    pub(super) rates: Option<Rates>,
    pub(super) counts: Counts,
}

/// Requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    pub(super) allowed: f64,
    pub(super) denied: f64,
    pub(super) shadow_denied: f64,
}

/// What is known of the heaviest keys.
pub(super) enum Keys {
    /// Nothing yet.
    Unknown,
    /// The server cannot name them.
    Unsupported,
    /// They are known of one rule, or of all.
    Known(Option<RuleName>, Top),
}

/// Everything that is shown.
pub(super) struct View {
    pub(super) by: By,
    /// What names of rules must contain.
    pub(super) search: String,
    pub(super) is_searching: bool,
    pub(super) stores: Vec<StoreNode>,
    pub(super) keys: Keys,
    /// Why the last look failed.
    pub(super) problem: Option<String>,
    rows: Vec<Row>,
    selected: Option<RuleName>,
    last: Option<Counted>,
}

impl View {
    pub(super) fn new(by: By) -> View {
        View {
            by,
            search: String::new(),
            is_searching: false,
            stores: Vec::new(),
            keys: Keys::Unknown,
            problem: None,
            rows: Vec::new(),
            selected: None,
            last: None,
        }
    }

    /// Takes what the rules counted since the last look.
    pub(super) fn count(&mut self, mut counted: Counted) {
        let last = self.last.take();
        let before: HashMap<(&str, &str), Counts> = last.iter().flat_map(|last| &last.rules).map(named).collect();
        let passed = last.as_ref().map_or(Duration::ZERO, |last| since(last.at, counted.at));
        let row = |rule: &Rule| Row {
            name: (rule.domain.clone(), rule.name.clone()),
            title: rule.title(),
            mode: escaped(&rule.mode).into(),
            rates: before.get(&(&*rule.domain, &*rule.name)).and_then(|before| rates(*before, rule.counts, passed)),
            counts: rule.counts,
        };
        self.rows = counted.rules.iter().map(row).collect();
        self.stores = std::mem::take(&mut counted.stores);
        self.last = Some(counted);
        self.problem = None;
        self.sort();
    }

    /// Orders by requests instead of denials, or the other way round.
    pub(super) fn turn(&mut self) {
        self.by = if self.by == By::Requests { By::Denials } else { By::Requests };
        self.sort();
    }

    fn sort(&mut self) {
        let by = self.by;
        // Rates of less than a thousandth are alike.
        let weight = |row: &Row| {
            let Rates { allowed, denied, shadow_denied } = row.rates.unwrap_or(NONE);
            let all = match by {
                By::Requests => allowed + denied + shadow_denied,
                By::Denials => denied + shadow_denied,
            };
            let counts = row.counts;
            let denials = counts.denied.saturating_add(counts.shadow_denied);
            let total = match by {
                By::Requests => counts.allowed.saturating_add(denials),
                By::Denials => denials,
            };
            (thousandths(all), total)
        };
        self.rows.sort_by_cached_key(|row| (Reverse(weight(row)), row.title.clone()));
    }

    /// Returns the rules whose names contain what is searched.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        let wanted = self.search.to_lowercase();
        self.rows.iter().filter(move |row| row.title.to_lowercase().contains(&wanted))
    }

    /// Returns the place of the selected rule among those that are shown; the first one if it is not shown.
    pub(super) fn selected(&self) -> Option<usize> {
        let place = self.selected.as_ref().and_then(|name| self.rows().position(|row| row.name == *name));
        place.or_else(|| self.rows().next().map(|_| 0))
    }

    /// Returns the rule whose keys are shown.
    pub(super) fn selected_row(&self) -> Option<&Row> {
        self.rows().nth(self.selected()?)
    }

    /// Selects the rule this many places further down; up if it is negative.
    pub(super) fn select(&mut self, step: isize) {
        let last = self.rows().count().saturating_sub(1);
        let place = self.selected().unwrap_or_default().saturating_add_signed(step).min(last);
        let name = self.rows().nth(place).map(|row| row.name.clone());
        self.selected = name;
    }

    /// Returns the heaviest keys of a rule; `None` as long as they are not known.
    pub(super) fn keys_of(&self, name: &RuleName) -> Option<&[TopKey]> {
        let Keys::Known(of, top) = &self.keys else { return None };
        let rule = top.rules.iter().find(|rule| (&rule.domain, &rule.rule) == (&name.0, &name.1));
        of.as_ref().is_none_or(|of| of == name).then(|| rule.map_or(&[][..], |rule| &rule.keys))
    }
}

const NONE: Rates = Rates { allowed: 0.0, denied: 0.0, shadow_denied: 0.0 };

fn named(rule: &Rule) -> ((&str, &str), Counts) {
    ((&rule.domain, &rule.name), rule.counts)
}

fn since(before: Time, now: Time) -> Duration {
    Duration::from_nanos(now.as_nanos().saturating_sub(before.as_nanos()))
}

/// Returns rates from two counts; `None` if no time passed between them.
fn rates(before: Counts, now: Counts, passed: Duration) -> Option<Rates> {
    // Counts begin anew with a restart of the server.
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / passed.as_secs_f64();
    (!passed.is_zero()).then(|| Rates {
        allowed: rate(before.allowed, now.allowed),
        denied: rate(before.denied, now.denied),
        shadow_denied: rate(before.shadow_denied, now.shadow_denied),
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates at the bounds of a u64")]
fn thousandths(rate: f64) -> u64 {
    (rate * 1_000.0) as u64
}

/// Returns a rate with as many digits as are of use; nothing is known before two looks.
pub(super) fn rate(rates: Option<Rates>, of: impl FnOnce(Rates) -> f64) -> String {
    match rates.map(of) {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

/// Returns a key as its parts, escaped.
pub(super) fn key(parts: &TopKey) -> String {
    if parts.key.is_empty() {
        return "(all requests)".to_owned();
    }
    let parts = parts.key.iter().map(|part| format!("{}={}", escaped(&part.part), escaped(&part.value)));
    parts.collect::<Vec<_>>().join(" ")
}

/// Returns a share as a percentage.
pub(super) fn share(key: &TopKey) -> String {
    format!("{:.1} %", key.share * 100.0)
}
