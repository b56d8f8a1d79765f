//! The algorithms: pure functions of a limit, a state, an instant and an operation.
//!
//! No clock, no lock, no I/O. A state is a few words (a log also has entries, wherever they are kept), and its first
//! word is always **an instant from which on it equals never seen**, so that a store can reclaim it without knowing its
//! limit. Zero is never seen.

pub(crate) mod bucket;
pub(crate) mod calendar_window;
pub(crate) mod fixed_window;
pub(crate) mod log;
pub(crate) mod sliding_counter;
pub(crate) mod window;

use std::collections::VecDeque;

use crate::ext::StateExt;
use crate::limit::{Limit, Shape};
use crate::{Decision, Op, Time};
use log::Entry;

/// An algorithm whose state is `WORDS` words.
pub(crate) trait Words<const WORDS: usize> {
    fn decide(&self, state: &mut [u64; WORDS], now: Time, op: Op) -> Decision;

    /// Whether the state was written so far ahead of `now` that deciding would pull it back, as after a clock that
    /// jumped. A store on a steady clock asks this first: there it means that the caller slept after it read the clock.
    fn is_ahead(&self, state: &[u64; WORDS], now: Time) -> bool;

    /// Whether deciding would leave the state as it is, as far as a quick look shows.
    #[inline]
    fn only_looks(&self, _state: &[u64; WORDS], _now: Time, _op: Op) -> bool {
        false
    }

    /// Whether a charge finds all it needs beside the words.
    #[inline]
    fn is_ready(&self, _state: &[u64; WORDS]) -> bool {
        true
    }

    /// Makes it ready; false if what it needs has run out.
    #[inline]
    fn prepare(&self, _state: &mut [u64; WORDS]) -> bool {
        true
    }

    /// Gives back what was made ready and not used.
    #[inline]
    fn settle(&self, _state: &mut [u64; WORDS]) {}

    /// Gives back what a state that is forgotten had beside its words.
    #[inline]
    fn forget(&self, _state: [u64; WORDS]) {}
}

/// The state of one key under one limit, for callers that store it themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State(Kept);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    Bucket([u64; 1]),
    Window([u64; 2]),
    Counter([u64; 3]),
    Log(VecDeque<Entry>),
}

impl State {
    /// Returns the state of a key that was never seen.
    #[must_use]
    pub fn fresh(limit: &Limit) -> State {
        State(match limit.shape() {
            Shape::Bucket(_) => Kept::Bucket([0]),
            Shape::Window(_) | Shape::Calendar(_) => Kept::Window([0; 2]),
            Shape::Counter(_) => Kept::Counter([0; 3]),
            Shape::Log(_) => Kept::Log(VecDeque::new()),
        })
    }

    /// The state of these words, of which a bucket has one and a window two, or `None` if the limit keeps a log.
    pub(crate) fn of_words(limit: &Limit, words: [u64; 3]) -> Option<State> {
        let [first, second, _] = words;
        Some(State(match limit.shape() {
            Shape::Bucket(_) => Kept::Bucket([first]),
            Shape::Window(_) | Shape::Calendar(_) => Kept::Window([first, second]),
            Shape::Counter(_) => Kept::Counter(words),
            Shape::Log(_) => return None,
        }))
    }

    /// Returns whether it equals the state of a key never seen at `now`.
    #[must_use]
    pub fn is_fresh(&self, now: Time) -> bool {
        let fresh_at = match &self.0 {
            Kept::Bucket([at]) | Kept::Window([at, _]) | Kept::Counter([at, ..]) => *at,
            Kept::Log(entries) => entries.back().map_or(0, |entry| entry.out_at),
        };
        fresh_at <= now.as_nanos()
    }

    /// Repairs a state that was written so far ahead of `now` that the clock must have jumped back since.
    pub(crate) fn repair(&mut self, limit: &Limit, now: Time) {
        let is_ahead = match (limit.shape(), &self.0) {
            (Shape::Bucket(bucket), Kept::Bucket(words)) => bucket.is_ahead(words, now),
            (Shape::Window(window), Kept::Window(words)) => window.is_ahead(words, now),
            (Shape::Calendar(window), Kept::Window(words)) => window.is_ahead(words, now),
            (Shape::Counter(counter), Kept::Counter(words)) => counter.is_ahead(words, now),
            _ => false,
        };
        if is_ahead {
            decide(limit, self, now, Op::Debit(0));
        }
    }
}

impl StateExt for State {
    fn with_used(limit: &Limit, used: u64, now: Time) -> State {
        let mut state = State::fresh(limit);
        decide(limit, &mut state, now, Op::Debit(used));
        state
    }

    fn scaled(&self, part: u64, whole: u64) -> State {
        let scale = |units: u64| {
            let scaled = (u128::from(units) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        State(match &self.0 {
            Kept::Bucket(words) => Kept::Bucket(*words),
            Kept::Window([end, units]) => Kept::Window([*end, scale(*units)]),
            Kept::Counter([fresh_at, prev, curr]) => Kept::Counter([*fresh_at, scale(*prev), scale(*curr)]),
            Kept::Log(entries) => {
                Kept::Log(entries.iter().map(|entry| Entry { units: scale(entry.units), ..*entry }).collect())
            }
        })
    }

    fn counted(&self, limit: &Limit, now: Time) -> u64 {
        let nanos = now.as_nanos();
        match (limit.shape(), &self.0) {
            (Shape::Bucket(bucket), Kept::Bucket([tat])) => tat.saturating_sub(nanos).div_ceil(bucket.interval()),
            (Shape::Window(_) | Shape::Calendar(_), Kept::Window([end, units])) if *end > nanos => *units,
            // What counts in the window after the state's own is zero in it.
            (Shape::Counter(counter), Kept::Counter(words)) => counter.units_of_current(*words, now),
            (Shape::Log(_), Kept::Log(entries)) => {
                entries.iter().filter(|entry| entry.out_at > nanos).map(|entry| entry.units).sum()
            }
            _ => 0,
        }
    }
}

/// Applies one operation and changes the state accordingly.
///
/// A state of another algorithm counts as never seen. Another window length also makes another state: identify states
/// by namespace, [`Limit::identity`] and key.
pub fn decide(limit: &Limit, state: &mut State, now: Time, op: Op) -> Decision {
    match (limit.shape(), &mut state.0) {
        (Shape::Bucket(bucket), Kept::Bucket(words)) => bucket.decide(words, now, op),
        (Shape::Window(window), Kept::Window(words)) => window.decide(words, now, op),
        (Shape::Calendar(window), Kept::Window(words)) => window.decide(words, now, op),
        (Shape::Counter(counter), Kept::Counter(words)) => counter.decide(words, now, op),
        (Shape::Log(log), Kept::Log(entries)) => log.decide(entries, now, op),
        _ => {
            *state = State::fresh(limit);
            decide(limit, state, now, op)
        }
    }
}
