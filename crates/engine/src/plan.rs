//! Which charges a request makes: rules are found, keys are made, nothing is taken yet.

use std::ops::Range;
use std::time::Duration;

use tidegate_core::{Charge, Consistency, Key, Limit, MemoryStore, Namespace, Op, Placement};
use tidegate_policy::{
    Action, Ask, Count, Descriptor, DomainId, FoundRules, Http, KeyMade, Missing, Mode, OnStoreFailure, OwnLimit,
    Question, Request, Rule, RuleId, RuleLimit,
};

use crate::active::Active;
use crate::bounds::{CHARGES_MAX, COST_MAX, DESCRIPTORS_MAX, ENTRIES_MAX};
use crate::error::RequestError;
use crate::failure::{Failed, Failures, guarded};
use crate::keys::{Keys, REQUEST_LIMITS};
use crate::penalty::Penalty;
use crate::store::Backend;

/// The charges of a request, with their keys.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) planned: Vec<Planned>,
    /// Rules whose penalties could not be looked up.
    pub(crate) failures: Failures,
    long_keys: LongKeys,
    /// Whether a rule was met that is off.
    met_off: bool,
    /// Whether stores are only looked at: nothing is taken, imposed or counted.
    pub(crate) only_looks: bool,
    keys: Keys,
}

/// What becomes of a request with a text that is too long for an expression in a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LongKeys {
    /// It is at fault.
    #[default]
    Refuse,
    /// It is denied.
    Deny,
}

/// What one limit of one rule is asked.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) descriptor: u32,
    pub(crate) rule: Option<RuleId>,
    pub(crate) limit: u32,
    /// Few requests bring one, and the others need not carry room for it about.
    pub(crate) own: Option<Box<OwnLimit>>,
    pub(crate) key: Range<usize>,
    pub(crate) step: Step,
    /// Units that the request asks for here.
    pub(crate) cost: u64,
    /// Whether its denial denies the request.
    pub(crate) veto: bool,
    /// Of the rule.
    pub(crate) mode: Mode,
    /// Whether its denial denies the request if all others of this kind deny too.
    pub(crate) quota: bool,
    pub(crate) store: usize,
    /// What may deny the key beside its limits and is asked for together with the charge; nothing if that is known
    /// already.
    pub(crate) looks: Looks,
    /// The hash tag of the key; empty if there is none.
    pub(crate) tag: Range<usize>,
    pub(crate) consistency: Consistency,
}

/// What is looked up of a key beside its limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looks {
    /// The penalty of the rule, by its length.
    pub(crate) penalty: Option<Duration>,
    /// Whether an operator blocked the key.
    pub(crate) block: bool,
}

impl Looks {
    pub(crate) fn count(self) -> usize {
        usize::from(self.penalty.is_some()) + usize::from(self.block)
    }
}

/// What is to be done for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Charge(Op),
    Penalised(Duration),
    /// Its store did not answer already, and the rule denies then.
    Failed,
    /// Nobody knows how many units it would take.
    CostFailed,
    Blocked,
    Unlimited,
}

/// What is known of the penalty of a key.
enum Looked {
    Free,
    Denied(Duration),
    /// The store did not answer.
    Unknown,
}

impl Plan {
    /// Finds the rules of all descriptors.
    pub(crate) fn of(
        active: &Active,
        domain: DomainId,
        request: &Request<'_>,
        long_keys: LongKeys,
    ) -> Result<Plan, RequestError> {
        Plan::with_found(active, domain, request, long_keys, None)
    }

    /// The same from the rules of the first descriptor, where they were found already.
    pub(crate) fn with_found(
        active: &Active,
        domain: DomainId,
        request: &Request<'_>,
        long_keys: LongKeys,
        mut first_found: Option<FoundRules>,
    ) -> Result<Plan, RequestError> {
        if request.descriptors.is_empty() {
            return Err(RequestError::NoDescriptors);
        }
        if request.descriptors.len() > DESCRIPTORS_MAX {
            return Err(RequestError::TooManyDescriptors { count: request.descriptors.len() });
        }
        let mut plan = Plan { long_keys, keys: Keys::with_room(), ..Plan::default() };
        let mut found = FoundRules::new();
        for (number, descriptor) in (0..).zip(request.descriptors) {
            let question = question(request, descriptor)?;
            if let Some(own) = descriptor.limit {
                plan.add_own(number, &question, descriptor.ask, own, active.own_limit_store(domain));
                continue;
            }
            match first_found.take() {
                Some(rules) => found = rules,
                None => {
                    found.clear();
                    active.policy.find(domain, &question, &mut found);
                }
            }
            // Mostly there is one, and a list that grows by itself has room for four from the start.
            if plan.planned.is_empty() {
                plan.planned.reserve_exact(found.len());
            }
            for id in &found {
                plan.add_rule(active, number, *id, &question, descriptor.ask)?;
                if plan.planned.len() > CHARGES_MAX {
                    return Err(RequestError::TooManyLimits);
                }
            }
        }
        plan.drop_replaced(active, request.http);
        Ok(plan)
    }

    /// Plans to look at what a request would charge.
    pub(crate) fn to_look(active: &Active, domain: DomainId, request: &Request<'_>) -> Result<Plan, RequestError> {
        let mut plan = Plan::of(active, domain, request, LongKeys::Deny)?;
        plan.only_looks = true;
        for planned in &mut plan.planned {
            if let Step::Charge(op) = &mut planned.step {
                *op = match *op {
                    Op::Take(units) => Op::Ask(units),
                    Op::Ask(units) => Op::Ask(units),
                    _ => Op::Peek,
                };
            }
        }
        Ok(plan)
    }

    /// Whether no rule applies to any descriptor, and none brings a limit of its own.
    pub(crate) fn is_unmatched(&self) -> bool {
        self.planned.is_empty() && !self.met_off
    }

    /// The key of a charge.
    pub(crate) fn key(&self, range: &Range<usize>) -> Result<Key<'_>, RequestError> {
        self.keys.key(range)
    }

    /// The bytes of the key of a charge.
    pub(crate) fn key_bytes(&self, planned: &Planned) -> &[u8] {
        self.keys.bytes(&planned.key)
    }

    /// What is asked of a store for one limit of the plan.
    pub(crate) fn charge<'a>(
        &'a self,
        active: &'a Active,
        planned: &'a Planned,
        op: Op,
    ) -> Result<Option<Charge<'a>>, RequestError> {
        let Some((namespace, limit)) = limit(active, planned) else { return Ok(None) };
        let charge = Charge::new(self.key(&planned.key)?, limit, op).within(namespace);
        Ok(Some(charge.placed(self.placement(planned))))
    }

    fn placement(&self, planned: &Planned) -> Placement<'_> {
        Placement { tag: self.keys.bytes(&planned.tag), consistency: planned.consistency }
    }

    /// The rule's own penalty of the key that a charge counts on.
    pub(crate) fn penalty<'a>(
        &'a self,
        rule: &'a Rule,
        length: Duration,
        planned: &Planned,
    ) -> Result<Penalty<'a>, RequestError> {
        Penalty::of_rule(rule, length, self.key(&planned.key)?, self.keys.bytes(&planned.tag))
    }

    /// The block by an operator of the key that a charge of a rule counts on.
    pub(crate) fn block<'a>(&'a self, rule: &'a Rule, planned: &Planned) -> Result<Penalty<'a>, RequestError> {
        Penalty::by_operator(rule, self.key(&planned.key)?, self.keys.bytes(&planned.tag))
    }

    fn add_own(&mut self, descriptor: u32, question: &Question<'_>, ask: Option<Ask>, own: OwnLimit, store: usize) {
        let key = self.keys.push_own(question);
        let step = match own.limit {
            Some(_) => op(Count::Now(question.cost), ask).map_or(Step::CostFailed, Step::Charge),
            None => Step::Blocked,
        };
        self.planned.push(Planned {
            descriptor,
            rule: None,
            limit: 0,
            own: Some(Box::new(own)),
            key,
            step,
            cost: question.cost,
            veto: true,
            mode: Mode::Enforce,
            quota: false,
            store,
            looks: Looks::default(),
            tag: 0..0,
            consistency: Consistency::Exact,
        });
    }

    fn add_rule(
        &mut self,
        active: &Active,
        descriptor: u32,
        id: RuleId,
        question: &Question<'_>,
        ask: Option<Ask>,
    ) -> Result<(), RequestError> {
        let (Some(rule), Some(mode)) = (active.rule(id), active.mode(id)) else { return Ok(()) };
        if mode == Mode::Off {
            self.met_off = true;
            return Ok(());
        }
        let enforced = mode == Mode::Enforce;
        // What may belong elsewhere passes by no quota but only if all are left.
        let quota = rule.quota && rule.is_sure_of(question.http);
        let first = Planned {
            descriptor,
            rule: Some(id),
            limit: 0,
            own: None,
            key: 0..0,
            step: Step::Unlimited,
            cost: question.cost,
            veto: enforced && !quota,
            mode,
            quota: enforced && quota,
            store: 0,
            looks: Looks::default(),
            tag: 0..0,
            consistency: rule.consistency,
        };
        match rule.action {
            Action::Unlimited => self.planned.push(first),
            Action::Block => self.planned.push(Planned { step: Step::Blocked, ..first }),
            Action::Limit => self.add_limits(active, rule, question, ask, first)?,
        }
        Ok(())
    }

    fn add_limits(
        &mut self,
        active: &Active,
        rule: &Rule,
        question: &Question<'_>,
        ask: Option<Ask>,
        first: Planned,
    ) -> Result<(), RequestError> {
        let (made, key) = self.keys.push(rule, question);
        match made {
            KeyMade::Whole => {}
            KeyMade::Missing if rule.missing == Missing::Deny => {
                self.planned.push(Planned { step: Step::Blocked, ..first });
                return Ok(());
            }
            KeyMade::Missing => return Ok(()),
            KeyMade::TooLong if first.veto && self.long_keys == LongKeys::Refuse => {
                return Err(RequestError::KeyTooLong { rule: rule.name.clone() });
            }
            // Who sends that must not pass uncounted. Who may not deny may not refuse either.
            KeyMade::TooLong => {
                self.planned.push(Planned { step: Step::Blocked, ..first });
                return Ok(());
            }
        }
        let count = rule.count(question);
        let (looked, mut looks) = match (ask, count) {
            // Who gives back asks for nothing that could be denied, and a denial without a cost needs no other reason.
            (Some(Ask::Refund(_)), _) | (_, Count::Failed) => (Looked::Free, Looks::default()),
            _ => self.look_or_plan_to(active, first.rule, rule, &key)?,
        };
        let tag = self.keys.push_tag(rule, &key);
        for (number, limit) in (0..).zip(&rule.limits) {
            let step = match looked {
                Looked::Denied(left) => {
                    let wait = self.wait(active, limit, &key, units(count))?;
                    Step::Penalised(left.max(wait))
                }
                Looked::Unknown if matches!(active.on_store_failure(rule, limit.store), OnStoreFailure::Deny) => {
                    Step::Failed
                }
                Looked::Free | Looked::Unknown => op(count, ask).map_or(Step::CostFailed, Step::Charge),
            };
            // One look is enough for all limits of the rule.
            let looks = std::mem::take(&mut looks);
            let (cost, store, key, tag) = (units(count), limit.store, key.clone(), tag.clone());
            self.planned.push(Planned { limit: number, key, step, cost, store, looks, tag, ..first.clone() });
        }
        Ok(())
    }

    /// Looks whether a key stays denied where that costs nothing, and plans to look where it takes a call.
    fn look_or_plan_to(
        &mut self,
        active: &Active,
        id: Option<RuleId>,
        rule: &Rule,
        key: &Range<usize>,
    ) -> Result<(Looked, Looks), RequestError> {
        match active.store_of(rule).and_then(Backend::states) {
            Some(store) => Ok((self.look(active, id, rule, store, key)?, Looks::default())),
            None => Ok((Looked::Free, Looks { penalty: rule.penalty, block: active.may_be_blocked(rule) })),
        }
    }

    /// Looks whether a key stays denied, in a store that answers at once.
    fn look(
        &mut self,
        active: &Active,
        id: Option<RuleId>,
        rule: &Rule,
        store: &MemoryStore,
        key: &Range<usize>,
    ) -> Result<Looked, RequestError> {
        let (mut longest, key) = (None, self.keys.key(key)?);
        let penalty = rule.penalty.map(|length| Penalty::of_rule(rule, length, key, &[]));
        let block = active.may_be_blocked(rule).then(|| Penalty::by_operator(rule, key, &[]));
        for penalty in penalty.into_iter().chain(block) {
            match penalty?.left_in(store) {
                Ok(left) => longest = longest.max(left),
                Err(_) => {
                    if let Some(id) = id {
                        self.failures.note(active, id, Failed::Unanswered);
                    }
                    return Ok(Looked::Unknown);
                }
            }
        }
        Ok(longest.map_or(Looked::Free, Looked::Denied))
    }

    /// How long the limit alone denies these units. Who waits only until the penalty ends would be denied again, and
    /// penalised anew.
    fn wait(
        &self,
        active: &Active,
        limit: &RuleLimit,
        key: &Range<usize>,
        units: u64,
    ) -> Result<Duration, RequestError> {
        let Some(store) = active.store(limit.store).and_then(Backend::states) else { return Ok(Duration::ZERO) };
        let key = self.key(key)?;
        let asked = guarded(|| store.decide_in(&limit.namespace, key, &limit.limit, Op::Ask(units)));
        Ok(asked.ok().and_then(|decision| decision.retry_after()).unwrap_or_default())
    }

    /// Drops the limits that a rule beside them replaces, if the rule is sure to be for this request.
    fn drop_replaced(&mut self, active: &Active, http: Option<&Http<'_>>) {
        let rules = active.policy.rules();
        let rule_of = |planned: &Planned| planned.rule.and_then(|id| rules.get(id.index()));
        let replacing: Vec<(RuleId, &Rule)> = self
            .planned
            .iter()
            .filter_map(|planned| Some((planned.rule?, rule_of(planned)?)))
            .filter(|(_, rule)| !rule.replaces.is_empty() && rule.is_sure_of(http))
            .collect();
        if replacing.is_empty() {
            return;
        }
        self.planned.retain(|planned| {
            let Some(rule) = rule_of(planned) else { return true };
            // What blocks or does not limit has no limit to be named by, only itself.
            let name = rule.limits.get(planned.limit as usize).map_or(&rule.name, |limit| &limit.name);
            let replaces = |(id, rule): &(RuleId, &Rule)| planned.rule != Some(*id) && rule.replaces.contains(name);
            !replacing.iter().any(replaces)
        });
    }
}

/// The limit of a rule, or the one that the request brought with it, and what it counts for.
pub(crate) fn limit<'a>(active: &'a Active, planned: &'a Planned) -> Option<(&'a Namespace, &'a Limit)> {
    if let Some(own) = &planned.own {
        return own.limit.as_ref().map(|limit| (&REQUEST_LIMITS, limit));
    }
    let rule = active.rule(planned.rule?)?;
    rule.limits.get(planned.limit as usize).map(|limit| (&limit.namespace, &limit.limit))
}

pub(crate) fn question<'a>(request: &Request<'a>, descriptor: &Descriptor<'a>) -> Result<Question<'a>, RequestError> {
    if descriptor.entries.len() > ENTRIES_MAX {
        return Err(RequestError::TooManyEntries { count: descriptor.entries.len() });
    }
    let cost = match descriptor.ask {
        Some(Ask::Take(units) | Ask::Refund(units)) => units,
        None => request.cost,
    };
    if cost > COST_MAX {
        return Err(RequestError::Cost { cost });
    }
    Ok(Question { domain: request.domain, entries: descriptor.entries, http: request.http, cost })
}

fn units(count: Count) -> u64 {
    match count {
        Count::Now(units) | Count::Look(units) | Count::Later(units) => units,
        Count::Failed => 0,
    }
}

/// What is asked of a limit; nothing if the cost could not be computed.
fn op(count: Count, ask: Option<Ask>) -> Option<Op> {
    Some(match (ask, count) {
        // What a request took goes back, which need not be what it asked for.
        (Some(Ask::Refund(_)), Count::Now(units)) => Op::Refund(units, None),
        // It took nothing.
        (Some(Ask::Refund(_)), Count::Look(_) | Count::Later(_) | Count::Failed) => Op::Peek,
        (_, Count::Failed) => return None,
        (_, Count::Now(0)) => Op::Ask(0),
        (_, Count::Now(units)) => Op::Take(units),
        (_, Count::Look(units) | Count::Later(units)) => Op::Ask(units),
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
