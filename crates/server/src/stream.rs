//! The bytes of a connection, in the clear or encrypted: front ends do not see the difference.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::tls::Tls;
use crate::write_stall::WriteStall;

/// A connection whose writes do not wait for ever, and which may be encrypted.
#[derive(Debug)]
pub(crate) enum Stream {
    /// In the clear.
    Plain(WriteStall),
    /// Encrypted. Its state takes more than a kilobyte, which connections in the clear do not need.
    Tls(Box<TlsStream<WriteStall>>),
}

impl Stream {
    /// Takes a connection in the clear.
    pub(crate) fn plain(stream: TcpStream) -> Stream {
        Stream::Plain(WriteStall::new(stream))
    }

    /// Greets a client with TLS. Returns `None` if it leaves without a word: load balancers knock to see whether somebody
    /// listens.
    pub(crate) async fn greet(stream: TcpStream, tls: &Tls) -> io::Result<Option<Stream>> {
        if !matches!(stream.peek(&mut [0]).await, Ok(1..)) {
            return Ok(None);
        }
        Ok(Some(Stream::Tls(Box::new(tls.accept(WriteStall::new(stream)).await?))))
    }

    /// Whether the client has shown a certificate, which was verified.
    pub(crate) fn has_certificate(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.get_ref().1.peer_certificates().is_some(),
        }
    }

    /// Returns the socket.
    pub(crate) fn into_socket(self) -> TcpStream {
        match self {
            Stream::Plain(stream) => stream.into_inner(),
            Stream::Tls(stream) => stream.into_inner().0.into_inner(),
        }
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
