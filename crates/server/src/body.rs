//! Bodies of requests, collected within a bound.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};

use crate::budget::{Account, Claim, GivenUp};

/// Why a body was not collected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It ended before it was whole.
    CutOff,
    /// It has more bytes than it may.
    TooLong {
        /// How many there were so far.
        bytes: usize,
    },
    /// It was given up: unfinished requests take too much memory, and it was the largest.
    GivenUp,
}

impl From<GivenUp> for BodyError {
    fn from(_: GivenUp) -> BodyError {
        BodyError::GivenUp
    }
}

/// Collects all bytes of a body, of which there may be so many. While it waits for them they count for `account`, with
/// the bytes of the request's head.
pub(crate) async fn collect<B>(
    mut body: B,
    bytes_max: usize,
    account: &Account,
    head_bytes: impl Fn() -> usize,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut collected = Collected::default();
    while let Some(frame) = collected.next(&mut body, account, &head_bytes).await? {
        let Ok(data) = frame.into_data() else { continue };
        let bytes = collected.whole.len() + collected.pieces.len() + data.len();
        if bytes > bytes_max {
            return Err(BodyError::TooLong { bytes });
        }
        collected.push(data, &head_bytes)?;
    }
    Ok(collected.finish())
}

/// What there is of a body.
#[derive(Default)]
struct Collected {
    /// The first piece, which is mostly all there is, and need not be copied.
    whole: Bytes,
    pieces: BytesMut,
    /// Its part of the budget once it was waited for.
    claim: Option<Claim>,
}

impl Collected {
    /// Returns the next frame, or nothing after the last.
    async fn next<B>(
        &mut self,
        body: &mut B,
        account: &Account,
        head_bytes: &impl Fn() -> usize,
    ) -> Result<Option<Frame<Bytes>>, BodyError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        poll_fn(|context| {
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) {
                return Poll::Ready(frame.transpose().map_err(|_| BodyError::CutOff));
            }
            if self.claim.is_none() {
                // A piece keeps all that was read with it, which may belong to many requests.
                let first = std::mem::take(&mut self.whole);
                self.pieces.extend_from_slice(&first);
                self.claim = Some(account.claim(self.pieces.capacity() + head_bytes())?);
            }
            if let Some(claim) = &self.claim {
                ready!(claim.poll_given_up(context));
                return Poll::Ready(Err(BodyError::GivenUp));
            }
            Poll::Pending
        })
        .await
    }

    fn push(&mut self, data: Bytes, head_bytes: &impl Fn() -> usize) -> Result<(), GivenUp> {
        if self.whole.is_empty() && self.pieces.is_empty() && self.claim.is_none() {
            self.whole = data;
            return Ok(());
        }
        self.pieces.extend_from_slice(&std::mem::take(&mut self.whole));
        self.pieces.extend_from_slice(&data);
        match &mut self.claim {
            Some(claim) => claim.set(self.pieces.capacity() + head_bytes()),
            None => Ok(()),
        }
    }

    fn finish(self) -> Bytes {
        if let Some(claim) = self.claim {
            claim.finish();
        }
        if self.pieces.is_empty() { self.whole } else { self.pieces.freeze() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::REQUEST_MEMORY;
    use crate::budget::{Budget, RequestMemory};
    use http_body_util::StreamBody;
    use std::time::Duration;

    fn account() -> Account {
        Budget::new(REQUEST_MEMORY).account()
    }

    type Piece = Result<&'static [u8], &'static str>;

    /// Collects a body that comes in these pieces, of 4 bytes at most.
    async fn check(pieces: &[Piece], expected: Result<&'static [u8], BodyError>) {
        let frames = pieces.iter().map(|piece| piece.map(|bytes| Frame::data(Bytes::from_static(bytes))));
        let body = StreamBody::new(tokio_stream::iter(frames.collect::<Vec<_>>()));
        assert_eq!(collect(body, 4, &account(), || 0).await, expected.map(Bytes::from_static), "{pieces:?}");
    }

    #[tokio::test]
    async fn bodies_are_collected_within_their_bound() {
        check(&[], Ok(b"")).await;
        check(&[Ok(b"abcd")], Ok(b"abcd")).await;
        check(&[Ok(b""), Ok(b"a"), Ok(b"b"), Ok(b""), Ok(b"cd")], Ok(b"abcd")).await;
        check(&[Ok(b"abcde")], Err(BodyError::TooLong { bytes: 5 })).await;
        check(&[Ok(b"abcd"), Ok(b"e"), Err("not asked for")], Err(BodyError::TooLong { bytes: 5 })).await;
        check(&[Ok(b"ab"), Ok(b"c"), Ok(b"de")], Err(BodyError::TooLong { bytes: 5 })).await;
        check(&[Ok(b"ab"), Err("gone")], Err(BodyError::CutOff)).await;
    }

    #[tokio::test]
    async fn a_single_piece_is_not_copied() {
        let piece = Bytes::from_static(b"abcd");
        let collected = collect(http_body_util::Full::new(piece.clone()), 4, &account(), || 0).await.unwrap();
        assert_eq!(collected.as_ptr(), piece.as_ptr());
    }

    /// One piece of a body, after which nothing comes.
    fn half(piece: &'static [u8]) -> impl Body<Data = Bytes> + Unpin {
        let first = tokio_stream::iter([Ok::<_, &str>(Frame::data(Bytes::from_static(piece)))]);
        StreamBody::new(Box::pin(tokio_stream::StreamExt::chain(first, tokio_stream::pending())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_waited_for_counts_and_may_be_given_up() {
        let account = Budget::new(RequestMemory { listener_bytes: 1 << 20, connection_bytes: 5_000 }).account();
        let small = collect(half(b"abc"), 100, &account, || 0);
        assert!(tokio::time::timeout(Duration::from_secs(1), small).await.is_err(), "it is waited for");
        assert_eq!(collect(half(b"abc"), 100, &account, || 10_000).await, Err(BodyError::GivenUp), "its head is large");
        let large = collect(half(&[b'x'; 4_000]), 5_000, &account, || 0);
        assert_eq!(large.await, Err(BodyError::GivenUp));
    }
}
