//! What the commands for operators say when a server cannot be reached, refuses, or is of another kind.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};

use insta::assert_snapshot;
use tidegate_testkit::http::Application;
use tidegate_testkit::ports::free_port;

use super::operate::{ANN, serve, shown, verb};

/// A server that sends one answer, with this status and body, to every request.
fn answering(status: &'static str, body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream?);
            let mut line = String::new();
            while stream.read_line(&mut line)? > 2 {
                line.clear();
            }
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.get_mut().write_all(answer.as_bytes())?;
        }
        Ok::<(), std::io::Error>(())
    });
    address
}

#[test]
fn the_server_refuses() {
    let (server, _directory) = serve(&["--admin-token", "s3cret"]);
    let asked = |token: Option<&str>, arguments: &[&str]| {
        let mut command = verb(server.http, arguments);
        token.map(|token| command.env("TIDEGATE_ADMIN_TOKEN", token));
        shown(command, server.http)
    };
    let right = |arguments: &[&str]| asked(Some("s3cret"), arguments);
    let all = [
        asked(None, &["rules"]),
        asked(Some("guess"), &["rules"]),
        asked(Some(""), &["rules"]),
        asked(Some("two\nlines"), &["rules"]),
        right(&["reset", "--domain", "apo", "--entry", "user=ann"]),
        right(&["reset", "--domain", "api", "--entry", "nobody=x"]),
        right(&["unblock", "--domain", "api", "--entry", "nobody=x"]),
        right(&["grant", "0", ANN[0], ANN[1], ANN[2], ANN[3]]),
        right(&["inspect", "--domain", "api", "--address", "nowhere"]),
        right(&["inspect", "--domain", "api\u{202e}\u{1b}[2J"]),
        right(&["reset", "--key", "k", "--limit", "5/fortnight"]),
        right(&["mode", "api/per-usr", "shadow"]),
        right(&["mode", "a/b/c", "shadow"]),
    ];
    assert_snapshot!(
        all.concat()
            .replace('\u{202e}', "RLO")
            .replace("$ tidegate inspect --domain apiRLO\u{1b}[2J", "$ tidegate inspect (hostile)")
    );
}

#[test]
fn there_is_no_such_server() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let old = answering(
        "404 Not Found",
        r#"{"type":"about:blank","title":"Not Found","status":404,"detail":"path: `/v1/unblock` not found; GET / lists all paths"}"#,
    );
    let elsewhere = answering(
        "403 Forbidden",
        r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":"admin: this listener is not on loopback; start the server with --admin-token TOKEN"}"#,
    );
    let unblock = [&["unblock"][..], &ANN].concat();
    let all = [
        shown(verb(nobody, &["rules"]), nobody),
        shown(verb(nobody, &["status"]), nobody),
        shown(verb(old, &unblock), old),
        shown(verb(old, &["status"]), old),
        shown(verb(elsewhere, &["rules"]), elsewhere),
    ];
    assert_snapshot!(all.concat());
}

#[test]
fn another_program_answers() {
    let application = Application::start().address;
    let newer = answering("200 OK", r#"{"rules":"all"}"#);
    let hostile = answering("409 Conflict", "{\"status\":409,\"detail\":\"key: \\u001b[2J\u{202e}\"}");
    let closed = answering("200 OK\r\ntransfer-encoding: chunked", "");
    let all = [
        shown(verb(application, &["rules"]), application),
        shown(verb(application, &["status"]), application),
        shown(verb(newer, &["rules"]), newer),
        shown(verb(hostile, &["rules"]), hostile),
    ];
    assert_snapshot!(all.concat());
    let broken = verb(closed, &["rules"]).output().unwrap();
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
}
