//! Nested limits that no request reaches, because a sibling of their parent is chosen and has no limit for them.
//!
//! The reference server chooses one descriptor at each level: the exact value, else the first wildcard, else the key alone.
//! It never comes back to another one, so a request that finds nothing below the chosen one matches no limit, silently.

use std::collections::HashMap;

use super::siblings::may_overlap;
use super::{Descriptor, Tree};
use crate::json::quote;
use crate::load::{Problems, at};
use crate::pattern::Glob;

/// Most steps through the tree of a domain for these warnings: 10,000 descriptors take far fewer. Without any left, no
/// further warning is found.
const STEPS_MAX: usize = 2_000_000;

/// Warns of each descriptor of a tree that hides limits below a sibling.
pub(super) fn warn(tree: &Tree, problems: &mut Problems) {
    Finder { steps: STEPS_MAX, problems }.level(tree);
}

struct Finder<'p> {
    /// The number of steps left.
    steps: usize,
    problems: &'p mut Problems,
}

/// Descriptors of one key at one level that match more than one value.
#[derive(Default)]
struct Open<'d> {
    wildcards: Vec<&'d Descriptor>,
    bare: Option<&'d Descriptor>,
}

impl Finder<'_> {
    fn level(&mut self, descriptors: &[Descriptor]) {
        let mut by_key: HashMap<&str, Open<'_>> = HashMap::new();
        for descriptor in descriptors {
            let open = by_key.entry(&descriptor.key).or_default();
            match &*descriptor.value {
                "" => open.bare = Some(descriptor),
                value if value.contains('*') => open.wildcards.push(descriptor),
                _ => {}
            }
        }
        for chosen in descriptors {
            let found = by_key.get(&*chosen.key).and_then(|open| self.hidden_by(chosen, open));
            if let Some((sibling, nested)) = found {
                self.report(chosen, sibling, nested);
            }
            self.level(&chosen.descriptors);
        }
    }

    /// Returns a sibling that would be chosen without this descriptor, and the one below it that is hidden.
    fn hidden_by<'d>(&mut self, chosen: &Descriptor, open: &Open<'d>) -> Option<(&'d Descriptor, &'d Descriptor)> {
        // After `*` nothing is ever chosen, which is another warning.
        if matches!(&*chosen.value, "" | "*") || is_exception(chosen) {
            return None;
        }
        let place = open.wildcards.iter().position(|wildcard| std::ptr::eq(*wildcard, chosen));
        let earlier = &open.wildcards[..place.unwrap_or(0)];
        // It is never chosen itself. The star of its value stands for any text, which only a star can match.
        if earlier.iter().any(|wildcard| Glob::new(&wildcard.value).matches(chosen.value.as_bytes())) {
            return None;
        }
        let later = open.wildcards.iter().skip(place.map_or(0, |place| place + 1));
        for sibling in later.copied().chain(open.bare) {
            let takes_over = match place {
                _ if !self.step() => return None,
                _ if sibling.value.is_empty() => true,
                Some(_) => may_overlap(&chosen.value, &sibling.value),
                None => Glob::new(&sibling.value).matches(chosen.value.as_bytes()),
            };
            if takes_over {
                match self.uncovered(&chosen.descriptors, &sibling.descriptors) {
                    Some(nested) => return Some((sibling, nested)),
                    // Of all that match an exact value, only the first would be chosen.
                    None if place.is_none() => return None,
                    None => {}
                }
            }
        }
        None
    }

    /// Returns one of the hidden descriptors that leads to a limit where `own` leads to none.
    fn uncovered<'d>(&mut self, own: &[Descriptor], hidden: &'d [Descriptor]) -> Option<&'d Descriptor> {
        hidden.iter().find(|nested| self.has_limit(nested) && !self.covers(own, nested))
    }

    /// Whether `own` leads to a limit for some of the requests that the hidden descriptor limits.
    fn covers(&mut self, own: &[Descriptor], hidden: &Descriptor) -> bool {
        own.iter().any(|other| {
            let is_bare = other.value.is_empty() || hidden.value.is_empty();
            !self.step()
                || other.key == hidden.key
                    && (is_bare || may_overlap(&other.value, &hidden.value))
                    && (other.limit.is_some() || hidden.limit.is_none())
                    && self.uncovered(&other.descriptors, &hidden.descriptors).is_none()
        })
    }

    /// Whether a descriptor has a limit, or one below it.
    fn has_limit(&mut self, descriptor: &Descriptor) -> bool {
        self.step() && (descriptor.limit.is_some() || descriptor.descriptors.iter().any(|one| self.has_limit(one)))
    }

    /// Takes a step, if one is left.
    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }

    fn report(&mut self, chosen: &Descriptor, sibling: &Descriptor, nested: &Descriptor) {
        let value = match sibling.value.is_empty() {
            true => "without a value".to_owned(),
            false => format!("with value `{}`", quote(&sibling.value)),
        };
        let (key, nested) = (quote(&chosen.key), quote(&nested.key));
        let message = format!(
            "`{key}` with value `{}` hides `{nested}` below `{key}` {value} at {}: requests with both match no limit",
            quote(&chosen.value),
            at(&sibling.file, sibling.mark),
        );
        let hint = format!("repeat `{nested}` below this descriptor, with `unlimited: true` if it needs no limit");
        self.problems.warning(at(&chosen.file, chosen.mark), message, hint);
    }
}

/// Whether a descriptor only says that its value has no limit.
fn is_exception(descriptor: &Descriptor) -> bool {
    descriptor.descriptors.is_empty() && descriptor.limit.as_ref().is_none_or(|limit| limit.unlimited)
}
