//! What front ends call.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tidegate_core::bounds::KEY_BYTES_MAX;
use tidegate_core::{CapacityError, ChargeError, Clock, Decision, Key, KeyError, Limit, LimitError, MemoryStore, Op};
use tidegate_policy::{Ask, Descriptor, Mode, Policy, Question, Request, Response, RuleId, StoreSpec};

use crate::bounds::{
    CHARGES_MAX, COST_MAX, DESCRIPTORS_MAX, ENTRIES_MAX, RULES_GONE_MAX, SERIES_MAX, SERIES_VALUE_BYTES_MAX,
};
use crate::failure::{guarded, guarded_future};
use crate::outcome::{Judged, Outcome};
use crate::penalty::Penalties;
use crate::plan::{Plan, Purpose};
use crate::settle::settle;
use crate::stats::{Counter, Record};
use crate::store::{Backend, Stores};

/// How an engine is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where time comes from.
    pub clock: Clock,
    /// Keys that find an exact place in the default store, if the configuration does not say.
    pub keys: Option<usize>,
    /// Whether all rules are in shadow: answers tell what they would deny. Limits that callers bring still hold.
    pub shadow: bool,
}

/// Decides requests under a policy that may change while it runs.
#[derive(Debug)]
pub struct Engine {
    pub(crate) active: ArcSwap<Active>,
    stores: Stores,
    pub(crate) default_store: Arc<MemoryStore>,
    options: Options,
    pub(crate) penalties: Penalties,
    records: Mutex<HashMap<RuleName, Arc<Record>>>,
    any_blocked: Arc<AtomicBool>,
    series: AtomicUsize,
    pub(crate) failed: AtomicU64,
}

/// A domain and the name of a rule in it.
type RuleName = (Box<str>, Box<str>);

/// A policy with all that its rules need at hand, by their number.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) policy: Policy,
    records: Vec<Arc<Record>>,
    stores: Vec<Backend>,
    any_blocked: Arc<AtomicBool>,
    /// Whether nothing at all is denied.
    pub(crate) shadow: bool,
}

impl Active {
    #[cfg(test)]
    pub(crate) fn for_tests(policy: Policy, stores: Vec<Backend>) -> Active {
        let records = policy.rules().iter().map(|_| Arc::new(Record::new())).collect();
        Active { policy, records, stores, any_blocked: Arc::default(), shadow: false }
    }

    pub(crate) fn store_count(&self) -> usize {
        self.stores.len()
    }

    pub(crate) fn store(&self, number: usize) -> Option<&Backend> {
        self.stores.get(number)
    }

    pub(crate) fn records(&self) -> &[Arc<Record>] {
        &self.records
    }

    pub(crate) fn record(&self, id: RuleId) -> Option<&Record> {
        self.records.get(id.index()).map(Arc::as_ref)
    }

    /// The mode of a rule, as it is now.
    pub(crate) fn mode(&self, id: RuleId) -> Option<Mode> {
        Some(self.record(id)?.mode(self.policy.rules().get(id.index())?.mode))
    }

    /// Whether an operator ever blocked a key, so that every key has to be looked up among the blocked ones.
    pub(crate) fn any_blocked(&self) -> bool {
        self.any_blocked.load(Ordering::Relaxed)
    }
}

/// Why a request was not decided: it is itself at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Nothing to decide.
    #[error("descriptors: none; give at least one")]
    NoDescriptors,
    /// More than are looked up.
    #[error("descriptors: {count} are too many; use at most {DESCRIPTORS_MAX}")]
    TooManyDescriptors {
        /// How many there were.
        count: usize,
    },
    /// More than are matched.
    #[error("entries: {count} are too many for one descriptor; use at most {ENTRIES_MAX}")]
    TooManyEntries {
        /// How many there were.
        count: usize,
    },
    /// More limits than are charged for one request.
    #[error("descriptors: more than {CHARGES_MAX} limits apply to them; use fewer, or rules that match fewer")]
    TooManyLimits,
    /// More units than any limit has.
    #[error("cost: {cost} is too large; use at most {COST_MAX}")]
    Cost {
        /// The cost.
        cost: u64,
    },
    /// A key that cannot be counted on.
    #[error(transparent)]
    Key(KeyError),
    /// What a rule would count on is too long.
    #[error("key: what rule `{rule}` counts on is too long; use shorter values, {KEY_BYTES_MAX} bytes in all")]
    KeyTooLong {
        /// The rule.
        rule: Box<str>,
    },
    /// Charges that cannot be made together.
    #[error(transparent)]
    Charges(ChargeError),
    /// A penalty of a length that cannot be kept.
    #[error(transparent)]
    Penalty(LimitError),
}

impl Engine {
    /// An engine without rules: it decides what brings its own limit.
    ///
    /// # Errors
    /// If the system has no memory for its store.
    pub fn new(options: Options) -> Result<Engine, CapacityError> {
        let spec = default_spec(&options);
        Engine::beside(options, &spec)
    }

    /// An engine that decides by this policy from the start: the default store is made as the policy says, which no
    /// later one can change.
    ///
    /// # Errors
    /// If the system has no memory for its stores.
    pub fn with_policy(options: Options, policy: Policy) -> Result<Engine, CapacityError> {
        let mut spec = policy.stores().first().cloned().unwrap_or_else(|| default_spec(&options));
        spec.keys = spec.keys.or(options.keys);
        let engine = Engine::beside(options, &spec)?;
        engine.install(policy)?;
        Ok(engine)
    }

    fn beside(options: Options, default: &StoreSpec) -> Result<Engine, CapacityError> {
        let stores = Stores::new(options.clock.clone());
        let (default_store, _) = stores.get(default)?;
        let any_blocked = Arc::new(AtomicBool::new(false));
        let active = Active {
            policy: Policy::default(),
            records: Vec::new(),
            stores: vec![Backend::Memory(Arc::clone(&default_store))],
            any_blocked: Arc::clone(&any_blocked),
            shadow: options.shadow,
        };
        let penalties = Penalties::new();
        Ok(Engine {
            active: ArcSwap::from_pointee(active),
            stores,
            default_store,
            options,
            penalties,
            records: Mutex::default(),
            any_blocked,
            series: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Decides by this policy from now on. What was counted stays, as far as names, algorithms and windows do. Tells
    /// the names of stores that keep the size they were made with, though the policy says another.
    ///
    /// # Errors
    /// If the system has no memory for a new store: the old policy goes on.
    pub fn install(&self, policy: Policy) -> Result<Vec<Box<str>>, CapacityError> {
        let mut unchanged = Vec::new();
        let mut stores = Vec::new();
        let mut specs = policy.stores().to_vec();
        if specs.is_empty() {
            specs.push(default_spec(&self.options));
        }
        // The size of the command line is that of the default store, which is the first.
        if let Some(default) = specs.first_mut() {
            default.keys = default.keys.or(self.options.keys);
        }
        for spec in &specs {
            let (store, differs) = self.stores.get(spec)?;
            if differs {
                unchanged.push(spec.name.clone());
            }
            stores.push(Backend::Memory(store));
        }
        let mut known = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let records: Vec<Arc<Record>> = policy
            .rules()
            .iter()
            .map(|rule| {
                let name = (rule.domain.clone(), rule.name.clone());
                Arc::clone(known.entry(name).or_insert_with(|| Arc::new(Record::new())))
            })
            .collect();
        self.forget_gone(&mut known, &records);
        let (any_blocked, shadow) = (Arc::clone(&self.any_blocked), self.options.shadow);
        self.active.store(Arc::new(Active { policy, records, stores, any_blocked, shadow }));
        Ok(unchanged)
    }

    /// Makes room for the series of rules that are there, and forgets the others if they are too many.
    fn forget_gone(&self, known: &mut HashMap<RuleName, Arc<Record>>, records: &[Arc<Record>]) {
        let current: HashSet<*const Record> = records.iter().map(Arc::as_ptr).collect();
        let are_too_many = known.len() > current.len().saturating_add(RULES_GONE_MAX);
        let mut forgotten = 0;
        known.retain(|_, record| {
            if current.contains(&Arc::as_ptr(record)) {
                return true;
            }
            forgotten += record.forget_series();
            !are_too_many
        });
        self.series.fetch_sub(forgotten, Ordering::Relaxed);
    }

    /// Decides a request: takes what it costs from every limit that applies, or nothing if any denies.
    ///
    /// # Errors
    /// If the request itself is at fault.
    pub async fn check(&self, request: &Request<'_>) -> Result<Outcome, RequestError> {
        guarded_future(self.check_by_rules(request)).await.unwrap_or_else(|_| Ok(self.unplanned(request)))
    }

    async fn check_by_rules(&self, request: &Request<'_>) -> Result<Outcome, RequestError> {
        let active = self.active.load();
        let Some(domain) = active.policy.domain(request.domain) else {
            return Ok(Outcome { active, known_domain: false, denial: None, shadow: false, judged: Vec::new() });
        };
        let plan = Plan::of(&active, &self.penalties, domain, request)?;
        let local = Backend::Memory(Arc::clone(&self.default_store));
        let settled = settle(&active, &local, &plan).await?;
        let outcome = Outcome {
            active,
            known_domain: true,
            denial: settled.denial,
            shadow: self.options.shadow,
            judged: settled.judged,
        };
        self.count(request, &plan, &outcome);
        Ok(outcome)
    }

    /// Counts what became of a request, for the rules that count responses. Tells how many did.
    ///
    /// # Errors
    /// If the request itself is at fault.
    pub async fn report(&self, request: &Request<'_>, response: &Response) -> Result<usize, RequestError> {
        let active = self.active.load();
        let Some(domain) = active.policy.domain(request.domain) else { return Ok(0) };
        let plan = Plan::of(&active, &self.penalties, domain, request)?;
        let mut counted = 0;
        for planned in &plan.planned {
            let (Some(id), Some(descriptor)) = (planned.rule, request.descriptors.get(planned.descriptor as usize))
            else {
                continue;
            };
            let Some(rule) = active.policy.rules().get(id.index()) else { continue };
            let question = Question {
                domain: request.domain,
                entries: descriptor.entries,
                http: request.http,
                cost: planned.cost,
            };
            let units = rule.count_response(&question, response).min(COST_MAX);
            let (Some(limit), Some(Backend::Memory(store))) =
                (rule.limits.get(planned.limit as usize), active.store(planned.store))
            else {
                continue;
            };
            if units == 0 {
                continue;
            }
            let key = plan.key(&planned.key)?;
            let Ok(decision) = guarded(|| store.decide(key, &limit.limit, Op::Debit(units))) else {
                if let Some(record) = active.record(id) {
                    record.all.add(Counter::Failed, 1);
                }
                continue;
            };
            counted += 1;
            // A rule of several limits counts a response once.
            if let (0, Some(record)) = (planned.limit, active.record(id)) {
                record.all.add(Counter::Reported, units);
            }
            if let (0, Some(length)) = (decision.remaining(), rule.penalty) {
                let key = plan.penalty_key(rule, planned);
                let key = Key::new(&key).map_err(RequestError::Key)?;
                let lengthened = guarded(|| self.penalties.lengthen(store, key, length));
                lengthened.unwrap_or(Ok(())).map_err(RequestError::Penalty)?;
            }
        }
        Ok(counted)
    }

    /// Decides for a key under a limit that the caller brings, in the default store.
    ///
    /// # Errors
    /// If the key is empty or too long.
    #[inline]
    pub async fn decide(&self, key: &[u8], limit: &Limit, op: Op) -> Result<Decision, KeyError> {
        let mut bytes = [0; 64];
        // Most keys are short, and need no allocation to get their first byte.
        let Some(short) = bytes.get_mut(..=key.len()).filter(|_| !key.is_empty()) else {
            return self.decide_long(key, limit, op);
        };
        short[0] = Purpose::Inline.byte();
        short[1..].copy_from_slice(key);
        Ok(self.decide_guarded(Key::new(short)?, limit, op))
    }

    #[cold]
    fn decide_long(&self, key: &[u8], limit: &Limit, op: Op) -> Result<Decision, KeyError> {
        Ok(self.decide_guarded(Key::new(&inline_key(key)?)?, limit, op))
    }

    /// The policy's rules as they stand, for those who need more than decisions.
    #[must_use]
    pub fn policy(&self) -> PolicyGuard {
        PolicyGuard(self.active.load_full())
    }

    /// Whether nothing is ever denied.
    #[must_use]
    pub fn is_in_shadow(&self) -> bool {
        self.options.shadow
    }

    /// The clock of the default store.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.default_store.clock()
    }

    /// Adds a request to the counts of the rules that judged it.
    fn count(&self, request: &Request<'_>, plan: &Plan, outcome: &Outcome) {
        let mut number = 0;
        while let Some(first) = outcome.judged.get(number) {
            let same = |judged: &&Judged| (judged.descriptor, judged.rule) == (first.descriptor, first.rule);
            let group = number..number + outcome.judged[number..].iter().take_while(same).count();
            self.count_rule(request, plan, outcome, group.clone());
            number = group.end;
        }
    }

    /// Adds the judgements of one rule, one for each of its limits, to its counts.
    fn count_rule(&self, request: &Request<'_>, plan: &Plan, outcome: &Outcome, group: std::ops::Range<usize>) {
        let (Some(judged), Some(planned)) = (outcome.judged.get(group.clone()), plan.planned.get(group)) else {
            return;
        };
        let (Some(first), Some(asked)) = (judged.first(), planned.first()) else { return };
        let Some((id, record)) = first.rule.and_then(|id| Some((id, outcome.active.record(id)?))) else { return };
        let over = judged.iter().any(|judged| !judged.answer.is_allowed());
        let denies = over && !outcome.shadow && judged.iter().any(|judged| judged.veto);
        // Units that come back were not asked for.
        let is_refund = matches!(
            request.descriptors.get(first.descriptor as usize),
            Some(Descriptor { ask: Some(Ask::Refund(_)), .. })
        );
        let units = if is_refund { 0 } else { asked.cost };
        let mut amounts = Vec::with_capacity(4);
        amounts.push((Counter::Hits, units));
        match (over, denies) {
            (true, true) => amounts.extend([(Counter::Denied, 1), (Counter::OverLimit, units)]),
            (true, false) => {
                amounts.extend([(Counter::ShadowDenied, 1), (Counter::OverLimit, units), (Counter::Shadow, units)]);
            }
            (false, _) => {
                amounts.push((Counter::Allowed, 1));
                if outcome.denial.is_none() {
                    amounts.push((Counter::WithinLimit, units));
                    let near = judged.iter().filter_map(|judged| judged.answer.decision()).map(|one| near(one, units));
                    amounts.push((Counter::NearLimit, near.max().unwrap_or(0)));
                }
            }
        }
        for (counter, amount) in &amounts {
            record.all.add(*counter, *amount);
        }
        let Some(rule) = outcome.active.policy.rules().get(id.index()) else { return };
        if let (false, Some(descriptor)) =
            (rule.metric_entries.is_empty(), request.descriptors.get(first.descriptor as usize))
        {
            let entry = |name: &str| descriptor.entries.iter().find(|entry| entry.key == name);
            let value = |name: &str| match entry(name).map_or("", |entry| entry.value) {
                value if value.len() <= SERIES_VALUE_BYTES_MAX => Some(value.into()),
                _ => None,
            };
            let values = rule.metric_entries.iter().map(|name| value(name)).collect();
            record.add_to_series(values, || self.room_for_series(), &amounts);
        }
    }

    fn room_for_series(&self) -> bool {
        let one_more = |count: usize| (count < SERIES_MAX).then_some(count + 1);
        self.series.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    pub(crate) fn note_blocked(&self) {
        self.any_blocked.store(true, Ordering::Relaxed);
    }
}

/// A policy that stays as it is while it is looked at.
#[derive(Clone, Debug)]
pub struct PolicyGuard(Arc<Active>);

impl std::ops::Deref for PolicyGuard {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.0.policy
    }
}

/// A key of a caller who brings the limit.
pub(crate) fn inline_key(key: &[u8]) -> Result<Vec<u8>, KeyError> {
    // Empty keys are refused here, or they would all be one key.
    Key::new(key)?;
    Ok([&[Purpose::Inline.byte()], key].concat())
}

/// How many of the units just taken lie above four fifths of the limit.
fn near(decision: &Decision, units: u64) -> u64 {
    let used = decision.limit().saturating_sub(decision.remaining());
    let threshold = u64::try_from(u128::from(decision.limit()) * 4 / 5).unwrap_or(u64::MAX);
    used.saturating_sub(threshold).min(units)
}

fn default_spec(options: &Options) -> StoreSpec {
    StoreSpec { name: "default".into(), url: None, keys: options.keys, log_entries: None }
}
