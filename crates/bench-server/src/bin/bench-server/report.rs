//! The tables.

use tidegate_bench_server::median;

use crate::round::Round;
use crate::scenarios::{Scenario, Table};

/// Prints the table of a scenario, from the rounds of each subject. Ratios are to the first one.
pub(crate) fn report(scenario: &Scenario, rounds: &[Vec<Round>]) {
    let columns = match scenario.table {
        Table::Cpu => "CPU s per million | relative to tidegate",
        Table::CpuWithRedis => {
            "CPU s per million | Redis CPU s per million | scripts per decision | relative to memory | target"
        }
        Table::Wakes => "eventfd writes per request | target",
    };
    let lines = "|---".repeat(columns.split('|').count() + 3);
    println!("\n| {} | {columns} | p50 µs | p99 µs |\n{lines}|", scenario.name);
    let first = of(&rounds[0], |round| round.cpu) * 1e6;
    for (subject, rounds) in scenario.subjects.iter().zip(rounds) {
        let seconds = of(rounds, |round| round.cpu) * 1e6;
        let figures = match scenario.table {
            Table::Cpu => format!("{seconds:.2} | {:.2}×", seconds / first),
            Table::CpuWithRedis => {
                let redis = of(rounds, |round| round.redis_cpu) * 1e6;
                let scripts = of(rounds, |round| round.scripts as f64);
                format!("{seconds:.2} | {redis:.2} | {scripts:.3} | {:.2}× | {}", seconds / first, subject.target)
            }
            Table::Wakes => format!("{:.3} | {}", of(rounds, |round| round.wakes as f64), subject.target),
        };
        let p50 = median(rounds.iter().map(|round| round.seen.p50_us));
        let p99 = median(rounds.iter().map(|round| round.seen.p99_us));
        println!("| {} | {figures} | {p50:.0} | {p99:.0} |", subject.label);
    }
    for (subject, rounds) in scenario.subjects.iter().zip(rounds) {
        let all: u64 = rounds.iter().map(|round| round.seen.requests).sum();
        let not_allowed: u64 = rounds.iter().map(|round| round.seen.not_allowed).sum();
        if not_allowed > 0 {
            let fix = "Redis was too slow, so the results are wrong; repeat the run on an idle machine";
            println!("{}: {not_allowed} of {all} requests were not allowed: {fix}", subject.label);
        }
    }
}

/// The median of something by request.
fn of(rounds: &[Round], value: fn(&Round) -> f64) -> f64 {
    median(rounds.iter().map(|round| value(round) / round.seen.requests as f64))
}
