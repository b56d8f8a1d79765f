//! The `tidegate` command.
//!
//! | to find | look in |
//! |---|---|
//! | `tidegate decide`: JSON lines in, decisions out | `decide/` |
//! | `tidegate serve`: the service | `serve.rs` |
//! | `tidegate check`: the problems of a configuration | `check/` |
//! | `tidegate migrate`: from files of envoyproxy/ratelimit to those of Tidegate | `migrate.rs` |
//! | `tidegate store check`: problems of a shared store | `store/` |
//! | `tidegate schema`: the JSON Schema and the reference | `schema.rs` |
//! | `tidegate demo`: a short tour in the terminal | `demo/` |
//! | `tidegate completions`: a script for a shell | `completions.rs` |
//! | `tidegate status`, `rules`, `mode`, `inspect` and others: calls to a running server | `admin/` |
//! | every bound on input, with its reason | `bounds.rs` |

mod admin;
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

/// Parsing HTTP and gRPC requests takes many small allocations, which this allocator makes cheaper than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A rate limiter: decides for each request whether it may pass now and, if not, when to retry
#[derive(Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = r#"Exit codes:
  0  success
  1  a check found errors, a file cannot be read or written, or a server cannot be reached or refuses a request
  2  invalid arguments, or the server cannot start

Examples:
  tidegate serve --config rules.yaml
  tidegate check rules.yaml
  tidegate store check redis://127.0.0.1:6379
  tidegate demo
  tidegate status --server http://127.0.0.1:8080
  tidegate block 1h --domain api --entry user=42
  printf '%s\n' '{"op":"new","limit":"5/second"}' '{"op":"charge","at_ns":0}' | tidegate decide
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate"#;

#[derive(Subcommand)]
enum Command {
    Decide(decide::Args),
    // Boxed, since it has many more arguments than the others.
    Serve(Box<serve::Args>),
    Check(check::Args),
    Migrate(migrate::Args),
    Store(store::Args),
    Schema(schema::Args),
    Demo(demo::Args),
    Completions(completions::Args),
    #[command(flatten)]
    Admin(Box<admin::Command>),
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
        Command::Admin(command) => admin::run(*command),
    };
    match done {
        Ok(code) => code,
        // The reader closed the pipe, as in `tidegate decide | head -1`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the help or version, or one line about invalid arguments.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
    } else {
        eprintln!("{}", one_line(error));
    }
    if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

/// Returns the command on the command line, whose help fits an error, such as `tidegate store check`.
fn command_line() -> String {
    let (mut line, mut command) = ("tidegate".to_owned(), Cli::command());
    for name in std::env::args_os().skip(1) {
        let Some(known) = name.to_str().and_then(|name| command.find_subcommand(name)).cloned() else { break };
        line = format!("{line} {}", known.get_name());
        command = known;
    }
    line
}

/// Returns an unexpected argument that is not a flag.
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

/// Returns a tip for a path of rules without `--config`, as `check` takes it.
fn path_tip(error: &clap::Error) -> Option<String> {
    let path = stray(error).filter(|_| command_line() == "tidegate serve")?;
    Some(format!("use --config {path} to load rules from it"))
}

/// Returns the first paragraph of a message and its tip, if it has one.
fn one_line(error: &clap::Error) -> String {
    if stray(error).is_some_and(|text| text.contains("://")) {
        // It may contain a password, which no message shows.
        let fix = "use `tidegate serve --store URL` or `tidegate store check URL`";
        return format!("error: unexpected URL; {fix}; see {} --help", command_line());
    }
    let message = error.to_string();
    let problem: Vec<&str> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let tip = message.lines().find_map(|line| line.trim().strip_prefix("tip: ").map(str::to_owned));
    let tip = path_tip(error).or(tip).map(|tip| format!("; {tip}")).unwrap_or_default();
    format!("{}{tip}; see {} --help", problem.join(" "), command_line())
}
