use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

const REQUEST: KeyCounts = KeyCounts { requests: 1, denials: 0, shadow_denials: 0 };

fn seen(table: &HeavyHitters) -> HashMap<Vec<u8>, KeyCounts> {
    table.keys().map(|(key, counts)| (key.to_vec(), counts)).collect()
}

/// Keys by how often they were seen: the most frequent first.
fn ranked(table: &HeavyHitters) -> Vec<Vec<u8>> {
    let mut keys: Vec<(Vec<u8>, KeyCounts)> = seen(table).into_iter().collect();
    keys.sort_by_key(|(key, counts)| (std::cmp::Reverse(counts.requests), key.clone()));
    keys.into_iter().map(|(key, _)| key).collect()
}

/// Numbers below `keys`, each `n + 1` times less often than 0.
struct Zipf {
    sums: Vec<f64>,
    dice: Dice,
}

impl Zipf {
    fn new(keys: u32) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        });
        Zipf { sums: sums.collect(), dice: Dice::new(1) }
    }

    fn next(&mut self) -> usize {
        let at = self.dice.fraction() * self.sums.last().unwrap();
        self.sums.partition_point(|sum| *sum < at)
    }
}

/// As many requests as a debug build makes in a second or two, or a release build.
const REQUESTS: u32 = if cfg!(debug_assertions) { 1_000_000 } else { 10_000_000 };

#[test]
fn the_top_of_a_million_keys_is_found() {
    let (keys, hasher) = (1_000_000, KeyHasher::random());
    let (mut zipf, mut table) = (Zipf::new(keys), HeavyHitters::new(HeavyBy::Requests, 2));
    let mut truth = vec![0_u64; keys as usize];
    for _ in 0..REQUESTS {
        let number = zipf.next();
        truth[number] += 1;
        let key = number.to_be_bytes();
        table.add(hasher.hash(&key), &key, &REQUEST, |_| true);
    }
    let mut order: Vec<usize> = (0..truth.len()).collect();
    order.sort_by_key(|number| std::cmp::Reverse(truth[*number]));
    let top: HashSet<usize> = order[..20].iter().copied().collect();
    let number = |key: &[u8]| usize::from_be_bytes(key.try_into().unwrap());
    let found = ranked(&table)[..20].iter().filter(|key| top.contains(&number(key))).count();
    assert!(found >= 19, "{found} of the top 20");
    assert_eq!(table.total().requests, u64::from(REQUESTS));
    for (key, counts) in table.keys() {
        assert!(counts.requests <= truth[number(key)], "{} of {}", counts.requests, truth[number(key)]);
    }
    // What a heavy key was seen before it got its place is little.
    let counted = seen(&table);
    for number in &order[..10] {
        let (counted, truth) = (counted[&number.to_be_bytes()[..]].requests, truth[*number]);
        assert!(counted * 100 >= truth * 95, "{counted} of {truth}");
    }
    assert!(table.bytes() <= HeavyHitters::bytes_max());
}

#[test]
fn a_flood_of_new_keys_hides_no_heavy_one() {
    let (mut table, hasher) = (HeavyHitters::new(HeavyBy::Requests, 3), KeyHasher::random());
    for number in 0..REQUESTS {
        // Half of all requests are of five keys, which come late.
        let of_heavy = number > REQUESTS / 10 && number % 2 == 0;
        let key = if of_heavy { number / 2 % 5 } else { number + 100 }.to_be_bytes();
        table.add(hasher.hash(&key), &key, &REQUEST, |_| true);
    }
    let heavy: HashSet<Vec<u8>> = (0..5_u32).map(|number| number.to_be_bytes().to_vec()).collect();
    assert_eq!(ranked(&table)[..5].iter().cloned().collect::<HashSet<_>>(), heavy);
    // Keys that were seen once are not reported as heavy.
    let counted = seen(&table);
    assert!(ranked(&table)[5..].iter().all(|key| counted[key].requests == 1));
}

#[test]
fn few_keys_are_counted_exactly() {
    let mut table = HeavyHitters::of_few(HeavyBy::Requests, 4);
    let hasher = KeyHasher::random();
    for number in 0..1_000_u64 {
        let key = format!("key{}", number % 5);
        let counts = KeyCounts { requests: 1, denials: number % 2, shadow_denials: number % 4 / 2 };
        table.add(hasher.hash(key.as_bytes()), key.as_bytes(), &counts, |_| true);
    }
    let counts = KeyCounts { requests: 200, denials: 100, shadow_denials: 100 };
    assert_eq!(seen(&table), (0..5).map(|number| (format!("key{number}").into_bytes(), counts)).collect());
    assert_eq!(*table.total(), KeyCounts { requests: 1_000, denials: 500, shadow_denials: 500 });
    table.clear();
    assert_eq!((seen(&table).len(), *table.total()), (0, KeyCounts::default()));
}

#[test]
fn denials_weigh_apart_from_requests() {
    let (mut table, hasher) = (HeavyHitters::of_few(HeavyBy::Denials, 5), KeyHasher::random());
    let counts = KeyCounts { requests: 1, denials: 2, shadow_denials: 3 };
    table.add(hasher.hash(b""), b"", &counts, |_| true);
    assert_eq!(seen(&table), HashMap::from([(vec![], KeyCounts { requests: 0, ..counts })]));
    assert_eq!((HeavyBy::Denials.weight(&counts), HeavyBy::Requests.weight(&counts)), (5, 1));
}

#[test]
fn long_keys_stay_within_the_memory() {
    let (mut table, hasher) = (HeavyHitters::new(HeavyBy::Requests, 6), KeyHasher::random());
    let mut granted = HeavyHitters::bytes_at_first();
    let long = |number: u32| [&number.to_be_bytes()[..], &[b'x'; 996]].concat();
    for round in 0..200 {
        for number in 0..300 {
            // The first twelve are the heaviest.
            for _ in 0..if number < 12 { 4 } else { 1 } {
                table.add(hasher.hash(&long(number)), &long(number), &REQUEST, |bytes| {
                    granted += bytes;
                    true
                });
            }
        }
        assert_eq!(table.bytes(), granted, "round {round}");
    }
    assert!(granted <= HeavyHitters::bytes_max());
    let top: HashSet<Vec<u8>> = ranked(&table)[..12].iter().cloned().collect();
    assert_eq!(top, (0..12).map(long).collect());
}

#[test]
fn without_memory_there_are_counts_and_no_keys() {
    let (mut table, hasher) = (HeavyHitters::new(HeavyBy::Requests, 7), KeyHasher::random());
    for number in 0..100_u8 {
        table.add(hasher.hash(&[number]), &[number], &REQUEST, |_| false);
    }
    assert_eq!((table.bytes(), seen(&table).len()), (HeavyHitters::bytes_at_first(), 0));
    assert_eq!(table.total().requests, 100);
}

proptest! {
    /// Whatever comes, no key is counted more often than it was seen, and what is shown is the key itself.
    #[test]
    fn no_key_is_counted_too_often(keys in prop::collection::vec(0_u16..400, 0..3_000), seed in any::<u64>()) {
        let (mut table, hasher) = (HeavyHitters::of_few(HeavyBy::Requests, seed), KeyHasher::random());
        let mut truth: HashMap<Vec<u8>, u64> = HashMap::new();
        for key in keys {
            let key = "x".repeat(usize::from(key));
            *truth.entry(key.clone().into_bytes()).or_default() += 1;
            table.add(hasher.hash(key.as_bytes()), key.as_bytes(), &REQUEST, |_| true);
        }
        for (key, counts) in table.keys() {
            prop_assert!(counts.requests <= truth[key]);
        }
    }
}
