//! Permits of an adaptive limit, and what the limit learns from them.

use std::fmt;
use std::sync::Arc;

use tidegate_core::Time;
use tidegate_core::adaptive::Sample;

use super::{Judge, Lesson, Shared};
use crate::gate::GatePermit;
use crate::runtime_clock::between;
use crate::stopwatch::Stopwatch;

/// A permit of an adaptive limit. Dropping it frees the slot and teaches the limit nothing; [`AdaptivePermit::end`]
/// also reports how the work went.
#[must_use = "a permit that is dropped at once holds nothing"]
pub struct AdaptivePermit {
    held: Held,
    clock: Stopwatch,
    started: Time,
    in_flight: u64,
}

/// The slot that is released in the end, and its learner.
enum Held {
    /// A slot of a gate, which learns itself: so nothing is owned, as `spare.rs` explains.
    Place(GatePermit),
    /// A slot of a gate, judged by the user's closure.
    Judged { place: GatePermit, shared: Arc<Shared> },
    /// A slot of a partition.
    Part(PartPermit),
    /// The request was let in without being counted.
    Uncounted(Arc<Shared>),
}

/// A slot of a partition. Dropping it frees the slot.
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
    /// A permit at the layer's only gate, with the number in progress when it was taken.
    #[inline]
    pub(super) fn at_gate(shared: &Arc<Shared>, started: Time, place: GatePermit, in_flight: u64) -> AdaptivePermit {
        let held = match &shared.judge {
            None => Held::Place(place),
            Some(_) => Held::Judged { place, shared: Arc::clone(shared) },
        };
        AdaptivePermit { held, clock: shared.clock, started, in_flight }
    }

    /// A permit of a partition, which has no other guard.
    pub(super) fn of_part(shared: &Arc<Shared>, part: Option<usize>, in_flight: u64) -> AdaptivePermit {
        AdaptivePermit::new(shared, Held::Part(PartPermit { shared: Arc::clone(shared), part }), in_flight)
    }

    /// A permit that holds no slot.
    pub(super) fn uncounted(shared: &Arc<Shared>, in_flight: u64) -> AdaptivePermit {
        AdaptivePermit::new(shared, Held::Uncounted(Arc::clone(shared)), in_flight)
    }

    fn new(shared: &Shared, held: Held, in_flight: u64) -> AdaptivePermit {
        AdaptivePermit { held, clock: shared.clock, started: shared.clock.now(), in_flight }
    }

    /// Reports how the work went, and frees the slot.
    pub fn end(self, lesson: Lesson) {
        self.learn(lesson);
    }

    /// The user's judgement.
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
