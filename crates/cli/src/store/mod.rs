//! `tidegate store`: what concerns a shared store alone.
//!
//! | to find | look in |
//! |---|---|
//! | `tidegate store check`: what would hurt limits in it | `check.rs` |
//! | what that prints, as text and as JSON | `report.rs` |

mod check;
mod report;

use std::io;
use std::process::ExitCode;

use clap::Subcommand;

/// Look at a shared store
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
