//! `tidegate reset`, `grant`, `block` and `unblock`: changes to the state of a key.

use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::key::{KeyArgs, RequestArgs};
use super::server::{Server, ServerArgs};
use super::text::count;
use super::{Format, Problem, exit_codes, print, print_json};

/// Reset a key: forget its count, its block and its penalty
#[derive(clap::Args)]
#[command(after_help = concat!(
    "It acts on every limit that applies to such a request.\n\n",
    exit_codes!(),
    "Examples:
  tidegate reset --domain api --entry user=42
  tidegate reset --domain web --method POST --path /login --address 203.0.113.7
  tidegate reset --key user:42 --limit 100/minute"
))]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Give units back to a key
#[derive(clap::Args)]
#[command(after_help = concat!(
    "Every limit that applies to such a request gets the units back, up to its whole limit.\n\n",
    exit_codes!(),
    "Examples:
  tidegate grant 5 --domain api --entry user=42
  tidegate grant 100 --key user:42 --limit 1000/day"
))]
pub(crate) struct GrantArgs {
    /// Number of units to give back
    #[arg(value_name = "UNITS")]
    units: u64,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Deny a key for a time, whatever its count
#[derive(clap::Args)]
#[command(after_help = concat!(
    "Only keys of rules can be blocked. Nodes that share a store learn of it within a second.\n\n",
    exit_codes!(),
    "Examples:
  tidegate block 1h --domain api --entry user=42
  tidegate block 10m --domain web --address 203.0.113.7"
))]
pub(crate) struct BlockArgs {
    /// How long, such as 10m or 1h30m, up to 100 years
    #[arg(value_name = "TIME", value_parser = length)]
    time: String,
    #[command(flatten)]
    key: RequestArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Lift a block or penalty of a key; its count stays
#[derive(clap::Args)]
#[command(after_help = concat!(
    "To forget the count too, use `tidegate reset`.\n\n",
    exit_codes!(),
    "Examples:
  tidegate unblock --domain api --entry user=42"
))]
pub(crate) struct UnblockArgs {
    #[command(flatten)]
    key: RequestArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// What a server answers.
#[derive(Deserialize)]
struct Done {
    limits: u64,
    /// Only of `unblock`.
    #[serde(default)]
    lifted: u64,
}

pub(super) fn reset(args: &ResetArgs) -> Result<(), Problem> {
    change(&args.server, "/v1/reset", args.key.fields()?, |done| format!("reset {}", limits(done)))
}

pub(super) fn grant(args: &GrantArgs) -> Result<(), Problem> {
    let mut fields = args.key.fields()?;
    fields.insert("units".to_owned(), args.units.into());
    let units = count(args.units, "unit");
    change(&args.server, "/v1/grant", fields, |done| format!("gave back {units} under {}", limits(done)))
}

pub(super) fn block(args: &BlockArgs) -> Result<(), Problem> {
    let mut fields = args.key.fields()?;
    fields.insert("duration".to_owned(), args.time.as_str().into());
    change(&args.server, "/v1/block", fields, |done| format!("blocked for {} under {}", args.time, limits(done)))
}

pub(super) fn unblock(args: &UnblockArgs) -> Result<(), Problem> {
    change(&args.server, "/v1/unblock", args.key.fields()?, |done| match done.lifted {
        0 => format!("not blocked: {} count such a request, without a block or penalty", limits(done)),
        lifted => format!("unblocked under {}", count(lifted, "limit")),
    })
}

/// Makes a call and prints the answer.
fn change(
    server: &ServerArgs,
    path: &str,
    fields: Map<String, Value>,
    line: impl FnOnce(&Done) -> String,
) -> Result<(), Problem> {
    let (done, json) = Server::new(server)?.send(&Method::POST, path, &fields.into())?;
    match server.format {
        Format::Text => print(&format!("{}\n", line(&done))),
        Format::Json => print_json(&json),
    }
}

fn limits(done: &Done) -> String {
    count(done.limits, "limit")
}

/// Checks a time, and returns it as it was written.
fn length(text: &str) -> Result<String, String> {
    match tidegate_policy::read_duration(text) {
        Some(length) if !length.is_zero() => Ok(text.trim().to_owned()),
        _ => Err("use a duration such as 10m or 1h30m".to_owned()),
    }
}
