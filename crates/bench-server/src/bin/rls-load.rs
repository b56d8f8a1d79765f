//! A client of Envoy's rate limit service whose requests count for different users, which h2load cannot send.
//!
//! It speaks as little HTTP/2 as there can be: the head of a request is the same bytes each time, and of an answer only the
//! code of the verdict is read. So it costs little beside the server that it loads.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "not shipped: it measures, and should stop at the first surprise"
)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use clap::Parser;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::Message;
use tidegate_bench_server::mix;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Send requests for users of the domain `perf`; print requests, allowed requests, and p50 and p99 in µs
#[derive(Parser)]
#[command(after_help = "Example: 100 in flight, for 2,000 users with 100 requests each\n  \
    rls-load 8081 --connections 2 --streams 50 --requests 200000 --users 2000")]
struct Options {
    /// Port of the server on this machine
    port: u16,
    /// Number of connections
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Requests in flight per connection
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    streams: u32,
    /// Total number of requests
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    requests: u64,
    /// Number of users, chosen at random for each request
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    users: u64,
    /// Number of the first user; another value makes new users
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000_000_000))]
    first: u64,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

const FRAME_HEAD: usize = 9;
/// Bytes of bodies that a server takes at first on a connection.
const WINDOW: u64 = 65_535;
/// How a message begins that says OK: five bytes of framing, and the field `overall_code`.
const OK: (usize, [u8; 2]) = (5, [0x08, 0x01]);
const USER: &str = "00000000000";

/// What all connections share.
struct Work {
    options: Options,
    /// A request of [`USER`], and where it stands in there.
    body: Vec<u8>,
    user_at: usize,
    next: Cell<u64>,
    allowed: Cell<u64>,
    micros: RefCell<Vec<u32>>,
}

impl Work {
    fn new(options: Options) -> Work {
        let entry = Entry { key: "user_id".to_owned(), value: USER.to_owned() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
        let request = RateLimitRequest { domain: "perf".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
        let message = request.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap();
        let body = [&[0], &length.to_be_bytes()[..], &message].concat();
        let user_at = body.windows(USER.len()).position(|part| part == USER.as_bytes()).unwrap();
        let (next, allowed, micros) = (Cell::new(0), Cell::new(0), RefCell::default());
        Work { options, body, user_at, next, allowed, micros }
    }

    /// The body of the next request; nothing if all were sent.
    fn take(&self) -> Option<Vec<u8>> {
        let number = self.next.get();
        (number < self.options.requests).then(|| {
            self.next.set(number + 1);
            let user = self.options.first + mix(self.options.first ^ number) % self.options.users;
            let mut body = self.body.clone();
            body[self.user_at..self.user_at + USER.len()].copy_from_slice(format!("{user:011}").as_bytes());
            body
        })
    }

    fn is_over(&self) -> bool {
        self.next.get() == self.options.requests
    }
}

/// A connection, and the requests that it has not answered.
struct Connection {
    work: Rc<Work>,
    /// What was read and not looked at yet.
    input: Vec<u8>,
    output: Vec<u8>,
    waiting: Vec<(u32, Instant)>,
    next_stream: u32,
    /// Bytes of bodies that the server still takes.
    window: u64,
}

impl Connection {
    fn new(work: Rc<Work>) -> Connection {
        let mut output = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        push_frame(&mut output, (SETTINGS, 0), 0, &[]);
        // It takes as much as there can be, and so never has to say that it takes more.
        let all = (1_u32 << 31) - 1 - WINDOW as u32;
        push_frame(&mut output, (WINDOW_UPDATE, 0), 0, &all.to_be_bytes());
        Connection { work, input: Vec::new(), output, waiting: Vec::new(), next_stream: 1, window: WINDOW }
    }

    async fn run(mut self) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.work.options.port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        loop {
            self.ask();
            stream.write_all(&self.output).await.unwrap();
            self.output.clear();
            if self.waiting.is_empty() && self.work.is_over() {
                return;
            }
            assert!(stream.read_buf(&mut self.input).await.unwrap() > 0, "the server closed a connection");
            self.read_frames();
        }
    }

    /// Asks for as much as may be in flight.
    fn ask(&mut self) {
        let length = self.work.body.len() as u64;
        while self.waiting.len() < self.work.options.streams as usize && self.window >= length {
            let Some(body) = self.work.take() else { return };
            let head = head(self.next_stream == 1);
            push_frame(&mut self.output, (HEADERS, END_HEADERS), self.next_stream, &head);
            push_frame(&mut self.output, (DATA, END_STREAM), self.next_stream, &body);
            self.window -= length;
            self.waiting.push((self.next_stream, Instant::now()));
            self.next_stream += 2;
        }
    }

    fn read_frames(&mut self) {
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Some((head, after)) = rest.split_at_checked(FRAME_HEAD) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some((payload, after)) = after.split_at_checked(length) else { break };
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            self.read_frame((head[3], head[4]), stream, payload);
            rest = after;
        }
        self.input = rest.to_vec();
    }

    fn read_frame(&mut self, (kind, flags): (u8, u8), stream: u32, payload: &[u8]) {
        match kind {
            DATA if payload.get(OK.0..).is_some_and(|message| message.starts_with(&OK.1)) => {
                self.work.allowed.set(self.work.allowed.get() + 1);
            }
            SETTINGS if flags & ACK == 0 => push_frame(&mut self.output, (SETTINGS, ACK), 0, &[]),
            PING if flags & ACK == 0 => push_frame(&mut self.output, (PING, ACK), 0, payload),
            WINDOW_UPDATE if stream == 0 => {
                self.window += u64::from(u32::from_be_bytes(payload.try_into().unwrap()));
            }
            GOAWAY => panic!("the server sent GOAWAY: {}", payload.escape_ascii()),
            _ => {}
        }
        if kind == RST_STREAM || matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
            let place = self.waiting.iter().position(|(waiting, _)| *waiting == stream).unwrap();
            let (_, since) = self.waiting.swap_remove(place);
            self.work.micros.borrow_mut().push(since.elapsed().as_micros() as u32);
        }
    }
}

/// The head of a request in HPACK. The first one of a connection puts its fields into the table of the server, where the
/// others point to.
fn head(is_first: bool) -> Vec<u8> {
    // POST and http stand in the static table at 3 and 6; the fields of the first request are at 62, the latest, to 65.
    let mut head = vec![0x83, 0x86];
    if !is_first {
        head.extend([0xc1, 0xc0, 0xbf, 0xbe]);
        return head;
    }
    let mut push = |name: &[u8], value: &[u8]| {
        head.extend_from_slice(name);
        head.push(value.len() as u8);
        head.extend_from_slice(value);
    };
    // The names of the first three stand in the static table at 4, 1 and 31.
    push(&[0x44], b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    push(&[0x41], b"127.0.0.1");
    push(&[0x5f], b"application/grpc");
    push(b"\x40\x02te", b"trailers");
    head
}

fn push_frame(output: &mut Vec<u8>, (kind, flags): (u8, u8), stream: u32, payload: &[u8]) {
    output.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    output.extend_from_slice(&[kind, flags]);
    output.extend_from_slice(&stream.to_be_bytes());
    output.extend_from_slice(payload);
}

fn main() {
    let work = Rc::new(Work::new(Options::parse()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        let connection = |_| tokio::task::spawn_local(Connection::new(Rc::clone(&work)).run());
        let connections: Vec<_> = (0..work.options.connections).map(connection).collect();
        for connection in connections {
            connection.await.unwrap();
        }
    }));
    let mut micros = work.micros.take();
    micros.sort_unstable();
    let at = |percent: usize| micros[micros.len() * percent / 100];
    println!("{} {} {} {}", micros.len(), work.allowed.get(), at(50), at(99));
}
