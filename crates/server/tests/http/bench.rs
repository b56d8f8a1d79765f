//! A server of its own for each test, and a client that speaks bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_core::{FakeClock, Time};
use tidegate_engine::{Engine, Options};
use tidegate_policy::{LoadOptions, load_text};
use tidegate_server::{Drainer, HttpDoor, Listener, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const RULES: &str = r#"
domains:
  api:
    rules:
    - {name: per-user, match: {entries: {user: '*'}}, key: {entry: user}, limit: 3/minute}
    - {name: trial, match: {entries: {user: '*'}}, key: {entry: user}, mode: shadow, limit: 1/minute}
    - {name: banned, match: {entries: {ban: '*'}}, action: block}
    - {name: staff, match: {entries: {staff: '*'}}, action: unlimited}
    - {name: quiet, match: {entries: {quiet: '*'}}, limit: 1/minute, response: {hidden: true}}
    - {name: plain, match: {entries: {plain: '*'}}, limit: 1/minute, response: {problem: false, headers: legacy}}
    - {name: trail, match: {entries: {trail: '*'}}, key: {entry: trail}, limit: {algorithm: sliding_log, rate: 5/minute}}
    - {name: guess, match: {entries: {guess: '*'}}, key: {entry: guess}, count: 'response.status == 401', penalty: 10m, limit: 2/hour}
  web:
    rules:
    - {name: login, match: {path: /login, method: POST}, key: address, limit: 2/minute}
    - {name: plan, match: {entries: {plan: free}}, key: address, limit: 1/minute}
"#;

pub(crate) struct Bench {
    pub(crate) address: SocketAddr,
    pub(crate) service: Arc<Service>,
    pub(crate) clock: FakeClock,
    pub(crate) drainer: Drainer,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(RULES)
    }

    /// Behind a listener that says it has another address than loopback.
    pub(crate) fn afar() -> Bench {
        Bench::start(RULES, false, |door| door.listening_on("192.0.2.1:80".parse().unwrap()))
    }

    pub(crate) fn with_token(token: &str) -> Bench {
        Bench::start(RULES, false, |door| door.with_admin_token(Some(token.to_owned())))
    }

    pub(crate) fn without_reports() -> Bench {
        Bench::start(RULES, false, |door| door.with_reports(false))
    }

    pub(crate) fn with(rules: &str) -> Bench {
        Bench::start(rules, false, |door| door)
    }

    /// One that denies nothing at all.
    pub(crate) fn in_shadow(rules: &str) -> Bench {
        Bench::start(rules, true, |door| door)
    }

    /// One whose default store is shared, under this URL.
    pub(crate) fn with_store(rules: &str, url: &str) -> Bench {
        let options = Options { store: Some(url.into()), ..Options::default() };
        Bench::start_on(|listener| listener, options, rules, |door| door)
    }

    /// One that keeps some hundred denials, for administrators with this token.
    pub(crate) fn that_explains(rules: &str, shadow: bool, token: Option<&str>) -> Bench {
        let options = Options { shadow, explain_bytes: 1, ..Options::default() };
        Bench::start_on(|listener| listener, options, rules, |door| door.with_admin_token(token.map(str::to_owned)))
    }

    /// One with another listener.
    pub(crate) fn behind(listen: impl FnOnce(Listener) -> Listener) -> Bench {
        Bench::start_on(listen, Options::default(), "domains: {}", |door| door)
    }

    fn start(rules: &str, shadow: bool, set_up: impl FnOnce(HttpDoor) -> HttpDoor) -> Bench {
        Bench::start_on(|listener| listener, Options { shadow, ..Options::default() }, rules, set_up)
    }

    fn start_on(
        listen: impl FnOnce(Listener) -> Listener,
        options: Options,
        rules: &str,
        set_up: impl FnOnce(HttpDoor) -> HttpDoor,
    ) -> Bench {
        let clock = FakeClock::at(Time::from_nanos(1_700_000_000_000_000_000));
        let options = Options { clock: clock.clone().into(), keys: Some(10_000), ..options };
        let engine = Engine::new(options).unwrap();
        let loaded = load_text("test.yaml", rules, &LoadOptions::default());
        engine.install(loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))).unwrap();
        let service = Arc::new(Service::new(engine));
        service.set_ready(true);
        let listener = listen(Listener::bind("http", "127.0.0.1:0".parse().unwrap()).unwrap());
        service.traffic.watch(&listener);
        let address = listener.address().unwrap();
        let door = Arc::new(set_up(HttpDoor::new(Arc::clone(&service)).listening_on(address)));
        let (drainer, drain) = Drainer::new();
        tokio::spawn(async move { listener.accept(door, drain).await.unwrap() });
        Bench { address, service, clock, drainer }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes, and gives all that comes back until the connection is closed.
    pub(crate) async fn raw(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        // The server may have closed it already, because of what it read so far.
        let _ = stream.write_all(bytes.as_ref()).await;
        read_all(&mut stream).await
    }

    /// Asks, and gives the answer without its date.
    pub(crate) async fn ask(&self, head: &str, headers: &[&str], body: &str) -> String {
        let has_host = headers.iter().any(|header| header.to_ascii_lowercase().starts_with("host:"));
        let host = if has_host { "" } else { "host: localhost\r\n" };
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = body.len();
        self.raw(format!(
            "{head} HTTP/1.1\r\n{host}{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path}"), &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> String {
        self.ask(&format!("POST {path}"), &[], body).await
    }
}

/// Everything until the end of the connection, without dates and in lines.
pub(crate) async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset has ended as well.
    let _ = stream.read_to_end(&mut bytes).await;
    tidy(&String::from_utf8(bytes).unwrap())
}

fn tidy(answer: &str) -> String {
    let lines = answer.split("\r\n").filter(|line| !line.starts_with("date:") && *line != "connection: close");
    lines.collect::<Vec<_>>().join("\n")
}

/// The status of an answer.
pub(crate) fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

/// The body of an answer.
pub(crate) fn body(answer: &str) -> serde_json::Value {
    let (_, body) = answer.split_once("\n\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("not JSON: {body}"))
}

/// The detail of an answer that says what is wrong, after its status.
pub(crate) fn wrong(answer: &str) -> String {
    let told = body(answer);
    assert_eq!(told["status"], status(answer), "{answer}");
    format!("{} {}", status(answer), told["detail"].as_str().unwrap_or_else(|| panic!("no detail: {answer}")))
}
