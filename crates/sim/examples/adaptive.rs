//! explore
use std::time::Duration;
use tidegate_core::adaptive::*;
use tidegate_sim::*;

fn show(name: &str, run: &Run, best: &[BestFixed]) {
    print!("{name:28}");
    for (i, half) in run.second_halves().enumerate() {
        let service = run.scenario.phases[i].service;
        let settled = run.settled(i, 0.85 * best[i].throughput, service.mul_f64(2.5));
        print!(" | {:6.1}/s {:5.1}% p99 {:5} ms late {:5.1} settled {:5}", half.throughput, 100.0 * half.throughput / best[i].throughput,
            half.p99.map_or(0, |p| p.as_millis()), half.late, settled.map_or("-".into(), |s| format!("{:.1}", s.as_secs_f64())));
    }
    println!();
}

fn main() {
    let seeds: Vec<u64> = std::env::args().skip(1).map(|s| s.parse().unwrap()).collect();
    for seed in seeds {
    let scenario = Scenario::step(seed);
    let limits: Vec<u64> = (2..=40).map(|n| n * 5).collect();
    let best = best_fixed(&scenario, &limits);
    println!("{best:?}");
    show("open", &simulate(&scenario, Gate::Open), &best);
    show("open stays", &simulate(&Scenario { late: Late::Stays, ..scenario.clone() }, Gate::Open), &best);
    for l in [25, 50, 55, 60, 100, 110, 120, 125, 130, 140, 200] { show(&format!("fixed {l}"), &simulate(&scenario, Gate::Fixed(l)), &best); }
    let mut go = |name: &str, l: AdaptiveLimit| show(name, &simulate(&scenario, Gate::adaptive(l).unwrap()), &best);
    let a = AimdConfig::default();
    go("aimd", Aimd::new(a).unwrap().into());
    go("aimd .5", Aimd::new(AimdConfig { backoff: 0.5, ..a }).unwrap().into());
    go("aimd timeout 1.2", Aimd::new(AimdConfig { timeout: Duration::from_millis(1200), ..a }).unwrap().into());
    go("aimd timeout 1.5", Aimd::new(AimdConfig { timeout: Duration::from_millis(1500), ..a }).unwrap().into());
    go("aimd .5 timeout 1.5", Aimd::new(AimdConfig { backoff: 0.5, timeout: Duration::from_millis(1500), ..a }).unwrap().into());
    for s in 0..4 { go(&format!("vegas {s}"), Vegas::new(VegasConfig { seed: s, ..VegasConfig::default() }).unwrap().into()); }
    let g = Gradient2Config::default();
    go("gradient2", Gradient2::new(g).unwrap().into());
    go("gradient2 no drops", Gradient2::new(Gradient2Config { drop_backoff: 1.0, ..g }).unwrap().into());
    for w in [20, 50, 100, 150, 200, 300] {
        go(&format!("gradient2 long {w}"), Gradient2::new(Gradient2Config { long_window: w, ..g }).unwrap().into());
        go(&format!("gradient2 long {w} max 100"), Gradient2::new(Gradient2Config { long_window: w, max: 100, ..g }).unwrap().into());
        go(&format!("gradient2 long {w} nodrop"), Gradient2::new(Gradient2Config { long_window: w, drop_backoff: 1.0, ..g }).unwrap().into());
    }
    }
}
