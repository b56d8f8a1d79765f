//! A limit as remote stores use it.

use std::time::Duration;

use super::{Limit, Shape};
use crate::algorithm::bucket::Bucket;
use crate::algorithm::calendar_window::CalendarLimit;
use crate::algorithm::sliding_counter::SlidingCounter;
use crate::bounds::{NANOS_PER_SECOND, SPAN_NANOS_MAX};
use crate::ext::LimitExt;
use crate::{Arithmetic, Calendar, Receipt, Time};

impl LimitExt for Limit {
    fn arithmetic(&self) -> Arithmetic {
        match self.shape {
            Shape::Bucket(_) => Arithmetic::Bucket,
            Shape::Window(_) => Arithmetic::FixedWindow,
            Shape::Calendar(_) => Arithmetic::CalendarWindow,
            Shape::Counter(_) => Arithmetic::SlidingCounter,
            Shape::Log(_) => Arithmetic::Log,
        }
    }

    fn read_state(&self, text: &str, now: Time) -> Option<[u64; 3]> {
        match self.shape {
            Shape::Bucket(_) => Some([digits(text)?, 0, 0]),
            Shape::Window(_) => {
                let (number, nanos) = match text.split_once('.') {
                    Some((number, nanos)) => (number, digits(nanos).filter(|_| nanos.len() == 9)?),
                    None => (text, 0),
                };
                let (units, seconds) = number_and_tail(number, 11)?;
                let end = seconds.checked_mul(NANOS_PER_SECOND)?.checked_add(nanos)?;
                Some([end, units, 0])
            }
            Shape::Calendar(window) => {
                let (units, name) = number_and_tail(text, 10)?;
                Some([end_of_named(window.calendar, name, now), units, 0])
            }
            Shape::Counter(_) => {
                let mut words = text.strip_prefix('c')?.split(' ').map(digits);
                let (prev, curr, fresh_at) = (words.next()??, words.next()??, words.next()??);
                Some([fresh_at, prev, curr])
            }
            Shape::Log(_) => None,
        }
    }

    fn can_be_copied(&self) -> bool {
        !matches!(self.shape, Shape::Log(_))
    }

    fn receipt_before_leases(&self, receipt: Receipt, longest: Duration) -> Receipt {
        match self.shape {
            Shape::Bucket(_) => receipt.earlier(longest),
            Shape::Window(_) | Shape::Calendar(_) | Shape::Counter(_) | Shape::Log(_) => receipt,
        }
    }

    fn divided(&self, parts: u64) -> Limit {
        let parts = parts.max(1);
        let part = |units: u64| (units / parts).max(1);
        let shape = match self.shape {
            Shape::Bucket(bucket) => {
                let burst = part(bucket.burst());
                // A slow bucket of one unit may be slower than any that is configured, and no slower than that.
                let interval = bucket.interval().saturating_mul(parts).min(SPAN_NANOS_MAX / burst);
                Shape::Bucket(Bucket::every(interval, burst))
            }
            Shape::Window(mut window) => {
                window.limit = part(window.limit);
                Shape::Window(window)
            }
            Shape::Calendar(window) => Shape::Calendar(CalendarLimit { limit: part(window.limit), ..window }),
            Shape::Counter(counter) => Shape::Counter(SlidingCounter { limit: part(counter.limit), ..counter }),
            Shape::Log(mut log) => {
                log.limit = part(log.limit);
                Shape::Log(log)
            }
        };
        Limit { shape, ..*self }
    }
}

/// The end of the window of this name, as far as it matters at `now`: the start of the present window if it is over,
/// and some instant after the next window if it is later than that.
fn end_of_named(calendar: Calendar, name: u64, now: Time) -> u64 {
    let present = calendar.window_at(now);
    let next_name = || calendar.next(&present).map(|next| u64::from(next.name()));
    match u64::from(present.name()) {
        of_present if name < of_present => present.start(),
        of_present if name == of_present => present.end(),
        _ if Some(name) == next_name() => calendar.end_after(&present),
        _ => calendar.end_after(&present).saturating_add(1),
    }
}

/// Parses a whole number: digits and nothing else.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Parses two numbers that were written without a separator, the second with this many digits.
fn number_and_tail(text: &str, tail: usize) -> Option<(u64, u64)> {
    let (number, tail) = text.split_at_checked(text.len().checked_sub(tail)?)?;
    Some((digits(number)?, digits(tail)?))
}
