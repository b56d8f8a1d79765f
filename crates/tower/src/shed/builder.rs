//! The builder of a shedding layer.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use tidegate_core::Dice;
use tidegate_core::shed::{Criticality, FleetShedder, Mode, QueueRejection, QueueRejectionConfig, WorkerShedderConfig};

use super::layer::{BacklogOf, ClassOf, Kind, Measure, Shared, ShedLayer};
use super::seed;
use super::tally::Tally;
use super::worker::Worker;
use crate::bounds::{WAIT_MAX, WORKERS_MAX};
use crate::error::{ConfigError, check_count, check_time};
use crate::head::Head;
use crate::refuser::RefuserConfig;
use crate::stopwatch::Stopwatch;

/// Builds a [`ShedLayer`].
pub struct ShedBuilder {
    planned: Planned,
    class: ClassOf,
    refuser: RefuserConfig,
    seed: Option<u64>,
}

enum Planned {
    Fleet { capacity: u64, reserved: f64 },
    Worker { config: WorkerShedderConfig, measure: Measure },
    Queue { config: QueueRejectionConfig, backlog: BacklogOf },
}

impl ShedBuilder {
    pub(super) fn fleet(capacity: u64, reserved: f64) -> ShedBuilder {
        ShedBuilder::new(Planned::Fleet { capacity, reserved })
    }

    pub(super) fn worker(config: WorkerShedderConfig, measure: Measure) -> ShedBuilder {
        ShedBuilder::new(Planned::Worker { config, measure })
    }

    pub(super) fn queue(config: QueueRejectionConfig, backlog: BacklogOf) -> ShedBuilder {
        ShedBuilder::new(Planned::Queue { config, backlog })
    }

    fn new(planned: Planned) -> ShedBuilder {
        ShedBuilder { planned, class: Box::new(by_method), refuser: RefuserConfig::default(), seed: None }
    }

    /// Sets how much a request matters. By default GET, HEAD, OPTIONS and TRACE are reads, everything else is a write,
    /// and nothing is critical.
    #[must_use]
    pub fn class<F>(self, class: F) -> ShedBuilder
    where
        F: Fn(Head<'_>) -> Criticality + Send + Sync + 'static,
    {
        ShedBuilder { class: Box::new(move |head| class(*head)), ..self }
    }

    /// Sets the `Retry-After` of refusals. Default: 1 s.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> ShedBuilder {
        ShedBuilder { refuser: self.refuser.retry_after(after), ..self }
    }

    /// Sets the initial mode. Default: [`Mode::Enforce`].
    #[must_use]
    pub fn mode(self, mode: Mode) -> ShedBuilder {
        ShedBuilder { refuser: self.refuser.mode(mode), ..self }
    }

    /// Sets the seed of the random numbers, for tests. By default it is different in each process. A fleet's shedder
    /// uses none.
    #[must_use]
    pub fn seed(self, seed: u64) -> ShedBuilder {
        ShedBuilder { seed: Some(seed), ..self }
    }

    /// Builds the layer.
    ///
    /// # Errors
    /// Fails if a number is out of range.
    pub fn build(self) -> Result<ShedLayer, ConfigError> {
        let refuser = self.refuser.build()?;
        let dice = Dice::new(self.seed.unwrap_or_else(seed));
        let kind = match self.planned {
            Planned::Fleet { capacity, reserved } => Kind::Fleet(FleetShedder::new(capacity, reserved)?),
            Planned::Worker { config, measure } => {
                match &measure {
                    Measure::Busy { workers } => check_count("workers", *workers, WORKERS_MAX)?,
                    Measure::QueueDelay { acceptable, .. } => check_time("acceptable", *acceptable, WAIT_MAX)?,
                    Measure::Utilisation(_) => {}
                }
                Kind::Worker { worker: Worker::new(config, dice)?, measure }
            }
            Planned::Queue { config, backlog } => {
                Kind::Queue { ramp: QueueRejection::new(config)?, dice: Mutex::new(dice), backlog }
            }
        };
        Ok(ShedLayer(Arc::new(Shared {
            kind,
            class: self.class,
            tally: Tally::new(),
            shed: Default::default(),
            clock: Stopwatch::shared(),
            refuser,
        })))
    }
}

fn by_method(head: &Head<'_>) -> Criticality {
    match *head.method() {
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE => Criticality::Get,
        _ => Criticality::Post,
    }
}

impl fmt::Debug for ShedBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.planned {
            Planned::Fleet { .. } => "fleet",
            Planned::Worker { .. } => "worker",
            Planned::Queue { .. } => "queue",
        };
        formatter.debug_struct("ShedBuilder").field("kind", &kind).finish_non_exhaustive()
    }
}
