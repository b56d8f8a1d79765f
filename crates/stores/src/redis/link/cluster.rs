//! The map of a Cluster: which node has a slot, and the task that keeps it true.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::super::url::Address;
use super::bounds::{MAP_PAUSE, MAP_PAUSE_TROUBLED, MAP_TIME_MAX, NODES_MAX};
use super::command::Packed;
use super::dial::{DialError, Endpoint, Expect};
use super::error::Why;
use super::node::{Node, Shared, Whereabouts};
use super::pipe::{Kind, Outcome, Patience};
use super::reply::Reply;
use super::slots::{Range, SLOTS, ranges};
use super::term::Term;

/// A slot that no node is known to have.
const NOBODY: u16 = u16::MAX;

pub(super) struct Cluster {
    seeds: Vec<Address>,
    shared: Arc<Shared>,
    map: watch::Sender<Arc<Map>>,
    tended: AtomicBool,
    used: AtomicBool,
    closed: AtomicBool,
    stop: Notify,
    turn: AtomicUsize,
}

#[derive(Clone)]
struct Map {
    told: Told,
    nodes: Vec<Member>,
    /// For each slot, where its node stands in `nodes`.
    owners: Box<[u16]>,
    /// Replicas: they know the map as well.
    others: Vec<Address>,
}

#[derive(Clone)]
struct Member {
    address: Address,
    node: Arc<Node>,
}

#[derive(Clone)]
enum Told {
    Nothing,
    Failed(Why),
    Known,
}

impl Map {
    fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let index = *self.owners.get(usize::from(slot))?;
        self.nodes.get(usize::from(index)).map(|member| Arc::clone(&member.node))
    }

    /// Where this address stands among the nodes, as a new one if need be.
    fn place(&mut self, address: &Address, shared: &Arc<Shared>) -> Option<u16> {
        let known = self.nodes.iter().position(|member| member.address == *address);
        let index = known.unwrap_or(self.nodes.len());
        if index >= NODES_MAX {
            return None;
        }
        if known.is_none() {
            let whereabouts = Whereabouts::Fixed(Endpoint::Tcp(address.clone()));
            let node = Node::new(address.to_string(), whereabouts, shared);
            self.nodes.push(Member { address: address.clone(), node });
        }
        u16::try_from(index).ok()
    }
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>, shared: &Arc<Shared>) -> Arc<Cluster> {
        let owners = vec![NOBODY; usize::from(SLOTS)].into_boxed_slice();
        let map = Map { told: Told::Nothing, nodes: Vec::new(), owners, others: Vec::new() };
        Arc::new(Cluster {
            seeds,
            shared: Arc::clone(shared),
            map: watch::Sender::new(Arc::new(map)),
            tended: AtomicBool::new(false),
            used: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            stop: Notify::new(),
            turn: AtomicUsize::new(0),
        })
    }

    /// The node that has a slot. Before anything is known, callers wait for the first answer; later they do not.
    pub(super) async fn owner(self: &Arc<Self>, slot: u16, term: &Term) -> Result<Arc<Node>, Why> {
        self.tend();
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        let mut map = Arc::clone(&self.map.borrow());
        if matches!(map.told, Told::Nothing) {
            let mut watch = self.map.subscribe();
            let told = watch.wait_for(|map| !matches!(map.told, Told::Nothing));
            if let Ok(Ok(known)) = timeout_at(term.patience().end(), told).await {
                map = Arc::clone(&known);
            }
        }
        map.owner(slot).ok_or_else(|| {
            self.shared.trouble.notify_one();
            match &map.told {
                Told::Nothing => Why::Connecting,
                Told::Failed(why) => why.clone(),
                Told::Known => Why::NoNode(slot),
            }
        })
    }

    /// A node said that another one has this slot.
    pub(super) fn moved(&self, slot: u16, address: &Address) {
        self.map.send_modify(|map| {
            let map = Arc::make_mut(map);
            if let Some(index) = map.place(address, &self.shared)
                && let Some(owner) = map.owners.get_mut(usize::from(slot))
            {
                *owner = index;
            }
        });
        self.shared.trouble.notify_one();
    }

    /// The node at an address that another one named.
    pub(super) fn at(&self, address: &Address) -> Option<Arc<Node>> {
        let find = |map: &Map| map.nodes.iter().find(|member| member.address == *address).map(|m| Arc::clone(&m.node));
        let known = find(&self.map.borrow());
        known.or_else(|| {
            self.map.send_modify(|map| {
                let _ = Arc::make_mut(map).place(address, &self.shared);
            });
            find(&self.map.borrow())
        })
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map.borrow().nodes.iter().map(|member| Arc::clone(&member.node)).collect()
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
        self.stop.notify_one();
        self.nodes().iter().for_each(|node| node.close());
    }

    /// Starts the task that keeps the map, unless it runs.
    fn tend(self: &Arc<Self>) {
        if self.tended.load(Relaxed) || self.tended.swap(true, Relaxed) {
            return;
        }
        let tender = Tender(Arc::clone(self));
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(tender.run())),
            Err(_) => drop(tender),
        }
    }

    async fn refresh(&self) {
        if let Err(error) = self.look().await {
            self.map.send_if_modified(|map| {
                let first = !matches!(map.told, Told::Known);
                if first {
                    Arc::make_mut(map).told = Told::Failed(error.into_why());
                }
                first
            });
        }
    }

    /// Asks nodes for the map until one tells it: those with a connection first, another one each time.
    async fn look(&self) -> Result<(), DialError> {
        let map = Arc::clone(&self.map.borrow());
        let turn = self.turn.fetch_add(1, Relaxed);
        let mut connected: Vec<_> =
            map.nodes.iter().filter_map(|member| Some((&member.address, member.node.any_live()?))).collect();
        rotate(&mut connected, turn);
        for (address, live) in connected {
            let patience = Patience { until: Instant::now() + MAP_TIME_MAX, leave: None };
            let Ok(asked) = live.pipe.call(question(), Kind::Aside, &patience) else { continue };
            let Ok(Outcome::Answered(answer)) = timeout(MAP_TIME_MAX, asked).await else { continue };
            if let Ok(ranges) = read(&answer.reply, address) {
                self.learn(&ranges);
                return Ok(());
            }
        }
        let mut known: Vec<_> = map.nodes.iter().map(|member| &member.address).chain(&map.others).collect();
        rotate(&mut known, turn);
        known.extend(&self.seeds);
        let mut failure = DialError::from("no node is known".to_owned());
        for address in known {
            let asking = async {
                let mut wire = self.shared.dialer.dial(&Endpoint::Tcp(address.clone()), Expect::Anything).await?;
                let replies = wire.ask(&question()).await.map_err(|error| format!("{address}: {error}"))?;
                read(replies.first().unwrap_or(&Reply::Nil), address)
            };
            match timeout(MAP_TIME_MAX, asking).await {
                Ok(Ok(ranges)) => {
                    self.learn(&ranges);
                    return Ok(());
                }
                Ok(Err(error)) => failure = error,
                Err(_) => failure = format!("{address}: no answer within {MAP_TIME_MAX:?}").into(),
            }
        }
        Err(failure)
    }

    fn learn(&self, ranges: &[Range]) {
        self.map.send_modify(|map| {
            let map = Arc::make_mut(map);
            let before = std::mem::take(&mut map.nodes);
            // A node without slots is kept while calls are sent to it: it may be about to get some.
            let (mut kept, gone): (Vec<_>, Vec<_>) = before.into_iter().partition(|member| {
                let owns = ranges.iter().any(|range| range.primary == member.address);
                member.node.take_used() || owns
            });
            gone.iter().for_each(|member| member.node.close());
            map.nodes.append(&mut kept);
            map.owners.fill(NOBODY);
            map.others.clear();
            for range in ranges {
                let Some(index) = map.place(&range.primary, &self.shared) else { continue };
                if let Some(owners) = map.owners.get_mut(usize::from(range.first)..=usize::from(range.last)) {
                    owners.fill(index);
                }
                let room = NODES_MAX.saturating_sub(map.others.len());
                map.others.extend(range.replicas.iter().take(room).cloned());
            }
            map.told = Told::Known;
        });
    }
}

fn rotate<T>(list: &mut [T], turn: usize) {
    let length = list.len().max(1);
    list.rotate_left((turn % length).min(list.len()));
}

fn question() -> Packed {
    Packed::of(&[b"CLUSTER", b"SLOTS"])
}

fn read(reply: &Reply, address: &Address) -> Result<Vec<Range>, DialError> {
    if let Reply::Error(error) = reply {
        return Err(DialError::refused(error).named(address));
    }
    match ranges(reply, address) {
        Some(ranges) if !ranges.is_empty() => Ok(ranges),
        _ => Err(format!("{address}: it knows no slots of a Cluster").into()),
    }
}

/// The task that keeps the map. When its runtime ends, the next caller starts another.
struct Tender(Arc<Cluster>);

impl Drop for Tender {
    fn drop(&mut self) {
        self.0.tended.store(false, Relaxed);
    }
}

impl Tender {
    async fn run(self) {
        let cluster = &self.0;
        while !cluster.closed.load(Relaxed) {
            cluster.used.store(false, Relaxed);
            cluster.refresh().await;
            tokio::select! {
                () = sleep(MAP_PAUSE_TROUBLED) => {}
                () = cluster.stop.notified() => return,
            }
            // While nobody asks, nobody needs to know.
            let calm = async {
                while !(cluster.used.load(Relaxed) && cluster.nodes().iter().any(|node| node.is_troubled())) {
                    let wait = timeout(MAP_PAUSE, cluster.shared.trouble.notified()).await;
                    if wait.is_ok() || cluster.used.load(Relaxed) {
                        return;
                    }
                }
            };
            tokio::select! {
                () = calm => {}
                () = cluster.stop.notified() => return,
            }
        }
    }
}
