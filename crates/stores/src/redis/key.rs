//! What states are called in Redis. This is the only place where their names are made.

use tidegate_core::{Charge, Key, Namespace};

/// The name of the state that a charge counts in: the prefix, the hash tag, the algorithm and window that tell states
/// apart, the namespace and the key.
///
/// On a Cluster the tag in braces chooses the slot. An empty one makes the whole name count, whatever braces a key brings
/// along: nobody can choose a slot by choosing a key.
pub(super) fn name(prefix: &str, charge: &Charge<'_>) -> Vec<u8> {
    let what = format!(":{}:{}:", charge.limit.algorithm(), charge.limit.identity().window());
    let (tag, namespace) = (charge.placement.tag, charge.namespace.as_bytes());
    [prefix.as_bytes(), b"{", tag, b"}", what.as_bytes(), namespace, charge.key.as_bytes()].concat()
}

/// The name of the permits under a key.
pub(super) fn permits(prefix: &str, namespace: &Namespace, key: Key<'_>) -> Vec<u8> {
    [prefix.as_bytes(), b"{}:permits:", namespace.as_bytes(), key.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use tidegate_core::{Limit, Op, Placement, Purpose};

    fn named(tag: &str, limit: &Limit, key: &str) -> String {
        let placement = Placement { tag: tag.as_bytes(), ..Placement::default() };
        let charge = Charge::new(Key::new(key).unwrap(), limit, Op::Peek).placed(placement);
        String::from_utf8(name("tidegate", &charge)).unwrap()
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
    fn a_namespace_stands_before_the_key() {
        let (gcra, rule) = ("5/minute".parse().unwrap(), Namespace::named(Purpose::Rule, &["api", "per_user"]));
        let charge = Charge::new(Key::new("ann").unwrap(), &gcra, Op::Peek).within(&rule);
        assert_eq!(name("tidegate", &charge), b"tidegate{}:gcra:0:r\x03api\x08per_userann");
        assert_eq!(permits("x", &Namespace::of(Purpose::Caller), Key::ALL), b"x{}:permits:i");
    }

    #[test]
    fn a_key_does_not_choose_its_slot() {
        let gcra: Limit = "5/minute".parse().unwrap();
        let slot = |key: &str| crate::redis::link::slot(named("", &gcra, key).as_bytes());
        let slots: std::collections::HashSet<u16> = (0..100).map(|number| slot(&format!("{{x}}{number}"))).collect();
        assert!(slots.len() > 90, "{} slots", slots.len());
    }
}
