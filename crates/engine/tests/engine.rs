//! Requests through rules to outcomes, on a clock that stands still.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_core::{FakeClock, Limit, Op, Retry, Time};
use tidegate_engine::{Answer, Denial, Engine, Options, Outcome, RequestError};
use tidegate_policy::{Ask, Descriptor, Entry, Http, LoadOptions, Mode, OwnLimit, Request, Response, Shown, load_text};

/// The answer of something that must not wait: with its state in memory, nothing does.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waited"),
    }
}

struct Bench {
    engine: Engine,
    clock: FakeClock,
}

impl Bench {
    fn new(rules: &str) -> Bench {
        Bench::with(rules, false)
    }

    /// One that denies nothing at all.
    fn in_shadow(rules: &str) -> Bench {
        Bench::with(rules, true)
    }

    fn with(rules: &str, shadow: bool) -> Bench {
        let clock = FakeClock::at(Time::from_nanos(1_000_000_000_000));
        let engine = Engine::new(Options { clock: clock.clone().into(), shadow, ..Options::default() }).unwrap();
        let bench = Bench { engine, clock };
        bench.install(rules);
        bench
    }

    fn install(&self, rules: &str) {
        let text = format!("domains:\n  api:\n    rules:\n{}", indent(rules));
        let loaded = load_text("test.yaml", &text, &LoadOptions::default());
        let policy = loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
        self.engine.install(policy).unwrap();
    }

    fn ask(&self, descriptors: &[Descriptor<'_>], cost: u64) -> Outcome {
        let request = Request { domain: "api", descriptors, http: None, cost };
        at_once(self.engine.check(&request)).unwrap()
    }

    /// Asks for one unit with these entries.
    fn one(&self, entries: &[(&str, &str)]) -> Outcome {
        let entries = self::entries(entries);
        self.ask(&[Descriptor { entries: &entries, ..Descriptor::default() }], 1)
    }

    fn remaining(&self, entries: &[(&str, &str)]) -> Vec<u64> {
        let entries = self::entries(entries);
        let outcome = self.ask(&[Descriptor { entries: &entries, ask: Some(Ask::Take(0)), limit: None }], 0);
        remaining(&outcome)
    }
}

fn indent(rules: &str) -> String {
    rules.lines().map(|line| format!("    {line}\n")).collect()
}

fn entries<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Entry<'a>> {
    pairs.iter().map(|(key, value)| Entry { key, value }).collect()
}

fn remaining(outcome: &Outcome) -> Vec<u64> {
    outcome.judgements().filter_map(|judgement| judgement.answer.decision().map(|one| one.remaining())).collect()
}

const PER_USER: &str = "
- name: user
  match: {entries: {user: '*'}}
  key: {entry: user}
  limit: 3/minute
";

#[test]
fn a_rule_counts_each_key_by_itself() {
    let bench = Bench::new(PER_USER);
    for left in [2, 1, 0] {
        let outcome = bench.one(&[("user", "ann")]);
        assert!(outcome.is_allowed());
        assert_eq!(remaining(&outcome), [left]);
    }
    let denied = bench.one(&[("user", "ann")]);
    assert_eq!(denied.denial(), Some(Denial::OverLimit));
    assert_eq!(denied.retry(), Some(Retry::After(Duration::from_secs(20))));
    assert!(bench.one(&[("user", "bob")]).is_allowed());
    assert!(bench.one(&[("account", "ann")]).judgements().next().is_none(), "no rule is about accounts");
    bench.clock.advance(Duration::from_secs(20));
    assert!(bench.one(&[("user", "ann")]).is_allowed());
}

#[test]
fn an_unknown_domain_lets_pass_and_says_so() {
    let bench = Bench::new(PER_USER);
    let entries = entries(&[("user", "ann")]);
    let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
    let outcome =
        at_once(bench.engine.check(&Request { domain: "web", descriptors: &descriptors, http: None, cost: 1 }));
    let outcome = outcome.unwrap();
    assert!(outcome.is_allowed() && !outcome.is_known_domain());
}

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
fn a_shadow_rule_denies_nothing_and_counts_what_it_would() {
    let bench = Bench::new(&PER_USER.replace("limit:", "mode: shadow\n  limit:"));
    for _ in 0..5 {
        assert!(bench.one(&[("user", "ann")]).is_allowed());
    }
    let counts = bench.engine.rules()[0].counts;
    assert_eq!((counts.allowed, counts.denied, counts.shadow_denied), (3, 0, 2));
    assert_eq!((counts.hits, counts.within_limit, counts.over_limit, counts.shadow), (5, 3, 2, 2));
    let last = bench.one(&[("user", "ann")]);
    assert!(!last.judgements().next().unwrap().answer.is_allowed(), "the answer still tells");
}

#[test]
fn a_rule_is_switched_while_it_runs_and_a_reload_keeps_that() {
    let bench = Bench::new(PER_USER);
    for _ in 0..3 {
        bench.one(&[("user", "ann")]);
    }
    assert!(!bench.one(&[("user", "ann")]).is_allowed());
    assert_eq!(bench.engine.set_mode("api", "user", Some(Mode::Shadow)), Ok(Mode::Shadow));
    assert!(bench.one(&[("user", "ann")]).is_allowed());
    bench.engine.set_mode("api", "user", Some(Mode::Off)).unwrap();
    assert!(bench.one(&[("user", "ann")]).judgements().next().is_none());
    bench.install(PER_USER);
    let rule = &bench.engine.rules()[0];
    assert_eq!((rule.mode, rule.configured), (Mode::Off, Some(Mode::Enforce)));
    assert_eq!(bench.engine.set_mode("api", "user", None), Ok(Mode::Enforce));
    assert!(!bench.one(&[("user", "ann")]).is_allowed());
    let unknown = bench.engine.set_mode("api", "none", None).unwrap_err();
    assert_eq!(unknown.to_string(), "rule: there is no `none` in domain `api`; GET /v1/rules lists them");
}

#[test]
fn all_in_shadow_denies_nothing_and_tells_what_it_would() {
    let bench = Bench::in_shadow(PER_USER);
    let last = (0..4).map(|_| bench.one(&[("user", "ann")])).last().unwrap();
    assert!(last.is_allowed() && last.denial().is_none() && last.retry().is_none());
    assert!(last.judgements().next().unwrap().denies(), "each judgement stays as it is");
    let counts = bench.engine.rules()[0].counts;
    assert_eq!((counts.allowed, counts.denied, counts.shadow_denied), (3, 0, 1));
    assert_eq!((counts.over_limit, counts.shadow), (1, 1));
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
    assert_eq!(remaining(&third), [0, 0, 8], "told as they are after the refund");
    assert_eq!(bench.remaining(&[]), [8], "what the third took of the rule for all went back");
}

#[test]
fn a_rule_replaces_a_block_by_its_name() {
    let bench = Bench::new(
        r"
- {name: stop, match: {entries: {user: '*'}}, action: block}
- {name: gold, match: {entries: {plan: gold}}, limit: 5/minute, replaces: [stop]}
",
    );
    assert!(!bench.one(&[("user", "a")]).is_allowed());
    assert!(bench.one(&[("user", "a"), ("plan", "gold")]).is_allowed());
}

#[test]
fn a_rule_replaces_limits_by_their_name() {
    let bench = Bench::new(
        "
- {name: base, match: {entries: {user: '*'}}, key: {entry: user}, limit: {name: base, rate: 1/minute}}
- {name: gold, match: {entries: {plan: gold}}, key: {entry: user}, limit: 5/minute, replaces: [base]}
",
    );
    let gold = bench.one(&[("user", "ann"), ("plan", "gold")]);
    assert_eq!(remaining(&gold), [4]);
    assert_eq!(bench.remaining(&[("user", "ann")]), [1], "the replaced limit was not charged");
}

#[test]
fn rules_block_or_let_pass() {
    let bench = Bench::new(
        "
- {name: bad, match: {entries: {user: mallory}}, action: block}
- {name: internal, match: {entries: {user: cron}}, action: unlimited}
- {name: all, limit: 2/minute}
",
    );
    let blocked = bench.one(&[("user", "mallory")]);
    assert_eq!((blocked.denial(), blocked.retry()), (Some(Denial::Blocked), Some(Retry::Never)));
    assert_eq!(bench.remaining(&[]), [2], "a blocked request costs nothing");
    let passed = bench.one(&[("user", "cron")]);
    assert!(passed.judgements().any(|judgement| matches!(judgement.answer, Answer::Unlimited)));
    assert_eq!(remaining(&passed), [1], "rules beside it still apply");
}

#[test]
fn a_penalty_outlasts_the_limit() {
    let bench = Bench::new(&PER_USER.replace("limit:", "for: 10m\n  limit:"));
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
fn responses_are_counted_when_they_are_reported() {
    let bench = Bench::new(
        "
- name: login
  match: {path: /login}
  key: address
  limit: {algorithm: sliding_log, rate: 2/minute}
  count: response.status == 401
  for: 5m
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
fn the_mode_that_counts_is_told() {
    let modes = |bench: &Bench| -> Vec<Mode> { bench.one(&[]).judgements().map(|judgement| judgement.mode).collect() };
    let rules = "
- {name: on, limit: 9/minute}
- {name: watch, mode: shadow, limit: 9/minute}
- {name: quota, mode: shadow, quota: true, limit: 9/minute}
";
    assert_eq!(modes(&Bench::new(rules)), [Mode::Enforce, Mode::Shadow, Mode::Shadow]);
    let bench = Bench::in_shadow(rules);
    assert_eq!(modes(&bench), [Mode::Shadow; 3]);
    let view = &bench.engine.rules()[0];
    assert_eq!((view.mode, view.configured), (Mode::Shadow, Some(Mode::Enforce)));
    assert_eq!(bench.engine.set_mode("api", "on", Some(Mode::Enforce)), Ok(Mode::Shadow), "nothing can deny");
    assert_eq!(bench.engine.set_mode("api", "on", Some(Mode::Off)), Ok(Mode::Off));
    assert_eq!(modes(&bench), [Mode::Shadow; 2]);
}

#[test]
fn a_request_may_bring_its_limit_or_give_units_back() {
    let bench = Bench::new(PER_USER);
    let ann = entries(&[("user", "ann")]);
    let own = OwnLimit {
        limit: Some(Limit::fixed_window(1, Duration::from_secs(60)).unwrap()),
        shown: Shown { units: 1, period_ns: 60_000_000_000 },
    };
    let with_own = [Descriptor { entries: &ann, ask: None, limit: Some(own) }];
    assert!(bench.ask(&with_own, 1).is_allowed());
    assert!(!bench.ask(&with_own, 1).is_allowed());
    assert_eq!(bench.remaining(&[("user", "ann")]), [3], "the rule was not asked");
    let nothing = OwnLimit { limit: None, ..own };
    let denied = bench.ask(&[Descriptor { entries: &ann, ask: None, limit: Some(nothing) }], 1);
    assert_eq!(denied.denial(), Some(Denial::Blocked));
    bench.one(&[("user", "ann")]);
    let back = bench.ask(&[Descriptor { entries: &ann, ask: Some(Ask::Refund(1)), limit: None }], 1);
    assert_eq!(remaining(&back), [3]);
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
fn limits_that_callers_bring_share_no_key_with_rules() {
    let bench = Bench::new("- {name: all, limit: 3/minute}");
    let limit: Limit = "3/minute".parse().unwrap();
    for key in ["x", &"long".repeat(100)] {
        let take = || at_once(bench.engine.decide(key.as_bytes(), &limit, Op::Take(1))).unwrap();
        assert_eq!(take().remaining(), 2);
        assert_eq!(take().remaining(), 1);
    }
    assert_eq!(bench.remaining(&[]), [3]);
    assert!(at_once(bench.engine.decide(b"", &limit, Op::Take(1))).is_err());
    let all = at_once(bench.engine.decide_all(&[(b"x", limit, Op::Take(2)), (b"y", limit, Op::Take(1))])).unwrap();
    assert!(!all[0].is_allowed());
    assert_eq!(at_once(bench.engine.decide(b"y", &limit, Op::Peek)).unwrap().remaining(), 3, "all or none");
}

#[test]
fn bad_requests_are_refused_with_the_reason() {
    let bench = Bench::new(PER_USER);
    let check = |descriptors: &[Descriptor<'_>], cost| {
        at_once(bench.engine.check(&Request { domain: "api", descriptors, http: None, cost })).unwrap_err()
    };
    assert_eq!(check(&[], 1), RequestError::NoDescriptors);
    assert_eq!(check(&[Descriptor::default(); 65], 1), RequestError::TooManyDescriptors { count: 65 });
    let many = vec![Entry { key: "a", value: "b" }; 65];
    assert_eq!(
        check(&[Descriptor { entries: &many, ..Descriptor::default() }], 1),
        RequestError::TooManyEntries { count: 65 }
    );
    assert_eq!(check(&[Descriptor::default()], u64::MAX), RequestError::Cost { cost: u64::MAX });
    let long = "x".repeat(5_000);
    let entries = entries(&[("user", &long)]);
    let too_long = check(&[Descriptor { entries: &entries, ..Descriptor::default() }], 1).to_string();
    assert_eq!(too_long, "key: what rule `user` counts on is too long; use shorter values, 4096 bytes in all");
    let nine: String = (0..9).map(|number| format!("- {{name: r{number}, limit: 1000/minute}}\n")).collect();
    bench.install(&nine);
    assert_eq!(check(&[Descriptor::default(); 64], 1), RequestError::TooManyLimits);
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

#[test]
fn who_waits_as_long_as_a_penalised_answer_says_passes() {
    let bench = Bench::new(&PER_USER.replace("limit:", "for: 5s\n  limit:"));
    for _ in 0..4 {
        bench.one(&[("user", "ann")]);
    }
    bench.clock.advance(Duration::from_secs(1));
    let penalised = bench.one(&[("user", "ann")]);
    assert_eq!(penalised.denial(), Some(Denial::Penalty));
    assert_eq!(penalised.retry(), Some(Retry::After(Duration::from_secs(19))), "not the 4 s of the penalty alone");
    bench.clock.advance(Duration::from_secs(19));
    assert!(bench.one(&[("user", "ann")]).is_allowed());
}

#[test]
fn a_refund_gives_back_what_was_taken() {
    let bench = Bench::new(
        "
- {name: tenfold, match: {entries: {tenfold: '*'}}, limit: 100/hour, cost: cost * 10}
- {name: later, match: {entries: {later: '*'}}, limit: 5/hour, count: response.status == 401}
",
    );
    let refund = |name| {
        let entries = entries(&[(name, "x")]);
        remaining(&bench.ask(&[Descriptor { entries: &entries, ask: Some(Ask::Refund(1)), limit: None }], 1))
    };
    assert_eq!(remaining(&bench.one(&[("tenfold", "x")])), [90]);
    assert_eq!(refund("tenfold"), [100]);
    let later = entries(&[("later", "x")]);
    let descriptors = [Descriptor { entries: &later, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    at_once(bench.engine.report(&request, &Response { status: 401, ..Response::default() })).unwrap();
    assert_eq!(refund("later"), [4], "the request took nothing, its response did");
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
    let bench = Bench::new("- {name: login, limit: 1/minute, count: response.status == 401, for: 5m}");
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    at_once(bench.engine.block(&request, Duration::from_secs(86_400))).unwrap();
    at_once(bench.engine.report(&request, &Response { status: 401, ..Response::default() })).unwrap();
    assert_eq!(bench.one(&[]).retry(), Some(Retry::After(Duration::from_secs(86_400))));
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
    assert_eq!(engine.install(load("8")).unwrap(), [Box::<str>::from("default")], "it keeps its size while it runs");
}

#[test]
fn a_rule_in_shadow_does_not_refuse_a_long_key() {
    let bench = Bench::new(&PER_USER.replace("limit:", "mode: shadow\n  limit:"));
    let outcome = bench.one(&[("user", &"x".repeat(5_000))]);
    assert!(outcome.is_allowed());
    assert_eq!(bench.engine.rules()[0].counts.shadow_denied, 1);
}
