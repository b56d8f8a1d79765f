//! The interface for front ends: decides and reports requests, and installs policies.

use std::collections::{HashMap, HashSet};
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use futures_util::future::{OptionFuture, join_all};
use tidegate_core::{Clock, MemoryStore, Op};
use tidegate_policy::{
    DomainId, FoundRules, OnStoreFailure, Policy, Question, Request, Response, StorePlace, StoreSpec,
};
use tidegate_stores::{AnyStore, Call};

use crate::active::{Active, Parts, PolicyGuard};
use crate::bounds::{COST_MAX, RULES_GONE_MAX};
use crate::crowd::{BlockKind, Crowd};
use crate::error::RequestError;
use crate::explain::{DecisionId, Denials, Denied};
use crate::failure::{Failed, guarded, guarded_at_once, guarded_future};
use crate::instead::Instead;
use crate::outcome::{Denial, Judged, Judgements, Outcome};
use crate::permit_book::PermitBook;
use crate::permits::{PermitCounters, PermitOptions};
use crate::plan::{LongKeys, Plan, Step};
use crate::settle::settle;
use crate::sole::{self, Way};
use crate::stats::{Counter, Record};
use crate::store::{Backend, ChargeFailure, InstallError, MemoryView, StoreView, Stores, build_memory};
use crate::unmatched::Unmatched;

/// The options of an engine.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The clock.
    pub clock: Clock,
    /// The URL of the default store, if it is shared and the configuration sets none.
    pub store: Option<Box<str>>,
    /// The number of keys that the default store counts exactly, unless the configuration sets one.
    pub keys: Option<usize>,
    /// Whether all rules are in shadow mode: outcomes show the denials, and nothing is denied. Limits that callers
    /// bring still hold.
    pub shadow: bool,
    /// Stores that the program created itself, by name. Each replaces the store of that name in any configuration,
    /// which must list it under `stores` (except `default`).
    pub stores: HashMap<Box<str>, AnyStore>,
    /// The bounds on callers' permits.
    pub permits: PermitOptions,
    /// Bytes for the denials that can be explained. With 0, denials have no ids.
    pub explain_bytes: usize,
}

/// Decides requests by a policy that can be replaced at run time.
#[derive(Debug)]
pub struct Engine {
    pub(crate) active: ArcSwap<Active>,
    stores: Stores,
    /// The first store of every policy.
    pub(crate) default_store: Backend,
    /// Where limits count that callers bring: the default store, or memory of their own beside it, which no rule shares.
    pub(crate) callers: Backend,
    /// The memory of this process for rules: for when another store does not answer.
    pub(crate) local: Arc<MemoryStore>,
    /// Permits in the memory of this process: all, or those of while a shared store does not answer.
    pub(crate) permits: PermitBook,
    pub(crate) permit_counters: PermitCounters,
    options: Options,
    records: Mutex<HashMap<RuleName, Arc<Record>>>,
    /// What is known of the keys of all rules.
    pub(crate) crowd: Arc<Crowd>,
    /// The denials that can be explained.
    pub(crate) denials: Option<Arc<Denials>>,
    any_blocked: Arc<AtomicBool>,
    /// Tells callers apart, otherwise in each process, so that nobody can choose to be taken for another.
    pub(crate) sources: RandomState,
    /// How many series are kept for values of entries.
    pub(crate) series: AtomicUsize,
    pub(crate) undecided: AtomicU64,
    pub(crate) fell_back: AtomicU64,
    pub(crate) overloaded_callers: AtomicU64,
}

/// What the default store is called.
const DEFAULT_STORE: &str = "default";

/// A domain and the name of a rule in it.
type RuleName = (Box<str>, Box<str>);

impl Engine {
    /// Creates an engine without rules: it decides requests that bring their own limit.
    ///
    /// # Errors
    /// Fails if there is no memory for its store.
    pub fn new(options: Options) -> Result<Engine, InstallError> {
        let spec = default_spec(&options);
        Engine::beside(options, &spec)
    }

    /// Creates an engine with a policy. The policy determines the default store, which later ones cannot change.
    ///
    /// # Errors
    /// Fails if there is no memory for its stores.
    pub fn with_policy(options: Options, policy: Policy) -> Result<Engine, InstallError> {
        let mut spec = policy.stores().first().cloned().unwrap_or_else(|| default_spec(&options));
        if options.store.is_some() && spec.place.is_some() {
            tracing::warn!(
                "the configuration sets the URL of the default store: the one of the command line is ignored"
            );
        }
        complete(&mut spec, &options);
        let engine = Engine::beside(options, &spec)?;
        engine.install(policy)?;
        Ok(engine)
    }

    fn beside(options: Options, default: &StoreSpec) -> Result<Engine, InstallError> {
        let (stores, default_store) = Stores::new(options.clock.clone(), default, options.stores.clone())?;
        let beside = build_memory(default, &options.clock)?;
        let (local, callers) = match default_store.memory() {
            Some(memory) => (memory.clone(), Backend::memory_of(beside)),
            None => (beside, default_store.clone()),
        };
        let any_blocked = Arc::new(AtomicBool::new(false));
        let crowd = Arc::new(Crowd::new(options.clock.clone()));
        let denials = Denials::new(options.explain_bytes, crowd.node.clone(), options.clock.clone()).map(Arc::new);
        let active = Active::new(
            Policy::default(),
            Parts {
                records: Vec::new(),
                stores: vec![default_store.clone()],
                callers: callers.clone(),
                any_blocked: Arc::clone(&any_blocked),
                unmatched: Unmatched::default(),
                crowd: Arc::clone(&crowd),
                denials: denials.clone(),
                shadow: options.shadow,
            },
        );
        Ok(Engine {
            active: ArcSwap::from_pointee(active),
            stores,
            default_store,
            callers,
            permits: PermitBook::new(&options.clock, local.permits().clone(), options.permits),
            permit_counters: PermitCounters::default(),
            local: Arc::clone(local.states()),
            options,
            records: Mutex::default(),
            crowd,
            denials,
            any_blocked,
            sources: RandomState::new(),
            series: AtomicUsize::new(0),
            undecided: AtomicU64::new(0),
            fell_back: AtomicU64::new(0),
            overloaded_callers: AtomicU64::new(0),
        })
    }

    /// Installs a policy, which decides from now on. Counts stay for the names, algorithms and windows that stay. A
    /// store that the policy does not name is dropped, and starts empty if it is named again. Returns the names of
    /// stores that keep the size they were created with, although the policy sets another.
    ///
    /// # Errors
    /// Fails if there is no memory for a new store; the old policy stays in force.
    pub fn install(&self, policy: Policy) -> Result<Vec<Box<str>>, InstallError> {
        // Held to the end: of two policies at a time, the one that is in force is the one whose stores are kept.
        let mut known = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let mut specs = policy.stores().to_vec();
        if specs.is_empty() {
            specs.push(default_spec(&self.options));
        }
        // The size of the command line is that of the default store, which is the first.
        if let Some(default) = specs.first_mut() {
            complete(default, &self.options);
        }
        let found = self.stores.install(&specs, &policy)?;
        let stores = found.stores;
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
        let unmatched = Unmatched::of(&policy, &self.active.load().unmatched);
        let (callers, crowd, denials) = (self.callers.clone(), Arc::clone(&self.crowd), self.denials.clone());
        let parts = Parts { records, stores, callers, any_blocked, unmatched, crowd, denials, shadow };
        let active = Arc::new(Active::new(policy, parts));
        let shared = active.stores.iter().filter_map(|backend| backend.asked()?.exchange.as_ref());
        shared.for_each(|exchange| exchange.attach(&active));
        self.active.store(active);
        Ok(found.unchanged)
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

    /// Decides a request: takes its cost from every limit that applies, or nothing if any of them denies.
    ///
    /// # Errors
    /// Fails if the request is invalid.
    pub async fn check(&self, request: &Request<'_>) -> Result<Outcome, RequestError> {
        self.check_guarded(request, Call::default(), LongKeys::Refuse).await
    }

    /// Decides as [`Engine::check`] does, for callers that let a request pass after an error: if the key of a rule is
    /// too long, which the client may have chosen, the request is denied instead.
    ///
    /// # Errors
    /// Fails if the request is invalid for another reason.
    pub async fn check_or_deny(&self, request: &Request<'_>) -> Result<Outcome, RequestError> {
        self.check_or_deny_until(request, None).await
    }

    /// Decides as [`Engine::check_or_deny`] does, and waits for no store beyond the caller's deadline.
    ///
    /// # Errors
    /// Fails if the request is invalid for another reason.
    pub async fn check_or_deny_until(
        &self,
        request: &Request<'_>,
        deadline: Option<Instant>,
    ) -> Result<Outcome, RequestError> {
        self.check_guarded(request, Call::until(deadline), LongKeys::Deny).await
    }

    fn check_guarded<'a>(
        &'a self,
        request: &'a Request<'a>,
        call: Call,
        long_keys: LongKeys,
    ) -> impl Future<Output = Result<Outcome, RequestError>> + Send + 'a {
        let active = self.active.load();
        let known = active.policy.domain(request.domain);
        let awaited = known.filter(|domain| active.awaits(Some(*domain), request));
        async move {
            let Some(domain) = awaited else { return self.check_at_once(active, known, request, long_keys) };
            let learned = match guarded(|| active.learn_of_blocks(domain)) {
                Ok(Some(learning)) => guarded_future(learning).await,
                learned => learned.map(|_| ()),
            };
            let found = match learned.and_then(|()| guarded(|| sole::judge(&active, &self.local, domain, request))) {
                Ok(Way::Judged(judged, decision)) => return Ok(self.sole_outcome(active, judged, decision)),
                Ok(Way::Onward(found)) => found,
                Err(_) => return Ok(self.unplanned(request)),
            };
            // One box for all that waits for a store. It is made within the guard, as rules are found and keys made then.
            let work = guarded(|| Box::pin(self.check_onward(active, domain, request, call, long_keys, found)));
            let checked = OptionFuture::from(work.ok().map(guarded_future)).await;
            checked.and_then(Result::ok).unwrap_or_else(|| Ok(self.unplanned(request)))
        }
    }

    /// Goes on with a request that was not judged by one rule alone, from the rules of its first descriptor if they are known.
    pub(crate) fn check_onward<'a>(
        &'a self,
        active: Guard<Arc<Active>>,
        domain: DomainId,
        request: &'a Request<'a>,
        call: Call,
        long_keys: LongKeys,
        found: Option<FoundRules>,
    ) -> impl Future<Output = Result<Outcome, RequestError>> + Send + 'a {
        // Planned before the future is made, which would keep what it was planned from as long as it lives.
        let plan = Plan::with_found(&active, domain, request, long_keys, found);
        if plan.as_ref().is_ok_and(Plan::is_unmatched) {
            active.unmatched.count(domain);
        }
        async move {
            let plan = plan.as_ref().map_err(RequestError::clone)?;
            let settled = settle(&active, &self.local, plan, &call).await?;
            self.note_fallbacks(settled.fell_back);
            let mut outcome = self.outcome(active, settled.denial, Judgements::List(settled.judged), None);
            self.count(request, plan, &outcome);
            if let Some(denial) = outcome.denial() {
                outcome.decision = self.note_denial(request, plan, &outcome, denial);
            }
            Ok(outcome)
        }
    }

    /// What came of a request that one limit judged alone.
    pub(crate) fn sole_outcome(
        &self,
        active: Guard<Arc<Active>>,
        judged: Judged,
        decision: Option<DecisionId>,
    ) -> Outcome {
        self.outcome(active, judged.answer.denial(), Judgements::One(judged), decision)
    }

    /// What came of a request to a domain with rules.
    fn outcome(
        &self,
        active: Guard<Arc<Active>>,
        denial: Option<Denial>,
        judged: Judgements,
        decision: Option<DecisionId>,
    ) -> Outcome {
        Outcome { active, known_domain: true, denial, shadow: self.options.shadow, judged, decision }
    }

    /// Keeps a denial, so that it can be explained.
    fn note_denial(&self, request: &Request<'_>, plan: &Plan, outcome: &Outcome, denial: Denial) -> Option<DecisionId> {
        let judged = outcome.judged.as_slice().iter().zip(&plan.planned);
        let judged = judged.map(|(judged, planned)| Denied {
            judged,
            key: plan.key_bytes(planned),
            cost: planned.cost,
            store: planned.store,
        });
        self.denials.as_ref()?.note(&outcome.active, request.domain, denial, judged)
    }

    /// Reports the response to a request, for rules that count responses. Returns how many did.
    ///
    /// # Errors
    /// Fails if the request is invalid.
    pub async fn report(&self, request: &Request<'_>, response: &Response) -> Result<usize, RequestError> {
        let active = self.active.load();
        let domain = active.policy.domain(request.domain);
        let reported = if active.awaits(domain, request) {
            guarded_future(Box::pin(self.report_by_rules(active, request, response))).await
        } else {
            guarded_at_once(|| self.report_by_rules(active, request, response))
        };
        reported.unwrap_or_else(|_| Ok(self.unreported()))
    }

    /// Reports a response without awaiting. Returns `None`, and counts nothing, if a store may have to be awaited.
    pub fn report_at_once(&self, request: &Request<'_>, response: &Response) -> Option<Result<usize, RequestError>> {
        let active = self.active.load();
        if active.awaits(active.policy.domain(request.domain), request) {
            return None;
        }
        let reported = guarded_at_once(|| self.report_by_rules(active, request, response));
        Some(reported.unwrap_or_else(|_| Ok(self.unreported())))
    }

    async fn report_by_rules(
        &self,
        active: Guard<Arc<Active>>,
        request: &Request<'_>,
        response: &Response,
    ) -> Result<usize, RequestError> {
        let Some(domain) = active.policy.domain(request.domain) else { return Ok(0) };
        let plan = Plan::of(&active, domain, request, LongKeys::Refuse)?;
        let mut failures = plan.failures.clone();
        let mut counted = 0;
        for planned in &plan.planned {
            let (Some(id), Some(descriptor)) = (planned.rule, request.descriptors.get(planned.descriptor as usize))
            else {
                continue;
            };
            let Some(rule) = active.rule(id) else { continue };
            let question = Question {
                domain: request.domain,
                entries: descriptor.entries,
                http: request.http,
                cost: planned.cost,
            };
            let units = rule.count_response(&question, response).min(COST_MAX);
            let Some(backend) = active.store(planned.store) else { continue };
            // What blocks has no key to count on.
            if units == 0 || planned.step == Step::Blocked {
                continue;
            }
            let Some(charge) = plan.charge(&active, planned, Op::Debit(units))? else { continue };
            let decided = match backend.charge(&Call::default(), &[charge]).await {
                Err(ChargeFailure::Overloaded) => {
                    active.count_failure(id, Failed::Overloaded);
                    continue;
                }
                Err(ChargeFailure::Unanswered(applied)) => {
                    failures.note(&active, id, Failed::Unanswered);
                    // Where the limit is judged meanwhile, what happened counts too.
                    if let OnStoreFailure::Local(choice) = active.on_store_failure(rule, planned.store) {
                        let instead = Instead::of(backend, choice, charge.limit);
                        let _ = instead.decide(backend, &self.local, &charge, applied);
                    }
                    continue;
                }
                Err(ChargeFailure::Refused(_)) => continue,
                Ok(decisions) => decisions,
            };
            let Some(decision) = decided.first() else { continue };
            counted += 1;
            // A rule of several limits counts a response once.
            if let (0, Some(record)) = (planned.limit, active.record(id)) {
                record.all.add(Counter::Reported, units);
            }
            if let (0, Some(length), Some(backend)) = (decision.remaining(), rule.penalty, active.store_of(rule)) {
                // What happened is counted, with or without a penalty.
                if let Ok(at) = plan.penalty(rule, length, planned)?.impose(backend, length).await? {
                    active.note_block(id, plan.key_bytes(planned), BlockKind::Penalty, length, at);
                }
            }
        }
        Ok(counted)
    }

    /// Connects to shared stores, so that the first request finds a connection. Waits no longer than `patience`, and
    /// not for stores that are unreachable: those are logged by `tracing` and visible in [`Engine::shared_stores`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tidegate_engine::{Engine, Options};
    ///
    /// let store = Some("redis://127.0.0.1:1".into());
    /// let engine = Engine::new(Options { store, ..Options::default() })?;
    /// engine.connect(Duration::from_secs(1)).await;
    /// for store in engine.shared_stores() {
    ///     if !store.is_connected() {
    ///         eprintln!("{} is not there; the service starts without it", store.health.store);
    ///     }
    /// }
    /// # assert!(!engine.shared_stores()[0].is_connected());
    /// # Ok(()) }
    /// ```
    pub async fn connect(&self, patience: Duration) {
        let active = self.active.load_full();
        let shared = active.stores.iter().filter_map(|backend| Some(backend.asked()?.connect()));
        let _ = tokio::time::timeout(patience, join_all(shared)).await;
    }

    /// Returns leased units that were not spent to shared stores, and pushes the units that were admitted here. Without
    /// this call they come back by themselves, later.
    pub async fn close(&self) {
        let active = self.active.load_full();
        for backend in &active.stores {
            backend.close().await;
        }
        if !active.stores.iter().any(|backend| backend.is_same(&self.default_store)) {
            self.default_store.close().await;
        }
    }

    /// Returns the policy in force with its rules.
    #[must_use]
    pub fn policy(&self) -> PolicyGuard {
        PolicyGuard(self.active.load_full())
    }

    /// Returns the shared stores by name, with their health.
    #[must_use]
    pub fn shared_stores(&self) -> Vec<StoreView> {
        self.stores.views()
    }

    /// Returns the stores in the memory of this process: the default one, then the others by name.
    #[must_use]
    pub fn memory_stores(&self) -> Vec<MemoryView> {
        let beside = self.callers.states().filter(|states| !Arc::ptr_eq(states, &self.local));
        let of_callers = beside.map_or(0, |states| states.log_entries_without_room());
        let log_entries_without_room = self.local.log_entries_without_room().saturating_add(of_callers);
        let mut views = vec![MemoryView { name: DEFAULT_STORE.into(), log_entries_without_room }];
        views.extend(self.stores.memory_views(&self.default_store));
        views
    }

    /// Returns whether nothing is ever denied.
    #[must_use]
    pub fn is_in_shadow(&self) -> bool {
        self.options.shadow
    }

    /// Returns the clock of the default store.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.local.clock()
    }

    pub(crate) fn note_blocked(&self) {
        self.any_blocked.store(true, Ordering::Relaxed);
    }
}

/// What the configuration does not say of the default store, the command line does.
fn complete(spec: &mut StoreSpec, options: &Options) {
    spec.place.get_or_insert_with(|| default_place(options));
    spec.keys = spec.keys.or(options.keys);
}

fn default_place(options: &Options) -> StorePlace {
    options.store.clone().map_or(StorePlace::Memory, StorePlace::At)
}

fn default_spec(options: &Options) -> StoreSpec {
    StoreSpec {
        name: DEFAULT_STORE.into(),
        place: Some(default_place(options)),
        keys: options.keys,
        ..StoreSpec::default()
    }
}
