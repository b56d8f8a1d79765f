//! Client-side throttling: a client that is refused often sends less, before it costs the server anything.

use std::ops::Range;
use std::time::Duration;

use super::error::{check_range, check_time};
use super::{ShedError, falls};
use crate::Time;
use crate::bounds::THROTTLE_BUCKETS;

/// The configuration of a [`ClientThrottle`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientThrottleConfig {
    /// The number of requests to send for each that is accepted, 1 to 100. With 2, a server that refuses everything
    /// above its capacity gets up to twice its capacity, and the client soon notices when it can do more.
    pub k: f64,
    /// How long requests count.
    pub window: Duration,
}

impl Default for ClientThrottleConfig {
    fn default() -> ClientThrottleConfig {
        ClientThrottleConfig { k: 2.0, window: Duration::from_secs(120) }
    }
}

impl ClientThrottleConfig {
    /// Returns the probability that a request is held back after `requests` in a window, of which `accepts` were
    /// accepted: at least 0, below 1.
    #[inline]
    #[must_use]
    pub fn probability(&self, requests: u64, accepts: u64) -> f64 {
        let too_many = requests as f64 - self.k * accepts as f64;
        // Mostly nothing is too much, and the division is spared.
        if too_many > 0.0 { too_many / (requests as f64 + 1.0) } else { 0.0 }
    }

    /// Returns whether to hold back a request after `requests` in a window, of which `accepts` were accepted. `roll` is
    /// called only if it matters.
    #[inline]
    #[must_use]
    pub fn sheds(&self, requests: u64, accepts: u64, roll: impl FnOnce() -> u64) -> bool {
        let probability = self.probability(requests, accepts);
        probability > 0.0 && falls(roll(), probability)
    }
}

/// Counts a client's requests and the ones that the server accepted, in a window that moves in sixtieths, and holds the
/// next back with the probability (requests − k · accepts) / (requests + 1), at least 0. Requests that are held back
/// count too.
#[derive(Clone, Debug)]
pub struct ClientThrottle {
    config: ClientThrottleConfig,
    buckets: [Bucket; THROTTLE_BUCKETS],
    /// The sum of the buckets.
    sum: Bucket,
    /// The number of the latest bucket since the epoch.
    latest: u64,
    /// The instants of the latest bucket, in nanoseconds; empty at first. While `now` is among them nothing moves, and
    /// no division is needed to find out.
    latest_nanos: Range<u64>,
    /// How long a bucket lasts.
    width_nanos: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    requests: u64,
    accepts: u64,
}

impl ClientThrottle {
    /// Creates a throttle for one server.
    ///
    /// # Errors
    /// Fails if a number is out of range.
    pub fn new(config: ClientThrottleConfig) -> Result<ClientThrottle, ShedError> {
        check_range("k", config.k, 1.0, 100.0)?;
        check_time("window", config.window, ClientThrottleConfig::default().window)?;
        let buckets = [Bucket::default(); THROTTLE_BUCKETS];
        let width_nanos = u64::try_from(config.window.as_nanos()).unwrap_or(u64::MAX) / THROTTLE_BUCKETS as u64;
        let (sum, width_nanos) = (Bucket::default(), width_nanos.max(1));
        Ok(ClientThrottle { config, buckets, sum, latest: 0, latest_nanos: 0..0, width_nanos })
    }

    /// Counts a request and returns whether to hold it back, for a number that the caller rolled.
    #[must_use]
    pub fn sheds(&mut self, now: Time, roll: u64) -> bool {
        let probability = self.probability(now);
        self.add(Bucket { requests: 1, accepts: 0 });
        falls(roll, probability)
    }

    /// Counts a request that the server has accepted.
    pub fn accepted(&mut self, now: Time) {
        self.move_on(now);
        self.add(Bucket { requests: 0, accepts: 1 });
    }

    /// Returns the probability that the next request is held back: at least 0, below 1.
    pub fn probability(&mut self, now: Time) -> f64 {
        self.move_on(now);
        self.config.probability(self.sum.requests, self.sum.accepts)
    }

    fn add(&mut self, more: Bucket) {
        let place = place(self.latest);
        for bucket in self.buckets.get_mut(place).into_iter().chain([&mut self.sum]) {
            bucket.requests = bucket.requests.saturating_add(more.requests);
            bucket.accepts = bucket.accepts.saturating_add(more.accepts);
        }
    }

    /// Drops the buckets that have left the window.
    #[inline]
    fn move_on(&mut self, now: Time) {
        if !self.latest_nanos.contains(&now.as_nanos()) {
            self.move_to_bucket_of(now);
        }
    }

    #[cold]
    fn move_to_bucket_of(&mut self, now: Time) {
        let bucket = now.as_nanos() / self.width_nanos;
        let count = THROTTLE_BUCKETS as u64;
        if bucket.abs_diff(self.latest) >= count {
            // All are too old, or the clock was set back by more than the window.
            self.buckets = [Bucket::default(); THROTTLE_BUCKETS];
            self.sum = Bucket::default();
            self.latest = bucket;
        }
        while self.latest < bucket {
            self.latest += 1;
            if let Some(oldest) = self.buckets.get_mut(place(self.latest)) {
                self.sum.requests = self.sum.requests.saturating_sub(oldest.requests);
                self.sum.accepts = self.sum.accepts.saturating_sub(oldest.accepts);
                *oldest = Bucket::default();
            }
        }
        let start = self.latest.saturating_mul(self.width_nanos);
        self.latest_nanos = start..start.saturating_add(self.width_nanos);
    }
}

#[allow(clippy::cast_possible_truncation, reason = "it is below the number of buckets")]
fn place(bucket: u64) -> usize {
    (bucket % THROTTLE_BUCKETS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dice;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn throttle() -> ClientThrottle {
        ClientThrottle::new(ClientThrottleConfig::default()).unwrap()
    }

    #[test]
    fn refuses_by_the_formula() {
        let mut throttle = throttle();
        for (requests, accepts, expected) in [
            (0, 0, 0.0),
            (10, 5, 0.0),         // as many as twice the accepts
            (10, 0, 10.0 / 21.0), // (20 - 2 · 5) / 21
            (0, 5, 0.0),          // (20 - 2 · 10) / 21
            (79, 0, 79.0 / 100.0),
        ] {
            for _ in 0..requests {
                let _ = throttle.sheds(at(1000), 0);
            }
            for _ in 0..accepts {
                throttle.accepted(at(1000));
            }
            assert!((throttle.probability(at(1000)) - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn what_left_the_window_is_forgotten() {
        let mut throttle = throttle();
        for second in 0..60 {
            let _ = throttle.sheds(at(1000 + second), 0);
        }
        assert_eq!(throttle.sum.requests, 60);
        // The window moves on by two seconds at a time; a bucket is out when 60 later ones have begun.
        assert_eq!((throttle.probability(at(1119)) * 61.0).round(), 60.0);
        assert_eq!((throttle.probability(at(1120)) * 59.0).round(), 58.0);
        assert_eq!((throttle.probability(at(1149)) * 31.0).round(), 30.0);
        assert_eq!(throttle.probability(at(1180)), 0.0);
    }

    #[test]
    fn a_clock_set_back_counts_as_the_latest_instant_or_begins_anew() {
        let mut throttle = throttle();
        let _ = throttle.sheds(at(1000), 0);
        let _ = throttle.sheds(at(990), 0);
        assert_eq!(throttle.sum.requests, 2);
        assert_eq!(throttle.probability(at(10)), 0.0);
    }

    #[test]
    fn answers_as_a_list_of_all_that_happened_does() {
        for seed in 0..50 {
            let (mut throttle, mut dice) = (throttle(), Dice::new(seed));
            // The bucket of each request, and whether it is an accept.
            let (mut all, mut latest, mut now): (Vec<(u64, bool)>, u64, u64) = (Vec::new(), 500, 1000);
            for _ in 0..400 {
                // Mostly a bucket's time or less; seldom a window's, or back.
                now = match dice.roll() % 20 {
                    0 => now + dice.roll() % 200,
                    1 => now.saturating_sub(dice.roll() % 150),
                    _ => now + dice.roll() % 3,
                };
                let bucket = now / 2;
                if bucket.abs_diff(latest) >= 60 {
                    all.clear();
                    latest = bucket;
                }
                latest = latest.max(bucket);
                all.retain(|(counted, _)| counted + 60 > latest);
                let count = |accepts: bool| all.iter().filter(|(_, is_accept)| *is_accept == accepts).count() as f64;
                let expected = ((count(false) - 2.0 * count(true)) / (count(false) + 1.0)).max(0.0);
                assert_eq!(throttle.probability(at(now)), expected, "seed {seed}, second {now}");
                let is_accept = dice.roll() % 3 == 0;
                if is_accept {
                    throttle.accepted(at(now));
                } else {
                    let _ = throttle.sheds(at(now), 0);
                }
                all.push((latest, is_accept));
            }
        }
    }

    #[test]
    fn a_server_that_accepts_a_tenth_sees_about_twice_that() {
        let (mut throttle, mut dice, mut sent, mut accepted) = (throttle(), Dice::new(3), 0, 0);
        for step in 0..100_000u64 {
            let now = Time::from_nanos(step * 10_000_000);
            // A hundred a second, and the server accepts ten a second.
            if !throttle.sheds(now, dice.roll()) {
                sent += 1;
                if accepted <= step / 10 {
                    accepted += 1;
                    throttle.accepted(now);
                }
            }
        }
        let ratio = f64::from(sent) / accepted as f64;
        assert!((1.9..2.3).contains(&ratio), "{sent} sent, {accepted} accepted");
    }

    #[test]
    fn bad_numbers_are_refused() {
        let bad = ClientThrottleConfig { k: 0.5, ..ClientThrottleConfig::default() };
        assert_eq!(ClientThrottle::new(bad).unwrap_err().to_string(), "k: 0.5 is out of range; use 1 to 100");
    }
}
