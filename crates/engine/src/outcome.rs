//! What came out of a request, for front ends to encode.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Charge, Decision, Limit, Op, Phase, Receipt, Retry, Strictness};
use tidegate_policy::{Mode, OwnLimit, Rule, RuleId, RuleLimit, Shown};

use crate::active::Active;
use crate::bounds::FAILURE_RETRY;
use crate::http_headers::LimitTexts;

/// What came out of a request.
#[derive(Debug)]
pub struct Outcome {
    pub(crate) active: arc_swap::Guard<Arc<Active>>,
    pub(crate) known_domain: bool,
    pub(crate) denial: Option<Denial>,
    /// Whether all is in shadow: nothing is denied.
    pub(crate) shadow: bool,
    pub(crate) judged: Judgements,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// This node is overloaded: a store could not be asked in time.
    Overloaded,
    /// A store did not answer, and a rule says to deny then.
    StoreFailure,
    /// The expression for its cost failed, so nobody knows whether it fits.
    CostFailed,
    /// A limit is used up.
    OverLimit,
    /// The key was denied before and stays so for a time.
    Penalty,
    /// A rule denies whatever it applies to, or what it would count on is too long to be counted.
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

/// What a limit said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its decision.
    Decided(Decision),
    /// The key is denied for this long, whatever its count.
    Penalised(Duration),
    /// The rule denies all, or what it would count on is too long to be counted.
    Blocked,
    /// The rule lets all pass.
    Unlimited,
    /// The store did not answer: whether the rule lets pass then.
    Failed {
        /// Whether it passes.
        allowed: bool,
    },
    /// The expression for its cost failed. It does not pass.
    CostFailed,
    /// This node is overloaded: the store could not be asked in time. It does not pass.
    Overloaded,
    /// The request was denied before the store was asked.
    NotAsked,
}

/// What one limit of one rule said, with the rule.
#[derive(Clone, Copy, Debug)]
pub struct Judgement<'o> {
    /// The number of the descriptor it is about.
    pub descriptor: usize,
    /// The rule; none if the request brought the limit with it.
    pub rule: Option<&'o Rule>,
    /// The limit of the rule; none if the rule has none.
    pub limit: Option<&'o RuleLimit>,
    /// The limit that the request brought with it.
    pub own: Option<Limit>,
    /// How the limit is told of.
    pub shown: Option<Shown>,
    /// By how much the windows of the key start later than those of the epoch.
    pub phase: Phase,
    /// What is told of the limit of a rule and stays as it is.
    pub texts: Option<&'o LimitTexts>,
    /// What it said.
    pub answer: Answer,
    /// Whether its denial denies the request: not in shadow, nor where another quota is left. Where the engine denies
    /// nothing at all, it would have denied the request.
    pub veto: bool,
    /// Whether it is a quota of a rule that enforces: its denial denies the request if all others of this kind deny too.
    pub quota: bool,
    /// The mode that counts: of a rule that enforces it is shadow where the engine denies nothing at all.
    pub mode: Mode,
    /// Whether it was decided in this process because the store did not answer.
    pub local: bool,
}

impl Answer {
    /// Whether this alone would let the request pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        match self {
            Answer::Decided(decision) => decision.is_allowed(),
            Answer::Failed { allowed } => *allowed,
            Answer::Unlimited | Answer::NotAsked => true,
            Answer::Penalised(_) | Answer::Blocked | Answer::CostFailed | Answer::Overloaded => false,
        }
    }

    /// The numbers, where there are any.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match self {
            Answer::Decided(decision) => Some(decision),
            _ => None,
        }
    }

    /// When to ask again; nothing if it lets the request pass.
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

    /// How long to wait before asking again, exact or as a hint; nothing if it lets the request pass, or never will.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.retry()? {
            Retry::After(wait) | Retry::Unknown(wait) => Some(wait),
            Retry::Never => None,
        }
    }

    fn strictness(&self) -> Strictness {
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
    /// Whether it denies the request, or would if the engine denied anything at all.
    #[must_use]
    pub fn denies(&self) -> bool {
        self.veto && !self.answer.is_allowed()
    }

    /// Returns whether its own limit is used up: that of a quota may be where the request passes by another one.
    #[must_use]
    pub fn is_over(&self) -> bool {
        (self.veto || self.quota) && !self.answer.is_allowed()
    }

    /// How much it binds, beside others.
    #[must_use]
    pub fn binding(&self) -> Binding {
        Binding::new(self.veto, self.answer.strictness())
    }
}

/// How much an answer binds. Less binds more: what may deny comes first, and then the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    cannot_deny: bool,
    strictness: Strictness,
}

impl Binding {
    /// That of an answer, given whether its denial denies.
    #[must_use]
    pub const fn new(veto: bool, strictness: Strictness) -> Binding {
        Binding { cannot_deny: !veto, strictness }
    }
}

impl Outcome {
    /// What comes of a request to a domain without rules.
    pub(crate) fn of_unknown_domain(active: arc_swap::Guard<Arc<Active>>) -> Outcome {
        Outcome { active, known_domain: false, denial: None, shadow: false, judged: Judgements::NONE }
    }

    /// Whether the request may pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.denial.is_none() || self.shadow
    }

    /// Why it may not pass.
    #[must_use]
    pub fn denial(&self) -> Option<Denial> {
        self.denial.filter(|_| !self.shadow)
    }

    /// Whether any rules stand under the domain that was named.
    #[must_use]
    pub fn is_known_domain(&self) -> bool {
        self.known_domain
    }

    /// Whether a rule that judged it counts its response too.
    #[must_use]
    pub fn counts_response(&self) -> bool {
        let mut judging = self.judged.as_slice().iter().filter_map(|judged| self.active.rule(judged.rule?));
        judging.any(Rule::counts_responses)
    }

    /// When to ask again: the longest of the denials.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        self.retry_among(|_| true)
    }

    /// The longest of those denials that are `wanted`, as by somebody who may not hear of all.
    #[must_use]
    pub fn retry_among(&self, wanted: impl Fn(&Judgement<'_>) -> bool) -> Option<Retry> {
        let denial = self.denial()?;
        let denials = self.judgements().filter(|judgement| judgement.denies() && wanted(judgement));
        // Where deciding failed as a whole, no rule has judged.
        let failed =
            (denial == Denial::StoreFailure && self.judgements().len() == 0).then_some(Retry::Unknown(FAILURE_RETRY));
        Retry::longest(denials.filter_map(|judgement| judgement.answer.retry())).or(failed)
    }

    /// What each limit said, in the order of descriptors and rules.
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

    /// The judgement that binds a descriptor most.
    #[must_use]
    pub fn strictest(&self, descriptor: usize) -> Option<Judgement<'_>> {
        self.strictest_among(|judgement| judgement.descriptor == descriptor)
    }

    /// Returns the judgement that binds a descriptor most by itself: a spent quota comes before what lets the request pass.
    #[must_use]
    pub fn strictest_by_itself(&self, descriptor: usize) -> Option<Judgement<'_>> {
        let of_descriptor = self.judgements().filter(|judgement| judgement.descriptor == descriptor);
        of_descriptor
            .min_by_key(|judgement| Binding::new(judgement.veto || judgement.is_over(), judgement.answer.strictness()))
    }

    /// The one that binds most of those that are `wanted`.
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
