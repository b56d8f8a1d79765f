//! Servers that do only what cannot be left out: they mark how cheap an answer over their protocol can be.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "not shipped: it should stop at the first surprise")]

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpStream;

/// What serves a connection.
pub type Serve = dyn Fn(TcpStream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// Accepts on the port of the first argument, with one thread and runtime a core, as Tidegate does.
pub fn serve(serve: Arc<Serve>) {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("the port to listen on");
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    listener.set_nonblocking(true).unwrap();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (listener, serve) = (listener.try_clone().unwrap(), Arc::clone(&serve));
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async move {
                    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                    loop {
                        let Ok((stream, _)) = listener.accept().await else { continue };
                        stream.set_nodelay(true).unwrap();
                        tokio::spawn(serve(stream));
                    }
                });
            });
        }
    });
}
