//! A layer of a stack: it may be missing, and it counts who came and who went on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ended::Ended;
use crate::guard::{Blind, Doorkeeper, Entered};
use crate::head::Head;
use crate::refusal::Refusal;

/// A layer of a stack. Without one, all pass.
pub struct Counted<D>(Arc<Inner<D>>);

struct Inner<D> {
    layer: Option<D>,
    counts: Counts,
}

/// Each request makes one of the first two grow, and none ever shrinks: sums of them are counters as well.
#[derive(Default)]
struct Counts {
    let_in_at_once: AtomicU64,
    kept_out: AtomicU64,
    let_in_late: AtomicU64,
}

impl<D> Counted<D> {
    pub(super) fn new(layer: Option<D>) -> Counted<D> {
        Counted(Arc::new(Inner { layer, counts: Counts::default() }))
    }

    pub(super) fn layer(&self) -> Option<&D> {
        self.0.layer.as_ref()
    }

    /// Who came this far, which is whom the layer before let go on. Where a closure panicked, nobody came.
    pub(super) fn came(&self) -> u64 {
        let counts = &self.0.counts;
        counts.let_in_at_once.load(Ordering::Relaxed) + counts.kept_out.load(Ordering::Relaxed)
    }

    /// Who went on, in any mode.
    pub(super) fn allowed(&self) -> u64 {
        let counts = &self.0.counts;
        counts.let_in_at_once.load(Ordering::Relaxed) + counts.let_in_late.load(Ordering::Relaxed)
    }
}

impl<D: Doorkeeper> Counted<D> {
    #[inline]
    fn count(&self, entered: Entered<D::Permit, D::Wait>) -> Entered<D::Permit, D::Wait> {
        let Counts { let_in_at_once, kept_out, .. } = &self.0.counts;
        let count = if matches!(entered, Entered::Out(_)) { kept_out } else { let_in_at_once };
        count.fetch_add(1, Ordering::Relaxed);
        entered
    }
}

impl<D: Doorkeeper> Doorkeeper for Counted<D> {
    type Permit = D::Permit;
    type Wait = D::Wait;

    #[inline]
    fn enter(&self, head: Head<'_>) -> Entered<D::Permit, D::Wait> {
        self.count(self.0.layer.as_ref().map_or(Entered::Uncounted, |layer| layer.enter(head)))
    }

    fn waited(&self, told: <D::Wait as Future>::Output) -> Result<Option<D::Permit>, Refusal> {
        // Where there is no layer nobody waits.
        let permit = self.0.layer.as_ref().map_or(Ok(None), |layer| layer.waited(told))?;
        self.0.counts.let_in_late.fetch_add(1, Ordering::Relaxed);
        Ok(permit)
    }

    const LEARNS: bool = D::LEARNS;

    fn answered(permit: &D::Permit, end: Ended<'_>) {
        D::answered(permit, end);
    }
}

impl<D: Blind> Blind for Counted<D> {
    #[inline]
    fn enter_unseen(&self) -> Entered<D::Permit, D::Wait> {
        self.count(self.0.layer.as_ref().map_or(Entered::Uncounted, |layer| layer.enter_unseen()))
    }
}

impl<D> Clone for Counted<D> {
    fn clone(&self) -> Counted<D> {
        Counted(Arc::clone(&self.0))
    }
}

impl<D: fmt::Debug> fmt::Debug for Counted<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Counted");
        shown.field("layer", &self.0.layer).field("came", &self.came()).field("allowed", &self.allowed()).finish()
    }
}
