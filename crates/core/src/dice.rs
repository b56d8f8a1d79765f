//! Chance that is not left to chance: a small generator that the caller seeds.

/// Numbers that look random and follow from a seed (SplitMix64). Whoever wants other numbers in each process seeds it
/// from the system; a test seeds it with a constant. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dice(u64);

impl Dice {
    /// A generator whose numbers follow from `seed`; every seed will do.
    #[must_use]
    pub const fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// The next number, each of the 2^64 as likely as any other.
    #[inline]
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number as a fraction: at least 0, below 1.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        fraction(self.roll())
    }
}

/// A roll as a fraction: at least 0, below 1. The upper 53 bits are what a float holds exactly.
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
