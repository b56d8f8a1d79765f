//! The log on stderr, written by a thread of its own: a pipe that nobody reads holds only that thread up. Lines that do
//! not fit are dropped and counted.

use std::io::{self, Write};
use std::sync::Arc;

use tidegate_core::{Clock, DirectLimiter, Limit, Rate};
use tidegate_engine::LogLimiter;
use tracing_subscriber::fmt::MakeWriter;

use crate::bounds::{DROPPED_LINES, LOG_BYTES_A_SECOND, LOG_END_LOOK, LOG_END_LOOKS, LOG_QUEUE};
use crate::line_queue::{Counts, LineQueue};

/// Takes formatted lines, each in one call, as [`tracing_subscriber::fmt`] writes them.
#[derive(Debug)]
pub(crate) struct LogWriter {
    queue: LineQueue,
    /// Holds all lines together to some bytes a second, whatever is logged at which level and by which dependency.
    bytes: DirectLimiter,
}

/// What became of the lines that were logged.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogProgress(Arc<Counts>);

impl LogWriter {
    /// Starts the thread that writes to stderr.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub(crate) fn start() -> io::Result<LogWriter> {
        let limit = Rate::per_second(LOG_BYTES_A_SECOND).and_then(|rate| Limit::gcra(rate, LOG_BYTES_A_SECOND));
        let bytes = DirectLimiter::new(limit.map_err(io::Error::other)?).map_err(io::Error::other)?;
        let (queue, lines) = LineQueue::new(LOG_QUEUE);
        let notices = LogLimiter::new(DROPPED_LINES, Clock::system());
        let mut stderr = Stderr { counts: Arc::clone(queue.counts()), reported: 0, notices };
        std::thread::Builder::new().name("log".to_owned()).spawn(move || lines.write_to(&mut stderr))?;
        Ok(LogWriter { queue, bytes })
    }

    pub(crate) fn progress(&self) -> LogProgress {
        LogProgress(Arc::clone(self.queue.counts()))
    }
}

impl Write for &LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.bytes.check_n(length).is_allowed() {
            self.queue.push(line.to_vec());
        } else {
            self.queue.counts().drop_line();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = &'a LogWriter;

    fn make_writer(&'a self) -> &'a LogWriter {
        self
    }
}

impl LogProgress {
    /// Returns how many lines were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped()
    }

    /// Waits until all lines are written, but not for long: nobody may read them.
    pub(crate) fn finish(&self) {
        for _ in 0..LOG_END_LOOKS {
            if self.0.waiting() == 0 {
                return;
            }
            std::thread::sleep(LOG_END_LOOK);
        }
    }
}

/// Stderr, and a line about lines that were dropped once there is room for it again.
struct Stderr {
    counts: Arc<Counts>,
    /// How many dropped lines were reported.
    reported: u64,
    notices: LogLimiter,
}

impl Write for Stderr {
    /// A line that cannot be written is dropped: the disk may have room again for the next one.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if io::stderr().write_all(line).is_err() {
            self.counts.drop_line();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let dropped = self.counts.dropped();
        if dropped != self.reported && self.notices.turn().is_some() {
            let since_last = dropped.wrapping_sub(self.reported);
            self.reported = dropped;
            tracing::warn!(
                dropped = since_last,
                "log lines were dropped: stderr was not read fast enough, or there were too many"
            );
        }
        Ok(())
    }
}
