//! Floods of HTTP/2 frames that cost the sender little: the connection ends or nothing grows, and others are answered.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, greeting,
    head, literal,
};
use crate::load::{PLENTY, Server, Stop, milliseconds, probe, resident};
use crate::report::{Told, Watch};

/// How long each flood lasts, on one connection after the other.
const FLOOD: Duration = Duration::from_secs(4);
/// Megabytes that the server may grow by.
const GROWTH: f64 = 20.0;

struct Flood {
    name: &'static str,
    /// What is sent on each connection first.
    start: fn() -> Vec<u8>,
    /// What is sent again and again; the number makes streams of its own.
    again: fn(u32) -> Vec<u8>,
    /// Whether the server has to end such a connection.
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
        name: "calls reset by their faults",
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

/// Frames that have to be acknowledged, and nobody reads that.
const UNREAD: [&str; 2] = ["PING", "SETTINGS"];
/// How many of them each connection sends at most: more than all buffers of the system have room for.
const UNREAD_FRAMES: u32 = 2_000_000;
const UNREAD_CONNECTIONS: usize = 5;

/// What became of the connections of a flood.
#[derive(Default)]
struct Fate {
    ended: usize,
    stalled: usize,
    /// How long the one that was open for longest was.
    longest: Duration,
}

/// Sends for as long as the server takes it, and never reads.
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
        // Whatever it said, goodbye included, so that closing is not a reset on this side.
        let _ = stream.set_nonblocking(true);
        let _ = stream.read(&mut [0; 1024]);
    }
    fate
}

pub(crate) fn floods_of_frames_are_harmless(told: &mut Told) {
    let server = Server::start(PLENTY, &[]);
    let quiet = probe(&server, Duration::from_secs(2));
    told.figure("others' p50 / p99 before", quiet.told(), "");
    let before = resident(&server);
    for flood in &FLOODS {
        told.say(&format!("{}, for {} s", flood.name, FLOOD.as_secs()));
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
        let what = format!("{ended} ended, {stalled} stalled, at most {} open", milliseconds(longest));
        told.figure(flood.name, what, if flood.must_end { "ended ≤ 1 s" } else { "ended or harmless" });
        told.figure("  growth; others' p50 / p99", format!("{growth:.1} MB; {}", others.told()), "≤ 20 MB; answered");
        assert!(growth <= GROWTH, "{}: {growth} MB", flood.name);
        assert!(!flood.must_end || (ended > 0 && longest <= Duration::from_secs(1)), "{}: {longest:?}", flood.name);
        assert!(others.p99() < Duration::from_millis(250), "{}: {}", flood.name, others.told());
    }
    for flood in FLOODS.iter().filter(|flood| UNREAD.contains(&flood.name)) {
        nobody_reads(told, &server, flood, before);
    }
}

/// Fills the way back with acknowledgements and goes on sending: the server ends the connection, since no call earns these
/// frames, long before the way back is full.
fn nobody_reads(told: &mut Told, server: &Server, flood: &Flood, before: f64) {
    told.say(&format!("{} frames on {UNREAD_CONNECTIONS} connections until they are not taken, unread", flood.name));
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
    told.figure(
        &format!("{} unread: frames written; CPU for all connections", flood.name),
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
    told.figure("  all are closed within; CPU meanwhile", format!("{waited:.1?}; {idle:.2} s"), "≤ 15 s; ≤ 1 s");
    told.figure("  growth", format!("{:.1} MB", most - before), "≤ 20 MB");
    assert!(waited + sent < Duration::from_secs(30) && waited < Duration::from_secs(15), "{waited:?} after {sent:?}");
    assert!(most - before <= GROWTH && idle < 1.0 && busy <= 0.5, "{most} MB, {idle} s, {busy} s");
    drop(held);
}

/// Seconds of a processor that the server has used.
fn cpu_seconds(server: &Server) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.process.child.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}
