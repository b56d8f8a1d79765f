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

use crate::bounds::{HTTP_IDLE, HTTP_WATCH, PAGE_READ, STALL};
use crate::seats::Activity;
use crate::stream::Stream;

/// What a connection did.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    answers: AtomicU64,
    /// Shows the listener that it is in use.
    activity: Activity,
    /// Whether anything was read since the last answer: then a request is under way.
    heard: AtomicBool,
    /// Whether a request was read that is not answered yet.
    is_answering: AtomicBool,
    /// Whether bytes wait that it does not take: for how long they may, `write_stall.rs` knows.
    blocked: AtomicBool,
    /// Pages that were given to it, and those that it has taken whole.
    pages: AtomicU64,
    pages_taken: AtomicU64,
}

impl Pulse {
    pub(super) fn new(activity: Activity) -> Pulse {
        Pulse { activity, ..Pulse::default() }
    }

    /// A request was read, but perhaps for its body.
    pub(super) fn asked(&self) {
        self.is_answering.store(true, Ordering::Relaxed);
    }

    /// A request was answered.
    pub(super) fn answered(&self) {
        self.activity.note();
        // Only the connection's own task counts, so that no two can be lost to each other.
        self.answers.store(self.answers.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.heard.store(false, Ordering::Relaxed);
        self.is_answering.store(false, Ordering::Relaxed);
    }

    /// Whether a request is under way, as far as can be known from what was read.
    pub(super) fn is_busy(&self) -> bool {
        self.heard.load(Ordering::Relaxed) || self.is_answering.load(Ordering::Relaxed)
    }

    /// Notes whether it takes what is written. While it does, this only reads.
    fn wrote(&self, is_blocked: bool) {
        if self.is_blocked() != is_blocked {
            self.blocked.store(is_blocked, Ordering::Relaxed);
        }
    }

    fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// It is given a page, and has it until the guard is dropped.
    pub(super) fn reading(self: &Arc<Pulse>) -> Reading {
        self.pages.fetch_add(1, Ordering::Relaxed);
        Reading(Arc::clone(self))
    }
}

/// A page that a connection has not taken whole yet.
#[derive(Debug)]
pub(super) struct Reading(Arc<Pulse>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.pages_taken.fetch_add(1, Ordering::Relaxed);
    }
}

/// How long a connection has been as it is.
#[derive(Debug, Default)]
pub(super) struct Silence {
    answers: u64,
    is_waiting: bool,
    length: Duration,
    /// Pages that it had taken when it was given another, and how long ago that was.
    pages_taken: u64,
    page_length: Duration,
}

/// What becomes of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    /// It seems to wait for a request. If the beginning of one was read with the request before, it is in the middle of
    /// something all the same.
    Examine,
    /// It waits for a request that does not come.
    Finish,
    /// It is in the middle of something, or did not finish when told to.
    Drop,
}

impl Silence {
    /// Looks at a connection, each time [`HTTP_WATCH`] after the last.
    pub(super) fn look(&mut self, pulse: &Pulse) -> Next {
        if self.dawdles_over_a_page(pulse) {
            return Next::Drop;
        }
        // Who has just connected has a request to make.
        let answers = pulse.answers.load(Ordering::Relaxed);
        let is_waiting = answers > 0 && !pulse.is_busy();
        // Who does not take an answer yet is in the middle of it, however little was read since.
        if pulse.is_blocked() || (answers, is_waiting) != (self.answers, self.is_waiting) {
            (self.answers, self.is_waiting, self.length) = (answers, is_waiting, Duration::ZERO);
            return Next::Wait;
        }
        self.length += HTTP_WATCH;
        match is_waiting {
            true if self.length >= HTTP_IDLE + HTTP_WATCH => Next::Drop,
            true if self.length >= HTTP_IDLE => Next::Finish,
            // Once, as soon as it has been quiet for so long.
            true if self.length >= STALL && self.length < STALL + HTTP_WATCH => Next::Examine,
            // A body that does not come is complained of after exactly so long, and that must get through.
            false if self.length > STALL => Next::Drop,
            _ => Next::Wait,
        }
    }

    /// Whether it has had the same page for too long, however many bytes of it were read now and then.
    fn dawdles_over_a_page(&mut self, pulse: &Pulse) -> bool {
        let taken = pulse.pages_taken.load(Ordering::Relaxed);
        if taken != self.pages_taken || taken == pulse.pages.load(Ordering::Relaxed) {
            (self.pages_taken, self.page_length) = (taken, Duration::ZERO);
            return false;
        }
        self.page_length += HTTP_WATCH;
        self.page_length > PAGE_READ
    }
}

/// A stream that records when it was read from, and whether what is written to it waits.
#[derive(Debug)]
pub(super) struct Io {
    stream: TokioIo<Stream>,
    pulse: Arc<Pulse>,
}

impl Io {
    pub(super) fn new(stream: Stream, pulse: Arc<Pulse>) -> Io {
        Io { stream: TokioIo::new(stream), pulse }
    }

    pub(super) fn into_stream(self) -> Stream {
        self.stream.into_inner()
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
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.pulse.wrote(polled.is_pending());
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Encrypted bytes may wait though all that was to be written was taken.
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.pulse.wrote(polled.is_pending());
        polled
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
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.pulse.wrote(polled.is_pending());
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until something else than waiting comes out, and tells after how long.
    fn next(silence: &mut Silence, pulse: &Pulse) -> (Duration, Next) {
        let mut length = Duration::ZERO;
        loop {
            length += HTTP_WATCH;
            match silence.look(pulse) {
                Next::Wait => {}
                next => return (length, next),
            }
        }
    }

    /// Looks until the connection has to end. No beginning of a request is found in it.
    fn end(silence: &mut Silence, pulse: &Pulse) -> (Duration, Next) {
        match next(silence, pulse) {
            (length, Next::Examine) => {
                let (more, next) = next(silence, pulse);
                (length + more, next)
            }
            ended => ended,
        }
    }

    fn hear(pulse: &Pulse) {
        pulse.heard.store(true, Ordering::Relaxed);
    }

    #[test]
    fn silence_ends_a_connection() {
        let in_time = |(length, next): (Duration, Next)| {
            assert_eq!(next, Next::Drop);
            assert!(length > STALL && length < STALL + Duration::from_secs(5), "{length:?}");
        };
        let pulse = Pulse::default();
        in_time(end(&mut Silence::default(), &pulse));
        hear(&pulse);
        in_time(end(&mut Silence::default(), &pulse));
        pulse.answered();
        let mut silence = Silence::default();
        let (length, next) = end(&mut silence, &pulse);
        assert_eq!(next, Next::Finish, "between requests");
        assert!(length >= HTTP_IDLE && length <= HTTP_IDLE + 2 * HTTP_WATCH, "{length:?}");
        assert_eq!(silence.look(&pulse), Next::Drop, "it did not finish when told to");
    }

    #[test]
    fn what_was_read_with_the_last_request_is_looked_at_once() {
        let (pulse, mut silence) = (Pulse::default(), Silence::default());
        pulse.answered();
        for _ in 0..3 {
            let (length, next_is) = next(&mut silence, &pulse);
            assert_eq!(next_is, Next::Examine);
            assert!(length >= STALL && length < STALL + Duration::from_secs(5), "{length:?}");
            let (length, next_is) = next(&mut silence, &pulse);
            assert_eq!(next_is, Next::Finish);
            assert!(length > HTTP_IDLE - STALL - 2 * HTTP_WATCH, "{length:?}");
            pulse.answered();
        }
    }

    #[test]
    fn a_request_whose_answer_takes_long_is_no_pause() {
        let (pulse, mut silence) = (Pulse::default(), Silence::default());
        pulse.answered();
        pulse.asked();
        assert_eq!(next(&mut silence, &pulse).1, Next::Drop);
    }

    #[test]
    fn an_answer_that_waits_to_be_taken_is_no_silence() {
        let (pulse, mut silence) = (Pulse::default(), Silence::default());
        hear(&pulse);
        pulse.wrote(true);
        for _ in 0..100 {
            assert_eq!(silence.look(&pulse), Next::Wait, "`write_stall.rs` bounds how long that takes");
        }
        pulse.wrote(false);
        let (length, next) = end(&mut silence, &pulse);
        assert!(next == Next::Drop && length > STALL && length < STALL + Duration::from_secs(5), "{length:?}");
        pulse.answered();
        assert_eq!(end(&mut silence, &pulse).1, Next::Finish, "taken, it waits for the next request");
    }

    #[test]
    fn a_page_has_to_be_taken_in_time() {
        let (pulse, mut silence) = (Arc::new(Pulse::default()), Silence::default());
        for _ in 0..20 {
            // One after the other, each in time.
            let page = pulse.reading();
            pulse.answered();
            assert_eq!(silence.look(&pulse), Next::Wait);
            drop(page);
        }
        let page = pulse.reading();
        pulse.answered();
        let (length, next) = end(&mut silence, &pulse);
        assert_eq!(next, Next::Drop);
        assert!(length > PAGE_READ && length <= PAGE_READ + 2 * HTTP_WATCH, "{length:?}");
        drop(page);
        assert_eq!(end(&mut silence, &pulse).1, Next::Finish, "taken, it waits for the next request");
    }

    #[test]
    fn a_request_after_a_long_wait_has_all_its_time() {
        let (pulse, mut silence) = (Pulse::default(), Silence::default());
        pulse.answered();
        for _ in 0..20 {
            assert!([Next::Wait, Next::Examine].contains(&silence.look(&pulse)));
        }
        hear(&pulse);
        let (length, next) = end(&mut silence, &pulse);
        assert!(next == Next::Drop && length > STALL, "{length:?}");
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
