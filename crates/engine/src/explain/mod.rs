//! Why a request was denied: each denial by rules has an id, and can be explained while its entry is in memory.
//!
//! | to find | look in |
//! |---|---|
//! | ids of denials | `id.rs` |
//! | the memory of denials: a ring for each thread | `ring.rs` |
//! | the bytes of an entry | `entry.rs` |
//! | answers about a denial | `answer.rs` |
//! | answers about a request that is not charged | `request.rs` |
//!
//! A request that is admitted costs nothing here. A denial writes some hundred bytes, without allocating.

mod answer;
mod entry;
mod id;
mod request;
mod ring;

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use arrayvec::ArrayVec;
use tidegate_core::Clock;
use tidegate_core::bounds::NANOS_PER_SECOND;

use crate::active::Active;
use crate::bounds::EXPLAIN_LIMITS_MAX;
use crate::outcome::{Binding, Denial, Judged};
use entry::{Head, Names, Numbers};
use id::Ids;
use ring::Rings;

pub use answer::{Explained, ExplainedLimit, Unexplained};
pub use id::{BadDecisionId, DecisionId};
pub use request::{ExplainedRequest, ExplainedRule, FailedCondition, LimitAnswer, RuleMatch};

/// The denials that this node can explain.
#[derive(Debug)]
pub(crate) struct Denials {
    /// The name of this node.
    node: Arc<str>,
    clock: Clock,
    ids: Ids,
    rings: Rings,
    prints: RandomState,
}

/// One limit that judged a request.
#[derive(Clone, Copy)]
pub(crate) struct Denied<'a> {
    pub(crate) judged: &'a Judged,
    pub(crate) key: &'a [u8],
    /// Units that the request asked for.
    pub(crate) cost: u64,
    /// The number of its store.
    pub(crate) store: usize,
}

impl Denied<'_> {
    fn binding(&self) -> Binding {
        Binding::new(self.judged.veto, self.judged.answer.strictness())
    }

    /// What tells it from denials by other limits or of other keys.
    fn hash_into(&self, hasher: &mut impl Hasher) {
        let Judged { rule, limit, .. } = self.judged;
        (rule.map(|rule| rule.index()), *limit, self.judged.answer.denial().map(|denial| denial as u8)).hash(hasher);
        self.key.hash(hasher);
    }
}

/// Limits that denied a request, the strictest first.
type DeniedLimits<'a> = ArrayVec<Denied<'a>, EXPLAIN_LIMITS_MAX>;

impl Denials {
    /// Keeps the denials of a node in at most this many bytes. Returns `None` if there are none.
    pub(crate) fn new(bytes: usize, node: Arc<str>, clock: Clock) -> Option<Denials> {
        if bytes == 0 {
            return None;
        }
        let number = node.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or_default();
        Some(Denials { node, clock, ids: Ids::new(number), rings: Rings::new(bytes), prints: RandomState::new() })
    }

    /// Keeps a denial, given all limits that judged the request. Denials of the same keys in the same second share an id.
    #[cold]
    pub(crate) fn note<'a>(
        &self,
        active: &Active,
        domain: &str,
        denial: Denial,
        judged: impl Iterator<Item = Denied<'a>>,
    ) -> Option<DecisionId> {
        let (limits, left_out) = strictest(judged);
        let now = self.clock.now();
        let head = Head { at: now, count: 1, denial, left_out };
        let number = |one: &Denied<'_>| Numbers::of(&one.judged.answer, one.cost, one.judged.local);
        let numbers: ArrayVec<Numbers, EXPLAIN_LIMITS_MAX> = limits.iter().filter_map(number).collect();
        let policy = active.policy.hash();
        let place = self.rings.keep(
            self.print(policy, domain, head, &limits),
            now.as_nanos() / NANOS_PER_SECOND,
            |entry| entry::rewrite(head, &numbers, entry),
            |bytes| {
                let names = limits.iter().map(|one| names(active, one));
                entry::write(head, (policy, domain), &numbers, names, bytes);
            },
        )?;
        Some(self.ids.id(place))
    }

    fn print(&self, policy: &str, domain: &str, head: Head, limits: &[Denied<'_>]) -> u64 {
        let mut hasher = self.prints.build_hasher();
        (policy, domain, head.denial as u8, head.left_out).hash(&mut hasher);
        limits.iter().for_each(|one| one.hash_into(&mut hasher));
        hasher.finish()
    }
}

/// The strictest of the limits that deny, and how many others there are.
fn strictest<'a>(judged: impl Iterator<Item = Denied<'a>>) -> (DeniedLimits<'a>, u8) {
    let (mut limits, mut left_out) = (DeniedLimits::new(), 0_u8);
    for one in judged.filter(|one| one.judged.veto && one.judged.answer.denial().is_some()) {
        let Err(full) = limits.try_push(one) else { continue };
        left_out = left_out.saturating_add(1);
        if let Some(mildest) = limits.iter_mut().max_by_key(|other| other.binding())
            && one.binding() < mildest.binding()
        {
            *mildest = full.element();
        }
    }
    limits.sort_by_key(Denied::binding);
    (limits, left_out)
}

fn names<'a>(active: &'a Active, denied: &Denied<'a>) -> Names<'a> {
    let Denied { judged, key, store, .. } = *denied;
    let rule = judged.rule.and_then(|id| active.rule(id));
    let limit = rule.and_then(|rule| rule.limits.get(judged.limit as usize));
    // What blocks asks no store.
    let has_limit = limit.is_some() || judged.own.is_some();
    let store = active.policy.stores().get(store).filter(|_| has_limit);
    Names {
        rule: rule.map_or("", |rule| &rule.name),
        limit: limit.map_or("", |limit| &limit.name),
        store: store.map_or("", |store| &store.name),
        shape: judged.rule.map_or(0, |id| active.key_shape(id)),
        key,
    }
}
