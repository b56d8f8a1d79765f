use std::collections::HashSet;
use tidegate_core::{Dice, HeavyHitters};

use super::*;
use crate::bounds::TOP_BYTES_MAX;

const REQUEST: KeyCounts = KeyCounts { requests: 1, denials: 0, shadow_denials: 0 };
const DENIED: KeyCounts = KeyCounts { requests: 1, denials: 1, shadow_denials: 0 };
const IN_SHADOW: KeyCounts = KeyCounts { requests: 1, denials: 0, shadow_denials: 1 };

/// The beginning of an hour, and seconds after it.
fn at(seconds: u64) -> Time {
    Time::from_nanos((1_000 * 3_600 + seconds) * 1_000_000_000)
}

fn top() -> Top {
    Top::new(&Arc::default(), &KeyHasher::random(), false)
}

fn note(top: &Top, key: &[u8], counts: KeyCounts, times: u64, now: Time) {
    for _ in 0..times {
        top.note(key, &counts, now);
    }
}

/// Requests, denials and denials in shadow.
fn counts(counts: KeyCounts) -> (u64, u64, u64) {
    (counts.requests, counts.denials, counts.shadow_denials)
}

fn requests(top: &Top, window: TopWindow, seconds: u64) -> u64 {
    let seen = top.seen(window, at(seconds));
    assert_eq!(seen.total.requests, seen.keys.values().map(|counts| counts.requests).sum::<u64>());
    seen.total.requests
}

#[test]
fn a_minute_slides() {
    let top = top();
    note(&top, b"a", REQUEST, 60, at(10));
    for (seconds, expected) in [(10, 60), (59, 60), (60, 60), (75, 45), (90, 30), (119, 1), (120, 0), (600, 0)] {
        assert_eq!(requests(&top, TopWindow::Minute, seconds), expected, "{seconds}");
    }
    note(&top, b"a", REQUEST, 6, at(90));
    assert_eq!([90, 105, 120, 150, 180].map(|seconds| requests(&top, TopWindow::Minute, seconds)), [36, 21, 6, 3, 0]);
    // After a pause nothing is left of what was before.
    note(&top, b"b", REQUEST, 2, at(400));
    assert_eq!(requests(&top, TopWindow::Minute, 400), 2);
}

#[test]
fn an_hour_slides_and_has_its_minutes() {
    let top = top();
    for minute in 0..90 {
        note(&top, b"a", REQUEST, 10, at(60 * minute + 5));
        let of_this_hour = if minute < 60 { 10 * (minute + 1) } else { 10 * (minute - 59) };
        // Of the hour before, what is not over yet, as if it had been even.
        let of_last_hour = if minute < 60 { 0 } else { 600 * (7_200 - (60 * minute + 5)) / 3_600 };
        assert_eq!(requests(&top, TopWindow::Hour, 60 * minute + 5), of_this_hour + of_last_hour, "minute {minute}");
    }
    // What nobody adds to the hour any more is seen all the same.
    assert_eq!(requests(&top, TopWindow::Hour, 7_199), 300);
    assert_eq!(requests(&top, TopWindow::Hour, 7_200 + 1_800), 150);
    assert_eq!(requests(&top, TopWindow::Hour, 4 * 3_600), 0);
    // Minutes of an hour that is gone are of no other.
    note(&top, b"b", REQUEST, 1, at(5 * 3_600));
    note(&top, b"b", REQUEST, 1, at(5 * 3_600 + 60));
    assert_eq!(requests(&top, TopWindow::Hour, 5 * 3_600 + 60), 2);
}

#[test]
fn denials_are_seen_beside_requests_and_those_in_shadow_apart() {
    let top = top();
    note(&top, b"a", REQUEST, 5, at(0));
    note(&top, b"b", DENIED, 3, at(0));
    note(&top, b"b", IN_SHADOW, 2, at(0));
    for (window, now) in [(TopWindow::Minute, 0), (TopWindow::Hour, 0), (TopWindow::Hour, 70)] {
        note(&top, b"c", REQUEST, 0, at(now));
        let seen = top.seen(window, at(now));
        assert_eq!((counts(seen.keys[&b"a"[..]]), counts(seen.keys[&b"b"[..]])), ((5, 0, 0), (5, 3, 2)));
        assert_eq!(counts(seen.total), (10, 3, 2));
    }
}

#[test]
fn a_clock_that_goes_back_loses_nothing() {
    let top = top();
    note(&top, b"a", REQUEST, 5, at(600));
    note(&top, b"a", REQUEST, 5, at(0));
    assert_eq!(requests(&top, TopWindow::Minute, 0), 10);
    assert_eq!(requests(&top, TopWindow::Minute, 600), 10);
}

/// The heaviest keys of an hour, whose minutes are counted apart, on several threads.
#[test]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ranks are small and positive")]
fn the_top_of_an_hour_is_found() {
    const KEYS: u64 = 1_000_000;
    const REQUESTS: u64 = if cfg!(debug_assertions) { 400_000 } else { 10_000_000 };
    const MINUTES: u64 = 20;
    const THREADS: u64 = 4;
    let top = top();
    let harmonic = |rank: f64| rank.ln() + 0.577_215_664_9;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let top = &top;
            scope.spawn(move || {
                let mut dice = Dice::new(thread);
                for number in 0..REQUESTS / THREADS {
                    // The inverse of the harmonic numbers, which is Zipf's law but for the very first ranks.
                    let rank = (dice.fraction() * harmonic(KEYS as f64) - 0.577_215_664_9).exp().max(1.0) as u64;
                    let minute = number * MINUTES / (REQUESTS / THREADS);
                    top.note(&rank.to_be_bytes(), &REQUEST, at(60 * minute));
                }
            });
        }
    });
    let seen = top.seen(TopWindow::Hour, at(60 * MINUTES - 1));
    let mut keys: Vec<(u64, u64)> = seen
        .keys
        .iter()
        .map(|(key, counts)| (counts.requests, u64::from_be_bytes((**key).try_into().unwrap())))
        .collect();
    keys.sort_unstable_by(|one, other| other.cmp(one));
    let found: HashSet<u64> = keys.iter().take(20).map(|(_, rank)| *rank).collect();
    // The ranks are those of the law: with few requests neighbours change places.
    let slack = if cfg!(debug_assertions) { 24 } else { 21 };
    let hits = found.iter().filter(|rank| **rank <= slack).count();
    assert!(hits >= 19, "{hits} of 20: {found:?}");
    assert_eq!(seen.total.requests + top.missed(), REQUESTS);
}

#[test]
fn counting_goes_on_while_somebody_reads() {
    const THREADS: u64 = 8;
    const EACH: u64 = 30_000;
    let (top, clock) = (top(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let counting: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (top, clock) = (&top, &clock);
                scope.spawn(move || {
                    for number in 0..EACH {
                        // Minutes pass meanwhile.
                        let second = clock.fetch_add(1, Relaxed) / 1_000;
                        let key = if number % 2 == 0 { 0 } else { thread + 1 };
                        top.note(&key.to_be_bytes(), &DENIED, at(second));
                    }
                })
            })
            .collect();
        while counting.iter().any(|thread| !thread.is_finished()) {
            let seen = top.seen(TopWindow::Hour, at(clock.load(Relaxed) / 1_000));
            assert!(seen.total.requests <= THREADS * EACH, "{:?}", seen.total);
        }
    });
    let seen = top.seen(TopWindow::Hour, at(clock.load(Relaxed) / 1_000));
    assert_eq!((seen.total.requests + top.missed(), seen.total.requests), (THREADS * EACH, seen.total.denials));
    let heaviest = seen.keys.iter().max_by_key(|(_, counts)| counts.requests).unwrap();
    assert_eq!(**heaviest.0, 0_u64.to_be_bytes());
}

#[test]
fn the_memory_of_all_rules_is_bounded() {
    let (room, hasher) = (Arc::<Room>::default(), KeyHasher::random());
    let rules: Vec<Top> = (0..20_000).map(|_| Top::new(&room, &hasher, false)).collect();
    assert_eq!(room.taken(), 0, "rules without requests take none");
    let mut refused = 0;
    for top in &rules {
        for number in 0..20_u64 {
            top.note(&number.to_be_bytes(), &DENIED, at(0));
        }
        refused += usize::from(top.is_refused());
        if refused > 3 {
            break;
        }
    }
    assert!(refused > 3);
    let table = HeavyHitters::bytes_at_first();
    assert!((TOP_BYTES_MAX - 4 * table..=TOP_BYTES_MAX).contains(&room.taken()), "{}", room.taken());
    // Long keys of rules that have their tables already find no more room either.
    for number in 0..1_000_u64 {
        rules[0].note(&[&number.to_be_bytes()[..], &[0; 900]].concat(), &DENIED, at(0));
    }
    assert!(room.taken() <= TOP_BYTES_MAX);
    let late = rules.iter().rposition(Top::is_refused).unwrap();
    drop(rules.into_iter().take(late).collect::<Vec<_>>());
    assert_eq!(room.taken(), 0, "it comes back with the rules");
}

#[test]
fn a_rule_without_a_key_takes_little() {
    let room = Arc::<Room>::default();
    let top = Top::new(&room, &KeyHasher::random(), true);
    note(&top, b"", REQUEST, 1_000, at(0));
    assert_eq!(requests(&top, TopWindow::Minute, 0), 1_000);
    assert!(room.taken() < 10_000, "{}", room.taken());
}
