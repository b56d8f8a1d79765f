//! Tidegate's rules: from files to a [`Policy`], and from a request to the rules that apply to it.
//!
//! | to find | look in |
//! |---|---|
//! | what people may write | `schema.rs`, and its JSON Schema and reference in `json_schema.rs`, `reference.rs` |
//! | from files to a configuration | `load/`, `yaml/`, `envoy/` |
//! | from a configuration to a file | `migrate.rs` |
//! | what is told of mistakes | `diagnostic.rs` |
//! | what is asked | `request.rs` |
//! | rules as they are asked | `rule.rs`, `policy.rs` |

pub mod json_schema;
pub mod load;
pub mod migrate;
pub mod schema;

mod diagnostic;
mod envoy;
mod expression;
mod key;
mod policy;
mod reference;
mod request;
mod rule;
mod yaml;

pub use diagnostic::{Diagnostic, Diagnostics, Location, Severity};
pub use load::{Loaded, Options, load, load_text};
pub use policy::{DomainId, Policy, Question, StoreSpec};
pub use request::{Ask, Descriptor, Entry, Http, OwnLimit, Request, Response, Shown};
pub use rule::{Action, Count, Headers, Mode, OnStoreFailure, ResponseOptions, Rule, RuleId, RuleLimit};

/// Nothing is compiled yet.
pub fn compile(_: &schema::Config, _: &mut Diagnostics<'_>) -> Policy {
    Policy::default()
}
