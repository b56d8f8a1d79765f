//! More connections than the server takes: it holds its bounds, closes the others at once, never runs out of file
//! descriptors, and administrators get in all the same.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use tidegate_testkit::tidegate::Tidegate;

use crate::client::{PROTOCOLS, Protocol};
use crate::http2::greeting;
use crate::load::{PLENTY, Server, Stop, milliseconds, open_files};
use crate::report::{Told, Watch};

/// Connections that are tried on each listener.
const TRIED: usize = 20_000;
/// What the server keeps beyond its bound on HTTP, for administrators.
const SPARE: usize = 64;
/// Connections that are tried at a time before those that were closed are let go.
const BATCH: usize = 250;

/// Allows this process as many open files as it may have, and tells how many.
pub(crate) fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(1 << 20);
    setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum: limit.maximum }).unwrap();
    allowed
}

/// Connects from one of several addresses, since one has only so many ports.
pub(crate) fn connect(address: SocketAddr, number: usize) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let from = Ipv4Addr::new(127, 0, 0, u8::try_from(2 + number % 8).unwrap());
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect_timeout(&address.into(), Duration::from_secs(10)).unwrap();
    socket.into()
}

/// Connects a thousand times a second and says nothing, with more connections at a time than are kept for administrators.
fn storm(address: SocketAddr, stop: &Stop) {
    let mut held = VecDeque::new();
    while !stop.is_now() {
        held.push_back(connect(address, held.len()));
        if held.len() > 2 * SPARE {
            held.pop_front();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether it is open, after all that was sent to it was read. It does not wait.
fn is_open(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Opens far more connections than are taken, each with something to say so that it may stay; those that did.
fn crowd(protocol: Protocol, address: SocketAddr) -> Vec<TcpStream> {
    let says = match protocol {
        Protocol::Http => b"GET /healthz HTTP/1.1\r\nHost: soak\r\n\r\n".to_vec(),
        Protocol::Grpc => greeting(),
        Protocol::Resp => b"PING\r\n".to_vec(),
    };
    let mut held = Vec::new();
    for number in 0..TRIED {
        let mut stream = connect(address, number);
        // It may be closed already.
        let _ = stream.write_all(&says);
        stream.set_nonblocking(true).unwrap();
        held.push(stream);
        if number % BATCH == 0 {
            held.retain_mut(is_open);
        }
    }
    // The last of them may still wait to be accepted.
    std::thread::sleep(Duration::from_millis(500));
    held.retain_mut(is_open);
    held
}

pub(crate) fn the_cap_is_held_and_administrators_get_in(told: &mut Told) {
    let own = raise_open_files();
    // This process must be able to hold all that the server takes.
    let allowed = (own / 10 * 6).min(40_000);
    let server =
        Server::start_by(PLENTY, &["--log-format", "json"], |all| Tidegate::with_open_files(256, allowed, all));
    let log = server.process.log();
    let cap: Option<usize> =
        log.split_once("\"connections\":").and_then(|(_, rest)| rest.split([',', '}']).next()?.parse().ok());
    let cap = cap.unwrap_or(10_000);
    told.say(&format!("the server may open {allowed} files: {cap} connections for each listener"));
    let mut held = Vec::new();
    // Envoy's comes last: these do not answer when they are asked whether they live, and may not stay for long.
    for protocol in [Protocol::Resp, Protocol::Http, Protocol::Grpc] {
        let crowd = crowd(protocol, protocol.address(&server));
        let spare = if protocol == Protocol::Http { SPARE } else { 0 };
        told.figure(&format!("{} connections of {TRIED} that stay", protocol.name()), crowd.len(), &format!("≤ {cap}"));
        assert!(crowd.len() <= cap + spare && crowd.len() >= cap - cap / 50, "{protocol:?}: {}", crowd.len());
        held.push(crowd);
        administer(told, &server);
    }
    // Otherwise those that were idle for a minute by now would give way.
    for stream in &mut held[0] {
        let _ = stream.write_all(b"PING\r\n");
    }
    let mut slowest = Duration::ZERO;
    for number in 0..300 {
        let protocol = PROTOCOLS[1 + number % 2];
        let mut stream = connect(protocol.address(&server), number);
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let watch = Watch::start();
        let read = stream.read(&mut [0]);
        assert!(!matches!(read, Ok(1..)), "{protocol:?}: it is served beyond the bound");
        slowest = slowest.max(watch.elapsed());
    }
    told.figure("one connection more is closed within", milliseconds(slowest), "≤ 1 s");
    assert!(slowest < Duration::from_secs(1));
    let files = open_files(&server);
    told.figure("files that the server has open", files, &format!("< {allowed}"));
    assert!(u64::try_from(files).unwrap() < allowed);
    assert!(!server.process.log().contains("cannot accept"), "{}", server.process.log());
    drop(held);
    std::thread::sleep(Duration::from_secs(1));
    let (left, files) = (server.metric("tidegate_connections{listener=\"resp\"}"), open_files(&server));
    told.figure("files open after they are gone", files, "< 200");
    assert!(left < Some(10.0) && files < 200, "{left:?}, {files}");
}

/// Those who ask what is wrong are answered, several times, while others connect again and again.
fn administer(told: &mut Told, server: &Server) {
    let watch = Watch::start();
    let stop = Stop::default();
    std::thread::scope(|scope| {
        scope.spawn(|| storm(server.http, &stop));
        let at_the_end = stop.at_the_end();
        for _ in 0..10 {
            for path in ["/healthz", "/readyz", "/metrics", "/v1/rules"] {
                assert_eq!(server.get(path).status, 200, "{path}");
            }
        }
        drop(at_the_end);
    });
    told.figure("40 requests of an administrator take", milliseconds(watch.elapsed()), "all answered");
}
