//! Pieces, pipelines, bounds and ends of connections.

use std::time::Duration;

use tidegate_server::{Listener, RequestMemory};

use crate::{Server, talk};

const THROTTLE: &str = "*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$2\r\n99\r\n$1\r\n1\r\n$1\r\n1\r\n";

#[tokio::test]
async fn a_pipeline_is_answered_in_order() {
    let input = format!("PING\r\n{THROTTLE}ECHO a\r\n{THROTTLE}\r\n*0\r\n*-1\r\nECHO b\r\n");
    let first = "*5\r\n:0\r\n:100\r\n:99\r\n:-1\r\n:1\r\n";
    let second = "*5\r\n:0\r\n:100\r\n:98\r\n:-1\r\n:2\r\n";
    assert_eq!(talk(None, input).await, format!("+PONG\r\n{first}$1\r\na\r\n{second}$1\r\nb\r\n"));
}

#[tokio::test]
async fn a_pipeline_is_answered_as_its_commands_one_by_one() {
    let mut lines = Vec::new();
    for number in 0..200 {
        let (key, limit, quantity) = (number % 7, number / 20 % 3, number / 5 % 2);
        lines.push(match number % 37 {
            11 => "CL.THROTTLE k 1 0 1\r\n".to_owned(),
            12 => "CL.THROTTLE k x 1 1\r\n".to_owned(),
            13 => "CL.THROTTLE \"\" 1 1 1\r\n".to_owned(),
            14 => format!("TTL k{key}\r\n"),
            15 => format!("DEL k{key}\r\n"),
            _ => format!("CL.THROTTLE k{key} {} 10 60 {quantity}\r\n", 3 + limit),
        });
    }
    let server = Server::start(None);
    let mut client = server.connect().await;
    let mut one_by_one = String::new();
    for line in &lines {
        client.send(line).await;
        one_by_one.push_str(&client.reply().await);
    }
    assert_eq!(talk(None, lines.concat()).await, one_by_one);
}

#[tokio::test]
async fn bytes_may_come_one_by_one() {
    let mut client = Server::start(None).connect().await;
    for byte in THROTTLE.bytes() {
        client.send([byte]).await;
        tokio::task::yield_now().await;
    }
    let reply = "*5\r\n:0\r\n:100\r\n:99\r\n:-1\r\n:1\r\n";
    assert_eq!(client.read(reply.len()).await, reply);
}

#[tokio::test]
async fn a_large_pipeline_is_answered_whole() {
    let count = 100_000;
    let client = Server::start(None).connect().await;
    let (mut reader, mut writer) = client.0.into_split();
    let sent = tokio::spawn(async move {
        tokio::io::AsyncWriteExt::write_all(&mut writer, "PING\r\n".repeat(count).as_bytes()).await.unwrap();
        writer
    });
    let mut replies = vec![0; count * 7];
    tokio::io::AsyncReadExt::read_exact(&mut reader, &mut replies).await.unwrap();
    assert_eq!(replies, "+PONG\r\n".repeat(count).as_bytes());
    sent.await.unwrap();
}

#[tokio::test]
async fn protocol_errors_end_the_connection() {
    let check = async |input: &[u8], expected: &str| {
        let input = [b"PING\r\n", input, b"PING\r\n"].concat();
        let reply = if expected.is_empty() { String::new() } else { format!("-ERR Protocol error: {expected}\r\n") };
        assert_eq!(talk(None, input).await, format!("+PONG\r\n{reply}"));
    };
    check(b"*x\r\n", "invalid multibulk length").await;
    check(b"*1\r\n$x\r\n", "invalid bulk length").await;
    check(b"*1\r\n$99999999\r\n", "invalid bulk length").await;
    check(b"*1\r\nx\r\n", "expected '$', got 'x'").await;
    check(b"ECHO \"a\r\n", "unbalanced quotes in request").await;
    check(&[&[b'a'; 70_000][..], b"\r\n"].concat(), "too big inline request").await;
    check(b"POST / HTTP/1.1\r\n", "").await;
    check(b"host: a\r\n", "").await;
}

#[tokio::test]
async fn strangers_may_send_less() {
    let reply = talk(Some("secret"), "*11\r\n").await;
    assert_eq!(reply, "-ERR Protocol error: unauthenticated multibulk length\r\n");
    let reply = talk(Some("secret"), "AUTH secret\r\n*11\r\n").await;
    assert_eq!(reply, "+OK\r\n");
}

/// Nothing of an argument that is too long is kept, and the connection goes on behind it.
#[tokio::test]
async fn an_argument_that_is_too_long_is_skipped() {
    const ERROR: &str = "-ERR command too long; send at most 65536 bytes in an argument and 131072 in a command\r\n";
    let long = |length: usize| {
        format!("*5\r\n$11\r\nCL.THROTTLE\r\n${length}\r\n{}\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n", "k".repeat(length))
    };
    let decided = "*5\r\n:0\r\n:100\r\n:99\r\n:-1\r\n:1\r\n";
    for length in [65_537, 1_048_576] {
        let input = format!("{THROTTLE}{}PING\r\n", long(length));
        assert_eq!(talk(None, input).await, format!("{decided}{ERROR}+PONG\r\n"));
    }
    let input = format!("AUTH secret\r\n{}PING\r\n", long(70_000));
    assert_eq!(talk(Some("secret"), input).await, format!("+OK\r\n{ERROR}+PONG\r\n"));
    let reply = talk(Some("secret"), &long(70_000)[..100]).await;
    assert_eq!(reply, "-ERR Protocol error: unauthenticated bulk length\r\n");
    let reply = talk(None, &long(1_048_577)[..100]).await;
    assert_eq!(reply, "-ERR Protocol error: invalid bulk length\r\n");
    // A transaction is not run without one of its commands.
    let input = format!("MULTI\r\n{}EXEC\r\nPING\r\n", long(70_000));
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    assert_eq!(talk(None, input).await, format!("+OK\r\n{ERROR}{aborted}+PONG\r\n"));
}

#[tokio::test]
async fn where_no_password_is_set_there_is_nothing_to_guess() {
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let input = format!("{}AUTH default x\r\nPING\r\n", "AUTH bob x\r\n".repeat(20));
    assert_eq!(talk(None, input).await, format!("{}+OK\r\n+PONG\r\n", wrong.repeat(20)));
}

#[tokio::test]
async fn wrong_passwords_end_the_connection_and_slow_the_address() {
    let server = Server::start(Some("secret"));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let later =
        |seconds| format!("-WRONGPASS too many wrong passwords from this address; try again in {seconds} s\r\n");
    let mut client = server.connect().await;
    client.send("AUTH guess\r\nHELLO 3 AUTH default guess\r\n".repeat(50)).await;
    assert_eq!(client.read_all().await, wrong.repeat(10));
    for right in ["AUTH secret\r\n", "HELLO 2 AUTH default secret\r\n"] {
        let mut client = server.connect().await;
        client.send(format!("{right}QUIT\r\n")).await;
        assert_eq!(client.read_all().await, later(6), "else a guess would not have to wait");
    }
    server.clock.advance(Duration::from_secs(6));
    server.connect().await.expect("AUTH secret", "+OK\r\n").await;
    // One connection has ten guesses, however slow.
    let mut client = server.connect().await;
    for _ in 0..10 {
        client.expect("AUTH guess", wrong).await;
        server.clock.advance(Duration::from_secs(6));
    }
    let rest = tokio::time::timeout(Duration::from_secs(5), client.read_all()).await;
    assert_eq!(rest.as_deref(), Ok(""));
}

/// With time paused, a runtime that has nothing else to do jumps to the next instant that somebody waits for.
#[tokio::test(start_paused = true)]
async fn silence_ends_a_connection() {
    let check = async |password: Option<&str>, sent: &str, seconds: u64| {
        let mut client = Server::start(password).connect().await;
        let start = tokio::time::Instant::now();
        client.send(sent).await;
        client.read_all().await;
        assert_eq!(start.elapsed().as_secs(), seconds, "{sent:?}");
    };
    check(None, "", 10).await;
    check(None, "\r\n", 10).await;
    check(None, "*1\r\n$4\r\nPI", 10).await;
    check(None, "PING\r\n*1\r\n$4\r\nPI", 10).await;
    check(None, &format!("PING\r\n*2\r\n$70000\r\n{}", "a".repeat(60_000)), 10).await;
    check(None, &format!("PING\r\n*2\r\n$70000\r\n{}\r\n", "a".repeat(70_000)), 10).await;
    check(None, "PING\r\n", 3600).await;
    check(Some("secret"), "PING\r\n", 10).await;
    check(Some("secret"), "AUTH secret\r\n", 3600).await;
}

#[tokio::test(start_paused = true)]
async fn a_byte_now_and_then_does_not_keep_a_connection() {
    let mut client = Server::start(None).connect().await;
    client.expect("PING", "+PONG\r\n").await;
    let start = tokio::time::Instant::now();
    let mut closed = [0; 1];
    client.send("*1\r\n$4000\r\n").await;
    while tokio::time::timeout(Duration::from_secs(3), tokio::io::AsyncReadExt::read(&mut client.0, &mut closed))
        .await
        .is_err()
    {
        client.send("a").await;
    }
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn commands_keep_a_connection() {
    let mut client = Server::start(None).connect().await;
    for _ in 0..10 {
        client.expect("PING", "+PONG\r\n").await;
        tokio::time::sleep(Duration::from_secs(3000)).await;
    }
}

#[tokio::test]
async fn draining_answers_what_was_sent() {
    let server = Server::start(None);
    let mut client = server.connect().await;
    client.expect("PING", "+PONG\r\n").await;
    let mut idle = server.connect().await;
    idle.expect("PING", "+PONG\r\n").await;
    client.send("ECHO a\r\nECHO b\r\nECH").await;
    // The bytes are in the server's socket before it hears that it is time to finish.
    server.drainer.start();
    assert_eq!(client.read_all().await, "$1\r\na\r\n$1\r\nb\r\n");
    assert_eq!(idle.read_all().await, "");
    drop((client, idle));
    server.drainer.finished().await;
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_is_given_up() {
    let server = Server::start(None);
    let mut client = server.connect().await;
    let flood = "COMMAND\r\n".repeat(1000);
    let start = tokio::time::Instant::now();
    // Writing fails once the server has closed.
    while tokio::io::AsyncWriteExt::write_all(&mut client.0, flood.as_bytes()).await.is_ok() {}
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test]
async fn unfinished_commands_have_a_budget() {
    let memory = RequestMemory { listener_bytes: 160 << 10, connection_bytes: 80 << 10 };
    let server = Server::behind(|listener: Listener| listener.with_request_memory(memory), None);
    let half = |bytes: usize| format!("PING\r\n*1\r\n$60000\r\n{}", "x".repeat(bytes));
    let given_up = "-ERR dropped: unfinished commands take too much memory; send each command without pauses\r\n";
    // The largest of all gives way, once they are too many together.
    let mut clients = Vec::new();
    for number in 1..=5 {
        let mut client = server.connect().await;
        client.send(half(12_000 * number)).await;
        assert_eq!(client.read(7).await, "+PONG\r\n");
        clients.push(client);
    }
    let mut largest = clients.pop().unwrap();
    assert_eq!(largest.read_all().await, given_up);
    clients[3].send("x".repeat(12_000) + "\r\n").await;
    assert!(clients[3].reply().await.starts_with("-ERR unknown command"));
    // What waits for EXEC counts too.
    let mut client = server.connect().await;
    client.expect("MULTI", "+OK\r\n").await;
    for _ in 0..3 {
        client.expect(&format!("ECHO {}", "x".repeat(30_000)), "+QUEUED\r\n").await;
    }
    assert_eq!(client.read_all().await, given_up);
}

/// A client of this address that has said PING, and been answered if there was a place.
async fn connect_from(server: &Server, address: &str) -> (tokio::net::TcpStream, bool) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    (tokio::io::AsyncWriteExt::write_all(&mut stream, b"PING\r\n").await).unwrap();
    let answer = tokio::io::AsyncReadExt::read_exact(&mut stream, &mut [0; 7]).await;
    (stream, answer.is_ok())
}

#[tokio::test(start_paused = true)]
async fn idle_places_come_back_from_whoever_holds_most() {
    let server = Server::behind(|listener| listener.with_connections_max(20), None);
    let (mut other, is_served) = connect_from(&server, "127.0.0.3").await;
    assert!(is_served);
    let mut hoard = Vec::new();
    for _ in 0..19 {
        let (stream, is_served) = connect_from(&server, "127.0.0.2").await;
        assert!(is_served);
        hoard.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(!connect_from(&server, "127.0.0.4").await.1, "nobody has been idle for a minute");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let mut newcomers = Vec::new();
    for _ in 0..5 {
        let (stream, is_served) = connect_from(&server, "127.0.0.4").await;
        assert!(is_served, "after {} of them", newcomers.len());
        newcomers.push(stream);
    }
    // Those that are used, and those of who holds little, are as they were.
    let mut open = 0;
    for stream in &mut hoard {
        let _ = tokio::io::AsyncWriteExt::write_all(stream, b"PING\r\n").await;
        open += usize::from(tokio::io::AsyncReadExt::read_exact(stream, &mut [0; 7]).await.is_ok());
    }
    assert_eq!(open, 14);
    (tokio::io::AsyncWriteExt::write_all(&mut other, b"PING\r\n").await).unwrap();
    tokio::io::AsyncReadExt::read_exact(&mut other, &mut [0; 7]).await.unwrap();
    assert!(!connect_from(&server, "127.0.0.4").await.1, "all are in use");
}
