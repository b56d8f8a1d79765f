//! Outcomes of requests, for front ends to encode.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_core::{Charge, Decision, Limit, Op, Phase, Receipt, Retry, Strictness};
use tidegate_policy::{Mode, OwnLimit, Rule, RuleId, RuleLimit, Shown};

use crate::active::Active;
use crate::bounds::FAILURE_RETRY;
use crate::explain::DecisionId;
use crate::http_headers::LimitTexts;

/// The outcome of a request.
#[derive(Debug)]
pub struct Outcome {
    pub(crate) active: arc_swap::Guard<Arc<Active>>,
    pub(crate) known_domain: bool,
    pub(crate) denial: Option<Denial>,
    /// Whether all is in shadow: nothing is denied.
    pub(crate) shadow: bool,
    pub(crate) judged: Judgements,
    /// The id of the denial.
    pub(crate) decision: Option<DecisionId>,
}

/// What all limits said, in the order of descriptors and rules.
#[derive(Debug)]
pub(crate) enum Judgements {
    /// Mostly it is one, which needs no list.
    One(Judged),
    List(Vec<Judged>),
}

impl Judgements {
    /// Nobody said anything.
    pub(crate) const NONE: Judgements = Judgements::List(Vec::new());

    pub(crate) fn as_slice(&self) -> &[Judged] {
        match self {
            Judgements::One(judged) => std::slice::from_ref(judged),
            Judgements::List(list) => list,
        }
    }
}

/// Why a request was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Denial {
    /// This node is overloaded: a store could not be asked in time.
    Overloaded,
    /// A store did not answer, and a rule denies then.
    StoreFailure,
    /// The expression of its cost failed, so it is not known whether it fits.
    CostFailed,
    /// A limit is used up.
    OverLimit,
    /// A penalty for an earlier request is in force.
    Penalty,
    /// A rule blocks every request, or the key of a rule is too long.
    Blocked,
}

/// What one limit of one rule said.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) descriptor: u32,
    pub(crate) rule: Option<RuleId>,
    pub(crate) limit: u32,
    /// Of a limit that the request brought with it.
    pub(crate) own: Option<Box<OwnLimit>>,
    /// That it was not asked, until it is.
    pub(crate) answer: Answer,
    /// Where units were taken for it, until they are given back.
    pub(crate) taken: Option<Receipt>,
    /// By how much the windows of its key start later than those of the epoch.
    pub(crate) phase: Phase,
    /// Whether its denial denies the request.
    pub(crate) veto: bool,
    pub(crate) mode: Mode,
    /// Whether it was decided in this process because the store did not answer.
    pub(crate) local: bool,
}

impl Judged {
    /// Keeps the answer to a charge, and what it took.
    pub(crate) fn decided(&mut self, charge: &Charge<'_>, decision: &Decision) {
        self.answer = Answer::Decided(*decision);
        self.taken = if let Op::Take(1..) = charge.op { decision.receipt() } else { None };
        self.phase = charge.limit.phase(charge.namespace, charge.key);
    }
}

/// The answer of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The store's decision.
    Decided(Decision),
    /// A penalty denies the key for this long, whatever its count.
    Penalised(Duration),
    /// The rule blocks every request, or its key is too long.
    Blocked,
    /// The rule lets every request pass.
    Unlimited,
    /// The store did not answer.
    Failed {
        /// Whether the failure choice of the rule lets the request pass.
        allowed: bool,
    },
    /// The expression of its cost failed. The request does not pass.
    CostFailed,
    /// This node is overloaded: the store could not be asked in time. The request does not pass.
    Overloaded,
    /// The request was denied before the store was asked.
    NotAsked,
}

/// The answer of one limit of one rule, with the rule.
#[derive(Clone, Copy, Debug)]
pub struct Judgement<'o> {
    /// The index of the descriptor.
    pub descriptor: usize,
    /// The rule; `None` if the request brought the limit.
    pub rule: Option<&'o Rule>,
    /// The limit of the rule; `None` if the rule has none.
    pub limit: Option<&'o RuleLimit>,
    /// The limit that the request brought.
    pub own: Option<Limit>,
    /// The numbers of the limit as responses show them.
    pub shown: Option<Shown>,
    /// The offset of the key's windows from those aligned to the epoch.
    pub phase: Phase,
    /// The texts about the limit of a rule that do not change.
    pub texts: Option<&'o LimitTexts>,
    /// The answer.
    pub answer: Answer,
    /// Whether its denial denies the request: not in shadow mode, nor if another quota is left. If the engine denies
    /// nothing at all, it is whether it would.
    pub veto: bool,
    /// Whether it is a quota of an enforced rule: its denial denies the request if all other quotas deny too.
    pub quota: bool,
    /// The mode in force: if the engine denies nothing at all, enforced rules are in shadow mode.
    pub mode: Mode,
    /// Whether it was decided in this process because the store did not answer.
    pub local: bool,
}

impl Answer {
    /// Returns whether this answer alone would let the request pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        match self {
            Answer::Decided(decision) => decision.is_allowed(),
            Answer::Failed { allowed } => *allowed,
            Answer::Unlimited | Answer::NotAsked => true,
            Answer::Penalised(_) | Answer::Blocked | Answer::CostFailed | Answer::Overloaded => false,
        }
    }

    /// Returns the store's decision, if there is one.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match self {
            Answer::Decided(decision) => Some(decision),
            _ => None,
        }
    }

    /// Returns the answer in one word, as responses report it.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self {
            Answer::Decided(decision) if decision.is_allowed() => "allowed",
            Answer::Decided(_) => "over_limit",
            Answer::Penalised(_) => "penalised",
            Answer::Blocked => "blocked",
            Answer::Unlimited => "unlimited",
            Answer::Failed { .. } => "store_failed",
            Answer::CostFailed => "cost_failed",
            Answer::Overloaded => "overloaded",
            Answer::NotAsked => "not_asked",
        }
    }

    /// Returns when to retry, or `None` if it lets the request pass.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        match self {
            Answer::Decided(decision) => decision.retry(),
            Answer::Penalised(left) => Some(Retry::After(*left)),
            // The same request has the same cost.
            Answer::Blocked | Answer::CostFailed => Some(Retry::Never),
            Answer::Failed { allowed: false } | Answer::Overloaded => Some(Retry::Unknown(FAILURE_RETRY)),
            Answer::Failed { allowed: true } | Answer::Unlimited | Answer::NotAsked => None,
        }
    }

    /// Returns how long to wait before a retry, exactly or as a hint, or `None` if it lets the request pass, or never
    /// will.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.retry()? {
            Retry::After(wait) | Retry::Unknown(wait) => Some(wait),
            Retry::Never => None,
        }
    }

    pub(crate) fn strictness(&self) -> Strictness {
        match self {
            Answer::Decided(decision) => decision.strictness(),
            Answer::Penalised(left) => Strictness::new(false, 0, *left),
            Answer::Blocked | Answer::Failed { allowed: false } | Answer::CostFailed | Answer::Overloaded => {
                Strictness::new(false, 0, Duration::MAX)
            }
            Answer::Unlimited | Answer::Failed { allowed: true } | Answer::NotAsked => {
                Strictness::new(true, u64::MAX, Duration::ZERO)
            }
        }
    }

    pub(crate) fn denial(&self) -> Option<Denial> {
        match self {
            Answer::Decided(decision) => (!decision.is_allowed()).then_some(Denial::OverLimit),
            Answer::Penalised(_) => Some(Denial::Penalty),
            Answer::Blocked => Some(Denial::Blocked),
            Answer::Failed { allowed } => (!allowed).then_some(Denial::StoreFailure),
            Answer::CostFailed => Some(Denial::CostFailed),
            Answer::Overloaded => Some(Denial::Overloaded),
            Answer::Unlimited | Answer::NotAsked => None,
        }
    }
}

impl Judgement<'_> {
    /// Returns whether it denies the request, or would if the engine denied anything at all.
    #[must_use]
    pub fn denies(&self) -> bool {
        self.veto && !self.answer.is_allowed()
    }

    /// Returns whether its own limit is used up: a used-up quota does not deny if the request passes by another one.
    #[must_use]
    pub fn is_over(&self) -> bool {
        (self.veto || self.quota) && !self.answer.is_allowed()
    }

    /// Returns how much it binds, compared with others.
    #[must_use]
    pub fn binding(&self) -> Binding {
        Binding::new(self.veto, self.answer.strictness())
    }
}

/// How much an answer binds. Less binds more: answers that may deny come first, and then the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    cannot_deny: bool,
    strictness: Strictness,
}

impl Binding {
    /// Creates the binding of an answer; `veto` is whether its denial denies the request.
    #[must_use]
    pub const fn new(veto: bool, strictness: Strictness) -> Binding {
        Binding { cannot_deny: !veto, strictness }
    }
}

impl Outcome {
    /// What comes of a request to a domain without rules.
    pub(crate) fn of_unknown_domain(active: arc_swap::Guard<Arc<Active>>) -> Outcome {
        Outcome { active, known_domain: false, denial: None, shadow: false, judged: Judgements::NONE, decision: None }
    }

    /// Returns whether the request may pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.denial.is_none() || self.shadow
    }

    /// Returns why the request may not pass, or `None` if it may.
    #[must_use]
    pub fn denial(&self) -> Option<Denial> {
        self.denial.filter(|_| !self.shadow)
    }

    /// Returns the id of the denial, by which [`Engine::explain`](crate::Engine::explain) finds it. `None` if the request may
    /// pass, or the engine keeps no denials.
    #[must_use]
    pub fn decision_id(&self) -> Option<DecisionId> {
        self.decision
    }

    /// Returns whether there are rules for the request's domain.
    #[must_use]
    pub fn is_known_domain(&self) -> bool {
        self.known_domain
    }

    /// Returns whether a rule that decided about the request counts its response too.
    #[must_use]
    pub fn counts_response(&self) -> bool {
        let mut judging = self.judged.as_slice().iter().filter_map(|judged| self.active.rule(judged.rule?));
        judging.any(Rule::counts_responses)
    }

    /// Returns when to retry: the longest wait of the denials.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        self.retry_among(|_| true)
    }

    /// Returns the longest wait of those denials that are `wanted`, for callers that must not see all.
    #[must_use]
    pub fn retry_among(&self, wanted: impl Fn(&Judgement<'_>) -> bool) -> Option<Retry> {
        let denial = self.denial()?;
        let denials = self.judgements().filter(|judgement| judgement.denies() && wanted(judgement));
        // Where deciding failed as a whole, no rule has judged.
        let failed =
            (denial == Denial::StoreFailure && self.judgements().len() == 0).then_some(Retry::Unknown(FAILURE_RETRY));
        Retry::longest(denials.filter_map(|judgement| judgement.answer.retry())).or(failed)
    }

    /// Returns the answer of each limit, in the order of descriptors and rules.
    pub fn judgements(&self) -> impl ExactSizeIterator<Item = Judgement<'_>> {
        self.judged.as_slice().iter().map(|judged| self.judgement(judged))
    }

    fn judgement(&self, judged: &Judged) -> Judgement<'_> {
        let rule = judged.rule.and_then(|id| self.active.rule(id));
        let limit = rule.and_then(|rule| rule.limits.get(judged.limit as usize));
        let report_as = rule.and_then(|rule| rule.report_as.as_ref()).map(|report_as| report_as.shown);
        Judgement {
            descriptor: judged.descriptor as usize,
            rule,
            limit,
            own: judged.own.as_ref().and_then(|own| own.limit),
            shown: judged.own.as_ref().map(|own| own.shown).or(limit.map(|limit| limit.shown)).or(report_as),
            phase: judged.phase,
            texts: judged.rule.and_then(|id| self.active.texts(id, judged.limit)),
            answer: judged.answer,
            veto: judged.veto,
            quota: judged.mode == Mode::Enforce && rule.is_some_and(|rule| rule.quota),
            mode: effective(judged.mode, self.shadow),
            local: judged.local,
        }
    }

    /// Returns the judgement that binds a descriptor most.
    #[must_use]
    pub fn strictest(&self, descriptor: usize) -> Option<Judgement<'_>> {
        self.strictest_among(|judgement| judgement.descriptor == descriptor)
    }

    /// Returns the judgement that binds a descriptor most by itself: a used-up quota comes before one that lets the
    /// request pass.
    #[must_use]
    pub fn strictest_by_itself(&self, descriptor: usize) -> Option<Judgement<'_>> {
        let of_descriptor = self.judgements().filter(|judgement| judgement.descriptor == descriptor);
        of_descriptor
            .min_by_key(|judgement| Binding::new(judgement.veto || judgement.is_over(), judgement.answer.strictness()))
    }

    /// Returns the judgement that binds most among those that are `wanted`.
    #[must_use]
    pub fn strictest_among(&self, wanted: impl Fn(&Judgement<'_>) -> bool) -> Option<Judgement<'_>> {
        self.judgements().filter(|judgement| wanted(judgement)).min_by_key(Judgement::binding)
    }
}

/// The mode that counts, given that of the rule and whether nothing at all is denied.
pub(crate) fn effective(mode: Mode, shadow: bool) -> Mode {
    match mode {
        Mode::Enforce if shadow => Mode::Shadow,
        mode => mode,
    }
}
