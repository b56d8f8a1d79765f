//! Where keys are put, which cannot be seen from outside.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use super::*;
use crate::dice::Dice;

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

fn print(dice: &mut Dice) -> Fingerprint {
    Fingerprint { high: dice.roll(), low: dice.roll().max(1) }
}

fn used(buckets: &[Bucket<1>]) -> usize {
    buckets.iter().flat_map(|bucket| &bucket.slots).filter(|slot| slot.print() != Fingerprint::NONE).count()
}

#[test]
fn a_newcomer_takes_the_place_that_was_not_needed_for_longest() {
    let table: Table<1> = Table::with_room_for(1).unwrap();
    let keys = [1, 2, 3, 4, 5, 6].map(|low| Fingerprint { high: 0, low });
    for (key, until) in keys.iter().zip([50, 30, 40, 20, 10]) {
        table.insert(*key, at(0), |_| ()).unwrap().release([until]);
    }
    let mut given = Vec::new();
    table.insert(keys[5], at(45), |[old]| given.push(old)).unwrap().release([60]);
    assert_eq!(given, [10]);
    let is_there = keys.map(|key| table.find(key).is_some());
    assert_eq!(is_there, [true, true, true, true, false, true]);
}

/// The state of a semaphore that nobody holds is zero, like that of an empty slot: without this, two such keys would drive
/// each other from one slot.
#[test]
fn a_place_that_was_never_used_is_taken_before_any_other() {
    let table: Table<1> = Table::with_room_for(1).unwrap();
    let keys = [1, 2, 3, 4, 5].map(|low| Fingerprint { high: 0, low });
    for key in keys {
        drop(table.insert(key, at(0), |_| ()));
    }
    assert!(keys.into_iter().all(|key| table.find(key).is_some()));
}

#[test]
fn few_keys_are_in_the_front_and_of_many_all_are_found() {
    let table: Table<1> = Table::with_room_for(100_000).unwrap();
    let mut dice = Dice::new(7);
    let keys: Vec<_> = (0..100_000).map(|_| print(&mut dice)).collect();
    let insert = |keys: &[Fingerprint]| {
        for key in keys {
            table.insert(*key, at(0), |_| ()).unwrap().release([1]);
        }
    };
    insert(&keys[..10_000]);
    assert!(used(&table.buckets[..table.front_buckets]) > 9_000, "{}", used(&table.buckets[..table.front_buckets]));
    // Some are in the front and some in the rest, whichever is looked at first.
    let are_found =
        |keys: &[Fingerprint]| keys.iter().all(|key| table.find(*key).is_some_and(|slot| slot.matches(*key)));
    insert(&keys[10_000..25_000]);
    assert!(table.front_leads(), "the front has room for 15,000, so about 10,000 went to the rest");
    assert!(are_found(&keys[..25_000]));
    insert(&keys[25_000..]);
    assert!(!table.front_leads());
    assert!(are_found(&keys));
    assert_eq!(used(&table.buckets), keys.len());
}

/// After a flood of keys that come once, those that come often are close together again.
#[test]
fn a_flood_that_has_passed_leaves_the_front_to_those_who_come_after_it() {
    let table: Table<1> = Table::with_room_for(100_000).unwrap();
    let mut dice = Dice::new(7);
    let mut insert = |instants: std::ops::Range<u64>| {
        for now in instants {
            table.insert(print(&mut dice), at(now), |_| ()).unwrap().release([now]);
        }
    };
    insert(0..200_000);
    assert!(!table.front_leads(), "most found an older place in the rest");
    let later = 200_000 + EXPECTED_BACK_NANOS;
    insert(later..later + 10_000);
    assert!(table.front_leads());
}

/// A gate that counts too many costs time, one that counts too few hides a key.
#[test]
fn gates_know_how_many_keys_are_displaced_however_they_come_and_go() {
    let table: Table<1> = Table::with_room_for(5_000).unwrap();
    let mut dice = Dice::new(7);
    for now in 0..100_000 {
        // Between 3,000 and 9,000 keys are live at once, so that some find no place.
        let lifetime = if now / 10_000 % 2 == 0 { 3_000 } else { 9_000 };
        if let Some(held) = table.insert(print(&mut dice), at(now), |_| ()) {
            held.release([now + lifetime]);
        }
    }
    let mut displaced = vec![0; table.buckets.len()];
    for slot in table.buckets.iter().flat_map(|bucket| &bucket.slots) {
        if slot.print() != Fingerprint::NONE && table.is_displaced(slot.print(), slot) {
            displaced[table.home(slot.print())] += 1;
        }
    }
    let counted: Vec<_> = table.buckets.iter().map(|bucket| bucket.gate.load(Ordering::Relaxed) as u32).collect();
    assert_eq!(counted, displaced);
    assert!(displaced.iter().sum::<u32>() > 100, "the test says nothing without any");
}
