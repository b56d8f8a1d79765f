//! The mode of a layer and its counts: the kill switch and shadow mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tidegate_core::shed::{Judgement, Mode};

/// Sets the mode of a layer at any time, and counts its refusals. Clones belong to the same layer.
///
/// In [`Mode::Shadow`] a layer refuses nothing and delays nothing; it counts the requests that it would have refused.
#[derive(Clone, Debug)]
pub struct Switch(Arc<State>);

#[derive(Debug, Default)]
struct State {
    mode: AtomicU8,
    refused: AtomicU64,
    would_refuse: AtomicU64,
}

impl Switch {
    /// The switch of a new layer.
    pub(crate) fn in_mode(mode: Mode) -> Switch {
        let switch = Switch(Arc::default());
        switch.set_mode(mode);
        switch
    }

    /// Returns the current mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.0.mode.load(Ordering::Relaxed) {
            0 => Mode::Enforce,
            1 => Mode::Shadow,
            _ => Mode::Off,
        }
    }

    /// Sets the mode, from the next request on. Requests in the queue go on waiting, and the mode at the end of their
    /// wait decides: a layer that no longer enforces refuses none of them.
    pub fn set_mode(&self, mode: Mode) {
        let number = match mode {
            Mode::Enforce => 0,
            Mode::Shadow => 1,
            Mode::Off => 2,
        };
        self.0.mode.store(number, Ordering::Relaxed);
    }

    /// Returns the number of requests that were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that passed in [`Mode::Shadow`] and would have been refused or queued.
    #[must_use]
    pub fn would_refuse(&self) -> u64 {
        self.0.would_refuse.load(Ordering::Relaxed)
    }

    /// Whether a request goes on that has waited in vain, since the mode may have changed meanwhile. Counts it if so.
    pub(crate) fn lets_late_in(&self) -> bool {
        let judgement = self.mode().judge(|| true);
        let passes = judgement != Judgement::Shed;
        if passes {
            self.count(judgement);
        }
        passes
    }

    pub(crate) fn count(&self, judgement: Judgement) {
        match judgement {
            Judgement::Pass => {}
            Judgement::WouldShed => drop(self.0.would_refuse.fetch_add(1, Ordering::Relaxed)),
            Judgement::Shed => drop(self.0.refused.fetch_add(1, Ordering::Relaxed)),
        }
    }
}
