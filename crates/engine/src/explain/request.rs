//! Answers about a request that is not charged: which rules match it, and what their stores would answer.

use std::cmp::Reverse;

use serde::Serialize;
use tidegate_core::Retry;
use tidegate_policy::{
    Comparison, DomainId, FoundRules, KeyMade, Mismatch, Missing, Mode, Policy, Question, Request, Rule, RuleId,
    ShownPart,
};
use tidegate_stores::Call;
use tokio::task::yield_now;

use super::entry::nanos;
use crate::active::Active;
use crate::bounds::{EXPLAIN_RULES_AT_ONCE, EXPLAIN_RULES_MAX};
use crate::engine::Engine;
use crate::error::RequestError;
use crate::outcome::{Denial, Judged, effective};
use crate::plan::{Plan, question};
use crate::settle::{Settled, settle};

/// What would become of a request.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ExplainedRequest {
    /// The hash of the configuration.
    pub policy_hash: Box<str>,
    /// Whether the request would pass.
    pub allowed: bool,
    /// Why it would not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denial: Option<Denial>,
    /// The rules that match, then those that nearly match, for each descriptor.
    pub rules: Vec<ExplainedRule>,
    /// Rules that do not match and are not shown.
    pub left_out: usize,
}

/// What one rule makes of one descriptor.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ExplainedRule {
    /// The index of the descriptor.
    pub descriptor: usize,
    /// The name of the rule; `None` for the limit that the descriptor brought.
    pub rule: Option<Box<str>>,
    /// The mode in force.
    pub mode: Mode,
    /// Whether the rule matches, and what follows.
    #[serde(flatten)]
    pub outcome: RuleMatch,
}

/// Whether a rule matches a request.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "match", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RuleMatch {
    /// It matches and decides.
    Decides {
        /// The parts of the key that it makes.
        key: Vec<ShownPart>,
        /// What each of its limits would answer.
        limits: Vec<LimitAnswer>,
    },
    /// It matches, and does not apply.
    Skipped {
        /// Why not.
        reason: &'static str,
    },
    /// It does not match.
    No {
        /// The number of conditions that the request meets.
        conditions_met: usize,
        /// The first one that it does not meet.
        failed: FailedCondition,
    },
}

/// A condition that a request does not meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedCondition {
    /// The field of the rule.
    pub field: String,
    /// What the condition requires.
    pub expected: String,
    /// What the request has there; `None` if it has nothing.
    pub found: Option<String>,
}

/// What a limit would answer.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LimitAnswer {
    /// The name of the limit; `None` for a rule without one.
    pub policy: Option<Box<str>>,
    /// The answer, in the words of `/v1/check`.
    pub verdict: &'static str,
    /// Whether it would deny the request.
    pub denies: bool,
    /// Units that the request asks for.
    pub cost: u64,
    /// Units of the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Units that are left now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// After how many nanoseconds to retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ns: Option<u64>,
    /// Whether no wait helps.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never: bool,
    /// After how many nanoseconds the key is as if never used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_after_ns: Option<u64>,
    /// The name of its store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<Box<str>>,
    /// Whether this node answered because the store did not.
    pub local: bool,
}

impl From<Mismatch> for FailedCondition {
    fn from(mismatch: Mismatch) -> FailedCondition {
        let Mismatch { field, expected, found } = mismatch;
        FailedCondition { field, expected, found }
    }
}

impl Engine {
    /// Explains what would become of a request, and charges nothing. Returns `None` if there are no rules for its domain.
    ///
    /// # Errors
    /// Fails if the request is invalid.
    pub async fn explain_request(&self, request: &Request<'_>) -> Result<Option<ExplainedRequest>, RequestError> {
        let active = self.active.load_full();
        let Some(domain) = active.policy.domain(request.domain) else { return Ok(None) };
        if let Some(learning) = active.learn_of_blocks(domain) {
            learning.await;
        }
        let plan = Plan::to_look(&active, domain, request)?;
        let settled = settle(&active, &self.local, &plan, &Call::default()).await?;
        let mut rules = Vec::new();
        let mut left_out = 0;
        for number in 0..request.descriptors.len() {
            let of_descriptor = Descriptor { active: &active, domain, request, number };
            rules.extend(of_descriptor.decided(&plan, &settled));
            rules.extend(of_descriptor.skipped(&settled)?);
            let near = of_descriptor.near().await?;
            left_out += near.1;
            rules.extend(near.0);
        }
        let denial = settled.denial.filter(|_| !active.shadow);
        let policy_hash = active.policy.hash().into();
        Ok(Some(ExplainedRequest { policy_hash, allowed: denial.is_none(), denial, rules, left_out }))
    }
}

/// One descriptor of a request.
struct Descriptor<'a> {
    active: &'a Active,
    domain: DomainId,
    request: &'a Request<'a>,
    number: usize,
}

impl<'a> Descriptor<'a> {
    fn question(&self) -> Result<Question<'a>, RequestError> {
        let descriptor = self.request.descriptors.get(self.number).ok_or(RequestError::NoDescriptors)?;
        question(self.request, descriptor)
    }

    fn brings_limit(&self) -> bool {
        self.request.descriptors.get(self.number).is_some_and(|descriptor| descriptor.limit.is_some())
    }

    fn found(&self) -> Result<FoundRules, RequestError> {
        let mut found = FoundRules::new();
        if !self.brings_limit() {
            self.active.policy.find(self.domain, &self.question()?, &mut found);
        }
        Ok(found)
    }

    /// The rules that decide, with what their limits would answer.
    fn decided(&self, plan: &Plan, settled: &Settled) -> Vec<ExplainedRule> {
        let mut all: Vec<(Option<RuleId>, ExplainedRule)> = Vec::new();
        for (judged, planned) in settled.judged.iter().zip(&plan.planned) {
            if judged.descriptor as usize != self.number {
                continue;
            }
            let answer = self.limit_answer(judged, planned.cost, planned.store);
            if let Some((id, ExplainedRule { outcome: RuleMatch::Decides { limits, .. }, .. })) = all.last_mut()
                && *id == judged.rule
            {
                limits.push(answer);
                continue;
            }
            let rule = judged.rule.and_then(|id| self.active.rule(id));
            let key = rule.map(|rule| rule.shown_key(plan.key_bytes(planned))).unwrap_or_default();
            let outcome = RuleMatch::Decides { key, limits: vec![answer] };
            all.push((judged.rule, self.rule(rule, judged.mode, outcome)));
        }
        all.into_iter().map(|(_, rule)| rule).collect()
    }

    /// The rules that match and do not decide.
    fn skipped(&self, settled: &Settled) -> Result<Vec<ExplainedRule>, RequestError> {
        let question = self.question()?;
        let is_of = |judged: &&Judged, id: RuleId| judged.descriptor as usize == self.number && judged.rule == Some(id);
        let mut all = Vec::new();
        for id in self.found()? {
            let (Some(rule), Some(mode)) = (self.active.rule(id), self.active.mode(id)) else { continue };
            if settled.judged.iter().any(|judged| is_of(&judged, id)) {
                continue;
            }
            let makes_key = || rule.key(&question, &mut Vec::new()) != KeyMade::Missing;
            let reason = match mode {
                Mode::Off => "the rule is off",
                _ if rule.missing == Missing::Skip && !makes_key() => "the request lacks a part of the key",
                _ => "another rule replaces its limits",
            };
            all.push(self.rule(Some(rule), mode, RuleMatch::Skipped { reason }));
        }
        Ok(all)
    }

    /// The rules that do not match, those first that come nearest, and the number of those that are left out. Of a domain with
    /// many rules only those are taken of which some condition is met.
    async fn near(&self) -> Result<(Vec<ExplainedRule>, usize), RequestError> {
        if self.brings_limit() {
            return Ok((Vec::new(), 0));
        }
        let mut near: Vec<(Reverse<usize>, usize)> = Vec::new();
        let rules = self.active.policy.rules();
        for (turn, some) in rules.chunks(EXPLAIN_RULES_AT_ONCE).enumerate() {
            let question = self.question()?;
            let comparison = Policy::comparison(&question);
            for (number, rule) in (turn * EXPLAIN_RULES_AT_ONCE..).zip(some) {
                let is_here = *rule.domain == *self.request.domain;
                if let (true, (met, false)) = (is_here, comparison.met(rule)) {
                    near.push((Reverse(met), number));
                }
            }
            drop(comparison);
            yield_now().await;
        }
        near.sort_unstable();
        let of_domain = rules.iter().filter(|rule| *rule.domain == *self.request.domain).count();
        let shown = near.iter().take(EXPLAIN_RULES_MAX);
        let shown: Vec<usize> = shown
            .filter(|(Reverse(met), _)| of_domain <= EXPLAIN_RULES_MAX || *met > 0)
            .map(|(_, number)| *number)
            .collect();
        let question = self.question()?;
        let comparison = Policy::comparison(&question);
        let told = shown.iter().filter_map(|number| self.mismatch(&comparison, *number)).collect();
        Ok((told, near.len() - shown.len()))
    }

    fn mismatch(&self, comparison: &Comparison<'_>, number: usize) -> Option<ExplainedRule> {
        let (rule, record) = (self.active.policy.rules().get(number)?, self.active.records().get(number)?);
        let failed = comparison.mismatch(rule)?.into();
        let outcome = RuleMatch::No { conditions_met: comparison.met(rule).0, failed };
        Some(self.rule(Some(rule), record.mode(rule.mode), outcome))
    }

    fn rule(&self, rule: Option<&Rule>, mode: Mode, outcome: RuleMatch) -> ExplainedRule {
        let rule = rule.map(|rule| rule.name.clone());
        ExplainedRule { descriptor: self.number, rule, mode: effective(mode, self.active.shadow), outcome }
    }

    fn limit_answer(&self, judged: &Judged, cost: u64, store: usize) -> LimitAnswer {
        let rule = judged.rule.and_then(|id| self.active.rule(id));
        let limit = rule.and_then(|rule| rule.limits.get(judged.limit as usize));
        let store = self.active.policy.stores().get(store).filter(|_| limit.is_some() || judged.own.is_some());
        let (decision, retry) = (judged.answer.decision(), judged.answer.retry());
        LimitAnswer {
            policy: limit.map(|limit| limit.name.clone()),
            verdict: judged.answer.verdict(),
            denies: judged.veto && !judged.answer.is_allowed() && !self.active.shadow,
            cost,
            limit: decision.map(|decision| decision.limit()),
            remaining: decision.map(|decision| decision.remaining()),
            retry_after_ns: judged.answer.retry_after().map(nanos),
            never: retry == Some(Retry::Never),
            reset_after_ns: decision.map(|decision| nanos(decision.reset_after())),
            store: store.map(|store| store.name.clone()),
            local: judged.local,
        }
    }
}
