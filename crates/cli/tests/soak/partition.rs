//! A primary of a Cluster is cut off together with its clients: it admits requests until it notices, and their counts are
//! lost.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tidegate_testkit::http::{self, Connection};
use tidegate_testkit::process::{Process, directory, printed};
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::eventually;

use crate::namespaces::{ADDRESSES, Networks};
use crate::report::{Progress, Watch};

const NODE_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time until the primary notices.
const NOTICED: Duration = Duration::from_millis(1_600);
const LIMIT: u64 = 10_000_000;
/// The first network has one primary, the second one all other nodes.
const NODES: [(usize, u16); 6] = [(0, 7000), (1, 7001), (1, 7002), (1, 7003), (1, 7004), (1, 7005)];

/// The time and the status of an answer.
type Answer = (Duration, u16);

pub(crate) fn a_primary_that_is_cut_off_admits_no_more_than_it_must(progress: &mut Progress) {
    let networks = Networks::make();
    let _nodes: Vec<Process> = NODES.iter().map(|node| start_node(&networks, *node)).collect();
    join(&networks);
    let rule = format!(
        "{{name: strict, store: shared, key: {{entry: user}}, on_store_failure: deny, \
         limit: {{algorithm: fixed_window, rate: {LIMIT}/30d}}}}"
    );
    let hosts: Vec<String> = NODES.iter().map(|(network, port)| format!("{}:{port}", ADDRESSES[*network])).collect();
    let url = format!("redis+cluster://{}?timeout=50ms", hosts.join(","));
    let config = format!("stores: {{shared: {{url: '{url}'}}}}\ndomains: {{api: {{rules: [{rule}]}}}}\n");
    let directory = directory();
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, config).unwrap();
    let binary = env!("CARGO_BIN_EXE_tidegate");
    let nodes = [0, 1]
        .map(|network| Tidegate::start_by(networks.command(network, binary), &["--config", path.to_str().unwrap()]));
    let user = user_of_the_first(&networks, &nodes[0]);
    progress.log("the Cluster is up");
    let (watch, end) = (Watch::start(), AtomicBool::new(false));
    let (cut, restored, answers) = std::thread::scope(|scope| {
        let askers = [0, 1].map(|network| {
            let (networks, node, user, watch, end) = (&networks, &nodes[network], &user, &watch, &end);
            scope.spawn(move || networks.inside(network, || ask(node, user, watch, end)))
        });
        std::thread::sleep(Duration::from_secs(2));
        let cut = watch.elapsed();
        networks.cut(true);
        std::thread::sleep(Duration::from_secs(6));
        let restored = watch.elapsed();
        networks.cut(false);
        std::thread::sleep(Duration::from_secs(5));
        end.store(true, Relaxed);
        (cut, restored, askers.map(|asker| asker.join().unwrap()))
    });
    let [here, there] = &answers;
    let passed = |answers: &[Answer], from: Duration, to: Duration| {
        answers.iter().filter(|(at, status)| *status == 200 && (from..to).contains(at)).count() as u64
    };
    // Requests just before the link is restored may be answered by the other nodes.
    let alone = restored - Duration::from_millis(500);
    let last = here.iter().filter(|(at, status)| *status == 200 && *at < alone).map(|(at, _)| *at).max().unwrap();
    let found = there.iter().find(|(at, status)| *status == 200 && *at > cut + NODE_TIMEOUT / 2).unwrap().0;
    let again = here.iter().find(|(at, status)| *status == 200 && *at > restored).map(|(at, _)| *at - restored);
    // The rate after the cut, which is higher since the other clients are gone.
    let rate = passed(here, cut, last) as f64 / (last.saturating_sub(cut)).as_secs_f64().max(0.5);
    let all: u64 = answers.iter().map(|answers| passed(answers, Duration::ZERO, Duration::MAX)).sum();
    let charged = networks.inside(1, || charged(&nodes[1], &user));
    let over = all.saturating_sub(charged);
    let bound = rate * NOTICED.as_secs_f64();
    progress.figure("admitted requests per second at the old primary after the cut", format!("{rate:.0}"), "");
    progress.figure("the old primary admits after the cut for", milliseconds(last.saturating_sub(cut)), "≤ 1600 ms");
    progress.figure("the other nodes have a new primary after", milliseconds(found - cut), "");
    progress.figure("admitted requests that are not counted in the end", over, &format!("≤ {bound:.0}, rate × 1.6 s"));
    progress.figure(
        "after the link is restored, all count together after",
        again.map_or("never".into(), milliseconds),
        "≤ 4000 ms",
    );
    let odd = answers.iter().flatten().find(|(_, status)| ![200, 503].contains(status));
    assert_eq!(odd, None, "unexpected status");
    assert!(last.saturating_sub(cut) <= NOTICED + Duration::from_millis(200), "{last:?}");
    assert!(over as f64 <= bound * 1.2, "{over} of {bound}");
    assert!(again.is_some_and(|again| again <= Duration::from_secs(4)), "{again:?}");
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

fn start_node(networks: &Networks, (network, port): (usize, u16)) -> Process {
    let mut command = networks.command(network, "redis-server");
    let settings = format!(
        "--bind {} --port {port} --protected-mode no --appendonly no --cluster-enabled yes --cluster-node-timeout {} \
         --cluster-replica-validity-factor 0 --repl-diskless-sync-delay 0 --save",
        ADDRESSES[network],
        NODE_TIMEOUT.as_millis()
    );
    let directory = directory();
    command.args(settings.split(' ')).arg("").current_dir(directory.path());
    Process::start(directory, &mut command, None)
}

fn redis_cli(networks: &Networks, (network, port): (usize, u16), words: &[&str]) -> String {
    let mut command = networks.command(network, "redis-cli");
    printed(command.args(["-h", ADDRESSES[network], "-p", &port.to_string()]).args(words))
}

/// Makes a Cluster of the nodes, with the first as a primary, and waits until it is complete.
fn join(networks: &Networks) {
    let is_up = |node| redis_cli(networks, node, &["PING"]).contains("PONG");
    assert!(eventually(
        || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| NODES.into_iter().all(is_up))).is_ok()
    ));
    let mut create = networks.command(1, "redis-cli");
    create.args(["--cluster", "create"]);
    create.args(NODES.map(|(network, port)| format!("{}:{port}", ADDRESSES[network])));
    printed(create.args(["--cluster-replicas", "1", "--cluster-yes"]));
    assert!(redis_cli(networks, NODES[0], &["ROLE"]).starts_with("master"));
    let has_replica = || redis_cli(networks, NODES[0], &["INFO", "replication"]).contains("state=online");
    assert!(eventually(has_replica), "the first primary has no replica");
    let is_whole = |node| redis_cli(networks, node, &["CLUSTER", "INFO"]).contains("cluster_state:ok");
    assert!(eventually(|| NODES.into_iter().all(is_whole)));
}

/// Returns a user whose count is on the first primary.
fn user_of_the_first(networks: &Networks, node: &Tidegate) -> String {
    let keys = || redis_cli(networks, NODES[0], &["DBSIZE"]);
    let is_there = |user: &String| {
        let before = keys();
        let asked = || networks.inside(0, || check(&mut Connection::open(node.http).unwrap(), user)) == 200;
        assert!(eventually(asked), "{}", node.process.log());
        keys() != before
    };
    (0..50).map(|number| format!("user{number}")).find(is_there).expect("a key on the first primary")
}

fn body(user: &str) -> String {
    format!(r#"{{"domain":"api","descriptors":[{{"user":"{user}"}}]}}"#)
}

fn check(connection: &mut Connection, user: &str) -> u16 {
    connection.ask("POST", "/v1/check", &[], &body(user)).unwrap().status
}

/// Sends requests of a user until the end of the run, and returns the answers.
fn ask(node: &Tidegate, user: &str, watch: &Watch, end: &AtomicBool) -> Vec<Answer> {
    let (mut connection, mut answers) = (Connection::open(node.http).unwrap(), Vec::new());
    while !end.load(Relaxed) {
        let at = watch.elapsed();
        answers.push((at, check(&mut connection, user)));
        std::thread::sleep(Duration::from_micros(500));
    }
    answers
}

/// Returns the units that are charged to a user.
fn charged(node: &Tidegate, user: &str) -> u64 {
    let response = http::ask(node.http, "POST", "/v1/inspect", &[], &body(user));
    let report: serde_json::Value = serde_json::from_str(&response.body).unwrap();
    LIMIT - report["rules"][0]["limits"][0]["remaining"].as_u64().unwrap()
}
