//! Load shedding: which requests to refuse under overload, so that the rest is served.
//!
//! | to find | look in |
//! |---|---|
//! | a share of the fleet that only critical requests may use | `fleet.rs` |
//! | shedding one class after another, slowly, as a worker gets busy | `worker.rs` |
//! | a congested queue | `codel.rs` |
//! | a client that holds requests back after refusals | `throttle.rs` |
//! | a queue that is too long, by class | `queue.rs` |
//!
//! All of it is arithmetic: time is an argument, and chance is a number that the caller rolled ([`Dice`](crate::Dice)).
//! Requests that are shed get 503: the caller is not at fault.

mod codel;
mod error;
mod fleet;
mod queue;
mod throttle;
mod worker;

pub use codel::{CoDel, CoDelConfig};
pub use error::ShedError;
pub use fleet::FleetShedder;
pub use queue::{QueueRejection, QueueRejectionConfig};
pub use throttle::{ClientThrottle, ClientThrottleConfig};
pub use worker::{WorkerShedder, WorkerShedderConfig};

use crate::dice::fraction;

/// How much a request matters, in ascending order: the greatest class is shed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Criticality {
    /// Test requests, which nobody misses.
    Test,
    /// Reads.
    Get,
    /// Writes.
    Post,
    /// Requests that the business depends on, such as payments.
    Critical,
}

impl Criticality {
    /// All classes, in the order in which they are shed.
    pub const ALL: [Criticality; 4] = [Criticality::Test, Criticality::Get, Criticality::Post, Criticality::Critical];

    /// Returns the name in configurations and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Criticality::Test => "test",
            Criticality::Get => "get",
            Criticality::Post => "post",
            Criticality::Critical => "critical",
        }
    }

    /// The share of this class that is shed at a level: each whole level is one class, the lowest first.
    fn share(self, level: f64) -> f64 {
        let below = match self {
            Criticality::Test => 0.0,
            Criticality::Get => 1.0,
            Criticality::Post => 2.0,
            Criticality::Critical => 3.0,
        };
        (level - below).clamp(0.0, 1.0)
    }
}

/// Whether a limit acts: try a new one in shadow mode first, and switch off one that misbehaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Refuses requests.
    #[default]
    Enforce,
    /// Counts the requests that it would refuse, and refuses none.
    Shadow,
    /// Does nothing.
    Off,
}

/// A shedder's decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Judgement {
    /// The request passes.
    Pass,
    /// The request passes, and would be shed if the shedder were not in [`Mode::Shadow`].
    WouldShed,
    /// The request is shed.
    Shed,
}

impl Mode {
    /// Returns the decision in this mode. `sheds` is not called in [`Mode::Off`].
    pub fn judge(self, sheds: impl FnOnce() -> bool) -> Judgement {
        if self == Mode::Off || !sheds() {
            Judgement::Pass
        } else if self == Mode::Shadow {
            Judgement::WouldShed
        } else {
            Judgement::Shed
        }
    }
}

/// Whether a roll falls into a share. A roll that is shed at a share is shed at every larger one.
fn falls(roll: u64, share: f64) -> bool {
    fraction(roll) < share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_given_up_one_after_another() {
        for (level, expected) in [
            (0.0, [0.0, 0.0, 0.0, 0.0]),
            (0.25, [0.25, 0.0, 0.0, 0.0]),
            (1.5, [1.0, 0.5, 0.0, 0.0]),
            (3.0, [1.0, 1.0, 1.0, 0.0]),
            (4.0, [1.0, 1.0, 1.0, 1.0]),
        ] {
            assert_eq!(Criticality::ALL.map(|class| class.share(level)), expected, "{level}");
        }
    }

    #[test]
    fn a_share_of_all_takes_every_roll_and_one_of_none_takes_none() {
        for roll in [0, 1, u64::MAX / 2, u64::MAX] {
            assert!(falls(roll, 1.0));
            assert!(!falls(roll, 0.0));
        }
    }

    #[test]
    fn a_mode_decides_what_comes_of_it() {
        let cases = [
            (Mode::Enforce, true, Judgement::Shed),
            (Mode::Enforce, false, Judgement::Pass),
            (Mode::Shadow, true, Judgement::WouldShed),
            (Mode::Shadow, false, Judgement::Pass),
        ];
        for (mode, sheds, expected) in cases {
            assert_eq!(mode.judge(|| sheds), expected);
        }
        assert_eq!(Mode::Off.judge(|| unreachable!("it is not asked")), Judgement::Pass);
    }
}
