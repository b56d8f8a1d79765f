//! The listener for Redis clients, over real sockets. To accept changed snapshots:
//! `INSTA_UPDATE=always cargo test -p tidegate-server`.

// clippy.toml allows it in test functions, not in those that they share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod connections;
mod conversations;
mod throttle;

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_core::FakeClock;
use tidegate_engine::{Engine, Options};
use tidegate_policy::{LoadOptions, load_text};
use tidegate_server::{Drainer, Listener, RespDoor, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What TIDEGATE.CHECK is asked about.
const RULES: &str = "
domains:
  api:
    rules:
      - {name: bad, match: {entries: {user: mallory}}, action: block}
      - {name: internal, match: {entries: {user: cron}}, action: unlimited}
      - {name: per-user, match: {entries: {user: '*'}}, key: {entry: user}, limit: 3/minute}
      - {name: per-plan, match: {entries: {plan: '*'}}, key: {entry: plan}, limit: {algorithm: fixed_window, rate: 2/hour}}
      - {name: logins, match: {entries: {login: '*'}}, key: {entry: login}, penalty: 10m, limit: 1/minute}
      - {name: tried, match: {entries: {tried: '*'}}, key: {entry: tried}, mode: shadow, limit: 1/minute}
      - {name: vast, match: {entries: {vast: '*'}}, limit: {rate: 10000000/second, burst: 9007199254740992}}
      - {name: quiet, match: {entries: {quiet: '*'}}, limit: 1/minute, response: {hidden: true}}
";

/// A server on a port of its own, on the runtime of the test.
struct Server {
    address: SocketAddr,
    clock: FakeClock,
    drainer: Arc<Drainer>,
}

impl Server {
    fn start(password: Option<&str>) -> Server {
        Server::behind(|listener| listener, password)
    }

    /// One with another listener.
    fn behind(listen: impl FnOnce(Listener) -> Listener, password: Option<&str>) -> Server {
        let clock = FakeClock::new();
        let options = Options { clock: clock.clone().into(), keys: Some(1_000), ..Options::default() };
        let engine = Engine::new(options).unwrap();
        let loaded = load_text("rules.yaml", RULES, &LoadOptions::default());
        engine.install(loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))).unwrap();
        let service = Arc::new(Service::new(engine));
        let listener = listen(Listener::bind("resp", "127.0.0.1:0".parse().unwrap()).unwrap());
        let address = listener.address().unwrap();
        let (drainer, drain) = Drainer::new();
        let door = Arc::new(RespDoor::new(service).with_password(password.map(str::to_owned)));
        tokio::spawn(async move { listener.accept(door, drain).await });
        Server { address, clock, drainer: Arc::new(drainer) }
    }

    async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap(), Arc::clone(&self.drainer))
    }
}

/// A connection, and the server's drainer: dropping it would end the server.
struct Client(TcpStream, #[allow(dead_code, reason = "it is only kept")] Arc<Drainer>);

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads exactly so many bytes.
    async fn read(&mut self, count: usize) -> String {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads one reply.
    async fn reply(&mut self) -> String {
        let mut reply = Vec::new();
        while !is_whole(&reply) {
            assert_ne!(self.0.read_buf(&mut reply).await.unwrap(), 0, "closed after {reply:?}");
        }
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// Reads until the server closes.
    async fn read_all(&mut self) -> String {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends a typed line and checks the reply.
    async fn expect(&mut self, line: &str, reply: &str) {
        self.send(format!("{line}\r\n")).await;
        assert_eq!(self.read(reply.len()).await, reply, "{line}");
    }
}

/// All replies to an input, after which the client says no more.
async fn talk(password: Option<&str>, input: impl AsRef<[u8]>) -> String {
    let mut client = Server::start(password).connect().await;
    client.send(input).await;
    client.0.shutdown().await.unwrap();
    client.read_all().await
}

/// The lines of a conversation, each with the reply to it.
async fn conversation(password: Option<&str>, lines: &[&str]) -> String {
    let mut client = Server::start(password).connect().await;
    let mut told = String::new();
    for line in lines {
        client.send(format!("{line}\r\n")).await;
        told.push_str(&format!("> {line}\n{}\n", client.reply().await.replace("\r\n", "\n").trim_end()));
    }
    told
}

/// Whether the bytes are one reply, from its first to its last.
fn is_whole(bytes: &[u8]) -> bool {
    after_reply(bytes) == Some(&[])
}

/// What follows the first reply; none if it is not there whole.
fn after_reply(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, mut rest) = (std::str::from_utf8(&bytes[1..end]).unwrap(), &bytes[end + 2..]);
    match bytes[0] {
        b'$' | b'=' if line != "-1" => rest.get(line.parse::<usize>().unwrap() + 2..),
        kind @ (b'*' | b'%') => {
            let times = if kind == b'%' { 2 } else { 1 };
            for _ in 0..line.parse::<usize>().unwrap() * times {
                rest = after_reply(rest)?;
            }
            Some(rest)
        }
        _ => Some(rest),
    }
}
