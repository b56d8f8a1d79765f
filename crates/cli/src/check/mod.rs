//! `tidegate check`: every problem of a configuration, with its location and a fix.

mod report;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anstream::AutoStream;
use clap::{ColorChoice, ValueEnum};
use tidegate::Algorithm;
use tidegate_policy::{LoadOptions, Loaded, Outside};

use report::Totals;
pub(crate) use report::write_problems;

/// Check a configuration and report every problem with its location and a fix
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Treat warnings as errors: exit with code 1 if there are any
    #[arg(long)]
    strict: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// When to use colours in text
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

/// The files to read, and how to read them.
#[derive(clap::Args)]
pub(crate) struct Source {
    /// Files or directories with rules, in the format of Tidegate or of envoyproxy/ratelimit
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Algorithm for limits in files of envoyproxy/ratelimit that name none
    #[arg(long, value_name = "NAME", default_value_t = Algorithm::FixedWindow)]
    envoy_algorithm: Algorithm,
    /// Allow several files to define rules of the same domain
    #[arg(long)]
    merge_domains: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

const EXAMPLES: &str = r#"In directories, files whose names end in .yaml or .yml are read, in the order of their names.

With --format json, the output is one JSON object:
  files        paths of the files that were read
  skipped      paths of the files in directories that were not read
  domains      number of domains
  rules        number of rules
  errors       number of errors
  warnings     number of warnings
  diagnostics  list of problems, each with severity ("error" or "warning"), file, line, column, message
               and hint; line and column are missing if the problem concerns the whole file

Colours are used in terminals only, unless NO_COLOR is set. --color overrides this.

Exit codes:
  0  no errors (and no warnings, with --strict)
  1  errors (or warnings, with --strict)
  2  invalid arguments

Examples:
  tidegate check rules.yaml
  tidegate check --strict /etc/ratelimit/config
  tidegate check --merge-domains defaults.yaml tenants/
  tidegate check --format json rules.yaml"#;

impl Source {
    pub(crate) fn load(&self) -> Loaded {
        let options = LoadOptions {
            merge_domains: self.merge_domains,
            envoy_algorithm: self.envoy_algorithm,
            // The flags of `serve` are not known here.
            outside: Outside { check_store: Some(tidegate_engine::check_store_url), ..Outside::default() },
        };
        tidegate_policy::load(&self.paths, &options)
    }
}

pub(crate) fn run(args: &Args) -> io::Result<ExitCode> {
    let loaded = args.source.load();
    let mut stdout = io::stdout().lock();
    let written = match args.format {
        Format::Text => report::write_text(&mut AutoStream::new(stdout, stream_colors(args.color)), &loaded),
        Format::Json => stdout.write_all(report::json(&loaded)?.as_bytes()),
    };
    // Errors are errors, however few of them the reader of a pipe takes.
    written.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })?;
    let failed = loaded.policy.is_none() || args.strict && Totals::of(&loaded).warnings > 0;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The choice in the terms of the stream.
fn stream_colors(choice: ColorChoice) -> anstream::ColorChoice {
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
}
