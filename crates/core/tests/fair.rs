//! Fair queues: nobody's flood costs another its turn, weights count, and nothing is lost or served twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, clippy::panic)]

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use tidegate_core::fair::{DeficitRoundRobin, FairConfig, FairError, Ticket};
use tidegate_core::{Dice, Key};

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn key(tenant: u64) -> [u8; 8] {
    tenant.to_be_bytes()
}

fn queue(config: FairConfig) -> DeficitRoundRobin<u64> {
    DeficitRoundRobin::new(config).unwrap()
}

fn push(queue: &mut DeficitRoundRobin<u64>, tenant: u64, weight: u64, cost: u64) -> Result<Ticket, FairError> {
    queue.push(Key::new(&key(tenant)).unwrap(), weight, cost, tenant).map_err(|refused| refused.why)
}

/// Units that each tenant got in so many pops, when all always have items waiting.
fn served(config: FairConfig, weights: &[u64], pops: u64, cost: impl Fn(&mut Dice) -> u64) -> Vec<u64> {
    let (mut queue, mut dice) = (DeficitRoundRobin::new(config).unwrap(), Dice::new(5));
    let mut units = vec![0; weights.len()];
    for _ in 0..pops {
        for (tenant, &weight) in weights.iter().enumerate() {
            let bytes = key(tenant as u64);
            let name = Key::new(&bytes).unwrap();
            while queue.depth(name) < 2 {
                let cost = cost(&mut dice);
                queue.push(name, weight, cost, (tenant, cost)).unwrap();
            }
        }
        let (tenant, cost) = queue.pop().unwrap();
        units[tenant] += cost;
    }
    units
}

proptest! {
    #![proptest_config(cases(40))]

    /// The pool serves `capacity` a tick. Each of the others offers about its fair share or more; one offers a hundred
    /// times as much as each of them.
    #[test]
    fn one_tenant_at_a_hundred_times_the_others_costs_them_nothing(
        others in 1u64..20,
        capacity in 20u64..60,
        each in 1u64..6,
        seed in any::<u64>(),
    ) {
        let mut queue = queue(FairConfig { total_max: 500, ..FairConfig::default() });
        let mut dice = Dice::new(seed);
        let (ticks, mut got, mut offered) = (200, vec![0u64; others as usize + 1], vec![0u64; others as usize + 1]);
        for _ in 0..ticks {
            // All arrive in an order that chance decides, the flood among them.
            let mut arrivals: Vec<u64> = vec![0; (100 * each) as usize];
            arrivals.extend((1..=others).flat_map(|tenant| vec![tenant; each as usize]));
            for last in (1..arrivals.len()).rev() {
                arrivals.swap(last, (dice.roll() % (last as u64 + 1)) as usize);
            }
            for tenant in arrivals {
                offered[tenant as usize] += 1;
                let _ = push(&mut queue, tenant, 1, 1);
            }
            for tenant in (0..capacity).map_while(|_| queue.pop()) {
                got[tenant as usize] += 1;
            }
        }
        let fair = (ticks * capacity) / (others + 1);
        for tenant in 1..=others as usize {
            let share = fair.min(offered[tenant]);
            prop_assert!(got[tenant] * 100 >= share * 95, "tenant {tenant} got {} of {share}", got[tenant]);
        }
        prop_assert_eq!(got.iter().sum::<u64>(), ticks * capacity, "and nothing lies idle");
    }

    #[test]
    fn weights_are_honoured(weights in prop::collection::vec(1u64..20, 2..8), quantum in 1u64..10) {
        let config = FairConfig { quantum, ..FairConfig::default() };
        let pops = 4_000;
        let units = served(config, &weights, pops, |dice| 1 + dice.roll() % quantum);
        // For each unit of weight, two tenants are never apart by more than a quantum and the largest cost of each.
        let by_weight: Vec<f64> = units.iter().zip(&weights).map(|(got, weight)| *got as f64 / *weight as f64).collect();
        let (least, most) = by_weight.iter().fold((f64::MAX, 0.0), |(least, most), got| (got.min(least), got.max(most)));
        prop_assert!(most - least <= 3.0 * quantum as f64, "{units:?} for {weights:?}");
    }

    #[test]
    fn nothing_is_lost_or_served_twice(words in prop::collection::vec(any::<u64>(), 1..600)) {
        let config = FairConfig { quantum: 5, tenants_max: 6, depth_max: 8, total_max: 20 };
        let mut queue: DeficitRoundRobin<(u64, u64)> = DeficitRoundRobin::new(config).unwrap();
        let mut model: HashMap<u64, VecDeque<u64>> = HashMap::new();
        let mut tickets: Vec<(Ticket, u64, u64)> = Vec::new();
        for (number, word) in words.into_iter().enumerate() {
            let (mut dice, number) = (Dice::new(word), number as u64);
            match dice.roll() % 8 {
                0..=3 => {
                    let (tenant, weight, cost) = (dice.roll() % 8, 1 + dice.roll() % 3, 1 + dice.roll() % 5);
                    let waiting: usize = model.values().map(VecDeque::len).sum();
                    let depth = model.get(&tenant).map_or(0, VecDeque::len);
                    let tenants = model.len();
                    let room = waiting < 20 && depth < 8.min(20 - waiting) && (depth > 0 || tenants < 6);
                    match queue.push(Key::new(&key(tenant)).unwrap(), weight, cost, (tenant, number)) {
                        Ok(ticket) => {
                            prop_assert!(room);
                            model.entry(tenant).or_default().push_back(number);
                            tickets.push((ticket, tenant, number));
                        }
                        Err(refused) => {
                            prop_assert!(!room, "{}", refused.why);
                            prop_assert_eq!(refused.item, (tenant, number));
                        }
                    }
                }
                4 | 5 => match queue.pop() {
                    Some((tenant, number)) => {
                        prop_assert_eq!(model.get_mut(&tenant).unwrap().pop_front(), Some(number), "in their order");
                    }
                    None => prop_assert!(model.is_empty()),
                },
                _ if tickets.is_empty() => {}
                _ => {
                    let (ticket, tenant, number) = tickets[(dice.roll() % tickets.len() as u64) as usize];
                    let waits = model.get(&tenant).and_then(|items| items.iter().position(|item| *item == number));
                    prop_assert_eq!(queue.remove(ticket), waits.map(|_| (tenant, number)));
                    if let Some(place) = waits {
                        model.get_mut(&tenant).unwrap().remove(place);
                    }
                }
            }
            model.retain(|_, items| !items.is_empty());
            prop_assert_eq!(queue.len(), model.values().map(VecDeque::len).sum::<usize>());
            prop_assert_eq!(queue.tenants(), model.len());
        }
        while let Some((tenant, number)) = queue.pop() {
            prop_assert_eq!(model.get_mut(&tenant).unwrap().pop_front(), Some(number));
        }
        prop_assert!(model.values().all(VecDeque::is_empty) && queue.is_empty());
    }
}

#[test]
fn a_turn_lasts_as_long_as_its_weight() {
    let mut queue = queue(FairConfig::default());
    for _ in 0..4 {
        for (tenant, weight) in [(1, 1), (2, 3)] {
            push(&mut queue, tenant, weight, 1).unwrap();
        }
    }
    let order: Vec<u64> = std::iter::from_fn(|| queue.pop()).collect();
    assert_eq!(order, [1, 2, 2, 2, 1, 2, 1, 1]);
}

#[test]
fn what_is_left_of_a_turn_is_kept_for_the_next() {
    let mut queue = queue(FairConfig { quantum: 5, ..FairConfig::default() });
    for _ in 0..5 {
        push(&mut queue, 1, 1, 4).unwrap();
        push(&mut queue, 2, 1, 5).unwrap();
    }
    // Of each turn the first keeps 1, so that its fourth turn has two items.
    let order: Vec<u64> = std::iter::from_fn(|| queue.pop()).collect();
    assert_eq!(order, [1, 2, 1, 2, 1, 2, 1, 1, 2, 2]);
}

#[test]
fn one_tenant_leaves_half_of_the_room_and_several_leave_some() {
    let mut queue = queue(FairConfig { depth_max: 100, total_max: 60, ..FairConfig::default() });
    let fill =
        |queue: &mut DeficitRoundRobin<u64>, tenant| (0..100).take_while(|_| push(queue, tenant, 1, 1).is_ok()).count();
    assert_eq!([1, 2, 3, 4].map(|tenant| fill(&mut queue, tenant)), [30, 15, 8, 4]);
}

#[test]
fn bad_numbers_are_refused_in_words() {
    let good = FairConfig::default();
    for (config, expected) in [
        (FairConfig { quantum: 0, ..good }, "quantum: 0 is out of range; use 1 to 1000000000"),
        (FairConfig { tenants_max: 0, ..good }, "tenants_max: 0 is out of range; use 1 to 16777216"),
        (
            FairConfig { depth_max: usize::MAX, ..good },
            "depth_max: 18446744073709551615 is out of range; use 1 to 16777216",
        ),
        (FairConfig { total_max: 0, ..good }, "total_max: 0 is out of range; use 1 to 16777216"),
    ] {
        assert_eq!(DeficitRoundRobin::<u64>::new(config).unwrap_err().to_string(), expected);
    }
    let mut queue = queue(FairConfig { tenants_max: 2, depth_max: 1, total_max: 3, ..good });
    for (tenant, weight, cost, expected) in [
        (1, 0, 1, "weight: 0 is out of range; use 1 to 10000"),
        (1, 10_001, 1, "weight: 10001 is out of range; use 1 to 10000"),
        (1, 1, 0, "cost: 0 is out of range; use 1 to 1"),
        (1, 1, 2, "cost: 2 is out of range; use 1 to 1"),
        (1, 1, 1, ""),
        (1, 1, 1, "tenant: its queue is full (1 items wait, at most 1 may); try again later"),
        (2, 1, 1, ""),
        (3, 1, 1, "queue: full, with items of 2 tenants; try again later"),
    ] {
        let words = push(&mut queue, tenant, weight, cost).err().map(|why| why.to_string()).unwrap_or_default();
        assert_eq!(words, expected);
    }
    let mut small = self::queue(FairConfig { total_max: 1, ..good });
    push(&mut small, 1, 1, 1).unwrap();
    let full = push(&mut small, 2, 1, 1).unwrap_err();
    assert_eq!(full.to_string(), "queue: full, with 1 items; try again later");
}
