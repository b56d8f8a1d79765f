//! `tidegate completions`: a completion script for a shell.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

/// Print a shell completion script
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Shell to generate the script for
    shell: Shell,
}

const EXAMPLES: &str = "Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish
  tidegate completions zsh > \"${fpath[1]}/_tidegate\"";

pub(crate) fn run(args: &Args) -> io::Result<()> {
    // The generator panics if a write fails; a write to memory does not.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "tidegate", &mut script);
    io::stdout().write_all(&script)
}
