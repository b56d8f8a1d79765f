//! What is counted, and what outlives a configuration.

use tidegate_core::Op;
use tidegate_engine::{Engine, Options};
use tidegate_policy::{Ask, Descriptor, Entry, LoadOptions, Mode, Request, Response, load_text};

use crate::bench::{Bench, PER_USER, at_once, entries};

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

/// Counts of files of envoyproxy/ratelimit belong to domain, entries and unit: rules that are added or renamed reset none.
#[test]
fn counts_of_envoys_files_outlive_the_rules() {
    let policy = |descriptors: &str| {
        let loaded = load_text(
            "envoy.yaml",
            &format!("{{domain: shop, descriptors: [{descriptors}]}}"),
            &LoadOptions::default(),
        );
        loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))
    };
    let limit =
        |name: &str, units: u32| format!("rate_limit: {{name: {name}, unit: minute, requests_per_unit: {units}}}");
    let engine = Engine::new(Options { keys: Some(100), ..Options::default() }).unwrap();
    let left = |entries: &[(&str, &str)], units: u64| {
        let entries = entries.iter().map(|(key, value)| Entry { key, value }).collect::<Vec<_>>();
        let descriptors = [Descriptor { entries: &entries, ask: Some(Ask::Take(units)), limit: None }];
        let outcome =
            at_once(engine.check(&Request { domain: "shop", descriptors: &descriptors, http: None, cost: 1 })).unwrap();
        let judgement = outcome.judgements().next().unwrap();
        (judgement.rule.unwrap().name.to_string(), judgement.answer.decision().unwrap().remaining())
    };
    let shared = |name| format!("{{key: path, value: 'api*', share_threshold: true, {}}}", limit(name, 9));
    engine.install(policy(&format!("{{key: user, {}}}, {}", limit("a", 10), shared("p")))).unwrap();
    assert_eq!(left(&[("user", "ann")], 4).1, 6);
    assert_eq!((left(&[("path", "api1")], 2).1, left(&[("path", "api2")], 2).1), (7, 5), "one count for all of them");
    // Another name, one more rule with a value of its own, and another order.
    let own = format!("{{key: user, value: ann, {}}}", limit("ann", 20));
    engine.install(policy(&format!("{}, {own}, {{key: user, {}}}", shared("q"), limit("b", 10)))).unwrap();
    assert_eq!(left(&[("user", "ann")], 0).1, 16, "what ann used counts under the limit of her own");
    assert_eq!(left(&[("user", "bob")], 1).1, 9);
    assert_eq!(left(&[("path", "api3")], 0).1, 5);
    // The same entries under another unit, or as the pattern of a wildcard, are another count.
    let hourly = "{key: user, rate_limit: {unit: hour, requests_per_unit: 10}}";
    engine.install(policy(&format!("{hourly}, {{key: path, {}}}", limit("r", 9)))).unwrap();
    assert_eq!(left(&[("user", "ann")], 0).1, 10);
    assert_eq!(left(&[("path", "api*")], 0).1, 9);
}
