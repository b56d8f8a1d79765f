//! The exchange between the nodes of a shared store: each publishes its heaviest keys, and the blocks that it set.
//!
//! One task for each shared store publishes, and reads the blocks of other nodes; no request waits for it. A node holds the
//! blocks of operators that it reads: it looks up each of them in the store once, and so knows the state of the key while the
//! store is away. Blocks of a node that is gone are taken over by those that read them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tidegate_core::Time;
use tidegate_policy::Rule;
use tidegate_stores::{Notice, Posted, Posting};
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::blocks::{Block, BlockId, BlockKind};
use super::top_answer::rule_notice;
use super::wire::{self, BlockNotice, LiftedNotice, OfBlocks, RuleNotice};
use crate::active::Active;
use crate::bounds::{
    BLOCKS_TTL, NOTICES_PAUSE, TOP_KEYS_PUBLISHED, TOP_NODES_MAX, TOP_NOTICES_MAX, TOP_PAUSE, TOP_TTL,
};
use crate::keys::{hash_tag, key_of};
use crate::penalty::Penalty;
use crate::store::{Asked, Backend, StoreError};

/// What is exchanged by one store.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The name of the store: two of a policy may be the same server.
    store: Box<str>,
    /// What this node counts and blocks.
    active: Mutex<Weak<Active>>,
    is_running: Arc<AtomicBool>,
    wake: Arc<Notify>,
    /// What other nodes say is blocked.
    blocks: Mutex<BTreeMap<Box<str>, BlocksOfNode>>,
    tops: tokio::sync::Mutex<Tops>,
}

/// What one node says is blocked.
#[derive(Debug)]
struct BlocksOfNode {
    version: u64,
    /// When it was published, by the clock of this process.
    at: Time,
    blocks: Vec<Block>,
}

/// What other nodes say are their heaviest keys, as it was read last.
#[derive(Debug, Default)]
struct Tops {
    read_at: Option<Time>,
    notices: BTreeMap<(Box<str>, usize), TopNotice>,
}

#[derive(Debug)]
struct TopNotice {
    version: u64,
    /// When it was published, by the clock of this process.
    at: Time,
    bytes: Arc<[u8]>,
}

/// What the other nodes of all shared stores say.
#[derive(Debug, Default)]
pub struct Others {
    /// The heaviest keys of nodes: who, when, and notices that are not read yet.
    pub(super) tops: Vec<(Box<str>, Time, Arc<[u8]>)>,
    /// Whether a store did not answer, so that something may be missing or old.
    pub(super) is_partial: bool,
}

/// A node whose numbers are in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeView {
    /// Its name.
    pub id: Box<str>,
    /// How old its numbers are.
    pub age: Duration,
    /// Whether it is the node that answers.
    pub is_this: bool,
}

impl NodeView {
    pub(super) fn new(id: &str, at: Time, now: Time) -> NodeView {
        NodeView { id: id.into(), age: since(at, now), is_this: false }
    }
}

/// What was published last.
#[derive(Default)]
struct Published {
    blocks: Option<(Time, (u64, u64))>,
    /// Whether others have a notice of blocks to read.
    has_blocks: bool,
    tops: Option<Time>,
    top_notices: usize,
}

/// Says that the task has ended, however it ended.
struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Exchange {
    pub(crate) fn new(store: &str) -> Exchange {
        Exchange {
            store: store.into(),
            active: Mutex::default(),
            is_running: Arc::default(),
            wake: Arc::default(),
            blocks: Mutex::default(),
            tops: tokio::sync::Mutex::default(),
        }
    }

    fn blocks_topic(&self) -> String {
        format!("blocks/{}", self.store)
    }

    fn top_topic(&self, number: usize) -> String {
        format!("top/{}/{number}", self.store)
    }

    /// Exchanges what this policy counts from now on.
    pub(crate) fn attach(&self, active: &Arc<Active>) {
        *lock(&self.active) = Arc::downgrade(active);
    }

    /// Exchanges at once.
    pub(crate) fn hurry(&self) {
        self.wake.notify_one();
    }

    /// What other nodes say is blocked, and when each of them said so.
    pub(super) fn blocks(&self) -> Vec<(Box<str>, Time, Vec<Block>)> {
        let blocks = lock(&self.blocks);
        blocks.iter().map(|(node, of_node)| (node.clone(), of_node.at, of_node.blocks.clone())).collect()
    }

    fn active(&self) -> Option<Arc<Active>> {
        lock(&self.active).upgrade()
    }
}

/// Starts the task of a store if it does not run.
pub(crate) fn start(asked: &Arc<Asked>) {
    let Some(exchange) = &asked.exchange else { return };
    let is_running = &exchange.is_running;
    if is_running.load(Ordering::Relaxed) || is_running.swap(true, Ordering::Acquire) {
        return;
    }
    let running = Running(Arc::clone(is_running));
    // Without a runtime there is nobody to run it; whoever comes next may have one.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(run(Arc::downgrade(asked), running));
    }
}

async fn run(asked: Weak<Asked>, _running: Running) {
    let mut published = Published::default();
    while let Some(wake) = asked.upgrade().and_then(|asked| Some(Arc::clone(&asked.exchange.as_ref()?.wake))) {
        tokio::select! {
            () = wake.notified() => {}
            () = tokio::time::sleep(NOTICES_PAUSE) => {}
        }
        let Some(asked) = asked.upgrade().filter(|asked| !asked.consistent.is_closed()) else { break };
        if let Some(exchange) = &asked.exchange
            && let Some(active) = exchange.active()
            && let Some(link) = Link::new(&asked, exchange, &active)
        {
            // A store that does not answer is asked again in a moment.
            let _ = link.exchange(&mut published).await;
        }
    }
}

/// A store, and what this node counts in it.
struct Link<'a> {
    asked: &'a Asked,
    exchange: &'a Exchange,
    active: &'a Active,
    backend: &'a Backend,
    /// Its place among the stores of the policy.
    store: usize,
    now: Time,
}

impl<'a> Link<'a> {
    fn new(asked: &'a Arc<Asked>, exchange: &'a Exchange, active: &'a Active) -> Option<Link<'a>> {
        let is_it = |backend: &Backend| backend.asked().is_some_and(|other| Arc::ptr_eq(other, asked));
        let store = active.stores.iter().position(is_it)?;
        let backend = active.stores.get(store)?;
        Some(Link { asked, exchange, active, backend, store, now: active.crowd.clock.now() })
    }

    async fn exchange(&self, published: &mut Published) -> Result<(), StoreError> {
        self.publish_blocks(published).await?;
        self.read_blocks().await?;
        self.publish_tops(published).await
    }

    /// The rules that count in this store, each with its number.
    fn rules(&self) -> impl Iterator<Item = (usize, &'a Rule)> {
        let rules = self.active.policy.rules().iter().enumerate();
        rules.filter(|(_, rule)| rule.limits.first().is_some_and(|limit| limit.store == self.store))
    }

    fn rules_by_name(&self) -> HashMap<(&'a str, &'a str), &'a Rule> {
        self.rules().map(|(_, rule)| ((&*rule.domain, &*rule.name), rule)).collect()
    }

    async fn publish(&self, topic: &str, bytes: &[u8], ttl: Duration) -> Result<(), StoreError> {
        let notice = Notice { node: &self.active.crowd.node, topic, bytes, ttl };
        // What fails is not logged: it is tried again, and requests that fail are.
        self.asked.consistent.publish(&notice).await.map_err(|error| StoreError::of(&error))
    }

    /// Publishes what is blocked: at once what operators did, the rest now and then.
    async fn publish_blocks(&self, published: &mut Published) -> Result<(), StoreError> {
        let blocks = &self.active.crowd.blocks;
        let changes = blocks.changes();
        let is_due = match published.blocks {
            None => changes.0 > 0,
            Some((_, before)) if before.1 != changes.1 => true,
            Some((at, before)) => {
                let age = since(at, self.now);
                before != changes && age >= TOP_PAUSE || published.has_blocks && age >= BLOCKS_TTL / 3
            }
        };
        if !is_due {
            return Ok(());
        }
        let (notices, _) = wire::write(&self.of_blocks(), 1);
        match notices.first() {
            Some(notice) => self.publish(&self.exchange.blocks_topic(), notice, BLOCKS_TTL).await?,
            None if published.has_blocks => {
                self.publish(&self.exchange.blocks_topic(), b"", Duration::ZERO).await?;
            }
            None => {}
        }
        published.has_blocks = !notices.is_empty();
        published.blocks = Some((self.now, changes));
        Ok(())
    }

    /// What this node says is blocked or lifted: operators first, then what lasts longest.
    fn of_blocks(&self) -> Vec<OfBlocks> {
        let (all, rules) = (&self.active.crowd.blocks, self.rules_by_name());
        let is_ours = |domain: &str, rule: &str| rules.contains_key(&(domain, rule));
        let lifted = all.lifted(self.now).into_iter().filter(|((domain, rule, _), _)| is_ours(domain, rule));
        let mut things: Vec<OfBlocks> = lifted
            .map(|((domain, rule, key), at)| {
                OfBlocks::Lifted(LiftedNotice { domain, rule, key: wire::hex(&key), at_ns: at.as_nanos() })
            })
            .collect();
        let mut blocks = all.in_force(self.now);
        blocks.retain(|block| is_ours(&block.id.domain, &block.id.rule));
        blocks.sort_by_key(|block| (block.id.kind, std::cmp::Reverse(block.until)));
        things.extend(blocks.into_iter().filter_map(|block| {
            let BlockId { domain, rule, key, kind } = block.id;
            // What was only found in the store others find there too.
            let node = (*block.node?).into();
            Some(OfBlocks::Block(BlockNotice {
                domain,
                rule,
                shape: block.shape,
                key: wire::hex(&key),
                is_of_operator: kind == BlockKind::Operator,
                operator: block.operator,
                node,
                since_ns: block.since.as_nanos(),
                left_ns: block.until.as_nanos().saturating_sub(self.now.as_nanos()),
            }))
        }));
        things
    }

    /// Reads what other nodes say is blocked, as far as they say something new.
    async fn read_blocks(&self) -> Result<(), StoreError> {
        let topic = self.exchange.blocks_topic();
        let posted = posted(self.asked, &topic).await?;
        let others = posted.iter().filter(|posted| *posted.node != *self.active.crowd.node);
        for other in others {
            let known = lock(&self.exchange.blocks).get(&other.node).map(|of_node| of_node.version);
            if known == Some(other.version) {
                continue;
            }
            let Some(posting) = read(self.asked, &topic, &other.node).await? else { continue };
            let at = before(self.now, posting.age);
            let blocks = self.blocks_of(wire::read(&posting.bytes), at);
            self.hold(&other.node, &blocks).await?;
            let of_node = BlocksOfNode { version: posting.version, at, blocks };
            lock(&self.exchange.blocks).insert(other.node.clone(), of_node);
        }
        let there: HashSet<&str> = posted.iter().map(|posted| &*posted.node).collect();
        self.take_over(&there);
        Ok(())
    }

    /// The blocks of rules of this store, from what a node published at an instant of this process's clock.
    fn blocks_of(&self, things: impl Iterator<Item = OfBlocks>, at: Time) -> Vec<Block> {
        let (all, rules) = (&self.active.crowd.blocks, self.rules_by_name());
        let mut blocks = Vec::new();
        for thing in things {
            match thing {
                OfBlocks::Lifted(LiftedNotice { domain, rule, key, at_ns }) => {
                    if let Some(key) = wire::unhex(&key) {
                        all.learn_lifted((domain, rule, key), Time::from_nanos(at_ns), self.now);
                    }
                }
                OfBlocks::Block(notice) => {
                    let is_ours = rules.contains_key(&(&*notice.domain, &*notice.rule));
                    let Some(key) = wire::unhex(&notice.key).filter(|_| is_ours) else { continue };
                    let kind = if notice.is_of_operator { BlockKind::Operator } else { BlockKind::Penalty };
                    let BlockNotice { domain, rule, shape, operator, node, since_ns, left_ns, .. } = notice;
                    blocks.push(Block {
                        id: BlockId { domain, rule, key, kind },
                        shape,
                        operator,
                        node: Some(node.into()),
                        since: Time::from_nanos(since_ns),
                        until: at.plus(Duration::from_nanos(left_ns)),
                    });
                }
            }
        }
        blocks.retain(|block| block.until > self.now);
        blocks
    }

    /// Looks at what operators blocked and this node did not know of yet, so that it holds while the store is away.
    async fn hold(&self, node: &str, blocks: &[Block]) -> Result<(), StoreError> {
        let rules = self.rules_by_name();
        let known: HashSet<(BlockId, Time)> = lock(&self.exchange.blocks)
            .get(node)
            .map(|of_node| of_node.blocks.iter().map(|block| (block.id.clone(), block.since)).collect())
            .unwrap_or_default();
        let of_operators = blocks.iter().filter(|block| block.id.kind == BlockKind::Operator);
        for block in of_operators.filter(|block| !known.contains(&(block.id.clone(), block.since))) {
            let Some(rule) = rules.get(&(&*block.id.domain, &*block.id.rule)) else { continue };
            let (Ok(key), tag) = (key_of(&block.id.key), hash_tag(rule, &block.id.key)) else { continue };
            let Ok(penalty) = Penalty::by_operator(rule, key, &tag) else { continue };
            if let Some(left) = penalty.left(self.backend).await? {
                self.asked.hold_blocked(left);
            }
        }
        Ok(())
    }

    /// Goes on saying what nodes said that are gone.
    fn take_over(&self, there: &HashSet<&str>) {
        let all = &self.active.crowd.blocks;
        let mut others = lock(&self.exchange.blocks);
        others.retain(|node, of_node| {
            let is_there = there.contains(&**node);
            if !is_there {
                let in_force = of_node.blocks.drain(..).filter(|block| block.until > self.now);
                in_force.filter(|block| !all.is_lifted(block)).for_each(|block| all.take_over(block, self.now));
            }
            is_there
        });
    }

    /// Publishes the heaviest keys of the rules of this store.
    async fn publish_tops(&self, published: &mut Published) -> Result<(), StoreError> {
        if published.tops.is_some_and(|at| since(at, self.now) < TOP_PAUSE) {
            return Ok(());
        }
        let mut rules: Vec<RuleNotice> = Vec::new();
        for (number, rule) in self.rules() {
            let Some(top) = self.active.top_at(number).filter(|top| top.has_begun()) else { continue };
            rules.extend(rule_notice(rule, top, self.now));
            // Requests are decided on this thread too.
            yield_now().await;
        }
        let notices = bounded(&mut rules);
        for (number, notice) in notices.iter().enumerate() {
            self.publish(&self.exchange.top_topic(number), notice, TOP_TTL).await?;
        }
        for number in notices.len()..published.top_notices {
            self.publish(&self.exchange.top_topic(number), b"", Duration::ZERO).await?;
        }
        (published.tops, published.top_notices) = (Some(self.now), notices.len());
        Ok(())
    }
}

/// As many of the heaviest keys as there is room for, the same number of each rule.
fn bounded(rules: &mut [RuleNotice]) -> Vec<Vec<u8>> {
    let mut keys = TOP_KEYS_PUBLISHED;
    loop {
        let (notices, left_out) = wire::write(rules, TOP_NOTICES_MAX);
        if left_out == 0 || keys == 0 {
            return notices;
        }
        keys /= 4;
        rules.iter_mut().for_each(|rule| rule.keys.truncate(keys));
    }
}

async fn posted(asked: &Asked, topic: &str) -> Result<Vec<Posted>, StoreError> {
    asked.consistent.posted(topic).await.map_err(|error| StoreError::of(&error))
}

async fn read(asked: &Asked, topic: &str, node: &str) -> Result<Option<Posting>, StoreError> {
    asked.consistent.read(topic, node).await.map_err(|error| StoreError::of(&error))
}

/// Adds what the other nodes of a store say are their heaviest keys. Where the store does not answer now, it is as it was read
/// last.
pub(super) async fn read_tops(asked: &Asked, exchange: &Exchange, own: &str, now: Time, others: &mut Others) {
    let mut tops = exchange.tops.lock().await;
    let is_fresh = tops.read_at.is_some_and(|at| since(at, now) < NOTICES_PAUSE);
    if !is_fresh {
        match tops.refresh(asked, exchange, own, now).await {
            Ok(()) => tops.read_at = Some(now),
            Err(_) => others.is_partial = true,
        }
    }
    let in_time = tops.notices.iter().filter(|(_, notice)| since(notice.at, now) <= TOP_TTL);
    others.tops.extend(in_time.map(|((node, _), notice)| (node.clone(), notice.at, Arc::clone(&notice.bytes))));
}

impl Tops {
    async fn refresh(&mut self, asked: &Asked, exchange: &Exchange, own: &str, now: Time) -> Result<(), StoreError> {
        let mut there = HashSet::new();
        for number in 0..TOP_NOTICES_MAX {
            let topic = exchange.top_topic(number);
            let posted = posted(asked, &topic).await?;
            if posted.is_empty() {
                break;
            }
            for other in posted.into_iter().filter(|posted| &*posted.node != own).take(TOP_NODES_MAX) {
                let place = (other.node, number);
                if self.notices.get(&place).is_none_or(|known| known.version != other.version)
                    && let Some(posting) = read(asked, &topic, &place.0).await?
                {
                    let (version, at) = (posting.version, before(now, posting.age));
                    self.notices.insert(place.clone(), TopNotice { version, at, bytes: posting.bytes.into() });
                }
                there.insert(place);
            }
        }
        self.notices.retain(|place, _| there.contains(place));
        Ok(())
    }
}

/// The time from one instant to a later one; none if it is not later.
fn since(earlier: Time, later: Time) -> Duration {
    Duration::from_nanos(later.as_nanos().saturating_sub(earlier.as_nanos()))
}

fn before(time: Time, age: Duration) -> Time {
    let nanos = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    Time::from_nanos(time.as_nanos().saturating_sub(nanos))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
