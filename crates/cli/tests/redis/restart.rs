//! Redis forgets its scripts or is started again while everybody asks.

use tidegate_testkit::servers::{Server, Setup};
use tidegate_testkit::wait::eventually;

use crate::ask::Said;
use crate::fleet::{Fleet, PATIENT, charged, check, shared, sleep_millis};
use crate::load::during;

/// A limit that is not reached, so that what is left of it tells what was charged.
const STRICT: &str = "name: strict, key: {entry: user}, on_store_failure: deny, \
                      limit: {algorithm: fixed_window, rate: 1000000/30d}";
const OPEN: &str = "name: open, key: {entry: guest}, on_store_failure: allow, limit: 1000000/30d";

#[test]
fn forgotten_scripts_cost_nobody_anything() {
    let redis = Server::start(&Setup::default());
    let url = format!("redis://127.0.0.1:{}?{PATIENT}", redis.port);
    let fleet = Fleet::start(2, &shared(&url, &[STRICT]));
    let (answers, ()) = during(
        &fleet,
        4,
        |_| ("user", "one".to_owned()),
        || {
            for _ in 0..100 {
                redis.command("SCRIPT FLUSH");
                sleep_millis(10);
            }
        },
    );
    println!("{}", answers.told());
    assert_eq!((answers.count(Said::Denied), answers.count(Said::Failed)), (0, 0));
    assert_eq!(charged(fleet.node(0), ("user", "one")), answers.count(Said::Passed), "each was charged once");
}

/// It keeps its counts in a file: what it acknowledged is there after a restart.
#[test]
fn a_restart_charges_nobody_twice_and_loses_nothing() {
    let redis = Server::start(&Setup { settings: &["--appendonly yes", "--appendfsync no"], ..Setup::default() });
    let url = format!("redis://127.0.0.1:{}?timeout=200ms", redis.port);
    let fleet = Fleet::start(2, &shared(&url, &[STRICT, OPEN]));
    let entry = |number: u64| (if number.is_multiple_of(4) { "guest" } else { "user" }, "one".to_owned());
    let (answers, ()) = during(&fleet, 4, entry, || {
        for _ in 0..2 {
            sleep_millis(400);
            redis.kill();
            sleep_millis(200);
            redis.run();
            let back = || fleet.nodes.iter().all(|node| check(node, ("user", "probe")) == Said::Passed);
            assert!(eventually(back), "Redis is back and nobody notices");
        }
        sleep_millis(400);
    });
    let (strict, open) = (answers.of("user"), answers.of("guest"));
    let charged = charged(fleet.node(0), ("user", "one"));
    println!("strict: {}; open: {}; charged {charged}", strict.told(), open.told());
    assert_eq!((open.count(Said::Failed), open.count(Said::Denied)), (0, 0), "who is let through meets no error");
    let (passed, failed) = (strict.count(Said::Passed), strict.count(Said::Failed));
    assert_eq!(strict.count(Said::Denied), 0);
    assert!(passed <= charged, "{passed} passed, {charged} charged");
    assert!(charged <= passed + failed, "{charged} charged, {passed} passed, of {failed} it is not known");
}
