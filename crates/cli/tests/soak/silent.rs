//! Sockets that say nothing, and those that say it byte by byte: all are closed, and nobody else waits for them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::client::{PROTOCOLS, Protocol};
use crate::http2::{END_HEADERS, HEADERS, PREFACE, frame, greeting, head};
use crate::load::{PLENTY, Server, probe};
use crate::report::{Told, Watch};

/// Sockets for each listener.
const SOCKETS: usize = 2_000;
/// The longest that one may stay.
const CLOSED: Duration = Duration::from_secs(15);
/// How long others are looked at.
const LOOK: Duration = Duration::from_secs(6);

/// What a busy machine adds to the slowest answers by itself.
const SLACK: Duration = Duration::from_millis(20);

/// What a socket says, a byte each second after the first ones at once; it never comes to its end.
struct Script {
    protocol: Protocol,
    at_once: Vec<u8>,
    byte_by_byte: Vec<u8>,
}

fn scripts() -> Vec<Script> {
    let silent = |protocol| Script { protocol, at_once: Vec::new(), byte_by_byte: Vec::new() };
    let mut all: Vec<Script> = PROTOCOLS.map(silent).into();
    let mut add = |protocol, at_once: &[u8], byte_by_byte: &[u8]| {
        all.push(Script { protocol, at_once: at_once.to_vec(), byte_by_byte: byte_by_byte.to_vec() });
    };
    let call = frame(HEADERS, END_HEADERS, 1, &head());
    add(Protocol::Http, b"GET /healthz HTTP/1.1\r\n", b"Host: soak\r\nX-Slow: 0123456789");
    add(
        Protocol::Http,
        b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n",
        b"{\"key\":\"0123456789",
    );
    add(Protocol::Grpc, b"", PREFACE);
    add(Protocol::Grpc, PREFACE, b"");
    add(Protocol::Grpc, &[greeting(), call[..20].to_vec()].concat(), b"");
    add(Protocol::Resp, b"*2\r\n$4\r\nECHO\r\n$90\r\n", b"012345678901234567890123");
    add(Protocol::Resp, b"", b"CL.THROTTLE slow 012345678901234567890123");
    all
}

struct Slow<'a> {
    stream: TcpStream,
    script: &'a Script,
    said: usize,
    opened: Watch,
}

impl Slow<'_> {
    /// Says one byte more; whether the socket is still open.
    fn goes_on(&mut self) -> bool {
        let mut bytes = [0; 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        let seconds = usize::try_from(self.opened.elapsed().as_secs()).unwrap();
        if let Some(byte) = self.script.byte_by_byte.get(self.said).filter(|_| self.said < seconds) {
            self.said += 1;
            let _ = self.stream.write(&[*byte]);
        }
        true
    }
}

pub(crate) fn silent_and_slow_sockets_are_closed(told: &mut Told) {
    let server = Server::start(PLENTY, &[]);
    told.say(&format!("others alone, for {} s", LOOK.as_secs()));
    let before = probe(&server, LOOK);
    let scripts = scripts();
    told.say(&format!("opening {SOCKETS} sockets on each of three listeners"));
    let mut sockets = Vec::new();
    for protocol in PROTOCOLS {
        let own: Vec<&Script> = scripts.iter().filter(|script| script.protocol == protocol).collect();
        for script in own.iter().cycle().take(SOCKETS) {
            let mut stream = TcpStream::connect(protocol.address(&server)).unwrap();
            stream.write_all(&script.at_once).unwrap();
            stream.set_nonblocking(true).unwrap();
            sockets.push(Slow { stream, script, said: 0, opened: Watch::start() });
        }
    }
    let open = sockets.len();
    let (longest, during) = std::thread::scope(|scope| {
        let others = scope.spawn(|| probe(&server, LOOK));
        (close_all(told, sockets), others.join().unwrap())
    });
    told.figure("sockets closed", open, "all");
    told.figure("the last of them closed after", format!("{:.1} s", longest.as_secs_f64()), "≤ 15 s");
    told.figure("others' p50 / p99 before", before.told(), "");
    told.figure("others' p50 / p99 meanwhile", during.told(), "p99 ≤ 2×");
    let ratio = during.p99().as_secs_f64() / before.p99().as_secs_f64();
    told.figure("ratio of the p99s", format!("{ratio:.2}"), "");
    assert!(longest <= CLOSED, "{longest:?}");
    assert!(during.p99() <= before.p99() * 2 + SLACK, "{} after {}", during.told(), before.told());
}

/// Lets all of them dawdle until they are closed, and tells how long the last one was open.
fn close_all(told: &Told, mut sockets: Vec<Slow<'_>>) -> Duration {
    let (watch, mut longest, mut said) = (Watch::start(), Duration::ZERO, 0);
    while !sockets.is_empty() {
        sockets.retain_mut(|socket| {
            let is_open = socket.goes_on();
            if !is_open {
                longest = longest.max(socket.opened.elapsed());
            }
            is_open
        });
        if watch.elapsed().as_secs() / 3 > said {
            said = watch.elapsed().as_secs() / 3;
            told.say(&format!("{} sockets are open", sockets.len()));
        }
        if let Some(late) = sockets.iter().find(|socket| socket.opened.elapsed() > CLOSED * 2) {
            let Script { protocol, at_once, .. } = late.script;
            panic!(
                "{} are still open, like one of {protocol:?} after {:?}",
                sockets.len(),
                at_once.escape_ascii().to_string()
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    longest
}
