//! Many callers for one key, on one connection to a server that is far away.

use std::time::Duration;

use tidegate_core::{Charge, Key, Limit};
use tidegate_testkit::servers::{Server, Setup};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Call;
use crate::redis::RedisStore;

const CALLERS: u64 = 50;
const CALLS: u64 = 20;

/// How much later replies come than from a server that is near. Many more than one are under way meanwhile.
const DISTANCE: Duration = Duration::from_millis(40);

/// Passes everything on to a server, replies after their way, and returns the port.
async fn far(server: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, server));
        }
    });
    port
}

async fn carry(client: TcpStream, server: u16) {
    let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
    let ((mut requests, mut to_client), (mut replies, mut to_server)) = (client.into_split(), server.into_split());
    let (sender, mut on_their_way) = mpsc::unbounded_channel();
    let reading = async {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = replies.read(&mut buffer).await {
            let _ = sender.send((Instant::now() + DISTANCE, buffer[..count].to_vec()));
        }
    };
    let writing = async {
        while let Some((due, bytes)) = on_their_way.recv().await {
            sleep_until(due).await;
            let _ = to_client.write_all(&bytes).await;
        }
    };
    let _ = tokio::join!(copy(&mut requests, &mut to_server), reading, writing);
}

async fn take(store: &RedisStore, key: &str, limit: &Limit) -> bool {
    let charge = Charge::take(Key::new(key).unwrap(), limit, 1);
    store.decide(&Call::default(), &[charge]).await.unwrap().is_allowed()
}

#[tokio::test]
async fn a_hot_key_costs_redis_a_fraction_and_is_still_exact() {
    let server = Server::start(&Setup::default());
    let url = format!("redis://127.0.0.1:{}?timeout=5s&wait=5s&links=1", far(server.port).await);
    let store = RedisStore::open(&url.parse().unwrap()).unwrap();
    let limit = Limit::fixed_window(CALLERS * CALLS / 3, Duration::from_secs(30 * 86_400)).unwrap();
    take(&store, "first", &limit).await;
    server.command("CONFIG RESETSTAT");
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let store = store.clone();
        callers.spawn(async move {
            let mut allowed = 0;
            for number in 0..CALLS {
                // Callers that do something else in between come one by one and not in crowds.
                sleep(Duration::from_millis((caller * 7 + number * 3) % 41)).await;
                allowed += u64::from(take(&store, "hot", &limit).await);
            }
            allowed
        });
    }
    let allowed: u64 = callers.join_all().await.into_iter().sum();
    let stats = server.command("INFO commandstats");
    let calls = stats.split("cmdstat_evalsha:calls=").nth(1).and_then(|rest| rest.split(',').next());
    let commands: u64 = calls.unwrap().parse().unwrap();
    println!("{commands} commands for {} decisions", CALLERS * CALLS);
    assert_eq!(allowed, CALLERS * CALLS / 3);
    assert!(commands * 5 <= CALLERS * CALLS, "{commands} commands");
}
