//! One line: first come, first served, and while it stands, last come, first served.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::Time;
use tidegate_core::shed::{CoDel, CoDelConfig};

use super::Waiter;
use crate::bounds::{QUEUE_DEPTH_MAX, WAIT_MAX};
use crate::error::{ConfigError, check_count, check_time};
use crate::runtime_clock::between;

/// The queue before a limit: how many may wait, for how long, and in which order they are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    depth: usize,
    deadline: Duration,
    codel: Option<CoDelConfig>,
    lifo: Option<CoDelConfig>,
}

impl Queue {
    /// At most `depth` wait, each for at most `deadline`, and are served in the order in which they came.
    #[must_use]
    pub const fn new(depth: usize, deadline: Duration) -> Queue {
        Queue { depth, deadline, codel: None, lifo: None }
    }

    /// Whoever has waited for more than twice the target is refused while the queue stands, as [`CoDel`] says.
    #[must_use]
    pub fn codel(self, config: CoDelConfig) -> Queue {
        Queue { codel: Some(config), ..self }
    }

    /// While the queue stands, as [`CoDel`] says, who came last is served first: the callers of those who have waited
    /// for long have probably left. They are not refused by that, but wait until their deadline; with [`Queue::codel`]
    /// they are refused too. A queue stands or does not: both need the same numbers.
    #[must_use]
    pub fn adaptive_lifo(self, config: CoDelConfig) -> Queue {
        Queue { lifo: Some(config), ..self }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }
}

/// Those who wait, by the order in which they came.
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

    /// Puts somebody at the end; nothing if the line is full.
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

    /// A line that is empty does not stand: without this the next one, an hour later, would be judged by this one.
    fn note_if_empty(&mut self, now: Time) {
        if let (Some(codel), true) = (&mut self.codel, self.waiting.is_empty()) {
            let _: bool = codel.sheds(now, Duration::ZERO);
        }
    }

    /// Since when the first has been waiting.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.waiting.first_key_value().map(|(_, waiter)| waiter.since)
    }

    /// Takes who is served next, and adds to `shed` who has waited for too long.
    ///
    /// The delay of the first in line is what tells whether it stands, also while the last is served.
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
