//! Bodies of requests, collected within a bound.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;

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
}

/// All bytes of a body, of which there may be so many.
pub(crate) async fn collect<B>(mut body: B, bytes_max: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyError::CutOff)?.into_data() else { continue };
        let bytes = whole.len() + pieces.len() + data.len();
        if bytes > bytes_max {
            return Err(BodyError::TooLong { bytes });
        }
        if whole.is_empty() && pieces.is_empty() {
            // Mostly the first piece is all there is, and need not be copied.
            whole = data;
            continue;
        }
        pieces.extend_from_slice(&std::mem::take(&mut whole));
        pieces.extend_from_slice(&data);
    }
    Ok(if pieces.is_empty() { whole } else { pieces.freeze() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    type Piece = Result<&'static [u8], &'static str>;

    /// Collects a body that comes in these pieces, of 4 bytes at most.
    async fn check(pieces: &[Piece], expected: Result<&'static [u8], BodyError>) {
        let frames = pieces.iter().map(|piece| piece.map(|bytes| Frame::data(Bytes::from_static(bytes))));
        let body = StreamBody::new(tokio_stream::iter(frames.collect::<Vec<_>>()));
        assert_eq!(collect(body, 4).await, expected.map(Bytes::from_static), "{pieces:?}");
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
        let collected = collect(http_body_util::Full::new(piece.clone()), 4).await.unwrap();
        assert_eq!(collected.as_ptr(), piece.as_ptr());
    }
}
