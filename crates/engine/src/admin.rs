//! Operators' changes to keys and rules at run time.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Op, Snapshot};
use tidegate_policy::{Action, Mode, Request, Rule, RuleLimit};
use tidegate_stores::Call;

use crate::active::{Active, PolicyGuard};
use crate::approximate::{forget, is_approximate};
use crate::engine::Engine;
use crate::error::RequestError;
use crate::outcome::effective;
use crate::penalty::{self, Penalty};
use crate::plan::{LongKeys, Plan, Planned, Step};
use crate::stats::{Counts, SeriesCounts};
use crate::store::Backend;

/// The details of a key under a rule.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// The name of the rule.
    pub rule: Box<str>,
    /// How long the key stays denied whatever its count; `None` if it is not.
    pub penalised: Option<Duration>,
    /// The details under each limit of the rule.
    pub limits: Vec<InspectedLimit>,
}

/// The details of a key under one limit.
#[derive(Clone, Debug)]
pub struct InspectedLimit {
    /// The name of the limit.
    pub name: Box<str>,
    /// The details.
    pub snapshot: Snapshot,
}

/// The result of lifting blocks and penalties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unblocked {
    /// The number of limits that apply to the request.
    pub limits: usize,
    /// The number of these limits whose keys were blocked or under a penalty.
    pub lifted: usize,
}

/// A rule and its counts.
#[derive(Clone, Debug)]
pub struct RuleView {
    /// The name of its domain.
    pub domain: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// The action of the rule.
    pub action: Action,
    /// The mode in force.
    pub mode: Mode,
    /// The mode in the configuration, if it is another.
    pub configured: Option<Mode>,
    /// The path of the rule in the metrics of the reference server, envoyproxy/ratelimit.
    pub metric_path: Box<[Box<str>]>,
    /// The entries whose values have series of their own.
    pub metric_entries: Box<[Box<str>]>,
    /// The counts of the rule.
    pub counts: Counts,
    /// The counts by values of entries.
    pub series: Vec<SeriesCounts>,
}

/// The domain has no such rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule: there is no `{rule}` in domain `{domain}`")]
pub struct UnknownRule {
    /// The name of the domain.
    pub domain: String,
    /// The name of the rule.
    pub rule: String,
}

impl Engine {
    /// Returns the details of the keys that a request counts on, for rules in any mode but `off`.
    ///
    /// # Errors
    /// Fails if the request is invalid, or a store does not answer.
    pub async fn inspect(&self, request: &Request<'_>) -> Result<Vec<Inspected>, RequestError> {
        let keys = self.keys(request)?;
        let mut all: Vec<(u32, Inspected)> = Vec::new();
        for (planned, rule, limit, backend) in keys.each() {
            let Some(charge) = keys.plan.charge(&keys.active, planned, Op::Peek)? else { continue };
            let snapshot = backend.inspect(&Call::default(), &charge).await?;
            let told = InspectedLimit { name: limit.name.clone(), snapshot };
            match all
                .last_mut()
                .filter(|(descriptor, last)| *descriptor == planned.descriptor && last.rule == rule.name)
            {
                Some((_, last)) => last.limits.push(told),
                None => {
                    let penalised = keys.penalised(planned, rule).await?;
                    let rule = rule.name.clone();
                    all.push((planned.descriptor, Inspected { rule, penalised, limits: vec![told] }));
                }
            }
        }
        Ok(all.into_iter().map(|(_, inspected)| inspected).collect())
    }

    /// Forgets the keys that a request counts on, their penalties too. Tells how many limits forgot one.
    ///
    /// # Errors
    /// If the request itself is at fault, a store does not answer, or one in memory that is full cannot forget a key, which
    /// it counts approximately.
    pub async fn reset(&self, request: &Request<'_>) -> Result<usize, RequestError> {
        let keys = self.keys(request)?;
        let (mut limits, mut kept) = (0, 0);
        for (planned, rule, _, backend) in keys.each() {
            let mut is_kept = false;
            if let Some(charge) = keys.plan.charge(&keys.active, planned, Op::Reset)? {
                is_kept = !forget(backend, &charge).await?;
            }
            if let Some(backend) = keys.active.store_of(rule) {
                for penalty in keys.penalties(planned, rule)? {
                    penalty.lift(backend).await?;
                    is_kept |= is_approximate(backend, &penalty.charge(Op::Peek))?;
                }
            }
            limits += 1;
            kept += usize::from(is_kept);
        }
        if kept > 0 { Err(RequestError::NotForgotten { limits: kept }) } else { Ok(limits) }
    }

    /// Gives units back to the keys that a request counts on. Tells to how many limits.
    ///
    /// # Errors
    /// If the request itself is at fault, a store does not answer, or one in memory that is full counts a key approximately,
    /// so that units cannot be given back to it.
    pub async fn grant(&self, request: &Request<'_>, units: u64) -> Result<usize, RequestError> {
        let keys = self.keys(request)?;
        let (mut limits, mut without) = (0, 0);
        for (planned, _, _, backend) in keys.each() {
            limits += 1;
            let Some(charge) = keys.plan.charge(&keys.active, planned, Op::Refund(units, None))? else { continue };
            if is_approximate(backend, &charge)? {
                without += 1;
            } else {
                backend.decide(&Call::default(), &charge).await?;
            }
        }
        if without > 0 { Err(RequestError::NotGranted { limits: without }) } else { Ok(limits) }
    }

    /// Denies the keys that a request counts on for this long. Tells how many limits know of it. Nodes that share a store
    /// learn of it within a second.
    ///
    /// # Errors
    /// If the request itself or the length is at fault, a store does not answer, or one in memory that is full has no place for
    /// a block.
    pub async fn block(&self, request: &Request<'_>, length: Duration) -> Result<usize, RequestError> {
        self.note_blocked();
        let keys = self.keys(request)?;
        let (mut limits, mut without) = (0, 0);
        for (planned, rule, ..) in keys.each() {
            limits += 1;
            let Some(backend) = keys.active.store_of(rule) else { continue };
            let block = keys.plan.block(rule, planned)?;
            block.impose(backend, length).await??;
            without += usize::from(backend.states().is_some() && block.left(backend).await?.is_none());
            if let (true, Some(asked)) = (backend.nature().outlives_process(), backend.asked()) {
                penalty::note_any(backend, length).await??;
                asked.note_blocked(length);
            }
        }
        if without > 0 { Err(RequestError::NotBlocked { limits: without }) } else { Ok(limits) }
    }

    /// Lifts blocks and penalties of the keys that a request counts on; their counts stay. Nodes that share a store learn of it
    /// within a second.
    ///
    /// # Errors
    /// Fails if the request is invalid, a store does not answer, or a full store in memory cannot lift a block, since it counts the
    /// key approximately.
    pub async fn unblock(&self, request: &Request<'_>) -> Result<Unblocked, RequestError> {
        let keys = self.keys(request)?;
        let mut unblocked = Unblocked::default();
        // Limits of one rule share its blocks, so all are looked at before the first is lifted.
        for (planned, rule, ..) in keys.each() {
            unblocked.limits += 1;
            unblocked.lifted += usize::from(keys.penalised(planned, rule).await?.is_some());
        }
        let mut kept = 0;
        for (planned, rule, ..) in keys.each() {
            let Some(backend) = keys.active.store_of(rule) else { continue };
            let mut is_kept = false;
            for penalty in keys.penalties(planned, rule)? {
                penalty.lift(backend).await?;
                is_kept |= is_approximate(backend, &penalty.charge(Op::Peek))?;
            }
            kept += usize::from(is_kept);
        }
        if kept > 0 { Err(RequestError::NotUnblocked { limits: kept }) } else { Ok(unblocked) }
    }

    /// Returns all rules, with their counts.
    #[must_use]
    pub fn rules(&self) -> Vec<RuleView> {
        self.policy().views().map(|(_, view)| view).collect()
    }

    /// Sets the mode of a rule; `None` restores the mode of the configuration. Returns the mode in force.
    ///
    /// # Errors
    /// Fails if there is no such rule.
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

    /// The keys that a request counts on.
    fn keys(&self, request: &Request<'_>) -> Result<Keys, RequestError> {
        let active = self.active.load_full();
        let plan = match active.policy.domain(request.domain) {
            Some(domain) => Plan::of(&active, domain, request, LongKeys::Refuse)?,
            None => Plan::default(),
        };
        Ok(Keys { active, plan })
    }
}

/// The keys that a request counts on.
struct Keys {
    active: Arc<Active>,
    plan: Plan,
}

impl Keys {
    /// Each of them, by the rules that limit it, with the store that counts it.
    fn each(&self) -> impl Iterator<Item = (&Planned, &Rule, &RuleLimit, &Backend)> {
        // What blocks has no key.
        let with_key = self.plan.planned.iter().filter(|planned| planned.step != Step::Blocked);
        with_key.filter_map(|planned| {
            let rule = self.active.rule(planned.rule?)?;
            let limit = rule.limits.get(planned.limit as usize)?;
            Some((planned, rule, limit, self.active.store(limit.store)?))
        })
    }

    /// Returns how long the key of a charge stays denied whatever its count; `None` if it is not.
    async fn penalised(&self, planned: &Planned, rule: &Rule) -> Result<Option<Duration>, RequestError> {
        let mut penalised = None;
        if let Some(backend) = self.active.store_of(rule) {
            for penalty in self.penalties(planned, rule)? {
                penalised = penalised.max(penalty.left(backend).await?);
            }
        }
        Ok(penalised)
    }

    /// What may deny the key of a charge beside its limits.
    fn penalties<'a>(&'a self, planned: &Planned, rule: &'a Rule) -> Result<Vec<Penalty<'a>>, RequestError> {
        let own = rule.penalty.map(|length| self.plan.penalty(rule, length, planned));
        own.into_iter().chain([self.plan.block(rule, planned)]).collect()
    }
}

impl PolicyGuard {
    /// Returns all rules of this policy, each with its counts.
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
