//! Commands of a pipeline allocate nothing where nobody observes decisions.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::path::Path;
use std::sync::Arc;

use tidegate_core::FakeClock;
use tidegate_engine::{Engine, Options};
use tidegate_server::{DecisionLog, Drainer, Listener, RespDoor, Service};
use tidegate_testkit::counting::{Counting, allocated};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Commands that are sent at once.
const COMMANDS: usize = 64;

/// How often a pipeline asks for memory once the buffers of its connection have grown.
async fn asked(log: Option<&Path>) -> u64 {
    let options = Options { clock: FakeClock::new().into(), keys: Some(1_000), ..Options::default() };
    let mut service = Service::new(Engine::new(options).unwrap());
    service.decision_log = log.map(|path| DecisionLog::open(path, 1).unwrap());
    let listener = Listener::bind("resp", "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let (_drainer, drain) = Drainer::new();
    let door = Arc::new(RespDoor::new(Arc::new(service)));
    // On this thread, whose requests for memory are counted.
    let serving = tokio::spawn(async move { listener.accept(door, drain).await });
    let mut client = TcpStream::connect(address).await.unwrap();
    let commands = "CL.THROTTLE user:42 9999 10000 3600\r\n".repeat(COMMANDS);
    let mut replies = vec![0; 64 * 1024];
    let mut last = 0;
    for _ in 0..8 {
        let before = allocated();
        client.write_all(commands.as_bytes()).await.unwrap();
        let mut lines = 0;
        while lines < COMMANDS * 6 {
            let count = client.read(&mut replies).await.unwrap();
            lines += replies[..count].iter().filter(|byte| **byte == b'\n').count();
        }
        last = allocated() - before;
    }
    drop(client);
    serving.abort();
    let _ = serving.await;
    last
}

#[tokio::test]
async fn a_pipeline_allocates_nothing_unless_decisions_are_observed() {
    assert_eq!(asked(None).await, 0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    assert!(asked(Some(&path)).await >= COMMANDS as u64, "each line is made");
}
