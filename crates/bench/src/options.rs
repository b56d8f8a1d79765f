//! The command line of the benchmark.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::harness::Plan;
use crate::memory::Probe;

/// A part of the run that `--only` can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Hot,
    Uniform,
    Zipf,
    Denied,
    Memory,
}

/// Compare Tidegate with its peers in interleaved rounds
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Rounds per scenario; the median is reported
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=50))]
    rounds: u16,

    /// Run only three short rounds, for a rough look
    #[arg(long)]
    quick: bool,

    /// Measure only these parts, separated by commas
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,

    /// Save the results of all rounds to this file as JSON
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,

    /// Cargo adds this when it runs a bench target.
    #[arg(long, hide = true)]
    pub(crate) bench: bool,

    /// Makes this process one memory measurement and nothing else.
    #[arg(long, hide = true)]
    pub(crate) memory_probe: Option<Probe>,

    /// How many keys that measurement inserts.
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) memory_keys: u64,
}

impl Options {
    pub(crate) fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    pub(crate) fn plan(&self) -> Plan {
        if self.quick {
            Plan { rounds: 3, round: Duration::from_millis(50) }
        } else {
            Plan { rounds: usize::from(self.rounds), round: Duration::from_millis(150) }
        }
    }
}
