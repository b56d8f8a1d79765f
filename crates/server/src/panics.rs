//! Panics as lines of the log: what panics is a defect that a client may be able to repeat with each request.

use std::panic::{PanicHookInfo, set_hook};

use tidegate_core::Clock;
use tidegate_engine::LogLimiter;

use crate::bounds::{PANIC_CHARS_MAX, REFUSAL_LINES};

/// Logs panics of this process from now on, a few a second and each in one line without its backtrace.
pub(crate) fn log_panics() {
    let lines = LogLimiter::new(REFUSAL_LINES, Clock::system());
    set_hook(Box::new(move |panic| {
        if let Some(unlogged) = lines.turn() {
            log(panic, unlogged);
        }
    }));
}

fn log(panic: &PanicHookInfo<'_>, unlogged: u64) {
    let reason: String = panic.payload_as_str().unwrap_or_default().chars().take(PANIC_CHARS_MAX).collect();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or_default();
    let at = panic.location().map(tracing::field::display);
    tracing::error!(target: "tidegate::panic", at, thread, reason, unlogged, "panic: please report this bug");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{catch_unwind, take_hook};
    use tidegate_testkit::logs::capture;

    #[test]
    fn panics_are_logged_in_one_line_each_and_few_of_them() {
        let captured = capture();
        let before = take_hook();
        log_panics();
        let start = Clock::system().now();
        for number in 0..100 {
            let panicked = catch_unwind(|| panic!("what a client sent:\n{number} {}", "x".repeat(10_000)));
            assert!(panicked.is_err());
        }
        let seconds = (Clock::system().now().as_nanos() - start.as_nanos()) / 1_000_000_000 + 1;
        set_hook(before);
        let lines = captured.lines_with(&["panic: please report", "what a client sent"]);
        assert!((1..=3 * (seconds + 1)).contains(&(lines.len() as u64)), "{lines:?}");
        for line in &lines {
            assert!(line.starts_with("ERROR ") && line.contains(r"sent:\n") && line.len() < 600, "{line}");
            assert!(line.contains("src/panics.rs:") && line.contains("thread="), "{line}");
        }
    }
}
