//! Exact fractions with a common denominator.

use std::ops::{Add, Sub};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    pub(crate) numerator: i128,
    pub(crate) denominator: i128,
}

impl Ratio {
    pub(crate) fn new(numerator: impl Into<i128>, denominator: impl Into<i128>) -> Ratio {
        Ratio { numerator: numerator.into(), denominator: denominator.into() }
    }

    /// A whole number, beside fractions of this denominator.
    pub(crate) fn whole(self, number: impl Into<i128>) -> Ratio {
        Ratio { numerator: number.into() * self.denominator, ..self }
    }

    pub(crate) fn floor(self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }

    pub(crate) fn min(self, other: Ratio) -> Ratio {
        if other < self { other } else { self }
    }

    pub(crate) fn max(self, other: Ratio) -> Ratio {
        if other > self { other } else { self }
    }

    fn aligned(self, other: Ratio) -> (i128, i128) {
        assert_eq!(self.denominator, other.denominator, "the fractions of one bucket share a denominator");
        (self.numerator, other.numerator)
    }
}

impl Add for Ratio {
    type Output = Ratio;

    fn add(self, other: Ratio) -> Ratio {
        let (one, another) = self.aligned(other);
        Ratio { numerator: one + another, ..self }
    }
}

impl Sub for Ratio {
    type Output = Ratio;

    fn sub(self, other: Ratio) -> Ratio {
        let (one, another) = self.aligned(other);
        Ratio { numerator: one - another, ..self }
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Ratio) -> bool {
        let (one, another) = self.aligned(*other);
        one == another
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Ratio) -> Option<std::cmp::Ordering> {
        let (one, another) = self.aligned(*other);
        one.partial_cmp(&another)
    }
}
