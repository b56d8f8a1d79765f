//! Floods of keys that callers bring must not reach the rules.

use std::time::Duration;

use tidegate_core::{FakeClock, Limit, Op, Retry};
use tidegate_engine::{Caller, Engine, Options, RequestError, StoreError};
use tidegate_policy::{Descriptor, Entry, LoadOptions, OwnLimit, Request, Shown, load_text};

use crate::bench::at_once;

const KEYS: usize = 1_000;

const NATIVE: &str = "
domains:
  api: {rules: [{name: per-user, key: {entry: user}, limit: {algorithm: fixed_window, rate: 5/day}}]}
";

/// A file of envoyproxy/ratelimit.
const OF_ENVOY: &str = "
domain: api
descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5}}]
";

fn engine(text: &str) -> (Engine, FakeClock) {
    let clock = FakeClock::new();
    let policy = load_text("test.yaml", text, &LoadOptions::default()).policy.unwrap();
    let options = Options { clock: clock.clone().into(), keys: Some(KEYS), ..Options::default() };
    (Engine::with_policy(options, policy).unwrap(), clock)
}

fn five_a_day() -> Limit {
    Limit::fixed_window(5, Duration::from_secs(86_400)).unwrap()
}

/// Asks for a user by the rules, or under a limit that the request brings.
fn check(engine: &Engine, user: &str, limit: Option<Limit>) -> bool {
    let entries = [Entry { key: "user", value: user }];
    let shown = Shown { units: 5, period_ns: 86_400_000_000_000 };
    let limit = limit.map(|limit| OwnLimit { limit: Some(limit), shown });
    let descriptors = [Descriptor { entries: &entries, limit, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    at_once(engine.check(&request)).unwrap().is_allowed()
}

/// How many of the newcomers of a rule get no more and no less than their five.
fn served(engine: &Engine) -> usize {
    let passed = |user: &usize| (0..7).filter(|_| check(engine, &format!("new{user}"), None)).count();
    (0..50).filter(|user| passed(user) == 5).count()
}

#[test]
fn keys_that_callers_bring_shut_no_rule_out() {
    let (engine, clock) = engine(NATIVE);
    for key in 0..10 * KEYS {
        for _ in 0..5 {
            at_once(engine.decide(format!("flood{key}").as_bytes(), &five_a_day(), Op::Take(1))).unwrap();
        }
        clock.advance(Duration::from_micros(10));
    }
    assert_eq!(served(&engine), 50);
}

#[test]
fn limits_that_requests_bring_shut_no_rule_out() {
    let (engine, clock) = engine(NATIVE);
    for key in 0..10 * KEYS {
        for _ in 0..5 {
            check(&engine, &format!("flood{key}"), Some(five_a_day()));
        }
        clock.advance(Duration::from_micros(10));
    }
    assert_eq!(served(&engine), 50);
}

#[test]
fn a_rule_that_is_flooded_shuts_no_other_out() {
    let (engine, clock) = engine(
        "
domains:
  api:
    rules:
    - {name: search, match: {entries: {word: '*'}}, key: {entry: word}, limit: {algorithm: gcra, rate: 5/day}}
    - {name: per-user, match: {entries: {user: '*'}}, key: {entry: user}, limit: {algorithm: gcra, rate: 5/day}}
",
    );
    for word in 0..10 * KEYS {
        let value = format!("flood{word}");
        let entries = [Entry { key: "word", value: &value }];
        let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
        let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 5 };
        let _ = at_once(engine.check(&request)).unwrap();
        clock.advance(Duration::from_micros(10));
    }
    let served = (0..10).filter(|user| (0..7).filter(|_| check(&engine, &format!("new{user}"), None)).count() == 5);
    assert_eq!(served.count(), 10);
}

/// An Envoy that brings limits is the same that asks by the rules of its files.
#[test]
fn limits_that_envoy_brings_count_in_the_store_of_its_rules() {
    let is_counted_apart = |text: &str| {
        let (engine, clock) = engine(text);
        for key in 0..10 * KEYS {
            check(&engine, &format!("flood{key}"), Some(five_a_day()));
            clock.advance(Duration::from_micros(10));
        }
        (0..5).for_each(|_| assert!(check(&engine, "new", None)));
        let entries = [Entry { key: "user", value: "new" }];
        let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
        let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
        let outcome = at_once(engine.check(&request)).unwrap();
        // A key that found no place in a full store is not told when exactly to come back.
        matches!(outcome.retry(), Some(Retry::After(_)))
    };
    assert_eq!([NATIVE, OF_ENVOY].map(is_counted_apart), [true, false]);
}

#[test]
fn one_caller_leaves_room_for_the_keys_of_others() {
    let (engine, clock) = engine(NATIVE);
    let attacker = engine.caller("192.0.2.1".parse().unwrap());
    let take = |caller: &Caller, key: String| {
        at_once(engine.decide_for(caller, key.as_bytes(), &five_a_day(), Op::Take(1))).unwrap().answer.is_allowed()
    };
    for key in 0..10 * KEYS {
        (0..5).for_each(|_| assert!(take(&attacker, format!("flood{key}")) || key >= KEYS));
        clock.advance(Duration::from_micros(10));
    }
    // Of five units one may be lost to rounding where a store is full. Callers are told apart as one of fifteen, by chance.
    let is_served = |host: &u8| {
        let other = engine.caller([198, 51, 100, *host].into());
        let passed = |key: &usize| (0..7).filter(|_| take(&other, format!("new{host}:{key}"))).count();
        (0..20).filter(|key| (4..=5).contains(&passed(key))).count() >= 18
    };
    let served: Vec<u8> = (0..8).filter(is_served).collect();
    assert!(served.len() >= 4, "{served:?} of eight callers");
    let again = |host: &u8| (0..20).filter(|key| take(&attacker, format!("new{host}:{key}"))).count();
    assert_eq!(served.iter().map(again).sum::<usize>(), 0, "a key is one count whoever asks");
}

const LIMITS: [&str; 7] = [
    "5/day",
    "{algorithm: token_bucket, rate: 5/day}",
    "{algorithm: fixed_window, rate: 5/day}",
    "{algorithm: sliding_counter, rate: 5/day}",
    "{algorithm: sliding_log, rate: 5/day}",
    "{algorithm: sliced_window, rate: 5/day}",
    "{algorithm: calendar_window, rate: 5/day, time_zone: UTC}",
];

/// An engine whose only rule has this limit, and whose store is full.
fn full_engine(limit: &str) -> (Engine, FakeClock) {
    let (engine, clock) = engine(&format!(
        "domains: {{api: {{rules: [{{name: r, key: {{entry: user}}, limit: {limit}, penalty: 2d}}]}}}}"
    ));
    (0..6 * KEYS).for_each(|user| while check(&engine, &format!("old{user}"), None) {});
    (engine, clock)
}

/// Users that came before the flood, and newcomers: all have used up their limit.
fn limited_users(engine: &Engine) -> Vec<String> {
    let users: Vec<String> =
        ["old0", "old1"].map(str::to_owned).into_iter().chain((0..50).map(|user| format!("new{user}"))).collect();
    users.iter().for_each(|user| while check(engine, user, None) {});
    users
}

/// How many of seven requests pass.
fn passed(engine: &Engine, user: &str) -> usize {
    (0..7).filter(|_| check(engine, user, None)).count()
}

/// Does something to a user.
fn about<T>(user: &str, act: impl FnOnce(&Request<'_>) -> T) -> T {
    let entries = [Entry { key: "user", value: user }];
    let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
    act(&Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 })
}

/// A full store may be unable to forget a key, but it never says that it did where the key is still limited.
#[test]
fn a_reset_is_true_or_says_that_it_is_not() {
    for limit in LIMITS {
        let (engine, _clock) = full_engine(limit);
        let (mut forgotten, mut kept) = (0, 0);
        for user in limited_users(&engine) {
            match about(&user, |request| at_once(engine.reset(request))) {
                Ok(1) => {
                    forgotten += 1;
                    assert_eq!(passed(&engine, &user), 5, "{limit}: {user}");
                }
                Err(RequestError::NotForgotten { limits: 1 }) => {
                    kept += 1;
                    assert!(passed(&engine, &user) < 5, "{limit}: {user}");
                }
                other => panic!("{limit}: {other:?}"),
            }
        }
        assert!(forgotten > 0 && kept > 0, "{limit}: {forgotten} forgotten, {kept} kept");
    }
}

#[test]
fn a_grant_is_true_or_says_that_it_is_not() {
    for limit in LIMITS {
        // A penalty would deny those who got units back.
        let (engine, _clock) =
            engine(&format!("domains: {{api: {{rules: [{{name: r, key: {{entry: user}}, limit: {limit}}}]}}}}"));
        (0..6 * KEYS).for_each(|user| while check(&engine, &format!("old{user}"), None) {});
        let (mut granted, mut not) = (0, 0);
        for user in limited_users(&engine) {
            match about(&user, |request| at_once(engine.grant(request, 2))) {
                Ok(1) => {
                    granted += 1;
                    assert_eq!(passed(&engine, &user), 2, "{limit}: {user}");
                }
                Err(RequestError::NotGranted { limits: 1 }) => {
                    not += 1;
                    assert_eq!(passed(&engine, &user), 0, "{limit}: {user}");
                }
                other => panic!("{limit}: {other:?}"),
            }
        }
        assert!(granted > 0 && not > 0, "{limit}: {granted} granted, {not} not");
    }
}

#[test]
fn units_given_back_to_a_callers_key_are_there_or_it_says_that_they_are_not() {
    let (engine, _clock) = engine(NATIVE);
    let limit = five_a_day();
    let passed = |key: &str| {
        let take = || at_once(engine.decide(key.as_bytes(), &limit, Op::Take(1))).unwrap().is_allowed();
        (0..7).filter(|_| take()).count()
    };
    let keys: Vec<String> = (0..6 * KEYS).map(|key| format!("key{key}")).collect();
    keys.iter().for_each(|key| assert!(passed(key) <= 5));
    let administer = |key: &str, op| at_once(engine.administer(key.as_bytes(), &limit, op));
    for (op, all) in [(Op::Refund(2, None), 2), (Op::Reset, 5)] {
        let is_done = |key: &&String| match administer(key, op) {
            Ok(_) => {
                assert_eq!(passed(key), all, "{key}: {op:?}");
                true
            }
            Err(RequestError::NotGranted { limits: 1 } | RequestError::NotForgotten { limits: 1 }) => {
                assert_eq!(passed(key), 0, "{key}: {op:?}");
                false
            }
            Err(other) => panic!("{key}: {other:?}"),
        };
        let done = keys.iter().filter(is_done).count();
        assert!(done > 0 && done < keys.len(), "{op:?}: {done}");
    }
}

#[test]
fn a_block_is_in_force_or_says_that_it_is_not() {
    let (engine, _clock) =
        engine("domains: {api: {rules: [{name: r, key: {entry: user}, limit: {algorithm: gcra, rate: 5/minute}}]}}");
    let hour = Duration::from_secs(3_600);
    let (mut blocked, mut not) = (0, 0);
    for user in (0..2 * KEYS).map(|user| format!("user{user}")) {
        match about(&user, |request| at_once(engine.block(request, hour))) {
            Ok(1) => {
                blocked += 1;
                assert_eq!(passed(&engine, &user), 0, "{user}");
            }
            Err(RequestError::NotBlocked { limits: 1 }) => {
                not += 1;
                let inspected = about(&user, |request| at_once(engine.inspect(request))).unwrap();
                assert_eq!(inspected[0].penalised, None, "{user}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(blocked >= KEYS && not > 0, "{blocked} blocked, {not} not");
}

/// Whoever deletes keys over the protocol of Redis does not say under which limit they were counted.
#[test]
fn keys_that_are_counted_approximately_are_found_whatever_their_rate() {
    for period in ["1s", "7s", "1m", "5m", "1h", "9h", "1d", "30d", "365d", "3650d", "36500d"] {
        let (engine, _clock) = engine(NATIVE);
        let limit: Limit = format!("1/{period}").parse().unwrap();
        let keys: Vec<String> = (0..6 * KEYS).map(|key| format!("key{key}")).collect();
        for key in &keys {
            at_once(engine.decide(key.as_bytes(), &limit, Op::Take(1))).unwrap();
        }
        let is_approximate = |key: &&String| {
            let asked = at_once(engine.decide(key.as_bytes(), &limit, Op::Ask(1))).unwrap();
            let about = engine.approximate_left(key.as_bytes()).unwrap();
            assert_eq!(matches!(asked.retry(), Some(Retry::Unknown(_))), about.is_some(), "{period}: {key}");
            about.is_some()
        };
        let approximate = keys.iter().filter(is_approximate).count();
        assert!(approximate > KEYS && approximate < keys.len(), "{period}: {approximate}");
    }
}

/// Nobody listens where the store is said to be.
#[tokio::test]
async fn keys_that_callers_bring_shut_no_rule_out_while_a_shared_store_is_away() {
    let text = "
domains:
  api:
    rules:
    - {name: shared, match: {entries: {user: '*'}}, key: {entry: user}, limit: {algorithm: fixed_window, rate: 5/day}}
    - name: own
      match: {entries: {guest: '*'}}
      key: {entry: guest}
      limit: {algorithm: fixed_window, rate: 9/day}
      on_store_failure: {local: 5/day}
";
    let clock = FakeClock::new();
    let policy = load_text("test.yaml", text, &LoadOptions::default()).policy.unwrap();
    let store = Some("redis://127.0.0.1:1".into());
    let options = Options { clock: clock.clone().into(), keys: Some(KEYS), store, ..Options::default() };
    let engine = Engine::with_policy(options, policy).unwrap();
    for key in 0..10 * KEYS {
        let key = format!("flood{key}");
        loop {
            match engine.decide(key.as_bytes(), &five_a_day(), Op::Take(5)).await {
                // A starved machine may not even find out in time that nobody listens.
                Err(RequestError::Store(StoreError::Overloaded)) => {}
                decided => {
                    decided.unwrap();
                    break;
                }
            }
        }
    }
    assert!(engine.fell_back() >= 10 * KEYS as u64);
    for (entry, newcomer) in (0..50).flat_map(|user| ["user", "guest"].map(|entry| (entry, format!("new{user}")))) {
        let entries = [Entry { key: entry, value: &newcomer }];
        let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
        let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
        let mut passed = 0;
        for _ in 0..7 {
            passed += usize::from(engine.check(&request).await.unwrap().is_allowed());
        }
        assert_eq!(passed, 5, "{entry}: {newcomer}");
    }
}
