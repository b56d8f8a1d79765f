//! How a run tells what it does, and the table of what was measured.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ::tidegate::{Clock, Time};

/// Does something heavy and tells what it measured. It panics if that is not as it should be.
pub(crate) type Run = fn(&mut Told);

/// Time since it was made.
pub(crate) struct Watch {
    clock: Clock,
    start: Time,
}

impl Watch {
    pub(crate) fn start() -> Watch {
        let clock = Clock::system();
        let start = clock.now();
        Watch { clock, start }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.clock.now().as_nanos().saturating_sub(self.start.as_nanos()))
    }
}

/// What one run tells.
pub(crate) struct Told {
    name: &'static str,
    watch: Watch,
    figures: Vec<[String; 3]>,
}

impl Told {
    /// Says what goes on.
    pub(crate) fn say(&self, what: &str) {
        println!("[{:>5.1} s] {}: {what}", self.watch.elapsed().as_secs_f64(), self.name);
    }

    /// Keeps a figure for the table, with what it should be.
    pub(crate) fn figure(&mut self, what: &str, measured: impl ToString, bound: &str) {
        let figure = [what.to_owned(), measured.to_string(), bound.to_owned()];
        self.say(&format!(
            "{what}: {}{}",
            figure[1],
            if bound.is_empty() { String::new() } else { format!(" ({bound})") }
        ));
        self.figures.push(figure);
    }
}

/// What all runs told.
pub(crate) struct Report {
    lines: Vec<[String; 4]>,
    failed: Vec<&'static str>,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report { lines: Vec::new(), failed: Vec::new() }
    }

    /// Runs it; should it fail, the others are run all the same.
    pub(crate) fn run(&mut self, name: &'static str, run: Run) {
        let mut told = Told { name, watch: Watch::start(), figures: Vec::new() };
        let is_good = catch_unwind(AssertUnwindSafe(|| run(&mut told))).is_ok();
        let end = if is_good { "well" } else { "FAILED" };
        told.say(end);
        let seconds = format!("{:.0} s", told.watch.elapsed().as_secs_f64());
        self.lines.push([name.to_owned(), end.to_owned(), seconds, String::new()]);
        self.lines
            .extend(told.figures.into_iter().map(|[what, measured, bound]| [String::new(), what, measured, bound]));
        if !is_good {
            self.failed.push(name);
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.failed.is_empty()
    }

    pub(crate) fn print(&self) {
        let widths = [0, 1, 2, 3].map(|column| {
            let width = |line: &[String; 4]| line[column].chars().count();
            self.lines.iter().map(width).max().unwrap_or(0)
        });
        println!();
        for line in &self.lines {
            let cells: Vec<_> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            println!("{}", cells.join("  ").trim_end());
        }
        if !self.is_good() {
            println!("\nfailed: {}", self.failed.join(", "));
        }
    }
}
