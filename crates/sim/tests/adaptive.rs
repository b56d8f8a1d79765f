//! The proof of the adaptive limits: through a step in capacity they keep the throughput of the best fixed limit, and
//! the time of requests stays short. Where a published formula does not, that is held here too.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::OnceLock;

use tidegate_core::adaptive::{
    AdaptiveLimit, Aimd, AimdConfig, Gradient2, Gradient2Config, Sparse, Vegas, VegasConfig, WindowConfig,
};
use tidegate_sim::{BestFixed, Contestant, Gate, Late, Run, Scenario, best_fixed, simulate};

/// Every claim is held for each of these; the numbers in the documents are of the first.
const SEEDS: [u64; 4] = [1, 2, 3, HARD];

/// The seed of the first sixty with which AIMD as published does worst.
const HARD: u64 = 13;

const SLOW: usize = 1;

/// Work that varies by a tenth, as the bounds are meant for, and by half.
const ALIKE: f64 = 0.1;
const VARIED: f64 = 0.5;

/// The best fixed limits for a scenario, found once.
fn best(scenario: &Scenario) -> &'static [BestFixed] {
    static BEST: OnceLock<Vec<(u64, f64, Vec<BestFixed>)>> = OnceLock::new();
    let limits = [30, 40, 45, 50, 55, 60, 65, 70, 80, 90, 100, 120, 200];
    let found = BEST.get_or_init(|| {
        let scenarios = SEEDS.iter().flat_map(|&seed| [ALIKE, VARIED].map(|noise| (seed, noise)));
        scenarios.map(|(seed, noise)| (seed, noise, best_fixed(&scenario_of(seed, noise), &limits))).collect()
    });
    let mut known = found.iter().filter(|(seed, noise, _)| *seed == scenario.seed && *noise == scenario.noise);
    &known.next().unwrap().2
}

fn scenario_of(seed: u64, noise: f64) -> Scenario {
    Scenario::step(seed).with_noise(noise)
}

fn run(contestant: Contestant, seed: u64) -> Run {
    run_with(contestant, seed, ALIKE)
}

fn run_with(contestant: Contestant, seed: u64, noise: f64) -> Run {
    simulate(&scenario_of(seed, noise), contestant.gate(seed).unwrap())
}

/// The share of the best fixed limit's throughput in the second half of each phase.
fn shares(run: &Run) -> Vec<f64> {
    let halves = run.second_halves().zip(best(&run.scenario));
    halves.map(|(half, best)| half.throughput / best.throughput).collect()
}

/// The bounds: 85 % of the best fixed limit's throughput, and a 99th percentile of 2.5 times the work.
fn check_holds(contestant: Contestant, noise: f64) {
    for seed in SEEDS {
        let run = run_with(contestant, seed, noise);
        let name = format!("{}, seed {seed}, noise {noise}", contestant.name());
        for (phase, share) in shares(&run).into_iter().enumerate() {
            assert!(share >= 0.85, "{name}, phase {phase}: {share}");
        }
        for ((phase, _), half) in run.scenario.spans().zip(run.second_halves()) {
            assert!(half.p99.unwrap() <= phase.service.mul_f64(2.5), "{name}: {half:?}");
        }
    }
}

/// The least and the largest share of the seeds in the slow phase.
fn slow_shares(contestant: Contestant) -> (f64, f64) {
    let shares = SEEDS.map(|seed| shares(&run(contestant, seed))[SLOW]);
    (shares.into_iter().fold(f64::MAX, f64::min), shares.into_iter().fold(0.0, f64::max))
}

#[test]
fn without_a_limit_the_server_collapses() {
    for seed in SEEDS {
        let shares = shares(&run(Contestant::Open, seed));
        assert!(shares[SLOW] < 0.01, "{shares:?}");
        assert!(shares[0] > 0.99 && shares[2] > 0.99, "{shares:?}");
    }
}

#[test]
fn without_a_limit_and_with_work_in_vain_it_does_not_recover() {
    let scenario = Scenario { late: Late::Stays, ..Scenario::step(1) };
    let halves: Vec<_> = simulate(&scenario, Gate::Open).second_halves().collect();
    assert!(halves[SLOW].throughput < 1.0, "{halves:?}");
    assert!(halves[2].throughput < 1.0, "the queue of two minutes is not worked off in two: {halves:?}");
}

#[test]
fn a_fixed_limit_of_half_loses_half() {
    for seed in SEEDS {
        let shares = shares(&run(Contestant::Fixed(best(&Scenario::step(seed))[SLOW].limit / 2), seed));
        assert!(shares.iter().all(|share| *share < 0.75) && shares[SLOW] < 0.65, "{shares:?}");
    }
}

#[test]
fn a_fixed_limit_is_best_near_the_workers() {
    for seed in SEEDS {
        for best in best(&Scenario::step(seed)) {
            assert!((50..=65).contains(&best.limit), "{best:?}");
        }
        let capacity = best(&Scenario::step(seed))[SLOW].throughput;
        assert!((capacity - 62.5).abs() < 0.5, "50 workers of 800 ms do 62.5 a second, not {capacity}");
    }
}

#[test]
fn vegas_holds_as_published() {
    check_holds(Contestant::Vegas, ALIKE);
    for seed in SEEDS {
        let settled = run(Contestant::Vegas, seed).settled(
            SLOW,
            0.85 * best(&Scenario::step(seed))[SLOW].throughput,
            Scenario::step(seed).phases[SLOW].service.mul_f64(2.5),
        );
        assert!(settled.unwrap().as_secs() <= 20, "{settled:?}");
    }
}

#[test]
fn vegas_as_published_takes_work_that_varies_for_a_queue() {
    for seed in SEEDS {
        // The fastest of many windows is far below their average, and what is above it looks like waiting.
        let shares = shares(&run_with(Contestant::Vegas, seed, VARIED));
        assert!(shares[SLOW] < 0.5 && shares[0] < 0.97, "seed {seed}: {shares:?}");
    }
}

#[test]
fn vegas_holds_with_work_that_varies_if_it_bears_a_longer_queue() {
    check_holds(Contestant::VegasWide, ALIKE);
    check_holds(Contestant::VegasWide, VARIED);
}

#[test]
fn aimd_holds_with_one_fall_for_each_deadline() {
    check_holds(Contestant::AimdHeld, ALIKE);
    check_holds(Contestant::AimdHeld, VARIED);
}

#[test]
fn aimd_holds_with_a_timeout() {
    check_holds(Contestant::AimdTimeout, ALIKE);
    check_holds(Contestant::AimdTimeout, VARIED);
}

#[test]
fn aimd_as_published_holds_with_most_seeds_but_not_with_all() {
    // Each window with a missed deadline costs the factor again, and deadlines are missed for as long as one lasts.
    for seed in SEEDS {
        let share = shares(&run(Contestant::Aimd, seed))[SLOW];
        let holds = share >= 0.85;
        assert_eq!(holds, seed != HARD, "seed {seed}: {share}");
        assert!(share > 0.84, "seed {seed}: {share}");
    }
}

#[test]
fn gradient2_holds_with_a_shorter_long_window() {
    check_holds(Contestant::Gradient2Short, ALIKE);
    check_holds(Contestant::Gradient2Short, VARIED);
}

#[test]
fn gradient2_as_published_takes_too_long_to_see_that_the_work_is_slower() {
    let (least, most) = slow_shares(Contestant::Gradient2);
    assert!(least > 0.5 && most < 0.75, "{least} to {most}");
}

#[test]
fn gradient2_that_ignores_drops_takes_a_standing_queue_for_the_work() {
    let (_, most) = slow_shares(Contestant::Gradient2Deaf);
    assert!(most < 0.05, "{most}");
}

#[test]
fn a_window_that_forgets_few_samples_hardly_hears_of_a_slow_server() {
    for seed in SEEDS {
        // It falls in the few windows that had enough, and then there are none with enough to let it rise again.
        let gate = Contestant::Gradient2Short.gate_with(seed, Sparse::Discard).unwrap();
        let share = shares(&simulate(&Scenario::step(seed), gate))[SLOW];
        assert!(share < 0.6, "seed {seed}: {share}");
    }
}

/// The share in the slow phase with the window that is used if nothing is said, of a second.
fn slow_shares_by_the_second(limit: impl Into<AdaptiveLimit>) -> [f64; SEEDS.len()] {
    let limit = limit.into();
    SEEDS.map(|seed| {
        let gate = Gate::windowed(limit.clone(), WindowConfig::default()).unwrap();
        shares(&simulate(&Scenario::step(seed), gate))[SLOW]
    })
}

#[test]
fn with_windows_of_a_second_vegas_must_probe_sooner() {
    let late = slow_shares_by_the_second(Vegas::new(VegasConfig::default()).unwrap());
    assert!(late.iter().all(|share| *share < 0.65), "{late:?}");
    let sooner = VegasConfig { probe: 3.0, ..VegasConfig::default() };
    let in_time = slow_shares_by_the_second(Vegas::new(sooner).unwrap());
    assert!(in_time.iter().all(|share| *share >= 0.98), "{in_time:?}");
}

#[test]
fn with_windows_of_a_second_the_others_hold() {
    let aimd = slow_shares_by_the_second(Aimd::new(AimdConfig::default()).unwrap());
    assert!(aimd.iter().all(|share| *share >= 0.98), "{aimd:?}");
    let short = Gradient2Config { long_window: 100, drop_backoff: 0.5, drop_hold: 2, ..Gradient2Config::default() };
    let gradient2 = slow_shares_by_the_second(Gradient2::new(short).unwrap());
    assert!(gradient2.iter().all(|share| *share >= 0.9), "{gradient2:?}");
}

#[test]
fn a_run_is_the_same_each_time_and_loses_nobody() {
    let (first, again) = (run(Contestant::Aimd, 3), run(Contestant::Aimd, 3));
    assert_eq!(first.done, again.done);
    assert_eq!(first.limits, again.limits);
    let ended = (first.done.len() + first.refused.len()) as u64;
    let left = first.offered_total() - ended;
    assert!(left <= 200, "those in flight at the end are at most the limit: {left}");
    assert!(first.offered_total().abs_diff(150_000) < 2_000);
    assert!(first.done.is_sorted_by_key(|done| done.at));
}

#[test]
fn the_guide_has_the_rows_that_are_printed() {
    let guide = include_str!("../../../docs/src/adaptive.md");
    let mut tables = guide.split("\n| limit |").skip(1);
    for contestants in [&Contestant::table(55)[..], &Contestant::ADAPTIVE] {
        let rows = tables.next().unwrap().lines().skip(2).take_while(|line| line.starts_with("| "));
        let labels: Vec<&str> = rows.map(|row| row.split(" | ").next().unwrap().trim_start_matches("| ")).collect();
        let names: Vec<String> = contestants.iter().map(|contestant| contestant.name()).collect();
        assert_eq!(labels, names);
    }
}
