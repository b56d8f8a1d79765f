//! The common case: one rule with one limit in memory judges a request alone. There is nothing to be taken together with it,
//! nothing to be given back, and no list to be made.
//!
//! Whatever else may be so is left to `plan.rs` and `settle/`, which answer the same.

use std::cell::Cell;
use std::sync::Arc;

use tidegate_core::{Charge, Limit, MemoryStore, Phase};
use tidegate_policy::{
    Action, Count, DomainId, FoundRules, KeyMade, Local, Mode, OnStoreFailure, Question, Request, Rule, RuleId,
    RuleLimit,
};

use crate::active::Active;
use crate::count::{amounts, key_counts};
use crate::explain::{DecisionId, Denied};
use crate::failure::{Failed, guarded};
use crate::keys::key_of;
use crate::outcome::{Answer, Judged};
use crate::plan::question;
use crate::settle::follows_up;
use crate::store::Backend;

/// The store of a rule if it can judge a request by that alone: it has one limit, in memory, and does nothing but count.
pub(crate) fn store_for<'a>(rule: &Rule, stores: &'a [Backend]) -> Option<&'a Arc<MemoryStore>> {
    let ([limit], Action::Limit) = (&*rule.limits, rule.action) else { return None };
    let store = stores.get(limit.store)?.states()?;
    let does_more = rule.quota || follows_up(rule) || !rule.metric_entries.is_empty();
    // An expression that fails is counted, so none may be evaluated here and in `plan.rs` again.
    (!does_more && !rule.counts_by_expression()).then_some(store)
}

/// How far a request came here.
pub(crate) enum Way {
    /// One limit judged it. With the id of its denial.
    Judged(Judged, Option<DecisionId>),
    /// There is more to be asked: nothing was taken. With the rules of its first descriptor, if they were looked up.
    Onward(Option<FoundRules>),
}

/// Takes what a request costs of the one rule that applies to it, and counts what became of it. `local` is the memory that
/// decides where a store fails.
pub(crate) fn judge(active: &Active, local: &MemoryStore, domain: DomainId, request: &Request<'_>) -> Way {
    let [descriptor] = request.descriptors else { return Way::Onward(None) };
    let (None, None, Ok(question)) = (descriptor.ask, descriptor.limit, question(request, descriptor)) else {
        return Way::Onward(None);
    };
    let mut found = FoundRules::new();
    active.policy.find(domain, &question, &mut found);
    let [rule] = found[..] else { return Way::Onward(Some(found)) };
    match take(active, local, rule, &question) {
        Some((judged, decision)) => Way::Judged(judged, decision),
        None => Way::Onward(Some(found)),
    }
}

/// Takes what a request costs of a rule, and counts it. Nothing if there is more to be asked.
fn take(
    active: &Active,
    local: &MemoryStore,
    id: RuleId,
    question: &Question<'_>,
) -> Option<(Judged, Option<DecisionId>)> {
    let (rule, record, store) = (active.rule(id)?, active.record(id)?, active.sole_store(id)?);
    let (Count::Now(units @ 1..), Mode::Enforce, [limit]) =
        (rule.count(question), record.mode(rule.mode), &*rule.limits)
    else {
        return None;
    };
    if active.may_be_blocked(rule) {
        return None;
    }
    let (judged, decision) = with_room(|bytes| {
        let KeyMade::Whole = rule.key(question, bytes) else { return None };
        let charge = Charge::take(key_of(bytes).ok()?, &limit.limit, units).within(&limit.namespace);
        let mut judged = unjudged(id);
        match guarded(|| store.decide_in(charge.namespace, charge.key, charge.limit, charge.op)) {
            Ok(decision) => judged.decided(&charge, &decision),
            Err(_) => without_store(active, local, limit, &charge, &mut judged),
        }
        active.note_key(id, bytes, &key_counts(std::slice::from_ref(&judged), active.shadow));
        let denies = !judged.answer.is_allowed() && !active.shadow;
        let decision = if denies { note_denial(active, rule, &judged, bytes, units) } else { None };
        Some((judged, decision))
    })?;
    let denied = judged.answer.denial().is_some();
    record.all.add_all(&amounts(units, std::slice::from_ref(&judged), denied, active.shadow));
    Some((judged, decision))
}

/// Keeps a denial, so that it can be explained.
#[cold]
fn note_denial(active: &Active, rule: &Rule, judged: &Judged, key: &[u8], cost: u64) -> Option<DecisionId> {
    let (denial, limit) = (judged.answer.denial()?, rule.limits.first()?);
    let denied = Denied { judged, key, cost, store: limit.store };
    active.denials.as_ref()?.note(active, &rule.domain, denial, std::iter::once(denied))
}

/// What is known of the only limit of a rule before its store is asked.
fn unjudged(id: RuleId) -> Judged {
    let (own, taken, phase) = (None, None, Phase::default());
    let (answer, mode, local) = (Answer::NotAsked, Mode::Enforce, false);
    Judged { descriptor: 0, rule: Some(id), limit: 0, own, answer, taken, phase, veto: true, mode, local }
}

/// Does what the rule chose for a store that does not answer.
#[cold]
fn without_store(active: &Active, local: &MemoryStore, limit: &RuleLimit, charge: &Charge<'_>, judged: &mut Judged) {
    let Some((id, rule)) = judged.rule.and_then(|id| Some((id, active.rule(id)?))) else { return };
    active.count_failure(id, Failed::Unanswered);
    judged.answer = Answer::Failed { allowed: true };
    match active.on_store_failure(rule, limit.store) {
        OnStoreFailure::Allow => {}
        OnStoreFailure::Deny => judged.answer = Answer::Failed { allowed: false },
        OnStoreFailure::Local(choice) => {
            let fallback = limit_in_memory(choice, &limit.limit);
            let charge = Charge { limit: &fallback, ..*charge };
            let decided = guarded(|| local.decide_in(charge.namespace, charge.key, charge.limit, charge.op));
            if let Ok(decision) = decided {
                judged.decided(&charge, &decision);
                judged.local = true;
            }
        }
    }
}

/// The limit that decides in the memory of this process. What was in memory and failed there has no last state to go on from.
pub(crate) fn limit_in_memory(choice: Local, limit: &Limit) -> Limit {
    match choice {
        Local::Limit(own) => own,
        _ => *limit,
    }
}

/// Does something with an empty list. Each thread keeps one, so that it mostly has room already: that of the longest key at
/// most.
fn with_room<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    thread_local! {
        static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    // At the end of a thread there is none.
    let mut bytes = ROOM.try_with(Cell::take).unwrap_or_default();
    bytes.clear();
    let done = work(&mut bytes);
    let _ = ROOM.try_with(|room| room.set(bytes));
    done
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use tidegate_core::{FakeClock, Time};
    use tidegate_policy::{Ask, Descriptor, Entry, Headers, LoadOptions, Mode, Policy, Request, Shown, load_text};

    use crate::http_headers::Header;
    use crate::outcome::{Answer, Denial, Judgements, Outcome};
    use crate::{Counts, Engine, Options, at_once, http_headers};

    const START: Time = Time::from_nanos(1_000_000_000_000);

    fn engine(rules: &str, clock: &FakeClock) -> Engine {
        engine_in(false, rules, clock)
    }

    /// One that denies nothing at all if it is in shadow.
    fn engine_in(shadow: bool, rules: &str, clock: &FakeClock) -> Engine {
        let loaded =
            load_text("test.yaml", &format!("domains: {{api: {{rules: [{rules}]}}}}"), &LoadOptions::default());
        let policy = loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
        Engine::with_policy(Options { clock: clock.clone().into(), shadow, ..Options::default() }, policy).unwrap()
    }

    fn check(engine: &Engine, entries: &[Entry<'_>], cost: u64, ask: Option<Ask>) -> Outcome {
        let descriptors = [Descriptor { entries, ask, limit: None }];
        let request = Request { domain: "api", descriptors: &descriptors, http: None, cost };
        at_once(engine.check(&request)).unwrap()
    }

    fn is_sole(outcome: &Outcome) -> bool {
        matches!(outcome.judged, Judgements::One(_))
    }

    /// What one limit said.
    #[derive(Debug, PartialEq)]
    struct Said {
        descriptor: usize,
        rule: Option<String>,
        limit: Option<String>,
        shown: Option<Shown>,
        answer: Answer,
        veto: bool,
        mode: Mode,
    }

    /// All that can be seen of an outcome and of what was counted.
    #[derive(Debug, PartialEq)]
    struct Seen {
        denial: Option<Denial>,
        judged: Vec<Said>,
        headers: [Vec<Header>; 2],
        counts: Vec<Counts>,
        expression_errors: u64,
    }

    fn seen(engine: &Engine, outcome: &Outcome) -> Seen {
        let judged = outcome.judgements().map(|one| Said {
            descriptor: one.descriptor,
            rule: one.rule.map(|rule| rule.name.to_string()),
            limit: one.limit.map(|limit| limit.name.to_string()),
            shown: one.shown,
            answer: one.answer,
            veto: one.veto,
            mode: one.mode,
        });
        Seen {
            denial: outcome.denial(),
            judged: judged.collect(),
            headers: [None, Some(Headers::Standard)].map(|unsaid| http_headers::headers(outcome, unsaid, START)),
            counts: engine.rules().iter().map(|rule| rule.counts).collect(),
            expression_errors: engine.policy().expression_errors(),
        }
    }

    #[test]
    fn who_is_judged_alone_is_judged_as_among_others() {
        let a = |value| [Entry { key: "a", value }];
        let (one, two, long) = (a("1"), a("2"), "x".repeat(5_000));
        let long = a(&long);
        // Whether any request under these rules is judged by one alone.
        for (rules, sometimes) in [
            ("{name: r, limit: 3/minute}", true),
            ("{name: r, key: [{entry: a}], limit: 3/minute}", true),
            ("{name: r, key: [{entry: a}], limit: {algorithm: sliding_log, rate: 3/minute}}", true),
            ("{name: r, key: [{entry: a}], limit: {algorithm: fixed_window, rate: 3/minute}}", true),
            ("{name: r, match: {entries: {a: \"1\"}}, limit: 3/minute}, {name: s, limit: 9/minute}", true),
            ("{name: r, match: {when: 'int(entries.a) < 2'}, limit: 3/minute}", true),
            (
                "{name: r, match: {entries: {a: \"1\"}}, limit: 3/minute, replaces: [s]}, {name: s, limit: 9/minute}",
                true,
            ),
            ("{name: r, limit: 3/minute}, {name: s, match: {when: 'int(entries.b) < 2'}, limit: 9/minute}", true),
            ("{name: r, limit: 3/minute, hash_tag: t}", true),
            ("{name: 'r \"1\"', limit: 3/minute, response: {headers: standard}}", true),
            ("{name: r, limit: 3/minute, response: {headers: legacy}}", true),
            ("{name: r, limit: 3/minute, response: {hidden: true}}", true),
            ("{name: r, limit: 3/minute, mode: shadow}", false),
            ("{name: r, limit: 3/minute, mode: \"off\"}", false),
            ("{name: r, limit: 3/minute, quota: true}", false),
            ("{name: r, limit: 3/minute, count_denied: true}", false),
            ("{name: r, limit: 3/minute, penalty: 10s}", false),
            ("{name: r, limit: 3/minute, metrics: {by_entries: [a]}}", false),
            ("{name: r, limit: 3/minute, cost: 'int(entries.a)'}", false),
            ("{name: r, limit: 3/minute, count: 'int(entries.a) > 1'}", false),
            ("{name: r, limit: 3/minute, count: 'response.status >= 500'}", false),
            ("{name: r, key: [{expression: 'entries.a'}], limit: 3/minute}", false),
            ("{name: r, limits: [{name: x, rate: 3/minute}, {name: y, rate: 5/hour}]}", false),
            ("{name: r, action: block}", false),
            ("{name: r, action: unlimited}", false),
            ("{name: r, limit: 3/minute}, {name: s, limit: 9/minute}", false),
        ] {
            for shadow in [false, true] {
                let clock = FakeClock::at(START);
                let (alone, among) = (engine_in(shadow, rules, &clock), engine_in(shadow, rules, &clock));
                let mut soles = 0;
                for step in 0..200_u64 {
                    let entries: &[Entry<'_>] = [&one[..], &two, &[], &one, &long][(step * 7 % 5) as usize];
                    let cost = [1, 1, 2, 1, 0, 4, 1][(step % 7) as usize];
                    // What says how much it takes goes the long way.
                    let expected = check(&among, entries, cost, Some(Ask::Take(cost)));
                    assert!(!is_sole(&expected));
                    let outcome = check(&alone, entries, cost, None);
                    soles += usize::from(is_sole(&outcome));
                    assert_eq!(seen(&alone, &outcome), seen(&among, &expected), "{rules}, step {step}");
                    clock.advance(Duration::from_secs(step % 11));
                }
                assert_eq!(soles > 0, sometimes, "{rules}");
            }
        }
    }

    #[test]
    fn what_people_do_to_rules_and_keys_is_heeded_at_once() {
        let clock = FakeClock::at(START);
        let engine = engine("{name: r, key: [{entry: a}], limit: 3/minute}", &clock);
        let entries = [Entry { key: "a", value: "1" }];
        let sole = || is_sole(&check(&engine, &entries, 1, None));
        assert!(sole());
        engine.set_mode("api", "r", Some(Mode::Shadow)).unwrap();
        assert!(!sole());
        engine.set_mode("api", "r", None).unwrap();
        assert!(sole());
        let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
        let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
        at_once(engine.block(&request, Duration::from_secs(5))).unwrap();
        assert_eq!(check(&engine, &entries, 1, None).denial(), Some(Denial::Penalty));
        engine.install(Policy::default()).unwrap();
        assert!(!check(&engine, &entries, 1, None).is_known_domain());
    }

    /// Asks once more when its thread ends.
    struct Late(Arc<Engine>, mpsc::Sender<(Option<Denial>, usize)>);

    impl Drop for Late {
        fn drop(&mut self) {
            let outcome = check(&self.0, &[], 1, None);
            let headers = http_headers::headers(&outcome, Some(Headers::Standard), START);
            self.1.send((outcome.denial(), headers.len())).unwrap();
        }
    }

    #[test]
    fn who_asks_at_the_end_of_a_thread_is_judged_as_ever() {
        thread_local! {
            static LATE: RefCell<Vec<Late>> = const { RefCell::new(Vec::new()) };
        }
        let (sender, answers) = mpsc::channel();
        let engine = Arc::new(engine("{name: r, limit: 2/minute}", &FakeClock::at(START)));
        let of_thread = Arc::clone(&engine);
        thread::spawn(move || {
            // Kept before anything else of this thread is, so that it ends after all of that.
            LATE.set((0..2).map(|_| Late(Arc::clone(&of_thread), sender.clone())).collect());
            let outcome = check(&of_thread, &[], 1, None);
            assert_eq!(http_headers::headers(&outcome, Some(Headers::Standard), START).len(), 2);
        })
        .join()
        .unwrap();
        assert_eq!(answers.iter().collect::<Vec<_>>(), [(None, 2), (Some(Denial::OverLimit), 3)]);
        assert_eq!(engine.undecided(), 0);
    }
}
