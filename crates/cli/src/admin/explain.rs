//! `tidegate explain`: why a request was denied, or what rules would do with one.

use http::Method;
use serde::Deserialize;

use super::key::RequestArgs;
use super::server::{Server, ServerArgs};
use super::text::{count, duration, escaped};
use super::{Format, Problem, exit_codes, print, print_json};

/// Show why a request was denied, by the id of its denial, or what rules would do with a request
#[derive(clap::Args)]
#[command(after_help = concat!(
    "The id is in the header Tidegate-Decision of a denial, in its body, and in the decision log. Without an id, name a
request as a check does: nothing is charged.\n\n",
    exit_codes!(),
    "Examples:
  tidegate explain 3f7a2c01-8h2kq0vj4m5xw9dyt1ze
  tidegate explain --domain api --entry user=42
  tidegate explain --domain web --method POST --path /login --address 203.0.113.7"
))]
pub(crate) struct Args {
    /// Id of a denial
    #[arg(value_name = "ID", conflicts_with_all = ["domain", "entry", "method", "host", "path", "header", "address"])]
    id: Option<String>,
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Deserialize)]
struct Explained {
    at: String,
    node: String,
    policy_hash: String,
    domain: String,
    denial: String,
    denials: u64,
    denied_by: Vec<Denier>,
}

#[derive(Deserialize)]
struct Denier {
    /// Missing for a limit that the request brought.
    rule: Option<String>,
    policy: Option<String>,
    denial: String,
    key: Vec<Part>,
    cost: u64,
    limit: Option<u64>,
    used: Option<u64>,
    retry_after_ns: Option<u64>,
    #[serde(default)]
    never: bool,
    store: Option<String>,
    local: bool,
}

#[derive(Deserialize)]
struct Part {
    part: String,
    value: String,
    #[serde(default)]
    hidden: bool,
}

#[derive(Deserialize)]
struct Prospect {
    allowed: bool,
    rules: Vec<Rule>,
    left_out: u64,
}

#[derive(Deserialize)]
struct Rule {
    rule: Option<String>,
    mode: String,
    #[serde(flatten)]
    matching: Match,
}

#[derive(Deserialize)]
#[serde(tag = "match", rename_all = "snake_case")]
enum Match {
    Decides { key: Vec<Part>, limits: Vec<Answer> },
    Skipped { reason: String },
    No { failed: Failed },
}

#[derive(Deserialize)]
struct Answer {
    policy: Option<String>,
    verdict: String,
    limit: Option<u64>,
    remaining: Option<u64>,
    retry_after_ns: Option<u64>,
    local: bool,
}

#[derive(Deserialize)]
struct Failed {
    field: String,
    expected: String,
    found: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Problem> {
    let server = Server::new(&args.server)?;
    let (text, json) = match &args.id {
        Some(id) => {
            let id: String = id.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect();
            if args.id.as_deref() != Some(&id) || id.is_empty() {
                let problem = "an id has 8 hexadecimal digits, a hyphen and 20 letters and digits";
                return Err(Problem::Arguments(problem.to_owned()));
            }
            let (explained, json) = server.get(&format!("/v1/explain/{id}"))?;
            (denial(&explained), json)
        }
        None => {
            let fields = args.request.fields()?;
            let (prospect, json) = server.send(&Method::POST, "/v1/explain", &fields.into())?;
            (request(&prospect), json)
        }
    };
    match args.server.format {
        Format::Text => print(&text),
        Format::Json => print_json(&json),
    }
}

fn denial(explained: &Explained) -> String {
    let Explained { at, node, policy_hash, domain, denial, denials, denied_by } = explained;
    let mut text = format!("denied ({}) in domain {}\n", escaped(denial), escaped(domain));
    for one in denied_by {
        text += &of_limit(one);
    }
    text += &format!("at {}, the last of {} in this second\n", escaped(at), count(*denials, "denial"));
    text + &format!("by node {} with configuration {}\n", escaped(node), escaped(policy_hash))
}

fn of_limit(one: &Denier) -> String {
    let Denier { rule, policy, denial, key, cost, limit, used, retry_after_ns, never, store, local } = one;
    let mut text = format!("  {}{}: {}", name(rule), limit_name(policy), escaped(denial));
    if let (Some(limit), Some(used)) = (limit, used) {
        text += &format!(", {used} of {limit} used, {cost} asked for");
    }
    match retry_after_ns {
        Some(wait) => text += &format!(", retry after {}", duration(*wait)),
        None if *never => text += ", no wait helps",
        None => {}
    }
    text += &format!("\n    key: {}\n", shown_key(key));
    if let Some(store) = store {
        let instead = if *local { ", which did not answer: the node decided alone" } else { "" };
        text += &format!("    store: {}{instead}\n", escaped(store));
    }
    text
}

fn request(Prospect { allowed, rules, left_out }: &Prospect) -> String {
    let mut text = format!("it would {}\n", if *allowed { "pass" } else { "be denied" });
    for Rule { rule, mode, matching } in rules {
        let mode = if mode == "enforce" { String::new() } else { format!(" ({})", escaped(mode)) };
        text += &format!("  {}{mode}: ", name(rule));
        match matching {
            Match::Decides { key, limits } => {
                text += &format!("matches, key: {}\n", shown_key(key));
                limits.iter().for_each(|limit| text += &would_answer(limit));
            }
            Match::Skipped { reason } => text += &format!("matches, and does not apply: {}\n", escaped(reason)),
            Match::No { failed: Failed { field, expected, found } } => {
                let found = found.as_deref().unwrap_or("nothing");
                text +=
                    &format!("does not match; {} is {}, not {}\n", escaped(field), escaped(found), escaped(expected));
            }
        }
    }
    if *left_out > 0 {
        text += &format!("  and {} that match less\n", count(*left_out, "rule"));
    }
    text
}

fn would_answer(Answer { policy, verdict, limit, remaining, retry_after_ns, local }: &Answer) -> String {
    let mut text = format!("    {}: {}", policy.as_deref().map_or("-".into(), escaped), escaped(verdict));
    if let (Some(limit), Some(remaining)) = (limit, remaining) {
        text += &format!(", {remaining} of {limit} left");
    }
    if let Some(wait) = retry_after_ns {
        text += &format!(", retry after {}", duration(*wait));
    }
    if *local {
        text += " (by this node alone)";
    }
    text + "\n"
}

fn name(rule: &Option<String>) -> String {
    rule.as_deref().map_or("limit of the request".to_owned(), |rule| escaped(rule).into_owned())
}

fn limit_name(policy: &Option<String>) -> String {
    policy.as_deref().map_or(String::new(), |policy| format!(" / {}", escaped(policy)))
}

fn shown_key(key: &[Part]) -> String {
    if key.is_empty() {
        return "all requests".to_owned();
    }
    let part = |Part { part, value, hidden }: &Part| {
        let hash = if *hidden { " (hash)" } else { "" };
        format!("{}={}{hash}", escaped(part), escaped(value))
    };
    key.iter().map(part).collect::<Vec<_>>().join(" ")
}
