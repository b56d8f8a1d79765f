//! `tidegate top`: live in a terminal, and as one table.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};

use insta::assert_snapshot;
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value, json};
use tidegate_testkit::ports::free_port;
use tidegate_testkit::wait::eventually;

use super::operate::{serve, shown, verb};
use super::terminal::terminal;

const HOSTILE: &str = "a\u{202e}\u{1b}[2J<b>\u{9b}31m";

/// Starts a server that has these pages and no others.
fn pages(pages: Vec<(&'static str, String)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream?);
            let (mut head, mut line) = (String::new(), String::new());
            while stream.read_line(&mut line)? > 2 {
                head += &std::mem::take(&mut line);
            }
            let path = head.split([' ', '?']).nth(1).unwrap_or_default();
            let page = pages.iter().find(|(known, _)| *known == path);
            let missing = r#"{"title":"Not Found","status":404,"detail":"path: not found; GET / lists all paths"}"#;
            let (status, body) = page.map_or(("404 Not Found", missing), |(_, body)| ("200 OK", body));
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.get_mut().write_all(answer.as_bytes())?;
        }
        Ok::<(), std::io::Error>(())
    });
    address
}

fn rules() -> (&'static str, String) {
    let rule = |name: &str, allowed: u64| {
        json!({"domain": "api", "name": name, "action": "limit", "mode": "enforce", "configured_mode": "enforce",
            "limits": [], "counts": {"allowed": allowed, "denied": 1, "shadow_denied": 0}})
    };
    ("/v1/rules", json!({"hash": "x", "rules": [rule("few", 1), rule(HOSTILE, 100)]}).to_string())
}

fn metrics() -> (&'static str, String) {
    let page =
        "tidegate_store_breaker{store=\"shared\",node=\"10.0.0.1:6379\"} 2\ntidegate_build_info{version=\"9\"} 1\n";
    ("/metrics", page.to_owned())
}

fn top() -> (&'static str, String) {
    let key = |value: &str| json!({"key": [{"part": "entry:user", "value": value}], "requests": 9, "denials": 1, "shadow_denials": 0, "share": 0.0911});
    let long = format!("{HOSTILE}{}", "x".repeat(4_096));
    let all = |name: &str| json!({"domain": "api", "rule": name, "requests": 9, "denials": 1, "keys": [key("ann"), key(&long)]});
    ("/v1/top", json!({"by": "requests", "nodes": [], "rules": [all("few"), all(HOSTILE)]}).to_string())
}

#[test]
fn one_table() {
    let (server, old) = (pages(vec![rules(), metrics(), top()]), pages(vec![rules(), metrics()]));
    let arguments = ["top", "--once", "--interval", "200ms"];
    let all = [shown(verb(server, &arguments), server), shown(verb(old, &arguments[..2]), old)];
    assert_snapshot!(all.concat());
}

#[test]
fn json_is_what_the_server_answers() {
    let (server, old) = (pages(vec![rules(), metrics(), top()]), pages(vec![rules(), metrics()]));
    let parsed = |(_, text): (&str, String)| serde_json::from_str::<Value>(&text).unwrap();
    for (server, top) in [(server, parsed(top())), (old, Value::Null)] {
        let output = verb(server, &["top", "--format", "json"]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(!printed.contains(['\u{202e}', '\u{1b}', '\u{9b}']), "{printed}");
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), json!({"rules": parsed(rules()), "top": top}));
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_an_error() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    assert_snapshot!(shown(verb(nobody, &["top"]), nobody));
}

const WIDTH: u16 = 100;
const HEIGHT: u16 = 24;

/// A command in a terminal.
struct Session {
    child: Child,
    keyboard: File,
    /// The side of the command.
    terminal: OwnedFd,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Session {
    fn start(server: SocketAddr, arguments: &[&str]) -> Session {
        let (screen, terminal) = terminal();
        let size = Winsize { ws_row: HEIGHT, ws_col: WIDTH, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let side = || terminal.try_clone().unwrap();
        let child = verb(server, arguments).stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let (mut reader, written) = (screen.try_clone().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let all = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                all.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        Session { child, keyboard: screen, terminal, written }
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn wait(&self, what: &str, holds: impl Fn(&str) -> bool) {
        assert!(eventually(|| holds(&screen(&self.written()))), "{what}:\n{}", screen(&self.written()));
    }

    fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "the terminal is as before");
        assert!(eventually(|| self.written().contains("\u{1b}[?1049l")), "{:?}", self.written());
        (status, self.written())
    }
}

/// What a terminal shows after these bytes: letters where the cursor is, and moves of it. No other sequence changes letters.
fn screen(written: &str) -> String {
    let mut cells = vec![vec![' '; usize::from(WIDTH)]; usize::from(HEIGHT)];
    let (mut row, mut column) = (0, 0);
    let mut rest = written.chars();
    while let Some(letter) = rest.next() {
        if letter != '\u{1b}' {
            if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                *cell = letter;
            }
            column += 1;
            continue;
        }
        let (numbers, end) = sequence(&mut rest);
        if let ([to_row, to_column], Some('H')) = (&numbers[..], end) {
            (row, column) = (to_row - 1, to_column - 1);
        }
    }
    cells.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
}

/// Reads the numbers of an escape sequence, and the letter that ends it.
fn sequence(rest: &mut std::str::Chars<'_>) -> (Vec<usize>, Option<char>) {
    let mut inside = String::new();
    let end = rest.find(|letter| {
        inside.push(*letter);
        letter.is_ascii_alphabetic()
    });
    (inside.split(['[', ';', 'H']).filter_map(|one| one.parse().ok()).collect(), end)
}

#[test]
fn live_in_a_terminal() {
    let (server, _directory) = serve(&[]);
    let mut session = Session::start(server.http, &["top", "--interval", "200ms"]);
    session.wait("all rules", |screen| screen.contains("api/per-user") && screen.contains("api/path_/login*"));
    session.wait("names are escaped", |screen| screen.contains(r"\u{202e}<b>/right\u{200f}left"));
    session.press("/LOGIN");
    session.wait("the search", |screen| screen.contains("/LOGIN_") && !screen.contains("api/per-user"));
    session.press("\r");
    session
        .wait("the search is done", |screen| screen.contains("q: quit") && screen.contains("Keys of api/path_/login*"));
    session.press("d");
    session.wait("by denials", |screen| screen.contains("by denials"));
    session.press("/\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\r");
    session.wait("all rules again", |screen| screen.contains("api/per-user"));
    let first = |screen: &str| screen.lines().find_map(|line| line.strip_prefix("Keys of ")).map(str::to_owned);
    let before = first(&screen(&session.written()));
    session.press("\u{1b}[B");
    session.wait("another rule is selected", |screen| first(screen) != before);
    session.press("q");
    let (status, written) = session.end();
    assert!(status.success(), "{status}");
    assert!(!written.contains('\u{202e}'), "{written:?}");
}

#[test]
fn live_while_the_server_goes_away() {
    let (server, _directory) = serve(&[]);
    let mut session = Session::start(server.http, &["top", "--interval", "200ms"]);
    session.wait("all rules", |screen| screen.contains("api/per-user"));
    drop(server);
    session.wait("the problem", |screen| screen.contains("cannot connect") && screen.contains("api/per-user"));
    session.press("\u{3}");
    assert!(session.end().0.success());
}
