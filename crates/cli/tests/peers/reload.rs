//! Rules that change while clients ask: nothing is lost, and a bad file changes nothing.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tidegate_testkit::http::Connection;
use tidegate_testkit::process::directory;
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::eventually;

const LOADS: &str = "ratelimit_service_config_load_success";
const REFUSALS: &str = "ratelimit_service_config_load_error";

/// Between the requests of a client that hammers: it is there at every reload, and leaves the machine to others.
const PAUSE: Duration = Duration::from_millis(1);

/// Rules under which a user may do so much an hour.
fn rules(units: u64) -> String {
    format!("domains: {{api: {{rules: [{{name: per-user, key: {{entry: user}}, limit: {units}/hour}}]}}}}\n")
}

/// Replaces a file at once, as editors and deployments do.
fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

struct Reloading {
    directory: TempDir,
    tidegate: Tidegate,
}

impl Reloading {
    fn start(text: &str) -> Reloading {
        let directory = directory();
        write(&directory.path().join("rules.yaml"), text);
        // Room for every user of a test: without it further ones would be counted too strictly.
        let tidegate = Tidegate::with_config(&directory.path().join("rules.yaml"), &["--store", "memory:1000000"]);
        Reloading { directory, tidegate }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("rules.yaml")
    }

    fn count(&self, metric: &str) -> f64 {
        self.tidegate.metric(metric).unwrap_or_else(|| panic!("no {metric}"))
    }

    /// Does something and waits until one more of these was counted.
    fn until_counted(&self, metric: &str, act: impl FnOnce()) {
        let before = self.count(metric);
        act();
        assert!(eventually(|| self.count(metric) > before), "{metric} stays {before}");
    }

    fn hang_up(&self) {
        self.tidegate.process.signal(Signal::HUP);
    }
}

/// The quota that an answer to a check of the user tells, and what is left of it.
fn quota(connection: &mut Connection, user: &str) -> (u64, u64) {
    let body = format!(r#"{{"domain":"api","descriptors":[{{"user":"{user}"}}]}}"#);
    let answer = connection.ask("POST", "/v1/check", &[], &body).unwrap();
    let number = |header: &str, before: &str| -> u64 {
        let value = answer.header(header).unwrap_or_else(|| panic!("no {header} in {answer:?}"));
        value.split(';').find_map(|part| part.strip_prefix(before)?.parse().ok()).unwrap()
    };
    assert!(matches!(answer.status, 200 | 429), "{answer:?}");
    (number("ratelimit-policy", "q="), number("ratelimit", "r="))
}

/// Asks over HTTP until it is told to stop. Every answer is by the old rules or by the new ones.
fn hammer_http(address: SocketAddr, stop: &AtomicBool, asked: &AtomicU64) {
    let mut connection = Connection::open(address).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        let (quota, left) = quota(&mut connection, &format!("http-{number}"));
        assert!([100, 200].contains(&quota), "{quota}");
        assert_eq!(left, quota - 1, "a user that is new has the whole quota: {number}");
        std::thread::sleep(PAUSE);
    }
}

/// The same with the protocol of Redis, several commands at once.
fn hammer_resp(address: SocketAddr, stop: &AtomicBool, asked: &AtomicU64) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while !stop.load(Ordering::Relaxed) {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        stream.write_all(format!("TIDEGATE.CHECK api user resp-{number}\r\n").repeat(4).as_bytes()).unwrap();
        for _ in 0..4 {
            // Five numbers and the name of a rule, which has a line for its length.
            let answer: Vec<String> = lines.by_ref().take(8).map(Result::unwrap).collect();
            assert_eq!((answer[0].as_str(), answer[1].as_str()), ("*6", ":0"), "{answer:?}");
            assert!([":100", ":200"].contains(&answer[2].as_str()), "{answer:?}");
            assert_eq!(answer[7], "per-user", "{answer:?}");
        }
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn a_hundred_reloads_under_load_lose_nothing() {
    let reloading = Reloading::start(&rules(100));
    let Tidegate { http, resp, .. } = reloading.tidegate;
    let (stop, http_asked, resp_asked) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| hammer_http(http, &stop, &http_asked));
        scope.spawn(|| hammer_resp(resp, &stop, &resp_asked));
        // Should a reload fail, the others must not ask for ever.
        let stop_at_the_end = StopAtTheEnd(&stop);
        for number in 0..100 {
            write(&reloading.path(), &rules(if number % 2 == 0 { 200 } else { 100 }));
            reloading.until_counted(LOADS, || reloading.hang_up());
        }
        drop(stop_at_the_end);
    });
    assert!(reloading.count(LOADS) >= 101.0);
    assert_eq!(reloading.count(REFUSALS), 0.0);
    let asked = [&http_asked, &resp_asked].map(|count| count.load(Ordering::Relaxed));
    assert!(asked.iter().all(|asked| *asked > 100), "{asked:?}");
}

struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_changed_file_is_seen_without_a_signal() {
    let reloading = Reloading::start(&rules(100));
    reloading.until_counted(LOADS, || write(&reloading.path(), &rules(200)));
    let mut connection = Connection::open(reloading.tidegate.http).unwrap();
    assert_eq!(quota(&mut connection, "42"), (200, 199));
}

/// A config map of Kubernetes is a directory of links through `..data`, which is swapped for another one.
#[test]
fn a_swapped_config_map_is_seen() {
    let map = directory();
    let path = |name: &str| map.path().join(name);
    let put = |version: &str, units: u64| {
        std::fs::create_dir(path(version)).unwrap();
        std::fs::write(path(version).join("rules.yaml"), rules(units)).unwrap();
        symlink(version, path("..data_tmp")).unwrap();
        std::fs::rename(path("..data_tmp"), path("..data")).unwrap();
    };
    put("..2026_01", 100);
    symlink("..data/rules.yaml", path("rules.yaml")).unwrap();
    // The whole directory is loaded, as it would be mounted.
    let tidegate = Tidegate::with_config(map.path(), &[]);
    let mut connection = Connection::open(tidegate.http).unwrap();
    assert_eq!(quota(&mut connection, "42"), (100, 99));
    put("..2026_02", 200);
    std::fs::remove_dir_all(path("..2026_01")).unwrap();
    assert!(eventually(|| quota(&mut connection, "other").0 == 200));
    assert_eq!(tidegate.metric(REFUSALS), Some(0.0));
}

#[test]
fn a_bad_file_changes_nothing_and_is_told() {
    let reloading = Reloading::start(&rules(100));
    let mut connection = Connection::open(reloading.tidegate.http).unwrap();
    let bad = "domains: {api: {rules: [{name: per-user, limit: 5/fortnight}, {name: other, limits: x}]}}\n";
    reloading.until_counted(REFUSALS, || {
        write(&reloading.path(), bad);
        reloading.hang_up();
    });
    assert_eq!(quota(&mut connection, "42"), (100, 99));
    // The log is written beside what it is about.
    let log = || reloading.tidegate.process.log();
    assert!(eventually(|| log().contains("fortnight") && log().contains("the old one stays")), "{}", log());
    reloading.until_counted(REFUSALS, || {
        std::fs::remove_file(reloading.path()).unwrap();
        reloading.hang_up();
    });
    assert_eq!(quota(&mut connection, "42"), (100, 98));
    reloading.until_counted(LOADS, || write(&reloading.path(), &rules(200)));
    assert_eq!(quota(&mut connection, "new").0, 200);
}

#[test]
fn a_changed_limit_keeps_its_debt() {
    let reloading = Reloading::start(&rules(4));
    let mut connection = Connection::open(reloading.tidegate.http).unwrap();
    for left in [3, 2, 1, 0, 0] {
        assert_eq!(quota(&mut connection, "42"), (4, left));
    }
    let to = |units: u64| {
        reloading.until_counted(LOADS, || {
            write(&reloading.path(), &rules(units));
            reloading.hang_up();
        });
    };
    // An hour's worth was used: under a limit of as much an hour nothing is left, whatever its number.
    to(8);
    assert_eq!(quota(&mut connection, "42"), (8, 0));
    to(2);
    assert_eq!(quota(&mut connection, "42"), (2, 0));
    assert_eq!(quota(&mut connection, "fresh"), (2, 1));
}
