//! A server under load that exists only as numbers: what a limit does to it can be measured exactly, and again.
//!
//! | to find | look in |
//! |---|---|
//! | what is offered, and how long the work takes, over time | `scenario.rs` |
//! | what stands before the server | `gate.rs` |
//! | the events: arrivals, workers, deadlines | `server.rs` |
//! | what came of it: throughput, percentiles, when it settled | `run.rs` |
//! | the limits that are compared | `contest.rs` |
//! | the fixed limit that would have been best | `fixed.rs` |
//!
//! Time is simulated and chance follows from a seed, so that a run gives the same numbers on every machine.

mod contest;
mod fixed;
mod gate;
mod run;
mod scenario;
mod server;

pub use contest::Contestant;
pub use fixed::{BestFixed, best_fixed};
pub use gate::Gate;
pub use run::{Done, Run, Stretch};
pub use scenario::{Late, Phase, Scenario};
pub use server::simulate;
