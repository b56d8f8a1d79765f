//! Lines on their way to the thread that writes them: a slow disk or a reader that hangs never holds a request up.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// How many lines may wait, and how many bytes in all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSize {
    pub(crate) lines: usize,
    pub(crate) bytes: usize,
}

/// Takes lines, and drops those that it has no room for.
#[derive(Clone, Debug)]
pub(crate) struct LineQueue {
    sender: SyncSender<Vec<u8>>,
    bytes_max: usize,
    counts: Arc<Counts>,
}

/// What is known of a queue at both its ends.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Bytes of lines that are not written yet.
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

/// The end of a queue that lines are written from.
#[derive(Debug)]
pub(crate) struct WaitingLines {
    receiver: Receiver<Vec<u8>>,
    counts: Arc<Counts>,
}

impl LineQueue {
    /// Returns both ends of an empty queue.
    pub(crate) fn new(size: QueueSize) -> (LineQueue, WaitingLines) {
        let (sender, receiver) = sync_channel(size.lines);
        let counts = Arc::new(Counts::default());
        let queue = LineQueue { sender, bytes_max: size.bytes, counts: Arc::clone(&counts) };
        (queue, WaitingLines { receiver, counts })
    }

    /// Hands over a line with its end, or drops and counts it if the queue is full or nobody writes any more.
    pub(crate) fn push(&self, line: Vec<u8>) {
        let length = line.len();
        let fits = self.counts.waiting.fetch_add(length, Relaxed).saturating_add(length) <= self.bytes_max;
        if !fits || self.sender.try_send(line).is_err() {
            self.counts.waiting.fetch_sub(length, Relaxed);
            self.counts.drop_line();
        }
    }

    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}

impl Counts {
    /// Returns how many lines were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    pub(crate) fn drop_line(&self) {
        self.dropped.fetch_add(1, Relaxed);
    }

    /// Returns the bytes of lines that are not written yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }
}

impl WaitingLines {
    /// Writes lines until nobody can send any more, and flushes whenever none waits.
    ///
    /// # Errors
    /// If writing fails; from then on all lines are dropped.
    pub(crate) fn write_to(self, sink: &mut impl Write) -> io::Result<()> {
        while let Ok(first) = self.receiver.recv() {
            self.write(sink, &first)?;
            while let Ok(line) = self.receiver.try_recv() {
                self.write(sink, &line)?;
            }
            sink.flush()?;
        }
        Ok(())
    }

    fn write(&self, sink: &mut impl Write, line: &[u8]) -> io::Result<()> {
        let written = sink.write_all(line);
        self.counts.waiting.fetch_sub(line.len(), Relaxed);
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_bounds_are_dropped_and_counted() {
        let (queue, lines) = LineQueue::new(QueueSize { lines: 3, bytes: 10 });
        for line in ["six...", "four", "no room", "", "no place"] {
            queue.push(line.into());
        }
        assert_eq!((queue.counts().dropped(), queue.counts().waiting()), (2, 10));
        let counts = Arc::clone(queue.counts());
        drop(queue);
        let mut written = Vec::new();
        lines.write_to(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "six...four");
        assert_eq!(counts.waiting(), 0);
    }

    #[test]
    fn lines_that_nobody_writes_are_dropped() {
        let (queue, lines) = LineQueue::new(QueueSize { lines: 3, bytes: 10 });
        drop(lines);
        queue.push(b"line".to_vec());
        assert_eq!((queue.counts().dropped(), queue.counts().waiting()), (1, 0));
    }
}
