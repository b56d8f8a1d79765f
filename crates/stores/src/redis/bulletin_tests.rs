//! Notices of nodes in real servers.

use std::time::Duration;

use tidegate_testkit::servers::{Cluster, Server, Setup};
use tidegate_testkit::wait::eventually;

use super::store::RedisStore;
use crate::{Bulletin, Call, NOTICE_BYTES_MAX, NOTICES_MAX, Notice, Posting, StoreError};

const MINUTE: Duration = Duration::from_secs(60);

fn at(server: &Server) -> RedisStore {
    RedisStore::open(&format!("redis://127.0.0.1:{}?timeout=5s", server.port).parse().unwrap()).unwrap()
}

async fn publish(store: &RedisStore, node: &str, bytes: &[u8], ttl: Duration) {
    let notice = Notice { node, topic: "top", bytes, ttl };
    store.publish(&Call::default(), &notice).await.unwrap();
}

async fn read(store: &RedisStore, node: &str) -> Option<Posting> {
    store.read(&Call::default(), "top", node).await.unwrap()
}

/// The nodes with a notice, in the order of their names.
async fn nodes(store: &RedisStore) -> Vec<String> {
    let posted = store.posted(&Call::default(), "top").await.unwrap();
    let mut nodes: Vec<String> = posted.into_iter().map(|posted| posted.node.into()).collect();
    nodes.sort();
    nodes
}

async fn check_notices(here: &RedisStore, there: &RedisStore) {
    assert_eq!((nodes(here).await, read(here, "a").await), (vec![], None));
    let bytes = b"\0\r\n\xff{}";
    publish(here, "a", bytes, MINUTE).await;
    publish(there, "b", b"", MINUTE).await;
    assert_eq!(nodes(here).await, ["a", "b"]);
    let first = read(there, "a").await.unwrap();
    assert_eq!(first.bytes, bytes);
    assert!(first.age < Duration::from_secs(5), "{first:?}");
    assert_eq!(read(here, "b").await.unwrap().bytes, b"");
    assert_eq!(here.read(&Call::default(), "other", "a").await.unwrap(), None, "topics are apart");
    let versions = || async {
        let posted = here.posted(&Call::default(), "top").await.unwrap();
        posted.into_iter().find(|posted| &*posted.node == "a").map(|posted| posted.version)
    };
    assert_eq!(versions().await, Some(first.version));
    publish(here, "a", b"anew", MINUTE).await;
    let second = read(there, "a").await.unwrap();
    assert_eq!((&second.bytes[..], versions().await), (&b"anew"[..], Some(second.version)));
    assert_ne!(first.version, second.version);
    publish(here, "a", b"", Duration::ZERO).await;
    publish(here, "unknown", b"", Duration::ZERO).await;
    assert_eq!((nodes(there).await, read(there, "a").await), (vec!["b".to_owned()], None));
}

#[tokio::test]
async fn nodes_read_what_others_publish() {
    let server = Server::start(&Setup::default());
    check_notices(&at(&server), &at(&server)).await;
}

#[tokio::test]
async fn a_topic_has_one_slot_of_a_cluster() {
    let cluster = Cluster::start(5_000);
    let url = format!("redis+cluster://{}?timeout=5s", cluster.hosts());
    let store = || RedisStore::open(&url.parse().unwrap()).unwrap();
    check_notices(&store(), &store()).await;
}

#[tokio::test]
async fn notices_end_with_their_time() {
    let server = Server::start(&Setup::default());
    let store = at(&server);
    publish(&store, "long", b"x", MINUTE).await;
    publish(&store, "short", b"x", Duration::from_millis(50)).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!((nodes(&store).await, read(&store, "short").await), (vec!["long".to_owned()], None));
    assert_eq!(server.command("HLEN tidegate{top}/bulletin:notices"), "1");
    publish(&store, "long", b"x", Duration::from_millis(50)).await;
    assert!(eventually(|| server.command("DBSIZE") == "0"), "{}", server.command("KEYS *"));
}

#[tokio::test]
async fn notices_are_bounded() {
    let server = Server::start(&Setup::default());
    let store = at(&server);
    let long = vec![b'x'; NOTICE_BYTES_MAX];
    publish(&store, "long", &long, MINUTE).await;
    assert_eq!(read(&store, "long").await.unwrap().bytes, long);
    let longer = [&long[..], b"x"].concat();
    let notice = Notice { node: "long", topic: "top", bytes: &longer, ttl: MINUTE };
    let refused = store.publish(&Call::default(), &notice).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unsupported { .. }), "{refused}");
    // The one that ends first makes room, and a node that has a notice needs none.
    for number in 0..NOTICES_MAX {
        publish(&store, &format!("node{number}"), b"x", 2 * MINUTE).await;
    }
    publish(&store, "node0", b"y", 2 * MINUTE).await;
    let nodes = nodes(&store).await;
    assert_eq!((nodes.len(), nodes.contains(&"long".to_owned())), (NOTICES_MAX, false));
    assert_eq!(server.command("HLEN tidegate{top}/bulletin:notices"), NOTICES_MAX.to_string());
}
