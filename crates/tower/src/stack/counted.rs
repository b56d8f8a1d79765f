//! A layer of a stack: it may be missing, and it counts who came and who went on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ended::Ended;
use crate::guard::{Doorkeeper, Entered};
use crate::head::Head;
use crate::refusal::Refusal;

/// A layer of a stack. Without one, all pass.
pub struct Counted<D>(Arc<Inner<D>>);

struct Inner<D> {
    layer: Option<D>,
    came: AtomicU64,
    allowed: AtomicU64,
}

impl<D> Counted<D> {
    pub(super) fn new(layer: Option<D>) -> Counted<D> {
        Counted(Arc::new(Inner { layer, came: AtomicU64::new(0), allowed: AtomicU64::new(0) }))
    }

    pub(super) fn layer(&self) -> Option<&D> {
        self.0.layer.as_ref()
    }

    /// Who came this far, which is whom the layer before let go on.
    pub(super) fn came(&self) -> u64 {
        self.0.came.load(Ordering::Relaxed)
    }

    /// Who went on, in any mode.
    pub(super) fn allowed(&self) -> u64 {
        self.0.allowed.load(Ordering::Relaxed)
    }

    fn allow<P>(&self, permit: Option<P>) -> Option<P> {
        self.0.allowed.fetch_add(1, Ordering::Relaxed);
        permit
    }
}

impl<D: Doorkeeper> Doorkeeper for Counted<D> {
    type Permit = Option<D::Permit>;
    type Wait = D::Wait;

    #[inline]
    fn enter(&self, head: Head<'_>) -> Entered<Option<D::Permit>, D::Wait> {
        self.0.came.fetch_add(1, Ordering::Relaxed);
        let Some(layer) = &self.0.layer else { return Entered::In(self.allow(None)) };
        match layer.enter(head) {
            Entered::In(permit) => Entered::In(self.allow(Some(permit))),
            Entered::Out(out) => Entered::Out(out),
        }
    }

    fn waited(&self, told: <D::Wait as Future>::Output) -> Result<Option<D::Permit>, Refusal> {
        // Where there is no layer nobody waits.
        let permit = self.0.layer.as_ref().map(|layer| layer.waited(told)).transpose()?;
        Ok(self.allow(permit))
    }

    fn answered(permit: &mut Option<D::Permit>, end: Ended<'_>) {
        if let Some(permit) = permit {
            D::answered(permit, end);
        }
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
