//! Clients that are slow, wrong or hostile, and a server that goes.

use std::time::Duration;

use bytes::Bytes;
use h2::client::{self, SendRequest};
use prost::Message;
use tidegate_engine::Options;
use tidegate_server::{Listener, RequestMemory, RlsOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

use super::{Server, descriptor, hits, request};

const RULES: &str = "
domain: edge
descriptors:
- key: user
  rate_limit: {unit: minute, requests_per_unit: 5}
";

const PATH: &str = "http://server/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

fn head(timeout: Option<&str>) -> http::Request<()> {
    let mut builder = http::Request::post(PATH).header("content-type", "application/grpc").header("te", "trailers");
    if let Some(timeout) = timeout {
        builder = builder.header("grpc-timeout", timeout);
    }
    builder.body(()).unwrap()
}

/// A message as gRPC frames it.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap();
    [&[0], &length.to_be_bytes()[..], message].concat().into()
}

fn question() -> Bytes {
    framed(&request("edge", vec![descriptor(&[("user", "ann")])]).encode_to_vec())
}

/// Speaks HTTP/2 by hand; the task ends with the connection.
async fn connect(server: &Server) -> (SendRequest<Bytes>, tokio::task::JoinHandle<Result<(), h2::Error>>) {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (sender, connection) = client::handshake(stream).await.unwrap();
    (sender.ready().await.unwrap(), tokio::spawn(connection))
}

/// The status of an answer, which is in its head or in its trailers.
async fn status_of(answer: client::ResponseFuture) -> Code {
    let answer = answer.await.unwrap();
    let mut status = answer.headers().get("grpc-status").cloned();
    let mut body = answer.into_body();
    while let Some(data) = body.data().await {
        data.unwrap();
    }
    if let Some(trailers) = body.trailers().await.unwrap() {
        status = trailers.get("grpc-status").cloned();
    }
    Code::from_bytes(status.unwrap().as_bytes())
}

async fn left(server: &Server) -> u32 {
    let peek = request("edge", vec![hits(0, descriptor(&[("user", "ann")]))]);
    server.client().await.should_rate_limit(peek).await.unwrap().into_inner().statuses[0].limit_remaining
}

#[tokio::test]
async fn a_deadline_that_passed_costs_nothing() {
    let server = Server::start(RULES);
    let (mut sender, _connection) = connect(&server).await;
    let (answer, mut body) = sender.send_request(head(Some("0m")), false).unwrap();
    body.send_data(question(), true).unwrap();
    assert_eq!(status_of(answer).await, Code::DeadlineExceeded);
    assert_eq!(left(&server).await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_come_is_not_awaited_for_ever() {
    let server = Server::start(RULES);
    let (mut sender, _connection) = connect(&server).await;
    let (answer, _never_sent) = sender.send_request(head(Some("20m")), false).unwrap();
    assert_eq!(status_of(answer).await, Code::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn without_a_deadline_there_is_one_too() {
    let server = Server::start(RULES);
    let (mut sender, _connection) = connect(&server).await;
    let (answer, _never_sent) = sender.send_request(head(None), false).unwrap();
    assert_eq!(status_of(answer).await, Code::DeadlineExceeded);
}

#[tokio::test]
async fn bad_messages_leave_the_connection_alive() {
    let server = Server::start(RULES);
    let (mut sender, _connection) = connect(&server).await;
    let too_long = framed(&request("edge", vec![descriptor(&[("user", &"x".repeat(300_000))])]).encode_to_vec());
    for (name, message, expected) in [
        ("not protobuf", framed(b"\xff\xff\xff\xff"), Code::Internal),
        ("a string that is not UTF-8", framed(b"\x0a\x02\xff\xfe"), Code::Internal),
        ("a length beyond the message", framed(b"\x0a\xff\xff\xff\xff\x0f"), Code::Internal),
        ("compressed, which was not agreed on", Bytes::from_static(b"\x01\0\0\0\x01x"), Code::Internal),
        ("a frame that declares four gigabytes", Bytes::from_static(b"\0\xff\xff\xff\xff"), Code::OutOfRange),
        ("too long", too_long, Code::OutOfRange),
        ("nothing", Bytes::new(), Code::Internal),
        ("as it should be", question(), Code::Ok),
    ] {
        let (answer, mut body) = sender.send_request(head(None), false).unwrap();
        body.send_data(message, true).unwrap();
        assert_eq!(status_of(answer).await, expected, "{name}");
    }
}

#[tokio::test]
async fn unknown_methods_are_said_to_be_so() {
    let server = Server::start(RULES);
    let (mut sender, _connection) = connect(&server).await;
    for path in ["/", "/envoy.service.ratelimit.v3.RateLimitService/Other", "/grpc.health.v1.Health/Other", "/x.Y/Z"] {
        let other = http::Request::post(format!("http://server{path}")).header("content-type", "application/grpc");
        let (answer, _) = sender.send_request(other.body(()).unwrap(), true).unwrap();
        assert_eq!(status_of(answer).await, Code::Unimplemented, "{path}");
    }
}

#[tokio::test]
async fn what_is_not_http_2_is_cut_off() {
    let server = Server::start(RULES);
    for bytes in
        [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], b"\x16\x03\x01\x02\0\x01\0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX"]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{bytes:?}");
    }
    assert_eq!(left(&server).await, 5, "the server lives");
}

#[tokio::test(start_paused = true)]
async fn silent_clients_are_cut_off() {
    let server = Server::start(RULES);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let half_a_head = [&preface[..], &frame(4, 0, 0, b""), &frame(1, 4, 1, b"\x83\x86")[..9]].concat();
    for said in [&b""[..], b"PRI * HTT", preface, &half_a_head] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(said).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(15), stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{said:?}");
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0, length[0], length[1], kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

/// The kinds and payloads of whole frames.
fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_at_checked(9)?;
        let (payload, rest) = rest.split_at_checked(u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize)?;
        bytes = rest;
        Some((head[3], payload))
    })
}

/// The head of a call: POST, http, the authority `x` and the path `/`.
const WHOLE_HEAD: &[u8] = b"\x83\x86\x41\x01x\x44\x01/";

#[tokio::test]
async fn who_resets_all_calls_is_cut_off() {
    let [headers, reset, settings, goaway] = [1, 3, 4, 7];
    let (end_of_head, calm) = (4, [0, 0, 0, 11]);
    let server = Server::start(RULES);
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let start = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(settings, 0, 0, b"")[..]].concat();
    writer.write_all(&start).await.unwrap();
    // Many at once: one after the other they are calls like others, each of which costs this client as much.
    let call = |number: u32| {
        let stream = 2 * number + 1;
        [frame(headers, end_of_head, stream, WHOLE_HEAD), frame(reset, 0, stream, b"\0\0\0\x08")].concat()
    };
    let calls: Vec<u8> = (0..10_000).flat_map(call).collect();
    let flood = tokio::spawn(async move { writer.write_all(&calls).await.is_ok() });
    let mut said = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), reader.read_to_end(&mut said)).await;
    assert!(ended.is_ok(), "it goes on");
    flood.await.unwrap();
    // What was said is lost with a connection that is closed before all that was sent to it is read.
    let told = frames(&said).any(|(kind, payload)| kind == goaway && payload[4..8] == calm);
    assert!(ended.unwrap().is_err() || told, "{said:x?}");
    assert_eq!(left(&server).await, 5, "the server lives");
}

#[tokio::test]
async fn floods_of_frames_are_cut_off() {
    let [data, headers, priority, settings, ping, window_update, continuation] = [0, 1, 2, 4, 6, 8, 9];
    let server = Server::start(RULES);
    for (name, first, again) in [
        ("PING", Vec::new(), frame(ping, 0, 0, b"flooding")),
        ("SETTINGS", Vec::new(), frame(settings, 0, 0, b"\0\x04\0\0\xff\xff")),
        ("WINDOW_UPDATE", Vec::new(), frame(window_update, 0, 0, b"\0\0\0\x01")),
        ("PRIORITY", Vec::new(), frame(priority, 0, 1, b"\0\0\0\0\x01")),
        ("heads without an end", frame(headers, 0, 1, WHOLE_HEAD), frame(continuation, 0, 1, b"\x00\x01a\x01b")),
        ("empty pieces of heads", frame(headers, 0, 1, WHOLE_HEAD), frame(continuation, 0, 1, b"")),
        ("empty data", frame(headers, 4, 1, WHOLE_HEAD), frame(data, 0, 1, b"")),
    ] {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let start = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(settings, 0, 0, b"")[..], &first].concat();
        writer.write_all(&start).await.unwrap();
        let flood = tokio::spawn(async move { while writer.write_all(&again.repeat(100)).await.is_ok() {} });
        let mut said = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(10), reader.read_to_end(&mut said)).await;
        assert!(ended.is_ok(), "{name}");
        flood.await.unwrap();
    }
    assert_eq!(left(&server).await, 5, "the server lives");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_acknowledgements_is_cut_off() {
    let [settings, ping] = [4, 6];
    let server = Server::start(RULES);
    for (name, again) in
        [("PING", frame(ping, 0, 0, b"flooding")), ("SETTINGS", frame(settings, 0, 0, b"\0\x04\0\0\xff\xff"))]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let start = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(settings, 0, 0, b"")[..]].concat();
        stream.write_all(&start).await.unwrap();
        let flood = async { while stream.write_all(&again.repeat(100)).await.is_ok() {} };
        assert!(tokio::time::timeout(Duration::from_secs(15), flood).await.is_ok(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_takes_no_answers_is_cut_off() {
    let server = Server::start(RULES);
    // Nothing, less than a message, and less than a message over all calls.
    for (name, stream_window, calls) in [("0 bytes", 0, 3), ("1 byte", 1, 3), ("too little for all", 65_535, 3_000)] {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let mut builder = client::Builder::new();
        builder.initial_window_size(stream_window);
        let (mut sender, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut untaken = Vec::new();
        for _ in 0..calls {
            let Ok(ready) = sender.ready().await else { break };
            sender = ready;
            let Ok((answer, mut body)) = sender.send_request(head(None), false) else { break };
            body.send_data(question(), true).unwrap();
            // The head comes; the client lives, and answers each ping.
            let Ok(Ok(answer)) = tokio::time::timeout(Duration::from_secs(30), answer).await else { break };
            untaken.push(answer.into_body());
        }
        let ended = tokio::time::timeout(Duration::from_secs(30), connection).await;
        assert!(ended.is_ok(), "{name}: {} answers are kept", untaken.len());
    }
}

#[tokio::test(start_paused = true)]
async fn who_takes_all_answers_may_be_idle() {
    let server = Server::start(RULES);
    let (mut sender, connection) = connect(&server).await;
    for _ in 0..3 {
        let (answer, mut body) = sender.send_request(head(None), false).unwrap();
        body.send_data(question(), true).unwrap();
        assert_eq!(status_of(answer).await, Code::Ok);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!connection.is_finished());
    }
}

#[tokio::test]
async fn what_is_under_way_is_finished() {
    let server = Server::start(RULES);
    let (mut sender, connection) = connect(&server).await;
    let (answer, mut body) = sender.send_request(head(None), false).unwrap();
    // A second call, answered, shows that the server has the first one.
    let (other, mut other_body) = sender.send_request(head(None), false).unwrap();
    other_body.send_data(question(), true).unwrap();
    assert_eq!(status_of(other).await, Code::Ok);
    server.drainer.start();
    // The server says that it takes no further calls.
    while sender.clone().ready().await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!connection.is_finished());
    body.send_data(question(), true).unwrap();
    assert_eq!(status_of(answer).await, Code::Ok);
    drop(sender);
    connection.await.unwrap().unwrap();
    server.drainer.finished().await;
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
}

/// How many of these calls are not answered after a moment, and the statuses of the others.
async fn waiting(answers: Vec<client::ResponseFuture>) -> (usize, Vec<Code>) {
    let answers = answers.into_iter().map(|answer| tokio::spawn(status_of(answer))).collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (mut waiting, mut statuses) = (0, Vec::new());
    for answer in answers {
        if answer.is_finished() {
            statuses.push(answer.await.unwrap());
        } else {
            waiting += 1;
        }
    }
    (waiting, statuses)
}

/// Begins so many calls, sends these bytes of each, and not the rest.
async fn begin(sender: &mut SendRequest<Bytes>, calls: usize, bytes: usize) -> Vec<client::ResponseFuture> {
    let half = framed(&vec![0; 262_144]).slice(..bytes);
    let mut answers = Vec::new();
    for _ in 0..calls {
        *sender = sender.clone().ready().await.unwrap();
        let (answer, mut body) = sender.send_request(head(None), false).unwrap();
        // The call may have been given up already.
        let _ = body.send_data(half.clone(), false);
        answers.push(answer);
        // Dropped, it would reset the call.
        std::mem::forget(body);
    }
    answers
}

#[tokio::test]
async fn half_messages_take_two_megabytes_of_a_connection() {
    let server = Server::start(RULES);
    let (mut sender, _connection) = connect(&server).await;
    let answers = begin(&mut sender, 60, 261_000).await;
    let (waiting, given_up) = waiting(answers).await;
    assert!((4..=8).contains(&waiting), "{waiting} of 60 are kept");
    assert!(given_up.iter().all(|status| *status == Code::ResourceExhausted), "{given_up:?}");
    // A small one is not among the largest, and the connection lives.
    let (answer, mut body) = sender.send_request(head(None), false).unwrap();
    let (first, rest) = (question().slice(..3), question().slice(3..));
    body.send_data(first, false).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    body.send_data(rest, true).unwrap();
    assert_eq!(status_of(answer).await, Code::Ok);
}

#[tokio::test]
async fn half_messages_of_all_connections_have_one_budget() {
    let memory = RequestMemory { listener_bytes: 1 << 20, connection_bytes: 512 << 10 };
    let listen = |listener: Listener| listener.with_request_memory(memory);
    let server = Server::behind(listen, RULES, Options::default(), RlsOptions::default());
    let (mut connections, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let (mut sender, connection) = connect(&server).await;
        answers.extend(begin(&mut sender, 8, 60_000).await);
        connections.push((sender, connection));
    }
    let (waiting, given_up) = waiting(answers).await;
    assert!((8..=17).contains(&waiting), "{waiting} of 40 are kept");
    assert!(given_up.iter().all(|status| *status == Code::ResourceExhausted), "{given_up:?}");
    assert_eq!(left(&server).await, 5, "others are answered");
}

#[tokio::test]
async fn half_questions_for_health_count_too() {
    let server = Server::start(RULES);
    let (mut sender, _connection) = connect(&server).await;
    let path = "http://server/grpc.health.v1.Health/Check";
    let head = || http::Request::post(path).header("content-type", "application/grpc").body(()).unwrap();
    let (answer, mut body) = sender.send_request(head(), false).unwrap();
    body.send_data(framed(&[0; 100_000]).slice(..90_000), false).unwrap();
    assert_eq!(status_of(answer).await, Code::OutOfRange);
    let (answer, mut body) = sender.send_request(head(), false).unwrap();
    body.send_data(framed(b""), true).unwrap();
    assert_eq!(status_of(answer).await, Code::Ok);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_drips_ends_its_connection() {
    let server = Server::start(RULES);
    let (mut sender, connection) = connect(&server).await;
    let start = tokio::time::Instant::now();
    let (answer, mut body) = sender.send_request(head(None), false).unwrap();
    tokio::spawn(async move {
        while body.send_data(Bytes::from_static(&[0]), false).is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(status_of(answer).await, Code::DeadlineExceeded);
    let _ = tokio::time::timeout(Duration::from_secs(60), connection).await.expect("the connection ends");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}
