//! A server that only pretends, for what real ones say too rarely.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Starts one and says where. It greets like Redis, and asks for a reply to every other word that it reads.
pub(super) async fn start(reply: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let reply = Arc::new(reply);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&reply)));
        }
    });
    port
}

async fn serve(mut stream: TcpStream, reply: Arc<impl Fn(&str) -> Option<String>>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
        let mut out = String::new();
        for word in text.split("\r\n") {
            match word {
                "CLIENT" => out += "+OK\r\n",
                "PING" => out += "+PONG\r\n",
                word => out += &reply(word).unwrap_or_default(),
            }
        }
        if stream.write_all(out.as_bytes()).await.is_err() {
            return;
        }
    }
}
