//! The fixed limit that would have been best, which nobody knows beforehand.

use crate::run::Run;
use crate::scenario::Scenario;
use crate::{Gate, simulate};

/// The best of many fixed limits in one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestFixed {
    /// The smallest limit whose throughput is within half a percent of the best: a larger one only makes a queue.
    pub limit: u64,
    /// The best throughput of any of the limits, in the second half of the phase.
    pub throughput: f64,
}

/// Tries fixed limits and tells the best for each phase.
#[must_use]
pub fn best_fixed(scenario: &Scenario, limits: &[u64]) -> Vec<BestFixed> {
    let runs: Vec<(u64, Run)> = limits.iter().map(|&limit| (limit, simulate(scenario, Gate::Fixed(limit)))).collect();
    let of_phase = |phase: usize| {
        let throughputs = runs.iter().map(|(limit, run)| {
            let throughput = run.second_halves().nth(phase).map_or(0.0, |half| half.throughput);
            (*limit, throughput)
        });
        let throughputs: Vec<(u64, f64)> = throughputs.collect();
        let best = throughputs.iter().map(|(_, throughput)| *throughput).fold(0.0, f64::max);
        let limit =
            throughputs.iter().filter(|(_, throughput)| *throughput >= 0.995 * best).map(|(limit, _)| *limit).min();
        BestFixed { limit: limit.unwrap_or(0), throughput: best }
    };
    (0..scenario.phases.len()).map(of_phase).collect()
}
