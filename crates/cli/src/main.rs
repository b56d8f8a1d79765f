//! The `tidegate` command.
//!
//! | to find | look in |
//! |---|---|
//! | `tidegate decide`: JSON lines in, decisions out | `decide/` |
//! | `tidegate serve`: the service | `serve.rs` |
//! | `tidegate check`: what is wrong with a configuration | `check.rs` |
//! | `tidegate migrate`: from files of envoyproxy/ratelimit to native ones | `migrate.rs` |
//! | `tidegate store check`: what would hurt limits in a shared store | `store/` |
//! | `tidegate schema`: the JSON Schema and the reference | `schema.rs` |
//! | `tidegate demo`: a short tour in the terminal | `demo/` |
//! | `tidegate completions`: a script for a shell | `completions.rs` |
//! | every bound on what comes in, with its reason | `bounds.rs` |

mod bounds;
mod check;
mod completions;
mod decide;
mod demo;
mod migrate;
mod schema;
mod serve;
mod store;
mod tls;

use std::io;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

/// Requests over HTTP and gRPC are taken apart into many small pieces of memory, which this allocator hands out for less.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Decides, for each request, whether it may pass now and, if not, when.
#[derive(Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = r#"Examples:
  tidegate serve --config rules.yaml
  tidegate check rules.yaml
  tidegate store check redis://127.0.0.1:6379
  tidegate demo
  printf '%s\n' '{"op":"new","limit":"5/second"}' '{"op":"charge","at_ns":0}' | tidegate decide
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate"#;

#[derive(Subcommand)]
enum Command {
    Decide(decide::Args),
    // Its arguments are many more than those of the others.
    Serve(Box<serve::Args>),
    Check(check::Args),
    Migrate(migrate::Args),
    Store(store::Args),
    Schema(schema::Args),
    Demo(demo::Args),
    Completions(completions::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let done = match cli.command {
        Command::Serve(args) => return serve::run(*args),
        Command::Check(args) => check::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Decide(args) => decide::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => demo::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Completions(args) => completions::run(&args).map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(code) => code,
        // Whoever reads has read enough, as in `tidegate decide | head -1`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the help or version that was asked for, or one line about arguments that cannot be used.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
    } else {
        eprintln!("{}", one_line(error));
    }
    if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

/// The command whose help would help.
fn asked() -> String {
    let (mut asked, mut command) = ("tidegate".to_owned(), Cli::command());
    for name in std::env::args_os().skip(1) {
        let Some(known) = name.to_str().and_then(|name| command.find_subcommand(name)).cloned() else { break };
        asked = format!("{asked} {}", known.get_name());
        command = known;
    }
    asked
}

/// An argument that is no flag, and that nobody asked for.
fn stray(error: &clap::Error) -> Option<&str> {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return None,
    };
    match error.get(kind) {
        Some(ContextValue::String(text)) if !text.starts_with('-') => Some(text),
        _ => None,
    }
}

/// What to write for an argument that is the path of rules, as `check` takes it.
fn path_tip(error: &clap::Error) -> Option<String> {
    let path = stray(error).filter(|_| asked() == "tidegate serve")?;
    Some(format!("write --config {path} for the rules in it"))
}

/// The first paragraph of a message and its tip, if it has one.
fn one_line(error: &clap::Error) -> String {
    if stray(error).is_some_and(|text| text.contains("://")) {
        // It may have a password in it, which no message shows.
        let fix = "serve takes that of a store behind --store, and store check as it is";
        return format!("error: unexpected URL; {fix}; see {} --help", asked());
    }
    let message = error.to_string();
    let problem: Vec<&str> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let tip = message.lines().find_map(|line| line.trim().strip_prefix("tip: ").map(str::to_owned));
    let tip = path_tip(error).or(tip).map(|tip| format!("; {tip}")).unwrap_or_default();
    format!("{}{tip}; see {} --help", problem.join(" "), asked())
}
