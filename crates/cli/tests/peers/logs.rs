//! The log of a server that strangers make write: how much, and what if nobody reads it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use tidegate_testkit::http::Connection;
use tidegate_testkit::process::directory;
use tidegate_testkit::tidegate::{Tidegate, binary};
use tidegate_testkit::wait::eventually;
use tokio::time::Instant;

const REFUSED_CALLS: usize = 10_000;

/// Longest line about a refused call, with its time and all fields.
const LINE_BYTES_MAX: usize = 400;

/// What a client may wait for an answer while nobody reads the log.
const PROMPT: Duration = Duration::from_secs(1);

/// What starts a connection of HTTP/2: its preface and empty settings.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Has a call of administrators refused, as one through a proxy.
fn refuse(connection: &mut Connection, method: &str, path: &str) -> u16 {
    connection.ask(method, path, &["x-forwarded-for: 192.0.2.1"], "{}").unwrap().status
}

#[test]
fn refused_admin_calls_write_few_and_short_lines() {
    let tidegate = Tidegate::start(&[]);
    let mut connection = Connection::open(tidegate.http).unwrap();
    // The longest path that is still one of administrators.
    let path = format!("/v1/rules/{}/{}/mode", "d".repeat(6_000), "r".repeat(6_000));
    let started = Instant::now();
    for _ in 0..REFUSED_CALLS / 2 {
        assert_eq!(refuse(&mut connection, "POST", "/v1/reset"), 403);
        assert_eq!(refuse(&mut connection, "PUT", &path), 403);
    }
    let seconds = usize::try_from(started.elapsed().as_secs()).unwrap() + 1;
    let log = tidegate.process.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("refused")).collect();
    println!("{} lines in {seconds} s, {} bytes", lines.len(), log.len());
    assert!((1..=3 * (seconds + 1)).contains(&lines.len()), "{} lines in {seconds} s", lines.len());
    let longest = lines.iter().map(|line| line.len()).max();
    assert!(longest < Some(LINE_BYTES_MAX), "{longest:?} bytes");
}

/// A server at the level `debug` whose stderr is a pipe, and an end of the pipe that is not read.
fn with_unread_log(directory: &Path) -> (Tidegate, File) {
    let pipe = directory.join("stderr");
    mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
    let mut options = OpenOptions::new();
    let no_waiting = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    let unread = options.read(true).write(true).custom_flags(no_waiting).open(&pipe).unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "exec \"$0\" \"$@\" 2> \"$LOG\""]).arg(binary()).env_clear().env("LOG", pipe);
    (Tidegate::start_by(command, &["--log-level", "debug", "--drain-delay", "0"]), unread)
}

/// Fills a pipe.
fn fill(mut pipe: &File) {
    let room = [b'\n'; 4096];
    while pipe.write(&room).is_ok() {}
    while pipe.write(&room[..1]).is_ok() {}
}

/// Starts a connection of HTTP/2, of which the server logs each frame at the level `debug`, and waits for its settings.
fn greet(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PROMPT)).unwrap();
    stream.write_all(HTTP2_PREFACE).unwrap();
    stream.read_exact(&mut [0; 9]).expect("the settings of the server");
}

#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    let files = directory();
    let (mut tidegate, unread) = with_unread_log(files.path());
    fill(&unread);
    let dropped = || tidegate.metric("tidegate_log_dropped_total").unwrap();
    let mut calls = 0;
    while calls < 1_000 && (calls < 100 || dropped() == 0.0) {
        let asked = Instant::now();
        assert_eq!(refuse(&mut Connection::open(tidegate.http).unwrap(), "POST", "/v1/reset"), 403);
        greet(tidegate.grpc);
        calls += 1;
        assert!(asked.elapsed() < PROMPT, "call {calls} took {:?}", asked.elapsed());
    }
    println!("{} lines dropped after {calls} calls", dropped());
    assert!(dropped() > 0.0);
    // Somebody reads it again, and learns that lines are missing.
    let mut log = Vec::new();
    let told = || {
        let _ = (&unread).read_to_end(&mut log);
        String::from_utf8_lossy(&log).contains("log lines were dropped")
    };
    assert!(eventually(told), "nothing is said of lines that were dropped");
    // And it does not keep a server from ending.
    fill(&unread);
    let stopped = Instant::now();
    tidegate.process.signal(rustix::process::Signal::TERM);
    assert!(tidegate.process.ended().success());
    assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
}
