//! Sockets that send nothing or one byte at a time: all are closed, and no other client waits for them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::client::{PROTOCOLS, Protocol};
use crate::http2::{END_HEADERS, HEADERS, PREFACE, frame, greeting, head};
use crate::load::{PLENTY, Server, probe};
use crate::report::{Progress, Watch};

/// Sockets for each listener.
const SOCKETS: usize = 2_000;
/// The longest time that one may stay open.
const CLOSED: Duration = Duration::from_secs(15);
/// How long other clients are measured.
const LOOK: Duration = Duration::from_secs(6);

/// The latency that a busy machine adds to the slowest answers.
const SLACK: Duration = Duration::from_millis(20);

/// The bytes that a socket sends: the first ones at once, the others one per second, never a whole request.
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
    sent: usize,
    opened: Watch,
}

impl Slow<'_> {
    /// Sends one more byte, and returns whether the socket is still open.
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
        if let Some(byte) = self.script.byte_by_byte.get(self.sent).filter(|_| self.sent < seconds) {
            self.sent += 1;
            let _ = self.stream.write(&[*byte]);
        }
        true
    }
}

pub(crate) fn silent_and_slow_sockets_are_closed(progress: &mut Progress) {
    let server = Server::start(PLENTY, &[]);
    progress.log(&format!("measuring other clients alone for {} s", LOOK.as_secs()));
    let before = probe(&server, LOOK);
    let scripts = scripts();
    progress.log(&format!("opening {SOCKETS} sockets on each of three listeners"));
    let mut sockets = Vec::new();
    for protocol in PROTOCOLS {
        let own: Vec<&Script> = scripts.iter().filter(|script| script.protocol == protocol).collect();
        for script in own.iter().cycle().take(SOCKETS) {
            let mut stream = TcpStream::connect(protocol.address(&server)).unwrap();
            stream.write_all(&script.at_once).unwrap();
            stream.set_nonblocking(true).unwrap();
            sockets.push(Slow { stream, script, sent: 0, opened: Watch::start() });
        }
    }
    let open = sockets.len();
    let (longest, during) = std::thread::scope(|scope| {
        let others = scope.spawn(|| probe(&server, LOOK));
        (close_all(progress, sockets), others.join().unwrap())
    });
    progress.figure("sockets closed", open, "all");
    progress.figure("the last one closed after", format!("{:.1} s", longest.as_secs_f64()), "≤ 15 s");
    progress.figure("p50 / p99 of other clients before", before.summary(), "");
    progress.figure("p50 / p99 of other clients meanwhile", during.summary(), "p99 ≤ 2×");
    let ratio = during.p99().as_secs_f64() / before.p99().as_secs_f64();
    progress.figure("p99 ratio", format!("{ratio:.2}"), "");
    assert!(longest <= CLOSED, "{longest:?}");
    assert!(during.p99() <= before.p99() * 2 + SLACK, "{} after {}", during.summary(), before.summary());
}

/// Keeps all sockets sending until they are closed, and returns how long the last one was open.
fn close_all(progress: &Progress, mut sockets: Vec<Slow<'_>>) -> Duration {
    let (watch, mut longest, mut logged) = (Watch::start(), Duration::ZERO, 0);
    while !sockets.is_empty() {
        sockets.retain_mut(|socket| {
            let is_open = socket.goes_on();
            if !is_open {
                longest = longest.max(socket.opened.elapsed());
            }
            is_open
        });
        if watch.elapsed().as_secs() / 3 > logged {
            logged = watch.elapsed().as_secs() / 3;
            progress.log(&format!("{} sockets are open", sockets.len()));
        }
        if let Some(late) = sockets.iter().find(|socket| socket.opened.elapsed() > CLOSED * 2) {
            let Script { protocol, at_once, .. } = late.script;
            panic!(
                "{} are still open, such as one of {protocol:?} after {:?}",
                sockets.len(),
                at_once.escape_ascii().to_string()
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    longest
}
