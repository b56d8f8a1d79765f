//! For stores that keep states elsewhere, such as in Redis: what their scripts need to know of a limit, and the answers
//! to what they found.
//!
//! A script decides whether charges pass and changes the states. It tells the states as they were before, and the
//! numbers of the answers are worked out here, by the same arithmetic as everywhere. So a script never divides, and a
//! script that decided otherwise than this arithmetic is found out at once.

use arrayvec::ArrayVec;

use crate::algorithm::Words;
use crate::bounds::CHARGES_MAX;
use crate::decision::{Answer, Receipt};
use crate::limit::Shape;
use crate::memory::{Charge, ChargeError, Decisions};
use crate::{Decision, Key, Limit, Op, State, Time};

/// The numbers of a limit, as its arithmetic uses them. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numbers {
    /// Of gcra, token_bucket and leaky_bucket. The state is one word, the theoretical arrival time.
    Bucket {
        /// How long a unit takes to come back.
        interval: u64,
        /// How long a whole burst takes to come back.
        span: u64,
        /// The most debt that a state may hold.
        debt_max: u64,
    },
    /// Of fixed_window. The state is the end of a window and the units in it.
    Window {
        /// Units in each window.
        limit: u64,
        /// Its length.
        window: u64,
        /// By how much the key's windows start after the epoch's.
        phase: u64,
    },
    /// Of sliding_counter. The state is the instant from which on it equals never seen, the units of the window before
    /// and those of the current one.
    Counter {
        /// Units in a window.
        limit: u64,
        /// Its length.
        window: u64,
    },
    /// Of sliding_log and sliced_window. The state is a log of entries.
    Log {
        /// Units in a window.
        limit: u64,
        /// Its length.
        window: u64,
        /// Length of a slice; 1 for the exact log.
        slice: u64,
        /// How long an entry counts from the start of its slice on.
        lifetime: u64,
    },
}

/// What was found where a charge went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The words of the state before the call, as many as the algorithm has; zero if the key was never seen.
    Words([u64; 3]),
    /// What the log itself answered: it is too long to be told.
    Log(FromLog),
}

/// The answer of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromLog {
    /// Whether it may pass.
    pub verdict: LogVerdict,
    /// Units that count, after the charge if it was taken.
    pub used: u64,
    /// Nanoseconds until the log equals never seen.
    pub reset_after: u64,
    /// When the units of this charge are out, in nanoseconds since the Unix epoch.
    pub out_at: u64,
}

/// What a log says to a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogVerdict {
    /// It passes.
    Allow,
    /// It would pass, but was not taken because of another charge.
    AllowAlone,
    /// Not before so many nanoseconds.
    DenyFor(u64),
    /// Never.
    DenyAlways,
}

/// A script decided otherwise than the arithmetic: one of them is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store's script and this version's arithmetic disagree; do all nodes run the same version?")]
pub struct Disagreement;

impl Limit {
    /// The numbers that count for this key.
    #[must_use]
    pub fn numbers(&self, key: Key<'_>) -> Numbers {
        match self.shape() {
            Shape::Bucket(bucket) => {
                Numbers::Bucket { interval: bucket.interval(), span: bucket.span(), debt_max: bucket.debt_max() }
            }
            Shape::Window(window) => {
                let window = window.for_key(key);
                Numbers::Window { limit: window.limit, window: window.window, phase: window.phase() }
            }
            Shape::Counter(counter) => Numbers::Counter { limit: counter.limit, window: counter.window },
            Shape::Log(log) => {
                Numbers::Log { limit: log.limit, window: log.window, slice: log.slice(), lifetime: log.lifetime() }
            }
        }
    }
}

impl Decisions {
    /// The answers to charges that a script decided at `now`, from what it found for each of them. `taken` is whether
    /// the script let a single charge pass, or did not find a vetoing one denied.
    ///
    /// # Errors
    /// If the arithmetic decides otherwise than the script did.
    pub fn of_found(
        charges: &[Charge<'_>],
        now: Time,
        found: &[Found],
        taken: bool,
    ) -> Result<Decisions, Disagreement> {
        if charges.len() != found.len() || charges.len() > CHARGES_MAX {
            return Err(Disagreement);
        }
        let (answers, passes) = match (charges, found) {
            ([charge], [found]) => {
                let decision = alone(charge, now, found)?;
                (ArrayVec::from_iter([decision]), decision.is_allowed())
            }
            _ => {
                let answers = together(charges, now, found)?;
                let vetoed = charges.iter().zip(&answers).any(|(charge, one)| charge.veto && !one.is_allowed());
                (answers, !vetoed)
            }
        };
        match passes == taken {
            true => Ok(charges.iter().zip(answers).map(|(charge, one)| (one, charge.veto)).collect()),
            false => Err(Disagreement),
        }
    }
}

impl State {
    /// The state that a script left behind when it decided a charge on these words at `now`, and the answer: to go on
    /// from there in this process.
    ///
    /// # Errors
    /// If the arithmetic decides otherwise than the script did, or the limit keeps a log.
    pub fn of_found(
        charge: &Charge<'_>,
        now: Time,
        mut words: [u64; 3],
        taken: bool,
    ) -> Result<(State, Decision), Disagreement> {
        let decision = on_words(charge, &mut words, now, charge.op)?;
        let state = State::of_words(charge.limit, words).ok_or(Disagreement)?;
        if decision.is_allowed() == taken { Ok((state, decision)) } else { Err(Disagreement) }
    }
}

/// Whether charges can be decided together, as [`MemoryStore::charge`](crate::MemoryStore::charge) says.
///
/// # Errors
/// If there are too many, or two would count in one state under other numbers.
pub fn check_charges(charges: &[Charge<'_>]) -> Result<(), ChargeError> {
    if charges.len() > CHARGES_MAX {
        return Err(ChargeError::TooMany { count: charges.len() });
    }
    for (number, later) in charges.iter().enumerate() {
        let shares = |earlier: &Charge<'_>| {
            earlier.key == later.key
                && earlier.limit.identity() == later.limit.identity()
                && earlier.limit != later.limit
        };
        if charges.iter().take(number).any(shares) {
            let algorithm = later.limit.algorithm().name();
            return Err(ChargeError::SharedState { charge: number, algorithm });
        }
    }
    Ok(())
}

fn alone(charge: &Charge<'_>, now: Time, found: &Found) -> Result<Decision, Disagreement> {
    match found {
        Found::Words(words) => on_words(charge, &mut words.clone(), now, charge.op),
        Found::Log(answer) => Ok(from_log(charge.limit, answer)),
    }
}

/// The states of several charges, each once, as the charges before left them.
fn together(
    charges: &[Charge<'_>],
    now: Time,
    found: &[Found],
) -> Result<ArrayVec<Decision, CHARGES_MAX>, Disagreement> {
    let mut places: ArrayVec<Place<'_>, CHARGES_MAX> = ArrayVec::new();
    let mut foreseen: ArrayVec<(Decision, usize), CHARGES_MAX> = ArrayVec::new();
    for (charge, found) in charges.iter().zip(found) {
        let is_its = |place: &Place<'_>| place.key == charge.key && place.identity == charge.limit.identity();
        let number = match places.iter().position(is_its) {
            Some(number) => number,
            None => {
                places.push(Place::of(charge, now, found)?);
                places.len() - 1
            }
        };
        foreseen.push((places[number].foresee(charge, now, found)?, number));
    }
    let allowed = charges.iter().zip(&foreseen).all(|(charge, (decision, _))| decision.is_allowed() || !charge.veto);
    let settle = |(charge, (decision, number)): (&Charge<'_>, (Decision, usize))| match allowed {
        true => Ok(decision),
        false => places[number].refuse(charge, now, decision),
    };
    charges.iter().zip(foreseen).map(settle).collect()
}

/// One key's state in the course of several charges. `memory/transaction.rs` does the same to states that it holds.
struct Place<'a> {
    key: Key<'a>,
    identity: u64,
    before: [u64; 3],
    scratch: [u64; 3],
    /// Units that charges before want of it, and whether one of them was denied.
    asked: u64,
    denied: bool,
}

impl<'a> Place<'a> {
    fn of(charge: &Charge<'a>, now: Time, found: &Found) -> Result<Place<'a>, Disagreement> {
        let mut before = if let Found::Words(words) = found { *words } else { [0; 3] };
        if let Found::Words(_) = found
            && is_ahead(charge, &before, now)
        {
            // The clock jumped back. That is repaired whether the charges pass or not.
            on_words(charge, &mut before, now, Op::Debit(0))?;
        }
        let identity = charge.limit.identity();
        Ok(Place { key: charge.key, identity, before, scratch: before, asked: 0, denied: false })
    }

    /// What the charge would be answered, after those before it.
    fn foresee(&mut self, charge: &Charge<'_>, now: Time, found: &Found) -> Result<Decision, Disagreement> {
        let Found::Words(_) = found else { return alone(charge, now, found) };
        let decision = on_words(charge, &mut self.scratch, now, charge.op)?;
        let (Op::Take(units @ 1..) | Op::Debit(units @ 1..)) = charge.op else { return Ok(decision) };
        let whole = self.asked.saturating_add(units);
        let fits = matches!(charge.op, Op::Debit(_)) || decision.is_allowed() && !self.denied;
        if fits || charge.veto {
            self.asked = whole;
            self.denied |= !fits;
        }
        if fits {
            return Ok(decision);
        }
        // Those before it would be asked for again too: what counts is when all fit.
        let together = on_words(charge, &mut self.before.clone(), now, Op::Take(whole))?.answer;
        let answer = if whole == units || together == Answer::Allow { decision.answer } else { together };
        Ok(Decision { answer, ..decision })
    }

    /// The answer to a charge that was not taken: its verdict, and the numbers of the untouched state. A log said both
    /// itself.
    fn refuse(&self, charge: &Charge<'_>, now: Time, foreseen: Decision) -> Result<Decision, Disagreement> {
        if let Shape::Log(_) = charge.limit.shape() {
            return Ok(foreseen);
        }
        let answer = if foreseen.is_allowed() { Answer::AllowAlone } else { foreseen.answer };
        Ok(Decision { answer, ..on_words(charge, &mut self.before.clone(), now, Op::Peek)? })
    }
}

fn is_ahead(charge: &Charge<'_>, words: &[u64; 3], now: Time) -> bool {
    let [first, second, _] = *words;
    match charge.limit.shape() {
        Shape::Bucket(bucket) => bucket.is_ahead(&[first], now),
        Shape::Window(window) => window.for_key(charge.key).is_ahead(&[first, second], now),
        Shape::Counter(counter) => counter.is_ahead(words, now),
        Shape::Log(_) => false,
    }
}

fn on_words(charge: &Charge<'_>, words: &mut [u64; 3], now: Time, op: Op) -> Result<Decision, Disagreement> {
    let [first, second, _] = *words;
    match charge.limit.shape() {
        Shape::Bucket(bucket) => {
            let mut state = [first];
            let decision = bucket.decide(&mut state, now, op);
            words[0] = state[0];
            Ok(decision)
        }
        Shape::Window(window) => {
            let mut state = [first, second];
            let decision = window.for_key(charge.key).decide(&mut state, now, op);
            words[..2].copy_from_slice(&state);
            Ok(decision)
        }
        Shape::Counter(counter) => Ok(counter.decide(words, now, op)),
        Shape::Log(_) => Err(Disagreement),
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
