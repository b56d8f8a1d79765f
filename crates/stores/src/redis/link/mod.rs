//! Carries a script call to the right Redis node and back, and says exactly what is known when it fails.
//!
//! | to find | look in |
//! |---|---|
//! | a call: retries, redirections | this file |
//! | what a failed call tells | `error` |
//! | a script call as commands | `command` |
//! | one node and its breaker | `node`, `circuit` |
//! | one connection: made, watched, probed | `dial`, `link`, `keeper` |
//! | calls on one connection: their turn, their time | `pipe`, `line`, `calls`, `window`, `term` |
//! | bytes: written and read, replies | `driver`, `reply` |
//! | connections for looking at a store from outside | `direct` |
//! | where the primary is | `sentinel` |
//! | which node has a slot | `cluster`, `slots` |
//! | what the log says | `journal` |
//!
//! A call is sent again only if the server said that it did not run it, or if nothing was written to the socket. So it
//! is applied once at most.

pub(crate) mod bounds;
mod calls;
mod circuit;
mod cluster;
mod command;
mod dial;
mod direct;
mod driver;
#[cfg(test)]
mod driver_tests;
mod error;
mod journal;
mod keeper;
mod line;
#[expect(clippy::module_inception, reason = "a link is one of the links")]
mod link;
mod node;
mod pipe;
mod reply;
mod sentinel;
mod slots;
mod term;
mod window;

#[cfg(test)]
mod live_tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::TryFutureExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

pub(crate) use command::{Arg, Script};
pub(crate) use direct::{DirectConnection, DirectDialer, Primary};
pub use error::{CallError, OpenError, Why};
pub(crate) use node::borrow_connections;
pub(crate) use reply::{Reply, ServerError};
pub(crate) use slots::{SLOTS, slot};
pub(crate) use term::Term;

use super::url::{Address, Place, Target};
use crate::health::{Breaker, Counters, Health, NodeHealth, Stopwatch};
use bounds::{LOADS_MAX, NOT_READY_PAUSE, REDIRECTIONS_MAX};
use cluster::Cluster;
use command::{Packed, prepare};
use dial::{Dialer, Endpoint};
use link::Live;
use node::{Node, Sending, Shared, Whereabouts};
use pipe::{Answer, is_not_ready};
use sentinel::Sentinels;

/// A store that scripts run on. Clones share its connections.
#[derive(Clone)]
pub(crate) struct Redis {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    topology: Topology,
}

enum Topology {
    One(Arc<Node>),
    Sentinel(Arc<Node>, Arc<Sentinels>),
    Cluster(Arc<Cluster>),
}

/// Tasks end with the last handle.
impl Drop for Inner {
    fn drop(&mut self) {
        match &self.topology {
            Topology::One(node) => node.close(),
            Topology::Sentinel(node, sentinels) => {
                node.close();
                sentinels.stop.notify_one();
            }
            Topology::Cluster(cluster) => cluster.close(),
        }
    }
}

impl Redis {
    /// Prepares a store. Nothing is connected before the first call, so that a server starts while Redis is absent.
    ///
    /// # Errors
    /// If the file of authorities cannot be used.
    pub(crate) fn open(target: &Target) -> Result<Redis, OpenError> {
        let store: Arc<str> = target.to_string().into();
        let tls = match target.tls.then(|| dial::tls(target.authorities.as_deref())).transpose() {
            Ok(tls) => tls,
            Err(reason) => return Err(OpenError { store, reason }),
        };
        let shared = Arc::new(Shared {
            store,
            dialer: Dialer::new(tls.clone(), &target.login, target.database),
            counters: Counters::default(),
            stopwatch: Stopwatch::default(),
            waits: Stopwatch::default(),
            budget: target.budget(),
            links: target.links(),
            trouble: Notify::new(),
        });
        let fixed =
            |endpoint: Endpoint| Topology::One(Node::new(endpoint.to_string(), Whereabouts::Fixed(endpoint), &shared));
        let topology = match &target.place {
            Place::Server(address) => fixed(Endpoint::Tcp(address.clone())),
            Place::Socket(path) => fixed(Endpoint::Unix(path.clone())),
            Place::Sentinel { sentinels, primary, login } => {
                let dialer = Dialer::new(tls, login, 0);
                let sentinels = Sentinels::new(sentinels.clone(), primary.clone(), dialer);
                let whereabouts = Whereabouts::Asked(Arc::clone(&sentinels));
                Topology::Sentinel(Node::new(primary.clone(), whereabouts, &shared), sentinels)
            }
            Place::Cluster(seeds) => Topology::Cluster(Cluster::new(seeds.clone(), &shared)),
        };
        Ok(Redis { inner: Arc::new(Inner { shared, topology }) })
    }

    /// Runs a script, within its term as a whole. On a Cluster all keys must have the slot of the first.
    ///
    /// Dropping the future gives up the answer: then it is not known whether the script ran.
    ///
    /// # Errors
    /// What is known about the failure.
    pub(crate) async fn call(
        &self,
        script: &Script,
        keys: &[&[u8]],
        args: &[Arg<'_>],
        term: Term,
    ) -> Result<Reply, CallError> {
        let slot = keys.first().filter(|_| self.is_cluster()).map_or(0, |key| slot(key));
        self.call_at(slot, script, keys, args, term).await
    }

    /// The same of keys whose slot is known, which matters on a Cluster alone.
    pub(crate) fn call_at<'a>(
        &'a self,
        slot: u16,
        script: &'a Script,
        keys: &[&[u8]],
        args: &[Arg<'_>],
        term: Term,
    ) -> impl Future<Output = Result<Reply, CallError>> + Send + use<'a> {
        self.ask(slot, script, command::run(script, keys, args), term).map_ok(|answer| answer.reply)
    }

    /// Runs a script for one key, which may be joined with equal calls that wait: its first argument is how many it stands
    /// for, and does not come with the others. Returns the place of this call among them, counted from 0.
    pub(crate) fn call_joined<'a>(
        &'a self,
        slot: u16,
        script: &'a Script,
        key: &[u8],
        args: &[Arg<'_>],
        term: Term,
    ) -> impl Future<Output = Result<(Reply, usize), CallError>> + Send + use<'a> {
        let asked = self.ask(slot, script, command::run_joined(script, key, args), term);
        asked.map_ok(|answer| (answer.reply, answer.place))
    }

    fn ask<'a>(
        &'a self,
        slot: u16,
        script: &'a Script,
        command: Packed,
        term: Term,
    ) -> impl Future<Output = Result<Answer, CallError>> + Send + 'a {
        let (started, attempt) = (Instant::now(), Attempt { redis: self, script, command, slot, term });
        async move {
            let result = attempt.run().await;
            let shared = &self.inner.shared;
            // What an open breaker held back took no time, and would hide how long the others take.
            if !matches!(result, Err(CallError::NotSent { .. })) {
                shared.stopwatch.count(started.elapsed());
            }
            let counters = &shared.counters;
            if result.as_ref().is_ok_and(|answer| answer.place > 0) {
                count(&counters.joined);
            }
            count(match &result {
                Ok(_) => &counters.answered,
                Err(CallError::NotSent { why, .. }) if why.is_overload() => &counters.overloaded,
                Err(CallError::NotSent { .. }) => &counters.not_sent,
                Err(CallError::Unknown { .. }) => &counters.unknown,
                Err(CallError::Refused { .. }) => &counters.refused,
            });
            result
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.inner.topology, Topology::Cluster(_))
    }

    /// The address, without the password.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.inner.shared.store
    }

    pub(crate) fn health(&self) -> Health {
        let nodes = match &self.inner.topology {
            Topology::One(node) | Topology::Sentinel(node, _) => vec![Arc::clone(node)],
            Topology::Cluster(cluster) => cluster.nodes(),
        };
        let nodes: Vec<_> =
            nodes.iter().map(|node| NodeHealth::new(node.name.clone(), node.breaker(), node.links_up())).collect();
        let breaker = nodes.iter().map(|node| node.breaker).max().unwrap_or(Breaker::Closed);
        let shared = &self.inner.shared;
        Health {
            store: Arc::clone(&shared.store),
            breaker,
            nodes,
            totals: shared.counters.totals(),
            times: shared.stopwatch.times(),
            waits: shared.waits.times(),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// One call, on its way.
struct Attempt<'a> {
    redis: &'a Redis,
    script: &'a Script,
    command: Packed,
    slot: u16,
    term: Term,
}

/// What was done for a call so far. Each is done a bounded number of times, or until the budget runs out.
#[derive(Default)]
struct Done {
    redirections: usize,
    /// The node that a slot on its way lets us in at.
    ask: Option<Address>,
    /// Whether the script goes with the call.
    load: bool,
    loads: usize,
    sent_again: bool,
    sought_primary: bool,
    /// That the server was not ready for it.
    not_ready: Option<Why>,
    /// What the server took so far.
    took: Duration,
}

/// What an error of a server means for a call that it did not run.
enum Meaning {
    Forgotten,
    Moved(u16, Address),
    Ask(Address),
    /// It may run soon. `node` if it is the node that is not ready, rather than the Cluster.
    NotReady {
        node: bool,
    },
    ReadOnly,
    Final,
}

impl Attempt<'_> {
    async fn run(&self) -> Result<Answer, CallError> {
        let mut done = Done::default();
        loop {
            let node = self.node(&done).await?;
            let load = done.load.then_some(self.script);
            let request = prepare(&self.command, load, done.ask.is_some());
            let asked = Instant::now();
            let (error, live) = match node.send(request, &self.term).await {
                Sending::Answered(answer, live) => {
                    done.took += answer.took;
                    self.redis.inner.shared.waits.count(answer.waited);
                    match answer.reply {
                        Reply::Error(error) => (error, live),
                        reply => return Ok(Answer { reply, ..answer }),
                    }
                }
                Sending::Unknown(why) => return Err(CallError::Unknown { store: self.store(), why }),
                Sending::NotSent(Why::Broken(_)) if !done.sent_again => {
                    done.sent_again = true;
                    continue;
                }
                Sending::NotSent(why) => {
                    // Its turn never came: the whole time was a wait.
                    if why.is_overload() {
                        self.redis.inner.shared.waits.count(asked.elapsed());
                    }
                    return Err(self.not_sent(done.not_ready.take().unwrap_or(why)));
                }
            };
            self.react(&node, &live, &error, &mut done).await?;
        }
    }

    /// Gets ready to send the call again, or says why not.
    async fn react(
        &self,
        node: &Arc<Node>,
        live: &Live,
        error: &ServerError,
        done: &mut Done,
    ) -> Result<(), CallError> {
        let shared = &self.redis.inner.shared;
        match meaning(error, node) {
            Meaning::Forgotten if done.loads < LOADS_MAX => {
                count(&shared.counters.reloaded);
                done.loads += 1;
                done.load = true;
                return Ok(());
            }
            Meaning::Moved(..) | Meaning::Ask(_) if !matches!(self.redis.inner.topology, Topology::Cluster(_)) => {
                return Err(self.not_sent(Why::OfCluster(error.to_string().into())));
            }
            Meaning::Moved(..) | Meaning::Ask(_) if done.redirections >= REDIRECTIONS_MAX => {
                return Err(self.not_sent(Why::Redirected(error.to_string().into())));
            }
            Meaning::Moved(slot, address) => {
                if let Topology::Cluster(cluster) = &self.redis.inner.topology {
                    cluster.moved(slot, &address);
                }
                self.redirected(done, None);
                return Ok(());
            }
            Meaning::Ask(address) => {
                self.redirected(done, Some(address));
                return Ok(());
            }
            Meaning::ReadOnly if !done.sought_primary => {
                done.sought_primary = true;
                done.load = false;
                node.retire(live);
                shared.trouble.notify_one();
                return Ok(());
            }
            Meaning::NotReady { node: false } => shared.trouble.notify_one(),
            // The breaker has counted it.
            Meaning::NotReady { node: true } => {}
            Meaning::Forgotten | Meaning::ReadOnly => {
                return Err(self.not_sent(Why::NotReady(error.to_string().into())));
            }
            Meaning::Final => {
                let hint = if is_sentinel(error) { "; it is a Sentinel: write redis+sentinel://HOST/NAME" } else { "" };
                let error = format!("{error}{hint}").into();
                return Err(CallError::Refused { store: self.store(), error });
            }
        }
        // What would be sent with no time left for its answer would be unknown, where now it is known not to have run.
        done.took += NOT_READY_PAUSE;
        if done.took + NOT_READY_PAUSE > self.term.budget {
            return Err(self.not_sent(Why::NotReady(error.to_string().into())));
        }
        done.not_ready = Some(Why::NotReady(error.to_string().into()));
        sleep(NOT_READY_PAUSE).await;
        count(&shared.counters.retried);
        done.ask = None;
        Ok(())
    }

    fn redirected(&self, done: &mut Done, ask: Option<Address>) {
        count(&self.redis.inner.shared.counters.redirected);
        done.redirections += 1;
        // Another node may not know the script.
        done.load = false;
        done.ask = ask;
    }

    async fn node(&self, done: &Done) -> Result<Arc<Node>, CallError> {
        match &self.redis.inner.topology {
            Topology::One(node) => Ok(Arc::clone(node)),
            Topology::Sentinel(node, sentinels) => {
                sentinels.watch(node);
                Ok(Arc::clone(node))
            }
            Topology::Cluster(cluster) => match done.ask.as_ref().map(|address| cluster.at(address)) {
                Some(Some(node)) => Ok(node),
                Some(None) => Err(self.not_sent(Why::NoNode(self.slot))),
                None => cluster.owner(self.slot, &self.term).await.map_err(|why| self.not_sent(why)),
            },
        }
    }

    fn not_sent(&self, why: Why) -> CallError {
        CallError::NotSent { store: self.store(), why }
    }

    fn store(&self) -> Arc<str> {
        Arc::clone(self.redis.name())
    }
}

/// Sentinels run no scripts.
fn is_sentinel(error: &ServerError) -> bool {
    let details = error.details().to_ascii_lowercase();
    details.starts_with("unknown command") && ["evalsha", "script"].iter().any(|name| details.contains(name))
}

fn meaning(error: &ServerError, node: &Node) -> Meaning {
    let details = error.details();
    let redirection = || match &node.whereabouts {
        Whereabouts::Fixed(Endpoint::Tcp(asked)) => slots::redirection(details, asked),
        _ => None,
    };
    match error.code() {
        "NOSCRIPT" => Meaning::Forgotten,
        "MOVED" => redirection().map_or(Meaning::Final, |(slot, address)| Meaning::Moved(slot, address)),
        "ASK" => redirection().map_or(Meaning::Final, |(_, address)| Meaning::Ask(address)),
        "TRYAGAIN" | "CLUSTERDOWN" => Meaning::NotReady { node: false },
        code if is_not_ready(code) => Meaning::NotReady { node: true },
        "READONLY" => Meaning::ReadOnly,
        // Before Redis 7, what a command says inside of a script stands in the message.
        "ERR" if details.contains(" -READONLY ") => Meaning::ReadOnly,
        _ => Meaning::Final,
    }
}
