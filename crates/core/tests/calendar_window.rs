//! Calendar windows: the literal model on random histories, the invariants, and the caller that
//! reaches the worst case.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_core::{
    Algorithm, Calendar, CalendarPeriod, Decision, Limit, LimitError, Op, Receipt, State, Time, decide,
};
use tidegate_testkit::conformance::history::{Call, History, Steps};
use tidegate_testkit::conformance::model::calendar::Civil;
use tidegate_testkit::conformance::model::calendar_window::CalendarWindow;
use tidegate_testkit::conformance::model::{Answer, Model, Numbers, Verdict, most_in_trailing};

/// The pure function with its state, as one thing.
#[derive(Clone)]
struct Code {
    limit: Limit,
    state: State,
}

impl Code {
    fn new(limit: u64, calendar: Calendar) -> Code {
        let limit = Limit::calendar_window(limit, calendar).unwrap();
        Code { limit, state: State::fresh(&limit) }
    }

    fn decide(&mut self, now: u64, op: Op) -> Decision {
        decide(&self.limit, &mut self.state, Time::from_nanos(now), op)
    }

    fn apply(&mut self, now: u64, op: Op) -> Answer {
        Answer::of(op, &self.decide(now, op))
    }

    /// What it would answer, without a change.
    fn ask(&self, now: u64, op: Op) -> Answer {
        self.clone().apply(now, op)
    }

    /// Takes all there is, and answers how much that was.
    fn drain(&mut self, now: u64) -> u64 {
        let units = self.ask(now, Op::Peek).remaining;
        assert!(self.apply(now, Op::Take(units)).is_allowed());
        units
    }
}

/// A history of one key under one of the calendars, in steps of its windows.
struct Run {
    civil: Civil,
    calendar: Calendar,
    limit: u64,
    history: History,
}

impl Run {
    fn new(seed: (u64, u64), steps: Steps) -> Run {
        let civil = Civil::any(seed.0);
        let limit = 1 + seed.0 / Civil::count() % 6;
        let window = civil.period.usual().as_nanos().try_into().unwrap();
        let history = History::new(Numbers::window(Algorithm::FixedWindow, limit, window), steps, seed.1);
        Run { calendar: civil.calendar(), limit, history, civil }
    }

    fn code(&self) -> Code {
        Code::new(self.limit, self.calendar)
    }

    fn model(&self) -> CalendarWindow {
        CalendarWindow::new(self.limit, self.civil.clone())
    }

    /// Changes the limit of code and of models, whose states are kept.
    fn change(&mut self, limit: u64, code: &mut Code, model: &mut CalendarWindow) {
        self.limit = limit;
        self.history.numbers.units = limit;
        code.limit = Limit::calendar_window(limit, self.calendar).unwrap();
        model.change(self.history.numbers);
    }
}

fn check_agreement(seed: (u64, u64), steps: Steps, words: &[u64]) {
    let mut run = Run::new(seed, steps);
    let (mut code, mut model) = (run.code(), run.model());
    for (step, word) in words.iter().enumerate() {
        if word % 23 == 0 {
            run.change(1 + word / 23 % 7, &mut code, &mut model);
        }
        let Call { now, op } = run.history.call(*word);
        for look in [Op::Ask(0), Op::Ask(1 + word % run.limit), Op::Ask(u64::MAX)] {
            assert_eq!(
                code.apply(now, look),
                model.apply(now, look),
                "step {step}: {look:?} at {now}: {}",
                run.calendar
            );
        }
        let expected = model.apply(now, op);
        assert_eq!(code.apply(now, op), expected, "step {step}: {op:?} at {now}: {} of {}", run.limit, run.calendar);
        run.history.note(expected);
    }
}

/// The units of each window, by its name, are no more than the limit; so are those of two windows no more than twice
/// that, and an interval that is no longer than the middle one of three windows meets at most two.
fn check_never_over_admits(seed: (u64, u64), words: &[u64]) {
    let mut run = Run::new(seed, Steps::Forward);
    let mut code = run.code();
    let mut admitted = Vec::new();
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for word in words {
        let Call { now, op } = run.history.call(*word);
        // What is debited or given back is not admitted; both only ever make later answers stricter or equal.
        let op = if matches!(op, Op::Refund(..) | Op::Reset) { Op::Take(1) } else { op };
        let answer = code.apply(now, op);
        if let (Op::Take(units), Verdict::Allow) = (op, answer.verdict) {
            admitted.push((now, units));
            *counts.entry(run.civil.window_at(now).name).or_default() += units;
        }
        run.history.note(answer);
    }
    assert!(counts.values().all(|count| *count <= run.limit), "{counts:?}: {} of {}", run.limit, run.calendar);
    for (now, _) in &admitted {
        let Some(before) = run.civil.window_at(*now).start.checked_sub(1) else { continue };
        let middle = run.civil.window_at(before);
        let within = |at: u64| at <= *now && now - at < middle.end - middle.start;
        let units: u64 = admitted.iter().filter(|(at, _)| within(*at)).map(|(_, units)| units).sum();
        assert!(units <= 2 * run.limit, "{units} units up to {now}: {} of {}", run.limit, run.calendar);
    }
}

/// A caller who waits as long as the answer says is admitted, a nanosecond earlier not; and from the reset on the key
/// equals never seen, a nanosecond earlier not. A denial changes nothing.
fn check_waits(seed: (u64, u64), steps: Steps, words: &[u64]) {
    let mut run = Run::new(seed, steps);
    let mut code = run.code();
    for word in words {
        let Call { now, op } = run.history.call(*word);
        // A look repairs no clock, so that its numbers may come true only with the next charge.
        let op = if matches!(op, Op::Peek | Op::Take(0)) { Op::Debit(0) } else { op };
        let answer = code.apply(now, op);
        if let Verdict::After(wait) = answer.verdict {
            assert!(wait > 0 && answer.reset_after == wait, "{answer:?} to {op:?} at {now}: {}", run.calendar);
            assert_eq!(code.ask(now, Op::Peek).remaining, answer.remaining, "after a denied {op:?}: {}", run.calendar);
            if now + wait <= Time::MAX.as_nanos() {
                assert!(code.ask(now + wait, op).is_allowed(), "{op:?} at {now} + {wait}: {}", run.calendar);
                assert!(!code.ask(now + wait - 1, op).is_allowed(), "{op:?} at {now} + {wait} - 1: {}", run.calendar);
            }
        }
        let fresh_at = now + answer.reset_after;
        if fresh_at < Time::MAX.as_nanos() {
            let fresh = run.code();
            for later in [fresh_at, fresh_at + 1, fresh_at + run.history.numbers.window] {
                for op in [Op::Peek, Op::Take(1), Op::Take(run.limit), Op::Debit(u64::MAX), Op::Take(u64::MAX)] {
                    assert_eq!(code.ask(later, op), fresh.ask(later, op), "{op:?} at {later}: {}", run.calendar);
                }
            }
            if answer.reset_after > 0 {
                assert_ne!(code.ask(fresh_at - 1, Op::Peek), fresh.ask(fresh_at - 1, Op::Peek), "{}", run.calendar);
            }
        }
        run.history.note(answer);
    }
}

/// A clock that jumps back by any amount shuts nobody out for longer than a window and the smaller of a window and the
/// jump.
fn check_jumps_back(seed: (u64, u64), words: &[u64], jump: u64) {
    let mut run = Run::new(seed, Steps::Forward);
    let mut code = run.code();
    for word in words {
        let Call { now, op } = run.history.call(*word);
        let answer = code.apply(now, op);
        run.history.note(answer);
    }
    let at = run.history.now;
    let jump =
        [jump % (at + 1), jump % (4 * run.history.numbers.window).min(at + 1)][usize::from(jump.is_multiple_of(2))];
    let now = at - jump;
    let present = run.civil.window_at(now);
    let next = run.civil.next(present);
    let most = (next.end - next.start).max(present.end - present.start) + jump.min(present.end - present.start);
    if now + most > Time::MAX.as_nanos() {
        return;
    }
    let mut waited = 0;
    while let Verdict::After(wait) = code.apply(now + waited, Op::Take(1)).verdict {
        assert_eq!(waited, 0, "shut after the wait that was told: back by {jump} ns to {now}: {}", run.calendar);
        waited = wait;
    }
    assert!(waited <= most, "shut for {waited} ns, at most {most}: back by {jump} ns to {now}: {}", run.calendar);
}

/// A refund by receipt leaves at least the debt there would be if the take had never been.
fn check_refunds(seed: (u64, u64), words: &[u64]) {
    let mut run = Run::new(seed, Steps::Forward);
    run.limit += 1;
    run.history.numbers.units = run.limit;
    let (mut code, mut without) = (run.code(), run.code());
    let cost = 1 + seed.1 % (run.limit - 1);
    let receipt = code.apply(run.history.now, Op::Take(cost)).receipt.map(Receipt::from_bits);
    for word in words {
        let Call { now, op } = run.history.call(*word);
        // Only takes: a debit that meets its cap forgets how much was there before.
        let Op::Take(_) = op else { continue };
        let answer = code.apply(now, op);
        if answer.is_allowed() {
            assert!(without.apply(now, op).is_allowed(), "{op:?} at {now}: {}", run.calendar);
        }
        run.history.note(answer);
    }
    let now = run.history.now;
    let before = code.ask(now, Op::Peek);
    let refunded = code.apply(now, Op::Refund(cost, receipt));
    assert!(refunded.remaining >= before.remaining && refunded.reset_after <= before.reset_after);
    for later in [now, now + run.history.numbers.window / 3, now + run.history.numbers.window] {
        let (with, never) = (code.ask(later, Op::Peek), without.ask(later, Op::Peek));
        assert!(with.remaining <= never.remaining, "{with:?}, never taken {never:?}, at {later}: {}", run.calendar);
        assert!(with.reset_after >= never.reset_after, "{with:?}, never taken {never:?}, at {later}: {}", run.calendar);
    }
}

fn history() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn it_agrees_with_its_model(seed in any::<(u64, u64)>(), words in history()) {
        check_agreement(seed, Steps::Forward, &words);
    }

    #[test]
    fn it_agrees_with_its_model_when_the_clock_goes_back(seed in any::<(u64, u64)>(), words in history()) {
        check_agreement(seed, Steps::AlsoBack, &words);
    }

    #[test]
    fn no_trailing_interval_admits_more_than_the_worst_case(seed in any::<(u64, u64)>(), words in history()) {
        check_never_over_admits(seed, &words);
    }

    #[test]
    fn waits_are_exact(seed in any::<(u64, u64)>(), words in history()) {
        check_waits(seed, Steps::Forward, &words);
    }

    #[test]
    fn waits_are_exact_when_the_clock_goes_back(seed in any::<(u64, u64)>(), words in history()) {
        check_waits(seed, Steps::AlsoBack, &words);
    }

    #[test]
    fn a_clock_that_jumps_back_shuts_nobody_out_for_long(seed in any::<(u64, u64)>(), words in history(), jump in any::<u64>()) {
        check_jumps_back(seed, &words, jump);
    }

    #[test]
    fn a_refund_is_never_better_than_no_take(seed in any::<(u64, u64)>(), words in history()) {
        check_refunds(seed, &words);
    }
}

/// The most units that can be admitted at these instants within an interval `(end − length, end]`.
fn most_within(code: &Code, instants: &[u64], length: u64, admitted: &mut Vec<(u64, u64)>) -> u64 {
    let Some((at, later)) = instants.split_first() else {
        return most_in_trailing(admitted, length);
    };
    let units = 0..=code.limit.units();
    let most = units.map(|units| {
        let mut next = code.clone();
        let taken = if next.apply(*at, Op::Take(units)).is_allowed() { units } else { 0 };
        admitted.push((*at, taken));
        let most = most_within(&next, later, length, admitted);
        admitted.pop();
        most
    });
    most.max().unwrap_or(0)
}

/// Twice the limit passes within 2 ns across a seam, and no more within the shortest window near it: the day of 23 hours.
/// A nanosecond more on each side of that day holds it whole, and with it a third limit.
#[test]
fn twice_the_limit_passes_across_a_seam() {
    let civil = Civil::new(CalendarPeriod::Day, "Europe/Berlin", "00:00");
    let short = civil.window_at(1_774_785_600_000_000_000);
    let length = short.end - short.start;
    assert_eq!((short.name, length), (20_260_329, 23 * 3_600_000_000_000));
    let mut code = Code::new(100, civil.calendar());
    assert_eq!([short.start - 1, short.start].map(|at| code.drain(at)), [100, 100]);
    assert!(!code.apply(short.end - 1, Op::Take(1)).is_allowed());
    assert_eq!(code.drain(short.end), 100);
    let middle = short.start + length / 2;
    let instants = [short.start - 1, short.start, middle, short.end - 2, short.end - 1, short.end, short.end + 1];
    for limit in 1..=2 {
        let code = Code::new(limit, civil.calendar());
        for (length, worst) in [(2, 2), (length, 2), (length + 1, 2), (length + 2, 3)] {
            assert_eq!(most_within(&code, &instants, length, &mut Vec::new()), worst * limit, "within {length} ns");
        }
    }
}

#[test]
fn limits_beyond_the_bounds_are_refused() {
    let calendar = |period| Calendar::new(period, "Europe/Berlin", None).unwrap();
    let refused = |limit, period| Limit::calendar_window(limit, calendar(period)).unwrap_err();
    assert_eq!(refused(0, CalendarPeriod::Day), LimitError::Zero { field: "limit" });
    for (period, most) in CalendarPeriod::ALL.into_iter().zip([1, 7, 28, 365].map(|days| days * 864_000_000_000)) {
        let mut code = Code::new(most, calendar(period));
        assert_eq!(code.drain(0), most);
        assert!(code.apply(0, Op::Debit(u64::MAX)).is_allowed());
        assert_eq!(code.apply(0, Op::Refund(most, None)).remaining, 0, "a debit reaches one further limit");
        assert_eq!(code.apply(0, Op::Refund(1, None)).remaining, 1);
        assert_eq!(
            refused(most + 1, period).to_string(),
            format!(
                "limit: {} in {} ns is too fast; use at most 10000000 a second (1 in 100 ns)",
                most + 1,
                period.usual().as_nanos()
            )
        );
    }
}
