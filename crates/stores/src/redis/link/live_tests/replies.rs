//! What servers say instead of an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tidegate_testkit::servers::{Server, Setup};

use super::{add, is_not_sent, open, pretender};
use crate::redis::link::{Arg, CallError, Redis, Script};

#[tokio::test]
async fn a_script_that_was_forgotten_is_told_again() {
    let server = Server::start(&Setup::default());
    let redis = open(&format!("redis://127.0.0.1:{}", server.port));
    assert_eq!(add(&redis, "k").await, Ok(1));
    assert_eq!(add(&redis, "k").await, Ok(2));
    server.command("SCRIPT FLUSH");
    assert_eq!(add(&redis, "k").await, Ok(3));
    assert_eq!(redis.health().totals.reloaded, 2);
}

#[tokio::test]
async fn a_script_that_may_not_be_told_is_refused_in_the_words_of_the_server() {
    let user = Some("limiter on >sesame ~* +@all -script|load");
    let server = Server::start(&Setup { user, ..Setup::default() });
    let redis = open(&format!("redis://limiter:sesame@127.0.0.1:{}", server.port));
    let refused = add(&redis, "k").await.unwrap_err();
    assert_eq!(refused.code(), Some("NOPERM"), "{refused}");
    assert!(refused.to_string().contains("script|load"), "{refused}");
    let totals = redis.health().totals;
    assert_eq!((totals.refused, totals.reloaded), (1, 1), "its text is sent once");
    // Where somebody else told it, nothing is missing.
    let teller = open(&format!("redis://127.0.0.1:{}", server.port));
    assert_eq!(add(&teller, "k").await, Ok(1));
    assert_eq!(add(&redis, "k").await, Ok(2));
}

#[tokio::test]
async fn errors_of_the_server_are_handed_on() {
    let server = Server::start(&Setup::default());
    server.command("SADD k member");
    let redis = open(&format!("redis://127.0.0.1:{}", server.port));
    let wrong_type = add(&redis, "k").await.unwrap_err();
    assert_eq!(wrong_type.code(), Some("WRONGTYPE"), "{wrong_type}");
    let own = Script::new("return redis.error_reply('TIDE version 9 is not known')");
    let error = redis.call(&own, &[b"k"], &[Arg::from("a")], super::term(super::AMPLE)).await.unwrap_err();
    assert_eq!(error.to_string(), format!("redis://127.0.0.1:{}/0: TIDE version 9 is not known", server.port));
    assert_eq!(redis.health().totals.refused, 2);
}

#[tokio::test]
async fn a_replica_is_not_written_to() {
    let server = Server::start(&Setup::default());
    let redis = open(&format!("redis://127.0.0.1:{}", server.port));
    assert_eq!(add(&redis, "k").await, Ok(1));
    server.command("REPLICAOF 127.0.0.1 1");
    let refused = add(&redis, "k").await;
    assert!(is_not_sent(&refused), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("READONLY"));
    server.command("REPLICAOF NO ONE");
    super::recover(&redis, "k").await;
    assert_eq!(server.command("GET k"), "2");
}

/// A server that answers script calls with these replies in turn, then with 7; and counts the calls.
async fn pretend(timeout: &str, replies: &'static [&'static str]) -> (Redis, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let port = pretender::start(move |word| match word {
        "EVALSHA" => Some(replies.get(counter.fetch_add(1, Relaxed)).map_or(":7\r\n", |reply| reply).to_owned()),
        _ => None,
    });
    (open(&format!("redis://127.0.0.1:{}?timeout={timeout}", port.await)), calls)
}

#[tokio::test]
async fn a_server_that_is_not_ready_is_asked_again_within_the_budget() {
    let (redis, _) =
        pretend("5s", &["-LOADING dataset\r\n", "-TRYAGAIN keys\r\n", "-CLUSTERDOWN x\r\n", "-BUSY y\r\n"]).await;
    assert_eq!(add(&redis, "k").await, Ok(7));
    assert_eq!(redis.health().totals.retried, 4);
}

#[tokio::test]
async fn a_server_that_stays_not_ready_was_not_asked() {
    let (redis, _) = pretend("50ms", &["-LOADING dataset\r\n"; 100_000]).await;
    let failed = add(&redis, "k").await.unwrap_err();
    assert!(failed.to_string().ends_with("the server is not ready: LOADING dataset"), "{failed}");
    assert!(matches!(failed, CallError::NotSent { .. }));
}

#[tokio::test]
async fn what_before_redis_7_stands_inside_of_a_message_is_read() {
    const SAID: &str =
        "-ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a replica.\r\n";
    let (redis, _) = pretend("5s", &[SAID]).await;
    assert_eq!(add(&redis, "k").await, Ok(7));
    assert_eq!(redis.health().totals.connected, 2, "it was connected to anew");
}

#[tokio::test]
async fn a_redirection_outside_of_a_cluster_goes_nowhere_and_says_what_to_write() {
    let (redis, calls) = pretend("5s", &["-MOVED 5 127.0.0.1:1\r\n"; 100]).await;
    let failed = add(&redis, "k").await;
    assert!(is_not_sent(&failed));
    assert!(failed.unwrap_err().to_string().ends_with("write redis+cluster://"));
    assert_eq!(calls.load(Relaxed), 1);
}

#[tokio::test]
async fn nonsense_ends_the_connection_and_nothing_else() {
    let (redis, _) = pretend("5s", &["!?\r\n", "*x\r\n"]).await;
    for _ in 0..2 {
        let failed = add(&redis, "k").await;
        assert!(super::is_unknown(&failed), "{failed:?}");
    }
    super::recover(&redis, "k").await;
}
