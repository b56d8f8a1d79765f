//! Why a request was denied, and what would become of one.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tidegate_core::{FakeClock, Limit, Retry, Time};
use tidegate_engine::{Answer, Denial, Engine, Explained, Options, Outcome, RuleMatch, Unexplained};
use tidegate_policy::{Descriptor, Entry, Http, LoadOptions, OwnLimit, Request, Shown, load_text};
use tidegate_stores::{AnyStore, Other};

use crate::bench::entries;
use crate::own_stores::{FAILS, Own, durable, shared};

const EVERY_FEATURE: &str = "
stores: {gone: {}, away: {}}
domains:
  api:
    rules:
    - name: per-user
      match: {entries: {user: '*'}}
      key: {entry: user}
      limits: [{name: burst, rate: 3/minute}, {name: daily, algorithm: fixed_window, rate: 20/day}]
    - {name: gold, match: {entries: {plan: gold}}, key: {entry: user}, limit: 4/minute, replaces: [burst, daily]}
    - {name: per-address, match: {entries: {by: address}}, key: address, limit: 2/minute, penalty: 30s}
    - name: session
      match: {entries: {by: session}}
      key: [{header: X-User}, {cookie: id}, {query: q}]
      limit: {algorithm: sliding_log, rate: 2/minute}
      missing: share
      response: {hidden: true}
    - {name: shut, match: {path: '/admin*'}, action: block}
    - {name: priced, match: {entries: {by: cost}}, cost: 'int(entries.units)', limit: {algorithm: token_bucket, rate: 9/minute}}
    - {name: strict, match: {entries: {by: strict}}, key: {header: X-User}, missing: deny, limit: 1000/second}
    - {name: quota-a, match: {entries: {by: quota}}, quota: true, key: {entry: user}, limit: 2/hour}
    - {name: quota-b, match: {entries: {by: quota}}, quota: true, limit: {algorithm: leaky_bucket, rate: 40/hour, capacity: 9}}
    - {name: watch, mode: shadow, limit: 1/hour}
    - {name: failing, store: gone, match: {entries: {by: gone}}, limit: 9/minute}
    - {name: alone, store: away, match: {entries: {by: away}}, key: address, limit: 1/minute}
    - {name: eager, match: {entries: {by: eager}}, count_denied: true, limit: {algorithm: sliding_counter, rate: 3/minute}}
    - {name: sliced, match: {when: 'entries.by == \"slice\"'}, key: {expression: entries.user}, limit: {algorithm: sliced_window, rate: 3/minute}}
    - {name: mistakes, match: {entries: {by: count}}, count: 'request.method == \"POST\"', limit: 2/minute}
";

struct Bench {
    engine: Engine,
    clock: FakeClock,
}

impl Bench {
    fn new(config: &str, explain_bytes: usize) -> Bench {
        let clock = FakeClock::at(Time::from_nanos(1_700_000_000_000_000_000));
        let (gone, away) = (Own::new(durable()), Own::new(shared()));
        gone.turn(FAILS);
        away.turn(FAILS);
        let brought = [("gone", gone), ("away", away)];
        let stores: HashMap<_, _> =
            brought.map(|(name, store)| (name.into(), AnyStore::from(Other::new(store)))).into();
        let options = Options { clock: clock.clone().into(), stores, explain_bytes, ..Options::default() };
        let engine = Engine::new(options).unwrap();
        let bench = Bench { engine, clock };
        bench.install(config);
        bench
    }

    fn install(&self, config: &str) {
        let loaded = load_text("test.yaml", config, &LoadOptions::default());
        self.engine.install(loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))).unwrap();
    }

    /// Asks for one unit with these entries.
    async fn one(&self, pairs: &[(&str, &str)]) -> Outcome {
        let entries = entries(pairs);
        let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
        self.engine.check(&Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 }).await.unwrap()
    }

    fn explain(&self, outcome: &Outcome) -> Explained {
        self.engine.explain(&outcome.decision_id().unwrap()).unwrap()
    }
}

/// Numbers that look random, and are the same each time (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap() % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A request that any rule may match.
async fn random(dice: &mut Dice, mut ask: impl AsyncFnMut(&Request<'_>)) {
    let long = "x".repeat(2_000);
    let hostile = "<b>\u{1b}[31m\u{202e}\0";
    let kinds = ["", "address", "session", "cost", "strict", "quota", "gone", "away", "eager", "slice", "count"];
    let all = [
        Entry { key: "by", value: dice.of(&kinds) },
        Entry { key: "user", value: dice.of(&["ann", "bob", "eve", &long, hostile]) },
        Entry { key: "units", value: dice.of(&["1", "3", "99", "many"]) },
        Entry { key: "plan", value: dice.of(&["gold", "free", "free"]) },
    ];
    let entries = &all[dice.below(2)..1 + dice.below(4)];
    let headers = [("x-user", dice.of(&["ann", "bob"])), ("cookie", "id=7")];
    let http = Http {
        method: dice.of(&["GET", "POST"]),
        path: dice.of(&["/", "/", "/", "/", "/admin/x"]),
        query: "q=1",
        headers: &headers[dice.below(2)..],
        address: Some(dice.of(&["192.0.2.1", "2001:db8::1"]).parse().unwrap()),
        ..Http::default()
    };
    let own = OwnLimit {
        limit: Some(Limit::fixed_window(2, Duration::from_secs(60)).unwrap()),
        shown: Shown { units: 2, period_ns: 60_000_000_000 },
    };
    let rules = Descriptor { entries, ..Descriptor::default() };
    let descriptors = [rules, Descriptor { limit: Some(own), ..rules }];
    let descriptors = dice.of(&[&descriptors[..1], &descriptors[..1], &descriptors[1..], &descriptors]);
    let http = dice.of(&[Some(&http), Some(&http), None]);
    let request = Request { domain: "api", descriptors, http, cost: dice.of(&[1, 1, 1, 2, 50]) };
    ask(&request).await;
}

/// What denied: rule, limit, units, what is left, when to retry, when it is reset, and whether this process decided.
type Denied = (Option<Box<str>>, Option<Box<str>>, Option<u64>, Option<u64>, Option<u64>, bool, Option<u64>, bool);

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

fn decided(outcome: &Outcome) -> Vec<Denied> {
    let denials = outcome.judgements().filter(|one| one.denies());
    let mut all: Vec<Denied> = denials
        .map(|one| {
            let decision = one.answer.decision();
            (
                one.rule.map(|rule| rule.name.clone()),
                one.limit.filter(|_| one.rule.is_some()).map(|limit| limit.name.clone()),
                decision.map(|decision| decision.limit()),
                decision.map(|decision| decision.remaining()),
                one.answer.retry_after().map(nanos),
                one.answer.retry() == Some(Retry::Never),
                decision.map(|decision| nanos(decision.reset_after())),
                one.local,
            )
        })
        .collect();
    all.sort();
    all
}

fn explained(explained: &Explained) -> Vec<Denied> {
    let all = explained.denied_by.iter().map(|one| {
        (
            one.rule.clone(),
            one.policy.clone(),
            one.limit,
            one.remaining,
            one.retry_after_ns,
            one.never,
            one.reset_after_ns,
            one.local,
        )
    });
    let mut all: Vec<Denied> = all.collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_thousand_denials_are_explained_as_they_were_decided() {
    let (bench, mut dice) = (Bench::new(EVERY_FEATURE, 1 << 20), Dice(7));
    let (mut denials, mut kinds, mut rules) = (0, BTreeSet::new(), BTreeSet::new());
    let (mut local, mut never) = (0, 0);
    while denials < 1_000 {
        random(&mut dice, async |request| {
            let outcome = bench.engine.check_or_deny(request).await.unwrap();
            let Some(denial) = outcome.denial() else { return assert_eq!(outcome.decision_id(), None) };
            let told = bench.explain(&outcome);
            denials += 1;
            let expected = decided(&outcome);
            assert!(expected.len() <= 8 && !expected.is_empty(), "{expected:?}");
            assert_eq!(explained(&told), expected, "{told:?}");
            assert_eq!((told.denial, &*told.domain), (denial, "api"));
            assert_eq!(*told.decision, *outcome.decision_id().unwrap().to_string());
            assert_eq!(told.at_ns, bench.clock.now().as_nanos());
            assert_eq!(&*told.policy_hash, bench.engine.policy().hash());
            assert_eq!(Some(&*told.node), bench.engine.node_name());
            for one in &told.denied_by {
                assert_eq!(one.used, one.limit.map(|limit| limit - one.remaining.unwrap()), "{one:?}");
                assert!(one.key.iter().all(|part| !part.hidden || !part.part.starts_with("entry")), "{one:?}");
                local += usize::from(one.local);
                never += usize::from(one.never);
                rules.insert(one.rule.clone());
            }
            kinds.insert(denial);
        })
        .await;
        bench.clock.advance(Duration::from_millis(400));
    }
    let all = [Denial::StoreFailure, Denial::CostFailed, Denial::OverLimit, Denial::Penalty, Denial::Blocked];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
    assert!(local > 0 && never > 0, "{local} {never}");
    // All but those that only watch, and those that a denial by another rule comes before.
    assert!(rules.len() >= 13 && rules.contains(&None), "{rules:?}");
}

#[tokio::test]
async fn a_key_is_shown_by_its_parts_and_secrets_are_hidden() {
    let bench = Bench::new(EVERY_FEATURE, 1 << 20);
    let all = entries(&[("by", "session")]);
    let descriptors = [Descriptor { entries: &all, ..Descriptor::default() }];
    let headers = [("x-user", "ann"), ("cookie", "id=secret")];
    let http = Http { query: "q=\u{1b}", headers: &headers, ..Http::default() };
    let request = Request { domain: "api", descriptors: &descriptors, http: Some(&http), cost: 1 };
    let mut outcome = bench.engine.check(&request).await.unwrap();
    while outcome.is_allowed() {
        outcome = bench.engine.check(&request).await.unwrap();
    }
    let shown = |outcome: &Outcome| {
        let told = bench.explain(outcome);
        let parts = told.denied_by[0].key.iter().map(|part| format!("{} {} {}", part.part, part.hidden, part.value));
        parts.collect::<Vec<_>>()
    };
    let key = shown(&outcome);
    assert_eq!(key.len(), 3);
    assert_eq!(key[0], "header:x-user true 55dc69eaff18de17");
    assert!(key[1].starts_with("cookie:id true ") && !key[1].contains("secret"), "{key:?}");
    // A rule that makes its keys of other parts cannot tell which of these may be secret.
    bench.install(
        &EVERY_FEATURE.replace("[{header: X-User}, {cookie: id}, {query: q}]", "[{entry: a}, {entry: b}, host]"),
    );
    let key = shown(&outcome);
    assert!(key.len() == 1 && key[0].starts_with("key true "), "{key:?}");
}

#[tokio::test]
async fn denials_of_a_key_in_the_same_second_share_an_entry() {
    let bench = Bench::new("domains: {api: {rules: [{name: r, key: {entry: user}, limit: 1/minute}]}}", 1 << 20);
    for user in ["ann", "bob"] {
        assert_eq!(bench.one(&[("user", user)]).await.decision_id(), None);
    }
    let first = bench.one(&[("user", "ann")]).await;
    bench.clock.advance(Duration::from_millis(500));
    let again = bench.one(&[("user", "ann")]).await;
    assert_eq!(first.decision_id(), again.decision_id());
    let told = bench.explain(&first);
    assert_eq!((told.denials, told.denied_by[0].retry_after_ns), (2, Some(59_500_000_000)), "the numbers of the last");
    assert_eq!(told.at_ns, bench.clock.now().as_nanos());
    assert_ne!(bench.one(&[("user", "bob")]).await.decision_id(), first.decision_id());
    bench.clock.advance(Duration::from_millis(500));
    assert_ne!(bench.one(&[("user", "ann")]).await.decision_id(), first.decision_id());
}

#[tokio::test]
async fn what_cannot_be_explained_says_why() {
    let rule = "domains: {api: {rules: [{name: r, key: {entry: user}, limit: 1/minute}]}}";
    let (bench, other) = (Bench::new(rule, 1), Bench::new(rule, 1 << 20));
    let denied = async |bench: &Bench, user: &str| {
        bench.one(&[("user", user)]).await;
        bench.one(&[("user", user)]).await
    };
    let first = denied(&bench, "ann").await;
    bench.explain(&first);
    let foreign = denied(&other, "ann").await.decision_id().unwrap();
    assert_eq!(bench.engine.explain(&foreign), Err(Unexplained::Foreign { node: foreign.node() }));
    assert!(other.engine.node_name().unwrap().starts_with(&foreign.node()));
    let forged = format!("{}-00000000000000000001", first.decision_id().unwrap().node());
    assert_eq!(bench.engine.explain(&forged.parse().unwrap()), Err(Unexplained::Unknown));
    for number in 0..2_000 {
        denied(&bench, &format!("user {number}")).await;
    }
    assert_eq!(bench.engine.explain(&first.decision_id().unwrap()), Err(Unexplained::Expired));
    let off = Bench::new(rule, 0);
    assert_eq!(denied(&off, "ann").await.decision_id(), None);
    assert_eq!(off.engine.explain(&foreign), Err(Unexplained::Off));
}

#[tokio::test]
async fn to_explain_a_request_charges_nothing() {
    let (bench, mut dice) = (Bench::new(EVERY_FEATURE, 1 << 20), Dice(9));
    let mut denials = 0;
    for _ in 0..500 {
        random(&mut dice, async |request| {
            let counts = |bench: &Bench| bench.engine.rules().into_iter().map(|rule| rule.counts).collect::<Vec<_>>();
            let before = counts(&bench);
            let told = bench.engine.explain_request(request).await.unwrap().unwrap();
            let again = bench.engine.explain_request(request).await.unwrap().unwrap();
            assert_eq!(format!("{told:?}"), format!("{again:?}"));
            assert_eq!(counts(&bench), before);
            let outcome = bench.engine.check_or_deny(request).await.unwrap();
            assert_eq!(told.allowed, outcome.is_allowed(), "{told:?} {outcome:?}");
            denials += usize::from(!told.allowed);
            let decides = told.rules.iter().filter(|rule| matches!(rule.outcome, RuleMatch::Decides { .. }));
            let judged: BTreeSet<_> =
                outcome.judgements().map(|one| (one.descriptor, one.rule.map(|rule| rule.name.clone()))).collect();
            assert_eq!(decides.map(|rule| (rule.descriptor, rule.rule.clone())).collect::<BTreeSet<_>>(), judged);
            // What was asked says the same now, but for penalties that this denial imposed.
            let limits = told.rules.iter().filter_map(|rule| match &rule.outcome {
                RuleMatch::Decides { limits, .. } => Some(limits),
                _ => None,
            });
            for (limit, one) in limits.flatten().zip(outcome.judgements()) {
                let same = limit.verdict == one.answer.verdict();
                let was_not_asked = one.answer == Answer::NotAsked;
                let is_penalised = matches!(one.answer, Answer::Penalised(_)) && limit.verdict == "over_limit";
                assert!(same || was_not_asked || is_penalised, "{limit:?} {one:?}");
            }
        })
        .await;
        bench.clock.advance(Duration::from_millis(400));
    }
    assert!(denials > 100, "{denials}");
}

#[tokio::test]
async fn rules_that_nearly_match_name_the_condition() {
    let bench = Bench::new(
        "
domains:
  api:
    rules:
    - {name: gold, match: {entries: {plan: gold, team: red}}, limit: 4/minute}
    - {name: free, match: {entries: {plan: free}}, limit: 4/minute, mode: 'off'}
    - {name: user, match: {entries: {plan: free}}, key: {entry: user}, limit: 4/minute}
    - {name: base, match: {entries: {plan: free}}, limit: 4/minute}
    - {name: over, match: {entries: {plan: free}}, limit: 4/minute, replaces: [base]}
",
        0,
    );
    let all = entries(&[("plan", "free"), ("team", "red")]);
    let descriptors = [Descriptor { entries: &all, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    let told = bench.engine.explain_request(&request).await.unwrap().unwrap();
    let brief = |outcome: &RuleMatch| match outcome {
        RuleMatch::Decides { limits, .. } => format!("decides: {}", limits[0].verdict),
        RuleMatch::Skipped { reason } => format!("skipped: {reason}"),
        RuleMatch::No { conditions_met, failed } => {
            format!("{conditions_met} met, {}: {} {:?}", failed.field, failed.expected, failed.found)
        }
        other => panic!("{other:?}"),
    };
    let rules: Vec<_> =
        told.rules.iter().map(|rule| format!("{} {}", rule.rule.as_deref().unwrap(), brief(&rule.outcome))).collect();
    assert_eq!(
        rules,
        [
            "over decides: allowed",
            "free skipped: the rule is off",
            "user skipped: the request lacks a part of the key",
            "base skipped: another rule replaces its limits",
            "gold 1 met, match.entries.plan: \"gold\" Some(\"\\\"free\\\"\")",
        ]
    );
    let unknown = Request { domain: "web", ..request };
    assert!(bench.engine.explain_request(&unknown).await.unwrap().is_none());
}

#[tokio::test]
async fn of_many_rules_the_nearest_are_shown() {
    let rule = |number: usize| {
        let team = if number.is_multiple_of(10) { ", team: red" } else { "" };
        format!("    - {{name: r{number}, match: {{entries: {{plan: p{number}{team}}}}}, limit: 4/minute}}\n")
    };
    let rules: String = (0..3_000).map(rule).collect();
    let bench = Bench::new(&format!("domains:\n  api:\n    rules:\n{rules}"), 0);
    let all = entries(&[("plan", "p7"), ("team", "red")]);
    let descriptors = [Descriptor { entries: &all, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    let told = bench.engine.explain_request(&request).await.unwrap().unwrap();
    assert_eq!((told.rules.len(), told.left_out), (101, 2_899));
    let nearest = told.rules[1..].iter().map(|rule| rule.rule.as_deref().unwrap());
    assert_eq!(nearest.collect::<Vec<_>>(), (0..100).map(|number| format!("r{}", number * 10)).collect::<Vec<_>>());
}
