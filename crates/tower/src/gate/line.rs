//! One queue: first in, first out, and under congestion last in, first out if so configured.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::Time;
use tidegate_core::shed::{CoDel, CoDelConfig};

use super::Waiter;
use crate::bounds::{QUEUE_DEPTH_MAX, WAIT_MAX};
use crate::error::{ConfigError, check_count, check_time};
use crate::runtime_clock::between;

/// The queue of a limit: how many requests may wait, for how long, and in which order they are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    depth: usize,
    deadline: Duration,
    codel: Option<CoDelConfig>,
    lifo: Option<CoDelConfig>,
}

impl Queue {
    /// Creates a queue of at most `depth` requests, each of which waits for at most `deadline`, served in the order of
    /// arrival.
    #[must_use]
    pub const fn new(depth: usize, deadline: Duration) -> Queue {
        Queue { depth, deadline, codel: None, lifo: None }
    }

    /// Refuses requests that have waited for more than twice the target while the queue is congested, as measured by
    /// [`CoDel`].
    #[must_use]
    pub fn codel(self, config: CoDelConfig) -> Queue {
        Queue { codel: Some(config), ..self }
    }

    /// Serves the latest request first while the queue is congested, as measured by [`CoDel`]: the callers of requests
    /// that have waited long have probably left. Those requests wait on until their deadline, unless [`Queue::codel`]
    /// refuses them first. Both methods measure the same queue and need the same numbers.
    #[must_use]
    pub fn adaptive_lifo(self, config: CoDelConfig) -> Queue {
        Queue { lifo: Some(config), ..self }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }
}

/// The waiting requests, in the order of arrival.
pub(crate) struct Line<P> {
    waiting: BTreeMap<u64, Waiter<P>>,
    next: u64,
    config: Queue,
    codel: Option<CoDel>,
}

impl<P> Line<P> {
    pub(crate) fn new(config: Queue) -> Result<Line<P>, ConfigError> {
        check_count("queue depth", config.depth as u64, QUEUE_DEPTH_MAX as u64)?;
        check_time("queue deadline", config.deadline, WAIT_MAX)?;
        if let (Some(codel), Some(lifo)) = (config.codel, config.lifo)
            && codel != lifo
        {
            return Err(ConfigError::TwoMeasures);
        }
        let codel = config.codel.or(config.lifo).map(CoDel::new).transpose()?;
        Ok(Line { waiting: BTreeMap::new(), next: 0, config, codel })
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Appends a request. Returns `None` if the queue is full.
    pub(crate) fn push(&mut self, waiter: Waiter<P>) -> Option<u64> {
        if self.waiting.len() >= self.config.depth {
            return None;
        }
        self.next += 1;
        self.waiting.insert(self.next, waiter);
        Some(self.next)
    }

    pub(crate) fn remove(&mut self, place: u64, now: Time) -> Option<Waiter<P>> {
        let left = self.waiting.remove(&place);
        self.note_if_empty(now);
        left
    }

    /// Resets the measure of congestion: an empty queue is not congested, and without this the next one, an hour later,
    /// would be judged by this one.
    fn note_if_empty(&mut self, now: Time) {
        if let (Some(codel), true) = (&mut self.codel, self.waiting.is_empty()) {
            let _: bool = codel.sheds(now, Duration::ZERO);
        }
    }

    /// Since when the first request has been waiting.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.waiting.first_key_value().map(|(_, waiter)| waiter.since)
    }

    /// Takes the request that is served next, and adds those that have waited too long to `shed`.
    ///
    /// The delay of the first request measures congestion, also while the last is served.
    pub(crate) fn pop(&mut self, now: Time, shed: &mut Vec<Waiter<P>>) -> Option<Waiter<P>> {
        let Some(codel) = &mut self.codel else {
            return self.waiting.pop_first().map(|(_, waiter)| waiter);
        };
        while let Some(first) = self.waiting.first_entry() {
            if !(codel.sheds(now, between(first.get().since, now)) && self.config.codel.is_some()) {
                break;
            }
            shed.push(first.remove());
        }
        let last_first = self.config.lifo.is_some() && codel.overloaded();
        let next = if last_first { self.waiting.pop_last() } else { self.waiting.pop_first() };
        self.note_if_empty(now);
        next.map(|(_, waiter)| waiter)
    }
}
