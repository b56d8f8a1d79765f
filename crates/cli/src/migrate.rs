//! `tidegate migrate`: files of envoyproxy/ratelimit as a file in the format of Tidegate.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::check::{Source, write_problems};

/// Convert files of envoyproxy/ratelimit to a configuration in the format of Tidegate
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Write the result to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXAMPLES: &str =
    "All files are combined into one; files in the format of Tidegate can be among them. Rules keep their names,
so a running server keeps their counts. Problems are reported on stderr; after an error nothing is written.

Exit codes:
  0  converted (there may be warnings)
  1  errors in the files, or the result cannot be written
  2  invalid arguments

Examples:
  tidegate migrate /etc/ratelimit/config
  tidegate migrate ratelimit.yaml --output rules.yaml
  tidegate migrate --envoy-algorithm gcra ratelimit.yaml";

pub(crate) fn run(args: &Args) -> io::Result<ExitCode> {
    let loaded = args.source.load();
    write_problems(&mut anstream::stderr().lock(), &loaded)?;
    if loaded.policy.is_none() {
        return Ok(ExitCode::FAILURE);
    }
    let yaml = tidegate_policy::migrate::to_yaml(&loaded.config);
    match &args.output {
        None => io::stdout().write_all(yaml.as_bytes())?,
        Some(path) => std::fs::write(path, yaml)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display())))?,
    }
    Ok(ExitCode::SUCCESS)
}
