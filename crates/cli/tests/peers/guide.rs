//! The guide under docs/: its commands print what stands there, with the files that it shows.

use std::path::{Path, PathBuf};

use crate::process::{directory, root};
use crate::readme;
use crate::tidegate::Tidegate;

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
    readme::check_text(page, &with_addresses(&text, &tidegate), |shell| {
        let built = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().map(PathBuf::from).unwrap();
        let others = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(built).chain(std::env::split_paths(&others));
        shell.current_dir(place.path()).env("PATH", std::env::join_paths(all).unwrap());
    });
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

#[test]
fn no_page_with_commands_is_left_out() {
    let tests = include_str!("guide.rs");
    for entry in std::fs::read_dir(root().join("docs/src")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let has_commands = std::fs::read_to_string(&path).unwrap().contains("```console");
        assert!(!has_commands || tests.contains(&format!("check(\"{name}\"")), "nobody runs the commands of {name}");
    }
}
