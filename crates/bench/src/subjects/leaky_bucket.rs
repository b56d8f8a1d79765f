//! leaky-bucket without waiting: `try_acquire` on one bucket, as it has no keys.

use std::hint::black_box;

use leaky_bucket::RateLimiter;

use super::Terms;
use crate::harness::Subject;
use crate::workload::Request;

pub(crate) struct Bucket(RateLimiter);

impl Bucket {
    pub(crate) fn new(terms: Terms) -> Self {
        let burst = terms.burst as usize;
        let mut builder = RateLimiter::builder();
        Self(builder.initial(burst).max(burst).refill(terms.units as usize).interval(terms.period()).build())
    }
}

impl Subject for Bucket {
    fn decide(&self, _: &Request) -> bool {
        black_box(self.0.try_acquire(1))
    }
}
