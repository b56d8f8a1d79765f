//! Clients that do not read what is written to them.
//!
//! Neither tokio nor hyper nor h2 ever gives up a write that waits for the client to read. A client that asks and does not
//! read, or sends what has to be acknowledged, would keep its connection for ever. All listeners wrap their connections in
//! this.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::bounds::{STALL, WRITE_LOOK};

/// A connection whose writes fail with [`io::ErrorKind::TimedOut`] once the system has had no room for more for [`STALL`].
///
/// The system says that there is room only once a third of all is free, for which a client that reads slowly may need longer
/// than that. So a write that waits is offered to the system unasked, after [`WRITE_LOOK`] and then every [`STALL`]; and more
/// of it until there is no room, or one answer at a time would be a sign of life for as long as the room lasts.
#[derive(Debug)]
pub(crate) struct WriteStall {
    stream: TcpStream,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No write waits.
    Open,
    /// A write waits until this time. There may be room that the system does not tell of.
    Waits(Pin<Box<Sleep>>),
    /// What was written last went to the system unasked: there may be room for more.
    HadRoom,
    /// There was no room, and until this time there may be some again.
    Full(Pin<Box<Sleep>>),
}

impl WriteStall {
    pub(crate) fn new(stream: TcpStream) -> WriteStall {
        WriteStall { stream, state: State::Open }
    }

    pub(crate) fn into_inner(self) -> TcpStream {
        self.stream
    }

    /// Bounds how long a write may wait, of which these are the first bytes.
    #[inline]
    fn bound(
        &mut self,
        polled: Poll<io::Result<usize>>,
        bytes: &[u8],
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if polled.is_pending() {
            return self.wait(bytes, context);
        }
        if !matches!(self.state, State::Open) {
            self.state = State::Open;
        }
        polled
    }

    #[cold]
    fn wait(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            match &mut self.state {
                // It may only wait for others to have their turn, so nothing is offered yet.
                State::Open => {
                    self.state = State::Waits(Box::pin(sleep(WRITE_LOOK)));
                    continue;
                }
                State::Waits(until) | State::Full(until) => ready!(until.as_mut().poll(context)),
                State::HadRoom => {}
            }
            let offered = offer(&self.stream, bytes);
            if offered.is_ready() {
                self.state = State::HadRoom;
                return offered;
            }
            if matches!(self.state, State::Full(_)) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.state = State::Full(Box::pin(sleep(STALL)));
        }
    }
}

/// Writes what there is room for. If there is none, whoever waits for that goes on waiting.
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

impl AsyncRead for WriteStall {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for WriteStall {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bound(polled, bytes, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        self.bound(polled, first, context)
    }

    // Neither waits for the client: the system has all that was written, or it would not have been.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpSocket;
    use tokio::time::Instant;

    use super::*;
    use crate::bounds::SEND_BYTES;

    /// A client with little room, and its connection.
    async fn connect() -> (std::net::TcpStream, WriteStall) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(u32::try_from(SEND_BYTES).unwrap()).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let client = TcpSocket::new_v4().unwrap();
        client.set_recv_buffer_size(4096).unwrap();
        let client = client.connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        (client.into_std().unwrap(), WriteStall::new(stream))
    }

    /// Writes small pieces until there is no room, and tells how many there was room for.
    fn fill(stream: &mut WriteStall) -> usize {
        let mut context = Context::from_waker(std::task::Waker::noop());
        std::iter::from_fn(|| Pin::new(&mut *stream).poll_write(&mut context, &[0; 100]).is_ready().then_some(()))
            .count()
    }

    #[tokio::test]
    async fn one_look_fills_all_the_room_that_there_is() {
        let (mut client, mut stream) = connect().await;
        // Until all has moved that moves though nobody reads.
        while fill(&mut stream) > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for _ in 0..1_000 {
            // There may be nothing to read yet.
            let _ = client.read(&mut [0; 1024]);
            stream.state = State::HadRoom;
            match fill(&mut stream) {
                0 => {}
                filled => return assert!(filled > 1, "there is room for more"),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("there is no room, whatever is read");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_gets_everything_in_order() {
        let (mut client, mut stream) = connect().await;
        // It repeats itself after a prime number of bytes, so that what is left out shows.
        let all: Vec<u8> = (0..1_000_003_u32).map(|number| (number % 251) as u8).collect();
        let expected = all.clone();
        let start = Instant::now();
        let writing = tokio::spawn(async move {
            stream.write_all(&all).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let mut read = Vec::new();
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut piece = [0; 8192];
            match client.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => read.extend_from_slice(&piece[..count]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        writing.await.unwrap();
        assert!(read == expected, "bytes are lost, or out of order");
        assert!(start.elapsed() > 5 * STALL, "that took long: {:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_given_up_in_time() {
        let (_client, mut stream) = connect().await;
        let writing = tokio::spawn(async move { stream.write_all(&vec![0; 10 << 20]).await });
        // A stopped clock jumps ahead of bytes that the system still moves.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!writing.is_finished(), "given up within a second");
        tokio::time::pause();
        let start = Instant::now();
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() > STALL - Duration::from_secs(2), "{:?}", start.elapsed());
        assert!(start.elapsed() <= STALL + WRITE_LOOK, "{:?}", start.elapsed());
    }

    /// Else what waits because others are to have their turn would be offered too.
    #[tokio::test]
    async fn a_write_that_has_just_begun_to_wait_is_not_offered() {
        let (_client, mut stream) = connect().await;
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(stream.bound(Poll::Pending, &[0], &mut context).is_pending());
        assert!(matches!(stream.state, State::Waits(_)));
        stream.state = State::HadRoom;
        assert!(stream.bound(Poll::Ready(Ok(1)), &[0], &mut context).is_ready());
        assert!(matches!(stream.state, State::Open), "the system told of room by itself");
    }
}
