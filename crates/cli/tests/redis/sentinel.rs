//! Sentinels make another server the primary while everybody asks.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tidegate_testkit::servers::Sentinels;
use tidegate_testkit::wait::eventually;
use tokio::time::Instant;

use crate::ask::Said;
use crate::fleet::{Fleet, charged, check, shared, sleep_millis};
use crate::load::during;

/// By then a switch has been noticed.
const NOTICED_MILLIS: u64 = 1_000;

const STRICT: &str = "name: strict, key: {entry: user}, on_store_failure: deny, \
                      limit: {algorithm: fixed_window, rate: 1000000/30d}";
const OPEN: &str = "name: open, key: {entry: guest}, on_store_failure: allow, limit: 1000000/30d";

/// The primary hangs through the switch and takes itself for one when it goes on: nobody must write to it then.
#[test]
fn everybody_follows_the_primary() {
    let trio = Sentinels::start();
    let url = format!("redis+sentinel://{}/tide?timeout=200ms", trio.hosts());
    let fleet = Fleet::start(2, &shared(&url, &[STRICT, OPEN]));
    for node in &fleet.nodes {
        assert!(eventually(|| check(node, ("user", "probe")) == Said::Passed));
    }
    let switched = AtomicBool::new(false);
    let entry = |number: u64| {
        let user = if switched.load(Relaxed) { "after" } else { "before" };
        (if number.is_multiple_of(4) { "guest" } else { "user" }, user.to_owned())
    };
    let (answers, (hung, noticed)) = during(&fleet, 4, entry, || {
        sleep_millis(500);
        let hung = Instant::now();
        trio.first.hang();
        trio.wait_for_switch();
        sleep_millis(NOTICED_MILLIS);
        let back = || fleet.nodes.iter().all(|node| check(node, ("user", "probe")) == Said::Passed);
        assert!(eventually(back), "the new primary is not found");
        let noticed = Instant::now();
        switched.store(true, Relaxed);
        trio.first.go_on();
        sleep_millis(300);
        let clients = trio.first.command("CLIENT LIST");
        assert_eq!(clients.matches("name=tidegate").count(), 0, "connected to the old primary:\n{clients}");
        sleep_millis(700);
        (hung, noticed)
    });
    assert_eq!(answers.of("guest").count(Said::Failed), 0, "who is let through meets no error");
    let outage = answers.between(hung, noticed).of("user");
    // Questions that were on their way when the key changed count for the time before.
    let after = answers.between(noticed, noticed + Duration::from_secs(60)).of("user");
    println!("{:?} until the new primary is found: {}", noticed - hung, outage.told());
    println!("after: {}", after.told());
    let (passed, failed) = (after.count(Said::Passed), after.count(Said::Failed));
    assert!(passed > 50 && failed * 20 < passed, "{}", after.told());
    let charged = charged(fleet.node(0), ("user", "after"));
    // Everything that was acknowledged after the switch is known to the new primary: nothing went to the old one.
    let racing = 4;
    assert!(passed <= charged + racing && charged <= passed + failed + racing, "{charged} charged of {passed}");
    assert_eq!(trio.second.command("ROLE").split(' ').next(), Some("master"));
}
