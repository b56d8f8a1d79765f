//! The size of a slice of a budget to take in advance, and its length.
//!
//! A **lease** of a bucket counts as spent at its end, so a longer one takes more of an idle bucket's burst away from
//! all nodes. A shorter one must be requested more often. The longest lasts for [`LEASE_MAX`] or a share of the time
//! that a whole burst takes to come back. A key that spends slowly here, compared with the rate, gets that: it will
//! hardly miss the burst. A key that spends fast has leases as long as it takes to spend [`SLICE_USES`] units, unless
//! the bucket's debt is longer anyway: then nothing more is taken away. A window loses nothing to a lease.
//!
//! A **slice** is three quarters of the units that this node spends in that time: it is mostly used up before its lease
//! ends, and if not, little is left. It is at most a share of the limit, and grows or shrinks step by step. While the
//! store is half free, so many units may expire that the first slice of a key is never too large: smaller ones are not
//! requested.
//!
//! When a bucket is used up, each node would get single units. The **least** slice is the number of units that come
//! back within [`SLICE_WAIT`], or [`SLICE_LEAST`] if those come back within a second: no node requests less, unless it
//! spends less. So the bucket is never full while requests wait, and a key that is over its limit costs a few calls a
//! second, however many requests come.

use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_core::{Limit, LimitExt, Receipt, Time};

use super::nanos;
use crate::bounds::{
    DENIAL_KNOWN_MAX, LEASE_MAX, LEASE_MIN, LEASE_SHARE, LEASE_SHARE_MIN, SLICE_FIRST_MAX, SLICE_LEAST, SLICE_SHARE,
    SLICE_SIZES_MAX, SLICE_STEP, SLICE_USES, SLICE_WAIT, SLICE_WAIT_SHARE, SLOW_SHARE,
};

/// What leases of a limit can be like. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// The largest slice.
    pub(super) most: u64,
    /// The least slice that is asked for when more was wanted.
    pub(super) least: u64,
    /// The first slice of a key.
    first: u64,
    pub(super) longest: u64,
    shortest: u64,
    /// How long a unit of a bucket takes to come back; 0 for a window.
    interval: u64,
    /// Units that may be left to expire with a lease, rather than be given back by a call.
    spare: u64,
    /// Whether the store must be at least half free for that.
    spare_if_free: bool,
}

impl Terms {
    /// The terms of a limit; nothing if it has no leases worth the name.
    pub(super) fn of(limit: &Limit) -> Option<Terms> {
        if !limit.can_lease() {
            return None;
        }
        let terms = match limit.interval() {
            Some(interval) => Terms::of_bucket(limit, nanos(interval)),
            None => Terms::of_window(limit),
        };
        (terms.most >= 2 && terms.longest >= nanos(LEASE_MIN)).then_some(terms)
    }

    fn of_bucket(limit: &Limit, interval: u64) -> Terms {
        let span = nanos(limit.period());
        let longest = nanos(LEASE_MAX).min(span / LEASE_SHARE);
        // An eighth of what comes back anyway, while the bucket is half full.
        let spare = longest / interval / 8;
        let slow = (nanos(DENIAL_KNOWN_MAX) / interval).min(SLICE_LEAST);
        let least = (nanos(SLICE_WAIT) / interval).max(slow).min(span / SLICE_WAIT_SHARE / interval);
        Terms {
            most: limit.units() / SLICE_SHARE,
            least: least.max(1),
            first: spare.clamp(1, SLICE_FIRST_MAX),
            longest,
            shortest: (span / LEASE_SHARE_MIN).max(nanos(LEASE_MIN)).min(longest),
            interval,
            spare,
            spare_if_free: true,
        }
    }

    fn of_window(limit: &Limit) -> Terms {
        let window = nanos(limit.period());
        let longest = nanos(LEASE_MAX).min(window);
        // What is lost of a window does not come back: a few of these in it are still less than a hundredth.
        let spare = share(limit.units(), longest, window) / 512;
        Terms {
            most: limit.units() / SLICE_SHARE,
            least: 1,
            first: spare.clamp(1, SLICE_FIRST_MAX),
            longest,
            shortest: longest,
            interval: 0,
            spare,
            spare_if_free: false,
        }
    }

    /// A receipt to give units back to the store with, while others may hold leases.
    pub(super) fn receipt(&self, limit: &Limit, receipt: Receipt) -> Receipt {
        limit.receipt_before_leases(receipt, Duration::from_nanos(self.longest))
    }

    /// What to give units back under that were leased under old numbers of a limit. The debt may have been cut to what a
    /// faster limit can owe: it has no room for the time that the slower one took. And leases under either may stand on it.
    pub(super) fn to_return(old: (Limit, Terms), new: (Limit, Terms)) -> (Limit, Terms) {
        let longest = old.1.longest.max(new.1.longest);
        let (limit, terms) = if new.1.interval < old.1.interval { new } else { old };
        (limit, Terms { longest, ..terms })
    }

    /// Whether units that were not spent are worth a call to give them back. `free` is as the store was when it gave them.
    pub(super) fn worth_returning(&self, units: u64, free: bool) -> bool {
        let free = free || !self.spare_if_free;
        units > 0 && !(free && units <= self.spare)
    }
}

/// What to ask the store for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// From the most to the least. It is one unit or request's worth if nothing is to be taken in advance.
    pub(super) sizes: ArrayVec<u64, SLICE_SIZES_MAX>,
    pub(super) length: Duration,
}

/// What the store last said of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// How long a bucket's debt will last at least, in nanoseconds.
    pub(super) debt: u64,
    /// Whether at least half of the limit was left.
    pub(super) free: bool,
}

/// How fast a key spends on this node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// The slice that was last asked for; 0 if none was.
    want: u64,
    /// When that was.
    began: Time,
    /// Units spent since.
    spent: u64,
}

impl Pace {
    pub(super) fn spend(&mut self, units: u64) {
        self.spent = self.spent.saturating_add(units);
    }

    pub(super) fn give_back(&mut self, units: u64) {
        self.spent = self.spent.saturating_sub(units);
    }

    /// What to ask for now, for a request of `cost` units while requests of `waiting` units wait, itself among them.
    pub(super) fn ask(&mut self, terms: &Terms, now: Time, cost: u64, waiting: u64, known: Known) -> Ask {
        let Known { debt, free } = known;
        let (target, length) = match self.want {
            0 => (terms.first, terms.shortest),
            want => {
                let elapsed = nanos(super::since(self.began, now)).max(1_000);
                // Those who still wait would have spent by now, had the store answered sooner: a key is not slow because of it.
                let spent = self.spent.saturating_add(waiting.saturating_sub(cost)).max(1);
                let is_slow = spent.saturating_mul(terms.interval).saturating_mul(SLOW_SHARE) <= elapsed;
                let uses = share(SLICE_USES, elapsed, spent).clamp(terms.shortest, terms.longest);
                let length = if is_slow { terms.longest } else { uses.max(debt.min(terms.longest)) };
                let target = share(spent, length / 4 * 3, elapsed);
                (target.clamp(want / SLICE_STEP, want.saturating_mul(SLICE_STEP)), length)
            }
        };
        // What may be left to expire costs nothing.
        let least = if free || !terms.spare_if_free { terms.first } else { 1 };
        let most = target.max(least).max(waiting).min(terms.most).max(cost);
        *self = Pace { want: most, began: now, spent: 0 };
        Ask { sizes: sizes(most, terms.least.min(most).max(cost)), length: Duration::from_nanos(length) }
    }
}

/// Halves from the most on, and the least at last.
fn sizes(most: u64, least: u64) -> ArrayVec<u64, SLICE_SIZES_MAX> {
    let halves = std::iter::successors(Some(most), |size| Some(size / 2)).take_while(|size| *size > least);
    let mut sizes: ArrayVec<u64, SLICE_SIZES_MAX> = halves.take(SLICE_SIZES_MAX - 1).collect();
    sizes.push(least);
    sizes
}

/// `whole × part / of`, which must not be zero.
fn share(whole: u64, part: u64, of: u64) -> u64 {
    let share = u128::from(whole) * u128::from(part) / u128::from(of.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::Rate;

    const MS: u64 = 1_000_000;

    fn terms(limit: &Limit) -> Option<Terms> {
        Terms::of(limit)
    }

    fn owing(millis: u64) -> Known {
        Known { debt: millis * MS, free: false }
    }

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000 * MS + millis * MS)
    }

    #[test]
    fn who_checks_a_configuration_knows_what_can_be_leased() {
        for units in [1, 7, 8, 9, 100] {
            for millis in [40, 49, 50, 51, 299, 300, 301, 60_000] {
                let length = Duration::from_millis(millis);
                let rate = Rate::new(units, length).unwrap();
                for limit in [Limit::gcra(rate, units), Limit::fixed_window(units, length)].map(Result::unwrap) {
                    let known = tidegate_policy::can_be_leased(&limit);
                    assert_eq!(terms(&limit).is_some(), known, "{units} in {millis} ms, {limit:?}");
                }
            }
        }
    }

    #[test]
    fn the_terms_of_limits() {
        let minute: Limit = "600/minute".parse().unwrap();
        let some = terms(&minute).unwrap();
        assert_eq!((some.most, some.least, some.first, some.spare), (150, 8, 12, 12));
        assert_eq!((some.longest, some.shortest), (10_000 * MS, 150 * MS));
        let second = terms(&"100/second".parse().unwrap()).unwrap();
        assert_eq!((second.most, second.least, second.first), (25, 6, 2));
        assert_eq!((second.longest / MS, second.shortest / MS), (166, 50));
        let day = terms(&"1000/day".parse().unwrap()).unwrap();
        assert_eq!((day.most, day.least, day.first, day.longest), (250, 1, 1, 10_000 * MS));
        let window = terms(&Limit::fixed_window(600_000, Duration::from_secs(60)).unwrap()).unwrap();
        assert_eq!((window.most, window.least, window.first, window.longest), (150_000, 1, 16, 10_000 * MS));
        for without in [
            "7/minute".parse().unwrap(),
            Limit::gcra(Rate::per_second(1_000).unwrap(), 100).unwrap(),
            Limit::fixed_window(100, Duration::from_millis(40)).unwrap(),
            Limit::sliding_counter(100, Duration::from_secs(60)).unwrap(),
            Limit::sliding_log(100, Duration::from_secs(60)).unwrap(),
        ] {
            assert_eq!(terms(&without), None, "{without:?}");
        }
    }

    #[test]
    fn a_lease_always_fits_a_fresh_bucket() {
        for (units, seconds) in
            [(8, 60), (9, 1), (100, 1), (1_000, 60), (510_000, 60), (10_000_000, 1), (1_000, 86_400)]
        {
            let rate = Rate::from_nanos(units, seconds * 1_000 * MS).unwrap();
            let limit = Limit::gcra(rate, units).unwrap();
            let (terms, interval) = (terms(&limit).unwrap(), nanos(limit.interval().unwrap()));
            assert!(terms.longest + terms.most * interval <= nanos(limit.period()), "{limit:?}");
            assert!(
                terms.least <= terms.most && terms.shortest <= terms.longest && terms.first <= terms.most,
                "{terms:?}"
            );
        }
    }

    #[test]
    fn a_slice_lasts_about_as_long_as_its_lease() {
        let terms = terms(&"600000/minute".parse().unwrap()).unwrap();
        // Units a second on this node, and what is asked for in the end, in a bucket without debt.
        for (rate, size, length_ms) in [(1_u64, 7, 10_000), (4, 30, 10_000), (40, 300, 10_000), (4_000, 450, 150)] {
            let mut pace = Pace::default();
            let mut now = 0;
            let mut ask = pace.ask(&terms, at(now), 1, 1, Known::default());
            assert_eq!((ask.sizes[0], ask.length), (16, Duration::from_millis(150)), "at first");
            for _ in 0..10 {
                let units = ask.sizes[0].min(rate * 10);
                pace.spend(units);
                now += units * 1_000 / rate;
                ask = pace.ask(&terms, at(now), 1, 1, Known::default());
            }
            assert_eq!((ask.sizes[0], ask.length), (size, Duration::from_millis(length_ms)), "{rate} a second");
        }
    }

    #[test]
    fn slices_shrink_when_they_expire_unspent_and_grow_step_by_step() {
        let terms = terms(&"600000/minute".parse().unwrap()).unwrap();
        let mut pace = Pace::default();
        let mut asked = vec![pace.ask(&terms, at(0), 1, 1, Known::default()).sizes[0]];
        for round in 1..=5 {
            pace.spend(10_000);
            asked.push(pace.ask(&terms, at(round), 1, 1, Known::default()).sizes[0]);
        }
        assert_eq!(asked, [16, 128, 1_024, 8_192, 65_536, 150_000]);
        for round in 1..=6 {
            pace.spend(1);
            asked.push(pace.ask(&terms, at(round * 20_000), 1, 1, Known::default()).sizes[0]);
        }
        assert_eq!(asked[6..], [18_750, 2_343, 292, 36, 4, 1]);
    }

    #[test]
    fn a_bucket_in_debt_has_longer_leases() {
        let terms = terms(&"600000/minute".parse().unwrap()).unwrap();
        let mut pace = Pace::default();
        pace.ask(&terms, at(0), 1, 1, Known::default());
        pace.spend(4_000);
        let ask = pace.ask(&terms, at(1_000), 1, 1, owing(5_000));
        assert_eq!(ask.length, Duration::from_secs(5));
        pace.spend(4_000);
        assert_eq!(pace.ask(&terms, at(2_000), 1, 1, owing(50_000)).length, Duration::from_secs(10));
    }

    #[test]
    fn a_store_that_is_late_makes_no_key_slow() {
        let terms = terms(&"600000/minute".parse().unwrap()).unwrap();
        let mut pace = Pace::default();
        pace.ask(&terms, at(0), 1, 1, Known::default());
        // For a second nobody was answered, while 4,000 came: the first slice is for 16 of them.
        pace.spend(16);
        let ask = pace.ask(&terms, at(1_000), 1, 3_984, Known::default());
        assert_eq!((ask.sizes[0], ask.length), (3_984, Duration::from_millis(150)));
    }

    #[test]
    fn sizes_are_halves_down_to_the_least_that_is_worth_a_call() {
        assert_eq!(sizes(100, 30)[..], [100, 50, 30]);
        assert_eq!(sizes(1, 1)[..], [1]);
        assert_eq!(sizes(8, 8)[..], [8]);
        assert_eq!(sizes(1 << 20, 1)[..], [1 << 20, 1 << 19, 1 << 18, 1 << 17, 1 << 16, 1 << 15, 1 << 14, 1]);
        let terms = terms(&"600000/minute".parse().unwrap()).unwrap();
        // A request that asks for more than the slice gets that, and those who wait are counted in.
        let ask = Pace::default().ask(&terms, at(0), 5_000, 5_000, Known::default());
        assert_eq!(ask.sizes[..], [5_000]);
        assert_eq!(Pace::default().ask(&terms, at(0), 1, 100, Known::default()).sizes[..], [100]);
    }

    #[test]
    fn what_goes_back_to_a_bucket_leaves_room_for_the_longest_lease() {
        let bucket: Limit = "600/minute".parse().unwrap();
        let window = Limit::fixed_window(600, Duration::from_secs(60)).unwrap();
        let receipt = Receipt::from_bits(50_000 * MS);
        assert_eq!(terms(&bucket).unwrap().receipt(&bucket, receipt), Receipt::from_bits(40_000 * MS));
        assert_eq!(terms(&window).unwrap().receipt(&window, receipt), receipt);
    }

    #[test]
    fn little_of_a_free_bucket_is_left_to_expire() {
        let bucket = terms(&"600/minute".parse().unwrap()).unwrap();
        assert!(!bucket.worth_returning(12, true));
        assert!(bucket.worth_returning(13, true));
        assert!(bucket.worth_returning(1, false), "somebody may be denied");
        assert!(!bucket.worth_returning(0, false));
        let day = terms(&"1000/day".parse().unwrap()).unwrap();
        assert!(day.worth_returning(1, true));
        let window = terms(&Limit::fixed_window(60_000, Duration::from_secs(60)).unwrap()).unwrap();
        assert!(window.worth_returning(20, true) && !window.worth_returning(19, false));
        // And so a key that asks rarely gets as much.
        let mut pace = Pace::default();
        for round in 0..5 {
            let ask = pace.ask(&bucket, at(round * 30_000), 1, 1, Known { debt: 0, free: true });
            assert_eq!(ask.sizes[0], 12);
        }
    }
}
