//! From a request to its outcome: the one place that finds rules, asks stores and joins their decisions.
//!
//! | to find | look in |
//! |---|---|
//! | the interface for front ends | `engine.rs`, `at_once.rs` |
//! | from an HTTP request to the form that rules match, for all front ends | `http_request.rs` |
//! | limits that callers bring, and batches of keys | `inline.rs`, `batch.rs` |
//! | the policy in force, with everything that its rules need | `active.rs` |
//! | the common case: one rule decides a request alone and allows it | `sole.rs` |
//! | the charges of a request, and their keys | `plan.rs`, `keys.rs` |
//! | asking the stores: all or none, refunds, failures | `settle/` |
//! | the decision and the counts when a store does not answer, or a decision panics | `failure.rs` |
//! | the outcome, for front ends to encode | `outcome.rs`, `error.rs` |
//! | ids of denials, and answers why a request was or would be denied | `explain/` |
//! | headers and problem bodies about limits | `http_headers/` |
//! | metrics in the Prometheus format | `exposition.rs` |
//! | keys that stay denied | `penalty.rs` |
//! | leased permits | `permits.rs`, `permit_book.rs` |
//! | queued requests (shaping) | `shape.rs` |
//! | operators' changes to keys and rules at run time | `admin.rs` |
//! | keys that a full store in memory counts approximately | `approximate.rs` |
//! | the stores by name | `store.rs` |
//! | how closely nodes agree, and how calls to a shared store are saved | `consistency/` |
//! | bounds on log lines | `log_limiter.rs`, `failure_log.rs` |
//! | the counts of each rule | `stats.rs`, `count.rs` |
//! | the heaviest keys of each rule, blocks in force, and their exchange between nodes | `crowd/` |
//! | requests that no rule matched | `unmatched.rs` |
//! | every bound, with its reason | `bounds.rs` |

pub mod bounds;
pub mod exposition;
pub mod http_headers;
pub mod http_request;

mod active;
mod admin;
mod approximate;
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
mod explain;
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

/// Runs a future that must not wait: with its state in memory, none does.
#[cfg(test)]
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(future).unwrap()
}

pub use active::PolicyGuard;
pub use admin::{Inspected, InspectedLimit, RuleView, Unblocked, UnknownRule};
pub use at_once::AtOnce;
pub use batch::Batch;
pub use caller::Caller;
pub use crowd::{
    BlockKind, BlockView, BlocksAnswer, NodeView, Operator, Others, TopAnswer, TopKey, TopQuery, TopRule, TopWindow,
};
pub use engine::{Engine, Options};
pub use error::RequestError;
pub use explain::{
    BadDecisionId, DecisionId, Explained, ExplainedLimit, ExplainedRequest, ExplainedRule, FailedCondition,
    LimitAnswer, RuleMatch, Unexplained,
};
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
