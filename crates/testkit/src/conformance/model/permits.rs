//! Permits by the rules of `spec/permits.md`, word by word: a list of holders with the ends of their leases.

use std::time::Duration;

use tidegate_core::{PermitOp, Permits};

/// The permits of one key. Instants are in nanoseconds.
#[derive(Default)]
pub struct PermitModel {
    held: Vec<(u128, u64)>,
    longest: u64,
}

impl PermitModel {
    /// Decides an operation of a holder at an instant.
    pub fn decide(&mut self, now: u64, holder: u128, op: PermitOp) -> Permits {
        self.held.retain(|(_, end)| *end > now);
        if self.held.is_empty() {
            self.longest = 0;
        }
        let place = |model: &PermitModel| model.held.iter().position(|(other, _)| *other == holder);
        let done = match op {
            PermitOp::Acquire { limit, lease } => {
                let lease = nanos(lease);
                let latest = now + self.longest.max(lease);
                self.held.iter_mut().for_each(|(_, end)| *end = latest.min(*end));
                match place(self) {
                    Some(place) => self.hold(place, now, lease),
                    None if (self.held.len() as u64) < limit => {
                        self.held.push((holder, 0));
                        self.hold(self.held.len() - 1, now, lease)
                    }
                    None => false,
                }
            }
            PermitOp::Renew { lease } => place(self).is_some_and(|place| self.hold(place, now, nanos(lease))),
            PermitOp::Release => place(self).map(|place| self.held.remove(place)).is_some(),
            unknown => panic!("the model does not know {unknown:?}"),
        };
        if self.held.is_empty() {
            self.longest = 0;
        }
        let next_end = self.held.iter().map(|(_, end)| end - now).min().unwrap_or(0);
        Permits::new(done, self.held.len() as u64, Duration::from_nanos(next_end))
    }

    fn hold(&mut self, place: usize, now: u64, lease: u64) -> bool {
        self.held[place].1 = self.held[place].1.max(now + lease);
        self.longest = self.longest.max(lease);
        true
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}
