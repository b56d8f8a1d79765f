//! What each layer adds to a request, beside the layers of tower and of tower_governor.
//!
//! All wrap the same service, which is ready at once and answers at once, and are called as tower wants it: `ready`, then
//! `call`, one request after another on one thread, without a network. What the service alone takes is subtracted. Each
//! request has eight headers and the address of its peer, as axum leaves it there. No limit is ever reached.
//!
//! Layers of a rate decide by GCRA with the same numbers. Those that tell put two headers into each response: Tidegate
//! `RateLimit` and `RateLimit-Policy`, tower_governor `x-ratelimit-limit` and `x-ratelimit-remaining`. A key of
//! tower_governor owns its bytes, so one by header is a `String`. Its table grows with its clients, without a bound; ours
//! has room for 100,000 unless it is told for how many, so with many clients there is a lane of each.
//!
//! Neither has a layer that learns, sheds or takes turns: ours stand beside tower's `ConcurrencyLimit`. Those that read a
//! clock, or count by key, have a table of their own: their peer is tower_governor, which does both, and in
//! the column "less work" is `ConcurrencyLimit`, which does neither.
//!
//! tower frees a place when the head of a response is there, and ours when its body has ended. So most have a second peer
//! that does the same work, in the column "same work": by hand, or what others offer. tower-acc learns by Gradient2 from
//! each answer, but frees its place at the head. limitador looks up which limits apply and counts by the values of a request,
//! in a fixed window.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | rounds and the table |
//! | `caller.rs` | requests, the service, and the timed loop |
//! | `peers.rs` | peers that do the same work |
//! | `subjects.rs` | the layers, and which stands beside which |

mod caller;
mod peers;
mod subjects;

use clap::Parser;
use tokio::runtime;

use self::caller::Rounds;
use crate::harness::median;
use crate::report::Machine;

/// Measure the time that each layer adds to a request
#[derive(Debug, Parser)]
struct Options {
    /// Rounds over all layers of a table; the median is reported
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Measure only layers whose name contains this text, and their peers
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Cargo adds this when it runs a bench target.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Layers that are measured in turn. The first is the service alone.
struct Section {
    title: &'static str,
    lanes: Vec<Lane>,
}

/// A layer, and what was measured of it.
struct Lane {
    name: &'static str,
    /// The name of what it stands beside; nothing if others stand beside it.
    peer: Option<&'static str>,
    /// The name of another, which does less.
    lesser: Option<&'static str>,
    /// The name of one that does the same work.
    same: Option<&'static str>,
    rounds: Box<dyn Rounds>,
    /// Nanoseconds a request, one entry a round.
    rounds_ns: Vec<f64>,
}

impl Lane {
    fn peer(name: &'static str, rounds: Box<dyn Rounds>) -> Lane {
        Lane { name, peer: None, lesser: None, same: None, rounds, rounds_ns: Vec::new() }
    }

    fn beside(peer: &'static str, name: &'static str, rounds: Box<dyn Rounds>) -> Lane {
        Lane { name, peer: Some(peer), lesser: None, same: None, rounds, rounds_ns: Vec::new() }
    }

    fn and_beside(self, same: &'static str) -> Lane {
        Lane { same: Some(same), ..self }
    }

    fn and_beside_lesser(self, lesser: &'static str) -> Lane {
        Lane { lesser: Some(lesser), ..self }
    }
}

impl Section {
    /// Leaves out what is not wanted, and tells whether anything is.
    fn keep(&mut self, wanted: &str) -> bool {
        self.lanes.retain(|lane| lane.peer.is_none() || lane.name.contains(wanted));
        self.lanes.iter().any(|lane| lane.peer.is_some())
    }

    fn run(&mut self, runtime: &runtime::Runtime, rounds: u16) {
        for _ in 0..rounds {
            for lane in &mut self.lanes {
                lane.rounds_ns.push(lane.rounds.round(runtime));
            }
        }
    }

    /// What a layer adds to the service alone, round by round.
    fn costs(&self, lane: &Lane) -> Vec<f64> {
        lane.rounds_ns.iter().zip(&self.lanes[0].rounds_ns).map(|(with, bare)| with - bare).collect()
    }

    /// How many times as much its peer costs, where it has one. Both are of the same round.
    fn ratio(&self, lane: &Lane, peer: Option<&str>) -> Option<f64> {
        let peer = self.lanes.iter().find(|other| Some(other.name) == peer)?;
        let pairs = self.costs(peer).into_iter().zip(self.costs(lane));
        Some(median(&pairs.map(|(peer, own)| peer / own).collect::<Vec<_>>()))
    }

    /// Prints the table, and notes what is slower.
    fn print(&self, slower: &mut Slower) {
        let bare = median(&self.lanes[0].rounds_ns);
        println!(
            "\n## {}\n\nThe service alone takes {bare:.1} ns. Ratios above 1 mean that the layer is faster.\n",
            self.title
        );
        println!("| layer | adds (ns) | peer takes | same work takes | less work takes |");
        println!("|---|---|---|---|---|");
        for lane in &self.lanes[1..] {
            let ratios = [lane.peer, lane.same, lane.lesser].map(|peer| self.ratio(lane, peer));
            let [peer, same, lesser] =
                ratios.map(|ratio| ratio.map(|ratio| format!("{ratio:.2}×")).unwrap_or_default());
            println!("| {} | {:.1} | {peer} | {same} | {lesser} |", lane.name, median(&self.costs(lane)));
            let lists = [&mut slower.than_peer, &mut slower.than_same, &mut slower.than_lesser];
            for (ratio, list) in ratios.into_iter().zip(lists) {
                if let Some(ratio) = ratio.filter(|ratio| *ratio < 1.0) {
                    list.push(format!("{} ({}, {ratio:.2}×)", lane.name, self.title));
                }
            }
        }
    }
}

/// Layers that cost more than what stands beside them.
#[derive(Default)]
struct Slower {
    than_peer: Vec<String>,
    than_same: Vec<String>,
    than_lesser: Vec<String>,
}

/// Measures, and prints the tables.
pub(crate) fn run() {
    let options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` starts this program without `--bench`.
        eprintln!("nothing measured; run `make bench BENCH=layers`");
        return;
    }
    let runtime = runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    println!("{}; medians of {} interleaved rounds", Machine::this(), options.rounds);
    let mut slower = Slower::default();
    for mut section in [
        subjects::at_once(&runtime),
        subjects::by_key_or_clock(&runtime),
        subjects::pace(&runtime),
        subjects::rate_by_address(&runtime, "Rate by address, one client", 1),
        subjects::rate_by_address(&runtime, "Rate by address, 10,000 clients", 10_000),
        subjects::rate_by_header(&runtime, "Rate by header, one client", 1),
        subjects::rate_by_header(&runtime, "Rate by header, 10,000 clients", 10_000),
        subjects::stacks(&runtime),
    ] {
        if let Some(wanted) = &options.only
            && !section.keep(wanted)
        {
            continue;
        }
        section.run(&runtime, options.rounds);
        section.print(&mut slower);
    }
    println!("\nTarget: each layer costs at most as much as its peer: {}", verdict(&slower.than_peer));
    println!("\nTarget: each layer costs at most as much as a peer with the same work: {}", verdict(&slower.than_same));
    println!("\nTarget: each layer costs at most as much as a peer with less work: {}", verdict(&slower.than_lesser));
}

fn verdict(slower: &[String]) -> String {
    if slower.is_empty() { "met".to_owned() } else { format!("MISSED by {}", slower.join(", ")) }
}
