//! `tidegate inspect`: the state of a key.

use http::Method;
use serde::Deserialize;

use super::key::KeyArgs;
use super::server::{Server, ServerArgs};
use super::text::{count, duration, escaped};
use super::{Format, Problem, exit_codes, print, print_json};

/// Show the state of a key: what remains of its limits, and its block or penalty
#[derive(clap::Args)]
#[command(after_help = concat!(
    "Name the key as a check does. Nothing is taken from its limits.\n\n",
    exit_codes!(),
    "Examples:
  tidegate inspect --domain api --entry user=42
  tidegate inspect --domain web --method POST --path /login --address 203.0.113.7
  tidegate inspect --key user:42 --limit 100/minute"
))]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Most entries of a log in text.
const ENTRIES_SHOWN: usize = 10;

#[derive(Deserialize)]
struct Inspection {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    /// Missing for a key with a limit that callers bring.
    rule: Option<String>,
    penalised_ns: Option<u64>,
    limits: Vec<Limit>,
}

#[derive(Deserialize)]
struct Limit {
    name: String,
    limit: u64,
    remaining: u64,
    reset_after_ns: u64,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    at: String,
    units: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Problem> {
    let fields = args.key.fields()?;
    let (inspection, json) = Server::new(&args.server)?.send(&Method::POST, "/v1/inspect", &fields.into())?;
    match args.server.format {
        Format::Text => print(&shown(&inspection)),
        Format::Json => print_json(&json),
    }
}

fn shown(inspection: &Inspection) -> String {
    if inspection.rules.is_empty() {
        return "no rule counts such a request; `tidegate rules` lists all rules\n".to_owned();
    }
    let mut text = String::new();
    for Rule { rule, penalised_ns, limits } in &inspection.rules {
        if let Some(rule) = rule {
            text += &format!("{}\n", escaped(rule));
        }
        if let Some(left) = penalised_ns {
            text += &format!("  denied for {} by a block or penalty\n", duration(*left));
        }
        limits.iter().for_each(|limit| text += &of_limit(limit));
    }
    text
}

fn of_limit(Limit { name, limit, remaining, reset_after_ns, entries }: &Limit) -> String {
    let back = if remaining < limit { format!(", all back in {}", duration(*reset_after_ns)) } else { String::new() };
    let mut text = format!("  {}: {remaining} of {limit} left{back}\n", escaped(name));
    for Entry { at, units } in entries.iter().take(ENTRIES_SHOWN) {
        text += &format!("    {} {}\n", escaped(at), count(*units, "unit"));
    }
    if let Some(more) = entries.len().checked_sub(ENTRIES_SHOWN).filter(|more| *more > 0) {
        text += &format!("    and {more} more; --format json shows all\n");
    }
    text
}
