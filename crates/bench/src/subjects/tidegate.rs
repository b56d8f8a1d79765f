//! Tidegate: one key at a time, in batches, and without a key.

use std::array;
use std::hint::black_box;
use std::time::Duration;

use tidegate::{DirectLimiter, Key, Limit, Limiter, Rate};

use super::{Terms, populated};
use crate::harness::Subject;
use crate::workload::{BATCH, Request};

/// Longer than any run, so that all windows of a memory measurement stay live.
const WINDOW: Duration = Duration::from_secs(365 * 86_400);

pub(crate) fn gcra(terms: Terms) -> Limit {
    let rate = Rate::new(u64::from(terms.units), terms.period()).expect("a rate within bounds");
    Limit::gcra(rate, u64::from(terms.burst)).expect("a burst within bounds")
}

pub(crate) fn fixed_window(terms: Terms) -> Limit {
    Limit::fixed_window(u64::from(terms.burst), WINDOW).expect("a window within bounds")
}

pub(crate) fn sliding_counter(terms: Terms) -> Limit {
    Limit::sliding_counter(u64::from(terms.burst), WINDOW).expect("a window within bounds")
}

pub(crate) fn limiter(limit: Limit, capacity: u32) -> Limiter {
    Limiter::builder(limit).keys(capacity as usize).build().expect("enough memory")
}

/// Checking the key's length is part of a decision, as it is for a user.
#[inline]
fn key(name: &str) -> Key<'_> {
    Key::new(name).expect("sixteen bytes are a key")
}

#[inline]
pub(crate) fn check(limiter: &Limiter, name: &str) -> bool {
    black_box(limiter.check(key(name)).is_allowed())
}

pub(crate) struct Keyed(Limiter);

impl Keyed {
    pub(crate) fn new(terms: Terms, population: u32) -> Self {
        populated(Self(limiter(gcra(terms), population)), population)
    }
}

impl Subject for Keyed {
    fn decide(&self, request: &Request) -> bool {
        check(&self.0, &request.name)
    }
}

pub(crate) struct Batch(Limiter);

impl Batch {
    pub(crate) fn new(terms: Terms, population: u32) -> Self {
        populated(Self(limiter(gcra(terms), population)), population)
    }
}

impl Subject for Batch {
    fn decide(&self, request: &Request) -> bool {
        check(&self.0, &request.name)
    }

    fn decide_all(&self, requests: &[Request]) -> usize {
        let mut decisions = Vec::with_capacity(BATCH);
        let (batches, rest) = requests.as_chunks::<BATCH>();
        assert!(rest.is_empty(), "the harness hands out whole batches");
        batches
            .iter()
            .map(|batch| {
                let keys: [Key<'_>; BATCH] = array::from_fn(|at| key(&batch[at].name));
                decisions.clear();
                self.0.check_batch(&keys, &mut decisions);
                black_box(&decisions).iter().filter(|decision| decision.is_allowed()).count()
            })
            .sum()
    }
}

pub(crate) struct Direct(DirectLimiter);

impl Direct {
    pub(crate) fn new(terms: Terms) -> Self {
        Self(DirectLimiter::new(gcra(terms)).expect("enough memory"))
    }
}

impl Subject for Direct {
    fn decide(&self, _: &Request) -> bool {
        black_box(self.0.check().is_allowed())
    }
}
