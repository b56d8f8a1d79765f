//! The rules of Tidegate: from configuration files to a [`Policy`], and from a request to the rules that match it.
//!
//! | to find | look in |
//! |---|---|
//! | the schema of the configuration | `schema.rs`; its JSON Schema and reference in `json_schema.rs`, `reference.rs` |
//! | from files to a configuration | `load/`, `yaml/`, `envoy/` |
//! | from a configuration to a file | `migrate.rs` |
//! | errors and warnings | `diagnostic.rs`, `lint.rs` |
//! | requests, and the parts of them that rules use | `request.rs`, `path.rs`, `parts.rs` |
//! | compiled rules | `rule.rs`, `policy.rs` |
//! | the hash of a configuration, and the changes of a reload | `digest.rs` |
//! | JSON from HTTP or the command line | `json.rs`, `limit.rs` |
//! | from the schema to compiled rules | `compile.rs`, `conditions.rs`, `limit.rs`, `duration.rs` |
//! | the rules that match a request | `index.rs`, `anchor.rs`, `affix.rs`, `networks.rs`, then `matching.rs`, `pattern.rs` |
//! | the conditions that a request does not meet | `mismatch.rs` |
//! | the key and cost of a request | `key.rs`, `key_bytes.rs`, `expression.rs` |
//! | how keys are shown to administrators | `shown_key.rs` |
//! | the address of the client | `address.rs`, `network.rs` |

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
mod digest;
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
mod mismatch;
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
pub use diagnostic::{Diagnostic, Diagnostics, Location, OneLine, Severity};
pub use digest::Changes;
pub use duration::read_duration;
pub use key_bytes::{KeyParts, append_key};
pub use limit::{Calendars, JsonLimit, LIMIT_REMEDY, LimitProblem, read_json_limit, read_limit, refused_name};
pub use load::{Loaded, Options as LoadOptions, files, load, load_text};
pub use mismatch::{Comparison, Mismatch};
pub use parts::HttpParts;
pub use path::{OddPath, PathForms};
pub use policy::{DomainId, FoundRules, Policy, Question, StorePlace, StoreSpec};
pub use request::{Ask, Descriptor, Entry, Http, OwnLimit, Request, Response, Shown, cookies, without_port};
pub use rule::{
    Action, Consistency, Count, Headers, KeyMade, Local, Missing, Mode, OnStoreFailure, ReportAs, ResponseOptions,
    Rule, RuleId, RuleLimit, Share,
};
pub use shown_key::{MISSING_KEY, ShownPart};
pub use stores::{CheckStore, LookUp, Outside, StoreFacts, can_be_leased};
