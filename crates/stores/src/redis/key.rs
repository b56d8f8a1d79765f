//! What states are called in Redis.

use tidegate_core::{Key, Limit, Numbers};

/// What keys begin with that callers bring together with their limit, in the server and in programs alike: so both count
/// the same, and never meet the keys of rules.
pub const CALLERS_KEY: u8 = b'i';

/// The name of a state: the prefix, the hash tag, the algorithm and window that tell states apart, and the key.
///
/// On a Cluster the tag in braces chooses the slot. An empty one makes the whole name count, whatever braces a key brings
/// along: nobody can choose a slot by choosing a key.
pub(super) fn name(prefix: &str, tag: &[u8], limit: &Limit, key: Key<'_>) -> Vec<u8> {
    let window = match limit.numbers(key) {
        Numbers::Bucket { .. } => 0,
        Numbers::Window { window, .. } | Numbers::Counter { window, .. } | Numbers::Log { window, .. } => window,
    };
    let what = format!(":{}:{window}:", limit.algorithm());
    [prefix.as_bytes(), b"{", tag, b"}", what.as_bytes(), key.as_bytes()].concat()
}

/// The name of the permits under a key.
pub(super) fn permits(prefix: &str, key: Key<'_>) -> Vec<u8> {
    [prefix.as_bytes(), b"{}:permits:", key.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn named(tag: &str, limit: &Limit, key: &str) -> String {
        String::from_utf8(name("tidegate", tag.as_bytes(), limit, Key::new(key).unwrap())).unwrap()
    }

    #[test]
    fn states_are_told_apart_by_algorithm_window_and_key() {
        let gcra: Limit = "5/minute".parse().unwrap();
        let window = |seconds| Limit::fixed_window(5, Duration::from_secs(seconds)).unwrap();
        assert_eq!(named("", &gcra, "ann"), "tidegate{}:gcra:0:ann");
        assert_eq!(named("", &"9/day".parse().unwrap(), "ann"), "tidegate{}:gcra:0:ann", "other numbers, same state");
        assert_eq!(named("", &window(60), "ann"), "tidegate{}:fixed_window:60000000000:ann");
        assert_eq!(named("ann", &window(1), "x"), "tidegate{ann}:fixed_window:1000000000:x");
    }

    #[test]
    fn a_key_does_not_choose_its_slot() {
        let gcra: Limit = "5/minute".parse().unwrap();
        let slot = |key: &str| crate::redis::link::slot(named("", &gcra, key).as_bytes());
        let slots: std::collections::HashSet<u16> = (0..100).map(|number| slot(&format!("{{x}}{number}"))).collect();
        assert!(slots.len() > 90, "{} slots", slots.len());
    }
}
