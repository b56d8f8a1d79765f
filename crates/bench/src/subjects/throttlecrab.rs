//! throttlecrab with its periodic store.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use throttlecrab::{PeriodicStore, RateLimiter};

use super::{Terms, populated};
use crate::harness::Subject;
use crate::workload::Request;

/// The limiter and the limit that every call names anew.
pub(crate) struct Throttle {
    limiter: RateLimiter<PeriodicStore>,
    terms: Terms,
}

impl Throttle {
    pub(crate) fn new(terms: Terms, population: u32) -> Self {
        let store = PeriodicStore::with_capacity(population as usize);
        Self { limiter: RateLimiter::new(store), terms }
    }

    #[inline]
    pub(crate) fn check(&mut self, key: &str) -> bool {
        let Terms { burst, units, period_secs } = self.terms;
        let now = SystemTime::now();
        let answer = self.limiter.rate_limit(key, burst.into(), units.into(), period_secs.into(), 1, now);
        black_box(answer.is_ok_and(|(allowed, _)| allowed))
    }
}

/// One owner, no lock in the loop: what a single thread would do.
pub(crate) struct Owned(Mutex<Throttle>);

impl Owned {
    pub(crate) fn new(terms: Terms, population: u32) -> Self {
        populated(Self(Mutex::new(Throttle::new(terms, population))), population)
    }
}

impl Subject for Owned {
    fn decide(&self, request: &Request) -> bool {
        self.decide_all(std::slice::from_ref(request)) == 1
    }

    fn decide_all(&self, requests: &[Request]) -> usize {
        // Locked once for hundreds of requests or more, only because a subject is shared by reference.
        let mut throttle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        requests.iter().filter(|request| throttle.check(&request.name)).count()
    }
}

/// Behind a lock, as its calls take `&mut self`.
pub(crate) struct Locked(Mutex<Throttle>);

impl Locked {
    pub(crate) fn new(terms: Terms, population: u32) -> Self {
        populated(Self(Mutex::new(Throttle::new(terms, population))), population)
    }
}

impl Subject for Locked {
    fn decide(&self, request: &Request) -> bool {
        let mut throttle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        throttle.check(&request.name)
    }
}
