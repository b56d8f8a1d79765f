//! Which limits a request is held against, and what each says.

use std::time::Duration;

use tidegate_core::{Limit, Op, Retry};
use tidegate_engine::{Answer, Denial, RequestError};
use tidegate_policy::{Ask, Descriptor, Entry, Http, OwnLimit, Request, Response, Shown};

use crate::bench::{Bench, PER_USER, at_once, entries, remaining};

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
fn a_rule_does_not_replace_itself() {
    // What has no limit goes by its own name, which another rule may have given to a limit.
    let bench = Bench::new(
        "
- {name: base, match: {entries: {user: mallory}}, action: block, replaces: [base]}
- {name: all, limit: {name: base, rate: 5/minute}}
",
    );
    let blocked = bench.one(&[("user", "mallory")]);
    assert_eq!((blocked.denial(), blocked.judgements().count()), (Some(Denial::Blocked), 1));
    assert_eq!(remaining(&bench.one(&[("user", "ann")])), [4]);
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
fn limits_that_callers_bring_share_no_key_with_rules() {
    let bench = Bench::new("- {name: all, limit: 3/minute}");
    let limit: Limit = "3/minute".parse().unwrap();
    for key in ["x", "", &"long".repeat(100)] {
        let take = || at_once(bench.engine.decide(key.as_bytes(), &limit, Op::Take(1))).unwrap();
        assert_eq!(take().remaining(), 2);
        assert_eq!(take().remaining(), 1);
    }
    assert_eq!(bench.remaining(&[]), [3]);
    assert!(at_once(bench.engine.decide(&[b'x'; 4_096], &limit, Op::Take(1))).is_err());
    let all = at_once(bench.engine.decide_all(&[(b"x", limit, Op::Take(2)), (b"y", limit, Op::Take(1))])).unwrap();
    assert!(!all.is_allowed() && !all.strictest().unwrap().is_allowed());
    assert_eq!(at_once(bench.engine.decide(b"y", &limit, Op::Peek)).unwrap().remaining(), 3, "all or none");
}

#[test]
fn bad_requests_are_refused_with_the_reason() {
    let bench = Bench::new(PER_USER);
    let check = |descriptors: &[Descriptor<'_>], cost| {
        at_once(bench.engine.check(&Request { domain: "api", descriptors, http: None, cost })).unwrap_err()
    };
    assert_eq!(check(&[], 1), RequestError::NoDescriptors);
    assert_eq!(check(&[Descriptor::default(); 129], 1), RequestError::TooManyDescriptors { count: 129 });
    let many = vec![Entry { key: "a", value: "b" }; 65];
    assert_eq!(
        check(&[Descriptor { entries: &many, ..Descriptor::default() }], 1),
        RequestError::TooManyEntries { count: 65 }
    );
    assert_eq!(check(&[Descriptor::default()], u64::MAX), RequestError::Cost { cost: u64::MAX });
    let nine: String = (0..9).map(|number| format!("- {{name: r{number}, limit: 1000/minute}}\n")).collect();
    bench.install(&nine);
    assert_eq!(check(&[Descriptor::default(); 57], 1), RequestError::TooManyLimits);
    let most = Request { domain: "api", descriptors: &[Descriptor::default(); 56], http: None, cost: 1 };
    assert!(at_once(bench.engine.check(&most)).is_ok());
}

/// Nobody escapes a limit, or is shut out, by a long value.
#[test]
fn a_long_key_counts_as_any_other() {
    let bench = Bench::new("- {name: user, key: [{entry: user}, {entry: org}], limit: 2/minute, penalty: 1m}");
    let limit = "2/minute".parse().unwrap();
    let own = OwnLimit { limit: Some(limit), shown: Shown { units: 2, period_ns: 60_000_000_000 } };
    let ask = |user: &str, limit| {
        let entries = entries(&[("user", user), ("org", "o")]);
        bench.ask(&[Descriptor { entries: &entries, ask: None, limit }], 1).denial()
    };
    for bytes in [990, 1_000, 1_010, 4_070, 4_090, 5_000, 100_000] {
        let user = "x".repeat(bytes);
        let other = format!("{}y", &user[1..]);
        for (limit, denial) in [(None, Denial::Penalty), (Some(own), Denial::OverLimit)] {
            assert_eq!([ask(&user, limit), ask(&user, limit)], [None; 2], "{bytes}");
            assert_eq!(ask(&user, limit), Some(denial), "{bytes}");
            assert_eq!(ask(&other, limit), None, "{bytes}: each has a count of its own");
        }
        let entries = entries(&[("user", &user), ("org", "o")]);
        let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
        let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
        assert_eq!(at_once(bench.engine.reset(&request)), Ok(1), "{bytes}");
        assert_eq!(ask(&user, None), None, "{bytes}");
    }
}

/// A client that drops its cookie evades the rule only where that was chosen.
#[test]
fn a_request_without_a_part_of_the_key_is_skipped_shared_or_denied() {
    let ask = |bench: &Bench, cookie: &str| {
        let headers = [("cookie", cookie)];
        let http = Http { method: "GET", host: "h", path: "/", headers: &headers, ..Http::default() };
        let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: Some(&http), cost: 1 };
        at_once(bench.engine.check(&request)).unwrap().denial()
    };
    let rule = |fields: &str| format!("- {{name: r, key: [method, {{cookie: session}}], limit: 1/minute, {fields}}}");
    let over = Some(Denial::OverLimit);
    for (fields, without) in [
        ("mode: enforce", [None, None]),
        ("missing: skip", [None, None]),
        ("missing: share", [None, over]),
        ("missing: deny", [Some(Denial::Blocked); 2]),
        ("missing: deny, mode: shadow", [None, None]),
    ] {
        let bench = Bench::new(&rule(fields));
        assert_eq!([ask(&bench, "theme=dark"), ask(&bench, "")], without, "{fields}");
        assert_eq!(ask(&bench, "session=a"), None, "{fields}: those with a session have counts of their own");
        if !fields.contains("shadow") {
            assert_eq!(ask(&bench, "session=a"), over, "{fields}");
        }
        let counts = bench.engine.rules()[0].counts;
        let expected = if fields.contains("shadow") { (0, 2) } else { (counts.denied, 0) };
        assert_eq!((counts.denied, counts.shadow_denied), expected, "{fields}");
    }
    let bench = Bench::new(&rule("missing: share, penalty: 10m"));
    assert_eq!([ask(&bench, ""), ask(&bench, "")], [None, Some(Denial::Penalty)]);
    assert_eq!(ask(&bench, "session=a"), None);
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    assert_eq!(at_once(bench.engine.reset(&request)), Ok(1));
    assert_eq!(ask(&bench, ""), None);
}

/// A client that makes the expression fail must not get by with one unit.
#[test]
fn a_cost_that_cannot_be_computed_denies() {
    const RULES: &str = "
- {name: bytes, key: [{entry: user}], limit: 5/hour, penalty: 10m, count_denied: true, cost: int(entries.bytes) * cost}
- {name: all, limit: 9/hour}
";
    let bench = Bench::new(RULES);
    let with = |bench: &Bench, bytes| bench.one(&[("user", "ann"), ("bytes", bytes)]);
    assert_eq!(remaining(&with(&bench, "2")), [3, 8]);
    for (number, bytes) in (1..).zip(["", "x", "1e3", "-1", "9007199254740993", "99999999999999999999"]) {
        let denied = with(&bench, bytes);
        assert_eq!((denied.denial(), denied.retry()), (Some(Denial::CostFailed), Some(Retry::Never)), "{bytes}");
        let said: Vec<Answer> = denied.judgements().map(|judgement| judgement.answer).collect();
        assert!(matches!(said[..], [Answer::CostFailed, Answer::Decided(_)]), "{bytes}: {said:?}");
        let counts = bench.engine.rules()[0].counts;
        assert_eq!((counts.denied, bench.engine.policy().expression_errors()), (number, number), "{bytes}");
    }
    let descriptor = entries(&[("user", "ann"), ("bytes", "x")]);
    let back = bench.ask(&[Descriptor { entries: &descriptor, ask: Some(Ask::Refund(1)), limit: None }], 1);
    assert!(back.is_allowed(), "who gives back is not denied");
    assert_eq!(remaining(&with(&bench, "1")), [2, 8], "nothing was taken, and nobody penalised");
    let request = Request {
        domain: "api",
        descriptors: &[Descriptor { entries: &descriptor, ..Descriptor::default() }],
        http: None,
        cost: 1,
    };
    assert_eq!(at_once(bench.engine.reset(&request)), Ok(2), "its key is known");
    assert_eq!(remaining(&with(&bench, "1")), [4, 8]);

    bench.install(&RULES.replace("penalty: 10m", "mode: shadow"));
    assert!(with(&bench, "x").is_allowed());
    assert_eq!(bench.engine.rules()[0].counts.shadow_denied, 1);
    bench.install("- {name: bytes, limit: 5/hour, count: response.status == 401, cost: int(entries.bytes)}");
    let failed = Response { status: 401, ..Response::default() };
    assert_eq!(at_once(bench.engine.report(&request, &failed)), Ok(0));
    assert_eq!(bench.remaining(&[("bytes", "1")]), [5]);
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
fn a_text_that_is_too_long_for_a_key_is_refused_or_denied_as_the_caller_wants() {
    let rules = PER_USER.replace("{entry: user}", "{expression: entries.user}") + "- {name: all, limit: 5/minute}\n";
    let long = "x".repeat(8_193);
    let user = entries(&[("user", &long)]);
    let descriptors = [Descriptor::default(), Descriptor { entries: &user, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    let bench = Bench::new(&rules);
    let refused = at_once(bench.engine.check(&request)).unwrap_err().to_string();
    assert_eq!(refused, "key: an expression of rule `user` reads a text that is too long; use at most 8192 bytes");
    let outcome = at_once(bench.engine.check_or_deny(&request)).unwrap();
    assert_eq!((outcome.denial(), outcome.retry()), (Some(Denial::Blocked), Some(Retry::Never)));
    assert!(!outcome.strictest(0).unwrap().denies() && outcome.strictest(1).unwrap().denies());
    assert_eq!(bench.remaining(&[]), [5], "nothing is taken from the others");
    let counts = |bench: &Bench| bench.engine.rules()[0].counts;
    assert_eq!((counts(&bench).denied, counts(&bench).shadow_denied), (1, 0));
    let bench = Bench::in_shadow(&rules);
    assert!(at_once(bench.engine.check_or_deny(&request)).unwrap().is_allowed());
    assert_eq!((counts(&bench).denied, counts(&bench).shadow_denied), (0, 1));
}

#[test]
fn a_rule_in_shadow_has_no_key_where_that_is_too_long() {
    let rules = PER_USER.replace("{entry: user}", "{expression: entries.user}");
    let bench = Bench::new(&rules.replace("limit:", "mode: shadow\n  count: response.status == 401\n  limit:"));
    let long = "x".repeat(8_193);
    let user = entries(&[("user", &long)]);
    let descriptors = [Descriptor { entries: &user, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    let failed = Response { status: 401, ..Response::default() };
    assert_eq!(at_once(bench.engine.report(&request, &failed)), Ok(0));
    assert_eq!(at_once(bench.engine.reset(&request)), Ok(0));
}
