//! The store against real servers, on their own clock.

use std::time::Duration;

use tidegate_core::{Calendar, CalendarPeriod, Charge, Key, Limit, Namespace, Op, PermitOp, Placement, Retry, Time};
use tidegate_testkit::servers::{Cluster, Server, Setup};

use super::key::name;
use super::link::CallError;
use super::store::{RedisError, RedisStore};
use crate::{Call, Lease, PermitCharge};

fn store(url: &str) -> RedisStore {
    RedisStore::open(&url.parse().unwrap()).unwrap()
}

fn at(server: &Server) -> RedisStore {
    store(&format!("redis://127.0.0.1:{}?timeout=5s", server.port))
}

fn key(name: &str) -> Key<'_> {
    Key::new(name).unwrap()
}

fn lease<'a>(limit: &'a Limit, sizes: &'a [u64], length: Duration) -> Lease<'a> {
    Lease { namespace: Namespace::root(), key: key("ann"), limit, tag: b"", sizes, length }
}

fn day() -> Duration {
    Duration::from_secs(86_400)
}

/// A command whose words may have spaces.
fn command(server: &Server, words: &[&str]) {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).exec(&mut client.get_connection().unwrap()).unwrap();
}

async fn take(store: &RedisStore, name: &str, limit: &Limit, units: u64) -> Result<bool, RedisError> {
    let charge = Charge::take(key(name), limit, units);
    Ok(store.decide(&Call::default(), &[charge]).await?.is_allowed())
}

#[tokio::test]
async fn many_tasks_get_exactly_the_limit() {
    let server = Server::start(&Setup::default());
    let store = at(&server);
    for limit in [
        "100/day".parse().unwrap(),
        Limit::fixed_window(100, day()).unwrap(),
        Limit::sliding_counter(100, day()).unwrap(),
        Limit::sliding_log(100, day()).unwrap(),
        Limit::sliced_window(100, day()).unwrap(),
    ] {
        let tries = (0..16).map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut allowed = 0;
                for _ in 0..20 {
                    allowed += u64::from(take(&store, "one", &limit, 1).await.unwrap());
                }
                allowed
            })
        });
        let mut allowed = 0;
        for task in tries.collect::<Vec<_>>() {
            allowed += task.await.unwrap();
        }
        assert_eq!(allowed, 100, "{limit:?}");
    }
}

#[tokio::test]
async fn on_a_cluster_what_was_taken_goes_back_when_a_later_slot_denies() {
    let cluster = Cluster::start(5_000);
    let store = store(&format!("redis+cluster://{}?timeout=5s", cluster.hosts()));
    let limits: Vec<Limit> = vec![
        "10/day".parse().unwrap(),
        Limit::fixed_window(10, day()).unwrap(),
        Limit::sliding_log(10, day()).unwrap(),
        Limit::sliding_counter(2, day()).unwrap(),
        Limit::sliced_window(10, day()).unwrap(),
    ];
    let ask = |tag: &'static [u8], units: u64| {
        let (store, limits) = (store.clone(), limits.clone());
        async move {
            let placement = Placement { tag, ..Placement::default() };
            let charge = |limit| Charge::take(key("ann"), limit, units).placed(placement);
            store.decide(&Call::default(), &limits.iter().map(charge).collect::<Vec<_>>()).await.unwrap()
        }
    };
    for tag in [&b""[..], &b"ann"[..]] {
        for left in [1, 0] {
            let allowed = ask(tag, 1).await;
            assert!(allowed.is_allowed(), "{allowed:?}");
            assert_eq!(allowed.iter().nth(3).unwrap().remaining(), left);
        }
        let denied = ask(tag, 1).await;
        let each: Vec<(bool, u64)> = denied.iter().map(|one| (one.is_allowed(), one.remaining())).collect();
        assert_eq!(each, [(true, 8), (true, 8), (true, 8), (false, 0), (true, 8)], "nothing was taken");
        assert!(denied.iter().all(|one| one.receipt().is_none()), "and there is nothing to give back");
        assert!(matches!(denied.retry(), Some(Retry::After(_))));
    }
}

#[tokio::test]
async fn what_another_program_keeps_is_left_alone() {
    let server = Server::start(&Setup::default());
    let store = at(&server);
    let gcra: Limit = "10/day".parse().unwrap();
    let log = Limit::sliding_log(10, day()).unwrap();
    let refused = |result: Result<bool, RedisError>, code: &str| match result {
        Err(RedisError::Call(CallError::Refused { store, error })) => {
            assert!(error.starts_with(code), "{error}");
            assert!(store.starts_with("redis://127.0.0.1"), "the store is named: {store}");
        }
        other => panic!("{other:?}"),
    };
    server.command("RPUSH tidegate{}:b=list 1");
    refused(take(&store, "list", &gcra, 1).await, "WRONGTYPE");
    server.command("SET tidegate{}:b=text v2:17");
    refused(take(&store, "text", &gcra, 1).await, "TIDEGATE");
    assert_eq!(server.command("GET tidegate{}:b=text").trim(), "v2:17");
    server.command("HSET tidegate{}:l1d=hash mine 1");
    refused(take(&store, "hash", &log, 1).await, "TIDEGATE");
    server.command("HSET tidegate{}:l1d=newer h m1");
    refused(take(&store, "newer", &log, 1).await, "TIDEGATE");
    assert_eq!(server.command("HGET tidegate{}:l1d=newer h").trim(), "m1");
    // In a transaction too, and of that nothing is taken.
    let both = [("text", &gcra), ("fresh", &gcra)].map(|(name, limit)| Charge::take(key(name), limit, 1));
    refused(store.decide(&Call::default(), &both).await.map(|decisions| decisions.is_allowed()), "TIDEGATE");
    assert_eq!(server.command("EXISTS tidegate{}:b=fresh").trim(), "0");
}

/// Nothing reads, changes or removes a state that no script can have written.
#[tokio::test]
async fn a_corrupt_state_is_refused_and_left_as_it_is() {
    let server = Server::start(&Setup::default());
    let store = at(&server);
    let (nines, zeros) = ("9".repeat(400), "0".repeat(18));
    let gcra: Limit = "10/day".parse().unwrap();
    let bucket = [
        "7",
        "inf",
        "nan",
        "0x10000000000000000",
        "1e300000000000",
        " 1700000000000000000",
        "01700000000000000000",
        "123456789",
        "b1700000000000000000",
    ];
    let bucket = bucket.map(str::to_owned).into_iter().chain([
        "1700000000000000000 ".into(),
        "-1700000000000000000".into(),
        "1700000000.000000000".into(),
        "18446744073709551616".into(),
        format!("1700{zeros}"),
        nines.clone(),
    ]);
    let window = [
        nines.clone(),
        "18446744073".into(),
        "118446744074".into(),
        "900719925474099201700000000".into(),
        "-501700000000".into(),
        " 501700000000".into(),
        "501700000000.".into(),
        "501700000000.00000000a".into(),
        "501700000000.0000000001".into(),
        "50170000000a".into(),
        "w5 1700000000000000000".into(),
    ];
    let dated = [nines.clone(), "2026111900".into(), "5 2026111900".into(), "90071992547409920020261119".into()];
    let counter = [
        format!("c{nines} 1 1700000000000000000"),
        format!("c1 {nines} 1700000000000000000"),
        format!("c1 1 {nines}"),
        "c1 1 18446744073709551616".into(),
    ];
    let window_limit = Limit::fixed_window(10, day()).unwrap();
    let counter_limit = Limit::sliding_counter(10, day()).unwrap();
    let calendar = Calendar::new(CalendarPeriod::Day, "UTC", None).unwrap();
    let calendar_limit = Limit::calendar_window(10, calendar).unwrap();
    let all = bucket.map(|state| (gcra, state));
    let all = all.chain(window.into_iter().map(|state| (window_limit, state)));
    let all = all.chain(dated.into_iter().map(|state| (calendar_limit, state)));
    let all = all.chain(counter.into_iter().map(|state| (counter_limit, state)));
    for (limit, state) in all {
        let place = name("tidegate", &Charge::new(key("ann"), &limit, Op::Peek));
        let place = String::from_utf8(place).unwrap();
        command(&server, &["SET", &place, &state]);
        check_refused(&store, &limit, &state).await;
        assert_eq!(server.command(&format!("GET {place}")), state);
    }
}

/// Every way to ask is refused: a charge, a debit, a refund, a look, a reset, a transaction, and a lease where there are leases.
async fn check_refused(store: &RedisStore, limit: &Limit, state: &str) {
    let is_refused = |result: Result<(), RedisError>| match result {
        Err(RedisError::Call(CallError::Refused { error, .. })) => {
            assert!(error.starts_with("TIDEGATE"), "{state}: {error}");
        }
        other => panic!("{state}: {other:?}"),
    };
    let tagged = |op| Charge::new(key("ann"), limit, op);
    for op in [Op::Take(1), Op::Debit(1), Op::Refund(1, None), Op::Ask(10), Op::Peek, Op::Reset] {
        is_refused(store.decide(&Call::default(), &[tagged(op)]).await.map(drop));
        is_refused(store.decide(&Call::default(), &[tagged(op), tagged(Op::Peek)]).await.map(drop));
    }
    if limit.can_lease() {
        is_refused(store.take_lease(&Call::default(), &lease(limit, &[1], Duration::from_secs(1))).await.map(drop));
    }
}

#[tokio::test]
async fn a_corrupt_head_of_a_log_is_refused_before_anything_walks() {
    let server = Server::start(&Setup::default());
    let store = at(&server);
    let limit = Limit::sliding_log(10, day()).unwrap();
    let nines = "9".repeat(400);
    let place = "tidegate{}:l1d=ann";
    let future = "4000000000000000000";
    for head in [
        format!("l1 3000000 5 {future} 1"),
        format!("l1 300000000 5 {future} 1"),
        format!("l1 40 5 {future} 1"),
        format!("l3 1 5 {future} 1"),
        format!("l1 1 5 {future} 6"),
        format!("l1 1 9007199254740992 {future} 1"),
        format!("l9007199254740992 9007199254740992 5 {future} 1"),
        format!("l{nines} {nines} 5 {future} 1"),
        format!("l1 1 {nines} {future} {nines}"),
        format!("l1 1 5 {nines} 1"),
    ] {
        command(&server, &["HSET", place, "h", &head, "1", &format!("{future} 5")]);
        check_refused(&store, &limit, &head).await;
        assert_eq!(server.command(&format!("HGET {place} h")).trim(), head);
        assert_eq!(server.command(&format!("HLEN {place}")).trim(), "2");
    }
}

/// A refund that comes to an entry which no script can have written stops there, and has changed nothing.
#[tokio::test]
async fn a_corrupt_entry_of_a_log_is_refused_and_left_as_it_is() {
    let server = Server::start(&Setup::default());
    let store = at(&server);
    let limit = Limit::sliding_log(3, day()).unwrap();
    let place = "tidegate{}:l1d=ann";
    let seconds: u64 = server.command("TIME").split(' ').next().unwrap().parse().unwrap();
    let future = format!("{}000000000", seconds + 3_600);
    for entry in ["mine", "4000000000000000000 -1", "4000000000000000000", "1e30 1"] {
        let [head, first] = [format!("l1 3 3 {future} 1"), format!("{future} 1")];
        command(&server, &["DEL", place]);
        command(&server, &["HSET", place, "h", &head, "1", &first, "2", entry, "3", &first]);
        let before = server.command(&format!("HGETALL {place}"));
        let tagged = |op| Charge::new(key("ann"), &limit, op);
        for charges in [vec![Op::Refund(3, None)], vec![Op::Peek, Op::Refund(3, None)]] {
            let charges: Vec<Charge<'_>> = charges.into_iter().map(tagged).collect();
            match store.decide(&Call::default(), &charges).await {
                Err(RedisError::Call(CallError::Refused { error, .. })) => {
                    assert!(error.contains("TIDEGATE a key holds"), "{entry}: {error}");
                }
                other => panic!("{entry}: {other:?}"),
            }
            assert_eq!(server.command(&format!("HGETALL {place}")), before, "{entry}");
        }
        assert!(store.look(&Call::default(), &Charge::new(key("ann"), &limit, Op::Peek)).await.is_err(), "{entry}");
    }
}

#[tokio::test]
async fn a_log_shows_its_entries() {
    let server = Server::start(&Setup::default());
    let store = at(&server);
    let limit = Limit::sliding_log(10, day()).unwrap();
    for units in [1, 2, 3] {
        assert!(take(&store, "ann", &limit, units).await.unwrap());
    }
    let snapshot = store.look(&Call::default(), &Charge::new(key("ann"), &limit, Op::Peek)).await.unwrap();
    assert_eq!(snapshot.decision.remaining(), 4);
    let units: Vec<u64> = snapshot.entries.iter().map(|entry| entry.units).collect();
    assert_eq!(units, [1, 2, 3]);
    assert!(snapshot.entries.is_sorted_by_key(|entry| entry.at));
}

#[tokio::test]
async fn a_lease_takes_what_fits_and_goes_back_by_its_receipt() {
    let server = Server::start(&Setup::default());
    let store = at(&server);
    let limit: Limit = "100/hour".parse().unwrap();
    let length = Duration::from_secs(36 * 10);
    let leased = store.take_lease(&Call::default(), &lease(&limit, &[80, 40], length)).await.unwrap();
    // The lease's length is ten units' worth: they are accounted as spent at its end.
    assert_eq!((leased.units, leased.decision.remaining()), (80, 10));
    assert_eq!(store.take_lease(&Call::default(), &lease(&limit, &[80, 10], length)).await.unwrap().units, 10);
    let none = store.take_lease(&Call::default(), &lease(&limit, &[80, 10], length)).await.unwrap();
    assert_eq!(none.units, 0);
    assert!(matches!(none.decision.retry(), Some(Retry::After(_))));
    let refund = Op::Refund(80, leased.decision.receipt());
    let charge = Charge::new(key("ann"), &limit, refund).shadow();
    store.decide(&Call::default(), &[charge]).await.unwrap();
    assert!(take(&store, "ann", &limit, 80).await.unwrap(), "what was not spent is there again");
    let window = Limit::fixed_window(5, day()).unwrap();
    assert_eq!(store.take_lease(&Call::default(), &lease(&window, &[8, 4], length)).await.unwrap().units, 4);
    let log = Limit::sliding_log(5, day()).unwrap();
    assert!(store.take_lease(&Call::default(), &lease(&log, &[1], length)).await.is_err(), "a log has no leases");
}

#[tokio::test]
async fn permits_are_held_once_and_freed_by_the_end_of_their_lease() {
    let server = Server::start(&Setup::default());
    let store = at(&server);
    let (long, short) = (Duration::from_secs(60), Duration::from_millis(30));
    let decide = |permit: &'static str, op| {
        let (store, namespace) = (store.clone(), Namespace::root());
        async move {
            let charge = PermitCharge { namespace, key: key("pool"), permit: key(permit), op };
            store.decide_permit(&Call::default(), &charge).await
        }
    };
    let acquire = |permit, lease| decide(permit, PermitOp::Acquire { limit: 2, lease });
    let renew = |permit, lease| decide(permit, PermitOp::Renew { lease });
    let release = |permit| decide(permit, PermitOp::Release);
    assert!(acquire("a", long).await.unwrap().done);
    assert!(acquire("b", short).await.unwrap().done);
    assert_eq!(acquire("a", long).await.unwrap().in_use, 2, "the same permit twice is one");
    let full = acquire("c", long).await.unwrap();
    assert!(!full.done && full.next_end <= short, "{full:?}");
    assert!(renew("b", short).await.unwrap().done);
    // Until the lease is over by the store's own clock.
    while !acquire("c", long).await.unwrap().done {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!renew("b", long).await.unwrap().done, "a dead holder comes too late");
    assert!(release("a").await.unwrap().done);
    assert!(!release("a").await.unwrap().done);
    assert_eq!(acquire("d", long).await.unwrap().in_use, 2);
}

/// A node whose clock is years away sends windows of the calendar that do not fit, learns the time, and asks once more.
#[tokio::test]
async fn windows_of_a_calendar_are_those_of_the_store() {
    let server = Server::start(&Setup::default());
    let store = at(&server);
    let months = Calendar::new(CalendarPeriod::Month, "Europe/Berlin", Some("15")).unwrap();
    let limit = Limit::calendar_window(3, months).unwrap();
    let calls = || store.health().totals.answered;
    for (passes, expected_calls) in [(true, 2), (true, 1), (true, 1), (false, 1)] {
        if expected_calls == 2 {
            store.clock.learn(Time::default(), Time::from_nanos(1_000_000_000_000_000_000));
        }
        let before = calls();
        assert_eq!(take(&store, "ann", &limit, 1).await.unwrap(), passes);
        assert_eq!(calls() - before, expected_calls);
    }
    let both = [Charge::take(key("ann"), &limit, 1).shadow(), Charge::take(key("bob"), &limit, 1)];
    store.clock.learn(Time::default(), Time::from_nanos(1_000_000_000_000_000_000));
    let decisions = store.decide(&Call::default(), &both).await.unwrap();
    assert!(decisions.is_allowed(), "a transaction learns the time too");
    let ends = decisions.report(0).unwrap().at.plus(decisions.iter().next().unwrap().reset_after());
    assert_eq!(ends.as_nanos(), months.window_at(decisions.report(0).unwrap().at).end());
    assert!(!server.command("KEYS tidegate{}:cal;month;Europe/Berlin;15=*").is_empty());
}
