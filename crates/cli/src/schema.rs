//! `tidegate schema`: the JSON Schema of the configuration, and its reference.

use std::io::{self, Write};
use std::process::ExitCode;

use tidegate_policy::json_schema::{json_schema, reference_markdown};

/// Print the JSON Schema of the configuration
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print the reference as Markdown instead
    #[arg(long)]
    markdown: bool,
}

const EXAMPLES: &str = "Editors that support JSON Schema check and complete a file that starts with
  # yaml-language-server: $schema=tidegate.schema.json

Examples:
  tidegate schema > tidegate.schema.json
  tidegate schema --markdown > config-reference.md";

pub(crate) fn run(args: &Args) -> io::Result<ExitCode> {
    let page = if args.markdown { reference_markdown() } else { format!("{:#}\n", json_schema()) };
    io::stdout().write_all(page.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
