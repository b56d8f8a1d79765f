//! Connections for looking at a store from outside: apart from the links, one question at a time, and nothing is retried.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tokio::time::timeout;

use super::super::url::{Address, Place, Target};
use super::bounds::{CONNECT_TIME_MAX, DIRECT_ANSWER_TIME_MAX};
use super::command::{Arg, Packed, Script, load, run};
use super::dial::{self, DialError, Dialer, Endpoint, Expect, Wire};
use super::error::Why;
use super::reply::Reply;
use super::sentinel::Sentinels;
use super::slots::{Range, ranges};

/// Finds the primaries of a store and connects to them.
pub(crate) struct DirectDialer<'a> {
    place: &'a Place,
    dialer: Dialer,
    sentinels: Option<Arc<Sentinels>>,
}

/// A primary of a store.
#[derive(Clone, Debug)]
pub(crate) struct Primary {
    endpoint: Endpoint,
    /// The slots that it has; nothing if the store is no Cluster.
    pub(crate) slots: Option<Vec<RangeInclusive<u16>>>,
}

impl fmt::Display for Primary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(formatter)
    }
}

/// What the hosts of a URL say about where the primaries are.
pub(crate) struct Located {
    /// The primaries, or why none was found.
    pub(crate) primaries: Result<Vec<Primary>, Why>,
    /// Why Sentinels or nodes of a Cluster that the URL names did not answer.
    pub(crate) silent: Vec<Why>,
}

impl<'a> DirectDialer<'a> {
    /// Prepares to connect to a store.
    ///
    /// # Errors
    /// If the file of authorities cannot be used.
    pub(crate) fn new(target: &'a Target) -> Result<DirectDialer<'a>, Why> {
        let tls = target.tls.then(|| dial::tls(target.authorities.as_deref())).transpose();
        let tls = tls.map_err(|reason| Why::NoConnection(reason.into()))?;
        let sentinels = match &target.place {
            Place::Sentinel { sentinels, primary, login } => {
                let dialer = Dialer::new(tls.clone(), login, 0);
                Some(Sentinels::new(sentinels.clone(), primary.clone(), dialer))
            }
            Place::Server(_) | Place::Socket(_) | Place::Cluster(_) => None,
        };
        Ok(DirectDialer { place: &target.place, dialer: Dialer::new(tls, &target.login, target.database), sentinels })
    }

    /// Asks every host of the URL where the primaries are.
    pub(crate) async fn locate(&self) -> Located {
        let one = |endpoint| Located { primaries: Ok(vec![Primary { endpoint, slots: None }]), silent: Vec::new() };
        match (self.place, &self.sentinels) {
            (_, Some(sentinels)) => ask_sentinels(sentinels).await,
            (Place::Server(address), None) => one(Endpoint::Tcp(address.clone())),
            (Place::Socket(path), None) => one(Endpoint::Unix(path.clone())),
            (Place::Cluster(seeds) | Place::Sentinel { sentinels: seeds, .. }, None) => {
                ask_cluster(seeds, &self.dialer).await
            }
        }
    }

    /// Connects to a primary and logs in.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(crate) async fn connect(&self, primary: &Primary) -> Result<DirectConnection, Why> {
        let dialed = timeout(CONNECT_TIME_MAX, self.dialer.dial(&primary.endpoint, Expect::Anything)).await;
        let late = |_| Why::NoConnection(format!("{primary}: not connected within {CONNECT_TIME_MAX:?}").into());
        let wire = dialed.map_err(late)?.map_err(DialError::into_why)?;
        Ok(DirectConnection { wire })
    }
}

/// A connection whose questions wait for each other.
pub(crate) struct DirectConnection {
    wire: Wire,
}

impl DirectConnection {
    /// Sends a command and returns the reply, which may be an error of the server.
    ///
    /// # Errors
    /// If the connection broke, or the server did not answer in time. The connection is of no use then.
    pub(crate) async fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, Why> {
        self.send(&Packed::of(words)).await
    }

    /// Runs a script that the server knows already.
    ///
    /// # Errors
    /// As [`DirectConnection::ask`].
    pub(crate) async fn run(&mut self, script: &Script, keys: &[&[u8]], args: &[Arg<'_>]) -> Result<Reply, Why> {
        self.send(&run(script, keys, args)).await
    }

    /// Makes a script known to the server.
    ///
    /// # Errors
    /// As [`DirectConnection::ask`].
    pub(crate) async fn load(&mut self, script: &Script) -> Result<Reply, Why> {
        self.send(&load(script)).await
    }

    async fn send(&mut self, command: &Packed) -> Result<Reply, Why> {
        let asked = timeout(DIRECT_ANSWER_TIME_MAX, self.wire.ask(command)).await;
        let replies = asked.map_err(|_| Why::TimedOut(DIRECT_ANSWER_TIME_MAX))?;
        let replies = replies.map_err(|error| Why::Broken(error.to_string().into()))?;
        Ok(replies.into_iter().next().unwrap_or(Reply::Nil))
    }
}

async fn ask_sentinels(sentinels: &Arc<Sentinels>) -> Located {
    let found = sentinels.locate().await.map_err(DialError::into_why);
    let primaries = found.map(|address| vec![Primary { endpoint: Endpoint::Tcp(address), slots: None }]);
    let silent = sentinels.failures().await.into_iter().map(DialError::into_why).collect();
    Located { primaries, silent }
}

async fn ask_cluster(seeds: &[Address], dialer: &Dialer) -> Located {
    let (mut map, mut silent) = (None, Vec::new());
    for seed in seeds {
        let asking = timeout(CONNECT_TIME_MAX, slots_of(seed, dialer)).await;
        let late = |_| Err(format!("{seed}: no answer within {CONNECT_TIME_MAX:?}").into());
        match asking.unwrap_or_else(late) {
            Ok(ranges) => map = map.or(Some(ranges)),
            Err(error) => silent.push(error.into_why()),
        }
    }
    let reason = || silent.last().map_or(Why::NoConnection("no host is named".into()), Why::clone);
    Located { primaries: map.map(primaries_of).ok_or_else(reason), silent }
}

async fn slots_of(seed: &Address, dialer: &Dialer) -> Result<Vec<Range>, DialError> {
    let mut wire = dialer.dial(&Endpoint::Tcp(seed.clone()), Expect::Anything).await?;
    let replies = wire.ask(&Packed::of(&[b"CLUSTER", b"SLOTS"])).await.map_err(|error| format!("{seed}: {error}"))?;
    match replies.first() {
        Some(Reply::Error(error)) => Err(DialError::refused(error).named(seed)),
        Some(reply) => ranges(reply, seed).ok_or_else(|| format!("{seed}: it does not answer like a Cluster").into()),
        None => Err(format!("{seed}: it does not answer like Redis").into()),
    }
}

fn primaries_of(ranges: Vec<Range>) -> Vec<Primary> {
    let mut primaries: Vec<Primary> = Vec::new();
    for Range { first, last, primary, .. } in ranges {
        let endpoint = Endpoint::Tcp(primary);
        match primaries.iter_mut().find(|known| known.endpoint == endpoint) {
            Some(known) => known.slots.get_or_insert_default().push(first..=last),
            None => primaries.push(Primary { endpoint, slots: Some(vec![first..=last]) }),
        }
    }
    primaries
}
