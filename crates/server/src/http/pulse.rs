//! Which connections are silent for too long.
//!
//! hyper's own timer is made anew for each head and cannot tell a connection that waits for its next request from one
//! that dawdles over half a head. Here a connection is looked at every few seconds, whatever the number of its requests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::bounds::{HTTP_IDLE, HTTP_WATCH, STALL};

/// What a connection did.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    answers: AtomicU64,
    /// Whether anything was read since the last answer: then a request is under way.
    heard: AtomicBool,
}

impl Pulse {
    /// A request was answered.
    pub(super) fn answered(&self) {
        // Only the connection's own task counts, so that no two can be lost to each other.
        self.answers.store(self.answers.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.heard.store(false, Ordering::Relaxed);
    }
}

/// How long a connection has been without an answer.
#[derive(Debug, Default)]
pub(super) struct Silence {
    answers: u64,
    length: Duration,
}

/// What becomes of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    /// It waits for a request that does not come.
    Finish,
    /// It is in the middle of something, or did not finish when told to.
    Drop,
}

impl Silence {
    /// Looks at a connection, each time [`HTTP_WATCH`] after the last.
    pub(super) fn look(&mut self, pulse: &Pulse) -> Next {
        let answers = pulse.answers.load(Ordering::Relaxed);
        if answers != self.answers {
            *self = Silence { answers, length: Duration::ZERO };
            return Next::Wait;
        }
        self.length += HTTP_WATCH;
        let is_waiting = answers > 0 && !pulse.heard.load(Ordering::Relaxed);
        match (is_waiting, self.length) {
            (true, length) if length > HTTP_IDLE => Next::Drop,
            (true, HTTP_IDLE) => Next::Finish,
            (false, length) if length >= STALL => Next::Drop,
            _ => Next::Wait,
        }
    }
}

/// A stream whose pulse is felt.
#[derive(Debug)]
pub(super) struct Io {
    stream: TokioIo<TcpStream>,
    pulse: Arc<Pulse>,
}

impl Io {
    pub(super) fn new(stream: TcpStream, pulse: Arc<Pulse>) -> Io {
        Io { stream: TokioIo::new(stream), pulse }
    }
}

impl Read for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() {
            self.pulse.heard.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until something else than waiting comes out, and tells after how long.
    fn end(pulse: &Pulse) -> (Duration, Next) {
        let mut silence = Silence::default();
        silence.look(pulse);
        let mut length = if silence.length.is_zero() { Duration::ZERO } else { HTTP_WATCH };
        loop {
            length += HTTP_WATCH;
            match silence.look(pulse) {
                Next::Wait => {}
                next => return (length, next),
            }
        }
    }

    #[test]
    fn silence_ends_a_connection() {
        let pulse = Pulse::default();
        assert_eq!(end(&pulse), (STALL, Next::Drop), "nothing was asked yet");
        pulse.heard.store(true, Ordering::Relaxed);
        assert_eq!(end(&pulse), (STALL, Next::Drop), "half a request");
        pulse.answered();
        assert_eq!(end(&pulse), (HTTP_IDLE, Next::Finish), "between requests");
        pulse.heard.store(true, Ordering::Relaxed);
        assert_eq!(end(&pulse), (STALL, Next::Drop), "half a further request");
    }

    #[test]
    fn answers_keep_a_connection() {
        let (pulse, mut silence) = (Pulse::default(), Silence::default());
        for _ in 0..100 {
            pulse.answered();
            assert_eq!(silence.look(&pulse), Next::Wait);
        }
    }
}
