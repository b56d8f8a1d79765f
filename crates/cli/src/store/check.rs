//! `tidegate store check`: what would hurt a rate limiter in a shared store.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::ValueEnum;
use tidegate_stores::redis::{Checkup, Severity, Target};
use tokio::runtime::Builder;

use super::report;

/// Check a shared store for what would hurt limits, and print a fix for each problem
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The URL of a store, with all parameters that `serve` gets; may be repeated
    #[arg(value_name = "URL", required = true, env = "TIDEGATE_STORE", hide_env_values = true)]
    urls: Vec<String>,
    /// How the report is written to stdout
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

const EXAMPLES: &str = r#"Run it on a machine that runs Tidegate: it measures from there. It connects to each primary and looks at its
version, clients, memory, eviction, persistence, replicas, clock and permissions; it runs each script once, and measures
some hundred calls beside PING. It writes only keys that no limit uses, and deletes them, so it may run while the store
serves. What the user of the URL may not ask for is reported as unknown. Passwords are never printed; a URL in
TIDEGATE_STORE does not show in the list of processes either.

The exit code is 0 if there is no error, 1 if there is one, and 2 if a URL cannot be used; warnings do not change it.

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
    // Not a parser of the argument: clap would repeat a wrong URL, which may hold a password.
    let targets = match args.urls.iter().map(|url| target(url)).collect::<Result<Vec<_>, _>>() {
        Ok(targets) => targets,
        Err(problem) => {
            eprintln!("error: {problem}; see tidegate store check --help");
            return Ok(ExitCode::from(2));
        }
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // One after the other: together they would measure each other.
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
        return Err("URL: memory: is in each process and needs no check; write that of a shared store".to_owned());
    }
    url.parse().map_err(|error: tidegate_stores::redis::TargetError| error.to_string())
}
