//! Tidegate's rules: from files to a [`Policy`], and from a request to the rules that apply to it.
//!
//! | to find | look in |
//! |---|---|
//! | what people may write | `schema.rs`, and its JSON Schema and reference in `json_schema.rs`, `reference.rs` |
//! | from files to a configuration | `load/`, `yaml/`, `envoy/` |
//! | from a configuration to a file | `migrate.rs` |
//! | what is told of mistakes | `diagnostic.rs`, `lint.rs` |
//! | what is asked, and what rules look at of it | `request.rs`, `path.rs`, `parts.rs` |
//! | rules as they are asked | `rule.rs`, `policy.rs` |
//! | JSON that is told over HTTP or on a command line | `json.rs`, `limit.rs` |
//! | from the schema to rules | `compile.rs`, `conditions.rs`, `limit.rs`, `duration.rs` |
//! | which rules apply to a request | `index.rs`, `anchor.rs`, `affix.rs`, `networks.rs`, then `matching.rs`, `pattern.rs` |
//! | what a rule counts a request on, and how much | `key.rs`, `key_bytes.rs`, `expression.rs` |
//! | how keys are shown to administrators | `shown_key.rs` |
//! | who the client is | `address.rs`, `network.rs` |

pub mod bounds;
pub mod json;
pub mod json_schema;
pub mod load;
pub mod migrate;
pub mod schema;

mod address;
mod affix;
mod anchor;
mod compile;
#[cfg(test)]
mod compile_tests;
mod conditions;
mod diagnostic;
mod duration;
mod envoy;
mod expression;
#[cfg(test)]
mod find_tests;
mod index;
mod key;
mod key_bytes;
mod limit;
mod lint;
mod matching;
mod network;
mod networks;
mod parts;
mod path;
mod pattern;
mod policy;
mod reference;
mod request;
mod rule;
mod shown_key;
mod stores;
mod yaml;

pub use address::Clients;
pub use compile::{compile, compile_clients};
pub use diagnostic::{Diagnostic, Diagnostics, Location, Severity};
pub use duration::read_duration;
pub use key_bytes::{KeyParts, append_key};
pub use limit::{Calendars, JsonLimit, LIMIT_REMEDY, LimitProblem, read_json_limit, read_limit, refused_name};
pub use load::{Loaded, Options as LoadOptions, files, load, load_text};
pub use parts::HttpParts;
pub use path::{OddPath, PathForms};
pub use policy::{DomainId, FoundRules, Policy, Question, StorePlace, StoreSpec};
pub use request::{Ask, Descriptor, Entry, Http, OwnLimit, Request, Response, Shown, cookies, without_port};
pub use rule::{
    Action, Consistency, Count, Headers, KeyMade, Local, Missing, Mode, OnStoreFailure, ResponseOptions, Rule, RuleId,
    RuleLimit, Share, ToldAs,
};
pub use shown_key::{MISSING_KEY, ShownPart};
pub use stores::{CheckStore, LookUp, Outside, StoreFacts, can_be_leased};
