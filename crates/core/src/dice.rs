//! A small random number generator that the caller seeds.

/// Pseudo-random numbers from a seed (SplitMix64). Seed it from the system for different numbers in each process, or
/// with a constant in tests. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dice(u64);

impl Dice {
    /// Creates a generator with any seed.
    #[must_use]
    pub const fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Returns the next number; all 2^64 values are equally likely.
    #[inline]
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the next number as a fraction: at least 0, below 1.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        fraction(self.roll())
    }
}

/// Converts a roll into a fraction: at least 0, below 1. A float holds exactly the upper 53 bits.
#[inline]
pub(crate) fn fraction(roll: u64) -> f64 {
    (roll >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The first outputs for the seed 1234567, as published with the generator.
        let mut dice = Dice::new(1_234_567);
        assert_eq!(dice.roll(), 6_457_827_717_110_365_317);
        assert_eq!(dice.roll(), 3_203_168_211_198_807_973);
        assert_eq!(dice.roll(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn fractions_stay_below_one() {
        assert_eq!(fraction(0), 0.0);
        assert!(fraction(u64::MAX) < 1.0);
        assert_eq!(fraction(1 << 63), 0.5);
    }
}
