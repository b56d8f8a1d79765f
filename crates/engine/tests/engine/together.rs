//! Everything that a request asks for is given, or nothing is taken.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_core::Retry;
use tidegate_engine::{Counts, Denial};
use tidegate_policy::{Ask, Descriptor, Entry, OwnLimit, Shown};

use crate::bench::{Bench, PER_USER, entries, remaining};

#[test]
fn a_denial_by_one_rule_costs_nothing_from_the_others() {
    let bench = Bench::new(&format!(
        "{PER_USER}
- name: path
  match: {{entries: {{path: '*'}}}}
  key: {{entry: path}}
  limits:
  - {{name: burst, rate: 1/second}}
  - {{name: daily, algorithm: fixed_window, rate: 2/day}}
"
    ));
    let both = [("user", "ann"), ("path", "/a")];
    assert!(bench.one(&both).is_allowed());
    let denied = bench.one(&both);
    assert_eq!(remaining(&denied), [2, 0, 1], "the second request took nothing of the user's nor of the day's");
    assert_eq!(denied.strictest(0).unwrap().limit.unwrap().name.as_ref(), "burst");
    bench.clock.advance(Duration::from_secs(1));
    assert!(bench.one(&both).is_allowed());
    bench.clock.advance(Duration::from_secs(1));
    let denied = bench.one(&both);
    assert_eq!(denied.strictest(0).unwrap().limit.unwrap().name.as_ref(), "daily");
}

#[test]
fn a_rule_that_allows_what_another_denies_counts_no_units_as_taken() {
    let bench = Bench::new(&format!("{PER_USER}\n- {{name: strict, limit: 1/minute}}\n"));
    assert!(bench.one(&[("user", "ann")]).is_allowed());
    assert!(!bench.one(&[("user", "ann")]).is_allowed());
    let counts: Vec<_> = bench.engine.rules().iter().map(|rule| rule.counts).collect();
    let told = |one: &Counts| (one.hits, one.allowed, one.denied, one.within_limit, one.over_limit);
    assert_eq!(counts.iter().map(told).collect::<Vec<_>>(), [(2, 2, 0, 1, 0), (2, 1, 1, 1, 1)]);
}

#[test]
fn all_descriptors_pass_or_none() {
    let bench = Bench::new(PER_USER);
    let (ann, bob) = (entries(&[("user", "ann")]), entries(&[("user", "bob")]));
    let descriptors = [
        Descriptor { entries: &ann, ask: Some(Ask::Take(2)), limit: None },
        Descriptor { entries: &bob, ask: Some(Ask::Take(4)), limit: None },
    ];
    let outcome = bench.ask(&descriptors, 1);
    assert_eq!(outcome.retry(), Some(Retry::Never), "4 never fit into 3");
    assert_eq!(bench.remaining(&[("user", "ann")]), [3]);
    assert!(outcome.strictest(0).unwrap().answer.is_allowed());
    assert!(!outcome.strictest(1).unwrap().answer.is_allowed());
}

#[test]
fn quotas_deny_only_together() {
    let bench = Bench::new(
        "
- {name: free, match: {entries: {user: '*'}}, key: {entry: user}, quota: true, limit: 1/minute}
- {name: paid, match: {entries: {user: '*'}}, key: {entry: user}, quota: true, limit: 2/minute}
- {name: all, limit: 10/minute}
",
    );
    assert!(bench.one(&[("user", "ann")]).is_allowed());
    let second = bench.one(&[("user", "ann")]);
    assert!(second.is_allowed(), "the paid quota is left");
    assert!(!second.judgements().next().unwrap().denies());
    let third = bench.one(&[("user", "ann")]);
    assert_eq!(third.denial(), Some(Denial::OverLimit));
    assert_eq!(remaining(&third), [0, 0, 8], "the rule for all is told as it is without the third");
    assert_eq!(bench.remaining(&[]), [8], "the third took nothing of the rule for all");
}

#[test]
fn all_of_many_descriptors_pass_or_none() {
    let bench = Bench::new(PER_USER);
    let names: Vec<String> = (0..40).map(|number| format!("u{number}")).collect();
    let all: Vec<Vec<Entry<'_>>> = names.iter().map(|name| entries(&[("user", name)])).collect();
    let many: Vec<_> = all.iter().map(|entries| Descriptor { entries, ..Descriptor::default() }).collect();
    assert_eq!(remaining(&bench.ask(&many, 2)), [1; 40], "more than a store decides at once");
    bench.one(&[("user", "u39")]);
    let denied = bench.ask(&many, 1);
    assert_eq!(denied.denial(), Some(Denial::OverLimit), "the last one denies");
    for name in &names[..39] {
        assert_eq!(bench.remaining(&[("user", name)]), [1], "{name} got back what was taken");
    }
    let twice = [Descriptor { entries: &all[0], ..Descriptor::default() }; 17];
    assert!(!bench.ask(&twice, 1).is_allowed(), "the same key is composed in order");
    assert_eq!(bench.remaining(&[("user", "u0")]), [1]);
}

/// Rules under which a user has two quotas, one unit each, beside what all share.
const QUOTAS: &str = "
- {name: free, match: {entries: {user: '*'}}, key: {entry: user}, quota: true, limit: 1/hour}
- {name: paid, match: {entries: {user: '*'}}, key: {entry: user}, quota: true, limit: 1/hour}
- {name: all, limit: 10/hour}
";

#[test]
fn who_has_no_quota_left_takes_nothing_from_others_even_for_a_moment() {
    let bench = Bench::new(QUOTAS);
    bench.one(&[("user", "ann")]);
    assert!(!bench.one(&[("user", "ann")]).is_allowed());
    let looks = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while looks.load(Ordering::Relaxed) < 20_000 {
                assert!(!bench.one(&[("user", "ann")]).is_allowed());
            }
        });
        for _ in 0..20_000 {
            let left = bench.remaining(&[]);
            looks.fetch_add(1, Ordering::Relaxed);
            if left != [9] {
                looks.store(20_000, Ordering::Relaxed);
            }
            assert_eq!(left, [9], "a request that is denied took a unit and gave it back");
        }
    });
}

#[test]
fn a_quota_that_has_room_is_found_wherever_it_stands() {
    let quota = |name: &str, units: u64| {
        format!("- {{name: {name}, key: {{entry: user}}, quota: true, limit: {units}/hour}}\n")
    };
    let bench = Bench::new(&[quota("a", 1), quota("b", 3), quota("c", 2)].concat());
    let left: Vec<Vec<u64>> = (0..4).map(|_| remaining(&bench.one(&[("user", "ann")]))).collect();
    assert_eq!(left, [[0, 2, 1], [0, 1, 0], [0, 0, 0], [0, 0, 0]]);
    let denied = bench.one(&[("user", "ann")]);
    assert_eq!(denied.denial(), Some(Denial::OverLimit));
    assert_eq!(denied.retry(), Some(Retry::After(Duration::from_secs(3_600))), "the longest of all");
}

#[test]
fn a_quota_of_two_limits_is_taken_whole_or_not_at_all() {
    let bench = Bench::new(
        "
- {name: free, quota: true, limits: [{name: minute, rate: 5/minute}, {name: day, rate: 1/day}]}
- {name: paid, quota: true, limit: 3/minute}
",
    );
    assert_eq!(remaining(&bench.one(&[])), [4, 0, 2]);
    let second = bench.one(&[]);
    assert!(second.is_allowed());
    assert_eq!(remaining(&second), [4, 0, 1], "the day of the free quota is over, so its minute is not touched");
}

#[test]
fn what_comes_back_comes_back_whoever_else_is_denied() {
    let bench = Bench::new(PER_USER);
    let (ann, bob) = (entries(&[("user", "ann")]), entries(&[("user", "bob")]));
    bench.one(&[("user", "ann")]);
    bench.one(&[("user", "ann")]);
    let back = Descriptor { entries: &ann, ask: Some(Ask::Refund(1)), limit: None };
    let too_much = Descriptor { entries: &bob, ask: Some(Ask::Take(4)), limit: None };
    let blocked = OwnLimit { limit: None, shown: Shown { units: 0, period_ns: 1 } };
    let forbidden = Descriptor { entries: &bob, ask: None, limit: Some(blocked) };
    for (descriptors, left) in [([back, too_much], 2), ([forbidden, back], 3)] {
        assert!(!bench.ask(&descriptors, 1).is_allowed());
        assert_eq!(bench.remaining(&[("user", "ann")]), [left]);
    }
    assert_eq!(bench.remaining(&[("user", "bob")]), [3]);
}
