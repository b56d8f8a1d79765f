//! The builder of an adaptive layer.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::adaptive::{AdaptiveLimit, WindowConfig};
use tidegate_core::shed::Mode;

use super::{AdaptiveLayer, Judge, Lesson, PartitionOf, Places, Shared};
use crate::ended::Ended;
use crate::error::ConfigError;
use crate::gate::{DividedGate, Gate, Learner, Queue};
use crate::head::Head;
use crate::refuser::RefuserConfig;
use crate::stopwatch::Stopwatch;

/// Builds an [`AdaptiveLayer`].
pub struct AdaptiveBuilder {
    limit: AdaptiveLimit,
    window: Option<WindowConfig>,
    queue: Option<Queue>,
    partitions: Option<(Vec<f64>, PartitionOf)>,
    judge: Option<Judge>,
    refuser: RefuserConfig,
}

impl AdaptiveBuilder {
    pub(super) fn new(limit: AdaptiveLimit) -> AdaptiveBuilder {
        AdaptiveBuilder {
            limit,
            window: Some(WindowConfig::default()),
            queue: None,
            partitions: None,
            judge: None,
            refuser: RefuserConfig::default(),
        }
    }

    /// Sets the window whose samples are combined into one. Default: one second; see [`WindowConfig`].
    #[must_use]
    pub fn window(self, window: WindowConfig) -> AdaptiveBuilder {
        AdaptiveBuilder { window: Some(window), ..self }
    }

    /// Updates the limit on each request, without a window.
    #[must_use]
    pub fn without_window(self) -> AdaptiveBuilder {
        AdaptiveBuilder { window: None, ..self }
    }

    /// Adds a queue for requests above the limit. By default they are refused at once, as in most adaptive limits: the
    /// time in the queue is not measured.
    #[must_use]
    pub fn queue(self, queue: Queue) -> AdaptiveBuilder {
        AdaptiveBuilder { queue: Some(queue), ..self }
    }

    /// Divides the limit into guaranteed shares. The closure returns the index of a request's share in the list; with
    /// `None`, or any other index, the request has no guarantee and uses what is free.
    ///
    /// With a queue, each partition has a queue of that depth, and requests without a guarantee have one together. A
    /// slot that becomes free goes to partitions below their guarantee first, and then to the request that has waited
    /// longest.
    ///
    /// ```
    /// # use tidegate_core::adaptive::{Vegas, VegasConfig};
    /// # use tidegate_tower::AdaptiveLayer;
    /// let layer = AdaptiveLayer::builder(Vegas::new(VegasConfig::default())?)
    ///     .partitions([0.9, 0.1], |head| Some(usize::from(head.uri().path().starts_with("/batch"))))
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn partitions<F>(self, shares: impl Into<Vec<f64>>, partition: F) -> AdaptiveBuilder
    where
        F: Fn(Head<'_>) -> Option<usize> + Send + Sync + 'static,
    {
        AdaptiveBuilder { partitions: Some((shares.into(), Box::new(move |head| partition(*head)))), ..self }
    }

    /// Sets how requests are judged. By default, responses 408, 429, 503 and 504, the gRPC states CANCELLED,
    /// DEADLINE_EXCEEDED and UNAVAILABLE, and timeout errors of tokio or the system are drops; all other errors are
    /// ignored, since they are the handler's own.
    #[must_use]
    pub fn judge<F>(self, judge: F) -> AdaptiveBuilder
    where
        F: Fn(Ended<'_>) -> Lesson + Send + Sync + 'static,
    {
        AdaptiveBuilder { judge: Some(Box::new(judge)), ..self }
    }

    /// Sets the `Retry-After` of refusals. Default: 1 s.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> AdaptiveBuilder {
        AdaptiveBuilder { refuser: self.refuser.retry_after(after), ..self }
    }

    /// Sets the initial mode. Default: [`Mode::Enforce`].
    #[must_use]
    pub fn mode(self, mode: Mode) -> AdaptiveBuilder {
        AdaptiveBuilder { refuser: self.refuser.mode(mode), ..self }
    }

    /// Builds the layer.
    ///
    /// # Errors
    /// Fails if a number is out of range, or the shares are empty or add up to more than 1.
    pub fn build(self) -> Result<AdaptiveLayer, ConfigError> {
        let refuser = self.refuser.build()?;
        let learner = Learner::new(self.limit, self.window)?;
        let places = match self.partitions {
            None => Places::One(Gate::learning(learner, self.queue)?),
            Some((shares, _)) if shares.is_empty() => {
                return Err(ConfigError::unused(
                    "partitions",
                    "without shares",
                    "give a share for each, or leave it out",
                ));
            }
            Some((shares, partition)) => {
                let gate = DividedGate::new(learner.limit(), &shares, self.queue)?;
                Places::Divided { gate, partition, learner: Mutex::new(Box::new(learner)) }
            }
        };
        Ok(AdaptiveLayer(Arc::new(Shared { places, judge: self.judge, clock: Stopwatch::shared(), refuser })))
    }
}

impl fmt::Debug for AdaptiveBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("AdaptiveBuilder");
        shown.field("limit", &self.limit.name()).field("queue", &self.queue).finish_non_exhaustive()
    }
}
