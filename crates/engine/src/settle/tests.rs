//! Outcomes and refunds when stores do not answer.

use futures_util::FutureExt;
use tidegate_core::{FakeClock, MemoryStore, Retry, Time};
use tidegate_policy::{Descriptor, LoadOptions, Request, load_text};

use tidegate_stores::Memory;

use super::*;
use crate::at_once;
use crate::doubles::{overloaded, silent, unreachable};
use crate::plan::LongKeys;
use crate::store::Backend;

/// A store in memory, whose clock stands still.
fn memory() -> MemoryStore {
    MemoryStore::builder().keys(8).clock(FakeClock::at(Time::from_nanos(1_000_000_000_000))).build().unwrap()
}

/// What a rule with this choice answers to a few requests while its store does not.
fn answers(choice: &str) -> Vec<Option<Denial>> {
    let rule = format!("{{name: all, limit: 2/minute, on_store_failure: {choice}}}");
    settled(&rule, 3).into_iter().map(|settled| settled.denial).collect()
}

/// What comes out of requests under rules whose store does not answer.
fn settled(rules: &str, requests: usize) -> Vec<Settled> {
    let text = format!("stores: {{near: {{}}}}\ndomains: {{api: {{rules: [{rules}]}}}}");
    let policy = load_text("test.yaml", &text, &LoadOptions::default()).policy.unwrap();
    let active = Active::for_tests(policy, vec![unreachable(), Backend::memory_of(Memory::new(memory()))]);
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    let domain = active.policy.domain("api").unwrap();
    let plan = Plan::of(&active, domain, &request, LongKeys::Refuse).unwrap();
    let local = memory();
    (0..requests).map(|_| at_once(settle(&active, &local, &plan, &Call::default())).unwrap()).collect()
}

/// What is left of the first limit after each.
fn left(all: &[Settled]) -> Vec<u64> {
    all.iter().map(|settled| settled.judged[0].answer.decision().unwrap().remaining()).collect()
}

#[test]
fn what_the_memory_of_this_process_gave_goes_back_there() {
    let five = "{name: five, limit: 9/minute, on_store_failure: {local: 5/minute}}";
    let one = "{name: one, limit: 9/minute, on_store_failure: {local: 1/minute}}";
    let all = settled(&format!("{five}, {one}"), 3);
    assert_eq!(left(&all), [4, 4, 4]);
    assert_eq!(all[2].denial, Some(Denial::OverLimit));
}

#[test]
fn what_goes_back_goes_back_once() {
    let limits = "limits: [{name: near, rate: 9/minute, store: near}, {name: far, rate: 9/minute}]";
    let all = settled(&format!("{{name: two, on_store_failure: {{local: 1/minute}}, {limits}}}"), 4);
    assert_eq!(left(&all), [8, 8, 8, 8]);
}

#[test]
fn without_its_store_too_a_rule_that_watches_takes_from_all_its_limits_or_from_none() {
    let limits = "limits: [{name: minute, rate: 5/minute}, {name: day, rate: 1/day}]";
    for mode in ["mode: shadow", "quota: true"] {
        let rule = format!("{{name: two, {mode}, {limits}}}");
        let open = "{name: open, quota: true, limit: 9/minute}";
        let all = settled(&format!("{rule}, {open}"), 3);
        assert_eq!(left(&all), [4, 4, 4], "{mode}");
        assert!(all.iter().all(|settled| settled.denial.is_none()), "{mode}");
    }
}

#[test]
fn a_shared_store_is_not_asked_for_what_memory_denies() {
    // The shared store is the first of the configuration, and its limit the first of the rule.
    let limits = "limits: [{name: far, rate: 9/minute}, {name: near, rate: 1/minute, store: near}]";
    let all = settled(&format!("{{name: two, {limits}}}"), 3);
    assert_eq!(left(&all[..1]), [8]);
    for denied in &all[1..] {
        assert_eq!(denied.denial, Some(Denial::OverLimit));
        assert!(matches!(denied.judged[0].answer, Answer::NotAsked), "{:?}", denied.judged);
    }
}

#[test]
fn denied_requests_count_where_they_were_decided() {
    let rule = "{name: strict, limit: 2/minute, count_denied: true}";
    let waits = settled(rule, 4).into_iter().map(|settled| settled.judged[0].answer.retry());
    let expected = [None, None, Some(30), Some(60)].map(|wait| wait.map(Duration::from_secs).map(Retry::After));
    assert_eq!(waits.collect::<Vec<_>>(), expected);
}

#[test]
fn a_store_that_does_not_answer_becomes_the_rules_own_choice() {
    assert_eq!(answers("allow"), [None; 3]);
    assert_eq!(answers("deny"), [Some(Denial::StoreFailure); 3]);
    assert_eq!(answers("{local: 1/minute}"), [None, Some(Denial::OverLimit), Some(Denial::OverLimit)]);
}

/// What a rule answers and counts as overload and as failures after three requests that this node is too busy to put to the
/// store.
fn overload(rule: &str) -> (Option<Denial>, u64, u64) {
    let text = format!("domains: {{api: {{rules: [{rule}]}}}}");
    let policy = load_text("test.yaml", &text, &LoadOptions::default()).policy.unwrap();
    let active = Active::for_tests(policy, vec![overloaded()]);
    let local = memory();
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    let mut denial = None;
    for _ in 0..3 {
        let plan = Plan::of(&active, active.policy.domain("api").unwrap(), &request, LongKeys::Refuse).unwrap();
        denial = at_once(settle(&active, &local, &plan, &Call::default())).unwrap().denial;
    }
    let counts = active.records()[0].all.counts();
    (denial, counts.overloaded, counts.failed)
}

#[test]
fn a_rule_counts_an_overload_once_for_each_request() {
    let two = "limits: [{name: minute, rate: 5/minute}, {name: day, rate: 9/day}]";
    assert_eq!(overload("{name: one, limit: 5/minute}"), (Some(Denial::Overloaded), 3, 0));
    assert_eq!(overload(&format!("{{name: two, {two}}}")), (Some(Denial::Overloaded), 3, 0));
    // A rule that chose an answer gives it, as in an outage, though the store did not fail.
    assert_eq!(overload(&format!("{{name: two, on_store_failure: allow, {two}}}")), (None, 3, 0));
    assert_eq!(overload(&format!("{{name: two, on_store_failure: deny, {two}}}")), (Some(Denial::StoreFailure), 3, 0));
}

#[test]
fn a_penalty_holds_in_this_process_while_its_store_does_not_answer() {
    let all = settled("{name: strict, limit: 1/minute, penalty: 10m}", 4);
    assert_eq!(all[0].denial, None);
    assert_eq!(all[1].denial, Some(Denial::Penalty));
    for settled in &all[1..] {
        assert_eq!(settled.denial, Some(Denial::Penalty));
        assert_eq!(settled.judged[0].answer.retry(), Some(Retry::After(Duration::from_secs(600))));
    }
}

#[test]
fn an_overload_counts_nothing_for_count_denied() {
    let text = "stores: {near: {}}\ndomains: {api: {rules: [
        {name: near, limit: {rate: 9/minute, store: near}, count_denied: true}, {name: far, limit: 9/minute}]}}";
    let policy = load_text("test.yaml", text, &LoadOptions::default()).policy.unwrap();
    let near = Memory::new(memory());
    let active = Active::for_tests(policy, vec![overloaded(), Backend::memory_of(near.clone())]);
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    let plan = Plan::of(&active, active.policy.domain("api").unwrap(), &request, LongKeys::Refuse).unwrap();
    let settled = at_once(settle(&active, &memory(), &plan, &Call::default())).unwrap();
    assert_eq!(settled.denial, Some(Denial::Overloaded));
    let charge = plan.charge(&active, &plan.planned[0], Op::Peek).unwrap().unwrap();
    assert_eq!(near.states().decide_in(charge.namespace, charge.key, charge.limit, Op::Peek).remaining(), 9);
}

#[test]
fn a_quota_that_blocks_denies_only_with_the_others() {
    let all = settled("{name: none, quota: true, action: block}, {name: paid, quota: true, limit: 1/minute}", 3);
    assert_eq!(
        all.iter().map(|one| one.denial).collect::<Vec<_>>(),
        [None, Some(Denial::Blocked), Some(Denial::Blocked)]
    );
}

/// What is left in memory while a request waits for another store and somebody else has taken a unit after this pause, and
/// what once nobody waits for it any more.
fn left_by_one_who_goes(near: &str, pause: Duration) -> [u64; 2] {
    let limits = format!("limits: [{{name: near, store: near, {near}}}, {{name: far, rate: 9/minute}}]");
    let text = format!("stores: {{near: {{}}}}\ndomains: {{api: {{rules: [{{name: two, {limits}}}]}}}}");
    let policy = load_text("test.yaml", &text, &LoadOptions::default()).policy.unwrap();
    let clock = FakeClock::at(Time::from_nanos(1_020_000_000_000));
    let near = Memory::new(MemoryStore::builder().keys(8).clock(clock.clone()).build().unwrap());
    let active = Active::for_tests(policy, vec![silent(), Backend::memory_of(near.clone())]);
    let local = memory();
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    let plan = Plan::of(&active, active.policy.domain("api").unwrap(), &request, LongKeys::Refuse).unwrap();
    let decide = |op| {
        let charge = plan.charge(&active, &plan.planned[0], op).unwrap().unwrap();
        near.states().decide_in(charge.namespace, charge.key, charge.limit, op).remaining()
    };
    let call = Call::default();
    let mut asking = Box::pin(settle(&active, &local, &plan, &call));
    assert!((&mut asking).now_or_never().is_none(), "the far store does not answer");
    clock.advance(pause);
    let waiting = decide(Op::Take(1));
    drop(asking);
    [waiting, decide(Op::Peek)]
}

#[test]
fn what_memory_gave_goes_back_if_nobody_waits_for_the_rest() {
    let window = "algorithm: fixed_window, rate: 9/minute";
    assert_eq!(left_by_one_who_goes("rate: 9/minute", Duration::ZERO), [7, 8]);
    assert_eq!(left_by_one_who_goes(window, Duration::ZERO), [7, 8]);
    assert_eq!(left_by_one_who_goes(window, Duration::from_secs(59)), [7, 8]);
    // The next window gave nothing to the request, so nothing goes back to it.
    assert_eq!(left_by_one_who_goes(window, Duration::from_secs(60)), [8, 8]);
}
