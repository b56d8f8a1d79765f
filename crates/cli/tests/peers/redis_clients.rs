//! Redis' own tools and the clients that most people use.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;

use insta::assert_snapshot;
use tidegate_testkit::process::{command, printed};
use tidegate_testkit::repository::{root, venv};
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::eventually;

use crate::clients::python;

/// What `redis-cli` prints for each of these.
fn redis_cli(tidegate: &Tidegate, commands: &[&str]) -> String {
    let port = tidegate.resp.port().to_string();
    let mut said = String::new();
    for line in commands {
        let mut arguments = vec!["-p", &port];
        arguments.extend(line.split(' '));
        let answer = printed(&mut command("redis-cli", &arguments));
        writeln!(said, "$ redis-cli {line}\n{}", answer.trim_end()).unwrap();
    }
    said
}

#[test]
fn redis_cli_by_hand() {
    let tidegate = Tidegate::with_examples();
    // The rate is one an hour, so that the times are the same however long the test takes.
    let said = redis_cli(
        &tidegate,
        &[
            "PING",
            "CL.THROTTLE user:42 2 1 3600",
            "CL.THROTTLE user:42 2 1 3600",
            "CL.THROTTLE user:42 2 1 3600",
            "CL.THROTTLE user:42 2 1 3600",
            "CL.THROTTLE user:42 2 1 3600 0",
            "-3 CL.THROTTLE user:42 2 1 3600",
            "DEL user:42",
            "CL.THROTTLE user:42 2 1 3600 3",
            "CL.THROTTLE user:42 2 1 3600 9",
            "CL.THROTTLE user:42",
            "CL.THROTTLE user:42 two 1 3600",
            "CL.THROTTLE user:42 2 0 3600",
            "CL.THROTTLE user:42 -1 1 3600",
            "TIDEGATE.CHECK nowhere user 42",
            "TIDEGATE.CHECK api",
            "FOO bar",
        ],
    );
    assert_snapshot!(said);
}

#[test]
fn clients_are_numbered_and_counted_over_all_threads() {
    let tidegate = Tidegate::start(&["--threads", "2"]);
    let ask = |client: &mut TcpStream, command: &str| {
        client.write_all(command.as_bytes()).unwrap();
        let mut answer = [0; 1024];
        let length = client.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    let (mut clients, mut ids) = (Vec::new(), BTreeSet::new());
    // So many that each thread has some, also if it starts later than the other.
    for _ in 0..200 {
        let mut client = TcpStream::connect(tidegate.resp).unwrap();
        ids.insert(ask(&mut client, "CLIENT ID\r\n"));
        clients.push(client);
    }
    assert_eq!(ids.len(), 200, "{ids:?}");
    for client in &mut clients {
        let told = ask(client, "INFO clients\r\n");
        assert!(told.contains("connected_clients:200\r\n"), "{told}");
    }
    clients.truncate(1);
    let is_alone = || ask(&mut clients[0], "INFO clients\r\n").contains("connected_clients:1\r\n");
    assert!(eventually(is_alone), "those who left are still counted");
}

#[test]
fn redis_cli_checks_configured_rules() {
    let tidegate = Tidegate::with_examples();
    let answers: Vec<String> = (0..6)
        .map(|_| redis_cli(&tidegate, &["TIDEGATE.CHECK api user 42"]).lines().nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(answers, ["0", "0", "0", "0", "0", "1"]);
}

/// `redis-cli --pipe` sends a file of commands at once and counts the answers.
#[test]
fn redis_cli_in_pipe_mode() {
    let tidegate = Tidegate::start(&[]);
    let port = tidegate.resp.port().to_string();
    let mut child = command("redis-cli", &["-p", &port, "--pipe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: String = (0..10_000).map(|number| format!("CL.THROTTLE pipe:{} 4 1 3600\r\n", number % 100)).collect();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("errors: 0, replies: 10000"), "{said}");
    // Each of the 100 keys was asked for a hundred times and has no room left.
    assert!(redis_cli(&tidegate, &["CL.THROTTLE pipe:7 4 1 3600"]).lines().nth(1) == Some("1"));
}

#[test]
fn redis_benchmark() {
    let tidegate = Tidegate::start(&[]);
    let port = tidegate.resp.port().to_string();
    let base = ["-p", &port, "-n", "20000", "-c", "8", "-P", "16", "-r", "1000", "-q"];
    for measured in [&["-t", "ping"][..], &["CL.THROTTLE", "key:__rand_int__", "15", "30", "60"]] {
        let all: Vec<&str> = base.iter().chain(measured).copied().collect();
        let said = printed(&mut command("redis-benchmark", &all));
        assert!(said.contains("requests per second"), "{said}");
        assert!(!said.to_lowercase().contains("error"), "{said}");
    }
    // 16 at once and one more each two seconds: after 20 for each key most are over it.
    let said = redis_cli(&tidegate, &["CL.THROTTLE key:000000000007 15 30 60 0"]);
    let remaining: u64 = said.lines().nth(3).unwrap().parse().unwrap();
    assert!(remaining < 16, "{said}");
}

#[test]
fn redis_py_with_resp2() {
    let tidegate = Tidegate::with_examples();
    assert_snapshot!(printed(&mut python("redis_py.py", &[&tidegate.resp.port().to_string(), "2"])));
}

#[test]
fn redis_py_with_resp3() {
    let tidegate = Tidegate::with_examples();
    assert_snapshot!(printed(&mut python("redis_py.py", &[&tidegate.resp.port().to_string(), "3"])));
}

#[test]
fn redis_py_with_a_password() {
    let tidegate = Tidegate::start(&["--password", "open sesame"]);
    let script = "import redis, sys
for password in [None, 'wrong', 'open sesame']:
    client = redis.Redis(port=int(sys.argv[1]), password=password)
    try:
        print(client.execute_command('CL.THROTTLE', 'k', 2, 1, 3600))
    except redis.RedisError as error:
        print(type(error).__name__, error)
";
    let said = printed(&mut command(venv("python"), &["-c", script, &tidegate.resp.port().to_string()]));
    // It connects again and again with the wrong one, and then gets in with the right one a little later.
    let (before, after) = said.split_once("try again in ").unwrap();
    let (_seconds, after) = after.split_once(' ').unwrap();
    assert_snapshot!(format!("{before}try again in N {after}"));
}

#[test]
fn ioredis() {
    let tidegate = Tidegate::start(&[]);
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers/clients/ioredis.cjs");
    let modules = root().join("target/peers/node/node_modules");
    assert!(modules.join("ioredis").exists(), "ioredis is missing; `make peers` installs it");
    let port = tidegate.resp.port().to_string();
    let mut node = command(venv("node"), &[script.to_str().unwrap(), &port]);
    assert_snapshot!(printed(node.env("NODE_PATH", modules)));
}
