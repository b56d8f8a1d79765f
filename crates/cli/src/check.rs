//! `tidegate check`: every problem of a configuration, each with its place.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate::Algorithm;
use tidegate_policy::{LoadOptions, Loaded, Outside, Severity};

/// Check a configuration and tell every problem, with its place and what would do
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
}

/// Which files are read, and how.
#[derive(clap::Args)]
pub(crate) struct Source {
    /// Files or directories with rules, of Tidegate or of envoyproxy/ratelimit
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The algorithm of limits in files of envoyproxy/ratelimit that name none
    #[arg(long, value_name = "NAME", default_value_t = Algorithm::FixedWindow)]
    envoy_algorithm: Algorithm,
    /// Let a domain stand in several files
    #[arg(long)]
    merge_domains: bool,
}

const EXAMPLES: &str = "Of a directory, the files that end in .yaml or .yml are read, in the order of their names.
The exit code is 0 if there is no error, else 1; warnings do not change it.

Examples:
  tidegate check rules.yaml
  tidegate check /etc/ratelimit/config
  tidegate check --merge-domains defaults.yaml tenants/";

impl Source {
    pub(crate) fn load(&self) -> Loaded {
        let options = LoadOptions {
            merge_domains: self.merge_domains,
            envoy_algorithm: self.envoy_algorithm,
            // What serve will be told is not known here.
            outside: Outside { check_store: Some(tidegate_engine::check_store_url), ..Outside::default() },
        };
        tidegate_policy::load(&self.paths, &options)
    }
}

pub(crate) fn run(args: &Args) -> io::Result<ExitCode> {
    let loaded = args.source.load();
    let mut out = io::stdout().lock();
    for diagnostic in &loaded.diagnostics {
        writeln!(out, "{diagnostic}")?;
    }
    writeln!(out, "{}", summary(&loaded))?;
    Ok(if loaded.policy.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn summary(loaded: &Loaded) -> String {
    let severity = |severity| loaded.diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count();
    format!(
        "{}, {}, {}: {}, {}",
        count(loaded.files.len(), "file"),
        count(loaded.config.domains.len(), "domain"),
        count(loaded.rules, "rule"),
        count(severity(Severity::Error), "error"),
        count(severity(Severity::Warning), "warning"),
    )
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
