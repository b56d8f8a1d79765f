//! governor, keyed by String, keyed by u64, and without a key.

use std::hint::black_box;
use std::num::NonZeroU32;

use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::{Terms, populated};
use crate::harness::Subject;
use crate::workload::Request;

pub(crate) fn quota(terms: Terms) -> Quota {
    let burst = NonZeroU32::new(terms.burst).expect("a burst of at least one");
    Quota::with_period(terms.period() / terms.units).expect("a rate of at least one unit").allow_burst(burst)
}

/// The baseline of all ratios.
pub(crate) struct ByString(DefaultKeyedRateLimiter<String>);

impl ByString {
    pub(crate) fn new(terms: Terms, population: u32) -> Self {
        populated(Self(RateLimiter::keyed(quota(terms))), population)
    }
}

impl Subject for ByString {
    fn decide(&self, request: &Request) -> bool {
        black_box(self.0.check_key(&request.name).is_ok())
    }
}

pub(crate) struct ByNumber(DefaultKeyedRateLimiter<u64>);

impl ByNumber {
    pub(crate) fn new(terms: Terms, population: u32) -> Self {
        populated(Self(RateLimiter::keyed(quota(terms))), population)
    }
}

impl Subject for ByNumber {
    fn decide(&self, request: &Request) -> bool {
        black_box(self.0.check_key(&request.id).is_ok())
    }
}

pub(crate) struct Direct(DefaultDirectRateLimiter);

impl Direct {
    pub(crate) fn new(terms: Terms) -> Self {
        Self(RateLimiter::direct(quota(terms)))
    }
}

impl Subject for Direct {
    fn decide(&self, _: &Request) -> bool {
        black_box(self.0.check().is_ok())
    }
}
