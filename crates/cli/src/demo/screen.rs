//! Where the demo is shown: colour and pauses on a terminal, plain text elsewhere.

use std::env;
use std::io::{self, IsTerminal, Stdout, Write};
use std::time::Duration;

/// Standard output, with what it can do.
pub(super) struct Screen {
    output: Stdout,
    colour: bool,
    /// Whether somebody watches, so that time may pass.
    live: bool,
}

impl Screen {
    pub(super) fn stdout(fast: bool) -> Screen {
        let output = io::stdout();
        let terminal = output.is_terminal() && env::var_os("TERM").is_some_and(|name| name != "dumb");
        let colour = terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
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

    /// Goes back over the last `lines` lines, to write them anew.
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
