//! Whether a layer acts, and what it has done: the kill switch and shadow mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tidegate_core::shed::{Judgement, Mode};

/// Tells a layer, at any moment, whether to act, only to watch, or to stay out of the way, and tells what it has done.
/// Clones are of the same layer.
///
/// In [`Mode::Shadow`] a layer refuses nothing and delays nothing: it counts what it would have refused.
#[derive(Clone, Debug)]
pub struct Switch(Arc<State>);

#[derive(Debug, Default)]
struct State {
    mode: AtomicU8,
    refused: AtomicU64,
    would_refuse: AtomicU64,
}

impl Switch {
    /// The switch of a layer that has done nothing yet.
    pub(crate) fn in_mode(mode: Mode) -> Switch {
        let switch = Switch(Arc::default());
        switch.set_mode(mode);
        switch
    }

    /// What the layer does now.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.0.mode.load(Ordering::Relaxed) {
            0 => Mode::Enforce,
            1 => Mode::Shadow,
            _ => Mode::Off,
        }
    }

    /// Changes what the layer does, from the next request on. Who waits goes on waiting, and at the end of that is judged
    /// by the mode of then: a layer that does not act any more refuses nobody.
    pub fn set_mode(&self, mode: Mode) {
        let number = match mode {
            Mode::Enforce => 0,
            Mode::Shadow => 1,
            Mode::Off => 2,
        };
        self.0.mode.store(number, Ordering::Relaxed);
    }

    /// Requests that were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Requests that passed in [`Mode::Shadow`] and would have been refused, or would have had to wait.
    #[must_use]
    pub fn would_refuse(&self) -> u64 {
        self.0.would_refuse.load(Ordering::Relaxed)
    }

    /// Whether somebody goes on who has waited in vain: the switch may have been turned meanwhile. Who does is counted.
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
