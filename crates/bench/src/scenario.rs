//! Which subjects run on which workload.

use std::fmt;

use indicatif::ProgressBar;

use crate::harness::{Lane, Plan};
use crate::options::Part;
use crate::report::Timing;
use crate::subjects::{Terms, governor, leaky_bucket, limitador, pingora, throttlecrab, tidegate};
use crate::workload::{Arrivals, Pattern};

pub(crate) const TIDEGATE: &str = "tidegate";
pub(crate) const TIDEGATE_BATCH: &str = "tidegate, batches of 16";
const TIDEGATE_DIRECT: &str = "tidegate direct";
/// The subject that all ratios refer to.
pub(crate) const BASELINE: &str = "governor by String";
pub(crate) const GOVERNOR_NUMBER: &str = "governor by u64";
const GOVERNOR_DIRECT: &str = "governor direct";
pub(crate) const THROTTLECRAB: &str = "throttlecrab, periodic";
pub(crate) const PINGORA: &str = "pingora-limits observe";
const LEAKY_BUCKET: &str = "leaky-bucket try_acquire";
pub(crate) const LIMITADOR: &str = "limitador, in memory";
const LIMITADOR_PREBUILT: &str = "limitador, prebuilt context";

/// All subjects, in the order of the table.
pub(crate) const SUBJECTS: [&str; 11] = [
    TIDEGATE,
    TIDEGATE_BATCH,
    TIDEGATE_DIRECT,
    BASELINE,
    GOVERNOR_NUMBER,
    GOVERNOR_DIRECT,
    THROTTLECRAB,
    PINGORA,
    LEAKY_BUCKET,
    LIMITADOR,
    LIMITADOR_PREBUILT,
];

/// A workload on a number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    /// What selects it on the command line.
    pub(crate) part: Part,
    label: &'static str,
    pattern: Pattern,
    terms: Terms,
    threads: usize,
}

pub(crate) const HOT: Scenario =
    Scenario { part: Part::Hot, label: "hot key", pattern: Pattern::Hot, terms: Terms::HOT, threads: 1 };
pub(crate) const UNIFORM: Scenario =
    Scenario { part: Part::Uniform, label: "1 M uniform", pattern: Pattern::Uniform, terms: Terms::SPREAD, threads: 1 };
pub(crate) const ZIPF: Scenario =
    Scenario { part: Part::Zipf, label: "1 M Zipf(1)", pattern: Pattern::Zipf, terms: Terms::SPREAD, threads: 1 };
const DENIED: Scenario =
    Scenario { part: Part::Denied, label: "hot key denied", pattern: Pattern::Hot, terms: Terms::DENIED, threads: 1 };

/// All scenarios, in the order of the table.
pub(crate) const ALL: [Scenario; 8] = [
    HOT,
    HOT.on_two_threads(),
    UNIFORM,
    UNIFORM.on_two_threads(),
    ZIPF,
    ZIPF.on_two_threads(),
    DENIED,
    DENIED.on_two_threads(),
];

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.threads == 1 { "" } else { "s" };
        write!(f, "{}, {} thread{plural}", self.label, self.threads)
    }
}

impl Scenario {
    pub(crate) const fn on_two_threads(self) -> Self {
        Self { threads: 2, ..self }
    }

    /// Builds all subjects, then lets each run one round after the other, as often as planned.
    pub(crate) fn run(self, plan: Plan, progress: &ProgressBar) -> Vec<Timing> {
        let arrivals = Arrivals::new(self.pattern);
        let mut lanes = self.lanes();
        for lane in &mut lanes {
            lane.calibrate(&arrivals, self.threads, plan.round);
        }
        progress.inc(1);
        let allow = self.terms != Terms::DENIED;
        for _ in 0..plan.rounds {
            for lane in &mut lanes {
                lane.measure(&arrivals, self.threads, allow);
            }
            progress.inc(1);
        }
        Timing::of_lanes(self, lanes)
    }

    fn lanes(self) -> Vec<Lane> {
        let mut lanes = self.keyed_lanes();
        if self.pattern == Pattern::Hot {
            let terms = self.terms;
            lanes.extend([
                Lane::new(TIDEGATE_DIRECT, tidegate::Direct::new(terms)),
                Lane::new(GOVERNOR_DIRECT, governor::Direct::new(terms)),
                Lane::new(LEAKY_BUCKET, leaky_bucket::Bucket::new(terms)),
                Lane::new(LIMITADOR_PREBUILT, limitador::Prebuilt::new(terms)),
            ]);
        }
        lanes
    }

    fn keyed_lanes(self) -> Vec<Lane> {
        let terms = self.terms;
        let population = self.pattern.population();
        vec![
            Lane::new(TIDEGATE, tidegate::Keyed::new(terms, population)),
            Lane::new(TIDEGATE_BATCH, tidegate::Batch::new(terms, population)),
            Lane::new(BASELINE, governor::ByString::new(terms, population)),
            Lane::new(GOVERNOR_NUMBER, governor::ByNumber::new(terms, population)),
            if self.threads == 1 {
                Lane::new(THROTTLECRAB, throttlecrab::Owned::new(terms, population))
            } else {
                Lane::new(THROTTLECRAB, throttlecrab::Locked::new(terms, population))
            },
            Lane::new(PINGORA, pingora::Observe::new(terms)),
            Lane::new(LIMITADOR, limitador::InMemory::new(terms, population)),
        ]
    }
}
