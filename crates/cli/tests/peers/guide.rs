//! The guide under docs/ and the README: their commands print what stands there, with the files that they show.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_testkit::http::get;
use tidegate_testkit::ports::free_port;
use tidegate_testkit::process::{Process, directory};
use tidegate_testkit::repository::root;
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::eventually;

use crate::readme;

/// The files of a page: `yaml` blocks that begin with a comment that names one, like `# rules.yaml`.
fn files(text: &str) -> Vec<(&str, &str)> {
    let blocks = text.split("\n```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let named = blocks.filter_map(|block| {
        let name = block.lines().next()?.strip_prefix("# ")?;
        name.ends_with(".yaml").then_some((name, block))
    });
    named.collect()
}

/// The text with the addresses of a server in the place of the usual ones.
fn with_addresses(text: &str, tidegate: &Tidegate) -> String {
    let resp = format!("redis-cli -p {}", tidegate.resp.port());
    text.replace("127.0.0.1:8080", &tidegate.http.to_string()).replace("redis-cli -p 6380", &resp)
}

/// Runs the commands of a page beside a server with these rules, which are a path below the files of the page.
fn check(page: &str, rules: Option<&str>) {
    let text = std::fs::read_to_string(root().join("docs/src").join(page)).unwrap();
    let place = directory();
    for (name, block) in files(&text) {
        let path = place.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, block).unwrap();
    }
    let examples = root().join("examples/tidegate.yaml");
    let tidegate = Tidegate::with_config(&rules.map_or(examples, |rules| place.path().join(rules)), &[]);
    readme::check_text(page, &with_addresses(&text, &tidegate), |shell| prepare(shell, place.path()));
}

/// Lets a shell find the files of a page and the command that was built.
fn prepare(shell: &mut Command, place: &Path) {
    let built = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().map(PathBuf::from).unwrap();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(built).chain(std::env::split_paths(&others));
    shell.current_dir(place).env("PATH", std::env::join_paths(all).unwrap());
}

#[test]
fn the_readme() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (tidegate, place) = (Tidegate::with_examples(), directory());
    readme::check_text("README.md", &with_addresses(&text, &tidegate), |shell| prepare(shell, place.path()));
}

#[test]
fn quick_start() {
    check("quick-start.md", None);
}

#[test]
fn algorithms() {
    check("algorithms.md", None);
}

#[test]
fn rules() {
    check("rules.md", Some("rules.yaml"));
}

#[test]
fn http() {
    check("http.md", None);
}

#[test]
fn redis() {
    check("redis.md", None);
}

#[test]
fn envoy() {
    check("envoy.md", None);
}

#[test]
fn permits() {
    check("permits.md", None);
}

#[test]
fn operating() {
    check("operating.md", None);
}

#[test]
fn metrics() {
    check("metrics.md", None);
}

#[test]
fn from_envoy_ratelimit() {
    check("from-envoy-ratelimit.md", Some("config"));
}

#[test]
fn from_redis_cell() {
    check("from-redis-cell.md", None);
}

/// A Redis that listens there.
fn redis_on(port: u16) -> Process {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
    let mut redis = Process::start(directory(), &mut command, None);
    redis.wait_until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    redis
}

/// Two servers with the rules of the page, and a Redis between them, which the page stops and starts again.
#[test]
fn shared_store() {
    let page = "shared-store.md";
    let text = std::fs::read_to_string(root().join("docs/src").join(page)).unwrap();
    let place = directory();
    for (name, block) in files(&text) {
        std::fs::write(place.path().join(name), block).unwrap();
    }
    let port = free_port();
    let mut redis = redis_on(port);
    // More time than usual: the machine may be busy with other tests.
    let url = format!("redis://127.0.0.1:{port}?timeout=2s");
    let rules = place.path().join("rules.yaml");
    let arguments = ["--config", rules.to_str().unwrap()];
    let [one, two] = [(); 2].map(|()| Tidegate::with_variable("REDIS_URL", Path::new(&url), &arguments));
    let text = with_addresses(&text, &one)
        .replace("8080 8090 8080 8090 8080 8090", &format!("{0} {1} {0} {1} {0} {1}", one.http.port(), two.http.port()))
        .replace("redis-cli -p 6399", &format!("redis-cli -p {port}"))
        .replace("127.0.0.1:6399", &format!("127.0.0.1:{port}"));
    let (before, after) = text.split_once("\nIn the terminal of Redis, start it again:\n").unwrap();
    readme::check_text(page, before, |shell| prepare(shell, place.path()));
    assert!(redis.ended().success());
    let _again = redis_on(port);
    let asked = format!("tidegate_store_breaker{{store=\"shared\",node=\"127.0.0.1:{port}\"}} 0\n");
    assert!(eventually(|| get(one.http, "/metrics").body.contains(&asked)), "Redis is back, and nobody asks it");
    readme::check_text(page, after, |shell| prepare(shell, place.path()));
}

#[test]
fn no_page_with_commands_is_left_out() {
    let tests = include_str!("guide.rs");
    for entry in std::fs::read_dir(root().join("docs/src")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let has_commands = std::fs::read_to_string(&path).unwrap().contains("```console");
        let is_run = ["check(", "let page = "].iter().any(|before| tests.contains(&format!("{before}\"{name}\"")));
        assert!(!has_commands || is_run, "nobody runs the commands of {name}");
    }
}
