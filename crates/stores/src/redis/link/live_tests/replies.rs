//! What servers say instead of an answer.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Duration;

use super::super::servers::{Server, Setup};
use super::{AMPLE, add, is_not_sent, open};
use crate::redis::link::{Arg, CallError, Script};

#[tokio::test]
async fn a_script_that_was_forgotten_is_told_again() {
    let server = Server::start(&Setup::default());
    let redis = open(&format!("redis://127.0.0.1:{}", server.port));
    assert_eq!(add(&redis, "k", AMPLE).await, Ok(1));
    assert_eq!(add(&redis, "k", AMPLE).await, Ok(2));
    server.command("SCRIPT FLUSH");
    assert_eq!(add(&redis, "k", AMPLE).await, Ok(3));
    assert_eq!(redis.health().totals.reloaded, 2);
}

#[tokio::test]
async fn errors_of_the_server_are_handed_on() {
    let server = Server::start(&Setup::default());
    server.command("SADD k member");
    let redis = open(&format!("redis://127.0.0.1:{}", server.port));
    let wrong_type = add(&redis, "k", AMPLE).await.unwrap_err();
    assert_eq!(wrong_type.code(), Some("WRONGTYPE"), "{wrong_type}");
    let own = Script::new("return redis.error_reply('TIDE version 9 is not known')");
    let error = redis.call(&own, &[b"k"], &[Arg::from("a")], AMPLE).await.unwrap_err();
    assert_eq!(error.to_string(), format!("redis://127.0.0.1:{}/0: TIDE version 9 is not known", server.port));
    assert_eq!(redis.health().totals.refused, 2);
}

#[tokio::test]
async fn a_replica_is_not_written_to() {
    let server = Server::start(&Setup::default());
    let redis = open(&format!("redis://127.0.0.1:{}", server.port));
    assert_eq!(add(&redis, "k", AMPLE).await, Ok(1));
    server.command("REPLICAOF 127.0.0.1 1");
    let refused = add(&redis, "k", Duration::from_secs(1)).await;
    assert!(is_not_sent(&refused), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("READONLY"));
    server.command("REPLICAOF NO ONE");
    super::recover(&redis, "k", AMPLE).await;
    assert_eq!(server.command("GET k"), "2");
}

/// A server that answers script calls with these replies in turn, then with 7; and counts the calls.
struct Pretender {
    port: u16,
    calls: Arc<Mutex<usize>>,
}

impl Pretender {
    async fn start(replies: &[&'static str]) -> Pretender {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let calls = Arc::new(Mutex::new(0));
        let (replies, counter) = (Arc::<[&'static str]>::from(replies), Arc::clone(&calls));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pretend(stream, Arc::clone(&replies), Arc::clone(&counter)));
            }
        });
        Pretender { port, calls }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

async fn pretend(mut stream: TcpStream, replies: Arc<[&'static str]>, calls: Arc<Mutex<usize>>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
        let mut out = String::new();
        for word in text.split("\r\n") {
            match word {
                "CLIENT" => out += "+OK\r\n",
                "PING" => out += "+PONG\r\n",
                "EVALSHA" => {
                    let mut calls = calls.lock().unwrap();
                    out += replies.get(*calls).copied().unwrap_or(":7\r\n");
                    *calls += 1;
                }
                _ => {}
            }
        }
        if stream.write_all(out.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_ready_is_asked_again_within_the_budget() {
    let server =
        Pretender::start(&["-LOADING dataset\r\n", "-TRYAGAIN keys\r\n", "-CLUSTERDOWN x\r\n", "-BUSY y\r\n"]).await;
    let redis = open(&server.url());
    assert_eq!(add(&redis, "k", AMPLE).await, Ok(7));
    assert_eq!(redis.health().totals.retried, 4);
}

#[tokio::test]
async fn a_server_that_stays_not_ready_was_not_asked() {
    let server = Pretender::start(&["-LOADING dataset\r\n"; 100_000]).await;
    let redis = open(&server.url());
    let failed = add(&redis, "k", Duration::from_millis(50)).await.unwrap_err();
    assert!(failed.to_string().ends_with("the server is not ready: LOADING dataset"), "{failed}");
    assert!(matches!(failed, CallError::NotSent { .. }));
}

#[tokio::test]
async fn what_before_redis_7_stands_inside_of_a_message_is_read() {
    let said =
        "-ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a replica.\r\n";
    let server = Pretender::start(&[said]).await;
    let redis = open(&server.url());
    assert_eq!(add(&redis, "k", AMPLE).await, Ok(7));
    assert_eq!(redis.health().totals.connected, 2, "it was connected to anew");
}

#[tokio::test]
async fn a_redirection_outside_of_a_cluster_goes_nowhere() {
    let server = Pretender::start(&["-MOVED 5 127.0.0.1:1\r\n"; 100]).await;
    let redis = open(&server.url());
    assert!(is_not_sent(&add(&redis, "k", AMPLE).await));
    assert_eq!(*server.calls.lock().unwrap(), 6);
}

#[tokio::test]
async fn nonsense_ends_the_connection_and_nothing_else() {
    let server = Pretender::start(&["!?\r\n", "*x\r\n"]).await;
    let redis = open(&server.url());
    for _ in 0..2 {
        let failed = add(&redis, "k", AMPLE).await;
        assert!(super::is_unknown(&failed), "{failed:?}");
    }
    super::recover(&redis, "k", AMPLE).await;
}
