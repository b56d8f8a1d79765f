//! Partitions: guaranteed shares of a limit, never more than the whole.

use std::time::Duration;

use super::error::{check_count, check_range, check_time};
use super::{AdaptiveError, whole};
use crate::Time;
use crate::bounds::{ADAPTIVE_LIMIT_MAX, PARTITIONS_MAX};

/// Divides a limit among partitions, such as live and batch traffic. While the limit is not reached, every partition
/// may use what is free. When it is reached, a partition below its guarantee that is refused gets a claim: slots that
/// become free are kept for it until it has its guarantee or has not asked for a while. So no capacity is kept idle for
/// a partition without requests, and the total is never exceeded.
///
/// A partition is identified by its index in the list of shares. Requests with any other index, or none, have no
/// guarantee and use what is free.
///
/// ```
/// use tidegate::Time;
/// use tidegate::adaptive::Partitions;
///
/// let mut partitions = Partitions::new(10, &[0.9, 0.1])?;
/// let (batch, now) = (Some(1), Time::default());
/// for _ in 0..10 {
///     assert!(partitions.try_acquire(batch, now)); // No other partition asks.
/// }
/// assert!(!partitions.try_acquire(Some(0), now));
/// partitions.release(batch);
/// assert!(!partitions.try_acquire(batch, now)); // It is kept for the partition that was refused.
/// assert!(partitions.try_acquire(Some(0), now));
/// # Ok::<(), tidegate::adaptive::AdaptiveError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Partitions {
    total: u64,
    in_use: u64,
    /// Slots used without a guarantee.
    others: u64,
    parts: Vec<Part>,
    claim: Duration,
}

#[derive(Clone, Debug)]
struct Part {
    share: f64,
    guarantee: u64,
    in_use: u64,
    /// Until when free slots are kept for it.
    claims_until: Option<Time>,
}

/// How long a claim lasts after the last refusal.
const CLAIM: Duration = Duration::from_secs(1);

impl Partitions {
    /// Divides `total` by these shares, each above 0 and at most 1. The rest has no guarantee.
    ///
    /// # Errors
    /// Fails if the total is zero or too large, a share is out of range, their sum is above 1, or there are too many.
    pub fn new(total: u64, shares: &[f64]) -> Result<Partitions, AdaptiveError> {
        check_count("total", total, ADAPTIVE_LIMIT_MAX)?;
        if shares.len() > PARTITIONS_MAX {
            return Err(AdaptiveError::TooManyShares { count: shares.len() });
        }
        for &share in shares {
            check_range("share", share, SHARE_MIN, 1.0)?;
        }
        let sum = shares.iter().sum();
        // Ten tenths are a little more than 1 as floats.
        if sum > 1.0 + ROUNDING {
            return Err(AdaptiveError::SharesAboveOne { sum });
        }
        let part = |&share| Part { share, guarantee: guarantee(total, share), in_use: 0, claims_until: None };
        let parts = shares.iter().map(part).collect();
        Ok(Partitions { total, in_use: 0, others: 0, parts, claim: CLAIM })
    }

    /// Sets how long a claim lasts. Default: one second.
    ///
    /// # Errors
    /// Fails if the duration is zero or longer than a day.
    pub fn with_claim(self, claim: Duration) -> Result<Partitions, AdaptiveError> {
        check_time("claim", claim, CLAIM)?;
        Ok(Partitions { claim, ..self })
    }

    /// Takes a slot for a partition if one is free for it, and returns whether it did. Free it with
    /// [`Partitions::release`].
    #[must_use = "a slot that was taken must be released"]
    pub fn try_acquire(&mut self, partition: Option<usize>, now: Time) -> bool {
        let full = self.in_use >= self.total;
        let claimed = if full { 0 } else { self.claimed(now) };
        let until = now.plus(self.claim);
        let place = partition.and_then(|place| self.parts.get_mut(place));
        let admitted = match place {
            Some(part) if part.in_use < part.guarantee => {
                if full {
                    part.claims_until = Some(until);
                } else {
                    part.in_use += 1;
                }
                !full
            }
            place => {
                let free = self.total.saturating_sub(self.in_use);
                let admitted = free > claimed;
                let in_use = place.map_or(&mut self.others, |part| &mut part.in_use);
                *in_use += u64::from(admitted);
                admitted
            }
        };
        self.in_use += u64::from(admitted);
        admitted
    }

    /// Releases a slot. Does nothing if none was taken.
    pub fn release(&mut self, partition: Option<usize>) {
        let place = partition.and_then(|place| self.parts.get_mut(place));
        let in_use = place.map_or(&mut self.others, |part| &mut part.in_use);
        if *in_use > 0 {
            *in_use -= 1;
            self.in_use = self.in_use.saturating_sub(1);
        }
    }

    /// Withdraws the claim of a partition that was refused, because the request was served in another way or has left.
    pub fn withdraw(&mut self, partition: Option<usize>) {
        if let Some(part) = partition.and_then(|place| self.parts.get_mut(place)) {
            part.claims_until = None;
        }
    }

    /// Sets the total, and the guarantees with it. Slots in use stay, and none is granted while there are too many.
    pub fn set_total(&mut self, total: u64) {
        self.total = total.clamp(1, ADAPTIVE_LIMIT_MAX);
        for part in &mut self.parts {
            part.guarantee = guarantee(self.total, part.share);
        }
    }

    /// Returns the number of slots in use.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Returns the number of slots used by a partition; with any other index, by all requests without a guarantee.
    #[must_use]
    pub fn in_use_by(&self, partition: Option<usize>) -> u64 {
        partition.and_then(|place| self.parts.get(place)).map_or(self.others, |part| part.in_use)
    }

    /// Returns the guaranteed slots of a partition: its share of the total rounded up, at least one; 0 with any other
    /// index.
    #[must_use]
    pub fn guarantee(&self, partition: Option<usize>) -> u64 {
        partition.and_then(|place| self.parts.get(place)).map_or(0, |part| part.guarantee)
    }

    /// Slots that are kept for partitions with a claim.
    fn claimed(&self, now: Time) -> u64 {
        // After a clock was set back a claim would last until it has caught up: one beyond its length is void.
        let latest = now.plus(self.claim);
        let live = |part: &&Part| part.claims_until.is_some_and(|until| now < until && until <= latest);
        self.parts.iter().filter(live).map(|part| part.guarantee.saturating_sub(part.in_use)).sum()
    }
}

/// Smallest share: one in a million. A partition that should get nothing needs no share.
const SHARE_MIN: f64 = 1e-6;

/// Rounding error of sums and products of shares.
const ROUNDING: f64 = 1e-9;

fn guarantee(total: u64, share: f64) -> u64 {
    // 0.07 · 100 is a little more than 7 as a float, and must not become 8.
    whole((total as f64 * (share - ROUNDING)).ceil()).clamp(1, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    fn taken(partitions: &mut Partitions, partition: Option<usize>, now: Time) -> u64 {
        (0..1000).take_while(|_| partitions.try_acquire(partition, now)).count() as u64
    }

    #[test]
    fn guarantees_are_rounded_up_and_at_least_one() {
        for (total, share, expected) in
            [(100, 0.07, 7), (10, 0.25, 3), (10, 0.01, 1), (1, 1.0, 1), (200, 0.3, 60), (3, 1.0 / 3.0, 1), (7, 1e-6, 1)]
        {
            assert_eq!(Partitions::new(total, &[share]).unwrap().guarantee(Some(0)), expected, "{total} · {share}");
        }
    }

    #[test]
    fn all_of_it_is_for_who_comes() {
        for partition in [Some(0), Some(1), Some(7), None] {
            let mut partitions = Partitions::new(20, &[0.5, 0.1]).unwrap();
            assert_eq!(taken(&mut partitions, partition, at(0)), 20, "{partition:?}");
        }
    }

    #[test]
    fn what_becomes_free_is_kept_for_who_was_refused_below_its_guarantee() {
        let mut partitions = Partitions::new(20, &[0.5, 0.1]).unwrap();
        assert_eq!(taken(&mut partitions, Some(1), at(0)), 20);
        assert!(!partitions.try_acquire(Some(0), at(0)));
        for place in 1..=10 {
            partitions.release(Some(1));
            assert!(!partitions.try_acquire(Some(1), at(place)), "above its guarantee");
            assert!(!partitions.try_acquire(None, at(place)), "without a guarantee");
            assert!(partitions.try_acquire(Some(0), at(place)));
            assert!(!partitions.try_acquire(Some(0), at(place)), "the whole is full");
        }
        partitions.release(Some(1));
        assert!(partitions.try_acquire(None, at(11)), "it has its guarantee");
        assert_eq!(partitions.in_use_by(Some(0)), 10);
    }

    #[test]
    fn a_claim_ends_when_nobody_asks() {
        let mut partitions = Partitions::new(2, &[0.5]).unwrap().with_claim(Duration::from_millis(100)).unwrap();
        assert_eq!(taken(&mut partitions, None, at(0)), 2);
        assert!(!partitions.try_acquire(Some(0), at(0)));
        partitions.release(None);
        assert!(!partitions.try_acquire(None, at(99)));
        assert!(partitions.try_acquire(None, at(100)));
        assert!(!partitions.try_acquire(Some(0), at(10_000)));
        partitions.release(None);
        assert!(partitions.try_acquire(None, at(0)), "a clock that was set back by more than a claim ends it");
    }

    #[test]
    fn a_smaller_total_lets_nobody_in_until_there_is_room() {
        let mut partitions = Partitions::new(10, &[0.5]).unwrap();
        assert_eq!(taken(&mut partitions, None, at(0)), 10);
        partitions.set_total(4);
        assert_eq!(partitions.guarantee(Some(0)), 2);
        for left in (4..10).rev() {
            assert!(!partitions.try_acquire(Some(0), at(0)));
            partitions.release(None);
            assert_eq!(partitions.in_use(), left);
        }
        partitions.release(None);
        assert!(partitions.try_acquire(Some(0), at(0)));
    }

    #[test]
    fn shares_that_promise_too_much_are_refused() {
        for (total, shares, expected) in [
            (0, &[0.5][..], "total: 0 is too small; use at least 1"),
            (10, &[1.1], "share: 1.1 is out of range; use 0.000001 to 1"),
            (10, &[f64::NAN], "share: NaN is out of range; use 0.000001 to 1"),
            (10, &[0.5, -0.1], "share: -0.1 is out of range; use 0.000001 to 1"),
            (10, &[0.5, 0.75], "shares: the sum is 1.25; use shares with a sum of at most 1"),
            (10, &[0.01; 65], "shares: 65 are too many; use at most 64"),
        ] {
            assert_eq!(Partitions::new(total, shares).unwrap_err().to_string(), expected);
        }
        assert!(Partitions::new(10, &[0.1; 10]).is_ok(), "ten tenths are the whole");
        assert!(Partitions::new(10, &[]).is_ok());
    }

    #[test]
    fn a_claim_that_is_withdrawn_keeps_nothing() {
        let mut partitions = Partitions::new(2, &[0.5]).unwrap();
        assert_eq!(taken(&mut partitions, None, at(0)), 2);
        assert!(!partitions.try_acquire(Some(0), at(0)));
        partitions.release(None);
        assert!(!partitions.try_acquire(None, at(0)), "it is kept");
        partitions.withdraw(None);
        partitions.withdraw(Some(7));
        assert!(!partitions.try_acquire(None, at(0)), "the others have no claim to withdraw");
        partitions.withdraw(Some(0));
        assert!(partitions.try_acquire(None, at(0)));
    }
}
