//! Messages that the client has not taken yet.
//!
//! HTTP/2 lets a client say how much it will take. One that takes nothing, and is alive otherwise, would keep its calls and
//! their answers for ever: no write waits, so nobody gets impatient. So each message is counted from when it was made until
//! its last byte was written, and a connection that leaves one for longer than [`STALL`] ends.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::sleep;
use tonic::Status;

use super::unary::Answer;
use crate::bounds::STALL;

/// Spans of time that messages are counted in: what is left of one when two further ones have passed is too old.
const SPANS: usize = 3;

/// How many messages of a connection wait, by when they were made.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    waiting: [AtomicUsize; SPANS],
    /// The span that counts now.
    now: AtomicUsize,
}

impl Ledger {
    /// Resolves when a message has waited for longer than [`STALL`], after half of that again at the latest.
    pub(super) async fn overdue(&self) {
        loop {
            sleep(STALL / 2).await;
            let next = (self.now.load(Ordering::Relaxed) + 1) % SPANS;
            // It counted last when this was three spans ago.
            if self.waiting.get(next).is_some_and(|waiting| waiting.load(Ordering::Relaxed) > 0) {
                return;
            }
            self.now.store(next, Ordering::Relaxed);
        }
    }

    fn owe(self: &Arc<Ledger>, bytes: Bytes) -> Parcel {
        let span = self.now.load(Ordering::Relaxed);
        if let Some(waiting) = self.waiting.get(span) {
            waiting.fetch_add(1, Ordering::Relaxed);
        }
        Parcel { bytes, span, ledger: Arc::clone(self) }
    }
}

/// A message, counted until it is dropped: whoever writes it keeps it so long.
#[derive(Debug)]
pub(super) struct Parcel {
    bytes: Bytes,
    span: usize,
    ledger: Arc<Ledger>,
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if let Some(waiting) = self.ledger.waiting.get(self.span) {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Buf for Parcel {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

/// An answer whose messages are counted.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) answer: Answer,
    pub(super) ledger: Arc<Ledger>,
}

impl Body for Counted {
    type Data = Parcel;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Parcel>, Status>>> {
        let polled = Pin::new(&mut self.answer).poll_frame(context);
        polled.map_ok(|frame| frame.map_data(|bytes| self.ledger.owe(bytes)))
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}
