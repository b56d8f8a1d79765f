//! Links against real servers, and a few that only pretend.

mod cluster;
mod faults;
mod hot_keys;
mod logins;
mod pretender;
mod replies;
mod sentinel;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Arg, CallError, Redis, Reply, Script, Term};

/// Enough for any machine: what needs it is not a matter of time.
pub(super) const AMPLE: Duration = Duration::from_secs(5);

/// What a busy machine may add to a bound on time.
pub(super) const SLACK: Duration = Duration::from_millis(100);

/// Opens a store. Unless the URL says, its server has ample time.
pub(super) fn open(url: &str) -> Redis {
    let url = match (url.contains("timeout="), url.contains('?')) {
        (true, _) => url.to_owned(),
        (false, true) => format!("{url}&timeout=5s"),
        (false, false) => format!("{url}?timeout=5s"),
    };
    Redis::open(&url.parse().unwrap()).unwrap()
}

pub(super) fn term(budget: Duration) -> Term {
    Term::new(budget, AMPLE)
}

/// Adds one to a counter and answers the sum: whether a call ran shows in the counter.
pub(super) async fn add(redis: &Redis, key: &str) -> Result<i64, CallError> {
    add_within(redis, key, AMPLE).await
}

/// Adds one, and waits no longer than that for its turn.
pub(super) async fn add_within(redis: &Redis, key: &str, wait: Duration) -> Result<i64, CallError> {
    let script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    let term = Term::new(redis.inner.shared.budget, wait);
    match redis.call(&script, &[key.as_bytes()], &[Arg::from(1_i64)], term).await? {
        Reply::Int(sum) => Ok(sum),
        other => panic!("{other:?}"),
    }
}

/// Tries until an answer comes, and says how long that took.
pub(super) async fn recover(redis: &Redis, key: &str) -> Duration {
    let start = Instant::now();
    loop {
        match add(redis, key).await {
            Ok(_) => return start.elapsed(),
            Err(error) => assert!(start.elapsed() < Duration::from_secs(10), "{error}"),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

pub(super) fn is_not_sent<T>(result: &Result<T, CallError>) -> bool {
    matches!(result, Err(CallError::NotSent { .. }))
}

pub(super) fn is_unknown<T>(result: &Result<T, CallError>) -> bool {
    matches!(result, Err(CallError::Unknown { .. }))
}
