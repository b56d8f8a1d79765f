//! What a stack is asked and told from outside.

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
    /// What matters least is turned away.
    Shed,
    /// Who asks too often is told so.
    Rate,
    /// Tenants take turns.
    Fair,
    /// The total is held.
    Concurrency,
}

impl Part {
    /// All of them, in the order in which a request passes them.
    pub const ALL: [Part; 4] = [Part::Shed, Part::Rate, Part::Fair, Part::Concurrency];

    /// The name in metrics.
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

/// What a [`StackLayer`](crate::StackLayer) is asked and told from outside. Clones are of the same stack.
#[derive(Clone)]
pub struct StackHandle(Arc<Parts>);

impl StackHandle {
    /// The content type of what [`StackHandle::render`] makes.
    pub const CONTENT_TYPE: &'static str = exposition::CONTENT_TYPE;

    pub(super) fn new(parts: Arc<Parts>) -> StackHandle {
        StackHandle(parts)
    }

    /// The stack's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The switch of a part, if the stack has it: the kill switch and shadow mode.
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

    /// Switches all parts.
    pub fn set_mode(&self, mode: Mode) {
        Part::ALL.into_iter().filter_map(|part| self.switch(part)).for_each(|switch| switch.set_mode(mode));
    }

    /// The handle of the shedder, if there is one.
    #[must_use]
    pub fn shed(&self) -> Option<ShedHandle> {
        self.0.shed.as_ref().map(crate::ShedLayer::handle)
    }

    /// The handle of the turns, if there are any.
    #[must_use]
    pub fn fair(&self) -> Option<FairHandle> {
        self.0.fair.as_ref().map(crate::FairLayer::handle)
    }

    /// The handle of the limit on what is in progress, if there is one.
    #[must_use]
    pub fn concurrency(&self) -> Option<ConcurrencyHandle> {
        self.0.concurrency.as_ref().map(crate::ConcurrencyLayer::handle)
    }

    /// What all parts have done, and how they stand. Numbers are read one after another while requests go on, so that sums
    /// may be off by those under way.
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

    /// [`StackHandle::stats`] as Prometheus reads it (text format 0.0.4). There are at most 36 series, however many
    /// tenants there are.
    #[must_use]
    pub fn render(&self) -> String {
        StackHandle::render_all(std::slice::from_ref(self))
    }

    /// The same for several stacks, which need names of their own.
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

/// What the parts of a stack have done, and how they stand. Parts that a stack does not have are nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackStats {
    /// The shedder.
    pub shed: Option<PartStats>,
    /// The limits on rates.
    pub rate: Option<PartStats>,
    /// The turns among tenants.
    pub fair: Option<PartStats>,
    /// The limit on what is in progress.
    pub concurrency: Option<PartStats>,
    /// How many of each class were shed, or would have been in [`Mode::Shadow`].
    pub shed_by_class: Option<[(Criticality, u64); 4]>,
}

impl StackStats {
    /// The parts that the stack has, in the order in which a request passes them.
    pub fn parts(&self) -> impl Iterator<Item = &PartStats> {
        [&self.shed, &self.rate, &self.fair, &self.concurrency].into_iter().flatten()
    }
}

/// What a part of a stack has done, and how it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartStats {
    /// Which.
    pub part: Part,
    /// Whether it acts.
    pub mode: Mode,
    /// Requests that went on to the next part, or to the service, in any mode.
    pub allowed: u64,
    /// Requests that it refused.
    pub refused: u64,
    /// Requests that went on in [`Mode::Shadow`] and would have been refused, or would have had to wait.
    pub would_refuse: u64,
    /// Requests that are behind it now. Nothing for rates.
    pub in_flight: Option<u64>,
    /// Requests that wait before it now. Nothing where nobody waits.
    pub queued: Option<u64>,
    /// How many may be behind it. For a shedder: besides critical requests. Nothing where no number is fixed.
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
