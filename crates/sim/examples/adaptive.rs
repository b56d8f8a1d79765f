//! Compares the limits through a step in capacity: prints the table of the guide, and draws its plots into `docs/src/`.
//!
//! `cargo run --release --package tidegate-sim --example adaptive`

#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use plotters::coord::Shift;
use plotters::prelude::*;
use tidegate_sim::{BestFixed, Contestant, Run, Scenario, best_fixed, simulate};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const SEED: u64 = 1;

fn main() -> Result {
    let scenario = Scenario::step(SEED);
    let limits: Vec<u64> = (2..=40).map(|fives| fives * 5).collect();
    let best = best_fixed(&scenario, &limits);
    println!("best fixed limits: {best:?}\n");
    let fixed = best.iter().map(|best| best.limit).max().unwrap_or(1);
    let mut runs = Vec::new();
    for contestant in Contestant::table(fixed) {
        let run = simulate(&scenario, contestant.gate(SEED)?);
        print_row(contestant, &run, &best);
        runs.push((contestant, run));
    }
    let left_out =
        [Contestant::AimdTimeout, Contestant::VegasWide, Contestant::Gradient2Deaf, Contestant::Fixed(fixed)];
    runs.retain(|(contestant, _)| !left_out.contains(contestant));
    for noise in [0.1, 0.5, 0.95] {
        print_seeds(noise)?;
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src");
    for plot in [throughput(), p99(), limit()] {
        draw(&docs.join(plot.file), &plot, &runs)?;
    }
    Ok(())
}

/// A row of the table in `docs/src/adaptive.md`.
fn print_row(contestant: Contestant, run: &Run, best: &[BestFixed]) {
    print!("| {} |", contestant.name());
    for (phase, (half, best)) in run.second_halves().zip(best).enumerate() {
        let service = run.scenario.phases.get(phase).map_or(Duration::ZERO, |phase| phase.service);
        let settled = run.settled(phase, 0.85 * best.throughput, service.mul_f64(2.5));
        let p99 = half.p99.map_or("none".into(), |p99| format!("{} ms", p99.as_millis()));
        let settled = settled.map_or("no".into(), |settled| format!("{:.1} s", settled.as_secs_f64()));
        let share = 100.0 * half.throughput / best.throughput;
        print!(" {:.1}/s ({share:.0} %), {p99}, late {:.1}/s, {settled} |", half.throughput, half.late);
    }
    println!();
}

const SEEDS: u64 = 60;

/// The least and the median share of what is possible, in the second half of each phase, over many seeds.
fn print_seeds(noise: f64) -> Result {
    println!(
        "\nwork varies by {:.0} %: minimum and median share of the possible throughput, {SEEDS} seeds",
        noise * 100.0
    );
    for contestant in Contestant::ADAPTIVE {
        let mut shares = vec![Vec::new(); Scenario::step(SEED).phases.len()];
        for seed in 1..=SEEDS {
            let scenario = Scenario::step(seed).with_noise(noise);
            let run = simulate(&scenario, contestant.gate(seed)?);
            for (share, (half, (_, span))) in shares.iter_mut().zip(run.second_halves().zip(scenario.spans())) {
                share.push(100.0 * half.throughput / scenario.possible_at(span.start));
            }
        }
        print!("| {} |", contestant.name());
        for mut share in shares {
            share.sort_by(f64::total_cmp);
            let below = share.iter().filter(|share| **share < 85.0).count();
            let median = share.get(share.len() / 2).copied().unwrap_or_default();
            print!(" {:.1} %, {median:.1} %, {below} below |", share.first().copied().unwrap_or_default());
        }
        println!();
    }
    Ok(())
}

/// One picture: a panel for each limit, all with the same axes.
struct Plot {
    file: &'static str,
    title: &'static str,
    axis: Range<f64>,
    colour: RGBColor,
    /// The value at a second, if there is one.
    value: fn(&Run, u64) -> Option<f64>,
    /// What it should be at a second, drawn in grey.
    aim: fn(&Scenario, u64) -> f64,
}

fn second(second: u64) -> Range<Duration> {
    Duration::from_secs(second)..Duration::from_secs(second + 1)
}

fn service_ms(scenario: &Scenario, second: u64) -> f64 {
    scenario.service_at(Duration::from_secs(second)).as_secs_f64() * 1000.0
}

fn throughput() -> Plot {
    Plot {
        file: "adaptive-throughput.svg",
        title: "Requests per second that met their deadline (grey: the maximum possible)",
        axis: 1.0..1000.0,
        colour: RGBColor(0, 95, 175),
        value: |run, at| Some(run.stretch(second(at)).throughput),
        aim: |scenario, second| scenario.possible_at(Duration::from_secs(second)),
    }
}

fn p99() -> Plot {
    Plot {
        file: "adaptive-p99.svg",
        title: "99th percentile of their latency in ms (grey: 2.5 times the work; gaps: no request was served)",
        axis: 50.0..5000.0,
        colour: RGBColor(175, 60, 0),
        value: |run, at| run.stretch(second(at)).p99.map(|p99| p99.as_secs_f64() * 1000.0),
        aim: |scenario, second| 2.5 * service_ms(scenario, second),
    }
}

fn limit() -> Plot {
    Plot {
        file: "adaptive-limit.svg",
        title: "The limit (grey: the number of workers)",
        axis: 5.0..500.0,
        colour: RGBColor(0, 120, 70),
        value: |run, at| run.limit_at(Duration::from_secs(at)).map(|limit| limit as f64),
        aim: |scenario, _| scenario.workers as f64,
    }
}

fn draw(path: &Path, plot: &Plot, runs: &[(Contestant, Run)]) -> Result {
    let rows = runs.len().div_ceil(2);
    let height = 40 + 190 * u32::try_from(rows)?;
    let root = SVGBackend::new(path, (1000, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(plot.title, ("sans-serif", 18))?;
    for ((contestant, run), panel) in runs.iter().zip(root.split_evenly((rows, 2))) {
        draw_panel(&panel, plot, &contestant.name(), run)?;
    }
    root.present()?;
    drop(root);
    add_dark_mode(path)
}

/// Inverts the colours for readers in dark mode; hues stay as they are.
fn add_dark_mode(path: &Path) -> Result {
    const STYLE: &str =
        "<style>@media (prefers-color-scheme: dark) { svg { filter: invert(0.9) hue-rotate(180deg); } }</style>";
    let plot = fs::read_to_string(path)?;
    let (first_line, rest) = plot.split_once('\n').ok_or("the plot is empty")?;
    fs::write(path, format!("{first_line}\n{STYLE}\n{rest}"))?;
    Ok(())
}

fn draw_panel(panel: &DrawingArea<SVGBackend<'_>, Shift>, plot: &Plot, name: &str, run: &Run) -> Result {
    let seconds = run.scenario.length().as_secs();
    let mut chart = ChartBuilder::on(panel)
        .caption(name, ("sans-serif", 15))
        .margin(6)
        .margin_right(16)
        .x_label_area_size(24)
        .y_label_area_size(46)
        .build_cartesian_2d(0.0..seconds as f64, plot.axis.clone().log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_labels(6)
        .x_label_formatter(&|second| format!("{second:.0} s"))
        .y_labels(5)
        .y_label_formatter(&|value| format!("{value:.0}"))
        .label_style(("sans-serif", 12))
        .draw()?;
    let aims = (0..seconds).map(|second| (second as f64, (plot.aim)(&run.scenario, second)));
    chart.draw_series(LineSeries::new(aims, BLACK.mix(0.35).stroke_width(1)))?;
    for line in lines(plot, run, seconds) {
        chart.draw_series(LineSeries::new(line, plot.colour.stroke_width(2)))?;
    }
    Ok(())
}

/// The values as lines: a gap where there are none, and the axis for what is below it.
fn lines(plot: &Plot, run: &Run, seconds: u64) -> Vec<Vec<(f64, f64)>> {
    let mut lines = vec![Vec::new()];
    for second in 0..seconds {
        match ((plot.value)(run, second), lines.last_mut()) {
            (Some(value), Some(line)) => line.push((second as f64, value.clamp(plot.axis.start, plot.axis.end))),
            _ => lines.push(Vec::new()),
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}
