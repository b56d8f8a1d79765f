//! One limit for each shape of state that a key can have.

use std::time::Duration;

use tidegate_core::{Limit, Rate};

/// Limits of so many units in a window, one for each shape.
pub(crate) fn every_shape(units: u64, window: Duration) -> [Limit; 5] {
    [
        Limit::gcra(Rate::new(units, window).unwrap(), units).unwrap(),
        Limit::fixed_window(units, window).unwrap(),
        Limit::sliding_counter(units, window).unwrap(),
        Limit::sliding_log(units, window).unwrap(),
        Limit::sliced_window_of(units, window, 10).unwrap(),
    ]
}
