//! What is read from the server.

use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tidegate::{Clock, Time};

use super::By;
use crate::admin::Problem;
use crate::admin::rules::{self, Rule};
use crate::admin::server::{Server, encoded};
use crate::admin::status::{StoreNode, metrics, stores};

/// Most keys of a rule that are asked for.
const KEYS_MAX: usize = 20;

/// A server that is looked at again and again.
pub(super) struct Source {
    server: Server,
    clock: Clock,
}

/// What all rules counted until an instant, and the stores at that time.
pub(super) struct Counted {
    pub(super) at: Time,
    pub(super) rules: Vec<Rule>,
    pub(super) stores: Vec<StoreNode>,
}

/// The heaviest keys of rules, if the server can name them.
#[derive(Default, Deserialize)]
pub(super) struct Top {
    /// The nodes whose numbers these are.
    #[serde(default)]
    pub(super) nodes: Vec<IgnoredAny>,
    /// Whether a store did not answer, so that numbers of other nodes may be missing.
    #[serde(default)]
    pub(super) partial: bool,
    pub(super) rules: Vec<TopRule>,
}

/// The heaviest keys of one rule.
#[derive(Deserialize)]
pub(super) struct TopRule {
    pub(super) domain: String,
    pub(super) rule: String,
    pub(super) keys: Vec<TopKey>,
}

/// A key with its counts.
#[derive(Deserialize)]
pub(super) struct TopKey {
    pub(super) key: Vec<KeyPart>,
    pub(super) requests: u64,
    pub(super) denials: u64,
    /// From 0 to 1.
    pub(super) share: f64,
}

/// A part of a key.
#[derive(Deserialize)]
pub(super) struct KeyPart {
    pub(super) part: String,
    pub(super) value: String,
}

impl Source {
    pub(super) fn new(server: Server) -> Source {
        Source { server, clock: Clock::system() }
    }

    /// Returns the URL of the server, as messages show it.
    pub(super) fn shown(&self) -> &str {
        self.server.shown()
    }

    /// Reads the counts of all rules, and the health of the stores.
    pub(super) fn counted(&self) -> Result<Counted, Problem> {
        let (rules, _) = rules::get(&self.server)?;
        let at = self.clock.now();
        Ok(Counted { at, rules: rules.rules, stores: stores(&metrics(&self.server)?) })
    }

    /// Reads the heaviest keys, of one rule if it is named; `None` if the server does not support it.
    pub(super) fn top(&self, by: By, rule: Option<&(String, String)>) -> Result<Option<Top>, Problem> {
        let mut query = format!("/v1/top?by={}&window=minute&limit={KEYS_MAX}", by.name());
        if let Some((domain, rule)) = rule {
            query += &format!("&domain={}&rule={}", encoded(domain), encoded(rule));
        }
        let answer = self.server.ask(&Method::GET, &query, None)?;
        if answer.is_unsupported() {
            return Ok(None);
        }
        if answer.status == StatusCode::NOT_FOUND {
            // The rule was removed meanwhile.
            return Ok(Some(Top::default()));
        }
        let (top, _) = self.server.read(&Method::GET, &query, answer)?;
        Ok(Some(top))
    }

    /// Returns the rules and the heaviest keys as the server answers them.
    pub(super) fn json(&self, by: By) -> Result<(String, Option<String>), Problem> {
        let (_, rules) = rules::get(&self.server)?;
        let path = format!("/v1/top?by={}&window=minute&limit={KEYS_MAX}", by.name());
        let answer = self.server.ask(&Method::GET, &path, None)?;
        if answer.is_unsupported() {
            return Ok((rules, None));
        }
        let (_, top) = self.server.read::<IgnoredAny>(&Method::GET, &path, answer)?;
        Ok((rules, Some(top)))
    }
}
