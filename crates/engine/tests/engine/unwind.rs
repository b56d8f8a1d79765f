//! A panic in the middle of a decision: the request is answered as the rule says for a store that does not answer, and
//! the next one as ever. The fake clock panics when it is told to.

use std::time::Duration;

use tidegate_core::{Decision, FakeClock, Limit, Op, Retry, Time};
use tidegate_engine::bounds::FAILURE_RETRY;
use tidegate_engine::{Answer, Batch, Caller, Denial, Engine, Options, Outcome};
use tidegate_policy::{Descriptor, LoadOptions, Request, Response, load_text};

use crate::bench::at_once;

/// An engine with one rule, in the year 2001.
fn engine(rule: &str) -> (Engine, FakeClock) {
    engine_beside(None, rule)
}

/// The same beside the store of this URL.
fn engine_beside(store: Option<Box<str>>, rule: &str) -> (Engine, FakeClock) {
    let clock = FakeClock::at(Time::from_nanos(1_000_000_000_000_000_000));
    let engine = Engine::new(Options { clock: clock.clone().into(), store, ..Options::default() }).unwrap();
    let text = format!("domains: {{api: {{rules: [{rule}]}}}}");
    let loaded = load_text("test.yaml", &text, &LoadOptions::default());
    engine.install(loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))).unwrap();
    (engine, clock)
}

fn request() -> Request<'static> {
    const ONE: &[Descriptor<'_>] = &[Descriptor { entries: &[], ask: None, limit: None }];
    Request { domain: "api", descriptors: ONE, http: None, cost: 1 }
}

fn check(engine: &Engine) -> Outcome {
    at_once(engine.check(&request())).unwrap()
}

fn counted_as_failed(engine: &Engine) -> u64 {
    engine.rules()[0].counts.failed
}

#[test]
fn a_panic_in_the_store_becomes_the_rules_own_choice() {
    for (choice, denial) in [("allow", None), ("deny", Some(Denial::StoreFailure)), ("{local: 5/minute}", None)] {
        let (engine, clock) = engine(&format!("{{name: all, limit: 2/minute, on_store_failure: {choice}}}"));
        clock.break_after(0);
        let outcome = check(&engine);
        assert_eq!(outcome.denial(), denial, "{choice}");
        let answer = outcome.judgements().next().unwrap().answer;
        match choice {
            "{local: 5/minute}" => assert_eq!(answer.decision().map(Decision::limit), Some(5)),
            _ => assert!(matches!(answer, Answer::Failed { allowed } if allowed == denial.is_none()), "{answer:?}"),
        }
        assert_eq!((counted_as_failed(&engine), engine.undecided()), (1, 0), "{choice}");
        // The next one finds the store as it was.
        let answer = check(&engine).judgements().next().unwrap().answer;
        assert_eq!(answer.decision().map(Decision::limit), Some(2), "{choice}");
        assert_eq!(counted_as_failed(&engine), 1, "{choice}");
    }
}

#[test]
fn a_panic_under_a_lock_leaves_the_key_to_others() {
    let (engine, clock) =
        engine("{name: all, limits: [2/minute, {name: day, rate: 100/day}], on_store_failure: allow}");
    assert!(check(&engine).is_allowed());
    let start = clock.now();
    clock.set(Time::from_nanos(960_000_000_000_000_000));
    // Read before the transaction, and again with both gates and the first state held, which is a year ahead.
    clock.break_after(1);
    assert!(check(&engine).is_allowed());
    assert_eq!(counted_as_failed(&engine), 1, "one request, whatever the limits of its rule are");
    clock.set(start);
    assert_eq!([check(&engine), check(&engine)].map(|outcome| outcome.is_allowed()), [true, false]);
}

#[test]
fn a_panic_while_a_penalty_is_looked_up_becomes_the_rules_own_choice_too() {
    for (choice, denial) in [("allow", None), ("deny", Some(Denial::StoreFailure))] {
        let (engine, clock) =
            engine(&format!("{{name: all, limit: 1/minute, penalty: 1h, on_store_failure: {choice}}}"));
        clock.break_after(0);
        let outcome = check(&engine);
        assert_eq!((outcome.denial(), counted_as_failed(&engine)), (denial, 1), "{choice}");
        assert_eq!(outcome.retry(), denial.map(|_| Retry::Unknown(FAILURE_RETRY)), "{choice}");
        clock.advance(Duration::from_secs(120));
        let denials = [check(&engine), check(&engine)].map(|outcome| outcome.denial());
        assert_eq!(denials, [None, Some(Denial::Penalty)], "{choice}");
        assert_eq!(counted_as_failed(&engine), 1, "{choice}");
    }
}

#[test]
fn who_is_denied_for_want_of_a_store_is_not_penalised() {
    let (engine, clock) = engine("{name: all, limit: 2/minute, penalty: 1h, on_store_failure: deny}");
    // The penalty is looked up, and then the clock is read for the charge.
    clock.break_after(1);
    let denials = [check(&engine), check(&engine)].map(|outcome| outcome.denial());
    assert_eq!(denials, [Some(Denial::StoreFailure), None]);
    assert_eq!(counted_as_failed(&engine), 1);
}

#[test]
fn a_rule_counts_a_request_that_failed_once() {
    let (engine, clock) = engine(
        "{name: all, limits: [2/minute, {name: day, rate: 100/day}], penalty: 1h, count: response.status == 503}",
    );
    let two = Request { descriptors: &[Descriptor::default(); 2], ..request() };
    clock.break_after(0);
    at_once(engine.check(&two)).unwrap();
    assert_eq!(counted_as_failed(&engine), 1, "the look for a penalty");
    clock.break_after(2);
    at_once(engine.check(&two)).unwrap();
    assert_eq!(counted_as_failed(&engine), 2, "the charges");
    let failed = Response { status: 503, ..Response::default() };
    clock.break_after(2);
    assert_eq!(at_once(engine.report(&two, &failed)), Ok(3));
    assert_eq!(counted_as_failed(&engine), 3, "the response");
}

#[test]
fn a_panic_outside_of_a_store_is_answered_too() {
    // It is never connected to: the clock is read before that.
    let store = Some("redis://127.0.0.1:1".into());
    let (engine, clock) = engine_beside(store, "{name: all, limit: 5/minute, count: response.status == 503}");
    clock.break_after(0);
    assert!(check(&engine).is_allowed());
    clock.break_after(0);
    let failed = Response { status: 503, ..Response::default() };
    assert_eq!(at_once(engine.report(&request(), &failed)), Ok(0));
    assert_eq!((engine.undecided(), counted_as_failed(&engine)), (2, 0));
}

#[test]
fn a_panic_while_a_response_is_counted_is_counted_too() {
    let (engine, clock) = engine("{name: all, limit: 5/minute, count: response.status == 503}");
    let failed = Response { status: 503, ..Response::default() };
    let report = || at_once(engine.report(&request(), &failed)).unwrap();
    clock.break_after(0);
    assert_eq!((report(), counted_as_failed(&engine)), (0, 1));
    assert_eq!((report(), counted_as_failed(&engine)), (1, 1));
}

#[test]
fn a_panic_under_a_limit_of_the_callers_own_lets_pass_and_is_counted() {
    let (engine, clock) = engine("{name: all, limit: 1/minute}");
    let limit: Limit = "3/minute".parse().unwrap();
    for key in [&b"ann"[..], &[b'a'; 100]] {
        let take = || at_once(engine.decide(key, &limit, Op::Take(1))).unwrap();
        assert_eq!(take().remaining(), 2);
        clock.break_after(0);
        let answer = take();
        assert!(answer.is_allowed() && answer.receipt().is_none(), "{answer:?}");
        assert_eq!(take().remaining(), 1, "the one before took nothing");
    }
    clock.break_after(0);
    let both = [(&b"a"[..], limit, Op::Take(1)), (&b"b"[..], limit, Op::Take(1))];
    let remaining = || -> Vec<u64> {
        at_once(engine.decide_all(&both)).unwrap().iter().map(|decision| decision.remaining()).collect()
    };
    assert_eq!(remaining(), [3, 3], "nothing was taken");
    assert_eq!(remaining(), [2, 2]);
    assert_eq!(engine.undecided(), 4);
}

#[test]
fn a_panic_in_a_batch_is_answered_for_the_key_at_fault_alone() {
    let limit: Limit = "3/minute".parse().unwrap();
    let mut batch = Batch::default();
    ["a", "b", "c", "d"].iter().for_each(|key| batch.push(key.as_bytes()).unwrap());
    for (reads, failed) in [(0, 0), (1, 1), (2, 1), (4, 1)] {
        let (engine, clock) = engine("{name: all, limit: 1/minute}");
        let decide = || {
            let mut decisions = Vec::new();
            engine.decide_batch(&Caller::default(), &batch, &limit, Op::Take(1), &mut decisions);
            decisions
        };
        assert_eq!(decide().len(), 4);
        let start = clock.now();
        // All four states are a year ahead now, so that the clock is read for the batch and for each of them.
        clock.set(Time::from_nanos(960_000_000_000_000_000));
        clock.break_after(reads);
        let decisions = decide();
        assert_eq!((decisions.len(), engine.undecided()), (4, failed), "the read after {reads}");
        let untaken = decisions.iter().filter(|decision| decision.is_allowed()).count() as u64;
        assert_eq!(untaken, failed, "others are denied by the debt they have: {decisions:?}");
        clock.set(start);
        assert_eq!(decide().len(), 4);
    }
}
