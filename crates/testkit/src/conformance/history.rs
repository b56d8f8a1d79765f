//! Random histories of one key: random words are turned into instants and operations that are likely to matter.

#![allow(clippy::cast_possible_truncation, reason = "choices are small")]

use tidegate_core::bounds::{SPAN_NANOS_MAX, WINDOW_NANOS_MAX, YEAR_NANOS};
use tidegate_core::{Algorithm, Limit, Op, Receipt, State, Time, decide};

use super::model::calendar::Civil;
use super::model::{Answer, Numbers, Verdict};

/// A source of small choices, from one random word. A history is a list of words, so that it is cheap to make and shrinks
/// to fewer and smaller words.
pub struct Choices(
    /// The random word, of which each choice takes a part.
    pub u64,
);

impl Choices {
    /// Chooses a number below a small bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        let choice = self.0 % bound;
        self.0 /= bound;
        choice
    }

    /// Chooses a number below a bound of any size.
    pub fn any_below(&mut self, bound: u64) -> u64 {
        // The finaliser of SplitMix64 makes a new word of what is left.
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 % bound.max(1)
    }
}

/// The directions in which the clock of a history goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Steps {
    /// It never goes back.
    Forward,
    /// It also jumps back.
    AlsoBack,
}

/// Chooses the numbers of a limit: mostly so small that coincidences are likely, sometimes as large as they can be.
pub fn numbers(algorithm: Algorithm, word: u64) -> Numbers {
    let mut choices = Choices(word);
    let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra);
    let size = choices.below(8);
    if is_bucket {
        let rate = 1 + choices.below(7);
        let period = match size {
            0 => rate * 100,
            1 => YEAR_NANOS - choices.any_below(1000),
            2 => 1_000_000_000,
            _ => rate * 100 + choices.any_below(300),
        };
        let most = SPAN_NANOS_MAX / period.div_ceil(rate);
        let units = if size == 7 { 1 + choices.any_below(most) } else { 1 + choices.below(6) };
        return Numbers::bucket(algorithm, rate, period, units);
    }
    if algorithm == Algorithm::CalendarWindow {
        let choice = choices.any_below(Civil::count());
        let usual = u64::try_from(Civil::any(choice).period.usual().as_nanos()).unwrap();
        return Numbers { slices: 1 + choice, ..Numbers::window(algorithm, 1 + choices.below(6), usual) };
    }
    let slices = 1 + choices.below(6);
    let mut units = 1 + choices.below(6);
    let window = match size {
        0 => units * 100,
        1 => WINDOW_NANOS_MAX,
        2 => 60_000_000_000,
        _ => units * 100 + choices.any_below(1000),
    };
    if size == 1 {
        units = if algorithm == Algorithm::SlidingLog { 10_000 } else { 1 + choices.any_below(window / 100) };
    }
    Numbers { slices, ..Numbers::window(algorithm, units, window) }
}

/// Chooses other numbers under which a state is kept: the algorithm, the window and the slices stay.
pub fn changed(before: Numbers, choices: &mut Choices) -> Numbers {
    let word = choices.any_below(u64::MAX);
    let mut after = numbers(before.algorithm, word);
    if !before.is_bucket() {
        (after.window, after.slices) = (before.window, before.slices);
        after.units = after.units.min(before.window / 100);
    }
    after
}

/// One step of a history.
pub struct Call {
    /// The instant, in nanoseconds.
    pub now: u64,
    /// The operation.
    pub op: Op,
}

/// A history of one key, with all that makes its next call interesting.
pub struct History {
    /// The numbers of the limit, which may be changed between calls.
    pub numbers: Numbers,
    steps: Steps,
    /// The instant of the last call, in nanoseconds.
    pub now: u64,
    last: Option<Answer>,
    receipts: Vec<u64>,
}

impl History {
    /// Starts a history at an instant that is chosen by `start`.
    pub fn new(numbers: Numbers, steps: Steps, start: u64) -> History {
        let starts = [0, 1, numbers.window * 3 + 7, 1_700_000_000_000_000_000, Time::MAX.as_nanos() - start % 100_000];
        let now = starts[(start % 5) as usize].min(Time::MAX.as_nanos());
        History { numbers, steps, now, last: None, receipts: Vec::new() }
    }

    /// Makes the next call of a random word.
    pub fn call(&mut self, word: u64) -> Call {
        let mut choices = Choices(word);
        let op = self.op(&mut choices);
        self.step(&mut choices);
        Call { now: self.now, op }
    }

    fn op(&mut self, choices: &mut Choices) -> Op {
        let units = self.numbers.units;
        let small = |choices: &mut Choices| 1 + choices.below(units.clamp(1, 7));
        let receipt = |history: &History, choices: &mut Choices| {
            let count = history.receipts.len() as u64;
            match choices.below(8) {
                // There is no receipt from the future of a clock that never went back.
                0 if history.steps == Steps::Forward => Some(Receipt::from_bits(choices.any_below(history.now))),
                0 => Some(Receipt::from_bits(choices.any_below(u64::MAX))),
                1 | 2 => None,
                _ if count == 0 => None,
                _ => Some(Receipt::from_bits(history.receipts[choices.any_below(count) as usize])),
            }
        };
        match choices.below(20) {
            0 => Op::Peek,
            1 => Op::Take(0),
            2 => Op::Take([units, units + 1, units.div_ceil(2), u64::MAX][choices.below(4) as usize]),
            3 => Op::Debit([0, units, 3 * units, u64::MAX][choices.below(4) as usize]),
            4 | 5 => Op::Debit(small(choices)),
            6..=8 => Op::Refund(small(choices), receipt(self, choices)),
            9 => Op::Refund([0, u64::MAX][choices.below(2) as usize], receipt(self, choices)),
            10 if choices.below(3) == 0 => Op::Reset,
            _ => Op::Take(small(choices)),
        }
    }

    fn step(&mut self, choices: &mut Choices) {
        let scale = if self.numbers.is_bucket() { self.numbers.interval() } else { self.numbers.window };
        let forward = match choices.below(10) {
            0..=2 => 0,
            3 => 1 + choices.below(2),
            4 | 5 => choices.any_below(scale),
            6 => (1 + choices.below(4)).saturating_mul(scale),
            7 => match self.last.map(|answer| answer.verdict) {
                Some(Verdict::After(wait)) => wait - choices.below(2),
                _ => 0,
            },
            8 => self.last.map_or(0, |answer| answer.reset_after.saturating_sub(choices.below(2))),
            _ if choices.below(4) == 0 => choices.any_below(50 * YEAR_NANOS),
            _ => self.numbers.slice(),
        };
        let goes_back = self.steps == Steps::AlsoBack && choices.below(4) == 0;
        let back = match choices.below(if goes_back { 5 } else { 1 }) {
            0 => 0,
            1 => 1,
            2 => choices.any_below(scale),
            3 => choices.any_below(5 * scale.min(YEAR_NANOS)),
            _ => choices.any_below(self.now),
        };
        self.now = self.now.saturating_sub(back);
        if back == 0 {
            self.now = self.now.saturating_add(forward).min(Time::MAX.as_nanos());
        }
    }

    /// Notes the answer to the last call, for waits and receipts of later ones.
    pub fn note(&mut self, answer: Answer) {
        self.receipts.extend(answer.receipt);
        self.last = Some(answer);
    }
}

/// The pure function with its state.
pub struct Code {
    /// The limit, which may be changed between calls.
    pub limit: Limit,
    state: State,
}

impl Code {
    /// A key that was never seen.
    pub fn new(numbers: Numbers) -> Code {
        let limit = numbers.limit();
        Code { state: State::fresh(&limit), limit }
    }

    /// Decides an operation at an instant.
    pub fn apply(&mut self, now: u64, op: Op) -> Answer {
        Answer::of(op, &decide(&self.limit, &mut self.state, Time::from_nanos(now), op))
    }

    /// Returns the answer to an operation without changing the state.
    pub fn ask(&self, now: u64, op: Op) -> Answer {
        Answer::of(op, &decide(&self.limit, &mut self.state.clone(), Time::from_nanos(now), op))
    }
}
