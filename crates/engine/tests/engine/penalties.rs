//! What denials and responses do to later requests, and what people do to keys.

use std::time::Duration;

use tidegate_core::Retry;
use tidegate_engine::{Denial, Unblocked};
use tidegate_policy::{Ask, Descriptor, Http, Request, Response};

use crate::bench::{Bench, PER_USER, at_once, entries, remaining};

#[test]
fn a_penalty_outlasts_the_limit() {
    let bench = Bench::new(&PER_USER.replace("limit:", "penalty: 10m\n  limit:"));
    for _ in 0..3 {
        assert!(bench.one(&[("user", "ann")]).is_allowed());
    }
    let tripped = bench.one(&[("user", "ann")]);
    assert_eq!(tripped.denial(), Some(Denial::Penalty));
    assert_eq!(tripped.retry(), Some(Retry::After(Duration::from_secs(600))), "not the 20 s of the limit alone");
    bench.clock.advance(Duration::from_secs(599));
    let penalised = bench.one(&[("user", "ann")]);
    assert_eq!(penalised.denial(), Some(Denial::Penalty));
    assert_eq!(penalised.retry(), Some(Retry::After(Duration::from_secs(1))));
    assert!(bench.one(&[("user", "bob")]).is_allowed());
    bench.clock.advance(Duration::from_secs(1));
    assert!(bench.one(&[("user", "ann")]).is_allowed(), "the penalty is over, and asking did not lengthen it");
}

#[test]
fn denied_requests_count_where_a_rule_says_so() {
    let bench = Bench::new(
        "
- {name: strict, count_denied: true, limit: {algorithm: fixed_window, rate: 3/minute}}
- {name: beside, limit: {algorithm: fixed_window, rate: 100/minute}}
",
    );
    let take = |units| bench.ask(&[Descriptor { ask: Some(Ask::Take(units)), ..Descriptor::default() }], 1);
    assert!(take(2).is_allowed());
    assert!(!take(2).is_allowed());
    assert_eq!(remaining(&take(0)), [0, 98], "the denied units count in the one that says so");
    assert!(!take(0).is_allowed(), "more than the limit was used");
}

#[test]
fn a_rule_that_counts_denied_requests_counts_those_that_another_denies() {
    let bench = Bench::new("- {name: strict, count_denied: true, limit: 9/minute}\n- {name: tight, limit: 1/minute}");
    let denied: Vec<bool> = (0..3).map(|_| !bench.one(&[]).is_allowed()).collect();
    assert_eq!(denied, [false, true, true]);
    assert_eq!(bench.remaining(&[]), [6, 0]);
}

#[test]
fn responses_are_counted_when_they_are_reported() {
    let bench = Bench::new(
        "
- name: login
  match: {path: /login}
  key: address
  limit: {algorithm: sliding_log, rate: 2/minute}
  count: response.status == 401
  penalty: 5m
",
    );
    let http = Http { path: "/login", method: "POST", address: Some("192.0.2.1".parse().unwrap()), ..Http::default() };
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: Some(&http), cost: 1 };
    let check = || at_once(bench.engine.check(&request)).unwrap();
    let report = |status| at_once(bench.engine.report(&request, &Response { status, ..Response::default() })).unwrap();
    for _ in 0..10 {
        assert!(check().is_allowed(), "to ask counts nothing");
        assert_eq!(report(200), 0, "nor does a success");
    }
    assert_eq!(report(401), 1);
    assert!(check().is_allowed());
    assert_eq!(report(401), 1);
    let penalised = check();
    assert_eq!(penalised.denial(), Some(Denial::Penalty), "the second failure used the limit up");
    assert_eq!(penalised.retry(), Some(Retry::After(Duration::from_secs(300))));
    assert_eq!(bench.engine.rules()[0].counts.reported, 2);
}

#[test]
fn a_rule_reports_units_once_whatever_its_limits_are() {
    let bench =
        Bench::new("- {name: two, count: response.status == 401, limits: [5/minute, {name: day, rate: 9/day}]}");
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    let failed = Response { status: 401, ..Response::default() };
    assert_eq!(at_once(bench.engine.report(&request, &failed)), Ok(2), "both limits counted it");
    assert_eq!(bench.engine.rules()[0].counts.reported, 1);
    let two = Request { descriptors: &[Descriptor::default(); 2], ..request };
    assert_eq!(at_once(bench.engine.report(&two, &failed)), Ok(4));
    assert_eq!(bench.engine.rules()[0].counts.reported, 3);
}

#[test]
fn who_waits_as_long_as_a_penalised_answer_says_passes() {
    let bench = Bench::new(&PER_USER.replace("limit:", "penalty: 5s\n  limit:"));
    for _ in 0..3 {
        bench.one(&[("user", "ann")]);
    }
    let tripped = bench.one(&[("user", "ann")]);
    assert_eq!(tripped.denial(), Some(Denial::Penalty));
    assert_eq!(tripped.retry(), Some(Retry::After(Duration::from_secs(20))), "not the 5 s of the penalty alone");
    bench.clock.advance(Duration::from_secs(1));
    let penalised = bench.one(&[("user", "ann")]);
    assert_eq!(penalised.denial(), Some(Denial::Penalty));
    assert_eq!(penalised.retry(), Some(Retry::After(Duration::from_secs(19))), "not the 4 s of the penalty alone");
    bench.clock.advance(Duration::from_secs(19));
    assert!(bench.one(&[("user", "ann")]).is_allowed());
}

#[test]
fn who_is_penalised_when_a_reload_makes_penalties_shorter_waits_as_long_as_the_answer_says() {
    let strict = |length: &str| PER_USER.replace("limit:", &format!("penalty: {length}\n  limit:"));
    let bench = Bench::new(&strict("10m"));
    for _ in 0..4 {
        bench.one(&[("user", "ann")]);
    }
    bench.install(&strict("1m"));
    assert_eq!(bench.one(&[("user", "ann")]).retry(), Some(Retry::After(Duration::from_secs(60))));
    bench.clock.advance(Duration::from_secs(60));
    assert!(bench.one(&[("user", "ann")]).is_allowed());
}

#[test]
fn a_response_is_counted_once_by_a_rule_of_several_limits() {
    let bench = Bench::new(
        "- {name: login, limits: [{name: a, rate: 5/minute}, {name: b, rate: 9/hour}], count: response.status == 401}",
    );
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    at_once(bench.engine.report(&request, &Response { status: 401, ..Response::default() })).unwrap();
    assert_eq!(bench.engine.rules()[0].counts.reported, 1);
}

#[test]
fn a_rule_does_not_shorten_what_an_operator_imposed() {
    let bench = Bench::new("- {name: login, limit: 1/minute, count: response.status == 401, penalty: 5m}");
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    at_once(bench.engine.block(&request, Duration::from_secs(86_400))).unwrap();
    at_once(bench.engine.report(&request, &Response { status: 401, ..Response::default() })).unwrap();
    assert_eq!(bench.one(&[]).retry(), Some(Retry::After(Duration::from_secs(86_400))));
}

#[test]
fn people_inspect_reset_grant_and_block_keys() {
    let bench = Bench::new(
        "
- {name: user, match: {entries: {user: '*'}}, key: {entry: user}, limit: {algorithm: sliding_log, rate: 3/minute}}
",
    );
    let ann = entries(&[("user", "ann")]);
    let descriptors = [Descriptor { entries: &ann, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    let at = bench.clock.now();
    bench.one(&[("user", "ann")]);
    bench.clock.advance(Duration::from_secs(1));
    bench.one(&[("user", "ann")]);
    let inspected = at_once(bench.engine.inspect(&request)).unwrap();
    assert_eq!(inspected[0].rule.as_ref(), "user");
    let snapshot = &inspected[0].limits[0].snapshot;
    assert_eq!((snapshot.decision.remaining(), snapshot.entries[0].at), (1, at));
    assert_eq!(at_once(bench.engine.grant(&request, 1)), Ok(1));
    assert_eq!(bench.remaining(&[("user", "ann")]), [2]);
    assert_eq!(at_once(bench.engine.block(&request, Duration::from_secs(60))), Ok(1));
    assert_eq!(bench.one(&[("user", "ann")]).denial(), Some(Denial::Penalty));
    assert!(bench.one(&[("user", "bob")]).is_allowed());
    let inspected = at_once(bench.engine.inspect(&request)).unwrap();
    assert_eq!(inspected[0].penalised, Some(Duration::from_secs(60)));
    assert_eq!(at_once(bench.engine.reset(&request)), Ok(1));
    assert_eq!(bench.remaining(&[("user", "ann")]), [3]);
}

#[test]
fn unblocking_lifts_blocks_and_penalties_and_leaves_counts() {
    let bench = Bench::new(&PER_USER.replace("limit:", "penalty: 10m\n  limit:"));
    let (ann, bob) = (entries(&[("user", "ann")]), entries(&[("user", "bob")]));
    let [ann, bob] = [&ann, &bob].map(|entries| [Descriptor { entries, ..Descriptor::default() }]);
    let [ann, bob] = [&ann, &bob].map(|descriptors| Request { domain: "api", descriptors, http: None, cost: 1 });
    bench.one(&[("user", "ann")]);
    at_once(bench.engine.block(&ann, Duration::from_secs(60))).unwrap();
    assert_eq!(at_once(bench.engine.unblock(&ann)), Ok(Unblocked { limits: 1, lifted: 1 }));
    assert_eq!(at_once(bench.engine.unblock(&ann)), Ok(Unblocked { limits: 1, lifted: 0 }));
    assert_eq!(bench.remaining(&[("user", "ann")]), [2]);
    for _ in 0..4 {
        bench.one(&[("user", "bob")]);
    }
    assert_eq!(bench.one(&[("user", "bob")]).denial(), Some(Denial::Penalty));
    assert_eq!(at_once(bench.engine.unblock(&bob)), Ok(Unblocked { limits: 1, lifted: 1 }));
    bench.clock.advance(Duration::from_secs(20));
    assert!(bench.one(&[("user", "bob")]).is_allowed(), "one unit is back");
}

#[test]
fn a_quota_that_is_penalised_leaves_the_others() {
    let bench = Bench::new(
        "
- {name: free, quota: true, limit: 1/minute, penalty: 10m}
- {name: paid, quota: true, limit: 3/minute}
",
    );
    for _ in 0..3 {
        assert!(bench.one(&[]).is_allowed(), "there is a quota left");
    }
    let denied = bench.one(&[]);
    assert_eq!(denied.denial(), Some(Denial::Penalty), "the gravest reason of the two");
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    bench.clock.advance(Duration::from_secs(1_000));
    assert!(bench.one(&[]).is_allowed());
    at_once(bench.engine.block(&request, Duration::from_secs(60))).unwrap();
    assert!(!bench.one(&[]).is_allowed(), "an operator blocks all that the request counts on");
}

#[test]
fn a_penalised_key_gets_back_what_it_gives_back() {
    let bench = Bench::new(&PER_USER.replace("limit:", "penalty: 10m\n  limit:"));
    for _ in 0..4 {
        bench.one(&[("user", "ann")]);
    }
    let ann = entries(&[("user", "ann")]);
    let back = [Descriptor { entries: &ann, ask: Some(Ask::Refund(2)), limit: None }];
    let outcome = bench.ask(&back, 1);
    assert!(outcome.is_allowed(), "nothing is asked for that could be denied");
    assert_eq!(remaining(&outcome), [2]);
    let request = Request { domain: "api", descriptors: &back, http: None, cost: 1 };
    let inspected = at_once(bench.engine.inspect(&request)).unwrap();
    assert_eq!(inspected[0].limits[0].snapshot.decision.remaining(), 2);
    assert_eq!(inspected[0].penalised, Some(Duration::from_secs(600)), "it is denied as long as before");
}

#[test]
fn a_shadow_rule_counts_denied_requests_in_all_its_limits() {
    let limits = "limits: [{name: minute, rate: 5/minute}, {name: day, rate: 1/day}]";
    let bench = Bench::new(&format!("- {{name: two, mode: shadow, count_denied: true, {limits}}}"));
    bench.one(&[]);
    bench.one(&[]);
    assert_eq!(bench.remaining(&[]), [3, 0]);
}
