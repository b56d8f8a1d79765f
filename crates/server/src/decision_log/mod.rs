//! A log of decisions as JSON lines, for those who want to see what was decided and why.
//!
//! It never holds a request up: lines wait in a bounded queue for a thread that writes them, and those that find it full
//! are dropped and counted. The file is bounded too: when it is full it is set aside, over the one set aside before.
//! `line.rs` has what a line says.

mod line;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use serde::Serialize;

use crate::bounds::{DECISION_LOG_BYTES_MAX, DECISION_LOG_LOOK, DECISION_LOG_LOOKS, DECISION_LOG_QUEUE};
use crate::line_queue::{Counts, LineQueue, WaitingLines};

pub(crate) use line::{InlineAnswer, InlineCharge, InlineLimit, InlineVerdict, by_inline_limits, by_rules};

/// Who may read the file: it holds what descriptors hold, perhaps names and addresses.
const PERMISSIONS: u32 = 0o640;

/// Writes decisions to a file.
#[derive(Debug)]
pub struct DecisionLog {
    queue: Option<LineQueue>,
    writer: Option<JoinHandle<()>>,
    /// One in this many decisions is written.
    every: u64,
    seen: AtomicU64,
    counts: Arc<Counts>,
}

impl DecisionLog {
    /// Appends one in `every` decisions to the file.
    ///
    /// # Errors
    /// If the file cannot be opened, or there is no thread to write it.
    pub fn open(path: &Path, every: u64) -> io::Result<DecisionLog> {
        let file = LogFile::open(path.to_owned())?;
        let (queue, lines) = LineQueue::new(DECISION_LOG_QUEUE);
        let thread = std::thread::Builder::new().name("decision-log".to_owned());
        let writer = thread.spawn(move || write(file, lines))?;
        Ok(DecisionLog::to(queue, Some(writer), every.max(1)))
    }

    /// Lines that found the queue full, or nobody to write them any more.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.counts.dropped()
    }

    fn to(queue: LineQueue, writer: Option<JoinHandle<()>>, every: u64) -> DecisionLog {
        let counts = Arc::clone(queue.counts());
        DecisionLog { queue: Some(queue), writer, every, seen: AtomicU64::new(0), counts }
    }

    /// Writes a decision if it is its turn: only then the line is made.
    pub(crate) fn record<L: Serialize>(&self, line: impl FnOnce() -> L) {
        if !self.seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.every) {
            return;
        }
        let mut line = serde_json::to_vec(&line()).unwrap_or_default();
        line.push(b'\n');
        if let Some(queue) = &self.queue {
            queue.push(line);
        }
    }
}

impl Drop for DecisionLog {
    /// Waits until all lines are written, but not for a disk that hangs.
    fn drop(&mut self) {
        self.queue = None;
        let Some(writer) = self.writer.take() else { return };
        for _ in 0..DECISION_LOG_LOOKS {
            if writer.is_finished() {
                return;
            }
            std::thread::sleep(DECISION_LOG_LOOK);
        }
        tracing::error!("the decision log is incomplete: its last lines were not written");
    }
}

fn write(mut file: LogFile, lines: WaitingLines) {
    if let Err(error) = lines.write_to(&mut file) {
        tracing::error!(path = %file.path.display(), %error, "cannot write the decision log, it ends here");
    }
}

struct LogFile {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    /// Whether it can be set aside: a device or a pipe, as `/dev/stdout` may be one, cannot.
    is_regular: bool,
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<LogFile> {
        // A pipe would be waited for until somebody reads it, and the start with it.
        let no_waiting = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let mut options = OpenOptions::new();
        let opened = options.create(true).append(true).mode(PERMISSIONS).custom_flags(no_waiting).open(&path);
        let file = opened.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => io::Error::other("it is a pipe without a reader, or a socket"),
            _ => error,
        })?;
        // From here on waiting is right: it is the thread that writes which waits.
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        let metadata = file.metadata()?;
        let is_regular = metadata.is_file();
        let bytes = if is_regular { metadata.len() } else { 0 };
        Ok(LogFile { path, file: BufWriter::new(file), bytes, is_regular })
    }
}

impl Write for LogFile {
    /// Writes a line whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.is_regular && self.bytes.saturating_add(length) > DECISION_LOG_BYTES_MAX {
            self.file.flush()?;
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            std::fs::rename(&self.path, aside)?;
            *self = LogFile::open(std::mem::take(&mut self.path))?;
        }
        self.file.write_all(line)?;
        self.bytes = self.bytes.saturating_add(length);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Protocol;
    use tidegate_core::Time;
    use tidegate_engine::{Engine, Options};
    use tidegate_policy::{Descriptor, Entry, Request};

    /// A log whose writer never writes, as with a disk that hangs.
    fn stuck() -> (DecisionLog, WaitingLines) {
        let (queue, lines) = LineQueue::new(DECISION_LOG_QUEUE);
        (DecisionLog::to(queue, None, 1), lines)
    }

    #[test]
    fn pipes_are_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let told = LogFile::open(path.clone()).map(drop).unwrap_err().to_string();
        assert_eq!(told, "it is a pipe without a reader, or a socket");
        // One that is read can be written, and is not set aside however much goes through it.
        let mut options = OpenOptions::new();
        let reader = options.read(true).custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).unwrap()).open(&path);
        let mut file = LogFile::open(path.clone()).unwrap();
        assert!(!fcntl_getfl(file.file.get_ref()).unwrap().contains(OFlags::NONBLOCK));
        file.bytes = DECISION_LOG_BYTES_MAX;
        file.write_all(b"line\n").unwrap();
        file.flush().unwrap();
        let mut read = [0; 5];
        io::Read::read_exact(&mut reader.unwrap(), &mut read).unwrap();
        assert_eq!((&read, path.exists()), (b"line\n", true));
    }

    #[test]
    fn devices_can_be_written() {
        let mut file = LogFile::open("/dev/null".into()).unwrap();
        assert!(!file.is_regular);
        file.write_all(b"line\n").and_then(|()| file.flush()).unwrap();
    }

    #[tokio::test]
    async fn lines_that_wait_are_bounded_in_bytes() {
        let engine = Engine::new(Options::default()).unwrap();
        let long = "x".repeat(200_000);
        let entries = [Entry { key: "user", value: &long }];
        let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
        let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
        let outcome = engine.check(&request).await.unwrap();
        let (log, lines) = stuck();
        let record =
            |log: &DecisionLog| log.record(|| by_rules(Time::from_nanos(0), Protocol::Http, &request, Ok(&outcome)));
        for _ in 0..100 {
            record(&log);
        }
        let bytes = log.counts.waiting();
        assert!((1..=DECISION_LOG_QUEUE.bytes).contains(&bytes), "{bytes}");
        assert_eq!(log.dropped(), 100 - (bytes / 200_000) as u64);
        drop(lines);
        record(&log);
        assert_eq!(log.dropped(), 101 - (bytes / 200_000) as u64, "nobody writes any more");
    }
}
