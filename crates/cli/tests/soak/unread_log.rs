//! Strangers who make the server write to a log that nobody reads.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::process::Signal;
use tidegate_testkit::http::Connection;
use tidegate_testkit::process::directory;
use tidegate_testkit::tidegate::{Tidegate, binary};

use crate::http2::greeting;
use crate::load::{PLENTY, Server, Stop, milliseconds, probe, resident};
use crate::report::{Progress, Watch};

/// How long the flood lasts.
const FLOOD: Duration = Duration::from_secs(8);
/// Connections that send admin calls which are refused.
const STRANGERS: usize = 4;
/// Megabytes that the server may grow by.
const GROWTH: f64 = 20.0;

/// A pipe for the server to log to. Nobody reads it.
fn unread_pipe(directory: &std::path::Path) -> File {
    let path = directory.join("log");
    mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)).unwrap();
    let no_waiting = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    OpenOptions::new().read(true).write(true).custom_flags(no_waiting).open(&path).unwrap()
}

/// Writes to a pipe until no byte more fits.
fn fill(mut pipe: &File) {
    for size in [4096, 1] {
        while pipe.write(&[b'\n'; 4096][..size]).is_ok() {}
    }
}

/// Has admin calls refused, as fast as they are answered, and opens connections of HTTP/2, of which each frame is logged at
/// the level `debug`. Returns the longest time that an answer took.
fn flood(server: &Server, stop: &Stop, calls: &AtomicU64) -> Duration {
    let (mut connection, mut slowest) = (Connection::open(server.http).unwrap(), Duration::ZERO);
    while !stop.is_now() {
        let watch = Watch::start();
        let answer = connection.ask("POST", "/v1/reset", &["x-forwarded-for: 192.0.2.1"], "{}").unwrap();
        assert_eq!(answer.status, 403, "{answer:?}");
        slowest = slowest.max(watch.elapsed());
        if calls.fetch_add(1, Ordering::Relaxed) % 100 == 0 {
            let mut stream = TcpStream::connect(server.grpc).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            stream.write_all(&greeting()).unwrap();
            stream.read_exact(&mut [0; 9]).expect("the settings of the server");
        }
    }
    slowest
}

pub(crate) fn a_log_that_nobody_reads_holds_nobody_up(progress: &mut Progress) {
    let place = directory();
    let pipe = unread_pipe(place.path());
    let mut command = Command::new("/bin/sh");
    let log = place.path().join("log");
    command.args(["-c", "exec \"$0\" \"$@\" 2> \"$LOG\""]).arg(binary()).env_clear().env("LOG", log);
    let arguments = ["--log-level", "debug", "--drain-delay", "0"];
    let mut server = Server::start_by(PLENTY, &arguments, |all| Tidegate::start_by(command, all));
    let quiet = probe(&server, Duration::from_secs(2));
    fill(&pipe);
    let (before, mut most) = (resident(&server), 0.0_f64);
    let (stop, calls) = (Stop::default(), AtomicU64::new(0));
    let (others, slowest) = std::thread::scope(|scope| {
        let floods: Vec<_> = (0..STRANGERS).map(|_| scope.spawn(|| flood(&server, &stop, &calls))).collect();
        let at_the_end = stop.at_the_end();
        let others = scope.spawn(|| probe(&server, FLOOD));
        while !others.is_finished() {
            most = most.max(resident(&server));
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(at_the_end);
        let slowest = floods.into_iter().map(|flood| flood.join().unwrap()).max();
        (others.join().unwrap(), slowest.unwrap())
    });
    let dropped = server.metric("tidegate_log_dropped_total").unwrap();
    progress.figure("refused admin calls while nobody reads the log", calls.into_inner(), "all answered");
    progress.figure("log lines dropped and counted", dropped, "> 0");
    progress.figure("the slowest refusal", milliseconds(slowest), "≤ 1 s");
    progress.figure("others' p50 / p99 before", quiet.summary(), "");
    progress.figure("others' p50 / p99 meanwhile", others.summary(), "p99 < 250 ms");
    progress.figure("growth", format!("{:.1} MB", most - before), "≤ 20 MB");
    assert!(dropped > 0.0 && slowest <= Duration::from_secs(1), "{dropped}, {slowest:?}");
    assert!(others.p99() < Duration::from_millis(250) && most - before <= GROWTH, "{}, {most} MB", others.summary());
    let watch = Watch::start();
    server.process.signal(Signal::TERM);
    assert!(server.tidegate.process.ended().success());
    progress.figure("the end, with the log still unread", milliseconds(watch.elapsed()), "≤ 5 s");
    assert!(watch.elapsed() < Duration::from_secs(5));
    drop(pipe);
}
