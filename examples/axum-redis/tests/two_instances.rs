//! Two instances of the example and a real redis-server between them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

#[path = "../../support/process.rs"]
mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::Duration;

use process::{Process, complaint};

const EXAMPLE: &str = env!("CARGO_BIN_EXE_axum-redis");

/// A redis-server, and its port.
fn redis() -> (Process, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    (redis_at(port), port)
}

fn redis_at(port: u16) -> Process {
    let settings = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    let child = Command::new("redis-server").args(settings).stdout(Stdio::null()).spawn();
    let process = Process(child.unwrap_or_else(|error| panic!("redis-server: {error}: install it")));
    for _ in 0..500 {
        if answers(port) {
            return process;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("redis-server does not answer");
}

/// Whether it is Redis that listens: a port that was free a moment ago may be somebody else's, or the caller's own.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut pong = [0; 5];
    let asked = stream.set_read_timeout(Some(Duration::from_secs(1))).and_then(|()| stream.write_all(b"PING\r\n"));
    asked.and_then(|()| stream.read_exact(&mut pong)).is_ok() && &pong == b"+PONG"
}

/// An instance of the example, and its address.
fn instance(redis: u16) -> (Process, String) {
    // Enough for a machine that is busy with other tests.
    let url = format!("redis://127.0.0.1:{redis}?timeout=2s");
    Process::start(EXAMPLE, &[("REDIS_URL", &url), ("LISTEN", "127.0.0.1:0")])
}

/// The answer to a request of this user.
fn ask(address: &str, user: &str) -> String {
    process::ask(address, "GET /", &format!("x-user: {user}\r\n"))
}

fn status(address: &str, user: &str) -> u16 {
    process::status(&ask(address, user))
}

#[test]
fn instances_share_the_limit_and_go_on_without_redis() {
    let (server, port) = redis();
    let ((_one, one), (_two, two)) = (instance(port), instance(port));
    let statuses: Vec<u16> = [&one, &two, &one, &two, &one, &two].map(|address| status(address, "ann")).to_vec();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    let denied = ask(&one, "ann");
    let wait = denied.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
    assert!((1..=12).contains(&wait.parse::<u64>().unwrap()), "{denied}");
    assert_eq!(status(&two, "bob"), 200);
    assert_eq!(status(&one, ""), 400, "an empty key");
    drop(server);
    // Each goes on by itself, from the last state it knows of each user.
    assert_eq!([&one, &two].map(|address| status(address, "ann")), [429, 429]);
    let statuses = |address: &str| (0..6).map(|_| status(address, "bob")).collect::<Vec<u16>>();
    assert_eq!(statuses(&one), [200, 200, 200, 200, 200, 429], "it was not asked about bob");
    assert_eq!(statuses(&two), [200, 200, 200, 200, 429, 429], "it knows of one request of bob");
}

#[test]
fn that_redis_went_and_is_back_is_told() {
    let (server, port) = redis();
    let url = format!("redis://127.0.0.1:{port}?timeout=2s");
    let mut child = Command::new(EXAMPLE)
        .envs([("REDIS_URL", &*url), ("LISTEN", "127.0.0.1:0")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (tell, told) = mpsc::channel();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let _process = Process(child);
    std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let hear = |words: &str| {
        while !told.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("{words}")).contains(words) {}
    };
    assert_eq!(status(line.trim().strip_prefix("listening on ").unwrap(), "ann"), 200);
    hear("connected to the store");
    drop(server);
    hear("lost a connection to the store");
    let _server = redis_at(port);
    hear("connected to the store");
}

#[test]
fn what_is_set_wrong_is_told() {
    let told = complaint(EXAMPLE, &[("REDIS_URL", "redis:/127.0.0.1")]);
    let expected =
        "error: REDIS_URL: store URL: two slashes are missing after \"redis:\": write redis:// before the rest\n";
    assert_eq!(told, expected);
    let told = complaint(EXAMPLE, &[("LISTEN", "3000")]);
    assert!(told.starts_with("error: LISTEN: cannot listen on \"3000\": "), "{told}");
    assert!(
        told.ends_with("; use an address like 127.0.0.1:3000, or 127.0.0.1:0 for any port that is free\n"),
        "{told}"
    );
}
