//! `tidegate store check`: problems of a shared store that would affect rate limits.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::ValueEnum;
use tidegate_stores::redis::{Checkup, Severity, Target};
use tokio::runtime::Builder;

use super::report;

/// Check a shared store for problems that affect rate limits, and report each with a fix
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// URL of a store, with the same parameters as for `serve`; can be repeated
    #[arg(value_name = "URL", required = true, env = "TIDEGATE_STORE", hide_env_values = true)]
    urls: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

const EXAMPLES: &str = r#"Run it on a machine that runs Tidegate, since latency and clock are measured from there. On each primary it checks
version, clients, memory, eviction, persistence, replicas, clock and permissions, runs each script once, and compares
the latency of a few hundred calls with PING. It only writes keys that no limit uses and deletes them afterwards, so it
can run while the store is in use. Checks that the user of the URL has no permission for are reported as unknown.
Passwords are never printed. To keep a password out of the process list, set TIDEGATE_STORE instead of an argument.

Exit codes:
  0  no errors (there may be warnings)
  1  errors
  2  invalid URL or arguments

Examples:
  tidegate store check redis://127.0.0.1:6379
  tidegate store check 'rediss://tidegate:password@redis.internal?timeout=20ms&ca=/etc/ssl/redis.pem'
  tidegate store check redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/limits redis+cluster://10.0.1.1,10.0.1.2
  TIDEGATE_STORE=redis://:password@redis.internal tidegate store check --format json"#;

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

pub(crate) fn run(args: &Args) -> io::Result<ExitCode> {
    // Not a parser of the argument: clap would repeat an invalid URL, which may contain a password.
    let targets = match args.urls.iter().map(|url| target(url)).collect::<Result<Vec<_>, _>>() {
        Ok(targets) => targets,
        Err(problem) => {
            eprintln!("error: {problem}; see tidegate store check --help");
            return Ok(ExitCode::from(2));
        }
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // One after the other: in parallel they would disturb each other's measurements.
    let checkups: Vec<Checkup> = targets.iter().map(|target| runtime.block_on(Checkup::of(target))).collect();
    let report = match args.format {
        Format::Text => report::text(&checkups),
        Format::Json => report::json(&checkups)?,
    };
    io::stdout().write_all(report.as_bytes())?;
    let failed = checkups.iter().any(|checkup| checkup.count(Severity::Error) > 0);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn target(url: &str) -> Result<Target, String> {
    if url.starts_with("memory:") {
        return Err(
            "URL: memory: is local to each process and needs no check; use the URL of a shared store".to_owned()
        );
    }
    url.parse().map_err(|error: tidegate_stores::redis::TargetError| error.to_string())
}
