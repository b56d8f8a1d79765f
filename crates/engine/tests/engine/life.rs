//! What is counted, and what outlives a configuration.

use tidegate_core::Op;
use tidegate_engine::{Engine, Options};
use tidegate_policy::{Ask, Descriptor, LoadOptions, Mode, Request, Response, load_text};

use crate::bench::{Bench, PER_USER, entries};

#[test]
fn units_that_come_back_are_no_hits() {
    let bench = Bench::new(&PER_USER.replace("limit:", "metrics: {by_entries: [user]}\n  limit:"));
    let ann = entries(&[("user", "ann")]);
    bench.ask(&[Descriptor { entries: &ann, ask: Some(Ask::Take(2)), limit: None }], 1);
    bench.ask(&[Descriptor { entries: &ann, ask: Some(Ask::Refund(2)), limit: None }], 1);
    let rule = &bench.engine.rules()[0];
    for counts in [rule.counts, rule.series[0].counts] {
        assert_eq!((counts.hits, counts.within_limit, counts.over_limit), (2, 2, 0));
        assert_eq!(counts.allowed, 2, "the rule judged two requests all the same");
    }
}

#[test]
fn a_reload_keeps_counts_and_a_changed_limit_keeps_its_debt() {
    let bench = Bench::new(PER_USER);
    bench.one(&[("user", "ann")]);
    bench.one(&[("user", "ann")]);
    bench.install(&PER_USER.replace("3/minute", "30/minute"));
    assert_eq!(bench.remaining(&[("user", "ann")]), [10], "the debt of 40 s is 20 of 30 units now");
    assert_eq!(bench.engine.rules()[0].counts.allowed, 3, "the look is a request too");
    bench.install(&PER_USER.replace("limit: 3/minute", "limit: {algorithm: sliding_log, rate: 3/minute}"));
    assert_eq!(bench.remaining(&[("user", "ann")]), [3], "another algorithm starts fresh");
}

#[test]
fn series_of_values_are_bounded() {
    let bench = Bench::new(&PER_USER.replace("limit:", "metrics: {by_entries: [user]}\n  limit:"));
    for number in 0..1_100 {
        bench.one(&[("user", &format!("u{number}"))]);
    }
    let series = &bench.engine.rules()[0].series;
    assert_eq!(series.len(), 1_001);
    let together = series.iter().find(|one| one.values.is_none()).unwrap();
    assert_eq!(together.counts.hits, 100);
    let renamed =
        PER_USER.replace("limit:", "metrics: {by_entries: [user]}\n  limit:").replace("name: user", "name: other");
    bench.install(&renamed);
    bench.one(&[("user", "ann")]);
    bench.one(&[("user", &"x".repeat(257))]);
    let values: Vec<_> = bench.engine.rules()[0].series.iter().map(|one| one.values.clone()).collect();
    assert_eq!(values, [None, Some(vec!["ann".into()])], "a rule that is gone leaves room; long values are not kept");
}

#[test]
fn rules_that_are_gone_do_not_pile_up() {
    let bench = Bench::new(PER_USER);
    bench.engine.set_mode("api", "user", Some(Mode::Shadow)).unwrap();
    let named = |round: usize| -> String {
        (0..4_000).map(|number| format!("- {{name: r{round}x{number}, limit: 1/s}}\n")).collect()
    };
    let is_remembered = || {
        bench.install(PER_USER);
        bench.engine.rules()[0].mode == Mode::Shadow
    };
    bench.install(&named(0));
    assert!(is_remembered(), "a rule that comes back soon is as it was");
    for round in 1..5 {
        bench.install(&named(round));
    }
    assert!(!is_remembered(), "too many came and went since");
}

#[test]
fn the_first_policy_sizes_the_default_store() {
    let load = |keys: &str| {
        let text = format!("stores: {{default: {{keys: {keys}}}}}\ndomains: {{api: {{rules: []}}}}");
        load_text("test.yaml", &text, &LoadOptions::default()).policy.unwrap()
    };
    let options = Options { keys: Some(50), ..Options::default() };
    let engine = Engine::with_policy(options, load("7")).unwrap();
    assert_eq!(engine.install(load("7")).unwrap(), Vec::<Box<str>>::new(), "it is as it was made");
    assert_eq!(
        engine.install(load("8")).unwrap(),
        vec![Box::<str>::from("default")],
        "it keeps its size while it runs"
    );
}

/// Servers wrap what they wait for, and each wrapper may copy it: what is only needed for stores elsewhere is boxed.
#[test]
fn who_asks_holds_little_while_it_waits() {
    let engine = Engine::new(Options::default()).unwrap();
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    let limit = "5/minute".parse().unwrap();
    let sizes = [
        size_of_val(&engine.check(&request)),
        size_of_val(&engine.check_or_deny(&request)),
        size_of_val(&engine.report(&request, &Response::default())),
        size_of_val(&engine.decide(b"ann", &limit, Op::Take(1))),
    ];
    assert!(sizes.iter().all(|bytes| *bytes <= 1_024), "bytes of check, check_or_deny, report, decide: {sizes:?}");
}
