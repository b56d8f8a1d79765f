//! More connections than the server accepts: it keeps its bounds, closes further connections at once, never runs out of
//! file descriptors, and still answers administrators.

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
use crate::report::{Progress, Watch};

/// Connection attempts on each listener.
const TRIED: usize = 20_000;
/// Connections for administrators that the HTTP listener accepts beyond its bound.
const SPARE: usize = 64;
/// Connection attempts between two removals of closed connections.
const BATCH: usize = 250;

/// Raises the limit of open files of this process as far as possible, and returns it.
pub(crate) fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(1 << 20);
    setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum: limit.maximum }).unwrap();
    allowed
}

/// Connects from one of several addresses, since one address has too few ports.
pub(crate) fn connect(address: SocketAddr, number: usize) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let from = Ipv4Addr::new(127, 0, 0, u8::try_from(2 + number % 8).unwrap());
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect_timeout(&address.into(), Duration::from_secs(10)).unwrap();
    socket.into()
}

/// Connects a thousand times per second and sends nothing, with more connections at a time than there are for administrators.
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

/// Reads all bytes that have arrived, without waiting, and returns whether the connection is still open.
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

/// Opens far more connections than the server accepts, sends a request on each, and returns the connections that stay open.
fn crowd(protocol: Protocol, address: SocketAddr) -> Vec<TcpStream> {
    let request = match protocol {
        Protocol::Http => b"GET /healthz HTTP/1.1\r\nHost: soak\r\n\r\n".to_vec(),
        Protocol::Grpc => greeting(),
        Protocol::Resp => b"PING\r\n".to_vec(),
    };
    let mut held = Vec::new();
    for number in 0..TRIED {
        let mut stream = connect(address, number);
        // The connection may be closed already.
        let _ = stream.write_all(&request);
        stream.set_nonblocking(true).unwrap();
        held.push(stream);
        if number % BATCH == 0 {
            held.retain_mut(is_open);
        }
    }
    // The last ones may still be in the accept queue.
    std::thread::sleep(Duration::from_millis(500));
    held.retain_mut(is_open);
    held
}

pub(crate) fn the_cap_is_held_and_administrators_get_in(progress: &mut Progress) {
    let own = raise_open_files();
    // This process must be able to hold all connections that the server accepts.
    let allowed = (own / 10 * 6).min(40_000);
    let server =
        Server::start_by(PLENTY, &["--log-format", "json"], |all| Tidegate::with_open_files(256, allowed, all));
    let log = server.process.log();
    let cap: Option<usize> =
        log.split_once("\"connections\":").and_then(|(_, rest)| rest.split([',', '}']).next()?.parse().ok());
    let cap = cap.unwrap_or(10_000);
    progress.log(&format!("the server may open {allowed} files: {cap} connections per listener"));
    let mut held = Vec::new();
    // gRPC comes last: these connections do not answer keep-alive pings, and the server soon closes them.
    for protocol in [Protocol::Resp, Protocol::Http, Protocol::Grpc] {
        let crowd = crowd(protocol, protocol.address(&server));
        let spare = if protocol == Protocol::Http { SPARE } else { 0 };
        progress.figure(
            &format!("{} connections that stay open, of {TRIED}", protocol.name()),
            crowd.len(),
            &format!("≤ {cap}"),
        );
        assert!(crowd.len() <= cap + spare && crowd.len() >= cap - cap / 50, "{protocol:?}: {}", crowd.len());
        held.push(crowd);
        administer(progress, &server);
    }
    // Otherwise connections that have been idle for a minute would be evicted.
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
        assert!(!matches!(read, Ok(1..)), "{protocol:?}: a connection beyond the bound is served");
        slowest = slowest.max(watch.elapsed());
    }
    progress.figure("one more connection is closed within", milliseconds(slowest), "≤ 1 s");
    assert!(slowest < Duration::from_secs(1));
    let files = open_files(&server);
    progress.figure("open files of the server", files, &format!("< {allowed}"));
    assert!(u64::try_from(files).unwrap() < allowed);
    assert!(!server.process.log().contains("cannot accept"), "{}", server.process.log());
    drop(held);
    std::thread::sleep(Duration::from_secs(1));
    let (left, files) = (server.metric("tidegate_connections{listener=\"resp\"}"), open_files(&server));
    progress.figure("open files after all clients are gone", files, "< 200");
    assert!(left < Some(10.0) && files < 200, "{left:?}, {files}");
}

/// Sends requests of an administrator while other clients connect again and again.
fn administer(progress: &mut Progress, server: &Server) {
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
    progress.figure("time for 40 requests of an administrator", milliseconds(watch.elapsed()), "all answered");
}
