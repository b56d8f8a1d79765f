//! The fleet shedder: a share of the fleet is reserved for critical requests.

use super::error::{check_count, check_range};
use super::{Criticality, ShedError};
use crate::adaptive::whole;
use crate::bounds::FLEET_MAX;
use crate::sync::{AtomicU64, Ordering};

/// Sheds requests beyond the share that is left beside the reserve for critical requests. Critical requests are never
/// shed here: they may use the reserve and all that the others leave. The caller counts the requests in flight.
#[derive(Debug)]
pub struct FleetShedder {
    reserved: f64,
    room: AtomicU64,
}

impl FleetShedder {
    /// Creates a shedder for a fleet that can handle `capacity` requests at the same time, of which the share
    /// `reserved` (0 to 1; 0.2 is common) is for critical ones. The reserve is rounded up.
    ///
    /// # Errors
    /// Fails if the capacity is zero or too large, or the share is not 0 to 1.
    pub fn new(capacity: u64, reserved: f64) -> Result<FleetShedder, ShedError> {
        check_count("capacity", capacity, FLEET_MAX)?;
        check_range("reserved", reserved, 0.0, 1.0)?;
        Ok(FleetShedder { reserved, room: AtomicU64::new(room(capacity, reserved)) })
    }

    /// Returns whether to shed a request while `others` requests besides critical ones are in flight.
    #[inline]
    #[must_use]
    pub fn sheds(&self, class: Criticality, others: u64) -> bool {
        class != Criticality::Critical && others >= self.room()
    }

    /// Sets the capacity, when the fleet has grown or shrunk. Requests in flight stay.
    pub fn set_capacity(&self, capacity: u64) {
        self.room.store(room(capacity.min(FLEET_MAX), self.reserved), Ordering::Relaxed);
    }

    /// Returns the most requests besides critical ones that may be in flight.
    #[inline]
    #[must_use]
    pub fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
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
        let fleet = FleetShedder::new(10, 0.2).unwrap();
        for class in [Criticality::Test, Criticality::Get, Criticality::Post] {
            assert!(!fleet.sheds(class, 7), "{class:?}");
            assert!(fleet.sheds(class, 8), "{class:?}");
        }
        assert!(!fleet.sheds(Criticality::Critical, u64::MAX), "critical ones are never shed here");
        fleet.set_capacity(5);
        assert_eq!(fleet.room(), 4);
        assert!(fleet.sheds(Criticality::Post, 4) && !fleet.sheds(Criticality::Post, 3));
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
