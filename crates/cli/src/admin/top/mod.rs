//! `tidegate top`: the rules with their rates, the heaviest keys, and the stores, again and again.
//!
//! | to find | look in |
//! |---|---|
//! | what is read from the server | `source.rs` |
//! | rates, order, search and selection | `view.rs` |
//! | the live view: keys, and requests on a thread of their own | `live.rs` |
//! | what it draws | `screen.rs` |
//! | one table, for other programs | `plain.rs` |

mod live;
mod plain;
mod screen;
mod source;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::server::{Server, ServerArgs};
use super::{Format, Problem, exit_codes, print, print_json};
use source::Source;

/// Show rules with their rates, the heaviest keys, and stores, live in the terminal
#[derive(clap::Args)]
#[command(after_help = concat!(
    "Keys of the live view:
  Up, Down        select a rule, whose heaviest keys are shown
  /               search rules: type a part of the name, then Enter; Esc shows all rules
  d               order by denials, or again by requests
  q, Esc, Ctrl-C  quit

Rates are those since the last look. The heaviest keys are of the last minute; servers that do not support GET /v1/top
show none. If the output is not a terminal, or with --once, it looks twice and prints one table. With --format json,
the output is one JSON object with the answers of GET /v1/rules (`rules`) and GET /v1/top (`top`; null if the server
does not support it).\n\n",
    exit_codes!(),
    "Examples:
  tidegate top
  tidegate top --server https://tidegate.internal --interval 5s
  tidegate top --once --by denials"
))]
pub(crate) struct Args {
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Order of rules and keys
    #[arg(long, value_enum, default_value_t = By::Requests)]
    by: By,
    /// Print one table and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The order of rules and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Requests,
    Denials,
}

impl By {
    /// Returns the name of the order, in queries too.
    fn name(self) -> &'static str {
        match self {
            By::Requests => "requests",
            By::Denials => "denials",
        }
    }
}

/// Longest and shortest time between two looks: a shorter one would load the server with many rules.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(3_600);

pub(super) fn run(args: &Args) -> Result<(), Problem> {
    let source = Source::new(Server::new(&args.server)?);
    match args.server.format {
        Format::Json => json(&source, args.by),
        Format::Text if args.once || !io::stdout().is_terminal() => {
            print(&plain::table_of(&source, args.by, args.interval)?)
        }
        Format::Text => live::run(source, args.by, args.interval),
    }
}

/// Answers as they are.
#[derive(Serialize)]
struct Json {
    rules: Box<RawValue>,
    top: Option<Box<RawValue>>,
}

fn json(source: &Source, by: By) -> Result<(), Problem> {
    let (rules, top) = source.json(by)?;
    let raw = |json: String| RawValue::from_string(json).map_err(io::Error::other);
    let top = top.map(raw).transpose()?;
    let all = Json { rules: raw(rules)?, top };
    print_json(&serde_json::to_string(&all).map_err(io::Error::other)?)
}

/// Reads a time between two looks.
fn interval(text: &str) -> Result<Duration, String> {
    let read = tidegate_policy::read_duration(text).filter(|time| INTERVALS.contains(time));
    read.ok_or_else(|| "use a duration from 200ms to 1h, such as 2s".to_owned())
}
