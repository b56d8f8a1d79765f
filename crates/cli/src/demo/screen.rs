//! The output of the demo: colours and pauses in a terminal, plain text elsewhere.

use std::env;
use std::io::{self, IsTerminal, Stdout, Write};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};

/// Standard output, and what it supports.
pub(super) struct Screen {
    output: Stdout,
    colour: bool,
    /// Whether somebody watches, so that pauses make sense.
    live: bool,
}

impl Screen {
    pub(super) fn stdout(fast: bool) -> Screen {
        let output = io::stdout();
        let terminal = output.is_terminal() && env::var_os("TERM").is_some_and(|name| name != "dumb");
        let colour = AutoStream::choice(&output) != ColorChoice::Never;
        Screen { output, colour, live: terminal && !fast }
    }

    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.output, "{text}")
    }

    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint("1", text);
        writeln!(self.output, "\n{text}")
    }

    /// Moves the cursor up by `lines` lines, to overwrite them.
    pub(super) fn go_back(&mut self, lines: usize) -> io::Result<()> {
        write!(self.output, "\x1b[{lines}A")
    }

    pub(super) fn pause(&mut self, length: Duration) -> io::Result<()> {
        self.output.flush()?;
        if self.live {
            std::thread::sleep(length);
        }
        Ok(())
    }

    pub(super) fn green(&self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(super) fn red(&self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(super) fn faint(&self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(&self, style: &str, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
