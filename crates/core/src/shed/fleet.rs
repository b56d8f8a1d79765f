//! The fleet shedder: a share of the fleet is reserved for critical requests.

use super::error::{check_count, check_range};
use super::{Criticality, ShedError};
use crate::adaptive::whole;
use crate::bounds::FLEET_MAX;

/// Counts what is in flight besides critical requests, and sheds what is over their share. Critical ones are never shed
/// here: the reserve is theirs, and what the others leave.
#[derive(Clone, Debug)]
pub struct FleetShedder {
    reserved: f64,
    room: u64,
    others: u64,
}

impl FleetShedder {
    /// A fleet that bears `capacity` requests at once, of which the share `reserved` (0 to 1; 0.2 is common) is for
    /// critical ones. The reserve is rounded up.
    ///
    /// # Errors
    /// If the capacity is zero or too large, or the share is not 0 to 1.
    pub fn new(capacity: u64, reserved: f64) -> Result<FleetShedder, ShedError> {
        check_count("capacity", capacity, FLEET_MAX)?;
        check_range("reserved", reserved, 0.0, 1.0)?;
        Ok(FleetShedder { reserved, room: room(capacity, reserved), others: 0 })
    }

    /// Lets a request in, or not. Whoever was let in must be given back by [`FleetShedder::release`].
    #[must_use = "a request that was let in must be released"]
    pub fn try_acquire(&mut self, class: Criticality) -> bool {
        if class == Criticality::Critical {
            return true;
        }
        let admitted = self.others < self.room;
        self.others += u64::from(admitted);
        admitted
    }

    /// A request that was let in has ended.
    pub fn release(&mut self, class: Criticality) {
        if class != Criticality::Critical {
            self.others = self.others.saturating_sub(1);
        }
    }

    /// The fleet has grown or shrunk. Who is in stays.
    pub fn set_capacity(&mut self, capacity: u64) {
        self.room = room(capacity.min(FLEET_MAX), self.reserved);
    }

    /// How many may be in flight besides critical ones.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.room
    }

    /// How many are in flight besides critical ones.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.others
    }
}

fn room(capacity: u64, reserved: f64) -> u64 {
    // 0.07 · 100 is a little more than 7 as a float, and must not become 8.
    let reserve = whole((capacity as f64 * reserved - 1e-6).ceil().max(0.0));
    capacity.saturating_sub(reserve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_stay_within_their_share() {
        let mut fleet = FleetShedder::new(10, 0.2).unwrap();
        for _ in 0..8 {
            assert!(fleet.try_acquire(Criticality::Get));
        }
        for class in [Criticality::Test, Criticality::Get, Criticality::Post] {
            assert!(!fleet.try_acquire(class), "{class:?}");
        }
        for _ in 0..20 {
            assert!(fleet.try_acquire(Criticality::Critical), "critical ones are never shed here");
        }
        fleet.release(Criticality::Critical);
        assert!(!fleet.try_acquire(Criticality::Post), "and leave no room for others");
        fleet.release(Criticality::Get);
        assert!(fleet.try_acquire(Criticality::Post));
        fleet.set_capacity(5);
        assert_eq!((fleet.room(), fleet.others()), (4, 8));
        assert!(!fleet.try_acquire(Criticality::Post));
    }

    #[test]
    fn the_reserve_is_rounded_up() {
        for (capacity, reserved, room) in [(100, 0.07, 93), (10, 0.25, 7), (1, 0.2, 0), (5, 0.0, 5), (5, 1.0, 0)] {
            assert_eq!(FleetShedder::new(capacity, reserved).unwrap().room(), room, "{capacity}, {reserved}");
        }
    }

    #[test]
    fn bad_numbers_are_refused() {
        for (capacity, reserved, expected) in [
            (0, 0.2, "capacity: 0 is out of range; use 1 to 4294967295"),
            (1, 1.01, "reserved: 1.01 is out of range; use 0 to 1"),
            (1, f64::NAN, "reserved: NaN is out of range; use 0 to 1"),
        ] {
            assert_eq!(FleetShedder::new(capacity, reserved).unwrap_err().to_string(), expected);
        }
    }
}
