//! Two instances of the example and a real redis-server between them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// A process that ends with its value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A redis-server, and its port.
fn redis() -> (Process, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    let child = Command::new("redis-server").args(settings).stdout(Stdio::null()).spawn();
    let process = Process(child.unwrap_or_else(|error| panic!("redis-server: {error}: install it")));
    for _ in 0..500 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return (process, port);
        }
        sleep(Duration::from_millis(10));
    }
    panic!("redis-server does not listen");
}

/// An instance of the example, and its address.
fn instance(redis: u16) -> (Process, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_axum-redis"))
        // Enough for a machine that is busy with other tests.
        .env("REDIS_URL", format!("redis://127.0.0.1:{redis}?timeout=2s"))
        .env("LISTEN", "127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Process(child), line.trim().strip_prefix("listening on ").unwrap().to_owned())
}

/// The answer to a request of this user.
fn ask(address: &str, user: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nhost: x\r\nx-user: {user}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn status(address: &str, user: &str) -> u16 {
    ask(address, user).split(' ').nth(1).unwrap().parse().unwrap()
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
    // Each holds the limit by itself now.
    let statuses: Vec<u16> = (0..6).map(|_| status(&one, "ann")).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    assert_eq!(status(&two, "ann"), 200);
}
