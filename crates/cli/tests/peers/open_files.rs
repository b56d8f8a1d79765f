//! A system that lets the server open few files: it takes fewer connections, and still answers those who ask what is wrong.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_testkit::http::{Connection, get};
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::eventually;

/// What is left for each listener of 400 files and two threads.
const CONNECTIONS: usize = 85;
/// What HTTP answers beyond that.
const SPARE: usize = 64;

/// Whether it is served: then what it said is answered. Else it is closed.
fn is_served(stream: &mut TcpStream, said: &[u8]) -> bool {
    // It may be closed already.
    let _ = stream.write_all(said);
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    matches!(stream.read(&mut [0; 1024]), Ok(1..))
}

fn connect(address: SocketAddr, count: usize, said: &[u8]) -> Vec<TcpStream> {
    let mut all: Vec<TcpStream> = (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
    all.retain_mut(|stream| is_served(stream, said));
    all
}

#[test]
fn few_files_make_few_connections_and_never_lock_administrators_out() {
    let tidegate = Tidegate::with_open_files(100, 400, &["--threads", "2"]);
    let log = tidegate.process.log();
    assert!(log.contains("open_files=400") && log.contains("connections=85"), "{log}");
    let redis = connect(tidegate.resp, CONNECTIONS + 20, b"PING\r\n");
    assert_eq!(redis.len(), CONNECTIONS);
    assert_eq!(tidegate.metric("tidegate_connections{listener=\"resp\"}"), Some(85.0));
    // All of these are kept, each after one answer.
    let kept: Vec<Connection> = (0..CONNECTIONS)
        .map(|_| {
            let mut connection = Connection::open(tidegate.http).unwrap();
            assert_eq!(connection.ask("GET", "/healthz", &[], "").unwrap().header("connection"), None);
            connection
        })
        .collect();
    for path in ["/healthz", "/metrics", "/v1/rules"] {
        let answer = get(tidegate.http, path);
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")), "{path}");
    }
    // Silent ones cannot take the spare places for long.
    let mut silent: Vec<TcpStream> = (0..SPARE).map(|_| TcpStream::connect(tidegate.http).unwrap()).collect();
    for stream in &mut silent {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let read = stream.read(&mut [0]);
        assert!(
            !matches!(&read, Err(error) if error.kind() == ErrorKind::WouldBlock) && !matches!(read, Ok(1)),
            "{read:?}"
        );
    }
    assert_eq!(get(tidegate.http, "/healthz").status, 200);
    assert!(!tidegate.process.log().contains("cannot accept"), "{}", tidegate.process.log());
    drop((redis, kept));
}

#[test]
fn connections_that_cannot_be_accepted_do_not_fill_the_log() {
    // Fewer files than the fewest connections that a listener takes.
    let tidegate = Tidegate::with_open_files(30, 30, &["--threads", "1"]);
    let told = || tidegate.process.log().matches("cannot accept connections").count();
    let _clients: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(tidegate.resp).unwrap()).collect();
    assert!(eventually(|| told() > 0), "{}", tidegate.process.log());
    // It tries a hundred times a second, and says so once in five.
    std::thread::sleep(Duration::from_secs(1));
    assert!(told() <= 2, "{}", tidegate.process.log());
}
