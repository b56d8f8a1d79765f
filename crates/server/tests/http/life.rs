//! How connections end: when the server stops, and when clients have no more to send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::bench::{Bench, read_all, status};

#[tokio::test]
async fn what_is_under_way_is_finished() {
    let bench = Bench::new();
    let mut idle = bench.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let mut busy = bench.connect().await;
    let (start, end) = r#"{"key":"a","limit":"1/s"}"#.split_at(10);
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{start}",
        start.len() + end.len()
    );
    busy.write_all(head.as_bytes()).await.unwrap();
    // Both are known to the server before it is told to stop.
    while !bench.get("/metrics").await.contains("tidegate_connections{listener=\"http\"} 3") {
        tokio::task::yield_now().await;
    }
    bench.drainer.start();
    read_all(&mut idle).await;
    busy.write_all(end.as_bytes()).await.unwrap();
    assert_eq!(status(&read_all(&mut busy).await), 200);
    tokio::time::timeout(Duration::from_secs(5), bench.drainer.finished()).await.unwrap();
    assert!(tokio::net::TcpStream::connect(bench.address).await.is_err(), "nobody listens any more");
}

/// The end comes between two requests of all of them, as in life: each client hears of it with an answer.
#[tokio::test]
async fn no_busy_connection_loses_a_request() {
    let bench = Bench::new();
    let asked = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..80)
        .map(|number| {
            let (address, asked) = (bench.address, Arc::clone(&asked));
            tokio::spawn(async move {
                let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
                loop {
                    let request = "GET /v1/check?key=a&rate=1000000/s HTTP/1.1\r\nhost: localhost\r\n\r\n";
                    stream.write_all(request.as_bytes()).await.unwrap();
                    let (head, is_last) = read_answer(&mut stream).await;
                    assert_eq!(head.get(..12), Some("HTTP/1.1 200"), "a request was lost: {head:?}");
                    if is_last {
                        return;
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                    // Some are between two requests when the end comes.
                    tokio::time::sleep(Duration::from_millis(number % 8)).await;
                }
            })
        })
        .collect();
    while asked.load(Ordering::Relaxed) < 1_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bench.drainer.start();
    for client in clients {
        client.await.unwrap();
    }
    tokio::time::timeout(Duration::from_secs(5), bench.drainer.finished()).await.unwrap();
}

/// Reads an answer: its head, and whether it is the last of its connection.
async fn read_answer(stream: &mut BufReader<TcpStream>) -> (String, bool) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.unwrap_or_default() == 0 {
            break;
        }
    }
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    let length = header("content-length: ").map_or(0, |length| length.parse().unwrap());
    stream.read_exact(&mut vec![0; length]).await.unwrap();
    let is_last = header("connection: ") == Some("close");
    (head, is_last)
}

#[tokio::test]
async fn who_has_sent_everything_and_says_so_is_answered() {
    use std::io::{Read, Write};

    let bench = Bench::new();
    let address = bench.address;
    let body = r#"{"key":"a","limit":"1000/s"}"#;
    let request = format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    // On another thread: whether the request is answered or its end is heard first is up to the system.
    let clients = tokio::task::spawn_blocking(move || {
        for _ in 0..500 {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(status(&answer), 200);
        }
    });
    clients.await.unwrap();
}

#[tokio::test]
async fn administrators_get_in_while_others_connect_again_and_again() {
    let bench = Bench::behind(|listener| listener.with_connections_max(4));
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = bench.connect().await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        assert_eq!(stream.read(&mut [0; 100]).await.unwrap().min(12), 12);
        held.push(stream);
    }
    // More than there are spare places, each of which says nothing and comes again when it is closed.
    let address = bench.address;
    let storm: Vec<_> = (0..100)
        .map(|_| {
            tokio::spawn(async move {
                while let Ok(mut stream) = tokio::net::TcpStream::connect(address).await {
                    let _ = stream.read(&mut [0; 100]).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut answered = 0;
    for path in ["/readyz", "/metrics"].repeat(20) {
        let mut stream = bench.connect().await;
        let _ = stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answered += usize::from(answer.starts_with(b"HTTP/1.1 200"));
    }
    assert_eq!(answered, 40);
    storm.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Sends bytes, and returns the status of each response, with whether it says that it is the last of the connection.
async fn responses(bench: &Bench, bytes: &[u8]) -> Vec<(u16, bool)> {
    let mut stream = BufReader::new(bench.connect().await);
    stream.write_all(bytes).await.unwrap();
    let mut all = Vec::new();
    loop {
        let (head, is_last) = read_answer(&mut stream).await;
        if head.is_empty() {
            return all;
        }
        all.push((status(&head), is_last));
    }
}

/// Requests whose bodies no call reads, and their statuses.
const BODY_NOT_READ: [(&str, u16); 5] = [
    ("POST /v1/auth HTTP/1.1\r\nhost: localhost\r\n", 200),
    ("POST /nowhere HTTP/1.1\r\nhost: localhost\r\n", 404),
    ("DELETE /v1/check HTTP/1.1\r\nhost: localhost\r\n", 405),
    ("POST /v1/reset HTTP/1.1\r\nhost: localhost\r\norigin: http://example.org\r\n", 403),
    ("POST /v1/check HTTP/1.1\r\nhost: localhost\r\norigin: http://example.org\r\n", 403),
];

#[tokio::test]
async fn a_body_that_no_call_reads_loses_no_request_after_it() {
    let bench = Bench::new();
    let last = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let chunk = |size: usize| format!("{size:x}\r\n{}\r\n", "x".repeat(size));
    let short = [
        "content-length: 5\r\n\r\nhello".to_owned(),
        format!("transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk(5)),
        format!("transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk(10).repeat(50)),
        format!("transfer-encoding: chunked\r\ntrailer: x\r\n\r\n{}0\r\nx: y\r\n\r\n", chunk(5)),
    ];
    for (head, status) in BODY_NOT_READ {
        for body in &short {
            let found = responses(&bench, format!("{head}{body}{last}").as_bytes()).await;
            assert_eq!(found, [(status, false), (200, true)], "{head:?} {body:?}");
        }
        // A client that is told to end the connection sends what is left over another one.
        for body in [
            "content-length: 5\r\n\r\nhell".to_owned(),
            "content-length: 5\r\n\r\n".to_owned(),
            "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n".to_owned(),
            "expect: 100-continue\r\ncontent-length: 5\r\n\r\n".to_owned(),
            format!("content-length: 20000\r\n\r\n{}{last}", "x".repeat(20_000)),
            format!("transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n{last}", chunk(5_000).repeat(5)),
        ] {
            let found = responses(&bench, format!("{head}{body}").as_bytes()).await;
            assert_eq!(found, [(status, true)], "{head:?} {body:?}");
        }
    }
}
