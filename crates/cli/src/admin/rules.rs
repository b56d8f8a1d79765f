//! `tidegate rules`: all rules with their modes, limits and counts.

use serde::Deserialize;

use super::server::{Server, ServerArgs};
use super::text::{duration, escaped, table};
use super::{Format, Problem, exit_codes, print, print_json};

/// List all rules with their modes, limits and counts
#[derive(clap::Args)]
#[command(after_help = concat!(
    "Counts are of requests since the server started: those that passed, those that were denied, and those that passed
only because the rule is in shadow mode.\n\n",
    exit_codes!(),
    "Examples:
  tidegate rules
  tidegate rules --server https://tidegate.internal --format json"
))]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
}

/// The answer of `GET /v1/rules`, as far as commands show it.
#[derive(Deserialize)]
pub(super) struct Rules {
    pub(super) rules: Vec<Rule>,
}

#[derive(Deserialize)]
pub(super) struct Rule {
    pub(super) domain: String,
    pub(super) name: String,
    action: String,
    pub(super) mode: String,
    configured_mode: String,
    limits: Vec<Limit>,
    pub(super) counts: Counts,
}

#[derive(Deserialize)]
struct Limit {
    name: String,
    algorithm: String,
    units: u64,
    period_ns: u64,
    burst: u64,
}

/// Requests since the server started.
#[derive(Clone, Copy, Default, Deserialize)]
pub(super) struct Counts {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) shadow_denied: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Problem> {
    let (rules, json) = get(&Server::new(&args.server)?)?;
    match args.server.format {
        Format::Text => print(&shown(&rules)),
        Format::Json => print_json(&json),
    }
}

/// Asks a server for its rules. Returns the JSON too.
pub(super) fn get(server: &Server) -> Result<(Rules, String), Problem> {
    server.get("/v1/rules")
}

impl Rule {
    /// Returns the domain and the name, escaped, as `tidegate mode` takes them.
    pub(super) fn title(&self) -> String {
        format!("{}/{}", escaped(&self.domain), escaped(&self.name))
    }

    /// Returns the mode, and the one in the configuration if that is another.
    fn modes(&self) -> String {
        match self.mode == self.configured_mode {
            true => escaped(&self.mode).into(),
            false => format!("{} (config: {})", escaped(&self.mode), escaped(&self.configured_mode)),
        }
    }

    /// Returns the limits, or what the rule does instead.
    fn limits(&self) -> String {
        let name = |limit: &Limit| {
            if *limit.name == *self.name { String::new() } else { format!("{} ", escaped(&limit.name)) }
        };
        let limits = self.limits.iter().map(|limit| format!("{}{}", name(limit), limit.shown()));
        let limits: Vec<String> = limits.collect();
        if limits.is_empty() { escaped(&self.action).into() } else { limits.join(", ") }
    }
}

impl Limit {
    fn shown(&self) -> String {
        let period = match duration(self.period_ns).as_str() {
            "1s" => "second".to_owned(),
            "1m" => "minute".to_owned(),
            "1h" => "hour".to_owned(),
            "1d" => "day".to_owned(),
            other => other.to_owned(),
        };
        let burst = if self.burst == self.units { String::new() } else { format!(" burst {}", self.burst) };
        format!("{}/{period}{burst} {}", self.units, escaped(&self.algorithm))
    }
}

fn shown(rules: &Rules) -> String {
    if rules.rules.is_empty() {
        return "no rules; start the server with --config to load some\n".to_owned();
    }
    let row = |rule: &Rule| {
        let Counts { allowed, denied, shadow_denied } = rule.counts;
        let counts = [allowed, denied, shadow_denied].map(|count| count.to_string());
        [rule.title(), rule.modes(), rule.limits()].into_iter().chain(counts).collect()
    };
    table(&["RULE", "MODE", "LIMITS", "ALLOWED", "DENIED", "SHADOW"], rules.rules.iter().map(row).collect(), 3)
}
