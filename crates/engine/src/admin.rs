//! What people do to keys and rules while it runs.

use std::time::Duration;

use tidegate_core::{MemoryStore, Op, Snapshot};
use tidegate_policy::{Action, Mode, Request, Rule};

use crate::engine::{Active, Engine, PolicyGuard};
use crate::error::RequestError;
use crate::outcome::effective;
use crate::plan::{Plan, Planned};
use crate::stats::{Counts, SeriesCounts};
use crate::store::Backend;

/// What is known of a key under a rule.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// The rule.
    pub rule: Box<str>,
    /// How long the key stays denied whatever its count.
    pub penalised: Option<Duration>,
    /// What is known under each limit of the rule.
    pub limits: Vec<InspectedLimit>,
}

/// What is known of a key under one limit.
#[derive(Clone, Debug)]
pub struct InspectedLimit {
    /// The limit's name.
    pub name: Box<str>,
    /// What is known.
    pub snapshot: Snapshot,
}

/// A rule and what was counted of it.
#[derive(Clone, Debug)]
pub struct RuleView {
    /// Its domain.
    pub domain: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// What it does.
    pub action: Action,
    /// The mode that counts now.
    pub mode: Mode,
    /// The mode in the configuration, if that is another.
    pub configured: Option<Mode>,
    /// What it is called in the reference server's metrics.
    pub metric_path: Box<[Box<str>]>,
    /// The entries whose values have series of their own.
    pub metric_entries: Box<[Box<str>]>,
    /// What was counted.
    pub counts: Counts,
    /// What was counted of values of entries.
    pub series: Vec<SeriesCounts>,
}

/// No rule of this name stands in this domain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule: there is no `{rule}` in domain `{domain}`")]
pub struct UnknownRule {
    /// The domain.
    pub domain: String,
    /// The rule.
    pub rule: String,
}

impl Engine {
    /// What is known of the keys that a request counts on. Modes make no difference but for `off`.
    ///
    /// # Errors
    /// If the request itself is at fault.
    pub async fn inspect(&self, request: &Request<'_>) -> Result<Vec<Inspected>, RequestError> {
        let mut all: Vec<(u32, Inspected)> = Vec::new();
        self.each_key(request, |store, rule, plan, planned| {
            let Some(limit) = rule.limits.get(planned.limit as usize) else { return Ok(()) };
            let snapshot = store.inspect(plan.key(&planned.key)?, &limit.limit);
            let told = InspectedLimit { name: limit.name.clone(), snapshot };
            match all
                .last_mut()
                .filter(|(descriptor, last)| *descriptor == planned.descriptor && last.rule == rule.name)
            {
                Some((_, last)) => last.limits.push(told),
                None => {
                    let penalised = plan.penalty(store, rule, planned).left()?;
                    let rule = rule.name.clone();
                    all.push((planned.descriptor, Inspected { rule, penalised, limits: vec![told] }));
                }
            }
            Ok(())
        })?;
        Ok(all.into_iter().map(|(_, inspected)| inspected).collect())
    }

    /// Forgets the keys that a request counts on, their penalties too. Tells how many limits forgot one.
    ///
    /// # Errors
    /// If the request itself is at fault.
    pub async fn reset(&self, request: &Request<'_>) -> Result<usize, RequestError> {
        self.each_key(request, |store, rule, plan, planned| {
            let Some(limit) = rule.limits.get(planned.limit as usize) else { return Ok(()) };
            store.decide(plan.key(&planned.key)?, &limit.limit, Op::Reset);
            plan.penalty(store, rule, planned).lift()
        })
    }

    /// Gives units back to the keys that a request counts on. Tells to how many limits.
    ///
    /// # Errors
    /// If the request itself is at fault.
    pub async fn grant(&self, request: &Request<'_>, units: u64) -> Result<usize, RequestError> {
        self.each_key(request, |store, rule, plan, planned| {
            let Some(limit) = rule.limits.get(planned.limit as usize) else { return Ok(()) };
            store.decide(plan.key(&planned.key)?, &limit.limit, Op::Refund(units, None));
            Ok(())
        })
    }

    /// Denies the keys that a request counts on for this long. Tells how many limits know of it.
    ///
    /// # Errors
    /// If the request itself or the length is at fault.
    pub async fn block(&self, request: &Request<'_>, length: Duration) -> Result<usize, RequestError> {
        self.note_blocked();
        self.each_key(request, |store, rule, plan, planned| plan.penalty(store, rule, planned).impose(length))
    }

    /// All rules, with what was counted of them.
    #[must_use]
    pub fn rules(&self) -> Vec<RuleView> {
        self.policy().views().map(|(_, view)| view).collect()
    }

    /// Switches a rule while it runs; no mode goes back to the configuration's. Tells the mode that counts now.
    ///
    /// # Errors
    /// If there is no such rule.
    pub fn set_mode(&self, domain: &str, rule: &str, mode: Option<Mode>) -> Result<Mode, UnknownRule> {
        let active = self.active.load();
        let is_it = |one: &Rule| &*one.domain == domain && &*one.name == rule;
        let unknown = || UnknownRule { domain: domain.to_owned(), rule: rule.to_owned() };
        let number = active.policy.rules().iter().position(is_it).ok_or_else(unknown)?;
        let (Some(record), Some(rule)) = (active.records().get(number), active.policy.rules().get(number)) else {
            return Err(unknown());
        };
        record.set_mode(mode);
        Ok(effective(record.mode(rule.mode), active.shadow))
    }

    /// Does something to each key that a request counts on, by the rules that limit it. Tells how many there were.
    fn each_key(
        &self,
        request: &Request<'_>,
        mut work: impl FnMut(&MemoryStore, &Rule, &Plan, &Planned) -> Result<(), RequestError>,
    ) -> Result<usize, RequestError> {
        let active = self.active.load();
        let Some(domain) = active.policy.domain(request.domain) else { return Ok(0) };
        let plan = Plan::of(&active, domain, request)?;
        let mut done = 0;
        for planned in &plan.planned {
            let rule = planned.rule.and_then(|id| active.policy.rules().get(id.index()));
            let (Some(rule), Some(Backend::Memory(store))) = (rule, active.store(planned.store)) else { continue };
            if rule.action == Action::Limit {
                work(store, rule, &plan, planned)?;
                done += 1;
            }
        }
        Ok(done)
    }
}

impl PolicyGuard {
    /// All rules of this policy, each with what was counted of it.
    pub fn views(&self) -> impl Iterator<Item = (&Rule, RuleView)> {
        let active = &*self.0;
        let rules = active.policy.rules().iter().enumerate();
        rules.filter_map(move |(number, rule)| Some((rule, view(active, number, rule)?)))
    }
}

fn view(active: &Active, number: usize, rule: &Rule) -> Option<RuleView> {
    let record = active.records().get(number)?;
    let mode = effective(record.mode(rule.mode), active.shadow);
    Some(RuleView {
        domain: rule.domain.clone(),
        name: rule.name.clone(),
        action: rule.action,
        mode,
        configured: (mode != rule.mode).then_some(rule.mode),
        metric_path: rule.metric_path.clone(),
        metric_entries: rule.metric_entries.clone(),
        counts: record.all.counts(),
        series: record.series(),
    })
}
