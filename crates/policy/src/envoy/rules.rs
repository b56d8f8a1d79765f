//! From trees of descriptors to rules: one for each descriptor with a limit, matching the whole path to it.

use std::collections::{BTreeMap, HashMap, HashSet};

use tidegate_core::Algorithm;
use tidegate_core::bounds::INTERVAL_NANOS_MIN;

use super::{Descriptor, RateLimit, hidden, siblings};
use crate::json::quote;
use crate::load::bounds::COMPARISONS_MAX;
use crate::load::{Assembly, Origin, Problems, at};
use crate::schema::{
    Action, CountedBy, CountedEntry, Entries, KeyPart, Limit, Match, Metrics, Mode, Numbers, OneOrMany, RateText,
    ReportAs, Rule, Value,
};

/// Turns all trees of an assembly into its rules.
pub(crate) fn write_rules(assembly: &mut Assembly, algorithm: Algorithm, problems: &mut Problems) {
    for (domain, tree) in std::mem::take(&mut assembly.trees) {
        // A descriptor with an error may be the one that seems to be missing.
        if problems.errors() == 0 {
            hidden::warn(&tree, problems);
        }
        let mut writer = Writer {
            domain: &domain,
            algorithm,
            assembly,
            problems,
            names: HashSet::new(),
            numbers: HashMap::new(),
            comparisons: COMPARISONS_MAX,
            path: Vec::new(),
        };
        writer.level(&tree);
    }
}

struct Writer<'a> {
    domain: &'a str,
    algorithm: Algorithm,
    assembly: &'a mut Assembly,
    problems: &'a mut Problems,
    names: HashSet<String>,
    /// The last number that was appended to a name in use.
    numbers: HashMap<String, u64>,
    /// The number of comparisons left.
    comparisons: usize,
    path: Vec<Step>,
}

/// One level on the path to a descriptor.
struct Step {
    key: String,
    value: Value,
    /// The value as written, empty if there is none.
    written: String,
    /// Whether each value has its own count.
    counted: bool,
    in_metrics: bool,
}

impl Writer<'_> {
    fn level(&mut self, descriptors: &[Descriptor]) {
        let Some(values) = siblings::values(descriptors, &mut self.comparisons) else {
            if let Some(first) = descriptors.first() {
                let message = format!("too many wildcards at one level of `{}`", quote(self.domain));
                let hint = format!("use fewer: ordering them may take at most {COMPARISONS_MAX} comparisons");
                self.problems.error(at(&first.file, first.mark), message, hint);
            }
            return;
        };
        for (descriptor, value) in descriptors.iter().zip(values) {
            let open = descriptor.value.is_empty() || descriptor.value.contains('*');
            self.path.push(Step {
                key: descriptor.key.clone(),
                value,
                written: descriptor.value.clone(),
                counted: open && !descriptor.share_threshold,
                in_metrics: descriptor.value_to_metric,
            });
            if let Some(limit) = &descriptor.limit {
                let rule = self.rule(descriptor, limit);
                let (document, pointer) = (descriptor.document, descriptor.pointer.clone());
                let origin = Origin { document, pointer, native: false, is_good: true };
                self.assembly.rule(self.domain, rule, origin);
            }
            self.level(&descriptor.descriptors);
            self.path.pop();
        }
    }

    fn rule(&mut self, descriptor: &Descriptor, limit: &RateLimit) -> Rule {
        let entries = self.path.iter().map(|step| BTreeMap::from([(step.key.clone(), step.value.clone())]));
        let action = match limit {
            RateLimit { unlimited: true, .. } => Action::Unlimited,
            RateLimit { requests_per_unit: 0, .. } => Action::Block,
            _ => Action::Limit,
        };
        Rule {
            matching: Match { entries: Entries::Exactly(entries.collect()), ..Match::default() },
            // A rule that does not count has no key.
            key: if action == Action::Limit { self.key() } else { OneOrMany::default() },
            action,
            report_as: (action == Action::Block)
                .then(|| ReportAs { per: limit.unit.to_owned(), name: limit.name.clone() }),
            limit: (action == Action::Limit).then(|| self.limit(descriptor, limit)),
            count_denied: limit.count_denied,
            mode: if descriptor.shadow_mode { Mode::Shadow } else { Mode::Enforce },
            quota: descriptor.quota_mode,
            replaces: limit.replaces.clone(),
            metrics: self.metrics(descriptor.detailed_metric),
            metadata: descriptor.metadata.clone(),
            counted_by: Some(self.counted_by(limit)),
            // A rule without a limit has the name that others replace it by.
            name: self.name(limit.name.as_deref().filter(|_| action != Action::Limit)),
            ..Rule::default()
        }
    }

    /// Returns the values that are counted separately. A key that occurs twice on the path is identified by its index.
    fn key(&self) -> OneOrMany<KeyPart> {
        let counted = self.path.iter().enumerate().filter(|(_, step)| step.counted);
        let parts = counted.map(|(place, step)| match self.place(place, step) {
            Some(place) => KeyPart::EntryAt(place),
            None => KeyPart::Entry(step.key.clone()),
        });
        let mut parts: Vec<KeyPart> = parts.collect();
        match (parts.pop(), parts.is_empty()) {
            (Some(only), true) => OneOrMany::One(only),
            (Some(last), false) => {
                parts.push(last);
                OneOrMany::Many(parts)
            }
            (None, _) => OneOrMany::default(),
        }
    }

    /// Returns the index of an entry whose key occurs more than once on the path.
    fn place(&self, place: usize, step: &Step) -> Option<u32> {
        let twice = self.path.iter().filter(|other| other.key == step.key).count() > 1;
        u32::try_from(place).ok().filter(|_| twice)
    }

    /// Returns all entries on the path. Each value has its own count, also where only one can match, except for those of a
    /// wildcard whose values share one count.
    fn counted_by(&self, limit: &RateLimit) -> CountedBy {
        let entries = self.path.iter().enumerate().map(|(place, step)| CountedEntry {
            key: step.key.clone(),
            place: self.place(place, step),
            pattern: (step.written.contains('*') && !step.counted).then(|| step.written.clone()),
        });
        CountedBy { unit: limit.unit, entries: entries.collect() }
    }

    fn limit(&mut self, descriptor: &Descriptor, limit: &RateLimit) -> Limit {
        let algorithm = limit.algorithm.unwrap_or(self.algorithm);
        let units = self.reachable(descriptor, limit);
        let rate = format!("{units}/{}", limit.unit);
        let mut numbers = Numbers {
            name: limit.name.clone(),
            algorithm: Some(algorithm.name().to_owned()),
            rate: Some(RateText::Text(rate)),
            ..Numbers::default()
        };
        match algorithm {
            Algorithm::Gcra => numbers.burst = limit.burst,
            Algorithm::TokenBucket | Algorithm::LeakyBucket => numbers.capacity = limit.burst,
            _ if limit.burst.is_some() => {
                let location = at(&descriptor.file, limit.mark);
                let message = format!("`burst` has no effect with `{algorithm}`");
                let hint = "remove it, or set `algorithm` to `gcra`, `token_bucket` or `leaky_bucket`";
                self.problems.warning(location, message, hint);
            }
            _ => {}
        }
        Limit::Numbers(numbers.into())
    }

    /// Returns the number of requests, capped at the highest supported rate.
    fn reachable(&mut self, descriptor: &Descriptor, limit: &RateLimit) -> u64 {
        let units = u64::from(limit.requests_per_unit);
        let seconds = match limit.unit {
            "second" => 1,
            "minute" => 60,
            _ => return units,
        };
        let most = seconds * (1_000_000_000 / INTERVAL_NANOS_MIN);
        if units > most {
            let location = at(&descriptor.file, limit.mark);
            let message = format!("{units} requests per {} exceed the highest supported rate", limit.unit);
            self.problems.warning(
                location,
                message,
                format!("{most} is used instead; set `unlimited: true` for no limit"),
            );
        }
        units.min(most)
    }

    fn metrics(&self, detailed: bool) -> Metrics {
        let mut by_entries: Vec<String> = Vec::new();
        for step in self.path.iter().filter(|step| detailed || step.in_metrics) {
            if !by_entries.contains(&step.key) {
                by_entries.push(step.key.clone());
            }
        }
        // The path is derived from the entries, except that a lone `*` is the same as no value there.
        let differs = self.path.iter().any(|step| step.written == "*");
        let path = self.path.iter().filter(|_| differs).map(|step| step.segment(false)).collect();
        Metrics { by_entries, path }
    }

    /// Returns the path to the descriptor as the reference server prints it. If another path reads the same, literal
    /// separators are escaped by a backslash.
    fn name(&mut self, own: Option<&str>) -> String {
        let join = |escaped| self.path.iter().map(|step| step.segment(escaped)).collect::<Vec<_>>().join(".");
        let mut name = own.map_or_else(|| join(false), str::to_owned);
        if self.names.contains(&name) {
            name = join(false);
        }
        if self.names.contains(&name) {
            name = join(true);
        }
        self.numbered(name)
    }

    /// Returns the name, or the first free one with a number appended. Numbers only go up: otherwise many duplicates would
    /// take quadratic time.
    fn numbered(&mut self, name: String) -> String {
        if self.names.insert(name.clone()) {
            return name;
        }
        let number = self.numbers.entry(name.clone()).or_default();
        loop {
            *number += 1;
            let numbered = format!("{name}~{number}");
            if self.names.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

impl Step {
    fn segment(&self, escaped: bool) -> String {
        let text = |text: &str| match escaped {
            true => text.replace('\\', "\\\\").replace('_', "\\_").replace('.', "\\."),
            false => text.to_owned(),
        };
        match self.written.as_str() {
            "" => text(&self.key),
            value => format!("{}_{}", text(&self.key), text(value)),
        }
    }
}
