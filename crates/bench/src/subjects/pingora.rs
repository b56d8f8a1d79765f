//! pingora-limits: a sketch of fixed size that counts, and overcounts when keys collide.

use std::hint::black_box;

use pingora_limits::rate::Rate;

use super::Terms;
use crate::harness::Subject;
use crate::workload::Request;

pub(crate) struct Observe {
    rate: Rate,
    /// The crate only counts; the comparison is the user's.
    limit: isize,
}

impl Observe {
    pub(crate) fn new(terms: Terms) -> Self {
        Self { rate: Rate::new(terms.period()), limit: terms.burst as isize }
    }
}

impl Subject for Observe {
    fn decide(&self, request: &Request) -> bool {
        black_box(self.rate.observe(&request.name, 1) <= self.limit)
    }
}
