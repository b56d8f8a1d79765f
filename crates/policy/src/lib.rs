//! Tidegate's rules: from files to a [`Policy`], and from a request to the rules that apply to it.
//!
//! | to find | look in |
//! |---|---|
//! | what people may write | `schema.rs` |
//! | what is told of mistakes | `diagnostic.rs` |
//! | what is asked | `request.rs` |
//! | rules as they are asked | `rule.rs`, `policy.rs` |

pub mod schema;

mod diagnostic;
mod expression;
mod key;
mod policy;
mod request;
mod rule;

pub use diagnostic::{Diagnostic, Diagnostics, Location, Severity};
pub use policy::{DomainId, Policy, Question, StoreSpec};
pub use request::{Ask, Descriptor, Entry, Http, OwnLimit, Request, Response, Shown};
pub use rule::{Action, Count, Headers, Mode, OnStoreFailure, ResponseOptions, Rule, RuleId, RuleLimit};
