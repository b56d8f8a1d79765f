//! Told to stop under load, the server says first that it is not ready, and answers everything that it has begun.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tidegate_testkit::http::{Connection, get};
use tidegate_testkit::process::directory;
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::eventually;
use tokio::time::Instant;

use crate::clients::python;

/// Asks until the server is gone. No request of a connection that is open is lost: the server says with an answer that it
/// was the last one. Only a new connection may have come too late to be accepted, once the server has said that it is not
/// ready.
fn ask_until_gone(address: SocketAddr, answered: &AtomicU64, unready: &AtomicBool) {
    while let Ok(mut connection) = Connection::open(address) {
        for number in 0.. {
            match connection.ask("GET", "/v1/check?key=drain&rate=100000/second", &[], "") {
                Ok(answer) => {
                    assert_eq!(answer.status, 200, "{answer:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                    if answer.header("connection") == Some("close") {
                        break;
                    }
                }
                Err(error) => {
                    assert_eq!(number, 0, "a request on an open connection was lost: {error}");
                    assert!(unready.load(Ordering::SeqCst), "a request failed while it was ready: {error}");
                    break;
                }
            }
        }
    }
    assert!(unready.load(Ordering::SeqCst), "gone before it said that it is not ready");
}

/// The same with the protocol of Redis, four commands at once: all of them are answered or none.
fn throttle_until_gone(address: SocketAddr, answered: &AtomicU64, unready: &AtomicBool) {
    while let Ok(mut stream) = TcpStream::connect(address) {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        loop {
            let asked = stream.write_all("CL.THROTTLE drain 1000000 1000000 1\r\n".repeat(4).as_bytes());
            let count = asked.map_or(0, |()| lines.by_ref().take(4 * 6).map_while(Result::ok).count());
            if count == 0 {
                assert!(unready.load(Ordering::SeqCst), "a command failed while it was ready");
                break;
            }
            assert_eq!(count, 4 * 6, "commands that came together are answered together");
            answered.fetch_add(4, Ordering::Relaxed);
        }
    }
}

#[test]
fn it_says_so_first_and_finishes() {
    let mut tidegate = Tidegate::start(&["--drain-delay", "2"]);
    let Tidegate { http, resp, .. } = tidegate;
    let (answered, throttled, unready) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    assert_eq!(get(http, "/readyz").status, 200);
    let mut watcher = python("health_watch.py", &[&tidegate.grpc.to_string()]).stdout(Stdio::piped()).spawn().unwrap();
    let mut changes = BufReader::new(watcher.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(changes.next().as_deref(), Some("SERVING"));
    std::thread::scope(|scope| {
        for _ in 0..80 {
            scope.spawn(|| ask_until_gone(http, &answered, &unready));
        }
        scope.spawn(|| throttle_until_gone(resp, &throttled, &unready));
        assert!(eventually(|| [&answered, &throttled].iter().all(|count| count.load(Ordering::Relaxed) > 100)));
        tidegate.process.signal(Signal::TERM);
        assert!(eventually(|| get(http, "/readyz").status == 503), "it stays ready");
        assert_eq!(get(http, "/healthz").status, 200, "it is alive all the same");
        let before = answered.load(Ordering::Relaxed);
        assert!(eventually(|| answered.load(Ordering::Relaxed) > before), "it answers while it is not ready");
        unready.store(true, Ordering::SeqCst);
        assert_eq!(changes.next().as_deref(), Some("NOT_SERVING"));
        assert!(tidegate.process.ended().success());
    });
    assert_eq!(changes.collect::<Vec<_>>(), ["closed"]);
    watcher.wait().unwrap();
}

/// While a request is finished, who comes is refused at once instead of waiting for nothing.
#[test]
fn it_listens_no_longer_than_it_accepts() {
    let mut tidegate = Tidegate::start(&["--drain-delay", "0"]);
    let mut slow = TcpStream::connect(tidegate.http).unwrap();
    slow.write_all(b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 35\r\n\r\n{\"key\":").unwrap();
    assert_eq!(get(tidegate.http, "/healthz").status, 200);
    tidegate.process.signal(Signal::TERM);
    for address in [tidegate.http, tidegate.grpc, tidegate.resp] {
        assert!(eventually(|| TcpStream::connect(address).is_err()), "{address} is listened on");
    }
    slow.write_all(b"\"slow\",\"limit\":\"100/minute\"}").unwrap();
    let first = BufReader::new(slow).lines().next();
    assert_eq!(first.unwrap().unwrap(), "HTTP/1.1 200 OK", "what was under way is finished");
    assert!(tidegate.process.ended().success());
}

/// A client that holds its connection and says nothing does not keep the server from ending.
#[test]
fn idle_connections_do_not_hold_it() {
    let mut tidegate = Tidegate::start(&["--drain-delay", "0"]);
    let mut kept = Connection::open(tidegate.http).unwrap();
    assert_eq!(kept.ask("GET", "/healthz", &[], "").unwrap().status, 200);
    let _silent = std::net::TcpStream::connect(tidegate.http).unwrap();
    let _redis = std::net::TcpStream::connect(tidegate.resp).unwrap();
    tidegate.process.signal(Signal::TERM);
    assert!(tidegate.process.ended().success());
}

/// A stop is heard while a large file is loaded, and nobody waits for the end of that.
#[test]
fn it_does_not_finish_a_load() {
    let directory = directory();
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, "domains: {}").unwrap();
    let mut tidegate = Tidegate::with_config(&path, &["--drain-delay", "0"]);
    // Reading them takes far longer than the pause below.
    let rule = |number: usize| format!("    - {{name: r{number}, key: {{entry: user}}, limit: 5/minute}}\n");
    let rules: String = (0..50_000).map(rule).collect();
    std::fs::write(&path, format!("domains:\n  api:\n    rules:\n{rules}")).unwrap();
    tidegate.process.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(200));
    tidegate.process.signal(Signal::TERM);
    assert!(tidegate.process.ended().success());
    let log = tidegate.process.log();
    assert!(log.contains("stopping"), "{log}");
    // One line is about the configuration of the start.
    assert_eq!(log.matches("configuration").count(), 1, "it has waited for the load: {log}");
}

/// Supervisors send a signal twice, to the process and to its group. Whoever means it sends another one later.
#[test]
fn a_second_signal_cuts_the_drain_short_only_if_it_comes_later() {
    let start = || {
        let tidegate = Tidegate::start(&["--drain-delay", "3"]);
        for signal in [Signal::TERM, Signal::TERM, Signal::INT, Signal::TERM] {
            tidegate.process.signal(signal);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(eventually(|| get(tidegate.http, "/readyz").status == 503), "it is not told to stop");
        tidegate
    };
    let (mut waits, told) = (start(), Instant::now());
    assert!(waits.process.ended().success());
    assert!(told.elapsed() > Duration::from_secs(2), "gone after {:?}", told.elapsed());
    assert!(!waits.process.log().contains("second signal to stop"), "{}", waits.process.log());
    let (mut is_cut, told) = (start(), Instant::now());
    std::thread::sleep(Duration::from_millis(700));
    is_cut.process.signal(Signal::TERM);
    assert!(is_cut.process.ended().success());
    assert!(told.elapsed() < Duration::from_millis(2_500), "{:?}", told.elapsed());
    assert!(is_cut.process.log().contains("second signal to stop"), "{}", is_cut.process.log());
}
