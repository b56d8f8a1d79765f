//! Leases never let too much pass, whenever their units are spent and whatever is given back.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Algorithm, Charge, Decisions, DecisionsExt, Found, Key, Limit, LimitExt, Op, Rate, Receipt, Time};
use tidegate_testkit::conformance::history::Choices;

use super::in_process::InProcess;
use super::{End, Runs, bytes, decide};
use crate::redis::{decode, encode};

/// Units that somebody may still spend or give back.
struct Held {
    units: u64,
    ends: u64,
    receipt: Receipt,
}

const INTERVAL: u64 = 1_000;

/// The longest lease, as a share of the burst.
const LONGEST_SHARE: u64 = 3;
const KEY: &str = "key";

/// Takes the first size that fits, as `RedisStore::lease` does, and checks the script against the arithmetic.
fn lease(subject: &mut InProcess, limit: &Limit, sizes: &[u64], length: u64, now: u64) -> Option<(u64, Receipt)> {
    let take = |units: u64| Charge::take(Key::new(KEY).unwrap(), limit, units);
    let now = Time::from_nanos(now);
    let before = decide(subject, KEY, limit, now, Op::Peek);
    let args = encode::lease(Duration::from_nanos(length), sizes.iter().map(|units| take(*units)));
    let reply = subject.run(subject.scripts().lease(limit).unwrap(), &[KEY.as_bytes()], &bytes(&args, now));
    let (taken, _, words) = decode::leased(&take(1), &reply).unwrap();
    let words = match limit.algorithm() {
        Algorithm::FixedWindow => words,
        _ => [words[0].max(now.plus(Duration::from_nanos(length)).as_nanos()), 0, 0],
    };
    let answer = |units: u64, taken: bool| {
        let decisions = Decisions::of_found(&[take(units)], now, &[Found::Words(words)], taken).unwrap();
        decisions.iter().next().copied().unwrap()
    };
    // Every larger size did not fit.
    sizes.iter().take(if taken == 0 { sizes.len() } else { taken - 1 }).for_each(|units| {
        answer(*units, false);
    });
    if taken == 0 {
        assert_eq!(decide(subject, KEY, limit, now, Op::Peek), before, "a lease that is not given changes nothing");
    }
    let units = *sizes.get(taken.checked_sub(1)?)?;
    let taken = answer(units, true);
    let Some(End::At { nanos, .. }) = subject.end_of(KEY.as_bytes()) else { panic!("the lease is not there") };
    let counts_until = now.plus(taken.reset_after()).as_nanos();
    assert!((counts_until..=counts_until + 3_000_000).contains(&nanos), "{nanos}, counts until {counts_until}");
    Some((units, taken.receipt()?))
}

fn check(burst: u64, words: &[u64]) {
    let mut subject = InProcess::new();
    let limit = Limit::gcra(Rate::from_nanos(1, INTERVAL).unwrap(), burst).unwrap();
    let longest = burst * INTERVAL / LONGEST_SHARE;
    let (mut now, mut held, mut admitted) = (1_700_000_000_000_000_000, Vec::<Held>::new(), Vec::<(u64, u64)>::new());
    for word in words {
        let mut choices = Choices(*word);
        now += [0, 0, 1, INTERVAL / 2, INTERVAL, 3 * INTERVAL][choices.below(6) as usize];
        if choices.below(40) == 0 {
            now += choices.any_below(3 * burst * INTERVAL);
        }
        held.retain(|lease| lease.units > 0 && now < lease.ends);
        match choices.below(8) {
            0 => {
                let units = 1 + choices.any_below(burst);
                if decide(&mut subject, KEY, &limit, Time::from_nanos(now), Op::Take(units)).is_allowed() {
                    admitted.push((now, units));
                }
            }
            1..=3 => {
                let length = choices.any_below(longest + 1);
                let size = 1 + choices.any_below(burst);
                if let Some((units, receipt)) = lease(&mut subject, &limit, &[size, size.div_ceil(2), 1], length, now) {
                    held.push(Held { units, ends: now + length, receipt });
                }
            }
            4 | 5 => {
                if held.is_empty() {
                    continue;
                }
                let lease = held.swap_remove(choices.any_below(held.len() as u64) as usize);
                let receipt = limit.receipt_before_leases(lease.receipt, Duration::from_nanos(longest));
                let refund = Op::Refund(lease.units, Some(receipt));
                decide(&mut subject, KEY, &limit, Time::from_nanos(now), refund);
            }
            6 => {
                // All that there is, at once.
                let at = Time::from_nanos(now);
                let units = decide(&mut subject, KEY, &limit, at, Op::Peek).remaining();
                if units > 0 && decide(&mut subject, KEY, &limit, at, Op::Take(units)).is_allowed() {
                    admitted.push((now, units));
                }
                held.drain(..).for_each(|lease| admitted.push((now, lease.units)));
            }
            _ => {
                let count = held.len() as u64;
                if let Some(lease) = held.get_mut(choices.any_below(count) as usize) {
                    let units = 1 + choices.any_below(lease.units);
                    lease.units -= units;
                    admitted.push((now, units));
                }
            }
        }
    }
    for (first, (start, _)) in admitted.iter().enumerate() {
        let mut sum = 0;
        for (end, units) in &admitted[first..] {
            sum += units;
            assert!(
                sum <= burst + (end - start) / INTERVAL,
                "{sum} within {} ns, burst {burst}: {admitted:?}",
                end - start
            );
        }
    }
}

/// An older lease goes back while a later one is held, whose end the debt must not fall below.
#[test]
fn what_goes_back_leaves_room_for_later_leases() {
    let (burst, start) = (20, 1_700_000_000_000_000_000);
    let limit = Limit::gcra(Rate::from_nanos(1, INTERVAL).unwrap(), burst).unwrap();
    let both = |before: Duration| {
        let mut subject = InProcess::new();
        let (older, receipt) = lease(&mut subject, &limit, &[10], INTERVAL, start).unwrap();
        let (later, _) = lease(&mut subject, &limit, &[5], 10 * INTERVAL, start).unwrap();
        let refund = Op::Refund(older, Some(limit.receipt_before_leases(receipt, before)));
        decide(&mut subject, KEY, &limit, Time::from_nanos(start), refund);
        // The later lease has not ended yet: all of it can be spent at once with what the store gives.
        let now = Time::from_nanos(start + 6 * INTERVAL);
        later + decide(&mut subject, KEY, &limit, now, Op::Peek).remaining()
    };
    assert_eq!(both(Duration::ZERO), 25, "5 more than the burst");
    assert!(both(Duration::from_nanos(10 * INTERVAL)) <= burst);
}

/// The clock was set back. Who asks for leases alone is free again as early as who asks for units.
#[test]
fn a_clock_that_jumps_back_locks_no_lease_out() {
    let (window, start, jump) = (Duration::from_secs(60), 1_700_000_000_000_000_000, 3_600_000_000_000);
    let units = 60;
    for limit in
        [Limit::gcra(Rate::new(units, window).unwrap(), units).unwrap(), Limit::fixed_window(units, window).unwrap()]
    {
        let mut subject = InProcess::new();
        decide(&mut subject, KEY, &limit, Time::from_nanos(start), Op::Debit(2 * units));
        let length = 1_000_000_000;
        // All the time somebody asks for a lease. At most one further limit was debited: two windows at most.
        let free = (0..).map(|second| second * 1_000_000_000).find(|after| {
            let now = start - jump + after;
            lease(&mut subject, &limit, &[4, 2], length, now).is_some()
        });
        assert!(free.is_some_and(|after| after <= 2 * 60_000_000_000), "{limit:?}: free after {free:?} ns");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]
    #[test]
    fn leases_never_let_too_much_pass(burst in 1..20_u64, words in prop::collection::vec(any::<u64>(), 1..120)) {
        check(burst, &words);
    }
}
