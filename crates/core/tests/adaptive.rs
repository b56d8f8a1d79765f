//! Adaptive limits and partitions on any input: bounds hold, nothing panics, and bad numbers are refused in words.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::adaptive::{
    AdaptiveError, AdaptiveLimit, Aimd, AimdConfig, Gradient2, Gradient2Config, Partitions, Sample, Summary, Vegas,
    VegasConfig, Window, WindowConfig,
};
use tidegate_core::{Dice, Time};

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Times of all magnitudes, none and the longest among them.
fn rtt() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (0u32..64).prop_map(|bits| Duration::from_nanos(1 << bits)),
        (1u64..5_000).prop_map(Duration::from_millis),
    ]
}

fn sample() -> impl Strategy<Value = Sample> {
    let in_flight = prop_oneof![0u64..1000, any::<u64>()];
    (rtt(), in_flight, prop::bool::weighted(0.1)).prop_map(|(rtt, in_flight, dropped)| Sample {
        rtt,
        in_flight,
        dropped,
    })
}

/// One of each, with numbers within their bounds: the least, the largest, and the limit at first.
fn limits(min: u64, room: u64, knob: f64, floor: Duration, seed: u64) -> (u64, u64, [AdaptiveLimit; 3]) {
    let max = min + room;
    let (initial, hold) = (min + room / 2, seed % 4);
    let aimd = AimdConfig {
        initial,
        min,
        max,
        backoff: 0.1 + 0.89 * knob,
        increase: 1 + seed % 1000,
        timeout: Duration::from_nanos(1 + seed % 10_000_000_000),
        hold,
    };
    let vegas = VegasConfig {
        initial,
        min,
        max,
        smoothing: 0.001 + 0.999 * knob,
        threshold: knob,
        alpha: 1.0 + 500.0 * knob,
        beta: 1000.0,
        fast_increase: 1000.0 * knob,
        increase: 1000.0 * (1.0 - knob),
        decrease: 1000.0 * knob,
        probe: 1.0 + 100.0 * knob,
        rtt_floor: floor,
        seed,
    };
    let gradient2 = Gradient2Config {
        initial,
        min,
        max,
        smoothing: 0.001 + 0.999 * knob,
        queue: 1 + seed % 1000,
        tolerance: 1.0 + 9.0 * knob,
        long_window: 1 + seed % 1000,
        drop_backoff: 0.1 + 0.9 * knob,
        drop_hold: hold,
        rtt_floor: floor,
    };
    let limits =
        [Aimd::new(aimd).unwrap().into(), Vegas::new(vegas).unwrap().into(), Gradient2::new(gradient2).unwrap().into()];
    (min, max, limits)
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_limit_stays_between_min_and_max(
        min in 1u64..10_000,
        room in prop_oneof![0u64..100, 0u64..4_000_000_000],
        knob in 0.0f64..=1.0,
        floor in rtt(),
        seed in any::<u64>(),
        samples in prop::collection::vec(sample(), 1..80),
    ) {
        let (min, max, limits) = limits(min, room, knob, floor, seed);
        for mut limit in limits {
            for sample in &samples {
                let told = limit.update(*sample);
                prop_assert!((min..=max).contains(&told), "{} tells {told}, not {min} to {max}", limit.name());
                prop_assert_eq!(told, limit.limit());
            }
        }
    }

    #[test]
    fn a_window_passes_on_nothing_that_it_did_not_see(
        percentile in prop::option::of(0.0f64..=1.0),
        samples in prop::collection::vec((sample(), 0u64..3_000_000_000), 1..200),
    ) {
        let summary = percentile.map_or(Summary::Average, Summary::Percentile);
        let mut window = Window::new(WindowConfig { summary, ..WindowConfig::default() }).unwrap();
        let (mut now, mut seen) = (Time::from_nanos(0), Vec::new());
        for (sample, nanos) in samples {
            now = now.plus(Duration::from_nanos(nanos));
            seen.push(sample);
            let Some(told) = window.add(now, sample) else { continue };
            let timed: Vec<Duration> =
                seen.iter().map(|sample| sample.rtt).filter(|rtt| *rtt >= Duration::from_micros(100)).collect();
            prop_assert!(seen.len() >= 10);
            prop_assert_eq!(told.dropped, seen.iter().any(|sample| sample.dropped));
            prop_assert!(told.in_flight <= seen.iter().map(|sample| sample.in_flight).max().unwrap());
            if timed.is_empty() {
                prop_assert_eq!(told.rtt, Duration::ZERO);
            } else if timed.iter().max() < Some(&Duration::from_secs(1 << 30)) {
                prop_assert!(told.rtt >= *timed.iter().min().unwrap() && told.rtt <= *timed.iter().max().unwrap());
            }
            seen.clear();
        }
    }

    #[test]
    fn partitions_never_exceed_the_total(
        total in 1u64..60,
        shares in prop::collection::vec(0.01f64..0.3, 0..4),
        words in prop::collection::vec(any::<u64>(), 1..400),
    ) {
        prop_assume!(shares.iter().sum::<f64>() <= 1.0);
        let mut partitions = Partitions::new(total, &shares).unwrap();
        let mut held = [0u64; 6];
        let mut now = Time::from_nanos(0);
        for word in words {
            let mut dice = Dice::new(word);
            let place = (dice.roll() % 6) as usize;
            let partition = (place < 5).then_some(place);
            now = now.plus(Duration::from_millis(dice.roll() % 700));
            if dice.roll() % 5 < 3 {
                let before = partitions.in_use();
                let below = partitions.in_use_by(partition) < partitions.guarantee(partition);
                let admitted = partitions.try_acquire(partition, now);
                held[place] += u64::from(admitted);
                prop_assert!(!below || before >= total || admitted, "below its guarantee, and the whole is not full");
            } else if held[place] > 0 {
                held[place] -= 1;
                partitions.release(partition);
            }
            prop_assert!(partitions.in_use() <= total);
            prop_assert_eq!(partitions.in_use(), held.iter().sum::<u64>());
        }
    }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn after_anything_a_limit_still_falls_and_rises(
        knob in 0.1f64..=0.9,
        seed in any::<u64>(),
        samples in prop::collection::vec(sample(), 1..80),
    ) {
        // Were anything not a number by then, nothing would move any more.
        let (min, max, limits) = limits(10, 100, knob, Duration::ZERO, seed);
        for mut limit in limits {
            for sample in &samples {
                limit.update(*sample);
            }
            let good = Sample { rtt: Duration::from_nanos(1), in_flight: 1000, dropped: false };
            for _ in 0..3_000 {
                limit.update(Sample { dropped: true, ..good });
            }
            prop_assert_eq!(limit.limit(), min, "{}", limit.name());
            for _ in 0..3_000 {
                limit.update(good);
            }
            // Vegas comes nearer to its max by a share of what is missing, and tells the whole part.
            prop_assert!(limit.limit() >= max - 1, "{}: {}", limit.name(), limit.limit());
        }
    }
}

#[test]
fn a_partition_has_its_guarantee_within_as_many_releases() {
    for (total, shares) in [(20, [0.5, 0.1]), (7, [0.3, 0.7]), (100, [0.01, 0.99]), (1, [0.5, 0.5])] {
        let mut partitions = Partitions::new(total, &shares).unwrap();
        let now = Time::from_nanos(0);
        while partitions.try_acquire(None, now) {}
        let mut releases = 0;
        let guarantee = partitions.guarantee(Some(0));
        while partitions.in_use_by(Some(0)) < guarantee {
            assert!(!partitions.try_acquire(Some(0), now));
            partitions.release(None);
            releases += 1;
            // Those without a guarantee ask ten times as often, and first.
            for _ in 0..10 {
                assert!(!partitions.try_acquire(None, now));
            }
            assert!(partitions.try_acquire(Some(0), now));
        }
        assert_eq!(releases, guarantee);
    }
}

/// Each configuration that is refused, and the words for it.
#[test]
fn bad_numbers_are_refused_in_words() {
    let refusals = [
        aimd(|config| config.initial = 0),
        aimd(|config| config.min = 0),
        aimd(|config| config.max = u64::MAX),
        aimd(|config| config.min = 300),
        aimd(|config| config.initial = 10),
        aimd(|config| config.backoff = 1.0),
        aimd(|config| config.backoff = f64::NAN),
        aimd(|config| config.increase = 0),
        aimd(|config| config.timeout = Duration::ZERO),
        aimd(|config| config.timeout = Duration::MAX),
        vegas(|config| config.smoothing = 0.0),
        vegas(|config| config.alpha = 7.0),
        vegas(|config| config.threshold = 4.0),
        vegas(|config| config.beta = f64::INFINITY),
        vegas(|config| config.decrease = -1.0),
        vegas(|config| config.probe = 0.5),
        gradient2(|config| config.tolerance = 0.9),
        gradient2(|config| config.queue = 0),
        gradient2(|config| config.long_window = 0),
        gradient2(|config| config.drop_backoff = f64::NEG_INFINITY),
        gradient2(|config| config.smoothing = 1.5),
        window(|config| config.length = Duration::ZERO),
        window(|config| config.length = DAY + Duration::from_nanos(1)),
        window(|config| config.samples_min = 0),
        window(|config| config.summary = Summary::Percentile(99.0)),
    ];
    let words: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    let expected = [
        "initial: 0 is too small; use at least 1",
        "min: 0 is too small; use at least 1",
        "max: 18446744073709551615 is too large; use at most 4294967295",
        "min: 300 is above max, 200; use a min of 1 to 200, or a larger max",
        "initial: 10 is not between min and max; use 20 to 200",
        "backoff: 1 is out of range; use 0.1 to 0.99",
        "backoff: NaN is out of range; use 0.1 to 0.99",
        "increase: 0 is too small; use at least 1",
        "timeout: 0 s is too short; use more than 0 s, like 5s",
        "timeout: 18446744073709551615.999999999s is too long; use at most 86400s, like 5s",
        "smoothing: 0 is out of range; use 0.001 to 1",
        "alpha: 7 is above beta, 6; use at most 6, or a larger beta",
        "threshold: 4 is above alpha, 3; use at most 3, or a larger alpha",
        "beta: inf is out of range; use 0 to 1000",
        "decrease: -1 is out of range; use 0 to 1000",
        "probe: 0.5 is out of range; use 1 to 1000000",
        "tolerance: 0.9 is out of range; use 1 to 10",
        "queue: 0 is too small; use at least 1",
        "long_window: 0 is too small; use at least 1",
        "drop_backoff: -inf is out of range; use 0.1 to 1",
        "smoothing: 1.5 is out of range; use 0.001 to 1",
        "length: 0 s is too short; use more than 0 s, like 1s",
        "length: 86400.000000001s is too long; use at most 86400s, like 1s",
        "samples_min: 0 is too small; use at least 1",
        "percentile: 99 is out of range; use 0 to 1",
    ];
    assert_eq!(words, expected);
}

const DAY: Duration = Duration::from_secs(86_400);

fn aimd(change: fn(&mut AimdConfig)) -> AdaptiveError {
    let mut config = AimdConfig::default();
    change(&mut config);
    Aimd::new(config).unwrap_err()
}

fn vegas(change: fn(&mut VegasConfig)) -> AdaptiveError {
    let mut config = VegasConfig::default();
    change(&mut config);
    Vegas::new(config).unwrap_err()
}

fn gradient2(change: fn(&mut Gradient2Config)) -> AdaptiveError {
    let mut config = Gradient2Config::default();
    change(&mut config);
    Gradient2::new(config).unwrap_err()
}

fn window(change: fn(&mut WindowConfig)) -> AdaptiveError {
    let mut config = WindowConfig::default();
    change(&mut config);
    Window::new(config).unwrap_err()
}
