//! Requests that are sent in part and then waited for: heads over HTTP, messages over gRPC. Memory stays within its bound.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::crowd::{connect, raise_open_files};
use crate::http2::{
    ACK, DATA, END_HEADERS, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, greeting, head,
};
use crate::load::{PLENTY, Server, Stop, probe, resident};
use crate::report::{Progress, Watch};

/// Connections that send half a head.
const HEADS: usize = 4_000;
/// Bytes of half a head: nearly as many as one may have.
const HEAD_BYTES: usize = 16_000;
/// Kilobytes of memory that each of these connections may take.
const HEAD_KILOBYTES: f64 = 28.0;

/// Connections that send half messages, the calls of each, and the bytes of half a message.
const CONNECTIONS: usize = 10;
const CALLS: u32 = 256;
const MESSAGE_BYTES: u32 = 255 * 1024;
/// How long they go on.
const TIME: Duration = Duration::from_secs(8);
/// Megabytes that the server may grow by: its budget of 16 MB, and what the connections have in windows of a megabyte each.
const MESSAGES_GROWTH: f64 = 16.0 + CONNECTIONS as f64 * 2.0;
/// The longest that half a request may keep its connection.
const CLOSED: Duration = Duration::from_secs(16);

pub(crate) fn half_heads_take_what_is_stated(progress: &mut Progress) {
    raise_open_files();
    let server = Server::start(PLENTY, &[]);
    // A check with a long body makes all buffers of a connection as large as they get.
    let body = format!(r#"{{"key":"a","limit":"1000000/s"}}{}"#, " ".repeat(100_000));
    let check = format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let half = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}", header_lines(HEAD_BYTES));
    let before = resident(&server);
    progress.log(&format!("{HEADS} connections, each with a long request"));
    let mut streams = Vec::new();
    for number in 0..HEADS {
        let mut stream = connect(server.http, number);
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(check.as_bytes()).unwrap();
        let count = stream.read(&mut [0; 4096]).unwrap();
        assert!(count > 0, "closed after a whole request");
        streams.push(stream);
    }
    let idle = resident(&server);
    let watch = Watch::start();
    for stream in &mut streams {
        stream.write_all(half.as_bytes()).unwrap();
    }
    progress.log("each has sent half a head");
    let mut most = resident(&server);
    let others = std::thread::scope(|scope| {
        let others = scope.spawn(|| probe(&server, Duration::from_secs(4)));
        while !others.is_finished() {
            most = most.max(resident(&server));
            std::thread::sleep(Duration::from_millis(50));
        }
        others.join().unwrap()
    });
    let kilobytes = |megabytes: f64| (megabytes - before) * 1024.0 / HEADS as f64;
    progress.figure("kilobytes of a connection between requests", format!("{:.1}", kilobytes(idle)), "");
    progress.figure(
        &format!("kilobytes of a connection with {HEAD_BYTES} bytes of a head"),
        format!("{:.1}", kilobytes(most)),
        &format!("≤ {HEAD_KILOBYTES}"),
    );
    progress.figure("others' p50 / p99 meanwhile", others.summary(), "answered");
    assert!(kilobytes(most) <= HEAD_KILOBYTES, "{} kB", kilobytes(most));
    let open = || server.metric("tidegate_connections{listener=\"http\"}").unwrap();
    while open() > 1.0 && watch.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(200));
    }
    progress.figure("all are closed within", format!("{:.1} s", watch.elapsed().as_secs_f64()), "≤ 16 s");
    assert!(watch.elapsed() <= CLOSED, "{:?}", watch.elapsed());
}

/// Lines of headers with so many bytes together, without the end of a head.
fn header_lines(bytes: usize) -> String {
    (0..bytes / 200).map(|number| format!("x-{number:04}: {}\r\n", "y".repeat(190))).collect()
}

/// A connection of HTTP/2 that sends half messages, as much of each as the server takes.
struct HalfMessages {
    stream: TcpStream,
    received: Vec<u8>,
    /// Bytes that the connection may send, and each call with the bytes that are left of its half.
    window: u32,
    calls: HashMap<u32, Call>,
    next: u32,
    resets: u64,
    is_over: bool,
}

struct Call {
    window: u32,
    left: u32,
}

/// What HTTP/2 lets a connection or call send at first.
const WINDOW: u32 = 65_535;

impl HalfMessages {
    fn open(address: SocketAddr) -> HalfMessages {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&greeting()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let (received, calls) = (Vec::new(), HashMap::new());
        HalfMessages { stream, received, window: WINDOW, calls, next: 1, resets: 0, is_over: false }
    }

    /// Takes what the server said, and sends what it has room for.
    fn go_on(&mut self) {
        self.receive();
        while self.calls.len() < CALLS as usize && !self.is_over {
            // A message of which the last kilobyte never comes.
            let prefix = [&[0], &(MESSAGE_BYTES + 1024).to_be_bytes()[..]].concat();
            let open = [frame(HEADERS, END_HEADERS, self.next, &head()), frame(DATA, 0, self.next, &prefix)].concat();
            self.send(&open);
            self.window = self.window.saturating_sub(5);
            self.calls.insert(self.next, Call { window: WINDOW - 5, left: MESSAGE_BYTES });
            self.next += 2;
        }
        let mut frames = Vec::new();
        for (stream, call) in &mut self.calls {
            let size = call.left.min(call.window).min(self.window).min(16 * 1024);
            if size > 0 {
                (call.left, call.window, self.window) = (call.left - size, call.window - size, self.window - size);
                frames.extend(frame(DATA, 0, *stream, &vec![b'x'; size as usize]));
            }
        }
        self.send(&frames);
    }

    fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_over {
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => self.is_over = true,
            }
        }
    }

    fn receive(&mut self) {
        let mut bytes = [0; 64 << 10];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_over = true,
                Ok(count) => {
                    self.received.extend_from_slice(&bytes[..count]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.is_over = true,
            }
            break;
        }
        while let Some((length, kind, flags, stream)) = self.next_frame() {
            let payload: Vec<u8> = self.received.drain(..9 + length).skip(9).collect();
            self.take(kind, flags, stream, &payload);
        }
    }

    /// Length, kind, flags and stream of a frame that came whole.
    fn next_frame(&self) -> Option<(usize, u8, u8, u32)> {
        let [a, b, c, kind, flags, stream @ ..] = *self.received.first_chunk::<9>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        (self.received.len() >= 9 + length).then(|| (length, kind, flags, u32::from_be_bytes(stream)))
    }

    fn take(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        match kind {
            SETTINGS if flags & ACK == 0 => {
                // The windows of calls stay as small as they are: that is this client's own choice.
                self.send(&frame(SETTINGS, ACK, 0, &[]));
            }
            PING if flags & ACK == 0 => self.send(&frame(PING, ACK, 0, payload)),
            WINDOW_UPDATE => {
                let more = u32::from_be_bytes(payload.try_into().unwrap());
                match self.calls.get_mut(&stream) {
                    Some(call) => call.window += more,
                    None if stream == 0 => self.window += more,
                    None => {}
                }
            }
            RST_STREAM => {
                self.resets += 1;
                self.calls.remove(&stream);
            }
            // A call that was refused has an answer of its own.
            HEADERS if self.calls.remove(&stream).is_some() => self.resets += 1,
            GOAWAY => self.is_over = true,
            _ => {}
        }
    }
}

/// Sends half messages until it is time to stop, over a new connection where one was closed. Returns how many calls were given
/// up by the server, and how many connections.
fn send_halves(address: SocketAddr, stop: &Stop) -> (u64, u64) {
    let (mut halves, mut resets, mut ended) = (HalfMessages::open(address), 0, 0);
    while !stop.is_now() {
        halves.go_on();
        if halves.is_over {
            (resets, ended) = (resets + halves.resets, ended + 1);
            halves = HalfMessages::open(address);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    (resets + halves.resets, ended)
}

pub(crate) fn half_messages_have_a_budget(progress: &mut Progress) {
    let server = Server::start(PLENTY, &[]);
    let quiet = probe(&server, Duration::from_secs(2));
    let (before, mut most, stop) = (resident(&server), 0.0_f64, Stop::default());
    let (given_up, others) = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(|| send_halves(server.grpc, &stop))).collect();
        let at_the_end = stop.at_the_end();
        let others = scope.spawn(|| probe(&server, TIME));
        while !others.is_finished() {
            most = most.max(resident(&server));
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(at_the_end);
        let given_up = senders.into_iter().map(|sender| sender.join().unwrap());
        (given_up.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1)), others.join().unwrap())
    });
    let (calls, connections) = given_up;
    let asked = f64::from(CALLS * MESSAGE_BYTES) / 1e6;
    progress.figure("connections with half messages", format!("{CONNECTIONS}, {asked:.0} MB each"), "");
    progress.figure("calls dropped; connections closed", format!("{calls}; {connections}"), "");
    progress.figure("growth", format!("{:.1} MB", most - before), &format!("≤ {MESSAGES_GROWTH} MB"));
    progress.figure("others' p50 / p99 before", quiet.summary(), "");
    progress.figure("others' p50 / p99 meanwhile", others.summary(), "p99 < 250 ms");
    assert!(calls > 0, "nothing was given up");
    assert!(most - before <= MESSAGES_GROWTH, "{} MB", most - before);
    assert!(others.p99() < Duration::from_millis(250), "{}", others.summary());
}
