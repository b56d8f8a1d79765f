//! A decision under a calendar limit allocates nothing, also where it has to find a window.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use tidegate_core::{Calendar, CalendarPeriod, Limit, Op, State, Time, decide};

use tidegate_testkit::counting::{Counting, allocated};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn decisions_allocate_nothing() {
    const HOUR: u64 = 3_600_000_000_000;
    for period in CalendarPeriod::ALL {
        for zone in ["UTC", "Europe/Berlin", "Pacific/Apia", "Africa/Casablanca"] {
            let limit = Limit::calendar_window(5, Calendar::new(period, zone, None).unwrap()).unwrap();
            let mut state = State::fresh(&limit);
            let before = allocated();
            // Through the windows of 50 years, of which every seventh step goes back by some days.
            for step in 0..10_000_u64 {
                let back = if step % 7 == 6 { 100 } else { 0 };
                let now = Time::from_nanos((11_000 + step * 44 - back) * HOUR);
                let taken = decide(&limit, &mut state, now, Op::Take(1));
                decide(&limit, &mut state, now, Op::Debit(9));
                decide(&limit, &mut state, now, Op::Refund(1, taken.receipt()));
                decide(&limit, &mut state, now, Op::Peek);
            }
            assert_eq!(allocated() - before, 0, "by {period} in {zone}");
        }
    }
}
