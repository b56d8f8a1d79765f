//! Commands for operators, which call a running server.
//!
//! | to find | look in |
//! |---|---|
//! | `tidegate status` | `status.rs` |
//! | `tidegate rules`, and the list of rules as the server sends it | `rules.rs` |
//! | `tidegate mode` | `mode.rs` |
//! | `tidegate inspect` | `inspect.rs` |
//! | `tidegate reset`, `grant`, `block`, `unblock` | `change.rs` |
//! | `tidegate explain` | `explain.rs` |
//! | `tidegate top` | `top/` |
//! | the arguments that name a key | `key.rs` |
//! | the server: its URL, the token, requests and errors | `server.rs`, `connect.rs` |
//! | the lines of `/metrics` | `series.rs` |
//! | text from the server, escaped; tables and durations | `text.rs` |

mod change;
mod connect;
mod explain;
mod inspect;
mod key;
mod mode;
mod rules;
mod series;
mod server;
mod status;
mod text;
mod top;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

#[derive(Subcommand)]
pub(crate) enum Command {
    Status(status::Args),
    Rules(rules::Args),
    Mode(mode::Args),
    Inspect(inspect::Args),
    Explain(explain::Args),
    Reset(change::ResetArgs),
    Grant(change::GrantArgs),
    Block(change::BlockArgs),
    Unblock(change::UnblockArgs),
    Top(top::Args),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Why a command failed.
enum Problem {
    /// Its arguments are invalid.
    Arguments(String),
    /// The server cannot be reached, or refuses.
    Failed(String),
    /// The output cannot be written.
    Output(io::Error),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::Output(error)
    }
}

/// The exit codes of all these commands, for their help.
macro_rules! exit_codes {
    () => {
        "Exit codes:
  0  done
  1  the server cannot be reached, or refuses
  2  invalid arguments

"
    };
}
use exit_codes;

pub(crate) fn run(command: Command) -> io::Result<ExitCode> {
    let done = match command {
        Command::Status(args) => return report(status::run(&args)),
        Command::Rules(args) => rules::run(&args),
        Command::Mode(args) => mode::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Reset(args) => change::reset(&args),
        Command::Grant(args) => change::grant(&args),
        Command::Block(args) => change::block(&args),
        Command::Unblock(args) => change::unblock(&args),
        Command::Top(args) => top::run(&args),
    };
    report(done.map(|()| ExitCode::SUCCESS))
}

/// Prints the problem of a command and returns its exit code.
fn report(done: Result<ExitCode, Problem>) -> io::Result<ExitCode> {
    match done {
        Ok(code) => Ok(code),
        Err(Problem::Output(error)) => Err(error),
        Err(Problem::Failed(text)) => {
            eprintln!("error: {text}");
            Ok(ExitCode::FAILURE)
        }
        Err(Problem::Arguments(text)) => {
            eprintln!("error: {text}; see {} --help", crate::command_line());
            Ok(ExitCode::from(2))
        }
    }
}

/// Prints text, which ends with a line break.
fn print(text: &str) -> Result<(), Problem> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Prints JSON from the server as one line. What a terminal could not show is escaped.
fn print_json(json: &str) -> Result<(), Problem> {
    print(&format!("{}\n", text::escaped_json(json.trim_end())))
}
