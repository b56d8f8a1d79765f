//! Floods of frames that cost the sender little: SETTINGS, PING, WINDOW_UPDATE and whatever else carries no call.
//!
//! h2 bounds what they make it keep, but answers each of them for as long as they come. An honest client sends a few of them
//! for each call; so each frame of a call earns some, and those that are not earned are held to a rate.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tidegate_core::{Clock, DirectLimiter, Limit, Rate};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::bounds::{GRPC_CONTROL_FRAMES, GRPC_CONTROL_FRAMES_EARNED};

/// Bytes of the head of a frame.
const HEAD: usize = 9;

/// Kinds of frames, by their number on the wire.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// A stream of HTTP/2 frames that ends with an error where there are too many that carry no call.
pub(super) struct Frames<S> {
    stream: S,
    watch: Watch,
}

impl<S> Frames<S> {
    /// Watches the frames that follow the preface of a client.
    pub(super) fn after_preface(stream: S) -> Frames<S> {
        Frames { stream, watch: Watch::new(Clock::system()) }
    }
}

/// Follows frames, and counts them.
struct Watch {
    /// The head that is being read, and how much of it there is.
    head: [u8; HEAD],
    head_bytes: usize,
    /// Bytes of the frame that are still to come.
    payload_bytes: usize,
    /// Frames without a call that were earned by frames of calls.
    earned: u32,
    /// Holds those that were not. None if there can be no such limit, and then none is let pass.
    limiter: Option<DirectLimiter>,
}

/// There are too many frames without a call.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many frames without a call")]
struct Flood;

impl Watch {
    fn new(clock: Clock) -> Watch {
        let (rate, burst) = GRPC_CONTROL_FRAMES;
        let limit = Rate::per_second(rate).and_then(|rate| Limit::gcra(rate, burst)).ok();
        let limiter = limit.and_then(|limit| DirectLimiter::with_clock(limit, clock).ok());
        Watch { head: [0; HEAD], head_bytes: 0, payload_bytes: 0, earned: 0, limiter }
    }

    /// Follows bytes that were read.
    fn follow(&mut self, mut bytes: &[u8]) -> Result<(), Flood> {
        while !bytes.is_empty() {
            let skipped = self.payload_bytes.min(bytes.len());
            self.payload_bytes -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let wanted = HEAD - self.head_bytes;
            let (part, rest) = bytes.split_at(wanted.min(bytes.len()));
            if let Some(room) = self.head.get_mut(self.head_bytes..self.head_bytes + part.len()) {
                room.copy_from_slice(part);
            }
            self.head_bytes += part.len();
            bytes = rest;
            if self.head_bytes == HEAD {
                self.head_bytes = 0;
                self.count()?;
            }
        }
        Ok(())
    }

    /// Counts the frame whose head was read.
    fn count(&mut self) -> Result<(), Flood> {
        let [high, middle, low, kind, ..] = self.head;
        self.payload_bytes = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            // One of DATA without any is of no call either; a last one may be empty, and is earned by those before it.
            HEADERS | CONTINUATION | DATA if self.payload_bytes > 0 => {
                self.earned = self.earned.saturating_add(GRPC_CONTROL_FRAMES_EARNED);
                Ok(())
            }
            _ if self.earned > 0 => {
                self.earned -= 1;
                Ok(())
            }
            _ if self.limiter.as_ref().is_some_and(|limiter| limiter.check().is_allowed()) => Ok(()),
            _ => Err(Flood),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Frames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        Poll::Ready(self.watch.follow(read).map_err(io::Error::other))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Frames<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::FakeClock;

    use super::*;

    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
    }

    /// How many such frames are let pass, in pieces of so many bytes.
    fn passed(watch: &mut Watch, frame: &[u8], pieces: usize) -> u64 {
        let mut pass = || frame.chunks(pieces).try_for_each(|piece| watch.follow(piece)).is_ok();
        (0..100_000).take_while(|_| pass()).count() as u64
    }

    #[test]
    fn frames_without_calls_are_held_to_a_rate() {
        let (rate, burst) = GRPC_CONTROL_FRAMES;
        for (kind, payload) in
            [(SETTINGS, &b""[..]), (PING, b"flooding"), (WINDOW_UPDATE, b"\0\0\0\x01"), (DATA, b""), (2, b"12345")]
        {
            for pieces in [1, 4, 9, 1_000] {
                let clock = FakeClock::new();
                let mut watch = Watch::new(clock.clone().into());
                assert_eq!(passed(&mut watch, &frame(kind, payload), pieces), burst, "{kind}, {pieces}");
                clock.advance(Duration::from_secs(1));
                // The one that was too many has been read.
                watch.payload_bytes = 0;
                watch.head_bytes = 0;
                assert_eq!(passed(&mut watch, &frame(kind, payload), pieces), rate, "{kind}, {pieces}");
            }
        }
    }

    #[test]
    fn calls_earn_what_clients_send_for_them() {
        let call = [
            frame(HEADERS, &[0; 100]),
            frame(DATA, &[0; 20_000]),
            frame(WINDOW_UPDATE, &[0; 4]),
            frame(WINDOW_UPDATE, &[0; 4]),
            frame(PING, &[0; 8]),
            frame(3, &[0; 4]),
        ]
        .concat();
        for pieces in [7, 16_384] {
            assert_eq!(passed(&mut Watch::new(FakeClock::new().into()), &call, pieces), 100_000);
        }
    }
}
