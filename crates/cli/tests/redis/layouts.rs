//! Several stores in one rule.

use crate::ask::{Resp, Said};
use crate::fleet::{Fleet, PATIENT, check, inspect};

use Said::{Denied, Passed};
use tidegate_testkit::process::directory;
use tidegate_testkit::servers::{Server, Setup};
use tidegate_testkit::tidegate::Tidegate;

/// How often a server ran a script.
pub(crate) fn scripts(server: &Server) -> u64 {
    let info = server.command("INFO commandstats");
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// What is left under each limit, by name.
fn left(fleet: &Fleet) -> Vec<(String, u64)> {
    let told = inspect(fleet.node(0), ("user", "ann"));
    let limits = told["limits"].as_array().unwrap();
    let one =
        |limit: &serde_json::Value| (limit["name"].as_str().unwrap().to_owned(), limit["remaining"].as_u64().unwrap());
    limits.iter().map(one).collect()
}

fn start(stores: &str, limits: &str) -> Fleet {
    let rule = format!("{{name: two, key: {{entry: user}}, limits: [{limits}], on_store_failure: deny}}");
    Fleet::start(1, &format!("stores: {{{stores}}}\ndomains: {{api: {{rules: [{rule}]}}}}\n"))
}

#[test]
fn what_one_redis_gave_goes_back_if_another_denies() {
    let [fast, slow] = [(); 2].map(|()| Server::start(&Setup::default()));
    let url = |server: &Server| format!("{{url: 'redis://127.0.0.1:{}?{PATIENT}'}}", server.port);
    let stores = format!("fast: {}, slow: {}", url(&fast), url(&slow));
    for (short, long) in [(10, 3), (3, 10)] {
        let limits =
            format!("{{name: short, rate: {short}/29d, store: fast}}, {{name: long, rate: {long}/30d, store: slow}}");
        let fleet = start(&stores, &limits);
        let said = [(); 5].map(|()| check(fleet.node(0), ("user", "ann")));
        assert_eq!(said, [Passed, Passed, Passed, Denied, Denied]);
        let expected = [("short".to_owned(), short - 3), ("long".to_owned(), long - 3)];
        assert_eq!(left(&fleet), expected, "a denial costs nothing in either");
        for server in [&fast, &slow] {
            server.command("FLUSHALL");
        }
    }
    assert!(scripts(&fast) > 0 && scripts(&slow) > 0, "each was asked");
}

#[test]
fn the_file_says_where_the_default_store_is_before_the_command_line_does() {
    let redis = Server::start(&Setup::default());
    let directory = directory();
    let path = directory.path().join("rules.yaml");
    let rules = "domains: {api: {rules: [{name: one, key: {entry: user}, limit: 1/30d}]}}\n";
    let store = format!("redis://127.0.0.1:{}?{PATIENT}", redis.port);
    for (stores, second, warns) in [("", Denied, false), ("stores: {default: {url: 'memory:'}}\n", Passed, true)] {
        std::fs::write(&path, format!("{stores}{rules}")).unwrap();
        let nodes = [(); 2].map(|()| Tidegate::with_config(&path, &["--store", &store]));
        let said = [0, 1].map(|number: usize| check(&nodes[number], ("user", "ann")));
        assert_eq!(said, [Passed, second], "{stores}");
        let log = nodes[0].process.log();
        assert_eq!(log.contains("the one of the command line is ignored"), warns, "{log}");
    }
}

#[test]
fn a_local_bucket_spares_the_shared_store_what_it_denies() {
    let redis = Server::start(&Setup::default());
    let stores = format!("shared: {{url: 'redis://127.0.0.1:{}?{PATIENT}'}}", redis.port);
    let limits = "{name: local, rate: 3/30d, store: default}, {name: shared, rate: 100/30d, store: shared}";
    let fleet = start(&stores, limits);
    let said: Vec<Said> = (0..100).map(|_| check(fleet.node(0), ("user", "ann"))).collect();
    assert_eq!(said.iter().filter(|said| **said == Passed).count(), 3);
    let scripts = scripts(&redis);
    assert!((3..20).contains(&scripts), "100 questions, of which 3 passed, were {scripts} calls");
    assert_eq!(left(&fleet), [("local".to_owned(), 0), ("shared".to_owned(), 97)]);
}

#[test]
fn a_pipeline_over_several_stores_is_answered_in_its_order() {
    let redis = Server::start(&Setup::default());
    let directory = directory();
    let path = directory.path().join("rules.yaml");
    let rules = format!(
        "stores: {{shared: {{url: 'redis://127.0.0.1:{}?{PATIENT}'}}}}
domains:
  here: {{rules: [{{name: here, key: {{entry: user}}, limit: 6/30d}}]}}
  there: {{rules: [{{name: there, key: {{entry: user}}, limit: 5/30d, store: shared}}]}}
",
        redis.port
    );
    std::fs::write(&path, rules).unwrap();
    let tidegate = Tidegate::with_config(&path, &[]);
    let commands =
        ["TIDEGATE.CHECK there user ann", "CL.THROTTLE own 6 7 3600", "TIDEGATE.CHECK here user ann", "PING"];
    let order = [0, 1, 0, 2, 0, 0, 1, 1, 3, 0, 1, 2, 0, 3, 1];
    let limits = Resp::open(tidegate.resp).limits(&order.map(|number| commands[number]));
    assert_eq!(limits, order.map(|number| [5, 7, 6, 0][number]));
}
