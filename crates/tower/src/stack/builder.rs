//! How a stack is set up, and what holds if nothing is said.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::bounds::FLEET_MAX;
use tidegate_core::fair::FairConfig;
use tidegate_core::shed::{Criticality, Mode};

use super::door::Counts;
use super::{Parts, StackLayer};
use crate::bounds::{
    DEADLINE_DEFAULT, QUEUE_DEPTH_MAX, RETRY_AFTER_DEFAULT, STACK_RESERVED_SHARE, STACK_WAITING_PER_PLACE, WAIT_MAX,
};
use crate::error::{check_count, check_limit, check_name, check_time};
use crate::{
    ConcurrencyLayer, ConfigError, FairBuilder, FairLayer, Head, Queue, RateLimitLayer, ShedBuilder, ShedLayer, Tenant,
};

/// Sets a [`StackLayer`] up.
#[must_use = "a builder does nothing until `build`"]
pub struct StackBuilder {
    limit: u64,
    name: Box<str>,
    shed: Option<Shed>,
    rate: Option<RateLimitLayer>,
    fair: Option<Fair>,
    concurrency: Concurrency,
    queue: Option<FairConfig>,
    deadline: Duration,
    retry_after: Duration,
    mode: Option<Mode>,
}

enum Shed {
    Given(ShedLayer),
    /// Made of the capacity, which is known when all else is.
    Planned(Box<dyn FnOnce(u64) -> ShedBuilder + Send>),
}

enum Fair {
    Given(FairLayer),
    Planned(FairBuilder),
}

enum Concurrency {
    Planned,
    Given(ConcurrencyLayer),
    None,
}

impl StackBuilder {
    pub(super) fn new(limit: u64) -> StackBuilder {
        StackBuilder {
            limit,
            name: "default".into(),
            shed: None,
            rate: None,
            fair: None,
            concurrency: Concurrency::Planned,
            queue: None,
            deadline: DEADLINE_DEFAULT,
            retry_after: RETRY_AFTER_DEFAULT,
            mode: None,
        }
    }

    /// The stack's name in metrics: `default` if nothing is said. Stacks of one process need names of their own.
    pub fn name(self, name: impl Into<Box<str>>) -> StackBuilder {
        StackBuilder { name: name.into(), ..self }
    }

    /// How much a request matters. A fifth of all there is room for, in progress and waiting, is kept for critical
    /// requests; the others are shed when they would use it. [`StackBuilder::shed`] is for those who want another shedder.
    pub fn class<F>(self, class: F) -> StackBuilder
    where
        F: Fn(Head<'_>) -> Criticality + Send + Sync + 'static,
    {
        let plan = Box::new(move |capacity| ShedLayer::fleet(capacity, STACK_RESERVED_SHARE).class(class));
        StackBuilder { shed: Some(Shed::Planned(plan)), ..self }
    }

    /// This shedder. What it counts as in progress waits for its turn too: give a fleet's shedder a capacity for both.
    /// While turns are taken, the queue delay of the last part is zero.
    pub fn shed(self, layer: ShedLayer) -> StackBuilder {
        StackBuilder { shed: Some(Shed::Given(layer)), ..self }
    }

    /// This limit, or these rules, on rates.
    pub fn rate(self, layer: RateLimitLayer) -> StackBuilder {
        StackBuilder { rate: Some(layer), ..self }
    }

    /// Who a request is from. Each tenant then waits in a line of its own. Requests without one are one tenant.
    pub fn tenant<F>(self, tenant: F) -> StackBuilder
    where
        F: for<'a> Fn(Head<'a>) -> Option<Tenant<'a>> + Send + Sync + 'static,
    {
        StackBuilder { fair: Some(Fair::Planned(FairLayer::builder(self.limit, tenant))), ..self }
    }

    /// These turns. If more are let in than the limit, the rest waits again, in one line for all.
    pub fn fair(self, layer: FairLayer) -> StackBuilder {
        StackBuilder { fair: Some(Fair::Given(layer)), ..self }
    }

    /// This limit on what is in progress, instead of one of the stack's limit with a line as long as that for turns. The
    /// line stays empty while turns are taken, and is there for when those are switched off.
    pub fn concurrency(self, layer: ConcurrencyLayer) -> StackBuilder {
        StackBuilder { concurrency: Concurrency::Given(layer), ..self }
    }

    /// No limit on what is in progress: a layer behind the stack holds it, such as an
    /// [`AdaptiveLayer`](crate::AdaptiveLayer). The stack needs another part then: one of nothing cannot be built.
    pub fn without_concurrency(self) -> StackBuilder {
        StackBuilder { concurrency: Concurrency::None, ..self }
    }

    /// How many may wait, of each tenant and of all. If nothing is said: as many of each tenant as the limit lets in, and
    /// of all ten times as many. Parts that were given keep their own.
    pub fn queue(self, queue: FairConfig) -> StackBuilder {
        StackBuilder { queue: Some(queue), ..self }
    }

    /// How long a request waits at most: a second, if nothing is said. Parts that were given keep their own.
    pub fn deadline(self, deadline: Duration) -> StackBuilder {
        StackBuilder { deadline, ..self }
    }

    /// When those who are refused with 503 are told to come back: after a second, if nothing is said. Parts that were
    /// given keep their own.
    pub fn retry_after(self, after: Duration) -> StackBuilder {
        StackBuilder { retry_after: after, ..self }
    }

    /// What all parts do at first, also those that were given: [`Mode::Shadow`] to try the whole stack unfelt.
    pub fn mode(self, mode: Mode) -> StackBuilder {
        StackBuilder { mode: Some(mode), ..self }
    }

    /// The layer.
    ///
    /// # Errors
    /// If a number is zero or too large, a time is zero or too long, the name is empty or too long, or no part is left.
    pub fn build(self) -> Result<StackLayer, ConfigError> {
        check_name(&self.name)?;
        // Checked also where no layer of the stack holds it: the lines and the shedder follow from it.
        check_limit(self.limit)?;
        let has_others = self.shed.is_some() || self.rate.is_some() || self.fair.is_some();
        if matches!(self.concurrency, Concurrency::None) && !has_others {
            return Err(ConfigError::NoParts);
        }
        let queue = self.queue.unwrap_or_else(|| queue_for(self.limit));
        // First, since the parts would call them by names of their own.
        check_count("total_max", queue.total_max as u64, QUEUE_DEPTH_MAX as u64)?;
        check_time("deadline", self.deadline, WAIT_MAX)?;
        let concurrency = match self.concurrency {
            Concurrency::None => None,
            Concurrency::Given(layer) => Some(layer),
            Concurrency::Planned => {
                let line = Queue::new(queue.total_max, self.deadline);
                Some(ConcurrencyLayer::builder(self.limit).queue(line).retry_after(self.retry_after).build()?)
            }
        };
        let fair = match self.fair {
            None => None,
            Some(Fair::Given(layer)) => Some(layer),
            Some(Fair::Planned(builder)) => {
                Some(builder.queue(queue).deadline(self.deadline).retry_after(self.retry_after).build()?)
            }
        };
        let shed = match self.shed {
            None => None,
            Some(Shed::Given(layer)) => Some(layer),
            Some(Shed::Planned(plan)) => {
                let capacity = self.limit.saturating_add(queue.total_max as u64).min(FLEET_MAX);
                Some(plan(capacity).retry_after(self.retry_after).build()?)
            }
        };
        let counts = Counts::default();
        let stack = StackLayer(Arc::new(Parts { name: self.name, shed, rate: self.rate, fair, concurrency, counts }));
        if let Some(mode) = self.mode {
            stack.handle().set_mode(mode);
        }
        Ok(stack)
    }
}

/// Lines that suit a limit: short enough that who waits at their end is still wanted when its turn comes.
fn queue_for(limit: u64) -> FairConfig {
    let depth = usize::try_from(limit).unwrap_or(QUEUE_DEPTH_MAX).clamp(1, QUEUE_DEPTH_MAX);
    let total = depth.saturating_mul(STACK_WAITING_PER_PLACE).min(QUEUE_DEPTH_MAX);
    FairConfig { depth_max: depth, total_max: total, ..FairConfig::default() }
}

impl fmt::Debug for StackBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("StackBuilder");
        shown.field("name", &self.name).field("limit", &self.limit).field("rate", &self.rate).finish_non_exhaustive()
    }
}
