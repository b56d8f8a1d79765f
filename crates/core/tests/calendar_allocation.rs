//! A decision under a calendar limit allocates nothing, also where it has to find a window.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod counting;

use tidegate_core::{Calendar, CalendarLimit, CalendarPeriod, Op, Time};

use counting::ASKED;

#[test]
fn decisions_allocate_nothing() {
    const HOUR: u64 = 3_600_000_000_000;
    for period in CalendarPeriod::ALL {
        for zone in ["UTC", "Europe/Berlin", "Pacific/Apia", "Africa/Casablanca"] {
            let limit = CalendarLimit::new(5, Calendar::new(period, zone, None).unwrap()).unwrap();
            let mut state = [0; 2];
            let before = ASKED.get();
            // Through the windows of 50 years, of which every seventh step goes back by some days.
            for step in 0..10_000_u64 {
                let back = if step % 7 == 6 { 100 } else { 0 };
                let now = Time::from_nanos((11_000 + step * 44 - back) * HOUR);
                let taken = limit.apply(&mut state, now, Op::Take(1));
                limit.apply(&mut state, now, Op::Debit(9));
                limit.apply(&mut state, now, Op::Refund(1, taken.receipt()));
                limit.apply(&mut state, now, Op::Peek);
            }
            assert_eq!(ASKED.get() - before, 0, "by {period} in {zone}");
        }
    }
}
