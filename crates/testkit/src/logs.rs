//! Capturing of log lines.

use std::io;
use std::sync::{Mutex, Once, PoisonError};

use tracing_subscriber::fmt;

/// Everything that the process has logged since the first capture.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// The log of this process from an instant on. It has the lines of all tests that run at the same time: a test selects its
/// own by words that no other test uses, such as a port or the name of a rule.
pub struct Captured {
    start: usize,
}

/// Starts to capture lines at the level `INFO` and above, as `LEVEL span{field="value"}: message field="value"`.
///
/// It captures those of all threads, for the rest of the process. A subscriber for one thread would miss lines: tracing
/// remembers for each place in the code whether anybody listens, and a test on another thread may be there first.
///
/// # Panics
/// If the process has another global subscriber.
pub fn capture() -> Captured {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let format = fmt().without_time().with_target(false).with_ansi(false).with_writer(|| Writer);
        tracing::subscriber::set_global_default(format.finish()).unwrap();
    });
    Captured { start: with_log(|log| log.len()) }
}

impl Captured {
    /// Returns the lines so far, without the blanks before the level.
    pub fn lines(&self) -> Vec<String> {
        let text = with_log(|log| String::from_utf8(log[self.start..].to_vec()).unwrap());
        text.lines().map(|line| line.trim_start().to_owned()).collect()
    }

    /// Returns the lines so far that contain all of these words.
    pub fn lines_with(&self, words: &[&str]) -> Vec<String> {
        let has_all = |line: &String| words.iter().all(|word| line.contains(word));
        self.lines().into_iter().filter(has_all).collect()
    }
}

fn with_log<T>(use_it: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    use_it(&mut LOG.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        with_log(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
