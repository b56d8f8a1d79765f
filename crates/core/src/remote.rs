//! Interfaces for remote stores such as Redis: the numbers that their scripts need, and decisions from the states that
//! the scripts found.
//!
//! A script decides whether charges pass and changes the states. It reports the states as they were before, and the
//! numbers of the decisions are computed here, by the same arithmetic as everywhere. So a script never divides, and a
//! script that decides differently from this arithmetic is detected at once.

use arrayvec::ArrayVec;

use crate::algorithm::bucket::Bucket;
use crate::bounds::{CHARGES_MAX, NANOS_PER_SECOND};
use crate::charge::{Decisions, Report};
use crate::decision::{Answer, Receipt};
use crate::ext::{ChargeExt, DecisionsExt, LimitExt, StateExt};
use crate::limit::Shape;
use crate::transaction::{Place, PlaceOf, Trial, transact};
use crate::{Calendar, Charge, Decision, Limit, Op, State, Time};

/// The largest whole number that scripts represent exactly.
const SCRIPT_WHOLE_MAX: u64 = 1 << 53;

/// The arithmetic of a limit. Each has a script of this name.
///
/// Exhaustive on purpose: where scripts are assembled, the compiler asks for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// For gcra, token_bucket and leaky_bucket.
    Bucket,
    /// For fixed_window.
    FixedWindow,
    /// For calendar_window.
    CalendarWindow,
    /// For sliding_counter.
    SlidingCounter,
    /// For sliding_log and sliced_window.
    Log,
}

impl Arithmetic {
    /// All kinds of arithmetic.
    pub const ALL: [Arithmetic; 5] = [
        Arithmetic::Bucket,
        Arithmetic::FixedWindow,
        Arithmetic::CalendarWindow,
        Arithmetic::SlidingCounter,
        Arithmetic::Log,
    ];

    /// Returns the name of its script file and function.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Arithmetic::Bucket => "bucket",
            Arithmetic::FixedWindow => "fixed_window",
            Arithmetic::CalendarWindow => "calendar_window",
            Arithmetic::SlidingCounter => "sliding_counter",
            Arithmetic::Log => "log",
        }
    }
}

/// A number that a script takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A whole number.
    Whole(u64),
    /// Any number below zero.
    Negative,
    /// No number, where one is optional.
    Missing,
}

/// The numbers of a charge, in the order in which the script of its limit takes them.
pub type Arguments = ArrayVec<Argument, ARGUMENTS_MAX>;

/// Most numbers that a script takes for one charge.
pub const ARGUMENTS_MAX: usize = 12;

/// The state that a script found for a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The words of the state before the call, as many as the algorithm has; zero if the key was never seen.
    Words([u64; 3]),
    /// The result that the script computed from a log, which is too long to be reported.
    Log(FromLog),
}

/// The result of a charge to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromLog {
    /// The verdict.
    pub verdict: LogVerdict,
    /// Units that count, including the charge if it was taken.
    pub used: u64,
    /// Nanoseconds until the log equals that of a key never seen.
    pub reset_after: u64,
    /// When the units of this charge stop counting, in nanoseconds since the Unix epoch.
    pub out_at: u64,
}

/// The verdict about a charge to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogVerdict {
    /// The charge passes.
    Allow,
    /// The charge would pass, but was not taken because of another one.
    AllowAlone,
    /// The charge is denied for this many nanoseconds.
    DenyFor(u64),
    /// The charge never passes.
    DenyAlways,
}

/// A script decided differently from the arithmetic: one of them is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store's script and this version's arithmetic disagree; do all nodes run the same version?")]
pub struct Disagreement;

impl ChargeExt for Charge<'_> {
    fn letter(&self) -> &'static str {
        match self.op {
            Op::Take(0) | Op::Peek => "p",
            Op::Take(_) => "t",
            Op::Ask(_) => "a",
            Op::Debit(_) => "d",
            Op::Refund(..) => "r",
            Op::Reset => "z",
        }
    }

    fn arguments(&self, around: Time) -> Arguments {
        let (units, receipt) = match self.op {
            Op::Take(units) | Op::Ask(units) | Op::Debit(units) => (units, None),
            Op::Refund(units, receipt) => (units, receipt),
            Op::Peek | Op::Reset => (0, None),
        };
        let mut numbers = Arguments::new();
        if let Shape::Bucket(bucket) = self.limit.shape() {
            self.bucket_arguments(bucket, units, receipt, &mut numbers);
            return numbers;
        }
        // Units, beside the place of a second number. No state holds more units than a script tells apart, so that more of
        // them make no difference to any op.
        numbers.extend([Argument::Whole(units.min(SCRIPT_WHOLE_MAX)), Argument::Whole(0)]);
        numbers.push(Argument::Whole(self.limit.units()));
        match self.limit.shape() {
            Shape::Bucket(_) => {}
            Shape::Window(window) => {
                let window = window.for_key(self.namespace, self.key);
                window_arguments(window.window, window.phase(), receipt, &mut numbers);
                return numbers;
            }
            Shape::Calendar(window) => windows_around(window.calendar, around, &mut numbers),
            Shape::Counter(counter) => numbers.extend(time(counter.window)),
            Shape::Log(log) => {
                [log.window, log.slice(), log.lifetime()].into_iter().for_each(|length| numbers.extend(time(length)));
            }
        }
        numbers.extend(instant(receipt));
        numbers
    }
}

impl Charge<'_> {
    fn bucket_arguments(&self, bucket: &Bucket, units: u64, receipt: Option<Receipt>, numbers: &mut Arguments) {
        let amount = units.saturating_mul(bucket.interval());
        numbers.extend(time(amount));
        numbers.extend(time(bucket.debt_max()));
        numbers.extend(match self.op {
            Op::Take(_) | Op::Ask(_) => {
                bucket.span().checked_sub(amount).map_or([Argument::Negative, Argument::Whole(0)], time)
            }
            _ => instant(receipt),
        });
    }
}

/// The seconds of a window, the receipt, and what there is beyond whole seconds since the epoch. Missing numbers at the end
/// are left out: most windows need but one.
fn window_arguments(window: u64, phase: u64, receipt: Option<Receipt>, numbers: &mut Arguments) {
    let [seconds, nanos] = time(window);
    numbers.push(seconds);
    let is_plain = nanos == Argument::Whole(0) && phase == 0;
    if receipt.is_some() || !is_plain {
        numbers.extend(instant(receipt));
    }
    if !is_plain {
        numbers.push(nanos);
        numbers.extend(time(phase));
    }
}

/// The starts of three windows of a calendar and the end of the last, in seconds, and their names. Windows start on whole
/// seconds.
fn windows_around(calendar: Calendar, around: Time, numbers: &mut Arguments) {
    let present = calendar.window_at(around);
    let (previous, next) = (calendar.previous(&present), calendar.next(&present));
    let seconds = |nanos: u64| Argument::Whole(nanos / NANOS_PER_SECOND);
    let previous = previous.map_or((present.start(), 0), |window| (window.start(), window.name()));
    // After the last instant there is none, and no script will look there.
    let next = next.map_or((present.end(), u32::MAX), |window| (window.end(), window.name()));
    numbers.extend([previous.0, present.start(), present.end(), next.0].map(seconds));
    numbers.extend([previous.1, present.name(), next.1].map(|name| Argument::Whole(u64::from(name))));
}

/// A length as whole seconds and nanoseconds.
fn time(nanos: u64) -> [Argument; 2] {
    [Argument::Whole(nanos / NANOS_PER_SECOND), Argument::Whole(nanos % NANOS_PER_SECOND)]
}

fn instant(receipt: Option<Receipt>) -> [Argument; 2] {
    receipt.map_or([Argument::Missing; 2], |receipt| time(receipt.to_bits()))
}

impl DecisionsExt for Decisions {
    fn of_found(charges: &[Charge<'_>], now: Time, found: &[Found], taken: bool) -> Result<Decisions, Disagreement> {
        let fits =
            |(charge, found): (&Charge<'_>, &Found)| charge.limit.can_be_copied() == matches!(found, Found::Words(_));
        if charges.len() != found.len() || charges.len() > CHARGES_MAX || !charges.iter().zip(found).all(fits) {
            return Err(Disagreement);
        }
        let mut places: ArrayVec<Place<Reported<'_>>, CHARGES_MAX> = ArrayVec::new();
        let mut place_of = PlaceOf::new();
        for (number, charge) in charges.iter().enumerate() {
            let shares = |earlier: usize| charges[earlier].shares_state_with(charge);
            let place = (0..number).find(|earlier| shares(*earlier)).map_or(places.len(), |earlier| place_of[earlier]);
            if place == places.len() {
                places.push(Place::new(Reported::of(charge, now, found, number)));
            }
            place_of.push(place);
        }
        let (decisions, allowed) = transact(charges, &mut places, &place_of);
        // A single charge passes or not whether it may veto or not.
        let passes = if let [_] = charges { decisions.iter().all(Decision::is_allowed) } else { allowed };
        if passes != taken {
            return Err(Disagreement);
        }
        let report = |(number, place): (usize, &usize)| {
            let state = places[*place].trial.state(number, allowed);
            Some(Report { state, at: now })
        };
        Ok(decisions.reporting(place_of.iter().enumerate().map(report).collect()))
    }

    fn of_joined(
        charge: &Charge<'_>,
        now: Time,
        found: Found,
        earlier: u64,
        taken: bool,
    ) -> Result<Decisions, Disagreement> {
        let units = match charge.op {
            Op::Take(units) if earlier > 0 => units,
            _ => return Decisions::of_found(std::slice::from_ref(charge), now, &[found], taken),
        };
        // What passed one after the other leaves the state that one charge for all of it leaves.
        let units = units.checked_mul(earlier).ok_or(Disagreement)?;
        let all = Charge { op: Op::Take(units), ..charge.shadow() };
        let before = Decisions::of_found(&[all], now, &[found], true)?;
        let mut state = before.report(0).map(|report| report.state.clone()).ok_or(Disagreement)?;
        let limit = charge.limit.for_key(charge.namespace, charge.key);
        let decision = crate::decide(&limit, &mut state, now, charge.op);
        if decision.is_allowed() != taken {
            return Err(Disagreement);
        }
        Ok(Decisions::from_iter([(decision, charge.veto)]).reporting(vec![Some(Report { state, at: now })]))
    }

    fn reporting(self, reports: Vec<Option<Report>>) -> Decisions {
        Decisions { reports, ..self }
    }

    fn with_vetoes(&self) -> &[(Decision, bool)] {
        &self.each
    }
}

/// The state of a key that a script reported.
struct Reported<'a> {
    limit: Limit,
    now: Time,
    /// The state before, and the state with all charges so far; `None` for a log, whose result the script computed.
    words: Option<(State, State)>,
    found: &'a [Found],
}

impl<'a> Reported<'a> {
    fn of(charge: &Charge<'_>, now: Time, found: &'a [Found], number: usize) -> Reported<'a> {
        let limit = charge.limit.for_key(charge.namespace, charge.key);
        let words = match found[number] {
            Found::Words(words) => State::of_words(&limit, words),
            Found::Log(_) => None,
        };
        let words = words.map(|mut before| {
            // A clock that jumped back is repaired whether the charges pass or not.
            before.repair(&limit, now);
            (before.clone(), before)
        });
        Reported { limit, now, words, found }
    }

    /// The state that the script left behind. For a log only the used units are known.
    fn state(&self, number: usize, allowed: bool) -> State {
        match (&self.words, self.found[number]) {
            (Some((_, after)), _) if allowed => after.clone(),
            (Some((before, _)), _) => before.clone(),
            (None, Found::Log(log)) => State::with_used(&self.limit, log.used, self.now),
            (None, Found::Words(_)) => State::fresh(&self.limit),
        }
    }

    fn log_answer(&self, number: usize) -> Decision {
        match self.found[number] {
            Found::Log(answer) => from_log(&self.limit, &answer),
            Found::Words(_) => Decision::BLANK,
        }
    }
}

impl Trial for Reported<'_> {
    fn try_next(&mut self, number: usize, charge: &Charge<'_>) -> Decision {
        match &mut self.words {
            Some((_, scratch)) => crate::decide(&self.limit, scratch, self.now, charge.op),
            None => self.log_answer(number),
        }
    }

    fn untouched(&self, number: usize, _charge: &Charge<'_>, op: Op) -> Decision {
        match &self.words {
            Some((before, _)) => crate::decide(&self.limit, &mut before.clone(), self.now, op),
            None => self.log_answer(number),
        }
    }
}

fn from_log(limit: &Limit, answer: &FromLog) -> Decision {
    let FromLog { verdict, used, reset_after, out_at } = *answer;
    let answer = match verdict {
        LogVerdict::Allow => Answer::Allow,
        LogVerdict::AllowAlone => Answer::AllowAlone,
        LogVerdict::DenyFor(nanos) => Answer::DenyFor(nanos),
        LogVerdict::DenyAlways => Answer::DenyAlways,
    };
    let room = limit.units().saturating_sub(used);
    Decision { answer, limit: limit.units(), room, unit: 1, reset_after, receipt: Receipt(out_at) }
}
