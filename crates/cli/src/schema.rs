//! `tidegate schema`: the shape of the configuration, for editors and for readers.

use std::io::{self, Write};
use std::process::ExitCode;

use tidegate_policy::json_schema::{json_schema, reference_markdown};

/// Print the JSON Schema of the configuration
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print the reference instead, as Markdown
    #[arg(long)]
    markdown: bool,
}

const EXAMPLES: &str = "Editors check and complete a file that begins with
  # yaml-language-server: $schema=tidegate.schema.json

Examples:
  tidegate schema > tidegate.schema.json
  tidegate schema --markdown > config-reference.md";

pub(crate) fn run(args: &Args) -> io::Result<ExitCode> {
    let page = if args.markdown { reference_markdown() } else { format!("{:#}\n", json_schema()) };
    io::stdout().write_all(page.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
