//! Memory of requests that have not come whole yet.
//!
//! A client may send most of a request and then wait, on many connections at a time. Each listener has a budget for what it
//! keeps of such requests, and each connection a share of it. Where either is exceeded, the largest request of the
//! connection that holds most is given up.
//!
//! A request joins when it is waited for: most come at once, and cost nothing here.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::bounds::{GIVEN_UP_AFTER, UNFINISHED_REQUEST_BYTES};

/// How many bytes unfinished requests may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMemory {
    /// Those of all connections of a listener together.
    pub listener_bytes: usize,
    /// Those of one connection.
    pub connection_bytes: usize,
}

/// What the unfinished requests of a listener may take, and take.
#[derive(Debug)]
pub(crate) struct Budget {
    most: RequestMemory,
    next_connection: AtomicU64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    next_request: u64,
    connections: HashMap<u64, OfConnection>,
    /// The connections by what they hold, so that the largest is found at once.
    by_size: BTreeSet<(usize, u64)>,
}

#[derive(Debug, Default)]
struct OfConnection {
    bytes: usize,
    requests: HashMap<u64, Request>,
}

#[derive(Debug, Default)]
struct Request {
    bytes: usize,
    /// Who waits for the rest of it.
    waker: Option<Waker>,
}

/// The request was given up: unfinished ones take too much memory, and it was the largest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GivenUp;

impl Budget {
    pub(crate) fn new(most: RequestMemory) -> Arc<Budget> {
        Arc::new(Budget { most, next_connection: AtomicU64::new(0), held: Mutex::default() })
    }

    /// Opens the account of a connection.
    pub(crate) fn account(self: &Arc<Budget>) -> Account {
        let connection = self.next_connection.fetch_add(1, Ordering::Relaxed);
        Account(Arc::new(Share { budget: Arc::clone(self), connection, dawdled: Notify::new() }))
    }

    /// Bytes of all unfinished requests.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.held().bytes
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Sets what a request takes. Does nothing if it was given up.
    fn set(&mut self, connection: u64, request: u64, bytes: usize) {
        let Some(of_connection) = self.connections.get_mut(&connection) else { return };
        let Some(one) = of_connection.requests.get_mut(&request) else { return };
        let (before, of_all) = (of_connection.bytes, of_connection.bytes - one.bytes + bytes);
        self.bytes = self.bytes - one.bytes + bytes;
        one.bytes = bytes;
        of_connection.bytes = of_all;
        self.by_size.remove(&(before, connection));
        self.by_size.insert((of_all, connection));
    }

    /// Forgets a request. Returns who waits for the rest of it.
    fn remove(&mut self, connection: u64, request: u64) -> Option<Waker> {
        self.set(connection, request, 0);
        let of_connection = self.connections.get_mut(&connection)?;
        let removed = of_connection.requests.remove(&request)?;
        if of_connection.requests.is_empty() {
            self.by_size.remove(&(of_connection.bytes, connection));
            self.connections.remove(&connection);
        }
        removed.waker
    }

    /// Gives the largest request of a connection up.
    fn give_up_largest(&mut self, connection: u64) {
        let requests = self.connections.get(&connection).map(|of_connection| &of_connection.requests);
        let largest = requests.and_then(|all| all.iter().max_by_key(|(_, request)| request.bytes));
        if let Some((&request, _)) = largest
            && let Some(waker) = self.remove(connection, request)
        {
            waker.wake();
        }
    }

    /// Gives requests up until the rest fits, for a connection that has just taken more.
    fn fit(&mut self, most: RequestMemory, connection: u64) {
        while self.connections.get(&connection).is_some_and(|held| held.bytes > most.connection_bytes) {
            self.give_up_largest(connection);
        }
        while self.bytes > most.listener_bytes
            && let Some(&(_, largest)) = self.by_size.last()
        {
            self.give_up_largest(largest);
        }
    }
}

/// What the unfinished requests of a connection take.
#[derive(Clone, Debug)]
pub(crate) struct Account(Arc<Share>);

#[derive(Debug)]
struct Share {
    budget: Arc<Budget>,
    connection: u64,
    /// Told when a request was waited for in vain.
    dawdled: Notify,
}

impl Account {
    /// Takes in a request that is waited for, and of which so many bytes are kept.
    ///
    /// # Errors
    /// If it is given up at once.
    pub(crate) fn claim(&self, bytes: usize) -> Result<Claim, GivenUp> {
        let mut held = self.0.budget.held();
        let number = held.next_request;
        held.next_request += 1;
        let of_connection = held.connections.entry(self.0.connection).or_default();
        of_connection.requests.insert(number, Request::default());
        drop(held);
        let mut claim = Claim { account: self.clone(), number, bytes: 0, since: Instant::now(), is_whole: false };
        claim.keep(bytes)?;
        Ok(claim)
    }

    /// Resolves when a request was waited for in vain.
    pub(crate) async fn dawdled(&self) {
        self.0.dawdled.notified().await;
    }
}

/// An unfinished request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    account: Account,
    number: u64,
    /// What it takes, as far as was said.
    bytes: usize,
    since: Instant,
    is_whole: bool,
}

impl Claim {
    /// Says how many bytes are kept of it. What the server needs beside those is added.
    ///
    /// # Errors
    /// If it is given up.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), GivenUp> {
        // If it was given up meanwhile, whoever waits for the rest learns it.
        if bytes == self.bytes { Ok(()) } else { self.keep(bytes) }
    }

    fn keep(&mut self, bytes: usize) -> Result<(), GivenUp> {
        self.bytes = bytes;
        let Share { budget, connection, .. } = &*self.account.0;
        let mut held = budget.held();
        held.set(*connection, self.number, bytes + UNFINISHED_REQUEST_BYTES);
        held.fit(budget.most, *connection);
        if held.request(*connection, self.number).is_some() { Ok(()) } else { Err(GivenUp) }
    }

    /// Is ready once it is given up.
    pub(crate) fn poll_given_up(&self, context: &mut Context<'_>) -> Poll<()> {
        let Share { budget, connection, .. } = &*self.account.0;
        match budget.held().request(*connection, self.number) {
            Some(request) => {
                if !request.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    request.waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }

    /// Says that all of it has come.
    pub(crate) fn finish(mut self) {
        self.is_whole = true;
    }
}

impl Held {
    fn request(&mut self, connection: u64, request: u64) -> Option<&mut Request> {
        self.connections.get_mut(&connection)?.requests.get_mut(&request)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Share { budget, connection, dawdled } = &*self.account.0;
        let _ = budget.held().remove(*connection, self.number);
        if !self.is_whole && self.since.elapsed() >= GIVEN_UP_AFTER {
            dawdled.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: RequestMemory = RequestMemory { listener_bytes: 1_000_000, connection_bytes: 400_000 };

    fn claim(account: &Account, bytes: usize) -> Claim {
        account.claim(bytes).unwrap()
    }

    fn is_given_up(claim: &Claim) -> bool {
        claim.poll_given_up(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn a_connection_loses_its_largest_request() {
        let budget = Budget::new(MOST);
        let account = budget.account();
        let [mut small, mut large, mut other] = [50_000, 200_000, 100_000].map(|bytes| claim(&account, bytes));
        small.set(99_000).unwrap();
        assert!(is_given_up(&large), "399,000 and what is beside them are too many");
        assert!(!is_given_up(&small) && !is_given_up(&other));
        assert_eq!(other.set(301_000), Err(GivenUp), "it is the largest itself");
        assert!(!is_given_up(&small));
        assert_eq!(large.set(1), Err(GivenUp));
        drop((small, large, other));
        assert_eq!(budget.bytes(), 0);
        assert!(budget.held().connections.is_empty() && budget.held().by_size.is_empty());
    }

    #[tokio::test]
    async fn the_connection_that_holds_most_loses_first() {
        let budget = Budget::new(MOST);
        let accounts = [budget.account(), budget.account(), budget.account(), budget.account()];
        let many: Vec<_> = (0..30).map(|_| claim(&accounts[0], 10_000)).collect();
        let others: Vec<_> = accounts[1..].iter().map(|account| claim(account, 210_000)).collect();
        let left = || many.iter().filter(|claim| !is_given_up(claim)).count();
        assert_eq!(left(), 30);
        // A newcomer that is small is not in danger.
        let newcomer = claim(&budget.account(), 30_000);
        assert!(left() < 30 && others.iter().all(|claim| !is_given_up(claim)) && !is_given_up(&newcomer));
        assert!(budget.bytes() <= MOST.listener_bytes);
        drop((many, others, newcomer));
        assert_eq!(budget.bytes(), 0);
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let budget = Budget::new(MOST);
        let account = budget.account();
        let first = claim(&account, 300_000);
        let waits = tokio::spawn(std::future::poll_fn(move |context| first.poll_given_up(context)));
        tokio::task::yield_now().await;
        let _second = claim(&account, 150_000);
        waits.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_never_comes_whole_is_noticed() {
        let account = Budget::new(MOST).account();
        let (whole, left, given_up) = (claim(&account, 0), claim(&account, 0), claim(&account, 0));
        drop(left);
        tokio::time::sleep(GIVEN_UP_AFTER).await;
        whole.finish();
        let noticed = tokio::time::timeout(std::time::Duration::from_millis(1), account.dawdled());
        assert!(noticed.await.is_err());
        drop(given_up);
        account.dawdled().await;
    }
}
