//! Times in buckets, so that a percentile of any number of them takes a fixed room.

#![allow(clippy::cast_possible_truncation, reason = "numbers of buckets are below 192")]

use std::time::Duration;

/// Times below 2^16 ns (66 µs) share the first bucket, those from 2^40 ns (18 minutes) on the last.
const OCTAVE_FIRST: u32 = 16;
const OCTAVES: usize = 24;

/// Buckets an octave: the middle of one is at most a sixteenth off.
const PARTS_BITS: u32 = 3;
const PARTS: usize = 1 << PARTS_BITS;

/// Counts of times, in buckets that grow with the time.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: [u32; OCTAVES * PARTS],
}

impl Histogram {
    pub(super) const fn new() -> Histogram {
        Histogram { counts: [0; OCTAVES * PARTS] }
    }

    pub(super) fn add(&mut self, rtt: Duration) {
        if let Some(count) = self.counts.get_mut(bucket(rtt)) {
            *count = count.saturating_add(1);
        }
    }

    /// About the time that `share` of the samples do not exceed: the middle of its bucket. `None` without samples.
    pub(super) fn percentile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.counts.iter().copied().map(u64::from).sum();
        let rank = super::whole((total as f64 * share).round()).clamp(1, total.max(1));
        let mut seen = 0;
        let found = self.counts.iter().position(|&count| {
            seen += u64::from(count);
            seen >= rank
        });
        found.map(middle)
    }
}

fn bucket(rtt: Duration) -> usize {
    let least = 1 << OCTAVE_FIRST;
    let most = (1 << (OCTAVE_FIRST + OCTAVES as u32)) - 1;
    let nanos = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX).clamp(least, most);
    let octave = nanos.ilog2();
    let part = (nanos >> (octave - PARTS_BITS)) as usize & (PARTS - 1);
    (octave - OCTAVE_FIRST) as usize * PARTS + part
}

fn middle(bucket: usize) -> Duration {
    let octave = OCTAVE_FIRST + (bucket / PARTS) as u32;
    let width = 1u64 << (octave - PARTS_BITS);
    let start = (PARTS + bucket % PARTS) as u64 * width;
    Duration::from_nanos(start + width / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_bucket_is_near() {
        let mut nanos = 1u64 << OCTAVE_FIRST;
        while nanos < 1 << 39 {
            let rtt = Duration::from_nanos(nanos);
            let error = middle(bucket(rtt)).as_nanos().abs_diff(rtt.as_nanos()) as f64 / nanos as f64;
            assert!(error <= 1.0 / 16.0, "{rtt:?}: {error}");
            nanos += nanos / 97;
        }
    }

    #[test]
    fn finds_the_rank() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.percentile(0.5), None);
        for millis in 1..=100 {
            histogram.add(Duration::from_millis(millis));
        }
        for (share, millis) in [(0.0, 1.0), (0.5, 50.0), (0.9, 90.0), (0.99, 99.0), (1.0, 100.0)] {
            let found = histogram.percentile(share).unwrap().as_secs_f64() * 1000.0;
            assert!((found / millis - 1.0).abs() <= 1.0 / 16.0, "{share}: {found} is not about {millis}");
        }
    }

    #[test]
    fn the_rank_is_rounded() {
        let mut histogram = Histogram::new();
        for millis in [100, 200, 400, 800] {
            histogram.add(Duration::from_millis(millis));
        }
        // 4 · 0.3 = 1.2 is 1; 4 · 0.4 = 1.6 and 4 · 0.6 = 2.4 are 2; 4 · 0.625 = 2.5 is 3.
        for (share, millis) in [(0.3, 100.0), (0.4, 200.0), (0.6, 200.0), (0.625, 400.0)] {
            let found = histogram.percentile(share).unwrap().as_secs_f64() * 1000.0;
            assert!((found / millis - 1.0).abs() <= 1.0 / 16.0, "{share}: {found} is not about {millis}");
        }
    }

    #[test]
    fn takes_any_time() {
        let mut histogram = Histogram::new();
        histogram.add(Duration::ZERO);
        histogram.add(Duration::MAX);
        assert!(histogram.percentile(0.5).unwrap() < Duration::from_micros(100));
        assert!(histogram.percentile(1.0).unwrap() > Duration::from_secs(900));
    }
}
