//! `tidegate store`: commands for a shared store.
//!
//! | to find | look in |
//! |---|---|
//! | `tidegate store check`: problems that would affect limits in it | `check.rs` |
//! | its output, as text and as JSON | `report.rs` |

mod check;
mod report;

use std::io;
use std::process::ExitCode;

use clap::Subcommand;

/// Inspect a shared store (Redis or Valkey)
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  tidegate store check redis://127.0.0.1:6379";

#[derive(Subcommand)]
enum Command {
    Check(check::Args),
}

pub(crate) fn run(args: &Args) -> io::Result<ExitCode> {
    match &args.command {
        Command::Check(args) => check::run(args),
    }
}
