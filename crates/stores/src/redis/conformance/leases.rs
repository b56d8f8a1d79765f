//! Leases never let too much pass, whenever their units are spent and whatever is given back.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Charge, Decisions, Found, Key, Limit, Op, Rate, Receipt, Time};

use super::in_process::InProcess;
use super::model::history::Choices;
use super::{Runs, SCRIPTS, bytes, decide};
use crate::redis::{decode, encode};

/// Units that somebody may still spend.
struct Held {
    units: u64,
    ends: u64,
    receipt: Receipt,
}

const INTERVAL: u64 = 1_000;
const KEY: &str = "key";

/// Takes the first size that fits, as `RedisStore::lease` does, and checks the script against the arithmetic.
fn lease(subject: &mut InProcess, limit: &Limit, sizes: &[u64], length: u64, now: u64) -> Option<(u64, Receipt)> {
    let take = |units: u64| Charge::take(Key::new(KEY).unwrap(), limit, units);
    let now = Time::from_nanos(now);
    let args = encode::lease(length, sizes.iter().map(|units| take(*units)));
    let reply = subject.run(SCRIPTS.lease(limit.algorithm()).unwrap(), &[KEY.as_bytes()], &bytes(&args, now));
    let (taken, _, words) = decode::leased(&take(1), &reply).unwrap();
    let raised = words[0].max(now.plus(Duration::from_nanos(length)).as_nanos());
    let answer = |units: u64, taken: bool| {
        let decisions = Decisions::of_found(&[take(units)], now, &[Found::Words([raised, 0, 0])], taken).unwrap();
        decisions.iter().next().copied().unwrap()
    };
    // Every larger size did not fit.
    sizes.iter().take(if taken == 0 { sizes.len() } else { taken - 1 }).for_each(|units| {
        answer(*units, false);
    });
    let units = *sizes.get(taken.checked_sub(1)?)?;
    Some((units, answer(units, true).receipt()?))
}

fn check(burst: u64, words: &[u64]) {
    let mut subject = InProcess::new();
    let limit = Limit::gcra(Rate::from_nanos(1, INTERVAL).unwrap(), burst).unwrap();
    let (mut now, mut held, mut admitted) = (1_700_000_000_000_000_000, Vec::<Held>::new(), Vec::<(u64, u64)>::new());
    for word in words {
        let mut choices = Choices(*word);
        now += [0, 0, 1, INTERVAL / 2, INTERVAL, 3 * INTERVAL][choices.below(6) as usize];
        if choices.below(40) == 0 {
            now += choices.any_below(3 * burst * INTERVAL);
        }
        held.retain(|lease| lease.units > 0 && now < lease.ends);
        match choices.below(8) {
            0 | 1 => {
                let units = 1 + choices.below(2);
                if decide(&mut subject, KEY, &limit, Time::from_nanos(now), Op::Take(units)).is_allowed() {
                    admitted.push((now, units));
                }
            }
            2 | 3 => {
                let length = choices.below(burst) * INTERVAL + choices.below(7);
                let size = 1 + choices.below(burst);
                if let Some((units, receipt)) = lease(&mut subject, &limit, &[size, size.div_ceil(2), 1], length, now) {
                    held.push(Held { units, ends: now + length, receipt });
                }
            }
            4 => {
                let Some(lease) = held.pop() else { continue };
                let refund = Op::Refund(lease.units, Some(lease.receipt));
                decide(&mut subject, KEY, &limit, Time::from_nanos(now), refund);
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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]
    #[test]
    fn leases_never_let_too_much_pass(burst in 1..20_u64, words in prop::collection::vec(any::<u64>(), 1..120)) {
        check(burst, &words);
    }
}
