//! Envoy's units of time.

use std::borrow::Cow;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

/// A unit by its number on the wire. Months have 30 days and years 365, as in rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    number: i32,
    name: &'static str,
    nanos: u64,
}

const UNITS: [Unit; 7] = [
    Unit { number: 1, name: "SECOND", nanos: SECOND },
    Unit { number: 2, name: "MINUTE", nanos: 60 * SECOND },
    Unit { number: 3, name: "HOUR", nanos: 3_600 * SECOND },
    Unit { number: 4, name: "DAY", nanos: DAY },
    Unit { number: 5, name: "MONTH", nanos: 30 * DAY },
    Unit { number: 6, name: "YEAR", nanos: 365 * DAY },
    Unit { number: 7, name: "WEEK", nanos: 7 * DAY },
];

impl Unit {
    pub(super) fn from_number(number: i32) -> Option<Unit> {
        UNITS.into_iter().find(|unit| unit.number == number)
    }

    fn of_length(nanos: u64) -> Option<Unit> {
        UNITS.into_iter().find(|unit| unit.nanos == nanos)
    }

    /// The number of the unit of this length; 0, which is Envoy's UNKNOWN, if there is none.
    pub(super) fn number_of(nanos: u64) -> i32 {
        Unit::of_length(nanos).map_or(0, |unit| unit.number)
    }

    /// The name of the unit of this length, or the length where there is none.
    pub(super) fn name_of(nanos: u64) -> Cow<'static, str> {
        match Unit::of_length(nanos) {
            Some(unit) => Cow::Borrowed(unit.name),
            None if nanos.is_multiple_of(SECOND) => Cow::Owned(format!("{}s", nanos / SECOND)),
            None => Cow::Owned(format!("{nanos}ns")),
        }
    }

    pub(super) fn nanos(self) -> u64 {
        self.nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit as WireUnit;

    #[test]
    fn numbers_are_those_of_the_wire() {
        for (wire, nanos) in [
            (WireUnit::Second, SECOND),
            (WireUnit::Minute, 60 * SECOND),
            (WireUnit::Hour, 3_600 * SECOND),
            (WireUnit::Day, DAY),
            (WireUnit::Week, 7 * DAY),
            (WireUnit::Month, 30 * DAY),
            (WireUnit::Year, 365 * DAY),
        ] {
            assert_eq!(Unit::number_of(nanos), wire as i32);
            assert_eq!(Unit::name_of(nanos), wire.as_str_name());
            assert_eq!(Unit::from_number(wire as i32).map(Unit::nanos), Some(nanos));
        }
        assert_eq!(Unit::number_of(10 * SECOND), WireUnit::Unknown as i32);
        assert_eq!(Unit::from_number(0), None);
        assert_eq!((&*Unit::name_of(10 * SECOND), &*Unit::name_of(SECOND / 2)), ("10s", "500000000ns"));
    }
}
