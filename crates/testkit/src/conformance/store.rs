//! Any store as a subject of the suite.

use tidegate_core::{Charge, Clock, Decisions, FakeClock, Time};
use tidegate_stores::{Call, Store};
use tokio::runtime::{Builder, Runtime};

use super::Subject;

/// A store on a clock that the suite sets, created anew for each restart.
pub struct Stored<S, M> {
    make: M,
    clock: FakeClock,
    store: S,
    runtime: Runtime,
}

impl<S: Store, M: Fn(Clock) -> S> Stored<S, M> {
    /// Creates a subject from a store that `make` creates on a clock.
    ///
    /// # Panics
    /// Panics if there can be no runtime.
    pub fn new(make: M) -> Stored<S, M> {
        let clock = FakeClock::new();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Stored { store: make(clock.clone().into()), make, clock, runtime }
    }
}

impl<S: Store, M: Fn(Clock) -> S> Subject for Stored<S, M> {
    fn restart(&mut self) {
        self.clock = FakeClock::new();
        self.store = (self.make)(self.clock.clone().into());
    }

    fn charge(&mut self, now: Time, charges: &[Charge<'_>]) -> Decisions {
        self.clock.set(now);
        self.runtime.block_on(self.store.charge(&Call::default(), charges)).unwrap()
    }
}

/// Checks a store that `make` creates on a clock of the suite.
///
/// # Panics
/// Panics if any decision differs from the expected one.
pub fn check<S: Store>(make: impl Fn(Clock) -> S, cases: u32) {
    super::check(&mut Stored::new(make), cases);
}
