//! `tidegate mode`: the mode of a rule.

use clap::ValueEnum;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::server::{Server, ServerArgs, encoded};
use super::text::escaped;
use super::{Format, Problem, exit_codes, print, print_json};

/// Change the mode of a rule until the server restarts
#[derive(clap::Args)]
#[command(after_help = concat!(
    "`config` restores the mode of the configuration. The change acts on this server alone: repeat it for other nodes.\n\n",
    exit_codes!(),
    "Examples:
  tidegate mode api/per-user shadow
  tidegate mode api/per-user config"
))]
pub(crate) struct Args {
    /// The rule, as `tidegate rules` shows it
    #[arg(value_name = "DOMAIN/RULE", value_parser = rule)]
    rule: String,
    /// The new mode
    #[arg(value_enum)]
    mode: Mode,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// Deny requests beyond the limits
    Enforce,
    /// Count and report denials, but deny nothing
    Shadow,
    /// Neither count nor deny
    Off,
    /// The mode of the configuration
    #[value(alias = "configured")]
    Config,
}

#[derive(Deserialize)]
struct Switched {
    domain: String,
    rule: String,
    mode: String,
}

pub(super) fn run(args: &Args) -> Result<(), Problem> {
    let server = Server::new(&args.server)?;
    let mode = match args.mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
        Mode::Config => "configured",
    };
    let (Switched { domain, rule, mode }, json) = switch(&server, &args.rule, mode)?;
    match args.server.format {
        Format::Text => print(&format!("{}/{}: {}\n", escaped(&domain), escaped(&rule), escaped(&mode))),
        Format::Json => print_json(&json),
    }
}

/// Switches a rule. Names can contain slashes, so each of them is tried as the one between the domain and the rule.
fn switch(server: &Server, name: &str, mode: &str) -> Result<(Switched, String), Problem> {
    let body = json!({ "mode": mode });
    let mut first = None;
    for (place, _) in name.match_indices('/') {
        let (domain, rule) = (encoded(&name[..place]), encoded(&name[place + 1..]));
        if domain.is_empty() || rule.is_empty() {
            continue;
        }
        let path = format!("/v1/rules/{domain}/{rule}/mode");
        let answer = server.ask(&Method::PUT, &path, Some(body.to_string()))?;
        let is_unknown = answer.status == StatusCode::NOT_FOUND;
        match server.read(&Method::PUT, &path, answer) {
            Err(problem) if is_unknown => first = first.or(Some(problem)),
            done => return done,
        }
    }
    Err(first.unwrap_or_else(|| Problem::Arguments(format!("{}: {RULE}", escaped(name)))))
}

const RULE: &str = "use DOMAIN/RULE, such as api/per-user";

/// Checks the name of a rule.
fn rule(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((domain, rule)) if !domain.is_empty() && !rule.is_empty() => Ok(text.to_owned()),
        _ => Err(RULE.to_owned()),
    }
}
