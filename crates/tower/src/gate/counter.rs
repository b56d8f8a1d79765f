//! The permits of a gate, which each permit points to without keeping the gate alive.

use std::sync::{Arc, Mutex, Weak};

use tidegate_core::{PermitCounter, Released};

use super::Gate;
use crate::error::ConfigError;
use crate::lock::lock;
use crate::spare::Spare;

static SPARE: Spare<Counter> = Spare::new();

/// In cache lines of its own.
#[repr(align(128))]
pub(super) struct Counter {
    pub(super) permits: PermitCounter,
    /// It keeps those who wait, and they keep it alive.
    gate: Mutex<Weak<Gate>>,
}

impl Counter {
    /// The counter of a gate that is being made.
    pub(super) fn with_limit(limit: u64) -> Result<&'static Counter, ConfigError> {
        // Checked before one is taken.
        let permits = PermitCounter::new(limit)?;
        let counter = SPARE.take_or(|| Counter { permits, gate: Mutex::default() });
        counter.permits.reopen(limit)?;
        Ok(counter)
    }

    /// The gate has been made.
    pub(super) fn belongs_to(&self, gate: &Arc<Gate>) {
        *lock(&self.gate) = Arc::downgrade(gate);
    }

    /// Gives a place back, which goes to who waits.
    #[inline]
    pub(super) fn release(&'static self) {
        match self.permits.release() {
            Released::Done => {}
            released => self.go_on(released),
        }
    }

    #[cold]
    fn go_on(&'static self, released: Released) {
        match released {
            Released::Done => {}
            Released::Waited => {
                let gate = lock(&self.gate).upgrade();
                // If it is gone, so are those who waited. The counter may be another gate's by now: to serve that does no harm.
                if let Some(gate) = gate {
                    gate.serve();
                }
            }
            Released::Last => SPARE.put(self),
        }
    }

    /// The gate is gone.
    pub(super) fn close(&'static self) {
        // Else what is spare would keep the memory of its last gate.
        *lock(&self.gate) = Weak::new();
        if self.permits.close() {
            SPARE.put(self);
        }
    }
}
