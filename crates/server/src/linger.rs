//! The end of a connection, so that its last bytes arrive.

use std::io;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::bounds::LINGER;
use crate::stream::Stream;

/// Tells the client that nothing more comes, and reads what it still sends, for [`LINGER`] at most. A socket that is closed
/// on unread bytes is reset instead, and what the client has not taken by then is lost to it. What is sent after that time
/// resets it too: who goes on though it was told has no better end.
pub(crate) async fn close(mut stream: Stream) {
    let read_all = async move {
        // Of an encrypted connection this says so by TLS first. What comes then is not worth decrypting.
        stream.shutdown().await?;
        let stream = stream.into_socket();
        loop {
            stream.readable().await?;
            match stream.try_read(&mut [0; 4096]) {
                Ok(0) => return io::Result::Ok(()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    };
    let _ = timeout(LINGER, read_all).await;
}
