//! The builder of a stack, and its defaults.

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

/// Builds a [`StackLayer`].
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
    /// Built from the capacity, which is known last.
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

    /// Sets the stack's name in metrics. Default: `default`. Stacks of one process need different names.
    pub fn name(self, name: impl Into<Box<str>>) -> StackBuilder {
        StackBuilder { name: name.into(), ..self }
    }

    /// Adds a shedder, by how much a request matters. A fifth of the room, in progress and in queues, is reserved for
    /// critical requests; the others are shed when they would use it. [`StackBuilder::shed`] adds another kind of
    /// shedder.
    pub fn class<F>(self, class: F) -> StackBuilder
    where
        F: Fn(Head<'_>) -> Criticality + Send + Sync + 'static,
    {
        let plan = Box::new(move |capacity| ShedLayer::fleet(capacity, STACK_RESERVED_SHARE).class(class));
        StackBuilder { shed: Some(Shed::Planned(plan)), ..self }
    }

    /// Adds this shedder. It counts queued requests as in progress too: give a fleet's shedder a capacity for both. If
    /// the stack has fair queues, the queue delay of the concurrency limit is zero.
    pub fn shed(self, layer: ShedLayer) -> StackBuilder {
        StackBuilder { shed: Some(Shed::Given(layer)), ..self }
    }

    /// Adds this rate limit, by one limit or by rules.
    pub fn rate(self, layer: RateLimitLayer) -> StackBuilder {
        StackBuilder { rate: Some(layer), ..self }
    }

    /// Adds fair queues, by the tenant of a request. Requests without one count as one tenant.
    pub fn tenant<F>(self, tenant: F) -> StackBuilder
    where
        F: for<'a> Fn(Head<'a>) -> Option<Tenant<'a>> + Send + Sync + 'static,
    {
        StackBuilder { fair: Some(Fair::Planned(FairLayer::builder(self.limit, tenant))), ..self }
    }

    /// Adds these fair queues. If they let in more than the concurrency limit, the rest waits again, in one queue for
    /// all.
    pub fn fair(self, layer: FairLayer) -> StackBuilder {
        StackBuilder { fair: Some(Fair::Given(layer)), ..self }
    }

    /// Replaces the stack's own concurrency limit. That one has the stack's limit, and a queue as long as the fair
    /// queues together, which stays empty while they are active and takes over when they are switched off.
    pub fn concurrency(self, layer: ConcurrencyLayer) -> StackBuilder {
        StackBuilder { concurrency: Concurrency::Given(layer), ..self }
    }

    /// Leaves out the concurrency limit, if a layer behind the stack is one, such as an
    /// [`AdaptiveLayer`](crate::AdaptiveLayer). The stack then needs another part: an empty one cannot be built.
    pub fn without_concurrency(self) -> StackBuilder {
        StackBuilder { concurrency: Concurrency::None, ..self }
    }

    /// Sets the queue bounds of each tenant and of all tenants. Default: as many requests of each tenant as the limit
    /// lets in, and ten times as many of all. Parts that were passed in keep their own.
    pub fn queue(self, queue: FairConfig) -> StackBuilder {
        StackBuilder { queue: Some(queue), ..self }
    }

    /// Sets the longest wait of a request. Default: 1 s. Parts that were passed in keep their own.
    pub fn deadline(self, deadline: Duration) -> StackBuilder {
        StackBuilder { deadline, ..self }
    }

    /// Sets the `Retry-After` of 503 responses. Default: 1 s. Parts that were passed in keep their own.
    pub fn retry_after(self, after: Duration) -> StackBuilder {
        StackBuilder { retry_after: after, ..self }
    }

    /// Sets the initial mode of all parts, also of those that were passed in: [`Mode::Shadow`] tries the whole stack
    /// without effect on requests.
    pub fn mode(self, mode: Mode) -> StackBuilder {
        StackBuilder { mode: Some(mode), ..self }
    }

    /// Builds the stack.
    ///
    /// # Errors
    /// Fails if a number is zero or too large, a duration is zero or too long, the name is empty or too long, or no
    /// part is left.
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

/// Queues that suit a limit: short enough that the callers of the last requests still wait when they are served.
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
