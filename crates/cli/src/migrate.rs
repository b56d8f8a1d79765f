//! `tidegate migrate`: files of envoyproxy/ratelimit as a file of Tidegate's own.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::check::Source;

/// Write what files of envoyproxy/ratelimit say as a configuration of Tidegate's own
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Write there instead of to stdout
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXAMPLES: &str =
    "Files of Tidegate's own may be among them: all become one. Rules keep their names, so a server that runs keeps
their counts. If anything is wrong, it is told and nothing is written.

Examples:
  tidegate migrate /etc/ratelimit/config
  tidegate migrate ratelimit.yaml --output rules.yaml
  tidegate migrate --envoy-algorithm gcra ratelimit.yaml";

pub(crate) fn run(args: &Args) -> io::Result<ExitCode> {
    let loaded = args.source.load();
    let mut complaints = io::stderr().lock();
    for diagnostic in &loaded.diagnostics {
        writeln!(complaints, "{diagnostic}")?;
    }
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
