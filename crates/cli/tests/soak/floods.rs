//! Floods of HTTP/2 frames that are cheap to send: the server closes the connection or its memory does not grow, and it
//! still answers other clients.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, greeting,
    head, literal,
};
use crate::load::{PLENTY, Server, Stop, milliseconds, probe, resident};
use crate::report::{Progress, Watch};

/// Duration of each flood, on one connection after the other.
const FLOOD: Duration = Duration::from_secs(4);
/// Largest growth of the server's memory, in megabytes.
const GROWTH: f64 = 20.0;

struct Flood {
    name: &'static str,
    /// The first bytes on each connection.
    start: fn() -> Vec<u8>,
    /// The bytes that are repeated; the number makes new streams.
    again: fn(u32) -> Vec<u8>,
    /// Whether the server must close such a connection.
    must_end: bool,
}

const FLOODS: [Flood; 8] = [
    Flood {
        name: "rapid reset",
        start: Vec::new,
        again: |number| {
            let stream = 2 * number + 1;
            let open = frame(HEADERS, END_HEADERS, stream, &head());
            [open, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        },
        must_end: true,
    },
    Flood {
        name: "calls that cause a reset",
        start: Vec::new,
        again: |number| {
            let stream = 2 * number + 1;
            let open = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head());
            [open, frame(DATA, 0, stream, b"after the end")].concat()
        },
        must_end: true,
    },
    Flood {
        name: "CONTINUATION",
        start: || frame(HEADERS, 0, 1, &head()),
        again: |number| frame(CONTINUATION, 0, 1, &literal(&format!("x-{number}"), &"x".repeat(100))),
        must_end: true,
    },
    Flood {
        name: "empty CONTINUATION",
        start: || frame(HEADERS, 0, 1, &head()),
        again: |_| frame(CONTINUATION, 0, 1, &[]),
        must_end: true,
    },
    Flood {
        name: "empty DATA",
        start: || frame(HEADERS, END_HEADERS, 1, &head()),
        again: |_| frame(DATA, 0, 1, &[]),
        must_end: false,
    },
    Flood { name: "PING", start: Vec::new, again: |_| frame(PING, 0, 0, b"flooding"), must_end: true },
    Flood {
        name: "WINDOW_UPDATE",
        start: Vec::new,
        again: |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        must_end: true,
    },
    Flood {
        name: "SETTINGS",
        start: Vec::new,
        again: |number| frame(SETTINGS, 0, 0, &[[0, 4].as_slice(), &(number % 65_536).to_be_bytes()].concat()),
        must_end: true,
    },
];

/// Frames that the server acknowledges while the client does not read.
const UNREAD: [&str; 2] = ["PING", "SETTINGS"];
/// Most of them that a connection sends: more than fit into all buffers of the system.
const UNREAD_FRAMES: u32 = 2_000_000;
const UNREAD_CONNECTIONS: usize = 5;

/// The fate of the connections of a flood.
#[derive(Default)]
struct Fate {
    ended: usize,
    stalled: usize,
    /// The longest time that a connection stayed open.
    longest: Duration,
}

/// Sends as long as the server accepts it, and never reads.
fn attack(flood: &Flood, address: SocketAddr, stop: &Stop) -> Fate {
    let mut fate = Fate::default();
    while !stop.is_now() {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let watch = Watch::start();
        let mut sent = stream.write_all(&[greeting(), (flood.start)()].concat());
        let mut number = 0;
        while sent.is_ok() && !stop.is_now() {
            let frames: Vec<u8> = (number..number + 100).flat_map(flood.again).collect();
            number += 100;
            sent = stream.write_all(&frames);
        }
        match sent {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => fate.stalled += 1,
            Err(_) => fate.ended += 1,
            Ok(()) => {}
        }
        fate.longest = fate.longest.max(watch.elapsed());
        // Unread bytes, such as GOAWAY, would turn the close on this side into a reset.
        let _ = stream.set_nonblocking(true);
        let _ = stream.read(&mut [0; 1024]);
    }
    fate
}

pub(crate) fn floods_of_frames_are_harmless(progress: &mut Progress) {
    let server = Server::start(PLENTY, &[]);
    let quiet = probe(&server, Duration::from_secs(2));
    progress.figure("p50 / p99 of other clients before", quiet.summary(), "");
    let before = resident(&server);
    for flood in &FLOODS {
        progress.log(&format!("{}, for {} s", flood.name, FLOOD.as_secs()));
        let stop = Stop::default();
        let (fate, others, most) = std::thread::scope(|scope| {
            let attacker = scope.spawn(|| attack(flood, server.grpc, &stop));
            let at_the_end = stop.at_the_end();
            let others = scope.spawn(|| probe(&server, FLOOD));
            let mut most = 0.0_f64;
            while !others.is_finished() {
                most = most.max(resident(&server));
                std::thread::sleep(Duration::from_millis(50));
            }
            drop(at_the_end);
            (attacker.join().unwrap(), others.join().unwrap(), most)
        });
        let Fate { ended, stalled, longest } = fate;
        let growth = most - before;
        let what = format!("{ended} closed, {stalled} stalled, open for at most {}", milliseconds(longest));
        progress.figure(flood.name, what, if flood.must_end { "closed within 1 s" } else { "closed or harmless" });
        progress.figure(
            "  memory growth; p50 / p99 of other clients",
            format!("{growth:.1} MB; {}", others.summary()),
            "≤ 20 MB; all answered",
        );
        assert!(growth <= GROWTH, "{}: {growth} MB", flood.name);
        assert!(!flood.must_end || (ended > 0 && longest <= Duration::from_secs(1)), "{}: {longest:?}", flood.name);
        assert!(others.p99() < Duration::from_millis(250), "{}: {}", flood.name, others.summary());
    }
    for flood in FLOODS.iter().filter(|flood| UNREAD.contains(&flood.name)) {
        nobody_reads(progress, &server, flood, before);
    }
}

/// Sends frames and does not read their acknowledgements. The server closes the connection long before the buffers are full,
/// since there is no call that would justify the frames.
fn nobody_reads(progress: &mut Progress, server: &Server, flood: &Flood, before: f64) {
    progress.log(&format!(
        "{} frames on {UNREAD_CONNECTIONS} connections until the server stops accepting them; answers are not read",
        flood.name
    ));
    let (watch, cpu) = (Watch::start(), cpu_seconds(server));
    let (mut held, mut taken, mut most) = (Vec::new(), 0, 0.0_f64);
    for _ in 0..UNREAD_CONNECTIONS {
        let mut stream = TcpStream::connect(server.grpc).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        stream.write_all(&greeting()).unwrap();
        let pieces = (0..UNREAD_FRAMES / 100).map(|piece| (100 * piece..100 * piece + 100).flat_map(flood.again));
        taken += pieces.map_while(|frames| stream.write_all(&frames.collect::<Vec<u8>>()).ok()).count() * 100;
        most = most.max(resident(server));
        held.push(stream);
    }
    let (sent, busy) = (watch.elapsed(), cpu_seconds(server) - cpu);
    progress.figure(
        &format!("{}, answers not read: frames sent; CPU for all connections", flood.name),
        format!("{taken}; {busy:.2} s"),
        "≤ 0.5 s",
    );
    let (watch, cpu) = (Watch::start(), cpu_seconds(server));
    let open = || server.metric("tidegate_connections{listener=\"grpc\"}").unwrap();
    while open() > 0.0 && watch.elapsed() < Duration::from_secs(30) {
        most = most.max(resident(server));
        std::thread::sleep(Duration::from_millis(100));
    }
    let (waited, idle) = (watch.elapsed(), cpu_seconds(server) - cpu);
    progress.figure(
        "  time until all are closed; CPU meanwhile",
        format!("{waited:.1?}; {idle:.2} s"),
        "≤ 15 s; ≤ 1 s",
    );
    progress.figure("  memory growth", format!("{:.1} MB", most - before), "≤ 20 MB");
    assert!(waited + sent < Duration::from_secs(30) && waited < Duration::from_secs(15), "{waited:?} after {sent:?}");
    assert!(most - before <= GROWTH && idle < 1.0 && busy <= 0.5, "{most} MB, {idle} s, {busy} s");
    drop(held);
}

/// CPU seconds that the server has used.
fn cpu_seconds(server: &Server) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.process.child.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}
