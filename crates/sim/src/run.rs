//! What came of a run: throughput, percentiles, and when it settled.

use std::ops::Range;
use std::time::Duration;

use crate::scenario::Scenario;

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// When it ended.
    pub at: Duration,
    /// How long that was after its arrival.
    pub latency: Duration,
    /// Whether its deadline had passed.
    pub late: bool,
}

/// All that came of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was run.
    pub scenario: Scenario,
    /// Ends of requests, in their order.
    pub done: Vec<Done>,
    /// The limit from each instant on at which it changed; nothing without one.
    pub limits: Vec<(Duration, Option<u64>)>,
    /// Instants at which a request was refused.
    pub refused: Vec<Duration>,
    offered: u64,
}

/// What came of a stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Requests a second that ended within their deadline.
    pub throughput: f64,
    /// The time that 99 of 100 of them did not exceed; nothing if there were none.
    pub p99: Option<Duration>,
    /// Requests a second whose work was in vain.
    pub late: f64,
}

impl Run {
    pub(crate) fn new(scenario: Scenario) -> Run {
        Run { scenario, done: Vec::new(), limits: Vec::new(), refused: Vec::new(), offered: 0 }
    }

    pub(crate) fn offered(&mut self, now: Duration, admitted: bool) {
        self.offered += 1;
        if !admitted {
            self.refused.push(now);
        }
    }

    pub(crate) fn ended(&mut self, done: Done) {
        self.done.push(done);
    }

    pub(crate) fn limit_is(&mut self, now: Duration, limit: Option<u64>) {
        if self.limits.last().is_none_or(|(_, last)| *last != limit) {
            self.limits.push((now, limit));
        }
    }

    /// How many requests were offered, refused ones among them.
    #[must_use]
    pub fn offered_total(&self) -> u64 {
        self.offered
    }

    /// What ended in a stretch.
    #[must_use]
    pub fn stretch(&self, span: Range<Duration>) -> Stretch {
        let from = self.done.partition_point(|done| done.at < span.start);
        let to = self.done.partition_point(|done| done.at < span.end);
        let ended = self.done.get(from..to).unwrap_or_default();
        let mut latencies: Vec<Duration> = ended.iter().filter(|done| !done.late).map(|done| done.latency).collect();
        latencies.sort_unstable();
        let seconds = (span.end - span.start).as_secs_f64();
        Stretch {
            throughput: latencies.len() as f64 / seconds,
            p99: latencies.get((latencies.len() * 99).div_ceil(100).saturating_sub(1)).copied(),
            late: (ended.len() - latencies.len()) as f64 / seconds,
        }
    }

    /// The second half of each phase, when what went before has had time to pass.
    pub fn second_halves(&self) -> impl Iterator<Item = Stretch> {
        self.scenario.spans().map(|(phase, span)| self.stretch(span.start + phase.length / 2..span.end))
    }

    /// The limit at an instant.
    #[must_use]
    pub fn limit_at(&self, instant: Duration) -> Option<u64> {
        let next = self.limits.partition_point(|(since, _)| *since <= instant);
        self.limits.get(next.checked_sub(1)?).and_then(|(_, limit)| *limit)
    }

    /// How long after the beginning of a phase it was, until its end, as it should be: in every stretch of 20 s
    /// `throughput` or more, with a 99th percentile of `p99` or less. Nothing if that was not so to the end.
    #[must_use]
    pub fn settled(&self, phase: usize, throughput: f64, p99: Duration) -> Option<Duration> {
        let (_, span) = self.scenario.spans().nth(phase)?;
        let good = |start: Duration| {
            let stretch = self.stretch(start..start + SETTLED);
            stretch.throughput >= throughput && stretch.p99.is_some_and(|found| found <= p99)
        };
        // From the end backwards, as long as it is good.
        let last = span.end.checked_sub(SETTLED)?.checked_sub(span.start)?;
        let steps = last.as_millis() / STEP.as_millis();
        let starts = (0..=steps).rev().map(|step| STEP * u32::try_from(step).unwrap_or(u32::MAX));
        starts.take_while(|&start| good(span.start + start)).last()
    }
}

/// Stretches that are looked at to tell whether a run has settled: longer than the swings of a limit that tries out how
/// far it can go.
const SETTLED: Duration = Duration::from_secs(20);

/// How finely it is told when a run had settled.
const STEP: Duration = Duration::from_millis(500);
