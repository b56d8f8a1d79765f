//! Shedders on any sequence: nothing panics, levels and shares stay in their range, and lower classes go first.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::shed::{
    ClientThrottle, ClientThrottleConfig, CoDel, CoDelConfig, Criticality, FleetShedder, QueueRejection,
    QueueRejectionConfig, WorkerShedder, WorkerShedderConfig,
};
use tidegate_core::{Dice, Time};

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Mostly shares, and all else that a float can be.
fn utilisation() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.0f64..=1.0, 1 => any::<f64>(), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)]
}

/// Any instant: clocks jump.
fn instant() -> impl Strategy<Value = Time> {
    prop_oneof![(0u64..1_000_000_000_000).prop_map(Time::from_nanos), any::<u64>().prop_map(Time::from_nanos)]
}

/// With one roll, a class is shed only if all below it are.
fn check_order(sheds: impl Fn(Criticality) -> bool) {
    for pair in Criticality::ALL.windows(2) {
        assert!(!sheds(pair[1]) || sheds(pair[0]), "{:?} is shed and {:?} is not", pair[1], pair[0]);
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_worker_gives_up_the_lowest_first(
        steps in prop::collection::vec((instant(), utilisation(), any::<u64>()), 1..100),
    ) {
        let mut worker = WorkerShedder::new(WorkerShedderConfig::default()).unwrap();
        for (now, utilisation, roll) in steps {
            let level = worker.observe(now, utilisation);
            prop_assert!((0.0..=3.0).contains(&level), "{level}");
            prop_assert!(!worker.sheds(Criticality::Critical, roll));
            check_order(|class| worker.sheds(class, roll));
        }
    }

    #[test]
    fn a_worker_moves_by_a_class_a_ramp_at_most(
        steps in prop::collection::vec((0u64..200, utilisation()), 1..100),
    ) {
        let mut worker = WorkerShedder::new(WorkerShedderConfig::default()).unwrap();
        let mut now = Time::from_nanos(0);
        worker.observe(now, 0.0);
        for (seconds, utilisation) in steps {
            now = now.plus(Duration::from_secs(seconds));
            let before = worker.level();
            let moved = (worker.observe(now, utilisation) - before).abs();
            prop_assert!(moved <= (seconds as f64 / 120.0).min(1.0) + 1e-9, "{moved} in {seconds} s");
        }
    }

    #[test]
    fn a_queue_refuses_the_lowest_first(
        start in 0.0f64..100.0,
        more in 0.001f64..100.0,
        waiting in any::<u64>(),
        limit in any::<u64>(),
        roll in any::<u64>(),
    ) {
        let queue = QueueRejection::new(QueueRejectionConfig { start, full: start + more }).unwrap();
        for (waiting, limit) in [(waiting, limit), (waiting % 1000, limit % 100)] {
            for class in Criticality::ALL {
                prop_assert!((0.0..=1.0).contains(&queue.share(class, waiting, limit)));
                prop_assert!(queue.share(class, waiting, limit) <= queue.share(class, waiting.saturating_add(1), limit));
            }
            check_order(|class| queue.sheds(class, waiting, limit, roll));
        }
    }

    #[test]
    fn a_fleet_keeps_its_reserve(
        capacity in 1u64..100,
        reserved in 0.0f64..=1.0,
        words in prop::collection::vec(any::<u64>(), 1..300),
    ) {
        let fleet = FleetShedder::new(capacity, reserved).unwrap();
        let most = capacity as f64 * (1.0 - reserved) + 1e-3;
        let mut held = [0u64; 4];
        for word in words {
            let mut dice = Dice::new(word);
            let place = (dice.roll() % 4) as usize;
            let class = Criticality::ALL[place];
            if dice.roll() % 3 < 2 {
                let admitted = !fleet.sheds(class, held[..3].iter().sum());
                prop_assert!(admitted || class != Criticality::Critical);
                held[place] += u64::from(admitted);
            } else if held[place] > 0 {
                held[place] -= 1;
            }
            prop_assert!(held[..3].iter().sum::<u64>() as f64 <= most);
        }
    }

    #[test]
    fn a_queue_judge_lets_the_short_waits_pass(
        steps in prop::collection::vec((instant(), 0u64..50_000_000), 1..200),
    ) {
        let mut codel = CoDel::new(CoDelConfig::default()).unwrap();
        for (now, nanos) in steps {
            let sheds = codel.sheds(now, Duration::from_nanos(nanos));
            prop_assert!(!sheds || nanos > 10_000_000, "only who waited for more than twice the target is shed");
            prop_assert!(!sheds || codel.overloaded());
        }
    }

    #[test]
    fn a_throttle_refuses_nothing_while_half_is_accepted(
        steps in prop::collection::vec((instant(), any::<u64>(), any::<bool>()), 1..200),
    ) {
        let mut throttle = ClientThrottle::new(ClientThrottleConfig::default()).unwrap();
        for (now, roll, accepted) in steps {
            let probability = throttle.probability(now);
            prop_assert!((0.0..1.0).contains(&probability), "{probability}");
            let sheds = throttle.sheds(now, roll);
            prop_assert!(!sheds || probability > 0.0);
            if accepted {
                throttle.accepted(now);
            }
        }
    }
}

#[test]
fn a_queue_that_stands_is_shed_and_one_that_drains_is_not() {
    for (least, sheds) in [(Duration::from_millis(6), true), (Duration::from_millis(4), false)] {
        let mut codel = CoDel::new(CoDelConfig::default()).unwrap();
        let shed = (0..1000u64).filter(|step| {
            let delay = if step % 10 == 5 { least } else { Duration::from_millis(40) };
            codel.sheds(Time::from_nanos(step * 10_000_000), delay)
        });
        assert_eq!(shed.count() > 0, sheds, "{least:?}");
    }
}
