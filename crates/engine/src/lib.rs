//! From a request to its outcome: the one place that finds the rules, asks the stores and joins their decisions.
//!
//! | to find | look in |
//! |---|---|
//! | what front ends call | `engine.rs`, `at_once.rs` |
//! | from an HTTP request to what rules look at, for all front ends | `http_request.rs` |
//! | limits that callers bring, and many keys at once | `inline.rs`, `batch.rs` |
//! | the policy in force, with all that its rules need | `active.rs` |
//! | one rule that judges a request alone and lets it pass, as is mostly so | `sole.rs` |
//! | which charges a request makes, and the keys that they count on | `plan.rs`, `keys.rs` |
//! | asking the stores: all or none, refunds, failures | `settle/` |
//! | what is answered and counted when a store does not answer, or deciding panics | `failure.rs` |
//! | what came out, for front ends to encode | `outcome.rs`, `error.rs` |
//! | what answers tell of limits: headers and problem bodies | `http_headers/` |
//! | numbers as Prometheus reads them | `exposition.rs` |
//! | keys that stay denied | `penalty.rs` |
//! | so many at once, each with a lease | `permits.rs`, `permit_book.rs` |
//! | one after the other | `shape.rs` |
//! | what people do to keys and rules while it runs | `admin.rs` |
//! | where counts live | `store.rs` |
//! | how closely nodes agree, and what keeps calls away from a store that they share | `consistency/` |
//! | lines that must not fill the log | `log_limiter.rs`, `failure_log.rs` |
//! | what was counted of each rule, and by whom | `stats.rs`, `count.rs` |
//! | the heaviest keys of each rule, blocks in force, the exchange of both between nodes | `crowd/` |
//! | what no rule met | `unmatched.rs` |
//! | every bound, with its reason | `bounds.rs` |

pub mod bounds;
pub mod exposition;
pub mod http_headers;
pub mod http_request;

mod active;
mod admin;
mod at_once;
mod batch;
mod caller;
mod consistency;
mod count;
mod crowd;
#[cfg(test)]
mod doubles;
mod engine;
mod error;
mod failure;
mod failure_log;
mod few;
mod inline;
mod instead;
mod keys;
mod log_limiter;
mod outcome;
mod penalty;
mod permit_book;
mod permits;
mod plan;
mod settle;
mod shape;
mod sole;
mod stats;
mod store;
mod unmatched;

/// The answer of something that must not wait: with its state in memory, nothing does.
#[cfg(test)]
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(future).unwrap()
}

pub use active::PolicyGuard;
pub use admin::{Inspected, InspectedLimit, RuleView, UnknownRule};
pub use at_once::AtOnce;
pub use batch::Batch;
pub use caller::Caller;
pub use crowd::{
    BlockKind, BlockView, BlocksAnswer, NodeView, Operator, Others, TopAnswer, TopKey, TopQuery, TopRule, TopWindow,
};
pub use engine::{Engine, Options};
pub use error::RequestError;
pub use http_request::{HttpHost, HttpRequest, HttpTarget};
pub use inline::Sourced;
pub use keys::caller_phase;
pub use log_limiter::{LogLimiter, LogRate};
pub use outcome::{Answer, Binding, Denial, Judgement, Outcome};
pub use permits::{Acquired, BadPermitShare, PermitCounts, PermitError, PermitOptions, PermitShare, new_permit_id};
pub use shape::{ShapeError, Shaped};
pub use stats::{Counts, SeriesCounts};
pub use store::{InstallError, MemoryView, StoreError, StoreView, check_store_url};
pub use tidegate_core::{HeavyBy, KeyCounts};
pub use tidegate_stores::redis::borrow_connections;
pub use tidegate_stores::{Breaker, CALL_TIME_BOUNDS, CallTimes, Health, NodeHealth, Totals};
