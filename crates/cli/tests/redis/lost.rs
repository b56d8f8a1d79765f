//! Redis applied a charge, and its reply is lost.

use tidegate_testkit::servers::{Mode, Server, Setup};
use tidegate_testkit::wait::eventually;

use crate::ask::{Http, Said};
use crate::fleet::{Fleet, PATIENT, charged, proxy, shared, sleep_millis};

#[test]
fn a_lost_reply_is_charged_once_at_most() {
    let redis = Server::start(&Setup::default());
    let proxy = proxy(redis.port);
    let rules = [
        "name: strict, key: {entry: user}, on_store_failure: deny, limit: 100/30d",
        "name: logged, key: {entry: guest}, on_store_failure: deny, limit: {algorithm: sliding_log, rate: 100/30d}",
        "name: open, key: {entry: anyone}, on_store_failure: allow, limit: 100/30d",
    ];
    let fleet = Fleet::start(1, &shared(&format!("redis://127.0.0.1:{}?timeout=300ms", proxy.port), &rules));
    // Another node sees what Redis has, past the proxy.
    let witness = Fleet::start(1, &shared(&format!("redis://127.0.0.1:{}?{PATIENT}", redis.port), &rules));
    let witness = witness.node(0);
    // A connection is served by one thread, which has a connection to Redis of its own: it is there when the reply is lost.
    let mut node = Http::open(fleet.node(0).http);
    let mut check = |entry: (&str, &str)| node.ask_with(&[entry]);
    for (entry, when_lost) in
        [(("user", "ann"), Said::Failed), (("guest", "ann"), Said::Failed), (("anyone", "ann"), Said::Passed)]
    {
        assert_eq!(check(entry), Said::Passed);
        for (mode, so_far) in [(Mode::Swallow, 2), (Mode::CutAtReply, 3)] {
            proxy.set(mode);
            assert_eq!(check(entry), when_lost, "{entry:?}, {mode:?}");
            sleep_millis(100);
            assert_eq!(charged(witness, entry), so_far, "{entry:?}, {mode:?}: it arrived, once");
            proxy.set(Mode::Cut);
            sleep_millis(100);
            proxy.set(Mode::Pass);
            assert!(eventually(|| check(("user", "probe")) == Said::Passed), "it does not recover");
            assert_eq!(charged(witness, entry), so_far, "{entry:?}, {mode:?}: and not again later");
        }
    }
}
