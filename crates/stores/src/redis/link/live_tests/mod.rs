//! Links against real servers, and a few that only pretend.

mod cluster;
mod faults;
mod logins;
mod pretender;
mod replies;
mod sentinel;

use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep};

use super::{Arg, CallError, Redis, Script, Term};

/// Enough for any machine: what needs it is not a matter of time.
pub(super) const AMPLE: Duration = Duration::from_secs(5);

/// What a busy machine may add to a bound on time.
pub(super) const SLACK: Duration = Duration::from_millis(100);

pub(super) fn open(url: &str) -> Redis {
    Redis::open(&url.parse().unwrap()).unwrap()
}

/// Adds one to a counter and answers the sum: whether a call ran shows in the counter.
pub(super) async fn add(redis: &Redis, key: &str, budget: Duration) -> Result<i64, CallError> {
    let script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    match redis.call(&script, &[key.as_bytes()], &[Arg::from(1_i64)], Term::of(budget)).await? {
        Value::Int(sum) => Ok(sum),
        other => panic!("{other:?}"),
    }
}

/// Tries until an answer comes, and says how long that took.
pub(super) async fn recover(redis: &Redis, key: &str, budget: Duration) -> Duration {
    let start = Instant::now();
    loop {
        match add(redis, key, budget).await {
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
