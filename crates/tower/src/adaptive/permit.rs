//! A place under an adaptive limit, and what is learnt from it.

use std::fmt;
use std::sync::Arc;

use tidegate_core::Time;
use tidegate_core::adaptive::Sample;

use super::{Judge, Lesson, Shared};
use crate::gate::GatePermit;
use crate::runtime_clock::between;
use crate::stopwatch::Stopwatch;

/// A place under an adaptive limit. It is given back when this is dropped. How the work went is told by
/// [`AdaptivePermit::end`]; if it is only dropped, nothing is learnt from it.
#[must_use = "a permit that is dropped at once holds nothing"]
pub struct AdaptivePermit {
    held: Held,
    clock: Stopwatch,
    started: Time,
    in_flight: u64,
}

/// What is given back in the end, and what learns from it.
enum Held {
    /// A place of a gate, which learns by itself: so nothing is owned, as `spare.rs` says.
    Place(GatePermit),
    /// The same where the user judges.
    Judged { place: GatePermit, shared: Arc<Shared> },
    /// A place of a partition.
    Part(PartPermit),
    /// It was let in without being counted in any.
    Uncounted(Arc<Shared>),
}

/// A place of a partition. It is given back when this is dropped.
struct PartPermit {
    shared: Arc<Shared>,
    part: Option<usize>,
}

impl Drop for PartPermit {
    fn drop(&mut self) {
        self.shared.release(self.part);
    }
}

impl AdaptivePermit {
    /// For a place of the layer's only gate, and how many were in when it was taken.
    #[inline]
    pub(super) fn at_gate(shared: &Arc<Shared>, started: Time, place: GatePermit, in_flight: u64) -> AdaptivePermit {
        let held = match &shared.judge {
            None => Held::Place(place),
            Some(_) => Held::Judged { place, shared: Arc::clone(shared) },
        };
        AdaptivePermit { held, clock: shared.clock, started, in_flight }
    }

    /// For a place of a partition, which has no other guard.
    pub(super) fn of_part(shared: &Arc<Shared>, part: Option<usize>, in_flight: u64) -> AdaptivePermit {
        AdaptivePermit::new(shared, Held::Part(PartPermit { shared: Arc::clone(shared), part }), in_flight)
    }

    /// For one that has no place.
    pub(super) fn uncounted(shared: &Arc<Shared>, in_flight: u64) -> AdaptivePermit {
        AdaptivePermit::new(shared, Held::Uncounted(Arc::clone(shared)), in_flight)
    }

    fn new(shared: &Shared, held: Held, in_flight: u64) -> AdaptivePermit {
        AdaptivePermit { held, clock: shared.clock, started: shared.clock.now(), in_flight }
    }

    /// Tells how the work went, and gives the place back.
    pub fn end(self, lesson: Lesson) {
        self.learn(lesson);
    }

    /// How the user judges it.
    #[inline]
    pub(super) fn judge(&self) -> Option<&Judge> {
        match &self.held {
            Held::Place(_) => None,
            Held::Judged { shared, .. } | Held::Part(PartPermit { shared, .. }) | Held::Uncounted(shared) => {
                shared.judge.as_ref()
            }
        }
    }

    #[inline]
    pub(super) fn learn(&self, lesson: Lesson) {
        if lesson == Lesson::Ignored {
            return;
        }
        let now = self.clock.now();
        let rtt = between(self.started, now);
        let sample = Sample { rtt, in_flight: self.in_flight, dropped: lesson == Lesson::Dropped };
        match &self.held {
            Held::Place(place) | Held::Judged { place, .. } => place.learn(now, sample),
            Held::Part(PartPermit { shared, .. }) | Held::Uncounted(shared) => shared.learn(now, sample),
        }
    }
}

impl fmt::Debug for AdaptivePermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AdaptivePermit").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}
