//! A log of decisions as JSON lines, for those who want to see what was decided and why.
//!
//! It never holds a request up: lines wait in a bounded queue for a thread that writes them, and those that find it full
//! are dropped and counted. The file is bounded too: when it is full it is set aside, over the one set aside before.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use serde::Serialize;
use tidegate_core::{Retry, Time};
use tidegate_engine::{Denial, Outcome};
use tidegate_policy::{Mode, Request};

use crate::bounds::{DECISION_LOG_BYTES_MAX, DECISION_LOG_QUEUE};
use crate::service::Protocol;

/// Writes decisions to a file.
#[derive(Debug)]
pub struct DecisionLog {
    queue: Option<SyncSender<Vec<u8>>>,
    writer: Option<JoinHandle<()>>,
    /// One in this many decisions is written.
    every: u64,
    seen: AtomicU64,
    dropped: AtomicU64,
}

/// One line.
#[derive(Serialize)]
struct Line<'a> {
    at_ns: u64,
    protocol: &'static str,
    domain: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    denial: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ns: Option<u64>,
    descriptors: Vec<Vec<(&'a str, &'a str)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    rules: Vec<RuleLine<'a>>,
}

/// What one limit of one rule said.
#[derive(Serialize)]
struct RuleLine<'a> {
    descriptor: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'a str>,
    allowed: bool,
    enforced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
}

impl DecisionLog {
    /// Appends one in `every` decisions to the file.
    ///
    /// # Errors
    /// If the file cannot be opened, or there is no thread to write it.
    pub fn open(path: &Path, every: u64) -> io::Result<DecisionLog> {
        let file = LogFile::open(path.to_owned())?;
        let (queue, lines) = sync_channel(DECISION_LOG_QUEUE);
        let writer = std::thread::Builder::new().name("decision-log".to_owned()).spawn(move || write(file, &lines))?;
        Ok(DecisionLog {
            queue: Some(queue),
            writer: Some(writer),
            every: every.max(1),
            seen: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    /// Lines that found the queue full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes a decision, if it is its turn.
    pub(crate) fn record(&self, now: Time, protocol: Protocol, request: &Request<'_>, outcome: &Outcome) {
        if !self.seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.every) {
            return;
        }
        let mut line = serde_json::to_vec(&line(now, protocol, request, outcome)).unwrap_or_default();
        line.push(b'\n');
        let sent = self.queue.as_ref().map(|queue| queue.try_send(line));
        if let Some(Err(TrySendError::Full(_))) = sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for DecisionLog {
    /// Waits until all lines are written.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn line<'a>(now: Time, protocol: Protocol, request: &'a Request<'_>, outcome: &'a Outcome) -> Line<'a> {
    let entries = |descriptor: &tidegate_policy::Descriptor<'a>| {
        descriptor.entries.iter().map(|entry| (entry.key, entry.value)).collect()
    };
    Line {
        at_ns: now.as_nanos(),
        protocol: protocol.name(),
        domain: request.domain,
        allowed: outcome.is_allowed(),
        denial: outcome.denial().map(denial_name),
        retry_after_ns: outcome.retry().and_then(|retry| match retry {
            Retry::After(wait) | Retry::Unknown(wait) => u64::try_from(wait.as_nanos()).ok(),
            Retry::Never => None,
        }),
        descriptors: request.descriptors.iter().map(entries).collect(),
        address: request.http.and_then(|http| http.address).map(|address| address.to_string()),
        rules: outcome
            .judgements()
            .map(|judgement| RuleLine {
                descriptor: judgement.descriptor,
                rule: judgement.rule.map(|rule| &*rule.name),
                limit: judgement.limit.map(|limit| &*limit.name),
                allowed: judgement.answer.is_allowed(),
                enforced: judgement.veto && judgement.mode == Mode::Enforce,
                remaining: judgement.answer.decision().map(|decision| decision.remaining()),
            })
            .collect(),
    }
}

fn denial_name(denial: Denial) -> &'static str {
    match denial {
        Denial::StoreFailure => "store_failure",
        Denial::OverLimit => "over_limit",
        Denial::Penalty => "penalty",
        Denial::Blocked => "blocked",
    }
}

/// Writes lines until nobody can send any more; flushes whenever there is none waiting.
fn write(mut file: LogFile, lines: &Receiver<Vec<u8>>) {
    while let Ok(first) = lines.recv() {
        let mut written = file.write(&first);
        while let (Ok(()), Ok(line)) = (&written, lines.try_recv()) {
            written = file.write(&line);
        }
        if let Err(error) = written.and_then(|()| file.flush()) {
            tracing::error!(path = %file.path.display(), %error, "the decision log cannot be written; it ends here");
            return;
        }
    }
}

struct LogFile {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<LogFile> {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(LogFile { path, file: BufWriter::new(file), bytes })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.bytes.saturating_add(length) > DECISION_LOG_BYTES_MAX {
            self.file.flush()?;
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            std::fs::rename(&self.path, aside)?;
            *self = LogFile::open(std::mem::take(&mut self.path))?;
        }
        self.file.write_all(line)?;
        self.bytes = self.bytes.saturating_add(length);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
