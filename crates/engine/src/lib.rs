//! From a request to its outcome: the one place that finds the rules, asks the stores and joins their decisions.
//!
//! | to find | look in |
//! |---|---|
//! | what front ends call | `engine.rs` |
//! | many keys at once | `batch.rs` |
//! | which charges a request makes | `plan.rs` |
//! | asking the stores: all or none, refunds, failures | `settle.rs` |
//! | what came out, for front ends to encode | `outcome.rs` |
//! | keys that stay denied | `penalty.rs` |
//! | what people do to keys and rules while it runs | `admin.rs` |
//! | where counts live | `store.rs` |
//! | what keeps calls away from a store that several nodes share | `shared/` |
//! | what was counted of each rule | `stats.rs` |
//! | every bound, with its reason | `bounds.rs` |

pub mod bounds;

mod admin;
mod batch;
mod engine;
mod outcome;
mod penalty;
mod plan;
mod settle;
#[cfg_attr(not(test), expect(dead_code, reason = "stores of the configuration are in memory so far"))]
mod shared;
mod stats;
mod store;

pub use admin::{Inspected, InspectedLimit, RuleView, UnknownRule};
pub use batch::Batch;
pub use engine::{Engine, Options, PolicyGuard, RequestError};
pub use outcome::{Answer, Denial, Judgement, Outcome};
pub use stats::{Counts, SeriesCounts};
pub use store::StoreError;
