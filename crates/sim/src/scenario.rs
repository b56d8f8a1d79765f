//! What is offered to a server, and how long its work takes.

use std::ops::Range;
use std::time::Duration;

/// A stretch of time in which the work takes equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// How long the phase is.
    pub length: Duration,
    /// How long the work of a request takes in it.
    pub service: Duration,
}

/// What becomes of a request that waits for a worker when its deadline passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It leaves the queue, as one whose client hung up. Begun work is always finished.
    Leaves,
    /// It stays and is worked on in vain: the server does not know that nobody waits for it.
    Stays,
}

/// A server with its load.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// How many requests are worked on at once; others wait in the order in which they came.
    pub workers: usize,
    /// Requests a second, at random instants that do not depend on the server (Poisson).
    pub offered_per_second: f64,
    /// After this long nobody waits for an answer any more.
    pub deadline: Duration,
    /// What becomes of those who still wait then.
    pub late: Late,
    /// How much longer or shorter the work of a request takes than its phase says, at most: a share, evenly spread.
    pub noise: f64,
    /// The phases, one after another.
    pub phases: Vec<Phase>,
    /// Where chance comes from.
    pub seed: u64,
}

impl Scenario {
    /// The proof of the adaptive limits: 50 workers and 500 requests a second with a deadline of 2 s. The work takes
    /// 80 ms, after a minute 800 ms for two, then 80 ms again for two: a tenth of the capacity, and back.
    #[must_use]
    pub fn step(seed: u64) -> Scenario {
        let phase =
            |seconds, millis| Phase { length: Duration::from_secs(seconds), service: Duration::from_millis(millis) };
        Scenario {
            workers: 50,
            offered_per_second: 500.0,
            deadline: Duration::from_secs(2),
            late: Late::Leaves,
            noise: 0.1,
            phases: vec![phase(60, 80), phase(120, 800), phase(120, 80)],
            seed,
        }
    }

    /// The same with work that varies by other shares.
    #[must_use]
    pub fn with_noise(self, noise: f64) -> Scenario {
        Scenario { noise, ..self }
    }

    /// What the workers can do from `instant` on in requests a second, or what is offered if that is less.
    #[must_use]
    pub fn possible_at(&self, instant: Duration) -> f64 {
        (self.workers as f64 / self.service_at(instant).as_secs_f64()).min(self.offered_per_second)
    }

    /// How long all phases are.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.phases.iter().map(|phase| phase.length).sum()
    }

    /// When each phase begins and ends.
    pub fn spans(&self) -> impl Iterator<Item = (Phase, Range<Duration>)> {
        self.phases.iter().scan(Duration::ZERO, |start, &phase| {
            let begin = *start;
            *start += phase.length;
            Some((phase, begin..*start))
        })
    }

    /// How long the work of a request takes that is begun at `instant`.
    #[must_use]
    pub fn service_at(&self, instant: Duration) -> Duration {
        let last = self.phases.last().map_or(Duration::ZERO, |phase| phase.service);
        self.spans().find(|(_, span)| span.contains(&instant)).map_or(last, |(phase, _)| phase.service)
    }
}
