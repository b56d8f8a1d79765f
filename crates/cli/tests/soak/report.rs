//! The progress of a run, and the table of results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ::tidegate::{Clock, Time};

/// A test that reports its progress and results. It panics if a result is out of bounds.
pub(crate) type Run = fn(&mut Progress);

/// A stopwatch.
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

/// The progress and the results of one run.
pub(crate) struct Progress {
    name: &'static str,
    watch: Watch,
    figures: Vec<[String; 3]>,
}

impl Progress {
    /// Prints what the run does now.
    pub(crate) fn log(&self, what: &str) {
        println!("[{:>5.1} s] {}: {what}", self.watch.elapsed().as_secs_f64(), self.name);
    }

    /// Prints a result and keeps it for the table, with its bound.
    pub(crate) fn figure(&mut self, what: &str, measured: impl ToString, bound: &str) {
        let figure = [what.to_owned(), measured.to_string(), bound.to_owned()];
        self.log(&format!(
            "{what}: {}{}",
            figure[1],
            if bound.is_empty() { String::new() } else { format!(" ({bound})") }
        ));
        self.figures.push(figure);
    }
}

/// The results of all runs.
pub(crate) struct Report {
    lines: Vec<[String; 4]>,
    failed: Vec<&'static str>,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report { lines: Vec::new(), failed: Vec::new() }
    }

    /// Runs a test. The other tests run even if it fails.
    pub(crate) fn run(&mut self, name: &'static str, run: Run) {
        let mut progress = Progress { name, watch: Watch::start(), figures: Vec::new() };
        let is_good = catch_unwind(AssertUnwindSafe(|| run(&mut progress))).is_ok();
        let end = if is_good { "ok" } else { "FAILED" };
        progress.log(end);
        let seconds = format!("{:.0} s", progress.watch.elapsed().as_secs_f64());
        self.lines.push([name.to_owned(), end.to_owned(), seconds, String::new()]);
        self.lines
            .extend(progress.figures.into_iter().map(|[what, measured, bound]| [String::new(), what, measured, bound]));
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
