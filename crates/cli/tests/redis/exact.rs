//! Eight clients, two servers, one key: exactly the limit passes.

use tidegate_testkit::servers::{Server, Setup, valkey};
use tidegate_testkit::tidegate::Tidegate;

use crate::ask::{Http, Resp, Said, passed_grpc};
use crate::fleet::{Fleet, PATIENT, charged, shared};

const CLIENTS: usize = 8;
const TRIES: usize = 10_000;
/// So many pass of 80,000. The period is so long that no unit comes back meanwhile.
const LIMIT: u64 = 7_500;

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}?{PATIENT}", server.port)
}

/// What passed of all that these clients asked, at the same time.
pub(crate) fn passed(client: impl Fn(usize) -> u64 + Sync) -> u64 {
    std::thread::scope(|scope| {
        let client = &client;
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        clients.into_iter().map(|one| one.join().unwrap()).sum()
    })
}

#[test]
fn as_many_throttled_commands_pass_as_the_limit_says() {
    for (scheme, program) in [("redis", None), ("valkey", Some(valkey()))] {
        let server = Server::start(&Setup { program, ..Setup::default() });
        let store = format!("{scheme}://127.0.0.1:{}?{PATIENT}", server.port);
        let nodes = [(); 2].map(|()| Tidegate::start(&["--store", &store]));
        let command = format!("CL.THROTTLE one {} {LIMIT} {}", LIMIT - 1, 30 * 86_400);
        let passed = passed(|number| Resp::open(nodes[number % 2].resp).passed(&command, TRIES));
        assert_eq!(passed, LIMIT, "{scheme}");
    }
}

/// Four clients speak Redis' protocol, two HTTP and two gRPC, and all mean the same key of one rule. Those of HTTP and
/// gRPC ask less: a question at a time takes longer.
fn check(limit: &str) {
    const PASS: u64 = 1_500;
    let redis = Server::start(&Setup::default());
    let limit = limit.replace("LIMIT", &PASS.to_string());
    let rule = format!("name: per-user, key: {{entry: user}}, limit: {limit}, on_store_failure: deny");
    let fleet = Fleet::start(2, &shared(&url(&redis), &[&rule]));
    let passed = passed(|number| {
        let node = fleet.node(number);
        match number {
            0..4 => Resp::open(node.resp).passed("TIDEGATE.CHECK api user one", 1_500),
            4..6 => {
                let mut http = Http::open(node.http);
                (0..750).map(|_| u64::from(http.ask_with(&[("user", "one")]) == Said::Passed)).sum()
            }
            _ => passed_grpc(node.grpc, "one", 500),
        }
    });
    assert_eq!(passed, PASS, "{limit}");
    assert_eq!(charged(fleet.node(0), ("user", "one")), PASS, "{limit}");
}

#[test]
fn as_many_pass_as_a_bucket_holds() {
    check("LIMIT/30d");
}

#[test]
fn as_many_pass_as_a_window_holds() {
    check("{algorithm: fixed_window, rate: LIMIT/30d}");
}

#[test]
fn as_many_pass_as_a_log_holds() {
    check("{algorithm: sliding_log, rate: LIMIT/30d}");
}

#[test]
fn as_many_pass_as_a_window_of_a_calendar_holds() {
    check("{algorithm: calendar_window, rate: LIMIT/year, time_zone: Europe/Berlin, anchor: \"02-29\"}");
}

/// Not the numbers of an earlier denial, which a node remembers to spare Redis a call.
#[test]
fn a_denial_tells_what_is_left_after_later_admissions() {
    let server = Server::start(&Setup::default());
    let node = Tidegate::start(&["--store", &url(&server)]);
    let mut client = Resp::open(node.resp);
    let mut throttle = |units: u64| client.told(&format!("CL.THROTTLE ann 9 10 36000 {units}"));
    let never = |left: i64| [1, 10, left, -1];
    assert_eq!(throttle(20)[..4], never(10));
    assert_eq!(throttle(3)[..3], [0, 10, 7]);
    assert_eq!(throttle(20)[..4], never(7), "more than the limit, after an admission");
    assert_eq!(throttle(8)[..3], [1, 10, 7]);
    assert_eq!(throttle(7)[..3], [0, 10, 0]);
    let denied = throttle(8);
    assert_eq!(denied[..3], [1, 10, 0]);
    assert!((8 * 3_600 - 60..=8 * 3_600).contains(&denied[3]), "a wait as of before the admission: {denied:?}");
}
