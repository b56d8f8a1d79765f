//! The handle of a stack.

use std::fmt;
use std::sync::Arc;

use tidegate_core::shed::{Criticality, Mode};
use tidegate_engine::exposition;

use super::{Parts, metrics};
use crate::{ConcurrencyHandle, FairHandle, ShedHandle, Switch};

/// A part of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// Sheds the least important requests under load.
    Shed,
    /// Limits the rate.
    Rate,
    /// Queues the requests of tenants in turn.
    Fair,
    /// Limits the requests in progress.
    Concurrency,
}

impl Part {
    /// All parts, in the order in which a request passes them.
    pub const ALL: [Part; 4] = [Part::Shed, Part::Rate, Part::Fair, Part::Concurrency];

    /// Returns the name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Part::Shed => "shed",
            Part::Rate => "rate",
            Part::Fair => "fair",
            Part::Concurrency => "concurrency",
        }
    }
}

/// Metrics and switches of a [`StackLayer`](crate::StackLayer). Clones belong to the same stack.
#[derive(Clone)]
pub struct StackHandle(Arc<Parts>);

impl StackHandle {
    /// The content type of [`StackHandle::render`].
    pub const CONTENT_TYPE: &'static str = exposition::CONTENT_TYPE;

    pub(super) fn new(parts: Arc<Parts>) -> StackHandle {
        StackHandle(parts)
    }

    /// Returns the stack's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the switch of a part, if the stack has it: the kill switch and shadow mode.
    ///
    /// ```
    /// use tidegate_tower::{Mode, Part, StackLayer};
    ///
    /// let stack = StackLayer::builder(100).build()?;
    /// if let Some(switch) = stack.handle().switch(Part::Concurrency) {
    ///     switch.set_mode(Mode::Shadow);
    /// }
    /// # Ok::<(), tidegate_tower::ConfigError>(())
    /// ```
    #[must_use]
    pub fn switch(&self, part: Part) -> Option<Switch> {
        match part {
            Part::Shed => self.shed().map(|shed| shed.switch().clone()),
            Part::Rate => self.0.rate.as_ref().map(|rate| rate.switch().clone()),
            Part::Fair => self.fair().map(|fair| fair.switch().clone()),
            Part::Concurrency => self.concurrency().map(|concurrency| concurrency.switch().clone()),
        }
    }

    /// Sets the mode of all parts.
    pub fn set_mode(&self, mode: Mode) {
        Part::ALL.into_iter().filter_map(|part| self.switch(part)).for_each(|switch| switch.set_mode(mode));
    }

    /// Returns the handle of the shedder, if there is one.
    #[must_use]
    pub fn shed(&self) -> Option<ShedHandle> {
        self.0.shed.as_ref().map(crate::ShedLayer::handle)
    }

    /// Returns the handle of the fair queues, if there are any.
    #[must_use]
    pub fn fair(&self) -> Option<FairHandle> {
        self.0.fair.as_ref().map(crate::FairLayer::handle)
    }

    /// Returns the handle of the concurrency limit, if there is one.
    #[must_use]
    pub fn concurrency(&self) -> Option<ConcurrencyHandle> {
        self.0.concurrency.as_ref().map(crate::ConcurrencyLayer::handle)
    }

    /// Returns the counts and the current state of all parts. The numbers are read one after another while requests go
    /// on, so sums may be off by the requests under way.
    #[must_use]
    pub fn stats(&self) -> StackStats {
        let parts = &*self.0;
        let allowed = |part| parts.counts.allowed(part);
        StackStats {
            shed: self.shed().map(|shed| PartStats {
                in_flight: Some(shed.in_flight()),
                limit: shed.room(),
                ..PartStats::new(Part::Shed, shed.switch(), allowed(Part::Shed))
            }),
            rate: parts.rate.as_ref().map(|rate| PartStats::new(Part::Rate, rate.switch(), allowed(Part::Rate))),
            fair: self.fair().map(|fair| PartStats {
                in_flight: Some(fair.in_flight()),
                queued: Some(fair.waiting() as u64),
                limit: Some(fair.limit()),
                ..PartStats::new(Part::Fair, fair.switch(), allowed(Part::Fair))
            }),
            concurrency: self.concurrency().map(|held| PartStats {
                in_flight: Some(held.in_flight()),
                queued: Some(held.waiting() as u64),
                limit: Some(held.limit()),
                ..PartStats::new(Part::Concurrency, held.switch(), allowed(Part::Concurrency))
            }),
            shed_by_class: self.shed().map(|shed| Criticality::ALL.map(|class| (class, shed.shed(class)))),
        }
    }

    /// Renders [`StackHandle::stats`] for Prometheus (text format 0.0.4), in at most 36 series, however many tenants
    /// there are.
    #[must_use]
    pub fn render(&self) -> String {
        StackHandle::render_all(std::slice::from_ref(self))
    }

    /// Renders the metrics of several stacks, which need different names, for Prometheus.
    #[must_use]
    pub fn render_all(stacks: &[StackHandle]) -> String {
        let stacks: Vec<_> = stacks.iter().map(|stack| (stack.name(), stack.stats())).collect();
        metrics::page(&stacks)
    }
}

impl fmt::Debug for StackHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StackHandle").field("name", &self.name()).field("stats", &self.stats()).finish()
    }
}

/// The counts and the current state of a stack's parts; `None` for parts that the stack does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackStats {
    /// The shedder.
    pub shed: Option<PartStats>,
    /// The rate limit.
    pub rate: Option<PartStats>,
    /// The fair queues.
    pub fair: Option<PartStats>,
    /// The concurrency limit.
    pub concurrency: Option<PartStats>,
    /// Requests of each class that were shed, or would have been in [`Mode::Shadow`].
    pub shed_by_class: Option<[(Criticality, u64); 4]>,
}

impl StackStats {
    /// Returns the parts that the stack has, in the order in which a request passes them.
    pub fn parts(&self) -> impl Iterator<Item = &PartStats> {
        [&self.shed, &self.rate, &self.fair, &self.concurrency].into_iter().flatten()
    }
}

/// The counts and the current state of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartStats {
    /// The part.
    pub part: Part,
    /// The mode.
    pub mode: Mode,
    /// Requests that went on to the next part, or to the service, in any mode.
    pub allowed: u64,
    /// Requests that the part refused.
    pub refused: u64,
    /// Requests that passed in [`Mode::Shadow`] and would have been refused or queued.
    pub would_refuse: u64,
    /// Requests behind the part now; `None` for the rate limit.
    pub in_flight: Option<u64>,
    /// Requests in the part's queue now; `None` if it has none.
    pub queued: Option<u64>,
    /// The most requests behind the part, for a shedder besides critical ones; `None` if there is no fixed number.
    pub limit: Option<u64>,
}

impl PartStats {
    fn new(part: Part, switch: &Switch, allowed: u64) -> PartStats {
        PartStats {
            part,
            mode: switch.mode(),
            allowed,
            refused: switch.refused(),
            would_refuse: switch.would_refuse(),
            in_flight: None,
            queued: None,
            limit: None,
        }
    }
}
