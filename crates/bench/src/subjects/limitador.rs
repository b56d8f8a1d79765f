//! limitador with its in-memory store.

use std::collections::HashMap;
use std::hint::black_box;

use limitador::RateLimiter;
use limitador::limit::{Context, Limit, Namespace};

use super::{Terms, populated};
use crate::harness::Subject;
use crate::workload::Request;

/// A window that no run outlasts.
const WINDOW_SECS: u64 = 3_600;

const NAMESPACE: &str = "bench";
const VARIABLE: &str = "user";

pub(crate) struct InMemory {
    limiter: RateLimiter,
    namespace: Namespace,
}

impl InMemory {
    pub(crate) fn new(terms: Terms, population: u32) -> Self {
        populated(Self::empty(terms, u64::from(population)), population)
    }

    pub(crate) fn empty(terms: Terms, population: u64) -> Self {
        let variable = VARIABLE.try_into().expect("a variable name parses");
        // Twice the population: the cache behind it would else evict while it fills.
        let limiter = RateLimiter::new(population * 2);
        limiter.add_limit(Limit::new(NAMESPACE, u64::from(terms.burst), WINDOW_SECS, [], [variable]));
        Self { limiter, namespace: NAMESPACE.into() }
    }

    pub(crate) fn check(&self, context: &Context<'_>) -> bool {
        let result = self.limiter.check_rate_limited_and_update(&self.namespace, context, 1);
        black_box(result.is_ok_and(|result| !result.limited))
    }
}

/// The values of one request, as limitador wants them.
pub(crate) fn context(key: &str) -> Context<'static> {
    HashMap::from([(VARIABLE.to_owned(), key.to_owned())]).into()
}

impl Subject for InMemory {
    fn decide(&self, request: &Request) -> bool {
        self.check(&context(&request.name))
    }
}

/// The same with its context built before: what is left when the caller asks for the same key again and again.
pub(crate) struct Prebuilt {
    in_memory: InMemory,
    context: Context<'static>,
}

impl Prebuilt {
    pub(crate) fn new(terms: Terms) -> Self {
        Self { in_memory: InMemory::new(terms, 1), context: context(&Request::of(0).name) }
    }
}

impl Subject for Prebuilt {
    fn decide(&self, _: &Request) -> bool {
        self.in_memory.check(&self.context)
    }
}
