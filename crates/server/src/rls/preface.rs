//! The first bytes of a connection. They are awaited here, since hyper waits for them without a deadline, and
//! handed to it again.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::frames::Frames;

/// What each client of HTTP/2 says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose preface was read.
pub(super) struct Greeted<S> {
    /// What of the preface is still to be handed on.
    left: &'static [u8],
    stream: TokioIo<Frames<S>>,
}

/// Reads the preface; an error if the client says something else.
pub(super) async fn read<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<Greeted<S>> {
    let mut left = &PREFACE[..];
    let mut bytes = [0; PREFACE.len()];
    while !left.is_empty() {
        let count = stream.read(bytes.get_mut(..left.len()).unwrap_or_default()).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let said = bytes.get(..count).unwrap_or_default();
        left = left.strip_prefix(said).ok_or(io::ErrorKind::InvalidData)?;
    }
    Ok(Greeted { left: PREFACE, stream: TokioIo::new(Frames::after_preface(stream)) })
}

impl<S: AsyncRead + Unpin> Read for Greeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let (now, later) = self.left.split_at(buffer.remaining().min(self.left.len()));
        buffer.put_slice(now);
        self.left = later;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Write for Greeted<S> {
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
