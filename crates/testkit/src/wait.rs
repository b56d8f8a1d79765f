//! Waiting until something holds.

use std::time::Duration;

use tidegate_core::Clock;

/// The longest time that [`eventually`] waits. A test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The longest time that [`wait_until`] waits.
const STARTUP: Duration = Duration::from_secs(15);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until something holds, for 20 s at most. Returns whether it did.
pub fn eventually(holds: impl FnMut() -> bool) -> bool {
    holds_within(PATIENCE, holds)
}

/// Waits until something holds.
///
/// # Panics
/// If it does not hold within 15 s.
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    assert!(holds_within(STARTUP, holds), "after {STARTUP:?} it is still not true: {what}");
}

fn holds_within(time: Duration, mut holds: impl FnMut() -> bool) -> bool {
    for _ in 0..time.as_millis() / PAUSE.as_millis() {
        if holds() {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

/// Waits while the last ten seconds of a minute last, for tests that count in windows of whole minutes.
pub fn not_at_the_end_of_a_minute() {
    let second = || Clock::system().now().as_nanos() / 1_000_000_000 % 60;
    assert!(eventually(|| second() < 50), "the minute does not end");
}
