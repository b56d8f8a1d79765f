//! The keys, and the order in which requests for them arrive.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// Keys in the table of the uniform and the Zipf workload.
pub(crate) const POPULATION: u32 = 1_000_000;

/// Requests handed to the batch call at once.
pub(crate) const BATCH: usize = 16;

/// One seed for all, so that two runs see the same order of requests.
const SEED: u64 = 0x7469_6465;

/// Long enough that a table of a million keys is crossed several times before the order repeats.
const SPREAD_LEN: usize = 1 << 22;

/// Short enough for the first-level cache: a hot key's own bytes are hot too.
const HOT_LEN: usize = 1 << 8;

/// Which keys are asked for, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// One key only.
    Hot,
    /// Each of a million keys as often as any other.
    Uniform,
    /// A million keys, the n-th most frequent with a weight of 1/n.
    Zipf,
}

impl Pattern {
    /// How many distinct keys a limiter must hold for this pattern.
    pub(crate) fn population(self) -> u32 {
        match self {
            Self::Hot => 1,
            Self::Uniform | Self::Zipf => POPULATION,
        }
    }

    fn arrivals(self) -> Vec<u32> {
        let mut random = StdRng::seed_from_u64(SEED);
        match self {
            Self::Hot => vec![0; HOT_LEN],
            Self::Uniform => (0..SPREAD_LEN).map(|_| random.random_range(0..POPULATION)).collect(),
            Self::Zipf => zipf_arrivals(&mut random, SPREAD_LEN),
        }
    }
}

/// Ranks are dealt to keys at random: otherwise the frequent keys, inserted first, would be neighbours on the heap.
fn zipf_arrivals(random: &mut StdRng, count: usize) -> Vec<u32> {
    let mut key_of_rank: Vec<u32> = (0..POPULATION).collect();
    key_of_rank.shuffle(random);
    let zipf = Zipf::new(f64::from(POPULATION), 1.0).expect("a valid population and exponent");
    (0..count)
        .map(|_| {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rank is a whole number from 1 to the population"
            )]
            let rank = zipf.sample(random) as usize;
            key_of_rank[rank - 1]
        })
        .collect()
}

/// One request, with its key in each form that a subject may want.
#[derive(Debug)]
pub(crate) struct Request {
    /// Sixteen bytes.
    pub(crate) name: String,
    /// For limiters keyed by a number.
    pub(crate) id: u64,
}

impl Request {
    pub(crate) fn of(id: u32) -> Self {
        Self { name: key_name(u64::from(id)), id: u64::from(id) }
    }
}

/// The 16-byte string key of a number.
pub(crate) fn key_name(id: u64) -> String {
    format!("user:{id:011}")
}

/// Requests in the order of their arrival, repeated without end.
///
/// Each request owns its key, as in a server that has just parsed it. An index into a shared pool of keys would add
/// two cache misses a request that belong to the driver and not to the limiter.
#[derive(Debug)]
pub(crate) struct Arrivals {
    requests: Vec<Request>,
}

impl Arrivals {
    pub(crate) fn new(pattern: Pattern) -> Self {
        let requests = pattern.arrivals().into_iter().map(Request::of).collect();
        Self { requests }
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// The `count` requests from position `start` on, as contiguous pieces.
    pub(crate) fn pieces(&self, start: usize, count: usize) -> impl Iterator<Item = &[Request]> {
        let mut at = start % self.requests.len();
        let mut left = count;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let piece = &self.requests[at..self.requests.len().min(at + left)];
            left -= piece.len();
            at = 0;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_sixteen_bytes() {
        for id in [0, 9_999_999, 99_999_999_999] {
            assert_eq!(key_name(id).len(), 16);
        }
    }

    #[test]
    fn pieces_wrap_around_and_add_up() {
        let arrivals = Arrivals::new(Pattern::Hot);
        for (start, count, expected) in [
            (0, 0, vec![]),
            (0, 16, vec![16]),
            (HOT_LEN - 16, 32, vec![16, 16]),
            (HOT_LEN * 3 + 16, HOT_LEN, vec![HOT_LEN - 16, 16]),
        ] {
            let lengths: Vec<_> = arrivals.pieces(start, count).map(<[_]>::len).collect();
            assert_eq!(lengths, expected, "start {start}, count {count}");
        }
    }

    #[test]
    fn zipf_favours_one_key_as_the_harmonic_sum_says() {
        let arrivals = zipf_arrivals(&mut StdRng::seed_from_u64(SEED), 400_000);
        let mut counts = vec![0_u32; POPULATION as usize];
        for key in &arrivals {
            counts[*key as usize] += 1;
        }
        let top = f64::from(*counts.iter().max().unwrap()) / arrivals.len() as f64;
        // 1 / H(1,000,000), H being 14.39.
        assert!((0.068..0.071).contains(&top), "{top}");
    }
}
