//! Rounds: a fixed number of decisions on one or more threads, timed.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::workload::{Arrivals, BATCH, Request};

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// What a round should take; sets how many decisions it has.
    pub(crate) round: Duration,
}

/// A limiter under test. The timed loop is compiled for each implementor: nothing in it is called through a pointer.
pub(crate) trait Subject: Send + Sync {
    /// Decides on one request; true means allowed.
    fn decide(&self, request: &Request) -> bool;

    /// Decides on all and counts the allowed.
    fn decide_all(&self, requests: &[Request]) -> usize {
        requests.iter().filter(|each| self.decide(each)).count()
    }
}

/// A subject in its lane of a scenario: its name, and where in the arrivals it stands.
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    runner: Box<dyn Runner>,
    position: usize,
    share: usize,
    /// Nanoseconds a decision a thread, one entry a round.
    pub(crate) rounds_ns: Vec<f64>,
}

/// Hides the type of a subject outside the timed loop.
trait Runner {
    fn round(&self, arrivals: &Arrivals, start: usize, share: usize, threads: usize) -> Round;
}

struct Round {
    wall: Duration,
    allowed: usize,
}

impl Lane {
    pub(crate) fn new(name: &'static str, subject: impl Subject + 'static) -> Self {
        Self { name, runner: Box::new(subject), position: 0, share: BATCH, rounds_ns: Vec::new() }
    }

    /// Grows the share of a thread until a round takes about as long as planned.
    pub(crate) fn calibrate(&mut self, arrivals: &Arrivals, threads: usize, round: Duration) {
        loop {
            let wall = self.step(arrivals, threads).wall;
            if wall * 8 >= round {
                let scale = round.as_secs_f64() / wall.as_secs_f64();
                self.share = whole_batches(self.share as f64 * scale);
                return;
            }
            self.share *= 2;
        }
    }

    /// Runs one round and keeps its time. `allow` is what every single decision must be, or the round measured
    /// something else than it claims.
    pub(crate) fn measure(&mut self, arrivals: &Arrivals, threads: usize, allow: bool) {
        let round = self.step(arrivals, threads);
        let expected = if allow { self.share * threads } else { 0 };
        assert_eq!(round.allowed, expected, "decisions of {}", self.name);
        self.rounds_ns.push(round.wall.as_secs_f64() * 1e9 / self.share as f64);
    }

    /// Goes on where the round before ended: repeating the same requests would find them in the cache.
    fn step(&mut self, arrivals: &Arrivals, threads: usize) -> Round {
        let round = self.runner.round(arrivals, self.position, self.share, threads);
        self.position += warm_up(self.share) + self.share;
        round
    }
}

impl<S: Subject> Runner for S {
    fn round(&self, arrivals: &Arrivals, start: usize, share: usize, threads: usize) -> Round {
        let barrier = Barrier::new(threads);
        let work = |thread: usize| {
            let from = start + thread * (arrivals.len() / threads);
            let warm_up = warm_up(share);
            decide_span(self, arrivals, from, warm_up);
            barrier.wait();
            let begin = Instant::now();
            let allowed = decide_span(self, arrivals, from + warm_up, share);
            (begin, Instant::now(), allowed)
        };
        let finished: Vec<_> = thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
            workers.into_iter().map(|worker| worker.join().expect("a subject panicked")).collect()
        });
        let begin = finished.iter().map(|each| each.0).min();
        let end = finished.iter().map(|each| each.1).max();
        Round {
            wall: end.expect("at least one thread") - begin.expect("at least one thread"),
            allowed: finished.iter().map(|each| each.2).sum(),
        }
    }
}

fn decide_span<S: Subject>(subject: &S, arrivals: &Arrivals, start: usize, count: usize) -> usize {
    arrivals.pieces(start, count).map(|piece| subject.decide_all(piece)).sum()
}

/// The other subjects have used the caches since the last round of this one.
fn warm_up(share: usize) -> usize {
    whole_batches(share as f64 / 16.0)
}

/// Positions and shares stay multiples of a batch, so that no batch is ever cut short.
fn whole_batches(decisions: f64) -> usize {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of decisions is positive and far below 2^53"
    )]
    let batches = (decisions / BATCH as f64) as usize;
    batches.max(1) * BATCH
}

/// The middle value, or the mean of the two middle values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        for (values, expected) in [(vec![3.0], 3.0), (vec![9.0, 1.0, 4.0], 4.0), (vec![4.0, 1.0, 2.0, 9.0], 3.0)] {
            assert!((median(&values) - expected).abs() < 1e-9, "{values:?}");
        }
    }

    #[test]
    fn shares_are_whole_batches() {
        for (decisions, expected) in [(0.0, 16), (15.0, 16), (33.0, 32), (1600.0, 1600)] {
            assert_eq!(whole_batches(decisions), expected);
        }
    }
}
