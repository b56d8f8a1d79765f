//! Fingerprints: 128 keyed bits that stand for a key under a limit.

use std::hash::{BuildHasher, Hasher};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

use crate::{Key, Limit, Namespace};

/// Replaces a whole identity in a table. Nobody can construct a collision without the seeds, and by chance two of 2^32
/// keys collide once in 2^65 tables. Never zero, which marks a slot that was never used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Fingerprint {
    pub(crate) high: u64,
    pub(crate) low: u64,
}

impl Fingerprint {
    /// No key's.
    pub(crate) const NONE: Fingerprint = Fingerprint { high: 0, low: 0 };

    /// Both halves as one number, of which all bits depend on all bits of both. The hashes are quick ones: under some seeds keys
    /// that count up are spread unevenly by either half alone.
    #[allow(clippy::cast_possible_truncation, reason = "both halves of the product are used")]
    pub(crate) fn mixed(self) -> u64 {
        let product = u128::from(self.high ^ 0x9e37_79b9_7f4a_7c15) * u128::from(self.low ^ 0xd6e8_feb8_6659_fd93);
        (product >> 64) as u64 ^ product as u64
    }
}

/// A number below `end`, in proportion to a hash.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "it is below `end`")]
pub(super) fn scaled(hash: u64, end: usize) -> usize {
    ((u128::from(hash) * end as u128) >> 64) as usize
}

/// Two hash functions with seeds of their own, drawn anew for each store.
pub(crate) struct Seeds {
    high: (u64, SharedSeed),
    low: (u64, SharedSeed),
}

impl Seeds {
    pub(crate) fn random() -> Seeds {
        // The standard library's hasher is keyed by the operating system's entropy; its outputs serve as random words.
        let source = std::hash::RandomState::new();
        let seed = |number: u64| source.hash_one(number);
        Seeds { high: (seed(0), SharedSeed::from_u64(seed(1))), low: (seed(2), SharedSeed::from_u64(seed(3))) }
    }

    /// The fingerprint of a key of a namespace under what a limit adds to that.
    #[inline]
    pub(crate) fn fingerprint(&self, namespace: &Namespace, limit: &Limit, key: Key<'_>) -> Fingerprint {
        // One word of the hasher for both: the hash of a namespace is as good as random beside the few identities.
        self.print(namespace.hash() ^ limit.identity().to_bits(), key)
    }

    /// The fingerprint of a key among those with the same bits before it.
    #[inline]
    pub(crate) fn print(&self, before: u128, key: Key<'_>) -> Fingerprint {
        let half = |(start, shared): &(u64, SharedSeed)| {
            let mut hasher = FoldHasher::with_seed(*start, shared);
            hasher.write_u128(before);
            hasher.write(key.as_bytes());
            hasher.finish()
        };
        Fingerprint { high: half(&self.high), low: half(&self.low).max(1) }
    }
}
