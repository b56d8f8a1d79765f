//! A TCP proxy in front of a server, which delays or loses replies, or closes connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How the proxy treats connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Passes everything on.
    Pass,
    /// Delays every reply by this time.
    Delay(Duration),
    /// Passes requests on and drops replies.
    Swallow,
    /// Drops replies on the first connection that was accepted, and passes everything else on.
    SwallowFirst,
    /// Passes requests on and closes a connection when its reply comes.
    CutAtReply,
    /// Closes all connections, also new ones.
    Cut,
}

/// A proxy on a free port. It stops accepting connections when the value is dropped.
pub struct Proxy {
    /// The port that clients connect to.
    pub port: u16,
    mode: Arc<watch::Sender<Mode>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy for the server on a port of the loopback address. It passes everything on at first.
    pub async fn start(upstream: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = Arc::new(watch::Sender::new(Mode::Pass));
        let modes = Arc::clone(&mode);
        let task = tokio::spawn(async move {
            for index in 0_usize.. {
                let Ok((client, _)) = listener.accept().await else { return };
                tokio::spawn(carry(client, upstream, modes.subscribe(), index == 0));
            }
        });
        Proxy { port, mode, task }
    }

    /// Sets how the proxy treats connections, from the next reply on.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(client: TcpStream, upstream: u16, mode: watch::Receiver<Mode>, first: bool) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    let mut watch = mode.clone();
    tokio::select! {
        () = requests(client_reads, server_writes) => {}
        () = replies(server_reads, client_writes, &mode, first) => {}
        _ = watch.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mode: &watch::Receiver<Mode>, first: bool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let now = *mode.borrow();
        match now {
            Mode::Swallow => continue,
            Mode::CutAtReply | Mode::Cut => return,
            Mode::Delay(delay) => tokio::time::sleep(delay).await,
            Mode::SwallowFirst if first => continue,
            Mode::Pass | Mode::SwallowFirst => {}
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
