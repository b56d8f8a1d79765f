//! Servers that do only what cannot be left out: they mark how cheap an answer over their protocol can be.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// What serves a connection.
pub type Serve = dyn Fn(TcpStream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// Accepts on the port of the first argument, and deals connections out evenly to one thread and runtime a core, as
/// Tidegate does.
pub fn serve(serve: Arc<Serve>) {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("the port to listen on");
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let lanes: Vec<_> = (0..threads).map(|_| lane(Arc::clone(&serve))).collect();
    for (stream, lane) in listener.incoming().zip(lanes.iter().cycle()) {
        lane.send(stream.unwrap()).unwrap();
    }
}

/// A thread that serves what it is sent.
fn lane(serve: Arc<Serve>) -> UnboundedSender<std::net::TcpStream> {
    let (sender, mut receiver) = unbounded_channel::<std::net::TcpStream>();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            while let Some(stream) = receiver.recv().await {
                stream.set_nodelay(true).unwrap();
                stream.set_nonblocking(true).unwrap();
                tokio::spawn(serve(TcpStream::from_std(stream).unwrap()));
            }
        });
    });
    sender
}
