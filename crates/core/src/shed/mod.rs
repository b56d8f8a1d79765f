//! Load shedding: whom to turn away when there is too much, so that the rest is served.
//!
//! | to find | look in |
//! |---|---|
//! | a share of the fleet that only critical requests may use | `fleet.rs` |
//! | classes given up one after another, slowly, as a worker gets busy | `worker.rs` |
//! | a queue that has stood too long | `codel.rs` |
//! | a client that holds back when it is refused | `throttle.rs` |
//! | a queue that is too long, by class | `queue.rs` |
//!
//! All of it is arithmetic: time comes in as a value, and chance as a number that the caller rolled
//! ([`Dice`](crate::Dice)). What is shed is answered with 503: the caller did nothing wrong.

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

/// How much a request matters. The order is that in which they are kept: the greatest is shed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Criticality {
    /// Requests in test mode: nobody misses them.
    Test,
    /// What reads.
    Get,
    /// What writes.
    Post,
    /// What the business is about, like taking a payment.
    Critical,
}

impl Criticality {
    /// All of them, in the order in which they are shed.
    pub const ALL: [Criticality; 4] = [Criticality::Test, Criticality::Get, Criticality::Post, Criticality::Critical];

    /// The name in configurations and metrics.
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

/// Whether a shedder acts: a new one is watched before it is trusted, and one that errs is switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It sheds.
    #[default]
    Enforce,
    /// It tells what it would shed, and sheds nothing.
    Shadow,
    /// It is not asked.
    Off,
}

/// What a shedder says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Judgement {
    /// It passes.
    Pass,
    /// It passes, and would be shed if the shedder were not in [`Mode::Shadow`].
    WouldShed,
    /// It is turned away.
    Shed,
}

impl Mode {
    /// What comes of a shedder's answer in this mode; it is asked only if it is not off.
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

/// Whether a roll falls into a share: with the same roll, what is shed at a share is shed at every larger one.
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
