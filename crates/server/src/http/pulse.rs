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

use crate::bounds::{HTTP_IDLE, HTTP_WATCH, PAGE_READ, STALL};

/// What a connection did.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    answers: AtomicU64,
    /// Whether anything was read since the last answer: then a request is under way.
    heard: AtomicBool,
    /// Whether bytes wait that it does not take, and how often it took some that had waited.
    blocked: AtomicBool,
    took: AtomicU64,
    /// Pages that were given to it, and those that it has taken whole.
    pages: AtomicU64,
    pages_taken: AtomicU64,
}

impl Pulse {
    /// A request was answered.
    pub(super) fn answered(&self) {
        // Only the connection's own task counts, so that no two can be lost to each other.
        self.answers.store(self.answers.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.heard.store(false, Ordering::Relaxed);
    }

    /// Notes what became of writing to it. While it takes what is written, this only reads.
    fn wrote(&self, is_blocked: bool) {
        if self.is_blocked() != is_blocked {
            self.blocked.store(is_blocked, Ordering::Relaxed);
            self.took.fetch_add(u64::from(!is_blocked), Ordering::Relaxed);
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
    took: u64,
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
        let (answers, took) = (pulse.answers.load(Ordering::Relaxed), pulse.took.load(Ordering::Relaxed));
        // Who has just connected has a request to make. Who does not take an answer is in the middle of it, however little was
        // read since.
        let is_at_it = pulse.heard.load(Ordering::Relaxed) || pulse.is_blocked();
        let is_waiting = answers > 0 && !is_at_it;
        if (answers, took, is_waiting) != (self.answers, self.took, self.is_waiting) {
            (self.answers, self.took, self.is_waiting, self.length) = (answers, took, is_waiting, Duration::ZERO);
            return Next::Wait;
        }
        self.length += HTTP_WATCH;
        match is_waiting {
            true if self.length >= HTTP_IDLE + HTTP_WATCH => Next::Drop,
            true if self.length >= HTTP_IDLE => Next::Finish,
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

/// A stream whose pulse is felt.
#[derive(Debug)]
pub(super) struct Io {
    stream: TokioIo<TcpStream>,
    pulse: Arc<Pulse>,
    /// Whether what was written last went to the system unasked: then there may be room for more.
    had_room: bool,
}

impl Io {
    pub(super) fn new(stream: TcpStream, pulse: Arc<Pulse>) -> Io {
        Io { stream: TokioIo::new(stream), pulse, had_room: false }
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }

    /// Notes what became of writing. The system says that there is room only once a third of all is free, for which who
    /// reads slowly may need longer than anybody has to read nothing. So what is still blocked when it is looked at again,
    /// as each connection is from time to time, is offered to the system unasked, and more of it until there is no room: an
    /// answer at a time would be a sign of life for as long as the room lasts, though nobody reads.
    fn wrote(&mut self, polled: Poll<io::Result<usize>>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = match polled {
            Poll::Pending if self.had_room || self.pulse.is_blocked() => {
                let offered = offer(self.stream.inner(), bytes);
                self.had_room = offered.is_ready();
                offered
            }
            polled => {
                self.had_room = false;
                polled
            }
        };
        self.pulse.wrote(polled.is_pending());
        polled
    }
}

/// Writes what there is room for. If there is none, whoever waits for that goes on waiting.
#[cold]
fn offer(stream: &TcpStream, bytes: &[u8]) -> Poll<io::Result<usize>> {
    use rustix::io::Errno;
    use rustix::net::{SendFlags, send};

    // Where sockets are told once and for all to send no signals, there is no flag for it.
    #[cfg(target_vendor = "apple")]
    let flags = SendFlags::DONTWAIT;
    #[cfg(not(target_vendor = "apple"))]
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match send(stream, bytes, flags) {
        Err(Errno::AGAIN | Errno::INTR) => Poll::Pending,
        sent => Poll::Ready(sent.map_err(io::Error::from)),
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
        self.wrote(polled, buf)
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
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(polled, bufs.iter().find(|buf| !buf.is_empty()).map_or(&[], |buf| buf))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::SEND_BYTES;
    use crate::http::tests::narrow;

    /// Looks until something else than waiting comes out, and tells after how long.
    fn end(silence: &mut Silence, pulse: &Pulse) -> (Duration, Next) {
        let mut length = Duration::ZERO;
        loop {
            length += HTTP_WATCH;
            match silence.look(pulse) {
                Next::Wait => {}
                next => return (length, next),
            }
        }
    }

    /// Writes small pieces until there is no room, and tells how many there was room for.
    fn fill(io: &mut Io) -> usize {
        let mut context = Context::from_waker(std::task::Waker::noop());
        std::iter::from_fn(|| Pin::new(&mut *io).poll_write(&mut context, &[0; 100]).is_ready().then_some(())).count()
    }

    #[tokio::test]
    async fn one_look_fills_all_the_room_that_there_is() {
        let (mut client, stream, _) = narrow(SEND_BYTES);
        stream.writable().await.unwrap();
        let mut io = Io::new(stream, Arc::default());
        // Until all has moved that moves though nobody reads.
        while fill(&mut io) > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for _ in 0..1_000 {
            // There may be nothing to read yet.
            let _ = io::Read::read(&mut client, &mut [0; 1024]);
            tokio::time::sleep(Duration::from_millis(1)).await;
            match fill(&mut io) {
                0 => {}
                filled => return assert!(filled > 1, "there is room for more"),
            }
        }
        panic!("there is no room, whatever is read");
    }

    #[tokio::test]
    async fn what_the_system_has_no_room_for_is_written_later() {
        let (mut client, stream, _) = narrow(SEND_BYTES);
        let mut io = Io::new(stream, Arc::default());
        // It repeats itself after a prime number of bytes, so that what is left out shows.
        let all: Vec<u8> = (0..1_000_003_u32).map(|number| (number % 251) as u8).collect();
        let (mut written, mut read) = (0, Vec::new());
        let mut context = Context::from_waker(std::task::Waker::noop());
        // Each time something is read, or a millisecond passes.
        for _ in 0..10_000 {
            if read.len() == all.len() {
                break;
            }
            while let Poll::Ready(count) = Pin::new(&mut io).poll_write(&mut context, &all[written..])
                && written < all.len()
            {
                written += count.unwrap();
            }
            let mut piece = [0; 4096];
            match io::Read::read(&mut client, &mut piece) {
                Ok(count) => read.extend_from_slice(&piece[..count]),
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        assert!(read == all, "bytes are lost, or out of order");
    }

    /// Else what waits because others are to have their turn would be offered too.
    #[tokio::test]
    async fn once_the_system_tells_of_room_nothing_is_offered_unasked() {
        let (_client, stream, _) = narrow(SEND_BYTES);
        stream.writable().await.unwrap();
        let mut io = Io { had_room: true, ..Io::new(stream, Arc::default()) };
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut io).poll_write(&mut context, &[0]).is_ready());
        assert!(!io.had_room);
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
    fn an_answer_has_to_be_taken_in_time() {
        let (pulse, mut silence) = (Pulse::default(), Silence::default());
        pulse.answered();
        pulse.wrote(true);
        let (length, next) = end(&mut silence, &pulse);
        assert!(next == Next::Drop && length > STALL && length < STALL + Duration::from_secs(5), "{length:?}");
        pulse.wrote(false);
        assert_eq!(end(&mut silence, &pulse).1, Next::Finish, "taken, it waits for the next request");
    }

    #[test]
    fn who_takes_some_of_it_now_and_then_is_at_it() {
        let (pulse, mut silence) = (Pulse::default(), Silence::default());
        pulse.answered();
        for _ in 0..100 {
            pulse.wrote(true);
            assert_eq!(silence.look(&pulse), Next::Wait);
            // It does not take all, and what is left waits again before anybody looks.
            pulse.wrote(false);
            pulse.wrote(true);
            assert_eq!(silence.look(&pulse), Next::Wait);
            assert_eq!(silence.look(&pulse), Next::Wait);
        }
        let (length, next) = end(&mut silence, &pulse);
        assert!(next == Next::Drop && length < STALL + Duration::from_secs(5), "{length:?}");
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
            assert_eq!(silence.look(&pulse), Next::Wait);
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
