//! The heaviest keys and the blocks in force, as operators see them.

use std::time::Duration;

use tidegate_engine::{BlockKind, HeavyBy, KeyCounts, Operator, Others, TopAnswer, TopQuery, TopWindow};
use tidegate_policy::{Ask, Descriptor, Http, Mode, Request, Response, ShownPart};

use crate::bench::{Bench, PER_USER, at_once, entries};

fn top(bench: &Bench, by: HeavyBy, window: TopWindow) -> TopAnswer {
    bench.engine.top(&TopQuery { domain: None, rule: None, by, window, keys_max: 20 }, &Others::default())
}

/// A key as one text.
fn text(parts: &[ShownPart]) -> String {
    let part = |part: &ShownPart| format!("{}={}{}", part.part, part.value, if part.hidden { "#" } else { "" });
    parts.iter().map(part).collect::<Vec<_>>().join(" ")
}

/// Requests, denials and denials in shadow.
type Counts = (u64, u64, u64);

/// The keys of the rules with what was counted of them.
fn keys(answer: &TopAnswer) -> Vec<(String, Counts)> {
    let counts = |KeyCounts { requests, denials, shadow_denials }| (requests, denials, shadow_denials);
    answer.rules.iter().flat_map(|rule| &rule.keys).map(|key| (text(&key.key), counts(key.counts))).collect()
}

fn by_requests(bench: &Bench) -> Vec<(String, Counts)> {
    keys(&top(bench, HeavyBy::Requests, TopWindow::Minute))
}

fn of(user: &str, requests: u64, denials: u64, shadow_denials: u64) -> (String, Counts) {
    (format!("entry:user={user}"), (requests, denials, shadow_denials))
}

#[test]
fn requests_and_denials_of_each_key_are_counted() {
    let bench = Bench::new(PER_USER);
    for (user, times) in [("ann", 5), ("bob", 4), ("eve", 1)] {
        (0..times).for_each(|_| drop(bench.one(&[("user", user)])));
    }
    let expected = [of("ann", 5, 2, 0), of("bob", 4, 1, 0), of("eve", 1, 0, 0)];
    assert_eq!(by_requests(&bench), expected);
    let answer = top(&bench, HeavyBy::Denials, TopWindow::Hour);
    assert_eq!(keys(&answer), expected[..2], "keys without denials are not in the list");
    let rule = &answer.rules[0];
    assert_eq!((&*rule.domain, &*rule.rule, rule.is_refused), ("api", "user", false));
    assert_eq!(rule.total, KeyCounts { requests: 10, denials: 3, shadow_denials: 0 });
    assert_eq!((answer.nodes.len(), answer.nodes[0].is_this, &*answer.nodes[0].id), (1, true, bench.engine.node()));
    bench.clock.advance(Duration::from_secs(180));
    assert_eq!(by_requests(&bench), []);
    assert_eq!(keys(&top(&bench, HeavyBy::Requests, TopWindow::Hour)), expected);
}

/// One rule that judges a request alone goes another way than several, and both count alike.
#[test]
fn all_ways_of_a_request_count() {
    let bench = Bench::new(PER_USER);
    bench.one(&[("user", "ann")]);
    let ann = entries(&[("user", "ann")]);
    let take = |units| Descriptor { entries: &ann, ask: Some(Ask::Take(units)), limit: None };
    // Several units are one request, and each descriptor is one.
    bench.ask(&[take(2), take(1)], 1);
    assert_eq!(by_requests(&bench), [of("ann", 3, 1, 0)]);
    // Peeks, refunds and reports are not counted.
    bench.ask(&[Descriptor { entries: &ann, ask: Some(Ask::Refund(1)), limit: None }], 1);
    bench.ask(&[take(0)], 1);
    bench.ask(&[Descriptor { entries: &ann, ..Descriptor::default() }], 0);
    assert_eq!(by_requests(&bench), [of("ann", 3, 1, 0)]);
    let request = Request { domain: "api", descriptors: &[take(1)], http: None, cost: 1 };
    at_once(bench.engine.report(&request, &Response::default())).unwrap();
    assert_eq!(by_requests(&bench), [of("ann", 3, 1, 0)]);
}

#[test]
fn a_rule_of_several_limits_counts_a_request_once() {
    let limits = "limits: [{name: a, rate: 2/minute}, {name: b, rate: 9/hour}]";
    let bench = Bench::new(&format!("- {{name: two, key: {{entry: user}}, {limits}}}"));
    (0..3).for_each(|_| drop(bench.one(&[("user", "ann")])));
    assert_eq!(by_requests(&bench), [of("ann", 3, 1, 0)]);
}

#[test]
fn modes_are_told_apart() {
    let bench = Bench::new(&PER_USER.replace("limit:", "mode: shadow\n  limit:"));
    (0..5).for_each(|_| drop(bench.one(&[("user", "ann")])));
    assert_eq!(by_requests(&bench), [of("ann", 5, 0, 2)]);
    assert_eq!(keys(&top(&bench, HeavyBy::Denials, TopWindow::Minute)), [of("ann", 5, 0, 2)]);
    bench.engine.set_mode("api", "user", Some(Mode::Off)).unwrap();
    bench.one(&[("user", "ann")]);
    assert_eq!(by_requests(&bench), [of("ann", 5, 0, 2)], "a rule that is off counts nothing");
    bench.engine.set_mode("api", "user", Some(Mode::Enforce)).unwrap();
    bench.one(&[("user", "ann")]);
    assert_eq!(by_requests(&bench), [of("ann", 6, 1, 2)]);
    let bench = Bench::in_shadow(PER_USER);
    (0..5).for_each(|_| drop(bench.one(&[("user", "ann")])));
    assert_eq!(by_requests(&bench), [of("ann", 5, 0, 2)]);
}

#[test]
fn keys_of_all_kinds_of_rules() {
    let bench = Bench::new(
        "
- {name: all, limit: 2/minute}
- {name: banned, match: {entries: {ban: '*'}}, action: block}
- {name: strict, match: {entries: {strict: '*'}}, key: {entry: user}, missing: deny, limit: 9/minute}
- {name: shared, match: {entries: {shared: '*'}}, key: {entry: user}, missing: share, limit: 9/minute}
- {name: failing, match: {entries: {cost: '*'}}, key: {entry: user}, cost: int(entries.cost), limit: 9/minute}
",
    );
    for asked in [&[("ban", "x")][..], &[("strict", "x")], &[("shared", "x")], &[("cost", "x"), ("user", "ann")]] {
        bench.one(asked);
    }
    let answer = top(&bench, HeavyBy::Requests, TopWindow::Minute);
    let counted = |name: &str| {
        let rule = answer.rules.iter().find(|rule| &*rule.rule == name).unwrap_or_else(|| panic!("{answer:?}"));
        rule.keys.iter().map(|key| (text(&key.key), key.counts.requests, key.counts.denials)).collect::<Vec<_>>()
    };
    assert_eq!(counted("banned"), [(String::new(), 1, 1)]);
    assert_eq!(counted("strict"), [("missing=".to_owned(), 1, 1)]);
    assert_eq!(counted("shared"), [("missing=".to_owned(), 1, 0)]);
    assert_eq!(counted("failing"), [("entry:user=ann".to_owned(), 1, 1)], "nobody knows its units, and it is denied");
    assert_eq!(counted("all"), [(String::new(), 4, 0)], "what another rule denies it does not");
}

#[test]
fn secrets_are_hidden_unless_the_rule_shows_them() {
    let rules = "- {name: session, key: [{cookie: id}, method], missing: skip, limit: 9/minute}";
    let bench = Bench::new(rules);
    let http = Http { method: "GET", headers: &[("cookie", "id=s3cret")], ..Http::default() };
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: Some(&http), cost: 1 };
    let shown = |bench: &Bench| by_requests(bench).remove(0).0;
    at_once(bench.engine.check(&request)).unwrap();
    let hidden = shown(&bench);
    assert!(hidden.starts_with("cookie:id=") && hidden.contains("# method=GET") && !hidden.contains("s3cret"));
    // It applies to keys that were counted before, too.
    bench.install(&rules.replace("limit", "show: true, limit"));
    assert_eq!(shown(&bench), "cookie:id=s3cret method=GET");
    // Keys of other parts are forgotten: these might show what the old ones hid.
    bench.install("- {name: session, key: [{entry: id}, method], limit: 9/minute}");
    assert_eq!(by_requests(&bench), []);
}

#[test]
fn a_rule_that_stays_goes_on_and_one_that_is_gone_is_forgotten() {
    let bench = Bench::new(PER_USER);
    bench.one(&[("user", "ann")]);
    bench.install(&PER_USER.replace("3/minute", "9/hour"));
    assert_eq!(by_requests(&bench), [of("ann", 1, 0, 0)]);
    bench.install("- {name: other, limit: 3/minute}");
    bench.install(PER_USER);
    assert_eq!(by_requests(&bench), []);
}

#[test]
fn questions_are_narrowed() {
    let rules = "- {name: a, key: {entry: user}, limit: 9/minute}\n- {name: b, key: {entry: user}, limit: 1/minute}";
    let bench = Bench::new(rules);
    for user in ["ann", "ann", "bob", "eve"] {
        bench.one(&[("user", user)]);
    }
    let ask = |domain: Option<&str>, rule: Option<&str>, by, keys_max| {
        let (domain, rule) = (domain.map(Into::into), rule.map(Into::into));
        let query = TopQuery { domain, rule, by, window: TopWindow::Minute, keys_max };
        let answer = bench.engine.top(&query, &Others::default());
        answer.rules.iter().map(|rule| (rule.rule.to_string(), rule.keys.len())).collect::<Vec<_>>()
    };
    let expected =
        |all: &[(&str, usize)]| all.iter().map(|(rule, keys)| ((*rule).to_owned(), *keys)).collect::<Vec<_>>();
    assert_eq!(ask(None, None, HeavyBy::Requests, 2), expected(&[("a", 2), ("b", 2)]));
    assert_eq!(ask(Some("api"), Some("b"), HeavyBy::Requests, 9), expected(&[("b", 3)]));
    assert_eq!(ask(Some("none"), None, HeavyBy::Requests, 9), []);
    assert_eq!(ask(None, None, HeavyBy::Denials, 9), expected(&[("b", 1), ("a", 0)]), "the busiest first");
}

#[test]
fn penalties_and_blocks_are_listed_until_they_end() {
    let bench = Bench::new(&PER_USER.replace("limit:", "penalty: 10m\n  limit:"));
    let listed = || {
        let answer = bench.engine.blocks(None, None);
        let view = |block: &tidegate_engine::BlockView| (text(&block.key), block.kind, block.left.as_secs());
        answer.blocks.iter().map(view).collect::<Vec<_>>()
    };
    (0..4).for_each(|_| drop(bench.one(&[("user", "ann")])));
    assert_eq!(listed(), [("entry:user=ann".to_owned(), BlockKind::Penalty, 600)]);
    bench.clock.advance(Duration::from_secs(60));
    let bob = entries(&[("user", "bob")]);
    let descriptors = [Descriptor { entries: &bob, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    let operator = Operator { via: "http".into(), address: "192.0.2.7".into() };
    at_once(bench.engine.block_by(Some(operator.clone()), &request, Duration::from_secs(60))).unwrap();
    let of_bob = ("entry:user=bob".to_owned(), BlockKind::Operator, 60);
    assert_eq!(listed(), [of_bob, ("entry:user=ann".to_owned(), BlockKind::Penalty, 540)]);
    let block = bench.engine.blocks(Some("api"), Some("user")).blocks.remove(0);
    assert_eq!((block.operator, block.node.as_deref()), (Some(operator), Some(bench.engine.node())));
    assert_eq!(
        (&*block.domain, &*block.rule, block.until.as_nanos() - block.since.as_nanos()),
        ("api", "user", 60_000_000_000)
    );
    assert_eq!(bench.engine.blocks(Some("api"), Some("other")).blocks.len(), 0);
    at_once(bench.engine.reset(&request)).unwrap();
    assert_eq!(listed().len(), 1, "it was lifted");
    bench.clock.advance(Duration::from_secs(540));
    assert_eq!(listed(), []);
}
