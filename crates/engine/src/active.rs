//! The policy in force, with everything that its rules need.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::{KeyCounts, MemoryStore, Time};
use tidegate_policy::{DomainId, Local, Mode, OnStoreFailure, Policy, Request, Rule, RuleId, RuleLimit, Share};
use tokio::runtime::Handle;

use crate::crowd::{Block, BlockId, BlockKind, Crowd, Operator, Shape, Top, shape};
use crate::explain::Denials;
use crate::failure::Failed;
use crate::http_headers::LimitTexts;
use crate::sole;
use crate::stats::{Counter, Record};
use crate::store::{Asked, Backend, Turn};
use crate::unmatched::Unmatched;

/// A policy with the data of its rules, by their number.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) policy: Policy,
    records: Vec<Arc<Record>>,
    /// Those of the policy, and after them that of callers if it is another.
    pub(crate) stores: Vec<Backend>,
    /// The number of the store of callers.
    callers: usize,
    /// Facts about the stores of each domain.
    domains: Vec<DomainStores>,
    any_blocked: Arc<AtomicBool>,
    /// What no rule met.
    pub(crate) unmatched: Unmatched,
    /// The texts about each limit of each rule that do not change.
    texts: Vec<Box<[LimitTexts]>>,
    /// The stores of rules that can judge a request alone.
    sole_stores: Vec<Option<Arc<MemoryStore>>>,
    /// The heaviest keys of each rule, and the shapes of its keys.
    tops: Vec<(Arc<Top>, Shape)>,
    /// What is known of the keys of all rules.
    pub(crate) crowd: Arc<Crowd>,
    /// Where denials are kept, if anywhere.
    pub(crate) denials: Option<Arc<Denials>>,
    /// Whether nothing at all is denied.
    pub(crate) shadow: bool,
}

/// What is at hand beside the policy.
pub(crate) struct Parts {
    pub(crate) records: Vec<Arc<Record>>,
    pub(crate) stores: Vec<Backend>,
    pub(crate) callers: Backend,
    pub(crate) any_blocked: Arc<AtomicBool>,
    pub(crate) unmatched: Unmatched,
    pub(crate) crowd: Arc<Crowd>,
    pub(crate) denials: Option<Arc<Denials>>,
    pub(crate) shadow: bool,
}

impl Active {
    pub(crate) fn new(policy: Policy, parts: Parts) -> Active {
        let Parts { records, mut stores, callers, any_blocked, unmatched, crowd, denials, shadow } = parts;
        let of_limit = |limit: &RuleLimit| LimitTexts::new(&limit.name, limit.shown);
        let texts = policy.rules().iter().map(|rule| rule.limits.iter().map(of_limit).collect()).collect();
        let sole_stores = policy.rules().iter().map(|rule| sole::store_for(rule, &stores).cloned()).collect();
        let domains = domain_stores(&policy, &stores);
        // Only those who explain a denial ask for them.
        let callers = stores.iter().position(|store| store.is_same(&callers)).unwrap_or_else(|| {
            stores.push(callers);
            stores.len() - 1
        });
        let tops = crowd.tops(&policy).into_iter().zip(policy.rules().iter().map(shape)).collect();
        Active {
            policy,
            records,
            stores,
            callers,
            domains,
            any_blocked,
            unmatched,
            texts,
            sole_stores,
            tops,
            crowd,
            denials,
            shadow,
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(policy: Policy, stores: Vec<Backend>) -> Active {
        let records = policy.rules().iter().map(|_| Arc::new(Record::new())).collect();
        let unmatched = Unmatched::of(&policy, &Unmatched::default());
        let (callers, any_blocked) = (stores[0].clone(), Arc::default());
        let crowd = Arc::new(Crowd::new(tidegate_core::Clock::default()));
        let denials = None;
        Active::new(policy, Parts { records, stores, callers, any_blocked, unmatched, crowd, denials, shadow: false })
    }

    /// The number of the store for limits that requests to a domain bring. An Envoy brings them where its own files have the
    /// rules, and a client anywhere else.
    pub(crate) fn own_limit_store(&self, domain: DomainId) -> usize {
        if self.policy.is_of_envoy(domain) { 0 } else { self.callers }
    }

    pub(crate) fn store_count(&self) -> usize {
        self.stores.len()
    }

    pub(crate) fn store(&self, number: usize) -> Option<&Backend> {
        self.stores.get(number)
    }

    /// The store of a rule's first limit, which has its penalties too.
    pub(crate) fn store_of(&self, rule: &Rule) -> Option<&Backend> {
        self.store(rule.limits.first()?.store)
    }

    /// Whether a request may have to wait for a store: one of its domain, or that of a limit that it brings.
    pub(crate) fn awaits(&self, domain: Option<DomainId>, request: &Request<'_>) -> bool {
        let brings_limit = || request.descriptors.iter().any(|descriptor| descriptor.limit.is_some());
        domain.is_some_and(|domain| {
            self.domain_awaits(domain) || brings_limit() && self.store_awaits(self.own_limit_store(domain))
        })
    }

    /// Whether a store may have to be waited for.
    pub(crate) fn store_awaits(&self, number: usize) -> bool {
        self.store(number).is_some_and(|store| store.nature().awaits)
    }

    /// Whether rules of a domain may have to wait for their stores.
    #[inline]
    pub(crate) fn domain_awaits(&self, domain: DomainId) -> bool {
        self.domains.get(domain.index()).is_some_and(|stores| stores.awaits)
    }

    /// Whether blocks may be in force for a domain that this process knows nothing of.
    #[inline]
    pub(crate) fn has_watched(&self, domain: DomainId) -> bool {
        !self.watched(domain).is_empty()
    }

    fn watched(&self, domain: DomainId) -> &[usize] {
        self.domains.get(domain.index()).map_or(&[], |stores| &stores.watched)
    }

    /// What a rule does while this store does not answer.
    pub(crate) fn on_store_failure(&self, rule: &Rule, store: usize) -> OnStoreFailure {
        let by_nature =
            || self.store(store).map_or(OnStoreFailure::Local(Local::Share(Share::Whole)), Backend::default_failure);
        rule.on_store_failure.unwrap_or_else(by_nature)
    }

    /// Learns of keys of the domain's rules that other nodes blocked, or this one before it was started again. Returns what
    /// has to be waited for: mostly nothing.
    pub(crate) fn learn_of_blocks(&self, domain: DomainId) -> Option<impl Future<Output = ()> + Send + Unpin + use<>> {
        let mut late = Vec::new();
        for store in self.watched(domain) {
            if let Some(asked) = self.store(*store).and_then(Backend::asked)
                && let Some(turn) = asked.turn_to_look()
            {
                let asked = Arc::clone(asked);
                match Handle::try_current() {
                    // Who asks need not wait for what is mostly known.
                    Ok(runtime) if !turn.is_late => {
                        runtime.spawn(async move { asked.learn_of_blocks(turn.now).await.ok() });
                    }
                    _ => late.push((asked, turn)),
                }
            }
        }
        let learn = async |late: Vec<(Arc<Asked>, Turn)>| {
            for (asked, turn) in late {
                let _ = asked.learn_of_blocks(turn.now).await;
            }
        };
        (!late.is_empty()).then(|| Box::pin(learn(late)))
    }

    /// What is told of a limit of a rule and stays as it is.
    pub(crate) fn texts(&self, id: RuleId, limit: u32) -> Option<&LimitTexts> {
        self.texts.get(id.index())?.get(limit as usize)
    }

    /// The shape of the keys of a rule.
    pub(crate) fn key_shape(&self, id: RuleId) -> u64 {
        self.key_shape_at(id.index())
    }

    /// The shape of the keys of the rule with this number.
    pub(crate) fn key_shape_at(&self, number: usize) -> u64 {
        self.tops.get(number).map_or(0, |(_, shape)| *shape)
    }

    pub(crate) fn records(&self) -> &[Arc<Record>] {
        &self.records
    }

    pub(crate) fn record(&self, id: RuleId) -> Option<&Record> {
        self.records.get(id.index()).map(Arc::as_ref)
    }

    pub(crate) fn rule(&self, id: RuleId) -> Option<&Rule> {
        self.policy.rules().get(id.index())
    }

    /// The store of a rule that can judge a request alone; nothing if it cannot.
    pub(crate) fn sole_store(&self, id: RuleId) -> Option<&MemoryStore> {
        self.sole_stores.get(id.index())?.as_deref()
    }

    /// Counts a request that a rule judged without its store, or could not judge because this node is overloaded.
    pub(crate) fn count_failure(&self, id: RuleId, failed: Failed) {
        let counter = match failed {
            Failed::Unanswered => Counter::Failed,
            Failed::Overloaded => Counter::Overloaded,
        };
        if let Some(record) = self.record(id) {
            record.all.add(counter, 1);
        }
    }

    /// Counts a request of a key of a rule.
    #[inline]
    pub(crate) fn note_key(&self, id: RuleId, key: &[u8], counts: &KeyCounts) {
        if let Some((top, _)) = self.tops.get(id.index()) {
            top.note(key, counts, self.crowd.clock.now());
        }
    }

    /// The heaviest keys of the rule with this number.
    pub(crate) fn top_at(&self, number: usize) -> Option<&Top> {
        self.tops.get(number).map(|(top, _)| &**top)
    }

    /// Remembers that a key of a rule stays denied for this long, since this instant of its store's clock, if that tells.
    pub(crate) fn note_block(&self, id: RuleId, key: &[u8], kind: BlockKind, length: Duration, at: Option<Time>) {
        let node = Some(Arc::clone(&self.crowd.node));
        if let Some(block) = self.block(id, key, kind, length, at) {
            self.crowd.blocks.set(Block { node, ..block }, self.crowd.clock.now());
        }
    }

    /// Remembers that an operator had a key of a rule denied for this long.
    pub(crate) fn note_block_by(
        &self,
        id: RuleId,
        key: &[u8],
        operator: Option<Operator>,
        length: Duration,
        at: Option<Time>,
    ) {
        let node = Some(Arc::clone(&self.crowd.node));
        if let Some(block) = self.block(id, key, BlockKind::Operator, length, at) {
            self.crowd.blocks.set(Block { node, operator, ..block }, self.crowd.clock.now());
        }
    }

    /// Remembers that a key of a rule was found to be denied, unless it is known who set that.
    pub(crate) fn learn_block(&self, id: RuleId, key: &[u8], kind: BlockKind, left: Duration, at: Option<Time>) {
        if let Some(block) = self.block(id, key, kind, left, at) {
            self.crowd.blocks.learn(block, self.crowd.clock.now());
        }
    }

    fn block(&self, id: RuleId, key: &[u8], kind: BlockKind, left: Duration, at: Option<Time>) -> Option<Block> {
        let (rule, now) = (self.rule(id)?, self.crowd.clock.now());
        let shape = self.tops.get(id.index())?.1;
        let id = BlockId { domain: rule.domain.clone(), rule: rule.name.clone(), key: key.into(), kind };
        let (since, until) = (at.unwrap_or(now), now.plus(left));
        Some(Block { id, shape, operator: None, node: None, since, until })
    }

    /// The mode of a rule, as it is now.
    pub(crate) fn mode(&self, id: RuleId) -> Option<Mode> {
        Some(self.record(id)?.mode(self.rule(id)?.mode))
    }

    /// Whether an operator may have blocked a key of a rule, so that every key has to be looked up among the blocked ones.
    #[inline]
    pub(crate) fn may_be_blocked(&self, rule: &Rule) -> bool {
        match self.store_of(rule).and_then(Backend::asked) {
            Some(asked) if asked.nature().outlives_process() => asked.may_be_blocked(),
            _ => self.any_blocked.load(Ordering::Relaxed),
        }
    }
}

/// What is known of the stores of a domain's rules.
#[derive(Clone, Debug, Default)]
struct DomainStores {
    /// Whether any has to be awaited. If not, nothing waits, and a request is decided at once: what others wait with is large,
    /// and callers wrap and move what they hold.
    awaits: bool,
    /// Stores in which another node, or this process before a restart, may have blocked a key.
    watched: Box<[usize]>,
}

fn domain_stores(policy: &Policy, stores: &[Backend]) -> Vec<DomainStores> {
    let mut by_domain: Vec<(bool, Vec<usize>)> = Vec::new();
    for rule in policy.rules() {
        let Some(domain) = policy.domain(&rule.domain) else { continue };
        if by_domain.len() <= domain.index() {
            by_domain.resize_with(domain.index() + 1, Default::default);
        }
        let (awaits, watched) = &mut by_domain[domain.index()];
        for limit in &rule.limits {
            let Some(nature) = stores.get(limit.store).map(Backend::nature) else { continue };
            *awaits |= nature.awaits;
            if nature.outlives_process() && !watched.contains(&limit.store) {
                watched.push(limit.store);
            }
        }
    }
    by_domain.into_iter().map(|(awaits, watched)| DomainStores { awaits, watched: watched.into() }).collect()
}

/// A policy that does not change while it is read.
#[derive(Clone, Debug)]
pub struct PolicyGuard(pub(crate) Arc<Active>);

impl std::ops::Deref for PolicyGuard {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.0.policy
    }
}
