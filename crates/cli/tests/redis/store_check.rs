//! `tidegate store check` on real servers: what it says, and that it leaves nothing behind.

use std::time::Duration;

use insta::assert_snapshot;
use serde_json::Value;
use tidegate_testkit::ports::free_port;
use tidegate_testkit::process::directory;
use tidegate_testkit::servers::{Certificates, Cluster, Mode, Sentinels, Server, Setup};
use tidegate_testkit::tidegate::command;
use tidegate_testkit::wait::eventually;

use crate::clock;
use crate::fleet::{PATIENT, proxy};

const SECRET: &str = "s3cret-w0rd";

/// What it prints, without the name of the last line, and the exit code.
fn check(arguments: &[&str]) -> (String, Option<i32>) {
    let output = command().args(["store", "check"]).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (report, problems) = (text(output.stdout), text(output.stderr));
    assert!(!report.contains(SECRET) && !problems.contains(SECRET), "a password is printed:\n{report}{problems}");
    (report + &problems, output.status.code())
}

/// Puts N in place of each number.
fn without_numbers(text: &str) -> String {
    let mut masked = String::new();
    for letter in text.chars() {
        if !letter.is_ascii_digit() {
            masked.push(letter);
        } else if !masked.ends_with('N') {
            masked.push('N');
        }
    }
    masked
}

/// A line without what differs from run to run.
fn masked(line: &str) -> String {
    for topic in [": latency: ", ": clients: ", ": memory: ", ": clock: "] {
        if let Some((before, message)) = line.split_once(topic) {
            return format!("{before}{topic}{}", without_numbers(message).replace("behind", "ahead of"));
        }
    }
    // Valkey names the user.
    let line = line.replace("User limiter", "this user").replace("User tidegate", "this user");
    line.split_once(": version: ").map_or(line.clone(), |(before, _)| format!("{before}: version: SOFTWARE VERSION"))
}

/// What it says of a store, without what differs from run to run. Ports become these names.
fn shown(url: &str, ports: &[(u16, &str)]) -> String {
    let (report, code) = check(&[url]);
    println!("{report}");
    let mut shown = String::new();
    for line in report.lines() {
        let line = ports.iter().fold(line.to_owned(), |line, (port, name)| line.replace(&port.to_string(), name));
        shown += &format!("{}\n", masked(&line));
    }
    format!("{shown}exit code {}\n", code.unwrap())
}

/// What the guide grants the user.
fn rights() -> String {
    let page = include_str!("../../../../docs/src/shared-store.md");
    let line = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER tidegate reset ")).unwrap();
    line.replace("password", SECRET)
}

fn url_of(server: &Server) -> String {
    format!("redis://127.0.0.1:{}?{PATIENT}", server.port)
}

/// Of one server, which has no keys afterwards.
fn shown_of(server: &Server, url: &str) -> String {
    let shown = shown(url, &[(server.port, "PORT"), (server.tls_port, "TLS_PORT")]);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.admin().unwrap()).unwrap();
    assert_eq!(keys, [""; 0], "keys stay behind");
    shown
}

#[test]
fn a_server_as_it_comes() {
    let server = Server::start(&Setup::default());
    assert_snapshot!(shown_of(&server, &url_of(&server)));
}

#[test]
fn a_server_as_it_should_be() {
    let settings = ["--maxmemory 1gb", "--maxmemory-policy noeviction", "--appendonly yes"];
    let server = Server::start(&Setup { settings: &settings, password: Some(SECRET), ..Setup::default() });
    assert_snapshot!(shown_of(&server, &format!("redis://:{SECRET}@127.0.0.1:{}/3?{PATIENT}&prefix=x", server.port)));
}

#[test]
fn a_server_that_evicts() {
    let settings = ["--maxmemory 100mb", "--maxmemory-policy allkeys-lru"];
    let server = Server::start(&Setup { settings: &settings, ..Setup::default() });
    assert_snapshot!(shown_of(&server, &url_of(&server)));
}

#[test]
fn a_server_that_is_full() {
    let settings = ["--maxmemory 100kb", "--maxmemory-policy noeviction"];
    let server = Server::start(&Setup { settings: &settings, ..Setup::default() });
    assert_snapshot!(shown_of(&server, &url_of(&server)));
}

#[test]
fn a_user_who_may_not_all_that_is_needed() {
    let user = format!("limiter on >{SECRET} ~tidegate{{* +@all -config -zscore");
    let server = Server::start(&Setup { user: Some(&user), ..Setup::default() });
    assert_snapshot!(shown_of(&server, &format!("redis://limiter:{SECRET}@127.0.0.1:{}?{PATIENT}", server.port)));
}

/// The user of the guide: all that is needed, and nothing to look with.
#[test]
fn a_user_who_may_only_what_is_needed() {
    let user = format!("tidegate {}", rights());
    let server = Server::start(&Setup { user: Some(&user), ..Setup::default() });
    assert_snapshot!(shown_of(&server, &format!("redis://tidegate:{SECRET}@127.0.0.1:{}?{PATIENT}", server.port)));
}

#[test]
fn a_user_who_may_not_use_the_keys() {
    let user = format!("limiter on >{SECRET} ~other* +@all");
    let server = Server::start(&Setup { user: Some(&user), ..Setup::default() });
    assert_snapshot!(shown_of(&server, &format!("redis://limiter:{SECRET}@127.0.0.1:{}?{PATIENT}", server.port)));
}

#[test]
fn stores_that_cannot_be_reached() {
    let directory = directory();
    let certificates = Certificates::make(directory.path());
    let setup = Setup { password: Some("another"), tls: Some(&certificates), ..Setup::default() };
    let (server, nobody) = (Server::start(&setup), free_port());
    let (port, tls_port) = (server.port, server.tls_port);
    let (another, authority) = (tidegate_testkit::process::directory(), certificates.authority.display().to_string());
    let stranger = Certificates::make(another.path()).authority.display().to_string();
    let urls = [
        format!("redis://127.0.0.1:{nobody}"),
        format!("redis://:{SECRET}@127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}"),
        format!("rediss://:{SECRET}@127.0.0.1:{tls_port}?ca={authority}"),
        format!("rediss://127.0.0.1:{tls_port}?ca={stranger}"),
        "rediss://127.0.0.1?ca=/no/such/file.pem".to_owned(),
        format!("redis+cluster://127.0.0.1:{nobody},:{port}").replace(",:", ",127.0.0.1:"),
        format!("redis+cluster://:another@127.0.0.1:{port}"),
        format!("redis+sentinel://:another@127.0.0.1:{nobody}/name"),
    ];
    let shown: String =
        urls.iter().map(|url| shown(url, &[(port, "PORT"), (tls_port, "TLS_PORT"), (nobody, "NOBODY")])).collect();
    assert_snapshot!(shown);
    // The system says in several ways that a server hung up.
    let (report, code) = check(&[&format!("redis://127.0.0.1:{tls_port}")]);
    assert!(report.contains("; use rediss:// if the port has TLS") && code == Some(1), "{report}");
}

#[test]
fn a_server_with_tls() {
    let directory = directory();
    let certificates = Certificates::make(directory.path());
    let server = Server::start(&Setup { tls: Some(&certificates), ..Setup::default() });
    let authority = certificates.authority.display();
    let (report, code) = check(&[&format!("rediss://localhost:{}?{PATIENT}&ca={authority}", server.tls_port)]);
    assert!(report.contains("ok: connection: connected with TLS\n") && report.contains("ok: scripts: "), "{report}");
    assert_eq!(code, Some(0), "{report}");
}

#[test]
fn a_replica() {
    let (primary, replica) = (Server::start(&Setup::default()), Server::start(&Setup::default()));
    replica.command(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    let shown = shown(&url_of(&replica), &[(replica.port, "PORT"), (primary.port, "PRIMARY")]);
    assert_snapshot!(shown);
}

#[test]
fn sentinels() {
    let trio = Sentinels::start();
    assert!(eventually(|| trio.first.command("INFO replication").contains("state=online")), "the replica is not there");
    let (hosts, nobody) = (trio.hosts(), free_port());
    let mut ports = vec![(trio.first.port, "PRIMARY"), (trio.second.port, "REPLICA"), (nobody, "NOBODY")];
    ports.extend(trio.ports.iter().copied().zip(["SENTINEL_1", "SENTINEL_2", "SENTINEL_3"]));
    let url = format!("redis+sentinel://{hosts},127.0.0.1:{nobody}/tide?{PATIENT}");
    assert_snapshot!(shown(&url, &ports));
}

#[test]
fn each_primary_of_a_cluster() {
    let cluster = Cluster::start(5_000);
    let url = format!("redis+cluster://{}?{PATIENT}", cluster.hosts());
    let names = ["PRIMARY_1", "PRIMARY_2", "PRIMARY_3", "REPLICA_1", "REPLICA_2", "REPLICA_3"];
    let ports: Vec<_> = cluster.nodes.iter().map(|node| node.port).zip(names).collect();
    assert_snapshot!(shown(&url, &ports));
    let wrong = format!("redis://127.0.0.1:{}?{PATIENT}", cluster.nodes[0].port);
    let (report, code) = check(&[&wrong]);
    assert!(report.contains("error: connection: the server is a node of a Cluster; use redis+cluster://"), "{report}");
    assert_eq!(code, Some(1));
    cluster.nodes.iter().for_each(|node| drop(node.command(&format!("ACL SETUSER tidegate reset {}", rights()))));
    let of_user = url.replace("://", &format!("://tidegate:{SECRET}@"));
    let (report, code) = check(&[&of_user]);
    assert_eq!(report.matches("the user tidegate has all required permissions").count(), 3, "{report}");
    assert_eq!(report.matches("unknown: the state of the Cluster: CLUSTER INFO was refused").count(), 3, "{report}");
    assert_eq!((report.matches(": scripts: all scripts work").count(), code), (3, Some(0)), "{report}");
    cluster.nodes.iter().for_each(|node| drop(node.command("ACL SETUSER tidegate -asking")));
    let (report, code) = check(&[&of_user]);
    assert_eq!(report.matches("connections need: +asking; run `ACL SETUSER tidegate +asking`").count(), 3, "{report}");
    assert_eq!(code, Some(1));
    for node in &cluster.nodes[..3] {
        assert_eq!(node.command("DBSIZE"), "0", "keys stay behind");
    }
}

#[test]
fn a_server_that_is_too_far_away() {
    let server = Server::start(&Setup::default());
    let proxy = proxy(server.port);
    proxy.set(Mode::Delay(Duration::from_millis(15)));
    let (report, code) = check(&[&format!("redis://127.0.0.1:{}?timeout=10ms", proxy.port)]);
    assert!(report.contains("error: latency: most calls take longer than the timeout; median of "), "{report}");
    assert!(report.contains("set ?timeout="), "{report}");
    assert_eq!(code, Some(1), "{report}");
}

#[test]
fn slow_commands_are_named_without_their_arguments() {
    let server = Server::start(&Setup { settings: &["--enable-debug-command yes"], ..Setup::default() });
    server.command("DEBUG SLEEP 0.02");
    let (report, code) = check(&[&format!("redis://127.0.0.1:{}?timeout=10ms", server.port)]);
    let line = report.lines().find(|line| line.contains("the slowest is DEBUG with 2")).expect(&report);
    assert!(line.starts_with("warning: latency: 1 command") && !line.contains("SLEEP"), "{line}");
    assert_eq!(code, Some(0), "{report}");
}

#[test]
fn a_clock_that_is_off() {
    let directory = directory();
    let (library, file) = (clock::library(directory.path()), directory.path().join("shift"));
    clock::shift(&file, "-90");
    let variables = [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_SHIFT_FILE", file.to_str().unwrap())];
    let server = Server::start(&Setup { variables: &variables, ..Setup::default() });
    let (report, code) = check(&[&url_of(&server)]);
    let line = report.lines().find(|line| line.contains(": clock: ")).expect(&report);
    let is_said = line.starts_with("warning: clock: the server is ") && line.contains(" ms behind this machine (±");
    assert!(
        is_said
            && line.ends_with(
                "; synchronise both clocks (NTP): reset times and calendar windows use the clock of the server"
            ),
        "{line}"
    );
    assert!(report.contains("ok: scripts: ") && code == Some(0), "{report}");
}

#[test]
fn json_has_the_same_findings() {
    let settings = ["--maxmemory 100mb", "--maxmemory-policy allkeys-lru"];
    let server = Server::start(&Setup { settings: &settings, ..Setup::default() });
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let (report, code) = check(&["--format", "json", &url_of(&server), &nobody]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((code, &report["errors"], &report["warnings"]), (Some(1), &2.into(), &1.into()), "{report:#}");
    let findings = report["stores"][0]["findings"].as_array().unwrap();
    let eviction = findings.iter().find(|finding| finding["topic"] == "eviction").unwrap();
    assert_eq!(eviction["severity"], "error");
    assert_eq!(eviction["fix"], "set maxmemory-policy noeviction or volatile-ttl");
    let fine = findings.iter().find(|finding| finding["topic"] == "version").unwrap();
    assert_eq!((&fine["severity"], fine.get("fix"), fine.get("node")), (&"ok".into(), None, None));
    assert_eq!(report["stores"][1]["store"], format!("{nobody}/0"));
}

#[test]
fn urls_that_cannot_be_used_are_one_line() {
    let said: String = [
        &format!("redis://:{SECRET}@127.0.0.1:99999")[..],
        &format!("redis://:{SECRET}#@127.0.0.1"),
        &format!("http://:{SECRET}@127.0.0.1"),
        "memory:",
        "redis://127.0.0.1?timeout=never",
    ]
    .iter()
    .map(|url| {
        let (report, code) = check(&[url]);
        assert_eq!((code, report.lines().count()), (Some(2), 1), "{report}");
        report
    })
    .collect();
    assert_snapshot!(said);
    for arguments in [["store", "redis://:s3cret-w0rd@h"], ["redis://:s3cret-w0rd@h", "check"]] {
        let output = command().args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && !said.contains(SECRET), "{said}");
    }
}

#[test]
fn the_url_may_be_in_the_environment() {
    let server = Server::start(&Setup { password: Some(SECRET), ..Setup::default() });
    let url = format!("redis://:{SECRET}@127.0.0.1:{}?{PATIENT}", server.port);
    let output = command().args(["store", "check"]).env("TIDEGATE_STORE", url).output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains("ok: connection: connected\n") && !report.contains(SECRET), "{report}");
}
